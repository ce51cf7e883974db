//! Time of all-reduce between ranks of one machine: threads, and TCP over the loopback interface.
//! `cargo bench -p bornite-collective`
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use bornite_collective::{Communicator, TcpJob, TcpRanks, Transport, thread_ranks};

const SAMPLES: usize = 9;

fn tcp_ranks(size: usize) -> Vec<TcpRanks> {
    let rendezvous = std::env::temp_dir().join(format!("bornite-all-reduce-{}", std::process::id()));
    let job =
        |rank| TcpJob { rank, size, host: "127.0.0.1".into(), id: "bench".into(), rendezvous: rendezvous.clone() };
    std::thread::scope(|scope| {
        let connect = |rank| {
            let job = job(rank);
            scope.spawn(move || TcpRanks::connect(&job, Duration::from_secs(30)).expect("loopback connections"))
        };
        let threads: Vec<_> = (0..size).map(connect).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Median time of an all-reduce of f32 elements.
fn time(ranks: Vec<impl Transport + 'static>, elements: usize) -> Duration {
    let ranks: Vec<Communicator> = ranks.into_iter().map(Communicator::new).collect();
    let work = |comm: &Communicator| {
        let mut values = vec![1.0f32; elements];
        let mut times: Vec<Duration> = (0..SAMPLES)
            .map(|_| {
                comm.barrier().expect("healthy ranks");
                let started = Instant::now();
                comm.all_reduce(&mut values).expect("healthy ranks");
                started.elapsed()
            })
            .collect();
        times.sort();
        times[SAMPLES / 2]
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    })
}

fn main() {
    println!("| ranks | elements | threads | TCP | GB/s sent per rank, threads / TCP |");
    println!("|---|---|---|---|---|");
    for size in [2, 4] {
        for elements in [1 << 8, 1 << 16, 1 << 22, 1 << 26] {
            let (threads, tcp) = (time(thread_ranks(size), elements), time(tcp_ranks(size), elements));
            let sent = 4.0 * elements as f64 * 2.0 * (size - 1) as f64 / size as f64;
            let rate = |time: Duration| sent / time.as_secs_f64() / 1e9;
            println!("| {size} | {elements} | {threads:.1?} | {tcp:.1?} | {:.2} / {:.2} |", rate(threads), rate(tcp));
        }
    }
}
