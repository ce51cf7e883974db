//! Kernels of source files launched over tensors: in both languages, lazily, traced and prepared;
//! arguments that do not match are errors with the expected types.

use bornite::{
    DType, Device, Tensor, Var,
    kernel::{KernelArg, LaunchDims, Module},
    trace,
};

use crate::Outcome;

const PYTHON: &str = r#"
import warp as wp

@wp.struct
class Point:
    at: wp.vec3
    weight: float

@wp.func
def twice(x: float):
    return x + x

@wp.kernel
def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = a * x[i] + y[i]

@wp.kernel
def outer(x: wp.array[float], y: wp.array[float], z: wp.array2d[float]):
    i, j = wp.tid()
    z[i, j] = twice(x[i]) * y[j]

@wp.kernel
def lengths(v: wp.array[wp.vec3], by: wp.vec3, out: wp.array[float]):
    i = wp.tid()
    out[i] = wp.dot(v[i], by)

@wp.kernel
def count(bins: wp.array[int], of: wp.array[int]):
    wp.atomic_add(bins, of[wp.tid()], 1)
"#;

const CUDA: &str = "
template <typename T> __global__ void reversed(T* x) {
    extern __shared__ float rest[];
    int i = threadIdx.x;
    rest[i] = x[blockIdx.x * blockDim.x + i];
    __syncthreads();
    x[blockIdx.x * blockDim.x + i] = rest[blockDim.x - 1 - i];
}
__global__ void scale(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}";

fn floats(n: usize, device: Device) -> Tensor {
    let numbers: Vec<f32> = (0..n).map(|n| n as f32 - 3.0).collect();
    Tensor::from_slice(&numbers, &[n], device)
}

pub fn launches(device: Device) -> Outcome {
    let module = Module::parse("kernels.py", PYTHON)?;
    assert_eq!(module.kernels(), ["saxpy", "outer", "lengths", "count"]);
    let saxpy = module.kernel("saxpy")?;
    assert_eq!(saxpy.parameters().collect::<Vec<_>>(), ["a", "x", "y"]);
    for n in [1, 7, 300] {
        let (x, y) = (floats(n, device), floats(n, device) * 10.0);
        let z = saxpy.launch(n, &[2.5.into(), (&x).into(), (&y).into()]).remove(0);
        assert_eq!((&z + 0.0).to_vec::<f32>()?, (&x * 2.5 + &y).to_vec::<f32>()?, "{n}");
    }
    // Elements of threads that are not launched stay unchanged, also in an empty launch.
    let x = floats(8, device);
    for n in [0, 3] {
        let y = saxpy.launch(n, &[1.into(), (&x).into(), (&x).into()]).remove(0).to_vec::<f32>()?;
        let expected: Vec<f32> = (0..8).map(|i| (i as f32 - 3.0) * if i < n { 2.0 } else { 1.0 }).collect();
        assert_eq!(y, expected);
    }
    let (x, y, z) = (floats(5, device), floats(7, device), Tensor::zeros(&[5, 7], DType::F32, device));
    let outer = module.kernel("outer")?.launch([5, 7], &[(&x).into(), (&y).into(), (&z).into()]).remove(0);
    assert_eq!(outer.dims()?, [5, 7]);
    let expected = (x.reshape(&[5, 1]) * 2.0) * y.reshape(&[1, 7]);
    assert_eq!(outer.to_vec::<f32>()?, expected.to_vec::<f32>()?);
    // An array of vectors is a tensor with one more axis; a view is made contiguous.
    let (v, out) = (floats(12, device).reshape(&[3, 4]).t(), Tensor::zeros(&[4], DType::F32, device));
    let args = [(&v).into(), [1.0, -2.0, 0.5].into(), (&out).into()];
    let lengths = module.kernel("lengths")?.launch(4, &args).remove(0);
    let by = Tensor::from_slice(&[1.0f32, -2.0, 0.5], &[3], device);
    assert_eq!(lengths.to_vec::<f32>()?, (&v * &by).sum(-1).to_vec::<f32>()?);
    let bins = Tensor::zeros(&[3], DType::I32, device);
    let of = Tensor::from_slice(&[0i32, 2, 2, 1, 2], &[5], device);
    let counted = module.kernel("count")?.launch(5, &[(&bins).into(), (&of).into()]).remove(0);
    assert_eq!(counted.to_vec::<i32>()?, [1, 1, 3]);
    assert_eq!(bins.to_vec::<i32>()?, [0, 0, 0]);

    let module = Module::parse("kernels.cu", CUDA)?;
    let x = floats(64, device);
    let over = LaunchDims::Blocks { grid: [4, 1, 1], block: [16, 1, 1], shared_bytes: 64 };
    let reversed = module.kernel("reversed<float>")?.launch(over, &[(&x).into()]).remove(0);
    let expected = x.reshape(&[4, 16]).flip(1).reshape(&[64]);
    assert_eq!(reversed.to_vec::<f32>()?, expected.to_vec::<f32>()?);
    let scaled = module.kernel("scale")?.launch(64, &[(&x).into(), 0.5.into(), 64.into()]).remove(0);
    assert_eq!(scaled.to_vec::<f32>()?, (&x * 0.5).to_vec::<f32>()?);
    Ok(())
}

