//! Rows of `bornite bench`. Without a suite: elementwise ops, reductions, row ops, matrix products,
//! convolutions, losses, AdamW, an MLP training step; the suites are in `suite/`.
//!
//! Each row is measured inside a trace, as training runs; `…_eager_…` rows run operation by
//! operation. Names are those of `peers/torch_ops.py`, so that rows can be compared (eager rows
//! with the peer's `eager_ms`).

mod accuracy;
mod attention;
mod images;
mod launches;
mod naive;
mod select;
mod tables;

use bornite::{
    DType, Device, Generator, Tensor, Var,
    fused::{self, AdamWStep, BiasCorrection},
    trace,
    var::Update,
};
use bornite_bench::{BenchRow, Config, Measurement, measure, rotations};
use bornite_nn::prelude::{AdamW, Forward, Linear, Params, Sequential, Sgd, Tanh};

use super::gpt2::GPT2_TOKENS;
use crate::Failure;
use naive::NaiveLoops;
pub use select::{Suite, cases};

/// A row to measure.
pub struct BenchCase {
    pub name: String,
    work: CaseBody,
    bytes: Option<usize>,
    flops: Option<u64>,
    /// True if arithmetic dominates, so that a few input sets suffice.
    compute_bound: bool,
    /// Simple loops that compute the same.
    naive: Option<NaiveLoops>,
}

/// Outputs of a case: results and updates of variables.
type Results = (Vec<Tensor>, Vec<Update>);

enum CaseBody {
    /// A function of inputs of these shapes and dtypes; several input sets are rotated.
    Function {
        inputs: Vec<(Vec<usize>, DType)>,
        op: Box<dyn Fn(&[Var]) -> Results + Send + Sync>,
        eager: bool,
    },
    MlpStep {
        batch: usize,
        hidden: usize,
        by: StepBy,
    },
    /// Anything else that measures itself; with a remark.
    Other(Box<OtherBody>),
}

/// Ways to write a training step.
#[derive(Clone, Copy)]
enum StepBy {
    /// A traced function that updates variables by gradient descent.
    Trace,
    /// The model API, with gradient descent.
    Sgd,
    /// The model API, with AdamW.
    AdamW,
}

