//! The profiler without a GPU: fake clocks, reports, and the trace format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bornite_cuda::cache::{CacheSettings, Compiler, KernelSource};
use bornite_cuda::pool::{Backing, EventId, StreamId, Tag};
use bornite_cuda::{Cache, Cubin, Pool, Result};
use bornite_support::Error as TimeError;
use bornite_support::profile::{
    self, Bound, Clock, ComputeUnit, HostClock, MemorySample, ProfileSpan, Roofline, Sink, Stopwatch, Times, Work,
    WorkKind,
};
use serde_json::Value;

/// Profiling is process-wide: tests with sinks run one at a time.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// A device whose work takes the specified times, one after the other.
struct FakeDevice {
    next: Mutex<(f64, Vec<f64>)>,
}

impl FakeDevice {
    fn new(durations_ms: &[f64]) -> FakeDevice {
        FakeDevice { next: Mutex::new((profile::now_ms() + 1.0, durations_ms.iter().rev().copied().collect())) }
    }
}

struct FakeStopwatch(Option<Times>);

impl Stopwatch for FakeStopwatch {
    fn stop(&mut self) -> bornite_support::Result<()> {
        Ok(())
    }

    fn times(&mut self) -> bornite_support::Result<Times> {
        let lost = || TimeError::TimingFailed("there is no cuda:7".into());
        self.0.ok_or_else(lost)
    }
}

impl Clock for FakeDevice {
    fn device(&self) -> String {
        "fake:0".into()
    }

    fn start(&self) -> bornite_support::Result<Option<Box<dyn Stopwatch>>> {
        let mut next = self.next.lock().unwrap();
        let Some(duration_ms) = next.1.pop() else { return Ok(Some(Box::new(FakeStopwatch(None)))) };
        let start_ms = next.0;
        next.0 += duration_ms;
        Ok(Some(Box::new(FakeStopwatch(Some(Times { start_ms, duration_ms })))))
    }

    fn memory(&self) -> Option<MemorySample> {
        let at_ms = self.next.lock().unwrap().0;
        Some(MemorySample { device: self.device(), at_ms, used_bytes: 4096, reserved_bytes: Some(8192) })
    }
}

fn recorded() -> profile::ProfileReport {
    let device = FakeDevice::new(&[1.0, 3.0, 4.0, 0.5, 0.25]);
    let mut scope = profile::scope();
    scope.set_roofline(
        "fake:0",
        Roofline { cache_bytes: 1 << 20, tensor_flops_per_second: 4e12, ..Roofline::new(4e9, 1e12) },
    );
    for _ in 0..2 {
        let work = || Work::new(WorkKind::Kernel, "add").bytes(4_000_000).location("src/main.rs:7:3");
        profile::timed(&device, work, || ());
    }
    let work = || Work::new(WorkKind::Kernel, "matmul").bytes(1000).flops(2_000_000_000).location("src/main.rs:9:3");
    assert_eq!(profile::timed(&device, work, || 42), 42);
    profile::timed(&device, || Work::new(WorkKind::Upload, "tensor").bytes(4096), || ());
    profile::timed(&device, || Work::new(WorkKind::Download, "tensor").bytes(512), || ());
    profile::timed(&device, || Work::new(WorkKind::Kernel, "lost"), || ());
    profile::record_compilation("matmul", "sm_90", 12.5);
    scope.finish()
}

