//! A step's plan does not depend on the order in which maps are walked: it is made again and again.

use bornite::{Device, Tensor};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimiser::Rule;
use bornite_nn::train::{Learner, Learning, Precision};

#[test]
fn plans_can_be_made_again_and_again() {
    let device = Device::cpu();
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6, 7, 8], &[1, 8], device);
    for n in 0..60 {
        let precision = if n % 2 == 0 { Precision::Bf16 } else { Precision::F32 };
        let learning = Learning { rule: Rule::ADAMW, decay: 0.1, clip: Some(1.0), precision, accumulate: 1, seed: 1 };
        let gpt = Gpt::new(GptConfig::gpt2(64, 8, 12, 2, 16)).unwrap();
        let mut learner = Learner::new(gpt, learning, device).unwrap();
        let loss = learner.step(&[(tokens.clone(), tokens.clone())], 1e-3).unwrap().measure().unwrap().loss;
        assert!(loss.is_finite());
    }
}