/// On the CPU a launch over computed arrays runs immediately, elsewhere when it is read; results
/// are the same.
pub fn immediate_and_deferred_launches_agree(device: Device) -> Outcome {
    let saxpy = Module::parse("kernels.py", PYTHON)?.kernel("saxpy")?;
    let launch = |a: f64, x: &Tensor, y: &Tensor| {
        let n = x.elements().unwrap_or(0);
        saxpy.launch(n, &[a.into(), x.into(), y.into()]).remove(0)
    };
    // Alternating sizes, so that the last launch often differs from the one before; arrays that are
    // computed later, all equal, and outputs of other launches.
    for n in [5, 5, 8, 5, 8, 8] {
        let (x, scale) = (floats(n, device), n as f64);
        let later = &x * 2.0;
        let z = launch(scale, &later, &x);
        let again = launch(1.0, &z, &Tensor::zeros(&[n], DType::F32, device));
        let ones = launch(1.0, &again, &Tensor::ones(&[n], DType::F32, device));
        let expected: Vec<f32> = x.to_vec::<f32>()?.iter().map(|x| x * 2.0 * scale as f32 + x + 1.0).collect();
        assert_eq!(ones.to_vec::<f32>()?, expected);
        // The gradient is that of the source, through all three launches.
        let gradient = ones.sum(..).grad(&[&x])[0].to_vec::<f32>()?;
        assert_eq!(gradient, vec![2.0 * scale as f32 + 1.0; n]);
    }
    // Reshaped and detached.
    let mut state = floats(6, device).reshape(&[2, 3]);
    for _ in 0..3 {
        state = launch(1.0, &state.reshape(&[6]), &state.detach().reshape(&[6])).detach().reshape(&[3, 2]);
    }
    assert_eq!(state.to_vec::<f32>()?, (floats(6, device) * 8.0).to_vec::<f32>()?);
    // The output keeps the variable's value at the time of the launch.
    let x = floats(4, device);
    let v = Var::new(&x)?;
    let doubled = launch(1.0, &v.get(), &v.get());
    let step = trace(|inputs| Ok((vec![], vec![v.set(v.get() + &inputs[0])])));
    step.call(std::slice::from_ref(&x))?;
    step.call(std::slice::from_ref(&x))?;
    assert_eq!(doubled.to_vec::<f32>()?, (&x * 2.0).to_vec::<f32>()?);
    assert_eq!(launch(1.0, &v.get(), &v.get()).to_vec::<f32>()?, (&x * 6.0).to_vec::<f32>()?);
    // In a traced function nothing runs, even over computed arrays.
    let traced = trace(|inputs| Ok((vec![launch(2.0, &x, &x) + &inputs[0]], vec![])));
    for _ in 0..2 {
        assert_eq!(traced.call(std::slice::from_ref(&x))?[0].to_vec::<f32>()?, (&x * 4.0).to_vec::<f32>()?);
    }
    Ok(())
}

pub fn traced_and_recorded(device: Device) -> Outcome {
    let module = Module::parse("kernels.py", PYTHON)?;
    let saxpy = module.kernel("saxpy")?;
    let kernel = saxpy.clone();
    let step = trace(move |inputs| {
        let y = kernel.launch(6, &[2.0.into(), (&inputs[0]).into(), (&inputs[1].exp()).into()]).remove(0);
        Ok((vec![y.sum(..)], vec![]))
    });
    for n in 0..3 {
        let (x, y) = (floats(6, device) + n as f64, floats(6, device) * 0.1);
        let expected = (&x * 2.0 + y.exp()).sum(..).item()?;
        assert_eq!(step.call(&[x, y])?[0].item()?, expected);
    }
    let (x, y) = (floats(6, device), Tensor::zeros(&[6], DType::F32, device));
    let recorded = saxpy.prepare(6, &[0.5.into(), (&x).into(), (&y).into()])?;
    for _ in 0..4 {
        recorded.run()?;
    }
    assert_eq!(recorded.array("y")?.to_vec::<f32>()?, (&x * 2.0).to_vec::<f32>()?);
    assert_eq!(y.to_vec::<f32>()?, [0.0; 6]);
    let wrong = recorded.array("z").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(wrong.contains("unknown array 'z'; the kernel has x, y"), "{wrong}");
    Ok(())
}

