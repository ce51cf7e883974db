//! Wrong programs: each gives an error with the operation, what was found, and the line that asked. None panics.

use bornite::{DType, Device, Error, Generator, Tensor, Var, trace};

const CPU: Device = Device::Cpu(0);

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, CPU)
}

/// Checks the message and that it names the line `line` of this file.
#[track_caller]
fn expect(error: Error, line: u32, expected: &str) {
    let text = error.to_string();
    assert!(text.contains(expected), "{text:?} does not say {expected:?}");
    assert!(text.contains(&format!("errors.rs:{line}:")), "{text:?} does not name line {line}");
}

#[test]
fn operations_name_what_they_found_and_where() {
    let x = zeros(&[2, 3]);
    let d = Tensor::zeros(&[2, 3], DType::F64, CPU);
    let b = x.lt(&x);
    let far = Tensor::zeros(&[2, 3], DType::F32, Device::Cpu(1));
    let line = line!() + 2;
    let cases = [
        (&x + zeros(&[4]), "add: shapes [2, 3] and [4] do not broadcast: 3 against 4"),
        (&b * x.cast(DType::U64) + x.cast(DType::I8), "add: no dtype holds both u64 and i8; cast one of them"),
        (&b + &b, "add: expects numbers, found bool and bool"),
        (b.exp(), "exp: expects floats, found bool"),
        (x.select(&x, &x), "select: expects a bool condition, found f32 and f32 and f32"),
        (x.matmul(&x), "matmul: shapes [2, 3] and [2, 3] do not fit"),
        (x.matmul(&zeros(&[3])), "matmul: expects at least two axes, found shapes [2, 3] and [3]"),
        (x.matmul(&d.transpose(0, 1)), "matmul: expects numbers of one dtype, found f32 and f64"),
        (zeros(&[2, 3, 4]).matmul(&zeros(&[5, 4, 3])), "matmul: shapes [2] and [5] do not broadcast"),
        (x.reshape(&[7]), "reshape: [2, 3] has 6 elements, [7] has not"),
        (x.reshape(&[usize::MAX, 2]), "reshape: [2, 3] has 6 elements"),
        (x.permute(&[0, 0]), "permute: [0, 0] is not an order of the 2 axes of [2, 3]"),
        (x.permute(&[1]), "permute: [1] is not an order"),
        (x.transpose(0, 2), "transpose: there is no axis 2 among 2"),
        (x.expand(&[2, 4]), "expand: [2, 3] does not repeat to [2, 4]; only axes of length 1 do"),
        (x.expand(&[3]), "expand: [2, 3] does not repeat to [3]"),
        (x.sum(2), "sum: there is no axis 2 among 2"),
        (x.sum([0, -2]), "sum: axis 0 is named twice"),
        (x.max(-3), "max: there is no axis -3 among 2"),
        (zeros(&[0, 3]).max(0), "max: has no value over an axis of length 0"),
        (b.sum(0), "sum: expects numbers, found bool; cast first"),
        (x.unsqueeze(4), "unsqueeze: there is no place 4 among 3 axes"),
        (&x + &far, "add: inputs are on cpu and cpu:1; make them on one device"),
        (Tensor::from_slice(&[1.0f32], &[2], CPU), "from_slice: 1 elements given, shape [2] has 2"),
        (Tensor::zeros(&[usize::MAX, 2], DType::F32, CPU), "more elements than memory can hold"),
        (Tensor::zeros(&[1 << 62], DType::F64, CPU), "more elements than memory can hold"),
        (x.expand(&[1 << 40, 2, 3]).expand(&[1 << 40, 1 << 40, 2, 3]), "more elements than memory can hold"),
        (x.grad(&[&x]).remove(0), "grad: a gradient is of one float, found f32[2, 3]"),
        (x.sum(..).grad(&[&b]).remove(0), "grad: a gradient is by floats, found bool[2, 3]"),
        (Tensor::zeros(&[0, 1 << 32, 1 << 32], DType::F32, CPU), "more elements than memory can hold"),
        (x.cast(DType::U8) * 300, "scalar: 300 is not a value of u8; cast the tensor first"),
        (x.cast(DType::I32).cast(DType::F32).sum(..).grad(&[&x]).remove(0), "cast: no gradient flows through i32"),
        (Tensor::apply(bornite::ir::Op::Fma, &[&x, &x]), "fma: takes 3 inputs, given 2"),
        (Tensor::apply(bornite::ir::Op::Exp, &[]), "exp: takes 1 inputs, given 0"),
        (x.softmax(5), "max: there is no axis 5 among 2"),
        (x.cast(DType::I32).gelu(), "gelu: expects floats, found i32"),
        (x.squeeze(1), "squeeze: axis 1 of [2, 3] has length 3, not 1"),
        (x.flatten(1, 0), "flatten: axis 0 is before axis 1"),
        (x.movedim(0, 2), "movedim: there is no axis 2 among 2"),
        (x.repeat(&[2]), "repeat: 1 counts for the 2 axes of [2, 3]"),
        (x.mse(&zeros(&[3])), "mse: the prediction has shape [2, 3], the target [3]"),
        (x.nll(&zeros(&[3]).cast(DType::I64)), "nll: rows of shape [2, 3] have no classes of shape [3]"),
        (x.layer_norm(&zeros(&[2]), &zeros(&[2]), 1e-5), "layer_norm: the weight has shape [2], which is not the end"),
        (x.linear(&zeros(&[4, 2]), None), "linear: the last axis of [2, 3] has not the length"),
        (x.dropout(1.5, &Generator::new(0), true), "dropout: a probability is from 0 to 1, found 1.5"),
        (Tensor::attention(&x, &x, &zeros(&[5, 3]), None, false, None), "attention: 2 queries, 2 keys and 5 values do"),
        (Tensor::einsum("ii->i", &[&zeros(&[2, 2])]), "einsum: 'ii->i': 'i' occurs twice in one operand"),
        (Tensor::einsum("ij,jk", &[&x, &x]), "einsum: 'ij,jk': 'j' is 3 and 2 long"),
        (Tensor::einsum("ij->k", &[&x]), "einsum: 'ij->k': 'k' of the result is in no operand"),
        (Tensor::einsum("ij,ij", &[&x]), "einsum: 'ij,ij': it names 2 operands, given 1"),
        (Tensor::einsum("i", &[&x]), "einsum: 'i': 1 letters for shape [2, 3]"),
    ];
    for (n, (tensor, expected)) in cases.into_iter().enumerate() {
        expect(tensor.realize().expect_err(expected), line + n as u32, expected);
    }
}

