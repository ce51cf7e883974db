//! Front end for Python syntax: the kernel language of NVIDIA Warp. It parses source files and
//! lowers kernels to IR; it must not know about GPUs, tensors or launching.
//!
//! `nesting.rs` limits the nesting depth of a file, which ruff's parser then parses. `program.rs`
//! collects kernels, functions, structs and constants of the file and of the files it imports.
//! `const_eval/` evaluates what is known at compile time: types, constants, `wp.static`. `lower/`
//! lowers one kernel for one launch to kernel IR. Builtins are in `lower/builtin/` and, written in
//! Python syntax themselves, in `prelude/`.
//!
//! ```
//! use bornite_lang::{LaunchRequest, python::PythonModule};
//! let module = PythonModule::parse("scale.py", "
//! import warp as wp
//!
//! @wp.kernel
//! def scale(x: wp.array2d[float], by: float):
//!     i, j = wp.tid()
//!     x[i, j] = by * x[i, j]
//! ")?;
//! let lowered = module.kernel("scale", &LaunchRequest::with_dims(&[32, 16]).shape("x", &[32, 16]))?;
//! assert_eq!(lowered.kernel.params[0].dims.len(), 2);
//! // Without sizes, the kernel takes them as arguments.
//! let lowered = module.kernel("scale", &LaunchRequest::with_dims(&[]))?;
//! assert_eq!(lowered.kernel.values.last().map(|value| value.name.as_str()), Some("launch_dim1"));
//! # Ok::<(), bornite_lang::Errors>(())
//! ```

mod check;
mod const_eval;
mod excerpt;
mod kernel_names;
mod lower;
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
pub use check::{CheckOutcome, KernelCheck};
use lower::Lower;
use program::{FuncId, Program};

/// Largest size of a source file.
const MAX_FILE_BYTES: usize = 4 << 20;
/// Largest number of files in a module, including imports of imports.
const MAX_FILES: usize = 64;

/// A parsed file.
#[derive(Debug)]
pub(crate) struct File {
    source: Source,
    suite: Vec<Stmt>,
    /// Import path as written, and index of the imported file.
    imports: Vec<(String, usize)>,
}

/// A parsed Python file and the files it imports. Its kernels can be lowered for any launch.
#[derive(Debug)]
pub struct PythonModule {
    files: Vec<File>,
}

/// A kernel defined in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonKernelInfo {
    /// Name of the Python function.
    pub name: String,
    /// Names accepted by [`PythonModule::kernel`]: the qualified name (`Solver.step`), or the names
    /// assigned to instances that calls of the enclosing function create (`cube = power(3)`).
    pub lookup_names: Vec<String>,
    /// Line of the `def` statement.
    pub line: u32,
    /// Lines of the definition, from the first decorator to the last statement.
    pub lines: RangeInclusive<u32>,
    /// Names of parameters with a generic type.
    pub generic_params: Vec<String>,
    /// Number of indices that each `wp.tid()` call returns, in source order.
    pub tid_counts: Vec<usize>,
    /// The complete docstring; empty if there is none.
    pub docstring: String,
}

fn parse(file: &str, text: &str) -> Result<File, Errors> {
    let source = Source::new(file, text);
    let error = |span: SourceSpan, what: String, hint: Option<String>| {
        Errors::new(&source, vec![source.diagnostic(span, what, String::new(), hint)])
    };
    if text.len() > MAX_FILE_BYTES {
        let what = format!("file has {} bytes; the limit is {MAX_FILE_BYTES}", text.len());
        return Err(error(SourceSpan::default(), what, None));
    }
    if let Some((at, what)) = nesting::too_deep(text) {
        let at = at as u32;
        return Err(error(SourceSpan { start: at, end: at + 1 }, what.into(), None));
    }
    let parsed = ruff_python_parser::parse_unchecked_source(text, ruff_python_ast::PySourceType::Python);
    if !parsed.errors().is_empty() {
        let all: Vec<Diagnostic> = (parsed.errors().iter().take(20))
            .map(|error| {
                let message = error.error.to_string();
                source.diagnostic(
                    lower::span(error.location),
                    format!("invalid syntax: {message}"),
                    String::new(),
                    None,
                )
            })
            .collect();
        return Err(Errors::new(&source, all));
    }
    let suite: Vec<Stmt> = parsed.into_suite().into_iter().collect();
    if let Some(at) = nesting::too_many_branches(&suite) {
        let what = "branches are nested too deeply: each elif nests inside the one before it".to_owned();
        let hint = Some("look the value up in an array, or split the chain into functions".to_owned());
        return Err(error(lower::span(at), what, hint));
    }
    Ok(File { source, suite, imports: vec![] })
}

