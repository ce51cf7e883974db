//! Forms of tasks: expected arrays, tolerances, IR, files, and what is wrong with them.

use bornite_judge::{Comparison, Judge, JudgeOptions, JudgeOutcome, Verdict};
use serde_json::{Value, json};

fn judge(task: &Value) -> Verdict {
    Judge::new(JudgeOptions::default()).judge_json(&task.to_string())
}

fn expect(task: &Value, outcome: JudgeOutcome, text: &str) -> Verdict {
    let verdict = judge(task);
    let said = format!("{} {}", verdict.kind, verdict.message);
    assert!(verdict.verdict == outcome && said.contains(text), "{task}\n{verdict:?}");
    verdict
}

const TWICE: &str = "__global__ void twice(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}";

fn twice() -> Value {
    json!({
        "id": {"any": 1}, "candidate": TWICE, "reference": TWICE, "sizes": {"n": "1..300"},
        "args": {"y": "uninitialized:n", "x": "randn:n", "n": "n"}, "launch": {"dim": "n", "block": 64},
    })
}

fn with(mut task: Value, key: &str, value: Value) -> Value {
    task[key] = value;
    task
}

/// A task with expected arrays: y = 3 x for two inputs.
fn cases(source: &str) -> Value {
    let case = |seed: f64| {
        let x: Vec<f64> = (0..12).map(|n| (seed * (n + 1) as f64).sin()).collect();
        let y: Vec<f64> = x.iter().map(|x| (3.0 * *x as f32) as f64).collect();
        json!({"args": {"x": x}, "expected": {"y": y}})
    };
    json!({
        "candidate": source, "cases": [case(1.1), case(2.3)], "launch": {"grid": 1, "block": 32},
        "args": {"y": "uninitialized:12", "x": "zeros:12"},
    })
}

#[test]
fn verdicts_repeat_the_id_and_count_shapes() {
    let verdict = expect(&twice(), JudgeOutcome::Right, "");
    assert_eq!((verdict.id, verdict.shapes, verdict.reward), (json!({"any": 1}), 4, Some(1.0)));
    assert_eq!(verdict.comparison, Some(Comparison::Bounds));
}

#[test]
fn sources_that_are_no_kernel_are_named() {
    use JudgeOutcome::{DoesNotCompile, Unsupported, Wrong};
    for (source, outcome, text) in [
        ("__global__ void k(float* y, const float* x, int n) { y[0] = }", DoesNotCompile, "error:"),
        ("int main() {}", DoesNotCompile, "no kernel"),
        ("", DoesNotCompile, "no kernel"),
        ("__global__ void k(float* y, const float* x, int n) { y[0] = undefined; }", DoesNotCompile, "undefined"),
        ("__global__ void k(float* y, const float* x, int n) { goto end; end: ; }", Unsupported, "goto"),
        ("__global__ void k(float* y, const float* x) { y[0] = x[0]; }", Wrong, "parameters (y, x)"),
        ("__global__ void k(double* y, const float* x, int n) { y[0] = x[0]; }", Wrong, "array of (f64)"),
        ("__global__ void k(float* y, const float* x, float n) { y[0] = x[0]; }", Wrong, "value of (f32)"),
        ("__global__ void a(float* y) {}\n__global__ void b(float* y) {}", DoesNotCompile, "several kernels"),
        (
            "__global__ void k(float* y, const float* x, int n) { __shared__ float s[100000]; s[0] = n; y[0] = s[0]; }",
            DoesNotCompile,
            "shared memory",
        ),
    ] {
        expect(&with(twice(), "candidate", json!(source)), outcome, text);
    }
}

#[test]
fn infinite_loops_end_by_the_statement_limit() {
    let source = "__global__ void k(float* y, const float* x, int n) { while (n > 0) { y[0] = x[0]; } }";
    let task = with(twice(), "candidate", json!({"source": source, "launch": {"grid": 1, "block": 1}}));
    expect(&task, JudgeOutcome::TimeLimit, "statements");
}

#[test]
fn invalid_tasks_say_what_is_wrong() {
    let reference_fault = "__global__ void k(float* y, const float* x, int n) { y[n] = x[0]; }";
    let nondeterministic = "__global__ void k(float* y, const float* x, int n) {
        if (threadIdx.x < n) y[0] = atomicExch(&y[0], x[threadIdx.x]);
    }";
    for (key, value, text) in [
        ("reference", json!("int"), "the reference does not compile"),
        ("reference", json!(reference_fault), "the reference fails"),
        ("reference", json!(nondeterministic), "the reference fails"),
        ("reference", json!({"file": "/nonexistent/kernel.cu"}), "nonexistent"),
        ("args", json!({"y": "uninitialized:n", "x": "randn:n"}), "the task has the arguments (x, y)"),
        ("args", json!({"y": "uninitialized:n", "x": "randn:m", "n": "n"}), "unknown size 'm'"),
        ("args", json!({"y": "uninitialized:n", "x": "gaussian:n", "n": "n"}), "unknown kind 'gaussian'"),
        ("args", json!({"y": 1, "x": "randn:n", "n": "n"}), "'y': a number for a parameter that is an array"),
        ("args", json!({"y": "zeros:n", "x": "randn:n", "n": 1.5}), "1.5 is not a value of type i32"),
        ("sizes", json!({"n": "9..3"}), "not a range"),
        ("sizes", json!({"n": -3}), "sizes are from 0"),
        ("launch", json!({"block": 64}), "specify 'grid' or 'dim'"),
        ("launch", json!({"grid": "n", "block": 2000}), "more than 1024 threads"),
        ("launch", json!({"grid": 1, "blok": 1}), "unknown field `blok`"),
        ("outputs", json!(["z"]), "output 'z' is not an argument"),
        ("rtol", json!(-1.0), "must not be negative"),
        ("tolerance", json!(1e-3), "unknown field `tolerance`"),
        ("cases", json!([{"expected": {"y": [1.0]}}]), "either 'reference' or 'cases'"),
    ] {
        let verdict = expect(&with(twice(), key, value), JudgeOutcome::InvalidTask, text);
        assert_eq!(verdict.reward, None);
    }
    let verdict = Judge::new(JudgeOptions::default()).judge_json("{\"id\": 7, \"candidate\": ");
    assert_eq!((verdict.verdict, verdict.kind.as_str()), (JudgeOutcome::InvalidTask, "json"));
}

