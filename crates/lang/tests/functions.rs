//! CUDA functions that are lowered to several ops, against reference implementations on random
//! bits.

use bornite_ir::Arg;
use bornite_ir::interp::run;
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;

type Reference = fn(u64, u64, u64) -> u64;

const THREADS: usize = 256;

fn float(of: fn(f32, f32, f32) -> f32) -> impl Fn(u64, u64, u64) -> u64 {
    move |a, b, c| of(f32::from_bits(a as u32), f32::from_bits(b as u32), f32::from_bits(c as u32)).to_bits() as u64
}

fn next_after(x: f32, y: f32) -> f32 {
    match () {
        () if x.is_nan() || y.is_nan() => f32::NAN,
        () if x == y => y,
        () if x < y => x.next_up(),
        () => x.next_down(),
    }
}

fn ldexp(x: f32, n: i32) -> f32 {
    (x as f64 * 2f64.powi(n.clamp(-400, 400))) as f32
}

fn bytes_chosen(a: u64, b: u64, c: u64) -> u64 {
    let all = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    (0..4).fold(0, |sum, n| sum | (all >> ((c >> (n * 4) & 7) * 8) & 255) << (n * 8))
}

fn low_24(x: u64) -> i32 {
    (x as i32) << 8 >> 8
}

#[test]
fn composite_functions_match_references() {
    let integers: &[(&str, Reference)] = &[
        ("__brev((unsigned)a)", |a, _, _| (a as u32).reverse_bits() as u64),
        ("__brevll(a)", |a, _, _| a.reverse_bits()),
        ("__umulhi((unsigned)a, (unsigned)b)", |a, b, _| (a as u32 as u64 * b as u32 as u64) >> 32),
        ("__mulhi((int)a, (int)b)", |a, b, _| ((a as i32 as i64 * b as i32 as i64) >> 32) as u64),
        ("__umul64hi(a, b)", |a, b, _| ((a as u128 * b as u128) >> 64) as u64),
        ("__mul64hi((long long)a, (long long)b)", |a, b, _| ((a as i64 as i128 * b as i64 as i128) >> 64) as u64),
        ("__mul24((int)a, (int)b)", |a, b, _| low_24(a).wrapping_mul(low_24(b)) as i64 as u64),
        ("__umul24((unsigned)a, (unsigned)b)", |a, b, _| {
            (a as u32 & 0xff_ffff).wrapping_mul(b as u32 & 0xff_ffff) as u64
        }),
        ("__sad((int)a, (int)b, (unsigned)c)", |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c as u32) as u64),
        ("__usad((unsigned)a, (unsigned)b, (unsigned)c)", |a, b, c| {
            (a as u32).abs_diff(b as u32).wrapping_add(c as u32) as u64
        }),
        ("__funnelshift_l((unsigned)a, (unsigned)b, (unsigned)c)", |a, b, c| {
            let whole = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
            (whole << (c & 31)) >> 32
        }),
        ("__funnelshift_r((unsigned)a, (unsigned)b, (unsigned)c)", |a, b, c| {
            let whole = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
            whole >> (c & 31) & 0xffff_ffff
        }),
        ("__byte_perm((unsigned)a, (unsigned)b, (unsigned)c)", bytes_chosen),
        ("lroundf((int)a / 16.0f)", |a, _, _| (a as i32 as f32 / 16.0).round() as i64 as u64),
        ("lrintf((int)a / 16.0f)", |a, _, _| (a as i32 as f32 / 16.0).round_ties_even() as i64 as u64),
        ("llrintf((short)a / 2.0f)", |a, _, _| (a as i16 as f32 / 2.0).round_ties_even() as i64 as u64),
        ("lround((short)a / 2.0)", |a, _, _| (a as i16 as f64 / 2.0).round() as i64 as u64),
    ];
    let floats: &[(&str, fn(f32, f32, f32) -> f32)] = &[
        ("fdimf(x, y)", |x, y, _| if x <= y { 0.0 } else { x - y }),
        ("nextafterf(x, y)", |x, y, _| next_after(x, y)),
        ("nextafterf(0.0f * x, y)", |x, y, _| next_after(0.0 * x, y)),
        ("ldexpf(x, (signed char)c)", |x, _, z| ldexp(x, z.to_bits() as i8 as i32)),
        ("scalbnf(x, (int)c)", |x, _, z| ldexp(x, z.to_bits() as i32)),
        ("norm3df(x, y, z)", |x, y, z| {
            let [x, y, z] = [x, y, z].map(f64::from);
            (x * x + y * y + z * z).sqrt() as f32
        }),
        ("nanf(\"\")", |_, _, _| f32::NAN),
        ("sinpif((int)c)", |_, _, _| 0.0),
        ("cospif((short)c)", |_, _, z| if z.to_bits() & 1 == 0 { 1.0 } else { -1.0 }),
        ("sinpif((short)c + 0.5f)", |_, _, z| if z.to_bits() & 1 == 0 { 1.0 } else { -1.0 }),
    ];
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ state >> 32
    };
    let inputs: Vec<u64> = (0..3 * THREADS).map(|_| next()).collect();
    let found = |expr: &str, result: &str| -> Vec<u64> {
        let text = format!(
            "__global__ void k(const unsigned long long* in, unsigned long long* out) {{
                int i = threadIdx.x;
                unsigned long long a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
                float x = __uint_as_float((unsigned)a), y = __uint_as_float((unsigned)b), z = __uint_as_float((unsigned)c);
                out[i] = {result}({expr});
            }}"
        );
        let request = LaunchRequest::new([1; 3], [THREADS as u32, 1, 1]).length("in", 3 * THREADS as u64);
        let request = request.length("out", THREADS as u64);
        let lowered = CudaModule::parse("k.cu", &text).and_then(|module| module.kernel("k", &request));
        let kernel = lowered.unwrap_or_else(|errors| panic!("{errors}")).kernel;
        let mut out = vec![0; THREADS];
        run(&kernel, &mut [Arg::Read(&inputs), Arg::Write(&mut out)]).unwrap_or_else(|fault| panic!("{expr}: {fault}"));
        out
    };
    let args = |n: usize| (inputs[3 * n], inputs[3 * n + 1], inputs[3 * n + 2]);
    for (expr, reference) in integers {
        for (n, found) in found(expr, "").into_iter().enumerate() {
            let (a, b, c) = args(n);
            assert_eq!(found, reference(a, b, c), "BORNITE_TEST_SEED={seed}: {expr} of {a:#x}, {b:#x}, {c:#x}");
        }
    }
    for (expr, reference) in floats {
        for (n, found) in found(expr, "__float_as_uint").into_iter().enumerate() {
            let (a, b, c) = args(n);
            let expected = float(*reference)(a, b, c);
            let [found, expected] = [found, expected].map(|bits| f32::from_bits(bits as u32));
            // The sign of a zero at whole turns is unspecified.
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            let zeros = expr.contains("pif") && found == expected;
            assert!(
                same || zeros,
                "BORNITE_TEST_SEED={seed}: {expr} of {a:#x}, {b:#x}, {c:#x}: {found}, not {expected}"
            );
        }
    }
}
