//! Functions that touch memory or other threads: written out where they are called.

use std::rc::Rc;

use bornite_ir::{Scalar, Stmt as IrStmt, Value};

use super::call::MAX_CALLS;
use super::place::{Operand, Place, Pointer};
use super::{Binding, Bound, Code, Context, Done, Failed, Inline, Leave, Lower, scan};
use crate::Span;
use crate::cuda::ast::{Declarator, Expr, ExprKind, Function, Stmt, StmtKind};
use crate::cuda::types::CType;
use crate::lower::Tree;

impl<'m> Lower<'m> {
    /// A function written out where it is called.
    pub(super) fn write_out(
        &mut self,
        n: usize,
        bound: &[Bound],
        operands: Vec<Operand>,
        args: &[&'m Expr],
        span: Span,
    ) -> Done<Operand> {
        let function = &self.m.file.functions[n];
        let again = self.inlines.iter().any(|inline| inline.function == n && inline.bound == bound);
        if self.inlines.len() > MAX_CALLS || again {
            return self.recursive(function, span);
        }
        let making = self.making.iter().any(|(item, found)| *item == n && found == bound);
        if let (Code::Function(_), true) = (self.code, making) {
            return self.recursive(function, span);
        }
        let mark = self.scope.len();
        let types = self.in_file(&function.templates, bound, |lower| lower.write_out_types(function));
        let (types, result) = types?;
        let assigned = Rc::new(scan::assigned(self.m, function));
        let mut bindings = vec![];
        for (((param, ty), operand), arg) in function.params.iter().zip(&types).zip(operands).zip(args) {
            let binding = self.argument(param, *ty, operand, arg, assigned.contains(&param.name))?;
            bindings.push((param.name, binding));
        }
        let base = std::mem::replace(&mut self.base, self.scope.len());
        let assigned = std::mem::replace(&mut self.assigned, assigned);
        self.bind_templates(&function.templates, bound);
        self.scope.extend(bindings);
        let value = self.written_body(n, bound, result);
        self.scope.truncate(mark);
        self.base = base;
        self.assigned = assigned;
        self.at(span);
        value
    }

    pub(super) fn write_out_types(&mut self, function: &'m Function) -> Done<(Vec<CType>, CType)> {
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
        if let CType::Pointer(_) = ty {
            let is_const = match &operand {
                Operand::Pointer(pointer) => pointer.constant,
                Operand::Address(place) => place.constant,
                Operand::Array(slots, _) => slots.place.constant,
                _ => false,
            };
            self.check_const(param, is_const)?;
        }
        match (ty, operand) {
            (CType::Value(ty), Operand::Place(place)) if param.ty.reference && place.ty == ty => {
                let constant = place.constant || param.ty.constant;
                Ok(Binding::Place(Place { constant, ..place }))
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
                Ok(if assigned { self.changing(text, &param.ty, value) } else { value })
            }
            (CType::Pointer(to), Operand::Pointer(pointer)) if pointer.to() == to => {
                if param.ty.reference && assigned {
                    return self.same_pointer(arg);
                }
                let offset = pointer.offset.clone().map(|offset| self.settle(offset));
                // A parameter that is a pointer by its template's argument is const as that is.
                let constant =
                    if param.ty.pointers == 0 && param.sizes.is_empty() { pointer.constant } else { param.ty.constant };
                let pointer = Pointer { offset, ..pointer }.declared(constant);
                let moves = assigned && !param.ty.fixed;
                Ok(if moves { self.moving(text, pointer) } else { Binding::Pointer(pointer) })
            }
            (CType::Pointer(to), Operand::Address(place)) if place.ty == to => {
                let constant = place.constant || param.ty.constant;
                Ok(Binding::Address(Place { constant, ..place }))
            }
            (CType::Pointer(to), Operand::Array(mut slots, at))
                if at.is_empty() && to.as_scalar() == slots.place.ty.element() =>
            {
                slots.place.constant |= param.ty.constant;
                Ok(Binding::Array(slots))
            }
            (CType::Pointer(_), Operand::Table(table, at)) if at.is_empty() => Ok(Binding::Table(table)),
            (CType::Pointer(_), Operand::Null) => self.refuse(arg.span, "'nullptr' as an argument", "pass an array"),
            _ => {
                let what = format!("'{text}' of '{}' is given something else", self.text(param.name));
                self.fail(arg.span, what, "expected a pointer to its type", "")
            }
        }
    }

    /// A pointer that a function changes by reference: the caller's own.
    fn same_pointer(&mut self, arg: &'m Expr) -> Done<Binding> {
        if let ExprKind::Name(name) = arg.kind
            && let Some(binding @ Binding::Moving(..)) = self.lookup(name)
        {
            return Ok(binding);
        }
        let what = "a reference to a pointer that is no variable of the caller";
        self.refuse(arg.span, what, "pass a variable: 'int* p = x; f(p);'")
    }

    /// The body of a function that is written out, and its value.
    fn written_body(&mut self, n: usize, bound: &[Bound], result: CType) -> Done<Operand> {
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
            self.inlines.push(Inline {
                function: n,
                bound: bound.to_vec(),
                result: None,
                contexts: usize::MAX - 1,
                left: None,
            });
            let mark = self.scope.len();
            let failed = self.sequence(before).is_err();
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
        self.inlines.push(Inline { function: n, bound: bound.to_vec(), result, contexts: self.contexts.len(), left });
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