#[test]
fn reads_name_what_they_found() {
    let x = zeros(&[2, 3]);
    expect(x.to_vec::<f64>().unwrap_err(), line!(), "to_vec: the tensor is f32, not f64; use cast");
    expect(x.item().unwrap_err(), line!(), "item: expected one element, the shape is [2, 3]");
    expect(x.dims::<3>().unwrap_err(), line!(), "dims: expected 3 axes, the shape is [2, 3]");
    assert_eq!(x.dims().unwrap(), [2, 3]);
}

#[test]
fn the_first_error_is_carried_through_everything() {
    let line = line!() + 1;
    let bad = zeros(&[2, 3]).matmul(&zeros(&[2, 3]));
    let far = ((&bad + 1.0).tanh().sum(..) * 2.0).softmax(0).matmul(&bad).reshape(&[3, 1]).maximum(&bad);
    let expected = "matmul: shapes [2, 3] and [2, 3] do not fit";
    expect(far.realize().unwrap_err(), line, expected);
    expect(far.shape().unwrap_err(), line, expected);
    expect(far.dims::<2>().unwrap_err(), line, expected);
    expect(far.dtype().unwrap_err(), line, expected);
    expect(far.grad(&[&bad])[0].to_vec::<f32>().unwrap_err(), line, expected);
    expect(zeros(&[1]).sum(..).grad(&[&bad])[0].realize().unwrap_err(), line, expected);
    expect(Var::new(&far).err().unwrap(), line, expected);
    expect(trace(|x| Ok((vec![x[0].clone()], vec![]))).call(&[far]).unwrap_err(), line, expected);
}

