//! Rows from handwritten kernels in Python syntax.
//!
//! Such kernels have no program tree, so the reference evaluator cannot check them. Instead, a
//! kernel is lowered to IR with all sizes left open; the CUDA C++ printed from it is the row's CUDA
//! text and must parse back to the same kernel. That text then runs under the checking interpreter,
//! in blocks of threads, for launches of several sizes, in forward and reverse order, against the
//! source lowered for each launch. No fault may be reported, and all runs must leave the same
//! memory (`launch.rs`), up to the rounding of sums whose order is unspecified (`sums.rs`).

mod annotations;
mod launch;
mod sums;

use std::collections::BTreeSet;
use std::fmt::Write;

use bornite_codegen::{cpp, cuda};
use bornite_ir::{Kernel, LaunchMode, Scalar, Type};
use bornite_lang::python::{PythonKernelInfo, PythonModule};
use bornite_lang::{Errors, LaunchRequest, Lowered, ParamRef};

use annotations::{Annotations, launch_name, parse_annotation};
use launch::{CudaText, ObservedEffects};

/// A kernel of a file, and the result of ingesting it.
#[derive(Clone, Debug)]
pub struct IngestedKernel {
    /// Its name.
    pub name: String,
    /// Line of its definition.
    pub line: u32,
    /// Its texts, or the reason why no row was created.
    pub outcome: Result<KernelTexts, String>,
}

/// Texts of an ingested kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelTexts {
    /// Source: the kernel with the imports, constants, structs and functions that it needs.
    pub source: String,
    /// CUDA C++. Sizes of arrays and of the launch are parameters.
    pub cuda: String,
    /// C++ for a CPU, with the same parameters; empty for kernels that it cannot express.
    pub cpp: String,
    /// Kernel IR.
    pub ir: String,
    /// The kernel's docstring, if any.
    pub description: String,
    /// Recipe of the inputs, one line per parameter, and of the launch.
    pub inputs: String,
    /// Threads per block when launching the CUDA text.
    pub block: [u32; 3],
    /// Names of the operators and functions used in the source.
    pub ops: Vec<String>,
    /// Names of the types used in the source.
    pub types: Vec<&'static str>,
}

/// Ingests all kernels of a source.
pub fn ingest(file: &str, source: &str) -> Result<Vec<IngestedKernel>, Errors> {
    let module = PythonModule::parse(file, source)?;
    let kernels = module.kernels();
    let stray = stray(&kernels, source);
    Ok((kernels.into_iter().enumerate())
        .map(|(n, kernel)| {
            let outcome = match stray {
                Some((line, target)) if target == n => Err(format!(
                    "line {line}: '# given:' annotations must be inside a kernel, before its last statement"
                )),
                _ => check_kernel(&Declaration { module: &module, n, kernel: &kernel }, source),
            };
            IngestedKernel { name: kernel.name, line: kernel.line, outcome }
        })
        .collect())
}

/// Annotation line outside every kernel, and the kernel it may be meant for: the previous one, or
/// the first.
fn stray(kernels: &[PythonKernelInfo], source: &str) -> Option<(u32, usize)> {
    let outside = |line: u32| !kernels.iter().any(|kernel| kernel.lines.contains(&line));
    let (line, _) =
        (1u32..).zip(source.lines()).find(|(line, text)| parse_annotation(text).is_some() && outside(*line))?;
    Some((line, kernels.iter().rposition(|kernel| *kernel.lines.start() < line).unwrap_or(0)))
}

/// A kernel, with the module that declares it and its number there.
struct Declaration<'m> {
    module: &'m PythonModule,
    n: usize,
    kernel: &'m PythonKernelInfo,
}

