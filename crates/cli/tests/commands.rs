//! The command on machines without a GPU, with missing or broken libraries, and with wrong arguments.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bornite(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    // Without the settings and the cache of the user who runs the tests.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-cache"));
    let output = command.args(args).envs(env.iter().copied()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?} with {env:?}: {errors}");
    output
}

fn text(output: &Output) -> (String, String) {
    let read = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (read(&output.stdout), read(&output.stderr))
}

/// A new folder for a test.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

const BENCH: [&str; 4] = ["bench", "--quick", "--filter", "add_f32_1000"];

#[test]
fn every_command_works_without_libraries_and_says_what_is_missing() {
    for hidden in ["cuda", "nvrtc", "cuda,nvrtc"] {
        let env = [("BORNITE_HIDE_LIBRARIES", hidden)];
        for args in [&["devices"][..], &["doctor"]] {
            let output = bornite(args, &env);
            let (out, err) = text(&output);
            assert!(output.status.success(), "{args:?} without {hidden}: {err}");
            let all = out + &err;
            let missing = if hidden.starts_with("cuda") { "libcuda.so.1 was not found" } else { "was not found" };
            assert!(all.contains(missing), "{args:?} without {hidden}: {all}");
            assert!(all.contains("BORNITE_LIBRARY_PATH") && all.contains("nstall"), "{args:?} says no remedy: {all}");
        }
        // A computation says so in one short line.
        let output = bornite(&BENCH, &env);
        let (_, err) = text(&output);
        assert!(output.status.success(), "without {hidden}: {err}");
        let notes: Vec<&str> = err.lines().filter(|line| line.contains("using the CPU")).collect();
        assert!(notes.len() == 1 && notes[0].len() < 100, "{err}");
        assert!(notes[0].ends_with("; using the CPU (details: bornite doctor)."), "{err}");
        let unusable = !hidden.starts_with("cuda") && notes[0].starts_with("NVIDIA GPU not usable;");
        assert!(unusable || notes[0].starts_with("No NVIDIA GPU found;"), "{err}");
        let output = bornite(&["bench", "--quick", "--device", "cuda"], &env);
        let (_, err) = text(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(err.starts_with("error: lib") && err.contains("was not found"), "{err}");
    }
}

#[test]
fn broken_library_folders_are_named() {
    let (_, err) = text(&bornite(&["bench", "--device", "cuda"], &[("BORNITE_LIBRARY_PATH", "/no/such/folder")]));
    assert!(err.contains("BORNITE_LIBRARY_PATH=/no/such/folder: /no/such/folder is not a folder"), "{err}");
    let folder = scratch("junk-libraries");
    for file in ["libcuda.so.1", "libnvrtc.so.13"] {
        std::fs::write(folder.join(file), "not a library").unwrap();
    }
    let env = [("BORNITE_LIBRARY_PATH", folder.to_str().unwrap())];
    let output = bornite(&["doctor"], &env);
    let (out, _) = text(&output);
    assert!(output.status.success(), "a machine without a usable GPU is healthy: {out}");
    let json = text(&bornite(&["doctor", "--json"], &env)).0;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    for library in report["libraries"].as_array().unwrap() {
        // Where the machine has the real one, it is found behind the broken file.
        let error = library["error"].as_str().unwrap_or("junk-libraries");
        assert!(error.contains("junk-libraries"), "{library}");
    }
}

#[test]
fn json_is_json() {
    let hidden = [("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc")];
    let parse = |args: &[&str]| -> serde_json::Value {
        let output = bornite(args, &hidden);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
    };
    assert_eq!(parse(&["devices", "--json"])["auto"], "cpu");
    assert_eq!(parse(&["doctor", "--json"])["healthy"], true);
    let report = parse(&[&BENCH[..], &["--json"]].concat());
    assert_eq!(report["rows"][0]["name"], "add_f32_1000");
    assert!(report["rows"][0]["median_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn wrong_arguments_are_explained() {
    let folder = scratch("wrong-arguments");
    let bad_peer = folder.join("peer.jsonl");
    std::fs::write(&bad_peer, "{\"op\": \"add\"}\n").unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["bench", "--device", "tpu"], 2, "'tpu' is not a device; use cpu, cpu:N, cuda"),
        (&["bench", "--device", "cuda:99"], 1, "was not found"),
        (&["bench", "--quick", "--device", "cpu", "--filter", "nothing"], 1, "there are add_f32_1000"),
        (&["bench", "--device", "cpu", "--out", "/no/such/folder/x.json"], 1, "/no/such/folder/x.json: No such file"),
        (&["bench", "--device", "cpu", "--peer", "/no/such/peer"], 1, "No such file"),
        (&["bench", "--device", "cpu", "--peer", bad_peer.to_str().unwrap()], 1, "peer.jsonl"),
        (&["bench", "--devise", "cpu"], 2, "--device"),
        (&["banch"], 2, "bench"),
        (&[], 2, "Usage"),
    ];
    for (args, code, expected) in cases {
        let output = bornite(args, &[("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc")]);
        let (_, err) = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?} does not say {expected:?}: {err}");
    }
}

