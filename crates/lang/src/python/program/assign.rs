//! Assignments to names and changes of their values, recorded per scope.

use ruff_python_ast::visitor::Visitor;
use ruff_python_ast::{Expr, ExprList, ExprTuple, Stmt};
use ruff_text_size::TextRange;

use super::{AssignedValue, Assignment, Item, Program};

impl<'a> Program<'a> {
    pub(super) fn assign(&mut self, target: &'a Expr, value: AssignedValue<'a>, at: TextRange, scope: usize) {
        match target {
            Expr::Name(name) => self.assign_name(name.id.as_str(), value, at, scope),
            Expr::Tuple(ExprTuple { elts, .. }) | Expr::List(ExprList { elts, .. }) => {
                for (n, target) in elts.iter().enumerate() {
                    let part = match value {
                        AssignedValue::Expr(value) if target.is_name_expr() => AssignedValue::Element(value, n),
                        _ => AssignedValue::Unknown("is unpacked"),
                    };
                    self.assign(target, part, at, scope);
                }
            }
            Expr::Subscript(part) => self.mark_mutated(&part.value, at, scope),
            Expr::Attribute(part) => {
                match part.value.as_name_expr().map(|of| self.resolve_alias(of.id.as_str(), scope)) {
                    Some(Some((&Item::Class(inner), _, declared))) if declared == scope => {
                        self.assign_name(part.attr.as_str(), value, at, inner);
                    }
                    Some(Some((&Item::Class(..), ..))) => self.deferred_mutations.push((target, at, scope)),
                    _ => self.mark_mutated(&part.value, at, scope),
                }
            }
            Expr::Starred(rest) => self.assign(&rest.value, AssignedValue::Unknown("is unpacked"), at, scope),
            _ => {}
        }
    }

    pub(super) fn assign_name(&mut self, name: &'a str, value: AssignedValue<'a>, at: TextRange, scope: usize) {
        let value = self.unknown_reasons.last().map_or(value, |why| AssignedValue::Unknown(why));
        let assignment = Assignment { value, range: at, conditions: self.conditions.clone() };
        match self.scopes[scope].names.get_mut(name) {
            Some(Item::Values(all)) => all.push(assignment),
            _ => self.declare(scope, name, Item::Values(vec![assignment])),
        }
    }

    /// Records that part of a name's value changes, after which the value is unknown.
    pub(super) fn mark_mutated(&mut self, of: &'a Expr, at: TextRange, scope: usize) {
        let Expr::Name(name) = of else { return };
        match self.resolve_alias(name.id.as_str(), scope).map(|(_, name, declared)| (name, declared)) {
            Some((name, declared)) if declared == scope => self.invalidate(name, at, declared),
            _ => self.deferred_mutations.push((of, at, scope)),
        }
    }

    fn invalidate(&mut self, name: &'a str, at: TextRange, scope: usize) {
        if let Some(Item::Values(all)) = self.scopes[scope].names.get_mut(name) {
            let value = AssignedValue::Unknown("is modified after it is assigned");
            all.push(Assignment { value, range: at, conditions: self.conditions.clone() });
        }
    }

    /// Applies changes that functions make to names of enclosing scopes, whether or not the
    /// functions are called.
    pub(super) fn apply_deferred_mutations(&mut self) {
        for (of, at, scope) in std::mem::take(&mut self.deferred_mutations) {
            let (name, attribute) = match of {
                Expr::Name(name) => (name.id.as_str(), None),
                Expr::Attribute(part) => match part.value.as_name_expr() {
                    Some(name) => (name.id.as_str(), Some(part.attr.as_str())),
                    None => continue,
                },
                _ => continue,
            };
            match (self.resolve_alias(name, scope), attribute) {
                (Some((&Item::Class(inner), ..)), Some(attribute)) => self.invalidate(attribute, at, inner),
                (Some((_, name, declared)), None) => self.invalidate(name, at, declared),
                _ => {}
            }
        }
    }

    /// Looks up a name and follows aliases (`a = b`). Returns the item, its final name and its
    /// scope.
    fn resolve_alias(&self, name: &'a str, scope: usize) -> Option<(&Item<'a>, &'a str, usize)> {
        let mut name = name;
        for _ in 0..8 {
            let (item, declared) = self.lookup(name, scope)?;
            match item {
                Item::Values(all)
                    if let Some(Assignment { value: AssignedValue::Expr(Expr::Name(other)), .. }) = all.last() =>
                {
                    name = other.id.as_str();
                }
                item => return Some((item, name, declared)),
            }
        }
        None
    }

    /// Marks names that `:=` assigns within an expression as unknown.
    pub(super) fn assign_walrus_targets(&mut self, expr: &'a Expr, at: TextRange, scope: usize) {
        let mut found = WalrusTargets(vec![]);
        found.visit_expr(expr);
        for target in found.0 {
            self.assign(target, AssignedValue::Unknown("is assigned by ':='"), at, scope);
        }
    }

    /// Records the assignments of a block that may not run (an `except` handler); its other
    /// declarations are ignored.
    pub(super) fn conditional_assignments(&mut self, block: &'a [Stmt], scope: usize) {
        for stmt in block {
            match stmt {
                Stmt::Assign(_) | Stmt::AugAssign(_) | Stmt::AnnAssign(_) | Stmt::Expr(_) => self.stmt(stmt, scope),
                Stmt::If(branch) => {
                    self.conditional_assignments(&branch.body, scope);
                    branch
                        .elif_else_clauses
                        .iter()
                        .for_each(|clause| self.conditional_assignments(&clause.body, scope));
                }
                _ => {}
            }
        }
    }
}

struct WalrusTargets<'a>(Vec<&'a Expr>);

impl<'a> Visitor<'a> for WalrusTargets<'a> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Named(named) = expr {
            self.0.push(&named.target);
        }
        ruff_python_ast::visitor::walk_expr(self, expr);
    }
}
