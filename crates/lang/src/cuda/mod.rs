//! Front end of CUDA C++.
//!
//! A file is split into tokens (`lex/`), preprocessed (`preprocess/`) and parsed (`parse/`) to
//! syntax (`ast.rs`). `lower/` lowers a kernel of it, for one launch, to kernel IR; `extract/`
//! prints kernels as source text that compiles by itself. Constructs outside the supported subset
//! are errors that name the construct.

mod ast;
mod extract;
mod lex;
mod lower;
mod namespaces;
mod parse;
mod preprocess;
mod types;

use std::io::Read;
use std::path::{Path, PathBuf};

use bornite_ir::{Scalar, Value};

use crate::diagnostic::{Diagnostic, Source, counted};
use crate::{Errors, LaunchRequest, LoadError, Lowered};
use ast::{File, Function, TemplateArg, template_args_text};
use extract::Outline;
use lex::Interner;
use lower::{BoundArg, LowerError, Lowering, MemoryNeeds};
use preprocess::MissingHeader;
pub use preprocess::PreprocessorOptions;
use types::CType;

/// Maximum size of a source file.
const MAX_BYTES: usize = 1 << 20;

/// A parsed file, whose kernels can be lowered for any launch.
#[derive(Clone, Debug)]
pub struct CudaModule {
    source: Source,
    names: Interner,
    file: File,
    /// For each function, whether it is pure and becomes an IR function; others are inlined.
    is_pure: Vec<bool>,
    enum_names: lower::EnumNames,
    /// Errors of the file as a whole.
    errors: Vec<Diagnostic>,
    missing_headers: Vec<MissingHeader>,
    included: Vec<PathBuf>,
}

/// Declaration of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaKernelInfo {
    /// Name; for an instance of a template, with its arguments: `scale<float, 4>`.
    pub name: String,
    /// File of its declaration, which may be one that the source includes.
    pub file: String,
    /// Line of its declaration.
    pub line: u32,
    /// True for a template that the file does not instantiate, whose arguments must be given by
    /// name.
    pub is_template: bool,
    /// Maximum threads per block from `__launch_bounds__`.
    pub max_threads: Option<u32>,
}

impl CudaModule {
    /// Parses a file. An error of one kernel is reported where that kernel is lowered, unless no
    /// kernel can be used. Local headers cannot be found from a text; see [`CudaModule::load`].
    pub fn parse(file: &str, text: &str) -> Result<CudaModule, Errors> {
        CudaModule::read(file, text, None, &PreprocessorOptions::default()).usable()
    }

    /// Loads a file and the local headers that it includes.
    pub fn load(path: &Path, options: &PreprocessorOptions) -> Result<CudaModule, LoadError> {
        let mut bytes = vec![];
        let file = std::fs::File::open(path).map(|file| file.take(4 * MAX_BYTES as u64));
        file.and_then(|mut file| file.read_to_end(&mut bytes)).map_err(|error| LoadError::Read(path.into(), error))?;
        // Comments of older files are not always UTF-8.
        let text = String::from_utf8_lossy(&bytes);
        Ok(CudaModule::read(&path.to_string_lossy(), &text, Some(path), options).usable()?)
    }

    /// Reads a file, valid or not: errors are reported where its kernels are lowered. `path` is the
    /// location that local headers are found from.
    pub fn read(file: &str, text: &str, path: Option<&Path>, options: &PreprocessorOptions) -> CudaModule {
        CudaModule::read_with(file, text, path, options, None)
    }

