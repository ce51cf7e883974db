//! Resolution of kernel names: a name refers to the object that Python binds to it at the end of
//! the file, as far as that is known without executing the file.

use std::sync::atomic::Ordering;

use ruff_python_ast::Expr;

use super::const_eval::{ConstValue, Evaluator};
use super::program::{AssignedValue, FuncId, Item, Program};

impl<'a> Program<'a> {
    /// The kernel with a name or a qualified name such as `Class.step`. A kernel in a function can
    /// also be referred to by its bare name if that is unique in the file.
    pub fn resolve_kernel(&self, path: &str) -> Result<FuncId, String> {
        let nowhere = Expr::NoneLiteral(Default::default());
        let file = Evaluator::new(self, false, 0);
        let named = |scope: usize, name: &str| {
            let item = self.scopes[scope].names.get(name)?;
            Some(Evaluator::new(self, false, scope).item(item, scope, name, &nowhere))
        };
        let mut parts = path.split('.');
        let mut found = named(0, parts.next().unwrap_or_default());
        for part in parts {
            found = match found {
                Some(Ok(ConstValue::PlainFunction(_, inner, _))) => named(inner, part),
                Some(Ok(of)) => Some(file.attribute(of, part, &nowhere)),
                other => other,
            };
        }
        match found {
            Some(Ok(ConstValue::Kernel(id))) => Ok(id),
            Some(Err((_, what))) => Err(format!("cannot resolve kernel name '{path}': {what}")),
            _ => self.resolve_nested_kernel(path),
        }
    }

    /// The kernel with that bare name in a function or class.
    fn resolve_nested_kernel(&self, name: &str) -> Result<FuncId, String> {
        let is_it = |n: &u32| {
            let func = &self.functions[*n as usize];
            let there = Evaluator::new(self, false, func.scope).at_definition(*n, func.scope);
            func.file == 0 && func.def.name.as_str() == name && there.holds(&func.conditions) != Some(false)
        };
        let mut all: Vec<u32> = self.kernels.iter().copied().filter(is_it).collect();
        let ambiguous = |names: Vec<String>| format!("kernel name '{name}' is ambiguous: use {}", names.join(" or "));
        let Some(n) = all.pop() else {
            let own = self.kernels.iter().filter(|&&n| self.functions[n as usize].file == 0);
            let instances = self.instances();
            let names: Vec<String> = own.flat_map(|&n| self.lookup_names(n, &instances)).collect();
            let has = if names.is_empty() { "no kernels".into() } else { names.join(", ") };
            return Err(format!("no kernel named '{name}'; the file defines {has}"));
        };
        all.retain(|&other| self.qualified_name(other) != self.qualified_name(n));
        if !all.is_empty() {
            return Err(ambiguous(all.iter().chain([&n]).map(|&n| self.qualified_name(n)).collect()));
        }
        let instances = self.instances();
        let own: Vec<&(String, FuncId)> = instances.iter().filter(|(_, id)| id.n == n).collect();
        match own.first() {
            None => Ok(FuncId { prelude: false, n, closure: 0 }),
            Some((_, id)) if own.iter().all(|(_, other)| other == id) => Ok(*id),
            Some(_) => Err(ambiguous(own.iter().map(|(name, _)| name.clone()).collect())),
        }
    }

    /// The qualified name of a kernel: `Class.step`, `make.step`.
    pub fn qualified_name(&self, n: u32) -> String {
        let func = &self.functions[n as usize];
        let (mut path, mut at) = (func.def.name.as_str().to_owned(), func.scope);
        while let Some(parent) = self.scopes[at].parent {
            path = format!("{}.{path}", self.scopes[at].name);
            at = parent;
        }
        path
    }

    /// Kernels created by calls of functions, with the names assigned to them, in file order:
    /// `cube = power(3)`.
    pub fn instances(&self) -> Vec<(String, FuncId)> {
        let is_within = |n: &u32| {
            let func = &self.functions[*n as usize];
            func.file == 0 && self.scopes[func.scope].parent.is_some()
        };
        if !self.kernels.iter().any(is_within) {
            return vec![];
        }
        let nowhere = Expr::NoneLiteral(Default::default());
        let spent = self.eval_steps.load(Ordering::Relaxed);
        let mut all = vec![];
        for (name, item) in &self.scopes[0].names {
            let Item::Values(assignments) = item else { continue };
            let Some(last) = assignments.last() else { continue };
            let (AssignedValue::Expr(value) | AssignedValue::Element(value, _)) = last.value else { continue };
            if !matches!(value, Expr::Call(_) | Expr::Tuple(_) | Expr::List(_)) {
                continue;
            }
            if let Ok(ConstValue::Kernel(id)) = Evaluator::new(self, false, 0).item(item, 0, name, &nowhere)
                && id.closure != 0
            {
                all.push((last.range.start(), (*name).to_owned(), id));
            }
        }
        // The search does not count against the evaluation limit of the next kernel.
        self.eval_steps.store(spent, Ordering::Relaxed);
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        all.into_iter().map(|(_, name, id)| (name, id)).collect()
    }

    /// The names by which a kernel of the file can be looked up.
    pub fn lookup_names(&self, n: u32, instances: &[(String, FuncId)]) -> Vec<String> {
        let assigned: Vec<String> =
            instances.iter().filter(|(_, id)| id.n == n).map(|(name, _)| name.clone()).collect();
        if assigned.is_empty() { vec![self.qualified_name(n)] } else { assigned }
    }
}
