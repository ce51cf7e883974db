//! Calls: overload selection and argument passing. Functions of values become IR functions, one per
//! set of argument types; functions with array or function arguments are inlined (`function.rs`).

use std::rc::Rc;

use bornite_ir::FunctionId;
use ruff_python_ast::{Expr, ExprCall, Operator, Stmt};
use ruff_text_size::Ranged;

use super::function::returns_value;
use super::value::{Binding, PyValue, Rvalue};
use super::{ErrorReported, Lower, LowerResult, MAX_CALL_DEPTH};
use crate::python::const_eval::{ConstValue, Evaluator};
use crate::python::program::{Func, FuncId, Item, Program};
use crate::python::types::{Pattern, Ty};

/// The signature of a function.
pub(crate) struct Signature<'p> {
    /// Name, type pattern and default value of each parameter.
    pub params: Vec<(&'p str, Pattern, Option<&'p Expr>)>,
}

/// A function of the IR.
pub(crate) struct IrFunction {
    pub id: FunctionId,
    /// Types of the returned values, followed by those of parameters passed by reference.
    pub results: Vec<Ty>,
    /// Number of parameters passed by reference.
    pub ref_count: usize,
}

/// The value of an argument, and its expression.
pub(crate) type CallArg<'p> = (PyValue, &'p Expr);

/// Positional and keyword arguments of a call.
#[derive(Clone)]
pub(crate) struct CallArgs<'p> {
    pub positional: Vec<CallArg<'p>>,
    pub named: Vec<(&'p str, PyValue, &'p Expr)>,
}

impl<'p> CallArgs<'p> {
    /// The argument with a position or name.
    pub fn get(&self, n: usize, name: &str) -> Option<CallArg<'p>> {
        match self.positional.get(n) {
            Some(found) => Some(found.clone()),
            None => self.named.iter().find(|(found, ..)| *found == name).map(|(_, val, at)| (val.clone(), *at)),
        }
    }
}

/// Keyword arguments that specify the type or size of a constructed value rather than its
/// components.
const TYPE_KEYWORDS: [&str; 3] = ["dtype", "length", "shape"];

impl<'p> Lower<'p> {
    /// Moves keyword arguments to the positions of the parameters with these names.
    pub(super) fn bind_keywords(
        &mut self,
        what: &str,
        mut call_args: CallArgs<'p>,
        names: &[&str],
    ) -> LowerResult<CallArgs<'p>> {
        let (named, type_keywords) = call_args.named.into_iter().partition(|(name, ..)| !TYPE_KEYWORDS.contains(name));
        call_args.named = type_keywords;
        let named: Vec<(&str, PyValue, &'p Expr)> = named;
        let mut slots: Vec<Option<CallArg<'p>>> = call_args.positional.into_iter().map(Some).collect();
        for (name, val, at) in named {
            let Some(n) = names.iter().position(|one| *one == name) else {
                let hint = match names {
                    [] => "it takes positional arguments only".into(),
                    _ => format!("its parameters are {}", names.join(", ")),
                };
                return self.fail(
                    at,
                    format!("'{what}' has no parameter '{name}'"),
                    "unknown keyword argument",
                    Some(hint),
                );
            };
            slots.resize(slots.len().max(n + 1), None);
            if slots[n].is_some() {
                return self.fail(at, format!("argument '{name}' of '{what}' is given twice"), "second value", None);
            }
            slots[n] = Some((val, at));
        }
        if let Some(n) = slots.iter().position(Option::is_none) {
            let at = slots.iter().flatten().last().map(|(_, at)| *at);
            let missing = format!("missing argument '{}' in call to '{what}'", names.get(n).unwrap_or(&"an argument"));
            return match at {
                Some(at) => self.fail(at, missing, "a later argument is given", None),
                None => Err(ErrorReported),
            };
        }
        call_args.positional = slots.into_iter().flatten().collect();
        Ok(call_args)
    }

