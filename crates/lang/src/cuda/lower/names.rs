//! Name resolution: variables, global constants and arrays, types, structs, template parameters.

use std::rc::Rc;

use bornite_ir::{Access, Dim, Extent, Type, contiguous};

use super::array_init::MAX_ELEMENTS;
use super::index::UNKNOWN_SIZE;
use super::lvalue::{ConstArray, CudaOperand, Lvalue, Pointer};
use super::method::ThisObject;
use super::scope::TypeDefinition;
use super::{Binding, BoundArg, LowerFailed, LowerResult, Lowering};
use crate::cuda::CudaModule;
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Function, Storage, TemplateParam, TypeName};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, Group, builtin_type};
use crate::{ParamRef, SourceSpan};

/// Undoes the CUDA printer's renaming (a trailing `_`) if `round_trip`.
pub fn unmangled(name: &str, round_trip: bool, taken: impl Fn(&str) -> bool) -> String {
    match name.strip_suffix('_') {
        Some(short) if round_trip && !short.is_empty() && !taken(short) => short.into(),
        _ => name.into(),
    }
}

/// Appends a number to a name until it is not taken.
pub fn unique_name(name: String, taken: impl Fn(&str) -> bool) -> String {
    let mut unique = name.clone();
    for n in 1.. {
        if !taken(&unique) {
            break;
        }
        unique = format!("{name}_of{n}");
    }
    unique
}

impl<'m> Lowering<'m> {
    pub(super) fn lookup(&self, name: Symbol) -> Option<Binding> {
        self.scope[self.base..].iter().rev().find(|(found, _)| *found == name).map(|(_, binding)| binding.clone())
    }

    /// Resolves a global name.
    pub(super) fn global(&mut self, name: Symbol, span: SourceSpan) -> LowerResult<Option<Binding>> {
        let module = self.module;
        let Some(n) = self.select_global(name, span)? else { return Ok(None) };
        if let Some((_, binding)) = self.globals.iter().find(|(found, _)| *found == n) {
            return Ok(Some(binding.clone()));
        }
        let (storage, declared) = &module.file.globals[n];
        if self.evaluating.contains(&n) {
            let what = format!("the value of '{}' depends on itself", self.text(name));
            return self.fail(declared.span, what, "defined by itself", "");
        }
        self.evaluating.push(n);
        let order = std::mem::replace(&mut self.order, module.file.global_orders[n]);
        let binding = self.in_class_scope(None, &[], &[], |lower| lower.declare_global(declared, *storage, span));
        self.order = order;
        self.evaluating.pop();
        self.globals.push((n, binding.as_ref().map_or(Binding::Poison, Binding::clone)));
        binding.map(Some)
    }

    pub(super) fn declare_global(
        &mut self,
        d: &'m Declarator,
        storage: Storage,
        span: SourceSpan,
    ) -> LowerResult<Binding> {
        if storage.shared {
            return self.declare_shared(storage, d);
        }
        let ty = match (&d.ty.base, &d.init) {
            (Base::Auto, Some(init)) if d.ty.pointers == 0 => CType::Value(self.rvalue(init)?.ty),
            _ => self.c_type(&d.ty)?,
        };
        let CType::Value(ty) = ty else {
            return self.unsupported(d.span, "a global pointer", "pass it to the kernel");
        };
        let memory = storage.device && !(storage.constant && d.init.is_some());
        let Some(init) = d.init.as_ref().filter(|_| !memory) else {
            if !memory && !storage.constant_memory {
                let what = format!("'{}' is a host variable and has no value in a kernel", self.text(d.name));
                return self.fail(span, what, "a host variable", "declare it as a constant, or pass it to the kernel");
            }
            return self.device_memory(d, ty, storage.constant_memory);
        };
        let Some(scalar) = ty.as_scalar() else {
            return self.unsupported(
                d.span,
                "a global constant of struct or vector type",
                "declare one constant per component",
            );
        };
        if d.sizes.is_empty() {
            let tree = self.initializer(init, ty)?;
            self.check_enumerator(d, init, scalar)?;
            return match self.w.fold(&tree) {
                Some(value) => Ok(Binding::Value(crate::lower::Tree::constant(value))),
                None => self.fail(init.span, "this expression is not constant", "not known at compile time", ""),
            };
        }
        let sizes = self.sizes(d, MAX_ELEMENTS)?;
        let values = self.constant_array_values(init, scalar, &sizes)?;
        Ok(Binding::ConstArray(Rc::new(ConstArray { name: d.name, values, sizes })))
    }