impl Declaration<'_> {
    /// Lowers the kernel for a launch. Generic types are instantiated as `float32`.
    fn lower(&self, request: &LaunchRequest) -> Result<Lowered, String> {
        let types: Vec<(&str, &str)> =
            self.kernel.generic_params.iter().map(|name| (name.as_str(), "float32")).collect();
        self.module.kernel_at(self.n, &types, request).map_err(first_message)
    }

    /// Rank of the launch: the number of values that the kernel takes from `wp.tid()`.
    fn rank(&self) -> Result<usize, String> {
        let counts: BTreeSet<usize> = self.kernel.tid_counts.iter().copied().collect();
        let mut counts = counts.into_iter();
        match (counts.next(), counts.next_back()) {
            (Some(min), Some(max)) => Err(format!(
                "wp.tid() is unpacked into both {min} and {max} values: unpack as many each time as the launch has \
                 dimensions"
            )),
            (one, _) => Ok(one.unwrap_or(1).clamp(1, 4)),
        }
    }

    /// Its lines, with their numbers.
    fn lines<'s>(&self, source: &'s str) -> Vec<(u32, &'s str)> {
        (1u32..).zip(source.lines()).filter(|(number, _)| self.kernel.lines.contains(number)).collect()
    }

    /// Excerpt of the source that the kernel needs, if it lowers to the same IR, otherwise the
    /// complete source; and the operations in it.
    fn excerpt(&self, ir: &str, source: &str) -> (String, Vec<String>) {
        let (text, ops) = self.module.excerpt(self.n);
        let is_equivalent = PythonModule::parse("kernel.py", &text).is_ok_and(|module| {
            module.kernels().iter().enumerate().any(|(n, kernel)| {
                let other = Declaration { module: &module, n, kernel };
                other.lower(&LaunchRequest::with_dims(&[])).is_ok_and(|lowered| lowered.kernel.to_string() == ir)
            })
        });
        (if is_equivalent { text } else { source.to_owned() }, ops)
    }
}

fn first_message(errors: Errors) -> String {
    errors.diagnostics.first().map_or(errors.to_string(), |first| first.message.clone())
}

fn check_kernel(kernel: &Declaration<'_>, source: &str) -> Result<KernelTexts, String> {
    let open = kernel.lower(&LaunchRequest::with_dims(&[]))?;
    let rank = kernel.rank()?;
    if !open.kernel.params.iter().any(|param| param.access.writes()) {
        return Err("the kernel writes to no array".into());
    }
    let cuda = cuda::print(&open.kernel);
    let parsed =
        parse_back(&open.kernel, &cuda).map_err(|why| format!("the CUDA front end rejects the printed text: {why}"))?;
    if cuda::print(&parsed) != cuda {
        return Err("the printed CUDA text parses to a different kernel".into());
    }
    let text = CudaText::read(&open, &cuda)?;
    let annotations = Annotations::parse(&kernel.lines(source), &open, rank)?;
    let mut effects = ObservedEffects::default();
    for (number, dims) in annotations.launches.iter().enumerate() {
        let mut request = LaunchRequest::with_dims(dims);
        for (name, param) in &open.params {
            if let ParamRef::View(view) = param {
                let rank = open.kernel.params[*view as usize].dims.len();
                request = request.shape(name, &annotations.extents(name, rank, dims)?);
            }
        }
        launch::compare(&kernel.lower(&request)?, &text, &annotations, number, &mut effects)?;
    }
    effects.require_informative(&open.kernel)?;
    let ir = open.kernel.to_string();
    let (source, ops) = kernel.excerpt(&ir, source);
    Ok(KernelTexts {
        source,
        cpp: cpp::print(&open.kernel).unwrap_or_default(),
        description: kernel.kernel.docstring.clone(),
        inputs: recipe(&open, &annotations, rank),
        block: launch::BLOCK,
        ops,
        types: types_of(&open.kernel),
        cuda,
        ir,
    })
}

/// Parses a text that our printer wrote back to IR.
fn parse_back(kernel: &Kernel, text: &str) -> Result<Kernel, String> {
    let module = bornite_lang::cuda::CudaModule::parse("kernel.cu", text).map_err(first_message)?;
    let (grid, block) = match kernel.launch {
        LaunchMode::ParallelFor { .. } => ([1; 3], [1; 3]),
        LaunchMode::Blocks { grid, block } => (grid, block),
    };
    let mut request = LaunchRequest::new(grid, block);
    (request.index_type, request.round_trip) = (Some(kernel.index), true);
    request.views = kernel.params.iter().map(|p| (p.name.clone(), p.dims.clone())).collect();
    module.kernel(&cuda::symbol(kernel), &request).map(|lowered| lowered.kernel).map_err(first_message)
}

