//! Kernels in Python syntax: how they are made for a launch.

use std::path::Path;

use bornite::ir::Kernel;
use bornite_lang::python::{self, Module, Outcome};
use bornite_lang::{LoadError, Request};

use super::cuda::{Checked, Launch, read};
use super::source::Job;
use crate::Failure;

/// True for files in Python syntax.
pub fn is_python(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "py")
}

fn load(file: &Path) -> Result<Module, Failure> {
    Module::load(file).map_err(|error| match error {
        LoadError::Wrong(errors) => errors.into(),
        other => other.into(),
    })
}

/// The launch as far as the command line tells it.
fn request(launch: &Launch) -> Request {
    let mut request = Request::over(launch.dim.as_ref().map_or(&[], |dim| &dim.0));
    for named in launch.named() {
        request = request.shape(&named.name, &named.shape);
    }
    request
}

/// A kernel to be written; sizes that are not told are left to the call.
pub fn kernel(launch: &Launch, file: &Path, name: Option<&str>) -> Result<Kernel, Failure> {
    let module = load(file)?;
    let name = chosen(&module, file, name)?;
    Ok(module.kernel(&name, &request(launch))?.kernel)
}

/// A kernel in the style of Warp's generated code.
pub fn warp_text(launch: &Launch, file: &Path, name: Option<&str>) -> Result<String, Failure> {
    let module = load(file)?;
    let name = chosen(&module, file, name)?;
    let lowered = module.kernel(&name, &request(launch))?;
    let source =
        bornite_codegen::WarpSource { kernel: &lowered.kernel, params: &lowered.params, lines: &lowered.lines };
    Ok(bornite_codegen::warp_style(&source, &|line| module.line(line).to_owned()))
}

/// A kernel to be run, with what it is given.
pub fn job(launch: &Launch, file: &Path, name: Option<&str>) -> Result<Job, Failure> {
    let module = load(file)?;
    let name = chosen(&module, file, name)?;
    match launch.dim.as_ref().map(|dim| dim.0.len()) {
        None => return Err("say how many instances are to run: --dim 1024 or --dim 32x32".into()),
        Some(5..) => return Err("a launch has one to four dimensions: --dim 1024 or --dim 2x3x4x5".into()),
        Some(_) => {}
    }
    // An array that is given nothing is named before its sizes are asked for.
    let lowered = module.kernel(&name, &request(launch))?;
    launch.filled(file, read(file)?, lowered)
}

/// The kernel of a name, or the only one.
fn chosen(module: &Module, file: &Path, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let mut names: Vec<String> = module.kernels().into_iter().flat_map(|kernel| kernel.names).collect();
    match names.len() {
        0 => Err(format!("{} has no kernel", file.display()).into()),
        1 => Ok(names.remove(0)),
        _ => {
            let names = names.join(", ");
            Err(format!("{} has several kernels: choose one with --kernel: {names}", file.display()).into())
        }
    }
}

/// Checks all kernels of a file, as if launched with arrays of any shape.
pub fn check(file: &Path) -> Result<Vec<Checked>, Failure> {
    let module = match Module::load(file) {
        Ok(module) => module,
        Err(LoadError::Wrong(errors)) => {
            let line = errors.all.first().map_or(1, |found| found.line as usize);
            return Ok(vec![Checked { kernel: None, instance: None, line, errors: Some(errors), untold: None }]);
        }
        Err(other) => return Err(other.into()),
    };
    let told = |checked: python::Checked| {
        let (errors, untold) = match checked.outcome {
            Outcome::Valid => (None, None),
            Outcome::Wrong(errors) => (Some(errors), None),
            Outcome::Untold(tried) => (None, Some(tried)),
        };
        let instance = (checked.name != checked.kernel).then_some(checked.name);
        Checked { kernel: Some(checked.kernel), instance, line: checked.line as usize, errors, untold }
    };
    Ok(module.check().into_iter().map(told).collect())
}
