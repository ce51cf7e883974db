//! The front end of Python syntax: the dialect of NVIDIA Warp.
//!
//! A file is parsed as it is (`nesting.rs` limits it first); `program.rs` finds kernels, functions, structs and constants
//! in it and in files beside it that it imports; a kernel, for one launch, goes through `lower/` to kernel IR. What is
//! known beforehand (types, constants, `wp.static`) is evaluated by `fixed.rs`. Functions of the dialect are in
//! `lower/builtin/` and, written in the dialect itself, in `prelude/`.
//!
//! ```
//! use bornite_lang::{LaunchRequest, python::Module};
//! let module = Module::parse("scale.py", "
//! import warp as wp
//!
//! @wp.kernel
//! def scale(x: wp.array2d[float], by: float):
//!     i, j = wp.tid()
//!     x[i, j] = by * x[i, j]
//! ")?;
//! let lowered = module.kernel("scale", &LaunchRequest::with_dims(&[32, 16]).shape("x", &[32, 16]))?;
//! assert_eq!(lowered.kernel.params[0].dims.len(), 2);
//! // Without sizes, the call gives them.
//! let lowered = module.kernel("scale", &LaunchRequest::with_dims(&[]))?;
//! assert_eq!(lowered.kernel.values.last().map(|value| value.name.as_str()), Some("launch_dim1"));
//! # Ok::<(), bornite_lang::Errors>(())
//! ```

mod check;
mod excerpt;
mod fixed;
mod lower;
mod named;
mod nesting;
mod prelude;
mod program;
mod types;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bornite_ir::Scalar;
use ruff_python_ast::{Stmt, StmtImportFrom};
use ruff_text_size::{Ranged, TextSize};

use crate::diagnostic::Source;
use crate::{Diagnostic, Errors, LaunchRequest, Lowered, SourceSpan};
pub use check::{Checked, Outcome};
use lower::Lower;
use program::{FuncId, Program};

/// Larger files are refused.
const MAX_BYTES: usize = 4 << 20;
/// Files that are imported, and those that they import.
const MAX_FILES: usize = 64;

/// A file that was parsed.
#[derive(Debug)]
pub(crate) struct File {
    source: Source,
    suite: Vec<Stmt>,
    /// Imports by their path, and the number of the file.
    imports: Vec<(String, usize)>,
}

/// A file that was read, and those it imports: its kernels can be made for any launch.
#[derive(Debug)]
pub struct Module {
    files: Vec<File>,
}

/// A kernel of a file, as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// The names it can be asked for by: where it stands (`Solver.step`), or what the calls of a function around it made
    /// (`cube` of `cube = power(3)`), which may be several kernels.
    pub names: Vec<String>,
    /// The line it begins in.
    pub line: u32,
    /// The lines of its text, from its decorators to its last statement.
    pub lines: RangeInclusive<u32>,
    /// Parameters whose type is open.
    pub open: Vec<String>,
    /// How many indices each `wp.tid()` in it gives, in the order of the text.
    pub tid: Vec<usize>,
    /// Its docstring, whole; empty where there is none.
    pub doc: String,
}

fn parse(file: &str, text: &str) -> Result<File, Errors> {
    let source = Source::new(file, text);
    let wrong = |span: SourceSpan, what: String, hint: Option<String>| {
        Errors::new(&source, vec![source.diagnostic(span, what, String::new(), hint)])
    };
    if text.len() > MAX_BYTES {
        let what = format!("a file of {} bytes; {MAX_BYTES} are the most", text.len());
        return Err(wrong(SourceSpan::default(), what, None));
    }
    if let Some((at, what)) = nesting::too_deep(text) {
        let at = at as u32;
        return Err(wrong(SourceSpan { start: at, end: at + 1 }, what.into(), None));
    }
    let parsed = ruff_python_parser::parse_unchecked_source(text, ruff_python_ast::PySourceType::Python);
    if !parsed.errors().is_empty() {
        let all: Vec<Diagnostic> = (parsed.errors().iter().take(20))
            .map(|error| {
                let message = error.error.to_string();
                source.diagnostic(lower::span(error.location), format!("syntax: {message}"), String::new(), None)
            })
            .collect();
        return Err(Errors::new(&source, all));
    }
    let suite: Vec<Stmt> = parsed.into_suite().into_iter().collect();
    if let Some(at) = nesting::too_branched(&suite) {
        let what = "branches are nested too deep, each elif within those before it".to_owned();
        let hint = Some("look the value up in an array, or split the chain into functions".to_owned());
        return Err(wrong(lower::span(at), what, hint));
    }
    Ok(File { source, suite, imports: vec![] })
}

