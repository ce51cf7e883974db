//! Reductions over any axes. Each has a variant `_keepdim` that keeps the reduced axes as length 1.
//! Functions of several steps compute in f32 for 16-bit floats, whose squares and sums would
//! overflow.

use bornite_ir::Op as ScalarOp;

use crate::graph::infer::{constant, reduction_extents};
use crate::graph::node::{Op, Reduce};
use crate::ops::pointwise::map;
use crate::{Axes, DType, SourceLocation, Tensor};

impl Tensor {
    /// Sum over axes.
    #[track_caller]
    pub fn sum(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Sum, axes.into(), SourceLocation::here())
    }

    /// Product over axes.
    #[track_caller]
    pub fn prod(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Prod, axes.into(), SourceLocation::here())
    }

    /// Smallest element over axes. The gradient is divided evenly between ties.
    #[track_caller]
    pub fn min(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Min, axes.into(), SourceLocation::here())
    }

    /// Largest element over axes. The gradient is divided evenly between ties.
    #[track_caller]
    pub fn max(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Max, axes.into(), SourceLocation::here())
    }

    pub(crate) fn reduce(&self, reduce: Reduce, axes: Axes, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match axes.resolve(node.shape.len()) {
            Ok(axes) => self.reduce_in_stages(reduce, axes, location),
            Err(message) => Tensor::failed_at(Op::Reduce(reduce, vec![]).name(), message, location),
        }
    }

    /// Splits a large reduction to few elements into two stages, so that all processors have work
    /// and long sums lose less precision. The split depends on the shape only.
    fn reduce_in_stages(&self, reduce: Reduce, axes: Vec<usize>, location: SourceLocation) -> Tensor {
        let single_stage = Tensor::build(Op::Reduce(reduce, axes.clone()), vec![self.clone()], location);
        let Some((outer, middle, inner)) = single_stage.node().ok().and_then(reduction_extents) else {
            return single_stage;
        };
        let Some(parts) = stage_parts(outer, middle, inner) else { return single_stage };
        // Partial results of 16-bit floats are f32: rounding them would lose precision.
        let narrow = matches!(self.0.dtype, DType::F16 | DType::BF16);
        let x = if narrow { Tensor::build(Op::Cast(DType::F32), vec![self.clone()], location) } else { self.clone() };
        let x = x.reshape_at(&[outer, parts, middle / parts, inner], location);
        let partial = Tensor::build(Op::Reduce(reduce, vec![2]), vec![x], location);
        let total = partial.reduce(reduce, Axes::List(vec![1]), location).reshape_at(&single_stage.0.shape, location);
        if narrow { Tensor::build(Op::Cast(self.0.dtype), vec![total], location) } else { total }
    }

    /// The sum along an axis with only one nonzero element, as in the gradient of a gather: that
    /// element. The gather has checked the index.
    pub(crate) fn sum_of_scattered(&self, axes: &[usize], location: SourceLocation) -> Option<Tensor> {
        let node = &*self.0;
        match (&node.op, &node.inputs[..]) {
            (Op::Map(ScalarOp::Neg), [x]) if node.dtype.is_float() => {
                let sum = x.sum_of_scattered(axes, location)?;
                Some(map(ScalarOp::Neg, &[&sum], location))
            }
            (Op::ScatterAdd(axis), [base, index, values]) => {
                let zero = constant(base).is_some_and(|value| value.as_f64() == 0.0);
                let one = axes == [*axis] && index.0.shape[*axis] == 1 && zero;
                let mut shape = values.0.shape.clone();
                shape.remove(*axis);
                one.then(|| values.reshape_at(&shape, location))
            }
            _ => None,
        }
    }

    /// Mean over axes. Integers and bools become f32.
    #[track_caller]
    pub fn mean(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        let count = self.reduced_count(&axes);
        let (x, original_dtype) = self.to_float().widen();
        (x.sum(axes) / count).narrow_to(original_dtype)
    }

    /// Variance over axes: the sum of the squared deviations from the mean, divided by their number
    /// minus `correction`. 1 is the sample variance (PyTorch's default), 0 the population variance
    /// (NumPy's default).
    #[track_caller]
    pub fn var(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        let axes = axes.into();
        let (x, original_dtype) = self.to_float().widen();
        let deviation = &x - x.mean_keepdim(axes.clone());
        let degrees_of_freedom = (self.reduced_count(&axes) - correction as f64).max(0.0);
        ((&deviation * &deviation).sum(axes) / degrees_of_freedom).narrow_to(original_dtype)
    }

    /// Standard deviation over axes: the square root of [`Tensor::var`].
    #[track_caller]
    pub fn std(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        self.var(axes, correction).sqrt()
    }

    /// True where all elements over axes are true (nonzero).
    #[track_caller]
    pub fn all(&self, axes: impl Into<Axes>) -> Tensor {
        // A product and not a minimum: over an empty axis it is true.
        self.cast(DType::Bool).cast(DType::U8).prod(axes).cast(DType::Bool)
    }

    /// True where any element over axes is true (nonzero).
    #[track_caller]
    pub fn any(&self, axes: impl Into<Axes>) -> Tensor {
        self.cast(DType::Bool).not().all(axes).not()
    }

    /// The `p`-norm over axes: (Σ |x|ᵖ)^(1/p); the largest magnitude for p = ∞, the smallest for
    /// -∞, the number of nonzero elements for 0. Where the 2-norm is 0, its gradient is 0.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[3.0f32, -4.0], &[2], Device::cpu());
    /// assert_eq!(x.norm(2.0, ..).item()?, 5.0);
    /// assert_eq!(x.norm(1.0, ..).item()?, 7.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn norm(&self, p: f64, axes: impl Into<Axes>) -> Tensor {
        let (axes, (x, original_dtype)) = (axes.into(), self.to_float().widen());
        let norm = match p {
            f64::INFINITY => x.abs().max(axes),
            f64::NEG_INFINITY => x.abs().min(axes),
            0.0 => x.not_equal(0.0).cast(x.0.dtype).sum(axes),
            1.0 => x.abs().sum(axes),
            2.0 => {
                let sum = (&x * &x).sum(axes);
                let zero = sum.equal(0.0);
                zero.select(0.0, zero.select(1.0, &sum).sqrt())
            }
            _ => x.abs().pow(p).sum(axes).pow(1.0 / p),
        };
        norm.narrow_to(original_dtype)
    }

    /// The `q`-quantile of an axis, which is removed, with linear interpolation between elements;
    /// NaN if there is a NaN.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[4.0f32, 1.0, 2.0, 8.0], &[4], Device::cpu());
    /// assert_eq!(x.quantile(0.5, 0).item()?, 3.0); // the median
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn quantile(&self, q: f64, axis: isize) -> Tensor {
        let location = SourceLocation::here();
        let x = self.to_float();
        let Ok(node) = x.node() else { return x };
        let fail = |message: String| Tensor::failed_at("quantile", message, location);
        let axis = match crate::graph::axes::resolve_axis(axis, node.shape.len()) {
            Ok(axis) => axis,
            Err(message) => return fail(message),
        };
        if !(0.0..=1.0).contains(&q) {
            return fail(format!("q must be from 0 to 1, found {q}"));
        }
        let Some(last) = node.shape[axis].checked_sub(1) else {
            return fail(format!("cannot reduce an axis of length 0, shape {:?}", node.shape));
        };
        let (sorted, position) = (x.sort(axis as isize, false).0, q * last as f64);
        let element = |n: f64| sorted.narrow_at(axis as isize, n as usize, 1, location).squeeze(axis as isize);
        let (below, fraction) = (element(position.floor()), position.fract());
        // The difference of equal infinities is NaN, so it is not added where the fraction is 0.
        let value = if fraction > 0.0 { &below + (element(position.ceil()) - &below) * fraction } else { below };
        // NaN sorts to the end.
        let largest = element(last as f64);
        largest.equal(&largest).select(value, f64::NAN)
    }

    /// log Σ exp(x) over axes, computed without overflow; -∞ for an empty axis.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        let (x, original_dtype) = self.widen();
        if self.reduced_count(&axes) == 0.0 {
            return x.exp().sum(axes).log().narrow_to(original_dtype);
        }
        // The shift cancels, so it carries no gradient; an infinite shift would not cancel, so it
        // is replaced by 0.
        let largest = x.max_keepdim(axes.clone()).detach();
        let shift = largest.abs().equal(f64::INFINITY).select(0.0, &largest);
        let sum = (&x - &shift).exp().sum(axes).log();
        match sum.node() {
            Ok(node) => (&sum + shift.reshape(&node.shape)).narrow_to(original_dtype),
            Err(_) => sum,
        }
    }

    /// Integers and bools cast to f32; floats unchanged.
    #[track_caller]
    pub(crate) fn to_float(&self) -> Tensor {
        match self.node() {
            Ok(node) if !node.dtype.is_float() => self.cast(DType::F32),
            _ => self.clone(),
        }
    }

    /// Casts 16-bit floats to f32 for computations of several steps; also returns the original
    /// dtype, for [`Tensor::narrow_to`].
    #[track_caller]
    pub(crate) fn widen(&self) -> (Tensor, DType) {
        let dtype = self.0.dtype;
        if matches!(dtype, DType::F16 | DType::BF16) { (self.cast(DType::F32), dtype) } else { (self.clone(), dtype) }
    }

    /// Back from [`Tensor::wide`].
    #[track_caller]
    pub(crate) fn narrow_to(&self, dtype: DType) -> Tensor {
        if matches!(dtype, DType::F16 | DType::BF16) { self.cast(dtype) } else { self.clone() }
    }

    /// Number of elements that are reduced to one. Invalid axes are reported by the reduction
    /// itself.
    pub(crate) fn reduced_count(&self, axes: &Axes) -> f64 {
        let axes = axes.resolve(self.0.shape.len()).unwrap_or_default();
        axes.iter().map(|&a| self.0.shape[a] as f64).product()
    }

    /// A reduction of `from` with the reduced axes restored at length 1.
    #[track_caller]
    fn restore_axes(&self, from: &Tensor, axes: &Axes) -> Tensor {
        match (self.node(), axes.keepdim_shape(&from.0.shape)) {
            (Ok(_), Ok(shape)) => self.reshape(&shape),
            _ => self.clone(),
        }
    }

    /// As [`Tensor::var`]; the reduced axes keep length 1.
    #[track_caller]
    pub fn var_keepdim(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        let axes = axes.into();
        self.var(axes.clone(), correction).restore_axes(self, &axes)
    }

    /// As [`Tensor::std`]; the reduced axes keep length 1.
    #[track_caller]
    pub fn std_keepdim(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        let axes = axes.into();
        self.std(axes.clone(), correction).restore_axes(self, &axes)
    }

    /// As [`Tensor::norm`]; the reduced axes keep length 1.
    #[track_caller]
    pub fn norm_keepdim(&self, p: f64, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        self.norm(p, axes.clone()).restore_axes(self, &axes)
    }
}

