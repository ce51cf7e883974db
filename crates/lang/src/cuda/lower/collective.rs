//! Collectives of CUB: reductions and scans over a block or a warp. Blocks exchange values through
//! the shared memory that the source passes, and like CUB leave it to the caller to synchronize
//! before that memory is used again.

use bornite_ir::{Check, Op, Scalar, Shuffle, Stmt, Type};

use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Pointer};
use super::{CodeKind, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Expr, ExprKind, TemplateArg};
use crate::cuda::types::{CType, Collective, CollectiveKind};
use crate::lower::Tree;

/// Operation of a reduction: an op, or a function object of the source.
enum Combine {
    Op(Op),
    Object(Lvalue),
}

impl<'m> Lowering<'m> {
    /// `cub::BlockReduce<T, 256>` and similar; `None` if `name` is not one.
    pub(super) fn collective_type(
        &mut self,
        name: &str,
        args: &'m [TemplateArg],
        span: SourceSpan,
    ) -> LowerResult<Option<CType>> {
        let kind = match name {
            "BlockReduce" => CollectiveKind::BlockReduce,
            "BlockScan" => CollectiveKind::BlockScan,
            "WarpReduce" => CollectiveKind::WarpReduce,
            _ => return Ok(None),
        };
        let [TemplateArg::Type(ty), rest @ ..] = args else {
            return self.fail(span, format!("'cub::{name}' needs a type"), "missing template arguments", "");
        };
        let CType::Value(Type::Scalar(scalar)) = self.c_type(ty)? else {
            return self.unsupported(span, format!("'cub::{name}' of a struct or vector"), "reduce its components");
        };
        // Sizes along x, y and z; the algorithm between them has no effect on the result.
        let mut threads = 1;
        for (n, arg) in rest.iter().enumerate().filter(|(n, _)| *n != 1) {
            match arg {
                TemplateArg::Value(size) if n < 4 => threads *= self.constant_int(size, "the size of a block")?,
                _ => return self.unsupported(span, format!("this argument of 'cub::{name}'"), ""),
            }
        }
        let threads = match kind {
            CollectiveKind::WarpReduce if rest.is_empty() => 32,
            _ => threads,
        };
        let is_valid = match kind {
            CollectiveKind::WarpReduce => matches!(threads, 1 | 2 | 4 | 8 | 16 | 32),
            _ => (1..=1024).contains(&threads) && !rest.is_empty(),
        };
        if !is_valid {
            return self.unsupported(span, format!("'cub::{name}' of {threads} threads"), "");
        }
        Ok(Some(CType::Collective(Collective { kind, scalar, threads: threads as u32 })))
    }

    /// A member function of a collective.
    pub(super) fn collective_method(
        &mut self,
        collective: Collective,
        storage: Option<Pointer>,
        name: &str,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        if self.code != CodeKind::Kernel {
            return self.unsupported(span, "a collective in this function", "");
        }
        let scalar = collective.scalar;
        let Some((first, rest)) = args.split_first() else {
            return self.unsupported(span, format!("'{name}' without arguments"), "");
        };
        let value = self.initializer(first, scalar.into())?;
        let value = self.materialize(value);
        match (collective.kind, name, rest) {
            (CollectiveKind::WarpReduce, "Sum", []) => {
                self.warp_reduce(collective, value, &Combine::Op(Op::Add), first.span)
            }
            (CollectiveKind::WarpReduce, "Reduce", [operation]) => {
                let combine = self.combine(operation, scalar)?;
                self.warp_reduce(collective, value, &combine, first.span)
            }
            (CollectiveKind::BlockReduce, "Sum", [] | [_]) => {
                self.block_reduce(collective, storage, value, &Combine::Op(Op::Add), rest.first(), span)
            }
            (CollectiveKind::BlockReduce, "Reduce", [operation] | [operation, _]) => {
                let combine = self.combine(operation, scalar)?;
                self.block_reduce(collective, storage, value, &combine, rest.get(1), span)
            }
            (CollectiveKind::BlockScan, "InclusiveSum" | "ExclusiveSum", [out] | [out, _]) => {
                let out = self.lvalue(out)?;
                let total = rest.get(1).map(|total| self.lvalue(total)).transpose()?;
                self.block_scan(collective, storage, value, name == "InclusiveSum", (out, total), span)
            }
            _ => self.unsupported(span, format!("'{name}' of this collective"), ""),
        }
    }

