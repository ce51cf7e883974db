//! Calls of the file's own functions. Those of values alone become functions of the IR; others are written out.

use std::rc::Rc;

use bornite_ir::{FunctionId, Scalar, Stmt as IrStmt, Type, Value};

use super::place::{Operand, Pointer};
use super::{Binding, Bound, Code, Context, Done, Failed, Inline, Leave, Lower, builtin, names, scan};
use crate::Span;
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Function, Stmt, StmtKind, TemplateArg};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;
use crate::lower::Tree;

/// Functions written out within one another.
const MAX_CALLS: usize = 32;

impl<'m> Lower<'m> {
    pub(super) fn call(
        &mut self,
        callee: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: Span,
    ) -> Done<Operand> {
        let m = self.m;
        let fits = |function: &Function| function.name == callee && function.params.len() == args.len();
        let all: Vec<usize> = (0..m.file.functions.len()).filter(|n| fits(&m.file.functions[*n])).collect();
        let Some(&first) = all.first() else {
            if let Some(other) = m.file.functions.iter().find(|function| function.name == callee) {
                let (name, wanted, found) = (self.text(callee), other.params.len(), args.len());
                let what = format!("'{name}' takes {}, {} given", builtin::arguments(wanted), builtin::given(found));
                return self.fail(span, what, "", "");
            }
            return self.builtin(callee, templates, args, span);
        };
        if m.file.functions[first].is_kernel {
            return self.refuse(span, "a call of a kernel", "make it a '__device__' function");
        }
        let mut operands = vec![];
        for (n, arg) in args.iter().enumerate() {
            let reference = all.iter().any(|f| m.file.functions[*f].params[n].ty.reference);
            let operand = match &arg.kind {
                ExprKind::Braces(_) => Operand::Tree(self.braced(first, n, arg)?),
                _ => self.operand(arg)?,
            };
            operands.push(match operand {
                Operand::Place(place) if !reference => Operand::Tree(self.read(&place, arg.span)?),
                other => other,
            });
        }
        let chosen = if all.len() == 1 { first } else { self.overload(&all, &operands) };
        let bound = self.template_bound(chosen, templates, &operands, span)?;
        if self.m.values[chosen] {
            let id = self.instance(chosen, &bound, span)?;
            let types = self.signature(chosen, &bound)?;
            let mut trees = vec![];
            for ((operand, ty), arg) in operands.into_iter().zip(&types.0).zip(args) {
                let tree = self.value_of(operand, arg.span)?;
                trees.push(self.convert(tree, *ty, arg.span)?);
            }
            return Ok(Operand::Tree(Tree::of(crate::lower::Node::Call(id, trees), types.1)));
        }
        self.write_out(chosen, &bound, operands, args, span)
    }

    fn braced(&mut self, function: usize, n: usize, arg: &'m Expr) -> Done<Tree> {
        match self.c_type(&self.m.file.functions[function].params[n].ty)? {
            CType::Value(ty) => self.initial(arg, ty),
            _ => self.refuse(arg.span, "a list in braces here", ""),
        }
    }

    /// The function whose parameters fit best.
    fn overload(&mut self, all: &[usize], operands: &[Operand]) -> usize {
        let score = |lower: &mut Self, n: usize| {
            let params = &lower.m.file.functions[n].params;
            let mut score = 0;
            for (param, operand) in params.iter().zip(operands) {
                let found = match operand {
                    Operand::Tree(tree) => CType::Value(tree.ty),
                    Operand::Place(place) => CType::Value(place.ty),
                    Operand::Pointer(pointer) => CType::Pointer(pointer.ty),
                    _ => CType::Void,
                };
                let generic = lower.m.file.functions[n].templates.iter().any(|t| param.ty.base == Base::Named(t.name));
                if generic {
                    score += 1;
                } else if let Ok(ty) = lower.c_type(&param.ty) {
                    score += match (ty, found) {
                        (a, b) if a == b => 3,
                        (CType::Value(a), CType::Value(b)) if a.as_scalar().is_some() == b.as_scalar().is_some() => 1,
                        _ => -100,
                    };
                }
            }
            score
        };
        let scores: Vec<i32> = all.iter().map(|n| score(self, *n)).collect();
        let best = scores.iter().max().copied().unwrap_or(0);
        scores.iter().position(|score| *score == best).map_or(all[0], |n| all[n])
    }

