//! Pages of `bornite report` and `bornite bench --html`, and `bornite bench --baseline`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn bornite(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports-cache"));
    let output = command.env("BORNITE_DEVICE", "cpu").args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("reports-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Markup, as the name of a folder, a setting and a sample.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

/// A run's folder as `bornite train` writes it, after this many steps.
fn write_run(folder: &Path, steps: u64, lr: f64) {
    std::fs::create_dir_all(folder).unwrap();
    let mut metrics = String::new();
    for step in 1..=steps {
        let loss = if step == 3 { "null".into() } else { format!("{}", 1.0 + 5.0 / step as f64) };
        let validation = if step % 100 == 0 { format!(",\"validation_loss\":{}", 1.5 + lr) } else { String::new() };
        let _ = writeln!(
            metrics,
            "{{\"step\":{step},\"loss\":{loss},\"lr\":{lr},\"grad_norm\":1.5,\"tokens_per_second\":1000.0,\
             \"elapsed_seconds\":{step},\"host_ms\":1,\"data_wait_ms\":0.5,\"memory_bytes\":7,\"skipped\":{}{validation}}}",
            step == 3
        );
    }
    metrics += "{\"step\":";
    std::fs::write(folder.join("metrics.jsonl"), metrics).unwrap();
    let settings = format!("[schedule]\nlr = {lr}\n[model]\nname = '''{HOSTILE}'''\n[train]\nbatch = 4\n");
    std::fs::write(folder.join("run.toml"), settings).unwrap();
    std::fs::write(folder.join("samples.txt"), format!("step 100\n{HOSTILE}\n")).unwrap();
}

/// Writes a page that compares two runs.
fn compared(folder: &Path, steps: u64) -> PathBuf {
    let (a, b, page) = (folder.join(HOSTILE), folder.join("other"), folder.join("page.html"));
    write_run(&a, steps, 0.001);
    write_run(&b, steps / 2, 0.003);
    let output = bornite(&["report", a.to_str().unwrap(), b.to_str().unwrap(), "--out", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", errors(&output));
    page
}

#[test]
fn runs_are_compared_on_one_page() {
    let folder = scratch("runs");
    let html = std::fs::read_to_string(compared(&folder, 20_000)).unwrap();
    assert!(html.len() < 500_000, "{} bytes", html.len());
    assert!(!html.contains("<img") && html.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(!html.contains("http://") && !html.contains("https://"));
    // Both runs in the loss charts, with validation; only the setting that differs; both samples.
    for (part, count) in [("other training", 4), ("other validation", 4), ("<td>schedule.lr</td>", 1), ("<pre>", 2)] {
        assert_eq!(html.matches(part).count(), count, "{part}");
    }
    assert!(!html.contains("train.batch") && html.contains(">20000<") && html.contains(">10000<"));
    // One run: all settings, in the run's folder.
    let run = folder.join("other");
    let output = bornite(&["report", run.to_str().unwrap()]);
    assert!(output.status.success(), "{}", errors(&output));
    let html = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(html.contains("<td>train.batch</td>") && html.contains("Run other"), "{html}");
}

#[test]
fn folders_that_are_no_runs_are_errors() {
    let folder = scratch("no-runs");
    let name = folder.to_str().unwrap();
    let output = bornite(&["report", name]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("has no metrics of training steps"), "{}", errors(&output));
    write_run(&folder, 10, 0.1);
    std::fs::write(folder.join("run.toml"), "[broken").unwrap();
    assert!(errors(&bornite(&["report", name])).contains("run.toml"));
    write_run(&folder, 10, 0.1);
    let output = bornite(&["report", name, "--out", "/no/such/folder/page.html"]);
    assert!(
        output.status.code() == Some(1) && errors(&output).contains("/no/such/folder/page.html"),
        "{}",
        errors(&output)
    );
    assert_eq!(bornite(&["report"]).status.code(), Some(2));
    let many: Vec<&str> = std::iter::once("report").chain([name; 9]).collect();
    assert!(errors(&bornite(&many)).contains("up to 8 runs"));
}

/// Multiplies the times of a report's rows.
fn scaled(report: &Path, to: &Path, factor: f64) {
    let mut json: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    for row in json["rows"].as_array_mut().unwrap() {
        for key in ["median_ms", "min_ms", "max_ms"] {
            row[key] = (row[key].as_f64().unwrap() * factor).into();
        }
    }
    std::fs::write(to, json.to_string()).unwrap();
}

#[test]
fn slower_rows_are_caught_by_the_baseline() {
    let folder = scratch("baseline");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let bench = ["bench", "vector", "--quick", "--filter", "add_f32_1000", "--iterations", "5", "--warmup", "1"];
    let output = bornite(&[&bench[..], &["--out", &path("now.json"), "--html", &path("now.html")]].concat());
    assert!(output.status.success(), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&std::fs::read(path("now.json")).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &report["config"]["warmup"], &report["config"]["samples"]), (3, &1.into(), &5.into()));
    for row in rows {
        assert_eq!(row["accuracy"]["passed"], true, "{row}");
        assert!(row["accuracy"]["error"].as_f64().unwrap() < 1e-6 && row["naive"]["speedup"].as_f64().unwrap() > 0.0);
    }
    let html = std::fs::read_to_string(path("now.html")).unwrap();
    for part in ["Roofline", "Latency against size", "Speed-up over simple loops", "add_f32_100000"] {
        assert!(html.contains(part), "{part}");
    }
    // An earlier report that was ten times as fast, and one that was ten times as slow.
    for (factor, slower) in [(0.1, true), (10.0, false)] {
        scaled(Path::new(&path("now.json")), Path::new(&path("then.json")), factor);
        let output = bornite(&[&bench[..], &["--baseline", &path("then.json"), "--max-slowdown", "50"]].concat());
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(i32::from(slower)), "{table}{}", errors(&output));
        assert_eq!(table.matches("SLOWER").count(), if slower { 3 } else { 0 }, "{table}");
        assert_eq!(errors(&output).contains("3 rows took over 50 % longer"), slower, "{}", errors(&output));
    }
    // Reports of other machines and files that are no reports.
    let mut other: Value = report.clone();
    other["machine"]["cpu"] = "another".into();
    std::fs::write(path("other.json"), other.to_string()).unwrap();
    assert!(
        errors(&bornite(&[&bench[..], &["--baseline", &path("other.json")]].concat()))
            .contains("of different machines")
    );
    assert!(
        errors(&bornite(&[&bench[..], &["--baseline", &path("now.html")]].concat())).contains("not a bench report")
    );
}

#[test]
fn inaccurate_rows_fail() {
    let bench = ["bench", "matrix", "--quick", "--filter", "matmul_f32_128", "--threshold"];
    assert_eq!(bornite(&[&bench[..], &["1e-4"]].concat()).status.code(), Some(0));
    let output = bornite(&[&bench[..], &["1e-12"]].concat());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && table.contains("FAILED"), "{table}");
    assert!(errors(&output).contains("the results of 1 row differ from f64"), "{}", errors(&output));
}

#[test]
fn every_suite_has_rows() {
    for (suite, row) in [
        ("vector", "sum_f32_1000"),
        ("matrix", "transpose_copy_f32_128"),
        ("ml", "softmax_f32_1x10000"),
        ("conv", "conv3x3_f32_1x32x64x64->64"),
        ("attention", "attention_bf16_1x2x64x32_causal"),
        ("memory", "fill_bytes_4096"),
        ("launch", "launch_traced_add"),
        ("cpu", "mlp_step_f32_96x32"),
        ("kernels", "kernel_axpy_f32_1000"),
        ("synth", "synth_generate_row"),
    ] {
        let output = bornite(&["bench", suite, "--quick", "--json", "--iterations", "3", "--filter", row]);
        assert!(output.status.success(), "{suite}: {}", errors(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["rows"][0]["name"], row, "{suite}");
    }
}

/// Runs a page in a browser with a script appended to it, and returns the document after it, and what the browser logged.
#[allow(dead_code)] // used by `optional.rs`
fn browse(page: &Path, width: u32, script: &str) -> Result<(String, String), String> {
    let name = format!("{}-{width}", page.file_stem().unwrap().to_string_lossy());
    let profile = scratch(&format!("browser-{name}"));
    let copy = profile.join("page.html");
    let html = std::fs::read_to_string(page).unwrap();
    std::fs::write(&copy, html.replace("</body>", &format!("<script>{script}</script></body>"))).unwrap();
    let chromium = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()));
    let chromium = chromium.ok_or("no Chromium was found; install it to render the pages")?;
    let output = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"])
        .args(["--enable-logging=stderr", "--hide-scrollbars"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.join("profile").display()))
        .arg(format!("file://{}", copy.display()))
        .output()
        .map_err(|error| format!("{chromium} cannot be run: {error}"))?;
    let log = String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.contains("CONSOLE")).collect();
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), log))
}

