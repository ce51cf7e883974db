//! Variables and arrays in local memory: arrays that are too large for registers, that have
//! elements other than scalars, or that are accessed at run-time indices or through pointers; and
//! variables that may be read before they are written, which the interpreter then reports.
//!
//! A kernel is lowered with arrays of up to [`MAX_COMPONENTS`](bornite_ir::MAX_COMPONENTS) scalars
//! in registers first. Declarations that turn out to need memory are collected in
//! [`MemoryNeeds`], and the kernel is lowered again.

use bornite_ir::{Args, IntRange, Kernel, LocalArrayId, LocalId, MAX_LOCAL_BYTES, Op, Scalar, Stmt, Type, View};

use super::index::Index;
use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Pointer, RegisterArray};
use foldhash::HashMap;

use super::uninitialized::maybe_uninitialized;
use super::{Binding, CodeKind, LowerFailed, LowerResult, Lowering, names};
use crate::SourceSpan;
use crate::cuda::ast::{Declarator, Expr};
use crate::lower::Tree;

/// Memory accesses that a kernel needs, as far as earlier lowerings of it have shown.
#[derive(Clone, Default)]
pub(in crate::cuda) struct MemoryNeeds {
    /// Views whose components are read one by one.
    pub component_views: Vec<View>,
    /// Declarations of variables and arrays that are in memory, not in registers.
    pub variables: Vec<SourceSpan>,
    /// Functions that are inlined because they declare such variables.
    pub inlined: Vec<usize>,
    /// Declarations of pointers that may be null or point into different arrays, with the arrays.
    pub pointers: Vec<(SourceSpan, Vec<View>)>,
    /// Declarations of arrays to which pointers are cast, with the scalar type of their memory.
    pub elements: Vec<(SourceSpan, Scalar)>,
}

impl MemoryNeeds {
    /// Adds the needs of another lowering; returns true if there are new ones.
    pub fn add(&mut self, other: MemoryNeeds) -> bool {
        let before = self.count();
        for variable in other.variables {
            if !self.variables.contains(&variable) {
                self.variables.push(variable);
            }
        }
        for function in other.inlined {
            if !self.inlined.contains(&function) {
                self.inlined.push(function);
            }
        }
        for (pointer, views) in other.pointers {
            if !self.pointers.iter().any(|(found, _)| *found == pointer) {
                self.pointers.push((pointer, vec![]));
            }
            for (_, known) in self.pointers.iter_mut().filter(|(found, _)| *found == pointer) {
                views.iter().for_each(|view| {
                    if !known.contains(view) {
                        known.push(*view);
                    }
                });
            }
        }
        for (declared, scalar) in other.elements {
            match self.elements.iter_mut().find(|(found, _)| *found == declared) {
                Some((_, known)) if known.bytes() > scalar.bytes() => *known = scalar,
                Some(_) => {}
                None => self.elements.push((declared, scalar)),
            }
        }
        before < self.count()
    }

    fn count(&self) -> usize {
        let pointers: usize = self.pointers.iter().map(|(_, views)| 1 + views.len()).sum();
        let elements: usize = self.elements.iter().map(|(_, scalar)| 16 - scalar.bytes()).sum();
        self.variables.len() + self.inlined.len() + pointers + elements
    }
}

/// Variables and arrays of the source that are in registers.
pub(super) type RegisterVariables = HashMap<LocalId, RegisterVariable>;

/// A variable or array of the source that is in registers.
pub(super) struct RegisterVariable {
    declared: SourceSpan,
    /// True if it is declared with a value.
    is_initialized: bool,
}

/// Returns the variables that must be in memory because they may be read before they are written,
/// of the kernel and of its functions with their items of the file.
pub(super) fn uninitialized_reads(
    kernel: &Kernel,
    variables: &RegisterVariables,
    functions: &[(usize, RegisterVariables)],
) -> MemoryNeeds {
    let mut needs = MemoryNeeds::default();
    let codes = kernel.functions.iter().map(|function| &function.code).zip(functions);
    let codes = codes.map(|(code, (item, variables))| (code, Some(*item), variables));
    for (code, item, variables) in codes.chain([(&kernel.code, None, variables)]) {
        let mut tracked: Vec<LocalId> =
            variables.iter().filter(|(_, found)| !found.is_initialized).map(|(local, _)| *local).collect();
        // In the order of the source, so that lowering is reproducible.
        tracked.sort();
        for local in maybe_uninitialized(code, &kernel.structs, &tracked) {
            needs.variables.push(variables[&local].declared);
            needs.inlined.extend(item);
        }
    }
    needs
}

/// Elements without an initializer from which on they are zeroed by a loop.
const MIN_ZEROING_LOOP: usize = 8;

impl<'m> Lowering<'m> {
    /// Returns true if a variable or array must be in memory.
    pub(super) fn is_in_memory(&self, d: &Declarator) -> bool {
        self.needs.variables.contains(&d.span)
    }

