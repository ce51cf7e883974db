//! Sums of products by named axes, as products of matrices where there is something to sum.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::graph::axes::Axes;
use crate::graph::node::{AxisSlice, Op, Reduce};
use crate::{DType, SourceLocation, Tensor, promote};

/// An axis by name. Their order is that of a result without `->`: what `...` stands for, then letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// One of the axes of `...`, counted from the last: operands that have fewer of them align there.
    Rest(Reverse<usize>),
    Letter(char),
}

type Labels = Vec<Label>;

impl Tensor {
    /// The sum over products that a specification names: each operand's axes by a letter, operands apart by commas, and
    /// after `->` the letters that stay, in order. Letters that do not stay are summed over; without `->` those stay that
    /// occur once, in alphabetical order. A letter twice in one operand takes the diagonal of the two axes. `...` stands
    /// for any number of axes, which are broadcast; without `->` they come first, and after a `->` without them they
    /// are summed over. Of many operands the pair that costs least is multiplied first.
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
    pub fn einsum(specification: &str, operands: &[&Tensor]) -> Tensor {
        let location = SourceLocation::here();
        if let Some(failed) = operands.iter().find(|t| t.node().is_err()) {
            return (*failed).clone();
        }
        match Plan::new(specification, operands) {
            Ok(plan) => plan.run(operands, location),
            Err(message) => Tensor::failed_at("einsum", format!("'{specification}': {message}"), location),
        }
    }
}

/// Part of a specification: letters, and perhaps dots among them.
struct Term {
    before: Vec<char>,
    dots: bool,
    after: Vec<char>,
}

impl Term {
    fn parse(text: &str) -> Result<Term, String> {
        let (before, dots, after) = match text.split_once("...") {
            Some((before, after)) => (before, true, after),
            None => (text, false, ""),
        };
        match before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
            Some('.') if dots => Err(format!("'...' may stand once in '{text}'")),
            Some('.') => Err(format!("'{text}' has dots, but not three in a row")),
            Some(other) => Err(format!("'{other}' is not a letter")),
            None => Ok(Term { before: before.chars().collect(), dots, after: after.chars().collect() }),
        }
    }

    fn letters(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The names of all axes, of which dots stand for `rest`.
    fn labels(&self, rest: usize) -> Labels {
        let rest = (0..if self.dots { rest } else { 0 }).rev().map(|n| Label::Rest(Reverse(n)));
        let letters = |letters: &[char]| letters.iter().map(|&c| Label::Letter(c)).collect::<Vec<_>>();
        letters(&self.before).into_iter().chain(rest).chain(letters(&self.after)).collect()
    }
}

/// A specification that fits its operands.
struct Plan {
    inputs: Vec<Labels>,
    output: Labels,
    lengths: BTreeMap<Label, usize>,
    dtype: DType,
}

impl Plan {
    fn new(specification: &str, operands: &[&Tensor]) -> Result<Plan, String> {
        let text: String = specification.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(Term::parse(right)?)),
            None => (&text[..], None),
        };
        let terms = left.split(',').map(Term::parse).collect::<Result<Vec<_>, _>>()?;
        if terms.len() != operands.len() {
            return Err(format!("it names {} operands, given {}", terms.len(), operands.len()));
        }
        let mut lengths: BTreeMap<Label, usize> = BTreeMap::new();
        let (mut inputs, mut most, mut dtype) = (vec![], 0, operands[0].0.dtype);
        for (term, operand) in terms.iter().zip(operands) {
            let (shape, other) = (&operand.0.shape, operand.0.dtype);
            dtype = promote(dtype, other)
                .ok_or_else(|| format!("no dtype holds both {dtype} and {other}; cast one of them"))?;
            let rest = match shape.len().checked_sub(term.letters()) {
                Some(rest) if rest == 0 || term.dots => rest,
                _ => {
                    let dots = if term.dots { " and '...'" } else { "" };
                    return Err(format!("{} letters{dots} for shape {shape:?}", term.letters()));
                }
            };
            most = most.max(rest);
            let labels = term.labels(rest);
            for (&label, &len) in labels.iter().zip(shape) {
                let known = *lengths.entry(label).or_insert(len);
                match label {
                    _ if known == len => {}
                    Label::Letter(letter) => return Err(format!("'{letter}' is {known} and {len} long")),
                    Label::Rest(_) if known == 1 => _ = lengths.insert(label, len),
                    Label::Rest(_) if len == 1 => {}
                    Label::Rest(_) => return Err(format!("an axis of '...' is {known} and {len} long")),
                }
            }
            inputs.push(labels);
        }
        let output = match right {
            Some(term) => term.labels(most),
            None => {
                let once = |label: &Label| {
                    matches!(label, Label::Rest(_)) || inputs.iter().flatten().filter(|&l| l == label).count() == 1
                };
                lengths.keys().copied().filter(once).collect()
            }
        };
        for (n, label) in output.iter().enumerate() {
            if let Label::Letter(letter) = label {
                if !lengths.contains_key(label) {
                    return Err(format!("'{letter}' of the result is in no operand"));
                }
                if output[..n].contains(label) {
                    return Err(format!("'{letter}' occurs twice in the result"));
                }
            }
        }
        Ok(Plan { inputs, output, lengths, dtype })
    }

    fn run(&self, operands: &[&Tensor], location: SourceLocation) -> Tensor {
        let mut parts: Vec<Named> = (operands.iter().zip(&self.inputs))
            .map(|(operand, labels)| Named::new(operand.cast_at(self.dtype, location), labels, &self.lengths, location))
            .collect();
        for n in 0..parts.len() {
            parts[n] = parts[n].summed(&|label| self.needed(label, &parts, &[n]), location);
        }
        while parts.len() > 1 {
            let pairs = (0..parts.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            let Some((a, b)) = pairs.min_by_key(|&(a, b)| self.cost(&parts[a], &parts[b])) else { break };
            let product = parts[a].times(&parts[b], &|label| self.needed(label, &parts, &[a, b]), location);
            parts.remove(b);
            parts[a] = product;
        }
        parts[0].arranged(&self.output, location)
    }

    /// Whether the result has this axis, or a part other than these.
    fn needed(&self, label: Label, parts: &[Named], but: &[usize]) -> bool {
        let mut others = parts.iter().enumerate().filter(|(n, _)| !but.contains(n));
        self.output.contains(&label) || others.any(|(_, part)| part.labels.contains(&label))
    }

    /// How many products of elements the product of two parts takes.
    fn cost(&self, a: &Named, b: &Named) -> u128 {
        let more = b.labels.iter().filter(|label| !a.labels.contains(label));
        let length = |label: &Label| self.lengths.get(label).map_or(1, |&len| len as u128);
        a.labels.iter().chain(more).map(length).fold(1, u128::saturating_mul)
    }
}

