//! Thread synchronization and communication: barriers, fences, shuffles, votes.

use bornite_ir::{ExprId, Op, Scalar, Scope, Shuffle, Stmt, Vote};

use super::lvalue::CudaOperand;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::Expr;
use crate::cuda::types::promoted;
use crate::diagnostic::given_count;
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// Lowers a barrier, fence, shuffle or vote function; `None` if `name` is not one.
    pub(super) fn sync_function(
        &mut self,
        name: &str,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        let stmt = match name {
            "__syncthreads" => Stmt::Barrier,
            "__syncwarp" => {
                if let Some(mask) = args.first()
                    && self.warp_mask(mask)?.is_some()
                {
                    let hint = "have all threads of the warp take part";
                    return self.unsupported(mask.span, "'__syncwarp' of a part of a warp", hint);
                }
                Stmt::WarpBarrier
            }
            "__threadfence_block" => Stmt::Fence(Scope::Block),
            "__threadfence" => Stmt::Fence(Scope::Device),
            "__threadfence_system" => Stmt::Fence(Scope::System),
            "__syncthreads_count" | "__syncthreads_and" | "__syncthreads_or" => {
                return self.unsupported(
                    span,
                    format!("'{name}'"),
                    "count in shared memory, then call '__syncthreads()'",
                );
            }
            "__activemask" => {
                let yes = self.w.constant(bornite_ir::Value::int(Scalar::Bool, 1));
                let id = self.w.b.vote(Vote::Ballot, yes);
                return Ok(Some(CudaOperand::Tree(Tree::emitted(id, Scalar::U32))));
            }
            "__shfl" | "__shfl_up" | "__shfl_down" | "__shfl_xor" | "__any" | "__all" | "__ballot" => {
                let hint = format!("current GPUs do not have it; use '{name}_sync'");
                return self.unsupported(span, format!("'{name}'"), &hint);
            }
            "__match_any_sync" | "__match_all_sync" => return self.warp_match(name, args, span).map(Some),
            "__reduce_add_sync" => return self.warp_reduction(Op::Add, name, args, span).map(Some),
            "__reduce_min_sync" => return self.warp_reduction(Op::Min, name, args, span).map(Some),
            "__reduce_max_sync" => return self.warp_reduction(Op::Max, name, args, span).map(Some),
            "__reduce_and_sync" => return self.warp_reduction(Op::And, name, args, span).map(Some),
            "__reduce_or_sync" => return self.warp_reduction(Op::Or, name, args, span).map(Some),
            "__reduce_xor_sync" => return self.warp_reduction(Op::Xor, name, args, span).map(Some),
            "__shfl_sync" => return self.shuffle(Shuffle::Index, name, args, span).map(Some),
            "__shfl_up_sync" => return self.shuffle(Shuffle::Up, name, args, span).map(Some),
            "__shfl_down_sync" => return self.shuffle(Shuffle::Down, name, args, span).map(Some),
            "__shfl_xor_sync" => return self.shuffle(Shuffle::Xor, name, args, span).map(Some),
            "__any_sync" => return self.vote(Vote::Any, name, args, span).map(Some),
            "__all_sync" => return self.vote(Vote::All, name, args, span).map(Some),
            "__ballot_sync" => return self.vote(Vote::Ballot, name, args, span).map(Some),
            _ => return Ok(None),
        };
        self.push_stmt(stmt, span);
        Ok(Some(CudaOperand::Void))
    }

    /// Lanes that a mask names; `None` if it is the constant of all lanes.
    fn warp_mask(&mut self, mask: &'m Expr) -> LowerResult<Option<ExprId>> {
        let tree = self.rvalue(mask)?;
        if self.w.fold(&tree).is_some_and(|value| value.bits() as u32 == u32::MAX) {
            return Ok(None);
        }
        let tree = self.convert(tree, Scalar::U32.into(), mask.span)?;
        Ok(Some(self.w.emit(&tree)))
    }

    /// `__reduce_add_sync` and similar, of 32-bit integers.
    fn warp_reduction(&mut self, op: Op, name: &str, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count(name, args, 2, span)?;
        let mask = self.warp_mask(&args[0])?;
        let value = self.rvalue(&args[1])?;
        let is_signed = value.scalar().is_some_and(|scalar| promoted(scalar) == Scalar::I32);
        let scalar = if is_signed && !matches!(op, Op::And | Op::Or | Op::Xor) { Scalar::I32 } else { Scalar::U32 };
        let value = self.convert(value, scalar.into(), args[1].span)?;
        let own = self.materialize(value);
        let mut sum = own.clone();
        if mask.is_none() {
            for distance in [16, 8, 4, 2, 1] {
                let lane = Tree::int(self.index_type, distance);
                let other = self.shuffle_tree(Shuffle::Xor, sum.clone(), lane, 32, None, span)?;
                sum = self.materialize(Tree::op(op, vec![sum, other]));
            }
            return Ok(CudaOperand::Tree(sum));
        }
        // Lanes that take part, one after the other; in place of the others, the own value is
        // ignored.
        let lanes = Tree::int(Scalar::Bool, 1);
        let lanes = self.vote_tree(Vote::Ballot, lanes, mask, span);
        let own_lane = self.own_lane();
        for n in 0..32 {
            let bit = Tree::op(Op::And, vec![lanes.clone(), Tree::int(Scalar::U32, 1 << n)]);
            let is_named = Tree::op(Op::Ne, vec![bit, Tree::int(Scalar::U32, 0)]);
            let lane = Tree::int(self.index_type, n);
            let is_other = Tree::op(Op::Ne, vec![own_lane.clone(), lane.clone()]);
            let is_other = self.materialize(Tree::op(Op::And, vec![is_named, is_other]));
            let from = Tree::select(is_other.clone(), lane, own_lane.clone());
            let other = self.shuffle_tree(Shuffle::Index, own.clone(), from, 32, mask, span)?;
            let both = Tree::op(op, vec![sum.clone(), other]);
            sum = self.materialize(Tree::select(is_other, both, sum));
        }
        Ok(CudaOperand::Tree(sum))
    }

    /// `__match_any_sync` and `__match_all_sync`: lanes with the same bits, found by a vote on each
    /// bit.
    fn warp_match(&mut self, name: &str, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        let is_any = name == "__match_any_sync";
        self.check_arg_count(name, args, if is_any { 2 } else { 3 }, span)?;
        let mask = self.warp_mask(&args[0])?;
        let value = self.rvalue(&args[1])?;
        let Some(scalar) = value.scalar().filter(|scalar| !scalar.is_float() || scalar.bytes() >= 4) else {
            return self.fail(
                args[1].span,
                format!("'{name}' takes a number of 32 or 64 bits"),
                "expected a number",
                "",
            );
        };
        let scalar = if scalar.is_float() { scalar } else { promoted(scalar) };
        let word = if scalar.bytes() == 8 { Scalar::U64 } else { Scalar::U32 };
        let value = self.convert(value, scalar.into(), args[1].span)?.reinterpret(word);
        let value = self.materialize(value);
        let all = self.vote_tree(Vote::Ballot, Tree::int(Scalar::Bool, 1), mask, span);
        let mut same = all.clone();
        for n in 0..8 * word.bytes() {
            let bit = Tree::op(Op::And, vec![value.clone(), Tree::int(word, 1 << n)]);
            let is_set = self.materialize(Tree::op(Op::Ne, vec![bit, Tree::int(word, 0)]));
            let set = self.vote_tree(Vote::Ballot, is_set.clone(), mask, span);
            let like_own = Tree::select(is_set, set.clone(), Tree::op(Op::Not, vec![set]));
            same = self.materialize(Tree::op(Op::And, vec![same, like_own]));
        }
        let Some(predicate) = args.get(2) else { return Ok(CudaOperand::Tree(same)) };
        let is_all = self.materialize(Tree::op(Op::Eq, vec![same, all.clone()]));
        let pointer = self.operand(predicate)?;
        let lvalue = self.pointee(pointer, predicate.span)?;
        let written = self.convert(is_all.clone(), lvalue.ty, predicate.span)?;
        self.write(&lvalue, written, predicate.span)?;
        Ok(CudaOperand::Tree(Tree::select(is_all, all, Tree::int(Scalar::U32, 0))))
    }

    /// Lane of the thread in its warp.
    fn own_lane(&mut self) -> Tree {
        let thread = self.w.linear_thread(self.index_type, self.request.block);
        self.materialize(Tree::op(Op::And, vec![thread, Tree::int(self.index_type, 31)]))
    }

    fn vote(&mut self, vote: Vote, name: &str, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count(name, args, 2, span)?;
        let mask = self.warp_mask(&args[0])?;
        let value = self.condition(&args[1])?;
        Ok(CudaOperand::Tree(self.vote_tree(vote, value, mask, span)))
    }

    /// Emits a vote among the lanes of a mask.
    pub(super) fn vote_tree(&mut self, vote: Vote, condition: Tree, mask: Option<ExprId>, span: SourceSpan) -> Tree {
        let condition = self.w.emit(&condition);
        self.set_source_line(span);
        let id = self.w.b.masked_vote(vote, condition, mask);
        match vote {
            Vote::Ballot => Tree::emitted(id, Scalar::U32),
            _ => Tree::emitted(id, Scalar::Bool).cast(Scalar::I32),
        }
    }

    fn shuffle(
        &mut self,
        shuffle: Shuffle,
        name: &str,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        if !(3..=4).contains(&args.len()) {
            let what = format!("'{name}' takes 3 or 4 arguments, {} given", given_count(args.len()));
            return self.fail(span, what, "", "");
        }
        let mask = self.warp_mask(&args[0])?;
        let value = self.rvalue(&args[1])?;
        let lane = self.rvalue(&args[2])?;
        let lane = match lane.node {
            Node::Cast(Scalar::I32, inner) if inner.scalar() == Some(self.index_type) => *inner,
            // The parameter has type `int`.
            _ => self.convert(lane, Scalar::I32.into(), args[2].span)?.cast(self.index_type),
        };
        let width = match args.get(3) {
            Some(width) => self.constant_int(width, "the width of a shuffle")?,
            None => 32,
        };
        if !matches!(width, 1 | 2 | 4 | 8 | 16 | 32) {
            return self.fail(span, format!("invalid shuffle width {width}"), "expected a power of 2 up to 32", "");
        }
        self.set_source_line(span);
        Ok(CudaOperand::Tree(self.shuffle_tree(shuffle, value, lane, width, mask, args[1].span)?))
    }

    /// Emits a shuffle within groups of `width` lanes, among the lanes of a mask.
    pub(super) fn shuffle_tree(
        &mut self,
        shuffle: Shuffle,
        value: Tree,
        lane: Tree,
        width: i64,
        mask: Option<ExprId>,
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        let Some(scalar) = value.scalar() else {
            return self.unsupported(span, "a shuffle of a struct or vector", "shuffle its components");
        };
        // Narrow integers are shuffled as `int`, 16-bit floats as `float`, which holds them
        // exactly.
        let wide = if scalar.bytes() >= 4 { scalar } else { scalar.compute_type() };
        let wide = if scalar == Scalar::Bool { Scalar::I32 } else { wide };
        let value = value.cast(wide);
        let (shuffle, lane) = if width == 32 { (shuffle, lane) } else { self.subgroup_shuffle(shuffle, lane, width) };
        let (value, lane) = (self.w.emit(&value), self.w.emit(&lane));
        self.set_source_line(span);
        let id = self.w.b.masked_shuffle(shuffle, value, lane, mask);
        Ok(Tree::emitted(id, wide).cast(scalar))
    }

    /// Expresses a shuffle within groups of `width` lanes as one by absolute lane index.
    fn subgroup_shuffle(&mut self, shuffle: Shuffle, lane: Tree, width: i64) -> (Shuffle, Tree) {
        let index = self.index_type;
        let int = |value: i64| Tree::int(index, value);
        let own = self.own_lane();
        let lane = self.materialize(lane);
        let first = self.materialize(Tree::op(Op::And, vec![own.clone(), int(32 - width)]));
        let from = match shuffle {
            Shuffle::Index => Tree::op(Op::Add, vec![first, Tree::op(Op::And, vec![lane, int(width - 1)])]),
            Shuffle::Xor => {
                let other = self.materialize(Tree::op(Op::Xor, vec![own.clone(), lane]));
                let last = Tree::op(Op::Add, vec![first, int(width)]);
                Tree::select(Tree::op(Op::Lt, vec![other.clone(), last]), other, own)
            }
            Shuffle::Up => {
                let other = self.materialize(Tree::op(Op::Sub, vec![own.clone(), lane]));
                Tree::select(Tree::op(Op::Ge, vec![other.clone(), first]), other, own)
            }
            Shuffle::Down => {
                let other = self.materialize(Tree::op(Op::Add, vec![own.clone(), lane]));
                let last = Tree::op(Op::Add, vec![first, int(width)]);
                Tree::select(Tree::op(Op::Lt, vec![other.clone(), last]), other, own)
            }
        };
        (Shuffle::Index, from)
    }
}
