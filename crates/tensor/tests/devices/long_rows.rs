//! Rows too long for registers, kept in shared memory between passes: bitwise equal to plain ops.

use bornite::{
    DType, Device, Tensor, Var,
    fused::with_fusion,
    plan::{gpu_kernels, with_gpu_kernels},
    trace,
};

use crate::Outcome;
use crate::fusion::compare;
use crate::random::Random;

/// With GPU kernels, also on the interpreter.
pub fn equal_op_by_op(device: Device) -> Outcome {
    match device {
        Device::Cpu(_) => Ok(()), // has kernels of another shape
        Device::Interpreter => with_gpu_kernels(|| every_length(device)),
        Device::Cuda(_) => every_length(device),
    }
}

/// Rows updated in place by kernels of every kind.
pub fn updated_in_place(device: Device) -> Outcome {
    in_place(device)?;
    if device == Device::Interpreter { with_gpu_kernels(|| in_place(device)) } else { Ok(()) }
}

fn in_place(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for columns in [3, 20, 129, 768, 5000, 8192, 20_481] {
        let values: Vec<f32> = (0..3 * columns).map(|_| random.between(-2.0, 2.0) as f32).collect();
        let x = Tensor::from_slice(&values, &[3, columns], device);
        let after = |x: &Tensor| {
            let exps = (x - x.max_keepdim(-1)).exp();
            let shares = &exps / exps.sum_keepdim(-1);
            // Two outputs; the first overwrites an input that the second still reads.
            (&shares + x * 0.5, x - x.mean_keepdim(-1))
        };
        let (first, second) = (Var::new(&x)?, Var::new(&x)?);
        let step = trace(|_| {
            let (a, b) = after(&first.get());
            Ok((vec![], vec![first.set(a), second.set(b)]))
        });
        let mut expected = x.clone();
        for turn in 0..3 {
            let (a, b) = after(&expected);
            bornite::var::commit(&[a.clone(), b.clone()], vec![])?;
            step.call(&[])?;
            compare(&format!("{columns} columns, turn {turn}"), &[first.get(), second.get()], &[a.clone(), b])?;
            expected = a;
        }
    }
    Ok(())
}

fn every_length(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Lengths around the block size, with and without a remainder; the last f32 and f64 rows do not
    // fit in shared memory.
    let lengths = [4097, 4100, 5120, 8192, 9212, 16386, 20_481, 36_864, 50_304, 65_540];
    let mut staged = 0;
    for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
        // Four per run, since all take long; each run uses others.
        for _ in 0..4 {
            let columns = lengths[(random.bits() % lengths.len() as u64) as usize];
            let rows = 1 + (random.bits() % 2) as usize;
            let values: Vec<f32> = (0..rows * columns).map(|_| random.between(-4.0, 4.0) as f32).collect();
            let x = Tensor::from_slice(&values, &[rows, columns], device).cast(dtype);
            let y = Tensor::from_slice(&values, &[rows, columns], device).flip(1).cast(dtype);
            let classes: Vec<i64> = (0..rows).map(|_| (random.bits() % columns as u64) as i64).collect();
            let classes = Tensor::from_slice(&classes, &[rows], device);
            bornite::var::commit(&[x.clone(), y.clone()], vec![])?;
            let all = || -> Vec<Tensor> {
                let loss = x.cross_entropy(&classes);
                let gradient = loss.grad(&[&x]).remove(0);
                let (wide_x, wide_y) = (x.cast(DType::F32), y.cast(DType::F32));
                let centred = &wide_x - wide_x.mean_keepdim(-1);
                let deviation = (&centred * &centred).mean_keepdim(-1) * (&centred * &wide_y).sum_keepdim(-1);
                vec![loss, gradient, (centred * (deviation.abs() + 1e-3).rsqrt()).cast(dtype)]
            };
            let [fused, plain] = [true, false].map(|on| {
                with_fusion(on, || -> bornite::Result<Vec<Tensor>> {
                    let results = all();
                    bornite::var::commit(&results, vec![])?;
                    Ok(results)
                })
            });
            compare(&format!("{rows} rows of {columns} {dtype}"), &fused?, &plain?)?;
            let kernels = gpu_kernels(&all())?;
            staged += kernels.iter().filter(|kernel| kernel.shared.iter().any(|s| s.name.starts_with("row"))).count();
        }
    }
    assert!(staged >= 4, "only {staged} kernels keep rows");
    Ok(())
}
