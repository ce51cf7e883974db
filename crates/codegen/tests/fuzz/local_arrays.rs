//! Local arrays of random kernels: one to three dimensions, elements of any type, accessed by
//! element, by component, and several at once.

use bornite_ir::{Args, ExprId, LocalArrayId, Scalar, Stmt, Type};

use super::Generator;

/// Local array with all elements initialized.
#[derive(Clone)]
pub(super) struct Array {
    id: LocalArrayId,
    ty: Type,
    extents: Vec<u64>,
    /// Elements along the last dimension that can be accessed at once.
    width: u8,
}

impl Generator {
    /// Adds up to two local arrays and stores all of their elements.
    pub(super) fn local_arrays(&mut self) {
        for n in 0..self.random.below(3) {
            let ty = self.random_type();
            let mut extents: Vec<u64> =
                (0..1 + self.random.below(3)).map(|_| 1 + self.random.below(4) as u64).collect();
            let width = match ty {
                Type::Scalar(scalar) if scalar != Scalar::Bool && scalar.bytes() <= 8 => 2,
                _ => 1,
            };
            if let Some(last) = extents.last_mut() {
                *last *= width as u64;
            }
            let id = self.b.local_array(format!("array{n}"), ty, &extents);
            let array = Array { id, ty, extents, width };
            self.initialize(&array);
            self.arrays.push(array);
        }
    }

    fn initialize(&mut self, array: &Array) {
        let value = self.pick(array.ty);
        for at in 0..array.extents.iter().product() {
            let mut rest: u64 = at;
            let mut indices: Vec<ExprId> = (array.extents.iter().rev())
                .map(|extent| {
                    let index = self.b.index_constant(rest % extent);
                    rest /= extent;
                    index
                })
                .collect();
            indices.reverse();
            if let Some(indices) = Args::new(&indices) {
                self.b.store(array.id, indices, value);
            }
        }
    }

    /// Loads or stores an element, a component of it or two elements of a local array, or begins
    /// its lifetime anew.
    pub(super) fn local_access(&mut self) {
        let array = self.arrays[self.random.below(self.arrays.len())].clone();
        if self.random.below(8) == 0 {
            self.b.push_stmt(Stmt::Declare(array.id));
            return self.initialize(&array);
        }
        let wide = array.width > 1 && self.random.below(3) == 0;
        let mut indices: Vec<ExprId> = array.extents.iter().map(|&extent| self.within(extent, None)).collect();
        if let (true, Some(last)) = (wide, indices.last_mut()) {
            let pairs = array.extents.last().map_or(1, |extent| extent / 2);
            *last = self.b.index_constant(2 * self.random.below(pairs as usize) as u64);
        }
        let part = (array.ty.as_scalar().is_none() && self.random.below(2) == 0).then(|| self.component(array.ty));
        indices.extend(part.map(|(index, _)| index));
        let Some(indices) = Args::new(&indices) else { return };
        let ty = match (array.ty, wide) {
            (Type::Scalar(scalar), true) => Type::Vector(scalar, 2),
            (ty, _) => part.map_or(ty, |(_, scalar)| scalar.into()),
        };
        if self.random.below(2) == 0 {
            let value = self.pick(ty);
            return self.b.store(array.id, indices, value);
        }
        if wide {
            let value = self.b.load_wide(array.id, indices, 2);
            let value = self.b.extract(value, self.random.below(2) as u32);
            return self.pool.push((value, array.ty));
        }
        let value = self.b.load(array.id, indices);
        self.pool.push((value, ty));
    }
}