    /// Template arguments of a call: those written, those by default, those that the call's arguments tell.
    fn template_bound(
        &mut self,
        n: usize,
        args: &'m [TemplateArg],
        operands: &[Operand],
        span: Span,
    ) -> Done<Vec<Bound>> {
        let function = &self.m.file.functions[n];
        if function.templates.is_empty() {
            return Ok(vec![]);
        }
        let written = self.template_args(function, args)?;
        let mut bound = vec![];
        for (k, (param, found)) in function.templates.iter().zip(written).enumerate() {
            let told = function.params.iter().zip(operands).find_map(|(p, operand)| {
                let named = p.ty.base == Base::Named(param.name) && param.is_type;
                match (named, p.ty.pointers, operand) {
                    (true, 0, Operand::Tree(tree)) => Some(CType::Value(tree.ty)),
                    (true, 0, Operand::Place(place)) => Some(CType::Value(place.ty)),
                    (true, 1, Operand::Pointer(pointer)) => Some(CType::Value(pointer.ty)),
                    (true, 1, Operand::Address(place)) => Some(CType::Value(place.ty)),
                    (true, 0, Operand::Array(_, scalar, ..)) => Some(CType::Value((*scalar).into())),
                    _ => None,
                }
            });
            let by_default = k >= args.len();
            match (found, told) {
                (Some(bound_here), None) => bound.push(bound_here),
                (Some(bound_here), Some(_)) if !by_default => bound.push(bound_here),
                (_, Some(told)) => bound.push(Bound::Type(told)),
                (None, None) => {
                    let (name, param) = (self.text(function.name), self.text(param.name));
                    let what = format!("template parameter '{param}' of '{name}' is not known");
                    return self.fail(span, what, "", "write it: 'name<float>(…)'");
                }
            }
        }
        Ok(bound)
    }

    /// Parameter types and result of an instance of a function of values.
    fn signature(&mut self, n: usize, bound: &[Bound]) -> Done<(Vec<Type>, Type)> {
        let function = &self.m.file.functions[n];
        let mark = self.scope.len();
        self.bind_templates(function, bound);
        let mut types = vec![];
        let mut failed = false;
        for param in &function.params {
            match self.c_type(&param.ty) {
                Ok(CType::Value(ty)) => types.push(ty),
                _ => failed = true,
            }
        }
        let result = self.c_type(&function.result);
        self.scope.truncate(mark);
        match result {
            Ok(CType::Value(result)) if !failed => Ok((types, result)),
            _ => Err(Failed),
        }
    }

    /// The functions and structs of a printed text, all in its order.
    pub(super) fn keep_all(&mut self) -> Done {
        for n in 0..self.m.file.structs.len() {
            self.structure(n)?;
        }
        for n in 0..self.m.file.functions.len() {
            let function = &self.m.file.functions[n];
            if !function.is_kernel && function.templates.is_empty() {
                self.instance(n, &[], function.span)?;
            }
        }
        Ok(())
    }

