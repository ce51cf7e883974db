//! Template arguments of functions, kernels and structs: explicit, deduced or default.

use bornite_ir::{IntRange, Scalar, Type, Value};

use super::lvalue::CudaOperand;
use super::{BoundArg, LowerResult, Lowering, scan};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Function, TemplateArg, TemplateParam};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, Group};
use crate::diagnostic::counted;

impl<'m> Lowering<'m> {
    /// Evaluates an explicit argument.
    fn template_arg(&mut self, param: &TemplateParam, arg: &'m TemplateArg, span: SourceSpan) -> LowerResult<BoundArg> {
        match arg {
            TemplateArg::Type(ty) if param.is_type() => {
                self.check_not_enum(ty)?;
                Ok(BoundArg::Type(self.c_type(ty)?))
            }
            TemplateArg::Value(value) if !param.is_type() => Ok(BoundArg::Value(self.template_value(value)?)),
            _ => {
                let what = format!("wrong kind of argument for template parameter '{}'", self.text(param.name));
                self.fail(span, what, "a type where a value is expected, or a value where a type is expected", "")
            }
        }
    }

    /// Evaluates an integer argument, in 64 bits whatever the parameter's type.
    pub(super) fn template_value(&mut self, value: &'m Expr) -> LowerResult<Value> {
        Ok(Value::int(Scalar::I64, self.constant_int(value, "a template argument")?))
    }

    /// Converts an argument to its parameter's type, which may depend on earlier arguments:
    /// `template <class T, T N>`.
    fn convert_to_param_type(
        &mut self,
        templates: &'m [TemplateParam],
        before: &[BoundArg],
        param: &'m TemplateParam,
        arg: BoundArg,
    ) -> LowerResult<BoundArg> {
        let (BoundArg::Value(value), Some(ty)) = (arg, &param.integer) else { return Ok(arg) };
        let scalar = match self.in_file_scope(templates, before, |lower| lower.c_type(ty))? {
            CType::Value(ty) => ty.as_scalar().filter(|scalar| !scalar.is_float()),
            _ => None,
        };
        // 64-bit values have lost their sign.
        let range = match scalar {
            Some(Scalar::Bool) => IntRange::up_to(1),
            Some(scalar) if scalar.bytes() < 8 => IntRange::of_type(scalar),
            _ => IntRange::of_type(Scalar::I64),
        };
        let exact = value.as_i64() as i128;
        if exact < range.low || exact > range.high {
            let name = self.text(param.name);
            let what = format!("template argument {exact} is out of the range of parameter '{name}'");
            return self.fail(ty.span, what, format!("holds {} to {}", range.low, range.high), "");
        }
        Ok(BoundArg::Value(match scalar {
            Some(Scalar::Bool) => Value::int(Scalar::Bool, (value.as_i64() != 0) as i64),
            Some(scalar) => Value::int(scalar, value.as_i64()),
            None => return self.unsupported(ty.span, "a template parameter that is neither a type nor an integer", ""),
        }))
    }

    /// Evaluates explicit arguments; there may be fewer than parameters.
    pub(super) fn template_args(
        &mut self,
        templates: &'m [TemplateParam],
        args: &'m [TemplateArg],
        name: Symbol,
        span: SourceSpan,
    ) -> LowerResult<Vec<Option<BoundArg>>> {
        if args.len() > templates.len() {
            let (params, explicit) =
                (counted(templates.len(), "template parameter"), counted(args.len(), "template argument"));
            let what = format!("'{}' takes {params}, found {explicit}", self.text(name));
            return self.fail(span, what, "", "");
        }
        let mut all = vec![];
        for (n, param) in templates.iter().enumerate() {
            all.push(match args.get(n) {
                Some(arg) => Some(self.template_arg(param, arg, span)?),
                None => None,
            });
        }
        Ok(all)
    }

    /// Completes arguments with defaults, which may refer to earlier parameters.
    pub(super) fn with_defaults(
        &mut self,
        templates: &'m [TemplateParam],
        explicit: &[Option<BoundArg>],
        span: SourceSpan,
    ) -> LowerResult<Vec<BoundArg>> {
        let mut bound: Vec<BoundArg> = vec![];
        for (n, param) in templates.iter().enumerate() {
            let found = match (explicit.get(n).copied().flatten(), &param.default) {
                (Some(explicit), _) => explicit,
                (None, Some(default)) => {
                    self.in_file_scope(templates, &bound, |lower| lower.template_arg(param, default, span))?
                }
                (None, None) => {
                    let what = format!("cannot deduce template parameter '{}'", self.text(param.name));
                    return self.fail(span, what, "", "write it explicitly: 'name<float>(…)'");
                }
            };
            bound.push(self.convert_to_param_type(templates, &bound, param, found)?);
        }
        Ok(bound)
    }