    /// The operation that an argument names: `cub::Max()`, or a function object.
    fn combine(&mut self, operation: &'m Expr, scalar: Scalar) -> LowerResult<Combine> {
        if let ExprKind::Call { callee, args, .. } = &operation.kind
            && args.is_empty()
            && self.lookup(*callee).is_none()
            && self.module.file.functions.iter().all(|function| function.name != *callee)
        {
            let op = match (self.text(*callee), scalar.is_float()) {
                ("Sum" | "plus", _) => Op::Add,
                ("Max" | "maximum", false) => Op::Max,
                ("Max" | "maximum", true) => Op::Fmax,
                ("Min" | "minimum", false) => Op::Min,
                ("Min" | "minimum", true) => Op::Fmin,
                _ => return self.unsupported(operation.span, "this operation of a collective", ""),
            };
            return Ok(Combine::Op(op));
        }
        match self.operand(operation)? {
            CudaOperand::Lvalue(lvalue) => Ok(Combine::Object(lvalue)),
            CudaOperand::Tree(tree) => Ok(Combine::Object(Lvalue::of_value(self.materialize(tree)))),
            _ => self.unsupported(operation.span, "this operation of a collective", "pass a function object"),
        }
    }

    fn combined(&mut self, combine: &Combine, a: Tree, b: Tree, scalar: Scalar, span: SourceSpan) -> LowerResult<Tree> {
        match combine {
            Combine::Op(op) => Ok(Tree::op(*op, vec![a, b])),
            Combine::Object(object) => {
                let operands = vec![CudaOperand::Tree(a), CudaOperand::Tree(b)];
                let result = self.invoke_with(object.clone(), operands, span)?;
                let tree = self.value_of(result, span)?;
                self.convert(tree, scalar.into(), span)
            }
        }
    }

    /// Reduction of a warp by a butterfly of shuffles.
    fn warp_reduce(
        &mut self,
        collective: Collective,
        value: Tree,
        combine: &Combine,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let mut sum = value;
        let mut distance = i64::from(collective.threads) / 2;
        while distance > 0 {
            let own = self.materialize(sum);
            let lane = Tree::int(self.index_type, distance);
            let other = self.shuffle_tree(Shuffle::Xor, own.clone(), lane, collective.threads.into(), None, span)?;
            sum = self.combined(combine, own, other, collective.scalar, span)?;
            distance /= 2;
        }
        Ok(CudaOperand::Tree(self.materialize(sum)))
    }

    /// Writes each thread's value to the shared storage, and waits for all threads. Returns the
    /// thread's number.
    fn exchange(
        &mut self,
        collective: Collective,
        storage: Option<Pointer>,
        value: &Tree,
        span: SourceSpan,
    ) -> LowerResult<(Pointer, Tree)> {
        let Some(storage) = storage else {
            let what = "a collective without its shared storage";
            return self.unsupported(span, what, "declare '__shared__ typename BlockReduce::TempStorage temp;'");
        };
        let threads: u32 = self.request.block.iter().product();
        if threads != collective.threads {
            let message = format!("the collective is for blocks of {} threads", collective.threads);
            let condition = self.w.emit(&Tree::int(Scalar::Bool, 0));
            self.push_stmt(Stmt::Check(Check::Assert { condition, message }), span);
        }
        let thread = self.w.linear_thread(self.index_type, self.request.block);
        let thread = self.materialize(thread);
        let slot = self.storage_slot(&storage, &thread, collective.scalar);
        self.write(&slot, value.clone(), span)?;
        self.push_stmt(Stmt::Barrier, span);
        Ok((storage, thread))
    }

    /// Element of the shared storage.
    fn storage_slot(&mut self, storage: &Pointer, index: &Tree, scalar: Scalar) -> Lvalue {
        let at = vec![self.w.emit(index)];
        let range = bornite_ir::IntRange::of_type(Scalar::I32);
        let root =
            LvalueRoot::Element { view: storage.view, at, range, width: 1, element: scalar.into(), choice: None };
        Lvalue { root, path: vec![], ty: scalar.into(), constant: false }
    }