    /// A function of the IR for some template arguments.
    fn instance(&mut self, n: usize, bound: &[Bound], span: Span) -> Done<FunctionId> {
        if let Some((_, _, id)) = self.functions.iter().find(|(item, found, _)| *item == n && found == bound) {
            return Ok(*id);
        }
        let function = &self.m.file.functions[n];
        if self.making.contains(&n) || self.making.len() > MAX_CALLS {
            return self.recursive(function, span);
        }
        let (types, result) = self.signature(n, bound)?;
        self.making.push(n);
        // The code around is put aside whole.
        let scope = std::mem::take(&mut self.scope);
        let base = std::mem::replace(&mut self.base, 0);
        let assigned = std::mem::replace(&mut self.assigned, Rc::new(scan::assigned(self.m, function)));
        let (contexts, inlines) = (std::mem::take(&mut self.contexts), std::mem::take(&mut self.inlines));
        let code = std::mem::replace(&mut self.code, Code::Function(result));
        let (loops, locals) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.locals));
        let wanted = std::mem::take(&mut self.wanted);
        let free = self.w.swap_free(Default::default());
        self.bind_templates(function, bound);
        let taken = |name: &str| function.params.iter().any(|other| self.m.names.text(other.name) == name);
        let param_names: Vec<String> =
            function.params.iter().map(|p| names::given(self.text(p.name), self.request.printed, taken)).collect();
        let params: Vec<(&str, Type)> = param_names.iter().map(String::as_str).zip(types.iter().copied()).collect();
        let outer = self.w.b.open_function(&params);
        self.at(function.span);
        for (k, (param, ty)) in function.params.iter().zip(&types).enumerate() {
            let value = Binding::Value(Tree::done(bornite_ir::ExprId(k as u32), *ty));
            let value =
                if self.assigned.contains(&param.name) { self.changing(self.text(param.name), value) } else { value };
            self.bind(param.name, value);
        }
        let value = self.function_body(&function.body, result);
        let name = self.function_name(function, bound);
        let done = value.is_ok();
        let value = value.unwrap_or(bornite_ir::ExprId(0));
        let id = self.w.b.close_function(outer, name, &params, result, value);
        self.w.swap_free(free);
        self.function_wanted.push(std::mem::replace(&mut self.wanted, wanted));
        (self.scope, self.base, self.assigned, self.contexts, self.inlines) =
            (scope, base, assigned, contexts, inlines);
        (self.code, self.loops, self.locals) = (code, loops, locals);
        self.making.pop();
        self.functions.push((n, bound.to_vec(), id));
        if done { Ok(id) } else { Err(Failed) }
    }

    /// The statements of a function, and the value that it ends with.
    fn function_body(&mut self, body: &'m [Stmt], result: Type) -> Done<bornite_ir::ExprId> {
        let mark = self.scope.len();
        let mut failed = false;
        let (last, before) = match body.split_last() {
            Some((Stmt { kind: StmtKind::Return(Some(value)), .. }, before)) => (Some(value), before),
            _ => (None, body),
        };
        // Not `block`: the value that is returned sees the same names.
        let mut at = 0;
        while at < before.len() {
            if self.request.printed && at + 1 < before.len() && self.inserted(&before[at], &before[at + 1])? {
                at += 2;
                continue;
            }
            failed |= self.stmt(&before[at]).is_err();
            at += 1;
        }
        let value = match last {
            Some(value) => {
                self.at(value.span);
                self.initial(value, result)
            }
            None => Ok(self.zero(result)),
        };
        let value = value.map(|tree| self.w.emit(&tree));
        self.scope.truncate(mark);
        if failed { Err(Failed) } else { value }
    }

    fn function_name(&self, function: &Function, bound: &[Bound]) -> String {
        let taken = |name: &str| self.m.file.functions.iter().any(|other| self.m.names.text(other.name) == name);
        let mut name = names::given(self.text(function.name), self.request.printed, taken);
        for bound in bound {
            name += "_";
            name += &match bound {
                Bound::Type(CType::Value(ty)) => ty.name(self.w.b.structs()).to_string(),
                Bound::Type(_) => "pointer".into(),
                Bound::Value(value) => value.as_i64().to_string().replace('-', "minus"),
            };
        }
        // Overloads share a name in C++, functions of a kernel do not.
        let same =
            self.functions.iter().filter(|(item, _, _)| self.m.file.functions[*item].name == function.name).count();
        if bound.is_empty() && same > 0 { format!("{name}_of{same}") } else { name }
    }

    fn recursive<T>(&mut self, function: &'m Function, span: Span) -> Done<T> {
        let what = format!("a function that calls itself, '{}',", self.text(function.name));
        self.refuse(span, what, "use a loop")
    }

    /// A function written out where it is called.
    fn write_out(
        &mut self,
        n: usize,
        bound: &[Bound],
        operands: Vec<Operand>,
        args: &'m [Expr],
        span: Span,
    ) -> Done<Operand> {
        let function = &self.m.file.functions[n];
        if self.inlines.len() > MAX_CALLS || self.inlines.iter().any(|inline| inline.function == n) {
            return self.recursive(function, span);
        }
        if let (Code::Function(_), true) = (self.code, self.making.contains(&n)) {
            return self.recursive(function, span);
        }
        let mark = self.scope.len();
        self.bind_templates(function, bound);
        let types = self.write_out_types(function);
        self.scope.truncate(mark);
        let (types, result) = types?;
        let assigned = Rc::new(scan::assigned(self.m, function));
        let mut bindings = vec![];
        for (((param, ty), operand), arg) in function.params.iter().zip(&types).zip(operands).zip(args) {
            let binding = self.argument(param, *ty, operand, arg, assigned.contains(&param.name))?;
            bindings.push((param.name, binding));
        }
        let base = std::mem::replace(&mut self.base, self.scope.len());
        let assigned = std::mem::replace(&mut self.assigned, assigned);
        self.bind_templates(function, bound);
        self.scope.extend(bindings);
        let value = self.written_body(n, result);
        self.scope.truncate(mark);
        self.base = base;
        self.assigned = assigned;
        self.at(span);
        value
    }

    fn write_out_types(&mut self, function: &'m Function) -> Done<(Vec<CType>, CType)> {
        let mut types = vec![];
        for param in &function.params {
            let ty = self.c_type(&param.ty)?;
            types.push(match ty {
                CType::Value(ty) if !param.sizes.is_empty() => CType::Pointer(ty),
                ty => ty,
            });
        }
        Ok((types, self.c_type(&function.result)?))
    }

    fn argument(
        &mut self,
        param: &'m Declarator,
        ty: CType,
        operand: Operand,
        arg: &'m Expr,
        assigned: bool,
    ) -> Done<Binding> {
        let text = self.text(param.name);
        match (ty, operand) {
            (CType::Value(ty), Operand::Place(place)) if param.ty.reference && place.ty == ty => {
                Ok(Binding::Place(place))
            }
            (CType::Value(_), Operand::Place(_)) if param.ty.reference && !param.ty.constant => {
                self.fail(arg.span, format!("'{text}' refers to another type"), "", "")
            }
            (CType::Value(_), Operand::Tree(_)) if param.ty.reference && !param.ty.constant => {
                self.fail(arg.span, format!("'{text}' needs a variable to refer to"), "a value that is nowhere", "")
            }
            (CType::Value(ty), operand) => {
                let tree = self.value_of(operand, arg.span)?;
                let tree = self.convert(tree, ty, arg.span)?;
                let value = Binding::Value(self.settle(tree));
                Ok(if assigned { self.changing(text, value) } else { value })
            }
            (CType::Pointer(to), Operand::Pointer(pointer)) if pointer.ty == to => {
                let offset = pointer.offset.clone().map(|offset| self.settle(offset));
                let pointer = Pointer { offset, ..pointer };
                Ok(if assigned { self.moving(text, pointer) } else { Binding::Pointer(pointer) })
            }
            (CType::Pointer(to), Operand::Address(place)) if place.ty == to => Ok(Binding::Address(place)),
            (CType::Pointer(to), Operand::Array(local, scalar, sizes, at)) if at.is_empty() && to == scalar.into() => {
                Ok(Binding::Array(local, scalar, sizes))
            }
            (CType::Pointer(_), Operand::Table(values, sizes, at)) if at.is_empty() => {
                Ok(Binding::Table(values, sizes))
            }
            _ => {
                let what = format!("'{text}' of '{}' is given something else", self.text(param.name));
                self.fail(arg.span, what, "expected a pointer to its type", "")
            }
        }
    }

    /// The body of a function that is written out, and its value.
    fn written_body(&mut self, n: usize, result: CType) -> Done<Operand> {
        let function = &self.m.file.functions[n];
        let result = match result {
            CType::Value(ty) => Some(ty),
            CType::Void => None,
            CType::Pointer(_) => {
                return self.refuse(function.span, "a function that returns a pointer", "return an offset");
            }
        };
        let (last, before) = match function.body.split_last() {
            Some((Stmt { kind: StmtKind::Return(value), .. }, before)) => (value.as_ref(), before),
            _ => (None, &function.body[..]),
        };
        // It ends where its text ends: no way out is needed.
        if !scan::returns(before) {
            self.inlines.push(Inline { function: n, result: None, contexts: usize::MAX - 1, left: None });
            let mark = self.scope.len();
            let mut failed = false;
            for stmt in before {
                failed |= self.stmt(stmt).is_err();
            }
            let value = match (last, result) {
                (Some(value), Some(ty)) => self.initial(value, ty).map(|tree| Operand::Tree(self.settle(tree))),
                (Some(value), None) => self.effect(value).map(|()| Operand::Void),
                (None, Some(ty)) => Ok(Operand::Tree(self.zero(ty))),
                (None, None) => Ok(Operand::Void),
            };
            self.scope.truncate(mark);
            self.inlines.pop();
            return if failed { Err(Failed) } else { value };
        }
        let result = result.map(|ty| {
            let zeros = self.zeros(ty);
            (self.new_local("result", ty, &zeros), ty)
        });
        let left = scan::returns_from_loops(&function.body).then(|| {
            let local = self.new_local("left", Scalar::Bool.into(), &[Value::int(Scalar::Bool, 0)]);
            self.assign(local, &Tree::int(Scalar::Bool, 0));
            local
        });
        self.inlines.push(Inline { function: n, result, contexts: self.contexts.len(), left });
        self.contexts.push(Context { kind: Leave::Call, step: None, check: None, continued: None, returned: false });
        self.w.b.open_block();
        let done = self.block(&function.body);
        self.w.stmt(IrStmt::Break);
        let body = self.w.b.close_block();
        self.w.stmt(IrStmt::Loop { body });
        self.contexts.pop();
        self.inlines.pop();
        done?;
        Ok(match result {
            Some((local, ty)) => Operand::Tree(Tree::done(self.w.b.read(local), ty)),
            None => Operand::Void,
        })
    }
}
