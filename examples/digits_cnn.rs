//! A convolutional network that reads handwritten-like digits: generated 12×12 images of a
//! seven-segment display with noise. Replace `digits` by `read_idx` for MNIST.
//!
//! `cargo run --release -p bornite-nn --example digits_cnn`

use bornite_nn::prelude::*;
use bornite_nn::train::FitEvent;

/// Segments of each digit: top, upper left, upper right, middle, lower left, lower right, bottom.
const SEGMENTS: [&str; 10] =
    ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011"];

/// Images `[count, 1, 12, 12]` and their digits.
fn digits(count: usize, seed: u64) -> Result<TensorDataset> {
    let mut pixels = vec![0.0f32; count * 144];
    for (n, image) in pixels.chunks_exact_mut(144).enumerate() {
        let mut fill = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
            rows.for_each(|row| columns.clone().for_each(|column| image[12 * row + column] = 1.0));
        };
        for (segment, _) in SEGMENTS[n % 10].bytes().enumerate().filter(|(_, lit)| *lit == b'1') {
            match segment {
                0 => fill(1..2, 4..8),
                1 => fill(2..6, 3..4),
                2 => fill(2..6, 8..9),
                3 => fill(6..7, 4..8),
                4 => fill(7..11, 3..4),
                5 => fill(7..11, 8..9),
                _ => fill(11..12, 4..8),
            }
        }
    }
    let cpu = Device::cpu();
    let noise = Tensor::randn(&[count, 1, 12, 12], DType::F32, &bornite::Generator::new(seed), cpu);
    let images = Tensor::from_slice(&pixels, &[count, 1, 12, 12], cpu) + noise * 0.3;
    let labels: Vec<i64> = (0..count as i64).map(|n| n % 10).collect();
    TensorDataset::from_tensors(&[&images, &Tensor::from_slice(&labels, &[count], cpu)])
}

#[derive(Module)]
struct Cnn {
    conv1: Conv2d,
    norm: BatchNorm,
    conv2: Conv2d,
    fc: Linear,
}

impl Cnn {
    fn new(params: &Params) -> Cnn {
        Cnn {
            conv1: Conv2d::new(&params.at("conv1"), 1, 8, 3).padding(1),
            norm: BatchNorm::new(&params.at("norm"), 8),
            conv2: Conv2d::new(&params.at("conv2"), 8, 16, 3),
            fc: Linear::new(&params.at("fc"), 16 * 4 * 4, 10),
        }
    }
}

impl Forward for Cnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.norm.forward(&self.conv1.forward(x)).relu().max_pool2d([2, 2], (2, 2));
        self.fc.forward(&self.conv2.forward(&x).relu().flatten(1, -1))
    }
}

fn main() -> Result<()> {
    let device = Device::auto();
    let train = DataLoader::new(digits(640, 1)?).batch(32).shuffle(1).device(device);
    let test = DataLoader::new(digits(200, 2)?).batch(100).device(device);
    let params = Params::new(device, 42);
    let net = Cnn::new(&params);
    println!("{}", summary(&net, &Tensor::zeros(&[1, 1, 12, 12], DType::F32, device))?);

    let adam = AdamW::new(&params).lr(5e-3);
    Fit::new(&adam, |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]))
        .epochs(4)
        .validation(&test)
        .metric("accuracy", |b: &[Tensor]| metrics::accuracy(&net.forward(&b[0]), &b[1]))
        .on_event(|event| {
            if let FitEvent::Epoch(report) = event {
                println!("{report}");
            }
        })
        .run(&train)?;
    Ok(())
}
