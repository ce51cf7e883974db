//! `bornite kernel analyze`: kernels of known access patterns (tests/analyze.cu), whose transactions are counted here from
//! the addresses of their threads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A block and a thread of the launch, along x and y.
#[derive(Clone, Copy)]
struct At {
    block: [u64; 2],
    thread: [u64; 2],
    /// Index in a one-dimensional launch.
    i: u64,
}

/// Byte offsets that a thread accesses, one per execution of the instruction; `None` where it takes no part.
type Offsets = fn(At) -> Vec<Option<u64>>;

struct Access {
    array: &'static str,
    kind: &'static str,
    bytes: u64,
    offsets: Offsets,
}

struct Case {
    kernel: &'static str,
    grid: [u64; 2],
    block: [u64; 2],
    args: Vec<String>,
    accesses: Vec<Access>,
}

fn access(array: &'static str, kind: &'static str, bytes: u64, offsets: Offsets) -> Access {
    Access { array, kind, bytes, offsets }
}

fn one(offset: u64) -> Vec<Option<u64>> {
    vec![Some(offset)]
}

/// An index for every thread of 256, scattered over 1024 elements.
fn scattered(i: u64) -> u64 {
    (i * i * 7 + 3 * i + 11) % 1024
}

fn numbers(count: u64, of: impl Fn(u64) -> u64) -> String {
    let all: Vec<String> = (0..count).map(|n| of(n).to_string()).collect();
    all.join(",")
}

fn line(kernel: &'static str, args: &[&str], accesses: Vec<Access>) -> Case {
    let args = args.iter().map(|arg| arg.to_string()).collect();
    Case { kernel, grid: [2, 1], block: [128, 1], args, accesses }
}

