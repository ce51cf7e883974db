//! Index arithmetic has the width and sign of C++: out-of-bounds accesses are found, others read
//! the right element.

use bornite_ir::interp::run;
use bornite_ir::{Arg, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, Lowered};

const DECLARED: &str = "struct P { int a; float b[4]; };";

/// A kernel of one block over 64 ints `x` (0, 1, …), 64 floats `y` and 64 ints `o`, with the
/// arguments -1 and 4294967295.
fn lowered(body: &str, threads: u32) -> Lowered {
    let text = format!(
        "{DECLARED}\n__global__ void k(int* x, float* y, int* o, P* p, int minus, unsigned most, long long far) {{ {body} }}"
    );
    let request = LaunchRequest::new([1; 3], [threads, 1, 1]);
    let request = ["x", "y", "o"].into_iter().fold(request, |request, name| request.length(name, 64)).length("p", 8);
    let module = CudaModule::parse("k.cu", &text).unwrap_or_else(|errors| panic!("{errors}"));
    module.kernel("k", &request).unwrap_or_else(|errors| panic!("{errors}"))
}

fn outcome(body: &str, threads: u32) -> Result<i64, String> {
    let kernel = lowered(body, threads).kernel;
    let (mut x, mut y, mut o, mut p) = (vec![0u64; 32], vec![0u64; 32], vec![0u64; 32], vec![0u64; 20]);
    (0..64).for_each(|n| store_scalar(&mut x, n * 4, Value::int(Scalar::I32, n as i64)));
    (0..64).for_each(|n| store_scalar(&mut y, n * 4, Value::from_f64(Scalar::F32, n as f64)));
    let values = [Value::int(Scalar::I32, -1), Value::int(Scalar::U32, -1), Value::int(Scalar::I64, 1 << 32)];
    let mut args = vec![Arg::Write(&mut x), Arg::Write(&mut y), Arg::Write(&mut o), Arg::Write(&mut p)];
    args.extend(values.chunks(1).map(Arg::Value));
    match run(&kernel, &mut args) {
        Ok(()) => Ok(load_scalar(&o, 0, Scalar::I32).as_i64()),
        Err(fault) => Err(fault.kind.to_string()),
    }
}

