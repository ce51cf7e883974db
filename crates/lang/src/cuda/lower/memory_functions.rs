//! `memset` and `memcpy`: loops over the elements of arrays.

use bornite_ir::{Check, IntRange, LocalId, Op, Scalar, Stmt, Type, Value};

use super::index::Index;
use super::lvalue::{CudaOperand, Lvalue, Pointer};
use super::{LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::Expr;
use crate::lower::Tree;

impl<'m> Lowering<'m> {
    /// Lowers `memset(array, byte, bytes)`.
    pub(super) fn memset(&mut self, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count("memset", args, 3, span)?;
        let to = self.whole_elements(&args[0])?;
        let byte = self.rvalue(&args[1])?;
        let Some(byte) = self.w.fold(&byte).map(|byte| byte.as_i64() as u8) else {
            return self.unsupported(args[1].span, "'memset' to a value that is not constant", "use a loop");
        };
        let ty = to.pointee_type();
        let Some(value) = self.repeated_byte(ty, byte) else {
            let what = format!("'memset' of '{}' to this value", self.type_name(ty));
            return self.unsupported(args[1].span, what, "use a loop");
        };
        let count = self.element_count(&args[2], ty)?;
        self.for_each_element(count, span, &mut |lower, at| {
            let element = lower.element_at(&to, at)?;
            lower.check_assignable(&element, args[0].span)?;
            lower.write(&element, value.clone(), span)
        })
    }

    /// Lowers `memcpy(to, from, bytes)`.
    pub(super) fn memcpy(&mut self, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count("memcpy", args, 3, span)?;
        let (to, from) = (self.whole_elements(&args[0])?, self.whole_elements(&args[1])?);
        let [mut to, mut from] = [to, from];
        let bytes = |lower: &Self, pointer: &Pointer| pointer.pointee_type().bytes(lower.w.b.structs());
        if to.pointee_type() != from.pointee_type() {
            let smaller = if bytes(self, &to) <= bytes(self, &from) { &to } else { &from }.pointee_type();
            for pointer in [&mut to, &mut from] {
                if let CudaOperand::Pointer(cast) = self.reinterpret_pointer(pointer.clone(), smaller, span)? {
                    *pointer = Pointer { constant: pointer.constant, ..cast };
                }
            }
        }
        let count = self.element_count(&args[2], to.pointee_type())?;
        self.for_each_element(count, span, &mut |lower, at| {
            let element = lower.element_at(&from, at.clone())?;
            let value = lower.read(&element, span)?;
            let element = lower.element_at(&to, at)?;
            lower.check_assignable(&element, args[0].span)?;
            lower.write(&element, value, span)
        })
    }

    /// Lowers a pointer to elements in memory; a local array is moved there.
    fn whole_elements(&mut self, expr: &'m Expr) -> LowerResult<Pointer> {
        match self.operand(expr)? {
            CudaOperand::Pointer(pointer) if pointer.rank == 1 && pointer.dims.is_none() && pointer.split == 1 => {
                Ok(Pointer { sizes: [].into(), ..pointer })
            }
            operand if self.move_operand_to_memory(&operand) => Err(LowerFailed),
            _ => self.unsupported(expr.span, "this argument of 'memset' or 'memcpy'", "use a loop"),
        }
    }

    /// Value whose bytes all are `byte`; `None` for a composite value of bytes other than 0.
    fn repeated_byte(&self, ty: Type, byte: u8) -> Option<Tree> {
        match ty {
            _ if byte == 0 => Some(self.zero(ty)),
            Type::Scalar(scalar) if scalar != Scalar::Bool => {
                let mask = u64::MAX >> (64 - scalar.bytes() * 8);
                Some(Tree::constant(Value::from_bits(scalar, u64::from_ne_bytes([byte; 8]) & mask)))
            }
            _ => None,
        }
    }

    /// Number of elements in a number of bytes, which must be a multiple of their size.
    fn element_count(&mut self, bytes: &'m Expr, ty: Type) -> LowerResult<Tree> {
        let size = ty.bytes(self.w.b.structs()) as i64;
        let tree = self.rvalue(bytes)?;
        let Index { tree, range } = self.lower_index(tree, bytes.span)?;
        self.check_exact(range);
        let all = self.materialize(tree);
        let rest = Tree::op(Op::Rem, vec![all.clone(), Tree::int(self.index_type, size)]);
        let is_whole = Tree::op(Op::Eq, vec![rest, Tree::int(self.index_type, 0)]);
        match self.w.fold(&is_whole) {
            Some(whole) if whole.bits() == 0 => {
                let name = self.type_name(ty);
                return self.unsupported(bytes.span, format!("a part of an element of type '{name}'"), "use a loop");
            }
            Some(_) => {}
            None => {
                let condition = self.w.emit(&is_whole);
                let message = format!("the number of bytes is a multiple of {size}");
                self.push_stmt(Stmt::Check(Check::Assert { condition, message }), bytes.span);
            }
        }
        Ok(Tree::op(Op::Div, vec![all, Tree::int(self.index_type, size)]))
    }

    fn element_at(&mut self, pointer: &Pointer, at: Index) -> LowerResult<Lvalue> {
        let pointer = self.offset_by(pointer.clone(), at);
        match self.element(pointer)? {
            CudaOperand::Lvalue(lvalue) => Ok(lvalue),
            _ => Err(LowerFailed),
        }
    }

    /// Emits a loop over `count` elements.
    fn for_each_element(
        &mut self,
        count: Tree,
        span: SourceSpan,
        each: &mut dyn FnMut(&mut Self, Index) -> LowerResult,
    ) -> LowerResult<CudaOperand> {
        self.set_source_line(span);
        let counter: LocalId = self.new_local("at", self.index_type.into(), &[Value::int(self.index_type, 0)]);
        let end = self.w.emit(&count);
        self.w.b.open_block();
        let tree = Tree::emitted(self.w.b.read(counter), self.index_type);
        let range = IntRange { low: 0, high: i32::MAX as i128 };
        let done = each(self, Index { tree, range });
        let body = self.w.b.close_block();
        self.w.stmt(Stmt::For { counter, end, body });
        done.map(|()| CudaOperand::Void)
    }
}
