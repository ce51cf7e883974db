//! A model with a custom CUDA kernel: an activation in CUDA C++, which runs on GPUs and CPUs. Its
//! gradient is derived from its source.
//!
//! `cargo run --release -p bornite-nn --example custom_kernel`

use bornite::kernel::{CustomKernel, Module as KernelModule};
use bornite_nn::prelude::*;

const SOURCE: &str = r#"
    // x · |x|.
    __global__ void signed_square(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * fabsf(x[i]);
    }
"#;

#[derive(Module)]
struct SignedSquare {
    #[module(skip)]
    kernel: CustomKernel,
}

impl SignedSquare {
    fn new() -> Result<SignedSquare> {
        Ok(SignedSquare { kernel: KernelModule::parse("signed_square.cu", SOURCE)?.kernel("signed_square")? })
    }
}

impl Forward for SignedSquare {
    fn forward(&self, x: &Tensor) -> Tensor {
        let (n, out) = (x.elements().unwrap_or(0), x.detach() * 0.0);
        self.kernel.launch(n, &[x.into(), (&out).into(), (n as i32).into()]).remove(0)
    }
}

fn main() -> Result<()> {
    let device = Device::auto();
    let params = Params::new(device, 42);
    let net = Sequential::new().add(Linear::new(&params.at("fc1"), 1, 32)).add(SignedSquare::new()?).add(Linear::new(
        &params.at("fc2"),
        32,
        1,
    ));
    let x = Tensor::linspace(-1.0, 1.0, 64, DType::F32, device).reshape(&[64, 1]);
    let y = &x * &x * &x;
    y.realize()?;
    let adam = AdamW::new(&params).lr(1e-2);
    let step = adam.compile(|b: &[Tensor]| net.forward(&b[0]).mse(&b[1]));
    for n in 1..=300 {
        let result = step.call(&[x.clone(), y.clone()])?;
        if n % 100 == 0 {
            println!("step {n}  loss {:.6}", result.loss()?);
        }
    }
    Ok(())
}
