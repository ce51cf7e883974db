//! CUDA's math functions against the interpreter: within the error bounds of the op table.

use bornite::Device;
use bornite::ir::{Arg, Emit, Op, Scalar, interp};
use bornite_codegen::cuda::{self, MathMode};

use crate::Outcome;
use crate::random::Random;
use crate::rows::{count, kernel_of, samples};

/// Values packed into 64-bit words, two f32 per word.
fn packed(scalar: Scalar, bits: &[u64]) -> Vec<u64> {
    if scalar == Scalar::F64 {
        return bits.to_vec();
    }
    bits.chunks(2).map(|pair| pair[0] | pair.get(1).copied().unwrap_or(0) << 32).collect()
}

fn numbers(scalar: Scalar, words: &[u64]) -> Vec<f64> {
    match scalar {
        Scalar::F64 => words.iter().map(|&w| f64::from_bits(w)).collect(),
        _ => words.iter().flat_map(|&w| [w as u32, (w >> 32) as u32]).map(|b| f32::from_bits(b) as f64).collect(),
    }
}

/// Distance in ulps of a type.
fn ulps(scalar: Scalar, found: f64, exact: f64) -> f64 {
    if found == exact || found.is_nan() && exact.is_nan() {
        return 0.0;
    }
    let ulp = if scalar == Scalar::F64 {
        let size = exact.abs().max(f64::MIN_POSITIVE);
        f64::from_bits(size.to_bits() + 1) - size
    } else {
        let size = (exact.abs() as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
        (size as f64) - f32::from_bits(size.to_bits() - 1) as f64
    };
    ((found - exact) / ulp).abs()
}

pub fn within_bounds(device: Device) -> Outcome {
    let Device::Cuda(ordinal) = device else { return Ok(()) };
    let gpu = bornite_cuda::Device::open(ordinal)?;
    let mut random = Random::fresh();
    let mut beyond = String::new();
    for &op in Op::ALL {
        let Some(native) = op.row().native else { continue };
        for scalar in [Scalar::F32, Scalar::F64] {
            let name = format!("{}_{scalar}", op.row().name);
            let types = vec![scalar; op.arity()];
            let kernel = |types: &[Scalar]| {
                kernel_of(name.clone(), types, types[0], |b, args| b.op(op, &args.iter().collect::<Vec<_>>()))
            };
            let columns: Vec<Vec<u64>> =
                types.iter().map(|&s| samples(s, &mut random).iter().map(|v| v.bits()).collect()).collect();
            let words: Vec<Vec<u64>> = columns.iter().map(|c| packed(scalar, c)).collect();

            let text = cuda::print_with(&kernel(&types)?, MathMode::Native);
            let cubin = bornite_cuda::compile(&name, &text, &gpu.info().arch())?;
            let symbol = cuda::symbol(&kernel(&types)?);
            let function = bornite_cuda::KernelFunction::load(&gpu, &cubin, &symbol, op.arity() + 1, vec![])?;
            let buffer = |words: &[u64]| -> Result<_, bornite_cuda::Error> {
                let buffer = bornite_cuda::Buffer::new(&gpu, words.len() * 8)?;
                buffer.upload(bytes_of(words))?;
                Ok(buffer)
            };
            let mut out = vec![0u64; words[0].len()];
            let mut buffers = vec![buffer(&out)?];
            for column in &words {
                buffers.push(buffer(column)?);
            }
            let pointers: Vec<bornite_cuda::DevicePointer> = buffers.iter().map(|buffer| (buffer, 0)).collect();
            // SAFETY: printed from a kernel that reads and writes `count()` elements of each parameter.
            #[allow(unsafe_code)]
            unsafe {
                function.launch([1024, 1, 1], [cuda::THREADS_PER_BLOCK, 1, 1], &pointers, &[])?;
            }
            let mut raw = vec![0u8; out.len() * 8];
            buffers[0].download(&mut raw)?;
            for (word, chunk) in out.iter_mut().zip(raw.chunks(8)) {
                *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            }
            let found = numbers(scalar, &out);

            // The reference is f64, exact to a few ulps.
            let args: Vec<Vec<f64>> = words.iter().map(|c| numbers(scalar, c)).collect();
            let wide: Vec<Vec<u64>> =
                args.iter().map(|c| c.iter().take(count()).map(|x| x.to_bits()).collect()).collect();
            let mut reference = vec![0u64; count()];
            let mut call: Vec<Arg> = vec![Arg::Write(&mut reference)];
            call.extend(wide.iter().map(|c| Arg::Read(c)));
            interp::run(&kernel(&vec![Scalar::F64; op.arity()])?, &mut call)?;

            let own = if scalar == Scalar::F64 { op.row().ulp.f64 } else { 0.51 };
            let bound = if scalar == Scalar::F64 { native.ulp.f64 } else { native.ulp.f32 } + own;
            let mut worst = (0.0, String::new());
            for (n, (&found, reference)) in found.iter().zip(&reference).enumerate() {
                let exact = f64::from_bits(*reference);
                let narrow = if scalar == Scalar::F32 { exact as f32 as f64 } else { exact };
                if found == narrow {
                    continue;
                }
                let error = if found.is_nan() != exact.is_nan() { f64::INFINITY } else { ulps(scalar, found, exact) };
                if error > worst.0 {
                    let at: Vec<String> = args.iter().map(|c| format!("{:e}", c[n])).collect();
                    worst = (error, format!("({}) = {found:e}, exactly {exact:e}", at.join(", ")));
                }
            }
            if worst.0 > bound {
                beyond += &format!("{name}{}: {} ulp off, bound {bound}\n", worst.1, worst.0);
            }
        }
    }
    if beyond.is_empty() { Ok(()) } else { Err(beyond.into()) }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}
