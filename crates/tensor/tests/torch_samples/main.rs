//! Agreement with PyTorch on the samples of its op test database: the few in `goldens/torch_samples.jsonl`, and all that
//! can be expressed where `scripts/torch_samples.py` has written them.

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

/// Of so many ops at least there are samples in either file.
const OPS: usize = 200;

/// Names another file than the one that the script writes.
const FILE: &str = "BORNITE_TEST_TORCH_SAMPLES";

/// What became of an op's samples.
#[derive(Default)]
struct Row {
    passed: usize,
    failed: usize,
    inexpressible: BTreeMap<String, u64>,
}

/// Nothing if values and gradients are PyTorch's.
fn check(line: &Value, device: Device) -> Outcome<()> {
    let inputs: Vec<Input> = line["in"].as_array().unwrap().iter().map(|value| input(value, device)).collect();
    let call = Call { op: line["op"].as_str().unwrap(), inputs: &inputs, args: &line["args"], device };
    let mut outs = call.run();
    let expected: Vec<Expected> = line["out"].as_array().unwrap().iter().map(Expected::new).collect();
    // Places among equal elements are not in the file: PyTorch leaves their order open.
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
        total = total + (out * Tensor::from_slice(&weights, expected.shape(), device)).sum(..);
    }
    for (n, (own, theirs)) in total.grad(&wanted).iter().zip(gradients).enumerate().filter(|(_, (_, t))| !t.is_null()) {
        Expected::new(theirs).compare(own).map_err(|why| format!("gradient {n} {why}"))?;
    }
    Ok(())
}

/// What a panic said.
fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    format!("panics: {}", text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into())).unwrap_or_default())
}

/// Runs every line of a file and says what became of them; of how many ops there must at least be some.
fn run(text: &str, ops: usize, device: Device) -> Result<(), Failed> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut failures = vec![];
    let (version, lines) = text.split_once('\n').ok_or("an empty file")?;
    println!("PyTorch {version} on {device}");
    for line in lines.lines() {
        let sample: Value = serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))?;
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
    print!("{}", table(&rows, device));
    if rows.len() < ops {
        failures.push(format!("samples of {} ops, there were {ops}", rows.len()));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// One line an op, and their sum.
fn table(rows: &BTreeMap<String, Row>, device: Device) -> String {
    let (mut text, mut passed, mut failed, mut left) = (String::new(), 0, 0, 0);
    writeln!(text, "{:48} {:>8} {:>8} {:>8} {:>8}  why", device.to_string(), "samples", "passed", "failed", "not")
        .unwrap();
    for (name, row) in rows {
        let not: u64 = row.inexpressible.values().sum();
        let why: Vec<String> = row.inexpressible.iter().map(|(why, count)| format!("{count} {why}")).collect();
        let samples = row.passed as u64 + row.failed as u64 + not;
        let why = why.join(", ");
        writeln!(text, "{name:48} {samples:8} {:8} {:8} {not:8}  {why}", row.passed, row.failed).unwrap();
        (passed, failed, left) = (passed + row.passed, failed + row.failed, left + not);
    }
    let ops = rows.values().filter(|row| row.passed + row.failed > 0).count();
    let samples = passed + failed;
    writeln!(
        text,
        "{device}: {samples} samples of {ops} ops: {passed} passed, {failed} failed; {left} not expressible"
    )
    .unwrap();
    text
}

fn main() {
    let arguments = Arguments::from_args();
    let written = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/torch_samples.jsonl");
    let file = std::env::var_os(FILE).map_or_else(written, PathBuf::from);
    let mut devices = vec![("interpreter", Ok(Device::Interpreter)), ("cpu", Ok(Device::cpu()))];
    devices.push(("cuda", Device::cuda(0)));
    if !file.exists() {
        println!(
            "skipped: all samples of PyTorch, since {} is missing; scripts/torch_samples.py writes it",
            file.display()
        );
    }
    let mut trials = vec![];
    for (name, device) in devices {
        let (kept, all) = (format!("{name}::kept_samples"), format!("{name}::all_samples"));
        let (there, file) = (device.is_ok(), file.clone());
        let device = device.unwrap_or(Device::cpu());
        trials.push(Trial::test(kept, move || run(KEPT, OPS, device)).with_ignored_flag(!there));
        let ignored = !there || !file.exists();
        let whole =
            move || run(&std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?, OPS, device);
        trials.push(Trial::test(all, whole).with_ignored_flag(ignored));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
