//! An MLP: training, saving and loading.
//!
//! `cargo run --release -p bornite-nn --example save_and_load`

use bornite_nn::prelude::*;

fn mlp(params: &Params) -> Sequential {
    Sequential::new().add(Linear::new(&params.at("fc1"), 2, 32)).add(Relu).add(Linear::new(&params.at("fc2"), 32, 2))
}

fn main() -> Result<()> {
    let device = Device::auto();
    let x = Tensor::from_slice(&[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[4, 2], device);
    let batch = [x.clone(), Tensor::from_slice(&[0i64, 1, 1, 0], &[4], device)];

    let params = Params::new(device, 42);
    let net = mlp(&params);
    let step = AdamW::new(&params).lr(1e-2).compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    for _ in 0..300 {
        step.call(&batch)?;
    }
    let path = std::env::temp_dir().join(format!("xor-{}.safetensors", std::process::id()));
    params.save(&path)?;

    let params = Params::new(device, 0);
    let net = mlp(&params);
    params.load(&path)?;
    println!("predicted {:?}", net.forward(&x).argmax(-1).to_vec::<i64>()?);
    std::fs::remove_file(&path).ok();
    Ok(())
}
