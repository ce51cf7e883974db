//! Sums of products by named axes, as products of matrices where there is something to sum.

use crate::{Place, Tensor, promote};

/// A tensor whose axes have names.
struct Named {
    tensor: Tensor,
    labels: Vec<char>,
}

impl Tensor {
    /// The sum over products that a specification names: each operand's axes by a letter, operands apart by commas, and
    /// after `->` the letters that stay, in order. Letters that do not stay are summed over; without `->` those stay that
    /// occur once, in alphabetical order.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], Device::cpu());
    /// assert_eq!(Tensor::einsum("ij,jk->ik", &[&a, &a]).to_vec::<f32>()?, a.matmul(&a).to_vec::<f32>()?);
    /// assert_eq!(Tensor::einsum("ij->j", &[&a]).to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(Tensor::einsum("ij,ij", &[&a, &a]).item()?, 30.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn einsum(specification: &str, operands: &[&Tensor]) -> Tensor {
        let place = Place::here();
        if let Some(failed) = operands.iter().find(|t| t.node().is_err()) {
            return (*failed).clone();
        }
        let (inputs, output) = match parse(specification, operands) {
            Ok(parsed) => parsed,
            Err(what) => return Tensor::failed("einsum", format!("'{specification}': {what}"), place),
        };
        let mut dtype = operands[0].0.dtype;
        for operand in operands {
            dtype = match promote(dtype, operand.0.dtype) {
                Some(dtype) => dtype,
                None => {
                    let what = format!("no dtype holds both {dtype} and {}; cast one of them", operand.0.dtype);
                    return Tensor::failed("einsum", what, place);
                }
            };
        }
        let mut rest = operands.iter().zip(&inputs);
        let mut total: Option<Named> = None;
        while let Some((operand, labels)) = rest.next() {
            let needed = |label: char| output.contains(&label) || rest.clone().any(|(_, later)| later.contains(&label));
            let next = Named { tensor: operand.cast(dtype), labels: labels.clone() };
            total = Some(match total {
                None => next.summed(&needed),
                Some(total) => {
                    let kept = |label: char| needed(label) || labels.contains(&label);
                    let others = total.labels.clone();
                    let next = next.summed(&|label| needed(label) || others.contains(&label));
                    total.summed(&kept).times(next, &needed)
                }
            });
        }
        match total {
            Some(total) => total.arranged(&output),
            None => Tensor::failed("einsum", "there are no operands".into(), place),
        }
    }
}

type Labels = Vec<char>;

/// The letters of each operand and of the result, checked against the shapes.
fn parse(specification: &str, operands: &[&Tensor]) -> Result<(Vec<Labels>, Labels), String> {
    let text: String = specification.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&text[..], None),
    };
    let inputs: Vec<Labels> = left.split(',').map(|part| part.chars().collect()).collect();
    if inputs.len() != operands.len() {
        return Err(format!("it names {} operands, given {}", inputs.len(), operands.len()));
    }
    let mut lengths: Vec<(char, usize)> = vec![];
    for (labels, operand) in inputs.iter().zip(operands) {
        let shape = &operand.0.shape;
        if labels.len() != shape.len() {
            return Err(format!("{} letters for shape {shape:?}", labels.len()));
        }
        for (n, (&label, &len)) in labels.iter().zip(shape).enumerate() {
            if !label.is_ascii_alphabetic() {
                return Err(format!("'{label}' is not a letter"));
            }
            if labels[..n].contains(&label) {
                return Err(format!("'{label}' occurs twice in one operand; diagonals are not taken"));
            }
            match lengths.iter().find(|(known, _)| *known == label) {
                Some((_, known)) if *known != len => return Err(format!("'{label}' is {known} and {len} long")),
                Some(_) => {}
                None => lengths.push((label, len)),
            }
        }
    }
    let output: Labels = match right {
        Some(right) => right.chars().collect(),
        None => {
            let times = |label: char| inputs.iter().flatten().filter(|&&other| other == label).count();
            let mut once: Labels = lengths.iter().map(|(label, _)| *label).filter(|&label| times(label) == 1).collect();
            once.sort_unstable();
            once
        }
    };
    for (n, label) in output.iter().enumerate() {
        if !lengths.iter().any(|(known, _)| known == label) {
            return Err(format!("'{label}' of the result is in no operand"));
        }
        if output[..n].contains(label) {
            return Err(format!("'{label}' occurs twice in the result"));
        }
    }
    Ok((inputs, output))
}

impl Named {
    /// Summed over the axes that nobody needs.
    #[track_caller]
    fn summed(self, needed: &dyn Fn(char) -> bool) -> Named {
        let place = Place::here();
        let axes: Vec<isize> =
            (0..self.labels.len()).filter(|&n| !needed(self.labels[n])).map(|n| n as isize).collect();
        if axes.is_empty() {
            return self;
        }
        let tensor = self.tensor.reduce(crate::node::Reduce::Sum, axes[..].into(), place);
        Named { tensor, labels: self.labels.into_iter().filter(|&label| needed(label)).collect() }
    }

    /// The product with another, summed over the axes that both have and nobody needs.
    #[track_caller]
    fn times(self, other: Named, needed: &dyn Fn(char) -> bool) -> Named {
        let mut batch: Labels = vec![];
        let (mut own, mut both) = (vec![], vec![]);
        for &label in &self.labels {
            match (other.labels.contains(&label), needed(label)) {
                (true, true) => batch.push(label),
                (true, false) => both.push(label),
                (false, _) => own.push(label),
            }
        }
        let theirs: Labels = other.labels.iter().copied().filter(|label| !self.labels.contains(label)).collect();
        let labels = [&batch[..], &own, &theirs].concat();
        let shape = [self.lengths(&batch), self.lengths(&own), other.lengths(&theirs)].concat();
        let size = |lengths: Vec<usize>| lengths.iter().product::<usize>();
        let (b, m, n) = (size(self.lengths(&batch)), size(self.lengths(&own)), size(other.lengths(&theirs)));
        let k = size(self.lengths(&both));
        let left = self.arranged(&[&batch[..], &own, &both].concat());
        let right = other.arranged(&[&batch[..], &both, &theirs].concat());
        let product = if both.is_empty() {
            left.reshape(&[b, m, 1]) * right.reshape(&[b, 1, n])
        } else {
            left.reshape(&[b, m, k]).matmul(&right.reshape(&[b, k, n]))
        };
        Named { tensor: product.reshape(&shape), labels }
    }

    fn lengths(&self, labels: &[char]) -> Vec<usize> {
        let of = |label: &char| self.labels.iter().position(|own| own == label);
        labels.iter().filter_map(of).filter_map(|n| self.tensor.0.shape.get(n).copied()).collect()
    }

    /// The tensor with its axes in this order.
    #[track_caller]
    fn arranged(&self, labels: &[char]) -> Tensor {
        if self.labels == labels {
            return self.tensor.clone();
        }
        let of = |label: &char| self.labels.iter().position(|own| own == label);
        self.tensor.permute(&labels.iter().filter_map(of).collect::<Vec<_>>())
    }
}
