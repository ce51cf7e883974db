//! Inlining of functions that access memory or synchronize threads.

use std::rc::Rc;

use bornite_ir::{Scalar, Stmt as IrStmt, Type, Value};

use super::lvalue::{CudaOperand, Lvalue, Pointer};
use super::method::ThisObject;
use super::{Binding, BoundArg, CodeKind, ControlScope, Inline, LowerFailed, LowerResult, Lowering, ScopeKind, scan};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Function, MethodKind, Stmt, StmtKind};
use crate::cuda::types::CType;
use crate::lower::Tree;

impl<'m> Lowering<'m> {
    /// Inlines a call.
    pub(super) fn inline_call(
        &mut self,
        n: usize,
        bound: &[BoundArg],
        this: Option<ThisObject>,
        operands: Vec<CudaOperand>,
        args: &[Option<&'m Expr>],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let function = &self.module.file.functions[n];
        let again = self.inlines.iter().any(|inline| inline.function == n && inline.bound == bound);
        if again {
            return self.report_recursion(function, span);
        }
        self.check_call_depth(self.inlines.len(), function, span)?;
        let instantiating = self.instantiating.iter().any(|(item, found)| *item == n && found == bound);
        if let (CodeKind::Function(_), true) = (self.code, instantiating) {
            return self.report_recursion(function, span);
        }
        let mark = self.scope.len();
        let types = self.in_file_scope(&function.templates, bound, |lower| lower.declared_types(function));
        let (types, result) = types?;
        let assigned = Rc::new(scan::assigned(self.module, function));
        let mut bindings = vec![];
        for (((param, ty), operand), arg) in function.params.iter().zip(&types).zip(operands).zip(args) {
            let arg = (arg.map_or(span, |arg| arg.span), *arg);
            let binding = self.argument(param, *ty, operand, arg, assigned.contains(&param.name))?;
            bindings.push((param.name, binding));
        }
        let base = std::mem::replace(&mut self.base, self.scope.len());
        let order = std::mem::replace(&mut self.order, function.order);
        let assigned = std::mem::replace(&mut self.assigned, assigned);
        let aliased = std::mem::replace(&mut self.aliased, Rc::new(scan::aliased(function)));
        let mut this = this;
        // A const member function cannot modify its object.
        if let (Some(ThisObject { object: Some(object), .. }), Some(method)) = (&mut this, &function.method) {
            object.constant |= method.is_const;
        }
        let outer_this = std::mem::replace(&mut self.this, this);
        self.bind_members(span)?;
        self.bind_templates(&function.templates, bound);
        self.scope.extend(bindings);
        let initialized = self.initialize_members(function);
        let value = self.inlined_body(n, bound, result);
        self.scope.truncate(mark);
        self.base = base;
        (self.assigned, self.aliased, self.order) = (assigned, aliased, order);
        self.this = outer_this;
        initialized?;
        self.set_source_line(span);
        value
    }

    pub(super) fn declared_types(&mut self, function: &'m Function) -> LowerResult<(Vec<CType>, CType)> {
        let mut types = vec![];
        for param in &function.params {
            let ty = self.c_type(&param.ty)?;
            types.push(match ty {
                CType::Value(ty) if !param.sizes.is_empty() => CType::Pointer(ty),
                ty => ty,
            });
        }
        // The type of an `auto` function is that of its value.
        let result = match function.result.base {
            Base::Auto if function.result.pointers == 0 => CType::Void,
            _ => self.c_type(&function.result)?,
        };
        Ok((types, result))
    }

    fn argument(
        &mut self,
        param: &'m Declarator,
        ty: CType,
        operand: CudaOperand,
        (span, arg): (SourceSpan, Option<&'m Expr>),
        assigned: bool,
    ) -> LowerResult<Binding> {
        let text = self.text(param.name);
        if let CType::Pointer(_) = ty {
            let is_const = match &operand {
                CudaOperand::Pointer(pointer) => pointer.constant,
                CudaOperand::Address(lvalue) => lvalue.constant,
                CudaOperand::RegisterArray(array, _) => array.lvalue.constant,
                _ => false,
            };
            self.check_const(param, is_const)?;
        }
        // Registers have no address that could change, and no rows.
        let needs_memory = match (&operand, ty) {
            (CudaOperand::RegisterArray(_, at), CType::Pointer(_)) => assigned || !at.is_empty(),
            (CudaOperand::Address(_), CType::Pointer(_)) => assigned,
            _ => false,
        };
        if needs_memory && self.move_operand_to_memory(&operand) {
            return Err(LowerFailed);
        }
        match (ty, operand) {
            (CType::Group(group), CudaOperand::Group(found)) if group.is_same_type(found) => Ok(Binding::Group(found)),
            (CType::TempStorage(collective), CudaOperand::Pointer(pointer))
                if pointer.pointee_type() == collective.scalar.into() =>
            {
                Ok(Binding::Pointer(pointer))
            }
            (CType::Group(_), _) => self.fail(span, format!("parameter '{text}' is another group"), "", ""),
            (CType::Value(ty), CudaOperand::Lvalue(lvalue)) if param.ty.reference && lvalue.ty == ty => {
                let constant = lvalue.constant || param.ty.constant;
                Ok(Binding::Lvalue(Lvalue { constant, ..lvalue }))
            }
            (CType::Value(_), CudaOperand::Lvalue(_)) if param.ty.reference && !param.ty.constant => {
                self.fail(span, format!("reference parameter '{text}' has another type"), "", "")
            }
            (CType::Value(_), CudaOperand::Tree(_)) if param.ty.reference && !param.ty.constant => {
                self.fail(span, format!("reference parameter '{text}' needs a variable"), "a temporary value", "")
            }
            (CType::Value(ty), operand) => {
                let tree = self.value_of(operand, span)?;
                let tree = self.convert(tree, ty, span)?;
                let value = Binding::Value(self.materialize(tree));
                Ok(if assigned { self.bind_mutable_param(text, &param.ty, value) } else { value })
            }
            (CType::Pointer(to), CudaOperand::Pointer(pointer)) if self.is_same_pointee(to, pointer.pointee_type()) => {
                let to = pointer.pointee_type();
                let rows = self.param_rows(param)?;
                if rows.get(1..).is_some_and(|rows| rows != self.row_sizes(&pointer)) {
                    let what = format!("the rows of this array differ from those of parameter '{text}'");
                    return self.fail(span, what, "another type", "");
                }
                if param.ty.reference && assigned {
                    return self.same_pointer(arg, span);
                }
                let offset = pointer.offset.clone().map(|offset| self.materialize(offset));
                // A parameter whose type is a deduced pointer is const if the argument is.
                let constant =
                    if param.ty.pointers == 0 && param.sizes.is_empty() { pointer.constant } else { param.ty.constant };
                let pointer = Pointer { offset, ..pointer }.declared(constant);
                let moves = assigned && !param.ty.is_const_pointer;
                match moves {
                    true => self.bind_assigned_pointer(param, to, CudaOperand::Pointer(pointer), constant),
                    false => Ok(Binding::Pointer(pointer)),
                }
            }
            (CType::Pointer(to), CudaOperand::Address(lvalue)) if lvalue.ty == to => {
                let constant = lvalue.constant || param.ty.constant;
                Ok(Binding::Address(Lvalue { constant, ..lvalue }))
            }
            (CType::Pointer(to), CudaOperand::RegisterArray(mut array, at))
                if at.is_empty() && to.as_scalar() == array.lvalue.ty.element() =>
            {
                array.lvalue.constant |= param.ty.constant;
                Ok(Binding::RegisterArray(array))
            }
            (CType::Pointer(_), CudaOperand::ConstArray(table, at)) if at.is_empty() => Ok(Binding::ConstArray(table)),
            (CType::Pointer(to), CudaOperand::Null(_)) if !assigned => Ok(Binding::Null(Some(to))),
            (CType::Pointer(to), null @ CudaOperand::Null(_)) => {
                self.bind_assigned_pointer(param, to, null, param.ty.constant)
            }
            _ => {
                let what = format!("invalid argument for parameter '{text}'");
                self.fail(span, what, "expected a pointer to the parameter's type", "")
            }
        }
    }

    /// Binds a reference-to-pointer parameter to the caller's pointer variable.
    fn same_pointer(&mut self, arg: Option<&'m Expr>, span: SourceSpan) -> LowerResult<Binding> {
        if let Some(Expr { kind: ExprKind::Name(name), .. }) = arg
            && let Some(binding @ (Binding::MovingPointer(..) | Binding::TaggedPointer(_))) = self.lookup(*name)
        {
            return Ok(binding);
        }
        let what = "a reference to a pointer that is not a variable of the caller";
        self.unsupported(span, what, "pass a variable: 'int* p = x; f(p);'")
    }

    /// A pointer as the result of a function.
    fn returned_pointer(
        &mut self,
        operand: CudaOperand,
        to: Type,
        constant: bool,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        match operand {
            CudaOperand::Pointer(pointer) => {
                self.check_same_pointee(to, constant, &pointer, span)?;
                let offset = pointer.offset.clone().map(|offset| self.materialize(offset));
                Ok(CudaOperand::Pointer(Pointer { offset, ..pointer }.declared(constant)))
            }
            CudaOperand::Null(_) => Ok(CudaOperand::Null(Some(to))),
            CudaOperand::Address(lvalue) if lvalue.ty == to => Ok(CudaOperand::Address(lvalue)),
            operand if self.move_operand_to_memory(&operand) => Err(LowerFailed),
            _ => self.fail(span, "expected a pointer to the function's result type", "another type", ""),
        }
    }

    /// Lowers the body of an inlined function and returns its value.
    fn inlined_body(&mut self, n: usize, bound: &[BoundArg], result: CType) -> LowerResult<CudaOperand> {
        let function = &self.module.file.functions[n];
        let mut pointer = None;
        let is_constructor = function.method.as_ref().is_some_and(|method| method.kind == MethodKind::Constructor);
        let result = match result {
            _ if is_constructor => None,
            CType::Value(ty) => Some(ty),
            CType::Void => None,
            CType::Group(_) | CType::Collective(_) | CType::TempStorage(_) => {
                return self.unsupported(
                    function.span,
                    "a function that returns a group",
                    "create it where it is used",
                );
            }
            CType::Pointer(to) => {
                pointer = Some(to);
                None
            }
        };
        let (last, before) = match function.body.split_last() {
            Some((Stmt { kind: StmtKind::Return(value), .. }, before)) => (value.as_ref(), before),
            _ => (None, &function.body[..]),
        };
        // No early return: no surrounding loop is needed.
        if !scan::returns(before) {
            self.inlines.push(Inline {
                function: n,
                bound: bound.to_vec(),
                result: None,
                control_scopes: usize::MAX - 1,
                left: None,
            });
            let mark = self.scope.len();
            let failed = self.sequence(before).is_err();
            let value = match (last, result) {
                // A reference to what the expression refers to.
                (Some(value), Some(ty)) if function.result.reference => match self.referred(value) {
                    Ok(CudaOperand::Lvalue(lvalue)) if lvalue.ty == ty => {
                        let constant = lvalue.constant || function.result.constant;
                        Ok(CudaOperand::Lvalue(Lvalue { constant, ..lvalue }))
                    }
                    Ok(_) if !function.result.constant => {
                        self.unsupported(value.span, "returning a reference to this", "return a value")
                    }
                    Ok(operand) => self.value_of(operand, value.span).and_then(|tree| {
                        let tree = self.convert(tree, ty, value.span)?;
                        Ok(CudaOperand::Tree(self.materialize(tree)))
                    }),
                    Err(failed) => Err(failed),
                },
                (Some(value), Some(ty)) => {
                    self.initializer(value, ty).map(|tree| CudaOperand::Tree(self.materialize(tree)))
                }
                (Some(value), None) if let Some(to) = pointer => self
                    .operand(value)
                    .and_then(|operand| self.returned_pointer(operand, to, function.result.constant, value.span)),
                (Some(value), None) if function.result.base == Base::Auto => {
                    self.operand(value).and_then(|operand| match operand {
                        pointer @ CudaOperand::Pointer(_) => Ok(pointer),
                        operand => {
                            let tree = self.value_of(operand, value.span)?;
                            Ok(CudaOperand::Tree(self.materialize(tree)))
                        }
                    })
                }
                (Some(value), None) => match self.operand(value) {
                    Ok(CudaOperand::Void) => Ok(CudaOperand::Void),
                    Ok(_) => self.fail(value.span, "a function of type 'void' returns a value", "a value", ""),
                    Err(failed) => Err(failed),
                },
                (None, Some(ty)) => Ok(CudaOperand::Tree(self.zero(ty))),
                (None, None) => Ok(CudaOperand::Void),
            };
            self.scope.truncate(mark);
            self.inlines.pop();
            self.copied_reference &= function.result.reference;
            return if failed { Err(LowerFailed) } else { value };
        }
        if function.result.base == Base::Auto {
            return self.unsupported(function.span, "several returns of an 'auto' function", "name its type");
        }
        if function.result.reference && !function.result.constant && result.is_some() {
            return self.unsupported(function.span, "several returns of a reference", "return a value");
        }
        if let (Some(ty), Some((condition, a, b))) = (result, Self::two_returns(&function.body))
            && function.result.reference
            && !self.request.round_trip
        {
            self.inlines.push(Inline {
                function: n,
                bound: bound.to_vec(),
                result: None,
                control_scopes: usize::MAX - 1,
                left: None,
            });
            let chosen = self.referred_choice(condition, a, b, condition.span);
            self.inlines.pop();
            return match chosen? {
                CudaOperand::Lvalue(lvalue) if lvalue.ty == ty => Ok(CudaOperand::Lvalue(lvalue)),
                operand => {
                    let tree = self.value_of(operand, function.span)?;
                    let tree = self.convert(tree, ty, function.span)?;
                    Ok(CudaOperand::Tree(self.materialize(tree)))
                }
            };
        }
        let result = result.or(pointer.map(|to| self.slot_type(function.span, to, function.result.constant)));
        let result = result.map(|ty| {
            let zeros = self.zeros(ty);
            (self.new_local("result", ty, &zeros), ty)
        });
        let left = scan::returns_from_loops(&function.body).then(|| {
            let local = self.new_local("left", Scalar::Bool.into(), &[Value::int(Scalar::Bool, 0)]);
            self.assign(local, &Tree::int(Scalar::Bool, 0));
            local
        });
        self.inlines.push(Inline {
            function: n,
            bound: bound.to_vec(),
            result,
            control_scopes: self.control_scopes.len(),
            left,
        });
        self.control_scopes.push(ControlScope {
            kind: ScopeKind::InlinedCall,
            step: None,
            check: None,
            continued: None,
            returned: false,
        });
        self.w.b.open_block();
        let done = self.block(&function.body);
        self.w.stmt(IrStmt::Break);
        let body = self.w.b.close_block();
        self.w.stmt(IrStmt::Loop { body });
        self.control_scopes.pop();
        self.inlines.pop();
        done?;
        self.copied_reference = function.result.reference;
        Ok(match result {
            Some((local, ty)) => CudaOperand::Tree(Tree::emitted(self.w.b.read(local), ty)),
            None => CudaOperand::Void,
        })
    }
}
