//! The templates of `bornite-ir` on every device: against plain loops, and bitwise equal to the
//! interpreter in both thread orders.

use bornite::ir::interp::{ExecutionOrder, InterpreterOptions, run_with};
use bornite::ir::{Access, Arg, Kernel, Scalar, Value, templates};
use bornite::{DType, Device, Tensor, ops::Element, settings::MatmulMode};

use crate::Outcome;
use crate::ir_kernels::run_kernel;
use crate::random::Random;

/// Runs a kernel on the device and on the interpreter in both orders; all three must be bitwise
/// equal.
fn everywhere<T: Element + PartialEq>(
    kernel: &Kernel,
    inputs: &[Vec<T>],
    device: Device,
) -> Result<Vec<T>, libtest_mimic::Failed> {
    let tensors: Vec<Tensor> = inputs.iter().map(|data| Tensor::from_slice(data, &[data.len()], device)).collect();
    let outputs = run_kernel(kernel, &tensors.iter().collect::<Vec<_>>(), &[], device)?;
    let found = outputs[0].to_vec::<T>()?;
    for order in [ExecutionOrder::Forward, ExecutionOrder::Reverse] {
        let mut inputs = inputs.iter();
        let mut memory: Vec<Vec<u64>> = (kernel.params.iter())
            .map(|p| match p.access {
                Access::Write => vec![0; kernel.view_bytes(p, &[]).unwrap_or(0).div_ceil(8)],
                _ => inputs.next().and_then(|data| T::pack(data)).unwrap_or_default(),
            })
            .collect();
        let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
            .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
            .collect();
        run_with(
            kernel,
            &mut args,
            InterpreterOptions { order, max_statements: Some(1 << 20), ..InterpreterOptions::default() },
        )?;
        let written = kernel.params.iter().position(|p| p.access != Access::Read).unwrap_or(0);
        let expected = T::unpack(&memory[written], found.len()).unwrap_or_default();
        if found != expected {
            return Err(format!("{} on {device} differs from the interpreter, {order:?}", kernel.name).into());
        }
    }
    Ok(found)
}

fn close(name: &str, found: &[f32], expected: &[f64], tolerance: f64) -> Outcome {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (n, (&found, expected)) in found.iter().zip(expected).enumerate() {
        if (found as f64 - expected).abs() > tolerance * expected.abs().max(1.0) {
            return Err(format!("{name}: element {n} is {found}, expected {expected}").into());
        }
    }
    Ok(())
}

fn floats(random: &mut Random, len: u64) -> Vec<f32> {
    random.vec(len as usize, -1.0, 1.0).into_iter().map(|x| x as f32).collect()
}

const F32: Scalar = Scalar::F32;

pub fn elementwise(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for n in [1, 31, 257, 1000] {
        let filled = everywhere::<f32>(&templates::fill(F32, n, 2.5)?, &[], device)?;
        assert!(filled.iter().all(|&x| x == 2.5));
        let (x, y) = (floats(&mut random, n), floats(&mut random, n));
        let found = everywhere(&templates::axpy(F32, n, 3.0)?, &[x.clone(), y.clone()], device)?;
        let expected: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| 3.0 * x as f64 + y as f64).collect();
        close("axpy", &found, &expected, 1e-6)?;
    }
    for (rows, columns) in [(1, 1), (3, 3), (17, 40)] {
        let x = floats(&mut random, rows * columns);
        let found = everywhere(&templates::stencil(F32, rows, columns)?, std::slice::from_ref(&x), device)?;
        let (h, w) = (rows as usize, columns as usize);
        let at = |i: usize, j: usize| x[i * w + j] as f64;
        let expected: Vec<f64> = (0..h * w)
            .map(|n| match (n / w, n % w) {
                (i, j) if i > 0 && i + 1 < h && j > 0 && j + 1 < w => {
                    (at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1)) / 4.0
                }
                (i, j) => at(i, j),
            })
            .collect();
        close("stencil", &found, &expected, 1e-6)?;
    }
    let (c, h, w, f, s) = (3usize, 9usize, 11usize, 4usize, 3usize);
    let (x, weights) = (floats(&mut random, (c * h * w) as u64), floats(&mut random, (f * c * s * s) as u64));
    let kernel = templates::conv2d(F32, c as u64, h as u64, w as u64, f as u64, s as u64)?;
    let found = everywhere(&kernel, &[x.clone(), weights.clone()], device)?;
    let mut expected = vec![];
    for o in 0..f {
        for (i, j) in (0..h - s + 1).flat_map(|i| (0..w - s + 1).map(move |j| (i, j))) {
            let taps = (0..c * s * s).map(|n| (n / (s * s), n / s % s, n % s));
            let tap = |(d, p, q): (usize, usize, usize)| {
                x[d * h * w + (i + p) * w + j + q] as f64 * weights[o * c * s * s + d * s * s + p * s + q] as f64
            };
            expected.push(taps.map(tap).sum());
        }
    }
    close("conv2d", &found, &expected, 1e-5)
}

