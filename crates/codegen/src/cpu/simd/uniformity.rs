//! Uniformity analysis: how values differ between neighbouring instances. Decides which kernels are
//! vectorized, and which of their values need vectors.

use std::collections::{HashMap, HashSet};

use bornite_ir::{Access, Args, Code, Expr, ExprId, Kernel, LaunchMode, Op, Scalar, Stmt, View};

use crate::cpu::range_analysis::RangeAnalysis;

/// A value in one instance, relative to the previous instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Uniformity {
    /// The same.
    Uniform,
    /// Larger by this step: an integer that is linear in the instance number.
    Linear(i64),
    /// Unrelated.
    Varying,
}

/// Uniformity of all values of some code.
#[derive(Default)]
pub(super) struct UniformityInfo {
    exprs: Vec<Option<Uniformity>>,
    /// Variables that differ between instances.
    pub varying: Vec<bool>,
    /// Uniformity in called functions, per call: arguments differ between calls.
    pub calls: HashMap<ExprId, UniformityInfo>,
    /// The function's return value.
    pub result: Option<ExprId>,
    /// Blocks of an `if` that are not vectorized: instances that enter them fall back to scalar
    /// code.
    scalar_blocks: HashSet<*const Stmt>,
}

impl UniformityInfo {
    pub fn of(&self, id: ExprId) -> Uniformity {
        self.exprs[id.0 as usize].unwrap_or(Uniformity::Varying)
    }

    /// Returns true if instances that enter this block run as scalar code.
    pub fn runs_scalar(&self, block: &[Stmt]) -> bool {
        self.scalar_blocks.contains(&block.as_ptr())
    }
}

/// Maximum number of components of all expressions; with more, vectors would only be spilled.
const MAX_COMPONENTS: usize = 400;

/// Analyzes a kernel for `lanes` instances at a time; returns `None` if it cannot be vectorized:
/// branches and loops that differ between instances, atomics, prints, local arrays.
pub(super) fn uniformity(kernel: &Kernel, ranges: &RangeAnalysis, lanes: i64) -> Option<UniformityInfo> {
    let LaunchMode::ParallelFor { .. } = kernel.launch else { return None };
    let components: usize = kernel.code.types.iter().map(|ty| ty.component_count(&kernel.structs)).sum();
    if components > MAX_COMPONENTS || !kernel.local_arrays.is_empty() {
        return None;
    }
    let mut branch_conditions = HashSet::new();
    collect_branch_conditions(&kernel.code, &kernel.code.body, &mut branch_conditions);
    let mut walk =
        Analyzer { kernel, ranges: Some(ranges), branch_conditions: &branch_conditions, lanes, has_stored: false };
    walk.code(&kernel.code, &[])
}

/// Collects the comparisons that branches depend on.
fn collect_branch_conditions(code: &Code, block: &[Stmt], found: &mut HashSet<ExprId>) {
    for stmt in block {
        if let Stmt::If { condition, .. } = stmt {
            let mut stack = vec![*condition];
            while let Some(id) = stack.pop() {
                if found.insert(id)
                    && let Expr::Op(Op::And | Op::Or | Op::Not, args) = code.expr(id)
                {
                    stack.extend(args.iter());
                }
            }
        }
        stmt.blocks().into_iter().for_each(|block| collect_branch_conditions(code, block, found));
    }
}

struct Analyzer<'a, 'k> {
    kernel: &'k Kernel,
    /// Ranges of the kernel's integers; `None` in functions.
    ranges: Option<&'a RangeAnalysis>,
    /// Comparisons of the kernel that branches depend on.
    branch_conditions: &'a HashSet<ExprId>,
    lanes: i64,
    /// True once something may have been stored: from then on, instances cannot fall back to scalar
    /// code.
    has_stored: bool,
}

