//! Views: changes of shape and axis order. None of them copies elements except [`Tensor::repeat`].

use crate::graph::axes::resolve_axis;
use crate::graph::node::{AxisSlice, Op};
use crate::{Axes, SourceLocation, Tensor};

impl Tensor {
    /// The same elements in another shape.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Tensor {
        self.reshape_at(shape, SourceLocation::here())
    }

    pub(crate) fn reshape_at(&self, shape: &[usize], location: SourceLocation) -> Tensor {
        match self.node() {
            Ok(node) if node.shape == shape => self.clone(),
            _ => Tensor::build(Op::Reshape(shape.to_vec()), vec![self.clone()], location),
        }
    }

    /// Permutes the axes: axis `n` of the result is axis `axes[n]` of this tensor.
    #[track_caller]
    pub fn permute(&self, axes: &[usize]) -> Tensor {
        Tensor::build(Op::Permute(axes.to_vec()), vec![self.clone()], SourceLocation::here())
    }

    /// Reverses one axis.
    pub(crate) fn flip_at(&self, axis: usize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let mut slices: Vec<AxisSlice> = node.shape.iter().map(|&len| AxisSlice::full(len)).collect();
        if let Some(cut) = slices.get_mut(axis).filter(|cut| cut.len > 0) {
            (cut.start, cut.step) = (cut.len - 1, -1);
        }
        Tensor::build(Op::Slice(slices), vec![self.clone()], location)
    }

    /// Swaps two axes.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        self.transpose_at(a, b, SourceLocation::here())
    }

    pub(crate) fn transpose_at(&self, a: isize, b: isize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let rank = node.shape.len();
        match (resolve_axis(a, rank), resolve_axis(b, rank)) {
            (Ok(a), Ok(b)) => {
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.swap(a, b);
                Tensor::build(Op::Permute(axes), vec![self.clone()], location)
            }
            (Err(message), _) | (_, Err(message)) => Tensor::failed_at("transpose", message, location),
        }
    }

    /// Broadcasts to `shape`: repeats axes of length 1 and adds leading axes.
    #[track_caller]
    pub fn expand(&self, shape: &[usize]) -> Tensor {
        self.broadcast_to(shape, SourceLocation::here())
    }

    pub(crate) fn broadcast_to(&self, shape: &[usize], location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        if node.shape == shape {
            return self.clone();
        }
        let missing = shape.len().saturating_sub(node.shape.len());
        let padded = [&vec![1; missing][..], &node.shape].concat();
        Tensor::build(Op::Expand(shape.to_vec()), vec![self.reshape_at(&padded, location)], location)
    }

    /// Inserts an axis of length 1 at position `axis` of the result.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let rank = node.shape.len() as isize + 1;
        let position = if axis < 0 { axis + rank } else { axis };
        let location = SourceLocation::here();
        if !(0..rank).contains(&position) {
            return Tensor::failed_at(
                "unsqueeze",
                format!("axis {axis} is out of range for a result of rank {rank}"),
                location,
            );
        }
        let mut shape = node.shape.clone();
        shape.insert(position as usize, 1);
        self.reshape_at(&shape, location)
    }

    /// Removes the given axes, which must have length 1; `..` removes all axes of length 1.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Tensor {
        let (location, axes) = (SourceLocation::here(), axes.into());
        let Ok(node) = self.node() else { return self.clone() };
        let all = matches!(axes, Axes::All);
        let axes = match axes.resolve(node.shape.len()) {
            Ok(axes) => axes,
            Err(message) => return Tensor::failed_at("squeeze", message, location),
        };
        if let Some(axis) = axes.iter().find(|&&a| !all && node.shape[a] != 1) {
            let message = format!("axis {axis} of {:?} has length {}, not 1", node.shape, node.shape[*axis]);
            return Tensor::failed_at("squeeze", message, location);
        }
        let kept = |a: &usize| !axes.contains(a) || node.shape[*a] != 1;
        let shape: Vec<usize> = (0..node.shape.len()).filter(kept).map(|a| node.shape[a]).collect();
        self.reshape_at(&shape, location)
    }

    /// Merges axes `first` to `last`, both included, into one.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::zeros(&[2, 3, 4], DType::F32, Device::cpu());
    /// assert_eq!(x.flatten(1, -1).shape()?, [2, 12]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn flatten(&self, first: isize, last: isize) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        if node.shape.is_empty() && matches!((first, last), (0 | -1, 0 | -1)) {
            return self.reshape_at(&[1], location);
        }
        match (resolve_axis(first, node.shape.len()), resolve_axis(last, node.shape.len())) {
            (Ok(first), Ok(last)) if first <= last => {
                let merged = node.shape[first..=last].iter().product();
                let shape = [&node.shape[..first], &[merged], &node.shape[last + 1..]].concat();
                self.reshape_at(&shape, location)
            }
            (Ok(first), Ok(last)) => {
                Tensor::failed_at("flatten", format!("axis {last} is before axis {first}"), location)
            }
            (Err(message), _) | (_, Err(message)) => Tensor::failed_at("flatten", message, location),
        }
    }

    /// Swaps the last two axes.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        self.transpose_at(-1, -2, SourceLocation::here())
    }

    /// Moves an axis to another position; the others keep their order.
    #[track_caller]
    pub fn movedim(&self, from: isize, to: isize) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        let rank = node.shape.len();
        match (resolve_axis(from, rank), resolve_axis(to, rank)) {
            (Ok(from), Ok(to)) => {
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.remove(from);
                axes.insert(to, from);
                Tensor::build(Op::Permute(axes), vec![self.clone()], location)
            }
            (Err(message), _) | (_, Err(message)) => Tensor::failed_at("movedim", message, location),
        }
    }

    /// Repeats the tensor `counts[n]` times along each axis; counts beyond the rank add leading
    /// axes.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1i32, 2], &[2], Device::cpu());
    /// assert_eq!(x.repeat(&[2, 2]).to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn repeat(&self, counts: &[usize]) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        let Some(missing) = counts.len().checked_sub(node.shape.len()) else {
            let message = format!(
                "the number of counts is {}, but shape {:?} has rank {}",
                counts.len(),
                node.shape,
                node.shape.len()
            );
            return Tensor::failed_at("repeat", message, location);
        };
        let padded = [&vec![1; missing][..], &node.shape].concat();
        let Some(shape) = padded.iter().zip(counts).map(|(&len, &n)| len.checked_mul(n)).collect::<Option<Vec<_>>>()
        else {
            return Tensor::failed_at("repeat", "more elements than memory can hold".into(), location);
        };
        let separated: Vec<usize> = padded.iter().flat_map(|&len| [1, len]).collect();
        let repeated: Vec<usize> = padded.iter().zip(counts).flat_map(|(&len, &n)| [n, len]).collect();
        self.reshape_at(&separated, location).broadcast_to(&repeated, location).reshape_at(&shape, location)
    }
}
