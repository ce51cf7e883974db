//! Cooperative groups: thread blocks, tiles of up to 32 threads, the grid. A group has no data; its
//! kind is known at compile time.

use bornite_ir::{AlgebraOp, Axis, Builtin, Op, Scalar, Shuffle, Stmt, Type, Vote};

use super::lvalue::CudaOperand;
use super::{CodeKind, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Expr, ExprKind, TemplateArg};
use crate::cuda::types::Group;
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// Lowers a function of the namespace `cooperative_groups`; `None` if `name` is not one.
    pub(super) fn group_function(
        &mut self,
        name: &str,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        match (name, args) {
            ("this_thread_block", []) => Ok(Some(CudaOperand::Group(Group::Block))),
            ("this_grid", []) => Ok(Some(CudaOperand::Group(Group::Grid))),
            ("tiled_partition", [parent]) => {
                let [TemplateArg::Value(size)] = templates else {
                    return self.unsupported(
                        span,
                        "'tiled_partition' without a constant size",
                        "write its size: '<32>'",
                    );
                };
                let size = self.constant_int(size, "the size of a tile")?;
                let group = self.tile_of(size, span)?;
                match self.operand(parent)? {
                    CudaOperand::Group(Group::Block) => Ok(Some(CudaOperand::Group(group))),
                    CudaOperand::Group(Group::Tile(outer, _)) if i64::from(outer) >= size => {
                        Ok(Some(CudaOperand::Group(Group::Tile(size as u8, outer))))
                    }
                    _ => self.fail(parent.span, "this group cannot be partitioned", "expected a thread block", ""),
                }
            }
            ("coalesced_threads" | "labeled_partition" | "binary_partition" | "this_cluster", _) => {
                self.unsupported(span, format!("'{name}'"), "use 'tiled_partition' of the thread block")
            }
            ("sync" | "thread_rank" | "reduce" | "group_size", [group, rest @ ..]) => {
                let CudaOperand::Group(group) = self.operand(group)? else { return Ok(None) };
                if name == "reduce" {
                    return self.group_reduce(group, rest, span).map(Some);
                }
                self.group_method(group, name, rest, span).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The tile of a number of threads.
    pub(super) fn tile_of(&mut self, size: i64, span: SourceSpan) -> LowerResult<Group> {
        match size {
            1 | 2 | 4 | 8 | 16 | 32 => Ok(Group::Tile(size as u8, 0)),
            _ => self.unsupported(span, format!("a tile of {size} threads"), "write a power of 2 up to 32"),
        }
    }

    /// Member functions of groups.
    pub(super) fn group_method(
        &mut self,
        group: Group,
        name: &str,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        if self.code != CodeKind::Kernel {
            return self.unsupported(span, "a cooperative group in this function", "");
        }
        let (block, grid) = (self.request.block, self.request.grid);
        let threads: i64 = block.iter().map(|n| i64::from(*n)).product();
        let unsigned = |value: i64| Ok(CudaOperand::Tree(Tree::int(Scalar::U32, value)));
        match (group, name, args) {
            (Group::Grid, "sync", []) => {
                self.unsupported(span, "synchronization of the whole grid", "use one launch per phase")
            }
            (Group::Block, "sync", []) => {
                self.push_stmt(Stmt::Barrier, span);
                Ok(CudaOperand::Void)
            }
            (Group::Tile(..), "sync", []) => {
                self.push_stmt(Stmt::WarpBarrier, span);
                Ok(CudaOperand::Void)
            }
            (Group::Block, "thread_rank", []) => {
                let rank = self.w.linear_thread(self.index_type, block);
                Ok(CudaOperand::Tree(rank.cast(Scalar::U32)))
            }
            (Group::Tile(size, _), "thread_rank", []) => {
                let rank = self.w.linear_thread(self.index_type, block);
                let mask = Tree::int(self.index_type, i64::from(size) - 1);
                Ok(CudaOperand::Tree(Tree::op(Op::And, vec![rank, mask]).cast(Scalar::U32)))
            }
            (Group::Grid, "thread_rank", []) => {
                let axis = |axis| Tree::of(Node::Builtin(Builtin::Block(axis)), self.index_type).cast(Scalar::U64);
                let wide = |value: u32| Tree::int(Scalar::U64, i64::from(value));
                let mut rank = axis(Axis::Z);
                for (next, size) in [(axis(Axis::Y), grid[1]), (axis(Axis::X), grid[0])] {
                    rank = Tree::op(Op::Add, vec![Tree::op(Op::Mul, vec![rank, wide(size)]), next]);
                }
                let own = self.w.linear_thread(self.index_type, block).cast(Scalar::U64);
                let first = Tree::op(Op::Mul, vec![rank, Tree::int(Scalar::U64, threads)]);
                Ok(CudaOperand::Tree(Tree::op(Op::Add, vec![first, own])))
            }
            (Group::Block, "size" | "num_threads" | "group_size", []) => unsigned(threads),
            (Group::Tile(size, _), "size" | "num_threads" | "group_size", []) => unsigned(size.into()),
            (Group::Grid, "size" | "num_threads" | "group_size", []) => {
                let blocks: i64 = grid.iter().map(|n| i64::from(*n)).product();
                Ok(CudaOperand::Tree(Tree::int(Scalar::U64, blocks.wrapping_mul(threads))))
            }
            (Group::Tile(size, parent), "meta_group_rank", []) => {
                let mut rank = self.w.linear_thread(self.index_type, block).cast(Scalar::U32);
                if parent > 0 {
                    rank = Tree::op(Op::And, vec![rank, Tree::int(Scalar::U32, i64::from(parent) - 1)]);
                }
                Ok(CudaOperand::Tree(Tree::op(Op::Div, vec![rank, Tree::int(Scalar::U32, size.into())])))
            }
            (Group::Tile(size, parent @ 1..), "meta_group_size", []) => unsigned((parent / size).into()),
            (Group::Tile(size, _), "meta_group_size", []) => {
                unsigned((threads + i64::from(size) - 1) / i64::from(size))
            }
            (Group::Block, "thread_index" | "group_index", []) => {
                let builtin = if name == "thread_index" { Builtin::Thread } else { Builtin::Block };
                let axes = [Axis::X, Axis::Y, Axis::Z];
                let parts = axes.map(|axis| Tree::of(Node::Builtin(builtin(axis)), self.index_type).cast(Scalar::U32));
                let dim3 = Type::Vector(Scalar::U32, 3);
                Ok(CudaOperand::Tree(Tree::of(Node::Algebra(AlgebraOp::Construct, 0, parts.into()), dim3)))
            }
            (Group::Tile(size, _), "shfl" | "shfl_up" | "shfl_down" | "shfl_xor", [value, lane]) => {
                let shuffle = match name {
                    "shfl" => Shuffle::Index,
                    "shfl_up" => Shuffle::Up,
                    "shfl_down" => Shuffle::Down,
                    _ => Shuffle::Xor,
                };
                let (operand, lane_tree) = (self.rvalue(value)?, self.rvalue(lane)?);
                let lane = self.convert(lane_tree, Scalar::I32.into(), lane.span)?.cast(self.index_type);
                Ok(CudaOperand::Tree(self.shuffle_tree(shuffle, operand, lane, size.into(), None, value.span)?))
            }
            (Group::Tile(32, _), "any" | "all" | "ballot", [condition]) => {
                let vote = match name {
                    "any" => Vote::Any,
                    "all" => Vote::All,
                    _ => Vote::Ballot,
                };
                let condition = self.condition(condition)?;
                Ok(CudaOperand::Tree(self.vote_tree(vote, condition, None, span)))
            }
            _ => self.unsupported(span, format!("'{name}' of this group"), ""),
        }
    }

    /// `reduce(tile, value, plus<T>())`, by a butterfly of shuffles.
    fn group_reduce(&mut self, group: Group, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        let (Group::Tile(size, _), [value, operator]) = (group, args) else {
            return self.unsupported(span, "'reduce' of this group", "reduce a tile");
        };
        let ExprKind::Call { callee, .. } = &operator.kind else {
            return self.unsupported(operator.span, "this operation of 'reduce'", "write 'cg::plus<T>()'");
        };
        let mut sum = self.rvalue(value)?;
        let Some(scalar) = sum.scalar() else {
            return self.unsupported(value.span, "'reduce' of a struct or vector", "reduce its components");
        };
        let op = match (self.text(*callee), scalar.is_float()) {
            ("plus", _) => Op::Add,
            ("less", false) => Op::Min,
            ("less", true) => Op::Fmin,
            ("greater", false) => Op::Max,
            ("greater", true) => Op::Fmax,
            ("bit_and", false) => Op::And,
            ("bit_or", false) => Op::Or,
            ("bit_xor", false) => Op::Xor,
            _ => return self.unsupported(operator.span, "this operation of 'reduce'", "write 'cg::plus<T>()'"),
        };
        let mut distance = i64::from(size) / 2;
        while distance > 0 {
            let own = self.materialize(sum);
            let lane = Tree::int(self.index_type, distance);
            let other = self.shuffle_tree(Shuffle::Xor, own.clone(), lane, size.into(), None, value.span)?;
            sum = Tree::op(op, vec![own, other]);
            distance /= 2;
        }
        Ok(CudaOperand::Tree(self.materialize(sum)))
    }
}
