//! `bornite kernel grad` and `kernel gradcheck`: gradient kernels, and their comparison with finite
//! differences.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite::ir::adjoint::{
    Accumulation, Adjoint, AdjointError, AdjointOptions, AdjointRequest, AdjointRole, CheckError, CheckOptions,
    DEFAULT_TAPE_VALUES, GradientCheck, adjoint, check_gradients,
};
use bornite::ir::{Fault, Kernel, ParamId};
use bornite_codegen::cpp;
use bornite_codegen::cuda::{self, MathMode};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value as Json, json};

use super::emit::{EmitTarget, write_output};
use super::finding::RunFinding;
use super::source::{Job, KernelSelector};
use crate::{Failure, print, print_json};

/// Output format of `kernel grad`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GradTarget {
    /// IR text, which can be parsed again
    Ir,
    /// CUDA C++
    Cuda,
    /// C++ for the CPU, as a loop
    Cpp,
}

#[derive(Args)]
struct DifferentiationOptions {
    #[command(flatten)]
    source: KernelSelector,
    /// Arrays to differentiate with respect to [default: all arrays of floats]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    wrt: Vec<String>,
    /// Maximum number of values that a thread keeps of loops whose length is not constant
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TAPE_VALUES)]
    tape: u64,
    /// Add contributions of several threads to one element atomically, in any order
    #[arg(long)]
    atomic: bool,
}

