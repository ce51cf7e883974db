//! Strided layouts of views: offsets of a view's elements in the memory of its base, and whether
//! they form a matrix.

use crate::graph::node::Op;

/// A strided layout: element `[i, j, …]` is at `offset + i · strides[0] + j · strides[1] + …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    pub offset: isize,
    pub shape: Vec<usize>,
    /// Arbitrary for axes of length 1.
    pub strides: Vec<isize>,
}

/// Layout of a batch of matrices, as libraries take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub offset: usize,
    /// If set, columns are contiguous, else rows.
    pub transposed: bool,
    /// Stride between rows (columns, if transposed).
    pub stride: usize,
    /// Stride between matrices; 0 if they are broadcast.
    pub batch_stride: usize,
}

impl Strided {
    /// The contiguous row-major layout.
    pub fn contiguous(shape: &[usize]) -> Strided {
        let mut strides = vec![0; shape.len()];
        let mut stride = 1;
        for (axis, &length) in shape.iter().enumerate().rev() {
            strides[axis] = stride;
            stride *= length as isize;
        }
        Strided { offset: 0, shape: shape.to_vec(), strides }
    }

    /// Layout of the view `op` of a tensor with this layout. `None` if it is not strided.
    pub fn apply_view(&self, op: &Op) -> Option<Strided> {
        let mut view = self.clone();
        match op {
            Op::Detach | Op::After | Op::Checkpoint(_) => {}
            Op::Permute(axes) => {
                view.shape = axes.iter().map(|&axis| self.shape[axis]).collect();
                view.strides = axes.iter().map(|&axis| self.strides[axis]).collect();
            }
            Op::Expand(to) => {
                for (axis, &length) in to.iter().enumerate() {
                    if self.shape[axis] != length {
                        view.strides[axis] = 0;
                    }
                }
                view.shape.clone_from(to);
            }
            Op::Slice(cuts) => {
                for (axis, cut) in cuts.iter().enumerate() {
                    view.offset += cut.start as isize * self.strides[axis];
                    view.strides[axis] *= cut.step;
                    view.shape[axis] = cut.len;
                }
            }
            Op::Reshape(to) => return self.reshape(to),
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) => return None,
            Op::Map(_) | Op::Cast(_) | Op::Reduce(..) | Op::Matmul | Op::Pad(..) | Op::Concat(_) => return None,
            Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_) | Op::ArgReduce(..) | Op::ArgSort { .. } => return None,
            Op::Iota { .. } | Op::Random(_) | Op::MultiOutput(_) | Op::GetOutput(_) => return None,
        }
        Some(view)
    }

    /// Layout of the input, of shape `shape`, of a view `op` whose result has this layout: the
    /// inverse of [`Strided::apply_view`]. `None` if the view does not show all of its input, or if
    /// the layout is not strided.
    pub fn invert_view(&self, op: &Op, shape: &[usize]) -> Option<Strided> {
        match op {
            Op::Detach | Op::After | Op::Checkpoint(_) => Some(self.clone()),
            Op::Permute(axes) => {
                let mut strides = vec![0; axes.len()];
                axes.iter().zip(&self.strides).for_each(|(&axis, &stride)| strides[axis] = stride);
                Some(Strided { offset: self.offset, shape: shape.to_vec(), strides })
            }
            Op::Reshape(_) => self.reshape(shape),
            Op::Expand(_) | Op::Slice(_) => None,
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) => None,
            Op::Map(_) | Op::Cast(_) | Op::Reduce(..) | Op::Matmul | Op::Pad(..) | Op::Concat(_) => None,
            Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_) | Op::ArgReduce(..) | Op::ArgSort { .. } => None,
            Op::Iota { .. } | Op::Random(_) | Op::MultiOutput(_) | Op::GetOutput(_) => None,
        }
    }

    /// Layout after a reshape without a copy. `None` if that is not strided.
    pub fn reshape(&self, to: &[usize]) -> Option<Strided> {
        let mut view = Strided { offset: self.offset, shape: to.to_vec(), strides: vec![0; to.len()] };
        if to.contains(&0) {
            return Some(view);
        }
        // Coalesced axes: length and stride, outermost first.
        let mut runs: Vec<(usize, isize)> = vec![];
        for (&length, &stride) in self.shape.iter().zip(&self.strides).filter(|(length, _)| **length != 1) {
            match runs.last_mut() {
                Some((total, inner)) if *inner == stride * length as isize => {
                    (*total, *inner) = (*total * length, stride);
                }
                _ => runs.push((length, stride)),
            }
        }
        // Each new axis must divide the coalesced axis that it falls into.
        let mut rest = (1, 0);
        for (axis, &length) in to.iter().enumerate().rev().filter(|(_, length)| **length != 1) {
            if rest.0 == 1 {
                rest = runs.pop()?;
            }
            if !rest.0.is_multiple_of(length) {
                return None;
            }
            view.strides[axis] = rest.1;
            rest = (rest.0 / length, rest.1 * length as isize);
        }
        Some(view)
    }

    /// Layout broadcast over additional leading axes.
    pub fn broadcast(self, lead: &[usize]) -> Strided {
        let Strided { offset, shape, strides } = self;
        let strides = [&vec![0; lead.len()][..], &strides].concat();
        Strided { offset, shape: [lead, &shape].concat(), strides }
    }

    /// The last two axes as a matrix, the others as a batch with one stride. `None` if the layout
    /// has another form, so that a copy is needed. No axis may be empty.
    pub fn matrix(&self) -> Option<Matrix> {
        let (&[ref lead @ .., rows, columns], &[ref lead_strides @ .., down, across]) =
            (self.shape.as_slice(), self.strides.as_slice())
        else {
            return None;
        };
        let offset = usize::try_from(self.offset).ok()?;
        let batch_stride = usize::try_from(one_stride(lead, lead_strides)?).ok()?;
        // A single line may have any stride; it gets that of the batch, with which a batch of lines
        // is one matrix.
        let stride = |lines: usize, apart: isize, width: usize, within: isize| {
            let is_contiguous = width == 1 || within == 1;
            let stride = if lines == 1 { batch_stride.max(width) } else { usize::try_from(apart).ok()? };
            (is_contiguous && stride >= width).then_some(stride)
        };
        let by_rows = stride(rows, down, columns, across).map(|stride| (false, stride));
        let (transposed, stride) =
            by_rows.or_else(|| stride(columns, across, rows, down).map(|stride| (true, stride)))?;
        Some(Matrix { offset, transposed, stride, batch_stride })
    }
}