    /// Declares `__device__` or `__constant__` memory as a parameter that the caller fills.
    fn device_memory(&mut self, d: &'m Declarator, ty: Type, constant: bool) -> LowerResult<Binding> {
        let sizes = self.sizes(d, i64::MAX as u64)?;
        if let Some(init) = &d.init {
            let mut zero = true;
            super::scan::walk_expr(init, &mut |expr| {
                zero &= match expr.kind {
                    ExprKind::Number { value, .. } => value.bits() == 0,
                    ExprKind::Braces(_) => true,
                    _ => false,
                };
            });
            if !zero {
                let hint = "fill it from the host, or declare it 'const' if it never changes";
                return self.unsupported(init.span, "an initializer of '__device__' memory", hint);
            }
        }
        let elements: u64 = sizes.iter().product();
        let access = if constant { Access::Read } else { Access::ReadWrite };
        let name = self.text(d.name).to_owned();
        self.check_view_type(ty, d.span)?;
        if self.holds_pointers(ty) {
            self.pointers_in_memory(ty, &name, d.span)?;
        }
        let memory = self.memory_scalar(d.span).and_then(|scalar| Some((scalar, self.grouping(scalar, ty)?)));
        let width = memory.map_or(1, |(_, grouping)| u64::from(grouping.width));
        let memory_type = memory.map_or(ty, |(scalar, _)| scalar.into());
        let view = self.w.b.view(&name, memory_type, &contiguous(&[elements.saturating_mul(width).into()]), access);
        self.declared_views.push((view.into(), d.span));
        if constant {
            self.read_only.push((view.into(), name.clone()));
        }
        self.params.push((name, ParamRef::View(self.views)));
        self.views += 1;
        let pointer = Pointer::to_view(view.into(), ty, sizes.len().max(1), sizes.is_empty(), &sizes);
        let pointer = memory.map_or(pointer.clone(), |(_, grouping)| grouping.apply(pointer));
        Ok(Binding::Pointer(Pointer { constant, ..pointer }))
    }

    /// Evaluates a constant integer expression; `what` names it in the error.
    pub(super) fn constant_int(&mut self, expr: &'m Expr, what: &str) -> LowerResult<i64> {
        let tree = self.rvalue(expr)?;
        match self.w.fold(&tree) {
            Some(value) if !value.scalar().is_float() => Ok(value.as_i64()),
            _ => self.fail(
                expr.span,
                format!("{what} must be a constant integer"),
                "not known at compile time",
                "use a literal, a '#define', a 'constexpr' or a template parameter",
            ),
        }
    }

    pub(super) fn c_type(&mut self, name: &'m TypeName) -> LowerResult<CType> {
        let plain = match &name.base {
            Base::Void if name.pointers == 0 => return Ok(CType::Void),
            Base::Void => return self.unsupported(name.span, "a pointer to 'void'", "use the element type"),
            Base::Auto => return self.unsupported(name.span, "'auto' here", "name the type"),
            Base::Scalar(scalar) => CType::Value((*scalar).into()),
            Base::Named(symbol) => self.named_type(*symbol, name.span)?,
            Base::Template(symbol, args) => self.template_type(*symbol, args, name.span)?,
            Base::TempStorage(of) => {
                let of = match &**of {
                    Base::Named(symbol) => self.named_type(*symbol, name.span)?,
                    Base::Template(symbol, args) => self.template_type(*symbol, args, name.span)?,
                    _ => CType::Void,
                };
                match of {
                    CType::Collective(collective) => CType::TempStorage(collective),
                    _ => return self.unsupported(name.span, "'TempStorage' of this type", ""),
                }
            }
        };
        match (plain, name.pointers) {
            (plain, 0) => Ok(plain),
            (CType::Value(ty), 1) => Ok(CType::Pointer(ty)),
            (CType::Value(ty), 2) => Ok(CType::Pointer(self.slot_type(name.span, ty, name.constant))),
            _ => self.unsupported(name.span, "a pointer to a pointer", "pass one array and offsets into it"),
        }
    }