/// Options of `bornite kernel grad`.
#[derive(Args)]
pub struct GradOptions {
    #[command(flatten)]
    differentiation: DifferentiationOptions,
    /// Output format
    #[arg(long, value_enum, default_value = "cuda")]
    target: GradTarget,
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Options of `bornite kernel gradcheck`.
#[derive(Args)]
pub struct GradcheckOptions {
    #[command(flatten)]
    differentiation: DifferentiationOptions,
    /// Maximum relative error
    #[arg(long, value_name = "X", default_value_t = 1e-6)]
    rtol: f64,
    /// Maximum number of components of each array to compare
    #[arg(long, value_name = "N", default_value_t = 200)]
    components: usize,
    /// Maximum number of statements per block before a run is aborted
    #[arg(long, value_name = "N", default_value_t = super::MAX_STATEMENTS)]
    max_statements: u64,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

impl DifferentiationOptions {
    fn request(&self, job: &Job) -> Result<AdjointRequest, Failure> {
        let kernel = &job.kernel;
        let is_float =
            |id: &ParamId| kernel.param(*id).ty.components(&kernel.structs).iter().any(|scalar| scalar.is_float());
        let all = || (0..kernel.params.len() as u32).map(ParamId);
        let named = |name: &String| {
            all().zip(&job.arrays).find(|(_, (array, _))| array == name).map(|(id, _)| id).ok_or_else(|| {
                let names: Vec<&str> = job.arrays.iter().map(|(name, _)| name.as_str()).collect();
                let values = kernel.values.iter().any(|value| value.name == *name);
                let hint = if values { "; a number is a constant: pass it in an array of one element" } else { "" };
                Failure::from(format!("--wrt: no array '{name}'; the arrays are {}{hint}", names.join(", ")))
            })
        };
        let with_respect_to = match &self.wrt[..] {
            [] => all().filter(is_float).collect(),
            names => names.iter().map(named).collect::<Result<Vec<_>, _>>()?,
        };
        let accumulation = if self.atomic { Accumulation::Atomic } else { Accumulation::Ordered };
        Ok(AdjointRequest { with_respect_to, options: AdjointOptions { accumulation, tape_values: self.tape } })
    }
}

/// The error of a kernel that has no gradient, with its source line.
fn refusal(job: &Job, error: &AdjointError) -> Failure {
    let AdjointError { kernel, message, remedy, .. } = error;
    let mut text = format!("kernel '{kernel}' cannot be differentiated: {message}");
    if let Some(shown) = error.line.map(|line| job.shown_line(line)) {
        text += &format!("\n{}", shown.trim_end());
    }
    if !remedy.is_empty() {
        text += &format!("\n  = hint: {remedy}");
    }
    text.into()
}

/// Prints the gradient kernel.
pub fn grad(options: &GradOptions) -> Result<ExitCode, Failure> {
    let job = options.differentiation.source.job()?;
    let request = options.differentiation.request(&job)?;
    let found = adjoint(&job.kernel, &request).map_err(|error| refusal(&job, &error))?;
    let (text, target) = match options.target {
        // IR text has no comments; it begins with the launch.
        GradTarget::Ir => (found.kernel.to_string(), EmitTarget::Ir),
        GradTarget::Cuda => {
            (comment(&job.kernel, &found) + &cuda::print_with(&found.kernel, MathMode::Exact), EmitTarget::Cuda)
        }
        GradTarget::Cpp => (comment(&job.kernel, &found) + &cpp::print(&found.kernel)?, EmitTarget::Cpp),
    };
    write_output(text.as_bytes(), target, options.out.as_deref())
}

/// The contents of each array.
fn comment(kernel: &Kernel, found: &Adjoint) -> String {
    let mut text = format!("// Gradient of the kernel '{}'. Arrays:\n", kernel.name);
    for (array, param) in found.arrays.iter().zip(&found.kernel.params) {
        let name = &kernel.param(array.param).name;
        let contents = match (array.role, param.access.writes()) {
            (AdjointRole::Original, false) => "contents before the launch".into(),
            (AdjointRole::Original, true) => "a copy of the contents before the launch, which is overwritten".into(),
            (AdjointRole::OutputGradient, false) => format!("gradient of '{name}' after the launch"),
            (AdjointRole::OutputGradient, true) => {
                format!("gradient of '{name}' after the launch; becomes that of '{name}' before it")
            }
            (AdjointRole::Gradient { copies: 1 }, _) => format!("zeros; becomes the gradient of '{name}'"),
            (AdjointRole::Gradient { copies }, _) => {
                format!("zeros; becomes {copies} gradients of '{name}', one after the other, to be added in order")
            }
        };
        text += &format!("// - {}: {contents}\n", param.name);
    }
    text
}

/// Compares gradients with finite differences.
pub fn gradcheck(options: &GradcheckOptions) -> Result<ExitCode, Failure> {
    let job = options.differentiation.source.job()?;
    let request = options.differentiation.request(&job)?;
    let check = CheckOptions {
        seed: options.differentiation.source.kernel_and_launch().1.seed(),
        max_components: options.components,
        max_statements: Some(options.max_statements),
    };
    let found = match check_gradients(&job.kernel, &job.values, &job.memory, &request, &check) {
        Ok(found) => found,
        Err(error) if options.json => return failed_as_json(&job, &error),
        Err(CheckError::Adjoint(error)) => return Err(refusal(&job, &error)),
        Err(CheckError::Run(fault)) => return failed(&job, &fault),
        Err(error @ (CheckError::RunAdjoint(_) | CheckError::Arguments { .. })) => {
            return Err(error.to_string().into());
        }
    };
    let is_close = |found: &GradientCheck| found.error() <= options.rtol;
    let ok = found.iter().all(is_close);
    if options.json {
        let arrays: Vec<Json> = found.iter().map(|found| array_json(&job, found)).collect();
        let report = json!({
            "kernel": job.kernel.name, "ok": ok, "rtol": options.rtol, "arrays": arrays, "error": null,
            "file": null, "line": null,
        });
        print_json(&report)?;
    } else {
        let lines: Vec<String> = found.iter().map(|found| line(&job, found, is_close(found))).collect();
        print(&lines.concat())?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failed(job: &Job, fault: &Fault) -> Result<ExitCode, Failure> {
    print(&RunFinding::of_fault(job, fault).text(job))?;
    Ok(ExitCode::FAILURE)
}

fn failed_as_json(job: &Job, error: &CheckError) -> Result<ExitCode, Failure> {
    let mut members = match error {
        CheckError::Run(fault) => RunFinding::json(Some(&RunFinding::of_fault(job, fault)), job),
        CheckError::RunAdjoint(_) | CheckError::Arguments { .. } => {
            Map::from_iter([("error".into(), json!(error.to_string()))])
        }
        CheckError::Adjoint(found) => {
            let (file, line) = found.line.map_or((None, None), |line| job.source_location(line));
            Map::from_iter([
                ("error".into(), json!(found.message)),
                ("remedy".into(), json!(found.remedy)),
                ("file".into(), json!(file)),
                ("line".into(), json!(line)),
            ])
        }
    };
    members.insert("kernel".into(), json!(job.kernel.name));
    members.insert("ok".into(), json!(false));
    members.insert("arrays".into(), json!([]));
    print_json(&members.into())?;
    Ok(ExitCode::FAILURE)
}

/// An element as the source names it: `x[2][3]`, with its component if it has several.
fn element(job: &Job, param: ParamId, element: usize, component: usize) -> String {
    let (name, shape) = &job.arrays[param.0 as usize];
    let (mut rest, mut indices) = (element as u64, vec![]);
    for size in shape.iter().rev() {
        indices.push(rest % size.max(&1));
        rest /= size.max(&1);
    }
    let indices: String = indices.iter().rev().map(|index| format!("[{index}]")).collect();
    let several = job.kernel.param(param).ty.component_count(&job.kernel.structs) > 1;
    format!("{name}{indices}{}", if several { format!(".{component}") } else { String::new() })
}

fn line(job: &Job, found: &GradientCheck, is_close: bool) -> String {
    let name = &job.arrays[found.param.0 as usize].0;
    let Some(worst) = &found.worst else { return format!("{name}: no elements\n") };
    let at = element(job, found.param, worst.element, worst.component);
    let compared = if found.checked == 1 { "1 component".into() } else { format!("{} components", found.checked) };
    format!(
        "{name}: {}, {compared}, largest relative error {:.1e} at {at} (gradient {:e}, finite difference {:e})\n",
        if is_close { "ok" } else { "WRONG" },
        worst.error,
        worst.gradient,
        worst.difference
    )
}

fn array_json(job: &Job, found: &GradientCheck) -> Json {
    let finite = |number: f64| number.is_finite().then_some(number);
    let worst = found.worst.as_ref().map(|worst| {
        json!({
            "at": element(job, found.param, worst.element, worst.component),
            "element": worst.element, "component": worst.component, "gradient": finite(worst.gradient),
            "difference": finite(worst.difference), "error": finite(worst.error),
        })
    });
    json!({"name": job.arrays[found.param.0 as usize].0, "checked": found.checked, "worst": worst})
}
