//! Building blocks of layers: norms, dropout, linear maps, attention. Functions over other ops,
//! without kernels or gradients of their own. Sums over 16-bit floats are computed in f32.

use std::sync::Arc;

use crate::fused::attention::{Attention, repeat_shared_heads, swap_heads_and_tokens};
use crate::fused::fused_at;
use crate::lower::plans_as_for_gpu;
use crate::{Axes, DType, Generator, Operand, SourceLocation, Tensor};

impl Tensor {
    /// RMS normalization over the trailing axes (as many as `weight` has): divides by the root mean
    /// square and multiplies by `weight`.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        let axes = match self.normalized_axes("rms_norm", weight, SourceLocation::here()) {
            Ok(axes) => axes,
            Err(failed) => return failed,
        };
        let (x, original_dtype) = self.widen();
        let square = (&x * &x).mean_keepdim(axes);
        ((x * (square + eps).rsqrt()) * weight).narrow_to(original_dtype)
    }

    /// The trailing axes that a norm with this weight normalizes.
    pub(crate) fn normalized_axes(
        &self,
        name: &'static str,
        weight: &Tensor,
        location: SourceLocation,
    ) -> Result<Axes, Tensor> {
        self.check_float(name, location)?;
        weight.check_float(name, location)?;
        let (shape, last) = (&self.0.shape, &weight.0.shape);
        if last.is_empty() || !shape.ends_with(last) {
            let message = format!("weight has shape {last:?}, which does not match the last axes of {shape:?}");
            return Err(Tensor::failed_at(name, message, location));
        }
        Ok(Axes::List((1..=last.len() as isize).map(|n| -n).collect()))
    }

    /// Batch normalization for inference: normalizes axis 1 by `mean` and `variance`, multiplies by
    /// `weight` and adds `bias`. All four have the length of that axis.
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
        if let Err(failed) =
            self.check_channel_parameters("batch_norm", &[weight, bias, mean, variance], *channels, location)
        {
            return failed;
        }
        let shape = [&[*channels][..], &vec![1; rest.len()]].concat();
        let scale = (variance + eps).rsqrt() * weight;
        (self - mean.reshape(&shape)) * scale.reshape(&shape) + bias.reshape(&shape)
    }

    /// Group normalization of `[n, channels, …]`: normalizes the elements of each of `groups`
    /// groups of channels to mean 0 and variance 1, then multiplies by `weight` and adds `bias`,
    /// which have one element per channel. With one group per channel it is instance normalization.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 3.0, -8.0, 8.0], &[1, 4], Device::cpu());
    /// let y = x.group_norm(2, None, None, 0.0).to_vec::<f32>()?;
    /// assert!(y.iter().zip([-1.0, 1.0, -1.0, 1.0]).all(|(y, expected)| (y - expected).abs() < 1e-6));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn group_norm(&self, groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Tensor {
        let (name, location) = ("group_norm", SourceLocation::here());
        if let Err(failed) = self.check_float(name, location) {
            return failed;
        }
        let (n, channels, rest) = match &self.0.shape[..] {
            [n, channels, rest @ ..] if groups > 0 && channels.is_multiple_of(groups) => (*n, *channels, rest),
            shape => {
                let message = format!(
                    "expected [n, channels, …] with channels in {groups} groups of equal size, found shape {shape:?}"
                );
                return Tensor::failed_at(name, message, location);
            }
        };
        let parameters: Vec<&Tensor> = [weight, bias].into_iter().flatten().collect();
        if let Err(failed) = self.check_channel_parameters(name, &parameters, channels, location) {
            return failed;
        }
        let (x, original_dtype) = self.widen();
        let grouped = x.reshape(&[n, groups, channels / groups * rest.iter().product::<usize>()]);
        let centered = &grouped - grouped.mean_keepdim(-1);
        let variance = (&centered * &centered).mean_keepdim(-1);
        let mut y = (centered * (variance + eps).rsqrt()).reshape(&self.0.shape);
        let shape = [&[channels][..], &vec![1; rest.len()]].concat();
        if let Some(weight) = weight {
            y *= weight.reshape(&shape);
        }
        if let Some(bias) = bias {
            y += bias.reshape(&shape);
        }
        y.narrow_to(original_dtype)
    }

    /// Checks that parameters have one element per channel.
    pub(crate) fn check_channel_parameters(
        &self,
        name: &'static str,
        parameters: &[&Tensor],
        channels: usize,
        location: SourceLocation,
    ) -> Result<(), Tensor> {
        for parameter in parameters {
            parameter.check_float(name, location)?;
            if parameter.0.shape != [channels] {
                let message = format!(
                    "expected parameters of shape [{channels}] for input {:?}, found {:?}",
                    self.0.shape, parameter.0.shape
                );
                return Err(Tensor::failed_at(name, message, location));
            }
        }
        Ok(())
    }

    /// Dropout: in training, sets each element to 0 with probability `p` and divides the others by
    /// 1 - p; otherwise returns the tensor unchanged. A traced function would use the same mask at
    /// each call: use [`Tensor::dropout_from`] there.
    #[track_caller]
    pub fn dropout(&self, p: f64, generator: &Generator, training: bool) -> Tensor {
        let location = SourceLocation::here();
        if !training {
            return match self.check_probability("dropout", p, location) {
                Ok(()) => self.clone(),
                Err(failed) => failed,
            };
        }
        match self.node() {
            Ok(node) => self.dropout_from(p, &Tensor::from_slice(&generator.next(), &[2], node.device)),
            Err(_) => self.clone(),
        }
    }

    /// As [`Tensor::dropout`] in training, with an explicit random state: see
    /// [`Tensor::random_bits`].
    #[track_caller]
    pub fn dropout_from(&self, p: f64, state: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_probability("dropout", p, location) {
            return failed;
        }
        let words = Tensor::random_bits(state, &self.0.shape);
        let uniform = words.shr(8).cast(DType::F32) * 2f64.powi(-24);
        // With p = 1 every element is dropped; this avoids a division by 0.
        let scaled = if p < 1.0 { self / (1.0 - p) } else { self.clone() };
        uniform.ge(p).select(&scaled, 0.0)
    }

    fn check_probability(&self, name: &'static str, p: f64, location: SourceLocation) -> Result<(), Tensor> {
        self.check_float(name, location)?;
        if (0.0..=1.0).contains(&p) {
            return Ok(());
        }
        Err(Tensor::failed_at(name, format!("p must be from 0 to 1, found {p}"), location))
    }

    /// Linear layer over the last axis: `x · weightᵀ + bias`, with a weight `[out, in]` and a bias
    /// `[out]`.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(x), Ok(w)) = (self.node(), weight.node()) else {
            return if self.node().is_err() { self.clone() } else { weight.clone() };
        };
        let ([lead @ .., from], [out, into]) = (&x.shape[..], &w.shape[..]) else {
            let message =
                format!("expected a weight with two axes, found input {:?} and weight {:?}", x.shape, w.shape);
            return Tensor::failed_at("linear", message, location);
        };
        if from != into {
            let message =
                format!("the last axis of input {:?} must have length {into}, as weight {:?} has", x.shape, w.shape);
            return Tensor::failed_at("linear", message, location);
        }
        // All rows in one matrix product: a batched one would repeat the weight.
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

    /// Scaled dot-product attention, softmax(scale · q kᵀ) v, over the last two axes; leading axes
    /// broadcast. With `[batch, heads, tokens, width]`, keys and values can have fewer heads, each
    /// shared by as many adjacent heads of queries (grouped-query attention). `scale` defaults to
    /// 1/√d. With `causal`, a query attends to the keys up to its own position, aligned at the end,
    /// so that the last query attends to all. A bool mask is true for keys to attend to, a float
    /// mask is added to the scores; both broadcast. A query without a visible key gives NaN.
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
            let message =
                format!("expected at least two axes, found {:?}, {:?} and {:?}", q.0.shape, k.0.shape, v.0.shape);
            return Tensor::failed_at("attention", message, location);
        };
        if keys != values || causal && queries > keys {
            let message = format!("{queries} queries, {keys} keys and {values} values do not match");
            return Tensor::failed_at("attention", message, location);
        }
        let scale = scale.unwrap_or_else(|| 1.0 / (*width as f64).sqrt());
        let mut inputs: Vec<Tensor> = [q, k, v].into_iter().chain(mask).cloned().collect();
        let tokens_first =
            plans_as_for_gpu(q.0.device) && mask.is_none() && [q, k, v].iter().all(|x| x.0.shape.len() == 4);
        let op = Attention { scale, causal, tokens_first };
        if !op.reads_shared_heads(&inputs) {
            inputs[1..3].iter_mut().for_each(|x| *x = repeat_shared_heads(x, q));
        }
        let output = fused_at(Arc::new(op), inputs, location).remove(0);
        if tokens_first && output.node().is_ok() { swap_heads_and_tokens(&output) } else { output }
    }

    /// Elements of `a` where `condition` is true, else of `b`; a number takes the dtype of the
    /// other operand.
    #[track_caller]
    pub fn where_(condition: &Tensor, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        condition.select(a, b)
    }
}
