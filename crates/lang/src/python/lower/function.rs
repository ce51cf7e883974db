//! Calls of user functions: lowered to IR functions, or inlined at the call.

use std::rc::Rc;

use bornite_ir::{Scalar, Stmt as Ir, Type, Value};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;

use super::call::{IrFunction, Signature};
use super::names::ReturnMode;
use super::value::{PyValue, Rvalue};
use super::{ErrorReported, Lower, LowerResult, ir_name};
use crate::python::const_eval::ConstValue;
use crate::python::program::{Func, FuncId};
use crate::python::types::{Ty, zeros};

impl<'p> Lower<'p> {
    pub(super) fn call_ir_function(
        &mut self,
        id: FuncId,
        rvalues: &[Rvalue],
        refs: &[usize],
        at: &'p Expr,
    ) -> LowerResult<(PyValue, Vec<Rvalue>)> {
        let types: Vec<Ty> = rvalues.iter().map(|rvalue| rvalue.ty).collect();
        let key = (id, types);
        let ir_function = match self.ir_functions.get(&key) {
            Some(found) => found.clone(),
            None => {
                let built = Rc::new(self.build_function(id, &key.1, refs, at)?);
                self.ir_functions.insert(key, built.clone());
                built
            }
        };
        let ids: Vec<_> = rvalues.iter().map(|rvalue| rvalue.id).collect();
        let packed = self.w.b.call(ir_function.id, &ids);
        let mut results: Vec<Rvalue> = match &ir_function.results[..] {
            [one] => vec![Rvalue::new(packed, *one)],
            many => {
                let mut all = vec![];
                for (n, ty) in many.iter().enumerate() {
                    all.push(Rvalue::new(self.extract(packed, n as u32), *ty));
                }
                all
            }
        };
        let changed = results.split_off(results.len() - ir_function.ref_count);
        Ok((as_py_value(results.into_iter().map(PyValue::Rvalue).collect()), changed))
    }

    /// Builds an IR function for arguments of the given types.
    fn build_function(&mut self, id: FuncId, types: &[Ty], refs: &[usize], at: &'p Expr) -> LowerResult<IrFunction> {
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
        self.push_frame(func, id);
        self.frame().return_mode = ReturnMode::Function(None);
        self.frame().ref_params = refs.iter().map(|&n| signature.params[n].0.to_owned()).collect();
        for (n, ((name, ..), ty)) in signature.params.iter().zip(types).enumerate() {
            self.bind_new(name, PyValue::Rvalue(Rvalue::new(bornite_ir::ExprId(n as u32), *ty)));
        }
        let built = self.build_body(func, at);
        self.frames.pop();
        let (value, results) = match built {
            Ok(built) => built,
            Err(ErrorReported) => (self.int(0), vec![Ty::Scalar(Scalar::I32)]),
        };
        let result = self.packed_type(&results, at);
        let name = self.unique_name(func.def.name.as_str());
        let ty = result.as_ref().copied().unwrap_or(Type::Scalar(Scalar::I32));
        let id = self.w.b.close_function(outer, name, &params, ty, value);
        self.w.swap_hoisted(free);
        result?;
        if self.errors.len() > before {
            return Err(ErrorReported);
        }
        Ok(IrFunction { id, results, ref_count: refs.len() })
    }

    /// Lowers the statements of a function. Returns its result and the types packed into it.
    fn build_body(&mut self, func: &'p Func<'p>, at: &'p Expr) -> LowerResult<(bornite_ir::ExprId, Vec<Ty>)> {
        let body = &func.def.body;
        let (last, before) = match body.split_last() {
            Some((Stmt::Return(last), before)) => (Some(last), before),
            _ => (None, &body[..]),
        };
        let ended = self.stmts(before)?;
        let rvalues = match (last, ended) {
            (Some(last), false) => Some(self.return_values(last)?),
            _ => None,
        };
        let known = match &self.frame().return_mode {
            ReturnMode::Function(Some(types)) => Some(types.clone()),
            _ => None,
        };
        match (rvalues, known) {
            (Some(rvalues), _) => {
                let types = rvalues.iter().map(|rvalue| rvalue.ty).collect();
                Ok((self.pack(&rvalues, at)?, types))
            }
            // No return at the end: 0, the initial value of variables in Warp.
            (None, Some(types)) => {
                let ty = self.packed_type(&types, at)?;
                let init: Vec<Value> = zeros(ty, self.w.b.structs());
                let local = self.w.b.typed_local("nothing", ty, &init);
                Ok((self.w.b.read(local), types))
            }
            (None, None) => {
                let rvalues = self.ref_param_values(at)?;
                let types = rvalues.iter().map(|rvalue| rvalue.ty).collect();
                Ok((self.pack(&rvalues, at)?, types))
            }
        }
    }

    /// Current values of the parameters that are passed by reference.
    pub(super) fn ref_param_values(&mut self, at: &impl Ranged) -> LowerResult<Vec<Rvalue>> {
        let names = self.frame().ref_params.clone();
        let mut all = vec![];
        for name in names {
            match self.read_name(&name) {
                Some(val) => {
                    let val = val?;
                    all.push(self.value(val, at)?);
                }
                None => return Err(ErrorReported),
            }
        }
        Ok(all)
    }

