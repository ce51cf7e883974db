//! Digit classification: generates images (seven segments with random ends, shift, slant, scale and
//! noise), trains two convolutions and a linear layer on them, and tests on new images.
//! `cargo run --release --example digits [steps]`
use bornite::{DType, Device, Generator, Result, Tensor, Var, ops::Conv2dOptions, trace};

const SIDE: usize = 16;

/// The corners of each segment: top, upper left and right, middle, lower left and right, bottom.
const ENDS: [(usize, usize); 7] = [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 5), (4, 5)];

/// The segments of each digit, the top one in the lowest bit.
const SEGMENTS: [u8; 10] = [0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f];

/// An image of a digit, distorted by 17 random numbers below 1.
fn draw(digit: usize, u: &[f32]) -> Vec<f32> {
    let centered = |n: usize, width: f32| (u[n] - 0.5) * width;
    let (scale, thick, slant) = (0.55 + 0.2 * u[0], 0.04 + 0.03 * u[1], centered(2, 0.6));
    let (down, right) = (0.5 + centered(3, 0.16), 0.5 + centered(4, 0.16));
    let corners: Vec<(f32, f32)> = (0..6)
        .map(|n| {
            let (y, x) = ((n / 2) as f32 / 2.0 - 0.5 + centered(5 + 2 * n, 0.12), (n % 2) as f32 / 2.0 - 0.25);
            let x = x + centered(6 + 2 * n, 0.12) - y * slant;
            (down + y * scale * 1.2, right + x * scale * 1.2)
        })
        .collect();
    let distance = |y: f32, x: f32, (from, to): (usize, usize)| {
        let ((ay, ax), (by, bx)) = (corners[from], corners[to]);
        let along = ((y - ay) * (by - ay) + (x - ax) * (bx - ax)) / ((by - ay).powi(2) + (bx - ax).powi(2));
        let t = along.clamp(0.0, 1.0);
        (ay + t * (by - ay) - y).hypot(ax + t * (bx - ax) - x)
    };
    let pixel = |n: usize| {
        let (y, x) = (((n / SIDE) as f32 + 0.5) / SIDE as f32, ((n % SIDE) as f32 + 0.5) / SIDE as f32);
        let strokes = (0..7).filter(|s| SEGMENTS[digit] >> s & 1 == 1).map(|s| distance(y, x, ENDS[s]));
        (1.5 - strokes.fold(1.0, f32::min) / thick).clamp(0.0, 1.0)
    };
    (0..SIDE * SIDE).map(pixel).collect()
}

/// Noisy images `[count, 1, SIDE, SIDE]` and their digits.
fn images(count: usize, generator: &Generator, device: Device) -> Result<(Tensor, Tensor)> {
    let numbers = Tensor::rand(&[count, 18], DType::F32, generator, Device::cpu()).to_vec::<f32>()?;
    let digits: Vec<i64> = numbers.chunks(18).map(|u| (u[0] * 10.0) as i64).collect();
    let pixels: Vec<f32> = numbers.chunks(18).zip(&digits).flat_map(|(u, &d)| draw(d as usize, &u[1..])).collect();
    let clean = Tensor::from_slice(&pixels, &[count, 1, SIDE, SIDE], device);
    let noise = Tensor::randn(&[count, 1, SIDE, SIDE], DType::F32, generator, device) * 0.25;
    Ok((clean + noise, Tensor::from_slice(&digits, &[count], device)))
}

fn main() -> Result<()> {
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(300);
    let (device, generator) = (Device::choose(None)?, Generator::new(7));
    let (test_images, labels) = images(1000, &generator, device)?;
    let shapes: [&[usize]; 6] = [&[8, 1, 3, 3], &[8], &[16, 8, 3, 3], &[16], &[10, 16 * 16], &[10]];
    let start = |shape: &&[usize]| {
        let inputs: usize = shape[1..].iter().product();
        let scale = if shape.len() > 1 { (2.0 / inputs as f64).sqrt() } else { 0.0 };
        let value = Tensor::randn(shape, DType::F32, &generator, device) * scale;
        Ok((Var::new(&value)?, Var::new(&(value * 0.0))?))
    };
    let parameters = shapes.iter().map(start).collect::<Result<Vec<(Var, Var)>>>()?;
    let classify = |x: &Tensor, p: &[Tensor]| {
        let options = Conv2dOptions { padding: (1, 1), stride: (2, 2), ..Conv2dOptions::default() };
        let features = x.conv2d(&p[0], Some(&p[1]), options).relu().conv2d(&p[2], Some(&p[3]), options).relu();
        features.flatten(1, -1).linear(&p[4], Some(&p[5]))
    };
    let values = || parameters.iter().map(|(value, _)| value.get()).collect::<Vec<Tensor>>();
    let step = trace(|inputs| {
        let p = values();
        let loss = classify(&inputs[0], &p).cross_entropy(&inputs[1]);
        let gradients = loss.grad(&p.iter().collect::<Vec<_>>());
        let mut updates = vec![];
        for ((value, velocity), gradient) in parameters.iter().zip(&gradients) {
            let new_velocity = velocity.get() * 0.9 + gradient;
            updates.extend([value.set(value.get() - &new_velocity * &inputs[2]), velocity.set(new_velocity)]);
        }
        Ok((vec![loss], updates))
    });
    let predict = trace(|inputs| Ok((vec![classify(&inputs[0], &values()).argmax(-1)], vec![])));
    let mut predictions = labels.clone();
    for n in 1..=steps {
        let (x, digits) = images(32, &generator, device)?;
        // Values that change between steps are inputs: a Rust number would stay constant in the
        // trace.
        let learning_rate = Tensor::full(0.05 * (1.0 - n as f64 / steps as f64), &[], DType::F32, device);
        let loss = step.call(&[x, digits, learning_rate])?.remove(0).item()?;
        if n % 50 == 0 || n == steps {
            predictions = predict.call(std::slice::from_ref(&test_images))?.remove(0);
            let accuracy = predictions.equal(&labels).mean(..).item()?;
            println!("step {n:4}  loss {loss:.4}  test accuracy {:.1} %", 100.0 * accuracy);
        }
    }
    let (predictions, labels) = (predictions.to_vec::<i64>()?, labels.to_vec::<i64>()?);
    let Some(wrong) = (0..labels.len()).find(|&n| predictions[n] != labels[n]) else { return Ok(()) };
    println!("this {} was classified as {}:", labels[wrong], predictions[wrong]);
    for row in test_images.slice(0, wrong as isize..=wrong as isize).to_vec::<f32>()?.chunks(SIDE) {
        let shade = |pixel: &f32| [' ', '.', ':', '+', '#'][(pixel.clamp(0.0, 0.99) * 5.0) as usize];
        println!("  {}", row.iter().flat_map(|pixel| [shade(pixel); 2]).collect::<String>());
    }
    Ok(())
}
