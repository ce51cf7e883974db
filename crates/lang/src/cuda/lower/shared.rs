//! Shared memory: one array per declaration and template instance, and one for all `extern`
//! declarations.

use bornite_ir::{Scalar, Type, View};

use super::array_init::MAX_ELEMENTS;
use super::lvalue::{CudaOperand, Pointer};
use super::{Binding, BoundArg, CodeKind, LowerFailed, LowerResult, Lowering, names, scan};
use crate::cuda::ast::{Declarator, Expr, ExprKind, Function, StmtKind, Storage, Unary};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;

/// A shared array in use.
pub(super) struct SharedArray<'m> {
    declared: &'m Declarator,
    /// Template arguments of the function that declares it.
    bound: Vec<BoundArg>,
    pointer: Pointer,
}

impl<'m> Lowering<'m> {
    pub(super) fn declare_shared(&mut self, storage: Storage, d: &'m Declarator) -> LowerResult<Binding> {
        let bound = self.inlines.last().map(|inline| inline.bound.clone()).unwrap_or_default();
        let known = |found: &&SharedArray| std::ptr::eq(found.declared, d) && found.bound == bound;
        if let Some(found) = self.shared.iter().find(known) {
            return Ok(Binding::Pointer(found.pointer.clone()));
        }
        if self.code != CodeKind::Kernel {
            return self.unsupported(d.span, "shared memory in this function", "");
        }
        // The array that the CUDA printer places large shared arrays in; their declarations follow.
        if self.text(d.name) == "bn_shared" {
            self.static_shared_bytes = None;
            return Ok(Binding::Poison);
        }
        let ty = match self.c_type(&d.ty)? {
            CType::Value(ty) => ty,
            CType::TempStorage(collective) => {
                let pointer = self.storage_array(collective, d)?;
                self.shared.push(SharedArray { declared: d, bound, pointer: pointer.clone() });
                return Ok(Binding::Pointer(pointer));
            }
            CType::Pointer(to) => self.slot_type(d.span, to, d.ty.constant),
            _ => return self.unsupported(d.span, "a '__shared__' variable of this type", ""),
        };
        if d.init.is_some() {
            return self.unsupported(
                d.span,
                "an initializer of shared memory",
                "write it from one thread, then call '__syncthreads()'",
            );
        }
        let pointer = match &d.sizes[..] {
            [None] if storage.external => self.dynamic_shared(d, ty)?,
            _ => self.static_shared(d, ty)?,
        };
        self.shared.push(SharedArray { declared: d, bound, pointer: pointer.clone() });
        Ok(Binding::Pointer(pointer))
    }

    fn static_shared(&mut self, d: &'m Declarator, ty: Type) -> LowerResult<Pointer> {
        let single = d.sizes.is_empty();
        let sizes = if single { vec![1] } else { self.sizes(d, MAX_ELEMENTS)? };
        if sizes.len() > 4 {
            return self.unsupported(d.span, "an array of more than four dimensions", "");
        }
        self.count_static_shared(d, ty, sizes.iter().product())?;
        let array_bytes = Some(sizes.iter().product::<u64>() * ty.bytes(self.w.b.structs()) as u64);
        let grouping = self.memory_scalar(d.span).and_then(|scalar| Some((scalar, self.grouping(scalar, ty)?)));
        let grouping = grouping.filter(|(scalar, grouping)| grouping.split == 1 && ty != Type::Scalar(*scalar));
        let width = grouping.map_or(1, |(_, grouping)| u64::from(grouping.width));
        let memory_type = grouping.map_or(ty, |(scalar, _)| scalar.into());
        let flat = sizes.len() > 1 && (grouping.is_some() || self.is_flattened(d));
        let elements = [sizes.iter().product::<u64>() * width];
        let extents = if flat || grouping.is_some() { &elements[..] } else { &sizes };
        let view = self.new_shared(d, memory_type, extents);
        if flat {
            let name = self.w.b.kernel().view(view).name.to_owned();
            self.flat_arrays.push((name, sizes.clone()));
        }
        let pointer = Pointer::to_view(view, ty, extents.len(), single, &sizes);
        let pointer = grouping.map_or(pointer.clone(), |(_, grouping)| grouping.apply(pointer));
        Ok(Pointer { array_bytes, sizes: if flat { sizes.into() } else { [].into() }, ..pointer })
    }

