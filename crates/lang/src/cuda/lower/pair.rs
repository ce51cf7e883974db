//! Functions on pairs of 16-bit floats, `half2` and `__nv_bfloat162`.

use bornite_ir::{AlgebraOp, Op, Scalar, Type};

use super::cuda_functions::half_op;
use super::lvalue::CudaOperand;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::Expr;
use crate::lower::{Node, Tree};

/// Function that applies an op to both elements: `__hadd2`, `h2exp`.
fn elementwise(name: &str) -> Option<Op> {
    let op = match name.strip_prefix("h2") {
        Some(rest) => half_op(&format!("h{rest}"))?,
        None => half_op(name.strip_suffix('2')?)?,
    };
    (!matches!(op, Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::Eq)).then_some(op)
}

/// Returns true for the types of pairs, whose operators CUDA defines.
pub fn is_pair(ty: Type) -> bool {
    matches!(ty, Type::Vector(Scalar::F16 | Scalar::BF16, 2))
}

impl<'m> Lowering<'m> {
    /// Lowers a function on pairs of 16-bit floats; `None` if `name` is not one.
    pub(super) fn pair_function(
        &mut self,
        name: &str,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        let comparison = match name {
            "__hlt2" => Some(Op::Lt),
            "__hle2" => Some(Op::Le),
            "__hgt2" => Some(Op::Gt),
            "__hge2" => Some(Op::Ge),
            "__heq2" => Some(Op::Eq),
            _ => None,
        };
        if let Some(op) = elementwise(name).or(comparison) {
            self.check_arg_count(name, args, op.arity(), span)?;
            let mut trees: Vec<Tree> = vec![];
            for arg in args {
                let tree = self.rvalue(arg)?;
                if !is_pair(tree.ty) || trees.first().is_some_and(|first| first.ty != tree.ty) {
                    return self.fail(arg.span, format!("'{name}' takes pairs of one type"), "expected '__half2'", "");
                }
                trees.push(tree);
            }
            let element = trees[0].ty.element().unwrap_or(Scalar::F16);
            let result = Tree::op(op, trees);
            // Comparisons return pairs of 0 and 1.
            let result = if comparison.is_some() { result.cast(element) } else { result };
            return Ok(Some(CudaOperand::Tree(result)));
        }
        // Element type of the result, and for each of its elements the argument and the element of
        // that argument, if it is a vector.
        let (to, elements): (Scalar, &[(usize, Option<u32>)]) = match name {
            "__float2half2_rn" | "__half2half2" => (Scalar::F16, &[(0, None), (0, None)]),
            "__float2bfloat162_rn" | "__bfloat162bfloat162" => (Scalar::BF16, &[(0, None), (0, None)]),
            "__floats2half2_rn" | "__halves2half2" => (Scalar::F16, &[(0, None), (1, None)]),
            "__floats2bfloat162_rn" | "__halves2bfloat162" | "make_bfloat162" => {
                (Scalar::BF16, &[(0, None), (1, None)])
            }
            "__float22half2_rn" => (Scalar::F16, &[(0, Some(0)), (0, Some(1))]),
            "__float22bfloat162_rn" => (Scalar::BF16, &[(0, Some(0)), (0, Some(1))]),
            "__half22float2" | "__bfloat1622float2" => (Scalar::F32, &[(0, Some(0)), (0, Some(1))]),
            "__low2float" => (Scalar::F32, &[(0, Some(0))]),
            "__high2float" => (Scalar::F32, &[(0, Some(1))]),
            "__low2half" => (Scalar::F16, &[(0, Some(0))]),
            "__high2half" => (Scalar::F16, &[(0, Some(1))]),
            "__low2bfloat16" => (Scalar::BF16, &[(0, Some(0))]),
            "__high2bfloat16" => (Scalar::BF16, &[(0, Some(1))]),
            "__lows2half2" => (Scalar::F16, &[(0, Some(0)), (1, Some(0))]),
            "__highs2half2" => (Scalar::F16, &[(0, Some(1)), (1, Some(1))]),
            "__low2half2" => (Scalar::F16, &[(0, Some(0)), (0, Some(0))]),
            "__high2half2" => (Scalar::F16, &[(0, Some(1)), (0, Some(1))]),
            "__lowhigh2highlow" => (Scalar::F16, &[(0, Some(1)), (0, Some(0))]),
            _ => return Ok(None),
        };
        let count = 1 + elements.iter().map(|(arg, _)| *arg).max().unwrap_or(0);
        self.check_arg_count(name, args, count, span)?;
        let takes_vectors = elements.iter().any(|(_, at)| at.is_some());
        let mut trees = vec![];
        for arg in args {
            let tree = self.rvalue(arg)?;
            let is_valid = match tree.ty {
                Type::Vector(from, 2) => takes_vectors && from.is_float(),
                Type::Scalar(_) => !takes_vectors,
                _ => false,
            };
            if !is_valid {
                let expected = if takes_vectors { "expected a vector of two floats" } else { "expected a number" };
                return self.fail(arg.span, format!("'{name}' does not take this argument"), expected, "");
            }
            trees.push(self.materialize(tree));
        }
        let element = |(arg, at): &(usize, Option<u32>)| match (at, trees[*arg].ty.element()) {
            (Some(at), Some(from)) => Tree::extract(trees[*arg].clone(), *at, from.into()).cast(to),
            _ => trees[*arg].clone().cast(to),
        };
        let mut parts: Vec<Tree> = elements.iter().map(element).collect();
        let whole = match parts.len() {
            1 => parts.remove(0),
            _ => Tree::of(Node::Algebra(AlgebraOp::Construct, 0, parts), Type::Vector(to, 2)),
        };
        Ok(Some(CudaOperand::Tree(whole)))
    }
}
