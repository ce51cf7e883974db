//! `bornite train` on several ranks: processes that `mpiexec` starts, and threads. Their losses are
//! those of one process; killed jobs continue as if they had never stopped.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use suite::Outcome;

/// Longest time of a job on a busy machine; the timeout of ranks is shorter.
const LIMIT: Duration = Duration::from_secs(60);
const STEPS: u64 = 12;

/// An MPI installation that `scripts/test` fetches.
fn mpi(name: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
    match folder.join("bin/mpiexec").is_file() {
        true => folder.canonicalize().map_err(|error| error.to_string()),
        false => Err(format!("{name} is not there; scripts/test fetches it")),
    }
}

/// Arguments of the command of each rank.
fn arguments(more: &[&str]) -> Vec<String> {
    let steps = format!("train.steps={STEPS}");
    let settings = [
        &steps,
        "model.layers=2",
        "model.width=32",
        "model.heads=2",
        "model.context=32",
        "model.dropout=0.1",
        "train.accumulate=4",
        "train.eval_every=5",
        "train.save_every=3",
        "train.rank_timeout=20",
        "schedule.decay=constant",
        "schedule.warmup=2",
    ];
    let all = ["train", "--data", "corpus.txt", "--out", "run", "--batch", "4"].into_iter();
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    all.chain(settings).chain(more.iter().copied()).map(String::from).collect()
}

struct Job {
    folder: PathBuf,
    mpi: Option<PathBuf>,
    ranks: usize,
}

impl Job {
    fn new(name: &str, mpi: Option<&Path>, ranks: usize) -> Job {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ranks-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let lines = (0..400).map(|n| format!("the {} of number {}.\n", ["ore", "vein", "mine"][n % 3], n * n % 7));
        std::fs::write(folder.join("corpus.txt"), lines.collect::<String>()).unwrap();
        Job { folder, mpi: mpi.map(Into::into), ranks }
    }