    pub(super) fn call(&mut self, call: &'p ExprCall, expr: &'p Expr) -> LowerResult<PyValue> {
        let callee = match call.func.as_ref() {
            Expr::Name(name) => match self.frame().names.get(name.id.as_str()).cloned() {
                Some(Binding::Value(PyValue::Const(constant))) => constant,
                Some(Binding::Broken) => return Err(ErrorReported),
                Some(_) => return self.fail(call.func.as_ref(), format!("'{}' is not a function", name.id), "", None),
                None => self.callee(&call.func)?,
            },
            Expr::Attribute(attribute) if matches!(attribute.value.as_ref(), Expr::Name(base) if !self.frame().names.contains_key(base.id.as_str())) => {
                self.callee(&call.func)?
            }
            other => match self.eval(other)? {
                PyValue::Const(constant) => constant,
                _ => return self.fail(other, "this is not callable".into(), "expected a function", None),
            },
        };
        match callee {
            ConstValue::Functions(all) => {
                let call_args = self.eval_args(call)?;
                let name = callee_name(&call.func);
                match self.select_overload(&all, &call_args) {
                    Some(id) => self.call_function(id, call_args, expr),
                    None => self.no_overload(&name, &all, &call_args, expr),
                }
            }
            ConstValue::Type(pattern) => self.construct(pattern, call, expr),
            ConstValue::Builtin(name) if matches!(name.as_str(), "range" | "reversed" | "slice") => {
                self.python_call(&name, call, expr)
            }
            ConstValue::Builtin(name) => self.builtin(&name, call, expr),
            ConstValue::PythonBuiltin(name) | ConstValue::PlainFunction(name, ..) => {
                self.python_call(&name, call, expr)
            }
            ConstValue::Kernel(id) => {
                let name = self.func(id).def.name.as_str();
                let hint = "make it a function with @wp.func".to_owned();
                self.fail(
                    call.func.as_ref(),
                    format!("cannot call kernel '{name}' from a kernel or function"),
                    "this is a kernel",
                    Some(hint),
                )
            }
            _ => self.fail(call.func.as_ref(), "this is not callable".into(), "expected a function", None),
        }
    }

    /// A call of a Python builtin.
    fn python_call(&mut self, name: &str, call: &'p ExprCall, expr: &'p Expr) -> LowerResult<PyValue> {
        match name {
            "range" => self.range(call),
            "slice" => {
                let parts: Vec<Option<&'p Expr>> = call.arguments.args.iter().map(Some).collect();
                match &parts[..] {
                    [_] => self.slice([None, parts[0], None]),
                    [start, end] => self.slice([*start, *end, None]),
                    [start, end, step] => self.slice([*start, *end, *step]),
                    _ => self.fail(expr, format!("slice expects 1 to 3 arguments, found {}", parts.len()), "", None),
                }
            }
            "len" | "abs" | "min" | "max" | "round" | "print" => self.builtin(name, call, expr),
            "reversed" => match call.arguments.args.first().map(|arg| self.eval(arg)) {
                Some(Ok(PyValue::Range(rvalues, backwards))) => Ok(PyValue::Range(rvalues, !backwards)),
                Some(Err(noted)) => Err(noted),
                _ => self.fail(expr, "only a range can be reversed".into(), "", None),
            },
            "type" => {
                let Some(arg) = call.arguments.args.first() else {
                    return self.fail(expr, "type() expects one argument".into(), "", None);
                };
                let rvalue = self.evaluated(arg)?;
                Ok(PyValue::Const(ConstValue::Type(Pattern::of(rvalue.ty))))
            }
            _ => {
                let mut hint = "decorate functions for kernels with @wp.func".to_owned();
                if let Some((module, _)) = name.rsplit_once('.').filter(|(module, _)| !module.is_empty()) {
                    hint += &format!(
                        "; imports are searched next to this file, and {}.py was not found",
                        module.replace('.', "/")
                    );
                }
                let what = format!("'{name}' is not a Warp function");
                self.fail(call.func.as_ref(), what, "cannot be called in a kernel", Some(hint))
            }
        }
    }

    fn callee(&mut self, func: &'p Expr) -> LowerResult<ConstValue> {
        match self.eval_const(func, true) {
            Ok(constant) => Ok(constant),
            Err((at, what)) => self.fail(&at, what, "unknown function", None),
        }
    }