    /// Requests another lowering with a declaration in memory.
    pub(super) fn require_memory(&mut self, declared: SourceSpan) {
        self.found_needs.variables.push(declared);
        if self.code != CodeKind::Kernel {
            self.found_needs.inlined.extend(self.instantiating.iter().map(|(n, _)| *n));
        }
    }

    /// Notes that a variable or array of the source is in registers.
    pub(super) fn note_register(&mut self, local: LocalId, d: &Declarator, is_initialized: bool) {
        let is_initialized = is_initialized || self.request.round_trip;
        self.registers.insert(local, RegisterVariable { declared: d.span, is_initialized });
    }

    /// Notes the declaration of a pointer's offset.
    pub(super) fn note_declared(&mut self, local: LocalId, declared: SourceSpan) {
        self.registers.insert(local, RegisterVariable { declared, is_initialized: true });
    }

    /// Declaration of a variable in registers.
    pub(super) fn declaration_of(&self, local: LocalId) -> Option<SourceSpan> {
        self.registers.get(&local).map(|found| found.declared)
    }

    /// Requests memory for the variable of an lvalue, or an array of scalars for a part of an
    /// element; returns false if neither is possible.
    pub(super) fn move_to_memory(&mut self, lvalue: &Lvalue) -> bool {
        let local = match lvalue.root {
            LvalueRoot::Local(local, _) => local,
            // A pointer into an element needs an array of scalars.
            LvalueRoot::Element { view, .. } => return self.require_scalars(view, lvalue.ty),
            _ => return false,
        };
        let Some(declared) = self.declaration_of(local) else { return false };
        self.require_memory(declared);
        true
    }

    /// Requests memory for a local variable or array that a pointer points to; returns false if the
    /// operand is something else.
    pub(super) fn move_operand_to_memory(&mut self, operand: &CudaOperand) -> bool {
        match operand {
            CudaOperand::Address(lvalue) | CudaOperand::RegisterArray(RegisterArray { lvalue, .. }, _) => {
                self.move_to_memory(lvalue)
            }
            _ => false,
        }
    }

    /// Declares an array, or a single variable if it has no sizes, in local memory.
    pub(super) fn declare_in_memory(
        &mut self,
        d: &'m Declarator,
        ty: Type,
        sizes: &[u64],
        constant: bool,
    ) -> LowerResult<Pointer> {
        if self.code != CodeKind::Kernel {
            self.require_memory(d.span);
            return Err(LowerFailed);
        }
        let grouping = self.memory_scalar(d.span).and_then(|scalar| Some((scalar, self.grouping(scalar, ty)?)));
        let grouping = grouping.filter(|(scalar, grouping)| grouping.split == 1 && ty != Type::Scalar(*scalar));
        let flat = sizes.len() > 4 || sizes.len() > 1 && (grouping.is_some() || self.is_flattened(d));
        let width = grouping.map_or(1, |(_, grouping)| u64::from(grouping.width));
        let elements = [sizes.iter().product::<u64>() * width];
        let extents: &[u64] = match sizes {
            [_, _, ..] if !flat => sizes,
            _ => &elements,
        };
        let memory_type = grouping.map_or(ty, |(scalar, _)| scalar.into());
        let (id, is_reused) = self.local_view(d, memory_type, extents);
        let bytes = self.w.b.kernel().local_layout().1;
        if bytes > MAX_LOCAL_BYTES {
            let what = format!("the local arrays of a thread have {bytes} bytes; the maximum is {MAX_LOCAL_BYTES}");
            return self.fail(d.span, what, "too large", "use shared or global memory");
        }
        if is_reused || self.loops > 0 && !self.request.round_trip {
            self.push_stmt(Stmt::Declare(id), d.span);
        }
        let pointer = Pointer::to_view(id.into(), ty, extents.len(), d.sizes.is_empty(), &[]);
        let array_bytes = Some(sizes.iter().product::<u64>() * ty.bytes(self.w.b.structs()) as u64);
        let pointer = grouping.map_or(pointer.clone(), |(_, grouping)| grouping.apply(pointer));
        Ok(Pointer { constant, array_bytes, sizes: if flat { sizes.into() } else { [].into() }, ..pointer })
    }

    /// Returns the local array of a declaration. An array whose scope has ended is used again; then
    /// the second value is true.
    fn local_view(&mut self, d: &Declarator, ty: Type, extents: &[u64]) -> (LocalArrayId, bool) {
        let is_bound = |id: LocalArrayId| {
            let own = |binding: &Binding| matches!(binding, Binding::Pointer(pointer) if pointer.view == id.into());
            self.scope.iter().any(|(_, binding)| own(binding))
        };
        let is_same = |id: LocalArrayId| {
            let array = &self.w.b.kernel().local_arrays[id.0 as usize];
            let sizes = array.dims.iter().map(|dim| dim.extent.resolve(&[]) as u64);
            array.ty == ty && sizes.eq(extents.iter().copied())
        };
        let known = self.local_arrays.iter().find(|(span, id)| *span == d.span && is_same(*id) && !is_bound(*id));
        if let Some((_, id)) = known {
            return (*id, true);
        }
        let name = names::unmangled(self.text(d.name), self.request.round_trip, |_| false);
        let name = self.unique_shared_name(&name);
        let id = self.w.b.local_array(name, ty, extents);
        self.local_arrays.push((d.span, id));
        self.declared_views.push((id.into(), d.span));
        (id, false)
    }

