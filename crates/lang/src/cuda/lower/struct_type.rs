//! Types of the structs of a file, per instance of a template.

use bornite_ir::{MAX_COMPONENTS, Type};

use super::method::ThisObject;
use super::names::{unique_name, unmangled};
use super::{BoundArg, LowerFailed, LowerResult, Lowering, scan};
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Storage, StructItem, TemplateArg};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;

impl<'m> Lowering<'m> {
    /// IR type of a struct of the file.
    pub(super) fn struct_type(&mut self, n: usize, bound: &[BoundArg]) -> LowerResult<Type> {
        if let Some((_, _, ty)) = self.structs.iter().find(|(item, found, _)| *item == n && found == bound) {
            return Ok(*ty);
        }
        let item = &self.module.file.structs[n];
        if let Some(why) = &item.copy_control {
            self.errors.push(why.clone());
            return Err(LowerFailed);
        }
        if self.instantiating_structs.contains(&n) {
            return self.unsupported(item.span, "a struct that contains itself", "");
        }
        self.instantiating_structs.push(n);
        let fields = self.in_file_scope(&item.templates, bound, |lower| {
            let fields = lower.fields(n)?;
            lower.aligned(item, fields)
        });
        self.instantiating_structs.pop();
        let fields = fields?;
        let taken = |name: &str| self.module.file.structs.iter().any(|other| self.text(other.name) == name);
        let name = unmangled(self.text(item.name), self.request.round_trip, taken) + &self.name_suffix(bound);
        // Structs of several namespaces may share a name.
        let is_same =
            |item: usize| item != n && self.module.file.structs[item].name == self.module.file.structs[n].name;
        let same = self.structs.iter().filter(|(item, ..)| is_same(*item)).count();
        let name = if same > 0 { format!("{name}_of{same}") } else { name };
        let name = unique_name(name, |name| self.w.b.structs().iter().any(|other| other.name.as_str() == name));
        let ty = self.w.b.struct_from_fields(name, fields);
        if ty.component_count(self.w.b.structs()) > MAX_COMPONENTS {
            let what = format!("a struct of more than {MAX_COMPONENTS} scalars");
            return self.unsupported(item.span, what, "store it in an array");
        }
        self.structs.push((n, bound.to_vec(), ty));
        let asserted = self.in_file_scope(&item.templates, bound, |lower| {
            let this = lower.this.replace(ThisObject { ty, object: None });
            let result = item.assertions.iter().try_for_each(|assertion| lower.static_assertion(assertion));
            lower.this = this;
            result
        });
        if asserted.is_err() {
            self.structs.retain(|(.., found)| *found != ty);
            return Err(LowerFailed);
        }
        Ok(ty)
    }

    fn fields(&mut self, n: usize) -> LowerResult<Vec<(String, Type)>> {
        let item = &self.module.file.structs[n];
        let mut fields: Vec<(String, Type)> = vec![];
        self.bind_static_bounds(item)?;
        for field in &item.fields {
            if field.ty.reference {
                let what = "a reference as a struct member";
                return self.unsupported(field.span, what, "pass the variable to the functions that use it");
            }
            let mut ty = match self.c_type(&field.ty)? {
                CType::Value(ty) => ty,
                CType::Pointer(to) => self.slot_type(field.span, to, field.ty.constant),
                _ => return self.unsupported(field.span, "a member of this type", "declare it as a variable"),
            };
            if !field.sizes.is_empty() {
                ty = self.field_array(field, ty)?;
            }
            let taken = |name: &str| item.fields.iter().any(|other| self.text(other.name) == name);
            fields.push((unmangled(self.text(field.name), self.request.round_trip, taken), ty));
        }
        // An object of a struct without fields has one byte.
        if fields.is_empty() {
            fields.push(("empty".into(), bornite_ir::Scalar::U8.into()));
        }
        Ok(fields)
    }

    /// Binds the static members that array bounds of fields use.
    fn bind_static_bounds(&mut self, item: &'m StructItem) -> LowerResult {
        let mut used: Vec<&'m Expr> = vec![];
        for field in &item.fields {
            used.extend(field.sizes.iter().flatten());
            if let Base::Template(_, args) = &field.ty.base {
                used.extend(args.iter().filter_map(|arg| match arg {
                    TemplateArg::Value(value) => Some(value),
                    TemplateArg::Type(_) => None,
                }));
            }
        }
        let functions = &self.module.file.functions;
        let is_method = |name: Symbol| {
            functions.iter().any(|f| f.name == name && f.method.as_ref().is_some_and(|method| method.of == item.name))
        };
        for bound in &used {
            let mut calls_method = false;
            scan::walk_expr(bound, &mut |part| {
                calls_method |= matches!(part.kind, ExprKind::Call { callee, .. } if is_method(callee));
            });
            if calls_method {
                return self.unsupported(
                    bound.span,
                    "a member function in an array bound of its struct",
                    "use a constant",
                );
            }
        }
        let mut needed = vec![];
        for declared in item.statics.iter().rev() {
            if used.iter().any(|expr| scan::mentions(expr, declared.name)) {
                used.extend(&declared.init);
                needed.push(declared);
            }
        }
        let storage = Storage { constant: true, ..Storage::default() };
        for declared in needed.into_iter().rev() {
            let binding = self.declare_global(declared, storage, declared.span)?;
            self.bind(declared.name, binding);
        }
        Ok(())
    }

    /// Type of an array in a struct: a vector or matrix, which has the same memory layout.
    fn field_array(&mut self, field: &'m Declarator, ty: Type) -> LowerResult<Type> {
        let sizes = self.sizes(field, MAX_COMPONENTS as u64)?;
        match (ty.as_scalar(), &sizes[..]) {
            (Some(scalar), [n]) => Ok(Type::Vector(scalar, *n as u8)),
            (Some(scalar), [rows, columns]) => Ok(Type::Matrix(scalar, *rows as u8, *columns as u8)),
            _ => self.unsupported(
                field.span,
                "an array of structs, or of more than two dimensions, in a struct",
                "declare its elements as fields",
            ),
        }
    }

    /// Index and type of a field.
    pub(super) fn field(&self, ty: Type, name: Symbol) -> Option<(u32, Type)> {
        let (item, ..) = self.structs.iter().find(|(_, _, found)| *found == ty)?;
        let at = self.module.file.structs[*item].fields.iter().position(|field| field.name == name)?;
        let Type::Struct(id) = ty else { return None };
        Some((at as u32, self.w.b.structs()[id.0 as usize].fields[at].ty))
    }
}