    /// Evaluates the arguments of a call; `*v` expands to components.
    pub(super) fn eval_args(&mut self, call: &'p ExprCall) -> LowerResult<CallArgs<'p>> {
        let mut call_args = CallArgs { positional: vec![], named: vec![] };
        for arg in &call.arguments.args {
            if let Expr::Starred(starred) = arg {
                match self.eval(&starred.value)? {
                    PyValue::Tuple(all) => call_args.positional.extend(all.into_iter().map(|val| (val, arg))),
                    val => {
                        let rvalue = self.value(val, arg)?;
                        let Some(s) = rvalue.ty.element().filter(|_| rvalue.ty.scalar().is_none()) else {
                            return self.fail(arg, "'*' requires a tuple, vector or matrix".into(), "", None);
                        };
                        // A matrix expands to its rows.
                        if let Ty::Matrix(s, _, columns) = rvalue.ty {
                            let (ty, parts) =
                                (Ty::Vector(s, columns), self.components(rvalue.id, rvalue.ty.count() as u32));
                            let ir = self.ir_type(ty, arg)?;
                            for row in parts.chunks(columns as usize) {
                                let row = Rvalue::new(self.w.b.construct(ir, row), ty);
                                call_args.positional.push((PyValue::Rvalue(row), arg));
                            }
                            continue;
                        }
                        for n in 0..rvalue.ty.count() as u32 {
                            let part = Rvalue::new(self.extract(rvalue.id, n), Ty::Scalar(s));
                            call_args.positional.push((PyValue::Rvalue(part), arg));
                        }
                    }
                }
                continue;
            }
            call_args.positional.push((self.eval(arg)?, arg));
        }
        for keyword in &call.arguments.keywords {
            let Some(name) = &keyword.arg else {
                return self.fail(keyword, "'**' is not supported in kernels".into(), "", None);
            };
            call_args.named.push((name.as_str(), self.eval(&keyword.value)?, &keyword.value));
        }
        Ok(call_args)
    }

    pub(super) fn func(&self, id: FuncId) -> &'p Func<'p> {
        let program: &'p Program<'p> = if id.prelude { self.prelude } else { self.program };
        &program.functions[id.n as usize]
    }

    pub(super) fn signature(&mut self, id: FuncId) -> Rc<Signature<'p>> {
        if let Some(found) = self.signatures.get(&id) {
            return found.clone();
        }
        let func = self.func(id);
        let program: &'p Program<'p> = if id.prelude { self.prelude } else { self.program };
        let evaluator = Evaluator { closure: id.closure, ..Evaluator::new(program, id.prelude, func.scope) };
        let pattern = |annotation: Option<&Expr>| match annotation.map(|a| evaluator.annotation(a)) {
            None => Pattern::Any,
            Some(Ok(ConstValue::Type(pattern))) => pattern,
            Some(Ok(_)) => Pattern::Unsupported("the annotation is not a type".into()),
            Some(Err((_, what))) => Pattern::Unsupported(what),
        };
        let params = (func.def.parameters.iter_non_variadic_params())
            .map(|p| (p.name().as_str(), pattern(p.parameter.annotation()), p.default.as_deref()))
            .collect();
        let signature = Rc::new(Signature { params });
        self.signatures.insert(id, signature.clone());
        signature
    }

    /// The best matching overload.
    pub(super) fn select_overload(&mut self, all: &[FuncId], call_args: &CallArgs<'p>) -> Option<FuncId> {
        let mut best: Option<(u32, FuncId)> = None;
        for &id in all {
            let signature = self.signature(id);
            let mut total = Some(1);
            if call_args.positional.len() > signature.params.len()
                || call_args.named.iter().any(|(name, ..)| signature.params.iter().all(|(param, ..)| param != name))
            {
                continue;
            }
            for (n, (name, pattern, default)) in signature.params.iter().enumerate() {
                let fit = match call_args.get(n, name) {
                    Some((val, _)) => self.match_score(pattern, &val),
                    None => default.is_some().then_some(0),
                };
                total = total.zip(fit).map(|(a, b)| a + b);
            }
            // Of equally good overloads the last wins: it redefines the others.
            if let Some(total) = total
                && best.is_none_or(|(score, _)| total >= score)
            {
                best = Some((total, id));
            }
        }
        best.map(|(_, id)| id)
    }

    fn match_score(&self, pattern: &Pattern, val: &PyValue) -> Option<u32> {
        match (pattern, val) {
            (Pattern::Any, PyValue::Array(_) | PyValue::Aggregate(..) | PyValue::Const(_)) => Some(0),
            (Pattern::Array(element, rank), PyValue::Array(array)) => {
                let rank_fits = *rank == 0 || *rank as usize == array.rank();
                rank_fits.then(|| element.match_score(array.element)).flatten().map(|n| n + 1)
            }
            // A local array.
            (Pattern::Array(element, 0 | 1), PyValue::Rvalue(Rvalue { ty: Ty::FixedArray(s, _), .. })) => {
                element.match_score(Ty::Scalar(*s)).map(|n| n + 1)
            }
            (Pattern::Struct(n), PyValue::Aggregate(m, _)) => (n == m).then_some(6),
            (Pattern::Function, PyValue::Const(ConstValue::Functions(_) | ConstValue::Builtin(_))) => Some(6),
            (pattern, PyValue::Rvalue(rvalue)) => pattern.match_score(rvalue.ty),
            (pattern, PyValue::Element(element)) => pattern.match_score(element.ty()),
            (Pattern::Tuple(patterns), PyValue::Tuple(vals)) if patterns.len() == vals.len() => {
                patterns.iter().zip(vals).map(|(p, v)| self.match_score(p, v)).sum()
            }
            _ => None,
        }
    }

