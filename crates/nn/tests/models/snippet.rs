//! The shortest program: a model, training, evaluation, saving and loading.

use std::path::Path;

use bornite_nn::prelude::*;

#[derive(Module)]
struct Net {
    fc1: Linear,
    fc2: Linear,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.fc1.forward(x).relu())
    }
}

fn net(params: &Params) -> Net {
    Net { fc1: Linear::new(&params.at("fc1"), 784, 128), fc2: Linear::new(&params.at("fc2"), 128, 10) }
}

/// Images with one of ten blocks of pixels brighter, which is their class.
fn dataset(count: usize, seed: u64) -> TensorDataset {
    let generator = bornite::Generator::new(seed);
    let noise = Tensor::rand(&[count, 784], DType::F32, &generator, Device::cpu());
    let y = (Tensor::rand(&[count], DType::F32, &generator, Device::cpu()) * 9.99).cast(DType::I64);
    let bright = y.one_hot(10, DType::F32).unsqueeze(-1).expand(&[count, 10, 78]).reshape(&[count, 780]);
    let x = noise + bright.pad(&[(0, 0), (0, 4)], 0.0) * 0.5;
    TensorDataset::from_tensors(&[&x, &y]).unwrap()
}

#[test]
fn model_is_trained_evaluated_saved_and_loaded() -> Result<()> {
    let (device, seed) = (Device::cpu(), 42);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("net.safetensors");
    let loader = DataLoader::new(dataset(1000, 1)).batch(32).shuffle(seed).device(device);
    let test_loader = DataLoader::new(dataset(200, 2)).batch(64).device(device);

    let params = Params::new(device, seed);
    let net = Net { fc1: Linear::new(&params.at("fc1"), 784, 128), fc2: Linear::new(&params.at("fc2"), 128, 10) };
    let adam = AdamW::new(&params).lr(1e-3).weight_decay(0.01).clip_norm(1.0);
    let step = adam.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1])); // traced once
    let mut losses = vec![];
    for _ in 0..3 {
        for batch in loader.epoch() {
            let loss = step.call(&batch?)?;
            losses.push(loss);
        }
    }
    let (first, last) = (losses[0].loss()?, losses[losses.len() - 1].loss()?);
    assert!(last < first / 2.0, "{first} to {last}");
    let accuracy = evaluate(&net, &test_loader, metrics::accuracy)?;
    assert!(accuracy > 0.9, "{accuracy}");
    params.save(&path)?;
    params.load(&path)?;
    assert_eq!(evaluate(&net, &test_loader, metrics::accuracy)?, accuracy);

    let other = Params::new(device, 7);
    let loaded = self::net(&other);
    assert_ne!(evaluate(&loaded, &test_loader, metrics::accuracy)?, accuracy);
    other.load(&path)?;
    let x = Tensor::ones(&[3, 784], DType::F32, device);
    assert_eq!(loaded.forward(&x).to_vec::<f32>()?, net.forward(&x).to_vec::<f32>()?);
    Ok(())
}