impl PythonModule {
    /// Parses a source text. Imports of other files are not resolved.
    pub fn parse(file: &str, text: &str) -> Result<PythonModule, Errors> {
        PythonModule::parse_with(file, text, &mut |_| None)
    }

    /// Loads a file and the files next to it that it imports.
    pub fn load(path: &Path) -> Result<PythonModule, crate::LoadError> {
        let read = |path: &Path| std::fs::read_to_string(path);
        let text = read(path).map_err(|error| crate::LoadError::Read(path.to_owned(), error))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let package = enclosing_package(&folder);
        let package = package.as_ref().map(|(root, name)| (root.as_path(), name.as_str()));
        let mut found = |name: &str| {
            let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
            let path = name.split('.').all(plain).then(|| name.replace('.', "/"))?;
            // Next to the file or, by its absolute name, in the package of the file.
            let within = package.is_some_and(|(_, top)| name.split('.').next() == top.split('.').next());
            let root = package.map(|(root, _)| root).filter(|_| within);
            let folders = [Some(folder.as_path()), root];
            let candidates = |folder: &Path| [folder.join(format!("{path}.py")), folder.join(&path).join(PACKAGE)];
            let mut files = folders.into_iter().flatten().flat_map(candidates);
            files.find_map(|file| Some((file.display().to_string(), read(&file).ok()?)))
        };
        let name = package.map_or("", |(_, name)| name);
        Ok(PythonModule::parse_in(&path.to_string_lossy(), &text, name, &mut found)?)
    }

    /// Parses a source text. `find` returns the file name and source of an imported module, or
    /// `None` if there is no such module.
    pub fn parse_with(
        file: &str,
        text: &str,
        find: &mut dyn FnMut(&str) -> Option<(String, String)>,
    ) -> Result<PythonModule, Errors> {
        PythonModule::parse_in(file, text, "", find)
    }

    fn parse_in(
        file: &str,
        text: &str,
        package: &str,
        find: &mut dyn FnMut(&str) -> Option<(String, String)>,
    ) -> Result<PythonModule, Errors> {
        let mut files = vec![parse(file, text)?];
        // Files by absolute module name, and the package of each file.
        let (mut known, mut packages): (Vec<(String, usize)>, _) = (vec![], vec![package.to_owned()]);
        let mut at = 0;
        while at < files.len() {
            for import in imported_modules(&files[at].suite) {
                let Some(name) = absolute_module(&import, &packages[at]) else { continue };
                let found = known.iter().find(|(path, _)| *path == name).map(|(_, n)| *n);
                let number = match found {
                    Some(n) => n,
                    None => {
                        let Some((path, text)) = (files.len() < MAX_FILES).then(|| find(&name)).flatten() else {
                            continue;
                        };
                        // An import with syntax errors declares nothing.
                        let Ok(file) = parse(&path, &text) else { continue };
                        files.push(file);
                        let parent = name.rsplit_once('.').map_or("", |(package, _)| package);
                        packages.push(if path.ends_with(PACKAGE) { name.clone() } else { parent.to_owned() });
                        known.push((name.clone(), files.len() - 1));
                        files.len() - 1
                    }
                };
                files[at].imports.push((import, number));
            }
            at += 1;
        }
        Ok(PythonModule { files })
    }

    /// The kernels of the file, without those of imported files.
    pub fn kernels(&self) -> Vec<PythonKernelInfo> {
        let program = Program::new(&self.files);
        let own =
            program.kernels.iter().map(|&n| (n, &program.functions[n as usize])).filter(|(_, func)| func.file == 0);
        let instances = program.instances();
        own.map(|(n, func)| PythonKernelInfo {
            name: func.def.name.as_str().to_owned(),
            lookup_names: program.lookup_names(n, &instances),
            line: self.files[0].source.line(func.def.name.range().start().to_u32()),
            lines: {
                let line = |at: TextSize| self.files[0].source.line(at.to_u32());
                line(func.def.range().start())..=line(func.def.range().end())
            },
            generic_params: generic_params(&program, FuncId { prelude: false, n, closure: 0 }),
            tid_counts: excerpt::tid_counts(&program, func),
            docstring: excerpt::docstring(func.def),
        })
        .collect()
    }

