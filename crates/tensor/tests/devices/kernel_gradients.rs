//! Gradients of custom kernels in a graph: equal to those of the same function in tensor ops.

use bornite::kernel::{Accumulation, AdjointOptions, CustomKernel, Module};
use bornite::{DType, Device, Tensor, trace};

use crate::Outcome;

const CUDA: &str = "
__global__ void cube(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * x[i];
}
__global__ void softmax(const float* x, float* y, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float m = -1e30f;
    for (int j = 0; j < n; j++) m = fmaxf(m, x[r * n + j]);
    float s = 0.0f;
    for (int j = 0; j < n; j++) s += expf(x[r * n + j] - m);
    for (int j = 0; j < n; j++) y[r * n + j] = expf(x[r * n + j] - m) / s;
}
__global__ void pick(const float* table, const int* at, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += table[at[i]] * table[at[i]];
}
__global__ void moved(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i + (int)x[i]] = x[i];
}";

fn floats(n: usize, device: Device) -> Tensor {
    let numbers: Vec<f32> = (0..n).map(|n| (n as f32 * 0.7).sin()).collect();
    Tensor::from_slice(&numbers, &[n], device)
}

fn kernel(name: &str) -> bornite::Result<CustomKernel> {
    Module::parse("gradients.cu", CUDA)?.kernel(name)
}

fn cube(x: &Tensor) -> bornite::Result<Tensor> {
    let n = x.elements()?;
    let out = x.detach() * 0.0;
    Ok(kernel("cube")?.launch(n, &[x.into(), (&out).into(), (n as i32).into()]).remove(0))
}

fn assert_near(found: &Tensor, expected: &Tensor) -> Outcome {
    let (found, expected) = (found.to_vec::<f32>()?, expected.to_vec::<f32>()?);
    assert_eq!(found.len(), expected.len());
    for (n, (a, b)) in found.iter().zip(&expected).enumerate() {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1e-2), "{n}: {a}, expected {b}");
    }
    Ok(())
}

pub fn equal_those_of_tensor_ops(device: Device) -> Outcome {
    for n in [1, 5, 300] {
        let x = floats(n, device);
        let weights = floats(n, device) + 2.0;
        let first = (cube(&x)? * &weights).sum(..).grad(&[&x]).remove(0);
        assert_near(&first, &(&x * &x * 3.0 * &weights))?;
        // The adjoint kernel is differentiated in turn.
        let second = (cube(&x)? * &weights).sum(..).grad(&[&x]).remove(0).sum(..).grad(&[&x]).remove(0);
        assert_near(&second, &(&x * 6.0 * &weights))?;
    }
    let (rows, n) = (7, 11);
    let x = floats(rows * n, device);
    let weights = floats(rows * n, device) * 3.0;
    let args = [(&x).into(), (&(&x * 0.0)).into(), (rows as i32).into(), (n as i32).into()];
    let found = (kernel("softmax")?.launch(rows, &args).remove(0) * &weights).sum(..).grad(&[&x]).remove(0);
    let reference = x.reshape(&[rows, n]).softmax(-1).reshape(&[rows * n]);
    assert_near(&found, &(reference * &weights).sum(..).grad(&[&x])[0])
}

pub fn of_shared_elements_are_deterministic(device: Device) -> Outcome {
    let n = 1000;
    let table = floats(6, device) + 1.5;
    let at: Vec<i32> = (0..n as i32).map(|n| n * n % 6).collect();
    let at = Tensor::from_slice(&at, &[n], device);
    let old = floats(n, device);
    let weights = floats(n, device) + 1.1;
    let expected = {
        let picked = table.gather(0, &at);
        ((&picked * &picked) * &weights).sum(..).grad(&[&table]).remove(0)
    };
    let mut first: Option<Vec<f32>> = None;
    for accumulation in [Accumulation::Ordered, Accumulation::Ordered, Accumulation::Atomic] {
        let pick = kernel("pick")?.adjoint_options(AdjointOptions { accumulation, ..AdjointOptions::default() });
        let y = pick.launch(n, &[(&table).into(), (&at).into(), (&old).into(), (n as i32).into()]).remove(0);
        let [of_table, of_old] = <[Tensor; 2]>::try_from((y * &weights).sum(..).grad(&[&table, &old])).unwrap();
        assert_near(&of_old, &weights)?;
        let (found, expected) = (of_table.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{a}, expected {b}");
        }
        if accumulation == Accumulation::Ordered {
            assert_eq!(*first.get_or_insert(found.clone()), found);
        }
    }
    Ok(())
}

pub fn traced(device: Device) -> Outcome {
    let step = trace(|inputs| {
        let y = cube(&inputs[0])?;
        Ok((vec![(&y * &y).sum(..).grad(&[&inputs[0]]).remove(0)], vec![]))
    });
    for shift in [0.0, 1.0, 2.0] {
        let x = floats(40, device) + shift;
        let cubed = &x * &x * &x;
        assert_near(&step.call(std::slice::from_ref(&x))?[0], &(&cubed * &x * &x * 6.0))?;
    }
    Ok(())
}

pub fn that_do_not_exist_are_errors(device: Device) -> Outcome {
    let (x, out) = (floats(9, device), Tensor::zeros(&[9], DType::F32, device));
    let y = kernel("moved")?.launch(9, &[(&x).into(), (&out).into(), 9.into()]).remove(0);
    let error = y.sum(..).grad(&[&x])[0].to_vec::<f32>().unwrap_err().to_string();
    let expected = "'moved' is not differentiable at gradients.cu:21: 'y' is stored at an index that is not proven to \
                    belong to one instance\n  21 |     if (i < n) y[i + (int)x[i]] = x[i];\n";
    assert!(error.contains(expected) && error.contains("set a gradient with CustomKernel::gradient"), "{error}");
    // A constant needs no gradient.
    let found = (y.detach() * &x).sum(..).grad(&[&x]).remove(0);
    assert_near(&found, &y)
}
