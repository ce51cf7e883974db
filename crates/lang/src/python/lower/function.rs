//! Functions as they are made: of the IR, or written out where they are called.

use std::rc::Rc;

use bornite_ir::{Scalar, Stmt as Ir, Type, Value};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;

use super::call::{Compiled, Signature};
use super::names::Back;
use super::value::{Run, Val};
use super::{Lower, Lowers, Noted, ir_name};
use crate::python::fixed::Fixed;
use crate::python::program::{Func, FuncId};
use crate::python::types::{Ty, zeros};

impl<'p> Lower<'p> {
    pub(super) fn call_compiled(
        &mut self,
        id: FuncId,
        runs: &[Run],
        refs: &[usize],
        at: &'p Expr,
    ) -> Lowers<(Val, Vec<Run>)> {
        let types: Vec<Ty> = runs.iter().map(|run| run.ty).collect();
        let key = (id, types);
        let compiled = match self.compiled.get(&key) {
            Some(found) => found.clone(),
            None => {
                let made = Rc::new(self.compile(id, &key.1, refs, at)?);
                self.compiled.insert(key, made.clone());
                made
            }
        };
        let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
        let whole = self.w.b.call(compiled.id, &ids);
        let mut results: Vec<Run> = match &compiled.results[..] {
            [one] => vec![Run::new(whole, *one)],
            many => {
                let mut all = vec![];
                for (n, ty) in many.iter().enumerate() {
                    all.push(Run::new(self.extracted(whole, n as u32), *ty));
                }
                all
            }
        };
        let changed = results.split_off(results.len() - compiled.changed);
        Ok((as_val(results.into_iter().map(Val::Run).collect()), changed))
    }

    /// Makes a function of the IR for arguments of those types.
    fn compile(&mut self, id: FuncId, types: &[Ty], refs: &[usize], at: &'p Expr) -> Lowers<Compiled> {
        let func = self.func(id);
        let signature = self.signature(id);
        let mut params = vec![];
        for ((name, ..), ty) in signature.params.iter().zip(types) {
            params.push((ir_name(name), self.ir_type(*ty, at)?));
        }
        let params: Vec<(&str, Type)> = params.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
        let before = self.errors.len();
        let outer = self.w.b.open_function(&params);
        let free = self.w.swap_hoisted(Default::default());
        self.enter(func, id);
        self.frame().back = Back::Function(None);
        self.frame().refs = refs.iter().map(|&n| signature.params[n].0.to_owned()).collect();
        for (n, ((name, ..), ty)) in signature.params.iter().zip(types).enumerate() {
            self.bind_new(name, Val::Run(Run::new(bornite_ir::ExprId(n as u32), *ty)));
        }
        let made = self.compile_body(func, at);
        self.frames.pop();
        let (value, results) = match made {
            Ok(made) => made,
            Err(Noted) => (self.int(0), vec![Ty::Scalar(Scalar::I32)]),
        };
        let result = self.pack_type(&results, at);
        let name = self.own_name(func.def.name.as_str());
        let ty = result.as_ref().copied().unwrap_or(Type::Scalar(Scalar::I32));
        let id = self.w.b.close_function(outer, name, &params, ty, value);
        self.w.swap_hoisted(free);
        result?;
        if self.errors.len() > before {
            return Err(Noted);
        }
        Ok(Compiled { id, results, changed: refs.len() })
    }

    /// The statements of a function, and what it gives at its end.
    fn compile_body(&mut self, func: &'p Func<'p>, at: &'p Expr) -> Lowers<(bornite_ir::ExprId, Vec<Ty>)> {
        let body = &func.def.body;
        let (last, before) = match body.split_last() {
            Some((Stmt::Return(last), before)) => (Some(last), before),
            _ => (None, &body[..]),
        };
        let ended = self.stmts(before)?;
        let runs = match (last, ended) {
            (Some(last), false) => Some(self.return_values(last)?),
            _ => None,
        };
        let known = match &self.frame().back {
            Back::Function(Some(types)) => Some(types.clone()),
            _ => None,
        };
        match (runs, known) {
            (Some(runs), _) => {
                let types = runs.iter().map(|run| run.ty).collect();
                Ok((self.packed(&runs, at)?, types))
            }
            // No return at the end: 0, as variables of the dialect are before they are set.
            (None, Some(types)) => {
                let ty = self.pack_type(&types, at)?;
                let init: Vec<Value> = zeros(ty, self.w.b.structs());
                let local = self.w.b.local_of("nothing", ty, &init);
                Ok((self.w.b.read(local), types))
            }
            (None, None) => {
                let runs = self.ref_values(at)?;
                let types = runs.iter().map(|run| run.ty).collect();
                Ok((self.packed(&runs, at)?, types))
            }
        }
    }

    /// The variables of the caller that the function was given, as they are now.
    pub(super) fn ref_values(&mut self, at: &impl Ranged) -> Lowers<Vec<Run>> {
        let names = self.frame().refs.clone();
        let mut all = vec![];
        for name in names {
            match self.read_name(&name) {
                Some(val) => {
                    let val = val?;
                    all.push(self.value(val, at)?);
                }
                None => return Err(Noted),
            }
        }
        Ok(all)
    }

