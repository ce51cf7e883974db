//! Features of random kernels that can be vectorized: loads of adjacent elements, and uniform
//! branches.

use bornite_ir::{Access, Emit, EmitBits, ExprId, Extent, Op, Scalar, Stmt, contiguous};

use super::Generator;

impl Generator {
    /// Adds a load whose index is linear in the instance number: contiguous, with an offset,
    /// strided, by rows or reversed.
    pub(super) fn neighbours(&mut self, n: usize, count: u64, index: ExprId) {
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
                self.b.load(view, index)
            }
            1 => {
                let (view, at) = (view(self, &[count + gap]), self.b.add(&index, &gap_index));
                self.b.load(view, at)
            }
            2 => {
                let view = view(self, &[2 * count + gap]);
                let twice = self.b.mul(&index, &two);
                let at = self.b.add(&twice, &gap_index);
                self.b.load(view, at)
            }
            3 => {
                let (view, at) = (view(self, &[count + gap]), self.b.sub(&last, &index));
                self.b.load(view, at)
            }
            4 => {
                let view = view(self, &[rows, row]);
                let at = [self.b.div(&index, &row_index), self.b.op(Op::Rem, &[&index, &row_index])];
                self.b.load(view, at)
            }
            5 => {
                let (view, at) = (view(self, &[row]), self.b.op(Op::Rem, &[&index, &row_index]));
                self.b.load(view, at)
            }
            _ => {
                let view = view(self, &[gap + 1]);
                self.b.load(view, gap_index)
            }
        };
        self.pool.push((value, scalar.into()));
    }

    /// Adds a uniform branch: all instances take it, or none.
    pub(super) fn uniform_branch(&mut self, depth: usize) {
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