    fn read_with(
        file: &str,
        text: &str,
        path: Option<&Path>,
        options: &PreprocessorOptions,
        outline: Option<&mut Outline>,
    ) -> CudaModule {
        let is_too_large = text.len() > MAX_BYTES;
        let mut source = Source::new(file, if is_too_large { "" } else { text });
        let mut names = Interner::default();
        let preprocessed = preprocess::preprocess(&mut source, path, options, &mut names, outline.is_some());
        let tokens = lex::strip_attributes(preprocessed.tokens, &names);
        let unnamed = names.intern("");
        if tokens.iter().any(|token| token.kind == lex::TokenKind::Reserved("operator")) {
            for token in ast::OVERLOADABLE {
                names.intern(&format!("operator{token}"));
            }
        }
        let mut parser = parse::Parser::new(
            &source,
            &names,
            &tokens,
            &preprocessed.token_errors,
            &preprocessed.missing_headers,
            unnamed,
        );
        parser.items();
        let explicit_instances = parser.file.instances.len();
        parser.collect_instances();
        let (mut errors, file, entries) = (parser.errors, parser.file, parser.outline);
        if is_too_large {
            let what = format!("file of {} bytes is too large; the limit is {MAX_BYTES} bytes", text.len());
            errors.push(source.diagnostic(Default::default(), what, String::new(), None));
        }
        errors.extend(
            (preprocessed.file_errors.into_iter())
                .map(|(span, what, hint)| source.diagnostic(span, what, String::new(), hint.map(Into::into))),
        );
        let is_pure = lower::pure_functions(&names, &file);
        let enum_names = lower::EnumNames::of(&file, &names);
        let (missing_headers, included) = (preprocessed.missing_headers, preprocessed.included);
        if let Some(outline) = outline {
            *outline = Outline { trace: preprocessed.trace.unwrap_or_default(), tokens, entries, explicit_instances };
        }
        CudaModule { source, names, file, is_pure, enum_names, errors, missing_headers, included }
    }

    /// Returns the module if it has a kernel that was parsed, or nothing that failed.
    fn usable(self) -> Result<CudaModule, Errors> {
        let mut errors = self.errors.clone();
        if !errors.is_empty() || self.file.functions.iter().all(|function| !function.is_kernel) {
            errors.extend(self.file.unsupported_functions.iter().flat_map(|function| function.errors.clone()));
        }
        if errors.is_empty() { Ok(self) } else { Err(Errors::new(&self.source, errors)) }
    }

    /// Errors of the file as a whole, such as an unmatched brace.
    pub fn errors(&self) -> Option<Errors> {
        (!self.errors.is_empty()).then(|| Errors::new(&self.source, self.errors.clone()))
    }

    /// Files that the source includes.
    pub fn included_files(&self) -> &[PathBuf] {
        &self.included
    }

    /// Kernels of the file and of its headers. A template is listed by its instances: explicit
    /// ones, and those that host code of the file launches; or by itself if it has none.
    pub fn kernels(&self) -> Vec<CudaKernelInfo> {
        let mut all = vec![];
        let info = |name: String, at: u32, is_template: bool, max_threads: Option<u32>| {
            let line = self.source.line(at);
            let (file, local_line) = self.source.location(line);
            (line, CudaKernelInfo { name, file: file.to_owned(), line: local_line, is_template, max_threads })
        };
        for function in self.file.functions.iter().filter(|function| function.is_kernel) {
            let name = self.names.text(function.name);
            let fits = |args: &[TemplateArg]| args.len() <= function.templates.len();
            let instances = self.file.instances.iter().filter(|(found, args)| *found == function.name && fits(args));
            let suffix = self.overload_suffix(function);
            let named: Vec<(String, &[TemplateArg])> =
                instances.map(|(_, args)| (self.instance_name(name, args) + &suffix, &args[..])).collect();
            let is_template = function.templates.iter().any(|param| param.default.is_none()) && named.is_empty();
            let names = if named.is_empty() { vec![(format!("{name}{suffix}"), &[][..])] } else { named };
            all.extend(
                names
                    .into_iter()
                    .map(|(name, args)| info(name, function.span.start, is_template, self.max_threads(function, args))),
            );
        }
        for function in self.file.unsupported_functions.iter().filter(|function| function.is_kernel) {
            let name = function.name.map_or("?", |name| self.names.text(name));
            all.push(info(name.to_owned(), function.span.start, false, None));
        }
        all.sort_by_key(|(line, _)| *line);
        all.into_iter().map(|(_, kernel)| kernel).collect()
    }

    /// Maximum threads per block of a kernel, from `__launch_bounds__`.
    fn max_threads(&self, function: &Function, args: &[TemplateArg]) -> Option<u32> {
        function.launch_bound.as_ref()?;
        let request = LaunchRequest::new([1; 3], [1; 3]);
        let needs = MemoryNeeds::default();
        Lowering::new(self, &request, function, Scalar::I32, &needs).max_threads(function, args)
    }