    /// Returns true if a non-pointer type is const, directly or through an alias.
    pub(super) fn is_const(&self, ty: &TypeName) -> bool {
        let alias = |symbol: Symbol| self.module.file.aliases.iter().find(|(found, _)| *found == symbol);
        let mut base = ty;
        for _ in 0..16 {
            match base.base {
                Base::Named(symbol) if !base.constant => match alias(symbol) {
                    Some((_, of)) => base = of,
                    None => break,
                },
                _ => break,
            }
        }
        ty.pointers == 0 && base.pointers == 0 && base.constant
    }

    /// Reports a use of an item that is not supported.
    pub(super) fn check_supported(&mut self, name: Symbol, span: SourceSpan) -> LowerResult {
        let CudaModule { file, names, source, .. } = self.module;
        let Some(why) = file.unsupported_item(name, names, source, span) else { return Ok(()) };
        if self.errors.len() < super::MAX_ERRORS {
            self.errors.push(why);
        }
        Err(LowerFailed)
    }

    fn named_type(&mut self, symbol: Symbol, span: SourceSpan) -> LowerResult<CType> {
        let bound = self.scope[self.base..].iter().rev().find_map(|(found, binding)| match binding {
            Binding::Type(ty) if *found == symbol => Some(*ty),
            _ => None,
        });
        if let Some(ty) = bound.filter(|_| !self.is_qualified(symbol, span)) {
            return Ok(ty);
        }
        let module = self.module;
        let definition = self.select_type(symbol, span)?;
        if let Some(TypeDefinition::Alias(n)) = definition {
            let alias = &module.file.aliases[n].1;
            if self.alias_depth > 16 {
                return self.unsupported(span, "a type alias that refers to itself", "");
            }
            self.alias_depth += 1;
            let ty = self.in_file_scope(&[], &[], |lower| lower.c_type(alias));
            self.alias_depth -= 1;
            return ty;
        }
        if let Some(TypeDefinition::Struct(n)) = definition {
            return Ok(CType::Value(self.struct_type(n, &[])?));
        }
        match (builtin_type(self.text(symbol)), self.text(symbol)) {
            (Some(ty), _) => Ok(CType::Value(ty)),
            (None, "thread_block") => Ok(CType::Group(Group::Block)),
            (None, "grid_group") => Ok(CType::Group(Group::Grid)),
            (None, text @ ("coalesced_group" | "thread_group" | "thread_block_tile")) => {
                let hint = "use 'thread_block' or 'thread_block_tile<32>'";
                self.unsupported(span, format!("'{text}'"), hint)
            }
            (None, _) => {
                self.check_supported(symbol, span)?;
                let what = format!("unknown type '{}'", self.text(symbol));
                self.undeclared(span, what, "declare the struct or alias before it is used")
            }
        }
    }

    /// Runs `make` in file scope plus template parameters, where the caller's names are not
    /// visible.
    pub(super) fn in_file_scope<T>(
        &mut self,
        templates: &'m [TemplateParam],
        bound: &[BoundArg],
        make: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let (mark, base) = (self.scope.len(), self.base);
        self.base = mark;
        // Measured: these frames use as much stack as 5 expressions.
        self.depth += 5;
        self.bind_templates(templates, bound);
        let result = make(self);
        self.depth -= 5;
        self.scope.truncate(mark);
        self.base = base;
        result
    }