#[test]
fn out_of_bounds_accesses_are_found() {
    let outside = |index: &str, of: &str, len: u32| format!("index {index} is outside '{of}' of {len} elements");
    let cases: &[(&str, u32, String)] = &[
        // A negative unsigned difference, added to a pointer.
        ("const int* row = x + 8; o[threadIdx.x] = row[threadIdx.x - 1];", 4, outside("4294967303", "x", 64)),
        ("const int* row = &x[8]; o[threadIdx.x] = row[threadIdx.x - 1];", 4, outside("4294967303", "x", 64)),
        ("o[0] = *(x + 8 + most);", 1, outside("4294967303", "x", 64)),
        ("o[0] = (x + most)[8];", 1, outside("4294967303", "x", 64)),
        ("o[0] = (8 + x)[most];", 1, outside("4294967303", "x", 64)),
        ("o[0] = *(x + 8 - (unsigned)1 - most);", 1, outside("-4294967288", "x", 64)),
        ("const int* row = x + 8; row += most; o[0] = *row;", 1, outside("4294967303", "x", 64)),
        ("const int* row = x + 8; row -= most; o[0] = *row;", 1, outside("-4294967287", "x", 64)),
        (
            "const int* row = x; for (int i = 0; i < 3; i++) row += 2147483647; o[0] = row[5];",
            1,
            outside("6442450946", "x", 64),
        ),
        ("const int* row = threadIdx.x < 9 ? x + most : x; o[0] = row[8];", 1, outside("4294967303", "x", 64)),
        ("atomicAdd(x + most + 8, 1);", 1, outside("4294967303", "x", 64)),
        // Vectors.
        ("((float4*)y)[1073741824] = float4{1, 2, 3, 4};", 1, outside("4294967299", "y", 64)),
        ("float4 v = ((float4*)y)[minus * 1073741824]; o[0] = v.x;", 1, outside("-4294967296", "y", 64)),
        ("((float2*)y)[most / 2 + 1].y = 1;", 1, outside("4294967297", "y", 64)),
        ("float4* v = (float4*)y; v += 1 << 30; o[0] = ((float*)v)[3];", 1, outside("4294967299", "y", 64)),
        // Two offsets whose sum wraps back into the array in 32 bits.
        (
            "const int* q = x + minus * 2147483647 - 1; o[0] = q[minus * 2147483647 - 1];",
            1,
            outside("-4294967296", "x", 64),
        ),
        ("int* q = x + (1ll << 32); q[0] = 1;", 1, outside("4294967296", "x", 64)),
        ("int* q = x; q += far; q[0] = 1;", 1, outside("4294967296", "x", 64)),
        ("o[0] = x[far];", 1, outside("4294967296", "x", 64)),
        ("o[0] = x[(size_t)most + 1];", 1, outside("4294967296", "x", 64)),
        ("o[0] = x[(unsigned long long)minus];", 1, outside("-1", "x", 64)),
        // Multidimensional arrays, local arrays, arrays in structs, constants.
        (
            "__shared__ int t[4][8]; t[threadIdx.x][0] = 1; o[0] = t[far][0];",
            1,
            "'t[4294967296][0]': ".to_owned() + &outside("4294967296", "t, dimension 0", 4),
        ),
        ("__shared__ int t[4][8]; int* f = &t[0][0]; f[most - 3] = 1;", 1, outside("4294967292", "t", 32)),
        ("__shared__ int t[32]; int* f = t + 16; f[most] = 1;", 1, outside("4294967311", "t", 32)),
        ("int a[4] = {1, 2, 3, 4}; o[0] = a[far];", 1, outside("4294967296", "a", 4)),
        ("const int a[4] = {1, 2, 3, 4}; o[0] = a[far + 1];", 1, outside("4294967297", "a", 4)),
        ("o[0] = p[far + 1].a;", 1, outside("4294967297", "p", 8)),
        ("P* q = p + far; o[0] = q->a;", 1, outside("4294967296", "p", 8)),
        ("o[0] = p[0].b[far];", 1, outside("4294967296", "b", 4)),
    ];
    let mut wrong = String::new();
    for (body, threads, expected) in cases {
        match outcome(body, *threads) {
            Err(found) if found.starts_with(expected) => {}
            found => wrong += &format!("{body}\nexpected: {expected}\nfound: {found:?}\n"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn accesses_within_bounds_are_correct() {
    let cases: &[(&str, i64)] = &[
        ("const int* row = x + 8; o[0] = row[minus];", 7),
        ("const int* row = x + 8; o[0] = row[(int)most];", 7),
        ("const int* row = x + 8; o[0] = row[(size_t)minus];", 7),
        ("const int* row = x + far; o[0] = row[3 - far];", 3),
        ("const int* row = x + most; row += 9; row -= far; o[0] = *row;", 8),
        ("const float4* v = (const float4*)y + 5; o[0] = (int)v[minus].z;", 18),
        // Differences and comparisons of pointers.
        ("o[0] = (x + far - x) == far;", 1),
        ("o[0] = (x + most) - (x + 1) == 4294967294ll;", 1),
        ("o[0] = (x + most > x) + 2 * (x + minus < x) + 4 * (x + far != x);", 7),
        ("o[0] = ((float4*)y + 7) - ((float4*)y + 2);", 5),
        ("const int* q = x; int n = 0; while (q < x + 10) { q += 3; n++; } o[0] = n * 100 + (q - x);", 412),
    ];
    for (body, expected) in cases {
        assert_eq!(outcome(body, 1), Ok(*expected), "{body}");
    }
}

/// 32-bit indices are used where they detect the same faults: the text is shorter and the code
/// faster.
#[test]
fn indices_stay_32_bit_where_possible() {
    let cases: &[(&str, Scalar)] = &[
        ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 64) o[i] = x[i];", Scalar::I32),
        ("size_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 64) o[i] = x[i];", Scalar::I32),
        ("unsigned i = most; o[i] = x[i - 1];", Scalar::I32),
        ("const int* row = x + threadIdx.x * 8; for (int i = 0; i < 8; i++) o[i] = row[i];", Scalar::I32),
        ("const int* row = x + minus; for (int i = 0; i < minus; i++) o[i] = row[i];", Scalar::I32),
        ("const int* row = x + 8; o[threadIdx.x] = row[(int)threadIdx.x - 1];", Scalar::I32),
        ("float4 v = ((float4*)y)[threadIdx.x]; o[threadIdx.x] = v.x;", Scalar::I32),
        ("const int* row = x + most; o[0] = row[threadIdx.x];", Scalar::I64),
        ("const int* row = x + minus; o[0] = row[minus];", Scalar::I64),
        ("o[0] = x[far];", Scalar::I64),
    ];
    for (body, index) in cases {
        assert_eq!(lowered(body, 32).kernel.index, *index, "{body}");
    }
}