#[test]
fn reports_are_replaced_atomically() {
    let folder = scratch("reports");
    let (report, peer) = (folder.join("report.json"), folder.join("peer.jsonl"));
    let (report_path, peer_path) = (report.to_str().unwrap(), peer.to_str().unwrap());
    let bench = [&BENCH[..], &["--device", "cpu", "--out", report_path]].concat();
    std::fs::write(&report, "an earlier report").unwrap();
    assert_eq!(bornite(&[&bench[..], &["--filter", "nothing"]].concat(), &[]).status.code(), Some(2), "given twice");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "an earlier report");
    // Figures of another machine: refused, but what was measured is not lost.
    let elsewhere =
        "{\"machine\": {\"cpu\": \"abacus\", \"device\": \"cpu\"}}\n{\"op\": \"add_f32_1000\", \"ms\": 1.0}\n";
    std::fs::write(&peer, elsewhere).unwrap();
    let output = bornite(&[&bench[..], &["--peer", peer_path]].concat(), &[]);
    let (out, err) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("abacus") && out.contains("add_f32_1000"), "{out}{err}");
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(written["rows"][0]["name"], "add_f32_1000");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "no stray files");
}

#[test]
fn kernels_are_listed_emitted_checked_and_run() {
    let folder = scratch("kernels");
    let (list, _) = text(&bornite(&["kernel", "list", "--json"], &[]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    for template in list.as_array().unwrap() {
        let name = template["name"].as_str().unwrap();
        let (ir, err) = text(&bornite(&["kernel", "emit", "--template", name, "--target", "ir"], &[]));
        assert!(ir.starts_with("bornite-ir 3\n"), "{name}: {err}");
        let file = folder.join(format!("{name}.bir"));
        std::fs::write(&file, &ir).unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(text(&bornite(&["kernel", "emit", path, "--target", "ir"], &[])).0, ir, "written and read back");
        let (cuda, _) = text(&bornite(&["kernel", "emit", path, "--target", "cuda"], &[]));
        assert!(cuda.contains("extern \"C\" __global__ void"), "{cuda}");
        let checked = bornite(&["kernel", "check", path], &[]);
        assert!(checked.status.success() && text(&checked).0.contains("no errors found"));
        let run = bornite(&["kernel", "run", path, "--sanitize"], &[]);
        assert!(
            run.status.success() && text(&run).0.contains("no errors found in either order"),
            "{name}: {:?}",
            text(&run)
        );
    }
    // A missing barrier is found, with its line.
    let sum = std::fs::read_to_string(folder.join("block_sum.bir")).unwrap();
    let racy = folder.join("racy.bir");
    std::fs::write(&racy, sum.replacen("  barrier\n", "", 1)).unwrap();
    let racy = racy.to_str().unwrap();
    let output = bornite(&["kernel", "run", racy, "--sanitize", "--json"], &[]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["ok"]), (Some(1), &serde_json::json!(false)));
    assert!(report["error"].as_str().unwrap().contains("race on 'tile["), "{report}");
    assert!(report["line"].as_u64().unwrap() > 5, "{report}");
    // Mistakes.
    let bad = folder.join("bad.bir");
    std::fs::write(&bad, sum.replacen("add(", "odd(", 1)).unwrap();
    let bad = bad.to_str().unwrap();
    let checked = bornite(&["kernel", "check", bad], &[]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked).0.contains("there is no operation 'odd'") && text(&checked).0.contains('^'));
    // Several kernels in a file, and one of them by name.
    let many = folder.join("many.bir");
    let fill = std::fs::read_to_string(folder.join("fill.bir")).unwrap();
    std::fs::write(&many, format!("{sum}\n{fill}")).unwrap();
    let many = many.to_str().unwrap();
    let (out, _) = text(&bornite(&["kernel", "emit", many, "--kernel", "fill", "--target", "ir"], &[]));
    assert_eq!(out, fill);
    let (out, _) = text(&bornite(&["kernel", "check", many, "--json"], &[]));
    let names: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&names[0]["kernel"], &names[1]["kernel"]), (&"block_sum".into(), &"fill".into()));
    // Types, tiles, expressions, C++.
    let (out, _) = text(&bornite(&["kernel", "emit", "--template", "matmul", "--dtype", "f64", "--tile", "4"], &[]));
    assert!(out.contains("__shared__ double tile_a[4][4];"), "{out}");
    let (out, _) = text(&bornite(&["kernel", "emit", "--expr", "gelu(x)*y", "--target", "cpp"], &[]));
    assert!(out.contains("for (long long task_index = 0; task_index < 1000; ++task_index)"), "{out}");
    let (out, _) = text(&bornite(&["kernel", "run", "--expr", "x * 2 + 1", "--dtype", "i32"], &[]));
    assert_eq!(out, "out: i32, first [1, 3, 5, 7, 9, 11, 13, 1]\n");
    let cases: [(&[&str], i32, &str); 16] = [
        (&["kernel", "check", "/dev/zero"], 1, "/dev/zero is larger than 4 MiB; split it into several files"),
        (&["kernel", "emit", many], 1, "has several kernels; choose one with --kernel: block_sum, fill"),
        (&["kernel", "emit", many, "--kernel", "fall"], 1, "has no kernel 'fall'; it has block_sum, fill"),
        (&["kernel", "emit", "--expr", "glue(x)"], 1, "did you mean 'gelu'?"),
        (&["kernel", "emit", "--template", "fill", "--tile", "4"], 1, "has no tile size; remove --tile"),
        (
            &["kernel", "emit", "--template", "matmul", "--tile", "100"],
            1,
            "a tile of 100 needs 10000 threads per block; the largest tile is 32",
        ),
        (&["kernel", "emit", "--template", "matmul", "--dtype", "f8"], 2, "the types are bool, i8"),
        (&["kernel", "emit", "--template", "matmul", "--target", "cpp"], 1, "cannot be printed as a C++ loop"),
        (&["kernel", "emit", "--template", "fill", "--target", "ptx"], 1, "was not found"),
        (&["kernel", "emit", "--template", "fill", "--target", "sass"], 1, "was not found"),
        (&["kernel", "emit", "--template", "nothing"], 1, "unknown template 'nothing'; the templates are fill"),
        (&["kernel", "emit"], 2, "required"),
        (&["kernel", "emit", "/no/such/file"], 1, "No such file"),
        (&["kernel", "emit", "--template", "fill", "--target", "cubin"], 1, "was not found"),
        (&["kernel", "emit", "--template", "fill", "--out", "/no/such/folder/x"], 1, "/no/such/folder/x"),
        (&["kernel", "run", "--template", "matmul", "--max-statements", "3"], 1, "still running after 3 statements"),
    ];
    for (args, code, expected) in cases {
        let output = bornite(args, &[("BORNITE_HIDE_LIBRARIES", "nvrtc")]);
        let (out, err) = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
        assert!((out + &err).contains(expected), "{args:?}");
    }
}

