//! Reductions over any axes. Each has a spelling whose axes vanish and one, `_keep`, whose axes stay with length 1. Those of
//! several steps make them in f32 where elements are 16-bit floats: squares and sums of them would overflow.

use bornite_ir::Op as ScalarOp;

use crate::graph::infer::{constant, reduction_extents};
use crate::graph::node::{Op, Reduce};
use crate::ops::pointwise::map;
use crate::{Axes, DType, SourceLocation, Tensor};

impl Tensor {
    /// Sum over axes, which vanish.
    #[track_caller]
    pub fn sum(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Sum, axes.into(), SourceLocation::here())
    }

    /// Product over axes, which vanish.
    #[track_caller]
    pub fn prod(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Prod, axes.into(), SourceLocation::here())
    }

    /// Smallest element over axes, which vanish. Ties share the gradient.
    #[track_caller]
    pub fn min(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Min, axes.into(), SourceLocation::here())
    }

    /// Largest element over axes, which vanish. Ties share the gradient.
    #[track_caller]
    pub fn max(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Max, axes.into(), SourceLocation::here())
    }

    pub(crate) fn reduce(&self, reduce: Reduce, axes: Axes, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match axes.resolve(node.shape.len()) {
            Ok(axes) => self.reduce_in_parts(reduce, axes, location),
            Err(message) => Tensor::failed_at(Op::Reduce(reduce, vec![]).name(), message, location),
        }
    }

    /// A reduction to few elements of many is one to more elements, then one of these: there is work for all processors, and
    /// sums of many lose less. What is split how depends on the shape alone.
    fn reduce_in_parts(&self, reduce: Reduce, axes: Vec<usize>, location: SourceLocation) -> Tensor {
        let whole = Tensor::build(Op::Reduce(reduce, axes.clone()), vec![self.clone()], location);
        let Some((outer, middle, inner)) = whole.node().ok().and_then(reduction_extents) else { return whole };
        let Some(parts) = parts(outer, middle, inner) else { return whole };
        // Parts of 16-bit floats are f32: rounded, they would lose what the sum is for.
        let narrow = matches!(self.0.dtype, DType::F16 | DType::BF16);
        let x = if narrow { Tensor::build(Op::Cast(DType::F32), vec![self.clone()], location) } else { self.clone() };
        let x = x.reshape_at(&[outer, parts, middle / parts, inner], location);
        let some = Tensor::build(Op::Reduce(reduce, vec![2]), vec![x], location);
        let all = some.reduce(reduce, Axes::List(vec![1]), location).reshape_at(&whole.0.shape, location);
        if narrow { Tensor::build(Op::Cast(self.0.dtype), vec![all], location) } else { all }
    }

    /// The sum along an axis of which only one element is not 0, which is what gradients of picked elements are: that
    /// element. Whether the index is good was asked when the element was picked.
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

    /// Mean over axes, which vanish. Integers and bools become f32.
    #[track_caller]
    pub fn mean(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        let count = self.count(&axes);
        let (x, narrow) = self.to_float().widen();
        (x.sum(axes) / count).narrow_to(narrow)
    }

    /// Variance over axes, which vanish: the squared distances from the mean, summed and divided by their number less
    /// `correction`. 1 is the estimate from a sample (as PyTorch has it), 0 that of a whole (as NumPy has it).
    #[track_caller]
    pub fn var(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        let axes = axes.into();
        let (x, narrow) = self.to_float().widen();
        let distance = &x - x.mean_keepdim(axes.clone());
        let freedom = (self.count(&axes) - correction as f64).max(0.0);
        ((&distance * &distance).sum(axes) / freedom).narrow_to(narrow)
    }

    /// Standard deviation over axes, which vanish: the root of [`Tensor::var`].
    #[track_caller]
    pub fn std(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        self.var(axes, correction).sqrt()
    }

    /// True where all elements over axes, which vanish, are true (or not 0).
    #[track_caller]
    pub fn all(&self, axes: impl Into<Axes>) -> Tensor {
        // A product rather than a minimum: over nothing it is true.
        self.cast(DType::Bool).cast(DType::U8).prod(axes).cast(DType::Bool)
    }

    /// True where any element over axes, which vanish, is true (or not 0).
    #[track_caller]
    pub fn any(&self, axes: impl Into<Axes>) -> Tensor {
        self.cast(DType::Bool).not().all(axes).not()
    }

    /// The `p`-norm over axes, which vanish: (Σ |x|ᵖ)^(1/p); the largest size for infinity, the smallest for minus
    /// infinity, the number of elements that are not 0 for 0. Where the 2-norm is 0, so is its gradient.
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
        let (axes, (x, narrow)) = (axes.into(), self.to_float().widen());
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
        norm.narrow_to(narrow)
    }

    /// The number below which the share `q` of an axis lies, which vanishes; between two elements, as far between as `q`
    /// says. Where there is a NaN, NaN.
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
            return fail(format!("a share is from 0 to 1, found {q}"));
        }
        let Some(last) = node.shape[axis].checked_sub(1) else {
            return fail(format!("has no value over an axis of length 0, shape {:?}", node.shape));
        };
        let (sorted, at) = (x.sort(axis as isize, false).0, q * last as f64);
        let element = |n: f64| sorted.narrow_at(axis as isize, n as usize, 1, location).squeeze(axis as isize);
        let (below, between) = (element(at.floor()), at.fract());
        // Between equal infinities there is no number, so nothing is added where nothing is between.
        let value = if between > 0.0 { &below + (element(at.ceil()) - &below) * between } else { below };
        // NaN is sorted to the end.
        let largest = element(last as f64);
        largest.equal(&largest).select(value, f64::NAN)
    }

    /// log Σ exp(x) over axes, which vanish, computed without overflow; over nothing it is -∞.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        let (x, narrow) = self.widen();
        if self.count(&axes) == 0.0 {
            return x.exp().sum(axes).log().narrow_to(narrow);
        }
        // The shift cancels, so it carries no gradient; by an infinity it would not, so there is none.
        let largest = x.max_keepdim(axes.clone()).detach();
        let shift = largest.abs().equal(f64::INFINITY).select(0.0, &largest);
        let sum = (&x - &shift).exp().sum(axes).log();
        match sum.node() {
            Ok(node) => (&sum + shift.reshape(&node.shape)).narrow_to(narrow),
            Err(_) => sum,
        }
    }

    /// This as floats: integers and bools become f32.
    #[track_caller]
    pub(crate) fn to_float(&self) -> Tensor {
        match self.node() {
            Ok(node) if !node.dtype.is_float() => self.cast(DType::F32),
            _ => self.clone(),
        }
    }

    /// This in a dtype to compute sums of many steps in: 16-bit floats become f32. With it, the dtype to go back to.
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

    /// How many elements are reduced to one. Bad axes are found by the reduction itself.
    pub(crate) fn count(&self, axes: &Axes) -> f64 {
        let axes = axes.resolve(self.0.shape.len()).unwrap_or_default();
        axes.iter().map(|&a| self.0.shape[a] as f64).product()
    }

    /// A reduction of `from` with its axes back.
    #[track_caller]
    fn with_axes(&self, from: &Tensor, axes: &Axes) -> Tensor {
        match (self.node(), axes.kept(&from.0.shape)) {
            (Ok(_), Ok(shape)) => self.reshape(&shape),
            _ => self.clone(),
        }
    }

    /// As [`Tensor::var`]; the axes stay with length 1.
    #[track_caller]
    pub fn var_keepdim(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        let axes = axes.into();
        self.var(axes.clone(), correction).with_axes(self, &axes)
    }

    /// As [`Tensor::std`]; the axes stay with length 1.
    #[track_caller]
    pub fn std_keepdim(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        let axes = axes.into();
        self.std(axes.clone(), correction).with_axes(self, &axes)
    }

    /// As [`Tensor::norm`]; the axes stay with length 1.
    #[track_caller]
    pub fn norm_keepdim(&self, p: f64, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        self.norm(p, axes.clone()).with_axes(self, &axes)
    }
}