    /// Parameter types of an overloaded kernel, which tell its versions apart: `(float*, int)`.
    fn overload_suffix(&self, function: &Function) -> String {
        let same = |other: &&Function| other.is_kernel && other.name == function.name;
        if self.file.functions.iter().filter(same).count() < 2 {
            return String::new();
        }
        let ty = |param: &ast::Declarator| {
            TemplateArg::Type(ast::TypeName {
                pointers: param.ty.pointers + param.sizes.len().min(8) as u8,
                ..param.ty.clone()
            })
        };
        let types: Vec<TemplateArg> = function.params.iter().map(ty).collect();
        format!("({})", template_args_text(&types, &self.names, &self.source))
    }

    fn instance_name(&self, name: &str, args: &[TemplateArg]) -> String {
        match args {
            [] => name.to_owned(),
            _ => format!("{name}<{}>", template_args_text(args, &self.names, &self.source)),
        }
    }

    /// Returns a kernel's name with example template arguments, if it needs any: `scale<float,
    /// 32>`.
    pub fn example_instance(&self, name: &str) -> String {
        let found = self.file.functions.iter().find(|f| f.is_kernel && self.names.text(f.name) == name);
        match found {
            Some(function) if function.templates.iter().any(|param| param.default.is_none()) => {
                format!("{name}<{}>", example_arguments(function))
            }
            _ => name.to_owned(),
        }
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        &self.source.file
    }

    /// Text of a source line of a lowered kernel, counted from 1 through all files.
    pub fn line(&self, line: u32) -> &str {
        self.source.line_text(line)
    }

    /// File of a source line of a lowered kernel, and its number in that file.
    pub fn location(&self, line: u32) -> (&str, u32) {
        self.source.location(line)
    }

    /// Lowers a kernel for a launch. A template is named with its arguments: `scale<float, 4>`.
    pub fn kernel(&self, name: &str, request: &LaunchRequest) -> Result<Lowered, Errors> {
        let compact = |name: &str| name.split_whitespace().collect::<String>();
        // `k(float*)` selects one of several overloads.
        let (name, overload) = match name.find('(').filter(|at| name.ends_with(')') && !name[..*at].contains('<')) {
            Some(at) => name.split_at(at),
            None => match name.find(">(") {
                Some(at) => name.split_at(at + 1),
                None => (name, ""),
            },
        };
        let (plain, args) = match name.split_once('<') {
            Some((plain, args)) => {
                let args = args.trim_end().trim_end_matches('>');
                // `k<>` has the default arguments.
                (plain.trim(), (!args.trim().is_empty()).then_some(args))
            }
            None => (name.trim(), None),
        };
        let named = |name: lex::Symbol| self.names.text(name) == plain;
        let unsupported =
            self.file.unsupported_functions.iter().find(|one| one.is_kernel && one.name.is_some_and(named));
        let errors = unsupported.map_or(&self.errors, |unsupported| &unsupported.errors);
        if !errors.is_empty() {
            return Err(Errors::new(&self.source, errors.clone()));
        }
        let is_selected = |function: &&Function| {
            function.is_kernel
                && named(function.name)
                && (overload.is_empty() || compact(&self.overload_suffix(function)) == compact(overload))
        };
        let found = self.file.functions.iter().find(is_selected);
        let Some(function) = found else { return Err(self.no_kernel(plain)) };
        // An instance of the file has the arguments as parsed, which may be any type.
        let instance = self.file.instances.iter().find(|(found, args)| {
            *found == function.name && compact(&self.instance_name(plain, args)) == compact(name)
        });
        let bound = match instance {
            Some(_) => vec![],
            None => self.template_arguments(function, args)?,
        };
        let instance = instance.map(|(_, args)| &args[..]);
        let first = request.index_type.unwrap_or_else(|| {
            let long = |dims: &[bornite_ir::Dim]| {
                dims.iter().any(|dim| dim.extent.known().is_some_and(|n| n > i32::MAX as i64))
            };
            if request.views.iter().any(|(_, dims)| long(dims)) { Scalar::I64 } else { Scalar::I32 }
        });
        let (mut index_type, mut needs) = (first, MemoryNeeds::default());
        loop {
            match Lowering::new(self, request, function, index_type, &needs).kernel(function, instance, &bound) {
                Ok(lowered) => return Ok(lowered),
                Err(LowerError::NeedsWideIndex(_)) if index_type == Scalar::I32 => index_type = Scalar::I64,
                Err(LowerError::NeedsMemory(more)) => needs = more,
                Err(LowerError::Invalid(errors) | LowerError::NeedsWideIndex(errors)) => {
                    return Err(Errors::new(&self.source, errors));
                }
            }
        }
    }