    /// Declares dynamic shared memory; all such arrays start at the same address.
    fn dynamic_shared(&mut self, d: &'m Declarator, ty: Type) -> LowerResult<Pointer> {
        let ty = self.element_type_from_casts(d).unwrap_or(ty);
        if let Some(first) = self.dynamic_shared.clone() {
            return match self.reinterpret_pointer(first, ty, d.span)? {
                CudaOperand::Pointer(pointer) => Ok(pointer),
                _ => Err(LowerFailed),
            };
        }
        let grouping = self.memory_scalar(d.span).and_then(|scalar| Some((scalar, self.grouping(scalar, ty)?)));
        let memory_type = grouping.map_or(ty, |(scalar, _)| scalar.into());
        let bytes = memory_type.bytes(self.w.b.structs()) as u64;
        if self.request.shared_bytes < bytes {
            let what = format!("the size of '{}' is not specified", self.text(d.name));
            let hint = "specify the bytes of dynamic shared memory per block at launch";
            return self.fail(d.span, what, "dynamic shared memory", hint);
        }
        let view = self.new_shared(d, memory_type, &[self.request.shared_bytes / bytes]);
        let pointer = Pointer::to_view(view, ty, 1, false, &[]);
        let pointer = grouping.map_or(pointer.clone(), |(_, grouping)| grouping.apply(pointer));
        self.dynamic_shared = Some(pointer.clone());
        Ok(pointer)
    }

    fn new_shared(&mut self, d: &Declarator, ty: Type, sizes: &[u64]) -> View {
        let name = names::unmangled(self.text(d.name), self.request.round_trip, |_| false);
        let name = self.unique_shared_name(&name);
        let view = self.w.b.shared_array(name, ty, sizes).into();
        self.declared_views.push((view, d.span));
        view
    }

    /// Returns true for the name of a shared array.
    pub(super) fn is_shared_array(&self, name: Symbol) -> bool {
        self.shared.iter().any(|found| found.declared.name == name)
    }

    /// Source name of a shared array.
    pub(super) fn shared_array_name(&self, view: View) -> Option<&'m str> {
        self.shared.iter().find(|found| found.pointer.view == view).map(|found| self.text(found.declared.name))
    }

    /// Element type of dynamic shared memory that is only used through casts, as `(float*)raw`. A
    /// scalar type is preferred, because scalars can be cast to vectors of them.
    fn element_type_from_casts(&mut self, d: &'m Declarator) -> Option<Type> {
        let (mut mentions, mut casts) = (0, vec![]);
        for function in self.functions_seeing(d) {
            scan::for_each_expr(&function.body, &mut |expr| match &expr.kind {
                ExprKind::Name(name) => mentions += (*name == d.name) as usize,
                ExprKind::Cast(ty, inner) if ty.pointers == 1 && names(inner, d) => casts.push(ty),
                _ => {}
            });
        }
        if casts.len() < mentions {
            return None;
        }
        let mut types = vec![];
        for ty in casts {
            if let Some(CType::Pointer(ty)) = self.attempt(|lower| lower.c_type(ty)) {
                types.push(ty);
            }
        }
        let number = |ty: &&Type| ty.as_scalar().is_some_and(|scalar| scalar != Scalar::Bool);
        types.iter().find(number).or(types.first()).copied()
    }

    /// Returns true if a multidimensional array is also used as a flat one: `(float*)tile`,
    /// `&tile[0][0]`, `memset(tile, 0, n)`.
    pub(super) fn is_flattened(&self, d: &'m Declarator) -> bool {
        let mut found = false;
        for function in self.functions_seeing(d) {
            scan::for_each_expr(&function.body, &mut |expr| {
                found |= match &expr.kind {
                    ExprKind::Cast(ty, inner) => ty.pointers > 0 && names(inner, d),
                    ExprKind::Unary(Unary::Address, lvalue) => names(first_element(lvalue), d) && !names(lvalue, d),
                    ExprKind::Call { callee, args, .. } => {
                        matches!(self.text(*callee), "memset" | "memcpy") && args.iter().any(|arg| names(arg, d))
                    }
                    _ => false,
                }
            });
        }
        found
    }

    /// Functions in whose scope a declaration is: the one that contains it, or all for a global.
    fn functions_seeing(&self, d: &Declarator) -> Vec<&'m Function> {
        let declares = |function: &&Function| {
            let mut found = false;
            scan::for_each_stmt(&function.body, &mut |stmt| {
                found |= matches!(&stmt.kind, StmtKind::Declare(_, all) if all.iter().any(|one| std::ptr::eq(one, d)));
            });
            found
        };
        let module = self.module;
        match module.file.functions.iter().find(declares) {
            Some(function) => vec![function],
            None => module.file.functions.iter().collect(),
        }
    }
}

fn names(expr: &Expr, d: &Declarator) -> bool {
    matches!(expr.kind, ExprKind::Name(name) if name == d.name)
}

/// Strips zero indices: the array of `a[0][0]`.
fn first_element(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Index(inner, index) if matches!(index.kind, ExprKind::Number { value, .. } if value.bits() == 0) => {
            first_element(inner)
        }
        _ => expr,
    }
}