    /// Runs `make` in the scope of a struct, whose static members are visible, or in file scope
    /// outside of any struct.
    pub(super) fn in_class_scope<T>(
        &mut self,
        of: Option<Type>,
        templates: &'m [TemplateParam],
        bound: &[BoundArg],
        make: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let outer = std::mem::replace(&mut self.this, of.map(|ty| ThisObject { ty, object: None }));
        let result = self.in_file_scope(templates, bound, make);
        self.this = outer;
        result
    }

    pub(super) fn bind_templates(&mut self, templates: &'m [TemplateParam], bound: &[BoundArg]) {
        for (param, bound) in templates.iter().zip(bound) {
            let binding = match bound {
                BoundArg::Type(ty) => Binding::Type(*ty),
                BoundArg::Value(value) => Binding::Value(crate::lower::Tree::constant(*value)),
            };
            self.bind(param.name, binding);
        }
    }

    pub(super) fn check_view_type(&mut self, ty: Type, span: SourceSpan) -> LowerResult {
        if ty.component_count(self.w.b.structs()) == 0 {
            return self.unsupported(span, "an array of empty elements", "");
        }
        Ok(())
    }

    pub(super) fn kernel_params(&mut self, function: &'m Function) -> LowerResult {
        let mut failed = false;
        let assigned = super::scan::assigned(self.module, function);
        let taken = |name: &str| function.params.iter().any(|other| self.module.names.text(other.name) == name);
        for param in &function.params {
            // An unnamed parameter is named by its position.
            let unnamed = format!("parameter{}", self.params.len() + 1);
            let source = Some(self.text(param.name)).filter(|text| !text.is_empty()).unwrap_or(&unnamed);
            let name = unmangled(source, self.request.round_trip, taken);
            if self.shared_names.contains(&name) {
                failed = true;
                let _: LowerResult = self.fail(param.span, format!("duplicate parameter '{name}'"), "the second", "");
                continue;
            }
            self.shared_names.push(name.clone());
            let ty = match self.c_type(&param.ty) {
                Ok(CType::Value(ty)) if !param.sizes.is_empty() => CType::Pointer(ty),
                Ok(CType::Pointer(_)) if !param.sizes.is_empty() => {
                    failed = true;
                    let what = "a pointer to a pointer";
                    let _: LowerResult = self.unsupported(param.span, what, "pass one array and offsets into it");
                    self.bind(param.name, Binding::Poison);
                    continue;
                }
                Ok(ty) => ty,
                Err(_) => {
                    failed = true;
                    self.bind(param.name, Binding::Poison);
                    continue;
                }
            };
            if param.ty.reference {
                failed = true;
                let _: LowerResult =
                    self.unsupported(param.span, "a reference parameter of a kernel", "pass a pointer");
                continue;
            }
            let binding = match ty {
                CType::Pointer(ty) => {
                    let Some(dims) = self.view_dims(&name, source) else {
                        let what = format!("the length of '{source}' is not known");
                        failed = true;
                        let hint = "specify the number of elements of each array";
                        let _: LowerResult = self.fail(param.span, what, "no length specified for this launch", hint);
                        continue;
                    };
                    let access = if param.ty.constant { Access::Read } else { Access::ReadWrite };
                    let memory = self.memory_scalar(param.span);
                    let memory = memory.and_then(|scalar| Some((scalar, self.grouping(scalar, ty)?)));
                    let view = self.w.b.view(&name, memory.map_or(ty, |(scalar, _)| scalar.into()), &dims, access);
                    self.declared_views.push((view.into(), param.span));
                    if access == Access::Read {
                        self.read_only.push((view.into(), source.to_owned()));
                    }
                    self.params.push((source.to_owned(), ParamRef::View(self.views)));
                    self.views += 1;
                    if self.holds_pointers(ty) && self.pointers_in_memory(ty, source, param.span).is_err() {
                        failed = true;
                        continue;
                    }
                    let plain = dims.len() == 1 && dims[0].stride == Extent::Const(1);
                    let Ok(rows) = self.param_rows(param) else {
                        failed = true;
                        continue;
                    };
                    if rows.len() > 1 {
                        self.flat_arrays.push((name.clone(), rows.clone()));
                    }
                    let pointer = Pointer::to_view(view.into(), ty, 1, false, &rows);
                    let pointer = memory.map_or(pointer.clone(), |(_, grouping)| grouping.apply(pointer));
                    let pointer = Pointer { constant: param.ty.constant, ..pointer };
                    Binding::Pointer(if plain { pointer } else { Pointer { dims: Some(dims.into()), ..pointer } })
                }
                CType::Value(ty) => {
                    let n = self.params.iter().filter(|(_, param)| matches!(param, ParamRef::Value(_))).count();
                    let value = self.w.b.value(&name, ty);
                    self.params.push((source.to_owned(), ParamRef::Value(n as u32)));
                    let value = crate::lower::Tree::emitted(value, ty);
                    match self.with_pointer_params(value, source, self.declared_fields(ty), param.span) {
                        Ok(value) => Binding::Value(value),
                        Err(LowerFailed) => {
                            failed = true;
                            continue;
                        }
                    }
                }
                CType::Group(_) | CType::Collective(_) | CType::TempStorage(_) => {
                    failed = true;
                    let _: LowerResult = self.unsupported(param.span, "this type of a kernel parameter", "");
                    continue;
                }
                CType::Void => {
                    failed = true;
                    let _: LowerResult = self.fail(param.span, "a parameter cannot have type 'void'", "", "");
                    continue;
                }
            };
            let binding = if assigned.contains(&param.name) {
                match (binding, ty) {
                    (Binding::Pointer(pointer), CType::Pointer(to))
                        if pointer.dims.is_none() && !param.ty.is_const_pointer =>
                    {
                        let constant = pointer.constant;
                        self.bind_assigned_pointer(param, to, CudaOperand::Pointer(pointer), constant)?
                    }
                    (binding, _) => self.bind_mutable_param(source, &param.ty, binding),
                }
            } else {
                binding
            };
            self.bind(param.name, binding);
        }
        if failed { Err(super::LowerFailed) } else { Ok(()) }
    }