fn cases() -> Vec<Case> {
    let y = || access("y", "store", 4, |at| one(4 * at.i));
    let load = |offsets: Offsets| vec![access("x", "load", 4, offsets), y()];
    let floats = ["x=randn:256", "y=zeros:256"];
    let tile = |kernel, store: Offsets, read: Offsets| Case {
        kernel,
        grid: [2, 2],
        block: [32, 8],
        args: vec!["x=randn:4096".into(), "y=zeros:4096".into()],
        accesses: vec![
            access("x", "load", 4, |at| global_rows(at, at.block)),
            access("y", "store", 4, |at| global_rows(at, [at.block[1], at.block[0]])),
            access("tile", "store", 4, store),
            access("tile", "load", 4, read),
        ],
    };
    let shared = |kernel, bytes, offsets: Offsets, out: Offsets| Case {
        kernel,
        grid: [1, 1],
        block: [64, 1],
        args: vec!["y=zeros:64".into()],
        accesses: vec![
            access("tile", "store", bytes, offsets),
            access("tile", "load", bytes, offsets),
            access("y", "store", bytes, out),
        ],
    };
    let all_bins = format!("at={}", numbers(256, |i| i * 5 % 16));
    vec![
        line("unit", &floats, load(|at| one(4 * at.i))),
        line("stride2", &["x=randn:512", "y=zeros:256"], load(|at| one(8 * at.i))),
        line("stride32", &["x=randn:8192", "y=zeros:256"], load(|at| one(128 * at.i))),
        line("misaligned", &["x=randn:257", "y=zeros:256"], load(|at| one(4 * at.i + 4))),
        line("broadcast", &floats, load(|at| one(4 * at.block[0]))),
        line("reversed", &floats, load(|at| one(4 * (255 - at.i)))),
        line(
            "fields",
            &["p=randn:256x3", "y=zeros:256"],
            vec![access("p", "load", 4, |at| [0, 0, 8].map(|field| Some(12 * at.i + field)).into()), y()],
        ),
        line(
            "copied",
            &["p=randn:256x3", "q=zeros:256x3"],
            vec![
                access("p", "load", 4, |at| [0, 4, 8].map(|field| Some(12 * at.i + field)).into()),
                access("q", "store", 4, |at| [0, 4, 8].map(|field| Some(12 * at.i + field)).into()),
            ],
        ),
        line(
            "wide",
            &["x=randn:256x4", "y=zeros:256x4"],
            vec![access("x", "load", 16, |at| one(16 * at.i)), access("y", "store", 16, |at| one(16 * at.i))],
        ),
        line("component", &["x=randn:256x4", "y=zeros:256"], load(|at| one(16 * at.i + 12))),
        line(
            "doubles",
            &floats,
            vec![access("x", "load", 8, |at| one(8 * at.i)), access("y", "store", 8, |at| one(8 * at.i))],
        ),
        line(
            "bytes",
            &["x=randint:0:9:256", "y=zeros:768"],
            vec![access("x", "load", 1, |at| one(at.i)), access("y", "store", 1, |at| one(3 * at.i))],
        ),
        line(
            "gather",
            &[&format!("at={}", numbers(256, scattered)), "x=randn:1024", "y=zeros:256"],
            vec![
                access("at", "load", 4, |at| one(4 * at.i)),
                access("x", "load", 4, |at| one(4 * scattered(at.i))),
                y(),
            ],
        ),
        tile("transpose", |at| tile_rows(at, 32, false), |at| tile_rows(at, 32, true)),
        tile("transpose_padded", |at| tile_rows(at, 33, false), |at| tile_rows(at, 33, true)),
        shared("shared_stride<float,1>", 4, |at| one(4 * at.i), |at| one(4 * at.i)),
        shared("shared_stride<float,2>", 4, |at| one(8 * at.i), |at| one(4 * at.i)),
        shared("shared_stride<float,4>", 4, |at| one(16 * at.i), |at| one(4 * at.i)),
        shared("shared_stride<float,32>", 4, |at| one(128 * at.i), |at| one(4 * at.i)),
        shared("shared_stride<double,1>", 8, |at| one(8 * at.i), |at| one(8 * at.i)),
        shared("shared_stride<double,2>", 8, |at| one(16 * at.i), |at| one(8 * at.i)),
        shared("shared_stride<unsigned char,2>", 1, |at| one(2 * at.i), |at| one(at.i)),
        Case {
            kernel: "shared_wide",
            grid: [1, 1],
            block: [64, 1],
            args: vec!["y=zeros:64x4".into()],
            accesses: vec![
                access("tile", "store", 16, |at| one(32 * at.i)),
                access("tile", "load", 16, |at| one(32 * at.i)),
                access("y", "load", 16, |at| one(16 * at.i)),
                access("y", "store", 16, |at| one(16 * at.i)),
            ],
        },
        line(
            "halves",
            &floats,
            vec![
                access("y", "load", 4, |at| vec![(at.i % 2 == 0).then_some(4 * at.i); 10]),
                access("x", "load", 4, |at| (0..20).map(|k| (at.i % 2 == 0).then_some(4 * (k % 2))).collect()),
                access("y", "store", 4, |at| {
                    let odd = std::iter::once((at.i % 2 == 1).then_some(4 * at.i));
                    (0..10).map(|_| (at.i % 2 == 0).then_some(4 * at.i)).chain(odd).collect()
                }),
            ],
        ),
        line("trips", &["y=zeros:256"], vec![y()]),
        line(
            "histogram",
            &[&all_bins, "bins=zeros:16"],
            vec![
                access("at", "load", 4, |at| one(4 * at.i)),
                access("bins", "atomic", 4, |at| one(4 * (at.i * 5 % 16))),
            ],
        ),
        line(
            "shared_histogram",
            &[&all_bins, "bins=zeros:8"],
            vec![
                access("at", "load", 4, |at| one(4 * at.i)),
                access("local", "store", 4, |at| vec![(at.thread[0] < 8).then_some(4 * at.thread[0])]),
                access("local", "load", 4, |at| vec![(at.thread[0] < 8).then_some(4 * at.thread[0])]),
                access("local", "atomic", 4, |at| one(4 * (at.i * 5 % 16 % 8))),
                access("bins", "atomic", 4, |at| vec![(at.thread[0] < 8).then_some(4 * at.thread[0])]),
            ],
        ),
    ]
}