    /// Combines elements `from .. from + count` of the storage into a local.
    fn accumulate(
        &mut self,
        storage: &Pointer,
        (from, count): (i64, Tree),
        local: bornite_ir::LocalId,
        combine: &Combine,
        (scalar, span): (Scalar, SourceSpan),
    ) -> LowerResult {
        let counter = self.new_local("n", self.index_type.into(), &[bornite_ir::Value::int(self.index_type, 0)]);
        let end = self.w.emit(&count);
        self.w.b.open_block();
        self.loops += 1;
        let at = Tree::emitted(self.w.b.read(counter), self.index_type);
        let at = Tree::op(Op::Add, vec![at, Tree::int(self.index_type, from)]);
        let slot = self.storage_slot(storage, &at, scalar);
        let done = self.read(&slot, span).and_then(|next| {
            let sum = Tree::emitted(self.w.b.read(local), scalar);
            let sum = self.combined(combine, sum, next, scalar, span)?;
            self.assign(local, &sum);
            Ok(())
        });
        self.loops -= 1;
        let body = self.w.b.close_block();
        self.w.stmt(Stmt::For { counter, end, body });
        done
    }

    /// Reduction of a block: the result is defined in thread 0.
    fn block_reduce(
        &mut self,
        collective: Collective,
        storage: Option<Pointer>,
        value: Tree,
        combine: &Combine,
        valid: Option<&'m Expr>,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let scalar = collective.scalar;
        let valid = match valid {
            Some(valid) => {
                let tree = self.initializer(valid, Scalar::I32.into())?;
                tree.cast(self.index_type)
            }
            None => Tree::int(self.index_type, collective.threads.into()),
        };
        let valid = self.materialize(valid);
        let (storage, thread) = self.exchange(collective, storage, &value, span)?;
        let zeros = self.zeros(scalar.into());
        let local = self.new_local("reduced", scalar.into(), &zeros);
        self.assign(local, &value);
        let is_first = Tree::op(Op::Eq, vec![thread, Tree::int(self.index_type, 0)]);
        let condition = self.w.emit(&is_first);
        self.w.b.open_block();
        let count = Tree::op(Op::Sub, vec![valid, Tree::int(self.index_type, 1)]);
        let done = self.accumulate(&storage, (1, count), local, combine, (scalar, span));
        let then = self.w.b.close_block();
        self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
        done?;
        Ok(CudaOperand::Tree(Tree::emitted(self.w.b.read(local), scalar)))
    }

    /// Prefix sum of a block, and its total if that is requested.
    fn block_scan(
        &mut self,
        collective: Collective,
        storage: Option<Pointer>,
        value: Tree,
        is_inclusive: bool,
        (out, total): (Lvalue, Option<Lvalue>),
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let scalar = collective.scalar;
        let (storage, thread) = self.exchange(collective, storage, &value, span)?;
        let zeros = self.zeros(scalar.into());
        let mut sums = vec![(thread, out)];
        sums.extend(total.map(|total| (Tree::int(self.index_type, collective.threads.into()), total)));
        for (n, (count, target)) in sums.into_iter().enumerate() {
            let local = self.new_local("scanned", scalar.into(), &zeros);
            self.assign(local, &Tree::int(scalar, 0));
            self.accumulate(&storage, (0, count), local, &Combine::Op(Op::Add), (scalar, span))?;
            let mut sum = Tree::emitted(self.w.b.read(local), scalar);
            if n == 0 && is_inclusive {
                sum = Tree::op(Op::Add, vec![sum, value.clone()]);
            }
            let sum = self.convert(sum, target.ty, span)?;
            let sum = self.materialize(sum);
            self.write(&target, sum, span)?;
        }
        Ok(CudaOperand::Void)
    }

    /// Declares the shared storage of a collective: one element per thread.
    pub(super) fn storage_array(
        &mut self,
        collective: Collective,
        d: &crate::cuda::ast::Declarator,
    ) -> LowerResult<Pointer> {
        let needs_memory = collective.kind != CollectiveKind::WarpReduce;
        if needs_memory && !d.sizes.is_empty() {
            return self.unsupported(d.span, "an array of temporary storages", "");
        }
        let size = if needs_memory { u64::from(collective.threads) } else { 1 };
        let name = self.unique_shared_name(self.text(d.name));
        let view = self.w.b.shared_array(name, collective.scalar, &[size]);
        Ok(Pointer::to_view(view.into(), collective.scalar.into(), 1, false, &[]))
    }
}