#[test]
fn a_report_sums_all_calls() {
    let _exclusive = EXCLUSIVE.lock();
    let report = recorded();
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    // Equal totals are in order of names.
    assert_eq!(names, ["add", "matmul", "tensor", "tensor"]);
    let [add, matmul, upload, _] = &report.rows[..] else { panic!() };
    assert_eq!((add.calls, add.total_ms, add.mean_ms, add.min_ms, add.max_ms), (2, 4.0, 2.0, 1.0, 3.0));
    assert_eq!(add.share, 4.0 / 8.75);
    assert_eq!((add.gb_s, add.tflop_s, add.roofline_fraction), (Some(2.0), None, Some(0.5)));
    assert_eq!((add.bound, matmul.bound), (Some(Bound::Memory), Some(Bound::Cores)));
    assert_eq!((matmul.tflop_s, matmul.roofline_fraction), (Some(0.5), Some(0.5)));
    assert_eq!(matmul.location.as_deref(), Some("src/main.rs:9:3"));
    assert_eq!((upload.kind, upload.roofline_fraction), (WorkKind::Upload, None));
    assert_eq!(report.untimed.len(), 1);
    assert!(report.untimed[0].starts_with("lost: there is no cuda:7"), "{:?}", report.untimed);
    let table = report.top(2);
    for expected in
        ["add", "fake:0", "45.7%", "50.0% memory", "50.0% cores", "… and 2 more", "8.750 ms of work", "not timed: lost"]
    {
        assert!(table.contains(expected), "{expected} is not in\n{table}");
    }
    let json = report.to_json();
    assert_eq!((&json["format"], &json["rows"][0]["name"]), (&Value::from(3), &Value::from("add")));
}

#[test]
fn work_on_tensor_cores_and_in_the_cache_has_its_own_peak() {
    let _exclusive = EXCLUSIVE.lock();
    let device = FakeDevice::new(&[1.0, 1.0, 1.0]);
    let mut scope = profile::scope();
    let roofline = Roofline { tensor_flops_per_second: 8e12, cache_bytes: 1 << 20, ..Roofline::new(4e9, 1e12) };
    scope.set_roofline("fake:0", roofline);
    let product = |unit| Work::new(WorkKind::Kernel, "matmul").bytes(1000).flops(500_000_000).unit(unit);
    profile::timed(&device, || product(ComputeUnit::Cores), || ());
    profile::timed(&device, || product(ComputeUnit::TensorCores), || ());
    profile::timed(&device, || Work::new(WorkKind::Kernel, "small").bytes(1 << 20), || ());
    let report = scope.finish();
    let found: Vec<_> = report.rows.iter().map(|row| (row.bound.unwrap(), row.roofline_fraction)).collect();
    assert_eq!(found, [(Bound::Cores, Some(0.5)), (Bound::TensorCores, Some(0.0625)), (Bound::Cache, None)]);
    let table = report.to_string();
    assert!(table.contains("6.2% tensor") && table.lines().any(|line| line.ends_with("  cached")), "{table}");
}

#[test]
fn performance_stats_has_the_classic_fields() {
    let _exclusive = EXCLUSIVE.lock();
    let stats = recorded().performance_stats();
    assert_eq!(stats["kernel_execution_times"]["add"]["average_ms"], 2.0);
    assert_eq!(stats["kernel_execution_times"]["add"]["min_ms"], 1.0);
    assert_eq!(stats["kernel_execution_times"]["add"]["max_ms"], 3.0);
    assert_eq!(stats["kernel_execution_times"]["add"]["total_executions"], 2);
    assert_eq!(stats["memory_transfer_times"]["H2D_4096"]["total_transfers"], 1);
    assert_eq!(stats["memory_transfer_times"]["D2H_512"]["average_ms"], 0.25);
    assert_eq!(stats["compilation_times"]["matmul"], 12.5);
    for field in ["cuda_available", "devices", "current_device", "memory_pool_stats", "device_info"] {
        assert!(stats.get(field).is_some(), "{field}");
    }
}