type OtherBody = dyn Fn(Device, &Config) -> Result<(Measurement, Option<&'static str>), Failure>;

/// Settings of a measurement.
#[derive(Clone, Copy)]
pub struct CaseConfig {
    pub config: Config,
    /// Largest allowed error, instead of the defaults of each type.
    pub threshold: Option<f64>,
    /// True if results are compared with f64 and simple loops are timed.
    pub compare: bool,
}

/// Problem size factor of a device.
fn scale(device: Device, quick: bool) -> usize {
    match (device.is_cuda(), quick) {
        (true, false) => 100,
        (true, true) | (false, false) => 10,
        (false, true) => 1,
    }
}

/// Rows that are measured if no suite is selected, sized for the device.
fn operations(device: Device, quick: bool) -> Vec<BenchCase> {
    let scale = scale(device, quick);
    let mut cases = vec![];
    elementwise(&mut cases, 1_000_000 * scale);
    rows(&mut cases, scale);
    products(&mut cases, scale);
    images::images(&mut cases, scale > 1);
    if scale == 100 {
        large(&mut cases);
    }
    for (batch, hidden) in [(96, 32), (1024, 256)] {
        if scale > 1 || batch == 96 {
            for (name, by) in [("", StepBy::Trace), ("sgd_", StepBy::Sgd), ("adamw_", StepBy::AdamW)] {
                let name = format!("mlp_step_{name}f32_{batch}x{hidden}");
                cases.push(BenchCase::new(name, CaseBody::MlpStep { batch, hidden, by }));
            }
        }
    }
    cases
}

fn elementwise(cases: &mut Vec<BenchCase>, largest: usize) {
    let add = |x: &[Tensor]| vec![&x[0] + &x[1]];
    let powers_of_ten =
        |first: usize| std::iter::successors(Some(first), |n| Some(n * 10)).take_while(move |n| *n <= largest);
    for elements in powers_of_ten(1000) {
        cases.push(
            function(format!("add_f32_{elements}"), f32s(&[&[elements], &[elements]]), add)
                .bytes(12 * elements)
                .light_flops(elements),
        );
        let eager = function(format!("add_eager_f32_{elements}"), f32s(&[&[elements], &[elements]]), add).eager();
        cases.push(eager.bytes(12 * elements));
    }
    for n in [1_000_000, 100_000_000].into_iter().filter(|n| *n <= largest) {
        let one = || f32s(&[&[n]]);
        cases.push(function(format!("sum_f32_{n}"), one(), |x| vec![x[0].sum(..)]).bytes(4 * n).light_flops(n));
        cases.push(function(format!("relu_f32_{n}"), one(), |x| vec![x[0].relu()]).bytes(8 * n));
        cases.push(function(format!("gelu_tanh_f32_{n}"), one(), |x| vec![x[0].gelu()]).bytes(8 * n));
        let chain = |x: &[Tensor]| vec![(&x[0] * &x[1] + &x[0]).gelu() * &x[1]];
        cases.push(function(format!("chain5_compiled_f32_{n}"), f32s(&[&[n], &[n]]), chain).bytes(12 * n));
    }
    if largest >= 100_000_000 {
        let dropout = |x: &[Tensor]| {
            let state = Tensor::from_slice(&[7u64, 1], &[2], x[0].device().unwrap_or(Device::cpu()));
            vec![x[0].dropout_from(0.5, &state)]
        };
        cases.push(function("dropout_f32_100M", f32s(&[&[100_000_000]]), dropout).bytes(800_000_000));
    }
}

fn rows(cases: &mut Vec<BenchCase>, scale: usize) {
    for (count, width) in [(4096, 4096), (65536, 1024)] {
        if scale < 100 && count > 4096 {
            continue;
        }
        let name = format!("softmax_f32_{count}x{width}");
        cases.push(function(name, f32s(&[&[count, width]]), |x| vec![x[0].softmax(-1)]).bytes(8 * count * width));
    }
    for (count, dtype) in [(128, DType::F32), (65536, DType::F32), (65536, DType::BF16)] {
        if scale < 100 && count > 128 {
            continue;
        }
        let width = 768;
        let inputs = || vec![(vec![count, width], dtype), (vec![width], dtype), (vec![width], dtype)];
        let bytes = 2 * dtype.bytes() * count * width;
        let name = format!("layernorm_{dtype}_{count}x{width}");
        cases.push(function(name, inputs(), |x| vec![x[0].layer_norm(&x[1], &x[2], 1e-5)]).bytes(bytes));
        let backward = |x: &[Tensor]| {
            let y = x[0].layer_norm(&x[1], &x[2], 1e-5);
            (y * &x[3]).sum(..).grad(&[&x[0], &x[1], &x[2]])
        };
        let name = format!("layernorm_backward_{dtype}_{count}x{width}");
        let inputs = [inputs(), vec![(vec![count, width], dtype)]].concat();
        cases.push(function(name, inputs, backward).bytes(3 * dtype.bytes() * count * width));
    }
    let size = if scale == 100 { 8192 } else { 2048 };
    // A transpose alone is a view; reading it forces the copy.
    let transpose = |x: &[Tensor]| vec![x[0].t()];
    cases
        .push(function(format!("transpose_copy_f32_{size}"), f32s(&[&[size, size]]), transpose).bytes(8 * size * size));
}

fn products(cases: &mut Vec<BenchCase>, scale: usize) {
    let largest = match scale {
        100 => 8192,
        10 => 1024,
        _ => 256,
    };
    for size in std::iter::successors(Some(128), |n| Some(n * 2)).take_while(|n| *n <= largest) {
        for dtype in [DType::F32, DType::BF16] {
            if dtype == DType::BF16 && (scale < 100 || size < 512) {
                continue;
            }
            let inputs = vec![(vec![size, size], dtype); 2];
            let product = function(format!("matmul_{dtype}_{size}"), inputs, |x| vec![x[0].matmul(&x[1])]);
            cases.push(product.flops(2 * (size as u64).pow(3)));
        }
    }
    if scale == 100 {
        // Rows of odd sizes do not start at multiples of the 16 bytes of vector loads.
        for (name, [m, k, n]) in [("1000x1001x1003", [1000, 1001, 1003]), ("4097", [4097; 3])] {
            let inputs = vec![(vec![m, k], DType::BF16), (vec![k, n], DType::BF16)];
            let product = function(format!("matmul_bf16_{name}"), inputs, |x| vec![x[0].matmul(&x[1])]);
            cases.push(product.flops(2 * (m * k * n) as u64));
        }
        let (m, k, n, dtype) = (65536, 768, 3072, DType::BF16);
        let inputs = vec![(vec![m, k], dtype), (vec![n, k], dtype), (vec![n], dtype)];
        let layer = |x: &[Tensor]| vec![x[0].linear(&x[1], Some(&x[2])).gelu()];
        let case = function(format!("linear_gelu_compiled_{m}x{k}x{n}"), inputs, layer);
        cases.push(case.flops(2 * (m * k * n) as u64));
        // The MLP half of a transformer block, with all gradients.
        for m in [1024, m] {
            let shapes = [vec![m, k], vec![n, k], vec![n], vec![k, n], vec![k], vec![m, k]];
            let block = |x: &[Tensor]| {
                let y = x[0].linear(&x[1], Some(&x[2])).gelu().linear(&x[3], Some(&x[4]));
                (y * &x[5]).sum(..).grad(&[&x[0], &x[1], &x[2], &x[3], &x[4]])
            };
            let inputs = shapes.map(|shape| (shape, dtype)).to_vec();
            let case = function(format!("mlp_block_fwd_bwd_compiled_{m}x{k}x{n}"), inputs, block);
            cases.push(case.flops(12 * (m * k * n) as u64));
        }
    }
}

/// The two large memory-bound parts of a GPT training step outside its layers.
fn large(cases: &mut Vec<BenchCase>) {
    let (tokens, columns, parameters) = (65536, 50304, 124_000_000);
    // Of all columns, and of those that are not padding.
    for classes in [columns, GPT2_TOKENS] {
        let loss = move |x: &[Tensor]| {
            let device = x[0].device().unwrap_or(Device::cpu());
            let targets = Tensor::arange(tokens, DType::I64, device).rem(GPT2_TOKENS as i64);
            let loss = x[0].cross_entropy_per_row(&targets, classes).mean(..);
            let gradient = loss.grad(&[&x[0]]).remove(0);
            vec![loss, gradient]
        };
        let name = format!("cross_entropy_fwd_bwd_compiled_{tokens}x{classes}_bf16");
        let case = function(name, vec![(vec![tokens, columns], DType::BF16)], loss);
        cases.push(case.bytes(4 * tokens * classes));
    }
    let work = CaseBody::Function { inputs: f32s(&[&[parameters][..]; 4]), op: Box::new(adamw), eager: false };
    cases.push(BenchCase::new("adamw_fused_124M_f32", work).bytes(28 * parameters));
}

/// An AdamW step on parameters, gradients and both moments.
fn adamw(vars: &[Var]) -> Results {
    let [p, g, m, v] = [0, 1, 2, 3].map(|n| vars[n].get());
    let bias_correction = BiasCorrection::Factors([0.5.into(), 0.3.into()]);
    let [new, m, v] = fused::adamw(&AdamWStep::new(1e-3, bias_correction), &p, &g, &m, &v);
    (vec![], vec![vars[0].set(new), vars[2].set(m), vars[3].set(v)])
}

fn f32s(shapes: &[&[usize]]) -> Vec<(Vec<usize>, DType)> {
    shapes.iter().map(|shape| (shape.to_vec(), DType::F32)).collect()
}

fn function(
    name: impl Into<String>,
    inputs: Vec<(Vec<usize>, DType)>,
    op: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static,
) -> BenchCase {
    let op = Box::new(move |vars: &[Var]| (op(&vars.iter().map(Var::get).collect::<Vec<_>>()), vec![]));
    BenchCase::new(name, CaseBody::Function { inputs, op, eager: false })
}

impl BenchCase {
    fn new(name: impl Into<String>, work: CaseBody) -> BenchCase {
        BenchCase { name: name.into(), work, bytes: None, flops: None, compute_bound: false, naive: None }
    }

    /// Minimum memory traffic.
    fn bytes(self, bytes: usize) -> BenchCase {
        BenchCase { bytes: Some(bytes), ..self }
    }

    /// Floating-point operations of a compute-bound op.
    fn flops(self, flops: u64) -> BenchCase {
        BenchCase { flops: Some(flops), compute_bound: true, ..self }
    }

    /// Floating-point operations of a memory-bound op.
    fn light_flops(self, flops: usize) -> BenchCase {
        BenchCase { flops: Some(flops as u64), ..self }
    }

    fn naive(self, naive: NaiveLoops) -> BenchCase {
        BenchCase { naive: Some(naive), ..self }
    }

    fn eager(mut self) -> BenchCase {
        if let CaseBody::Function { eager, .. } = &mut self.work {
            *eager = true;
        }
        self
    }

    pub fn measure(&self, device: Device, options: &CaseConfig) -> Result<BenchRow, Failure> {
        let config = &options.config;
        let row = match &self.work {
            CaseBody::Function { inputs, op, eager } => self.function(device, options, inputs, op, *eager)?,
            CaseBody::MlpStep { batch, hidden, by } => self.mlp_step(device, config, *batch, *hidden, *by)?,
            CaseBody::Other(measure) => {
                let (measured, note) = measure(device, config)?;
                let row = BenchRow::new(&self.name, device.to_string(), measured);
                note.map_or(row.clone(), |note| row.with_note(note))
            }
        };
        let row = self.bytes.map_or(row.clone(), |bytes| row.with_bytes(bytes as u64));
        let row = self.flops.map_or(row.clone(), |flops| row.with_flops(flops));
        match (&self.naive, options.compare) {
            (Some(naive), true) => Ok(naive.median_ms().map_or(row.clone(), |median_ms| row.with_naive(median_ms))),
            _ => Ok(row),
        }
    }

    /// Measures several input sets in one trace, so that neither launches nor caches dominate; or
    /// eagerly, one set per call.
    fn function(
        &self,
        device: Device,
        options: &CaseConfig,
        inputs: &[(Vec<usize>, DType)],
        op: &(dyn Fn(&[Var]) -> Results + Send + Sync),
        eager: bool,
    ) -> bornite::Result<BenchRow> {
        let set_bytes: usize =
            inputs.iter().map(|(shape, dtype)| shape.iter().product::<usize>() * dtype.bytes()).sum();
        let config = &options.config;
        let sets = rotations(set_bytes, cache_bytes(device)).min(if self.compute_bound { 4 } else { 64 });
        let generator = Generator::new(1);
        let operands: Vec<Vec<Var>> = (0..sets)
            .map(|_| inputs.iter().map(|(shape, dtype)| Var::new(&noise(shape, *dtype, &generator, device))).collect())
            .collect::<bornite::Result<_>>()?;
        let mut accuracy = None;
        let (measured, calls) = if eager {
            let run = |i: usize| op(&operands[i % sets]).0.iter().try_for_each(Tensor::realize);
            (measure(config, run, || device.synchronize())?, 1)
        } else {
            let run = trace(|_| {
                let (mut results, mut updates) = (vec![], vec![]);
                for set in &operands {
                    let (more, new) = op(set);
                    results.extend(more);
                    updates.extend(new);
                }
                Ok((results, updates))
            });
            if options.compare {
                accuracy = accuracy::of(self.flops, &operands[0], op, || run.call(&[]), options.threshold)?;
            }
            (measure(config, |_| run.call(&[]).map(drop), || device.synchronize())?, sets)
        };
        let mut measured = measured;
        for time in [&mut measured.median_ms, &mut measured.min_ms, &mut measured.max_ms] {
            *time /= calls as f64;
        }
        measured.inner *= calls;
        Ok(BenchRow { accuracy, ..BenchRow::new(&self.name, device.to_string(), measured) })
    }

    fn mlp_step(
        &self,
        device: Device,
        config: &Config,
        batch: usize,
        hidden: usize,
        by: StepBy,
    ) -> Result<BenchRow, Failure> {
        let widths = [2, hidden, hidden, 3];
        let generator = Generator::new(1);
        let inputs = noise(&[batch, 2], DType::F32, &generator, device);
        inputs.realize()?;
        let classes: Vec<f32> = (0..batch * 3).map(|n| (n / 3 % 3 == n % 3) as u8 as f32).collect();
        let batch_tensors = [inputs, Tensor::from_slice(&classes, &[batch, 3], device)];
        let measured = match by {
            StepBy::Trace => {
                let mut vars = vec![];
                for pair in widths.windows(2) {
                    let weights = noise(&[pair[0], pair[1]], DType::F32, &generator, device) / (pair[0] as f64).sqrt();
                    vars.push(Var::new(&weights)?);
                    vars.push(Var::new(&Tensor::zeros(&[pair[1]], DType::F32, device))?);
                }
                let step = trace(|x| Ok(descend(&vars, &x[0], &x[1])));
                measure(config, |_| step.call(&batch_tensors).map(drop), || device.synchronize())?
            }
            StepBy::Sgd | StepBy::AdamW => {
                let params = Params::new(device, 1);
                let mut net = Sequential::new();
                for (n, pair) in widths.windows(2).enumerate() {
                    net = net.add(Linear::new(&params.at("layer").at(n), pair[0], pair[1]));
                    if n < 2 {
                        net = net.add(Tanh);
                    }
                }
                let loss = |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]);
                let step = match by {
                    StepBy::AdamW => AdamW::new(&params).compile(loss),
                    _ => Sgd::new(&params).lr(0.1).compile(loss),
                };
                let run = |_| step.call(&batch_tensors).map(drop);
                measure(config, run, || Ok::<(), bornite_nn::Error>(device.synchronize()?))?
            }
        };
        // Forward, and twice that for the gradients of inputs and weights, except the first layer's input.
        let layers: usize = widths.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let flops = 2 * batch * (3 * layers - widths[0] * widths[1]);
        Ok(BenchRow::new(&self.name, device.to_string(), measured).with_flops(flops as u64))
    }
}