    /// Declares a single variable in local memory.
    pub(super) fn declare_memory_variable(
        &mut self,
        d: &'m Declarator,
        ty: Type,
        value: Option<Tree>,
    ) -> LowerResult<Binding> {
        let value = value.map(|tree| self.materialize(tree));
        let pointer = self.declare_in_memory(d, ty, &[], false)?;
        if let Some(value) = value {
            self.store_initial(&pointer, &[1], Tree::int(self.index_type, 0), value, d.span)?;
        }
        Ok(Binding::Pointer(pointer))
    }

    /// Declares an array in local memory and stores its initial values; elements without one are 0.
    pub(super) fn declare_memory_array(
        &mut self,
        d: &'m Declarator,
        ty: Type,
        sizes: &[u64],
        constant: bool,
    ) -> LowerResult<Binding> {
        // The values are evaluated before the name is declared, so that they cannot refer to it.
        let values = match &d.init {
            Some(init) => self.initial_values(init, ty, sizes)?,
            None => vec![],
        };
        let pointer = self.declare_in_memory(d, ty, sizes, constant)?;
        let extents: Vec<u64> = match pointer.sizes.is_empty() {
            true => sizes.to_vec(),
            false => vec![sizes.iter().product()],
        };
        let zeros = values.iter().filter(|value| value.is_none()).count();
        let by_loop = zeros >= MIN_ZEROING_LOOP;
        if by_loop {
            self.zero_array(&pointer, ty, &extents, d.span)?;
        }
        for (n, value) in values.into_iter().enumerate() {
            let value = match value {
                Some(value) => value,
                None if by_loop => continue,
                None => self.zero(ty),
            };
            let at = Tree::int(self.index_type, n as i64);
            self.store_initial(&pointer, &extents, at, value, d.span)?;
        }
        Ok(Binding::Pointer(pointer))
    }

    /// Returns the initial value of each element; `None` for elements that are 0.
    fn initial_values(&mut self, init: &'m Expr, ty: Type, sizes: &[u64]) -> LowerResult<Vec<Option<Tree>>> {
        let mut values = vec![];
        for value in self.flatten_initializer(init, sizes)? {
            values.push(match value {
                Some(expr) => {
                    let tree = self.list_element(expr, ty)?;
                    Some(self.materialize(tree))
                }
                None => None,
            });
        }
        Ok(values)
    }

    /// Emits a loop that sets all elements of an array to 0.
    fn zero_array(&mut self, pointer: &Pointer, ty: Type, extents: &[u64], span: SourceSpan) -> LowerResult {
        let counter = self.new_local("at", self.index_type.into(), &[bornite_ir::Value::int(self.index_type, 0)]);
        let end = self.w.emit(&Tree::int(self.index_type, extents.iter().product::<u64>() as i64));
        self.w.b.open_block();
        let at = Tree::emitted(self.w.b.read(counter), self.index_type);
        let value = self.zero(ty);
        let stored = self.store_initial(pointer, extents, at, value, span);
        let body = self.w.b.close_block();
        self.w.stmt(Stmt::For { counter, end, body });
        stored
    }

    /// Stores the element at an index that counts all elements of an array.
    fn store_initial(
        &mut self,
        pointer: &Pointer,
        extents: &[u64],
        at: Tree,
        value: Tree,
        span: SourceSpan,
    ) -> LowerResult {
        if pointer.width == 1 && pointer.cast_type.is_none() {
            self.store_flat(pointer.view, extents, at, &value, span);
            return Ok(());
        }
        let range = IntRange::up_to(extents.iter().product::<u64>() as i64 - 1);
        let pointer = Pointer { sizes: [].into(), ..pointer.clone() };
        let pointer = self.offset_by(pointer, Index { tree: at, range });
        match self.element(pointer)? {
            CudaOperand::Lvalue(lvalue) => self.write(&lvalue, value, span),
            _ => Err(LowerFailed),
        }
    }

    /// Stores the element at an index that counts all elements of an array row by row.
    fn store_flat(&mut self, view: View, extents: &[u64], at: Tree, value: &Tree, span: SourceSpan) {
        let mut indices = vec![];
        let mut row: u64 = extents.iter().product();
        for extent in extents {
            let before = row;
            row /= extent;
            let mut index = at.clone();
            if before != extents.iter().product::<u64>() {
                index = Tree::op(Op::Rem, vec![index, Tree::int(self.index_type, before as i64)]);
            }
            if row > 1 {
                index = Tree::op(Op::Div, vec![index, Tree::int(self.index_type, row as i64)]);
            }
            indices.push(self.w.emit(&index));
        }
        let value = self.w.emit(value);
        if let Some(indices) = Args::new(&indices) {
            self.push_stmt(Stmt::Store { view, indices, value }, span);
        }
    }
}