pub fn reductions(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for n in [1, 100, 256, 1000] {
        let x = floats(&mut random, n);
        let parts = everywhere(&templates::block_sum(F32, n, 128)?, std::slice::from_ref(&x), device)?;
        let whole =
            everywhere(&templates::block_sum(F32, parts.len() as u64, 128)?, std::slice::from_ref(&parts), device)?;
        close("two-stage sum", &whole, &[x.iter().map(|&x| x as f64).sum()], 1e-4)?;
        let sums = everywhere(&templates::block_scan(F32, n, 64)?, std::slice::from_ref(&x), device)?;
        let scan = |block: &[f32]| -> Vec<f64> {
            block
                .iter()
                .scan(0.0, |sum, &x| {
                    *sum += x as f64;
                    Some(*sum)
                })
                .collect()
        };
        close("scan", &sums, &x.chunks(64).flat_map(scan).collect::<Vec<_>>(), 1e-5)?;
    }
    let x = floats(&mut random, 320);
    let sums = everywhere(&templates::warp_sum(F32, 320)?, std::slice::from_ref(&x), device)?;
    let expected: Vec<f64> = x.chunks(32).map(|w| w.iter().map(|&x| x as f64).sum()).collect();
    close("warp sum", &sums, &expected, 1e-5)?;
    for (rows, columns) in [(3, 5), (2, 768), (4, 64)] {
        let x = floats(&mut random, rows * columns);
        let found = everywhere(&templates::softmax(F32, rows, columns, 64)?, std::slice::from_ref(&x), device)?;
        let expected: Vec<f64> = (x.chunks(columns as usize))
            .flat_map(|row| {
                let total: f64 = row.iter().map(|&x| (x as f64).exp()).sum();
                row.iter().map(move |&x| (x as f64).exp() / total).collect::<Vec<_>>()
            })
            .collect();
        close("softmax", &found, &expected, 1e-6)?;
    }
    let data: Vec<i32> = (0..1000).map(|_| (random.bits() % 37) as i32).collect();
    let counts = everywhere(&templates::histogram(1000, 37, 64)?, &[data.clone(), vec![5; 37]], device)?;
    let expected: Vec<i32> = (0..37).map(|bin| 5 + data.iter().filter(|&&x| x == bin).count() as i32).collect();
    assert_eq!(counts, expected, "histogram");
    Ok(())
}

