//! Indexing: elements behind pointers, of local arrays and of constant arrays.

use std::rc::Rc;

use bornite_ir::{Check, Dim, Extent, IntRange, Op, ParamId, Scalar, Stmt, View};

use super::lvalue::{ConstArray, CudaOperand, Lvalue, LvalueRoot, Pointer, Projection, RegisterArray};
use super::{LowerResult, Lowering};
use crate::cuda::ast::{Binary, Expr, ExprKind};
use crate::lower::{Node, Tree};
use crate::{ParamRef, SourceSpan};

/// Maximum size of a constant array that is read at a non-constant index.
const MAX_CHOICES: usize = 1024;

/// An index, or the number of elements that a pointer moves by.
#[derive(Clone)]
pub(super) struct Index {
    /// Value in the kernel's index type: the C++ value modulo its width.
    pub tree: Tree,
    /// Range of the C++ value, by the operand's own type.
    pub range: IntRange,
}

/// Size of the first dimension of an array parameter, which the source does not specify.
pub(super) const UNKNOWN_SIZE: u64 = 0;

/// 2³², the number of 32-bit integers.
const WRAP: i128 = 1 << 32;

impl<'m> Lowering<'m> {
    /// Converts a value to the kernel's index type.
    pub(super) fn lower_index(&mut self, tree: Tree, span: SourceSpan) -> LowerResult<Index> {
        let Some(scalar) = tree.scalar().filter(|scalar| !scalar.is_float()) else {
            let what = format!("an array index must be an integer, found '{}'", self.type_name(tree.ty));
            return self.fail(span, what, "expected an integer", "cast it: '(int)x'");
        };
        let range = self.w.range(&tree).unwrap_or(IntRange::of_type(scalar));
        let tree = match tree.node {
            // The value that an `int` was converted from in a kernel with 64-bit indices.
            Node::Cast(_, inner)
                if inner.scalar() == Some(self.index_type)
                    && self.w.range(&inner).is_some_and(|range| range.fits(scalar)) =>
            {
                *inner
            }
            _ => tree.cast(self.index_type),
        };
        Ok(Index { tree, range })
    }

    /// Requests another lowering with 64-bit indices if the kernel has 32-bit ones. Indices of a
    /// printed text have their final type already.
    pub(super) fn require_wide_index(&mut self) {
        self.needs_wide_index |= self.index_type == Scalar::I32 && !self.request.round_trip;
    }

    /// Requires 64-bit indices unless 32-bit ones detect the same out-of-bounds accesses. A C++
    /// index and its value modulo 2³² differ by a multiple of 2³², so an index outside stays
    /// outside if all are above `extent - 2³²` and below 2³².
    fn check_index(&mut self, range: IntRange, extent: i64) {
        if range.low < extent as i128 - WRAP || range.high >= WRAP {
            self.require_wide_index();
        }
    }

    /// Requires 64-bit indices unless 32 bits hold every value of a range.
    pub(super) fn check_exact(&mut self, range: IntRange) {
        if !range.fits(Scalar::I32) {
            self.require_wide_index();
        }
    }

    /// Extent of a dimension of a view; `i32::MAX`, the maximum, if it is known only at launch.
    fn extent(&self, view: View, dimension: usize) -> i64 {
        if !self.is_array_declared(view) {
            return i32::MAX as i64;
        }
        let dim = self.w.b.kernel().view(view).dims.get(dimension);
        dim.and_then(|dim| dim.extent.known()).unwrap_or(i32::MAX as i64)
    }

