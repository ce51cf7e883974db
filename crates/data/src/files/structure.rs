//! Structure checks of pairs on the token level. Texts may come from this crate or from Warp;
//! comments are ignored.

use serde_json::Value;

use super::ExtraColumn;
use crate::coverage::is_math;

/// A structure check and its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructureCheck {
    /// Property that must hold.
    pub what: &'static str,
    /// True if it holds.
    pub holds: bool,
}

/// Structure checks of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairReport {
    /// File name.
    pub file: String,
    /// Category from the metadata.
    pub category: String,
    /// Checks; empty if the file is not a pair.
    pub checks: Vec<StructureCheck>,
    /// Reason why the file is not a pair.
    pub error: Option<String>,
}

impl PairReport {
    /// Report of a file that is not a pair.
    pub(super) fn not_a_pair(what: String) -> PairReport {
        PairReport { file: String::new(), category: String::new(), checks: vec![], error: Some(what) }
    }

    /// True if all checks hold.
    pub fn passes(&self) -> bool {
        self.error.is_none() && self.checks.iter().all(|check| check.holds)
    }
}

/// Checks a pair's structure: six checks, of which the last depends on its category, and one per
/// extra column.
pub fn check_pair(text: &str) -> PairReport {
    let not_a_pair = PairReport::not_a_pair;
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return not_a_pair(format!("not valid JSON: {error}")),
    };
    let metadata = &value["metadata"];
    let cuda = ["cuda_forward", "cpu_forward", "cpp_forward"].iter().find_map(|key| value[*key].as_str());
    let (Some(source), Some(cuda), Some(category)) =
        (value["python_source"].as_str(), cuda, metadata["category"].as_str())
    else {
        return not_a_pair("missing one of python_source, cuda_forward and metadata.category".into());
    };
    let Some(name) = metadata["kernel_name"].as_str().filter(|name| !name.is_empty()) else {
        return not_a_pair("missing metadata.kernel_name".into());
    };
    let code = CppTokens::new(cuda);
    let host = metadata["device"] == "cpu" || cuda.contains("_cpu_kernel_forward");
    let guards = if host { 0 } else { code.guards() };
    let check = |what, holds| StructureCheck { what, holds };
    let mut checks = if host {
        vec![
            check("the function is a CPU kernel", code.tokens.iter().any(|t| t.ends_with("_cpu_kernel_forward"))),
            check("the task index is used", code.has("task_index")),
            check("the source defines a kernel", source.contains("def ") && source.contains("@")),
        ]
    } else {
        vec![
            check("the function is extern \"C\" __global__", cuda.contains("extern \"C\" __global__")),
            check("a grid-stride loop or a guard keeps threads within bounds", guards > 0 || code.has("__shared__")),
            check("the thread index is used", code.has("blockIdx") || code.has("threadIdx")),
        ]
    };
    let defined =
        |name: &str| code.tokens.windows(3).any(|t| t[0] == "void" && is_kernel_name(t[1], name) && t[2] == "(");
    checks.push(check("brackets are balanced", code.balanced()));
    checks.push(check(
        "source and CUDA text define the kernel by name",
        source.contains(&format!("def {name}(")) && defined(name),
    ));
    checks.push(match category {
        "arithmetic" | "expression_tree" => check("there is arithmetic", code.computes()),
        "math" => check("a math function is called", code.calls(&|name| is_math(python_name(name)))),
        "vector" => check("there are vectors", code.tokens.iter().any(|t| is_vector(t))),
        "matrix" => check("there are matrices", code.tokens.iter().any(|t| *t == "mat_t" || sized(t, "mat"))),
        "control_flow" | "nested" | "multi_cond" => {
            let ways = ["if", "for", "while", "?", "where", "select", "goto"];
            let count = code.tokens.iter().filter(|t| ways.contains(t)).count();
            // The bounds guard does not count as a branch.
            check("there is a branch or a loop", count > guards.min(1))
        }
        "atomic" | "histogram" => check("there is an atomic operation", code.calls(&|name| name.starts_with("atomic"))),
        "shared_memory" | "tiled_matmul" => {
            let tile = |name: &str| name.starts_with("tile_");
            check("shared memory is used", code.has("__shared__") || code.calls(&tile))
        }
        _ => {
            let sets = ["=", "+=", "-=", "*=", "/=", "&=", "|=", "^=", "."];
            let stored = code.tokens.windows(2).any(|t| t[0] == "]" && sets.contains(&t[1]));
            let called = code.calls(&|name| name.contains("store") || name.starts_with("atomic"));
            check("an element is stored", stored || called)
        }
    });
    for extra in ExtraColumn::ALL {
        if let Some(text) = value[extra.column()].as_str().filter(|text| !text.is_empty()) {
            checks.push(check(extra.check_description(), extra.is_plausible(text, name)));
        }
    }
    PairReport { file: String::new(), category: category.into(), checks, error: None }
}

