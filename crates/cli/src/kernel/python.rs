//! Kernels of Python-syntax files, lowered for a launch.

use std::path::Path;

use bornite::ir::Kernel;
use bornite_lang::python::{self, PythonModule};
use bornite_lang::{LaunchRequest, LoadError};

use super::check::{CheckVerdict, CheckedKernel};
use super::cuda::{LaunchOptions, SourceLines, read};
use super::source::Job;
use crate::Failure;

/// Returns true for Python-syntax files.
pub fn is_python(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "py")
}

fn load(file: &Path) -> Result<PythonModule, Failure> {
    PythonModule::load(file).map_err(|error| match error {
        LoadError::Invalid(errors) => errors.into(),
        other => other.into(),
    })
}

/// The launch that the command line specifies.
fn request(launch: &LaunchOptions, module: &PythonModule, name: &str) -> Result<LaunchRequest, Failure> {
    let mut request = LaunchRequest::with_dims(launch.dim.as_ref().map_or(&[], |dim| &dim.0));
    let prototype = request.clone();
    for (name, shape) in launch.shapes(|| Ok(module.kernel(name, &prototype)?))? {
        request = request.shape(name, &shape);
    }
    Ok(request)
}

/// Lowers a kernel to be emitted; sizes that are not specified become parameters.
pub fn kernel(launch: &LaunchOptions, file: &Path, name: Option<&str>) -> Result<Kernel, Failure> {
    let module = load(file)?;
    let name = select_kernel(&module, file, name)?;
    Ok(module.kernel(&name, &request(&launch.loaded()?, &module, &name)?)?.kernel)
}

/// Prints a kernel in the style of Warp's generated code.
pub fn warp_text(launch: &LaunchOptions, file: &Path, name: Option<&str>) -> Result<String, Failure> {
    let module = load(file)?;
    let name = select_kernel(&module, file, name)?;
    let lowered = module.kernel(&name, &request(&launch.loaded()?, &module, &name)?)?;
    let source =
        bornite_codegen::WarpSource { kernel: &lowered.kernel, params: &lowered.params, lines: &lowered.lines };
    Ok(bornite_codegen::warp_style(&source, &|line| module.line(line).to_owned()))
}

/// Lowers a kernel and builds its arguments.
pub fn job(launch: &LaunchOptions, file: &Path, name: Option<&str>) -> Result<Job, Failure> {
    let module = load(file)?;
    let name = select_kernel(&module, file, name)?;
    match launch.dim.as_ref().map(|dim| dim.0.len()) {
        None => {
            return Err("the launch dimensions are not specified: add --dim, such as --dim 1024 or --dim 32x32".into());
        }
        Some(5..) => return Err("a launch has one to four dimensions, such as --dim 1024 or --dim 2x3x4x5".into()),
        Some(_) => {}
    }
    // Reports an array without an argument before its sizes are needed.
    let launch = launch.loaded()?;
    let lowered = module.kernel(&name, &request(&launch, &module, &name)?)?;
    launch.filled(file, SourceLines::Text(read(file)?), lowered)
}

/// The kernel of that name, or the only one of the file.
fn select_kernel(module: &PythonModule, file: &Path, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let mut names: Vec<String> = module.kernels().into_iter().flat_map(|kernel| kernel.lookup_names).collect();
    match names.len() {
        0 => Err(format!("{} has no kernel", file.display()).into()),
        1 => Ok(names.remove(0)),
        _ => {
            let names = names.join(", ");
            Err(format!("{} has several kernels; choose one with --kernel: {names}", file.display()).into())
        }
    }
}

/// Checks all kernels of a file, as if launched with arrays of any shape.
pub fn check(file: &Path) -> Result<Vec<CheckedKernel>, Failure> {
    let module = match PythonModule::load(file) {
        Ok(module) => module,
        Err(LoadError::Invalid(errors)) => return Ok(vec![CheckedKernel::of_file(errors)]),
        Err(other) => return Err(other.into()),
    };
    let converted = |checked: python::KernelCheck| {
        let outcome = match checked.outcome {
            python::CheckOutcome::Valid => CheckVerdict::NoErrors,
            python::CheckOutcome::Invalid(errors) => CheckVerdict::Errors(errors),
            python::CheckOutcome::Undetermined(tried) => CheckVerdict::NoMatchingTypes(tried),
        };
        let instance = (checked.name != checked.kernel).then_some(checked.name);
        let (kernel, line) = (Some(checked.kernel), checked.line as usize);
        CheckedKernel { kernel, instance, defined_in: None, line, outcome }
    };
    Ok(module.check().into_iter().map(converted).collect())
}