    /// Sizes of a multidimensional array parameter: `float a[][4]`, `float (*a)[4]`. The first is
    /// not known.
    pub(super) fn param_rows(&mut self, param: &'m Declarator) -> LowerResult<Vec<u64>> {
        if param.sizes.len() < 2 {
            return Ok(vec![]);
        }
        let mut rows = vec![UNKNOWN_SIZE];
        for size in &param.sizes[1..] {
            let Some(size) = size else {
                return self.fail(param.span, "the size of this array is missing", "expected '[n]'", "write its size");
            };
            match self.constant_int(size, "the size of an array")? {
                n @ 1.. => rows.push(n as u64),
                n => {
                    return self.fail(
                        param.span,
                        format!("an array cannot have {n} elements"),
                        "expected 1 or more",
                        "",
                    );
                }
            }
        }
        Ok(rows)
    }

    /// Binds a parameter that the function assigns or takes the address of to a local.
    pub(super) fn bind_mutable_param(&mut self, name: &str, ty: &TypeName, binding: Binding) -> Binding {
        match binding {
            Binding::Value(tree) if self.is_const(ty) => Binding::Lvalue(Lvalue::of_value(tree)),
            Binding::Value(tree) => {
                let zeros = self.zeros(tree.ty);
                let local = self.new_local(name, tree.ty, &zeros);
                self.assign(local, &tree);
                Binding::Local(local, tree.ty)
            }
            Binding::Pointer(pointer) if pointer.dims.is_none() && !ty.is_const_pointer => {
                self.bind_moving_pointer(name, pointer)
            }
            other => other,
        }
    }

    pub(super) fn view_dims(&self, name: &str, source: &str) -> Option<Vec<Dim>> {
        let found = self.request.views.iter().find(|(param, _)| param == source || param == name);
        match found {
            Some((_, dims)) => Some(dims.clone()),
            None => self.request.default_length.map(|length| contiguous(&[length.into()])),
        }
    }
}