/// Checks the rules of the trace-event format, as in its specification and required by Perfetto.
fn check_trace(trace: &Value) {
    let events = trace["traceEvents"].as_array().expect("an array of events");
    assert_eq!(trace["displayTimeUnit"], "ms");
    let mut open: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut begun: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let (mut named, mut last_ts) = (vec![], 0);
    // Microseconds with three decimals: integer nanoseconds.
    let time = |value: &Value| -> u64 {
        let ns = value.as_f64().expect("a time") * 1e3;
        assert!(ns >= 0.0 && ns.is_finite() && (ns - ns.round()).abs() <= 1e-3 * ns.max(1.0), "{ns}");
        ns.round() as u64
    };
    for event in events {
        let (pid, tid) = (event["pid"].as_u64().expect("a pid"), event["tid"].as_u64().expect("a tid"));
        let ts = time(&event["ts"]);
        assert!(!event["name"].as_str().expect("a name").is_empty());
        let args = event["args"].as_object().expect("arguments");
        match event["ph"].as_str().expect("a phase") {
            "M" => {
                assert!(args["name"].is_string());
                assert!(matches!(event["name"].as_str(), Some("process_name" | "thread_name")));
                named.push((pid, tid));
                continue;
            }
            "X" => {
                let duration = time(&event["dur"]);
                // Slices of a track may nest or follow each other; ours follow.
                let end = open.entry((pid, tid)).or_insert(0);
                assert!(ts >= *end, "{event} begins before {end}");
                *end = ts + duration;
                assert!(named.contains(&(pid, tid)) && named.contains(&(pid, 0)), "a track without a name");
            }
            "C" => assert!(args.values().all(Value::is_u64) && !args.is_empty()),
            "b" => assert!(begun.insert((event["cat"].to_string(), event["id"].as_u64().unwrap()), ts).is_none()),
            "e" => {
                let start = begun.remove(&(event["cat"].to_string(), event["id"].as_u64().unwrap()));
                assert!(start.expect("ended before it began") <= ts);
            }
            other => panic!("phase {other}"),
        }
        assert!(ts >= last_ts, "events in order of time");
        last_ts = ts;
    }
    assert!(begun.is_empty());
}

#[test]
fn traces_follow_the_trace_event_format() {
    let _exclusive = EXCLUSIVE.lock();
    let trace = recorded().to_chrome();
    let trace: Value = serde_json::from_str(&trace.to_string()).unwrap();
    check_trace(&trace);
    let count = |ph: &str| trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == ph).count();
    assert_eq!((count("X"), count("C"), count("b")), (5, 6, 1));
    // Disagreeing clocks, overlapping work, times before the scope.
    let scope = profile::scope();
    for (start_ms, duration_ms) in [(5.0, 10.0), (6.0, 1.0), (-3.0, 2.0), (1e9, 1e-9), (5.0, 0.0)] {
        struct Fixed(Times);
        impl Clock for Fixed {
            fn device(&self) -> String {
                "odd \"device\"".into()
            }
            fn start(&self) -> bornite_support::Result<Option<Box<dyn Stopwatch>>> {
                Ok(Some(Box::new(FakeStopwatch(Some(self.0)))))
            }
        }
        profile::timed(&Fixed(Times { start_ms, duration_ms }), || Work::new(WorkKind::Copy, "c"), || ());
    }
    check_trace(&serde_json::from_str(&scope.finish().to_chrome().to_string()).unwrap());
    check_trace(&profile::scope().finish().to_chrome());
}

#[test]
fn reports_are_written_to_files() {
    let _exclusive = EXCLUSIVE.lock();
    let report = recorded();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let read = |file: &std::path::Path| -> Value { serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap() };
    let (stats, trace) = (folder.join("cuda_report.json"), folder.join("trace.json"));
    report.export(&stats).unwrap();
    report.export_trace(&trace).unwrap();
    assert_eq!(read(&stats)["kernel_execution_times"]["add"]["total_executions"], 2);
    check_trace(&read(&trace));
    assert!(report.export("/no/such/folder/x.json").is_err());
}

/// Backing that returns addresses without memory.
struct Addresses(std::sync::atomic::AtomicU64);

impl Backing for Addresses {
    fn name(&self) -> String {
        "addresses".into()
    }
    fn total_bytes(&self) -> u64 {
        1 << 40
    }
    fn free_bytes(&self) -> Result<u64> {
        Ok(1 << 40)
    }
    fn reserve(&self, bytes: u64) -> Result<Option<u64>> {
        Ok(Some(self.0.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed)))
    }
    fn release(&self, _: u64, _: u64, _: StreamId) -> Result<()> {
        Ok(())
    }
    fn record(&self, _: StreamId) -> Result<EventId> {
        Ok(EventId(0))
    }
    fn is_done(&self, _: EventId) -> Result<bool> {
        Ok(true)
    }
    fn wait(&self, _: EventId) -> Result<()> {
        Ok(())
    }
    fn retire(&self, _: EventId) {}
    fn fill(&self, _: u64, _: u64, _: u8, _: StreamId) -> Result<()> {
        Ok(())
    }
    fn first_difference(&self, _: u64, _: u64, _: u8, _: StreamId) -> Result<Option<u64>> {
        Ok(None)
    }
}

