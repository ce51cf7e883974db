//! Calls of undecorated functions, by what they return: kernels and functions are made by such, and numbers. Nothing is
//! executed: what only a run tells is not known.

use ruff_python_ast::{Expr, ExprCall, Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;

use super::{Evaluator, Fixed, Unknown};
use crate::python::lower::returns;
use crate::python::types::Pattern;

/// What a call gave the parameters of a function: all that stands in the function sees it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Closure {
    /// The scope of the function's body.
    scope: usize,
    args: Vec<Result<Fixed, String>>,
    /// The call around it.
    around: u32,
}

impl<'p> Evaluator<'p, '_> {
    pub(super) fn call_plain(
        &self,
        call: &ExprCall,
        name: &str,
        inner: usize,
        around: u32,
        at: &Expr,
    ) -> Result<Fixed, Unknown> {
        let scope = &self.program.scopes[inner];
        let starred = call.arguments.args.iter().any(Expr::is_starred_expr)
            || call.arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
        let Some(def) = scope.def.filter(|def| {
            !starred && !def.is_async && def.parameters.vararg.is_none() && def.parameters.kwarg.is_none()
        }) else {
            return self.unknown(at, format!("'{name}' is not evaluated: only constants, arithmetic and math are"));
        };
        let outside = Evaluator { around, ..self.within(scope.parent.unwrap_or(inner)) };
        let mut args = vec![];
        for (n, parameter) in def.parameters.iter_non_variadic_params().enumerate() {
            let named = call.arguments.find_keyword(parameter.name().as_str()).map(|keyword| &keyword.value);
            let given = match (named.or(call.arguments.args.get(n)), parameter.default.as_deref()) {
                (Some(given), _) => self.eval(given).map_err(|(_, what)| what),
                (None, Some(default)) => outside.eval(default).map_err(|(_, what)| what),
                (None, None) => Err(format!("'{}' is not given to '{name}'", parameter.name().as_str())),
            };
            args.push(given);
        }
        let args_are_none = args.is_empty();
        let around = self.closed(Closure { scope: inner, args, around });
        let within = Evaluator { around, ..self.within(inner) };
        match within.returned(&def.body) {
            // A struct is declared once; by other arguments it would be another.
            Ok(Some(found)) if !args_are_none && self.has_struct_of(&found, inner) => self
                .unknown(at, format!("'{name}' makes a struct by what it is given: declare it outside of functions")),
            Ok(found) => Ok(found.unwrap_or(Fixed::None)),
            Err((_, what)) => self.unknown(at, what),
        }
    }

    fn has_struct_of(&self, found: &Fixed, scope: usize) -> bool {
        match found {
            Fixed::List(all) => all.iter().any(|one| self.has_struct_of(one, scope)),
            Fixed::Type(Pattern::Struct(n)) => self.is_within(self.program.structs[*n as usize].scope, scope),
            _ => false,
        }
    }

    fn is_within(&self, scope: usize, outer: usize) -> bool {
        std::iter::successors(Some(scope), |&n| self.program.scopes[n].parent).any(|n| n == outer)
    }

    /// What a block returns, if it does.
    fn returned(&self, block: &[Stmt]) -> Result<Option<Fixed>, Unknown> {
        for stmt in block {
            let here = Evaluator { before: Some((self.scope, stmt.range().start())), ..*self };
            match stmt {
                Stmt::Return(back) => {
                    return back.value.as_ref().map_or(Ok(Some(Fixed::None)), |value| here.eval(value).map(Some));
                }
                Stmt::If(branch) if returns(std::slice::from_ref(stmt)) => {
                    let mut clauses = branch.elif_else_clauses.iter().map(|c| (c.test.as_ref(), &c.body));
                    let mut clause = Some((Some(branch.test.as_ref()), &branch.body));
                    while let Some((test, body)) = clause {
                        match test.map_or(Ok(Some(true)), |test| here.eval(test).map(|found| found.truth()))? {
                            Some(true) => {
                                if let Some(found) = self.returned(body)? {
                                    return Ok(Some(found));
                                }
                                break;
                            }
                            Some(false) => clause = clauses.next(),
                            None => return self.unknown(stmt, "this is neither true nor false"),
                        }
                    }
                }
                Stmt::With(with) => {
                    if let Some(found) = self.returned(&with.body)? {
                        return Ok(Some(found));
                    }
                }
                Stmt::For(_) | Stmt::While(_) if !returns(std::slice::from_ref(stmt)) => {}
                Stmt::For(_) | Stmt::While(_) | Stmt::Try(_) | Stmt::Match(_) | Stmt::Raise(_) => {
                    let name = self.program.scopes[self.scope].name;
                    return self.unknown(stmt, format!("what '{name}' returns is only known in a run"));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The number of a call; equal ones have one, so that what they make is made once.
    fn closed(&self, closure: Closure) -> u32 {
        let mut all = self.program.closures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // All are compared.
        self.spent(all.len() / 8);
        let found = all.iter().position(|other| *other == closure).unwrap_or_else(|| {
            all.push(closure);
            all.len() - 1
        });
        found as u32 + 1
    }

    fn closure(&self, n: u32) -> Option<Closure> {
        let all = self.program.closures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.get(n.checked_sub(1)? as usize).cloned()
    }

    /// The innermost call around that what stands in a scope can see.
    pub(super) fn around_of(&self, scope: usize) -> u32 {
        let mut around = self.around;
        while let Some(closure) = self.closure(around) {
            if self.is_within(scope, closure.scope) {
                return around;
            }
            around = closure.around;
        }
        0
    }

    /// What a call around gave a parameter.
    pub(super) fn argument(&self, def: &StmtFunctionDef, n: usize) -> Option<Result<Fixed, String>> {
        let mut around = self.around;
        while let Some(closure) = self.closure(around) {
            if self.program.scopes[closure.scope].def.is_some_and(|found| std::ptr::eq(found, def)) {
                return closure.args.into_iter().nth(n);
            }
            around = closure.around;
        }
        None
    }
}