/// Four rows of a block of 32x32 of a matrix with 64 columns.
fn global_rows(at: At, [bx, by]: [u64; 2]) -> Vec<Option<u64>> {
    (0..4).map(|k| Some(4 * ((by * 32 + 8 * k + at.thread[1]) * 64 + bx * 32 + at.thread[0]))).collect()
}

fn tile_rows(at: At, pitch: u64, is_column: bool) -> Vec<Option<u64>> {
    let rows = (0..4).map(|k| 8 * k + at.thread[1]);
    let index = |r: u64| if is_column { at.thread[0] * pitch + r } else { r * pitch + at.thread[0] };
    rows.map(|r| Some(4 * index(r))).collect()
}

/// Totals of one array and kind of access.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    requests: u64,
    threads: u64,
    transactions: u64,
    serial_updates: u64,
}

/// Counts the requests, sectors and wavefronts of an access, warp by warp.
fn count(case: &Case, access: &Access) -> Totals {
    let is_shared = ["tile", "local"].contains(&access.array);
    let mut totals = Totals::default();
    let threads = case.block[0] * case.block[1];
    for block in 0..case.grid[0] * case.grid[1] {
        let of = |t: u64| {
            let thread = [t % case.block[0], t / case.block[0]];
            let block_at = [block % case.grid[0], block / case.grid[0]];
            (access.offsets)(At { block: block_at, thread, i: block * threads + t })
        };
        for warp in 0..threads.div_ceil(32) {
            let lanes: Vec<Vec<Option<u64>>> = (warp * 32..threads.min(warp * 32 + 32)).map(of).collect();
            for execution in 0..lanes[0].len() {
                let active: Vec<(u64, u64)> =
                    (0..).zip(&lanes).filter_map(|(lane, offsets)| Some((lane, offsets[execution]?))).collect();
                if active.is_empty() {
                    continue;
                }
                totals.requests += 1;
                totals.threads += active.len() as u64;
                let mut same: BTreeMap<u64, u64> = BTreeMap::new();
                active.iter().for_each(|(_, offset)| *same.entry(*offset).or_default() += 1);
                let repeated = *same.values().max().unwrap();
                if access.kind == "atomic" {
                    totals.serial_updates += repeated;
                }
                totals.transactions += match is_shared {
                    false => active.iter().map(|(_, offset)| offset / 32).collect::<BTreeSet<u64>>().len() as u64,
                    // All updates of these tests are of words in different banks.
                    true if access.kind == "atomic" => repeated,
                    true => wavefronts(&active, access.bytes),
                };
            }
        }
    }
    totals
}

/// The largest number of different words of one bank, for each part of the warp that is served at once.
fn wavefronts(active: &[(u64, u64)], bytes: u64) -> u64 {
    let lanes_at_once = 32 * 4 / bytes.max(4);
    let mut parts: BTreeMap<u64, BTreeMap<u64, BTreeSet<u64>>> = BTreeMap::new();
    for (lane, offset) in active {
        for word in offset / 4..(offset + bytes).div_ceil(4) {
            parts.entry(lane / lanes_at_once).or_default().entry(word % 32).or_default().insert(word);
        }
    }
    parts.values().map(|banks| banks.values().map(|words| words.len() as u64).max().unwrap()).sum()
}

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/analyze.cu");

