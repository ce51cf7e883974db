//! `bornite data …`: killed and resumed runs, and wrong arguments.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("data-cache"));
    command.env("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc").arg("data").args(args);
    command
}

fn bornite(args: &[&str]) -> Output {
    let output = command(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn json(args: &[&str]) -> Value {
    let output = bornite(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {}", out(&output)))
}

/// A new folder for a test, not created yet.
fn folder(name: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("data-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    let text = folder.to_str().unwrap().to_owned();
    (folder, text)
}

/// A random number of this run.
fn seed() -> u64 {
    let from_env = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = from_env.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    seed
}

#[test]
fn a_killed_run_resumes_to_the_same_set() {
    let seed = seed();
    let text = seed.to_string();
    let (count, shards) = ("1200", "6");
    let make = ["make", "--count", count, "--shards", shards, "--level", "types", "--jobs", "1", "--json"];
    let (_, whole) = folder("unkilled");
    let started = std::time::Instant::now();
    let expected = json(&[&make[..], &["--seed", &text, "--out", &whole]].concat());
    let took = started.elapsed();
    assert_eq!(expected["finished"], true);
    let rounds = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 50 } else { 4 };
    let (mut random, mut kills) = (seed, 0);
    let (mut path, mut target) = folder("killed");
    let mut begun = false;
    while kills < rounds {
        let settings = ["--seed", &text, "--out", &target];
        let resume: &[&str] = if begun { &["--resume"] } else { &[] };
        let mut child = command(&[&make[..], &settings, resume].concat());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(took.mul_f64((random >> 33) as f64 / (1u64 << 31) as f64).max(Duration::from_millis(1)));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        kills += 1;
        begun = path.join(".making/settings.json").is_file() || path.join("manifest.json").is_file();
        if path.join("manifest.json").is_file() {
            let made = json(&["make", "--resume", "--out", &target, "--json"]);
            assert_eq!(made["set_hash"], expected["set_hash"], "after {kills} kills");
            (path, target) = folder("killed");
            begun = false;
        }
    }
    let last = if begun { &["--resume"][..] } else { &[] };
    let made = json(&[&make[..], &["--seed", &text, "--out", &target], last].concat());
    assert_eq!((&made["set_hash"], &made["rows"]), (&expected["set_hash"], &expected["rows"]));
    let checked = json(&["verify", &target, "--json"]);
    assert_eq!((&checked["ok"], &checked["rows"]), (&true.into(), &1200.into()), "{checked}");
    let left: Vec<_> = std::fs::read_dir(path.join("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 24, "{left:?}");
}

/// Seven pods of an indexed Kubernetes job generate one set. Two are killed and restarted, with the
/// same command.
#[test]
fn tasks_of_a_job_take_their_parts() {
    let seed = seed();
    let text = seed.to_string();
    let make = ["make", "--count", "1400", "--level", "types", "--jobs", "1", "--seed", &text, "--json"];
    let (_, whole) = folder("one-process");
    let expected = json(&[&make[..], &["--out", &whole]].concat());
    let (_, target) = folder("seven-pods");
    let pod = |index: usize| {
        let mut command = command(&[&make[..], &["--out", &target]].concat());
        command.env("JOB_COMPLETION_INDEX", index.to_string()).env("JOB_COMPLETIONS", "7");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut pods: Vec<_> = (0..7).map(pod).collect();
    std::thread::sleep(Duration::from_millis(seed % 400));
    let victims = [seed as usize % 7, (seed as usize + 3) % 7];
    for victim in victims {
        pods[victim].kill().unwrap(); // SIGKILL
        pods[victim].wait().unwrap();
        pods[victim] = pod(victim);
    }
    for child in pods {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", out(&output));
        assert!(out(&output).contains("/7 (Kubernetes job)"), "{}", out(&output));
    }
    let checked = json(&["verify", &target, "--json"]);
    assert_eq!((&checked["ok"], &checked["rows"]), (&true.into(), &1400.into()), "{checked}");
    assert_eq!(json(&["stats", &target, "--json"])["set_hash"], expected["set_hash"]);
}

#[test]
fn rows_are_generated_verified_counted_and_shown() {
    let (path, target) = folder("shown");
    let made =
        json(&["make", "--count", "60", "--level", "run", "--faults", "--format", "jsonl", "--out", &target, "--json"]);
    let rows = made["rows"].as_u64().unwrap();
    assert!(rows >= 50 && rows + made["rejected"].as_u64().unwrap() == 60, "{made}");
    let output = bornite(&["verify", &target]);
    assert!(
        output.status.success() && out(&output).contains("rows in 4 files are correct at level run"),
        "{}",
        out(&output)
    );
    let stats = json(&["stats", &target, "--json"]);
    assert_eq!((&stats["rows"], &stats["set_hash"]), (&made["rows"], &made["set_hash"]));
    let text = out(&bornite(&["stats", &target]));
    assert!(text.contains("categories\n") && text.contains("incorrect variants\n"), "{text}");
    let row = json(&["show", &target, "--json"]);
    let id = row["id"].as_str().unwrap();
    let shown = out(&bornite(&["show", &target, "--id", id]));
    for line in row["cuda"].as_str().unwrap().lines().chain(row["source"].as_str().unwrap().lines()) {
        assert!(shown.contains(line.trim_end()), "{line:?} is not in\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "colours where there is no terminal");
    for beside in ["cpp", "ir", "fault"] {
        assert!(bornite(&["show", &target, "--id", id, "--beside", beside]).status.success());
    }
    // A row that was changed, with a checksum that fits.
    let file = path.join("data/train-00000-of-00001.jsonl");
    let changed = std::fs::read_to_string(&file).unwrap().replacen(" + ", " - ", 1);
    std::fs::write(&file, changed).unwrap();
    let report = json(&["verify", &target, "--json"]);
    assert_eq!(report["ok"], false);
    assert!(report["findings"][0]["what"].as_str().unwrap().contains("checksum"), "{report}");
}

#[test]
fn user_kernels_become_rows() {
    let (path, target) = folder("ingested");
    std::fs::create_dir_all(&path).unwrap();
    let file = path.join("mine.py");
    std::fs::write(
        &file,
        "import warp as wp\n\n\n@wp.kernel\ndef scale(x: wp.array(dtype=float), a: float):\n    i = wp.tid()\n    \
         x[i] = x[i] * a\n\n\n@wp.kernel\ndef add(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):\n    \
         i, j = wp.tid()\n    y[i, j] = y[i, j] + x[i, j]\n\n\n@wp.kernel\ndef beyond(x: wp.array(dtype=float)):\n    \
         i = wp.tid()\n    x[i + 1] = 1.0\n\n\n@wp.kernel\ndef race(x: wp.array(dtype=float)):\n    i = wp.tid()\n    \
         x[0] = float(i)\n",
    )
    .unwrap();
    let rows = format!("{target}/rows");
    let made = json(&["ingest", file.to_str().unwrap(), "--out", &rows, "--json"]);
    let found: Vec<(&str, bool)> = (made["kernels"].as_array().unwrap().iter())
        .map(|kernel| (kernel["kernel"].as_str().unwrap(), kernel["ok"].as_bool().unwrap()))
        .collect();
    assert_eq!(found, [("scale", true), ("add", true), ("beyond", false), ("race", false)], "{made}");
    assert!(made["kernels"][2]["error"].as_str().unwrap().contains("outside 'x'"), "{made}");
    let card = std::fs::read_to_string(format!("{rows}/README.md")).unwrap();
    assert!(card.contains("handwritten") && card.contains("Of 4 kernels, 0 were duplicates"), "{card}");
    assert!(!card.contains("generator of random") && !card.contains("synthetic"), "{card}");
    let row = json(&["show", &rows, "--id", "add", "--json"]);
    assert!(row["cuda"].as_str().unwrap().contains("__global__"), "{row}");
    assert_eq!((&row["block"], &row["ops"]), (&"256x1x1".into(), &"add".into()), "{row}");
    assert!(!row["source"].as_str().unwrap().contains("def scale"), "{row}");
    let checked = json(&["verify", &rows, "--json"]);
    assert_eq!((&checked["ok"], &checked["rows"]), (&true.into(), &2.into()), "{checked}");
}

#[test]
fn the_text_of_an_ingested_row_runs_with_any_sizes() {
    let (path, target) = folder("ingested-sizes");
    std::fs::create_dir_all(&path).unwrap();
    let source = path.join("mine.py");
    let kernels = "import warp as wp\n\n\n@wp.kernel\ndef turned(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):\n    \
                   i, j = wp.tid()\n    y[i, j] = x[x.shape[0] - 1 - i, j]\n";
    std::fs::write(&source, kernels).unwrap();
    let rows = format!("{target}/rows");
    bornite(&["ingest", source.to_str().unwrap(), "--out", &rows]);
    let row = json(&["show", &rows, "--id", "turned", "--json"]);
    let text = path.join("row.cu");
    std::fs::write(&text, row["cuda"].as_str().unwrap()).unwrap();
    let mut random = seed();
    for _ in 0..4 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (down, across) = (2 + (random >> 33) % 40, 8 + (random >> 45) % 20);
        let sizes = format!("{down}x{across}");
        let (x, y) = (format!("x=range:{sizes}"), format!("y=zeros:{sizes}"));
        // What runs the source runs the text.
        for file in [&source, &text] {
            let output = Command::new(env!("CARGO_BIN_EXE_bornite"))
                .args(["kernel", "run", file.to_str().unwrap(), "--dim", &sizes, "--arg", &x, "--arg", &y, "--json"])
                .output()
                .unwrap();
            let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", out(&output)));
            let first: Vec<f64> = (0..8).map(|n| ((down - 1) * across + n) as f64).collect();
            assert_eq!(found["outputs"][0]["first"], serde_json::to_value(first).unwrap(), "{file:?} {sizes}: {found}");
        }
    }
}

#[test]
fn duplicates_among_ingested_kernels_are_reported() {
    let (path, target) = folder("ingested-alike");
    std::fs::create_dir_all(&path).unwrap();
    let mut files = vec![];
    for (file, array, what) in [("one.py", "a", "* 2.0"), ("two.py", "x", "* 3.0"), ("three.py", "a", "+ 2.0")] {
        let text = format!(
            "import warp as wp\n\n\n@wp.kernel\ndef k({array}: wp.array(dtype=float)):\n    i = wp.tid()\n    \
             {array}[i] = {array}[i] {what}\n"
        );
        std::fs::write(path.join(file), text).unwrap();
        files.push(path.join(file).to_str().unwrap().to_owned());
    }
    let rows = format!("{target}/rows");
    let args = ["ingest", &files[0], &files[1], &files[2], "--out", &rows];
    let output = bornite(&args);
    let text = out(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches(": accepted").count(), 2, "{text}");
    assert!(text.contains("two.py:5: kernel 'k': duplicate of 'k' at ") && text.contains("2 rows in "), "{text}");
    let report = json(&["ingest", &files[0], &files[1], &files[2], "--json"]);
    assert_eq!((&report["rows"], &report["passed"]), (&2.into(), &3.into()), "{report}");
    assert_eq!(report["kernels"][1]["duplicate_of"]["file"], files[0].as_str(), "{report}");
}

#[test]
fn wrong_arguments_are_explained_in_one_line() {
    let (path, target) = folder("wrong");
    let (_, other) = folder("not-made");
    bornite(&["make", "--count", "20", "--level", "types", "--out", &target]);
    let (_, pairs) = folder("wrong-pairs");
    bornite(&["make", "--count", "5", "--level", "types", "--format", "seed-json", "--out", &pairs]);
    let (mine, project) = folder("wrong-project");
    std::fs::create_dir_all(&mine).unwrap();
    std::fs::write(mine.join("README.md"), "mine").unwrap();
    let before = std::fs::read(path.join("manifest.json")).unwrap();
    let file = path.join("manifest.json");
    let under_a_file = file.join("inner");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["make", "--count", "0", "--out", &other], 2, "--count must be at least 1; found 0"),
        (&["make", "--count", "9", "--categories", "aritmetic", "--out", &other], 2, "did you mean 'arithmetic'?"),
        (&["make", "--count", "9", "--level", "rum", "--out", &other], 2, "did you mean 'run'?"),
        (&["make", "--count", "9", "--format", "parket", "--out", &other], 2, "did you mean 'parquet'?"),
        (&["make", "--count", "9", "--shard", "1", "--out", &other], 2, "such as 0/16"),
        (&["make", "--count", "9", "--jobs", "0", "--out", &other], 2, "--jobs must be from 1 to 1024"),
        (&["make", "--count", "9", "--jobs", "100000", "--out", &other], 2, "--jobs must be from 1 to 1024"),
        (&["make", "--count", "9", "--out", under_a_file.to_str().unwrap()], 1, "could not create the folder"),
        (&["make", "--count", "20", "--out", &target], 2, "resume it with --resume"),
        (
            &["make", "--count", "20", "--level", "types", "--out", &project],
            2,
            "README.md exists, does not belong to a dataset",
        ),
        (&["make", "--resume", "--seed", "7", "--out", &target], 2, "has seed 42, but 7 was requested"),
        (&["make", "--resume", "--count", "21", "--out", &target], 2, "has count 20, but 21 was requested"),
        (&["make", "--resume", "--out", &other], 2, "contains no dataset to resume"),
        (&["verify", "/no/such/folder"], 2, "/no/such/folder is not a folder"),
        (&["stats", &other], 2, "is not a folder"),
        (&["stats", env!("CARGO_TARGET_TMPDIR")], 2, "contains no dataset"),
        (&["stats", &target, "--coverage", "--json"], 2, "cannot be used with"),
        (&["show", &target, "--id", "no_such_row"], 2, "has no row 'no_such_row'"),
        (&["show", &pairs, "--id", "0"], 2, "holds pairs as single JSON files"),
        (&["verify", &pairs, "--level", "run"], 0, "pairs are verified by checksum and structure only"),
        (&["ingest", "/no/such/file.py"], 1, "/no/such/file.py: No such file"),
        (&["ingest", "/dev/zero"], 1, "/dev/zero is larger than 4 MiB"),
        (&["make", "--count", "9", "--level", "compile", "--out", &other], 1, "was not found"),
        (&["make", "--count", "9", "--level", "gpu", "--out", &other], 1, "was not found"),
        (&["make", "--count", "9", "--with", "ptx", "--out", &other], 1, "was not found"),
        (&["make", "--count", "9", "--with", "ptz", "--out", &other], 2, "did you mean 'ptx'?"),
        (&["make", "--count", "9", "--with", "assembly", "--out", &other], 2, "available: ptx, sass, cuda-warp"),
        (
            &["make", "--resume", "--with", "cuda-warp", "--out", &target],
            2,
            "has with nothing, but cuda-warp was requested",
        ),
        (&["show", &target, "--beside", "ptx"], 2, "have no column ptx; generate them with --with ptx"),
        (&["show", &target, "--beside", "fault"], 2, "generate them with --faults"),
    ];
    for (args, code, expected) in cases {
        let output = bornite(args);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?} does not say {expected:?}: {text}");
    }
    assert_eq!(std::fs::read(path.join("manifest.json")).unwrap(), before);
    assert_eq!(std::fs::read_to_string(mine.join("README.md")).unwrap(), "mine");
    assert!(bornite(&["verify", &target]).status.success());
    assert!(!Path::new(&other).exists(), "a rejected command created a folder");
}

#[test]
fn two_runs_do_not_write_one_folder() {
    let (path, target) = folder("together");
    let make = ["make", "--count", "30000", "--shards", "30", "--level", "types", "--jobs", "1", "--out", &target];
    let mut first = command(&make).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !path.join(".making/settings.json").is_file() {
        assert!(first.try_wait().unwrap().is_none(), "it ended before it began");
        std::thread::sleep(Duration::from_millis(5));
    }
    for extra in [&["--resume"][..], &["--shard", "1/3"], &["--shard", "29/30"]] {
        let output = bornite(&[&make[..], extra].concat());
        let text = out(&output);
        assert_eq!(output.status.code(), Some(2), "{extra:?}: {text}");
        let holder = format!("process {} ", first.id());
        assert!(text.contains(&holder) && text.contains("is writing shards 0 to 29"), "{extra:?}: {text}");
    }
    first.kill().unwrap(); // SIGKILL
    first.wait().unwrap();
    // A dead process holds no lock.
    let output = command(&["make", "--resume", "--shard", "0/30", "--out", &target]).output().unwrap();
    assert!(output.status.success(), "{}", out(&output));
}

/// Run by `optional.rs`, as it needs NVRTC.
#[allow(dead_code)]
pub fn workers_of_the_command_compile() -> Result<(), String> {
    bornite_cuda::nvrtc_version().map_err(|why| why.to_string())?;
    let (_, target) = folder("compiled");
    let seed = seed().to_string();
    let with_nvrtc = |args: &[&str]| {
        let output = command(args).env_remove("BORNITE_HIDE_LIBRARIES").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", out(&output));
        output
    };
    let make = ["make", "--count", "60", "--seed", &seed, "--jobs", "2", "--json"];
    let compile = ["--level", "compile", "--with", "ptx", "--out", &target];
    let made: Value = serde_json::from_slice(&with_nvrtc(&[&make[..], &compile].concat()).stdout).unwrap();
    assert_eq!((&made["rows"], &made["rejected"]), (&60.into(), &0.into()), "{made}");
    let text = out(&with_nvrtc(&["verify", &target]));
    assert!(text.contains("60 rows in 4 files are correct at level compile"), "{text}");
    let shown = out(&with_nvrtc(&["show", &target, "--beside", "ptx"]));
    assert!(shown.contains(".visible .entry"), "{shown}");
    // Without the compiler, the code is looked at as far as it can be, and that is said.
    let text = out(&bornite(&["verify", &target, "--level", "types"]));
    assert!(text.contains("was not recompiled") && text.contains("are correct at level types"), "{text}");
    Ok(())
}

/// A disk that is full, as the system says it: no file may be longer than a limit.
#[test]
fn a_full_disk_loses_nothing() {
    let (_, target) = folder("full-disk");
    let make = ["make", "--count", "400", "--shards", "4", "--level", "types", "--format", "jsonl"];
    let script = "trap '' XFSZ; ulimit -f 200; exec \"$0\" data \"$@\"";
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_bornite")).args(make).args(["--out", &target]);
    let output = limited.output().unwrap();
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("could not write") && text.contains("continue with --resume"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    let made = json(&[&make[..], &["--resume", "--out", &target, "--json"]].concat());
    let (_, whole) = folder("roomy-disk");
    let expected = json(&[&make[..], &["--out", &whole, "--json"]].concat());
    assert_eq!(made["set_hash"], expected["set_hash"]);
}

/// If the folder cannot be created, no message promises saved work.
#[test]
fn a_folder_that_cannot_be_created_promises_nothing() {
    let (path, _) = folder("no-folder");
    std::fs::create_dir_all(&path).unwrap();
    let file = path.join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.display().to_string(), file.join("inner").display().to_string(), "/proc/no-folder".into()] {
        let output = bornite(&["make", "--count", "20", "--level", "types", "--out", &path]);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("could not") && !text.contains("is saved") && !text.contains("--resume"), "{text}");
    }
}
