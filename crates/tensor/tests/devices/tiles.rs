//! Large tiles: transposed reads, several elements at a time.

use bornite::{
    DType, Device, Tensor,
    plan::{gpu_kernels, with_gpu_kernels},
};

use crate::Outcome;
use crate::random::Random;

/// With GPU kernels, also on the interpreter.
pub fn transposed(device: Device) -> Outcome {
    match device {
        Device::Cpu(_) => Ok(()), // has no tiles
        Device::Interpreter => with_gpu_kernels(|| every_shape(device)),
        Device::Cuda(_) => every_shape(device),
    }
}

fn every_shape(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Batches, rows and columns: complete tiles, partial tiles, and lengths that are not multiples
    // of four.
    let shapes = [(1, 1024, 1024), (1, 1028, 1092), (3, 516, 708), (1, 1026, 1024), (2, 1024, 513)];
    let (batch, rows, columns) = shapes[(random.bits() % shapes.len() as u64) as usize];
    let all = batch * rows * columns;
    for dtype in [DType::F32, DType::BF16] {
        // Small integers and their sums are exact in every dtype.
        let numbers = |random: &mut Random| -> Vec<f32> { (0..all).map(|_| (random.bits() % 100) as f32).collect() };
        let (a, b) = (numbers(&mut random), numbers(&mut random));
        let x = Tensor::from_slice(&a, &[batch, rows, columns], device).cast(dtype);
        let y = Tensor::from_slice(&b, &[batch, columns, rows], device).cast(dtype);
        bornite::var::commit(&[x.clone(), y.clone()], vec![])?;
        let sum = x.t() + &y;
        let tiles = gpu_kernels(std::slice::from_ref(&sum))?.iter().filter(|kernel| !kernel.shared.is_empty()).count();
        assert_eq!(tiles, 1, "{dtype} {batch}×{rows}×{columns} has no tiles");
        let found = sum.cast(DType::F32).to_vec::<f32>()?;
        for (n, found) in found.iter().enumerate() {
            let (of, column, row) = (n / (rows * columns), n / rows % columns, n % rows);
            let expected = a[(of * rows + row) * columns + column] + b[n];
            assert_eq!(*found, expected, "element {n} of {dtype} {batch}×{rows}×{columns}");
        }
    }
    Ok(())
}
