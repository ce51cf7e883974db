//! Declarations in functions: variables, pointers, local arrays. `shared.rs` has shared memory.

use std::rc::Rc;

use bornite_ir::{AlgebraOp, MAX_COMPONENTS, Stmt as IrStmt, Type, Value};

use super::array_init::MAX_ELEMENTS;
use super::lvalue::{ConstArray, CudaOperand, Lvalue, LvalueRoot, Pointer, RegisterArray};
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Stmt, StmtKind, Storage};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    pub(super) fn declare(&mut self, storage: Storage, declared: &'m Declarator) -> LowerResult {
        self.set_source_line(declared.span);
        let binding = self.declare_binding(storage, declared);
        let failed = binding.is_err();
        self.bind(declared.name, binding.unwrap_or(Binding::Poison));
        if failed { Err(LowerFailed) } else { Ok(()) }
    }

    fn declare_binding(&mut self, storage: Storage, d: &'m Declarator) -> LowerResult<Binding> {
        if storage.shared {
            return self.declare_shared(storage, d);
        }
        if storage.is_static {
            return self.declare_static(storage, d);
        }
        if storage.external || storage.device {
            return self.unsupported(
                d.span,
                "an 'extern' or '__device__' declaration in a function",
                "declare it outside functions",
            );
        }
        if d.ty.reference {
            return self.declare_reference(d);
        }
        let ty = match d.ty.base {
            Base::Auto => return self.declare_auto(d),
            _ => self.c_type(&d.ty)?,
        };
        match ty {
            CType::Group(group) => match d.init.as_ref().map(|init| self.operand(init)).transpose()? {
                Some(CudaOperand::Group(found)) if found.is_same_type(group) && d.sizes.is_empty() => {
                    Ok(Binding::Group(found))
                }
                _ => self.unsupported(d.span, "this declaration of a group", "initialize it where it is declared"),
            },
            CType::Collective(_) | CType::TempStorage(_) => self.unsupported(
                d.span,
                "a variable of this type",
                "declare the storage '__shared__', and call 'T(temp).Sum(x)'",
            ),
            CType::Void => self.fail(d.span, "a variable cannot have type 'void'", "no value has that type", ""),
            CType::Pointer(to) if d.sizes.is_empty() => {
                let Some(init) = &d.init else {
                    if self.assigned.contains(&d.name) && !d.ty.is_const_pointer {
                        return match self.is_tagged(d) {
                            true => self.bind_assigned_pointer(d, to, CudaOperand::Null(Some(to)), d.ty.constant),
                            false => Ok(Binding::UnsetPointer(to, d.span)),
                        };
                    }
                    return self.unsupported(d.span, "an uninitialized pointer", "initialize it where it is declared");
                };
                let operand = self.operand(init)?;
                self.declare_pointer(d, operand, Some(to))
            }
            CType::Pointer(to) => {
                let ty = self.slot_type(d.span, to, d.ty.constant);
                self.declare_array(d, ty, false)
            }
            CType::Value(ty) if !d.sizes.is_empty() => {
                self.declare_array(d, ty, storage.constant || self.is_const(&d.ty))
            }
            CType::Value(ty) => self.declare_value(d, ty),
        }
    }

    /// Declares a static local. Only constants are supported: a variable would be one per device
    /// and outlive the launch.
    fn declare_static(&mut self, storage: Storage, d: &'m Declarator) -> LowerResult<Binding> {
        if d.ty.reference || d.ty.pointers > 0 || !self.is_const(&d.ty) && !storage.constant {
            let what = format!("static variable '{}'", self.text(d.name));
            let hint = "pass a pointer to the kernel; use 'static __shared__' for a variable per block, 'static const' for a constant";
            return self.unsupported(d.span, what, hint);
        }
        let span = d.init.as_ref().map_or(d.span, |init| init.span);
        let known = match self.declare_binding(Storage { is_static: false, ..storage }, d)? {
            Binding::ConstArray(table) => Some(Binding::ConstArray(table)),
            Binding::Value(tree) => self.w.fold(&tree).map(|value| Binding::Value(Tree::constant(value))),
            Binding::Lvalue(Lvalue { root: LvalueRoot::Value(tree), .. }) => {
                self.w.fold(&tree).map(|value| Binding::Lvalue(Lvalue::of_value(Tree::constant(value))))
            }
            _ => None,
        };
        match known {
            Some(binding) => Ok(binding),
            None => {
                let what = "a static variable with a non-constant initializer";
                self.unsupported(span, what, "remove 'static'")
            }
        }
    }

    /// Rejects a pointer or reference that discards `const`.
    pub(super) fn check_const(&mut self, d: &Declarator, is_const: bool) -> LowerResult {
        if is_const && !self.is_const_target(d) && matches!(d.ty.base, Base::Scalar(_)) {
            let what = format!("'{}' discards 'const'", self.text(d.name));
            return self.fail(d.span, what, "discards 'const'", "declare it 'const'");
        }
        Ok(())
    }

    /// Returns true if a pointer or reference is declared to const.
    fn is_const_target(&self, d: &Declarator) -> bool {
        d.ty.constant || self.is_const(&d.ty)
    }

    /// Rejects a pointer that is initialized with a pointer to another type.
    fn check_pointee(&mut self, d: &Declarator, to: Option<Type>, found: Type) -> LowerResult {
        let Some(to) = to.filter(|to| *to != found) else { return Ok(()) };
        let (found, expected) = (self.type_name(found), self.type_name(to));
        let what = format!("cannot initialize a pointer to '{expected}' with a pointer to '{found}'");
        self.fail(d.span, what, format!("expected '{expected}*'"), "cast it")
    }

    fn declare_pointer(&mut self, d: &'m Declarator, operand: CudaOperand, to: Option<Type>) -> LowerResult<Binding> {
        match operand {
            CudaOperand::Pointer(pointer) if pointer.dims.is_some() => {
                self.unsupported(d.span, "a second pointer to a multidimensional array", "")
            }
            CudaOperand::Pointer(pointer) => {
                self.check_pointee(d, to, pointer.pointee_type())?;
                self.check_const(d, pointer.constant)?;
                let fixed = d.ty.is_const_pointer || d.ty.base == Base::Auto && d.ty.pointers == 0 && d.ty.constant;
                let constant = pointer.constant || d.ty.constant && !fixed;
                let pointer = match to {
                    Some(_) => pointer.declared(constant),
                    None => pointer,
                };
                if self.assigned.contains(&d.name) && !fixed {
                    let to = pointer.pointee_type();
                    return self.bind_assigned_pointer(d, to, CudaOperand::Pointer(pointer), constant);
                }
                let offset = pointer.offset.clone().map(|offset| self.materialize(offset));
                Ok(Binding::Pointer(Pointer { offset, ..pointer }))
            }
            operand @ (CudaOperand::Address(_) | CudaOperand::RegisterArray(..))
                if self.assigned.contains(&d.name) && self.move_operand_to_memory(&operand) =>
            {
                Err(LowerFailed)
            }
            CudaOperand::Address(lvalue) => {
                self.check_pointee(d, to, lvalue.ty)?;
                self.check_const(d, lvalue.constant)?;
                let constant = lvalue.constant || d.ty.constant;
                Ok(Binding::Address(Lvalue { constant, ..lvalue }))
            }
            CudaOperand::RegisterArray(mut array, at) if at.is_empty() && array.sizes.len() == 1 => {
                if let Some(element) = array.lvalue.ty.element() {
                    self.check_pointee(d, to, element.into())?;
                }
                self.check_const(d, array.lvalue.constant)?;
                array.lvalue.constant |= d.ty.constant;
                Ok(Binding::RegisterArray(array))
            }
            null @ CudaOperand::Null(_) => match to {
                Some(to) if self.assigned.contains(&d.name) && !d.ty.is_const_pointer => {
                    self.bind_assigned_pointer(d, to, null, d.ty.constant)
                }
                to => Ok(Binding::Null(to)),
            },
            operand if self.move_operand_to_memory(&operand) => Err(LowerFailed),
            _ => self.fail(d.span, "a pointer must be initialized with a pointer", "expected a pointer", ""),
        }
    }

    /// The first assignment of a pointer that was declared without an initializer.
    pub(super) fn set_pointer(
        &mut self,
        name: Symbol,
        (to, declared): (Type, SourceSpan),
        value: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let pointer = match self.operand(value)? {
            CudaOperand::Pointer(pointer)
                if pointer.dims.is_none() && pointer.pointee_type() == to && pointer.choice.is_none() =>
            {
                pointer
            }
            operand @ (CudaOperand::Null(_) | CudaOperand::Pointer(Pointer { choice: Some(_), .. })) => {
                self.first_value_needs_tag(declared, &operand);
                return Err(LowerFailed);
            }
            operand if self.move_operand_to_memory(&operand) => return Err(LowerFailed),
            _ => {
                let what = format!("this first value of pointer '{}'", self.text(name));
                return self.unsupported(span, what, "initialize it with an element of an array");
            }
        };
        let constant = pointer.constant;
        self.note_first_array(declared, &pointer);
        let moving = self.bind_moving_pointer(self.text(name), pointer.declared(constant));
        if let Binding::MovingPointer(_, local) = moving {
            self.note_declared(local, declared);
        }
        let declared = self.scope.iter().rposition(|(found, _)| *found == name);
        match declared.filter(|at| *at >= self.base) {
            Some(at) => self.scope[at].1 = moving,
            None => return Err(LowerFailed),
        }
        self.name(name, span)
    }

    fn declare_reference(&mut self, d: &'m Declarator) -> LowerResult<Binding> {
        let Some(init) = &d.init else {
            return self.fail(d.span, "a reference needs an initializer", "no initializer", "");
        };
        let ty = match d.ty.base {
            Base::Auto => None,
            _ => match self.c_type(&d.ty)? {
                CType::Value(ty) if d.sizes.is_empty() => Some(ty),
                CType::Group(_) => None,
                _ => return self.unsupported(d.span, "a reference to a pointer or array", "use the variable itself"),
            },
        };
        let is_const = self.is_const_target(d);
        if let (ExprKind::Braces(_), Some(ty), true) = (&init.kind, ty, is_const) {
            let tree = self.initializer(init, ty)?;
            return self.bind_variable(d, tree);
        }
        match self.referred(init)? {
            CudaOperand::Group(group) => Ok(Binding::Group(group)),
            CudaOperand::Lvalue(lvalue) if ty.is_none_or(|ty| ty == lvalue.ty) => {
                self.check_const(d, lvalue.constant)?;
                let constant = lvalue.constant || is_const;
                Ok(Binding::Lvalue(Lvalue { constant, ..lvalue }))
            }
            // A const reference to a value of another type refers to a temporary of its own type.
            operand @ (CudaOperand::Lvalue(_) | CudaOperand::Tree(_)) if is_const => {
                let tree = self.value_of(operand, init.span)?;
                let tree = match ty {
                    Some(ty) => self.convert(tree, ty, init.span)?,
                    None => tree,
                };
                self.bind_variable(d, tree)
            }
            CudaOperand::Lvalue(lvalue) => {
                let (from, to) = (self.type_name(lvalue.ty), self.type_name(ty.unwrap_or(lvalue.ty)));
                let what = format!("a reference to '{to}' cannot refer to a '{from}'");
                self.fail(init.span, what, format!("a variable of type '{from}'"), "declare it 'const', or a variable")
            }
            _ => self.fail(init.span, "a reference must refer to a variable or element", "", ""),
        }
    }

    fn declare_auto(&mut self, d: &'m Declarator) -> LowerResult<Binding> {
        let Some(init) = &d.init else {
            return self.fail(d.span, "'auto' needs an initializer", "no initializer", "");
        };
        match self.operand(init)? {
            CudaOperand::Group(group) => Ok(Binding::Group(group)),
            operand @ (CudaOperand::Pointer(_) | CudaOperand::Address(_)) => self.declare_pointer(d, operand, None),
            _ if d.ty.pointers > 0 => {
                self.fail(d.span, "a pointer must be initialized with a pointer", "expected a pointer", "")
            }
            operand => {
                let tree = self.value_of(operand, init.span)?;
                self.bind_variable(d, tree)
            }
        }
    }

    fn declare_value(&mut self, d: &'m Declarator, ty: Type) -> LowerResult<Binding> {
        let text = self.text(d.name);
        let number = match self.request.round_trip {
            true => text.strip_prefix('v').and_then(|n| n.parse::<u32>().ok()),
            false => None,
        };
        let Some(init) = &d.init else {
            if self.is_const(&d.ty) {
                let what = format!("const variable '{text}' has no initializer");
                return self.fail(d.span, what, "no initializer", "initialize it");
            }
            let default = self.default_value(ty, d.span)?;
            if self.is_in_memory(d) {
                return self.declare_memory_variable(d, ty, default);
            }
            let zeros = self.zeros(ty);
            let local = self.new_local(text, ty, &zeros);
            self.note_register(local, d, default.is_some());
            if let Some(default) = default {
                self.assign(local, &default);
            }
            return Ok(Binding::Local(local, ty));
        };
        self.check_enum_initializer(d, init)?;
        let from = self.w.b.next_expr();
        let tree = match &init.kind {
            ExprKind::Construct(name, args) if *name == d.ty => match (&args[..], ty.as_scalar()) {
                ([one], _) => self.direct_initializer(one, ty)?,
                _ => self.construct_value(args, ty, init.span)?,
            },
            _ if self.cas_initial_read == Some(init.span) => self.atomic_initial_read(init, ty)?,
            _ => self.initializer(init, ty)?,
        };
        match number {
            Some(number) => {
                let id = self.w.emit_new(&tree, from);
                self.expr_numbers.insert(id, number);
                Ok(Binding::Value(Tree::emitted(id, ty)))
            }
            None => self.bind_variable(d, tree),
        }
    }

    /// Binds a variable to its initial value, or to a local if it is assigned later.
    fn bind_variable(&mut self, d: &'m Declarator, tree: Tree) -> LowerResult<Binding> {
        let ty = tree.ty;
        let text = self.text(d.name);
        let printed_local = self.request.round_trip && text.contains('_');
        if !self.assigned.contains(&d.name) && !printed_local {
            return Ok(Binding::Value(self.materialize(tree)));
        }
        if self.is_const(&d.ty) {
            return Ok(Binding::Lvalue(Lvalue::of_value(self.materialize(tree))));
        }
        if self.is_in_memory(d) {
            return self.declare_memory_variable(d, ty, Some(tree));
        }
        let local = match self.constant_components(&tree).filter(|_| self.loops == 0) {
            Some(init) => self.new_local(text, ty, &init),
            None => {
                let value = self.materialize(tree);
                let zeros = self.zeros(ty);
                let local = self.new_local(text, ty, &zeros);
                self.assign(local, &value);
                local
            }
        };
        self.note_register(local, d, true);
        Ok(Binding::Local(local, ty))
    }

    /// Components of a tree of constants.
    fn constant_components(&self, tree: &Tree) -> Option<Vec<Value>> {
        if let Some(value) = self.w.fold(tree) {
            return Some(vec![value]);
        }
        match &tree.node {
            Node::Algebra(AlgebraOp::Construct, _, parts) => {
                let mut all = vec![];
                for part in parts {
                    all.extend(self.constant_components(part)?);
                }
                let count = tree.ty.component_count(self.w.b.structs());
                if all.len() == 1 && count > 1 {
                    all = vec![all[0]; count];
                }
                Some(all)
            }
            _ => None,
        }
    }

    fn declare_array(&mut self, d: &'m Declarator, ty: Type, constant: bool) -> LowerResult<Binding> {
        let sizes = self.sizes(d, MAX_ELEMENTS)?;
        let count: u64 = sizes.iter().product();
        let in_registers = count <= MAX_COMPONENTS as u64 && !self.is_in_memory(d) && !self.request.round_trip;
        let Some(scalar) = ty.as_scalar().filter(|_| in_registers || constant) else {
            return self.declare_memory_array(d, ty, &sizes, constant);
        };
        let mut values = vec![];
        if let Some(init) = &d.init {
            values = self.array_values(init, scalar, &sizes)?;
            let known: Option<Vec<Value>> = values.iter().map(|tree| self.w.fold(tree)).collect();
            if let Some(values) = known.filter(|_| constant && !self.assigned.contains(&d.name)) {
                return Ok(Binding::ConstArray(Rc::new(ConstArray { name: d.name, values, sizes })));
            }
        }
        if !in_registers {
            return self.declare_memory_array(d, ty, &sizes, constant);
        }
        let array = Type::Vector(scalar, count as u8);
        let (text, zeros) = (self.text(d.name), vec![Value::int(scalar, 0); count as usize]);
        let known: Option<Vec<Value>> = values.iter().map(|tree| self.w.fold(tree)).collect();
        let known = known.filter(|_| self.loops == 0 || d.init.is_none());
        let local = match known {
            Some(mut known) => {
                known.resize(count as usize, Value::int(scalar, 0));
                self.new_local(text, array, &known)
            }
            None => {
                let local = self.new_local(text, array, &zeros);
                let whole = Tree::of(Node::Algebra(AlgebraOp::Construct, 0, values), array);
                self.assign(local, &whole);
                local
            }
        };
        self.note_register(local, d, d.init.is_some());
        let lvalue = Lvalue { root: LvalueRoot::Local(local, array), path: vec![], ty: array, constant };
        Ok(Binding::RegisterArray(RegisterArray { lvalue, name: d.name, sizes: sizes.into() }))
    }

    /// `T v9 = v8; v9.y = v7;`: the CUDA printer's form of an insert.
    pub(super) fn printed_insert(&mut self, first: &'m Stmt, second: &'m Stmt) -> LowerResult<bool> {
        let (StmtKind::Declare(storage, all), StmtKind::Expr(assign)) = (&first.kind, &second.kind) else {
            return Ok(false);
        };
        let [d] = &all[..] else { return Ok(false) };
        let text = self.text(d.name);
        let Some(number) = text.strip_prefix('v').and_then(|n| n.parse::<u32>().ok()) else { return Ok(false) };
        let (ExprKind::Assign(None, target, value), Some(init), false) = (&assign.kind, &d.init, storage.constant)
        else {
            return Ok(false);
        };
        if !super::scan::mentions(target, d.name) {
            return Ok(false);
        }
        let CType::Value(ty) = self.c_type(&d.ty)? else { return Ok(false) };
        let whole = self.initializer(init, ty)?;
        self.bind(d.name, Binding::Value(whole.clone()));
        let CudaOperand::Lvalue(lvalue) = self.operand(target)? else { return Ok(false) };
        let [super::lvalue::Projection::Field(at)] = lvalue.path[..] else { return Ok(false) };
        let part = self.rvalue(value)?;
        let part = self.convert(part, lvalue.ty, value.span)?;
        let tree = Tree::of(Node::Algebra(AlgebraOp::Insert, at, vec![whole, part]), ty);
        let id = self.w.emit(&tree);
        self.expr_numbers.insert(id, number);
        self.bind(d.name, Binding::Value(Tree::emitted(id, ty)));
        Ok(true)
    }

    /// Emits an IR statement for a source span.
    pub(super) fn push_stmt(&mut self, stmt: IrStmt, span: SourceSpan) {
        self.set_source_line(span);
        self.w.stmt(stmt);
    }
}
