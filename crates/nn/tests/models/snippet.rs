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

/// Images whose class is the brightest of ten blocks of pixels.
fn batches(count: usize, seed: u64) -> Vec<Vec<Tensor>> {
    let generator = bornite::Generator::new(seed);
    let batch = |_| {
        let x = Tensor::rand(&[32, 784], DType::F32, &generator, Device::cpu());
        let blocks = x.slice(1, 0..780).reshape(&[32, 10, 78]).mean(-1);
        let y = blocks.argmax(-1);
        let x = x + blocks.equal(blocks.max_keepdim(-1)).cast(DType::F32).repeat(&[1, 78]).pad(&[(0, 0), (0, 4)], 0.0);
        x.realize().unwrap();
        y.realize().unwrap();
        vec![x, y]
    };
    (0..count).map(batch).collect()
}

#[test]
fn model_is_trained_evaluated_saved_and_loaded() -> Result<()> {
    let (device, seed) = (Device::cpu(), 42);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("net.safetensors");
    let (train, test) = (batches(40, 1), batches(4, 2));

    let params = Params::new(device, seed);
    let net = Net { fc1: Linear::new(&params.at("fc1"), 784, 128), fc2: Linear::new(&params.at("fc2"), 128, 10) };
    let adam = AdamW::new(&params).lr(1e-3).weight_decay(0.01).clip_norm(1.0);
    let step = adam.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    let (mut first, mut last) = (None, 0.0);
    for _ in 0..4 {
        for batch in train.batches(0, 0)? {
            let loss = step.call(&batch?)?;
            last = loss.loss()?;
            first.get_or_insert(last);
        }
    }
    assert!(last < first.unwrap() / 2.0, "{first:?} to {last}");
    let accuracy = evaluate(&net, &test, metrics::accuracy)?;
    assert!(accuracy > 0.9, "{accuracy}");
    params.save(&path)?;
    params.load(&path)?;
    assert_eq!(evaluate(&net, &test, metrics::accuracy)?, accuracy);

    let other = Params::new(device, 7);
    let loaded = self::net(&other);
    assert_ne!(evaluate(&loaded, &test, metrics::accuracy)?, accuracy);
    other.load(&path)?;
    let x = &test[0][0];
    assert_eq!(loaded.forward(x).to_vec::<f32>()?, net.forward(x).to_vec::<f32>()?);
    Ok(())
}

use bornite_nn::train::Batches;
