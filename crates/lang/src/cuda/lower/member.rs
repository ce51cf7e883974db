//! Members: fields, vector components, `threadIdx.x` and similar; and dereferencing.

use bornite_ir::{Axis, Builtin, Scalar, Type};

use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Projection, RegisterArray};
use super::{LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Declarator, Expr, ExprKind};
use crate::cuda::lex::Symbol;
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// Dereferences a pointer operand.
    pub(super) fn pointee(&mut self, pointer: CudaOperand, span: SourceSpan) -> LowerResult<Lvalue> {
        match pointer {
            CudaOperand::Pointer(pointer) => match self.pointed_element(pointer, span)? {
                CudaOperand::Lvalue(lvalue) => Ok(lvalue),
                _ => Err(LowerFailed),
            },
            CudaOperand::Address(lvalue) => Ok(lvalue),
            CudaOperand::Null(Some(to)) => Ok(self.null_element(to, span)),
            // An array decays to a pointer to its first element.
            CudaOperand::RegisterArray(RegisterArray { lvalue, sizes, .. }, at)
                if at.is_empty() && sizes.len() == 1 =>
            {
                let scalar = lvalue.ty.element().unwrap_or(Scalar::I32);
                let mut path = lvalue.path.clone();
                path.push(Projection::Field(0));
                Ok(Lvalue { path, ty: scalar.into(), ..lvalue })
            }
            _ => self.fail(span, "only a pointer can be dereferenced", "expected a pointer", ""),
        }
    }

    pub(super) fn member(&mut self, whole: &'m Expr, member: Symbol, span: SourceSpan) -> LowerResult<CudaOperand> {
        if let ExprKind::Name(name) = whole.kind
            && self.lookup(name).is_none()
            && let text @ ("threadIdx" | "blockIdx" | "blockDim" | "gridDim") = self.text(name)
        {
            let axis = match self.text(member) {
                "x" => Axis::X,
                "y" => Axis::Y,
                "z" => Axis::Z,
                _ => {
                    return self.fail(
                        span,
                        format!("'{text}' has no member '{}'", self.text(member)),
                        "expected '.x', '.y' or '.z'",
                        "",
                    );
                }
            };
            let builtin = match text {
                "threadIdx" => Builtin::Thread(axis),
                "blockIdx" => Builtin::Block(axis),
                "blockDim" => Builtin::BlockSize(axis),
                _ => Builtin::GridSize(axis),
            };
            if self.code != super::CodeKind::Kernel {
                return self.unsupported(span, format!("'{text}' in this function"), "");
            }
            let value = Tree::of(Node::Builtin(builtin), self.index_type);
            // Sizes of the launch are constants.
            let size = match builtin {
                Builtin::BlockSize(axis) => Some(self.request.block[axis as usize]),
                Builtin::GridSize(axis) => Some(self.request.grid[axis as usize]),
                _ => None,
            };
            let known = size.filter(|_| !self.request.round_trip).map(|n| Tree::int(self.index_type, n as i64));
            return Ok(CudaOperand::Tree(match known {
                Some(size) => self.convert(size, Scalar::U32.into(), span)?,
                None => value.cast(Scalar::U32),
            }));
        }
        match self.operand(whole)? {
            CudaOperand::Lvalue(lvalue) => self.named_member(lvalue, member, span),
            CudaOperand::Tree(tree) => self.named_member(
                Lvalue { ty: tree.ty, root: LvalueRoot::Value(tree), path: vec![], constant: false },
                member,
                span,
            ),
            CudaOperand::Pointer(_) | CudaOperand::Address(_) => {
                self.fail(span, "a pointer has no members", "a pointer", "use '->'")
            }
            _ => self.fail(span, "this expression has no members", "", ""),
        }
    }

    /// Selects a member that the source names, which must be accessible.
    pub(super) fn named_member(
        &mut self,
        lvalue: Lvalue,
        member: Symbol,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        self.check_access(lvalue.ty, member, span)?;
        self.member_of(lvalue, member, span)
    }

    /// Reports a use of a private member outside the member functions of its struct.
    pub(super) fn check_access(&mut self, ty: Type, member: Symbol, span: SourceSpan) -> LowerResult {
        let Some((item, _)) = self.struct_of(ty).filter(|(item, _)| item.private_members.contains(&member)) else {
            return Ok(());
        };
        let inside = self.this.as_ref().and_then(|this| self.struct_of(this.ty)).map(|(inside, _)| inside.name);
        if inside == Some(item.name) {
            return Ok(());
        }
        let what = format!("'{}' is a private member of '{}'", self.text(member), self.text(item.name));
        self.fail(span, what, "private", "")
    }

    /// Selects a field or component of an lvalue.
    pub(super) fn member_of(&mut self, lvalue: Lvalue, member: Symbol, span: SourceSpan) -> LowerResult<CudaOperand> {
        let text = self.text(member);
        // The CUDA printer's names for the components of large vectors and of matrices.
        match (lvalue.ty, text) {
            (Type::Vector(_, n), "v") if n > 4 => {
                return Ok(CudaOperand::RegisterArray(as_register_array(lvalue, member), vec![]));
            }
            (Type::Matrix(..), "m") => {
                return Ok(CudaOperand::RegisterArray(as_register_array(lvalue, member), vec![]));
            }
            _ => {}
        }
        let found = match lvalue.ty {
            Type::Struct(_) => self.field(lvalue.ty, member),
            Type::Vector(scalar, n) if n <= 4 => {
                let at = ["x", "y", "z", "w"].iter().position(|name| *name == text);
                at.filter(|at| *at < n as usize).map(|at| (at as u32, scalar.into()))
            }
            _ => None,
        };
        let Some((at, ty)) = found else {
            // A static member of the object's struct.
            if let Some(operand) = self.static_member(lvalue.ty, member, span)? {
                return Ok(operand);
            }
            let what = format!("'{}' has no member '{text}'", self.type_name(lvalue.ty));
            return self.fail(span, what, "no such member", "");
        };
        let (array, constant) = match self.declared_field(lvalue.ty, member) {
            Some(field) => (!field.sizes.is_empty(), self.is_const(&field.ty)),
            None => (false, false),
        };
        let mut path = lvalue.path;
        path.push(Projection::Field(at));
        let lvalue = Lvalue { root: lvalue.root, path, ty, constant: constant || lvalue.constant };
        Ok(if array {
            CudaOperand::RegisterArray(as_register_array(lvalue, member), vec![])
        } else {
            CudaOperand::Lvalue(lvalue)
        })
    }

    /// Declaration of a struct field.
    fn declared_field(&self, ty: Type, member: Symbol) -> Option<&'m Declarator> {
        self.declared_fields(ty).iter().find(|field| field.name == member)
    }

    /// Returns a const member of a struct or of a nested struct.
    pub(super) fn const_member(&self, ty: Type) -> Option<&'m Declarator> {
        let fields = self.declared_fields(ty).iter().enumerate();
        let mut found = fields.map(|(n, field)| match self.is_const(&field.ty) {
            true => Some(field),
            false => self.const_member(self.field_type(ty, n as u32)),
        });
        found.find_map(|field| field)
    }

    /// Declarations of a struct's fields.
    pub(super) fn declared_fields(&self, ty: Type) -> &'m [Declarator] {
        let item = self.structs.iter().find(|(_, _, found)| *found == ty).map(|(item, ..)| *item);
        item.map_or(&[][..], |item| &self.module.file.structs[item].fields)
    }
}

/// Converts a vector or matrix lvalue to the local array that it is declared as.
fn as_register_array(lvalue: Lvalue, name: Symbol) -> RegisterArray {
    let sizes = match lvalue.ty {
        Type::Matrix(_, rows, columns) => vec![rows as u64, columns as u64],
        other => vec![other.component_count(&[]) as u64],
    };
    RegisterArray { lvalue, name, sizes: sizes.into() }
}