/// Recipe of the inputs.
fn recipe(open: &Lowered, annotations: &Annotations, rank: usize) -> String {
    let kernel = &open.kernel;
    let type_name = |ty: Type| {
        let names: Vec<&str> = ty.components(&kernel.structs).into_iter().map(Scalar::name).collect();
        match names[..] {
            [one] => one.to_owned(),
            [first, ..] if names.iter().all(|name| *name == first) => format!("{first}x{}", names.len()),
            _ => format!("{{{}}}", names.join(", ")),
        }
    };
    let fill_text = |scalars: &[Scalar], bound: &str| {
        let one = |scalar: &Scalar| match scalar {
            scalar if scalar.is_float() => "uniform -1 to 3 in steps of 1/1024".to_owned(),
            Scalar::Bool => "either".to_owned(),
            _ => format!("indices below {bound}"),
        };
        let mut all: Vec<String> = scalars.iter().map(one).collect();
        all.dedup();
        all.join("; ")
    };
    let (first, mut text) = (launch_name(0, rank), String::new());
    // Parameter name in the source, which may differ from the one in the texts.
    let source_name = |n: usize| {
        open.params.iter().find(|(_, param)| *param == ParamRef::View(n as u32)).map_or("", |(name, _)| name)
    };
    for (n, param) in kernel.params.iter().enumerate() {
        let extents: Vec<String> = (0..param.dims.len()).map(|n| format!("{}_shape{n}", param.name)).collect();
        let fill = fill_text(&param.ty.components(&kernel.structs), &annotations.bound_text(source_name(n)));
        let _ = writeln!(text, "{}: {}[{}] = {fill}", param.name, type_name(param.ty), extents.join(", "));
    }
    for (name, param) in &open.params {
        let ParamRef::Value(n) = param else { continue };
        let ty = kernel.values[*n as usize].ty;
        let fill = match annotations.value_text(name) {
            Some(annotated) => annotated,
            None if ty.as_scalar().is_some_and(launch::is_length) => first.clone(),
            None => fill_text(&ty.components(&kernel.structs), &first),
        };
        let _ = writeln!(text, "{}: {} = {fill}", kernel.values[*n as usize].name, type_name(ty));
    }
    for (index, param) in kernel.params.iter().enumerate() {
        for n in 0..param.dims.len() {
            let _ = writeln!(text, "{}_shape{n}: i32 = {}", param.name, annotations.extent_text(source_name(index), n));
            if n + 1 < param.dims.len() {
                let within: Vec<String> =
                    (n + 1..param.dims.len()).map(|k| format!("{}_shape{k}", param.name)).collect();
                let _ = writeln!(text, "{}_stride{n}: i32 = {}", param.name, within.join(" * "));
            }
        }
    }
    if rank > 1 {
        let all: Vec<String> = (0..rank).map(|n| launch_name(n, rank)).collect();
        let _ = writeln!(text, "launch_count: i32 = {}", all.join(" * "));
    }
    for n in 0..rank {
        let sizes: Vec<String> = annotations.launches.iter().map(|dims| dims[n].to_string()).collect();
        let _ = writeln!(text, "{}: i32 = {}", launch_name(n, rank), sizes.join(", "));
    }
    let [x, y, z] = launch::BLOCK;
    text + &format!("block: {x}x{y}x{z}\ngrid: covers launch_count\n")
}

fn types_of(kernel: &Kernel) -> Vec<&'static str> {
    let codes = kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]);
    let params = kernel.params.iter().map(|p| p.ty).chain(kernel.values.iter().map(|v| v.ty));
    let mut names = BTreeSet::new();
    for ty in params.chain(codes.flat_map(|code| code.types.iter().copied())) {
        names.extend(ty.components(&kernel.structs).into_iter().map(Scalar::name));
        names.extend(match ty {
            Type::Scalar(_) => None,
            Type::Vector(..) => Some("vector"),
            Type::Matrix(..) => Some("matrix"),
            Type::Struct(_) => Some("struct"),
        });
    }
    names.into_iter().collect()
}