macro_rules! keepdim {
    ($($name:ident $keepdim:ident;)+) => { impl Tensor { $(
        #[doc = concat!("As [`Tensor::", stringify!($name), "`]; the reduced axes keep length 1.")]
        #[track_caller]
        pub fn $keepdim(&self, axes: impl Into<Axes>) -> Tensor {
            let axes = axes.into();
            self.$name(axes.clone()).restore_axes(self, &axes)
        }
    )+ } };
}

keepdim! {
    sum sum_keepdim;
    prod prod_keepdim;
    min min_keepdim;
    max max_keepdim;
    mean mean_keepdim;
    all all_keepdim;
    any any_keepdim;
    logsumexp logsumexp_keepdim;
}

/// Number of parts of the first stage of a reduction of `middle` elements to one, for each of
/// `outer · inner`; `None` for a single stage.
fn stage_parts(outer: usize, middle: usize, inner: usize) -> Option<usize> {
    // Elements per part: a row is read by many threads, strided elements by one thread.
    let (busy, part) = if inner == 1 { (512, 8192) } else { (1 << 18, 64) };
    let results = outer * inner;
    if results == 0 || results >= busy || middle < 8 * part.min(4096) {
        return None;
    }
    let wanted = if inner == 1 { middle / part } else { (busy / results).min(middle / part) }.max(2);
    // The nearest divisor, if there is one within a factor of 4.
    (wanted / 4..=wanted.saturating_mul(4))
        .filter(|&n| n > 1 && middle.is_multiple_of(n))
        .min_by_key(|n| n.abs_diff(wanted))
}

#[cfg(test)]
mod tests {
    use super::stage_parts;

    #[test]
    fn large_reductions_to_few_elements_are_split() {
        for (reduction_extents, expected) in [
            ((1, 1 << 20, 1), Some(128)),
            ((1, 100_000_000, 1), Some(12_500)),
            ((4096, 4096, 1), None),
            ((1, 1000, 1), None),
            ((1, 65536, 768), Some(256)),
            ((65536, 64, 768), None),
            ((1, 1_000_003, 1), None), // a prime
            ((0, 1 << 20, 1), None),
        ] {
            let (outer, middle, inner) = reduction_extents;
            assert_eq!(stage_parts(outer, middle, inner), expected, "{reduction_extents:?}");
        }
    }
}