    /// Lowers indexing: to an element, or to a row of a multidimensional array.
    pub(super) fn index_into(
        &mut self,
        base: CudaOperand,
        index: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        match base {
            CudaOperand::Pointer(pointer) if pointer.dims.is_some() => self.index_by_dims(pointer, index, span),
            CudaOperand::Pointer(mut pointer) => {
                if pointer.single {
                    return self.fail(span, "a single value cannot be indexed", "not an array", "");
                }
                let at = self.rvalue(index)?;
                if let ([size, rest @ ..], true) = (&pointer.sizes[..], pointer.prefix.len() + 1 >= pointer.rank) {
                    let name = self.dimension_name(pointer.view, pointer.sizes.len());
                    let at = match *size {
                        UNKNOWN_SIZE => self.lower_index(at, index.span)?,
                        size => Index {
                            tree: self.checked_index(at, size, &name, index.span)?,
                            range: IntRange::up_to(size as i64 - 1),
                        },
                    };
                    let row: u64 = rest.iter().product();
                    let rest: Rc<[u64]> = rest.into();
                    let at = self.scale_index(at, row);
                    let offset_by = self.offset_by(pointer, at);
                    let last = rest.is_empty();
                    let offset_by = Pointer { sizes: rest, ..offset_by };
                    return if last { self.element(offset_by) } else { Ok(CudaOperand::Pointer(offset_by)) };
                }
                let at = self.lower_index(at, index.span)?;
                if pointer.prefix.len() + 1 < pointer.rank {
                    self.check_index(at.range, self.extent(pointer.view, pointer.prefix.len()));
                    pointer.prefix.push(self.w.emit(&at.tree));
                    pointer.array_bytes = None;
                    return Ok(CudaOperand::Pointer(pointer));
                }
                let pointer = self.offset_by(pointer, at);
                self.pointed_element(pointer, span)
            }
            CudaOperand::RegisterArray(array, mut at) => {
                let tree = self.rvalue(index)?;
                let size = array.sizes[at.len()];
                let of = self.text(array.name);
                // Printed text checks these indices like any other index of an element in memory.
                let round_trip = self.request.round_trip && matches!(array.lvalue.root, LvalueRoot::Element { .. });
                at.push(match round_trip {
                    true => self.lower_index(tree, index.span)?.tree,
                    false => self.checked_index(tree, size, of, index.span)?,
                });
                if at.len() < array.sizes.len() {
                    return Ok(CudaOperand::RegisterArray(array, at));
                }
                let RegisterArray { lvalue, sizes, .. } = array;
                let flat_index = self.flatten_index(&at, &sizes);
                let step = match self.w.fold(&flat_index) {
                    Some(known) => Projection::Field(known.as_i64() as u32),
                    None => {
                        if lvalue.path.is_empty() && matches!(lvalue.root, LvalueRoot::Local(..)) {
                            self.move_to_memory(&lvalue);
                        }
                        Projection::DynamicIndex(Tree::emitted(self.w.emit(&flat_index), self.index_type), lvalue.ty)
                    }
                };
                let scalar = lvalue.ty.element().unwrap_or(Scalar::I32);
                let mut path = lvalue.path.clone();
                path.push(step);
                Ok(CudaOperand::Lvalue(Lvalue { path, ty: scalar.into(), ..lvalue }))
            }
            CudaOperand::ConstArray(table, mut at) => {
                let tree = self.rvalue(index)?;
                let size = table.sizes[at.len()];
                let of = self.text(table.name);
                at.push(self.checked_index(tree, size, of, index.span)?);
                if at.len() < table.sizes.len() {
                    return Ok(CudaOperand::ConstArray(table, at));
                }
                let flat_index = self.flatten_index(&at, &table.sizes);
                Ok(CudaOperand::Tree(self.const_array_element(&table, flat_index, span)?))
            }
            CudaOperand::Address(lvalue) => {
                let at = self.rvalue(index)?;
                match self.w.fold(&at) {
                    Some(at) if at.bits() == 0 => Ok(CudaOperand::Lvalue(lvalue)),
                    _ if self.move_to_memory(&lvalue) => Err(super::LowerFailed),
                    _ => {
                        let what = "indexing a pointer to a single variable";
                        self.unsupported(span, what, "index the array itself")
                    }
                }
            }
            CudaOperand::Null(Some(to)) => {
                self.rvalue(index)?;
                Ok(CudaOperand::Lvalue(self.null_element(to, span)))
            }
            CudaOperand::Lvalue(_)
            | CudaOperand::Tree(_)
            | CudaOperand::Void
            | CudaOperand::Null(None)
            | CudaOperand::Group(_)
            | CudaOperand::Collective(..) => {
                self.fail(span, "only arrays and pointers can be indexed", "not an array", "")
            }
        }
    }

