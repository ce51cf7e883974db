//! Parses declarations: structs, functions, the kernel's header line, its parameters, shared and
//! local arrays.

use super::Parser;
use super::cursor::Result;
use crate::{
    Access, Dim, Extent, Field, Function, LaunchMode, LocalArray, Param, Scalar, Shared, Struct, StructId, Type,
    ValueParam, contiguous, ty,
};

impl Parser<'_> {
    pub(super) fn structure(&mut self) -> Result<()> {
        let name = self.word("a name")?.into();
        self.expect("{")?;
        let mut fields = vec![];
        while fields.is_empty() || self.take(",") {
            let (name, ty) = self.typed_name()?;
            let align = if self.take("align") { self.number("an alignment")? } else { 1 };
            fields.push(Field { name, ty, align });
        }
        self.expect("}")?;
        self.kernel.structs.push(Struct { name, fields });
        Ok(())
    }

    /// Parses `name: type`.
    pub(super) fn typed_name(&mut self) -> Result<(String, Type)> {
        let name = self.word("a name")?.into();
        self.expect(":")?;
        Ok((name, self.ty()?))
    }

    pub(super) fn ty(&mut self) -> Result<Type> {
        let start = self.at;
        let word = self.word("a type")?;
        let named = self.kernel.structs.iter().position(|s| s.name == word);
        match named.map(|n| Type::Struct(StructId(n as u32))).or_else(|| ty::parse_plain(word)) {
            Some(ty) => Ok(ty),
            None => {
                self.cursor.at = start;
                self.skip_whitespace();
                let names: Vec<&str> = Scalar::ALL.iter().map(|s| s.name()).collect();
                let names = names.join(", ");
                self.fail(format!("expected a type: {names}, a vector (f32x3), a matrix (f32x2x3) or a struct"))
            }
        }
    }

    pub(super) fn function(&mut self) -> Result<()> {
        let name = self.word("a name")?.into();
        self.expect("(")?;
        let mut params = vec![];
        while !self.take(")") {
            if !params.is_empty() {
                self.expect(",")?;
            }
            let (name, ty) = self.typed_name()?;
            params.push(ValueParam { name, ty });
        }
        self.expect(":")?;
        let result = self.ty()?;
        self.next_line()?;
        self.arguments = params.clone();
        let code = self.code()?;
        self.kernel.functions.push(Function { name, params, result, code });
        Ok(())
    }

    fn triple(&mut self) -> Result<[u32; 3]> {
        self.expect("[")?;
        let mut numbers = [0; 3];
        for (n, number) in numbers.iter_mut().enumerate() {
            if n > 0 {
                self.expect(",")?;
            }
            *number = self.number("a number")?;
        }
        self.expect("]")?;
        Ok(numbers)
    }

    pub(super) fn header(&mut self) -> Result<()> {
        self.kernel.name = self.word("a name")?.into();
        // The number of instances may be a value parameter, which is declared below.
        let mut counted_by = None;
        if self.take("parallel_for") {
            if self.take("@") {
                counted_by = Some(self.word("a value parameter")?);
            } else {
                self.kernel.launch = LaunchMode::ParallelFor { count: Extent::Const(self.number("a number")?) };
            }
        } else {
            self.expect("grid")?;
            let grid = self.triple()?;
            self.expect("block")?;
            self.kernel.launch = LaunchMode::Blocks { grid, block: self.triple()? };
        }
        self.expect("index")?;
        self.kernel.index = self.scalar()?;
        self.next_line()?;
        loop {
            if self.take("value") {
                let (name, ty) = self.typed_name()?;
                self.kernel.values.push(ValueParam { name, ty });
            } else if self.take("param") {
                let name = self.word("a name")?.into();
                self.expect(":")?;
                let access = match self.word("read, write or update")? {
                    "read" => Access::Read,
                    "write" => Access::Write,
                    "update" => Access::ReadWrite,
                    _ => return self.fail("expected read, write or update"),
                };
                let (ty, dims) = (self.ty()?, self.dims()?);
                self.kernel.params.push(Param { name, ty, dims, access });
            } else if self.take("shared") {
                let (name, ty) = self.typed_name()?;
                let dims = self.dims()?;
                self.kernel.shared.push(Shared { name, ty, dims });
            } else if self.take("local") {
                let (name, ty) = self.typed_name()?;
                let dims = self.dims()?;
                self.kernel.local_arrays.push(LocalArray { name, ty, dims });
            } else {
                break;
            }
            self.next_line()?;
        }
        if let Some(name) = counted_by {
            match self.kernel.values.iter().position(|value| value.name == name) {
                Some(n) => self.kernel.launch = LaunchMode::ParallelFor { count: Extent::Value(n as u32) },
                None => return self.fail(format!("there is no value parameter '{name}' to count instances")),
            }
        }
        Ok(())
    }

    /// Parses `[4, @n]` or `[4 by @s, 5 by 1]`.
    fn dims(&mut self) -> Result<Vec<Dim>> {
        self.expect("[")?;
        let (mut extents, mut strides) = (vec![], vec![]);
        while extents.is_empty() || self.take(",") {
            extents.push(self.extent()?);
            if self.take("by") {
                strides.push(self.extent()?);
            }
        }
        self.expect("]")?;
        if strides.is_empty() {
            return Ok(contiguous(&extents));
        }
        if strides.len() != extents.len() {
            return self.fail("expected 'by' and a stride for every dimension or for none");
        }
        Ok(extents.into_iter().zip(strides).map(|(extent, stride)| Dim { extent, stride }).collect())
    }

    fn extent(&mut self) -> Result<Extent> {
        if self.take("@") {
            let name = self.word("a value parameter")?;
            return match self.kernel.values.iter().position(|value| value.name == name) {
                Some(n) => Ok(Extent::Value(n as u32)),
                None => self.fail(format!("there is no value parameter '{name}' above")),
            };
        }
        let negative = self.take("-");
        let number: i128 = self.number("a number")?;
        match i64::try_from(if negative { -number } else { number }) {
            Ok(number) => Ok(Extent::Const(number)),
            Err(_) => self.fail("expected a 64-bit integer"),
        }
    }
}
