//! Linear equations, by elimination over the operations: gradients of any order come with them. Each row of the matrix is a
//! step of its own, so this is for matrices of tens of rows rather than thousands.

use bornite_ir::Op as Row;

use crate::graph::axes::Axes;
use crate::graph::infer::broadcast;
use crate::graph::node::{Op, Reduce};
use crate::ops::pointwise::map;
use crate::{DType, Place, Tensor};

impl Tensor {
    /// The inverse of the matrices in the last two axes. Of a matrix that has none, infinities and NaN.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[0.0f32, 2.0, 4.0, 0.0], &[2, 2], Device::cpu());
    /// assert_eq!(x.inverse().to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn inverse(&self) -> Tensor {
        let place = Place::here();
        let Ok(node) = self.node() else { return self.clone() };
        let rows = node.shape.iter().rev().nth(1).copied().unwrap_or(0);
        let [i, j] = [0, 1].map(|axis| Tensor::iota(&[rows, rows], axis, DType::I64, node.device, place));
        let unit = map(Row::Eq, &[&i, &j], place).cast_at(node.dtype, place);
        self.eliminated("inverse", &unit, place)
    }

    /// The x of `self` · x = `right`: matrices in the last two axes, leading axes broadcast. Rows are exchanged so that
    /// pivots are as large as can be. Where there is no solution, or there are many, infinities and NaN.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let a = Tensor::from_slice(&[1.0f64, 1.0, 1.0, -1.0], &[2, 2], Device::cpu());
    /// let b = Tensor::from_slice(&[5.0f64, 1.0], &[2, 1], Device::cpu());
    /// assert_eq!(a.solve(&b).to_vec::<f64>()?, [3.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn solve(&self, right: &Tensor) -> Tensor {
        self.eliminated("solve", right, Place::here())
    }

    fn eliminated(&self, name: &'static str, right: &Tensor, place: Place) -> Tensor {
        for side in [self, right] {
            if let Err(failed) = side.floats(name, place) {
                return failed;
            }
        }
        let ([lead @ .., n, columns], [more @ .., rows, count]) = (&self.0.shape[..], &right.0.shape[..]) else {
            let what = format!("expects at least two axes, found shapes {:?} and {:?}", self.0.shape, right.0.shape);
            return Tensor::failed(name, what, place);
        };
        if n != columns || n != rows {
            let what = match name {
                "inverse" => format!("the matrices of {:?} are not square", self.0.shape),
                _ => format!("{:?} is not square, or {:?} has not as many rows", self.0.shape, right.0.shape),
            };
            return Tensor::failed(name, what, place);
        }
        let lead = match broadcast(lead, more) {
            Ok(lead) => lead,
            Err(what) => return Tensor::failed(name, what, place),
        };
        let whole = |t: &Tensor, width: usize| t.broadcast_to(&[&lead[..], &[*n, width]].concat(), place);
        let (left, dtype) = self.wide();
        let right = right.cast_at(left.0.dtype, place);
        let both = vec![whole(&left, *n), whole(&right, *count)];
        let mut system = Tensor::build(Op::Concat(lead.len() + 1), both, place);
        for step in 0..*n {
            system = system.step(step, place);
        }
        system.narrowed(dtype)
    }

    /// The first column eliminated from all rows but row `step`, and taken away.
    fn step(&self, step: usize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let [lead @ .., rows, columns] = &node.shape[..] else { return self.clone() };
        let tall = [lead, &[*rows, 1]].concat();
        let places = Tensor::iota(&tall, lead.len(), DType::I64, node.device, place);
        let number = |t: &Tensor, value: f64| t.scalar_like(value, place);
        let here = number(&places, step as f64);
        // The largest element from this row on: rows before it had their turn. A NaN counts as largest.
        let size = map(Row::Abs, &[&self.part(-1, 0, 1, place)], place);
        let taken = map(Row::Lt, &[&places, &here], place);
        let size = map(Row::Select, &[&taken, &number(&size, -1.0), &size], place);
        let pivot = Tensor::build(Op::ArgReduce(Reduce::Max, lead.len()), vec![size], place);
        let pivot = pivot.reshape_at(&[lead, &[1, 1]].concat(), place);
        let order = map(Row::Select, &[&map(Row::Eq, &[&places, &pivot], place), &here, &places], place);
        let order = map(Row::Select, &[&map(Row::Eq, &[&places, &here], place), &pivot, &order], place);
        let order = order.broadcast_to(&node.shape, place);
        let system = Tensor::build(Op::Gather(lead.len()), vec![self.clone(), order], place);
        // Its row becomes itself over the pivot; others lose as many of it as their first element says.
        let row = system.part(-2, step, 1, place);
        let first = system.part(-1, 0, 1, place);
        let own = map(Row::Eq, &[&places, &here], place).cast_at(node.dtype, place);
        let times = map(Row::Sub, &[&first, &own], place);
        let row = map(Row::Div, &[&row.part(-1, 1, columns - 1, place), &row.part(-1, 0, 1, place)], place);
        let rest = system.part(-1, 1, columns - 1, place);
        map(Row::Sub, &[&rest, &map(Row::Mul, &[&times, &row], place)], place)
    }

    /// `len` elements of an axis, counted from the end, from `start`.
    pub(crate) fn part(&self, axis: isize, start: usize, len: usize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let mut cuts: Vec<_> = node.shape.iter().map(|&len| crate::graph::node::Cut::whole(len)).collect();
        if let Some(cut) = Axes::from(axis).resolve(cuts.len()).ok().and_then(|axes| cuts.get_mut(axes[0])) {
            (cut.start, cut.len) = (if len == 0 { 0 } else { start }, len);
        }
        Tensor::build(Op::Slice(cuts), vec![self.clone()], place)
    }
}