    fn run(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// The command that trains, of all ranks.
    fn command(&self, more: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_bornite");
        let mut command = match &self.mpi {
            None => Command::new(program),
            Some(mpi) => {
                let mut command = Command::new(mpi.join("bin/mpiexec"));
                command.args(["-n", &self.ranks.to_string()]);
                if mpi.join("lib/libmpi.so.40").exists() {
                    command.arg("--oversubscribe");
                }
                command.arg(program);
                command
            }
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BORNITE_")) {
            command.env_remove(name);
        }
        if let Some(mpi) = &self.mpi {
            command.env("BORNITE_LIBRARY_PATH", mpi.join("lib")).env("OPAL_PREFIX", mpi);
        }
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("ranks-cache"));
        command.args(arguments(more));
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn finish(&self, more: &[&str]) -> Output {
        ended(self.command(more).spawn().unwrap())
    }

    /// Loss, gradient norm and validation loss of each step.
    fn metrics(&self) -> Vec<[f64; 3]> {
        let all = bornite_nn::train::read_metrics(&self.run().join("metrics.jsonl")).unwrap();
        assert_eq!(all.len() as u64, STEPS, "{}", self.folder.display());
        let of = |value: Option<f64>| value.unwrap_or(-1.0);
        all.iter().map(|step| [of(step.loss), of(step.grad_norm), of(step.validation_loss)]).collect()
    }
}

/// Parameters in the latest checkpoint of a run.
fn parameters(job: &Job) -> Vec<u8> {
    let checkpoints = job.run().join("checkpoints");
    let latest = std::fs::read_to_string(checkpoints.join("latest")).unwrap();
    std::fs::read(checkpoints.join(latest.trim()).join("weights.safetensors")).unwrap()
}

/// Waits for a job, which must end.
fn ended(mut child: Child) -> Output {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("the job hangs: {}", stderr_of(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, stderr_of(output));
}

/// Asserts that losses agree to 1e-5.
fn agree(all: &[[f64; 3]], expected: &[[f64; 3]], name: &str) {
    for (step, (found, expected)) in all.iter().zip(expected).enumerate() {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{name}: step {step}: {found} and {expected}");
        }
    }
}

const CPU: [&str; 2] = ["--device", "cpu"];
const SHARDED: [&str; 4] = ["--device", "cpu", "--set", "train.shard_optimizer=true"];

/// Metrics of one process.
fn single() -> Vec<[f64; 3]> {
    static METRICS: OnceLock<Vec<[f64; 3]>> = OnceLock::new();
    let train = || {
        let job = Job::new("single", None, 1);
        succeeds(&job.finish(&CPU));
        job.metrics()
    };
    METRICS.get_or_init(train).clone()
}

fn losses_are_those_of_one_process(library: &str) -> Outcome {
    let mpi = mpi(library)?;
    let expected = single();
    for (ranks, more) in [(1, &CPU[..]), (2, &CPU), (4, &CPU), (2, &SHARDED), (4, &SHARDED)] {
        let name = format!("{library}-{ranks}-{}", more.len());
        let job = Job::new(&name, Some(&mpi), ranks);
        let output = job.finish(more);
        succeeds(&output);
        // Only one rank reports.
        assert_eq!(stderr_of(&output).matches("done after step 12").count(), 1, "{}", stderr_of(&output));
        agree(&job.metrics(), &expected, &name);
        if ranks == 2 {
            let again = Job::new(&format!("{name}-again"), Some(&mpi), ranks);
            succeeds(&again.finish(more));
            assert_eq!(again.metrics(), job.metrics(), "{name}");
        }
    }
    Ok(())
}

fn losses_with_mpich() -> Outcome {
    losses_are_those_of_one_process("mpich-5.0.2")
}

fn losses_with_open_mpi() -> Outcome {
    losses_are_those_of_one_process("openmpi-5.0.11")
}

/// Ranks that are threads of one process; batches that are smaller than those of the settings.
fn threads_train_as_one_process() {
    let expected = single();
    let job = Job::new("threads", None, 2);
    succeeds(&job.finish(&["--devices", "cpu:0,cpu:1"]));
    agree(&job.metrics(), &expected, "threads");
    // Eight ranks share four batches: two ranks to a batch.
    let job = Job::new("eight-threads", None, 8);
    let eight = (0..8).map(|n| format!("cpu:{n}")).collect::<Vec<_>>().join(",");
    succeeds(&job.finish(&["--devices", &eight, "--set", "model.dropout=0"]));
    let whole = Job::new("without-dropout", None, 1);
    succeeds(&whole.finish(&["--device", "cpu", "--set", "model.dropout=0"]));
    agree(&job.metrics(), &whole.metrics(), "eight threads");
    // Three cannot.
    let output = Job::new("three-threads", None, 3).finish(&["--devices", "cpu:0,cpu:1,cpu:2"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
    assert!(stderr_of(&output).contains("cannot be shared evenly by 3 ranks"), "{}", stderr_of(&output));
}

/// Random numbers of this run.
fn random() -> impl FnMut(u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut state = now.as_nanos() as u64 | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Process ids of the ranks of a job.
fn ranks_of(job: &Job) -> Vec<u32> {
    let folder = job.folder.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let is_rank = |id: &u32| {
        let within = std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd == folder);
        let program = std::fs::read_link(format!("/proc/{id}/exe"));
        within
            && program.is_ok_and(|program| program == Path::new(env!("CARGO_BIN_EXE_bornite")).canonicalize().unwrap())
    };
    ids.filter(is_rank).collect()
}

fn signal(id: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &id.to_string()]).stderr(Stdio::null()).status();
}

/// A rank is killed at a random moment, again and again: the job ends, its checkpoints are whole,
/// and it continues to the bits of a job that was never stopped.
fn killed_jobs_continue() -> Outcome {
    let mpi = mpi("mpich-5.0.2")?;
    let kills = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 60 } else { 6 };
    let mut random = random();
    for (more, kills) in [(&CPU[..], kills / 2), (&SHARDED[..], kills - kills / 2)] {
        let whole = Job::new(&format!("never-stopped-{}", more.len()), Some(&mpi), 2);
        let started = Instant::now();
        succeeds(&whole.finish(more));
        let whole_time = started.elapsed();
        let (mut job, mut done) = (Job::new("killed", Some(&mpi), 2), 0);
        while done < kills {
            let resume = [more, &["--resume"]].concat();
            let child = job.command(&resume).spawn().unwrap();
            let delay = random(whole_time.as_micros() as u64);
            std::thread::sleep(Duration::from_micros(delay));
            let ranks = ranks_of(&job);
            if let Some(victim) = ranks.get(random(2) as usize) {
                signal(*victim, "KILL");
                done += 1;
            }
            let output = ended(child);
            let text = stderr_of(&output);
            // A checkpoint that was complete before `latest` named it is used; none is damaged.
            let is_damaged = |line: &&str| {
                let names_latest = ["there is no file 'latest'", "but there are later checkpoints"];
                line.contains("; loaded ") && !names_latest.iter().any(|reason| line.contains(reason))
            };
            assert!(!text.contains("panicked") && text.lines().find(is_damaged).is_none(), "{text}");
            // A job that was done is compared, and another one is begun.
            if output.status.success() {
                assert_eq!(job.metrics(), whole.metrics());
                assert!(parameters(&job) == parameters(&whole));
                job = Job::new("killed", Some(&mpi), 2);
            }
        }
        succeeds(&job.finish(&[more, &["--resume"]].concat()));
        assert_eq!(job.metrics(), whole.metrics());
        assert!(parameters(&job) == parameters(&whole));
    }
    Ok(())
}

