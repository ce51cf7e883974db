//! Training steps of small GPTs on the CPU compared with PyTorch, alternating: forward, backward,
//! clipping and AdamW in f32. The ratio is their time divided by ours.
//!
//! ```sh
//! cargo bench -p bornite-nn --bench steps                                    # ours alone
//! cargo bench -p bornite-nn --bench steps -- --torch target/torch [--threads 2] [--filter 1.9M]
//! ```

#[allow(dead_code)] // what only benches of tensors need
#[path = "../../tensor/benches/cpu/peer.rs"]
mod peer;

use bornite::{Device, Tensor};
use bornite_bench::Machine;
use bornite_nn::Params;
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::AdamW;
use bornite_nn::train::flops_per_token;
use peer::{Op, Peer, Rows};

const VOCABULARY: usize = 257;
const CONTEXT: usize = 128;

/// Names as in `peers/torch_cpu.py`; layers, heads, width; sequences per batch, tokens per
/// sequence.
const ROWS: [(&str, [usize; 3], [usize; 2]); 4] = [
    ("gpt_step_1.0M_8x128", [5, 4, 128], [8, 128]),
    ("gpt_step_1.9M_8x128", [4, 4, 192], [8, 128]),
    ("gpt_step_2.7M_8x128", [6, 4, 192], [8, 128]),
    ("gpt_step_2.7M_2x64", [6, 4, 192], [2, 64]),
];

fn step(config: &GptConfig, [batch, tokens]: [usize; 2]) -> bornite_nn::Result<Op<'static>> {
    let params = Params::new(Device::cpu(), 1);
    let gpt = Gpt::new(&params, config.clone())?;
    let adam = AdamW::new(&params).lr(1e-4).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0);
    let step = adam.compile(move |b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    let random = |n: usize| (n * 7919 % 104_729 % VOCABULARY) as i32;
    let row: Vec<i32> = (0..=batch * tokens).map(random).collect();
    let batch = [0, 1].map(|n| Tensor::from_slice(&row[n..n + batch * tokens], &[batch, tokens], Device::cpu()));
    Ok(Box::new(move || {
        let result = step.call(&batch).and_then(|pending| pending.wait());
        assert!(result.expect("a step").finite);
    }))
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let threads = value("--threads").and_then(|n| n.parse().ok()).unwrap_or(2);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{threads} threads on {:?}, load {}", Machine::detect(vec![]).cpu, load.trim());
    bornite_codegen::cpu::set_num_threads(threads);
    let peer = value("--torch").map(|torch| Peer::start(torch, threads)).transpose()?;
    let mut rows = Rows { peer, filter: value("--filter").map_or("", String::as_str) };
    for (name, [layers, heads, width], shape) in ROWS {
        let config = GptConfig::gpt2(VOCABULARY, CONTEXT, layers, heads, width);
        let flops = flops_per_token(&config, shape[1]) * (shape[0] * shape[1]) as f64;
        rows.run(name, "GFLOP/s", flops, &mut || step(&config, shape).expect("a model"))?;
    }
    Ok(())
}
