//! Collectives on any transport, against sums computed by one process.

use bornite_collective::{Communicator, Error};

/// Lengths of the values: none, fewer than ranks, odd, several messages per rank.
const LENGTHS: [usize; 7] = [0, 1, 3, 5, 64, 1000, 4099];
/// Short messages, so that lengths above take several rounds.
pub const MESSAGE_ELEMENTS: usize = 100;

/// Values of a rank: of many magnitudes, so that the order of a sum shows, with extreme ones.
fn values(rank: usize, len: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ ((rank as u64) << 32 | len as u64);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let extreme = [f32::MAX, f32::MIN_POSITIVE / 2.0, f32::INFINITY, -0.0, f32::EPSILON];
    (0..len)
        .map(|_| match next() {
            n if n % 50 < 5 => extreme[(n % 50) as usize],
            n => (n as f32 / 1e9 - 1.0) * 10f32.powi((next() % 12) as i32 - 6),
        })
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Calls every collective and compares the results.
pub fn check_all(comm: &Communicator) -> Result<(), String> {
    let (rank, size) = (comm.rank(), comm.size());
    let text = |error: Error| error.to_string();
    for len in LENGTHS {
        let all: Vec<Vec<f32>> = (0..size).map(|rank| values(rank, len)).collect();
        let sum = |n: usize| (1..size).fold(all[0][n], |sum, rank| sum + all[rank][n]);
        let expected: Vec<f32> = (0..len).map(sum).collect();
        let mut reduced = values(rank, len);
        comm.all_reduce(&mut reduced).map_err(text)?;
        if bits(&reduced) != bits(&expected) {
            return Err(format!("rank {rank}: all_reduce of {len} values differs"));
        }
        let (mut scattered, part) = (values(rank, len), comm.part_of(rank, len));
        comm.reduce_scatter(&mut scattered).map_err(text)?;
        let mut partly = values(rank, len);
        partly[part.clone()].copy_from_slice(&expected[part]);
        if bits(&scattered) != bits(&partly) {
            return Err(format!("rank {rank}: reduce_scatter of {len} values differs"));
        }
        comm.all_gather(&mut scattered).map_err(text)?;
        if bits(&scattered) != bits(&expected) {
            return Err(format!("rank {rank}: all_gather of {len} values differs"));
        }
        for root in 0..size {
            let mut sent = values(rank, len);
            comm.broadcast(&mut sent, root).map_err(text)?;
            if bits(&sent) != bits(&values(root, len)) {
                return Err(format!("rank {rank}: broadcast of {len} values from rank {root} differs"));
            }
        }
        comm.barrier().map_err(text)?;
    }
    comm.broadcast(&mut [0.0f32], size).err().map(|_| ()).ok_or_else(|| "broadcast from no rank".into())
}

/// Runs a function on threads, one per communicator.
pub fn on_threads<R: Send>(comms: Vec<Communicator>, work: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}
