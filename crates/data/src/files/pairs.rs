//! Pairs as single JSON files: `python_source`, `cuda_forward` and metadata; and checks of such pairs, from whoever made them.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Error, Extra, Record, Result};

/// The file of a program's number.
pub(super) fn file_name(number: u64) -> String {
    format!("cuda_synth_{number:04}.json")
}

/// A row as a pair.
pub(super) fn pair(record: &Record) -> String {
    let (source, ops) = (record.text("source"), record.text("ops"));
    let ops: Vec<&str> = ops.split_whitespace().collect();
    let mut metadata = Map::new();
    for (key, value) in [
        ("kernel_name", record.text("name").into()),
        ("category", record.text("category").into()),
        ("description", record.text("description").into()),
        ("device", "cuda".into()),
        ("seed", record.int("seed").into()),
    ] as [(&str, Value); 5]
    {
        metadata.insert(key.into(), value);
    }
    let spelled = |names: &[&'static str]| {
        let found = names.iter().filter_map(|name| Some((source.find(&format!("wp.{name}"))?, *name))).min();
        found.map_or("", |(_, name)| name)
    };
    let first = |among: &[&'static str], otherwise: &'static str| {
        among.iter().copied().find(|op| ops.contains(op)).unwrap_or(otherwise)
    };
    let mut more = |key: &str, value: Value| drop(metadata.insert(key.into(), value));
    match record.text("category") {
        "arithmetic" => more("num_ops", ops.iter().filter(|op| !matches!(**op, "cast" | "if" | "for")).count().into()),
        "math" => {
            let functions: Vec<&str> = ops.iter().copied().filter(|op| MATH.contains(op)).collect();
            more("functions", json!(functions));
        }
        "vector" => {
            more("vec_type", spelled(&["vec2", "vec3", "vec4"]).into());
            more(
                "operation",
                first(&["dot", "length", "normalize", "cross", "length_sq", "cw_mul", "mul"], "add").into(),
            );
        }
        "matrix" => {
            more("mat_type", spelled(&["mat22", "mat33", "mat44"]).into());
            more("operation", first(&["transpose", "determinant", "trace", "outer", "mul"], "add").into());
        }
        "control_flow" => more("pattern", first(&["while", "for", "if", "where"], "if").into()),
        "atomic" => {
            let update = ops.iter().find_map(|op| op.strip_prefix("atomic_")).unwrap_or("add");
            more("operation", update.into());
        }
        _ => {}
    }
    let cuda = record.text("cuda").replacen("__global__ void", "extern \"C\" __global__ void", 1);
    let mut pair = json!({"python_source": source, "cuda_forward": cuda, "metadata": metadata});
    for extra in Extra::ALL.iter().filter(|extra| record.has(extra.column())) {
        pair[extra.column()] = record.text(extra.column()).into();
    }
    format!("{pair:#}\n")
}

const MATH: &[&str] = &[
    "abs",
    "sign",
    "min",
    "max",
    "clamp",
    "floor",
    "ceil",
    "round",
    "rint",
    "trunc",
    "frac",
    "sqrt",
    "cbrt",
    "pow",
    "exp",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "copysign",
    "lerp",
    "smoothstep",
    "degrees",
    "radians",
];

/// A check of a text's structure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructureCheck {
    /// What must hold.
    pub what: &'static str,
    /// Whether it does.
    pub holds: bool,
}

/// What was found of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairReport {
    /// The file.
    pub file: String,
    /// Of its metadata.
    pub category: String,
    /// The checks; none if the file is not a pair.
    pub checks: Vec<StructureCheck>,
    /// Why the file is not a pair.
    pub wrong: Option<String>,
}

impl PairReport {
    /// Whether all checks hold.
    pub fn passes(&self) -> bool {
        self.wrong.is_none() && self.checks.iter().all(|check| check.holds)
    }
}

/// The files of pairs in a folder, by name.
fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let others = ["progress.json", "generation_stats.json", "manifest.json", "stats.json"];
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".json") && !others.contains(&name.as_str()) && !name.starts_with('.')
    });
    files.sort();
    Ok(files)
}