    /// Checks an index into an array of known size: at compile time if it is constant, otherwise at
    /// run time.
    fn checked_index(&mut self, index: Tree, size: u64, of: &str, span: SourceSpan) -> LowerResult<Tree> {
        let Index { tree: index, range } = self.lower_index(index, span)?;
        self.check_index(range, size as i64);
        match range.single_value() {
            Some(at) if at < 0 || at >= size as i128 => {
                let what = format!("index {at} is out of bounds for an array of {size} elements");
                self.fail(span, what, "out of bounds", "")
            }
            Some(_) => Ok(index),
            None => {
                let id = self.w.emit(&index);
                self.push_stmt(Stmt::Check(Check::InBounds { index: id, len: size, array: of.to_owned() }), span);
                Ok(Tree::emitted(id, self.index_type))
            }
        }
    }

    /// Flattens the indices of several dimensions into one.
    fn flatten_index(&self, at: &[Tree], sizes: &[u64]) -> Tree {
        let mut sum = at[0].clone();
        for (index, size) in at.iter().zip(sizes).skip(1) {
            let scaled = Tree::op(Op::Mul, vec![sum, Tree::int(self.index_type, *size as i64)]);
            sum = Tree::op(Op::Add, vec![scaled, index.clone()]);
        }
        sum
    }

