//! Export in Chrome's trace-event format, which Perfetto reads: one process per device with a track
//! for kernels, a track for transfers and a memory counter. Times are microseconds since the start
//! of the scope.

use serde_json::{Value, json};

use super::{ProfileReport, WorkKind};

const KERNELS: u32 = 1;
const TRANSFERS: u32 = 2;

pub(super) fn trace(report: &ProfileReport) -> Value {
    let mut devices: Vec<&str> = report.spans.iter().map(|span| span.device.as_str()).collect();
    devices.extend(report.memory.iter().map(|sample| sample.device.as_str()));
    devices.sort_unstable();
    devices.dedup();
    // Process 0 is the compiler; viewers sort it first.
    let process = |device: &str| devices.iter().position(|d| *d == device).map_or(0, |n| n + 1);
    // Integer nanoseconds, the unit of viewers: consecutive slices do not overlap by rounding.
    let ns = |ms: f64| (ms.max(0.0) * 1e6).round() as u64;
    let since_start = |ms: f64| ns(ms - report.start_ms);
    let us = |ns: u64| ns as f64 / 1e3;

    let mut events: Vec<Value> = vec![];
    let mut named = |pid: usize, tid: u32, what: &str, name: &str| {
        events.push(json!({"ph": "M", "ts": 0, "pid": pid, "tid": tid, "name": what, "args": {"name": name}}));
    };
    for device in &devices {
        named(process(device), 0, "process_name", device);
        named(process(device), KERNELS, "thread_name", "kernels");
        named(process(device), TRANSFERS, "thread_name", "transfers");
    }
    if !report.compilations.is_empty() {
        named(0, 0, "process_name", "compiler");
    }

    let mut timed: Vec<Value> = vec![];
    // Slices of one track must not overlap because of the coarse GPU clock: each starts no earlier
    // than the previous one ends.
    let mut track_end = std::collections::BTreeMap::<(usize, u32), u64>::new();
    for span in &report.spans {
        let tid = if matches!(span.kind, WorkKind::Kernel | WorkKind::Graph) { KERNELS } else { TRANSFERS };
        let pid = process(&span.device);
        let end = track_end.entry((pid, tid)).or_insert(0);
        let start = since_start(span.start_ms).max(*end);
        let duration = ns(span.duration_ms);
        *end = start + duration;
        let mut args = serde_json::Map::new();
        args.extend(span.bytes.map(|bytes| ("bytes".into(), json!(bytes))));
        args.extend(span.flops.map(|flops| ("flops".into(), json!(flops))));
        args.extend(span.location.as_ref().map(|location| ("location".into(), json!(location))));
        timed.push(json!({
            "ph": "X", "name": span.name, "cat": span.kind, "ts": us(start), "dur": us(duration), "pid": pid, "tid": tid,
            "args": args,
        }));
    }
    // Compilations run concurrently; async slices need no track per thread.
    for (id, compilation) in report.compilations.iter().enumerate() {
        let start = since_start(compilation.at_ms);
        for (ph, at) in [("b", start), ("e", start + ns(compilation.duration_ms))] {
            timed.push(json!({
                "ph": ph, "name": compilation.kernel, "cat": "compile", "id": id, "ts": us(at), "pid": 0, "tid": 0,
                "args": {"arch": compilation.arch},
            }));
        }
    }
    for sample in &report.memory {
        let mut args = serde_json::Map::from_iter([("used".into(), json!(sample.used_bytes))]);
        args.extend(sample.reserved_bytes.map(|bytes| ("reserved".into(), json!(bytes))));
        timed.push(json!({
            "ph": "C", "name": "memory", "ts": us(since_start(sample.at_ms)), "pid": process(&sample.device), "tid": 0, "args": args,
        }));
    }
    let at = |event: &Value| event["ts"].as_f64().unwrap_or(0.0);
    timed.sort_by(|a, b| at(a).total_cmp(&at(b)));
    events.extend(timed);
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}
