//! Einstein summation, by matrix products where an axis is summed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::graph::axes::Axes;
use crate::graph::node::{AxisSlice, Op, Reduce};
use crate::{DType, SourceLocation, Tensor, promote};

/// Label of an axis. The order is that of an output without `->`: axes of `...`, then letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// An axis of `...`, counted from the last, at which operands are aligned.
    Ellipsis(Reverse<usize>),
    Letter(char),
}

type Labels = Vec<Label>;

impl Tensor {
    /// Einstein summation: the equation labels the axes of each operand by letters, separates
    /// operands by commas, and lists the axes of the output after `->`. Axes that are not in the
    /// output are summed. Without `->` the output has the letters that occur once, in alphabetical
    /// order. A repeated letter in one operand takes the diagonal. `...` stands for any number of
    /// axes, which are broadcast; without `->` they come first, and an output without `...` sums
    /// over them. Of several operands the cheapest pair is contracted first.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], Device::cpu());
    /// assert_eq!(Tensor::einsum("ij,jk->ik", &[&a, &a]).to_vec::<f32>()?, a.matmul(&a).to_vec::<f32>()?);
    /// assert_eq!(Tensor::einsum("ij->j", &[&a]).to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(Tensor::einsum("ij,ij", &[&a, &a]).item()?, 30.0);
    /// assert_eq!(Tensor::einsum("ii->i", &[&a]).to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(Tensor::einsum("...i->...", &[&a]).to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
        let location = SourceLocation::here();
        if let Some(failed) = operands.iter().find(|t| t.node().is_err()) {
            return (*failed).clone();
        }
        match Equation::new(equation, operands) {
            Ok(plan) => plan.run(operands, location),
            Err(message) => Tensor::failed_at("einsum", format!("'{equation}': {message}"), location),
        }
    }
}

/// The labels of one operand or of the output.
struct Term {
    before: Vec<char>,
    has_ellipsis: bool,
    after: Vec<char>,
}

impl Term {
    fn parse(text: &str) -> Result<Term, String> {
        let (before, has_ellipsis, after) = match text.split_once("...") {
            Some((before, after)) => (before, true, after),
            None => (text, false, ""),
        };
        match before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
            Some('.') if has_ellipsis => Err(format!("'...' occurs more than once in '{text}'")),
            Some('.') => Err(format!("'{text}' has dots that are not '...'")),
            Some(other) => Err(format!("'{other}' is not a letter")),
            None => Ok(Term { before: before.chars().collect(), has_ellipsis, after: after.chars().collect() }),
        }
    }

    fn letter_count(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The labels of all axes, with `rest` axes for the ellipsis.
    fn labels(&self, rest: usize) -> Labels {
        let rest = (0..if self.has_ellipsis { rest } else { 0 }).rev().map(|n| Label::Ellipsis(Reverse(n)));
        let letters = |letters: &[char]| letters.iter().map(|&c| Label::Letter(c)).collect::<Vec<_>>();
        letters(&self.before).into_iter().chain(rest).chain(letters(&self.after)).collect()
    }
}

/// An equation checked against its operands.
struct Equation {
    inputs: Vec<Labels>,
    output: Labels,
    lengths: BTreeMap<Label, usize>,
    dtype: DType,
}

