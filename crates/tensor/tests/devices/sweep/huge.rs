//! More elements than 32-bit indices can address, on a GPU with enough memory.

use bornite::{DType, Device, Tensor};

use libtest_mimic::{Completion, Failed};

/// 65537 · 32771 = 2³¹ + 229,379.
const SHAPE: [usize; 2] = [65_537, 32_771];

pub fn indices_beyond_32_bits(device: Device) -> Result<Completion, Failed> {
    let [rows, columns] = SHAPE;
    let gpu = bornite_cuda::Device::open(0)?;
    let needed = 5 * 8 * (rows * columns) as u64;
    let (free, _) = gpu.memory_bytes()?;
    if free < needed {
        let reason = format!("{needed} bytes of GPU memory are needed, {free} are free");
        return Ok(Completion::ignored_with(reason));
    }
    let value = |r: usize, c: usize| ((7 * r + 3 * c) % 251) as u8;
    let column = |n: usize| Tensor::arange(n, DType::I64, device);
    let x = (column(rows).reshape(&[rows, 1]) * 7i64 + column(columns) * 3i64).rem(251i64).cast(DType::U8);
    x.realize()?;
    assert!(rows * columns > 1 << 31 && x.shape()? == SHAPE);
    // Both ends, by views; the last elements are beyond 32-bit indices.
    let corner = |t: &Tensor| t.slice(0, -3..).slice(1, -5..);
    let expected: Vec<u8> = (rows - 3..rows).flat_map(|r| (columns - 5..columns).map(move |c| value(r, c))).collect();
    assert_eq!(corner(&x).to_vec::<u8>()?, expected);
    assert_eq!(x.slice(0, 0..1).slice(1, 0..3).to_vec::<u8>()?, [value(0, 0), value(0, 1), value(0, 2)]);
    // Elementwise over all, through a transpose.
    let y = (x.t() + 1i64).t();
    let above: Vec<u8> = expected.iter().map(|v| v + 1).collect();
    y.realize()?;
    assert_eq!(corner(&y).to_vec::<u8>()?, above);
    // Sums of rows and of columns; indices past the limit.
    let sums = x.cast(DType::I64).sum(1).to_vec::<i64>()?;
    for r in [0, 1, rows / 2, rows - 1] {
        assert_eq!(sums[r], (0..columns).map(|c| i64::from(value(r, c))).sum::<i64>(), "row {r}");
    }
    let flat = x.reshape(&[rows * columns]);
    let positions = [0i64, (1 << 31) - 1, 1 << 31, (rows * columns) as i64 - 1];
    let picked = flat.gather(0, &Tensor::from_slice(&positions, &[4], device)).to_vec::<u8>()?;
    for (position, found) in positions.iter().zip(picked) {
        let position = *position as usize;
        assert_eq!(found, value(position / columns, position % columns), "place {position}");
    }
    Ok(Completion::Completed)
}