/// True if a function's name is the kernel's, or Warp's name for it: with a hash and a suffix.
fn is_kernel_name(function: &str, kernel: &str) -> bool {
    function.strip_prefix(kernel).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Python name of a C math function: `fmaxf` is `max`.
fn python_name(name: &str) -> &str {
    let short = name.strip_suffix('f').filter(|short| is_math(short) || short.starts_with('f')).unwrap_or(name);
    short.strip_prefix('f').filter(|short| is_math(short)).unwrap_or(short)
}

/// True for `mat3`, `mat33`, `mat3d` and so on; false for `float32`.
fn sized(token: &str, kind: &str) -> bool {
    let rest = token.strip_prefix(kind).unwrap_or("");
    let letters = rest.trim_end_matches(['d', 'f', 'h', 'i']);
    ["2", "3", "4", "22", "33", "44"].contains(&letters)
}

fn is_vector(token: &str) -> bool {
    let short = |kind| sized(token, kind);
    token == "vec_t"
        || ["vec", "float", "double", "int", "make_float", "make_double", "make_int"].into_iter().any(short)
}

/// Tokens of a C++ text, without comments, strings and preprocessor lines.
struct CppTokens<'a> {
    tokens: Vec<&'a str>,
}

impl<'a> CppTokens<'a> {
    fn new(text: &'a str) -> CppTokens<'a> {
        let mut tokens = vec![];
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let length = if rest.starts_with("//") || c == '#' {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else if c == '"' {
                1 + rest[1..].find('"').map_or(rest.len() - 1, |end| end + 1)
            } else if c.is_alphanumeric() || c == '_' {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
            } else if ["<=", ">=", "==", "!=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "::"]
                .iter()
                .any(|t| rest.starts_with(t))
            {
                2
            } else {
                c.len_utf8()
            };
            let (token, after) = rest.split_at(length);
            if !(c.is_whitespace() || c == '#' || c == '"' || token.starts_with("//") || token.starts_with("/*")) {
                tokens.push(token);
            }
            rest = after;
        }
        CppTokens { tokens }
    }

    fn has(&self, token: &str) -> bool {
        self.tokens.contains(&token)
    }

    /// True if a function with such a name is called.
    fn calls(&self, named: &dyn Fn(&str) -> bool) -> bool {
        self.tokens.windows(2).any(|t| t[1] == "(" && named(t[0]))
    }

    /// Number of comparisons of a thread-dependent index with an upper bound.
    fn guards(&self) -> usize {
        let mut indices: Vec<&str> = vec![];
        let strides = self.has("gridDim");
        // Per statement: `idx = … threadIdx …`. A loop over such an index must advance by the grid
        // size.
        for statement in self.tokens.split(|t| *t == ";" || *t == "{" || *t == "}") {
            if statement.iter().any(|t| *t == "threadIdx" || *t == "blockIdx")
                && let Some(at) = statement.iter().position(|t| *t == "=")
                && at > 0
                && (strides || !statement.contains(&"for"))
            {
                indices.push(statement[at - 1]);
            }
        }
        // A missing index is reported by another check.
        let any = !self.has("threadIdx") && !self.has("blockIdx");
        let below = |t: &[&str]| (any || indices.contains(&t[0])) && (t[1] == "<" || t[1] == ">=");
        self.tokens.windows(2).filter(|t| below(t)).count()
    }

    /// True if there is arithmetic besides index computations.
    fn computes(&self) -> bool {
        if self.tokens.windows(2).any(|t| t == ["wp", "::"]) {
            return self.calls(&|name| ["add", "sub", "mul", "div", "neg", "floordiv", "mod"].contains(&name));
        }
        let mut statements = self.tokens.split(|t| *t == ";" || *t == "{" || *t == "}");
        let index = |s: &[&str]| s.iter().any(|t| ["threadIdx", "blockIdx", "blockDim", "gridDim"].contains(t));
        // A `*` after a type declares a pointer; bodies have none.
        statements.any(|s| {
            !index(s)
                && s.contains(&"=")
                && s.iter().any(|t| ["+", "-", "*", "/", "%", "+=", "-=", "*=", "/=", "%="].contains(t))
        })
    }

    fn balanced(&self) -> bool {
        let mut open = vec![];
        for token in &self.tokens {
            match *token {
                "{" | "(" | "[" => open.push(*token),
                "}" if open.pop() != Some("{") => return false,
                ")" if open.pop() != Some("(") => return false,
                "]" if open.pop() != Some("[") => return false,
                _ => {}
            }
        }
        open.is_empty()
    }
}