impl Module {
    /// Reads a text. What it imports from other files is not found.
    pub fn parse(file: &str, text: &str) -> Result<Module, Errors> {
        Module::parse_with(file, text, &mut |_| None)
    }

    /// Reads a file, and those beside it that it imports.
    pub fn load(path: &Path) -> Result<Module, crate::LoadError> {
        let read = |path: &Path| std::fs::read_to_string(path);
        let text = read(path).map_err(|error| crate::LoadError::Read(path.to_owned(), error))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let package = package_of(&folder);
        let package = package.as_ref().map(|(around, name)| (around.as_path(), name.as_str()));
        let mut found = |name: &str| {
            let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
            let path = name.split('.').all(plain).then(|| name.replace('.', "/"))?;
            // Beside the file, or, by its whole name, in the package that the file is of.
            let within = package.is_some_and(|(_, top)| name.split('.').next() == top.split('.').next());
            let around = package.map(|(around, _)| around).filter(|_| within);
            let places = [Some(folder.as_path()), around];
            let each = |place: &Path| [place.join(format!("{path}.py")), place.join(&path).join(PACKAGE)];
            let mut files = places.into_iter().flatten().flat_map(each);
            files.find_map(|file| Some((file.display().to_string(), read(&file).ok()?)))
        };
        let name = package.map_or("", |(_, name)| name);
        Ok(Module::parse_in(&path.to_string_lossy(), &text, name, &mut found)?)
    }

    /// Reads a text; `find` gives the name and text of a module that is imported, if it is there.
    pub fn parse_with(
        file: &str,
        text: &str,
        find: &mut dyn FnMut(&str) -> Option<(String, String)>,
    ) -> Result<Module, Errors> {
        Module::parse_in(file, text, "", find)
    }

    fn parse_in(
        file: &str,
        text: &str,
        package: &str,
        find: &mut dyn FnMut(&str) -> Option<(String, String)>,
    ) -> Result<Module, Errors> {
        let mut files = vec![parse(file, text)?];
        // Modules by their names from the first file on, and the packages that files are in.
        let (mut known, mut packages): (Vec<(String, usize)>, _) = (vec![], vec![package.to_owned()]);
        let mut at = 0;
        while at < files.len() {
            for import in imported(&files[at].suite) {
                let Some(name) = resolved(&import, &packages[at]) else { continue };
                let found = known.iter().find(|(path, _)| *path == name).map(|(_, n)| *n);
                let number = match found {
                    Some(n) => n,
                    None => {
                        let Some((path, text)) = (files.len() < MAX_FILES).then(|| find(&name)).flatten() else {
                            continue;
                        };
                        // A file that is not understood declares nothing.
                        let Ok(file) = parse(&path, &text) else { continue };
                        files.push(file);
                        let around = name.rsplit_once('.').map_or("", |(package, _)| package);
                        packages.push(if path.ends_with(PACKAGE) { name.clone() } else { around.to_owned() });
                        known.push((name.clone(), files.len() - 1));
                        files.len() - 1
                    }
                };
                files[at].imports.push((import, number));
            }
            at += 1;
        }
        Ok(Module { files })
    }

    /// The kernels of the file.
    pub fn kernels(&self) -> Vec<Declared> {
        let program = Program::new(&self.files);
        let own =
            program.kernels.iter().map(|&n| (n, &program.functions[n as usize])).filter(|(_, func)| func.file == 0);
        let instances = program.instances();
        own.map(|(n, func)| Declared {
            name: func.def.name.as_str().to_owned(),
            names: program.names_of(n, &instances),
            line: self.files[0].source.line(func.def.name.range().start().to_u32()),
            lines: {
                let line = |at: TextSize| self.files[0].source.line(at.to_u32());
                line(func.def.range().start())..=line(func.def.range().end())
            },
            open: open_parameters(&program, FuncId { prelude: false, n, around: 0 }),
            tid: excerpt::tid_counts(&program, func),
            doc: excerpt::docstring(func.def),
        })
        .collect()
    }

