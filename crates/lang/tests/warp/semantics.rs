//! Small programs with known results, for features that the goldens do not cover: names that change
//! in branches, and compile-time values.

use bornite_ir::interp::{InterpreterOptions, run_printing};
use bornite_ir::{Scalar, Value, load_scalar};
use bornite_lang::python::PythonModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

const DRAWS: &str = "
@wp.func
def draw(state: wp.ref[int]):
    state = state * 3 + 1
    return state
";

const BAGS: &str = "
@wp.struct
class Bag:
    data: wp.array[int]
    n: int
    v: wp.vec2i

@wp.struct
class Pair:
    bag: Bag
    k: int

@wp.func
def filled(s: Bag, i: int):
    if i > 2:
        s.n = s.n + 1
    return s.n * 2
";

/// Declarations before the kernel, its body, and what instances 0 to 3 write to `out`.
const PROGRAMS: [(&str, &str, [i64; 4]); 25] = [
    // An array created from the ptr of another shares its memory.
    (
        "",
        "p = wp.array(ptr=out.ptr, shape=(3,), dtype=int)\n    q = wp.array(ptr=out[2:].ptr, shape=(2,), dtype=out.dtype)\n    \
         if i < 2:\n        p[i] = 7 + i\n    else:\n        q[i - 2] = p.shape[0] * 10 + q.shape[0]",
        [7, 8, 32, 32],
    ),
    // Values in structs with arrays change in branches and loops, but copies of the structs do not.
    (BAGS, "s = Bag(x, 5)\n    if i > 1:\n        s.n = 7\n    out[i] = s.n", [5, 5, 7, 7]),
    (
        BAGS,
        "s = Bag(x, 5)\n    for k in range(i):\n        s.n += k\n        s.v[1] = k\n    out[i] = s.n * 10 + s.v[1]",
        [50, 50, 61, 82],
    ),
    (
        BAGS,
        "s = Bag(x, 5)\n    t = s\n    if i > 1:\n        s.n = 9\n        t.n = s.n + 1\n        s.n = 8\n    out[i] = t.n * 10 + s.n",
        [55, 55, 108, 108],
    ),
    (
        BAGS,
        "s = Bag(x, 5)\n    if i > 1:\n        s = Bag(x, 8 + i)\n    elif i == 1:\n        s.n = 1\n    out[i] = s.n",
        [5, 1, 10, 11],
    ),
    (BAGS, "s = Bag(x, 5)\n    if i > 1:\n        s.data[i] = 3\n    out[i] = s.data[i] + s.n", [5, 5, 8, 8]),
    (
        BAGS,
        "p = Pair(Bag(out, 2), 3)\n    while p.bag.n < 2 * i:\n        p.bag.n += 3\n        p.k *= 2\n    p.bag.data[i] = p.bag.n * 10 + p.k",
        [23, 23, 56, 92],
    ),
    (BAGS, "s = Bag(x, i)\n    a = filled(s, i)\n    out[i] = a", [0, 2, 4, 8]),
    // An array in a struct may be given late.
    (BAGS, "s = Bag()\n    s.n = 4\n    s.data = out\n    s.data[i] = s.n + i", [4, 5, 6, 7]),
    // `slice` and `range` as functions.
    (
        "",
        "a = out[slice(0, 4, 3)]\n    b = out[wp.slice(1, 4, 1)]\n    if i == 3:\n        b[2] = len(a) * 10 + len(b)",
        [0, 0, 0, 23],
    ),
    ("", "v = wp.vec4i(1, 2, 3, 4)\n    out[i] = v[slice(1, 3)][1] + i", [3, 4, 5, 6]),
    (
        "",
        "n = int(0)\n    for k in wp.reversed(wp.range(1, i, 1)):\n        n = n * 10 + k\n    out[i] = n",
        [0, 0, 1, 21],
    ),
    (DRAWS, "s = int(i)\n    y = draw(s) if i > 1 else 0\n    out[i] = s * 100 + y", [0, 100, 707, 1010]),
    (DRAWS, "s = int(i)\n    y = 0 if i > 1 else draw(s)\n    out[i] = s * 100 + y", [101, 404, 200, 300]),
    (DRAWS, "s = int(i)\n    if i > 1 and draw(s) > 7:\n        s += 50\n    out[i] = s", [0, 1, 7, 60]),
    (DRAWS, "s = int(i)\n    if i > 1 or draw(s) > 3:\n        s += 50\n    out[i] = s", [1, 54, 52, 53]),
    (DRAWS, "s = int(i)\n    while draw(s) < 50:\n        pass\n    out[i] = s", [121, 121, 67, 94]),
    (
        DRAWS,
        "s = int(i)\n    if i == 0:\n        s = 7\n    elif draw(s) > 5:\n        s += 50\n    out[i] = s",
        [7, 4, 57, 60],
    ),
    (
        DRAWS,
        "s = int(i)\n    if i > 1:\n        for k in range(draw(s)):\n            s += 1\n    out[i] = s",
        [0, 1, 14, 20],
    ),
    // In an unrolled loop, arrays may be swapped.
    (
        "",
        "a = out\n    b = x\n    for k in range(3):\n        a, b = b, a\n    b[i] = 7 + i\n    if i > 1:\n        a = a\n    out[i] = b[i]",
        [7, 8, 9, 10],
    ),
    // A loop with break around wp.static is not unrolled.
    (
        "",
        "s = int(0)\n    for k in range(4):\n        if k > i:\n            break\n        s += wp.static(2 + 3)\n    out[i] = s",
        [5, 10, 15, 20],
    ),
    (
        "",
        "v = wp.vec3i(1, 2, 3)\n    m = wp.mat22(0.0)\n    t = (i, 2.0, v, m)\n    out[i] = wp.static(len(v)) * 100 + wp.static(len(m)) * 10 + wp.static(len(t)) + i",
        [324, 325, 326, 327],
    ),
    ("MANY = range(20000)\n", "out[i] = wp.static(len(MANY)) + i", [20000, 20001, 20002, 20003]),
    // A step past the end.
    ("", "m = wp.mat22(1.0, 2.0, 3.0, 4.0)\n    out[i] = int(m[0:2:2147483647, 1][0]) + i", [2, 3, 4, 5]),
    // A struct with the name that is generated for a pair of ints.
    (
        "
@wp.struct
class tuple_i32_i32:
    a: float
    b: float
    c: int

@wp.func
def pair(n: int):
    if n > 100:
        return n, n
    return n + 1, n + 2
",
        "s = tuple_i32_i32()\n    s.c = i\n    a, b = pair(s.c)\n    out[i] = a * 10 + b + s.c",
        [12, 24, 36, 48],
    ),
];

