//! Templates: which arguments a function, kernel or struct has, as written, by default, or told by a call.

use bornite_ir::{Scalar, Type, Value};

use super::place::Operand;
use super::{Bound, Done, Lower};
use crate::Span;
use crate::cuda::ast::{Base, Declarator, Expr, Function, TemplateArg, TemplateParam};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;

impl<'m> Lower<'m> {
    /// One argument as it is written.
    fn template_arg(&mut self, param: &TemplateParam, arg: &'m TemplateArg, span: Span) -> Done<Bound> {
        match arg {
            TemplateArg::Type(ty) if param.is_type() => Ok(Bound::Type(self.c_type(ty)?)),
            TemplateArg::Value(value) if !param.is_type() => Ok(Bound::Value(self.template_value(value)?)),
            _ => {
                let what = format!("template parameter '{}' is of another kind", self.text(param.name));
                self.fail(span, what, "a type for a number, or a number for a type", "")
            }
        }
    }

    /// A number as it is written: wide enough for whatever type its parameter has.
    pub(super) fn template_value(&mut self, value: &'m Expr) -> Done<Value> {
        Ok(Value::int(Scalar::I64, self.constant_int(value, "a template argument")?))
    }

    /// An argument as its parameter is declared, which may be by the arguments before it: `template <class T, T N>`.
    fn as_declared(
        &mut self,
        templates: &'m [TemplateParam],
        before: &[Bound],
        param: &'m TemplateParam,
        arg: Bound,
    ) -> Done<Bound> {
        let (Bound::Value(value), Some(ty)) = (arg, &param.integer) else { return Ok(arg) };
        let scalar = match self.in_file(templates, before, |lower| lower.c_type(ty))? {
            CType::Value(ty) => ty.as_scalar().filter(|scalar| !scalar.is_float()),
            _ => None,
        };
        Ok(Bound::Value(match scalar {
            Some(Scalar::Bool) => Value::int(Scalar::Bool, (value.as_i64() != 0) as i64),
            Some(scalar) => Value::int(scalar, value.as_i64()),
            None => return self.refuse(ty.span, "a template parameter that is no type and no integer", ""),
        }))
    }

