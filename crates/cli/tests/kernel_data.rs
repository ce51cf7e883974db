//! `kernel run` with data from files and in files: `--arg x=@x.npy`, `--out`, `--expect`,
//! `--launch`, and both accesses of a race.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const SCALE: &str = "__global__ void scale(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
";

fn bornite(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-data-cache"));
    command.current_dir(folder).env("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc");
    let output = command.args(["kernel", "run"]).args(args).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{args:?}: {}", text(&output));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs successfully and parses the report.
fn report(folder: &Path, args: &[&str]) -> Value {
    let output = bornite(folder, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder with `scale.cu` and these files.
fn folder(name: &str, files: &[(&str, Vec<u8>)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-data-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("scale.cu"), SCALE).unwrap();
    for (name, bytes) in files {
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    folder
}

/// A `.npy` file, written from NumPy's description of the format.
fn npy(descr: &str, order: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
}

fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// 0, 1, …, 11.
fn twelve() -> impl Iterator<Item = f32> {
    (0..12).map(|n| n as f32)
}

const LAUNCH: &[&str] = &["scale.cu", "--dim", "12", "--arg", "y=zeros:3x4", "--arg", "a=2", "--arg", "n=12"];

#[test]
fn arrays_come_from_files_and_literals() {
    let columns: Vec<f32> = (0..4).flat_map(|x| (0..3).map(move |y| (4 * y + x) as f32)).collect();
    let big: Vec<u8> = twelve().flat_map(f32::to_be_bytes).collect();
    let folder = folder(
        "sources",
        &[
            ("x.npy", npy("<f4", "False", "(3, 4)", &f32s(twelve()))),
            ("fortran.npy", npy("<f4", "True", "(3, 4)", &f32s(columns))),
            ("big.npy", npy(">f4", "False", "(12,)", &big)),
            ("x.bin", f32s(twelve())),
        ],
    );
    let expected: Vec<f32> = twelve().map(|x| 2.0 * x).collect();
    let literal = "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]";
    for device in ["interpreter", "cpu"] {
        for source in ["@x.npy", "@fortran.npy", "@big.npy", "@x.bin", literal, "0,1,2,3,4,5,6,7,8,9,10,11", "range:12"]
        {
            let found = report(&folder, &[LAUNCH, &["--arg", &format!("x={source}"), "--device", device]].concat());
            let y = &found["outputs"][0];
            assert_eq!(y["values"], json!(expected), "{source}: {found}");
            assert_eq!((&y["shape"], &y["truncated"]), (&json!([3, 4]), &json!(false)), "{source}");
        }
    }
    let first = report(&folder, &[LAUNCH, &["--arg", "x=@x.npy", "--max-values", "3"]].concat());
    let y = &first["outputs"][0];
    assert_eq!((&y["values"], &y["truncated"], &y["count"]), (&json!([0.0, 2.0, 4.0]), &json!(true), &json!(12)));
}

#[test]
fn unusable_files_are_errors() {
    let whole = npy("<f4", "False", "(3, 4)", &f32s(twelve()));
    let folder = folder(
        "errors",
        &[
            ("short.npy", whole[..whole.len() - 3].to_vec()),
            ("header.npy", whole[..20].to_vec()),
            ("text.npy", b"not an array".to_vec()),
            ("double.npy", npy("<f8", "False", "(12,)", &[0; 96])),
            ("complex.npy", npy("<c8", "False", "(12,)", &[0; 96])),
            ("few.npy", npy("<f4", "False", "(3,)", &f32s([1.0, 2.0, 3.0]))),
            ("none.npy", npy("<f4", "False", "(0,)", &[])),
            ("odd.bin", vec![0; 6]),
            ("x.txt", vec![0; 48]),
            ("inner/file", vec![]),
        ],
    );
    for (source, expected) in [
        ("@short.npy", "short.npy"),
        ("@short.npy", "truncated"),
        ("@header.npy", "the file is damaged"),
        ("@text.npy", "text.npy"),
        ("@double.npy", "parameter 'x' has type f32, but double.npy contains f64; convert it with .astype(np.float32)"),
        ("@complex.npy", "contains elements of dtype '<c8'"),
        ("@none.npy", "an array has 1 to 1073741824 elements"),
        ("@absent.npy", "cannot read absent.npy: No such file"),
        ("@inner", "inner is a folder; expected a .npy or .bin file"),
        ("@x.txt", "x.txt: expected a file whose name ends in .npy or .bin"),
        ("@odd.bin", "odd.bin has 6 bytes, but parameter 'x' has elements of 4 bytes"),
        ("[1, 2", "an array ends without ']'"),
        ("[[1, 2], [3]]", "rows of an array have the same length; found 2 and 1"),
        ("[[1, 2], 3]", "rows of an array have the same number of axes"),
        ("[]", "is not an array"),
        ("randint:5:5:10", "randint:LOW:HIGH needs LOW < HIGH"),
    ] {
        let output = bornite(&folder, &[LAUNCH, &["--arg", &format!("x={source}")]].concat());
        assert!(!output.status.success() && text(&output).contains(expected), "{source}: {}", text(&output));
    }
    // An array that is too short is found where the kernel reads past its end.
    let output = bornite(&folder, &[LAUNCH, &["--arg", "x=@few.npy"]].concat());
    assert!(text(&output).contains("index 3 is outside 'x' of 3 elements"), "{}", text(&output));
    let output = bornite(&folder, &[LAUNCH, &["--arg", "x=ones:12", "--arg", "a=@few.npy"]].concat());
    assert!(!output.status.success() && text(&output).contains("has two arguments"), "{}", text(&output));
    let output = bornite(&folder, &["--expr", "x + y", "--count", "12", "--arg", "x=@few.npy"]);
    assert!(text(&output).contains("parameter 'x' has shape [12]; the argument has [3]"), "{}", text(&output));
}

#[test]
fn random_integers_and_seeds() {
    let folder = folder("random", &[]);
    let x = |more: &[&str]| {
        let launch: &[&str] = &["scale.cu", "--dim", "200", "--arg", "y=zeros:200", "--arg", "a=1", "--arg", "n=200"];
        report(&folder, &[launch, more].concat())["outputs"][0]["values"].clone()
    };
    let drawn: Vec<f64> = serde_json::from_value(x(&["--arg", "x=randint:-2:3:200"])).unwrap();
    for value in -2..3 {
        assert!(drawn.contains(&f64::from(value)), "{value} is not among {drawn:?}");
    }
    assert!(drawn.iter().all(|x| x.fract() == 0.0 && (-2.0..3.0).contains(x)), "{drawn:?}");
    let normal = ["--arg", "x=randn:200"];
    let seeded = |seed: &str| x(&[&normal[..], &["--seed", seed]].concat());
    assert_eq!(x(&normal), seeded("0"));
    assert_eq!(seeded("7"), seeded("7"));
    assert_ne!(seeded("7"), seeded("8"));
    assert_ne!(seeded("0"), seeded("1"));
    // Inputs without a seed stay as they are.
    assert_eq!(x(&normal)[0], json!(-1.5033555030822754));
}

#[test]
fn results_are_written_and_compared() {
    let folder = folder("expect", &[("x.npy", npy("<f4", "False", "(3, 4)", &f32s(twelve())))]);
    let run = |more: &[&str]| bornite(&folder, &[LAUNCH, &["--arg", "x=@x.npy"], more].concat());
    let output = run(&["--out", "results/inner"]);
    assert!(text(&output).contains("wrote results/inner/y.npy"), "{}", text(&output));
    let written = std::fs::read(folder.join("results/inner/y.npy")).unwrap();
    assert_eq!(written, npy("<f4", "False", "(3, 4)", &f32s(twelve().map(|x| 2.0 * x))));
    let output = run(&["--expect", "y=@results/inner/y.npy"]);
    assert!(output.status.success() && text(&output).contains("y: 12 values as expected"), "{}", text(&output));

    let off: Vec<f32> = twelve().map(|x| if x < 6.0 { 2.0 * x } else { 2.0 * x * 1.001 }).collect();
    std::fs::write(folder.join("off.npy"), npy("<f4", "False", "(3, 4)", &f32s(off))).unwrap();
    let output = run(&["--expect", "y=@off.npy"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: 6 of 12 values of 'y' differ; the first is y[1][2]: expected 12.012001, found 12.0";
    assert!(text(&output).contains(expected), "{}", text(&output));
    for tolerance in [["--rtol", "0.002"], ["--atol", "0.1"]] {
        let output = run(&[&["--expect", "y=@off.npy"], &tolerance[..]].concat());
        assert!(output.status.success(), "{tolerance:?}: {}", text(&output));
    }
    let output = run(&["--expect", "y=@off.npy", "--rtol", "0.0005", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let comparison = &found["expected"][0];
    assert_eq!((&found["ok"], &comparison["mismatches"]), (&json!(false), &json!(6)), "{found}");
    assert_eq!((&comparison["index"], &comparison["found"]), (&json!([1, 2]), &json!(12.0)), "{found}");
    assert!(found["error"].as_str().unwrap().contains("y[1][2]"), "{found}");
    for (more, expected) in [
        (&["--expect", "z=zeros:12"][..], "--expect: no array 'z'; the arrays are x, y"),
        (&["--expect", "y=zeros:11"], "--expect y: the array has shape [3, 4], expected [11]"),
        (&["--expect", "y=zeros:4x3"], "--expect y: the array has shape [3, 4], expected [4, 3]"),
        (&["--expect", "y=@x.bin"], "cannot read x.bin"),
        (&["--rtol=-1"], "expected a number of at least 0"),
        (&["--out", "x.npy"], "cannot create the folder x.npy"),
    ] {
        let output = run(more);
        assert!(!output.status.success() && text(&output).contains(expected), "{more:?}: {}", text(&output));
    }
    // NaN and infinities equal themselves.
    let special = ["--expr", "x / y", "--count", "3", "--arg", "x=0,1,-1", "--arg", "y=0,0,0", "--atol", "1"];
    let output = bornite(&folder, &[&special[..], &["--expect", "out=nan,inf,-inf"]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let output = bornite(&folder, &[&special[..], &["--expect", "out=nan,inf,inf"]].concat());
    assert!(text(&output).contains("the first is out[2]: expected inf, found -inf"), "{}", text(&output));
}

#[test]
fn elements_with_components() {
    let folder =
        folder("components", &[("v.npy", npy("<f4", "False", "(2, 3)", &f32s([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])))]);
    let source = "struct Item { int id; double weight; };
__global__ void swap(float3* v, Item* items, unsigned char* flags) {
    int i = threadIdx.x;
    v[i] = make_float3(v[i].z, v[i].y, v[i].x);
    items[i].weight *= 2.0;
    flags[i] += 1;
}
";
    std::fs::write(folder.join("swap.cu"), source).unwrap();
    let item = |id: i32, weight: f64| [&id.to_le_bytes()[..], &[0; 4], &weight.to_le_bytes()].concat();
    std::fs::write(folder.join("items.bin"), [item(7, 1.5), item(8, -4.0)].concat()).unwrap();
    let launch = ["swap.cu", "--grid", "1", "--block", "2", "--arg", "items=@items.bin", "--arg", "flags=[1, 255]"];
    for v in ["@v.npy", "1,2,3,4,5,6", "[[1, 2, 3], [4, 5, 6]]"] {
        let found = report(&folder, &[&launch[..], &["--arg", &format!("v={v}"), "--out", "out"]].concat());
        assert_eq!(found["outputs"][0]["values"], json!([3.0, 2.0, 1.0, 6.0, 5.0, 4.0]), "{v}: {found}");
        assert_eq!(found["outputs"][0]["shape"], json!([2, 3]), "{v}: {found}");
        assert_eq!(found["outputs"][1]["values"], json!([7, 3.0, 8, -8.0]), "{v}: {found}");
        assert_eq!(found["outputs"][2]["values"], json!([2, 0]), "{v}: {found}");
    }
    assert_eq!(std::fs::read(folder.join("out/items.bin")).unwrap(), [item(7, 3.0), item(8, -8.0)].concat());
    let output = bornite(&folder, &[&launch[..], &["--arg", "v=[[1, 2], [3, 4]]"]].concat());
    assert!(text(&output).contains("parameter 'v' has elements of 3 components"), "{}", text(&output));
    let items = [&launch[..6], &["items=@v.npy", "--arg", "flags=1,2", "--arg", "v=ones:2"]].concat();
    let output = bornite(&folder, &items);
    assert!(text(&output).contains("elements of several types"), "{}", text(&output));
}

#[test]
fn python_and_ir_kernels_take_files() {
    let folder = folder("languages", &[("x.npy", npy("<f4", "False", "(3, 4)", &f32s(twelve())))]);
    let python = "import warp as wp

@wp.kernel
def scale(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float), a: float):
    i, j = wp.tid()
    y[i, j] = a * x[i, j]
";
    std::fs::write(folder.join("scale.py"), python).unwrap();
    let expected: Vec<f32> = twelve().map(|x| 3.0 * x).collect();
    let launch = ["scale.py", "--dim", "3x4", "--arg", "x=@x.npy", "--arg", "y=zeros:3x4", "--arg", "a=3"];
    for device in ["interpreter", "cpu"] {
        let found = report(&folder, &[&launch[..], &["--device", device, "--expect", "x=@x.npy"]].concat());
        assert_eq!((&found["outputs"][0]["values"], &found["outputs"][0]["shape"]), (&json!(expected), &json!([3, 4])));
    }
    let flat = [&launch[..4], &["x=range:12", "--arg", "y=zeros:3x4", "--arg", "a=3"]].concat();
    assert!(!bornite(&folder, &flat).status.success());
    let found = report(&folder, &["--expr", "3 * x", "--count", "12", "--arg", "x=@x.npy"]);
    assert_eq!(found["outputs"][0]["values"], json!(expected));
}

#[test]
fn launches_are_read_from_toml() {
    let folder = folder(
        "launch",
        &[
            ("inner/x.npy", npy("<f4", "False", "(3, 4)", &f32s(twelve()))),
            ("inner/y.npy", npy("<f4", "False", "(3, 4)", &f32s(twelve().map(|x| 2.0 * x)))),
        ],
    );
    let toml = "kernel = \"scale\"\ngrid = [3, 1]\nblock = \"4x1\"\nshared = 0\nrtol = 1e-6\natol = 0\n\n[args]\nx = \"@x.npy\"\ny = \"zeros:12\"\na = 2\nn = 12\n\n[expect]\ny = \"@y.npy\"\n";
    let write = |text: &str| std::fs::write(folder.join("inner/launch.toml"), text).unwrap();
    write(toml);
    let launch = ["scale.cu", "--launch", "inner/launch.toml"];
    let output = bornite(&folder, &launch);
    assert!(
        output.status.success() && text(&output).contains("y: 12 values as expected (rtol 1e-6"),
        "{}",
        text(&output)
    );
    // Flags take precedence.
    let output = bornite(&folder, &[&launch[..], &["--arg", "a=3"]].concat());
    assert!(text(&output).contains("11 of 12 values of 'y' differ"), "{}", text(&output));
    let output = bornite(&folder, &[&launch[..], &["--dim", "8"]].concat());
    assert!(text(&output).contains("the first is y[2][0]: expected 16.0, found 0.0"), "{}", text(&output));
    for (from, to, expected) in [
        (
            "grid",
            "grids",
            "unknown key 'grids'; the keys are kernel, grid, block, dim, shared, seed, rtol, atol, args, expect",
        ),
        ("[3, 1]", "true", "grid must be a number"),
        ("[3, 1]", "\"0\"", "grid: write one to three sizes"),
        ("block = \"4x1\"", "dim = 12", "grid and dim exclude each other"),
        ("shared = 0", "shared = -1", "shared must be an integer of at least 0; found -1"),
        ("a = 2", "a = 1979-05-27", "args.a: 1979-05-27 is not an argument"),
        ("a = 2", "b = 2", "the kernel has no parameter 'b'"),
        ("\"@x.npy\"", "\"@z.npy\"", "inner/z.npy: No such file"),
        ("atol = 0", "atol = -1", "atol: expected a number of at least 0"),
        ("[args]", "args = 3\n[other]", "args must be a table"),
        ("[args]", "[args", "inner/launch.toml: "),
    ] {
        write(&toml.replacen(from, to, 1));
        let output = bornite(&folder, &launch);
        assert!(!output.status.success() && text(&output).contains(expected), "{to}: {}", text(&output));
    }
    let output = bornite(&folder, &["scale.cu", "--launch", "absent.toml"]);
    assert!(text(&output).contains("cannot read absent.toml"), "{}", text(&output));
}

#[test]
fn faults_show_both_accesses_and_flags() {
    let folder = folder("faults", &[]);
    let source = "__global__ void turn(float* x) {
    __shared__ float tile[4][8];
    int t = threadIdx.x;
    tile[t / 8][t % 8] = x[t];
    x[t] = tile[t % 4][t / 4];
}
__global__ void forever(int* x) {
    while (x[0] == 0) x[1] = 1;
}
";
    std::fs::write(folder.join("faults.cu"), source).unwrap();
    let run = ["faults.cu", "--kernel", "turn", "--grid", "1", "--block", "32", "--arg", "x=range:32"];
    for device in ["interpreter", "cpu"] {
        let output = bornite(&folder, &[&run[..], &["--device", device]].concat());
        let found = text(&output);
        assert!(found.contains("race on 'tile[1][0]': a write by thread [8, 0, 0]"), "{found}");
        let (later, earlier) = found.split_once("the earlier access, a write by thread [8, 0, 0]").unwrap();
        assert!(later.contains("--> faults.cu:5") && later.contains("x[t] = tile[t % 4][t / 4];"), "{found}");
        assert!(earlier.contains("--> faults.cu:4") && earlier.contains("tile[t / 8][t % 8] = x[t];"), "{found}");
    }
    let output = bornite(&folder, &[&run[..], &["--json", "--out", "none", "--expect", "x=zeros:32"]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["fault"], &found["line"], &found["ok"]), (&json!("race"), &json!(5), &json!(false)), "{found}");
    assert_eq!((&found["accesses"][0]["line"], &found["accesses"][1]["line"]), (&json!(4), &json!(5)), "{found}");
    assert!(found["accesses"][1]["access"].as_str().unwrap().starts_with("a read by thread"), "{found}");
    assert!(!folder.join("none").exists(), "results of a run with a fault are not written");
    let forever = ["faults.cu", "--kernel", "forever", "--grid", "1", "--block", "1", "--arg", "x=zeros:2"];
    for device in ["interpreter", "cpu"] {
        let output = bornite(&folder, &[&forever[..], &["--max-statements", "1000", "--device", device]].concat());
        let expected = "still running after 1000 statements; raise the limit with --max-statements";
        assert!(text(&output).contains(expected), "{}", text(&output));
    }
}
