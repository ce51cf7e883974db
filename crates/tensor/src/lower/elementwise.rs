//! Elementwise kernels: some adjacent elements per thread.

use bornite_ir::{ExprId, Op as ScalarOp, ParamId};

use super::group::Group;
use super::lowering::{Coordinates, KernelShape, Lowering};

/// An elementwise kernel.
#[derive(Default)]
pub(super) struct Elementwise {
    /// The first element of the thread.
    first: Option<ExprId>,
}

impl KernelShape for Elementwise {
    fn own_element(&self) -> Option<ExprId> {
        self.first
    }
}

impl Lowering<Elementwise> {
    pub(super) fn elements(&mut self, group: &Group, outs: &[ParamId]) {
        let index = self.b.index();
        let first = if self.lanes == 1 { index } else { self.index_op(ScalarOp::Mul, index, self.lanes) };
        self.shape.first = Some(first);
        // All values before the first store, since an output may overwrite an input.
        let values: Vec<Vec<ExprId>> = (group.outputs.iter())
            .map(|output| self.output_values(output, &Coordinates::linear(first, &output.0.shape)))
            .collect();
        for ((output, &out), values) in group.outputs.iter().zip(outs).zip(values) {
            self.store(out, first, values, output.0.dtype);
        }
    }
}
