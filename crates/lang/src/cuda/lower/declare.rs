//! Declarations in functions: variables, pointers, local arrays, shared memory.

use std::rc::Rc;

use bornite_ir::{Algebra, MAX_COMPONENTS, Stmt as IrStmt, Type, Value};

use super::fill::MAX_ELEMENTS;
use super::place::{Operand, Place, Pointer, Root, Slots, Table};
use super::{Binding, Done, Lower};
use crate::Span;
use crate::cuda::ast::{Base, Declarator, ExprKind, Stmt, StmtKind, Storage};
use crate::cuda::types::CType;
use crate::lower::{Node, Tree};

impl<'m> Lower<'m> {
    pub(super) fn declare(&mut self, storage: Storage, declared: &'m Declarator) -> Done {
        self.at(declared.span);
        let made = self.declared(storage, declared);
        let failed = made.is_err();
        self.bind(declared.name, made.unwrap_or(Binding::Poison));
        if failed { Err(super::Failed) } else { Ok(()) }
    }

    fn declared(&mut self, storage: Storage, d: &'m Declarator) -> Done<Binding> {
        if storage.shared {
            return self.declared_shared(storage, d);
        }
        if storage.is_static {
            return self.declared_static(storage, d);
        }
        if storage.external || storage.device {
            return self.refuse(d.span, "a declaration of something elsewhere", "declare it outside functions");
        }
        if d.ty.reference {
            return self.declared_reference(d);
        }
        let ty = match d.ty.base {
            Base::Auto => return self.declared_auto(d),
            _ => self.c_type(&d.ty)?,
        };
        match ty {
            CType::Void => self.fail(d.span, "a variable of type 'void'", "no value has that type", ""),
            CType::Pointer(to) if d.sizes.is_empty() => {
                let Some(init) = &d.init else {
                    return self.refuse(d.span, "a pointer without a value at first", "declare it where it is known");
                };
                let operand = self.operand(init)?;
                self.declared_pointer(d, operand, Some(to))
            }
            CType::Pointer(_) => self.refuse(d.span, "an array of pointers", "keep offsets into one array"),
            CType::Value(ty) if !d.sizes.is_empty() => {
                self.declared_array(d, ty, storage.constant || self.is_const(&d.ty))
            }
            CType::Value(ty) => self.declared_value(d, ty),
        }
    }

    /// A static local: constants are; a variable has one copy for the device, which outlives the launch.
    fn declared_static(&mut self, storage: Storage, d: &'m Declarator) -> Done<Binding> {
        if d.ty.reference || d.ty.pointers > 0 || !self.is_const(&d.ty) && !storage.constant {
            let what = format!("a static variable, '{}',", self.text(d.name));
            let hint =
                "pass a pointer to the kernel; a variable of a block is 'static __shared__', a constant 'static const'";
            return self.refuse(d.span, what, hint);
        }
        let span = d.init.as_ref().map_or(d.span, |init| init.span);
        let known = match self.declared(Storage { is_static: false, ..storage }, d)? {
            Binding::Table(table) => Some(Binding::Table(table)),
            Binding::Value(tree) => self.w.fold(&tree).map(|value| Binding::Value(Tree::constant(value))),
            Binding::Place(Place { root: Root::Value(tree), .. }) => {
                self.w.fold(&tree).map(|value| Binding::Place(Place::of_value(Tree::constant(value))))
            }
            _ => None,
        };
        match known {
            Some(binding) => Ok(binding),
            None => {
                let what = "a static variable whose initial value is no constant number";
                self.refuse(span, what, "leave out 'static'")
            }
        }
    }

    /// Refuses to drop `const` from what a pointer or reference gives access to.
    pub(super) fn check_const(&mut self, d: &Declarator, is_const: bool) -> Done {
        if is_const && !self.is_const_target(d) && matches!(d.ty.base, Base::Scalar(_)) {
            let what = format!("'{}' gives access to something const", self.text(d.name));
            return self.fail(d.span, what, "drops 'const'", "declare it 'const'");
        }
        Ok(())
    }

    /// Whether a pointer or reference is declared as one to const.
    fn is_const_target(&self, d: &Declarator) -> bool {
        d.ty.constant || self.is_const(&d.ty)
    }

