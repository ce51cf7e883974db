//! Member functions, constructors and static members of structs. Member functions are inlined: the
//! fields of their object are names in scope.

use bornite_ir::{Scalar, Type};

use super::call::{CallTarget, takes_count};
use super::lvalue::{CudaOperand, Lvalue, LvalueRoot};
use super::scope::TypeDefinition;
use super::{Binding, BoundArg, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{
    Base, Declarator, Expr, ExprKind, Function, MethodKind, Storage, StructItem, TemplateArg, TypeName,
};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;
use crate::lower::Tree;

/// Object of a member function; a static one has none.
#[derive(Clone)]
pub struct ThisObject {
    pub ty: Type,
    pub object: Option<Lvalue>,
}

impl<'m> Lowering<'m> {
    /// The struct of a type, with its template arguments.
    pub(super) fn struct_of(&self, ty: Type) -> Option<(&'m StructItem, Vec<BoundArg>)> {
        let (item, bound, _) = self.structs.iter().find(|(_, _, found)| *found == ty)?;
        Some((&self.module.file.structs[*item], bound.clone()))
    }

    /// Member functions of a name that take a number of arguments.
    pub(super) fn methods(&self, of: Symbol, name: Symbol, count: usize) -> Vec<usize> {
        let functions = &self.module.file.functions;
        let is_method = |n: &usize| {
            let function = &functions[*n];
            function.name == name
                && function.method.as_ref().is_some_and(|method| method.of == of)
                && takes_count(function, count)
        };
        (0..functions.len()).filter(is_method).collect()
    }

    /// Reports the errors of a member function that is not supported.
    fn report_unsupported_method(&mut self, of: Symbol, name: Symbol) -> LowerResult {
        let all = &self.module.file.unsupported_functions;
        match all.iter().find(|one| one.method_of == Some(of) && one.name == Some(name)) {
            Some(unsupported) => {
                self.errors.extend(unsupported.errors.iter().take(3).cloned());
                Err(LowerFailed)
            }
            None => Ok(()),
        }
    }

    /// `object.name(args)`.
    pub(super) fn method_call(
        &mut self,
        object: &'m Expr,
        name: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let object = match self.operand(object)? {
            CudaOperand::Lvalue(lvalue) => lvalue,
            CudaOperand::Tree(tree) => Lvalue::of_value(self.materialize(tree)),
            CudaOperand::Group(group) => return self.group_method(group, self.text(name), args, span),
            CudaOperand::Collective(collective, storage) => {
                return self.collective_method(collective, storage, self.text(name), args, span);
            }
            _ => return self.unsupported(span, "a member function of this expression", ""),
        };
        self.check_access(object.ty, name, span)?;
        self.call_method(object, name, templates, args, span)
    }

    pub(super) fn call_method(
        &mut self,
        object: Lvalue,
        name: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let text = self.text(name);
        let Some((item, outer)) = self.struct_of(object.ty) else {
            let what = format!("'{}' has no member function '{text}'", self.type_name(object.ty));
            return self.fail(span, what, "no such member function", "");
        };
        self.report_unsupported_method(item.name, name)?;
        let candidates = self.methods_for(item.name, name, args.len(), object.constant);
        if candidates.is_empty() {
            let what = format!("'{}' has no member function '{text}' for these arguments", self.text(item.name));
            return self.fail(span, what, "no such member function", "it must be '__device__'");
        }
        let operands = self.call_operands(&candidates, templates, args)?;
        let this = Some(ThisObject { ty: object.ty, object: Some(object) });
        let target = CallTarget { candidates, name, templates, outer, this, is_builtin_too: false };
        let result = self.call_target(target, operands, args.iter().map(Some).collect(), span)?;
        result.ok_or(LowerFailed)
    }

    /// Member functions for an object: const ones for a const object; otherwise a const one only if
    /// it has no other form.
    pub(super) fn methods_for(&self, of: Symbol, name: Symbol, count: usize, is_const: bool) -> Vec<usize> {
        let functions = &self.module.file.functions;
        let all = self.methods(of, name, count);
        let of_const = |n: &usize| functions[*n].method.as_ref().is_some_and(|method| method.is_const);
        let of_other = |n: &usize| !of_const(n);
        let is_static =
            |n: &usize| functions[*n].method.as_ref().is_some_and(|method| method.kind == MethodKind::Static);
        match is_const {
            true if all.iter().any(of_const) => all.into_iter().filter(|n| of_const(n) || is_static(n)).collect(),
            false if all.iter().any(of_other) => all.into_iter().filter(of_other).collect(),
            _ => all,
        }
    }

    /// A call by a plain name that is a member function of the current object, or an object with
    /// `operator()`; `None` if it is neither.
    pub(super) fn call_of_member(
        &mut self,
        callee: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        let binding = self.lookup(callee);
        if let Some(Binding::Value(_) | Binding::Local(..) | Binding::Lvalue(_)) = binding {
            let operand = self.name(callee, span)?;
            return self.invoke(operand, args, span).map(Some);
        }
        let Some(this) = self.this.clone() else { return Ok(None) };
        let Some((item, outer)) = self.struct_of(this.ty) else { return Ok(None) };
        let is_method = |function: &Function| {
            function.name == callee && function.method.as_ref().is_some_and(|method| method.of == item.name)
        };
        if self.module.file.functions.iter().any(is_method) {
            return match this.object {
                Some(object) => self.call_method(object, callee, templates, args, span).map(Some),
                None => self.call_static(this.ty, item, outer, callee, templates, args, span).map(Some),
            };
        }
        self.report_unsupported_method(item.name, callee)?;
        Ok(None)
    }

    /// Calls an object's `operator()`.
    pub(super) fn invoke(
        &mut self,
        object: CudaOperand,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let object = match object {
            CudaOperand::Lvalue(lvalue) => lvalue,
            CudaOperand::Tree(tree) => Lvalue::of_value(self.materialize(tree)),
            _ => return self.unsupported(span, "a call through an expression", ""),
        };
        match self.module.names.find("operator()") {
            Some(name) => self.call_method(object, name, &[], args, span),
            None => {
                let what = format!("'{}' cannot be called", self.type_name(object.ty));
                self.fail(span, what, "not a function", "")
            }
        }
    }

    /// Calls an object's `operator()` with values.
    pub(super) fn invoke_with(
        &mut self,
        object: Lvalue,
        operands: Vec<CudaOperand>,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let found = self.struct_of(object.ty).zip(self.module.names.find("operator()"));
        let Some(((item, outer), name)) = found else {
            let what = format!("'{}' cannot be called", self.type_name(object.ty));
            return self.fail(span, what, "not a function object", "");
        };
        self.report_unsupported_method(item.name, name)?;
        let candidates = self.methods_for(item.name, name, operands.len(), object.constant);
        if candidates.is_empty() {
            let what = format!("'{}' has no 'operator()' for these arguments", self.text(item.name));
            return self.fail(span, what, "no such member function", "it must be '__device__'");
        }
        let exprs = vec![None; operands.len()];
        let this = Some(ThisObject { ty: object.ty, object: Some(object) });
        let target = CallTarget { candidates, name, templates: &[], outer, this, is_builtin_too: false };
        self.call_target(target, operands, exprs, span)?.ok_or(LowerFailed)
    }

    #[allow(clippy::too_many_arguments)]
    fn call_static(
        &mut self,
        ty: Type,
        item: &'m StructItem,
        outer: Vec<BoundArg>,
        name: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        self.report_unsupported_method(item.name, name)?;
        let mut candidates = self.methods(item.name, name, args.len());
        candidates.retain(|n| {
            let method = self.module.file.functions[*n].method.as_ref();
            method.is_some_and(|method| method.kind == MethodKind::Static)
        });
        if candidates.is_empty() {
            let what = format!("'{}' has no static member function '{}'", self.text(item.name), self.text(name));
            return self.fail(span, what, "no such member function", "it must be '__device__'");
        }
        let operands = self.call_operands(&candidates, templates, args)?;
        let this = Some(ThisObject { ty, object: None });
        let target = CallTarget { candidates, name, templates, outer, this, is_builtin_too: false };
        self.call_target(target, operands, args.iter().map(Some).collect(), span)?.ok_or(LowerFailed)
    }

    /// `S::name(args)`.
    pub(super) fn scoped_call(
        &mut self,
        scope: &'m TypeName,
        name: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let CType::Value(ty) = self.c_type(scope)? else {
            return self.unsupported(span, "a member of this type", "");
        };
        match self.struct_of(ty) {
            Some((item, outer)) => self.call_static(ty, item, outer, name, templates, args, span),
            None => {
                let what = format!("'{}' has no static member functions", self.type_name(ty));
                self.fail(span, what, "not a struct", "")
            }
        }
    }

    /// `S::name`: a static member or an enumerator.
    pub(super) fn scoped_name(
        &mut self,
        scope: &'m TypeName,
        name: Symbol,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let module = self.module;
        if let Base::Named(of) = scope.base
            && module.file.enumerators.iter().any(|(found, _)| *found == of)
        {
            let namespaces = &module.file.namespaces;
            let path = match self.select_type(of, scope.span)? {
                Some(TypeDefinition::Alias(n)) => namespaces.path_at(module.file.aliases[n].1.span.start),
                _ => &[],
            };
            let is_own =
                |found: Symbol, value: &Declarator| found == of && namespaces.path_at(value.span.start) == path;
            let mut all =
                module.file.enumerators.iter().filter(|(found, value)| is_own(*found, value) && value.name == name);
            let (first, second) = (all.next(), all.next());
            if let (Some((_, first)), Some((_, second))) = (first, second) {
                return self.ambiguous(of, span, first.span, second.span);
            }
            let Some((_, declared)) = first else {
                let what = format!("enum '{}' has no constant '{}'", self.text(of), self.text(name));
                return self.fail(span, what, "no such constant", "");
            };
            // Later constants refer to earlier ones by their plain names.
            let siblings =
                module.file.enumerators.iter().filter(|(found, value)| is_own(*found, value) && value.name != name);
            let storage = Storage { constant: true, ..Storage::default() };
            let binding = self.in_file_scope(&[], &[], |lower| {
                for (_, sibling) in siblings.take_while(|(_, value)| value.span.start < declared.span.start) {
                    let binding = lower.declare_global(sibling, storage, span)?;
                    lower.bind(sibling.name, binding);
                }
                lower.declare_global(declared, storage, span)
            })?;
            return self.bound_operand(binding, span);
        }
        let CType::Value(ty) = self.c_type(scope)? else {
            return self.unsupported(span, "a member of this type", "");
        };
        match self.static_member(ty, name, span)? {
            Some(operand) => Ok(operand),
            None => {
                let what = format!("'{}' has no static member '{}'", self.type_name(ty), self.text(name));
                self.fail(span, what, "no such member", "")
            }
        }
    }

    /// A static member of a struct, by name.
    pub(super) fn static_member(
        &mut self,
        ty: Type,
        name: Symbol,
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        let Some((item, bound)) = self.struct_of(ty) else { return Ok(None) };
        let Some(declared) = item.statics.iter().find(|declared| declared.name == name) else { return Ok(None) };
        let storage = Storage { constant: true, ..Storage::default() };
        let binding = self
            .in_class_scope(Some(ty), &item.templates, &bound, |lower| lower.declare_global(declared, storage, span));
        self.bound_operand(binding?, span).map(Some)
    }

    /// Binds the names of the current object's fields.
    pub(super) fn bind_members(&mut self, span: SourceSpan) -> LowerResult {
        let Some(ThisObject { ty, object: Some(object) }) = self.this.clone() else { return Ok(()) };
        for field in self.declared_fields(ty) {
            let binding = match self.member_of(object.clone(), field.name, span)? {
                CudaOperand::Lvalue(lvalue) => Binding::Lvalue(lvalue),
                CudaOperand::RegisterArray(array, _) => Binding::RegisterArray(array),
                _ => continue,
            };
            self.bind(field.name, binding);
        }
        Ok(())
    }

    /// Initializes the members of the object of a constructor.
    pub(super) fn initialize_members(&mut self, function: &'m Function) -> LowerResult {
        let Some(method) = function.method.as_ref().filter(|method| method.kind == MethodKind::Constructor) else {
            return Ok(());
        };
        let Some(ThisObject { ty, object: Some(object) }) = self.this.clone() else { return Ok(()) };
        for (n, field) in self.declared_fields(ty).iter().enumerate() {
            let explicit = method.initializers.iter().find(|(member, ..)| *member == field.name);
            let field_type = self.field_type(ty, n as u32);
            let value = match (explicit, &field.init) {
                (Some((_, span, args)), _) => match &args[..] {
                    [] => self.zero(field_type),
                    [one] => self.direct_initializer(one, field_type)?,
                    all => self.construct_value(all, field_type, *span)?,
                },
                (None, Some(init)) => self.initializer(init, field_type)?,
                (None, None) => match self.default_value(field_type, field.span)? {
                    Some(value) => value,
                    None => continue,
                },
            };
            let value = self.materialize(value);
            let mut part = object.clone();
            part.path.push(super::lvalue::Projection::Field(n as u32));
            let part = Lvalue { ty: field_type, ..part };
            self.write(&part, value, field.span)?;
        }
        if let Some((member, span, _)) = method
            .initializers
            .iter()
            .find(|(member, ..)| self.declared_fields(ty).iter().all(|field| field.name != *member))
        {
            let what = format!("initializer of '{}', which is not a field", self.text(*member));
            return self.unsupported(*span, what, "");
        }
        Ok(())
    }

    /// Calls a constructor, if the type has one.
    pub(super) fn call_constructor(
        &mut self,
        ty: Type,
        operands: Option<Vec<CudaOperand>>,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Option<Tree>> {
        let Some((item, outer)) = self.struct_of(ty).filter(|(item, _)| item.has_constructor) else { return Ok(None) };
        let count = operands.as_ref().map_or(args.len(), Vec::len);
        self.report_unsupported_method(item.name, item.name)?;
        let candidates = self.methods(item.name, item.name, count);
        if candidates.is_empty() {
            let what = format!("'{}' has no '__device__' constructor for these arguments", self.text(item.name));
            return self.fail(span, what, "no such constructor", "");
        }
        let (operands, exprs) = match operands {
            Some(operands) => {
                let count = operands.len();
                (operands, vec![None; count])
            }
            None => (self.call_operands(&candidates, &[], args)?, args.iter().map(Some).collect()),
        };
        let zeros = self.zeros(ty);
        let local = self.new_local("object", ty, &zeros);
        let zero = self.zero(ty);
        self.assign(local, &zero);
        let object = Lvalue { root: LvalueRoot::Local(local, ty), path: vec![], ty, constant: false };
        let this = Some(ThisObject { ty, object: Some(object) });
        let target = CallTarget { candidates, name: item.name, templates: &[], outer, this, is_builtin_too: false };
        self.call_target(target, operands, exprs, span)?;
        Ok(Some(Tree::emitted(self.w.b.read(local), ty)))
    }

    /// Value of a variable that is declared without an initializer, if its type defines one.
    pub(super) fn default_value(&mut self, ty: Type, span: SourceSpan) -> LowerResult<Option<Tree>> {
        if let Some(value) = self.call_constructor(ty, None, &[], span)? {
            return Ok(Some(value));
        }
        let fields = self.declared_fields(ty);
        let mut values: Vec<Tree> = vec![];
        let mut any = false;
        for (n, field) in fields.iter().enumerate() {
            let field_type = self.field_type(ty, n as u32);
            let value = match &field.init {
                Some(init) => Some(self.member_default(ty, init, field_type, &mut values)?),
                None => self.default_value(field_type, span)?,
            };
            any |= value.is_some();
            values.push(value.unwrap_or_else(|| self.zero(field_type)));
        }
        let construct = crate::lower::Node::Algebra(bornite_ir::AlgebraOp::Construct, 0, values);
        Ok(any.then(|| Tree::of(construct, ty)))
    }

    /// Value of a default member initializer, which may use the values of the fields before it.
    pub(super) fn member_default(
        &mut self,
        ty: Type,
        init: &'m Expr,
        field_type: Type,
        before: &mut [Tree],
    ) -> LowerResult<Tree> {
        let Some((item, bound)) = self.struct_of(ty) else { return Err(LowerFailed) };
        let mut object = None;
        if !matches!(init.kind, ExprKind::Number { .. }) {
            for value in before.iter_mut() {
                *value = self.materialize(value.clone());
            }
            let mut values = before.to_vec();
            let count = self.declared_fields(ty).len();
            values.extend((values.len()..count).map(|n| self.zero(self.field_type(ty, n as u32))));
            let construct = crate::lower::Node::Algebra(bornite_ir::AlgebraOp::Construct, 0, values);
            object = Some(Lvalue::of_value(Tree::of(construct, ty)));
        }
        let tree = self.in_class_scope(Some(ty), &item.templates, &bound, |lower| {
            if let Some(this) = &mut lower.this {
                this.object = object;
            }
            lower.bind_members(init.span)?;
            lower.initializer(init, field_type)
        })?;
        Ok(self.materialize(tree))
    }

    /// `this`.
    pub(super) fn this_pointer(&mut self, span: SourceSpan) -> LowerResult<CudaOperand> {
        match self.this.clone() {
            Some(ThisObject { object: Some(object), .. }) => Ok(CudaOperand::Address(object)),
            _ => self.fail(span, "'this' outside a member function", "", ""),
        }
    }

    /// The scalar type that conditions and shifts of a value use; none for structs.
    pub(super) fn is_class(ty: Type) -> bool {
        matches!(ty, Type::Struct(_)) || matches!(ty, Type::Vector(scalar, _) if scalar != Scalar::Bool)
    }
}
