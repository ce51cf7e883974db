//! Names imported from other files.

use ruff_python_ast::Stmt;

use super::{Item, Program};
use crate::python::{PACKAGE, module_path};

impl<'a> Program<'a> {
    /// The file that an import refers to, if it was loaded.
    pub fn file_named(&self, path: &str, scope: usize) -> Option<usize> {
        let imports = &self.files[self.scopes[scope].file].imports;
        imports.iter().find(|(name, _)| name == path).map(|(_, file)| *file)
    }

    /// Returns true if a module whose path begins with `start` is imported.
    pub fn is_package(&self, start: &str, scope: usize) -> bool {
        self.files[self.scopes[scope].file].imports.iter().any(|(name, _)| name.starts_with(start))
    }

    /// Handles `from file import *` for names that a kernel can use.
    pub(super) fn import_all(&mut self, file: usize, scope: usize, depth: usize) {
        let files = self.files;
        for stmt in &files[file].suite {
            let mut names: Vec<&'a str> = vec![];
            match stmt {
                Stmt::FunctionDef(def) => names.push(def.name.as_str()),
                Stmt::ClassDef(class) => names.push(class.name.as_str()),
                Stmt::Assign(assign) => {
                    names.extend(assign.targets.iter().filter_map(|t| t.as_name_expr().map(|name| name.id.as_str())));
                }
                // Re-exported names.
                Stmt::ImportFrom(import) if let Some(from) = self.file_named(&module_path(import, None), file) => {
                    for alias in &import.names {
                        match alias.name.as_str() {
                            "*" if depth < 8 => self.import_all(from, scope, depth + 1),
                            "*" => {}
                            _ => names.push(alias.asname.as_ref().unwrap_or(&alias.name).as_str()),
                        }
                    }
                }
                _ => {}
            }
            for name in names.into_iter().filter(|name| !name.starts_with('_')) {
                self.declare(scope, name, Item::ImportedName(file, name));
            }
        }
    }

    /// The loaded module `name` of a package; `package` is the file `__init__.py`.
    pub fn module_of(&self, package: usize, name: &str) -> Option<usize> {
        let folder = self.files[package].source.file.strip_suffix(PACKAGE)?;
        let paths = [format!("{folder}{name}.py"), format!("{folder}{name}/{PACKAGE}")];
        self.files.iter().position(|file| paths.contains(&file.source.file))
    }
}
