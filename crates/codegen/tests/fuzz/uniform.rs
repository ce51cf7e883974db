//! What random kernels have whose instances all go the same way: loads beside each other, and branches that all take.

use bornite_ir::{Access, Emit, EmitBits, ExprId, Extent, Op, Scalar, Stmt, contiguous};

use super::Generator;

impl Generator {
    /// A load whose place goes along with the instance: next to the one before, at a distance, in rows, backwards.
    pub(super) fn neighbours(&mut self, n: usize, count: u64, place: ExprId) {
        let scalar = self.random.one(&self.scalars);
        let (gap, row) = (self.random.below(20) as u64, 2 + self.random.below(90) as u64);
        let [gap_index, row_index, two] = [gap, row, 2].map(|n| self.b.index_constant(n));
        let last = self.b.index_constant(count - 1 + gap);
        let rows = (count - 1) / row + 1;
        let view = |g: &mut Self, extents: &[u64]| {
            let extents: Vec<Extent> = extents.iter().map(|&n| n.into()).collect();
            g.b.view(format!("along{n}"), scalar, &contiguous(&extents), Access::Read)
        };
        let value = match self.random.below(7) {
            0 => {
                let view = view(self, &[count]);
                self.b.load(view, place)
            }
            1 => {
                let (view, at) = (view(self, &[count + gap]), self.b.add(&place, &gap_index));
                self.b.load(view, at)
            }
            2 => {
                let view = view(self, &[2 * count + gap]);
                let twice = self.b.mul(&place, &two);
                let at = self.b.add(&twice, &gap_index);
                self.b.load(view, at)
            }
            3 => {
                let (view, at) = (view(self, &[count + gap]), self.b.sub(&last, &place));
                self.b.load(view, at)
            }
            4 => {
                let view = view(self, &[rows, row]);
                let at = [self.b.div(&place, &row_index), self.b.op(Op::Rem, &[&place, &row_index])];
                self.b.load(view, at)
            }
            5 => {
                let (view, at) = (view(self, &[row]), self.b.op(Op::Rem, &[&place, &row_index]));
                self.b.load(view, at)
            }
            _ => {
                let view = view(self, &[gap + 1]);
                self.b.load(view, gap_index)
            }
        };
        self.pool.push((value, scalar.into()));
    }

    /// A branch that all instances take, or none.
    pub(super) fn same_way(&mut self, depth: usize) {
        let [a, b] = [0, 0].map(|_| {
            let value = self.random.value(Scalar::I32);
            self.b.constant(value)
        });
        let condition = self.b.op(Op::Lt, &[&a, &b]);
        let (then, otherwise) = (1 + self.random.below(4), self.random.below(3));
        let then = self.inner(|g| g.statements(then, depth - 1));
        let otherwise = self.inner(|g| g.statements(otherwise, depth - 1));
        self.b.push_stmt(Stmt::If { condition, then, otherwise });
    }
}
