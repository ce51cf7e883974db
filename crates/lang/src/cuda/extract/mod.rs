//! Kernels as source text that compiles by itself: the text of a file and of the local headers that
//! it includes, without host code and without declarations that the kernels do not need. Text is
//! copied, never printed from syntax, so that names, comments, macros and conditions stay as they
//! are. `units.rs` finds the declarations in the text, `needed.rs` selects them, `print.rs` copies
//! them, `headers.rs` adds what the C and C++ headers provide.

mod headers;
mod needed;
mod print;
mod units;

use std::path::Path;

use super::CudaModule;
use super::ast::template_args_text;
use super::lex::{Symbol, Token};
use super::parse::OutlineEntry;
use super::preprocess::{PreprocessorOptions, TraceElement};
use crate::Errors;
use needed::{Needed, Roots};
use units::Units;

/// Contents of a file: its text as read, and the declarations of the tokens after macro expansion.
#[derive(Default)]
pub struct Outline {
    pub trace: Vec<TraceElement>,
    pub tokens: Vec<Token>,
    pub entries: Vec<OutlineEntry>,
    /// Number of instances, the first ones, that the file instantiates explicitly.
    pub explicit_instances: usize,
}

impl CudaModule {
    /// Returns kernels of a file as CUDA C++ text that compiles by itself: one kernel with the
    /// declarations that it needs, or all kernels of the file. Declarations are copied with their
    /// comments; local headers are inlined. Instances of templates that host code launches are
    /// instantiated explicitly; a name such as `scale<float, 4>` selects one. `path` is the
    /// location that local headers are found from.
    pub fn standalone(
        file: &str,
        text: &str,
        path: Option<&Path>,
        options: &PreprocessorOptions,
        kernel: Option<&str>,
    ) -> Result<String, Errors> {
        let mut outline = Outline::default();
        let module = CudaModule::read_with(file, text, path, options, Some(&mut outline));
        if let Some(errors) = module.errors() {
            return Err(errors);
        }
        let units = Units::new(&outline, &module.names);
        let args = kernel.and_then(|kernel| kernel.split_once('<')).map(|(_, args)| args);
        let args = args.map(|args| args[..args.rfind('>').unwrap_or(args.len())].trim());
        let roots = module.roots(kernel, args.is_some())?;
        let instances = module.instantiations(&roots, args, outline.explicit_instances);
        let mut needed = Needed::new(&module, &outline, &units);
        instances.iter().for_each(|(_, args)| needed.add_text(args));
        needed.select(&roots);
        let body = print::print(&module, &units, &needed, &instances);
        Ok(headers::prologue(&module, &units, &needed, options) + &body)
    }

    fn roots(&self, kernel: Option<&str>, is_instance: bool) -> Result<Roots, Errors> {
        let functions = self.file.functions.iter().filter(|function| function.is_kernel).map(|function| function.name);
        let unsupported = self.file.unsupported_functions.iter().filter(|function| function.is_kernel);
        let all: Vec<Symbol> = functions.chain(unsupported.filter_map(|function| function.name)).collect();
        let plain = |name: &str| name.split(['<', '(']).next().unwrap_or_default().trim().to_owned();
        let kernels: Vec<Symbol> = match kernel {
            Some(kernel) => all.into_iter().filter(|name| self.names.text(*name) == plain(kernel)).collect(),
            None => all,
        };
        match (kernels.is_empty(), kernel) {
            (true, Some(kernel)) => Err(self.no_kernel(&plain(kernel))),
            (true, None) => Err(self.error(format!("'{}' has no kernel", self.file()), None)),
            _ => Ok(Roots { kernels, is_instance }),
        }
    }

    /// Instances of templates to add to the text: names and arguments.
    fn instantiations(&self, roots: &Roots, args: Option<&str>, explicit: usize) -> Vec<(Symbol, String)> {
        let mut out: Vec<(Symbol, String)> = vec![];
        let kernels =
            self.file.functions.iter().filter(|function| function.is_kernel && !function.templates.is_empty());
        for function in kernels.filter(|function| roots.kernels.contains(&function.name)) {
            let mut known = self.file.instances.iter().filter(|(name, _)| *name == function.name).peekable();
            let new = self.file.instances.iter().skip(explicit).filter(|(name, _)| *name == function.name);
            let texts: Vec<String> = match args {
                Some(args) => vec![args.to_owned()],
                None if known.peek().is_none() && function.templates.iter().all(|param| param.default.is_some()) => {
                    vec![String::new()]
                }
                None => new.map(|(_, args)| template_args_text(args, &self.names, &self.source)).collect(),
            };
            let texts = texts.into_iter().map(|text| (function.name, text));
            out.extend(texts.filter(|one| !out.contains(one)).collect::<Vec<_>>());
        }
        out
    }
}