/// Stride of these axes coalesced into one, if possible; 0 for a single element.
fn one_stride(shape: &[usize], strides: &[isize]) -> Option<isize> {
    let mut run: Option<(isize, isize)> = None;
    for (&length, &stride) in shape.iter().zip(strides).rev().filter(|(length, _)| **length != 1) {
        let length = length as isize;
        run = match run {
            None => Some((stride, stride * length)),
            Some((inner, next)) if next == stride => Some((inner, stride * length)),
            Some(_) => return None,
        };
    }
    Some(run.map_or(0, |(inner, _)| inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::node::AxisSlice;

    fn chain(shape: &[usize], ops: &[Op]) -> Option<Strided> {
        ops.iter().try_fold(Strided::contiguous(shape), |view, op| view.apply_view(op))
    }

    fn matrix(shape: &[usize], ops: &[Op]) -> Option<(usize, bool, usize, usize)> {
        let Matrix { offset, transposed, stride, batch_stride } = chain(shape, ops)?.matrix()?;
        Some((offset, transposed, stride, batch_stride))
    }

    fn cut(start: usize, step: isize, len: usize) -> AxisSlice {
        AxisSlice { start, step, len }
    }

    #[test]
    fn chains_of_views_are_matrices_if_strided() {
        let swap = || Op::Permute(vec![0, 2, 1]);
        let all = AxisSlice::full;
        assert_eq!(matrix(&[3, 4], &[]), Some((0, false, 4, 0)));
        assert_eq!(matrix(&[3, 4], &[Op::Permute(vec![1, 0])]), Some((0, true, 4, 0)));
        assert_eq!(matrix(&[2, 3, 4], &[swap()]), Some((0, true, 4, 12)));
        assert_eq!(matrix(&[2, 3, 4], &[swap(), swap(), Op::Detach]), Some((0, false, 4, 12)));
        // Attention heads: [b, t, h · d] as [b, h, t, d]. Two batch axes with unrelated strides are
        // not a batch, one is.
        let heads = |b: usize| vec![Op::Reshape(vec![b, 5, 3, 8]), Op::Permute(vec![0, 2, 1, 3])];
        assert_eq!(matrix(&[1, 5, 24], &heads(1)), Some((0, false, 24, 8)));
        assert_eq!(matrix(&[2, 5, 24], &heads(2)), None);
        // Broadcast weights.
        let spread = [Op::Reshape(vec![1, 4, 5]), Op::Expand(vec![7, 4, 5])];
        assert_eq!(matrix(&[4, 5], &spread), Some((0, false, 5, 0)));
        assert_eq!(matrix(&[4, 5], &[&spread[..], &[swap()]].concat()), Some((0, true, 5, 0)));
        assert_eq!(matrix(&[3, 1, 4, 5], &[Op::Expand(vec![3, 2, 4, 5])]), None, "broadcast within the batch");
        assert_eq!(matrix(&[1, 1, 4, 5], &[Op::Expand(vec![3, 2, 4, 5])]), Some((0, false, 5, 0)));
        // Slices: an offset and a stride; every other row. Every other column, and negative
        // strides, are not supported.
        assert_eq!(matrix(&[6, 10], &[Op::Slice(vec![cut(1, 1, 4), cut(3, 1, 5)])]), Some((13, false, 10, 0)));
        assert_eq!(matrix(&[6, 10], &[Op::Slice(vec![cut(1, 2, 3), all(10)])]), Some((10, false, 20, 0)));
        assert_eq!(matrix(&[6, 10], &[Op::Slice(vec![all(6), cut(0, 2, 5)])]), None);
        assert_eq!(matrix(&[6, 10], &[Op::Slice(vec![cut(5, -1, 6), all(10)])]), None);
        assert_eq!(matrix(&[6, 10], &[Op::Slice(vec![cut(2, 1, 1), cut(0, 2, 5)])]), Some((20, true, 2, 0)), "one row");
        assert_eq!(matrix(&[6, 10], &[Op::Slice(vec![all(6), cut(4, 1, 1)])]), Some((4, false, 10, 0)));
        // Broadcast rows or columns are not supported.
        assert_eq!(matrix(&[1, 4], &[Op::Expand(vec![3, 4])]), None);
        assert_eq!(matrix(&[3, 1], &[Op::Expand(vec![3, 4])]), None);
        // A single line is a matrix in either orientation; lines of a batch are rows.
        assert_eq!(matrix(&[1, 4], &[Op::Permute(vec![1, 0])]), Some((0, false, 1, 0)));
        assert_eq!(matrix(&[9, 1, 4], &[]), Some((0, false, 4, 4)));
        assert_eq!(matrix(&[9, 2, 4], &[Op::Slice(vec![all(9), cut(1, 1, 1), all(4)])]), Some((4, false, 8, 8)));
        assert_eq!(matrix(&[4], &[]), None, "one axis is not a matrix");
    }

    #[test]
    fn reshapes_split_and_merge_axes_if_strided() {
        let strides = |shape: &[usize], ops: &[Op]| chain(shape, ops).map(|view| view.strides);
        assert_eq!(strides(&[4, 6], &[Op::Reshape(vec![2, 2, 3, 2])]), Some(vec![12, 6, 2, 1]));
        assert_eq!(strides(&[4, 6], &[Op::Reshape(vec![3, 8])]), Some(vec![8, 1]));
        assert_eq!(strides(&[4, 6], &[Op::Permute(vec![1, 0]), Op::Reshape(vec![24])]), None);
        assert_eq!(strides(&[4, 6], &[Op::Permute(vec![1, 0]), Op::Reshape(vec![2, 3, 4])]), Some(vec![3, 1, 6]));
        assert_eq!(strides(&[4, 6], &[Op::Permute(vec![1, 0]), Op::Reshape(vec![3, 8])]), None);
        assert_eq!(strides(&[1, 6], &[Op::Expand(vec![4, 6]), Op::Reshape(vec![2, 2, 6])]), Some(vec![0, 0, 1]));
        assert_eq!(strides(&[2, 3], &[Op::Reshape(vec![1, 6, 1])]).map(|s| s[1]), Some(1));
        assert_eq!(chain(&[0, 3], &[Op::Reshape(vec![3, 0])]).map(|view| view.shape), Some(vec![3, 0]));
    }

    #[test]
    fn invert_view_is_the_inverse_of_apply_view() {
        let shape = [2, 3, 4];
        let views = [
            vec![Op::Permute(vec![2, 0, 1])],
            vec![Op::Permute(vec![1, 0, 2]), Op::Reshape(vec![3, 8])],
            vec![Op::Reshape(vec![6, 4]), Op::Permute(vec![1, 0]), Op::Reshape(vec![4, 2, 3]), Op::Detach],
        ];
        for views in views {
            let mut shapes = vec![shape.to_vec()];
            for op in &views {
                let next = Strided::contiguous(&shapes[shapes.len() - 1]).apply_view(op).unwrap();
                shapes.push(next.shape);
            }
            // The last view has an arbitrary layout; applying the views to the inverted layout
            // gives it back.
            let last = shapes.pop().unwrap();
            let strides = [1000, 100, 10].into_iter().take(last.len()).collect();
            let layout = Strided { offset: 7, shape: last, strides };
            let mut inverse = views.iter().rev().zip(shapes.iter().rev());
            let inverse = inverse.try_fold(layout.clone(), |layout, (op, shape)| layout.invert_view(op, shape));
            match inverse {
                Some(inverse) => {
                    assert_eq!(inverse.shape, shape);
                    assert_eq!(views.iter().try_fold(inverse, |layout, op| layout.apply_view(op)), Some(layout));
                }
                // A reshape of axes whose strides do not coalesce has no inverse.
                None => assert!(views.iter().any(|op| matches!(op, Op::Reshape(_)))),
            }
        }
        let cut = Op::Slice(vec![AxisSlice { start: 1, step: 1, len: 2 }]);
        assert_eq!(Strided::contiguous(&[2]).invert_view(&cut, &[3]), None, "the slice does not show all of its input");
    }

    /// Layouts of random chains of views give the offset of every element.
    #[test]
    fn layouts_give_the_offset_of_every_element() {
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let index = |mut flat: usize, shape: &[usize]| {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                (index[axis], flat) = (flat % shape[axis], flat / shape[axis]);
            }
            index
        };
        let flat = |index: &[usize], shape: &[usize]| index.iter().zip(shape).fold(0, |n, (&i, &len)| n * len + i);
        let mut found = 0;
        for _ in 0..2000 {
            let mut view = Strided::contiguous(&[2, 3, 4]);
            let mut expected: Vec<usize> = (0..24).collect();
            for _ in 0..4 {
                let from = view.shape.clone();
                let op = match random(4) {
                    0 => {
                        let shift = random(from.len());
                        Op::Permute((0..from.len()).map(|axis| (axis + shift) % from.len()).collect())
                    }
                    1 => {
                        let total: usize = from.iter().product();
                        let first = [4, 3, 2, 1][random(4)];
                        let first = if total.is_multiple_of(first) { first } else { 1 };
                        Op::Reshape(vec![first, 1, total / first])
                    }
                    2 => Op::Expand(from.iter().map(|&len| if len == 1 { 3 } else { len }).collect()),
                    _ => Op::Slice(
                        from.iter().map(|&len| if len > 2 { cut(2, -1, 2) } else { cut(0, 1, len) }).collect(),
                    ),
                };
                let Some(next) = view.apply_view(&op) else { break };
                let positions = (0..next.shape.iter().product()).map(|n| {
                    let to = index(n, &next.shape);
                    let source = match &op {
                        Op::Permute(axes) => {
                            let mut source = vec![0; to.len()];
                            axes.iter().enumerate().for_each(|(n, &axis)| source[axis] = to[n]);
                            source
                        }
                        Op::Reshape(_) => index(n, &from),
                        Op::Expand(_) => to.iter().zip(&from).map(|(&i, &len)| if len == 1 { 0 } else { i }).collect(),
                        Op::Slice(cuts) => {
                            let at =
                                |(&i, cut): (&usize, &AxisSlice)| (cut.start as isize + cut.step * i as isize) as usize;
                            to.iter().zip(cuts).map(at).collect()
                        }
                        _ => to,
                    };
                    expected[flat(&source, &from)]
                });
                (expected, view) = (positions.collect(), next);
                found += 1;
            }
            for (n, &expected) in expected.iter().enumerate() {
                let at = index(n, &view.shape).iter().zip(&view.strides).map(|(&i, s)| i as isize * s).sum::<isize>();
                assert_eq!((view.offset + at) as usize, expected, "{view:?}");
            }
        }
        assert!(found > 4000, "{found} views were followed");
    }
}