pub fn tiles(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for (rows, columns) in [(1, 1), (32, 32), (45, 70)] {
        let x = floats(&mut random, rows * columns);
        let found = everywhere(&templates::transpose(F32, rows, columns)?, std::slice::from_ref(&x), device)?;
        let expected: Vec<f32> = (0..columns)
            .flat_map(|j| (0..rows).map(move |i| (i, j)))
            .map(|(i, j)| x[(i * columns + j) as usize])
            .collect();
        assert_eq!(found, expected, "transpose {rows} × {columns}");
    }
    for (m, k, n, tile) in [(1, 1, 1, 8), (16, 16, 16, 16), (19, 37, 23, 8)] {
        let (a, b) = (floats(&mut random, m * k), floats(&mut random, k * n));
        let found = everywhere(&templates::matmul(F32, m, k, n, tile)?, &[a.clone(), b.clone()], device)?;
        let expected: Vec<f64> = (0..m * n)
            .map(|at| {
                let (i, j) = (at / n, at % n);
                (0..k).map(|l| a[(i * k + l) as usize] as f64 * b[(l * n + j) as usize] as f64).sum()
            })
            .collect();
        close("matmul", &found, &expected, 1e-5)?;
        let product = |device| {
            let tensor = |data: &[f32], shape: [u64; 2]| Tensor::from_slice(data, &shape.map(|d| d as usize), device);
            tensor(&a, [m, k]).matmul(&tensor(&b, [k, n])).cast(DType::F32).to_vec::<f32>()
        };
        let plain = MatmulMode::Exact.within(|| product(device))?;
        assert_eq!(found, plain, "a tiled product adds in the same order as a plain one");
    }
    Ok(())
}

/// Layer norm and softmax of rows, an expression, and a kernel with values, structs and a function.
pub fn rows(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for (rows, columns) in [(1, 1), (3, 64), (4, 100), (2, 768)] {
        let x = floats(&mut random, rows * columns);
        let (weight, bias) = (floats(&mut random, columns), floats(&mut random, columns));
        let kernel = templates::layer_norm(F32, rows, columns, 64, 1e-5)?;
        let found = everywhere(&kernel, &[x.clone(), weight.clone(), bias.clone()], device)?;
        let expected: Vec<f64> = (x.chunks(columns as usize))
            .flat_map(|row| {
                let mean = row.iter().map(|&x| x as f64).sum::<f64>() / row.len() as f64;
                let variance = row.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / row.len() as f64;
                let scale = 1.0 / (variance + 1e-5).sqrt();
                let affine = weight.iter().zip(&bias);
                row.iter()
                    .zip(affine)
                    .map(|(&x, (&w, &b))| (x as f64 - mean) * scale * w as f64 + b as f64)
                    .collect::<Vec<_>>()
            })
            .collect();
        close("layer norm", &found, &expected, 1e-4)?;
    }
    let (x, y) = (floats(&mut random, 333), floats(&mut random, 333));
    let kernel = bornite::ir::elementwise("formula", "silu(x) * y + 1", F32, 333).map_err(|e| e.to_string())?;
    let found = everywhere(&kernel, &[x.clone(), y.clone()], device)?;
    let expected: Vec<f64> =
        x.iter().zip(&y).map(|(&x, &y)| x as f64 / (1.0 + (-x as f64).exp()) * y as f64 + 1.0).collect();
    close("silu(x) * y + 1", &found, &expected, 1e-6)?;

    let kernel = templates::particles()?;
    let n = 100;
    let state = floats(&mut random, n * 7);
    let value = |x: f64| Value::from_f64(F32, x);
    let values = [vec![Value::int(Scalar::I32, n as i64)], vec![value(0.1)], [0.0, -9.8, 0.0].map(value).to_vec()];
    let values: Vec<&[Value]> = values.iter().map(|parts| &parts[..]).collect();
    let on = |device: Device| -> bornite::Result<Vec<Vec<f32>>> {
        let state = Tensor::from_slice(&state, &[state.len()], device);
        run_kernel(&kernel, &[&state], &values, device)?.iter().map(|t| t.to_vec::<f32>()).collect()
    };
    let found = on(device)?;
    assert_eq!(found, on(Device::Interpreter)?, "particles");
    let energy: Vec<f64> = (state.chunks(7))
        .map(|p| {
            let mut v = [p[3] as f64, p[4] as f64 - 0.98, p[5] as f64];
            if p[1] as f64 + 0.1 * v[1] < 0.0 && v[1] < 0.0 {
                v[1] *= -0.5;
            }
            0.5 * p[6] as f64 * v.iter().map(|v| v * v).sum::<f64>()
        })
        .collect();
    close("energy", &found[1], &energy, 1e-5)
}