    /// Lowers an element of a constant array; at a non-constant index, by a chain of selects.
    fn const_array_element(&mut self, table: &ConstArray, flat_index: Tree, span: SourceSpan) -> LowerResult<Tree> {
        let values = &table.values;
        if let Some(at) = self.w.fold(&flat_index) {
            let value = values.get(at.as_i64() as usize).copied();
            return Ok(Tree::constant(value.unwrap_or(values[0])));
        }
        if values.len() > MAX_CHOICES {
            let what = format!("a non-constant index into a constant array of {} elements", values.len());
            let hint = "pass it as a pointer, or declare it '__constant__' without an initializer; the maximum is 1024 elements";
            return self.unsupported(span, what, hint);
        }
        let index = Tree::emitted(self.w.emit(&flat_index), self.index_type);
        let mut value = Tree::constant(values[0]);
        for (n, entry) in values.iter().enumerate().skip(1) {
            let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index_type, n as i64)]);
            let chosen = Tree::select(here, Tree::constant(*entry), value);
            value = Tree::emitted(self.w.emit(&chosen), entry.scalar());
        }
        Ok(value)
    }

    /// Scales an index by the number of elements per item.
    fn scale_index(&self, by: Index, width: u64) -> Index {
        match width {
            1 => by,
            _ => Index {
                tree: Tree::op(Op::Mul, vec![by.tree, Tree::int(self.index_type, width as i64)]),
                range: by.range.times(width),
            },
        }
    }

    /// Adds an index to a pointer.
    pub(super) fn offset_by(&mut self, mut pointer: Pointer, by: Index) -> Pointer {
        let Index { tree, range } = self.scale_index(by, pointer.width as u64);
        pointer.range = pointer.range.plus(range);
        pointer.array_bytes = None;
        pointer.offset = Some(match pointer.offset.take() {
            Some(offset) => Tree::op(Op::Add, vec![offset, tree]),
            None => tree,
        });
        pointer
    }

    /// Dereferences a pointer of the source.
    pub(super) fn pointed_element(&mut self, pointer: Pointer, span: SourceSpan) -> LowerResult<CudaOperand> {
        let pointer = self.single_choice(pointer, span);
        self.element(pointer)
    }

    /// Dereferences a pointer.
    pub(super) fn element(&mut self, pointer: Pointer) -> LowerResult<CudaOperand> {
        if pointer.split > 1 {
            return self.part_of_element(pointer);
        }
        let Pointer { view, prefix, rank, offset, range, ty, width, cast_type, constant, choice, .. } = pointer;
        let mut at = prefix;
        let zero = Tree::int(self.index_type, 0);
        // A pointer to a row points to its first element.
        while at.len() + 1 < rank {
            at.push(self.w.emit(&zero));
        }
        for view in choice.as_ref().map_or(&[view][..], |choice| &choice.views) {
            self.check_index(range.plus(IntRange::up_to(width as i64 - 1)), self.extent(*view, at.len()));
        }
        at.push(self.w.emit(&offset.unwrap_or(zero)));
        let path = cast_type.map(Projection::Reinterpret).into_iter().collect();
        Ok(CudaOperand::Lvalue(Lvalue {
            root: LvalueRoot::Element { view, at, range, width, element: ty, choice },
            path,
            ty: cast_type.unwrap_or(ty),
            constant,
        }))
    }

    /// Sizes of the rows of a multidimensional array: all but the first.
    pub(super) fn row_sizes(&self, pointer: &Pointer) -> Vec<u64> {
        match &pointer.sizes[..] {
            [] => (pointer.prefix.len() + 1..pointer.rank).map(|n| self.extent(pointer.view, n) as u64).collect(),
            [_, rest @ ..] => rest.to_vec(),
        }
    }

    /// Name of an array of which the last `left` dimensions are not indexed yet, with the next
    /// dimension if a one-dimensional view holds several: `tile, dimension 1`.
    fn dimension_name(&self, view: View, left: usize) -> String {
        let (name, view_name) = (self.array_name(view), self.w.b.kernel().view(view).name);
        let sizes = self.flat_arrays.iter().find(|(flat, _)| flat == view_name).map(|(_, sizes)| sizes.len());
        match sizes.and_then(|count| count.checked_sub(left)) {
            Some(dimension) => format!("{name}, dimension {dimension}"),
            None => name,
        }
    }

    /// Name of the array behind a view.
    fn array_name(&self, view: View) -> String {
        let of = |param: &ParamRef| matches!(param, ParamRef::View(n) if View::Param(ParamId(*n)) == view);
        let name = self.params.iter().find(|(_, param)| of(param)).map(|(name, _)| name.as_str());
        name.or(self.shared_array_name(view)).unwrap_or(self.w.b.view_name(view)).to_owned()
    }

    /// Lowers an index into a strided or multidimensional view in the CUDA printer's form: `i * 12
    /// + j * n + k`.
    fn index_by_dims(&mut self, pointer: Pointer, index: &'m Expr, span: SourceSpan) -> LowerResult<CudaOperand> {
        let dims = pointer.dims.clone().unwrap_or_default();
        let steps: Vec<&Dim> = dims.iter().filter(|dim| dim.stride != Extent::Const(0)).collect();
        let mut terms = vec![];
        let mut rest = index;
        while terms.len() + 1 < steps.len()
            && let ExprKind::Binary(Binary::Add, left, right) = &rest.kind
        {
            terms.push(&**right);
            rest = left;
        }
        terms.push(rest);
        terms.reverse();
        if terms.len() != steps.len() && !steps.is_empty() {
            return self.fail(index.span, "this index does not match the dimensions of its array", "", "");
        }
        let mut terms = terms.into_iter();
        let mut at = vec![];
        for dim in dims.iter() {
            let term = match dim.stride {
                Extent::Const(0) => None,
                _ => terms.next(),
            };
            let tree = match term {
                None => Tree::int(self.index_type, 0),
                Some(term) => {
                    let inner = match (&term.kind, dim.stride) {
                        (_, Extent::Const(1)) => term,
                        (ExprKind::Binary(Binary::Mul, inner, _), _) => inner,
                        _ => {
                            return self.fail(
                                term.span,
                                "this index does not match the dimensions of its array",
                                "",
                                "",
                            );
                        }
                    };
                    let tree = self.rvalue(inner)?;
                    self.lower_index(tree, span)?.tree
                }
            };
            at.push(self.w.emit(&tree));
        }
        let ty = pointer.ty;
        let root = LvalueRoot::Element {
            view: pointer.view,
            at,
            range: IntRange::of_type(self.index_type),
            width: 1,
            element: ty,
            choice: None,
        };
        Ok(CudaOperand::Lvalue(Lvalue { root, path: vec![], ty, constant: pointer.constant }))
    }
}