/// One gradient-descent step of an MLP with cross-entropy loss.
fn descend(vars: &[Var], x: &Tensor, y: &Tensor) -> Results {
    let params: Vec<Tensor> = vars.iter().map(Var::get).collect();
    let mut h = x.clone();
    for (n, layer) in params.chunks(2).enumerate() {
        h = h.matmul(&layer[0]) + &layer[1];
        if n < 2 {
            h = h.tanh();
        }
    }
    let loss = h.cross_entropy(y);
    let grads = loss.grad(&params.iter().collect::<Vec<_>>());
    let updates = vars.iter().zip(&params).zip(grads).map(|((v, p), g)| v.set(p - g * 0.1)).collect();
    (vec![loss], updates)
}

/// Deterministic normal numbers; zeros could run faster than real data.
fn noise(shape: &[usize], dtype: DType, generator: &Generator, device: Device) -> Tensor {
    Tensor::randn(shape, DType::F32, generator, device).cast(dtype)
}

/// Size of the last-level cache, which rotated inputs must exceed.
pub fn cache_bytes(device: Device) -> usize {
    const TYPICAL: usize = 32 << 20;
    if let Some(ordinal) = device.cuda_ordinal() {
        return bornite_cuda::DeviceInfo::query(ordinal).map_or(TYPICAL, |info| info.l2_bytes as usize);
    }
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").unwrap_or_default();
    text.trim().strip_suffix('K').and_then(|kib| kib.parse::<usize>().ok()).map_or(TYPICAL, |kib| kib << 10)
}
