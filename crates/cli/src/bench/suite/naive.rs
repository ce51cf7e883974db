//! Simple loops on one CPU core: the reference that a first implementation would be.

use std::convert::Infallible;
use std::hint::black_box;

use bornite_bench::{Config, measure};

/// Operations past which loops are not timed: about half a second.
const MAX_OPS: u64 = 1 << 29;

type Loops = dyn Fn(&[Vec<f32>]) -> Vec<f32> + Send + Sync;

/// Loops over f32 arrays of given lengths.
pub struct NaiveLoops {
    lengths: Vec<usize>,
    ops: u64,
    pub run: Box<Loops>,
}

impl NaiveLoops {
    fn new(lengths: &[usize], ops: usize, run: impl Fn(&[Vec<f32>]) -> Vec<f32> + Send + Sync + 'static) -> NaiveLoops {
        NaiveLoops { lengths: lengths.into(), ops: ops as u64, run: Box::new(run) }
    }

    /// Median time of a call; `None` if it would take too long.
    pub fn median_ms(&self) -> Option<f64> {
        if self.ops > MAX_OPS {
            return None;
        }
        let value = |n: usize| ((n * 7919) % 2003) as f32 / 1000.0 - 1.0;
        let inputs: Vec<Vec<f32>> = self.lengths.iter().map(|&length| (0..length).map(value).collect()).collect();
        let call = |_| {
            black_box((self.run)(black_box(&inputs)));
            Ok::<(), Infallible>(())
        };
        let Ok(measured) = measure(&Config::quick(), call, || Ok(()));
        Some(measured.median_ms)
    }
}

pub fn map(n: usize, f: fn(f32) -> f32) -> NaiveLoops {
    NaiveLoops::new(&[n], n, move |x| x[0].iter().map(|&x| f(x)).collect())
}

pub fn zip(n: usize, f: fn(f32, f32) -> f32) -> NaiveLoops {
    NaiveLoops::new(&[n, n], n, move |x| x[0].iter().zip(&x[1]).map(|(&a, &b)| f(a, b)).collect())
}

/// A sum in f64, since one in f32 would lose digits.
pub fn sum(n: usize) -> NaiveLoops {
    NaiveLoops::new(&[n], n, |x| vec![x[0].iter().map(|&x| f64::from(x)).sum::<f64>() as f32])
}

pub fn softmax(rows: usize, width: usize) -> NaiveLoops {
    NaiveLoops::new(&[rows * width], 4 * rows * width, move |x| {
        let row = |row: &[f32]| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exponentials: Vec<f32> = row.iter().map(|&x| (x - max).exp()).collect();
            let sum: f32 = exponentials.iter().sum();
            exponentials.into_iter().map(move |exponential| exponential / sum)
        };
        x[0].chunks(width).flat_map(row).collect()
    })
}

pub fn layer_norm(rows: usize, width: usize) -> NaiveLoops {
    NaiveLoops::new(&[rows * width, width, width], 4 * rows * width, move |x| {
        let mut out = Vec::with_capacity(x[0].len());
        for row in x[0].chunks(width) {
            let mean = row.iter().sum::<f32>() / width as f32;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / width as f32;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            out.extend(row.iter().zip(x[1].iter().zip(&x[2])).map(|(x, (w, b))| (x - mean) * scale * w + b));
        }
        out
    })
}

/// Product of m × k by k × n, as three loops.
pub fn matmul([m, k, n]: [usize; 3]) -> NaiveLoops {
    NaiveLoops::new(&[m * k, k * n], 2 * m * k * n, move |x| {
        let mut out = vec![0.0; m * n];
        for i in 0..m {
            for j in 0..n {
                out[i * n + j] = (0..k).map(|l| x[0][i * k + l] * x[1][l * n + j]).sum();
            }
        }
        out
    })
}

pub fn transpose(n: usize) -> NaiveLoops {
    NaiveLoops::new(&[n * n], n * n, move |x| (0..n * n).map(|at| x[0][at % n * n + at / n]).collect())
}

/// Convolution 3x3 of square images with padding 1, and a bias.
pub fn conv3x3(batch: usize, channels: usize, side: usize, filters: usize) -> NaiveLoops {
    let (image, outputs) = (channels * side * side, batch * filters * side * side);
    NaiveLoops::new(&[batch * image, filters * channels * 9, filters], 18 * outputs * channels, move |x| {
        let value = |n: usize, c: usize, y: usize, x_at: usize| match (y.checked_sub(1), x_at.checked_sub(1)) {
            (Some(y), Some(at)) if y < side && at < side => x[0][n * image + (c * side + y) * side + at],
            _ => 0.0,
        };
        let output = |at: usize| {
            let (n, f, y, column) =
                (at / side / side / filters, at / side / side % filters, at / side % side, at % side);
            let mut sum = x[2][f];
            for c in 0..channels {
                for tap in 0..9 {
                    sum += value(n, c, y + tap / 3, column + tap % 3) * x[1][(f * channels + c) * 9 + tap];
                }
            }
            sum
        };
        (0..outputs).map(output).collect()
    })
}

/// Maximum of 2x2 pixels.
pub fn max_pool(images: usize, side: usize) -> NaiveLoops {
    let half = side / 2;
    NaiveLoops::new(&[images * side * side], images * side * side, move |x| {
        let output = |at: usize| {
            let first = (at / half / half * side + at / half % half * 2) * side + at % half * 2;
            [0, 1, side, side + 1].map(|offset| x[0][first + offset]).into_iter().fold(f32::NEG_INFINITY, f32::max)
        };
        (0..images * half * half).map(output).collect()
    })
}

/// Batch norm in evaluation: mean, variance, weight and bias per channel.
pub fn batch_norm(batch: usize, channels: usize, pixels: usize) -> NaiveLoops {
    let elements = batch * channels * pixels;
    let lengths = [elements, channels, channels, channels, channels];
    NaiveLoops::new(&lengths, 5 * elements, move |x| {
        let output = |at: usize| {
            let c = at / pixels % channels;
            (x[0][at] - x[1][c]) / (x[2][c] * x[2][c] + 1e-5).sqrt() * x[3][c] + x[4][c]
        };
        (0..elements).map(output).collect()
    })
}
