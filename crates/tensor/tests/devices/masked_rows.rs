//! Masks by column in row kernels: where a mask is known to hold it is not evaluated, and nowhere
//! else.

use bornite::{DType, Device, Tensor, fused::with_fusion, plan::with_gpu_kernels};

use crate::Outcome;
use crate::random::Random;

/// A function of a tensor and of a vector as long as its last axis.
type Use = fn(&Tensor, &Tensor) -> Tensor;

fn column(x: &Tensor, dtype: DType) -> Tensor {
    let length = x.shape().ok().and_then(|shape| shape.last().copied()).unwrap_or(0);
    Tensor::arange(length, dtype, x.device().unwrap_or(Device::cpu()))
}

/// The first `count` elements of the last axis; zeros after them.
fn first(x: &Tensor, count: i64) -> Tensor {
    column(x, DType::I32).lt(count).select(x, 0.0)
}

/// Each use gives the same numbers fused and not.
pub fn masks_hold_only_for_the_column_of_the_pass(device: Device) -> Outcome {
    let uses: [(&str, &[usize], Use); 9] = [
        ("padding", &[3, 2048], |x, _| first(x, 2001).softmax(-1)),
        ("padding after many iterations", &[2, 20_000], |x, _| first(x, 19_990).softmax(-1)),
        ("padding of few columns", &[5, 256], |x, _| first(x, 200).softmax(-1)),
        ("a mask of rows", &[2, 256, 256], |x, v| (x * first(v, 200).reshape(&[1, 256, 1])).softmax(-1)),
        ("flipped", &[2048], |x, _| first(x, 1000).flip(0).softmax(-1)),
        ("rolled", &[2048], |x, _| {
            let masked = first(x, 1000);
            Tensor::concat(&[&masked.slice(0, 1000..), &masked.slice(0, 0..1000)], 0).softmax(-1)
        }),
        ("gathered", &[2048], |x, v| {
            let index = (column(v, DType::I64) * 7).rem(2048i64);
            let masked = first(x, 1000);
            (&masked - masked.gather(0, &index)).exp().sum(..)
        }),
        ("a gathered column", &[4, 2048], |x, _| {
            let masked = first(x, 1000);
            let index = Tensor::full(1500.0, &[4, 1], DType::I64, x.device().unwrap_or(Device::cpu()));
            (&masked - masked.gather(-1, &index)).exp().sum(-1)
        }),
        ("a rounded column", &[2048], |x, _| column(x, DType::BF16).lt(512.0).select(x, 0.0).softmax(-1)),
    ];
    let mut random = Random::fresh();
    for (what, shape, make) in uses {
        let last = shape[shape.len() - 1];
        let x = Tensor::from_slice(&random.vec(shape.iter().product(), -2.0, 2.0), shape, device).cast(DType::F32);
        let v = Tensor::from_slice(&random.vec(last, -2.0, 2.0), &[last], device).cast(DType::F32);
        bornite::var::commit(&[x.clone(), v.clone()], vec![])?;
        let result = |on: bool| with_gpu_kernels(|| with_fusion(on, || make(&x, &v).to_vec::<f32>()));
        let (fused, separate) = (result(true)?, result(false)?);
        assert_eq!(fused.len(), separate.len(), "{what}");
        // A CPU computes softmax by a routine.
        let tolerance = if matches!(device, Device::Cpu(_)) { 1e-5 } else { 0.0 };
        let differs = fused.iter().zip(&separate).position(|(a, b)| (a - b).abs() > tolerance * b.abs());
        assert_eq!(differs, None, "{what}: {:?}", differs.map(|n| (fused[n], separate[n])));
    }
    Ok(())
}