    /// Arguments as they are written; fewer than there are parameters may be.
    pub(super) fn template_args(
        &mut self,
        templates: &'m [TemplateParam],
        args: &'m [TemplateArg],
        name: Symbol,
        span: Span,
    ) -> Done<Vec<Option<Bound>>> {
        if args.len() > templates.len() {
            let (name, most) = (self.text(name), templates.len());
            let what = format!("'{name}' has {most} template parameters, {} arguments are given", args.len());
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

    /// All arguments: those given, and those by default, which may name the ones before them.
    pub(super) fn with_defaults(
        &mut self,
        templates: &'m [TemplateParam],
        given: &[Option<Bound>],
        span: Span,
    ) -> Done<Vec<Bound>> {
        let mut bound: Vec<Bound> = vec![];
        for (n, param) in templates.iter().enumerate() {
            let found = match (given.get(n).copied().flatten(), &param.default) {
                (Some(given), _) => given,
                (None, Some(default)) => {
                    self.in_file(templates, &bound, |lower| lower.template_arg(param, default, span))?
                }
                (None, None) => {
                    let what = format!("template parameter '{}' is not known", self.text(param.name));
                    return self.fail(span, what, "", "write it: 'name<float>(…)'");
                }
            };
            bound.push(self.as_declared(templates, &bound, param, found)?);
        }
        Ok(bound)
    }

    /// Template arguments of a call: those written, those that the call's arguments tell, those by default.
    pub(super) fn template_bound(
        &mut self,
        function: &'m Function,
        args: &'m [TemplateArg],
        operands: &[Operand],
        span: Span,
    ) -> Done<Vec<Bound>> {
        if function.templates.is_empty() {
            return Ok(vec![]);
        }
        let mut given = self.template_args(&function.templates, args, function.name, span)?;
        for (param, given) in function.templates.iter().zip(&mut given).filter(|(_, given)| given.is_none()) {
            let told = |(p, operand): (&Declarator, &Operand)| self.deduced(param, p, operand);
            *given = function.params.iter().zip(operands).find_map(told);
        }
        self.with_defaults(&function.templates, &given, span)
    }

    /// What an argument tells of a template parameter.
    pub(super) fn deduced(&self, param: &TemplateParam, of: &Declarator, operand: &Operand) -> Option<Bound> {
        let (found, pointers) = match operand {
            Operand::Tree(tree) => (tree.ty, 0),
            Operand::Place(place) => (place.ty, 0),
            Operand::Pointer(pointer) => (pointer.to(), 1),
            Operand::Address(place) => (place.ty, 1),
            Operand::Array(slots, _) => (Type::Scalar(slots.place.ty.element()?), 1),
            Operand::Table(table, _) => (Type::Scalar(table.values.first()?.scalar()), 1),
            _ => return None,
        };
        let wanted = of.ty.pointers + !of.sizes.is_empty() as u8;
        match &of.ty.base {
            Base::Named(name) if *name == param.name && param.is_type() => match (wanted, pointers) {
                (0, 1) => Some(Bound::Type(CType::Pointer(found))),
                _ => (wanted == pointers).then_some(Bound::Type(CType::Value(found))),
            },
            _ if wanted != pointers => None,
            // Pair<T> from Pair<float>.
            Base::Template(name, args) => {
                let (item, bound, _) = self.structs.iter().find(|(_, _, ty)| *ty == found)?;
                if self.m.file.structs[*item].name != *name {
                    return None;
                }
                let names = |arg: &TemplateArg| match arg {
                    TemplateArg::Type(ty) => ty.base == Base::Named(param.name) && ty.pointers == 0,
                    TemplateArg::Value(value) => {
                        matches!(value.kind, crate::cuda::ast::ExprKind::Name(name) if name == param.name)
                    }
                };
                args.iter().zip(bound).find(|(arg, _)| names(arg)).map(|(_, bound)| *bound)
            }
            _ => None,
        }
    }

    /// A struct that is a template, with its arguments.
    pub(super) fn template_type(&mut self, name: Symbol, args: &'m [TemplateArg], span: Span) -> Done<CType> {
        let m = self.m;
        let Some(n) = m.file.structs.iter().position(|found| found.name == name) else {
            self.told(name, span)?;
            let what = format!("'{}' is not a type that is known here", self.text(name));
            return self.fail(span, what, "unknown type", "declare the struct before it is used");
        };
        let templates = &m.file.structs[n].templates;
        let given = self.template_args(templates, args, name, span)?;
        let bound = self.with_defaults(templates, &given, span)?;
        Ok(CType::Value(self.structure(n, &bound)?))
    }

    /// The specialisation of a function for some arguments, if the file has one.
    pub(super) fn specialised(&mut self, primary: &'m Function, bound: &[Bound]) -> Done<Option<usize>> {
        let m = self.m;
        for (n, function) in m.file.functions.iter().enumerate().filter(|(_, f)| f.name == primary.name) {
            let Some(special) = &function.special else { continue };
            let templates = &primary.templates;
            let given =
                self.in_file(&[], &[], |lower| lower.template_args(templates, special, function.name, function.span))?;
            let all: Vec<Option<Bound>> =
                given.iter().zip(bound).map(|(given, bound)| given.or(Some(*bound))).collect();
            if self.with_defaults(templates, &all, function.span)? == bound {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    /// What arguments add to the name of a function or struct.
    pub(super) fn suffix(&self, bound: &[Bound]) -> String {
        let mut text = String::new();
        for bound in bound {
            text += "_";
            text += &match bound {
                Bound::Type(CType::Value(ty)) => ty.name(self.w.b.structs()).to_string(),
                Bound::Type(_) => "pointer".into(),
                Bound::Value(value) => value.as_i64().to_string().replace('-', "minus"),
            };
        }
        text
    }
}