#[test]
fn the_environment_chooses_the_device() {
    let env = [("BORNITE_DEVICE", "interpreter")];
    let (out, _) = text(&bornite(&["bench", "--quick", "--filter", "add_f32_1000", "--json"], &env));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["rows"][0]["device"], "interpreter");
    let (_, err) = text(&bornite(&BENCH, &[("BORNITE_DEVICE", "abacus")]));
    assert!(err.contains("'abacus' is not a device"), "{err}");
}

#[test]
fn attention_is_timed() {
    let bench = ["bench", "attention", "--quick", "--device", "cpu", "--json", "--filter"];
    let (out, err) = text(&bornite(&[&bench[..], &["fwd_bwd"]].concat(), &[]));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let names: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["attention_fwd_bwd_bf16_1x2x64x32_causal", "attention_fwd_bwd_bf16_1x2x64x32"]);
    let (_, err) = text(&bornite(&[&bench[..], &["nothing"]].concat(), &[]));
    assert!(err.contains("no row's name contains 'nothing'; there are attention_bf16_1x2x64x32_causal"), "{err}");
}

#[test]
fn training_steps_are_timed() {
    let tiny = ["bench", "gpt2", "--model", "tiny", "--vocab", "300", "--context", "17", "--batch", "3"];
    let more = ["--quick", "--steps", "3", "--json", "--device", "cpu"];
    let (out, err) = text(&bornite(&[&tiny[..], &more].concat(), &[]));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let row = &report["rows"][0];
    assert_eq!(row["name"], "tiny_v300_f32_train_compiled_3x17");
    assert_eq!(row["samples"], 3);
    let training = &row["training"];
    for figure in ["tokens_per_second", "first_step_seconds", "host_ms"] {
        assert!(training[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {row}");
    }
    assert!(training["data_wait_ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{row}");
    assert!(training["gpu_idle_share"].is_null() && training["peak_bytes"].is_null(), "a CPU has none: {row}");
    let parts = training["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["name"] == "matmul_f32"), "{row}");
    let shares: f64 = parts.iter().filter_map(|part| part["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{row}");

    for (arguments, expected) in [
        (&["--vocab", "256"][..], "--vocab is 256; it must be at least 257"),
        (&["--steps", "0"], "--steps is 0; it must be at least 1"),
        (&["--model", "gpt9"], "there is no model 'gpt9'"),
        (&["--precision", "f8"], "train.precision"),
        (&["--context", "0"], "context"),
        (&["--batch", "99999999999"], "batch"),
    ] {
        let model = if arguments[0] == "--model" { &[][..] } else { &["--model", "tiny"] };
        let output = bornite(&[&["bench", "gpt2", "--device", "cpu"], model, arguments].concat(), &[]);
        let (_, err) = text(&output);
        assert!(
            !output.status.success() && err.contains(expected) && !err.contains("panicked"),
            "{arguments:?}: {err}"
        );
    }
}

/// `docs/cli.md` consists of the help texts. `BLESS=1 cargo test -p bornite-cli` rewrites it.
#[test]
fn the_manual_is_the_help() {
    let mut manual = String::from(
        "# The command `bornite`\n\nWritten from the help texts by a test of `bornite-cli`; do not edit.\n",
    );
    let kernel =
        ["list", "emit", "check", "run", "grad", "gradcheck", "analyze", "bench", "tune"].map(|name| ["kernel", name]);
    let cache = ["stats", "clear", "warm"].map(|name| ["cache", name]);
    let model = ["import", "export"].map(|name| ["model", name]);
    let data = ["make", "verify", "stats", "show", "ingest"].map(|name| ["data", name]);
    let commands = [&[][..], &["demo"], &["train"], &["generate"], &["eval"], &["report"], &["model"]].into_iter();
    let commands = commands.chain([&["devices"][..], &["doctor"], &["bench"], &["cache"], &["data"], &["kernel"]]);
    let nested = model.iter().chain(&cache).chain(&data).chain(&kernel).map(|command| &command[..]);
    for command in commands.chain(nested) {
        let (help, _) = text(&bornite(&[command, &["--help"]].concat(), &[("COLUMNS", "100")]));
        let title = ["bornite", &command.join(" ")].join(" ");
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        manual += &format!("\n## `{}`\n\n```text\n{}\n```\n", title.trim(), lines.join("\n"));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &manual).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), manual, "run BLESS=1 cargo test -p bornite-cli");
}
