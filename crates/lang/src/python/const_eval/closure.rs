//! Evaluates calls of undecorated functions, which create kernels, functions and numbers. Only
//! `return` statements and the branches around them are followed; loops, for example, are not
//! executed, so values that depend on them are unknown.

use ruff_python_ast::{Expr, ExprCall, Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;

use super::{ConstValue, Evaluator, Unknown};
use crate::python::lower::returns;
use crate::python::types::Pattern;

/// The arguments of a call, visible to everything defined in the called function.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Closure {
    /// The scope of the function's body.
    scope: usize,
    args: Vec<Result<ConstValue, String>>,
    /// The closure in which the function was defined: `FuncId::closure`.
    parent: u32,
}

impl<'p> Evaluator<'p, '_> {
    pub(super) fn call_plain(
        &self,
        call: &ExprCall,
        name: &str,
        inner: usize,
        closure: u32,
        at: &Expr,
    ) -> Result<ConstValue, Unknown> {
        let scope = &self.program.scopes[inner];
        let starred = call.arguments.args.iter().any(Expr::is_starred_expr)
            || call.arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
        let Some(def) = scope.def.filter(|def| {
            !starred && !def.is_async && def.parameters.vararg.is_none() && def.parameters.kwarg.is_none()
        }) else {
            return self.unknown(
                at,
                format!(
                    "'{name}' cannot be evaluated at compile time; only constants, arithmetic and math functions can"
                ),
            );
        };
        let outside = Evaluator { closure, ..self.within(scope.parent.unwrap_or(inner)) };
        let mut args = vec![];
        for (n, parameter) in def.parameters.iter_non_variadic_params().enumerate() {
            let named = call.arguments.find_keyword(parameter.name().as_str()).map(|keyword| &keyword.value);
            let arg = match (named.or(call.arguments.args.get(n)), parameter.default.as_deref()) {
                (Some(arg), _) => self.eval(arg).map_err(|(_, what)| what),
                (None, Some(default)) => outside.eval(default).map_err(|(_, what)| what),
                (None, None) => Err(format!("missing argument '{}' in call to '{name}'", parameter.name().as_str())),
            };
            args.push(arg);
        }
        let has_args = !args.is_empty();
        let closure = self.intern_closure(Closure { scope: inner, args, parent: closure });
        let within = Evaluator { closure, ..self.within(inner) };
        match within.return_value(&def.body) {
            // A struct is defined once per file; with other arguments it would be a different one.
            Ok(Some(found)) if has_args && self.contains_struct_of(&found, inner) => self.unknown(
                at,
                format!("'{name}' defines a struct that depends on its arguments; define the struct at module level"),
            ),
            Ok(found) => Ok(found.unwrap_or(ConstValue::None)),
            Err((_, what)) => self.unknown(at, what),
        }
    }

    fn contains_struct_of(&self, found: &ConstValue, scope: usize) -> bool {
        match found {
            ConstValue::List(all) => all.iter().any(|one| self.contains_struct_of(one, scope)),
            ConstValue::Type(Pattern::Struct(n)) => self.is_within(self.program.structs[*n as usize].scope, scope),
            _ => false,
        }
    }

    fn is_within(&self, scope: usize, outer: usize) -> bool {
        std::iter::successors(Some(scope), |&n| self.program.scopes[n].parent).any(|n| n == outer)
    }

    /// The return value of a block; `None` if it does not return.
    fn return_value(&self, block: &[Stmt]) -> Result<Option<ConstValue>, Unknown> {
        for stmt in block {
            let here = Evaluator { before: Some((self.scope, stmt.range().start())), ..*self };
            match stmt {
                Stmt::Return(back) => {
                    return back.value.as_ref().map_or(Ok(Some(ConstValue::None)), |value| here.eval(value).map(Some));
                }
                Stmt::If(branch) if returns(std::slice::from_ref(stmt)) => {
                    let mut clauses = branch.elif_else_clauses.iter().map(|c| (c.test.as_ref(), &c.body));
                    let mut clause = Some((Some(branch.test.as_ref()), &branch.body));
                    while let Some((test, body)) = clause {
                        match test.map_or(Ok(Some(true)), |test| here.eval(test).map(|found| found.truth()))? {
                            Some(true) => {
                                if let Some(found) = self.return_value(body)? {
                                    return Ok(Some(found));
                                }
                                break;
                            }
                            Some(false) => clause = clauses.next(),
                            None => return self.unknown(stmt, "this value cannot be converted to bool"),
                        }
                    }
                }
                Stmt::With(with) => {
                    if let Some(found) = self.return_value(&with.body)? {
                        return Ok(Some(found));
                    }
                }
                Stmt::For(_) | Stmt::While(_) if !returns(std::slice::from_ref(stmt)) => {}
                Stmt::For(_) | Stmt::While(_) | Stmt::Try(_) | Stmt::Match(_) | Stmt::Raise(_) => {
                    let name = self.program.scopes[self.scope].name;
                    return self.unknown(stmt, format!("the return value of '{name}' is not known at compile time"));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The id of a closure. Equal closures share an id, so that what they create is created once.
    fn intern_closure(&self, closure: Closure) -> u32 {
        let mut all = self.program.closures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The search compares all closures.
        self.charge(all.len() / 8);
        let found = all.iter().position(|other| *other == closure).unwrap_or_else(|| {
            all.push(closure);
            all.len() - 1
        });
        found as u32 + 1
    }

    fn closure_by_id(&self, n: u32) -> Option<Closure> {
        let all = self.program.closures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.get(n.checked_sub(1)? as usize).cloned()
    }

    /// The innermost closure that is visible from a scope.
    pub(super) fn closure_visible_from(&self, scope: usize) -> u32 {
        let mut id = self.closure;
        while let Some(closure) = self.closure_by_id(id) {
            if self.is_within(scope, closure.scope) {
                return id;
            }
            id = closure.parent;
        }
        0
    }

    /// The argument of parameter `n` of an enclosing function.
    pub(super) fn argument(&self, def: &StmtFunctionDef, n: usize) -> Option<Result<ConstValue, String>> {
        let mut id = self.closure;
        while let Some(closure) = self.closure_by_id(id) {
            if self.program.scopes[closure.scope].def.is_some_and(|found| std::ptr::eq(found, def)) {
                return closure.args.into_iter().nth(n);
            }
            id = closure.parent;
        }
        None
    }
}
