//! Collectives over threads and over MPI, against sums computed by one process; faults, killed and
//! stopped ranks. The ranks of an MPI job are this binary, started by `mpiexec` with a role.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bornite_collective::{
    CollectiveFault, Communicator, Error, FailureKind, FaultyTransport, LauncherRank, Mpi, thread_ranks,
};
use libtest_mimic::{Arguments, Failed, Trial};

/// Lengths of the values: none, fewer than ranks, odd, several messages per rank.
const LENGTHS: [usize; 7] = [0, 1, 3, 5, 64, 1000, 4099];
/// Short messages, so that lengths above take several rounds.
const MESSAGE_ELEMENTS: usize = 100;

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
fn check_all(comm: &Communicator) -> Result<(), String> {
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
fn on_threads<R: Send>(comms: Vec<Communicator>, work: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

fn threads_match_one_process() -> Result<(), Failed> {
    check_all(&Communicator::single())?;
    for size in [1, 2, 3, 4] {
        let comms = thread_ranks(size).into_iter();
        let comms = comms.map(|rank| Communicator::new(rank).max_message_elements(MESSAGE_ELEMENTS)).collect();
        on_threads(comms, check_all).into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    Ok(())
}

/// A fault at any exchange is an error of every rank, within the timeout.
fn faults_are_errors_of_every_rank() -> Result<(), Failed> {
    let timeout = Duration::from_millis(200);
    // Exchanges: all_reduce 2, broadcast 1, barrier 1. A rank that has received all messages of an
    // exchange before another one fails learns of it in the next, here a second barrier.
    let work = |comm: &Communicator| -> Result<(), Error> {
        comm.set_timeout(timeout);
        comm.all_reduce(&mut [1.0f32; 10])?;
        comm.broadcast(&mut [1.0f64], 0)?;
        comm.barrier()?;
        comm.barrier()
    };
    for fault in [CollectiveFault::Error, CollectiveFault::Delay(3 * timeout), CollectiveFault::WrongLength] {
        for (at, faulty) in (0..4).flat_map(|at| [(at, 0), (at, 2)]) {
            // Only the sender of a broadcast can delay or shorten it.
            if at == 2 && faulty != 0 && fault != CollectiveFault::Error {
                continue;
            }
            let of_rank = |(rank, transport)| match rank == faulty {
                true => Communicator::new(FaultyTransport::new(transport, at, fault)),
                false => Communicator::new(transport),
            };
            let started = Instant::now();
            let results = on_threads(thread_ranks(3).into_iter().enumerate().map(of_rank).collect(), work);
            let failed = results.iter().filter(|result| result.is_err()).count();
            if failed != 3 || started.elapsed() > 20 * timeout {
                return Err(
                    format!("{fault:?} at {at} of rank {faulty}: {results:?} in {:?}", started.elapsed()).into()
                );
            }
        }
    }
    Ok(())
}

/// Job of one rank, chosen by the first argument. Ends the process.
fn rank_main(role: &str) -> ! {
    let launched = LauncherRank::from_environment().and_then(|launcher| {
        let launcher = launcher.ok_or(Error::Argument("no launcher".into()))?;
        Ok(Communicator::new(Mpi::init(&launcher)?).max_message_elements(MESSAGE_ELEMENTS))
    });
    let result = launched.map_err(|error| error.to_string()).and_then(|comm| {
        // Ranks of healthy jobs may be slow on a busy machine.
        comm.set_timeout(Duration::from_secs(if role == "healthy" { 60 } else { 5 }));
        let outcome = check_all(&comm).and_then(|()| {
            let is_victim = comm.rank() == 1;
            match role {
                "crashed" if is_victim => std::process::abort(),
                "hung" if is_victim => std::thread::sleep(Duration::from_secs(120)),
                "failing" if is_victim => comm.abort(FailureKind::Error, "the disk is full"),
                _ => {}
            }
            comm.barrier().map_err(|error| error.to_string())
        });
        if let Err(message) = &outcome {
            println!("rank {} says: {message}", comm.rank());
            // So that every rank can print before the job ends.
            std::thread::sleep(Duration::from_millis(300));
            comm.terminate(1);
        }
        outcome
    });
    match result {
        Ok(()) => println!("rank done"),
        Err(message) => println!("rank says: {message}"),
    }
    std::process::exit(0)
}

/// Runs this binary as an MPI job.
fn mpi_job(mpi: &Path, libraries: &Path, ranks: usize, role: &str) -> Result<(Output, Duration), Failed> {
    let started = Instant::now();
    let output = Command::new(mpi.join("bin/mpiexec"))
        .args(["-n", &ranks.to_string()])
        .args(if mpi.join("lib/libmpi.so.40").exists() { &["--oversubscribe"][..] } else { &[] })
        .arg(std::env::current_exe()?)
        .args(["rank", role])
        .env("BORNITE_LIBRARY_PATH", libraries)
        .env("OPAL_PREFIX", mpi)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null())
        .output()?;
    Ok((output, started.elapsed()))
}

/// Every collective on several ranks, then ranks that die, hang and fail.
fn mpi_matches_one_process(mpi: &Path) -> Result<(), Failed> {
    let text = |output: &Output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    for ranks in [1, 2, 4] {
        let (output, _) = mpi_job(mpi, &mpi.join("lib"), ranks, "healthy")?;
        if !output.status.success() || text(&output).matches("rank done").count() != ranks {
            return Err(format!("{ranks} ranks: {}", text(&output)).into());
        }
    }
    // MPICH has the ABI of MPI 5 as well; it is used if the folder has no other library.
    let abi = mpi.join("lib/libmpi_abi.so.1");
    if abi.exists() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi5");
        std::fs::create_dir_all(&folder)?;
        // Its own libraries are searched beside it.
        for name in ["libmpi_abi.so.1", "mpich"] {
            let _ = std::fs::remove_file(folder.join(name));
            std::os::unix::fs::symlink(mpi.join("lib").canonicalize()?.join(name), folder.join(name))?;
        }
        let (output, _) = mpi_job(mpi, &folder, 2, "healthy")?;
        if !output.status.success() || text(&output).matches("rank done").count() != 2 {
            return Err(format!("the ABI of MPI 5: {}", text(&output)).into());
        }
    }
    for (role, expected) in
        [("hung", "for rank 1, which"), ("failing", "rank 1 failed: the disk is full"), ("crashed", "")]
    {
        let (output, took) = mpi_job(mpi, &mpi.join("lib"), 3, role)?;
        if output.status.success() || !text(&output).contains(expected) || took > Duration::from_secs(30) {
            return Err(format!("{role}: {} after {took:?}: {}", output.status, text(&output)).into());
        }
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, role] = &arguments[..]
        && first == "rank"
    {
        rank_main(role);
    }
    let mut trials = vec![
        Trial::test("threads_match_one_process", threads_match_one_process),
        Trial::test("faults_are_errors_of_every_rank", faults_are_errors_of_every_rank),
    ];
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    for name in ["mpich-5.0.2", "openmpi-5.0.11"] {
        let mpi = target.join(name);
        let is_there = mpi.join("bin/mpiexec").is_file();
        let trial = Trial::test(format!("{name} (scripts/test fetches it)"), move || mpi_matches_one_process(&mpi));
        trials.push(trial.with_ignored_flag(!is_there));
    }
    // One at a time: jobs of several ranks use all cores.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}
