//! A model with a custom CUDA kernel: an activation in CUDA C++, which runs on GPUs and CPUs, with
//! its gradient in a second kernel.
//!
//! `cargo run --release -p bornite-nn --example custom_kernel`

use bornite::kernel::{CustomKernel, Module as KernelModule};
use bornite_nn::prelude::*;

const SOURCE: &str = r#"
    // x · |x|, and its derivative 2 · |x|.
    __global__ void signed_square(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * fabsf(x[i]);
    }
    __global__ void signed_square_grad(const float* x, const float* grad_y, float* grad_x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) grad_x[i] = 2.0f * fabsf(x[i]) * grad_y[i];
    }
"#;

#[derive(Module)]
struct SignedSquare {
    #[module(skip)]
    kernel: CustomKernel,
}

impl SignedSquare {
    fn new() -> Result<SignedSquare> {
        let module = KernelModule::parse("signed_square.cu", SOURCE)?;
        let backward = module.kernel("signed_square_grad")?;
        // From the arrays and the gradient of y: the gradients of x and of the old y.
        let kernel = module.kernel("signed_square")?.gradient(move |arrays, _, gradients| {
            let (x, grad_y) = (&arrays[0], &gradients[0]);
            let n = x.elements().unwrap_or(0);
            let zeros = grad_y * 0.0;
            let args = [x.into(), grad_y.into(), (&zeros).into(), (n as i32).into()];
            vec![Some(backward.launch(n, &args).remove(0)), None]
        });
        Ok(SignedSquare { kernel })
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
