//! What layers are made of: softmax, norms, dropout, linear maps, attention. Functions over the operations: no kernels and
//! no gradients of their own. Sums over 16-bit floats are made in f32.

use std::sync::Arc;

use crate::fused::attention::{Attention, heads_turned};
use crate::fused::fused_at;
use crate::lower::plans_as_for_gpu;
use crate::{Axes, DType, Generator, Operand, SourceLocation, Tensor};

impl Tensor {
    /// The last axes, as many as `weight` has, divided by the root of their mean square, then times `weight`.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        let axes = match self.last_axes_of("rms_norm", weight, SourceLocation::here()) {
            Ok(axes) => axes,
            Err(failed) => return failed,
        };
        let (x, narrow) = self.widen();
        let square = (&x * &x).mean_keepdim(axes);
        ((x * (square + eps).rsqrt()) * weight).narrow_to(narrow)
    }

    pub(crate) fn last_axes_of(
        &self,
        name: &'static str,
        weight: &Tensor,
        location: SourceLocation,
    ) -> Result<Axes, Tensor> {
        self.check_float(name, location)?;
        weight.check_float(name, location)?;
        let (shape, last) = (&self.0.shape, &weight.0.shape);
        if last.is_empty() || !shape.ends_with(last) {
            let message = format!("the weight has shape {last:?}, which is not the end of {shape:?}");
            return Err(Tensor::failed_at(name, message, location));
        }
        Ok(Axes::List((1..=last.len() as isize).map(|n| -n).collect()))
    }

    /// Batch normalisation as it is done after training: axis 1 by given `mean` and `variance`, then times `weight` plus
    /// `bias`; all four have that axis's length.
    #[track_caller]
    pub fn batch_norm(&self, weight: &Tensor, bias: &Tensor, mean: &Tensor, variance: &Tensor, eps: f64) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("batch_norm", location) {
            return failed;
        }
        let [_, channels, rest @ ..] = &self.0.shape[..] else {
            let message = format!("expects at least two axes, found shape {:?}", self.0.shape);
            return Tensor::failed_at("batch_norm", message, location);
        };
        for tensor in [weight, bias, mean, variance] {
            match tensor.node() {
                Err(_) => return tensor.clone(),
                Ok(node) if node.shape != [*channels] => {
                    let message = format!("axis 1 of {:?} has no parameters of shape {:?}", self.0.shape, node.shape);
                    return Tensor::failed_at("batch_norm", message, location);
                }
                Ok(_) => {}
            }
        }
        let shape = [&[*channels][..], &vec![1; rest.len()]].concat();
        let scale = (variance + eps).rsqrt() * weight;
        (self - mean.reshape(&shape)) * scale.reshape(&shape) + bias.reshape(&shape)
    }

    /// In training, each element 0 with probability `p` and else divided by 1 - p, so that the mean stays; otherwise the
    /// tensor as it is. A function under trace would repeat its choice at each call: use [`Tensor::dropout_from`] there.
    #[track_caller]
    pub fn dropout(&self, p: f64, generator: &Generator, training: bool) -> Tensor {
        let location = SourceLocation::here();
        if !training {
            return match self.probability("dropout", p, location) {
                Ok(()) => self.clone(),
                Err(failed) => failed,
            };
        }
        match self.node() {
            Ok(node) => self.dropout_from(p, &Tensor::from_slice(&generator.next(), &[2], node.device)),
            Err(_) => self.clone(),
        }
    }

    /// As [`Tensor::dropout`] in training, by a state as [`Tensor::random_bits`] takes.
    #[track_caller]
    pub fn dropout_from(&self, p: f64, state: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.probability("dropout", p, location) {
            return failed;
        }
        let words = Tensor::random_bits(state, &self.0.shape);
        let uniform = words.shr(8).cast(DType::F32) * 2f64.powi(-24);
        // With p = 1 nothing is kept, and what 1 - p would divide is not needed.
        let kept = if p < 1.0 { self / (1.0 - p) } else { self.clone() };
        uniform.ge(p).select(&kept, 0.0)
    }

    fn probability(&self, name: &'static str, p: f64, location: SourceLocation) -> Result<(), Tensor> {
        self.check_float(name, location)?;
        if (0.0..=1.0).contains(&p) {
            return Ok(());
        }
        Err(Tensor::failed_at(name, format!("a probability is from 0 to 1, found {p}"), location))
    }

    /// The last axis times `weight` (`[out, in]`), plus `bias` (`[out]`).
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(x), Ok(w)) = (self.node(), weight.node()) else {
            return if self.node().is_err() { self.clone() } else { weight.clone() };
        };
        let ([lead @ .., from], [out, into]) = (&x.shape[..], &w.shape[..]) else {
            let message = format!("expects a weight of two axes, found shapes {:?} and {:?}", x.shape, w.shape);
            return Tensor::failed_at("linear", message, location);
        };
        if from != into {
            let message =
                format!("the last axis of {:?} has not the length that the weight {:?} takes", x.shape, w.shape);
            return Tensor::failed_at("linear", message, location);
        }
        // One matrix of all rows: a batch would repeat the weight.
        let product = self.reshape(&[lead.iter().product(), *from]).matmul(&weight.t());
        let product = product.reshape(&[lead, &[*out]].concat());
        match bias {
            Some(bias) => product + bias,
            None => product,
        }
    }

    /// gelu(linear(x)).
    #[track_caller]
    pub fn fused_linear_gelu(&self, weight: &Tensor, bias: &Tensor) -> Tensor {
        self.linear(weight, Some(bias)).gelu()
    }

    /// softmax(scale · q kᵀ) v over the last two axes; leading axes broadcast. Without `scale` it is 1/√d. With `causal`
    /// a query sees the keys up to its own place, counted from the end, so that the last query sees all. A mask of bools
    /// says which keys are seen, one of numbers is added to the scores; it is broadcast to them.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let q = Tensor::linspace(-1.0, 1.0, 24, DType::F32, Device::cpu()).reshape(&[2, 3, 4]);
    /// let ones = Tensor::ones(&[2, 3, 4], DType::F32, Device::cpu());
    /// assert_eq!(Tensor::attention(&q, &q, &ones, None, true, None).to_vec::<f32>()?, [1.0; 24]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn attention(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        scale: Option<f64>,
        causal: bool,
        mask: Option<&Tensor>,
    ) -> Tensor {
        let location = SourceLocation::here();
        for input in [q, k, v] {
            if let Err(failed) = input.check_float("attention", location) {
                return failed;
            }
        }
        let ([.., queries, width], [.., keys, _], [.., values, _]) = (&q.0.shape[..], &k.0.shape[..], &v.0.shape[..])
        else {
            let message = format!("expects at least two axes, found {:?}, {:?}, {:?}", q.0.shape, k.0.shape, v.0.shape);
            return Tensor::failed_at("attention", message, location);
        };
        if keys != values || causal && queries > keys {
            let message = format!("{queries} queries, {keys} keys and {values} values do not fit");
            return Tensor::failed_at("attention", message, location);
        }
        let scale = scale.unwrap_or_else(|| 1.0 / (*width as f64).sqrt());
        let inputs = [q, k, v].into_iter().chain(mask).cloned().collect();
        let turned = plans_as_for_gpu(q.0.device) && mask.is_none() && [q, k, v].iter().all(|x| x.0.shape.len() == 4);
        let seen = fused_at(Arc::new(Attention { scale, causal, turned }), inputs, location).remove(0);
        if turned && seen.node().is_ok() { heads_turned(&seen) } else { seen }
    }

    /// `a` where `condition` is true, else `b`; numbers take the dtype of the other.
    #[track_caller]
    pub fn where_(condition: &Tensor, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        condition.select(a, b)
    }
}
