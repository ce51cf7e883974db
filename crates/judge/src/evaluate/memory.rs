//! Arrays of a launch: one value per component, without checks of races, which the interpreter has
//! done.

use std::rc::Rc;

use bornite_ir::{Kernel, LocalArrayId, MemorySpan, ParamId, Scalar, SharedId, Value, View};

use super::compute::Register;
use super::{Component, Lane, Machine, Mask, NoBounds, Outcome};

/// Extents, strides and component types of an array in this launch.
pub struct BoundArray {
    dims: Vec<(i64, i64)>,
    origin: i64,
    elements: u64,
    scalars: Vec<Scalar>,
}

impl BoundArray {
    pub fn new(kernel: &Kernel, view: View, values: &[Value]) -> BoundArray {
        let info = kernel.view(view);
        let span = kernel.memory_span(info.dims, values).unwrap_or(MemorySpan { origin: 0, elements: 0 });
        BoundArray {
            dims: info.dims.iter().map(|dim| (dim.extent.resolve(values), dim.stride.resolve(values))).collect(),
            origin: span.origin as i64,
            elements: span.elements,
            scalars: info.ty.components(&kernel.structs),
        }
    }

    /// Number of components of all elements.
    pub fn len(&self) -> usize {
        self.elements as usize * self.scalars.len()
    }
}

/// Address of an access: the first component of the element, and the component if one is selected.
struct Address {
    first: usize,
    component: Option<usize>,
}

impl Machine<'_, '_> {
    fn array(&self, view: View) -> &BoundArray {
        match view {
            View::Param(ParamId(n)) => &self.params[n as usize],
            View::Shared(SharedId(n)) => &self.shared_arrays[n as usize],
            View::Local(LocalArrayId(n)) => &self.local_arrays[n as usize],
        }
    }

    fn cells(&mut self, view: View) -> &mut Vec<Lane> {
        match view {
            View::Param(ParamId(n)) => &mut self.arrays[n as usize],
            View::Shared(SharedId(n)) => &mut self.shared[n as usize],
            View::Local(LocalArrayId(n)) => &mut self.local[n as usize],
        }
    }

    /// Begins the lifetime of a local array in the active threads.
    pub(super) fn declare(&mut self, LocalArrayId(n): LocalArrayId, mask: &Mask) {
        let length = self.local_arrays[n as usize].len();
        for lane in mask.lanes() {
            self.local[n as usize][lane * length..][..length].fill(Lane::Undecided);
        }
    }

    fn address(&self, view: View, indices: &[Component], lane: usize, width: usize) -> Outcome<Address> {
        let array = self.array(view);
        let int = |index: &Component| index.int(lane).ok_or(NoBounds::Undecided("an index"));
        let mut element = array.origin;
        for (index, (_, stride)) in indices.iter().zip(&array.dims) {
            element += int(index)? * stride;
        }
        let count = array.scalars.len();
        let component = indices.get(array.dims.len()).map(int).transpose()?.map(|component| component as usize);
        let is_inside = element >= 0
            && (element as u64).saturating_add(width as u64) <= array.elements
            && component.is_none_or(|component| component < count);
        match is_inside {
            true => {
                // Each thread has its own copy of a local array.
                let copy = if matches!(view, View::Local(_)) { lane * array.len() } else { 0 };
                Ok(Address { first: copy + element as usize * count, component })
            }
            false => Err(NoBounds::Unsupported(format!("element {element} of '{}'", self.kernel.view(view).name))),
        }
    }

    pub(super) fn load(
        &mut self,
        view: View,
        indices: &[Component],
        width: usize,
        mask: &Mask,
    ) -> Outcome<Vec<Component>> {
        let scalars = self.array(view).scalars.clone();
        let by_component = indices.len() > self.array(view).dims.len();
        let mut out: Vec<Register> = match by_component {
            true => vec![],
            false => (0..width).flat_map(|_| &scalars).map(|&s| zeros(s, self.lanes)).collect(),
        };
        for lane in mask.lanes() {
            let address = self.address(view, indices, lane, width)?;
            if let Some(component) = address.component {
                if out.is_empty() {
                    out.push(zeros(scalars[component], self.lanes));
                }
                out[0].lanes[lane] = self.cells(view)[address.first + component];
                continue;
            }
            let cells = self.cells(view);
            for (n, register) in out.iter_mut().enumerate() {
                register.lanes[lane] = cells[address.first + n];
            }
        }
        Ok(out.into_iter().map(Rc::new).collect())
    }

    pub(super) fn store(
        &mut self,
        view: View,
        indices: &[Component],
        components: &[Component],
        mask: &Mask,
    ) -> Outcome<()> {
        let count = self.array(view).scalars.len();
        let width = if indices.len() > self.array(view).dims.len() { 1 } else { components.len() / count };
        for lane in mask.lanes() {
            let address = self.address(view, indices, lane, width)?;
            let first = address.first + address.component.unwrap_or(0);
            let cells = self.cells(view);
            for (n, component) in components.iter().enumerate() {
                cells[first + n] = component.lanes[lane];
            }
        }
        Ok(())
    }

    /// Replaces each component by `new(component, lane, scalar, old)`, one thread after the other;
    /// returns the old values.
    pub(super) fn atomic_update(
        &mut self,
        view: View,
        indices: &[Component],
        mask: &Mask,
        new: impl Fn(usize, usize, Scalar, Lane) -> Outcome<Lane>,
    ) -> Outcome<Vec<Component>> {
        let scalars = self.array(view).scalars.clone();
        let mut out: Vec<Register> = vec![];
        for lane in mask.lanes() {
            let address = self.address(view, indices, lane, 1)?;
            let updated = address.component.map_or(0..scalars.len(), |component| component..component + 1);
            if out.is_empty() {
                out = scalars[updated.clone()].iter().map(|&s| zeros(s, self.lanes)).collect();
            }
            for (n, component) in updated.enumerate() {
                let cell = &mut self.cells(view)[address.first + component];
                let old = *cell;
                *cell = new(n, lane, scalars[component], old)?;
                out[n].lanes[lane] = old;
            }
        }
        Ok(out.into_iter().map(Rc::new).collect())
    }
}

fn zeros(scalar: Scalar, lanes: usize) -> Register {
    Register::splat(Value::int(scalar, 0), lanes)
}