macro_rules! keep {
    ($($name:ident $keep:ident;)+) => { impl Tensor { $(
        #[doc = concat!("As [`Tensor::", stringify!($name), "`]; the axes stay with length 1.")]
        #[track_caller]
        pub fn $keep(&self, axes: impl Into<Axes>) -> Tensor {
            let axes = axes.into();
            self.$name(axes.clone()).with_axes(self, &axes)
        }
    )+ } };
}

keep! {
    sum sum_keepdim;
    prod prod_keepdim;
    min min_keepdim;
    max max_keepdim;
    mean mean_keepdim;
    all all_keepdim;
    any any_keepdim;
    logsumexp logsumexp_keepdim;
}

/// In how many parts to reduce `middle` elements to one, for each of `outer · inner`; `None` for one.
fn parts(outer: usize, middle: usize, inner: usize) -> Option<usize> {
    // Elements of a part: rows are read by many threads together, what lies apart by one thread each.
    let (busy, part) = if inner == 1 { (512, 8192) } else { (1 << 18, 64) };
    let results = outer * inner;
    if results == 0 || results >= busy || middle < 8 * part.min(4096) {
        return None;
    }
    let wanted = if inner == 1 { middle / part } else { (busy / results).min(middle / part) }.max(2);
    // The nearest number that divides evenly, if one is near.
    (wanted / 4..=wanted.saturating_mul(4))
        .filter(|&n| n > 1 && middle.is_multiple_of(n))
        .min_by_key(|n| n.abs_diff(wanted))
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn few_results_of_many_elements_are_made_in_parts() {
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
            assert_eq!(parts(outer, middle, inner), expected, "{reduction_extents:?}");
        }
    }
}