#[test]
fn registered_pools_are_reported_while_they_live() {
    let _exclusive = EXCLUSIVE.lock();
    let pool = Arc::new(Pool::new(Arc::new(Addresses(4096.into()))));
    pool.register_with_profiler("fake:9");
    let block = pool.alloc(1000, StreamId(0), Tag::default()).unwrap();
    let stats = profile::scope().finish().performance_stats();
    assert_eq!(stats["memory_pool_stats"]["fake:9"]["requested"], 1000);
    pool.free(block).unwrap();
    drop(pool);
    assert!(profile::scope().finish().pools.is_empty());
}

#[test]
fn sinks_receive_spans_while_registered() {
    #[derive(Default)]
    struct Names(Mutex<Vec<String>>);
    impl Sink for Names {
        fn span(&self, span: &Arc<ProfileSpan>) {
            self.0.lock().unwrap().push(span.work.name.clone());
        }
    }
    let _exclusive = EXCLUSIVE.lock();
    let (first, second) = (Arc::new(Names::default()), Arc::new(Names::default()));
    let run = |name: &str| profile::timed(&HostClock("cpu"), || Work::new(WorkKind::Kernel, name), || ());
    assert!(!profile::is_enabled());
    run("before");
    {
        let _first = profile::add_sink(first.clone());
        run("a");
        {
            let _second = profile::add_sink(second.clone());
            run("b");
        }
        run("c");
        assert!(profile::is_enabled());
    }
    run("after");
    assert!(!profile::is_enabled());
    assert_eq!(*first.0.lock().unwrap(), ["a", "b", "c"]);
    assert_eq!(*second.0.lock().unwrap(), ["b"]);
}

#[test]
fn work_runs_even_if_its_clock_fails() {
    struct Broken;
    impl Clock for Broken {
        fn device(&self) -> String {
            "broken".into()
        }
        fn start(&self) -> bornite_support::Result<Option<Box<dyn Stopwatch>>> {
            Err(TimeError::TimingFailed("there is no cuda:0".into()))
        }
    }
    let _exclusive = EXCLUSIVE.lock();
    let scope = profile::scope();
    assert_eq!(profile::timed(&Broken, || Work::new(WorkKind::Kernel, "k"), || 7), 7);
    assert!(scope.finish().spans.is_empty());
}

#[test]
fn host_work_is_timed_over_a_long_scope() {
    let _exclusive = EXCLUSIVE.lock();
    let scope = profile::scope();
    let sleep = || std::thread::sleep(std::time::Duration::from_millis(3));
    profile::timed(&HostClock("cpu"), || Work::new(WorkKind::Kernel, "sleep"), sleep);
    for _ in 0..10_000 {
        profile::timed(&HostClock("cpu"), || Work::new(WorkKind::Kernel, "tiny"), || ());
    }
    let report = scope.finish();
    assert_eq!(report.rows[0].name, "sleep");
    assert!(report.rows[0].total_ms >= 3.0);
    assert_eq!(report.rows[1].calls, 10_000);
    assert!(report.memory.iter().all(|sample| sample.used_bytes > 100_000), "{:?}", report.memory.first());
}

#[test]
fn compilations_are_recorded() {
    struct Slow;
    impl Compiler for Slow {
        fn version(&self) -> Result<String> {
            Ok("slow".into())
        }
        fn compile(&self, _: &KernelSource<'_>) -> Result<Cubin> {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xbe\0".to_vec();
            header.resize(64, 0);
            // SAFETY: nothing loads the image.
            #[allow(unsafe_code)]
            unsafe {
                Cubin::from_image(header)
            }
        }
    }
    let _exclusive = EXCLUSIVE.lock();
    let cache = Cache::open(CacheSettings { enabled: false, ..CacheSettings::in_folder("nowhere") });
    let scope = profile::scope();
    cache.compile(&KernelSource { name: "k", source: "", arch: "sm_90", options: &[] }, &Slow).unwrap();
    let compilations = scope.finish().compilations;
    assert_eq!((compilations.len(), compilations[0].kernel.as_str()), (1, "k"));
    assert!(compilations[0].duration_ms >= 2.0);
}