    /// The kernel of that number among [`Module::kernels`], alone: the text of what it needs of the file, by the names that
    /// it and what it needs read, and the operations therein, by name. Empty if there is no such kernel.
    ///
    /// ```
    /// let text = "import warp as wp\nSIDE = 4\nOTHER = 5\n\n@wp.kernel\ndef fill(x: wp.array(dtype=int)):\n    x[wp.tid()] = SIDE + 1\n";
    /// let module = bornite_lang::python::Module::parse("fill.py", text)?;
    /// let (alone, operations) = module.excerpt(0);
    /// assert!(alone.contains("SIDE = 4") && !alone.contains("OTHER"));
    /// assert_eq!(operations, ["add"]);
    /// # Ok::<(), bornite_lang::Errors>(())
    /// ```
    pub fn excerpt(&self, n: usize) -> (String, Vec<String>) {
        let program = Program::new(&self.files);
        let mut own = program.kernels.iter().map(|&n| &program.functions[n as usize]).filter(|func| func.file == 0);
        let Some(kernel) = own.nth(n) else { return Default::default() };
        let excerpt = excerpt::Excerpt::new(&program, kernel);
        (excerpt.text(), excerpt.operations(kernel).into_iter().collect())
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.files[0].source.file
    }

    /// A line of the source, from 1.
    pub fn line(&self, line: u32) -> &str {
        self.files[0].source.line_text(line)
    }

    /// The kernel of that name for a launch: what the file has under it at its end, or one of a class or function by its path
    /// (`Solver.step`). Where types of parameters are open, the name tells them: `scale<x:float32>`.
    pub fn kernel(&self, name: &str, request: &LaunchRequest) -> Result<Lowered, Errors> {
        let source = &self.files[0].source;
        let wrong = |what: String| {
            Errors::new(source, vec![source.diagnostic(SourceSpan::default(), what, String::new(), None)])
        };
        let (plain, args) = match name.split_once('<') {
            Some((plain, args)) => (plain.trim(), args.trim_end().trim_end_matches('>')),
            None => (name.trim(), ""),
        };
        let program = Program::new(&self.files);
        let found = program.kernel_named(plain).map_err(wrong)?;
        let mut types = vec![];
        for arg in args.split(',').map(str::trim).filter(|arg| !arg.is_empty()) {
            let named = arg.split_once(':').map(|(name, ty)| (name.trim(), ty.trim()));
            let made = named.and_then(|(name, ty)| Some((name.to_owned(), types::type_named(ty)?)));
            match made {
                Some(made) => types.push(made),
                None => return Err(wrong(format!("'{arg}' is not a parameter's name and type, such as x:float32"))),
            }
        }
        let open = open_parameters(&program, found);
        if let Some((name, _)) = types.iter().find(|(name, _)| !open.contains(name)) {
            let which = if open.is_empty() { "none is".to_owned() } else { format!("only {}", open.join(", ")) };
            return Err(wrong(format!("the type of '{name}' is not open in '{plain}': {which}")));
        }
        self.made(&program, found, &types, request)
    }

    /// The kernel of that number among [`Module::kernels`] for a launch: several may have one name. Types of parameters
    /// that are open are told by name.
    pub fn kernel_at(&self, n: usize, types: &[(&str, &str)], request: &LaunchRequest) -> Result<Lowered, Errors> {
        let source = &self.files[0].source;
        let program = Program::new(&self.files);
        let found = program.kernels.iter().copied().filter(|&n| program.functions[n as usize].file == 0).nth(n);
        let typed = |(name, ty): &(&str, &str)| Some(((*name).to_owned(), types::type_named(ty)?));
        match (found, types.iter().map(typed).collect::<Option<Vec<_>>>()) {
            (Some(n), Some(types)) => self.made(&program, FuncId { prelude: false, n, around: 0 }, &types, request),
            _ => {
                let what = "there is no such kernel, or no such type".to_owned();
                Err(Errors::new(source, vec![source.diagnostic(SourceSpan::default(), what, String::new(), None)]))
            }
        }
    }