#[test]
fn programs_give_expected_results() {
    let mut failed = vec![];
    for (before, body, expected) in PROGRAMS {
        let head = "@wp.kernel\ndef k(x: wp.array[int], out: wp.array[int]):\n    i = wp.tid()";
        let text = format!("import warp as wp\n\n{before}\n{head}\n    {body}\n");
        match outcome(&text) {
            Ok(found) if found == expected => {}
            found => failed.push(format!("{text}expected {expected:?}, found {found:?}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// 64-bit indices are not truncated, and indices into slices do not overflow. `far` is 2^32 + 1.
#[test]
fn wide_indices_are_out_of_bounds() {
    let cases = [
        ("out[0] = x[far]", Some("'x' of 4")),
        ("out[0] = x[-far]", Some("'x' of 4")),
        ("out[0] = x[wp.uint64(far)]", Some("'x' of 4")),
        ("out[0] = x[wp.uint32(0) - wp.uint32(1)]", Some("'x' of 4")),
        ("x[far] = 1", Some("'x' of 4")),
        ("wp.atomic_add(x, far, 1)", Some("'x' of 4")),
        ("out[0] = x[1:][far]", Some("'x' of 4")),
        ("y = x[::2]\n    out[0] = y[int(1073741824) * (i + 2)]", Some("'x' of 4")),
        ("y = x[::-1]\n    out[0] = y[far]", Some("'x' of 4")),
        ("y = x[2:]\n    out[0] = y[wp.uint32(0) - wp.uint32(1)]", Some("'x' of 4")),
        ("v[0][far] = 1", Some("'v, components' of 2")),
        ("out[0] = x[far - wp.int64(4294967296)]", None),
        ("y = x[2:]\n    out[0] = y[far - wp.int64(4294967297)]", None),
    ];
    for (body, expected) in cases {
        let text = format!(
            "import warp as wp\n\n@wp.kernel\ndef k(x: wp.array[int], v: wp.array[wp.vec2i], out: wp.array[int]):\n    \
             i = wp.tid()\n    far = wp.int64(i + 65536) * wp.int64(65536) + wp.int64(1)\n    {body}\n"
        );
        let module = PythonModule::parse("wide.py", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let request = LaunchRequest::with_dims(&[1]).shape("x", &[4]).shape("v", &[1]).shape("out", &[4]);
        let lowered = module.kernel("k", &request).unwrap_or_else(|errors| panic!("{errors}"));
        match (first(&lowered, 1, "out"), expected) {
            (Ok(_), None) => {}
            (Err(found), Some(expected)) if found.contains("is outside") && found.contains(expected) => {}
            (found, _) => panic!("{text}expected {expected:?}, found {found:?}"),
        }
    }
}

/// Negation follows IEEE 754, so the negation of 0 is -0. Warp subtracts from 0 instead, which
/// gives 0; docs/kernels.md lists the difference.
#[test]
fn negation_of_zero_is_negative_zero() {
    let body = "x = float(i)\n    v = -wp.vec2(x, x)\n    out[0] = int(1.0 / (-x) < 0.0) + 2 * int(1.0 / v[0] < 0.0) + 4 * int(1.0 / wp.neg(x) < 0.0)";
    let text = format!("import warp as wp\n\n@wp.kernel\ndef k(out: wp.array[int]):\n    i = wp.tid()\n    {body}\n");
    let module = PythonModule::parse("zero.py", &text).unwrap_or_else(|errors| panic!("{errors}"));
    let lowered =
        module.kernel("k", &LaunchRequest::with_dims(&[1]).shape("out", &[4])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(first(&lowered, 1, "out"), Ok(vec![7]));
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels.md")).unwrap();
    assert!(manual.contains("**Negation is that of IEEE 754**"), "docs/kernels.md does not list the difference");
}

/// Runs kernel `k` of a source and returns the contents of `out`.
fn outcome(text: &str) -> Result<Vec<i64>, String> {
    let module = PythonModule::parse("meaning.py", text).map_err(|errors| errors.to_string())?;
    let request = LaunchRequest::with_dims(&[4]).shape("x", &[4]).shape("out", &[4]);
    let lowered = module.kernel("k", &request).map_err(|errors| errors.to_string())?;
    first(&lowered, 4, "out")
}

/// Runs a kernel that takes only arrays, all of them zero, and returns the first numbers of one.
pub fn first(lowered: &Lowered, count: usize, name: &str) -> Result<Vec<i64>, String> {
    let mut memory = vec![vec![0u64; 2]; lowered.kernel.params.len()];
    let values: [Vec<Value>; 0] = [];
    let mut args = super::args(&lowered.kernel, &mut memory, &values);
    run_printing(&lowered.kernel, &mut args, InterpreterOptions::default(), &mut |_| {})
        .map_err(|fault| fault.to_string())?;
    let out = lowered.params.iter().find(|(found, _)| found == name).map(|(_, param)| param);
    let Some(ParamRef::View(n)) = out else { return Err(format!("no '{name}'")) };
    Ok((0..count).map(|i| load_scalar(&memory[*n as usize], i * 4, Scalar::I32).as_i64()).collect())
}

/// Statements and what they print.
const PRINTED: [(&str, &str); 9] = [
    ("print(\"a\\tb\")", "a\tb"),
    ("print(\"one\\ntwo\")", "one\ntwo"),
    ("wp.printf(\"x\\ty=%d\\n\\nend %d\\n\", 3, 4)", "x\ty=3\n\nend 4"),
    ("wp.printf(\"\\\"q\\\" back\\\\slash {%d}\\n\", 4)", "\"q\" back\\slash {4}"),
    ("print(wp.mat22(1.0, 2.0, 3.0, 4.5))", "1 2\n3 4.5"),
    ("print(wp.transform(wp.vec3(1.0, 2.0, 3.0), wp.quat_identity()))", "(1 2 3) (0 0 0 1)"),
    ("print(\"v {}\", wp.vec3(1.0, 2.0, 3.5), 7)", "v {} 1 2 3.5 7"),
    ("print(\"\")", ""),
    ("print(wp.vector(length=18, dtype=float))", "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n0 0"),
];

#[test]
fn print_output_is_exact() {
    for (body, expected) in PRINTED {
        let text = format!("import warp as wp\n\n@wp.kernel\ndef k(out: wp.array[int]):\n    {body}\n    out[0] = 1\n");
        let module = PythonModule::parse("printed.py", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let lowered =
            module.kernel("k", &LaunchRequest::with_dims(&[1]).shape("out", &[1])).unwrap_or_else(|e| panic!("{e}"));
        let (mut memory, mut lines) = (vec![vec![0u64; 1]], vec![]);
        let values: [Vec<Value>; 0] = [];
        let mut args = super::args(&lowered.kernel, &mut memory, &values);
        let keep = &mut |line: &str| lines.push(line.to_owned());
        run_printing(&lowered.kernel, &mut args, InterpreterOptions::default(), keep)
            .unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(lines.join("\n"), expected, "{body}");
    }
}

/// The IR names of struct fields differ from those of parameters.
#[test]
fn struct_fields_have_unique_ir_names() {
    let text = "import warp as wp\n\n@wp.struct\nclass A:\n    b: wp.array[int]\n    b_c: wp.array[int]\n\n\
        @wp.kernel\ndef k(a: A, a_b: wp.array[int], a_b_c: wp.array[int], a_b_: int, out: wp.array[int]):\n    \
        i = wp.tid()\n    out[i] = a.b[i] + a_b[i] * 10 + a.b_c[i] * a_b_c[i] + a_b_\n";
    let module = PythonModule::parse("fields.py", text).unwrap_or_else(|errors| panic!("{errors}"));
    let lowered = module.kernel("k", &LaunchRequest::with_dims(&[])).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<&str> = lowered.kernel.params.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["a_b__", "a_b_c_", "a_b", "a_b_c", "out"]);
}
