//! What statements do to the names of a file.

use ruff_python_ast::visitor::Visitor;
use ruff_python_ast::{Expr, ExprList, ExprTuple, Stmt};
use ruff_text_size::TextRange;

use super::{Given, Giving, Item, Program};

impl<'a> Program<'a> {
    pub(super) fn assign(&mut self, target: &'a Expr, value: Giving<'a>, at: TextRange, scope: usize) {
        match target {
            Expr::Name(name) => self.give(name.id.as_str(), value, at, scope),
            Expr::Tuple(ExprTuple { elts, .. }) | Expr::List(ExprList { elts, .. }) => {
                for (n, target) in elts.iter().enumerate() {
                    let part = match value {
                        Giving::Whole(value) if target.is_name_expr() => Giving::Part(value, n),
                        _ => Giving::Unknown("is unpacked"),
                    };
                    self.assign(target, part, at, scope);
                }
            }
            Expr::Subscript(part) => self.changed(&part.value, at, scope),
            Expr::Attribute(part) => match part.value.as_name_expr().map(|of| self.meant(of.id.as_str(), scope)) {
                Some(Some((&Item::Class(inner), _, declared))) if declared == scope => {
                    self.give(part.attr.as_str(), value, at, inner);
                }
                Some(Some((&Item::Class(..), ..))) => self.later.push((target, at, scope)),
                _ => self.changed(&part.value, at, scope),
            },
            Expr::Starred(rest) => self.assign(&rest.value, Giving::Unknown("is unpacked"), at, scope),
            _ => {}
        }
    }

    pub(super) fn give(&mut self, name: &'a str, value: Giving<'a>, at: TextRange, scope: usize) {
        let value = self.unsure.last().map_or(value, |why| Giving::Unknown(why));
        let given = Given { value, at, under: self.under.clone() };
        match self.scopes[scope].names.get_mut(name) {
            Some(Item::Values(all)) => all.push(given),
            _ => self.declare(scope, name, Item::Values(vec![given])),
        }
    }

    /// A part of a name's value is changed: only a run of the file tells what it is then.
    pub(super) fn changed(&mut self, of: &'a Expr, at: TextRange, scope: usize) {
        let Expr::Name(name) = of else { return };
        match self.meant(name.id.as_str(), scope).map(|(_, name, declared)| (name, declared)) {
            Some((name, declared)) if declared == scope => self.spoil(name, at, declared),
            _ => self.later.push((of, at, scope)),
        }
    }

    fn spoil(&mut self, name: &'a str, at: TextRange, scope: usize) {
        if let Some(Item::Values(all)) = self.scopes[scope].names.get_mut(name) {
            let value = Giving::Unknown("is changed in its parts");
            all.push(Given { value, at, under: self.under.clone() });
        }
    }

    /// What functions change of names that stand around them, whether or not they are called.
    pub(super) fn changed_later(&mut self) {
        for (of, at, scope) in std::mem::take(&mut self.later) {
            let (name, attribute) = match of {
                Expr::Name(name) => (name.id.as_str(), None),
                Expr::Attribute(part) => match part.value.as_name_expr() {
                    Some(name) => (name.id.as_str(), Some(part.attr.as_str())),
                    None => continue,
                },
                _ => continue,
            };
            match (self.meant(name, scope), attribute) {
                (Some((&Item::Class(inner), ..)), Some(attribute)) => self.spoil(attribute, at, inner),
                (Some((_, name, declared)), None) => self.spoil(name, at, declared),
                _ => {}
            }
        }
    }

    /// What a name stands for, or the name that it is another one for, and the scope that says so.
    fn meant(&self, name: &'a str, scope: usize) -> Option<(&Item<'a>, &'a str, usize)> {
        let mut name = name;
        for _ in 0..8 {
            let (item, declared) = self.lookup(name, scope)?;
            match item {
                Item::Values(all) if let Some(Given { value: Giving::Whole(Expr::Name(other)), .. }) = all.last() => {
                    name = other.id.as_str();
                }
                item => return Some((item, name, declared)),
            }
        }
        None
    }

    /// Names that are given values within an expression.
    pub(super) fn named_in(&mut self, expr: &'a Expr, at: TextRange, scope: usize) {
        let mut found = Walruses(vec![]);
        found.visit_expr(expr);
        for target in found.0 {
            self.assign(target, Giving::Unknown("is assigned by ':='"), at, scope);
        }
    }

    /// Names that are given values in a block that may not run: nothing else of it is declared.
    pub(super) fn values_of(&mut self, block: &'a [Stmt], scope: usize) {
        for stmt in block {
            match stmt {
                Stmt::Assign(_) | Stmt::AugAssign(_) | Stmt::AnnAssign(_) | Stmt::Expr(_) => self.stmt(stmt, scope),
                Stmt::If(branch) => {
                    self.values_of(&branch.body, scope);
                    branch.elif_else_clauses.iter().for_each(|clause| self.values_of(&clause.body, scope));
                }
                _ => {}
            }
        }
    }
}

struct Walruses<'a>(Vec<&'a Expr>);

impl<'a> Visitor<'a> for Walruses<'a> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Named(named) = expr {
            self.0.push(&named.target);
        }
        ruff_python_ast::visitor::walk_expr(self, expr);
    }
}
