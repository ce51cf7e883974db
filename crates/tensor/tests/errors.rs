//! Invalid programs: each returns an error with the op, the values found and the line of the call.
//! None panics.

use bornite::{DType, Device, Error, Generator, Tensor, Var, ops::Conv2dOptions, trace, var::commit};

// Expected texts that are too long for the line of their call, whose number is checked.
const CONCAT_LENGTHS: &str = "concat: cannot concatenate f32[2, 3] and f32[2, 4] along axis 0";
const STACK_SHAPES: &str = "concat: cannot concatenate f32[1, 2, 3] and f32[1, 3, 2] along axis 0";
const EINSUM_LABELS: &str = "einsum: 'i...jk': the number of labels is at least 3, but shape [2, 3] has rank 2";
const LAYER_NORM_WEIGHT: &str = "layer_norm: weight has shape [2], which does not match the last axes of [2, 3]";
const RMS_NORM_WEIGHT: &str = "rms_norm: weight has shape [], which does not match the last axes of [2, 3]";
const BATCH_NORM_SHAPE: &str = "batch_norm: expected parameters of shape [3] for input [2, 3], found [2]";

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

/// An invalid program, its line, and a part of the expected message.
struct Wrong<'a> {
    program: Box<dyn Fn() -> Option<Error> + 'a>,
    line: u32,
    expected: &'static str,
}

/// A program that builds a failed tensor.
#[track_caller]
fn wrong<'a>(expected: &'static str, program: impl Fn() -> Tensor + 'a) -> Wrong<'a> {
    fails(expected, move || program().realize())
}

/// A program that returns the error itself.
#[track_caller]
fn fails<'a, T>(expected: &'static str, program: impl Fn() -> Result<T, Error> + 'a) -> Wrong<'a> {
    Wrong { program: Box::new(move || program().err()), line: std::panic::Location::caller().line(), expected }
}

/// Attention without the optional arguments.
#[track_caller]
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Tensor {
    Tensor::attention(q, k, v, None, causal, None)
}