/// Whether a folder holds pairs as single files.
pub fn is_pairs(folder: &Path) -> bool {
    files(folder).is_ok_and(|files| !files.is_empty())
}

/// Checks all pairs of a folder.
pub fn check_pairs(folder: &Path) -> Result<Vec<PairReport>> {
    let mut reports = vec![];
    for path in files(folder)? {
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let mut report = check_pair(&text);
        report.file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        reports.push(report);
    }
    Ok(reports)
}

/// Checks a pair's structure: six checks, of which the last is its category's.
pub fn check_pair(text: &str) -> PairReport {
    let wrong =
        |what: String| PairReport { file: String::new(), category: String::new(), checks: vec![], wrong: Some(what) };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return wrong(format!("it is not JSON: {error}")),
    };
    let metadata = &value["metadata"];
    let cuda = ["cuda_forward", "cpu_forward", "cpp_forward"].iter().find_map(|key| value[*key].as_str());
    let (Some(source), Some(cuda), Some(category)) =
        (value["python_source"].as_str(), cuda, metadata["category"].as_str())
    else {
        return wrong("it lacks one of python_source, cuda_forward and metadata.category".into());
    };
    let name = metadata["kernel_name"].as_str().unwrap_or("");
    let host = metadata["device"] == "cpu" || cuda.contains("_cpu_kernel_forward");
    let has = |any: &[&str]| any.iter().any(|word| cuda.contains(word));
    let check = |what, holds| StructureCheck { what, holds };
    let mut checks = if host {
        vec![
            check("it is a function for a CPU", cuda.contains("_cpu_kernel_forward")),
            check("it has the index of its task", cuda.contains("task_index")),
            check("the source is a kernel", source.contains("def ")),
        ]
    } else {
        let stride = cuda.contains("gridDim.x") && cuda.contains("+=") && cuda.contains("for (");
        let guarded =
            (cuda.contains("if (") && (cuda.contains(" < ") || cuda.contains(" >= "))) || has(&["__shared__"]);
        vec![
            check("it is an extern \"C\" __global__ function", cuda.contains("extern \"C\" __global__")),
            check("a grid-stride loop or a guard keeps threads within bounds", stride || guarded),
            check("it has the index of its thread", cuda.contains("blockIdx") || cuda.contains("threadIdx")),
        ]
    };
    checks.push(check("braces and brackets are closed", balanced(cuda)));
    checks.push(check("source and text have the kernel's name", source.contains(name) && cuda.contains(name)));
    checks.push(match category {
        "arithmetic" | "expression_tree" => check(
            "it computes",
            has(&["wp::add", "wp::mul", "wp::sub", "wp::div", "wp::neg", " + ", " * ", " - ", " / ", "-"]),
        ),
        "math" => check("it has a mathematical function", MATH.iter().any(|name| cuda.contains(name))),
        "vector" => {
            check("it has vectors", has(&["vec_t<", "vec2", "vec3", "vec4", "float2", "float3", "float4", "double"]))
        }
        "matrix" => check("it has matrices", has(&["mat_t<", "mat2", "mat3", "mat4"])),
        "control_flow" | "nested" | "multi_cond" => check(
            "it has a branch or a loop",
            has(&["if (", "for (", "while (", " ? ", "wp::where", "wp::select", "goto"]),
        ),
        "atomic" | "histogram" => check("it has an atomic update", has(&["atomic"])),
        "shared_memory" | "tiled_matmul" => check("it has shared memory", has(&["__shared__", "tile_shared"])),
        _ => check("it stores something", has(&["array_store", "atomic", " = ", "= "])),
    });
    PairReport { file: String::new(), category: category.into(), checks, wrong: None }
}

fn balanced(text: &str) -> bool {
    let mut open = vec![];
    for c in text.chars() {
        match c {
            '{' | '(' | '[' => open.push(c),
            '}' if open.pop() != Some('{') => return false,
            ')' if open.pop() != Some('(') => return false,
            ']' if open.pop() != Some('[') => return false,
            _ => {}
        }
    }
    open.is_empty()
}