    fn declared_pointer(&mut self, d: &'m Declarator, operand: Operand, to: Option<Type>) -> Done<Binding> {
        match operand {
            Operand::Pointer(pointer) if pointer.dims.is_some() => {
                self.refuse(d.span, "another pointer to an array of several dimensions", "")
            }
            Operand::Pointer(pointer) => {
                if let Some(to) = to.filter(|to| *to != pointer.to()) {
                    let (found, wanted) = (self.type_name(pointer.to()), self.type_name(to));
                    let what = format!("a pointer to '{found}' for one to '{wanted}'");
                    return self.fail(d.span, what, format!("expected '{wanted}*'"), "cast it");
                }
                self.check_const(d, pointer.constant)?;
                let fixed = d.ty.fixed || d.ty.base == Base::Auto && d.ty.pointers == 0 && d.ty.constant;
                let constant = pointer.constant || d.ty.constant && !fixed;
                let pointer = match to {
                    Some(_) => pointer.declared(constant),
                    None => pointer,
                };
                if self.assigned.contains(&d.name) && !fixed {
                    return Ok(self.moving(self.text(d.name), pointer));
                }
                let offset = pointer.offset.clone().map(|offset| self.settle(offset));
                Ok(Binding::Pointer(Pointer { offset, ..pointer }))
            }
            Operand::Address(place) => {
                self.check_const(d, place.constant)?;
                let constant = place.constant || d.ty.constant;
                Ok(Binding::Address(Place { constant, ..place }))
            }
            Operand::Array(mut slots, at) if at.is_empty() && slots.sizes.len() == 1 => {
                self.check_const(d, slots.place.constant)?;
                slots.place.constant |= d.ty.constant;
                Ok(Binding::Array(slots))
            }
            Operand::Null => {
                self.refuse(d.span, "a pointer that is 'nullptr' at first", "declare it where it is known")
            }
            _ => self.fail(d.span, "a pointer is given something else", "expected a pointer", ""),
        }
    }

    fn declared_reference(&mut self, d: &'m Declarator) -> Done<Binding> {
        let Some(init) = &d.init else {
            return self.fail(d.span, "a reference needs something to refer to", "no initial value", "");
        };
        match self.operand(init)? {
            Operand::Place(place) => {
                self.check_const(d, place.constant)?;
                let constant = place.constant || self.is_const_target(d);
                Ok(Binding::Place(Place { constant, ..place }))
            }
            Operand::Tree(tree) if d.ty.constant => {
                let tree = self.settle(tree);
                Ok(Binding::Value(tree))
            }
            _ => self.fail(init.span, "a reference to something that is no variable", "", ""),
        }
    }

    fn declared_auto(&mut self, d: &'m Declarator) -> Done<Binding> {
        let Some(init) = &d.init else {
            return self.fail(d.span, "'auto' needs an initial value", "no initial value", "");
        };
        match self.operand(init)? {
            operand @ (Operand::Pointer(_) | Operand::Address(_)) => self.declared_pointer(d, operand, None),
            operand => {
                let tree = self.value_of(operand, init.span)?;
                self.held(d, tree)
            }
        }
    }

    fn declared_value(&mut self, d: &'m Declarator, ty: Type) -> Done<Binding> {
        let text = self.text(d.name);
        let number = match self.request.printed {
            true => text.strip_prefix('v').and_then(|n| n.parse::<u32>().ok()),
            false => None,
        };
        let Some(init) = &d.init else {
            if self.is_const(&d.ty) {
                let what = format!("'{text}' is const and has no initial value");
                return self.fail(d.span, what, "no initial value", "give it one");
            }
            let zeros = self.zeros(ty);
            return Ok(Binding::Local(self.new_local(text, ty, &zeros), ty));
        };
        let from = self.w.b.next_expr();
        let tree = match &init.kind {
            ExprKind::Construct(name, args) if *name == d.ty => match (&args[..], ty.as_scalar()) {
                ([one], _) => self.initial(one, ty)?,
                _ => self.made(args, ty, init.span)?,
            },
            _ if self.guess == Some(init.span) => self.guessed(init, ty)?,
            _ => self.initial(init, ty)?,
        };
        match number {
            Some(number) => {
                let id = self.w.emit_new(&tree, from);
                self.wanted.insert(id, number);
                Ok(Binding::Value(Tree::done(id, ty)))
            }
            None => self.held(d, tree),
        }
    }

