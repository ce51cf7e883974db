//! Which kernel a name of a file means: what Python has under it at the file's end, of what can be told without a run.

use std::sync::atomic::Ordering;

use ruff_python_ast::Expr;

use super::fixed::{Evaluator, Fixed};
use super::program::{FuncId, Giving, Item, Program};

impl<'a> Program<'a> {
    /// The kernel of a name or of a path such as `Class.step`. A kernel within a function has its bare name too, where
    /// the file has no other of that name.
    pub fn kernel_named(&self, path: &str) -> Result<FuncId, String> {
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
                Some(Ok(Fixed::Plain(_, inner, _))) => named(inner, part),
                Some(Ok(of)) => Some(file.attribute(of, part, &nowhere)),
                other => other,
            };
        }
        match found {
            Some(Ok(Fixed::Kernel(id))) => Ok(id),
            Some(Err((_, what))) => Err(format!("which kernel '{path}' is cannot be told: {what}")),
            _ => self.kernel_within(path),
        }
    }

    /// The kernel of that name in a function or class.
    fn kernel_within(&self, name: &str) -> Result<FuncId, String> {
        let is_it = |n: &u32| {
            let func = &self.functions[*n as usize];
            let there = Evaluator::new(self, false, func.scope).within_def(*n, func.scope);
            func.file == 0 && func.def.name.as_str() == name && there.holds(&func.under) != Some(false)
        };
        let mut all: Vec<u32> = self.kernels.iter().copied().filter(is_it).collect();
        let choose = |names: Vec<String>| format!("there are several kernels '{name}': choose {}", names.join(" or "));
        let Some(n) = all.pop() else {
            let own = self.kernels.iter().filter(|&&n| self.functions[n as usize].file == 0);
            let instances = self.instances();
            let names: Vec<String> = own.flat_map(|&n| self.names_of(n, &instances)).collect();
            let has = if names.is_empty() { "no kernels".into() } else { names.join(", ") };
            return Err(format!("there is no kernel '{name}'; the file has {has}"));
        };
        all.retain(|&other| self.path(other) != self.path(n));
        if !all.is_empty() {
            return Err(choose(all.iter().chain([&n]).map(|&n| self.path(n)).collect()));
        }
        let instances = self.instances();
        let made: Vec<&(String, FuncId)> = instances.iter().filter(|(_, id)| id.n == n).collect();
        match made.first() {
            None => Ok(FuncId { prelude: false, n, around: 0 }),
            Some((_, id)) if made.iter().all(|(_, other)| other == id) => Ok(*id),
            Some(_) => Err(choose(made.iter().map(|(name, _)| name.clone()).collect())),
        }
    }

    /// Where a kernel stands: `Class.step`, `make.step`.
    pub fn path(&self, n: u32) -> String {
        let func = &self.functions[n as usize];
        let (mut path, mut at) = (func.def.name.as_str().to_owned(), func.scope);
        while let Some(parent) = self.scopes[at].parent {
            path = format!("{}.{path}", self.scopes[at].name);
            at = parent;
        }
        path
    }

    /// Names of the file for kernels that calls of functions made, in the order of the file: `cube = power(3)`.
    pub fn instances(&self) -> Vec<(String, FuncId)> {
        let is_within = |n: &u32| {
            let func = &self.functions[*n as usize];
            func.file == 0 && self.scopes[func.scope].parent.is_some()
        };
        if !self.kernels.iter().any(is_within) {
            return vec![];
        }
        let nowhere = Expr::NoneLiteral(Default::default());
        let spent = self.spent.load(Ordering::Relaxed);
        let mut all = vec![];
        for (name, item) in &self.scopes[0].names {
            let Item::Values(given) = item else { continue };
            let Some(last) = given.last() else { continue };
            let (Giving::Whole(value) | Giving::Part(value, _)) = last.value else { continue };
            if !matches!(value, Expr::Call(_) | Expr::Tuple(_) | Expr::List(_)) {
                continue;
            }
            if let Ok(Fixed::Kernel(id)) = Evaluator::new(self, false, 0).item(item, 0, name, &nowhere)
                && id.around != 0
            {
                all.push((last.at.start(), (*name).to_owned(), id));
            }
        }
        // The search is not work of the kernel that is made next.
        self.spent.store(spent, Ordering::Relaxed);
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        all.into_iter().map(|(_, name, id)| (name, id)).collect()
    }

    /// The names that a kernel of the file can be asked for by.
    pub fn names_of(&self, n: u32, instances: &[(String, FuncId)]) -> Vec<String> {
        let made: Vec<String> = instances.iter().filter(|(_, id)| id.n == n).map(|(name, _)| name.clone()).collect();
        if made.is_empty() { vec![self.path(n)] } else { made }
    }
}
