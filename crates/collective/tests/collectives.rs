//! Collectives over threads and over MPI, against sums computed by one process; faults, killed and
//! stopped ranks. The ranks of an MPI job are this binary, started by `mpiexec` with a role.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bornite_collective::{
    CollectiveFault, Communicator, Error, FailureKind, FaultyTransport, LauncherRank, Mpi, thread_ranks,
};
use libtest_mimic::{Arguments, Failed, Trial};

mod checks;

use checks::{MESSAGE_ELEMENTS, check_all, on_threads};

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