/// Another number of ranks continues a job: same data, same optimizer state, sharded or not.
fn other_numbers_of_ranks_resume() -> Outcome {
    let mpi = mpi("mpich-5.0.2")?;
    let of_ranks = |ranks: usize| Some(mpi.clone()).filter(|_| ranks > 1);
    let expected = single();
    for (first, first_more, then, then_more) in [
        (2, &SHARDED[..], 1, &CPU[..]),
        (2, &CPU, 1, &CPU),
        (1, &CPU, 2, &SHARDED),
        (2, &SHARDED, 4, &SHARDED),
        (4, &SHARDED, 2, &CPU),
    ] {
        let name = format!("from-{first}-to-{then}-{}", first_more.len());
        let job = Job::new(&name, of_ranks(first).as_deref(), first);
        succeeds(&job.finish(&[first_more, &["--set", "train.steps=6"]].concat()));
        let job = Job { mpi: of_ranks(then), ranks: then, ..job };
        succeeds(&job.finish(&[then_more, &["--resume"]].concat()));
        agree(&job.metrics(), &expected, &name);
    }
    Ok(())
}

/// A stop reaches all ranks, which save together; a rank that hangs is named.
fn stops_and_hangs() -> Outcome {
    let mpi = mpi("mpich-5.0.2")?;
    let job = Job::new("stopped", Some(&mpi), 2);
    let begun = |job: &Job| {
        let started = Instant::now();
        while !std::fs::read_to_string(job.run().join("checkpoints/latest")).is_ok_and(|latest| !latest.is_empty()) {
            assert!(started.elapsed() < LIMIT, "no checkpoint");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let long = [&CPU[..], &["--set", "train.steps=1000000"]].concat();
    let child = job.command(&long).spawn().unwrap();
    begun(&job);
    signal(ranks_of(&job)[1], "TERM");
    let output = ended(child);
    assert!(stderr_of(&output).contains("stopped and saved after step"), "{}", stderr_of(&output));
    assert_eq!(output.status.code(), Some(75), "{}", stderr_of(&output));

    // Also while the job prepares: then there is nothing to save.
    let (mut random, mut stopped) = (random(), 0);
    while stopped < 3 {
        let job = Job::new("stopped-early", Some(&mpi), 2);
        let child = job.command(&long).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random(400)));
        let Some(&rank) = ranks_of(&job).get(random(2) as usize) else {
            signal(child.id(), "KILL");
            ended(child);
            continue;
        };
        signal(rank, "TERM");
        let output = ended(child);
        // A process that does not handle signals yet is ended by this one.
        if !stderr_of(&output).contains("Terminated") {
            assert!(!stderr_of(&output).contains("error:"), "{}", stderr_of(&output));
            assert_eq!(output.status.code(), Some(75), "{}", stderr_of(&output));
            stopped += 1;
        }
    }

    let job = Job::new("hung", Some(&mpi), 2);
    let child = job.command(&[&long[..], &["--set", "train.rank_timeout=2"]].concat()).spawn().unwrap();
    begun(&job);
    let started = Instant::now();
    let victim = ranks_of(&job)[0];
    signal(victim, "STOP");
    let output = ended(child);
    signal(victim, "KILL");
    assert!(started.elapsed() < Duration::from_secs(20), "{}", stderr_of(&output));
    assert_eq!(output.status.code(), Some(75), "{}", stderr_of(&output));
    assert!(
        stderr_of(&output).contains("waited 2 s") && stderr_of(&output).contains("is on"),
        "{}",
        stderr_of(&output)
    );
    Ok(())
}

/// A process with the variables that torchrun sets.
fn torchrun_rank(job: &Job, rank: usize, more: &[&str]) -> Child {
    let (rank, size) = (rank.to_string(), job.ranks.to_string());
    let mut command = job.command(more);
    command.env("RANK", &rank).env("LOCAL_RANK", &rank).env("WORLD_SIZE", size);
    command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", "29500").env("TORCHELASTIC_RUN_ID", "none");
    command.spawn().unwrap()
}

fn torchrun_succeeds(job: &Job, more: &[&str]) {
    let ranks: Vec<Child> = (0..job.ranks).map(|rank| torchrun_rank(job, rank, more)).collect();
    for rank in ranks {
        succeeds(&ended(rank));
    }
}

