//! Doctor, caches, kernels run, timed and tuned from the command line, on machines without a GPU and without libraries.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the command with a cache folder of the test's own and none of the user's settings.
fn bornite(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", folder);
    let output = command.args(args).envs(env.iter().copied()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?} with {env:?}: {errors}");
    output
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tooling-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

#[test]
fn every_command_without_each_library() {
    let folder = scratch("missing");
    let cases: [(&[&str], &str); 12] = [
        (&["devices"], ""),
        (&["devices", "--json"], ""),
        (&["doctor"], ""),
        (&["cache", "stats"], ""),
        (&["cache", "clear"], ""),
        (&["kernel", "run", "--template", "axpy", "--device", "cpu"], ""),
        (&["kernel", "bench", "axpy", "--quick"], ""),
        (&["kernel", "tune", "--template", "softmax", "--tile", "32,64"], ""),
        (&["cache", "warm", "--arch", "sm_90"], "nvrtc"),
        (&["kernel", "run", "--template", "axpy", "--device", "cuda:0"], "cuda nvrtc"),
        (&["kernel", "bench", "axpy", "--device", "cuda"], "cuda nvrtc"),
        (&["kernel", "tune", "--template", "matmul", "--device", "cuda"], "cuda nvrtc"),
    ];
    for hidden in ["cuda", "nvrtc", "cuda,nvrtc"] {
        for (args, needs) in cases {
            let output = bornite(&folder, args, &[("BORNITE_HIDE_LIBRARIES", hidden)]);
            let must_fail = hidden.split(',').any(|library| needs.contains(library));
            let words = text(&output);
            if must_fail {
                assert_eq!(output.status.code(), Some(1), "{args:?} without {hidden}: {words}");
                assert!(words.contains("error: lib") && words.contains("was not found"), "{args:?}: {words}");
                assert_eq!(words.trim().lines().count(), 1, "{args:?}: {words}");
            } else if needs.is_empty() {
                assert!(output.status.success(), "{args:?} without {hidden}: {words}");
            }
        }
    }
}

#[test]
fn the_doctor_lists_settings_and_finds_what_does_not_work() {
    let folder = scratch("doctor");
    let hidden = ("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc");
    let report = json(&bornite(&folder, &["doctor", "--json"], &[hidden, ("BORNITE_LGO", "info")]));
    assert_eq!((&report["healthy"], &report["problems"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(report["unknown_variables"], serde_json::json!(["BORNITE_LGO"]));
    let devices: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|c| c["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["interpreter", "cpu"]);
    assert!(
        report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|check| check["max_difference"].as_f64().is_some_and(|d| d <= 1e-6))
    );
    assert_eq!(report["caches"]["kernels"]["folder"], folder.join("kernels").to_str().unwrap());
    assert!(report["cpu"]["features"].is_array() || report["cpu"]["features"].is_null());
    let setting = |name: &str| {
        let all = report["settings"].as_array().unwrap();
        all.iter().find(|setting| setting["variable"] == name).unwrap().clone()
    };
    assert_eq!(setting("BORNITE_HIDE_LIBRARIES")["value"], "cuda,nvrtc");
    assert_eq!(setting("BORNITE_TUNE")["value"], Value::Null);
    // Bad values are present and do not work.
    for (name, value) in [
        ("BORNITE_LOG", "loud"),
        ("BORNITE_TUNE", "yes"),
        ("BORNITE_PROFILE", "7"),
        ("BORNITE_CACHE", "maybe"),
        ("BORNITE_SYNC", "x"),
        ("BORNITE_MEMORY_FRACTION", "2"),
        ("BORNITE_MEMORY_CACHE", "2 parsecs"),
    ] {
        let output = bornite(&folder, &["doctor"], &[hidden, (name, value)]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(text(&output).contains(&format!("- {name}={value}: ")), "{}", text(&output));
    }
    // A cache folder that cannot be used is said, and is no illness.
    let file = scratch("file");
    std::fs::write(&file, "").unwrap();
    let output = bornite(&file, &["doctor"], &[hidden]);
    assert!(output.status.success() && text(&output).contains("is not a folder"), "{}", text(&output));
    let output = bornite(&folder, &["doctor"], &[hidden, ("BORNITE_CACHE", "off")]);
    assert!(text(&output).contains("not used: disabled by BORNITE_CACHE=off"));
}

#[test]
fn bad_settings_stop_other_commands() {
    let folder = scratch("settings");
    for (name, value) in [("BORNITE_LOG", "loud"), ("BORNITE_PROFILE", "yes")] {
        let output = bornite(&folder, &["devices"], &[(name, value)]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).starts_with(&format!("error: {name}={value}: use ")), "{}", text(&output));
    }
}

#[test]
fn every_command_reports_unknown_variables_once() {
    let folder = scratch("unknown");
    let commands: [&[&str]; 9] = [
        &["devices"],
        &["cache", "stats"],
        &["kernel", "list"],
        &["kernel", "run", "--template", "axpy"],
        &["train", "--out", "run", "--data", "/no/such/file"],
        &["generate", "/no/such/run"],
        &["eval", "/no/such/run", "--data", "/no/such/file"],
        &["bench", "--peer", "/no/such/file"],
        &["data", "stats", "/no/such/folder"],
    ];
    let unknown = [("BORNITE_LIBARY_PATH", "/tmp"), ("BORNITE_QQQQQQ", "1"), ("BORNITE_TEST_SOMETHING", "1")];
    for args in commands {
        let output = bornite(&folder, args, &unknown);
        let errors = String::from_utf8_lossy(&output.stderr);
        let reports: Vec<&str> = errors.lines().filter(|line| line.contains("is not a setting")).collect();
        let expected = [
            "bornite warn: BORNITE_LIBARY_PATH is not a setting and has no effect; did you mean BORNITE_LIBRARY_PATH?",
            "bornite warn: BORNITE_QQQQQQ is not a setting and has no effect; docs/settings.md lists all of them",
        ];
        assert_eq!(reports, expected, "{args:?}: {errors}");
        let quiet = bornite(&folder, args, &[unknown[0], ("BORNITE_LOG", "error")]);
        assert!(!text(&quiet).contains("is not a setting"), "{}", text(&quiet));
    }
    let report = text(&bornite(&folder, &["doctor"], &unknown[..1]));
    assert_eq!(report.matches("BORNITE_LIBARY_PATH is not a setting").count(), 1, "{report}");
}

#[test]
fn caches_are_counted_and_cleared() {
    let folder = scratch("caches");
    let tune = ["kernel", "tune", "--template", "matmul", "--tile", "4,8", "--device", "cpu", "--json"];
    let first = json(&bornite(&folder, &tune, &[]));
    assert_eq!(first["measured"], true);
    assert_eq!(first["record"]["trials"].as_array().unwrap().len(), 2);
    assert_eq!(json(&bornite(&folder, &tune, &[]))["measured"], false);
    let again = json(&bornite(&folder, &[&tune[..], &["--again"]].concat(), &[]));
    assert_eq!(again["measured"], true);
    let stats = json(&bornite(&folder, &["cache", "stats", "--json", "--list"], &[]));
    assert_eq!((&stats["tuning"]["entries"], &stats["kernels"]["entries"]), (&1.into(), &0.into()));
    assert_eq!(stats["tuning"]["list"][0]["chosen"], again["record"]["chosen"]);
    let cleared = json(&bornite(&folder, &["cache", "clear", "--kernels", "--json"], &[]));
    assert_eq!(cleared, serde_json::json!({"kernels_removed": 0, "tuning_removed": null}));
    let cleared = json(&bornite(&folder, &["cache", "clear", "--json"], &[]));
    assert_eq!(cleared, serde_json::json!({"kernels_removed": 0, "tuning_removed": 1}));
    let off = bornite(&folder, &["cache", "clear"], &[("BORNITE_CACHE", "off")]);
    assert_eq!(off.status.code(), Some(1));
    assert!(text(&off).contains("error: kernel cache: disabled by BORNITE_CACHE=off"));
    // Without a folder tuning still works, and says that nothing is kept.
    let output = bornite(&folder, &tune[..8], &[("BORNITE_CACHE", "off")]);
    assert!(output.status.success() && text(&output).contains("disabled by BORNITE_CACHE=off"), "{}", text(&output));
}

#[test]
fn kernels_and_blocks_of_a_file_are_tuned() {
    let folder = scratch("tuned-file");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels/scale.cu");
    let call =
        ["--dim", "1000", "--arg", "x=range:1000", "--arg", "by=0.5", "--arg", "n=1000", "--device", "cpu", "--json"];
    let two = ["--kernel", "scale<float,1>", "--kernel", "scale<float,2>"];
    let all = [&["kernel", "tune", file][..], &two, &["--blocks", "64,128"], &call].concat();
    let found = json(&bornite(&folder, &all, &[]));
    let trials = found["record"]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 4, "{found}");
    assert!(trials.iter().all(|trial| trial["outcome"].get("timed").is_some()), "{found}");
    assert_eq!(json(&bornite(&folder, &all, &[]))["measured"], false);
    // What was found of some kernels says nothing of others.
    let others = ["--kernel", "scale<float,1>", "--kernel", "scale<float,4>"];
    let others = [&["kernel", "tune", file][..], &others, &["--blocks", "64,128"], &call].concat();
    assert_eq!(json(&bornite(&folder, &others, &[]))["measured"], true);
    let alone = [&["kernel", "tune", file][..], &two[..2], &call].concat();
    assert!(text(&bornite(&folder, &alone, &[])).contains("nothing to tune"));
    let other = [&["kernel", "tune", file, "--kernel", "scale<double,1>"][..], &two, &call].concat();
    assert!(text(&bornite(&folder, &other, &[])).contains("have different parameters"));
}

#[test]
fn processes_that_tune_at_once_lose_nothing() {
    let folder = scratch("processes");
    std::thread::scope(|scope| {
        for shape in ["4x5x6", "5x6x7", "6x7x8", "4x5x6", "5x6x7", "6x7x8"] {
            let folder = &folder;
            scope.spawn(move || {
                let tune =
                    ["kernel", "tune", "--template", "matmul", "--tile", "2,4", "--device", "cpu", "--shape", shape];
                let output = bornite(folder, &tune, &[]);
                assert!(output.status.success(), "{}", text(&output));
            });
        }
    });
    let stats = json(&bornite(&folder, &["cache", "stats", "--list", "--json"], &[]));
    assert_eq!(stats["tuning"]["list"].as_array().unwrap().len(), 3, "{stats}");
    assert_eq!(std::fs::read_dir(folder.join("tuning")).unwrap().count(), 3, "no stray files");
}

#[test]
fn the_log_says_as_much_as_it_is_asked_to() {
    let folder = scratch("log");
    let run = |env: &[(&str, &str)]| {
        let output = bornite(&folder, &["kernel", "bench", "fill", "--quick", "--device", "cpu"], env);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(run(&[]), "");
    assert_eq!(run(&[("BORNITE_LOG", "info")]), "");
    assert!(run(&[("BORNITE_LOG", "debug")]).contains("bornite debug: kernel 'fill' is ready on cpu (machine code)"));
}

/// Needs NVRTC, which `scripts/test` provides by this variable. Run by `optional.rs`.
#[allow(dead_code)]
pub fn caches_are_warmed_without_a_gpu() -> Result<(), String> {
    let libraries = std::env::var("BORNITE_LIBRARY_PATH").ok().filter(|_| bornite_cuda::nvrtc_version().is_ok());
    let libraries = libraries.ok_or("BORNITE_LIBRARY_PATH names no folder with NVRTC")?;
    let folder = scratch("warm");
    let env = [("BORNITE_LIBRARY_PATH", libraries.as_str()), ("BORNITE_LOG", "info")];
    let warm = ["cache", "warm", "--arch", "sm_80,sm_90", "--json"];
    let output = bornite(&folder, &warm, &env);
    let first = json(&output);
    assert_eq!(
        (&first["compiled"], &first["found"], &first["failed"]),
        (&28.into(), &0.into(), &serde_json::json!([]))
    );
    assert!(text(&output).contains("bornite info: compiled kernel 'matmul' for sm_90"), "{}", text(&output));
    let again = json(&bornite(&folder, &warm, &env));
    assert_eq!((&again["compiled"], &again["found"]), (&0.into(), &28.into()));
    let stats = json(&bornite(&folder, &["cache", "stats", "--json"], &[]));
    assert_eq!(stats["kernels"]["entries"], 28);
    let doctor = json(&bornite(&folder, &["doctor", "--json"], &env));
    assert!(doctor["compiled"]["bytes"].as_u64().unwrap() > 1000, "{doctor}");
    let bad = bornite(&folder, &["cache", "warm", "--arch", "sm_1"], &env);
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad).contains("failed to compile kernel 'fill' for sm_1"), "{}", text(&bad));
    assert_eq!(json(&bornite(&folder, &["cache", "clear", "--json"], &[]))["kernels_removed"], 28);
    Ok(())
}

#[test]
fn kernels_run_on_devices_as_on_the_interpreter() {
    let folder = scratch("run");
    for template in ["fill", "axpy", "stencil", "conv2d", "elementwise", "softmax", "matmul", "histogram"] {
        let run = |device: &str| {
            json(&bornite(&folder, &["kernel", "run", "--template", template, "--device", device, "--json"], &[]))
        };
        let (cpu, judge) = (run("cpu"), run("interpreter"));
        assert_eq!((&cpu["outputs"], &cpu["device"]), (&judge["outputs"], &"cpu".into()), "{template}");
    }
    let shaped = ["kernel", "run", "--template", "matmul", "--shape", "2x3x4", "--tile", "2", "--json"];
    let output = json(&bornite(&folder, &shaped, &[]));
    // [[0,1,2],[3,4,5]] by [[0,1,2,3],[4,5,6,0],[1,2,3,4]], all modulo 7.
    assert_eq!(output["outputs"][0]["first"], serde_json::json!([6.0, 9.0, 12.0, 8.0, 21.0, 33.0, 45.0, 29.0]));
}

#[test]
fn kernels_are_timed() {
    let folder = scratch("bench");
    let bench =
        |args: &[&str]| bornite(&folder, &[&["kernel", "bench", "--quick", "--device", "cpu"], args].concat(), &[]);
    let axpy = json(&bench(&["axpy", "--shape", "1024", "--json"]));
    assert_eq!(
        (&axpy["bytes"], &axpy["flops"], &axpy["engine"]),
        (&(3 * 4096).into(), &2048.into(), &"machine code".into())
    );
    assert!(axpy["median_ms"].as_f64().unwrap() > 0.0 && axpy["gflop_s"].as_f64().unwrap() > 0.0);
    for name in ["gelu", "exp", "add", "fma", "elementwise"] {
        let output = bench(&[name, "--dtype", "f64"]);
        assert!(output.status.success() && text(&output).contains("GB/s"), "{name}: {}", text(&output));
    }
    let block = bench(&["softmax", "--shape", "4x64"]);
    assert!(text(&block).contains("in the checking interpreter"), "{}", text(&block));
    let print =
        bornite(&folder, &["kernel", "bench", "fill", "--quick", "--device", "cpu"], &[("BORNITE_PROFILE", "print")]);
    assert!(
        String::from_utf8_lossy(&print.stderr).contains("fill: 0."),
        "{}",
        text(&print).lines().next().unwrap_or_default()
    );
}

#[test]
fn wrong_arguments_are_explained() {
    let folder = scratch("wrong");
    let cases: [(&[&str], i32, &str); 15] = [
        (&["kernel", "bench", "nothing", "--device", "cpu"], 1, "unknown template 'nothing'; the templates are fill"),
        (&["kernel", "bench", "nothing", "--device", "cpu"], 1, "there is no operation of that name either"),
        (&["kernel", "bench", "exp", "--device", "cpu", "--tile", "4"], 1, "'exp' has no tile size; remove --tile"),
        (&["kernel", "bench", "exp", "--device", "cpu", "--dtype", "i32"], 1, "exp"),
        (&["kernel", "bench", "axpy", "--device", "tpu"], 2, "'tpu' is not a device"),
        (&["kernel", "bench", "axpy", "--device", "cpu", "--shape", "3y4"], 2, "sizes separated by x"),
        (&["kernel", "bench", "axpy", "--device", "cpu", "--shape", "0"], 2, "sizes separated by x"),
        (
            &["kernel", "bench", "axpy", "--device", "cpu", "--shape", "3x4"],
            1,
            "template 'axpy' has the sizes n; write for example --shape 1000",
        ),
        (&["kernel", "bench", "axpy", "--device", "cpu", "--shape", "99999999999"], 1, "more than 2147483647 elements"),
        (&["kernel", "bench", "warp_sum", "--device", "cpu", "--shape", "33"], 1, "33, not a multiple of 32"),
        (
            &["kernel", "bench", "softmax", "--device", "cpu", "--tile", "0"],
            1,
            "--tile must be from 1 to 1024; found 0",
        ),
        (&["kernel", "tune", "--template", "axpy", "--device", "cpu"], 1, "no tile size is usable"),
        (
            &["kernel", "run", "--template", "fill", "--device", "cpu", "--sanitize"],
            1,
            "--sanitize runs in the interpreter",
        ),
        (&["cache", "clear", "--kernels", "--tuning"], 2, "cannot be used with"),
        (&["cache", "worm"], 2, "warm"),
    ];
    for (args, code, expected) in cases {
        let output = bornite(&folder, args, &[("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc")]);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(expected), "{args:?} does not say {expected:?}: {}", text(&output));
    }
}