fn run(args: &[&str], hidden: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("analyze-cache"));
    let output = command.env("BORNITE_HIDE_LIBRARIES", hidden).args(["kernel", "analyze"]).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn analyze(case: &Case) -> Value {
    let [grid, block] = [case.grid, case.block].map(|[x, y]| format!("{x}x{y}"));
    let mut args = vec![SOURCE, "--kernel", case.kernel, "--grid", &grid, "--block", &block, "--json"];
    case.args.iter().for_each(|arg| args.extend(["--arg", arg]));
    let output = run(&args, "nvrtc");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}{}", case.kernel, String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn transactions_follow_from_the_addresses() {
    let source = std::fs::read_to_string(SOURCE).unwrap();
    let cases = cases();
    assert!(cases.len() >= 25);
    for case in &cases {
        let report = analyze(case);
        let mut found: BTreeMap<(&str, &str), Totals> = BTreeMap::new();
        for row in report["accesses"].as_array().unwrap() {
            let [array, kind] = ["array", "access"].map(|key| row[key].as_str().unwrap());
            let number = |key: &str| row[key].as_u64().unwrap_or(0);
            let totals = found.entry((array, kind)).or_default();
            totals.requests += number("requests");
            totals.threads += number("threads");
            totals.transactions += number("sectors") + number("wavefronts");
            totals.serial_updates += number("serial_updates");
            let line = source.lines().nth(row["line"].as_u64().unwrap() as usize - 1).unwrap();
            assert!(line.contains(array), "{}: {array} in line '{line}'", case.kernel);
            let efficiency = row["efficiency"].as_f64().unwrap();
            assert!(efficiency > 0.0 && efficiency <= 1.0, "{}: {row}", case.kernel);
        }
        let expected: BTreeMap<(&str, &str), Totals> =
            case.accesses.iter().map(|access| ((access.array, access.kind), count(case, access))).collect();
        assert_eq!(found, expected, "{}", case.kernel);
    }
}

/// The branch with the given text: warps, and those that diverge.
fn branch(report: &Value, text: &str) -> (u64, u64) {
    let source = std::fs::read_to_string(SOURCE).unwrap();
    let at = |row: &&Value| {
        let line = row["line"].as_u64().unwrap_or(0) as usize;
        source.lines().nth(line.wrapping_sub(1)).is_some_and(|line| line.contains(text))
    };
    let row = report["branches"].as_array().unwrap().iter().find(at).unwrap_or_else(|| panic!("{text}: {report}"));
    (row["warps"].as_u64().unwrap(), row["divergent"].as_u64().unwrap())
}

#[test]
fn divergence_flops_and_bytes_are_counted() {
    let report = |kernel: &'static str, args: &[&str]| analyze(&line(kernel, args, vec![]));
    let floats = ["x=randn:256", "y=zeros:256"];
    let halves = report("halves", &floats);
    assert_eq!(branch(&halves, "threadIdx.x % 2"), (8, 8));
    // Half of the threads multiply and add, ten times.
    assert_eq!(halves["flops"], 128 * 10 * 2);
    let worst = halves["worst"].as_array().unwrap();
    assert!(worst.iter().any(|row| row["problem"].as_str().unwrap().contains("8 of 8 warps diverge")), "{halves}");

    // Branches that wait for each other run at the same time, and are counted once.
    let both_wait = report("both_wait", &["y=zeros:256"]);
    assert_eq!(branch(&both_wait, "threadIdx.x % 2"), (8, 8));
    let requests: u64 =
        both_wait["accesses"].as_array().unwrap().iter().map(|row| row["requests"].as_u64().unwrap()).sum();
    assert_eq!(requests, 16);

    let by_warp = report("by_warp", &["y=zeros:256"]);
    assert_eq!(branch(&by_warp, "threadIdx.x / 32"), (8, 0));
    assert_eq!((&by_warp["worst"], &by_warp["active_threads_per_warp"]), (&Value::Array(vec![]), &32.0.into()));

    // A thread leaves the loop after each of the 32 tests but the first, whose other threads continue; after the last
    // test all have left.
    let trips = report("trips", &["y=zeros:256"]);
    let (warps, divergent) = branch(&trips, "k < i % 32");
    assert_eq!((warps, divergent), (8 * 32, 8 * 31));
    assert_eq!(trips["flops"], 8 * (0..32).sum::<u64>());

    let unit = report("unit", &floats);
    assert_eq!((&unit["flops"], &unit["requested_bytes"]), (&256.into(), &2048.into()));
    assert_eq!((&unit["min_bytes"], &unit["flops_per_byte"]), (&2048.into(), &0.125.into()));
    // Each sector moves once, although three requests touch it.
    let copied = report("copied", &["p=randn:256x3", "q=zeros:256x3"]);
    assert_eq!((&copied["min_bytes"], &copied["sector_bytes"]), (&(2 * 256 * 12).into(), &(2 * 3 * 256 * 12).into()));
    // One sector per block is read.
    assert_eq!(report("broadcast", &floats)["min_bytes"], 32 + 1024);
    assert_eq!(
        report("gather", &[&format!("at={}", numbers(256, |_| 0)), "x=randn:9", "y=zeros:256"])["min_bytes"],
        2080
    );
}