    /// The IR type that holds several values: a struct unless there is only one.
    pub(super) fn packed_type(&mut self, types: &[Ty], at: &impl Ranged) -> LowerResult<Type> {
        if let [one] = types {
            return self.ir_type(*one, at);
        }
        if types.is_empty() {
            return self.fail(at, "the function does not return a value".into(), "expected a value", None);
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
        let (name, key) = (self.unique_name(&name), parts.clone());
        let fields: Vec<String> = (0..parts.len()).map(|n| format!("item{n}")).collect();
        let fields: Vec<(&str, Type)> = fields.iter().map(String::as_str).zip(parts).collect();
        let ty = self.w.b.struct_type(&name, &fields);
        self.tuples.insert(key, ty);
        let count = ty.component_count(self.w.b.structs());
        if count > bornite_ir::MAX_COMPONENTS {
            let what = format!("the function returns {count} components; the limit is {}", bornite_ir::MAX_COMPONENTS);
            return self.fail(at, what, "", None);
        }
        Ok(ty)
    }

    /// Inlines a function at its call.
    pub(super) fn call_inline(
        &mut self,
        id: FuncId,
        vals: Vec<PyValue>,
        refs: &[usize],
        at: &'p Expr,
    ) -> LowerResult<(PyValue, Vec<Rvalue>)> {
        let func = self.func(id);
        let signature = self.signature(id);
        let before = self.errors.len();
        let body = &func.def.body;
        let has_single_return = match body.split_last() {
            Some((Stmt::Return(_), rest)) => !returns(rest),
            _ => !returns(body),
        };
        self.push_frame(func, id);
        self.frame().ref_params = refs.iter().map(|&n| signature.params[n].0.to_owned()).collect();
        if has_single_return {
            self.frame().return_mode = ReturnMode::SingleReturn(None);
            self.bind_params(&signature, vals);
            let _ = self.stmts(body);
        } else {
            let returned = self.w.b.local("returned", Value::int(Scalar::Bool, 0));
            let no = self.w.constant(Value::int(Scalar::Bool, 0));
            self.w.b.assign(returned, no);
            self.frame().return_mode = ReturnMode::Inline { results: None, types: None, returned: Some(returned) };
            self.bind_params(&signature, vals);
            // Parameters passed by reference change in the block below.
            let _ = self.promote_changed_names(&[body], &[], false);
            self.open_block(super::scan::block_id(body));
            self.adopt_names();
            let ended = self.stmts(body);
            if matches!(ended, Ok(false)) {
                self.w.stmt(Ir::Break);
            }
            let body = self.close_block();
            self.w.stmt(Ir::Loop { body });
        }
        let changed = self.ref_param_values(at);
        let return_mode = self.frames.pop().map(|frame| frame.return_mode);
        if self.errors.len() > before {
            return Err(ErrorReported);
        }
        let result = match return_mode {
            Some(ReturnMode::SingleReturn(Some(vals))) => {
                let mut loaded = vec![];
                for val in vals {
                    loaded.push(match val {
                        PyValue::Element(element) => PyValue::Rvalue(self.load(&element, at)?),
                        other => other,
                    });
                }
                as_py_value(loaded)
            }
            Some(ReturnMode::Inline { results: Some(results), types: Some(types), .. }) => {
                let rvalues = results
                    .iter()
                    .zip(types)
                    .map(|(local, ty)| PyValue::Rvalue(Rvalue::new(self.w.b.read(*local), ty)));
                as_py_value(rvalues.collect())
            }
            _ => PyValue::Const(ConstValue::None),
        };
        Ok((result, changed?))
    }

    fn bind_params(&mut self, signature: &Signature<'p>, vals: Vec<PyValue>) {
        for ((name, ..), val) in signature.params.iter().zip(vals) {
            self.bind_new(name, val);
        }
    }
}

fn as_py_value(mut vals: Vec<PyValue>) -> PyValue {
    match vals.len() {
        0 => PyValue::Const(ConstValue::None),
        1 => vals.swap_remove(0),
        _ => PyValue::Tuple(vals),
    }
}

/// Returns true if a block contains a return statement.
pub(crate) fn returns(block: &[Stmt]) -> bool {
    any_return(block, &|_| true)
}

/// Returns true if a block contains a return statement with a value.
pub(super) fn returns_value(block: &[Stmt]) -> bool {
    any_return(block, &|value| value)
}

fn any_return(block: &[Stmt], is: &dyn Fn(bool) -> bool) -> bool {
    block.iter().any(|stmt| match stmt {
        Stmt::Return(return_stmt) => {
            is(return_stmt.value.as_ref().is_some_and(|value| !matches!(value.as_ref(), Expr::NoneLiteral(_))))
        }
        Stmt::If(branch) => {
            any_return(&branch.body, is) || branch.elif_else_clauses.iter().any(|c| any_return(&c.body, is))
        }
        Stmt::For(each) => any_return(&each.body, is),
        Stmt::While(while_stmt) => any_return(&while_stmt.body, is),
        _ => false,
    })
}