/// Pages in a browser: no messages on the console, tables sort, nothing is wider than a phone. Run by `optional.rs`.
#[allow(dead_code)]
pub fn pages_render() -> Result<(), String> {
    let folder = scratch("render");
    let runs = compared(&folder, 500);
    let bench = folder.join("bench.html");
    let args = ["bench", "vector", "--quick", "--filter", "add_f32", "--html", bench.to_str().unwrap()];
    assert!(bornite(&args).status.success());
    let script = "
        const table = document.querySelector('table.sortable'), button = table.querySelectorAll('th button')[1];
        button.click();
        const first = () => table.tBodies[0].rows[0].cells[1].textContent;
        const ascending = first();
        button.click();
        const results = {
            wide: document.documentElement.scrollWidth > innerWidth,
            sorted: ascending + '/' + first() + '/' + table.querySelectorAll('th')[1].getAttribute('aria-sort'),
            images: document.images.length,
            unnamed: [...document.querySelectorAll('svg')].filter(svg => !svg.getAttribute('aria-label')).length,
        };
        document.body.dataset.results = JSON.stringify(results);";
    for (page, sorted) in [(&runs, "250/500/descending"), (&bench, "cpu/cpu/descending")] {
        for width in [500, 1200] {
            let (dom, log) = browse(page, width, script)?;
            assert_eq!(log, "", "{}", page.display());
            let results = dom.split("data-results=\"").nth(1).and_then(|rest| rest.split('"').next());
            let results = results.unwrap_or_else(|| panic!("the script did not run: {dom}")).replace("&quot;", "\"");
            let expected = format!("{{\"wide\":false,\"sorted\":\"{sorted}\",\"images\":0,\"unnamed\":0}}");
            assert_eq!(results, expected, "{} at {width}", page.display());
        }
    }
    Ok(())
}