    fn made(
        &self,
        program: &Program<'_>,
        found: FuncId,
        types: &[(String, types::Ty)],
        request: &LaunchRequest,
    ) -> Result<Lowered, Errors> {
        let func = &program.functions[found.n as usize];
        let index = request.index_type.unwrap_or_else(|| {
            let far = |dims: &[bornite_ir::Dim]| {
                let elements = dims.iter().try_fold(1i64, |n, dim| n.checked_mul(dim.extent.known().unwrap_or(1)));
                elements.is_none_or(|n| n > i32::MAX as i64)
            };
            let count = request.dims.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
            let long = request.views.iter().any(|(_, dims)| far(dims)) || count.is_none_or(|n| n > i32::MAX as u64);
            if long { Scalar::I64 } else { Scalar::I32 }
        });
        let mut parts = vec![];
        loop {
            let lower = Lower::new(program, prelude::program(), request, func.def.name.as_str(), index);
            match lower.kernel(found, types, &parts).map_err(|all| Errors::new(&self.files[0].source, all))? {
                Ok(lowered) => return Ok(lowered),
                Err(met) => parts = met,
            }
        }
    }
}

/// Parameters of a kernel whose types are `Any`, or arrays of it.
fn open_parameters(program: &Program<'_>, id: FuncId) -> Vec<String> {
    use fixed::{Evaluator, Fixed};
    use types::Pattern;
    let func = &program.functions[id.n as usize];
    let evaluator = Evaluator { around: id.around, ..Evaluator::new(program, false, func.scope) };
    let is_open = |pattern: &Pattern| match pattern {
        Pattern::Array(element, _) => element.exact().is_none(),
        Pattern::Foreign(_) => false,
        other => other.exact().is_none(),
    };
    (func.def.parameters.iter_non_variadic_params())
        .filter(|p| {
            let pattern = p.parameter.annotation().map(|a| evaluator.annotation(a));
            matches!(pattern, Some(Ok(Fixed::Type(pattern))) if is_open(&pattern))
        })
        .map(|p| p.name().as_str().to_owned())
        .collect()
}

/// The package that a folder is, by its whole name, and the folder around its outermost one.
fn package_of(folder: &Path) -> Option<(PathBuf, String)> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let whole = folder.canonicalize().ok()?;
    let packages: Vec<&Path> = whole.ancestors().take_while(|folder| folder.join(PACKAGE).is_file()).collect();
    let names: Vec<&str> = packages.iter().rev().filter_map(|folder| folder.file_name()?.to_str()).collect();
    Some((packages.last()?.parent()?.to_owned(), names.join(".")))
}

/// The file of a package itself.
const PACKAGE: &str = "__init__.py";

/// The name of a module from the first file on, of an import in a package: one dot stands for that, each more for one around.
fn resolved(import: &str, package: &str) -> Option<String> {
    let path = import.trim_start_matches('.');
    let Some(up) = (import.len() - path.len()).checked_sub(1) else { return Some(path.to_owned()) };
    let parts: Vec<&str> = package.split('.').filter(|part| !part.is_empty()).collect();
    let kept = parts.get(..parts.len().checked_sub(up)?)?;
    Some([kept, &[path]].concat().join("."))
}

/// How an import names a module, from where it stands.
pub(crate) fn module_path(import: &StmtImportFrom, name: Option<&str>) -> String {
    let dots = ".".repeat(import.level as usize);
    let module = import.module.as_ref().map_or("", |module| module.as_str());
    let between = if module.is_empty() || name.is_none() { "" } else { "." };
    format!("{dots}{module}{between}{}", name.unwrap_or_default())
}

/// Paths that a file imports from, other than the dialect's.
fn imported(suite: &[Stmt]) -> Vec<String> {
    let mut all = vec![];
    for stmt in suite {
        match stmt {
            Stmt::Import(import) => all.extend(import.names.iter().map(|alias| alias.name.as_str().to_owned())),
            Stmt::ImportFrom(import) => {
                if import.module.is_some() {
                    all.push(module_path(import, None));
                }
                // What is imported may be a module of a package.
                all.extend(import.names.iter().map(|alias| module_path(import, Some(alias.name.as_str()))));
            }
            Stmt::If(branch) => all.extend(imported(&branch.body)),
            Stmt::Try(attempt) => all.extend(imported(&attempt.body)),
            _ => {}
        }
    }
    let foreign = ["warp", "math", "numpy", "typing", "enum"];
    all.retain(|path| !foreign.contains(&path.split('.').next().unwrap_or(path)));
    all
}