impl Equation {
    fn new(equation: &str, operands: &[&Tensor]) -> Result<Equation, String> {
        let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(Term::parse(right)?)),
            None => (&text[..], None),
        };
        let terms = left.split(',').map(Term::parse).collect::<Result<Vec<_>, _>>()?;
        if terms.len() != operands.len() {
            return Err(format!("the number of operands is {}, expected {}", operands.len(), terms.len()));
        }
        let mut lengths: BTreeMap<Label, usize> = BTreeMap::new();
        let (mut inputs, mut max_rest, mut dtype) = (vec![], 0, operands[0].0.dtype);
        for (term, operand) in terms.iter().zip(operands) {
            let (shape, other) = (&operand.0.shape, operand.0.dtype);
            dtype = promote(dtype, other)
                .ok_or_else(|| format!("no dtype holds both {dtype} and {other}; cast one of them"))?;
            let rest = match shape.len().checked_sub(term.letter_count()) {
                Some(rest) if rest == 0 || term.has_ellipsis => rest,
                _ => {
                    let (count, rank) = (term.letter_count(), shape.len());
                    let least = if term.has_ellipsis { "at least " } else { "" };
                    return Err(format!("the number of labels is {least}{count}, but shape {shape:?} has rank {rank}"));
                }
            };
            max_rest = max_rest.max(rest);
            let labels = term.labels(rest);
            for (&label, &len) in labels.iter().zip(shape) {
                let known = *lengths.entry(label).or_insert(len);
                match label {
                    _ if known == len => {}
                    Label::Letter(letter) => return Err(format!("axis '{letter}' has lengths {known} and {len}")),
                    Label::Ellipsis(_) if known == 1 => _ = lengths.insert(label, len),
                    Label::Ellipsis(_) if len == 1 => {}
                    Label::Ellipsis(_) => return Err(format!("an axis of '...' has lengths {known} and {len}")),
                }
            }
            inputs.push(labels);
        }
        let output = match right {
            Some(term) => term.labels(max_rest),
            None => {
                let once = |label: &Label| {
                    matches!(label, Label::Ellipsis(_)) || inputs.iter().flatten().filter(|&l| l == label).count() == 1
                };
                lengths.keys().copied().filter(once).collect()
            }
        };
        for (n, label) in output.iter().enumerate() {
            if let Label::Letter(letter) = label {
                if !lengths.contains_key(label) {
                    return Err(format!("output axis '{letter}' is in no operand"));
                }
                if output[..n].contains(label) {
                    return Err(format!("'{letter}' occurs twice in the output"));
                }
            }
        }
        Ok(Equation { inputs, output, lengths, dtype })
    }

    fn run(&self, operands: &[&Tensor], location: SourceLocation) -> Tensor {
        let mut parts: Vec<LabeledTensor> = (operands.iter().zip(&self.inputs))
            .map(|(operand, labels)| {
                LabeledTensor::new(operand.cast_at(self.dtype, location), labels, &self.lengths, location)
            })
            .collect();
        for n in 0..parts.len() {
            parts[n] = parts[n].sum_unneeded(&|label| self.needed(label, &parts, &[n]), location);
        }
        while parts.len() > 1 {
            let pairs = (0..parts.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            let Some((a, b)) = pairs.min_by_key(|&(a, b)| self.cost(&parts[a], &parts[b])) else { break };
            let product = parts[a].contract(&parts[b], &|label| self.needed(label, &parts, &[a, b]), location);
            parts.remove(b);
            parts[a] = product;
        }
        parts[0].permuted(&self.output, location)
    }

    /// Returns true if the output or a part other than `except` has this axis.
    fn needed(&self, label: Label, parts: &[LabeledTensor], except: &[usize]) -> bool {
        let mut others = parts.iter().enumerate().filter(|(n, _)| !except.contains(n));
        self.output.contains(&label) || others.any(|(_, part)| part.labels.contains(&label))
    }

    /// Number of multiplications of the product of two parts.
    fn cost(&self, a: &LabeledTensor, b: &LabeledTensor) -> u128 {
        let more = b.labels.iter().filter(|label| !a.labels.contains(label));
        let length = |label: &Label| self.lengths.get(label).map_or(1, |&len| len as u128);
        a.labels.iter().chain(more).map(length).fold(1, u128::saturating_mul)
    }
}

/// A tensor with distinct axis labels.
struct LabeledTensor {
    tensor: Tensor,
    labels: Labels,
}

impl LabeledTensor {
    /// An operand without broadcast axes, and with the diagonal of axes that have the same label.
    fn new(
        tensor: Tensor,
        labels: &[Label],
        lengths: &BTreeMap<Label, usize>,
        location: SourceLocation,
    ) -> LabeledTensor {
        let shape = tensor.0.shape.clone();
        let kept = |n: &usize| shape[*n] == lengths.get(&labels[*n]).copied().unwrap_or(shape[*n]);
        let kept: Vec<usize> = (0..shape.len()).filter(kept).collect();
        let tensor = tensor.reshape_at(&kept.iter().map(|&n| shape[n]).collect::<Vec<_>>(), location);
        let mut labeled = LabeledTensor { tensor, labels: kept.iter().map(|&n| labels[n]).collect() };
        while let Some(second) = (0..labeled.labels.len()).find(|&n| labeled.labels[..n].contains(&labeled.labels[n])) {
            labeled = labeled.diagonal(second, location);
        }
        labeled
    }

