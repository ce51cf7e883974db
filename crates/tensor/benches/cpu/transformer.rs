//! A training step of a small GPT compared with PyTorch: forward, loss, backward and AdamW as one
//! trace over the public API. Both start from the same weights, and the first losses must agree.

use bornite::{
    Device, Result, Tensor, Var,
    fused::{AdamWStep, adamw},
    profile, trace,
    trace::Trace,
    var::Update,
};

use crate::peer::{Op, Rows};

const WIDTH: usize = 256;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const BATCH: usize = 8;
const CONTEXT: usize = 128;

/// Numbers between -1 and 1 that `peers/torch_cpu.py` generates, too.
fn hashed(count: usize, salt: u64) -> impl Iterator<Item = f64> {
    (0..count as u64).map(move |n| {
        let mixed = (n + 1 + (salt << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 40) as f64 / 8_388_608.0 - 1.0
    })
}

/// The shapes of all parameters in order. One axis and even number: a scale, which starts at 1.
fn shapes(vocabulary: usize) -> Vec<Vec<usize>> {
    let block = [
        vec![WIDTH],
        vec![WIDTH],
        vec![WIDTH, 3 * WIDTH],
        vec![3 * WIDTH],
        vec![WIDTH, WIDTH],
        vec![WIDTH],
        vec![WIDTH],
        vec![WIDTH],
        vec![WIDTH, 4 * WIDTH],
        vec![4 * WIDTH],
        vec![4 * WIDTH, WIDTH],
        vec![WIDTH],
    ];
    let ends = [vec![WIDTH], vec![WIDTH], vec![WIDTH, vocabulary]];
    let starts = [vec![vocabulary, WIDTH], vec![CONTEXT, WIDTH]];
    starts.into_iter().chain((0..LAYERS).flat_map(|_| block.clone())).chain(ends).collect()
}

fn attention(x: &Tensor, [qkv, qkv_bias, out, out_bias]: [&Tensor; 4]) -> Tensor {
    let heads = |n: usize, all: &Tensor| {
        let part = all.slice(-1, (n * WIDTH) as isize..((n + 1) * WIDTH) as isize);
        part.reshape(&[BATCH, CONTEXT, HEADS, WIDTH / HEADS]).permute(&[0, 2, 1, 3])
    };
    let all = x.matmul(qkv) + qkv_bias;
    let [q, k, v] = [0, 1, 2].map(|n| heads(n, &all));
    let seen = Tensor::attention(&q, &k, &v, None, true, None);
    seen.permute(&[0, 2, 1, 3]).reshape(&[BATCH * CONTEXT, WIDTH]).matmul(out) + out_bias
}

fn loss(p: &[Tensor], tokens: &Tensor, targets: &Tensor) -> Tensor {
    let mut x = p[0].embedding(tokens) + p[1].unsqueeze(0);
    x = x.reshape(&[BATCH * CONTEXT, WIDTH]);
    for block in p[2..2 + 12 * LAYERS].chunks(12) {
        let normed = x.layer_norm(&block[0], &block[1], 1e-5);
        x = &x + attention(&normed, [&block[2], &block[3], &block[4], &block[5]]);
        let normed = x.layer_norm(&block[6], &block[7], 1e-5);
        x = &x + (normed.matmul(&block[8]) + &block[9]).gelu().matmul(&block[10]) + &block[11];
    }
    let [scale, shift, head] = &p[2 + 12 * LAYERS..] else { return x };
    x.layer_norm(scale, shift, 1e-5).matmul(head).cross_entropy(targets)
}

/// The training step of a model, with its inputs.
fn model(vocabulary: usize) -> Result<(Trace<'static>, [Tensor; 2])> {
    let device = Device::cpu();
    let mut variables = vec![];
    for (n, shape) in shapes(vocabulary).iter().enumerate() {
        let (count, scale) = (shape.iter().product(), shape.len() == 1 && n % 2 == 0);
        let start = if scale { 1.0 } else { 0.0 };
        let values: Vec<f32> = hashed(count, n as u64).map(|x| (start + 0.05 * x) as f32).collect();
        let zeros = Tensor::zeros(shape, bornite::DType::F32, device);
        variables.push([Var::new(&Tensor::from_slice(&values, shape, device))?, Var::new(&zeros)?, Var::new(&zeros)?]);
    }
    let count = Var::new(&Tensor::zeros(&[], bornite::DType::F32, device))?;
    let step = trace(move |x| {
        let parameters: Vec<Tensor> = variables.iter().map(|[p, ..]| p.get()).collect();
        let loss = loss(&parameters, &x[0], &x[1]);
        let gradients = loss.grad(&parameters.iter().collect::<Vec<_>>());
        let t = count.get() + 1.0;
        let step = AdamWStep::new(1e-3, &t);
        let mut updates: Vec<Update> = vec![];
        for ([p, m, v], g) in variables.iter().zip(gradients) {
            let [new, first, second] = adamw(&step, &p.get(), &g, &m.get(), &v.get());
            updates.extend([p.set(new), m.set(first), v.set(second)]);
        }
        updates.push(count.set(t));
        Ok((vec![loss], updates))
    });
    let index = |salt| {
        let classes = hashed(BATCH * CONTEXT, salt).map(|x| ((x + 1.0) / 2.0 * vocabulary as f64) as i64);
        classes.map(|class| class.min(vocabulary as i64 - 1)).collect::<Vec<_>>()
    };
    let tokens = Tensor::from_slice(&index(1000), &[BATCH, CONTEXT], device);
    let targets = Tensor::from_slice(&index(1001), &[BATCH * CONTEXT], device);
    Ok((step, [tokens, targets]))
}

pub fn rows(all: &mut Rows<'_>) -> std::io::Result<()> {
    for vocabulary in [1024, 8192] {
        let name = format!("transformer_step_v{vocabulary}");
        if !name.contains(all.filter) {
            continue;
        }
        let (step, data) = model(vocabulary).map_err(std::io::Error::other)?;
        let run = move || step.call(&data)?[0].item();
        let losses = (0..3).map(|_| run()).collect::<Result<Vec<f64>>>().map_err(std::io::Error::other)?;
        if let Some(peer) = &mut all.peer {
            for (n, ours) in losses.iter().enumerate() {
                let theirs = peer.sample(&format!("{name}_loss"), n)?.unwrap_or(f64::NAN);
                println!("loss {n}: {ours:.6}, PyTorch {theirs:.6}");
                assert!((ours - theirs).abs() < 1e-4, "losses differ");
            }
        }
        if std::env::var_os("BENCH_PROFILE").is_some() {
            let scope = profile::scope();
            (0..10).for_each(|_| drop(run()));
            println!("{}", scope.report().top(40));
        }
        let linear = (12 * WIDTH * WIDTH * LAYERS + WIDTH * vocabulary) * BATCH * CONTEXT;
        let mixed = 2 * LAYERS * BATCH * CONTEXT * CONTEXT * WIDTH;
        let mut run = Some(run);
        all.run(&name, "GFLOP/s", 6.0 * (linear + mixed) as f64, &mut || -> Op<'static> {
            let run = run.take();
            Box::new(move || _ = run.as_ref().map(|run| run().expect("a step")))
        })?;
    }
    Ok(())
}
