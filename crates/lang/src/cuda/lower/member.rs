//! Members: fields, components, places in the grid; and what pointers point to.

use bornite_ir::{Axis, Builtin, Scalar, Type};

use super::place::{Operand, Place, Root, Slots, Step};
use super::{Done, Failed, Lower};
use crate::Span;
use crate::cuda::ast::{Declarator, Expr, ExprKind};
use crate::cuda::lex::Symbol;
use crate::lower::{Node, Tree};

impl<'m> Lower<'m> {
    /// What a pointer points to.
    pub(super) fn pointee(&mut self, pointer: Operand, span: Span) -> Done<Place> {
        match pointer {
            Operand::Pointer(pointer) => match self.element(pointer)? {
                Operand::Place(place) => Ok(place),
                _ => Err(Failed),
            },
            Operand::Address(place) => Ok(place),
            // An array is a pointer to its first entry.
            Operand::Array(Slots { place, sizes, .. }, at) if at.is_empty() && sizes.len() == 1 => {
                let scalar = place.ty.element().unwrap_or(Scalar::I32);
                let mut path = place.path.clone();
                path.push(Step::Part(0));
                Ok(Place { path, ty: scalar.into(), ..place })
            }
            _ => self.fail(span, "this is not a pointer", "expected a pointer", ""),
        }
    }

    pub(super) fn member(&mut self, whole: &'m Expr, member: Symbol, span: Span) -> Done<Operand> {
        if let ExprKind::Name(name) = whole.kind
            && self.lookup(name).is_none()
            && let text @ ("threadIdx" | "blockIdx" | "blockDim" | "gridDim") = self.text(name)
        {
            let axis = match self.text(member) {
                "x" => Axis::X,
                "y" => Axis::Y,
                "z" => Axis::Z,
                _ => return self.fail(span, format!("'{text}' has x, y and z"), "no such axis", ""),
            };
            let builtin = match text {
                "threadIdx" => Builtin::Thread(axis),
                "blockIdx" => Builtin::Block(axis),
                "blockDim" => Builtin::BlockSize(axis),
                _ => Builtin::GridSize(axis),
            };
            if self.code != super::Code::Kernel {
                return self.refuse(span, format!("'{text}' in this function"), "");
            }
            let place = Tree::of(Node::Builtin(builtin), self.index);
            // The size of a launch is known.
            let size = match builtin {
                Builtin::BlockSize(axis) => Some(self.request.block[axis as usize]),
                Builtin::GridSize(axis) => Some(self.request.grid[axis as usize]),
                _ => None,
            };
            let known = size.filter(|_| !self.request.printed).map(|n| Tree::int(self.index, n as i64));
            return Ok(Operand::Tree(match known {
                Some(size) => self.convert(size, Scalar::U32.into(), span)?,
                None => place.cast(Scalar::U32),
            }));
        }
        match self.operand(whole)? {
            Operand::Place(place) => self.part_of(place, member, span),
            Operand::Tree(tree) => self.part_of(
                Place { ty: tree.ty, root: Root::Value(tree), path: vec![], constant: false },
                member,
                span,
            ),
            Operand::Pointer(_) | Operand::Address(_) => {
                self.fail(span, "a pointer has no members", "a pointer", "write '->'")
            }
            _ => self.fail(span, "this has no members", "", ""),
        }
    }

    /// A field or component of a place.
    pub(super) fn part_of(&mut self, place: Place, member: Symbol, span: Span) -> Done<Operand> {
        let text = self.text(member);
        // What our printer calls the numbers of large vectors and of matrices.
        match (place.ty, text) {
            (Type::Vector(_, n), "v") if n > 4 => return Ok(Operand::Array(slots(place, member), vec![])),
            (Type::Matrix(..), "m") => return Ok(Operand::Array(slots(place, member), vec![])),
            _ => {}
        }
        let found = match place.ty {
            Type::Struct(_) => self.field(place.ty, member),
            Type::Vector(scalar, n) if n <= 4 => {
                let at = ["x", "y", "z", "w"].iter().position(|name| *name == text);
                at.filter(|at| *at < n as usize).map(|at| (at as u32, scalar.into()))
            }
            _ => None,
        };
        let Some((at, ty)) = found else {
            let what = format!("'{}' has no member '{text}'", self.type_name(place.ty));
            return self.fail(span, what, "no such member", "");
        };
        let (array, constant) = match self.declared_field(place.ty, member) {
            Some(field) => (!field.sizes.is_empty(), self.is_const(&field.ty)),
            None => (false, false),
        };
        let mut path = place.path;
        path.push(Step::Part(at));
        let place = Place { root: place.root, path, ty, constant: constant || place.constant };
        Ok(if array { Operand::Array(slots(place, member), vec![]) } else { Operand::Place(place) })
    }

    /// A field as the source declares it.
    fn declared_field(&self, ty: Type, member: Symbol) -> Option<&'m Declarator> {
        self.declared_fields(ty).iter().find(|field| field.name == member)
    }

    /// A const member of a struct, or of a struct in it.
    pub(super) fn const_member(&self, ty: Type) -> Option<&'m Declarator> {
        let fields = self.declared_fields(ty).iter().enumerate();
        let mut found = fields.map(|(n, field)| match self.is_const(&field.ty) {
            true => Some(field),
            false => self.const_member(self.part_type(ty, n as u32)),
        });
        found.find_map(|field| field)
    }

    /// The fields of a struct as the source declares them.
    pub(super) fn declared_fields(&self, ty: Type) -> &'m [Declarator] {
        let item = self.structs.iter().find(|(_, _, found)| *found == ty).map(|(item, ..)| *item);
        item.map_or(&[][..], |item| &self.m.file.structs[item].fields)
    }
}

/// A vector or matrix as the array that it is declared as.
fn slots(place: Place, name: Symbol) -> Slots {
    let sizes = match place.ty {
        Type::Matrix(_, rows, columns) => vec![rows as u64, columns as u64],
        other => vec![other.count(&[]) as u64],
    };
    Slots { place, name, sizes: sizes.into() }
}