    /// Source of kernel `n` of [`PythonModule::kernels`] with the definitions it depends on and
    /// nothing else, and the names of the operations it uses. Dependencies are found by name. Both
    /// are empty if there is no such kernel.
    ///
    /// ```
    /// let text = "import warp as wp\nSIDE = 4\nOTHER = 5\n\n@wp.kernel\ndef fill(x: wp.array(dtype=int)):\n    x[wp.tid()] = SIDE + 1\n";
    /// let module = bornite_lang::python::PythonModule::parse("fill.py", text)?;
    /// let (source, operations) = module.excerpt(0);
    /// assert!(source.contains("SIDE = 4") && !source.contains("OTHER"));
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

    /// The text of a line of the file; lines are counted from 1.
    pub fn line(&self, line: u32) -> &str {
        self.files[0].source.line_text(line)
    }

    /// Lowers the kernel with a lookup name for a launch: the kernel that the name refers to at the
    /// end of the file, or one in a class or function by its qualified name (`Solver.step`). Types
    /// of generic parameters are part of the name: `scale<x:float32>`.
    pub fn kernel(&self, name: &str, request: &LaunchRequest) -> Result<Lowered, Errors> {
        let source = &self.files[0].source;
        let error = |what: String| {
            Errors::new(source, vec![source.diagnostic(SourceSpan::default(), what, String::new(), None)])
        };
        let (plain, args) = match name.split_once('<') {
            Some((plain, args)) => (plain.trim(), args.trim_end().trim_end_matches('>')),
            None => (name.trim(), ""),
        };
        let program = Program::new(&self.files);
        let found = program.resolve_kernel(plain).map_err(error)?;
        let mut types = vec![];
        for arg in args.split(',').map(str::trim).filter(|arg| !arg.is_empty()) {
            let named = arg.split_once(':').map(|(name, ty)| (name.trim(), ty.trim()));
            let typed = named.and_then(|(name, ty)| Some((name.to_owned(), types::type_from_name(ty)?)));
            match typed {
                Some(typed) => types.push(typed),
                None => return Err(error(format!("'{arg}' is not a parameter name and type, such as x:float32"))),
            }
        }
        let generic = generic_params(&program, found);
        if let Some((name, _)) = types.iter().find(|(name, _)| !generic.contains(name)) {
            let which = if generic.is_empty() { "none".to_owned() } else { generic.join(", ") };
            return Err(error(format!(
                "'{name}' is not a generic parameter of '{plain}'; generic parameters: {which}"
            )));
        }
        self.lower(&program, found, &types, request)
    }

    /// Lowers kernel `n` of [`PythonModule::kernels`] for a launch; several kernels may share a
    /// name. `types` holds names and types of generic parameters.
    pub fn kernel_at(&self, n: usize, types: &[(&str, &str)], request: &LaunchRequest) -> Result<Lowered, Errors> {
        let source = &self.files[0].source;
        let program = Program::new(&self.files);
        let found = program.kernels.iter().copied().filter(|&n| program.functions[n as usize].file == 0).nth(n);
        let typed = |(name, ty): &(&str, &str)| Some(((*name).to_owned(), types::type_from_name(ty)?));
        match (found, types.iter().map(typed).collect::<Option<Vec<_>>>()) {
            (Some(n), Some(types)) => self.lower(&program, FuncId { prelude: false, n, closure: 0 }, &types, request),
            _ => {
                let what = format!("no kernel with index {n}, or an unknown type among {types:?}");
                Err(Errors::new(source, vec![source.diagnostic(SourceSpan::default(), what, String::new(), None)]))
            }
        }
    }

