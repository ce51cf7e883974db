//! Commands where the system allows no further threads or little memory, and kernels that never end: each ends by
//! itself, with a message where it could not do its work.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder that every user may write to, with text to train on.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("bornite-limits-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(folder.join("text.txt"), "a text of some words. ".repeat(500)).unwrap();
    folder
}

/// Removes the folder of a test that passed.
fn finished(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}

/// The command, run in `folder` by `wrapper`: a program that sets limits and runs what follows.
fn limited(folder: &Path, program: &Path, wrapper: &[&str], args: &[&str]) -> Output {
    for left in ["run", "demo"] {
        let _ = std::fs::remove_dir_all(folder.join(left));
    }
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(program).args(args).current_dir(folder);
    command.env("BORNITE_CACHE_DIR", folder.join("cache")).env("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc");
    command.output().unwrap_or_else(|error| panic!("{}: {error}", wrapper[0]))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const TRAIN: &[&str] = &[
    "train",
    "--data",
    "text.txt",
    "--model",
    "tiny",
    "--tokenizer",
    "bytes",
    "--device",
    "cpu",
    "--out",
    "run",
    "--steps",
    "2",
    "--batch",
    "2",
    "--context",
    "16",
];
const DEMO: &[&str] = &[
    "demo",
    "--device",
    "cpu",
    "--pairs",
    "100",
    "--steps",
    "1",
    "--seconds",
    "1",
    "--prompts",
    "1",
    "--samples",
    "1",
    "--out",
    "demo",
];
const RUN: &[&str] = &["kernel", "run", "--template", "axpy", "--device", "cpu"];
const BENCH: &[&str] = &["kernel", "bench", "gelu", "--shape", "1000000", "--device", "cpu", "--quick"];

/// Returns true if the long forms of tests are requested.
fn full() -> bool {
    std::env::var("BORNITE_TEST_FULL").is_ok_and(|value| value == "1")
}

#[test]
fn commands_work_where_no_thread_can_be_started() {
    let folder = scratch("threads");
    // A limit on threads does not bind root, and another user may not reach the build's folder.
    let program = folder.join("bornite");
    std::fs::copy(env!("CARGO_BIN_EXE_bornite"), &program).unwrap();
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let user: &[&str] = if is_root { &["setpriv", "--reuid=65534", "--clear-groups"] } else { &["env"] };
    let counts: &[&str] = if full() { &["1", "2", "3"] } else { &["1"] };
    for count in counts {
        let limit = format!("--nproc={count}");
        let wrapper = [user, &["prlimit", &limit]].concat();
        let more: &[&[&str]] = if full() { &[&["doctor"], &["bench", "--quick", "--device", "cpu"]] } else { &[] };
        for args in [&["devices"], RUN, BENCH, TRAIN, DEMO].iter().chain(more) {
            let output = limited(&folder, &program, &wrapper, args);
            assert!(output.status.success(), "{args:?} with {count} threads: {}", text(&output));
        }
    }
    finished(&folder);
}

#[test]
fn commands_end_with_a_message_where_memory_is_short() {
    let folder = scratch("memory");
    let program = Path::new(env!("CARGO_BIN_EXE_bornite"));
    let (least, step) = if full() { (80, 10) } else { (90, 60) };
    let (mut failed, mut worked) = (0, 0);
    for megabytes in (least..400).step_by(step) {
        let limit = format!("--as={}", megabytes * 1_000_000);
        for args in [&["devices"], RUN, BENCH, TRAIN] {
            let output = limited(&folder, program, &["prlimit", &limit], args);
            let words = text(&output);
            assert!(!words.contains("panicked"), "{args:?} in {megabytes} MB: {words}");
            if output.status.success() {
                worked += 1;
            } else {
                failed += 1;
                assert_eq!(output.status.code(), Some(1), "{args:?} in {megabytes} MB: {:?} {words}", output.status);
                assert!(words.contains("error: "), "{args:?} in {megabytes} MB: {words}");
                let names_limit = words.contains("raise the limit (ulimit -v)");
                assert_eq!(names_limit, megabytes * 1_000_000 < 256 << 20, "{args:?} in {megabytes} MB: {words}");
            }
        }
    }
    assert!(failed > 0 && worked > 0, "{failed} failed and {worked} worked: the limits are of no use");
    // An argument that does not fit is reported with its size.
    let args = ["kernel", "run", "--expr", "x + y", "--count", "40000000", "--device", "cpu"];
    let output = limited(&folder, program, &["prlimit", "--as=300000000"], &args);
    let words = text(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("out of memory: an array of 160000000 bytes does not fit"), "{words}");
    finished(&folder);
}

const ENDLESS: &str = "__global__ void spin(float* o) {\n    while (true) o[threadIdx.x] += 1.0f;\n}\n\
    __global__ void wait(float* o) {\n    __shared__ float s[32];\n    s[threadIdx.x] = 1.0f;\n    __syncthreads();\n    \
    while (true) o[threadIdx.x] += s[threadIdx.x ^ 1];\n}\n";

/// A file of kernels that never end, and how to launch them.
fn endless(folder: &Path, kernel: &str) -> Vec<String> {
    std::fs::write(folder.join("endless.cu"), ENDLESS).unwrap();
    let launch = ["endless.cu", "--kernel", kernel, "--grid", "1000", "--block", "32", "--arg", "o=zeros:32"];
    launch.map(String::from).into()
}

#[test]
fn kernels_that_do_not_terminate_are_aborted() {
    let folder = scratch("endless");
    let program = Path::new(env!("CARGO_BIN_EXE_bornite"));
    for (kernel, line) in [("spin", 2), ("wait", 8)] {
        let launch = endless(&folder, kernel);
        let launch: Vec<&str> = launch.iter().map(String::as_str).collect();
        let limit = ["--device", "cpu", "--max-statements", "200000"];
        let minute = ["timeout", "60"];
        let output = limited(&folder, program, &minute, &[&["kernel", "run"], &launch[..], &limit].concat());
        let words = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains("still running after 200000 statements"), "{words}");
        assert!(words.contains(&format!("endless.cu:{line}")), "{words}");
        let tuned = ["kernel", "tune", "endless.cu", "--kernel", kernel, "--dim", "32", "--blocks", "16,32"];
        let output = limited(&folder, program, &minute, &[&tuned[..], &["--arg", "o=zeros:32"], &limit].concat());
        assert!(text(&output).contains("still running after 200000 statements"), "{}", text(&output));
    }
    finished(&folder);
}

#[test]
fn an_interrupt_ends_a_kernel_at_once() {
    let folder = scratch("interrupt");
    let launch = endless(&folder, "spin");
    let mut command = Command::new("env");
    // A shell's background job ignores interrupts, and so would its children.
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_bornite"), "kernel", "run"]).args(launch);
    command.args(["--device", "cpu", "--max-statements", "1000000000000000"]).current_dir(&folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "the kernel ended by itself");
    let begun = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(1), "it took {:?} to end", begun.elapsed());
    finished(&folder);
}
