//! The benchmark suite: elementwise addition, matrix product, a perceptron's training step.
//!
//! Each row is measured inside a trace, as training runs; `…_eager_…` rows call operation by operation. Names are those
//! of `peers/torch_ops.py`, so that ratios can be taken (of eager rows with the peer's `eager_ms`).

use bornite::{Device, Tensor, Update, Var, trace};
use bornite_bench::{Config, Row, measure, rotations};

/// A row to be measured.
pub struct Case {
    pub name: String,
    work: Work,
}

enum Work {
    Add { elements: usize, eager: bool },
    Matmul { size: usize },
    MlpStep { batch: usize, hidden: usize },
}

/// The rows of the suite whose name contains `filter`, sized for the device.
pub fn cases(device: Device, quick: bool, filter: &str) -> Vec<Case> {
    let gpu = matches!(device, Device::Cuda(_));
    let largest = match (gpu, quick) {
        (true, false) => 100_000_000,
        (false, false) | (true, true) => 10_000_000,
        (false, true) => 1_000_000,
    };
    let largest_product = match (gpu, quick) {
        (true, false) => 8192,
        (true, true) => 2048,
        (false, false) => 1024,
        (false, true) => 256,
    };
    let mut cases = vec![];
    for eager in [false, true] {
        let mut elements = 1000;
        while elements <= largest {
            let name = format!("add_{}f32_{elements}", if eager { "eager_" } else { "" });
            cases.push(Case { name, work: Work::Add { elements, eager } });
            elements *= 10;
        }
    }
    let mut size = 128;
    while size <= largest_product {
        cases.push(Case { name: format!("matmul_f32_{size}"), work: Work::Matmul { size } });
        size *= 2;
    }
    for (batch, hidden) in [(96, 32), (1024, 256)] {
        if gpu || !quick || batch == 96 {
            let name = format!("mlp_step_f32_{batch}x{hidden}");
            cases.push(Case { name, work: Work::MlpStep { batch, hidden } });
        }
    }
    cases.retain(|case| case.name.contains(filter));
    cases
}

impl Case {
    pub fn measure(&self, device: Device, config: &Config) -> bornite::Result<Row> {
        match self.work {
            Work::Add { elements, eager } => {
                let bytes = 12 * elements;
                let sets = rotations(bytes, cache_bytes(device));
                let row = if eager {
                    self.eager(device, config, &[elements], sets, |a, b| a + b)?
                } else {
                    self.traced(device, config, &[elements], sets, |a, b| a + b)?
                };
                Ok(row.with_bytes(bytes as u64))
            }
            Work::Matmul { size } => {
                let sets = rotations(12 * size * size, cache_bytes(device)).min(4);
                let row = self.traced(device, config, &[size, size], sets, Tensor::matmul)?;
                Ok(row.with_flops(2 * (size as u64).pow(3)))
            }
            Work::MlpStep { batch, hidden } => self.mlp_step(device, config, batch, hidden),
        }
    }

    /// `op` over several sets of operands in one trace, so that neither launches nor the cache are what is measured.
    fn traced(
        &self,
        device: Device,
        config: &Config,
        shape: &[usize],
        sets: usize,
        op: fn(&Tensor, &Tensor) -> Tensor,
    ) -> bornite::Result<Row> {
        let operands: Vec<(Var, Var)> = (0..sets)
            .map(|n| Ok((Var::new(&noise(shape, 2 * n, device))?, Var::new(&noise(shape, 2 * n + 1, device))?)))
            .collect::<bornite::Result<_>>()?;
        let run = trace(|_| Ok((operands.iter().map(|(a, b)| op(&a.get(), &b.get())).collect(), vec![])));
        let mut measured = measure(config, |_| run.call(&[]).map(drop), || device.synchronize())?;
        for time in [&mut measured.median_ms, &mut measured.min_ms, &mut measured.max_ms] {
            *time /= sets as f64;
        }
        measured.inner *= sets;
        Ok(Row::new(&self.name, device.to_string(), measured))
    }

    fn eager(
        &self,
        device: Device,
        config: &Config,
        shape: &[usize],
        sets: usize,
        op: fn(&Tensor, &Tensor) -> Tensor,
    ) -> bornite::Result<Row> {
        let operands: Vec<(Tensor, Tensor)> =
            (0..sets).map(|n| (noise(shape, 2 * n, device), noise(shape, 2 * n + 1, device))).collect();
        let measured = measure(
            config,
            |i| {
                let (a, b) = &operands[i % sets];
                op(a, b).realize()
            },
            || device.synchronize(),
        )?;
        Ok(Row::new(&self.name, device.to_string(), measured))
    }

    fn mlp_step(&self, device: Device, config: &Config, batch: usize, hidden: usize) -> bornite::Result<Row> {
        let widths = [2, hidden, hidden, 3];
        let mut vars = vec![];
        for (n, pair) in widths.windows(2).enumerate() {
            vars.push(Var::new(&(noise(&[pair[0], pair[1]], n, device) / (pair[0] as f64).sqrt()))?);
            vars.push(Var::new(&Tensor::zeros(&[pair[1]], bornite::DType::F32, device))?);
        }
        let inputs = noise(&[batch, 2], 100, device);
        let classes: Vec<f32> = (0..batch * 3).map(|n| (n / 3 % 3 == n % 3) as u8 as f32).collect();
        let targets = Tensor::from_slice(&classes, &[batch, 3], device);
        let step = trace(|x| Ok(descend(&vars, &x[0], &x[1])));
        let run = |_| step.call(&[inputs.clone(), targets.clone()]).map(drop);
        let measured = measure(config, run, || device.synchronize())?;
        // Forward, and twice that for the gradients by inputs and by weights (but for the first layer's input).
        let layers: usize = widths.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let flops = 2 * batch * (3 * layers - widths[0] * widths[1]);
        Ok(Row::new(&self.name, device.to_string(), measured).with_flops(flops as u64))
    }
}

/// One step of gradient descent on a perceptron's cross-entropy.
fn descend(vars: &[Var], x: &Tensor, y: &Tensor) -> (Vec<Tensor>, Vec<Update>) {
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

/// Repeatable values in [-1, 1). Never zeros: they can run faster than real data.
fn noise(shape: &[usize], seed: usize, device: Device) -> Tensor {
    let mut state = seed as u64 + 1;
    let data: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_slice(&data, shape, device)
}

/// The cache that a repeated run must not fit in.
pub fn cache_bytes(device: Device) -> usize {
    const COMMON: usize = 32 << 20;
    match device {
        Device::Cuda(n) => bornite_cuda::DeviceInfo::of(n).map_or(COMMON, |info| info.l2_bytes as usize),
        _ => {
            let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").unwrap_or_default();
            text.trim().strip_suffix('K').and_then(|kib| kib.parse::<usize>().ok()).map_or(COMMON, |kib| kib << 10)
        }
    }
}
