//! Alignment of struct fields, as in CUDA C++: builtin vectors of 2 and 4 are aligned to their
//! size, and `alignas` raises an alignment. `#pragma pack`, which lowers it, is not supported where
//! it makes a difference.

use bornite_ir::{Field, MAX_ALIGN, Type};

use super::{LowerResult, Lowering};
use crate::cuda::ast::{Expr, StructItem};

impl<'m> Lowering<'m> {
    /// Returns the fields of a struct with their C++ alignment. The alignment of the struct is put
    /// on its first field, where it starts.
    pub(super) fn aligned(&mut self, item: &'m StructItem, fields: Vec<(String, Type)>) -> LowerResult<Vec<Field>> {
        let mut aligned: Vec<Field> = vec![];
        let mut struct_align = 1;
        for (n, (name, ty)) in fields.into_iter().enumerate() {
            let is_array = item.fields.get(n).is_some_and(|field| !field.sizes.is_empty());
            let own = if is_array { 1 } else { self.vector_align(ty) };
            let natural = own.max(ty.layout(self.w.b.structs()).align as u32);
            let mut align = own;
            for (_, expr) in item.field_aligns.iter().filter(|(at, _)| *at == n) {
                align = align.max(self.specified(expr, natural)?);
            }
            struct_align = struct_align.max(align).max(natural);
            aligned.push(Field { name, ty, align });
        }
        if let (Some(expr), Some(first)) = (&item.align, aligned.first_mut()) {
            let align = self.specified(expr, struct_align)?;
            first.align = first.align.max(align);
            struct_align = struct_align.max(align);
        }
        if let Some(pack) = item.pack.filter(|pack| *pack < struct_align as u64) {
            let what = format!("struct '{}' under '#pragma pack({pack})'", self.text(item.name));
            return self.unsupported(item.span, what, "order its fields by size and remove the pragma");
        }
        Ok(aligned)
    }

    /// Alignment that CUDA gives a vector type beyond that of its elements; 1 if none.
    pub(super) fn vector_align(&self, ty: Type) -> u32 {
        match ty {
            Type::Vector(scalar, n @ (2 | 4)) if !self.module.file.unaligned_vectors.contains(&ty) => {
                (scalar.bytes() as u32 * u32::from(n)).min(16)
            }
            _ => 1,
        }
    }

    /// Evaluates an alignment specified in the source; `natural` is the alignment without it.
    fn specified(&mut self, align: &'m Expr, natural: u32) -> LowerResult<u32> {
        let bytes = self.constant_int(align, "an alignment")?;
        match u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()) {
            Some(bytes) if bytes > MAX_ALIGN => {
                self.unsupported(align.span, format!("an alignment of {bytes}"), &format!("write {MAX_ALIGN} or less"))
            }
            Some(bytes) if bytes >= natural => Ok(bytes),
            Some(bytes) => {
                let what = format!("alignment {bytes} is below the type's own alignment of {natural}");
                self.fail(align.span, what, "too small", format!("write {natural} or more"))
            }
            None => {
                self.fail(align.span, format!("alignment {bytes} is not a power of 2"), "expected a power of 2", "")
            }
        }
    }
}
