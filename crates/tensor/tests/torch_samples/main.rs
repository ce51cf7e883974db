//! Agreement with PyTorch on samples of its op database: those in `goldens/torch_samples.jsonl`,
//! and all supported ones if `scripts/torch_samples.py` has written them.

mod ops;
mod sample;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bornite::{Device, Tensor};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use ops::Call;
use sample::{Expected, Input, Outcome, input};

const KEPT: &str = include_str!("../goldens/torch_samples.jsonl");

/// Minimum number of ops with samples in each file.
const OPS: usize = 200;

/// Overrides the path of the file that the script writes.
const FILE: &str = "BORNITE_TEST_TORCH_SAMPLES";

/// Results of the samples of an op.
#[derive(Default)]
struct Row {
    passed: u64,
    failed: u64,
    /// Counts by reason.
    inexpressible: BTreeMap<String, u64>,
}

impl Row {
    fn not(&self) -> u64 {
        self.inexpressible.values().sum()
    }
}

/// Checks values and gradients of a sample.
fn check(line: &Value, device: Device) -> Outcome<()> {
    let inputs: Vec<Input> = line["in"].as_array().unwrap().iter().map(|value| input(value, device)).collect();
    let call = Call { op: line["op"].as_str().unwrap(), inputs: &inputs, args: &line["args"], device };
    let mut outs = call.run();
    let expected: Vec<Expected> = line["out"].as_array().unwrap().iter().map(Expected::new).collect();
    // Indices of equal elements are not in the file: PyTorch does not specify their order.
    if matches!(call.op, "sort" | "topk") {
        outs.truncate(expected.len());
    }
    if outs.len() != expected.len() {
        return Err(format!("{} results, PyTorch has {}", outs.len(), expected.len()));
    }
    for (n, (out, expected)) in outs.iter().zip(&expected).enumerate() {
        expected.compare(out).map_err(|why| format!("result {n} {why}"))?;
    }
    let Some(gradients) = line["grad"].as_array() else { return Ok(()) };
    let floats = |input: &Input| matches!(input, Input::Tensor(t) if t.dtype().is_ok_and(|dtype| dtype.is_float()));
    let wanted: Vec<&Tensor> = inputs.iter().filter(|input| floats(input)).map(Input::tensor).collect();
    assert_eq!(wanted.len(), gradients.len());
    let mut total = Tensor::zeros(&[], bornite::DType::F64, device);
    for (out, expected) in outs.iter().zip(&expected).filter(|(out, _)| out.dtype().is_ok_and(|d| d.is_float())) {
        let elements = expected.shape().iter().product::<usize>();
        let weights: Vec<f64> = (0..elements).map(|i| (5 * i % 11) as f64 / 8.0 - 0.5).collect();
        total += (out * Tensor::from_slice(&weights, expected.shape(), device)).sum(..);
    }
    for (n, (own, theirs)) in total.grad(&wanted).iter().zip(gradients).enumerate().filter(|(_, (_, t))| !t.is_null()) {
        Expected::new(theirs).compare(own).map_err(|why| format!("gradient {n} {why}"))?;
    }
    Ok(())
}

/// Message of a panic.
fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    format!("panics: {}", text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into())).unwrap_or_default())
}

/// Runs every line of a file and prints the results, per op if `each` is set.
fn run(text: &str, device: Device, each: bool) -> Result<(), Failed> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut failures = vec![];
    let mut version = String::new();
    for line in text.lines() {
        let sample: Value = serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))?;
        if let Some(made_by) = sample["version"].as_str() {
            version = made_by.into();
            continue;
        }
        let row = rows.entry(sample["torch"].as_str().unwrap().into()).or_default();
        if let Some(why) = sample["not"].as_str() {
            row.inexpressible.insert(why.into(), sample["count"].as_u64().unwrap());
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| check(&sample, device))).unwrap_or_else(|panic| Err(message(panic))) {
            Ok(()) => row.passed += 1,
            Err(why) => {
                row.failed += 1;
                failures.push(format!("{why}\n    {line}"));
            }
        }
    }
    if each {
        print!("{}", table(&rows));
    }
    let sum = |of: fn(&Row) -> u64| rows.values().map(of).sum::<u64>();
    let (passed, failed, not) = (sum(|row| row.passed), sum(|row| row.failed), sum(Row::not));
    let ops = rows.values().filter(|row| row.passed + row.failed > 0).count();
    let samples = passed + failed;
    println!(
        "PyTorch {version} on {device}: {samples} samples of {ops} ops: {passed} passed, {failed} failed; {not} cannot be \
         expressed"
    );
    if ops < OPS {
        failures.push(format!("samples of {ops} ops, there were at least {OPS}"));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// One line per op.
fn table(rows: &BTreeMap<String, Row>) -> String {
    let mut text = format!("{:48} {:>8} {:>8} {:>8} {:>8}  why not\n", "op", "samples", "passed", "failed", "not");
    for (name, row) in rows {
        let why: Vec<String> = row.inexpressible.iter().map(|(why, count)| format!("{count} {why}")).collect();
        let (passed, failed, not, why) = (row.passed, row.failed, row.not(), why.join(", "));
        let samples = passed + failed + not;
        writeln!(text, "{name:48} {samples:8} {passed:8} {failed:8} {not:8}  {why}").unwrap();
    }
    text
}

fn main() {
    let arguments = Arguments::from_args();
    let written = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/torch_samples.jsonl");
    let file = std::env::var_os(FILE).map_or_else(written, PathBuf::from);
    let cuda = Device::cuda(0);
    if let Err(why) = &cuda {
        println!(
            "skipped: samples of PyTorch on cuda, since {}",
            why.to_string().split(';').next().unwrap_or_default()
        );
    }
    if !file.exists() {
        println!(
            "skipped: all samples of PyTorch but a few, since there is no {}; see scripts/torch_samples.py",
            file.display()
        );
    }
    let mut trials = vec![];
    for (name, device) in [("interpreter", Ok(Device::Interpreter)), ("cpu", Ok(Device::cpu())), ("cuda", cuda)] {
        let (absent, there) = (device.is_err(), file.exists());
        let (kept, file) = (device.clone(), file.clone());
        let kept = move || run(KEPT, kept?, false);
        trials.push(Trial::test(format!("{name}::kept_samples"), kept).with_ignored_flag(absent));
        let all = move || run(&std::fs::read_to_string(file)?, device?, true);
        trials.push(Trial::test(format!("{name}::all_samples"), all).with_ignored_flag(absent || !there));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