    /// Template arguments of a call: those of the struct of a member function (`outer`), explicit
    /// ones, deduced ones, defaults.
    pub(super) fn template_arguments(
        &mut self,
        function: &'m Function,
        outer: &[BoundArg],
        args: &'m [TemplateArg],
        operands: &[CudaOperand],
        span: SourceSpan,
    ) -> LowerResult<Vec<BoundArg>> {
        if function.templates.is_empty() {
            return Ok(vec![]);
        }
        let (_, own) = function.templates.split_at(outer.len().min(function.templates.len()));
        let mut explicit: Vec<Option<BoundArg>> = outer.iter().copied().map(Some).collect();
        explicit.extend(self.template_args(own, args, function.name, span)?);
        for (param, explicit) in function.templates.iter().zip(&mut explicit).filter(|(_, explicit)| explicit.is_none())
        {
            let mut deduced = (function.params.iter().zip(operands)).filter_map(|(p, of)| self.deduce(param, p, of));
            *explicit = deduced.next();
            let is_same = |a: &BoundArg, b: &BoundArg| match (a, b) {
                (BoundArg::Type(CType::Group(a)), BoundArg::Type(CType::Group(b))) => a.is_same_type(*b),
                // Integer arguments are compared after their conversion to the parameter's type.
                (BoundArg::Value(a), BoundArg::Value(b)) => a.as_i64() == b.as_i64(),
                _ => a == b,
            };
            let other =
                explicit.and_then(|first| deduced.find(|other| !is_same(&first, other)).map(|other| (first, other)));
            if let Some((first, other)) = other {
                let name = self.text(param.name);
                let [first, other] = [first, other].map(|bound| self.bound_name(&bound));
                let what = format!("conflicting types '{first}' and '{other}' for template parameter '{name}'");
                return self.fail(
                    span,
                    what,
                    "no matching function",
                    "cast an argument, or write the template argument",
                );
            }
        }
        self.with_defaults(&function.templates, &explicit, span)
    }

    /// Deduces a template parameter from a function argument.
    pub(super) fn deduce(&self, param: &TemplateParam, of: &Declarator, operand: &CudaOperand) -> Option<BoundArg> {
        let (found, pointers) = match operand {
            // thread_block_tile<N> from thread_block_tile<32>.
            CudaOperand::Group(Group::Tile(size, _)) if let Base::Template(name, args) = &of.ty.base => {
                let [TemplateArg::Value(value), ..] = &args[..] else { return None };
                let is_param = matches!(value.kind, ExprKind::Name(name) if name == param.name);
                let is_tile = self.text(*name) == "thread_block_tile";
                return (is_param && is_tile).then(|| BoundArg::Value(Value::int(Scalar::I64, (*size).into())));
            }
            CudaOperand::Group(group) => {
                let is_param = of.ty.base == Base::Named(param.name) && param.is_type() && of.ty.pointers == 0;
                return is_param.then_some(BoundArg::Type(CType::Group(*group)));
            }
            CudaOperand::Tree(tree) => (tree.ty, 0),
            CudaOperand::Lvalue(lvalue) => (lvalue.ty, 0),
            CudaOperand::Pointer(pointer) => (pointer.pointee_type(), 1),
            CudaOperand::Address(lvalue) => (lvalue.ty, 1),
            CudaOperand::RegisterArray(array, _) => (Type::Scalar(array.lvalue.ty.element()?), 1),
            CudaOperand::ConstArray(table, _) => (Type::Scalar(table.values.first()?.scalar()), 1),
            _ => return None,
        };
        let param_pointers = of.ty.pointers + !of.sizes.is_empty() as u8;
        match &of.ty.base {
            Base::Named(name) if *name == param.name && param.is_type() => match (param_pointers, pointers) {
                (0, 1) => Some(BoundArg::Type(CType::Pointer(found))),
                _ => (param_pointers == pointers).then_some(BoundArg::Type(CType::Value(found))),
            },
            _ if param_pointers != pointers => None,
            // Pair<T> from Pair<float>.
            Base::Template(name, args) => {
                let (item, bound, _) = self.structs.iter().find(|(_, _, ty)| *ty == found)?;
                if self.module.file.structs[*item].name != *name {
                    return None;
                }
                let names = |arg: &TemplateArg| match arg {
                    TemplateArg::Type(ty) => ty.base == Base::Named(param.name) && ty.pointers == 0,
                    TemplateArg::Value(value) => {
                        matches!(value.kind, ExprKind::Name(name) if name == param.name)
                    }
                };
                args.iter().zip(bound).find(|(arg, _)| names(arg)).map(|(_, bound)| *bound)
            }
            _ => None,
        }
    }