    /// The diagonal of axis `second` and the earlier axis of the same label.
    fn diagonal(&self, second: usize, location: SourceLocation) -> LabeledTensor {
        let label = self.labels[second];
        let (mut labels, mut order): (Labels, Vec<usize>) = (vec![], vec![]);
        let mut both = vec![];
        for (n, &other) in self.labels.iter().enumerate() {
            if other == label && n <= second {
                both.push(n);
            } else {
                labels.push(other);
                order.push(n);
            }
        }
        labels.push(label);
        order.extend(both);
        let lead: Vec<usize> = order[..order.len() - 2].iter().map(|&n| self.tensor.0.shape[n]).collect();
        let len = self.tensor.0.shape[second];
        let square = Tensor::build(Op::Permute(order), vec![self.tensor.clone()], location);
        let line = square.reshape_at(&[&lead[..], &[len * len]].concat(), location);
        let mut slices: Vec<AxisSlice> = lead.iter().map(|&len| AxisSlice::full(len)).collect();
        slices.push(AxisSlice { start: 0, step: len as isize + 1, len });
        LabeledTensor { tensor: Tensor::build(Op::Slice(slices), vec![line], location), labels }
    }

    /// Sums over the axes that are not needed.
    fn sum_unneeded(&self, needed: &dyn Fn(Label) -> bool, location: SourceLocation) -> LabeledTensor {
        let (kept, removed): (Vec<usize>, Vec<usize>) = (0..self.labels.len()).partition(|&n| needed(self.labels[n]));
        let labels = kept.iter().map(|&n| self.labels[n]).collect();
        if removed.is_empty() {
            return LabeledTensor { tensor: self.tensor.clone(), labels };
        }
        let axes = Axes::List(removed.iter().map(|&n| n as isize).collect());
        LabeledTensor { tensor: self.tensor.reduce(Reduce::Sum, axes, location), labels }
    }

    /// The product with another, summed over the common axes that are not needed.
    fn contract(
        &self,
        other: &LabeledTensor,
        needed: &dyn Fn(Label) -> bool,
        location: SourceLocation,
    ) -> LabeledTensor {
        let (mut batch, mut left_only, mut both) = (vec![], vec![], vec![]);
        for &label in &self.labels {
            match (other.labels.contains(&label), needed(label)) {
                (true, true) => batch.push(label),
                (true, false) => both.push(label),
                (false, _) => left_only.push(label),
            }
        }
        let right_only: Labels = other.labels.iter().copied().filter(|label| !self.labels.contains(label)).collect();
        let labels = [&batch[..], &left_only, &right_only].concat();
        let shape = [self.lengths(&batch), self.lengths(&left_only), other.lengths(&right_only)].concat();
        let size = |lengths: Vec<usize>| lengths.iter().product::<usize>();
        let (b, m, n) = (size(self.lengths(&batch)), size(self.lengths(&left_only)), size(other.lengths(&right_only)));
        let k = size(self.lengths(&both));
        let left = self.permuted(&[&batch[..], &left_only, &both].concat(), location);
        let right = other.permuted(&[&batch[..], &both, &right_only].concat(), location);
        let product = if both.is_empty() {
            let [left, right] = [left.reshape_at(&[b, m, 1], location), right.reshape_at(&[b, 1, n], location)];
            crate::ops::pointwise::map(bornite_ir::Op::Mul, &[&left, &right], location)
        } else {
            let inputs = vec![left.reshape_at(&[b, m, k], location), right.reshape_at(&[b, k, n], location)];
            Tensor::build(Op::Matmul, inputs, location)
        };
        LabeledTensor { tensor: product.reshape_at(&shape, location), labels }
    }

    fn lengths(&self, labels: &[Label]) -> Vec<usize> {
        let of = |label: &Label| self.labels.iter().position(|other| other == label);
        labels.iter().filter_map(of).filter_map(|n| self.tensor.0.shape.get(n).copied()).collect()
    }

    /// The tensor with its axes permuted to this order.
    fn permuted(&self, labels: &[Label], location: SourceLocation) -> Tensor {
        if self.labels == labels {
            return self.tensor.clone();
        }
        let of = |label: &Label| self.labels.iter().position(|other| other == label);
        let order = labels.iter().filter_map(of).collect();
        Tensor::build(Op::Permute(order), vec![self.tensor.clone()], location)
    }
}