#[test]
fn devices() {
    for text in ["", "gpu", "cuda:", "cuda:x", "cpu:-1", "auto:0", "interpreter:1", "cuda:0:1"] {
        let error = text.parse::<Device>().unwrap_err().to_string();
        assert!(error.contains(&format!("'{text}' is not a device; write cpu, cpu:N, cuda")), "{error}");
    }
    for text in ["cpu", "cpu:1", "interpreter"] {
        assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
    }
    // Whatever this machine has, it has not a hundred GPUs.
    let error = Device::cuda(99).unwrap_err().to_string();
    assert!(error.contains("there is no cuda:99") || error.contains("libcuda.so.1 was not found"), "{error}");
    // A device that was never opened gives an error where it is used.
    assert!(Tensor::zeros(&[1], DType::F32, Device::Cuda(99)).to_vec::<f32>().is_err());
    assert!(Device::Cuda(99).synchronize().is_err());
}

#[test]
fn more_memory_than_there_is() {
    let huge = zeros(&[1 << 45]);
    assert!(matches!(huge.realize(), Err(Error::OutOfMemory { bytes }) if bytes == 1 << 47));
    assert_eq!(huge.shape().unwrap(), [1 << 45]);
}

#[test]
fn long_chains_do_not_overflow_the_stack() {
    const LENGTH: usize = 200_000;
    let x = Tensor::from_slice(&[0.0f32], &[1], CPU);
    let chain = |start: &Tensor| (0..LENGTH).fold(start.clone(), |t, _| t + 1.0);
    let long = chain(&x);
    assert_eq!(long.item().unwrap(), LENGTH as f64);
    let gradient = long.sum(..).grad(&[&x]).remove(0);
    assert_eq!(gradient.item().unwrap(), 1.0);
    drop((long, gradient));
    let failed = chain(&x.reshape(&[5]));
    assert!(failed.item().is_err());
    let views = (0..LENGTH).fold(x, |t, n| t.reshape(if n % 2 == 0 { &[1, 1] } else { &[1] }));
    assert_eq!(views.to_vec::<f32>().unwrap(), [0.0]);
}

#[test]
fn eight_threads_share_tensors_variables_and_traces() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], CPU);
    let shared = (&x * 2.0).exp();
    let total = Var::new(&zeros(&[])).unwrap();
    let step = trace(|x| Ok((vec![x[0].sum(..)], vec![total.set(total.get() + x[0].sum(..))])));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (x, shared, step) = (&x, &shared, &step);
            scope.spawn(move || {
                for n in 0..50 {
                    let mine = (shared + (thread * n) as f64).sum(..);
                    let expected: f32 = [2.0f32, 4.0, 6.0].map(|v| v.exp() + (thread * n) as f32).iter().sum();
                    assert!((mine.item().unwrap() as f32 - expected).abs() <= expected * 1e-5);
                    assert_eq!(step.call(&[x + n as f64]).unwrap()[0].item().unwrap(), (6 + 3 * n) as f64);
                }
            });
        }
    });
    let expected: f64 = (0..50).map(|n| (6 + 3 * n) as f64 * 8.0).sum();
    assert_eq!(total.get().item().unwrap(), expected, "no step was lost");
}

#[test]
fn tensors_compute_inside_someone_elses_thread_pool() {
    // More tasks than threads, each large enough to be split: a wait that took up other tasks would lock twice.
    let x = Tensor::from_slice(&vec![0.5f32; 128 * 128], &[128, 128], CPU);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    pool.scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|_| assert_eq!(x.matmul(&x).to_vec::<f32>().unwrap()[7], 32.0));
        }
    });
}
