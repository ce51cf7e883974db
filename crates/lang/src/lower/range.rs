//! Value ranges of integer expressions, from the launch.

use bornite_ir::{ExprId, IntRange, Op, Scalar};

use super::{Node, Tree, Writer};

impl Writer {
    /// Range of an integer expression; `None` if it is not an integer.
    pub fn range(&self, tree: &Tree) -> Option<IntRange> {
        let scalar = tree.scalar()?;
        if scalar == Scalar::Bool {
            return Some(IntRange::up_to(1));
        }
        if !scalar.is_int() {
            return None;
        }
        let found = match &tree.node {
            Node::Const(value) => Some(IntRange::exactly(*value)),
            Node::Builtin(builtin) => IntRange::of_builtin(self.b.kernel().launch, *builtin),
            Node::Emitted(id) => match self.b.constant_value(*id) {
                Some(value) => Some(IntRange::exactly(value)),
                None => self.hoisted.ranges.get(id).copied(),
            },
            Node::Op(op, args) => {
                let args: Vec<Option<IntRange>> = args.iter().map(|arg| self.range(arg)).collect();
                bits(*op, scalar, &args).or_else(|| IntRange::of_op(*op, scalar, &args))
            }
            Node::Cast(_, inner) => self.range(inner),
            _ => None,
        };
        Some(found.filter(|range| range.fits(scalar)).unwrap_or(IntRange::of_type(scalar)))
    }

    /// Records the range of an integer.
    pub fn set_range(&mut self, id: ExprId, range: Option<IntRange>) {
        if let Some(range) = range {
            self.hoisted.ranges.insert(id, range);
        }
    }
}

/// Range of a mask or shift of non-negative integers.
fn bits(op: Op, scalar: Scalar, args: &[Option<IntRange>]) -> Option<IntRange> {
    let [a, b] = args else { return None };
    let (a, b) = (a.filter(|a| a.low >= 0), b.filter(|b| b.low >= 0));
    let count = || b.filter(|b| b.high < scalar.bytes() as i128 * 8);
    let high = match op {
        Op::And => match (a, b) {
            (Some(a), Some(b)) => a.high.min(b.high),
            (Some(one), None) | (None, Some(one)) => one.high,
            _ => return None,
        },
        Op::Shr => a?.high >> count()?.low,
        Op::Shl => a?.high << count()?.high,
        _ => return None,
    };
    Some(IntRange { low: 0, high })
}
