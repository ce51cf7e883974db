//! Times the training step of an image classifier, or its forward pass:
//! `image_step [model] [batch] [size] [steps] [train|eval|profile|explain]`, as
//! `peers/torch_images.py`. Prints one JSON line.

use std::time::Instant;

use bornite::{DType, Device, Generator, Tensor, trace, trace::TensorSpec};
use bornite_nn::model::{ImageModel, ImageModelConfig};
use bornite_nn::optimizer::Sgd;
use bornite_nn::{Forward, Params};
use bornite_support::profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |n: usize, otherwise: &str| arguments.get(n).cloned().unwrap_or(otherwise.into());
    let (name, mode) = (argument(0, "resnet18"), argument(4, "train"));
    let (batch, size): (usize, usize) = (argument(1, "8").parse()?, argument(2, "224").parse()?);
    let steps: usize = argument(3, "10").parse()?;
    let device = Device::auto();
    let params = Params::new(device, 1);
    let config = ImageModelConfig { name: ImageModel::named(&name)?, classes: 1000, image_size: size };
    let net = config.build(&params)?;
    let generator = Generator::new(2);
    let images = Tensor::randn(&[batch, 3, size, size], DType::F32, &generator, device);
    let classes = Tensor::from_slice(&(0..batch as i64).collect::<Vec<_>>(), &[batch], device);
    images.realize()?;
    let sgd = Sgd::new(&params).lr(1e-3).momentum(0.9);
    let step = sgd.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    let forward = trace(|x: &[Tensor]| Ok((vec![net.forward(&x[0])], vec![])));
    if mode == "explain" {
        let images = TensorSpec::new(DType::F32, &[batch, 3, size, size], device);
        let classes = TensorSpec::new(DType::I64, &[batch], device);
        println!("{}", step.explain(&[images, classes])?);
        return Ok(());
    }
    let run = || -> Result<f64, Box<dyn std::error::Error>> {
        Ok(match &mode[..] {
            "eval" => f64::from(forward.call(std::slice::from_ref(&images))?[0].to_vec::<f32>()?[0]),
            _ => step.call(&[images.clone(), classes.clone()])?.loss()?,
        })
    };
    run()?;
    if mode == "profile" {
        let scope = profile::scope();
        run()?;
        println!("{}", scope.report().top(60));
        return Ok(());
    }
    let mut times: Vec<f64> = vec![];
    for _ in 0..steps {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    println!(
        "{{\"model\": \"{name}\", \"mode\": \"{mode}\", \"batch\": {batch}, \"size\": {size}, \"min_ms\": {:.1}, \
         \"median_ms\": {:.1}, \"peak\": \"{peak}\"}}",
        times[0],
        times[times.len() / 2],
    );
    Ok(())
}