    /// A variable with its first value; one that nobody assigns is that value.
    fn held(&mut self, d: &'m Declarator, tree: Tree) -> Done<Binding> {
        let ty = tree.ty;
        let text = self.text(d.name);
        let printed_local = self.request.printed && text.contains('_');
        if !self.assigned.contains(&d.name) && !printed_local {
            return Ok(Binding::Value(self.settle(tree)));
        }
        if self.is_const(&d.ty) {
            return Ok(Binding::Place(Place::of_value(self.settle(tree))));
        }
        match self.constants(&tree).filter(|_| self.loops == 0) {
            Some(init) => Ok(Binding::Local(self.new_local(text, ty, &init), ty)),
            None => {
                let value = self.settle(tree);
                let zeros = self.zeros(ty);
                let local = self.new_local(text, ty, &zeros);
                self.assign(local, &value);
                Ok(Binding::Local(local, ty))
            }
        }
    }

    /// The components of a tree of constants.
    fn constants(&self, tree: &Tree) -> Option<Vec<Value>> {
        if let Some(value) = self.w.fold(tree) {
            return Some(vec![value]);
        }
        match &tree.node {
            Node::Algebra(Algebra::Construct, _, parts) => {
                let mut all = vec![];
                for part in parts {
                    all.extend(self.constants(part)?);
                }
                let count = tree.ty.count(self.w.b.structs());
                if all.len() == 1 && count > 1 {
                    all = vec![all[0]; count];
                }
                Some(all)
            }
            _ => None,
        }
    }

    fn declared_array(&mut self, d: &'m Declarator, ty: Type, constant: bool) -> Done<Binding> {
        let sizes = self.sizes(d, MAX_ELEMENTS)?;
        let Some(scalar) = ty.as_scalar() else {
            return self.refuse(d.span, "a local array of structs or vectors", "use one array a component");
        };
        let count: u64 = sizes.iter().product();
        let mut values = vec![];
        if let Some(init) = &d.init {
            values = self.values_of(init, scalar, &sizes)?;
            let known: Option<Vec<Value>> = values.iter().map(|tree| self.w.fold(tree)).collect();
            if let Some(values) = known.filter(|_| constant && !self.assigned.contains(&d.name)) {
                return Ok(Binding::Table(Rc::new(Table { name: d.name, values, sizes })));
            }
        }
        if count > MAX_COMPONENTS as u64 {
            let what = format!("a local array of {count} elements");
            let hint = format!("at most {MAX_COMPONENTS} live in registers; use shared or global memory");
            return self.fail(d.span, format!("{what} is not supported"), "too large", hint);
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
                let whole = Tree::of(Node::Algebra(Algebra::Construct, 0, values), array);
                self.assign(local, &whole);
                local
            }
        };
        let place = Place { root: Root::Local(local, array), path: vec![], ty: array, constant };
        Ok(Binding::Array(Slots { place, name: d.name, sizes: sizes.into() }))
    }

    /// `T v9 = v8; v9.y = v7;`, as our printer writes a whole with one part replaced.
    pub(super) fn inserted(&mut self, first: &'m Stmt, second: &'m Stmt) -> Done<bool> {
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
        let whole = self.initial(init, ty)?;
        self.bind(d.name, Binding::Value(whole.clone()));
        let Operand::Place(place) = self.operand(target)? else { return Ok(false) };
        let [super::place::Step::Part(at)] = place.path[..] else { return Ok(false) };
        let part = self.rvalue(value)?;
        let part = self.convert(part, place.ty, value.span)?;
        let tree = Tree::of(Node::Algebra(Algebra::Insert, at, vec![whole, part]), ty);
        let id = self.w.emit(&tree);
        self.wanted.insert(id, number);
        self.bind(d.name, Binding::Value(Tree::done(id, ty)));
        Ok(true)
    }

    /// A statement of the IR that the span of the source stands for.
    pub(super) fn push(&mut self, stmt: IrStmt, span: Span) {
        self.at(span);
        self.w.stmt(stmt);
    }
}
