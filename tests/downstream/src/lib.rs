//! A program that uses Bornite as a dependency: a network that learns, a kernel in CUDA C++,
//! weights in a file.

use std::collections::BTreeMap;
use std::path::Path;

use bornite::kernel::Module;
use bornite::var::{Update, commit};
use bornite::{DType, Device, Error, Generator, Tensor, Var, trace};
use bornite_nn::checkpoint::safetensors::{Safetensors, write_file};

/// A network of two layers.
pub struct TwoLayerNet {
    parameters: BTreeMap<&'static str, Var>,
}

impl TwoLayerNet {
    /// Random weights.
    pub fn new(inputs: usize, hidden: usize, outputs: usize, device: Device) -> bornite::Result<TwoLayerNet> {
        let generator = Generator::new(7);
        let normal =
            |shape: &[usize], scale: f64| Var::new(&(Tensor::randn(shape, DType::F32, &generator, device) * scale));
        let zeros = |length: usize| Var::new(&Tensor::zeros(&[length], DType::F32, device));
        let parameters = BTreeMap::from([
            ("fc1.weight", normal(&[hidden, inputs], (2.0 / inputs as f64).sqrt())?),
            ("fc1.bias", zeros(hidden)?),
            ("fc2.weight", normal(&[outputs, hidden], (1.0 / hidden as f64).sqrt())?),
            ("fc2.bias", zeros(outputs)?),
        ]);
        Ok(TwoLayerNet { parameters })
    }

    /// Class scores.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let p = |name: &str| self.parameters[name].get();
        let hidden = x.linear(&p("fc1.weight"), Some(&p("fc1.bias"))).relu();
        hidden.linear(&p("fc2.weight"), Some(&p("fc2.bias")))
    }

    /// The updates of a step of gradient descent, and the loss before it.
    pub fn step(&self, x: &Tensor, classes: &Tensor, learning_rate: f64) -> (Tensor, Vec<Update>) {
        let loss = self.forward(x).cross_entropy(classes);
        let values: Vec<Tensor> = self.parameters.values().map(Var::get).collect();
        let gradients = loss.grad(&values.iter().collect::<Vec<_>>());
        let updates = self.parameters.values().zip(values.iter().zip(gradients));
        (loss, updates.map(|(var, (value, gradient))| var.set(value - gradient * learning_rate)).collect())
    }

    /// Writes the weights to a file of safetensors.
    pub fn save(&self, path: &Path) -> bornite_nn::Result<()> {
        let tensors = self.parameters.iter().map(|(name, var)| (name.to_string(), var.get())).collect();
        write_file(path, &tensors, &BTreeMap::new())
    }

    /// Replaces the weights by those of a file.
    pub fn load(&self, path: &Path, device: Device) -> bornite_nn::Result<()> {
        let mut file = Safetensors::open(path)?;
        let mut updates = vec![];
        for (name, var) in &self.parameters {
            updates.push(var.set(file.tensor(name, device)?));
        }
        Ok(commit(&[], updates)?)
    }
}

/// Trains on points inside and outside of a circle; returns the last loss.
pub fn train(mlp: &TwoLayerNet, x: &Tensor, classes: &Tensor, steps: usize) -> bornite::Result<f64> {
    let step = trace(|inputs| {
        let [x, classes] = inputs else { return Err(Error::op("step", "expected points and classes")) };
        let (loss, updates) = mlp.step(x, classes, 0.5);
        Ok((vec![loss], updates))
    });
    let mut last = f64::INFINITY;
    for _ in 0..steps {
        last = step.call(&[x.clone(), classes.clone()])?[0].item()?;
    }
    Ok(last)
}

/// `a * x + y` by a kernel in CUDA C++.
pub fn saxpy(a: f64, x: &Tensor, y: &Tensor) -> bornite::Result<Tensor> {
    let module = Module::parse(
        "saxpy.cu",
        "__global__ void saxpy(float a, const float* x, float* y, int n) {
             int i = blockIdx.x * blockDim.x + threadIdx.x;
             if (i < n) y[i] = a * x[i] + y[i];
         }",
    )?;
    let n = x.elements()?;
    let launched = module.kernel("saxpy")?.launch(n, &[a.into(), x.into(), y.into(), (n as i32).into()]);
    Ok(launched[0].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(device: Device) -> (Tensor, Tensor) {
        let generator = Generator::new(3);
        let x = Tensor::randn(&[256, 2], DType::F32, &generator, device);
        let classes = x.square().sum(1).lt(1.4).cast(DType::I64);
        (x, classes)
    }

    #[test]
    fn a_network_learns_and_its_weights_survive_a_file() {
        let device = Device::cpu();
        let (x, classes) = points(device);
        let mlp = TwoLayerNet::new(2, 32, 2, device).unwrap();
        let loss = train(&mlp, &x, &classes, 300).unwrap();
        assert!(loss < 0.15, "{loss}");
        let path = std::env::temp_dir().join(format!("bornite-downstream-{}.safetensors", std::process::id()));
        mlp.save(&path).unwrap();
        let other = TwoLayerNet::new(2, 32, 2, device).unwrap();
        other.load(&path, device).unwrap();
        std::fs::remove_file(&path).unwrap();
        let logits = |mlp: &TwoLayerNet| mlp.forward(&x).to_vec::<f32>().unwrap();
        assert_eq!(logits(&mlp), logits(&other));
    }

    #[test]
    fn a_kernel_in_cuda_runs_over_tensors() {
        let [x, y] = [[1.0f32, 2.0, 3.0], [10.0, 20.0, 30.0]].map(|v| Tensor::from_slice(&v, &[3], Device::cpu()));
        assert_eq!(saxpy(2.0, &x, &y).unwrap().to_vec::<f32>().unwrap(), [12.0, 24.0, 36.0]);
    }

    #[test]
    fn errors_name_the_line_of_this_program() {
        let x = Tensor::zeros(&[3, 4], DType::F32, Device::cpu());
        let error = x.matmul(&x).to_vec::<f32>().unwrap_err();
        // What `main` prints of an error that it returns.
        assert!(format!("{error:?}").contains("tests/downstream/src/lib.rs"), "{error:?}");
        assert!(!format!("{error:?}").starts_with("Op {"), "{error:?}");
    }
}
