//! Thread synchronization and communication: barriers, fences, shuffles, votes.

use bornite_ir::{Op, Scalar, Scope, Shuffle, Stmt, Vote};

use super::lvalue::CudaOperand;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::Expr;
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
                if let Some(mask) = args.first() {
                    self.check_full_mask(mask)?;
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
            "__match_any_sync" | "__match_all_sync" | "__reduce_add_sync" | "__reduce_min_sync"
            | "__reduce_max_sync" => {
                return self.unsupported(span, format!("'{name}'"), "use shuffles");
            }
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

    /// Rejects partial masks, which the IR does not have.
    fn check_full_mask(&mut self, mask: &'m Expr) -> LowerResult {
        let tree = self.rvalue(mask)?;
        match self.w.fold(&tree) {
            Some(value) if value.bits() as u32 == u32::MAX => Ok(()),
            _ => self.unsupported(
                mask.span,
                "a partial warp mask",
                "pass 0xffffffff and have all threads of the warp take part",
            ),
        }
    }

    fn vote(&mut self, vote: Vote, name: &str, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count(name, args, 2, span)?;
        self.check_full_mask(&args[0])?;
        let value = self.condition(&args[1])?;
        Ok(CudaOperand::Tree(self.vote_tree(vote, value, span)))
    }

    /// Emits a vote.
    pub(super) fn vote_tree(&mut self, vote: Vote, condition: Tree, span: SourceSpan) -> Tree {
        let condition = self.w.emit(&condition);
        self.set_source_line(span);
        let id = self.w.b.vote(vote, condition);
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
        self.check_full_mask(&args[0])?;
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
        Ok(CudaOperand::Tree(self.shuffle_tree(shuffle, value, lane, width, args[1].span)?))
    }

    /// Emits a shuffle within groups of `width` lanes.
    pub(super) fn shuffle_tree(
        &mut self,
        shuffle: Shuffle,
        value: Tree,
        lane: Tree,
        width: i64,
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
        let id = self.w.b.shuffle(shuffle, value, lane);
        Ok(Tree::emitted(id, wide).cast(scalar))
    }

    /// Expresses a shuffle within groups of `width` lanes as one by absolute lane index.
    fn subgroup_shuffle(&mut self, shuffle: Shuffle, lane: Tree, width: i64) -> (Shuffle, Tree) {
        let index = self.index_type;
        let int = |value: i64| Tree::int(index, value);
        let thread = self.w.linear_thread(index, self.request.block);
        let own = self.materialize(Tree::op(Op::And, vec![thread, int(31)]));
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