impl<'k> Analyzer<'_, 'k> {
    fn code(&mut self, code: &'k Code, arguments: &[Uniformity]) -> Option<UniformityInfo> {
        let mut uniformity = UniformityInfo { varying: vec![false; code.locals.len()], ..UniformityInfo::default() };
        let has_stored = self.has_stored;
        // A variable found to vary can make earlier ones vary: iterate to a fixed point.
        loop {
            let before = uniformity.varying.clone();
            uniformity.exprs = vec![None; code.exprs.len()];
            self.has_stored = has_stored;
            self.block(code, &code.body, arguments, &mut uniformity)?;
            if uniformity.varying == before {
                return Some(uniformity);
            }
        }
    }

    fn block(
        &mut self,
        code: &'k Code,
        block: &'k [Stmt],
        arguments: &[Uniformity],
        uniformity: &mut UniformityInfo,
    ) -> Option<()> {
        let outermost = std::ptr::eq(block, &code.body[..]);
        for (n, stmt) in block.iter().enumerate() {
            match stmt {
                Stmt::Let(id) => {
                    let shape = self.evaluate(code, *id, arguments, uniformity)?;
                    uniformity.exprs[id.0 as usize] = Some(shape);
                }
                Stmt::Assign(local, value) => {
                    uniformity.varying[local.0 as usize] |=
                        self.uniformity_of(code, *value, arguments, uniformity) != Uniformity::Uniform;
                }
                Stmt::Store { view, indices, .. } if self.has_dynamic_component(code, *view, indices) => return None,
                Stmt::Store { .. } => self.has_stored = true,
                Stmt::For { end, body, .. } => {
                    if self.uniformity_of(code, *end, arguments, uniformity) != Uniformity::Uniform {
                        return None;
                    }
                    self.has_stored |= body.iter().any(|stmt| stmt.any(&|stmt| matches!(stmt, Stmt::Store { .. })));
                    self.block(code, body, arguments, uniformity)?;
                }
                Stmt::If { condition, then, otherwise } => {
                    if self.uniformity_of(code, *condition, arguments, uniformity) != Uniformity::Uniform {
                        return None;
                    }
                    let has_stored = self.has_stored;
                    if self.block(code, then, arguments, uniformity).is_none() {
                        // For example the report of a bad index: rare, and nothing is stored yet.
                        if has_stored || !otherwise.is_empty() {
                            return None;
                        }
                        self.has_stored = false;
                        uniformity.scalar_blocks.insert(then.as_ptr());
                    }
                    self.block(code, otherwise, arguments, uniformity)?;
                }
                Stmt::Return(Some(value)) if outermost && n + 1 == block.len() => uniformity.result = Some(*value),
                _ => return None,
            }
        }
        Some(())
    }

    /// Returns true if an access has a component index that is not constant.
    fn has_dynamic_component(&self, code: &Code, view: View, indices: &Args) -> bool {
        self.kernel
            .view(view)
            .component_index(indices)
            .is_some_and(|component| !matches!(code.expr(component), Expr::Const(_)))
    }

    /// Returns the uniformity of a value that is already evaluated or needs no evaluation.
    fn uniformity_of(
        &self,
        code: &Code,
        id: ExprId,
        arguments: &[Uniformity],
        uniformity: &UniformityInfo,
    ) -> Uniformity {
        match code.expr(id) {
            Expr::Const(_) => Uniformity::Uniform,
            Expr::Index => Uniformity::Linear(1),
            Expr::Argument(n) => arguments.get(*n as usize).copied().unwrap_or(Uniformity::Uniform),
            _ => uniformity.of(id),
        }
    }

    fn evaluate(
        &mut self,
        code: &'k Code,
        id: ExprId,
        arguments: &[Uniformity],
        uniformity: &mut UniformityInfo,
    ) -> Option<Uniformity> {
        let all = |ids: &[ExprId], uniformity: &UniformityInfo| {
            let uniform =
                ids.iter().all(|&id| self.uniformity_of(code, id, arguments, uniformity) == Uniformity::Uniform);
            if uniform { Uniformity::Uniform } else { Uniformity::Varying }
        };
        Some(match code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Argument(_) => self.uniformity_of(code, id, arguments, uniformity),
            Expr::Read(local) if uniformity.varying[local.0 as usize] => Uniformity::Varying,
            Expr::Read(_) => Uniformity::Uniform,
            Expr::Op(op, args) if self.is_branch_condition(code, id, *op, args, arguments, uniformity) => {
                Uniformity::Uniform
            }
            Expr::Op(op, args) => match self.linear_result(code, *op, args, arguments, uniformity) {
                Some(shape) if code.ty(id).as_scalar().is_some_and(is_counter) => shape,
                _ => all(args, uniformity),
            },
            Expr::Algebra { args, .. } => all(args, uniformity),
            Expr::Cast(to, from) => match self.uniformity_of(code, *from, arguments, uniformity) {
                // After a wrap, a wider integer would no longer be linear.
                Uniformity::Linear(step) if is_counter(*to) && self.ranges.is_some_and(|r| r.is_bounded(id)) => {
                    Uniformity::Linear(step)
                }
                Uniformity::Uniform => Uniformity::Uniform,
                _ => Uniformity::Varying,
            },
            Expr::Bitcast(_, from) => all(&[*from], uniformity),
            Expr::Call(function, args) => {
                let argument_uniformity: Vec<Uniformity> =
                    args.iter().map(|&arg| self.uniformity_of(code, arg, arguments, uniformity)).collect();
                let inner = &self.kernel.functions[function.0 as usize].code;
                let mut walk = Analyzer { ranges: None, ..*self };
                let found = walk.code(inner, &argument_uniformity)?;
                let result = walk.uniformity_of(inner, found.result?, &argument_uniformity, &found);
                uniformity.calls.insert(id, found);
                result
            }
            Expr::Load { view, indices, .. } if self.has_dynamic_component(code, *view, indices) => return None,
            Expr::Load { view: View::Param(param), indices, .. } => {
                // An instance may load only what it stored itself.
                let own = self.kernel.param(*param).access != Access::Read;
                match all(indices, uniformity) {
                    Uniformity::Uniform if !own => Uniformity::Uniform,
                    _ => Uniformity::Varying,
                }
            }
            _ => return None,
        })
    }

    /// Returns true for a branch condition that is monotonic in the instance number: neighbours
    /// usually agree, and fall back to scalar code if they do not.
    fn is_branch_condition(
        &self,
        code: &Code,
        id: ExprId,
        op: Op,
        args: &[ExprId],
        arguments: &[Uniformity],
        uniformity: &UniformityInfo,
    ) -> bool {
        let [a, b] = *args else { return false };
        let Some(ranges) = self.ranges.filter(|_| !self.has_stored && self.branch_conditions.contains(&id)) else {
            return false;
        };
        // A linear value that has not wrapped is monotonic.
        let known = |id: ExprId| ranges.is_bounded(id) || matches!(code.expr(id), Expr::Index);
        let counts = |id: ExprId| match self.uniformity_of(code, id, arguments, uniformity) {
            Uniformity::Uniform => true,
            Uniformity::Linear(_) => known(id),
            Uniformity::Varying => false,
        };
        let uniform = |id: ExprId| self.uniformity_of(code, id, arguments, uniformity) == Uniformity::Uniform;
        let compares = matches!(op, Op::Lt | Op::Le | Op::Gt | Op::Ge);
        compares && counts(a) && counts(b) && (uniform(a) || uniform(b))
    }

    /// Returns the uniformity of an op on linear integers, if it is uniform or linear.
    fn linear_result(
        &self,
        code: &Code,
        op: Op,
        args: &[ExprId],
        arguments: &[Uniformity],
        uniformity: &UniformityInfo,
    ) -> Option<Uniformity> {
        let step = |id: ExprId| match self.uniformity_of(code, id, arguments, uniformity) {
            Uniformity::Uniform => Some(0),
            Uniformity::Linear(step) => Some(step),
            Uniformity::Varying => None,
        };
        let known = |id: ExprId| match code.expr(id) {
            Expr::Const(value) => Some(value.as_i64()),
            _ => None,
        };
        let [a, b] = *args else { return None };
        let (first, second) = (step(a)?, step(b)?);
        let step = match op {
            Op::Add => first.checked_add(second)?,
            Op::Sub => first.checked_sub(second)?,
            Op::Mul if second == 0 => first.checked_mul(known(b)?)?,
            Op::Mul if first == 0 => second.checked_mul(known(a)?)?,
            // Neighbours usually have the same quotient, and fall back to scalar code if they do
            // not.
            Op::Div | Op::Rem if first == 1 && !self.has_stored && known(b)? >= 2 * self.lanes => {
                (op == Op::Rem) as i64
            }
            _ => return None,
        };
        Some(if step == 0 { Uniformity::Uniform } else { Uniformity::Linear(step) })
    }
}

fn is_counter(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::I32 | Scalar::I64)
}