/// A tensor whose axes have names, each of its own.
struct Named {
    tensor: Tensor,
    labels: Labels,
}

impl Named {
    /// An operand as it takes part: without axes that are only broadcast, and with the diagonal of those of one name.
    fn new(tensor: Tensor, labels: &[Label], lengths: &BTreeMap<Label, usize>, location: SourceLocation) -> Named {
        let own = tensor.0.shape.clone();
        let kept = |n: &usize| own[*n] == lengths.get(&labels[*n]).copied().unwrap_or(own[*n]);
        let kept: Vec<usize> = (0..own.len()).filter(kept).collect();
        let tensor = tensor.reshape_at(&kept.iter().map(|&n| own[n]).collect::<Vec<_>>(), location);
        let mut named = Named { tensor, labels: kept.iter().map(|&n| labels[n]).collect() };
        while let Some(second) = (0..named.labels.len()).find(|&n| named.labels[..n].contains(&named.labels[n])) {
            named = named.diagonal(second, location);
        }
        named
    }

    /// The elements whose places along axis `second` and along the earlier axis of that name are equal.
    fn diagonal(&self, second: usize, location: SourceLocation) -> Named {
        let label = self.labels[second];
        let (mut labels, mut order): (Labels, Vec<usize>) = (vec![], vec![]);
        let mut both = vec![];
        for (n, &own) in self.labels.iter().enumerate() {
            if own == label && n <= second {
                both.push(n);
            } else {
                labels.push(own);
                order.push(n);
            }
        }
        labels.push(label);
        order.extend(both);
        let lead: Vec<usize> = order[..order.len() - 2].iter().map(|&n| self.tensor.0.shape[n]).collect();
        let len = self.tensor.0.shape[second];
        let square = Tensor::build(Op::Permute(order), vec![self.tensor.clone()], location);
        let line = square.reshape_at(&[&lead[..], &[len * len]].concat(), location);
        let mut cuts: Vec<AxisSlice> = lead.iter().map(|&len| AxisSlice::full(len)).collect();
        cuts.push(AxisSlice { start: 0, step: len as isize + 1, len });
        Named { tensor: Tensor::build(Op::Slice(cuts), vec![line], location), labels }
    }

    /// Summed over the axes that nobody needs.
    fn summed(&self, needed: &dyn Fn(Label) -> bool, location: SourceLocation) -> Named {
        let (kept, gone): (Vec<usize>, Vec<usize>) = (0..self.labels.len()).partition(|&n| needed(self.labels[n]));
        let labels = kept.iter().map(|&n| self.labels[n]).collect();
        if gone.is_empty() {
            return Named { tensor: self.tensor.clone(), labels };
        }
        let axes = Axes::List(gone.iter().map(|&n| n as isize).collect());
        Named { tensor: self.tensor.reduce(Reduce::Sum, axes, location), labels }
    }

    /// The product with another, summed over the axes that both have and nobody needs.
    fn times(&self, other: &Named, needed: &dyn Fn(Label) -> bool, location: SourceLocation) -> Named {
        let (mut batch, mut own, mut both) = (vec![], vec![], vec![]);
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
        let left = self.arranged(&[&batch[..], &own, &both].concat(), location);
        let right = other.arranged(&[&batch[..], &both, &theirs].concat(), location);
        let product = if both.is_empty() {
            let [left, right] = [left.reshape_at(&[b, m, 1], location), right.reshape_at(&[b, 1, n], location)];
            crate::ops::pointwise::map(bornite_ir::Op::Mul, &[&left, &right], location)
        } else {
            let inputs = vec![left.reshape_at(&[b, m, k], location), right.reshape_at(&[b, k, n], location)];
            Tensor::build(Op::Matmul, inputs, location)
        };
        Named { tensor: product.reshape_at(&shape, location), labels }
    }

    fn lengths(&self, labels: &[Label]) -> Vec<usize> {
        let of = |label: &Label| self.labels.iter().position(|own| own == label);
        labels.iter().filter_map(of).filter_map(|n| self.tensor.0.shape.get(n).copied()).collect()
    }

    /// The tensor with its axes in this order.
    fn arranged(&self, labels: &[Label], location: SourceLocation) -> Tensor {
        if self.labels == labels {
            return self.tensor.clone();
        }
        let of = |label: &Label| self.labels.iter().position(|own| own == label);
        let order = labels.iter().filter_map(of).collect();
        Tensor::build(Op::Permute(order), vec![self.tensor.clone()], location)
    }
}