#[test]
fn the_worst_line_comes_first_with_a_remedy() {
    for (kernel, args, line, remedy) in [
        ("stride32", ["x=randn:8192", "y=zeros:256"], "x[32 * i]", "contiguous axis"),
        ("misaligned", ["x=randn:257", "y=zeros:256"], "x[i + 1]", "multiple of 32 bytes"),
        ("histogram", ["at=zeros:256", "bins=zeros:1"], "atomicAdd", "reduce within the warp"),
    ] {
        let report = analyze(&self::line(kernel, &args, vec![]));
        let worst = &report["worst"][0];
        let has = |key: &str, text: &str| worst[key].as_str().unwrap().contains(text);
        assert!(has("source", line) && has("suggestion", remedy), "{kernel}: {worst}");
    }
    let args = ["--grid", "2x2", "--block", "32x8", "--arg", "x=randn:4096", "--arg", "y=zeros:4096"];
    let output = run(&[&[SOURCE, "--kernel", "transpose"], &args[..]].concat(), "nvrtc");
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["global memory", "shared memory", "32.0 wavefronts per request", "pad the rows by one element"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("unknown: ") && text.contains("nvrtc"), "{text}");
}

#[test]
fn faults_and_unknown_architectures_are_errors() {
    let base = [SOURCE, "--kernel", "unit", "--grid", "2", "--block", "128", "--arg", "y=zeros:256"];
    let output = run(&[&base[..], &["--arg", "x=randn:255"]].concat(), "nvrtc");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && text.contains("index 255 is outside 'x'") && text.contains("analyze.cu:6"),
        "{text}"
    );
    let output = run(&[&base[..], &["--arg", "x=randn:256", "--arch", "sm_52"]].concat(), "");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--arch sm_52") && text.contains("sm_121"), "{text}");
    let output = run(&["--template", "softmax", "--json"], "nvrtc");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["accesses"].as_array().unwrap().len() > 4 && report["accesses"][0]["line"].is_u64(), "{report}");
}

/// Registers, shared memory and occupancy of what NVRTC compiles. Run by `optional.rs`.
#[allow(dead_code)]
pub fn resources_are_compiled() -> Result<(), String> {
    let libraries =
        std::env::var("BORNITE_LIBRARY_PATH").map_err(|_| "BORNITE_LIBRARY_PATH names no folder with NVRTC")?;
    let args =
        ["kernel", "analyze", SOURCE, "--kernel", "transpose_padded", "--grid", "2x2", "--block", "32x8", "--json"];
    let arrays = ["--arg", "x=randn:4096", "--arg", "y=zeros:4096", "--arch", "sm_75,sm_90"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    let output = command.env("BORNITE_LIBRARY_PATH", libraries).args(args).args(arrays).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    if let Some(missing) = report["resources_unknown"].as_str() {
        return Err(missing.into());
    }
    let rows = report["resources"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, (arch, max_warps)) in rows.iter().zip([("sm_75", 32), ("sm_90", 64)]) {
        assert_eq!((row["arch"].as_str(), row["shared_bytes"].as_u64()), (Some(arch), Some(32 * 33 * 4)), "{row}");
        let registers = row["registers"].as_u64().unwrap();
        assert!((8..=64).contains(&registers), "{row}");
        // Blocks of 8 warps that their registers, 8 at a time, allow; shared memory allows as many.
        let blocks = (65_536 / (256 * registers.next_multiple_of(8))).min(max_warps / 8);
        assert_eq!(row["occupancy"]["warps"], blocks * 8, "{row}");
    }
    Ok(())
}
