//! How structs lie in memory: as C++ lays them out, or refused. The IR aligns each field to its numbers alone, so a struct that
//! asks for more, or by `#pragma pack` for less, is one only if that makes no difference.

use bornite_ir::Type;

use super::{Done, Lower};
use crate::Span;
use crate::cuda::ast::{Expr, StructItem};

impl<'m> Lower<'m> {
    /// The alignment that C++ gives a struct, if its layout is the one of the IR.
    pub(super) fn check_layout(&mut self, item: &'m StructItem, ty: Type) -> Done<usize> {
        let Type::Struct(id) = ty else { return Ok(1) };
        let name = self.text(item.name);
        let (mut offset, mut align) = (0usize, 1usize);
        for (n, field) in item.fields.iter().enumerate() {
            let structs = self.w.b.structs();
            let field_type = structs[id.0 as usize].fields[n].ty;
            let layout = field_type.layout(structs);
            offset = offset.next_multiple_of(layout.align);
            let own = self.alignment(field_type);
            let asked = item.field_aligns.iter().filter(|(at, _)| *at == n);
            let aligned =
                asked.map(|(_, align)| self.asked(align, own)).try_fold(own, |most, one| Ok(most.max(one?)))?;
            if !offset.is_multiple_of(aligned) {
                let what =
                    format!("a field at byte {offset} aligned to {aligned}, '{name}.{}',", self.text(field.name));
                return self.refuse(field.span, what, "add fields before it until its offset is a multiple");
            }
            align = align.max(aligned);
            offset += layout.bytes;
        }
        let align = match &item.align {
            Some(asked) => align.max(self.asked(asked, align)?),
            None => align,
        };
        if let Some(pack) = item.pack.filter(|pack| *pack < align as u64) {
            let what = format!("a struct under '#pragma pack({pack})', '{name}',");
            return self.refuse(item.span, what, "order its fields by size, and leave out the pragma");
        }
        let bytes = ty.bytes(self.w.b.structs());
        if !bytes.is_multiple_of(align) {
            let what = format!("a struct of {bytes} bytes aligned to {align}");
            return self.refuse(item.span, what, "add fields until its size is a multiple");
        }
        Ok(align)
    }

    /// An alignment that the source asks for, of something that has one already.
    fn asked(&mut self, align: &'m Expr, own: usize) -> Done<usize> {
        let span: Span = align.span;
        let bytes = self.constant_int(align, "an alignment")?;
        match usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()) {
            Some(bytes) if bytes >= own => Ok(bytes),
            Some(bytes) => {
                let what = format!("an alignment of {bytes} where the type has {own}");
                self.fail(span, what, "too small", format!("write {own} or more"))
            }
            None => self.fail(span, format!("an alignment of {bytes}"), "expected a power of 2", ""),
        }
    }

    /// The alignment of a field's type. Vectors are aligned to their numbers, which docs/kernels.md lists: CUDA aligns those of 2
    /// and 4 to their size.
    fn alignment(&self, ty: Type) -> usize {
        let own = ty.layout(self.w.b.structs()).align;
        self.aligns.iter().find(|(found, _)| *found == ty).map_or(own, |(_, align)| own.max(*align))
    }
}