/// A failing kernel changes no variable, independent of its position among the updates; a prepared
/// launch stays failed.
pub fn index_error_changes_no_variable(device: Device) -> Outcome {
    let module = Module::parse("kernels.py", PYTHON)?;
    let (saxpy, x) = (module.kernel("saxpy")?, floats(6, device));
    let (v, w) = (Var::new(&floats(6, device))?, Var::new(&floats(6, device))?);
    let (kernel, first, second) = (saxpy.clone(), v.clone(), w.clone());
    let step = trace(move |inputs| {
        let y = kernel.launch(7, &[2.0.into(), (&inputs[0]).into(), (&inputs[0]).into()]).remove(0);
        let new = first.get() + 1.0;
        Ok((vec![y.sum(..)], vec![first.set(new), second.set(second.get() * 2.0)]))
    });
    for _ in 0..2 {
        assert!(step.call(std::slice::from_ref(&x)).is_err());
        assert_eq!(v.get().to_vec::<f32>()?, x.to_vec::<f32>()?);
        assert_eq!(w.get().to_vec::<f32>()?, x.to_vec::<f32>()?);
    }
    let recorded = saxpy.prepare(7, &[2.0.into(), (&x).into(), (&x).into()])?;
    let run = recorded.run();
    assert!(run.is_err() || matches!(device, Device::Cuda(_)));
    // Other computations are not affected.
    let rows = Tensor::from_slice(&[1i64, 0], &[2], device);
    assert_eq!(x.index_select(0, &rows).to_vec::<f32>()?, [-2.0, -3.0]);
    assert!(recorded.array("y").is_err() && recorded.array("x").is_err());
    Ok(())
}

pub fn mismatched_arguments_are_errors(device: Device) -> Outcome {
    let module = Module::parse("kernels.py", PYTHON)?;
    let (x, two) = (floats(6, device), floats(6, device).reshape(&[2, 3]));
    let whole = Tensor::zeros(&[6], DType::I32, device);
    let array = |tensor: &Tensor| KernelArg::from(tensor);
    let saxpy = module.kernel("saxpy")?;
    let cases: [(LaunchDims, Vec<KernelArg>, &str); 7] = [
        (6.into(), vec![1.0.into(), array(&x)], "takes 3 arguments (a, x, y) but got 2"),
        (6.into(), vec![array(&x), array(&x), array(&x)], "takes numbers as 'a'"),
        (6.into(), vec![1.0.into(), 2.0.into(), array(&x)], "takes an array as 'x'"),
        (6.into(), vec![1.0.into(), array(&two), array(&x)], "takes f32 with 1 axes, not f32[2, 3], as 'x'"),
        (6.into(), vec![1.0.into(), array(&whole), array(&x)], "takes f32 with 1 axes, not i32[6], as 'x'"),
        (6.into(), vec![[1.0, 2.0].into(), array(&x), array(&x)], "takes [F32] as 'a' but got [1.0, 2.0]"),
        ([1, 1, 1, 1, 1].into(), vec![1.0.into(), array(&x), array(&x)], "one to four thread counts"),
    ];
    for (dims, args, part) in cases {
        let found = saxpy.launch(dims, &args).remove(0).to_vec::<f32>().err().map(|error| error.to_string());
        assert!(found.as_ref().is_some_and(|found| found.contains(part)), "{part}: {found:?}");
    }
    // Beyond the end of an array.
    let found = saxpy.launch(7, &[1.0.into(), array(&x), array(&x)]).remove(0).to_vec::<f32>();
    let found = found.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(found.contains('6') && found.contains("x"), "{found}");
    // The number of outputs does not depend on the launch size.
    let sized = Module::parse(
        "sized.py",
        "import warp as wp\n@wp.kernel\ndef k(x: wp.array[float], y: wp.array[float], z: wp.array[float]):\n    i = wp.tid()\n    \
         if x.shape[0] > 1000:\n        y[i] = x[i]\n    z[i] = 1.0\n",
    )?;
    let results = sized.kernel("k")?.launch(6, &[array(&x), array(&x), array(&x)]);
    assert_eq!(results.len(), 2);
    assert_eq!((results[0].to_vec::<f32>()?, results[1].to_vec::<f32>()?), (x.to_vec::<f32>()?, vec![1.0; 6]));
    let silent = Module::parse("silent.cu", "__global__ void silent(const float* x) {}")?.kernel("silent")?;
    let silent = silent.launch(1, &[array(&x)]).remove(0).to_vec::<f32>().err().map(|error| error.to_string());
    assert!(silent.as_ref().is_some_and(|text| text.contains("writes no array")), "{silent:?}");
    // A failed tensor as an array carries its own error.
    let lost = saxpy.launch(6, &[1.0.into(), array(&Tensor::failed("lookup", "there is no row 'b'")), array(&x)]);
    let lost = lost[0].to_vec::<f32>().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(lost.starts_with("lookup: there is no row 'b'"), "{lost}");
    let unknown = module.kernel("sxpy").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(unknown.contains("no kernel named 'sxpy'"), "{unknown}");
    let missing = Module::load("nowhere/kernels.cu").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(missing.starts_with("nowhere/kernels.cu: "), "{missing}");
    Ok(())
}