/// Ranks without MPI, connected by TCP: the losses of one process; killed and missing ranks.
fn torchrun_starts_ranks() {
    let (expected, mut random) = (single(), random());
    let whole = Job::new("torchrun", None, 2);
    torchrun_succeeds(&whole, &CPU);
    agree(&whole.metrics(), &expected, "torchrun");
    let job = Job::new("torchrun-sharded", None, 4);
    torchrun_succeeds(&job, &SHARDED);
    agree(&job.metrics(), &expected, "torchrun, sharded");
    let (job, resume) = (Job::new("torchrun-killed", None, 2), [&CPU[..], &["--resume"]].concat());
    for _ in 0..3 {
        // The other rank may still wait to be connected.
        let short = [&resume[..], &["--set", "train.rank_timeout=10"]].concat();
        let mut ranks = vec![torchrun_rank(&job, 0, &short), torchrun_rank(&job, 1, &short)];
        std::thread::sleep(Duration::from_millis(random(1500)));
        let mut victim = ranks.remove(random(2) as usize);
        victim.kill().unwrap();
        victim.wait().unwrap();
        let other = ended(ranks.remove(0));
        let text = stderr_of(&other);
        assert!(other.status.success() || text.contains("rank 0") || text.contains("rank 1"), "{text}");
    }
    torchrun_succeeds(&job, &resume);
    assert_eq!(job.metrics(), whole.metrics());
    assert!(parameters(&job) == parameters(&whole));
    let names = std::fs::read_dir(&job.folder).unwrap().flatten().map(|entry| entry.file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("rendezvous")));
    for (rank, expected) in [(0, "waited for the connection of rank 1"), (1, "did not find rank 0")] {
        let job = Job::new("torchrun-alone", None, 2);
        let output = ended(torchrun_rank(&job, rank, &[&CPU[..], &["--set", "train.rank_timeout=1"]].concat()));
        assert!(!output.status.success() && stderr_of(&output).contains(expected), "{}", stderr_of(&output));
    }
}

/// torchrun itself, with PyTorch; only in the long tests.
fn torchrun_itself() -> Outcome {
    let found = std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let program = found.map(|folder| folder.join("torchrun")).find(|program| program.is_file());
    let (Some(program), true) = (program, std::env::var_os("BORNITE_TEST_FULL").is_some()) else {
        return Err("torchrun is not on the PATH, or these are not the long tests (scripts/test --full)".into());
    };
    let job = Job::new("torchrun-itself", None, 2);
    let train = job.command(&CPU);
    let mut command = Command::new(program);
    command.args(["--standalone", "--nproc-per-node", "2", "--no-python", env!("CARGO_BIN_EXE_bornite")]);
    command.args(train.get_args()).current_dir(&job.folder).stdin(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in train.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    succeeds(&ended(command.spawn().unwrap()));
    agree(&job.metrics(), &single(), "torchrun itself");
    Ok(())
}

/// Mistakes are errors of the rank that makes them.
fn mistakes_are_reported_once() -> Outcome {
    let mpi = mpi("mpich-5.0.2")?;
    let job = Job::new("no-data", Some(&mpi), 2);
    std::fs::remove_file(job.folder.join("corpus.txt")).unwrap();
    let output = job.finish(&CPU);
    assert!(!output.status.success(), "{}", stderr_of(&output));
    assert_eq!(stderr_of(&output).matches("cannot open").count(), 1, "{}", stderr_of(&output));
    let output = Job::new("muon", Some(&mpi), 2).finish(&[&SHARDED[..], &["--optimizer", "muon"]].concat());
    assert!(stderr_of(&output).contains("muon cannot be sharded"), "{}", stderr_of(&output));
    // Ranks that start from other settings, data or checkpoints.
    let job = Job::new("settings", Some(&mpi), 1);
    std::fs::write(job.folder.join("other.txt"), "something else entirely. ".repeat(400)).unwrap();
    for (other, named) in
        [(&["--set", "train.seed=7"][..], "train.seed = 7"), (&["--set", "schedule.lr=0.5"], "schedule.lr = 0.5")]
    {
        let mut both = job.command(&CPU);
        both.args([":", "-n", "1", env!("CARGO_BIN_EXE_bornite")]).args(arguments(&[&CPU[..], other].concat()));
        let output = ended(both.spawn().unwrap());
        assert!(!output.status.success() && stderr_of(&output).contains(named), "{}", stderr_of(&output));
    }
    // Half of a launcher's variables.
    let alone = Job::new("half", None, 1);
    let output = ended(alone.command(&CPU).env("PMI_RANK", "0").spawn().unwrap());
    assert!(stderr_of(&output).contains("PMI_SIZE"), "{}", stderr_of(&output));
    Ok(())
}

suite! {
    losses_with_mpich,
    losses_with_open_mpi,
    threads_train_as_one_process,
    killed_jobs_continue,
    other_numbers_of_ranks_resume,
    stops_and_hangs,
    torchrun_starts_ranks,
    torchrun_itself,
    mistakes_are_reported_once,
}
