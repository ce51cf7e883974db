//! Gradients are exchanged while the backward pass computes others: steps of two ranks that are
//! connected by a simulated link.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use bornite_collective::{Communicator, SimulatedLink, thread_ranks};
use bornite_nn::{prelude::*, train::DataParallel};

const LAYERS: usize = 12;
const WIDTH: usize = 256;
const ROWS: usize = 256;
/// Elements of one layer, and of all.
const LAYER: usize = WIDTH * WIDTH;
const ELEMENTS: usize = LAYERS * LAYER;
const STEPS: usize = 8;

/// Fastest step of two ranks, and the weights that they arrive at.
fn train(bytes_per_second: f64, bucket_elements: usize) -> Result<(Duration, Vec<f32>)> {
    let train = |transport, device: Device| -> Result<(Duration, Vec<f32>)> {
        let link = SimulatedLink::new(transport, Duration::ZERO, bytes_per_second);
        let ranks = DataParallel::new(Communicator::new(link))?.bucket_elements(bucket_elements);
        let params = Params::new(device, 0);
        let layer = |n: usize| Linear::new(&params.at(format!("layer{n}")), WIDTH, WIDTH).bias(false);
        let layers: Vec<Linear> = (0..LAYERS).map(layer).collect();
        let forward = |x: &Tensor| layers.iter().fold(x.clone(), |x, layer| layer.forward(&x).relu());
        let sgd = Sgd::new(&params).lr(1e-3).data_parallel(&ranks);
        let step = sgd.compile(|b: &[Tensor]| forward(&b[0]).mse(&b[1]));
        let own = Tensor::full(0.5 + ranks.rank() as f64, &[ROWS, WIDTH], DType::F32, device);
        let mut fastest = Duration::MAX;
        for n in 0..STEPS {
            let started = Instant::now();
            step.call(&[own.clone(), own.clone()])?.wait()?;
            // The first steps compile, and agree on the order of buckets.
            if n > 1 {
                fastest = fastest.min(started.elapsed());
            }
        }
        Ok((fastest, params.get("layer0.weight")?.to_vec()?))
    };
    let devices = [Device::cpu(), "cpu:1".parse()?];
    let ranks: Vec<_> = std::thread::scope(|scope| {
        let start = |(transport, device)| scope.spawn(move || train(transport, device));
        let threads: Vec<_> = thread_ranks(2).into_iter().zip(devices).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<_>>()
    })?;
    assert_eq!(ranks[0].1, ranks[1].1);
    Ok((ranks[0].0.max(ranks[1].0), ranks[0].1.clone()))
}

#[test]
fn communication_overlaps_the_backward_pass() -> Result<()> {
    let mut found = String::new();
    // Other programs may slow a round down.
    for _ in 0..6 {
        let (compute, weights) = train(f64::INFINITY, usize::MAX)?;
        // Each rank sends half of the values twice. The exchange takes half as long as computing.
        let communication = compute / 2;
        let bytes_per_second = (4 * ELEMENTS) as f64 / communication.as_secs_f64();
        let bucket = communication / LAYERS as u32;
        let (overlapped, overlapped_weights) = train(bytes_per_second, LAYER)?;
        let (serial, serial_weights) = train(bytes_per_second, usize::MAX)?;
        assert!(weights == overlapped_weights && weights == serial_weights, "bits depend on the buckets");
        found = format!(
            "compute {compute:?}, communication {communication:?}, one bucket {bucket:?}: step {overlapped:?}, without \
             overlap {serial:?}"
        );
        let limit = compute.max(communication).mul_f64(1.1) + bucket;
        if overlapped <= limit && serial >= compute + communication.mul_f64(0.8) {
            println!("{found}");
            return Ok(());
        }
    }
    panic!("{found}")
}