    /// One type for several values.
    pub(super) fn pack_type(&mut self, types: &[Ty], at: &impl Ranged) -> Lowers<Type> {
        if let [one] = types {
            return self.ir_type(*one, at);
        }
        if types.is_empty() {
            return self.fail(at, "the function returns nothing".into(), "a value is expected", None);
        }
        let mut parts = vec![];
        for ty in types {
            parts.push(self.ir_type(*ty, at)?);
        }
        let name = {
            let names: Vec<String> = parts.iter().map(|ty| ir_name(&ty.name(self.w.b.structs()).to_string())).collect();
            format!("tuple_{}", names.join("_"))
        };
        if let Some(found) = self.tuples.get(&parts) {
            return Ok(*found);
        }
        let (name, key) = (self.own_name(&name), parts.clone());
        let fields: Vec<String> = (0..parts.len()).map(|n| format!("item{n}")).collect();
        let fields: Vec<(&str, Type)> = fields.iter().map(String::as_str).zip(parts).collect();
        let ty = self.w.b.structure(&name, &fields);
        self.tuples.insert(key, ty);
        let count = ty.count(self.w.b.structs());
        if count > bornite_ir::MAX_COMPONENTS {
            let what = format!("a function returns {count} numbers; {} are the most", bornite_ir::MAX_COMPONENTS);
            return self.fail(at, what, "", None);
        }
        Ok(ty)
    }

    /// Writes a function out where it is called.
    pub(super) fn call_inline(
        &mut self,
        id: FuncId,
        vals: Vec<Val>,
        refs: &[usize],
        at: &'p Expr,
    ) -> Lowers<(Val, Vec<Run>)> {
        let func = self.func(id);
        let signature = self.signature(id);
        let before = self.errors.len();
        let body = &func.def.body;
        let straight = match body.split_last() {
            Some((Stmt::Return(_), rest)) => !returns(rest),
            _ => !returns(body),
        };
        self.enter(func, id);
        self.frame().refs = refs.iter().map(|&n| signature.params[n].0.to_owned()).collect();
        if straight {
            self.frame().back = Back::Straight(None);
            self.bind_all(&signature, vals);
            let _ = self.stmts(body);
        } else {
            let returned = self.w.b.local("returned", Value::int(Scalar::Bool, 0));
            let no = self.w.constant(Value::int(Scalar::Bool, 0));
            self.w.b.assign(returned, no);
            self.frame().back = Back::Inline { results: None, types: None, returned: Some(returned) };
            self.bind_all(&signature, vals);
            // Refs change within the block below.
            let _ = self.before_branches(&[body], &[], false);
            self.open_block(super::scan::key(body));
            self.adopt_names();
            let ended = self.stmts(body);
            if matches!(ended, Ok(false)) {
                self.w.stmt(Ir::Break);
            }
            let body = self.close_block();
            self.w.stmt(Ir::Loop { body });
        }
        let changed = self.ref_values(at);
        let back = self.frames.pop().map(|frame| frame.back);
        if self.errors.len() > before {
            return Err(Noted);
        }
        let result = match back {
            Some(Back::Straight(Some(vals))) => {
                let mut settled = vec![];
                for val in vals {
                    settled.push(match val {
                        Val::Element(element) => Val::Run(self.load(&element, at)?),
                        other => other,
                    });
                }
                as_val(settled)
            }
            Some(Back::Inline { results: Some(results), types: Some(types), .. }) => {
                let runs = results.iter().zip(types).map(|(local, ty)| Val::Run(Run::new(self.w.b.read(*local), ty)));
                as_val(runs.collect())
            }
            _ => Val::Fixed(Fixed::None),
        };
        Ok((result, changed?))
    }

    fn bind_all(&mut self, signature: &Signature<'p>, vals: Vec<Val>) {
        for ((name, ..), val) in signature.params.iter().zip(vals) {
            self.bind_new(name, val);
        }
    }
}

fn as_val(mut vals: Vec<Val>) -> Val {
    match vals.len() {
        0 => Val::Fixed(Fixed::None),
        1 => vals.swap_remove(0),
        _ => Val::Tuple(vals),
    }
}

/// Whether a block returns somewhere.
pub(crate) fn returns(block: &[Stmt]) -> bool {
    any_return(block, &|_| true)
}

/// Whether a function gives a value.
pub(super) fn gives(block: &[Stmt]) -> bool {
    any_return(block, &|value| value)
}

fn any_return(block: &[Stmt], is: &dyn Fn(bool) -> bool) -> bool {
    block.iter().any(|stmt| match stmt {
        Stmt::Return(back) => {
            is(back.value.as_ref().is_some_and(|value| !matches!(value.as_ref(), Expr::NoneLiteral(_))))
        }
        Stmt::If(branch) => {
            any_return(&branch.body, is) || branch.elif_else_clauses.iter().any(|c| any_return(&c.body, is))
        }
        Stmt::For(each) => any_return(&each.body, is),
        Stmt::While(turn) => any_return(&turn.body, is),
        _ => false,
    })
}
