//! Bornite's operations by name, with arguments in the format of `scripts/torch_ops/`.

use std::ops::Bound;

use bornite::{
    DType, Device, Tensor,
    ops::{
        Axes, Conv1dOptions, Conv2dOptions, ConvTranspose2dOptions, CrossEntropyOptions, NllOptions, Operand,
        Reduction, UpsampleMode,
    },
};
use serde_json::Value;

use crate::sample::{Input, dtype, number};

/// Arguments of an operation.
pub struct Call<'a> {
    pub op: &'a str,
    pub inputs: &'a [Input],
    pub args: &'a Value,
    pub device: Device,
}

impl Call<'_> {
    fn tensor(&self, n: usize) -> &Tensor {
        self.inputs[n].tensor()
    }

    fn tensors(&self) -> Vec<&Tensor> {
        self.inputs.iter().map(Input::tensor).collect()
    }

    fn has(&self, name: &str) -> bool {
        !self.args[name].is_null()
    }

    fn flag(&self, name: &str) -> bool {
        self.args[name].as_bool().unwrap_or(false)
    }

    fn number(&self, name: &str) -> f64 {
        number(&self.args[name]).unwrap_or_else(|| panic!("{}: no number {name} in {}", self.op, self.args))
    }

    fn integer(&self, name: &str) -> isize {
        self.args[name].as_i64().unwrap_or_else(|| panic!("{}: no integer {name} in {}", self.op, self.args)) as isize
    }

    fn count(&self, name: &str) -> usize {
        self.integer(name).try_into().unwrap()
    }

    fn list(&self, name: &str) -> Vec<isize> {
        let list = self.args[name].as_array().unwrap_or_else(|| panic!("{}: no list {name}", self.op));
        list.iter().map(|n| n.as_i64().unwrap() as isize).collect()
    }

    fn counts<const N: usize>(&self, name: &str) -> [usize; N] {
        <[usize; N]>::try_from(self.lengths(name)).unwrap()
    }

    fn lengths(&self, name: &str) -> Vec<usize> {
        self.list(name).into_iter().map(|n| n.try_into().unwrap()).collect()
    }

    fn loss_reduction(&self) -> Reduction {
        match self.args["reduction"].as_str() {
            Some("sum") => Reduction::Sum,
            Some("none") => Reduction::None,
            _ => Reduction::Mean,
        }
    }

    fn axes(&self) -> Axes {
        if self.has("axes") { self.list("axes")[..].into() } else { (..).into() }
    }

    fn dtype(&self) -> DType {
        dtype(self.args["dtype"].as_str().unwrap())
    }

    /// The first input, cast to the requested dtype if there is one.
    fn cast(&self) -> Tensor {
        if self.has("dtype") { self.tensor(0).cast(self.dtype()) } else { self.tensor(0).clone() }
    }

    /// The results.
    pub fn run(&self) -> Vec<Tensor> {
        let families = [Call::element, Call::reduction, Call::view, Call::choice, Call::creation, Call::layer];
        let found = families.iter().find_map(|family| family(self));
        found.unwrap_or_else(|| panic!("there is no operation {} here", self.op))
    }

    /// A binary operation; the first operand may be a number.
    fn pair(&self, apply: impl Fn(&Tensor, Operand) -> Tensor) -> Tensor {
        let first = match &self.inputs[0] {
            Input::Tensor(tensor) => tensor.clone(),
            Input::Int(n) => Tensor::from_slice(&[*n], &[], self.device).cast(self.tensor(1).dtype().unwrap()),
            Input::Float(n) => Tensor::from_slice(&[*n], &[], self.device).cast(self.tensor(1).dtype().unwrap()),
        };
        apply(&first, (&self.inputs[1]).into())
    }

    fn element(&self) -> Option<Vec<Tensor>> {
        macro_rules! methods {
            (unary: $($unary:ident)+; binary: $($binary:ident)+;) => {
                match self.op {
                    $(stringify!($unary) => self.tensor(0).$unary(),)+
                    $(stringify!($binary) => self.pair(|a, b| a.$binary(b)),)+
                    "%" => self.pair(|a, b| a % b),
                    "clamp" => self.tensor(0).clamp(&self.inputs[1], &self.inputs[2]),
                    "leaky_relu" => self.tensor(0).leaky_relu(self.number("slope")),
                    "elu" => self.tensor(0).elu(self.number("alpha")),
                    "where" => self.tensor(0).select(&self.inputs[1], &self.inputs[2]),
                    "masked_fill" => self.tensor(0).masked_fill(self.tensor(1), self.number("value")),
                    "cast" => self.cast(),
                    _ => return None,
                }
            };
        }
        Some(vec![methods! {
            unary: abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor gelu gelu_erf
                hardsigmoid hardswish hardtanh log log10 log1p log2 log_sigmoid mish neg not reciprocal relu relu6 rint
                rsqrt selu sigmoid sign silu sin sinh softplus softsign sqrt square tan tanh trunc;
            binary: add and atan2 copysign div equal fmax fmin ge gt hypot le lt maximum minimum mul not_equal or pow shl
                shr sub xor;
        }])
    }

    fn reduction(&self) -> Option<Vec<Tensor>> {
        macro_rules! keepdim {
            ($method:ident $keep:ident $($argument:expr)?) => {{
                let (x, axes) = (self.cast(), self.axes());
                if self.flag("keep") { x.$keep($($argument,)? axes) } else { x.$method($($argument,)? axes) }
            }};
        }
        let spread = |plain: fn(&Tensor, Axes, usize) -> Tensor, keep: fn(&Tensor, Axes, usize) -> Tensor| {
            let spread = if self.flag("keep") { keep } else { plain };
            spread(self.tensor(0), self.axes(), self.count("correction"))
        };
        Some(vec![match self.op {
            "sum" => keepdim!(sum sum_keepdim),
            "prod" => keepdim!(prod prod_keepdim),
            "mean" => keepdim!(mean mean_keepdim),
            "max" => keepdim!(max max_keepdim),
            "min" => keepdim!(min min_keepdim),
            "all" => keepdim!(all all_keepdim),
            "any" => keepdim!(any any_keepdim),
            "logsumexp" => keepdim!(logsumexp logsumexp_keepdim),
            "norm" => keepdim!(norm norm_keepdim self.number("p")),
            "var" => spread(Tensor::var, Tensor::var_keepdim),
            "std" => spread(Tensor::std, Tensor::std_keepdim),
            "argmax" => self.index(Tensor::argmax),
            "argmin" => self.index(Tensor::argmin),
            "max_and_place" => return Some(vec![reduced_values(self, Tensor::max), self.index(Tensor::argmax)]),
            "min_and_place" => return Some(vec![reduced_values(self, Tensor::min), self.index(Tensor::argmin)]),
            _ => return None,
        }])
    }

    /// An index along one axis, or into the flattened tensor.
    fn index(&self, find: fn(&Tensor, isize) -> Tensor) -> Tensor {
        let x = self.tensor(0);
        match (self.has("axis"), self.flag("keep")) {
            (false, _) => find(&x.flatten(0, -1), 0),
            (true, false) => find(x, self.integer("axis")),
            (true, true) => find(x, self.integer("axis")).unsqueeze(self.integer("axis")),
        }
    }

    fn view(&self) -> Option<Vec<Tensor>> {
        let x = || self.tensor(0);
        Some(vec![match self.op {
            "reshape" => x().reshape(&self.lengths("shape")),
            "expand" => x().expand(&self.lengths("shape")),
            "permute" => x().permute(&self.lengths("axes")),
            "transpose" => x().transpose(self.integer("a"), self.integer("b")),
            "t" => x().t(),
            "squeeze" => x().squeeze(self.axes()),
            "unsqueeze" => x().unsqueeze(self.integer("axis")),
            "flatten" => x().flatten(self.integer("first"), self.integer("last")),
            "movedim" => x().movedim(self.integer("from"), self.integer("to")),
            "flip" => self.list("axes").into_iter().fold(x().clone(), |x, axis| x.flip(axis)),
            "repeat" => x().repeat(&self.lengths("counts")),
            "slice" => {
                let mut view = x().clone();
                for cut in self.args["cuts"].as_array().unwrap() {
                    let at = |n: usize| cut[n].as_i64().map(|n| n as isize);
                    let start = at(1).map_or(Bound::Unbounded, Bound::Included);
                    let end = at(2).map_or(Bound::Unbounded, Bound::Excluded);
                    view = view.slice_step(at(0).unwrap(), (start, end), at(3).unwrap());
                }
                view.squeeze(&self.list("drop")[..])
            }
            "split" => return Some(x().split(self.count("size"), self.integer("axis"))),
            _ => return None,
        }])
    }

    fn choice(&self) -> Option<Vec<Tensor>> {
        let x = || self.tensor(0);
        let axis = || self.integer("axis");
        Some(match self.op {
            "concat" => vec![Tensor::concat(&self.tensors(), axis())],
            "stack" => vec![Tensor::stack(&self.tensors(), axis())],
            "pad" => {
                let width = |pair: &Value| {
                    let [before, after] = [0, 1].map(|n| pair[n].as_u64().unwrap() as usize);
                    (before, after)
                };
                let widths: Vec<_> = self.args["widths"].as_array().unwrap().iter().map(width).collect();
                vec![x().pad(&widths, self.number("value"))]
            }
            "gather" => vec![x().gather(axis(), self.tensor(1))],
            "scatter_add" => vec![x().scatter_add(axis(), self.tensor(1), self.tensor(2))],
            "index_select" => vec![x().index_select(axis(), self.tensor(1))],
            "embedding" => vec![x().embedding(self.tensor(1))],
            "one_hot" => vec![x().one_hot(self.count("classes"), DType::I64)],
            "sort" => {
                let (sorted, order) = x().sort(axis(), self.flag("descending"));
                vec![sorted, order]
            }
            "argsort" => vec![x().argsort(axis(), self.flag("descending"))],
            "topk" => {
                let (largest, positions) = x().topk(self.count("k"), axis());
                vec![largest, positions]
            }
            "cumsum" => vec![self.cast().cumsum(axis())],
            "tril" => vec![x().tril(self.integer("k"))],
            "triu" => vec![x().triu(self.integer("k"))],
            _ => return None,
        })
    }

    fn creation(&self) -> Option<Vec<Tensor>> {
        let device = self.device;
        Some(vec![match self.op {
            "full" => Tensor::full(self.number("value"), &self.lengths("shape"), self.dtype(), device),
            "eye" => Tensor::eye(self.count("n"), self.dtype(), device),
            "arange" => Tensor::arange(self.count("n"), self.dtype(), device),
            "linspace" => {
                Tensor::linspace(self.number("start"), self.number("end"), self.count("n"), self.dtype(), device)
            }
            _ => return None,
        }])
    }

    fn layer(&self) -> Option<Vec<Tensor>> {
        let x = || self.tensor(0);
        // PyTorch expects classes along the second axis.
        let rows = || if x().shape().is_ok_and(|shape| shape.len() > 2) { x().movedim(1, -1) } else { x().clone() };
        let optional = |n: usize| self.inputs.get(n).map(Input::tensor);
        let two = |name: &str| {
            let [a, b] = self.counts(name);
            (a, b)
        };
        Some(vec![match self.op {
            "matmul" => x().matmul(self.tensor(1)),
            "einsum" => Tensor::einsum(self.args["equation"].as_str().unwrap(), &self.tensors()),
            "linear" => x().linear(self.tensor(1), optional(2)),
            "softmax" => self.cast().softmax(self.integer("axis")),
            "log_softmax" => self.cast().log_softmax(self.integer("axis")),
            "layer_norm" => x().layer_norm(self.tensor(1), self.tensor(2), self.number("eps")),
            "rms_norm" => x().rms_norm(self.tensor(1), self.number("eps")),
            "batch_norm" => {
                let [weight, bias, mean, variance] = [1, 2, 3, 4].map(|n| self.tensor(n));
                x().batch_norm(weight, bias, mean, variance, self.number("eps"))
            }
            "attention" => {
                let scale = self.has("scale").then(|| self.number("scale"));
                Tensor::attention(x(), self.tensor(1), self.tensor(2), scale, self.flag("causal"), optional(3))
            }
            "conv2d" => {
                let (stride, padding, dilation) = (two("stride"), two("padding"), two("dilation"));
                let by = Conv2dOptions { stride, padding, dilation, groups: self.count("groups") };
                x().conv2d(self.tensor(1), optional(2), by)
            }
            "conv1d" => {
                let [stride, padding, dilation, groups] =
                    ["stride", "padding", "dilation", "groups"].map(|name| self.count(name));
                x().conv1d(self.tensor(1), optional(2), Conv1dOptions { stride, padding, dilation, groups })
            }
            "conv_transpose2d" => {
                let (stride, padding, output_padding) = (two("stride"), two("padding"), two("output_padding"));
                let (dilation, groups) = (two("dilation"), self.count("groups"));
                let options = ConvTranspose2dOptions { stride, padding, output_padding, dilation, groups };
                x().conv_transpose2d(self.tensor(1), optional(2), options)
            }
            "max_pool2d" => x().max_pool2d_padded(self.counts("kernel"), two("stride"), two("padding")),
            "avg_pool2d" => x().avg_pool2d_padded(self.counts("kernel"), two("stride"), two("padding")),
            "adaptive_avg_pool2d" => x().adaptive_avg_pool2d(self.counts("size")),
            "adaptive_max_pool2d" => x().adaptive_max_pool2d(self.counts("size")),
            "group_norm" => x().group_norm(self.count("groups"), optional(1), optional(2), self.number("eps")),
            "upsample" => {
                let bilinear = self.args["mode"] == "bilinear";
                let mode = UpsampleMode::Bilinear { align_corners: self.flag("align_corners") };
                x().upsample(self.counts("size"), if bilinear { mode } else { UpsampleMode::Nearest })
            }
            "cross_entropy" => {
                let classes = self.tensor(1);
                let probabilities = classes.dtype().is_ok_and(DType::is_float);
                let moved = probabilities && classes.shape().is_ok_and(|shape| shape.len() > 2);
                let classes = if moved { classes.movedim(1, -1) } else { classes.clone() };
                let options = CrossEntropyOptions {
                    label_smoothing: self.number("label_smoothing"),
                    ignore_index: self.args["ignore_index"].as_i64(),
                    weight: None,
                    reduction: self.loss_reduction(),
                };
                // Bornite's result for 16-bit floats is f32.
                rows().cross_entropy_loss(&classes, &options).cast(x().dtype().unwrap())
            }
            "nll" => {
                let (ignore_index, reduction) = (self.args["ignore_index"].as_i64(), self.loss_reduction());
                rows().nll_loss(self.tensor(1), &NllOptions { ignore_index, weight: None, reduction })
            }
            "mse" => x().mse_loss(self.tensor(1), self.loss_reduction()),
            "l1" => x().l1_loss(self.tensor(1), self.loss_reduction()),
            "bce" => x().bce_loss(self.tensor(1), self.loss_reduction()),
            "bce_with_logits" => x().bce_with_logits_loss(self.tensor(1), None, self.loss_reduction()),
            "huber" => x().huber_loss(self.tensor(1), self.number("delta"), self.loss_reduction()),
            "smooth_l1" => x().smooth_l1_loss(self.tensor(1), self.number("beta"), self.loss_reduction()),
            "kl_div" => x().kl_div_loss(self.tensor(1), self.loss_reduction()),
            _ => return None,
        }])
    }
}

/// The values at the indices that [`Call::index`] returns.
fn reduced_values(call: &Call, reduce: fn(&Tensor, isize) -> Tensor) -> Tensor {
    let reduced = reduce(call.tensor(0), call.integer("axis"));
    if call.flag("keep") { reduced.unsqueeze(call.integer("axis")) } else { reduced }
}