#[test]
fn expected_arrays_catch_wrong_constant_and_memorized_outputs() {
    let right =
        "__global__ void k(float* y, const float* x) { if (threadIdx.x < 12) y[threadIdx.x] = 3.0f * x[threadIdx.x]; }";
    let verdict = expect(&cases(right), JudgeOutcome::Right, "");
    assert_eq!(verdict.comparison, Some(Comparison::DefaultTolerance));
    expect(&cases(&right.replace("3.0f", "3.01f")), JudgeOutcome::Wrong, "value");
    let task = cases(right);
    let list = |case: usize| {
        let numbers = task["cases"][case]["expected"]["y"].as_array().unwrap();
        numbers.iter().map(|number| format!("{number}f")).collect::<Vec<_>>().join(", ")
    };
    let table = format!(
        "__global__ void k(float* y, const float* x) {{
            const float a[12] = {{{}}};
            const float b[12] = {{{}}};
            for (int i = 0; i < 12; i++) if (threadIdx.x == i) y[i] = x[0] > 0.8f && x[0] < 0.9f ? a[i] : b[i];
        }}",
        list(0),
        list(1)
    );
    expect(&cases(&table), JudgeOutcome::Cheating, "embedded_output");
    // One case: a constant passes the comparison, but not the inputs that are altered.
    let mut single = cases(
        "__global__ void k(float* y, const float* x) { if (threadIdx.x < 12) y[threadIdx.x] = 0.5f + 0.0f * x[0]; }",
    );
    single["cases"] = json!([{"args": {"x": vec![1.0; 12]}, "expected": {"y": vec![0.5; 12]}}]);
    expect(&single, JudgeOutcome::Cheating, "constant_output");
}

#[test]
fn tolerances_replace_bounds() {
    let rough = TWICE.replace("2.0f", "2.001f");
    let task = with(twice(), "candidate", json!(rough));
    expect(&task, JudgeOutcome::Wrong, "value");
    let verdict = expect(&with(task.clone(), "rtol", json!(1e-3)), JudgeOutcome::Right, "");
    assert_eq!(verdict.comparison, Some(Comparison::Tolerance));
    expect(&with(task, "rtol", json!(1e-5)), JudgeOutcome::Wrong, "value");
}

#[test]
fn bounds_that_are_too_wide_are_inconclusive_rather_than_wrong() {
    // A difference of nearly equal numbers, of which rounding leaves nothing.
    let reference = "__global__ void k(float* y, const float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = (x[i] * 0.1f + 100000.0f) - 100000.0f;
    }";
    let task = with(twice(), "reference", json!(reference));
    let verdict = expect(&with(task.clone(), "candidate", json!(reference)), JudgeOutcome::Right, "");
    assert_eq!(verdict.comparison, Some(Comparison::DefaultTolerance));
    let exact = TWICE.replace("2.0f", "0.1f");
    expect(&with(task.clone(), "candidate", json!(exact)), JudgeOutcome::Inconclusive, "wide_bound");
    expect(&with(task, "candidate", json!(TWICE)), JudgeOutcome::Wrong, "value");
}

#[test]
fn branches_that_rounding_decides_fall_back_to_a_tolerance() {
    // 0.1 + 0.2 > 0.3 depends on rounding for every input.
    let reference = "__global__ void k(float* y, const float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float t = (x[i] - x[i]) + 0.1f;
        for (int j = 0; j < 2; j++) t += 0.1f;
        if (i < n) { if (t > 0.3f) y[i] = x[i]; else y[i] = x[i] + 1e-6f; }
    }";
    let task = with(with(twice(), "reference", json!(reference)), "candidate", json!(reference));
    let task = with(with(task, "sizes", json!({"n": 64})), "launch", json!({"dim": 64, "block": 64}));
    let verdict = expect(&task, JudgeOutcome::Right, "");
    assert_eq!(verdict.comparison, Some(Comparison::DefaultTolerance));
    assert!(verdict.notes[0].contains("rounding decides a branch"), "{:?}", verdict.notes);
}

#[test]
fn references_in_ir_and_candidates_with_vector_loads() {
    let module = bornite_lang::cuda::CudaModule::parse("k.cu", TWICE).unwrap();
    let launch = bornite_lang::LaunchRequest::new([1, 1, 1], [64, 1, 1]).length("y", 64).length("x", 64);
    let ir = module.kernel("twice", &launch).unwrap().kernel.to_string();
    let task = with(with(twice(), "reference", json!({"source": ir, "language": "ir"})), "sizes", json!({"n": 64}));
    let verdict = expect(&task, JudgeOutcome::Right, "");
    assert_eq!(verdict.comparison, Some(Comparison::Bounds));
    let vectors = "__global__ void k(float4* y, const float4* x, int n) {
        int i = threadIdx.x;
        if (4 * i < n) { float4 v = x[i]; y[i] = make_float4(v.x + v.x, v.y + v.y, v.z + v.z, v.w + v.w); }
    }";
    expect(&with(task, "candidate", json!(vectors)), JudgeOutcome::Right, "");
}