    /// Lowers a kernel, again if that reveals views that must be accessed component by component.
    fn lower(
        &self,
        program: &Program<'_>,
        found: FuncId,
        types: &[(String, types::Ty)],
        request: &LaunchRequest,
    ) -> Result<Lowered, Errors> {
        let func = &program.functions[found.n as usize];
        let index = request.index_type.unwrap_or_else(|| {
            let exceeds_i32 = |dims: &[bornite_ir::Dim]| {
                let elements = dims.iter().try_fold(1i64, |n, dim| n.checked_mul(dim.extent.known().unwrap_or(1)));
                elements.is_none_or(|n| n > i32::MAX as i64)
            };
            let count = request.dims.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
            let is_large =
                request.views.iter().any(|(_, dims)| exceeds_i32(dims)) || count.is_none_or(|n| n > i32::MAX as u64);
            if is_large { Scalar::I64 } else { Scalar::I32 }
        });
        let mut componentwise = vec![];
        loop {
            let lower = Lower::new(program, prelude::program(), request, func.def.name.as_str(), index);
            match lower.kernel(found, types, &componentwise).map_err(|all| Errors::new(&self.files[0].source, all))? {
                Ok(lowered) => return Ok(lowered),
                Err(views) => componentwise = views,
            }
        }
    }
}

/// Parameters of a kernel with a generic type, such as `Any` or an array of it.
fn generic_params(program: &Program<'_>, id: FuncId) -> Vec<String> {
    use const_eval::{ConstValue, Evaluator};
    use types::Pattern;
    let func = &program.functions[id.n as usize];
    let evaluator = Evaluator { closure: id.closure, ..Evaluator::new(program, false, func.scope) };
    let is_generic = |pattern: &Pattern| match pattern {
        Pattern::Array(element, _) => element.exact().is_none(),
        Pattern::Unsupported(_) => false,
        other => other.exact().is_none(),
    };
    (func.def.parameters.iter_non_variadic_params())
        .filter(|p| {
            let pattern = p.parameter.annotation().map(|a| evaluator.annotation(a));
            matches!(pattern, Some(Ok(ConstValue::Type(pattern))) if is_generic(&pattern))
        })
        .map(|p| p.name().as_str().to_owned())
        .collect()
}

/// The package that a folder belongs to: the folder that contains its outermost package, and its
/// absolute name.
fn enclosing_package(folder: &Path) -> Option<(PathBuf, String)> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let absolute = folder.canonicalize().ok()?;
    let packages: Vec<&Path> = absolute.ancestors().take_while(|folder| folder.join(PACKAGE).is_file()).collect();
    let names: Vec<&str> = packages.iter().rev().filter_map(|folder| folder.file_name()?.to_str()).collect();
    Some((packages.last()?.parent()?.to_owned(), names.join(".")))
}

/// The file that makes a folder a package.
const PACKAGE: &str = "__init__.py";

/// The absolute name of an imported module. One leading dot stands for `package`, each further dot
/// for its parent.
fn absolute_module(import: &str, package: &str) -> Option<String> {
    let path = import.trim_start_matches('.');
    let Some(up) = (import.len() - path.len()).checked_sub(1) else { return Some(path.to_owned()) };
    let parts: Vec<&str> = package.split('.').filter(|part| !part.is_empty()).collect();
    let base = parts.get(..parts.len().checked_sub(up)?)?;
    Some([base, &[path]].concat().join("."))
}

/// The module path of an import as written, with leading dots.
pub(crate) fn module_path(import: &StmtImportFrom, name: Option<&str>) -> String {
    let dots = ".".repeat(import.level as usize);
    let module = import.module.as_ref().map_or("", |module| module.as_str());
    let between = if module.is_empty() || name.is_none() { "" } else { "." };
    format!("{dots}{module}{between}{}", name.unwrap_or_default())
}

/// Module paths that a file imports from, without Warp and supported external modules.
fn imported_modules(suite: &[Stmt]) -> Vec<String> {
    let mut all = vec![];
    for stmt in suite {
        match stmt {
            Stmt::Import(import) => all.extend(import.names.iter().map(|alias| alias.name.as_str().to_owned())),
            Stmt::ImportFrom(import) => {
                if import.module.is_some() {
                    all.push(module_path(import, None));
                }
                // An imported name may be a submodule.
                all.extend(import.names.iter().map(|alias| module_path(import, Some(alias.name.as_str()))));
            }
            Stmt::If(branch) => all.extend(imported_modules(&branch.body)),
            Stmt::Try(attempt) => all.extend(imported_modules(&attempt.body)),
            _ => {}
        }
    }
    let external = ["warp", "math", "numpy", "typing", "enum"];
    all.retain(|path| !external.contains(&path.split('.').next().unwrap_or(path)));
    all
}