    pub(super) fn no_overload(
        &mut self,
        name: &str,
        all: &[FuncId],
        call_args: &CallArgs<'p>,
        at: &'p Expr,
    ) -> LowerResult<PyValue> {
        let mut found: Vec<String> = call_args.positional.iter().map(|(val, _)| self.describe(val)).collect();
        found.extend(call_args.named.iter().map(|(name, val, _)| format!("{name}={}", self.describe(val))));
        let what = format!("'{name}' does not take ({})", found.join(", "));
        let structs = self.struct_name();
        let mut shown = vec![];
        for &id in all.iter().take(4) {
            let signature = self.signature(id);
            let params: Vec<String> =
                signature.params.iter().map(|(name, p, _)| format!("{name}: {}", p.name(&structs))).collect();
            let one = format!("({})", params.join(", "));
            if !shown.contains(&one) {
                shown.push(one);
            }
        }
        let hint = (!shown.is_empty()).then(|| format!("it takes {}", shown.join(" or ")));
        self.fail(at, what, "no matching overload", hint)
    }

    pub(super) fn describe(&self, val: &PyValue) -> String {
        match val {
            PyValue::Rvalue(rvalue) => self.type_name(rvalue.ty),
            PyValue::Element(element) => self.type_name(element.ty()),
            PyValue::Array(array) => format!("array(dtype={}, ndim={})", self.type_name(array.element), array.rank()),
            PyValue::Shape(_) => "shape".into(),
            PyValue::Address(_) => "address".into(),
            PyValue::Tuple(_) => "tuple".into(),
            PyValue::Aggregate(n, _) => self.program.structs[*n as usize].name.to_owned(),
            PyValue::Const(ConstValue::Str(_)) => "str".into(),
            PyValue::Const(ConstValue::None) => "None".into(),
            PyValue::Const(ConstValue::Type(pattern)) => format!("type {}", pattern.name(&self.struct_name())),
            PyValue::Const(ConstValue::Functions(_) | ConstValue::Builtin(_)) => "function".into(),
            PyValue::Const(_) => "constant".into(),
            PyValue::FieldVariable(_, ty) => self.type_name(*ty),
            PyValue::Range(..) | PyValue::Slice(_) => "range".into(),
        }
    }

