//! Tasks as JSON: a candidate, its reference, sizes, arguments and launch.

use std::collections::BTreeMap;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::expression::{self, Sizes};

/// One kernel to be judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeTask {
    /// Any JSON value; repeated in the verdict.
    #[serde(default)]
    pub id: serde_json::Value,
    /// The kernel to be judged.
    pub candidate: KernelSource,
    /// Everything else, which many candidates can share.
    #[serde(flatten)]
    pub problem: JudgeProblem,
}

/// The problem that a candidate solves: a reference or expected arrays, and the inputs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JudgeProblem {
    /// Kernel that defines the correct results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<KernelSource>,
    /// Inputs with expected outputs, instead of a reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<ExpectedCase>,
    /// Sizes to draw, by name.
    #[serde(default)]
    pub sizes: BTreeMap<String, SizeChoice>,
    /// Arguments, in the order of the reference's parameters.
    #[serde(default)]
    pub args: ArgList,
    /// Launch of the reference, and of candidates that come without their own.
    #[serde(default)]
    pub launch: LaunchSpec,
    /// Arrays that are compared; by default those that the reference writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<String>>,
    /// Relative tolerance; with `atol`, replaces the computed error bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtol: Option<f64>,
    /// Absolute tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atol: Option<f64>,
    /// Number of shapes to draw; 4 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shapes: Option<usize>,
    /// Random seed of shapes and inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Source of a kernel: its text, or an object with a text or file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "KernelSourceForm")]
pub struct KernelSource {
    /// Source text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// File with the source text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<std::path::PathBuf>,
    /// Language; by default that of the file's extension, else CUDA C++.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<KernelLanguage>,
    /// Kernel name, if the source has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Launch, if it differs from the task's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchSpec>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KernelSourceForm {
    Text(String),
    Object(KernelSourceObject),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelSourceObject {
    source: Option<String>,
    file: Option<std::path::PathBuf>,
    language: Option<KernelLanguage>,
    kernel: Option<String>,
    launch: Option<LaunchSpec>,
}

impl From<KernelSourceForm> for KernelSource {
    fn from(form: KernelSourceForm) -> KernelSource {
        match form {
            KernelSourceForm::Text(text) => KernelSource { source: Some(text), ..KernelSource::default() },
            KernelSourceForm::Object(KernelSourceObject { source, file, language, kernel, launch }) => {
                KernelSource { source, file, language, kernel, launch }
            }
        }
    }
}

/// Language of a kernel source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelLanguage {
    /// CUDA C++.
    Cuda,
    /// Python syntax of NVIDIA Warp.
    Python,
    /// Text form of the kernel IR.
    Ir,
}

/// Launch as expressions of the sizes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// Blocks along x, y and z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<ExtentList>,
    /// Threads per block along x, y and z; 256 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<ExtentList>,
    /// Threads in total along x, y and z, instead of `grid`; the launch dimensions of kernels in
    /// Python syntax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim: Option<ExtentList>,
    /// Bytes of dynamic shared memory per block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SizeExpression>,
}

/// An integer, or an expression of the sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SizeExpression {
    /// Integer.
    Constant(i64),
    /// Expression, such as `(n + 255) / 256`.
    Text(String),
}

impl SizeExpression {
    /// Returns the value for a drawn shape.
    pub fn evaluate(&self, sizes: &Sizes) -> Result<i64, String> {
        match self {
            SizeExpression::Constant(value) => Ok(*value),
            SizeExpression::Text(text) => expression::evaluate(text, sizes),
        }
    }
}

/// One extent, or a list of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExtentList {
    /// A single extent.
    One(SizeExpression),
    /// One extent per axis.
    Several(Vec<SizeExpression>),
}

impl ExtentList {
    /// Returns the extents for a drawn shape.
    pub fn evaluate(&self, sizes: &Sizes) -> Result<Vec<i64>, String> {
        match self {
            ExtentList::One(extent) => Ok(vec![extent.evaluate(sizes)?]),
            ExtentList::Several(extents) => extents.iter().map(|extent| extent.evaluate(sizes)).collect(),
        }
    }
}

/// Values that a size is drawn from: a number, a list of numbers, or a range `"1..1000"` (both
/// inclusive).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SizeChoice {
    /// Always this value.
    Fixed(i64),
    /// One of these values.
    OneOf(Vec<i64>),
    /// A range.
    Range(String),
}

/// An input with expected outputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCase {
    /// Sizes.
    #[serde(default)]
    pub sizes: Sizes,
    /// Arguments that differ from the task's.
    #[serde(default)]
    pub args: ArgList,
    /// Expected contents of the outputs.
    pub expected: BTreeMap<String, Vec<f64>>,
}

/// Arguments by name, in the order of the JSON object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArgList(pub Vec<(String, ArgSource)>);

/// An argument: a number, a list of numbers, or a text such as `randn:n` or `2 * n`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArgSource {
    /// A number.
    Number(serde_json::Number),
    /// Contents of an array, or components of a value.
    List(Vec<f64>),
    /// A filled array, or an expression of the sizes.
    Text(String),
}

impl<'de> Deserialize<'de> for ArgList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ArgList, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = ArgList;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object of arguments by parameter name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ArgList, A::Error> {
                let mut all: Vec<(String, ArgSource)> = vec![];
                while let Some((name, source)) = map.next_entry()? {
                    if all.iter().any(|(other, _)| *other == name) {
                        return Err(serde::de::Error::custom(format!("argument '{name}' appears twice")));
                    }
                    all.push((name, source));
                }
                Ok(ArgList(all))
            }
        }
        from.deserialize_map(InOrder)
    }
}

impl Serialize for ArgList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, source)| (name, source)))
    }
}