    fn no_kernel(&self, name: &str) -> Errors {
        let names: Vec<String> = self.kernels().into_iter().map(|kernel| kernel.name).collect();
        let has = if names.is_empty() { "no kernels".into() } else { names.join(", ") };
        self.error(format!("there is no kernel '{name}'; the file has {has}"), None)
    }

    fn error(&self, what: String, at: Option<&Function>) -> Errors {
        let span = at.map(|function| function.span).unwrap_or_default();
        Errors::new(&self.source, vec![self.source.diagnostic(span, what, String::new(), None)])
    }

    /// Evaluates the template arguments in a kernel's name; `None` for defaults.
    fn template_arguments(&self, function: &Function, args: Option<&str>) -> Result<Vec<Option<BoundArg>>, Errors> {
        let args: Vec<&str> = args.map(|args| args.split(',').map(str::trim).collect()).unwrap_or_default();
        let name = self.names.text(function.name);
        if args.len() > function.templates.len() {
            let params = counted(function.templates.len(), "template parameter");
            let what = format!("'{name}' takes {params}, found {}", counted(args.len(), "template argument"));
            return Err(self.error(what, Some(function)));
        }
        let mut bound = vec![];
        for (n, param) in function.templates.iter().enumerate() {
            let Some(text) = args.get(n).map(|text| (*text).to_owned()) else {
                if param.default.is_some() {
                    bound.push(None);
                    continue;
                }
                let what = format!(
                    "kernel '{name}' is a template: name its arguments, such as '{name}<{}>'",
                    example_arguments(function)
                );
                return Err(self.error(what, Some(function)));
            };
            let resolved = if param.is_type() {
                type_named(&text).map(|ty| BoundArg::Type(CType::Value(ty)))
            } else {
                let number = match text.as_str() {
                    "true" => Some(1),
                    "false" => Some(0),
                    text => text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|value| value as i64)),
                };
                number.map(|value| BoundArg::Value(Value::int(Scalar::I64, value)))
            };
            match resolved {
                Some(resolved) => bound.push(Some(resolved)),
                None => {
                    let kind = if param.is_type() { "a type such as float" } else { "an integer" };
                    let what = format!(
                        "template parameter '{}' of '{name}' is {kind}, not '{text}'",
                        self.names.text(param.name)
                    );
                    return Err(self.error(what, Some(function)));
                }
            }
        }
        Ok(bound)
    }
}

/// Example template arguments.
fn example_arguments(function: &Function) -> String {
    let all: Vec<&str> = function.templates.iter().map(|param| if param.is_type() { "float" } else { "32" }).collect();
    all.join(", ")
}

fn type_named(text: &str) -> Option<bornite_ir::Type> {
    let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "const").collect();
    let scalar = match words.join(" ").as_str() {
        "float" => Scalar::F32,
        "double" => Scalar::F64,
        "int" | "signed" => Scalar::I32,
        "unsigned" | "unsigned int" => Scalar::U32,
        "long long" | "long" => Scalar::I64,
        "unsigned long long" | "unsigned long" => Scalar::U64,
        "short" => Scalar::I16,
        "unsigned short" => Scalar::U16,
        "char" | "signed char" => Scalar::I8,
        "unsigned char" => Scalar::U8,
        "bool" => Scalar::Bool,
        other => return types::builtin_type(other),
    };
    Some(scalar.into())
}