/// Runs all programs and reports those whose error is missing or different.
fn expect_errors(programs: &[Wrong<'_>]) {
    let failures: Vec<String> = (programs.iter())
        .filter_map(|wrong| {
            let expected = format!("line {}: {:?}", wrong.line, wrong.expected);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (wrong.program)())) {
                Err(_) => Some(format!("{expected} panics")),
                Ok(None) => Some(format!("{expected} is not an error")),
                Ok(Some(error)) => {
                    let text = error.to_string();
                    let right = text.contains(wrong.expected) && text.contains(&format!("errors.rs:{}:", wrong.line));
                    (!right).then(|| format!("{expected} says {text:?}"))
                }
            }
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Each program is on one line, which the error must contain.
#[test]
fn errors_have_a_message_and_the_line_of_the_call() {
    use bornite::ir::Op;
    let x = &zeros(&[2, 3]);
    let b = &x.lt(x);
    let n = &x.cast(DType::I32);
    let far = &Tensor::zeros(&[2, 3], DType::F32, Device::Cpu(1));
    let empty = &zeros(&[0, 3]);
    let index = |data: &[i64], shape: &[usize]| Tensor::from_slice(data, shape, CPU);
    let [column, square, mask] = &[index(&[0; 2], &[2, 1]), index(&[0; 9], &[3, 3]), zeros(&[4]).lt(zeros(&[4]))];
    let generator = &Generator::new(1);
    let [two, x1] = &[zeros(&[2]), zeros(&[1, 3])];
    let [image, weight] = &[zeros(&[1, 2, 2, 2]), zeros(&[1, 2, 3, 3])];
    let options = Conv2dOptions::default();
    let no_groups = Conv2dOptions { groups: 0, ..options };
    let huge = usize::MAX;
    let long = &Tensor::zeros(&[isize::MAX as usize], DType::U8, CPU);
    let programs = [
        // Elementwise.
        wrong("add: shapes [2, 3] and [4] do not broadcast: 3 against 4", || x + zeros(&[4])),
        wrong("sub: shapes [2, 3] and [3, 2] do not broadcast", || x - zeros(&[3, 2])),
        wrong("add: expects numbers, found bool and bool", || b + b),
        wrong("neg: expects numbers, found bool", || -b),
        wrong("exp: expects floats, found bool", || b.exp()),
        wrong("select: expects a bool condition", || x.select(x, x)),
        wrong("select: shapes [2, 3] and [2] do not broadcast", || b.select(x, zeros(&[2]))),
        wrong("add: inputs are on cpu and cpu:1; make them on one device", || x + far),
        wrong("scalar: 10000000000 is not representable in i32", || n + 10_000_000_000i64),
        wrong("scalar: 2 is not representable in bool", || x.lt(x).masked_fill(b, 2.0)),
        wrong("scalar: -1 is not representable in u8", || x.cast(DType::U8) + -1),
        wrong("fma: the number of inputs is 2, expected 3", || Tensor::apply(Op::Fma, &[x, x])),
        wrong("exp: the number of inputs is 0, expected 1", || Tensor::apply(Op::Exp, &[])),
        wrong("rem: expects integers, found f32 and f32", || Tensor::apply(Op::Rem, &[x, x])),
        wrong("and: expects integers or bools, found f32 and f32", || Tensor::apply(Op::And, &[x, x])),
        wrong("select: expects a bool condition", || x.masked_fill(x, 1.0)),
        wrong("select: shapes [4] and [2, 3] do not broadcast", || x.masked_fill(mask, 1.0)),
        // Reductions.
        wrong("sum: axis 2 is out of range for rank 2", || x.sum(2)),
        wrong("sum: axis 0 is listed twice", || x.sum([0, -2])),
        wrong("sum: expects numbers, found bool; cast first", || b.sum(0)),
        wrong("prod: axis -3 is out of range for rank 2", || x.prod(-3)),
        wrong("max: axis -3 is out of range for rank 2", || x.max(-3)),
        wrong("max: cannot reduce an axis of length 0", || empty.max(0)),
        wrong("min: cannot reduce an axis of length 0", || empty.min(..)),
        wrong("sum: axis 7 is out of range for rank 2", || x.mean(7)),
        wrong("argmax: axis 2 is out of range for rank 2", || x.argmax(2)),
        wrong("argmin: cannot reduce an axis of length 0, shape [0, 3]", || empty.argmin(0)),
        wrong("max: axis 5 is out of range for rank 2", || x.softmax(5)),
        wrong("max: axis -1 is out of range for rank 0", || zeros(&[]).log_softmax(-1)),
        wrong("cross_entropy: the prediction has shape [2, 3]", || x.cross_entropy(&zeros(&[2]))),
        // Products.
        wrong("matmul: shapes [2, 3] and [2, 3] do not match", || x.matmul(x)),
        wrong("matmul: expects at least two axes, found shapes [2, 3] and [3]", || x.matmul(&zeros(&[3]))),
        wrong("matmul: shapes [2] and [5] do not broadcast", || zeros(&[2, 3, 4]).matmul(&zeros(&[5, 4, 3]))),
        wrong("matmul: expects numbers", || b.matmul(&b.transpose(0, 1))),
        wrong("matmul: inputs are on cpu and cpu:1", || x.transpose(0, 1).matmul(far)),
        // Views.
        wrong("reshape: cannot reshape [2, 3] of 6 elements to [7]", || x.reshape(&[7])),
        wrong("reshape: cannot reshape [2, 3] of 6 elements", || x.reshape(&[huge, 2])),
        wrong("permute: [0, 0] is not a permutation of the 2 axes of [2, 3]", || x.permute(&[0, 0])),
        wrong("permute: [1] is not a permutation", || x.permute(&[1])),
        wrong("permute: [0, 9] is not a permutation", || x.permute(&[0, 9])),
        wrong("transpose: axis 2 is out of range for rank 2", || x.transpose(0, 2)),
        wrong("expand: cannot expand [2, 3] to [2, 4]; only axes of length 1", || x.expand(&[2, 4])),
        wrong("expand: cannot expand [2, 3] to [3]", || x.expand(&[3])),
        wrong("unsqueeze: axis 4 is out of range for a result of rank 3", || x.unsqueeze(4)),
        wrong("slice: axis 2 is out of range for rank 2", || x.slice(2, ..)),
        wrong("slice: the step must not be 0", || x.slice_step(0, .., 0)),
        wrong("flip: axis -3 is out of range for rank 2", || x.flip(-3)),
        wrong("pad: the number of width pairs is 1, expected 2", || x.pad(&[(1, 1)], 0.0)),
        wrong("pad: more elements than memory can hold", || x.pad(&[(huge, 1), (0, 0)], 0.0)),
        wrong("pad: shape [2305843009213693954, 3] has more elements", || x.pad(&[(1 << 61, 0), (0, 0)], 0.0)),
        wrong("pad: 0.5 is not representable in i32; cast the tensor first", || n.pad(&[(1, 1), (0, 0)], 0.5)),
        wrong("tril: expects at least two axes, found shape [3]", || zeros(&[3]).tril(0)),
        wrong("triu: expects at least two axes, found shape []", || zeros(&[]).triu(1)),
        // Concatenation.
        wrong("concat: expected at least one tensor", || Tensor::concat(&[], 0)),
        wrong("concat: axis 2 is out of range for rank 2", || Tensor::concat(&[x, x], 2)),
        wrong("concat: cannot concatenate f32[2, 3] and f32[3] along axis 0", || Tensor::concat(&[x, &zeros(&[3])], 0)),
        wrong(CONCAT_LENGTHS, || Tensor::concat(&[x, &zeros(&[2, 4])], 0)),
        wrong("concat: inputs are on cpu and cpu:1", || Tensor::concat(&[x, far], 0)),
        wrong("concat: more elements than memory can hold", || Tensor::concat(&[long; 3], 0)),
        wrong("has more elements than memory can hold", || Tensor::concat(&[long; 2], 0)),
        wrong("concat: expected at least one tensor", || Tensor::stack(&[], 0)),
        wrong("unsqueeze: axis 3 is out of range for a result of rank 3", || Tensor::stack(&[x, x], 3)),
        wrong(STACK_SHAPES, || Tensor::stack(&[x, &zeros(&[3, 2])], 0)),
        wrong("split: the size of a piece must not be 0", || x.split(0, 0).remove(0)),
        wrong("split: axis 5 is out of range for rank 2", || x.split(1, 5).remove(0)),
        // Indices.
        wrong("gather: axis 2 is out of range for rank 2", || x.gather(2, column)),
        wrong("gather: indices must be integers, found f32", || x.gather(0, x)),
        wrong("gather: indices of shape [3, 3] do not match shape [2, 3]; only axis 1", || x.gather(1, square)),
        wrong("gather: index 7 is outside axis 1 of length 3", || x.gather(1, &index(&[2, 7], &[2, 1]))),
        wrong("gather: index -1 is outside axis 0 of length 2", || x.gather(0, &index(&[0, 1, -1], &[1, 3]))),
        wrong("gather: axis 0 of [0, 3] has length 0, so no index", || empty.gather(0, &index(&[0; 3], &[1, 3]))),
        wrong("index_select: expected indices with one axis, found shape [2, 1]", || x.index_select(0, column)),
        wrong("index_select: axis -3 is out of range for rank 2", || x.index_select(-3, &index(&[0], &[1]))),
        wrong("index 2 is outside axis 0 of length 2", || x.index_select(0, &index(&[0, 2], &[2]))),
        wrong("embedding: expected a table with two axes, found shape [3]", || zeros(&[3]).embedding(column)),
        wrong("indices must be integers, found f32", || x.embedding(&zeros(&[4]))),
        wrong("index 9 is outside axis 0 of length 2", || x.embedding(&index(&[1, 9], &[2]))),
        wrong("scatter_add: axis 2 is out of range for rank 2", || x.scatter_add(2, column, x)),
        wrong("scatter_add: values are f32[2, 3]; expected f32[2, 1]", || x.scatter_add(1, column, x)),
        wrong("scatter_add: indices must be integers, found f32", || x.scatter_add(1, x, x)),
        wrong("scatter_add: index 3 is outside axis 1 of length 3", || x.scatter_add(1, &index(&[3; 6], &[2, 3]), x)),
        wrong("scatter_add: axis 0 of [0, 3] has length 0", || empty.scatter_add(0, &index(&[0; 6], &[2, 3]), x)),
        wrong("one_hot: indices must be integers, found f32", || x.one_hot(3, DType::F32)),
        wrong("more elements than memory can hold", || n.one_hot(huge, DType::F32)),
        // Einsum.
        wrong("einsum: 'ij,jk': the number of operands is 1, expected 2", || Tensor::einsum("ij,jk", &[x])),
        wrong("einsum: '': the number of operands is 0, expected 1", || Tensor::einsum("", &[])),
        wrong("einsum: 'ijk->i': the number of labels is 3, but shape [2, 3]", || Tensor::einsum("ijk->i", &[x])),
        wrong("einsum: 'i->i': the number of labels is 1, but shape [2, 3]", || Tensor::einsum("i->i", &[x])),
        wrong(EINSUM_LABELS, || Tensor::einsum("i...jk", &[x])),
        wrong("einsum: 'ii': axis 'i' has lengths 2 and 3", || Tensor::einsum("ii", &[x])),
        wrong("einsum: 'ij,ji->': axis 'j' has lengths 3 and 2", || Tensor::einsum("ij,ji->", &[x, x])),
        wrong("an axis of '...' has lengths 2 and 3", || Tensor::einsum("...j,...j", &[x, &zeros(&[3, 3])])),
        wrong("output axis 'k' is in no operand", || Tensor::einsum("ij->ik", &[x])),
        wrong("'i' occurs twice in the output", || Tensor::einsum("ij->ii", &[x])),
        wrong("'1' is not a letter", || Tensor::einsum("i1->i", &[x])),
        wrong("'-' is not a letter", || Tensor::einsum("ij->i->j", &[x])),
        wrong("'i..' has dots that are not '...'", || Tensor::einsum("i..->i", &[x])),
        wrong("'...' occurs more than once in '...i...'", || Tensor::einsum("...i...->i", &[x])),
        wrong("matmul: inputs are on cpu and cpu:1", || Tensor::einsum("ij,ij->i", &[x, far])),
        wrong("sum: expects numbers, found bool; cast first", || Tensor::einsum("ij->i", &[b])),
        // Linear equations and Fourier transforms.
        wrong("inverse: expected square matrices, found shape [2, 3]", || x.inverse()),
        wrong("inverse: expects at least two axes, found shapes [2] and", || two.inverse()),
        wrong("inverse: expects floats, found i32", || n.inverse()),
        wrong("solve: expected a square matrix and as many rows, found [2, 3]", || x.solve(x)),
        wrong("and as many rows, found [3, 3] and [2, 3]", || zeros(&[3, 3]).solve(x)),
        wrong("solve: shapes [2] and [3] do not broadcast", || zeros(&[2, 1, 1]).solve(&zeros(&[3, 1, 1]))),
        wrong("concat: inputs are on cpu and cpu:1", || zeros(&[2, 2]).solve(far)),
        wrong("fft: axis 2 is out of range for rank 2", || x.fft(x, 2).0),
        wrong("fft: real parts are f32[2, 3] but imaginary parts are f32[2]", || x.fft(two, 0).1),
        wrong("ifft: expects floats, found i32", || n.ifft(x, 0).0),
        wrong("quantile: q must be from 0 to 1, found 2", || x.quantile(2.0, 0)),
        wrong("quantile: axis 2 is out of range for rank 2", || x.quantile(0.5, 2)),
        wrong("quantile: cannot reduce an axis of length 0", || empty.quantile(0.5, 0)),
        // Shapes.
        wrong("squeeze: axis 1 of [2, 3] has length 3, not 1", || x.squeeze(1)),
        wrong("squeeze: axis 2 is out of range for rank 2", || x.squeeze(2)),
        wrong("flatten: axis 0 is before axis 1", || x.flatten(1, 0)),
        wrong("flatten: axis 4 is out of range for rank 2", || x.flatten(0, 4)),
        wrong("movedim: axis -3 is out of range for rank 2", || x.movedim(0, -3)),
        wrong("repeat: the number of counts is 1, but shape [2, 3] has rank 2", || x.repeat(&[2])),
        wrong("repeat: more elements than memory can hold", || x.repeat(&[huge, 1])),
        wrong("split_sizes: sizes [1, 1] do not add up to axis 1 of [2, 3]", || x.split_sizes(&[1, 1], 1).remove(1)),
        wrong("split_sizes: sizes [] do not add up to axis 0", || x.split_sizes(&[], 0).remove(0)),
        wrong("split_sizes: axis 9 is out of range for rank 2", || x.split_sizes(&[2], 9).remove(0)),
        // Activations and layers.
        wrong("gelu: expects floats, found i32", || n.gelu()),
        wrong("gelu_erf: expects floats, found bool", || b.gelu_erf()),
        wrong("sigmoid: expects floats, found i32", || n.sigmoid()),
        wrong("softplus: expects floats, found i32", || n.softplus()),
        wrong("elu: expects floats, found i32", || n.elu(1.0)),
        wrong(LAYER_NORM_WEIGHT, || x.layer_norm(two, two, 1e-5)),
        wrong("layer_norm: expects floats, found i32", || n.layer_norm(two, two, 1e-5)),
        wrong(RMS_NORM_WEIGHT, || x.rms_norm(&zeros(&[]), 1e-5)),
        wrong(BATCH_NORM_SHAPE, || x.batch_norm(two, two, two, two, 1e-5)),
        wrong("batch_norm: expects at least two axes, found shape [2]", || two.batch_norm(two, two, two, two, 1e-5)),
        wrong("dropout: p must be from 0 to 1, found 1.5", || x.dropout(1.5, generator, true)),
        wrong("dropout: p must be from 0 to 1, found NaN", || x.dropout(f64::NAN, generator, false)),
        wrong("dropout: expects floats, found i32", || n.dropout(0.5, generator, true)),
        wrong("random: the state (seed and offset) must be u64[2], found f32[2]", || x.dropout_from(0.5, two)),
        wrong("linear: the last axis of input [2, 3] must have length 2", || x.linear(&zeros(&[4, 2]), None)),
        wrong("linear: expected a weight with two axes", || x.linear(two, None)),
        wrong("add: shapes [2, 4] and [2] do not broadcast", || x.linear(&zeros(&[4, 3]), Some(two))),
        wrong("linear: expected a weight with two axes", || x.fused_linear_gelu(two, two)),
        wrong("attention: 2 queries, 2 keys and 4 values do not match", || attend(x, x, &zeros(&[4, 3]), false)),
        wrong("attention: 2 queries, 1 keys and 1 values do not match", || attend(x, x1, x1, true)),
        wrong("attention: expects floats, found i32", || attend(n, x, x, false)),
        wrong("attention: expected at least two axes", || attend(two, x, x, false)),
        wrong("conv2d: expected input and weight with 4 axes, found", || x.conv2d(x, None, Conv2dOptions::default())),
        wrong("in 0 groups does not match the 2 channels", || image.conv2d(weight, None, no_groups)),
        wrong("a kernel of length 3 does not fit an axis of length 2", || image.conv2d(weight, None, options)),
        wrong("kernel sizes, strides and dilations must be at least 1", || image.max_pool2d([2, 2], (0, 1))),
        wrong("avg_pool2d: expected an image [n, channels, height, width]", || x.avg_pool2d([1, 1], (1, 1))),
        // Losses.
        wrong("mse: the prediction has shape [2, 3] but the target [2]", || x.mse(two)),
        wrong("l1: expects floats, found i32", || n.l1(x)),
        wrong("huber: the prediction has shape [2, 3] but the target [2]", || x.huber(two, 1.0)),
        wrong("bce: the prediction has shape [2, 3] but the target [2]", || x.bce(two)),
        wrong("bce_with_logits: expects floats, found bool", || b.bce_with_logits(x)),
        wrong("kl_div: the prediction has shape [2, 3] but the target [2]", || x.kl_div(two)),
        wrong("nll: log-probabilities [2, 3] do not match classes [2, 1]", || x.nll(column)),
        wrong("gather: index 7 is outside axis 1 of length 3", || x.cross_entropy(&index(&[0, 7], &[2]))),
        wrong("cross_entropy: expects floats, found i32", || n.cross_entropy(x)),
        wrong("gather: index 2 is outside axis 0 of length 2", || x.cross_entropy_per_row(&index(&[0, 2], &[2]), 2)),
        wrong("cross_entropy_per_row: expects floats, found i32", || n.cross_entropy_per_row(x, 1)),
        wrong("expected class indices, integers", || x.cross_entropy_per_row(x, 1)),
        wrong("classes is 4, but a row has 3 logits", || x.cross_entropy_per_row(&index(&[0, 2], &[2]), 4)),
        wrong("classes is 0, but a row has 3 logits", || x.cross_entropy_per_row(&index(&[0, 2], &[2]), 0)),
        wrong("do not match targets [3]", || x.cross_entropy_per_row(&index(&[0, 2, 1], &[3]), 3)),
        // Sorting.
        wrong("argsort: axis 2 is out of range for rank 2", || x.argsort(2, false)),
        wrong("argsort: axis 0 is out of range for rank 0", || zeros(&[]).sort(0, true).0),
        wrong("topk: k is 4 but the axis has length 3", || x.topk(4, 1).1),
        wrong("argsort: axis 9 is out of range for rank 2", || x.topk(1, 9).0),
        wrong("cumsum: axis 2 is out of range for rank 2", || x.cumsum(2)),
        wrong("cumsum: expects numbers, found bool; cast first", || b.cumsum(0)),
        // Creation.
        wrong("from_slice: element count 1 does not match shape [2]", || Tensor::from_slice(&[1.0f32], &[2], CPU)),
        wrong("more elements than memory can hold", || Tensor::zeros(&[huge, 2], DType::F32, CPU)),
        wrong("more elements than memory can hold", || Tensor::zeros(&[1 << 62], DType::F64, CPU)),
        wrong("more elements than memory can hold", || Tensor::zeros(&[0, 1 << 32, 1 << 32], DType::F32, CPU)),
        wrong("more elements than memory can hold", || x.expand(&[1 << 40, 2, 3]).expand(&[1 << 40, 1 << 40, 2, 3])),
        wrong("more elements than memory can hold", || Tensor::arange(huge, DType::I64, CPU)),
        wrong("more elements than memory can hold", || Tensor::eye(huge, DType::F32, CPU)),
        wrong("linspace: expects a float dtype, found i32", || Tensor::linspace(0.0, 1.0, 3, DType::I32, CPU)),
        wrong("rand: expects a float dtype, found i64", || Tensor::rand(&[2], DType::I64, generator, CPU)),
        wrong("randn: expects a float dtype, found i32", || Tensor::randn(&[2], DType::I32, generator, CPU)),
        wrong("more elements than memory can hold", || Tensor::rand(&[huge, 2], DType::F32, generator, CPU)),
        wrong("random: the state (seed and offset) must be u64[2], found f32[2, 3]", || Tensor::random_bits(x, &[4])),
        // Gradients.
        wrong("grad: expected a float tensor with one element, found f32[2, 3]", || x.grad(&[x]).remove(0)),
        wrong("grad: expected a float tensor with one element, found i32[]", || n.sum(..).grad(&[x]).remove(0)),
        wrong("grad: only float tensors have a gradient, found bool[2, 3]", || x.sum(..).grad(&[b]).remove(0)),
        wrong("no gradient flows through i32", || x.cast(DType::I32).cast(DType::F32).sum(..).grad(&[x]).remove(0)),
        // Reads.
        fails("to_vec: the tensor is f32, not f64; use cast", || x.to_vec::<f64>()),
        fails("item: expected one element, found shape [2, 3]", || x.item()),
        fails("dims: expected 3 axes, found shape [2, 3]", || x.dims::<3>()),
    ];
    println!("{} wrong programs", programs.len());
    assert!(programs.len() >= 150);
    expect_errors(&programs);
    // The device still works.
    assert_eq!((x + 1.0).gather(1, column).to_vec::<f32>().unwrap(), [1.0; 2]);
}

/// `cpu` and `cpu:1` are different devices: an op with tensors of both is an error that names them.
#[test]
fn mixed_devices_are_an_error() {
    let [a, b] = &[CPU, Device::Cpu(1)].map(|device| Tensor::ones(&[2, 2], DType::F32, device));
    let [near, away] = &[CPU, Device::Cpu(1)].map(|device| Tensor::zeros(&[2, 2], DType::I64, device));
    let line = |t: &Tensor| t.slice(0, 0..1).squeeze(0);
    let var = Var::new(a).unwrap();
    let programs = [
        wrong("add: inputs are on cpu and cpu:1; make them on one device, or move one with to(cpu)", || a + b),
        wrong("sub: inputs are on cpu:1 and cpu", || b - a),
        wrong("pow: inputs are on cpu and cpu:1", || a.pow(b)),
        wrong("clamp: inputs are on cpu and cpu:1", || a.clamp(0.0, b)),
        wrong("select: inputs are on cpu and cpu:1", || a.lt(0.0).select(b, 0.0)),
        wrong("select: inputs are on cpu:1 and cpu", || a.masked_fill(&b.lt(0.0), 1.0)),
        wrong("matmul: inputs are on cpu and cpu:1", || a.matmul(b)),
        wrong("concat: inputs are on cpu and cpu:1", || Tensor::concat(&[a, b], 0)),
        wrong("concat: inputs are on cpu and cpu:1", || Tensor::stack(&[a, b], 0)),
        wrong("gather: inputs are on cpu and cpu:1", || a.gather(0, away)),
        wrong("gather: inputs are on cpu and cpu:1", || a.index_select(0, &line(away))),
        wrong("gather: inputs are on cpu and cpu:1", || a.embedding(away)),
        wrong("scatter_add: inputs are on cpu and cpu:1", || a.scatter_add(0, near, b)),
        wrong("matmul: inputs are on cpu and cpu:1", || Tensor::einsum("ij,jk", &[a, b])),
        wrong("mul: inputs are on cpu and cpu:1", || a.layer_norm(&line(b), &line(a), 1e-5)),
        wrong("mul: inputs are on cpu and cpu:1", || a.rms_norm(&line(b), 1e-5)),
        wrong("sub: inputs are on cpu and cpu:1", || a.batch_norm(&line(a), &line(a), &line(b), &line(a), 1e-5)),
        wrong("matmul: inputs are on cpu and cpu:1", || a.linear(b, None)),
        wrong("add: inputs are on cpu and cpu:1", || a.linear(a, Some(&line(b)))),
        wrong("matmul: inputs are on cpu and cpu:1", || attend(a, b, a, false)),
        wrong("sub: inputs are on cpu and cpu:1", || a.mse(b)),
        wrong("mul: inputs are on cpu and cpu:1", || a.cross_entropy(b)),
        wrong("gather: inputs are on cpu and cpu:1", || a.cross_entropy(&line(away))),
        fails("set: the variable is f32[2, 2] on cpu, but the new value is", || commit(&[], vec![var.set(b.clone())])),
    ];
    expect_errors(&programs);
    // Explicit copies work, and gradients flow back through them.
    let sum = (a * 3.0).to(Device::Cpu(1)) * b;
    assert_eq!((sum.device().unwrap(), sum.to_vec::<f32>().unwrap()), (Device::Cpu(1), vec![3.0; 4]));
    let gradients = sum.sum(..).grad(&[a, b]);
    assert_eq!(gradients[0].device().unwrap(), CPU);
    assert_eq!(gradients[1].to_vec::<f32>().unwrap(), [3.0; 4]);
}

#[test]
fn first_error_propagates_through_the_graph() {
    let line = line!() + 1;
    let bad = zeros(&[2, 3]).matmul(&zeros(&[2, 3]));
    let far = ((&bad + 1.0).tanh().sum(..) * 2.0).softmax(0).matmul(&bad).reshape(&[3, 1]).maximum(&bad);
    let expected = "matmul: shapes [2, 3] and [2, 3] do not match";
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
fn invalid_device_strings_are_errors() {
    for text in ["", "gpu", "cuda:", "cuda:x", "cpu:-1", "auto:0", "interpreter:1", "cuda:0:1"] {
        let error = text.parse::<Device>().unwrap_err().to_string();
        assert!(error.contains(&format!("'{text}' is not a device; use cpu, cpu:N, cuda")), "{error}");
    }
    for text in ["cpu", "cpu:1", "interpreter"] {
        assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
    }
    // No machine has a hundred GPUs.
    let error = Device::cuda(99).unwrap_err().to_string();
    assert!(error.contains("there is no cuda:99") || error.contains("libcuda.so.1 was not found"), "{error}");
    // A device that was never opened gives an error where it is used.
    assert!(Tensor::zeros(&[1], DType::F32, Device::Cuda(99)).to_vec::<f32>().is_err());
    assert!(Device::Cuda(99).synchronize().is_err());
}

#[test]
fn allocation_failure_is_an_error() {
    let huge = zeros(&[1 << 45]);
    assert!(matches!(huge.realize(), Err(Error::OutOfMemory { bytes }) if bytes == 1 << 47));
    assert_eq!(huge.shape().unwrap(), [1 << 45]);
}

#[test]
fn long_chains_do_not_overflow_the_stack() {
    const LENGTH: usize = 1_000_000;
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

/// Nothing is computed before the threads start: they compute the same nodes, some of which fail.
#[test]
fn eight_threads_read_and_build_on_the_same_graph() {
    let data: Vec<f64> = (0..60).map(|n| n as f64 / 7.0 - 4.0).collect();
    let x = Tensor::from_slice(&data, &[6, 10], CPU);
    let shared = x.slice_step(1, .., -2).softmax(-1).cumsum(0);
    let loss = (&shared * &shared).sum(..);
    let order = shared.argsort(1, true);
    let rejected = shared.matmul(&shared);
    let again = Tensor::from_slice(&data, &[6, 10], CPU).slice_step(1, .., -2).softmax(-1).cumsum(0);
    let expected = (again.to_vec::<f64>().unwrap(), (&again * &again).sum(..).item().unwrap());
    let gradients: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let work = |thread: i64| {
            let (x, shared, loss, order, rejected, expected) = (&x, &shared, &loss, &order, &rejected, &expected);
            move || {
                let mut gradient = vec![];
                for n in 0..20 {
                    let bad = Tensor::from_slice(&[100 + thread * 20 + n], &[1], CPU);
                    let error = shared.index_select(0, &bad).to_vec::<f64>().unwrap_err().to_string();
                    let own = format!("index {} is outside axis 0 of length 6", 100 + thread * 20 + n);
                    assert!(error.contains(&own), "{error:?} is another thread's, not {own:?}");
                    assert_eq!(shared.to_vec::<f64>().unwrap(), expected.0);
                    assert_eq!(loss.item().unwrap(), expected.1);
                    assert_eq!(shared.gather(1, order).shape().unwrap(), [6, 5]);
                    assert!(rejected.exp().to_vec::<f64>().is_err());
                    let scaled = loss * (thread + 1) as f64;
                    gradient = (scaled.grad(&[x]).remove(0) / (thread + 1) as f64).to_vec::<f64>().unwrap();
                }
                gradient
            }
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for gradient in &gradients {
        let far = gradient.iter().zip(&gradients[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-12, "gradients differ by {far}");
    }
}

#[test]
fn tensors_compute_inside_an_external_thread_pool() {
    // More tasks than threads, each large enough to be split: a wait that took up other tasks would
    // lock twice.
    let x = Tensor::from_slice(&vec![0.5f32; 128 * 128], &[128, 128], CPU);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    pool.scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|_| assert_eq!(x.matmul(&x).to_vec::<f32>().unwrap()[7], 32.0));
        }
    });
}