    /// Calls a user-defined function or a function of the prelude.
    pub(super) fn call_function(&mut self, id: FuncId, call_args: CallArgs<'p>, at: &'p Expr) -> LowerResult<PyValue> {
        let func = self.func(id);
        if self.frames.iter().any(|frame| std::ptr::eq(frame.func.def, func.def)) {
            let what = format!("recursion is not supported: '{}' calls itself", func.def.name.as_str());
            return self.fail(at, what, "recursive call", Some("use a loop".into()));
        }
        if self.frames.len() > MAX_CALL_DEPTH {
            return self.fail(at, format!("calls are nested more than {MAX_CALL_DEPTH} deep"), "", None);
        }
        let signature = self.signature(id);
        let mut vals: Vec<(PyValue, Option<&'p Expr>)> = vec![];
        for (n, (name, pattern, default)) in signature.params.iter().enumerate() {
            if let Pattern::Unsupported(what) = pattern {
                let what = format!("parameter '{name}' of '{}': {what}", func.def.name.as_str());
                return self.fail(at, what, "", None);
            }
            let val = match (call_args.get(n, name), default) {
                (Some((val, expr)), _) => {
                    let val = match val {
                        // A parameter is not a constant, even if the argument is.
                        PyValue::Rvalue(rvalue) => PyValue::Rvalue(Rvalue { constant: None, ..rvalue }),
                        PyValue::Element(element) => PyValue::Rvalue(self.load(&element, expr)?),
                        other => other,
                    };
                    (val, Some(expr))
                }
                (None, Some(default)) => {
                    self.push_frame(func, id);
                    let known = self.eval_const(default, false);
                    self.frames.pop();
                    match known {
                        Ok(constant) => (self.constant_val(constant, at)?, None),
                        Err((_, what)) => {
                            return self.fail(
                                at,
                                format!("the default value of '{name}' is not known at compile time: {what}"),
                                "",
                                None,
                            );
                        }
                    }
                }
                (None, None) => return self.fail(at, format!("missing argument '{name}'"), "", None),
            };
            vals.push(val);
        }
        // Local arrays are passed by reference too.
        let is_ref = |(pattern, val): (&Pattern, &PyValue)| match pattern {
            Pattern::Array(..) => matches!(val, PyValue::Rvalue(_)),
            pattern => matches!(pattern, Pattern::Ref(_)),
        };
        let params = signature.params.iter().zip(&vals).enumerate();
        let refs: Vec<usize> =
            params.filter(|(_, ((_, pattern, _), (val, _)))| is_ref((pattern, val))).map(|(n, _)| n).collect();
        let all_rvalues = vals.iter().all(|(val, _)| matches!(val, PyValue::Rvalue(_)));
        let (result, changed) = if all_rvalues && (returns_value(&func.def.body) || !refs.is_empty()) {
            let rvalues: Vec<Rvalue> = vals
                .iter()
                .filter_map(|(val, _)| if let PyValue::Rvalue(rvalue) = val { Some(rvalue.clone()) } else { None })
                .collect();
            self.call_ir_function(id, &rvalues, &refs, at)?
        } else {
            self.call_inline(id, vals.iter().map(|(val, _)| val.clone()).collect(), &refs, at)?
        };
        for (n, rvalue) in refs.into_iter().zip(changed) {
            if let Some(target) = vals[n].1 {
                self.write_back(target, rvalue)?;
            }
        }
        Ok(result)
    }

    /// Assigns the new value of an argument that was passed by reference.
    pub(super) fn write_back(&mut self, target: &'p Expr, rvalue: Rvalue) -> LowerResult {
        match target {
            Expr::Name(name) => self.assign_name(name.id.as_str(), PyValue::Rvalue(rvalue), target),
            Expr::Subscript(_) => match self.eval(target)? {
                PyValue::Element(element) => self.store_to(&element, rvalue, target),
                _ => Ok(()),
            },
            // A temporary is discarded.
            _ => Ok(()),
        }
    }

    /// Applies a user-defined overload of an operator (`add`, `mul`, …), if one matches.
    pub(super) fn user_operator(
        &mut self,
        op: Operator,
        a: &Rvalue,
        b: &Rvalue,
        at: &impl Ranged,
    ) -> LowerResult<Option<Rvalue>> {
        let name = match op {
            Operator::Add => "add",
            Operator::Sub => "sub",
            Operator::Mult => "mul",
            Operator::Div => "div",
            Operator::Mod => "mod",
            Operator::FloorDiv => "floordiv",
            _ => return Ok(None),
        };
        let frame = self.frame();
        if frame.prelude {
            return Ok(None);
        }
        let (scope, closure) = (frame.func.scope, frame.id.closure);
        let Some((Item::Functions(all), _)) = self.program.lookup(name, scope) else { return Ok(None) };
        let all: Vec<FuncId> = all.iter().map(|&n| FuncId { prelude: false, n, closure }).collect();
        for id in all {
            let func = self.func(id);
            if self.frames.iter().any(|frame| std::ptr::eq(frame.func.def, func.def)) {
                continue;
            }
            let signature = self.signature(id);
            let [(_, x, _), (_, y, _)] = &signature.params[..] else { continue };
            if x.match_score(a.ty).is_none() || y.match_score(b.ty).is_none() || !returns_value(&func.def.body) {
                continue;
            }
            let rvalues = [Rvalue { constant: None, ..a.clone() }, Rvalue { constant: None, ..b.clone() }];
            // Errors in the function are reported there.
            let Some(location) = first_expr(&func.def.body) else { continue };
            let (val, _) = self.call_ir_function(id, &rvalues, &[], location)?;
            return self.value(val, at).map(Some);
        }
        Ok(None)
    }
}

fn first_expr(body: &[Stmt]) -> Option<&Expr> {
    body.iter().find_map(|stmt| match stmt {
        Stmt::Return(return_stmt) => return_stmt.value.as_deref(),
        Stmt::Assign(assign) => Some(assign.value.as_ref()),
        Stmt::Expr(expr) => Some(expr.value.as_ref()),
        _ => None,
    })
}

fn callee_name(func: &Expr) -> String {
    match func {
        Expr::Name(name) => name.id.as_str().to_owned(),
        Expr::Attribute(attribute) => attribute.attr.as_str().to_owned(),
        _ => "this function".into(),
    }
}