    /// Rejects a template argument that C++ deduces as const, `T*` from `const int*`, where the
    /// function compares it with other types.
    pub(super) fn check_deduced_const(
        &mut self,
        function: &'m Function,
        operands: &[CudaOperand],
        span: SourceSpan,
    ) -> LowerResult {
        let drops = |(param, operand): (&Declarator, &CudaOperand)| {
            let is_generic = function.templates.iter().any(|template| param.ty.base == Base::Named(template.name));
            let is_const = match operand {
                CudaOperand::Pointer(pointer) => pointer.constant && param.ty.pointers > 0,
                CudaOperand::Address(lvalue) => lvalue.constant && param.ty.pointers > 0,
                CudaOperand::Lvalue(lvalue) => lvalue.constant && param.ty.reference,
                _ => false,
            };
            is_generic && is_const && !param.ty.constant
        };
        if function.templates.is_empty() || !function.params.iter().zip(operands).any(drops) {
            return Ok(());
        }
        let mut compares = false;
        scan::for_each_expr(&function.body, &mut |expr| {
            compares |=
                matches!(&expr.kind, ExprKind::Call { callee, .. } if self.text(*callee).starts_with("is_same"));
        });
        if compares {
            let what = "'is_same' in a function whose template argument is deduced as const";
            return self.unsupported(span, what, "declare the parameter as a pointer to const");
        }
        Ok(())
    }

    /// Type of a struct template with arguments.
    pub(super) fn template_type(
        &mut self,
        name: Symbol,
        args: &'m [TemplateArg],
        span: SourceSpan,
    ) -> LowerResult<CType> {
        let module = self.module;
        // Also a struct template with a specialization that is not supported.
        self.check_supported(name, span)?;
        let Some(n) = self.select_struct(name, span)? else {
            if let ("thread_block_tile", [TemplateArg::Value(size), ..]) = (self.text(name), args) {
                let size = self.constant_int(size, "the size of a tile")?;
                return Ok(CType::Group(self.tile_of(size, span)?));
            }
            if let Some(collective) = self.collective_type(self.text(name), args, span)? {
                return Ok(collective);
            }
            let what = format!("unknown type '{}'", self.text(name));
            return self.undeclared(span, what, "declare the struct before it is used");
        };
        let templates = &module.file.structs[n].templates;
        let explicit = self.template_args(templates, args, name, span)?;
        let bound = self.with_defaults(templates, &explicit, span)?;
        Ok(CType::Value(self.struct_type(n, &bound)?))
    }

    /// Returns the specialization of a function for some arguments, if the file has one.
    pub(super) fn find_specialization(
        &mut self,
        primary: &'m Function,
        bound: &[BoundArg],
    ) -> LowerResult<Option<usize>> {
        let module = self.module;
        let namespaces = &module.file.namespaces;
        let namespace = namespaces.path_at(primary.span.start);
        let is_alike = |function: &Function| {
            function.name == primary.name
                && function.params.len() == primary.params.len()
                && namespaces.path_at(function.span.start) == namespace
        };
        for (n, function) in module.file.functions.iter().enumerate().filter(|(_, f)| is_alike(f)) {
            let Some(specialization) = &function.specialization else { continue };
            let templates = &primary.templates;
            if specialization.len() > templates.len() {
                continue;
            }
            let shape = |param: &Declarator| (param.ty.reference, param.sizes.len());
            let shapes = |function: &Function| function.params.iter().map(shape).collect::<Vec<_>>();
            let general = self.in_file_scope(templates, bound, |lower| lower.declared_types(primary))?;
            let special = self.in_file_scope(&[], &[], |lower| lower.declared_types(function))?;
            if general.0 != special.0 || shapes(primary) != shapes(function) {
                continue;
            }
            let explicit = self.in_file_scope(&[], &[], |lower| {
                lower.template_args(templates, specialization, function.name, function.span)
            })?;
            let all: Vec<Option<BoundArg>> =
                explicit.iter().zip(bound).map(|(explicit, bound)| explicit.or(Some(*bound))).collect();
            if self.with_defaults(templates, &all, function.span)? == bound {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    /// A template argument as shown in a message.
    fn bound_name(&self, bound: &BoundArg) -> String {
        match bound {
            BoundArg::Type(CType::Value(ty)) => self.type_name(*ty),
            BoundArg::Type(CType::Pointer(ty)) => format!("{}*", self.type_name(*ty)),
            BoundArg::Type(_) => "group".into(),
            BoundArg::Value(value) => value.as_i64().to_string(),
        }
    }

    /// Suffix that template arguments add to the name of a function or struct.
    pub(super) fn name_suffix(&self, bound: &[BoundArg]) -> String {
        let mut text = String::new();
        for bound in bound {
            text += "_";
            text += &match bound {
                BoundArg::Type(CType::Value(ty)) => ty.name(self.w.b.structs()).to_string(),
                BoundArg::Type(CType::Group(_)) => "group".into(),
                BoundArg::Type(_) => "pointer".into(),
                BoundArg::Value(value) => value.as_i64().to_string().replace('-', "minus"),
            };
        }
        text
    }
}
