//! Kernel code to [`ScalarCode`].
//!
//! Reads of variables whose value is known are replaced by it. Constructs that cannot be
//! differentiated at all are errors here; what depends on activity is checked in `activity.rs`.

mod atomics;
mod expressions;

use std::collections::{BTreeMap, BTreeSet};

use super::scalar_code::{Block, BlockId, Def, Definition, Loop, LoopId, ScalarCode, ScalarStmt, ValueId, Var, VarId};
use super::{AdjointError, Refusal};
use crate::{Code, Expr, ExprId, Kernel, LocalId, Op, Scalar, Stmt, Value};

/// Maximum nesting of blocks and calls: the passes recurse over them.
const MAX_DEPTH: usize = 56;

/// Maximum number of values, after inlining.
const MAX_VALUES: usize = 1 << 18;

pub(super) fn flatten(kernel: &Kernel) -> Result<ScalarCode<'_>, AdjointError> {
    let body = Block { stmts: vec![], parent: None, in_loop: None, condition: None };
    let mut flattener = Flattener {
        kernel,
        code: ScalarCode { values: vec![], vars: vec![], groups: vec![], blocks: vec![body], loops: vec![] },
        current: BlockId(0),
        known: BTreeMap::new(),
        leaves: vec![],
        inductions: BTreeMap::new(),
        site: None,
        depth: 0,
    };
    flattener.check_atomics(&kernel.code)?;
    let returned = flattener.flag("returned");
    let mut frame = flattener.frame(&kernel.code, None, returned);
    flattener.sequence(&mut frame, &kernel.code.body)?;
    Ok(flattener.code)
}

/// Code being flattened: that of the kernel, or of an inlined function.
struct Frame<'k> {
    code: &'k Code,
    /// Components of the arguments; `None` in the kernel.
    args: Option<Vec<Vec<ValueId>>>,
    /// Components of the expressions evaluated so far.
    values: Vec<Option<Vec<ValueId>>>,
    vars: Vec<Vec<VarId>>,
    /// Set by a return.
    returned: VarId,
    /// Variables of the result, or its value if the function returns only at its end.
    result: FrameResult,
    /// The enclosing loops of this code.
    loops: Vec<LoopFlags>,
}

enum FrameResult {
    Vars(Vec<VarId>),
    Value(Vec<ValueId>),
}

#[derive(Clone, Copy)]
struct LoopFlags {
    /// The rest of the iteration is skipped.
    skip: VarId,
    /// The loop is left at the end of the iteration.
    exit: VarId,
}

/// Whether a statement leaves its block early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exit {
    Never,
    Maybe,
    Always,
}

fn block_exit(block: &[Stmt]) -> Exit {
    let mut exit = Exit::Never;
    for stmt in block {
        match stmt_exit(stmt) {
            Exit::Always => return Exit::Always,
            Exit::Maybe => exit = Exit::Maybe,
            Exit::Never => {}
        }
    }
    exit
}

fn stmt_exit(stmt: &Stmt) -> Exit {
    match stmt {
        Stmt::Break | Stmt::Continue | Stmt::Return(_) => Exit::Always,
        Stmt::If { then, otherwise, .. } => match (block_exit(then), block_exit(otherwise)) {
            (Exit::Always, Exit::Always) => Exit::Always,
            (Exit::Never, Exit::Never) => Exit::Never,
            _ => Exit::Maybe,
        },
        Stmt::For { .. } | Stmt::Loop { .. } if stmt.any(&|inner| matches!(inner, Stmt::Return(_))) => Exit::Maybe,
        _ => Exit::Never,
    }
}

/// True if a loop body has a `Break` of that loop, or a `Return`.
fn leaves_loop(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Break | Stmt::Return(_) => true,
        Stmt::If { then, otherwise, .. } => leaves_loop(then) || leaves_loop(otherwise),
        Stmt::For { .. } | Stmt::Loop { .. } => stmt.any(&|inner| matches!(inner, Stmt::Return(_))),
        _ => false,
    })
}

/// True if a statement has a `Continue` of the loop that contains it.
fn continues(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Continue => true,
        Stmt::If { then, otherwise, .. } => then.iter().chain(otherwise).any(continues),
        _ => false,
    }
}

fn assigned(body: &[Stmt], out: &mut Vec<LocalId>) {
    for stmt in body {
        match stmt {
            Stmt::Assign(local, _) => out.push(*local),
            Stmt::For { counter, .. } => out.push(*counter),
            _ => {}
        }
        stmt.blocks().into_iter().for_each(|inner| assigned(inner, out));
    }
}

struct Flattener<'k> {
    kernel: &'k Kernel,
    code: ScalarCode<'k>,
    current: BlockId,
    /// Values of variables that are known here.
    known: BTreeMap<VarId, ValueId>,
    leaves: Vec<ValueId>,
    /// Variables with their value from the start of the current iteration.
    inductions: BTreeMap<VarId, (LoopId, ValueId, ValueId, Op)>,
    site: Option<&'k Stmt>,
    depth: usize,
}

impl<'k> Flattener<'k> {
    fn refuse<T>(&self, what: impl Into<String>, remedy: &str) -> Result<T, AdjointError> {
        Err(AdjointError::at(self.kernel, self.site, Refusal { what: what.into(), remedy: remedy.into() }))
    }

    // Values and variables.

    fn define(&mut self, def: Def, scalar: Scalar) -> ValueId {
        let is_leaf = matches!(def, Def::Const(_) | Def::Argument { .. } | Def::Instance(_));
        if is_leaf
            && let Some(found) =
                self.leaves.iter().find(|id| self.code.value(**id).def == def && self.code.value(**id).scalar == scalar)
        {
            return *found;
        }
        let block = if is_leaf { BlockId(0) } else { self.current };
        self.code.values.push(Definition { def, scalar, block, site: self.site });
        let id = ValueId(self.code.values.len() as u32 - 1);
        if is_leaf {
            self.leaves.push(id);
        }
        id
    }

    fn let_(&mut self, def: Def, scalar: Scalar) -> ValueId {
        let id = self.define(def, scalar);
        if !self.code.value(id).is_leaf() {
            self.push(ScalarStmt::Let(id));
        }
        id
    }

    fn constant(&mut self, value: Value) -> ValueId {
        self.define(Def::Const(value), value.scalar())
    }

    fn index_constant(&mut self, value: usize) -> ValueId {
        self.constant(Value::int(self.kernel.index, value as i64))
    }

    fn push(&mut self, stmt: ScalarStmt<'k>) {
        self.code.blocks[self.current.0 as usize].stmts.push(stmt);
    }

    fn new_var(&mut self, name: &str, init: Value) -> VarId {
        self.code.vars.push(Var { name: name.into(), scalar: init.scalar(), init });
        VarId(self.code.vars.len() as u32 - 1)
    }

    fn flag(&mut self, name: &str) -> VarId {
        let var = self.new_var(name, Value::int(Scalar::Bool, 0));
        self.assign_bool(var, false);
        var
    }

    fn assign(&mut self, var: VarId, value: ValueId) {
        self.push(ScalarStmt::Assign(var, value));
        self.known.insert(var, value);
    }

    fn assign_bool(&mut self, var: VarId, value: bool) {
        let value = self.constant(Value::int(Scalar::Bool, value as i64));
        self.assign(var, value);
    }

    fn read(&mut self, var: VarId) -> ValueId {
        if let Some(known) = self.known.get(&var) {
            return *known;
        }
        let scalar = self.code.var(var).scalar;
        let def = match self.inductions.get(&var) {
            Some(&(of, init, step, op)) => Def::Induction { var, of, init, step, op },
            None => Def::Read(var),
        };
        let id = self.let_(def, scalar);
        self.known.insert(var, id);
        id
    }

    // Blocks.

    /// Opens a nested block and makes it the current one; returns the previous one.
    fn open(&mut self, condition: Option<(ValueId, bool)>, in_loop: Option<LoopId>) -> Result<BlockId, AdjointError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.refuse(
                format!("blocks and calls nested more than {MAX_DEPTH} deep"),
                "use fewer early exits, or split the kernel",
            );
        }
        let outer = self.current;
        let in_loop = in_loop.or(self.code.block(outer).in_loop);
        self.code.blocks.push(Block { stmts: vec![], parent: Some(outer), in_loop, condition });
        self.current = BlockId(self.code.blocks.len() as u32 - 1);
        Ok(outer)
    }

    /// Returns to the enclosing block; returns the closed one.
    fn close(&mut self, outer: BlockId) -> BlockId {
        self.depth -= 1;
        std::mem::replace(&mut self.current, outer)
    }

    /// Adds a conditional whose blocks are emitted by `then` and `otherwise`.
    fn conditional(
        &mut self,
        frame: &mut Frame<'k>,
        condition: ValueId,
        branches: [&mut dyn FnMut(&mut Self, &mut Frame<'k>) -> Result<(), AdjointError>; 2],
    ) -> Result<(), AdjointError> {
        let before = self.known.clone();
        let mut blocks = vec![];
        let mut known: Vec<BTreeMap<VarId, ValueId>> = vec![];
        for (branch, holds) in branches.into_iter().zip([true, false]) {
            let outer = self.open(Some((condition, holds)), None)?;
            branch(self, frame)?;
            blocks.push(self.close(outer));
            known.push(std::mem::replace(&mut self.known, before.clone()));
        }
        self.known.retain(|var, value| known.iter().all(|after| after.get(var) == Some(value)));
        self.push(ScalarStmt::If { condition, then: blocks[0], otherwise: blocks[1] });
        Ok(())
    }

    fn sequence(&mut self, frame: &mut Frame<'k>, stmts: &'k [Stmt]) -> Result<(), AdjointError> {
        for (n, stmt) in stmts.iter().enumerate() {
            self.site = Some(stmt);
            let rest = &stmts[n + 1..];
            match stmt {
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.scalar(frame, *condition)?;
                    // What follows a branch that exits belongs to the other one.
                    let exits = [then, otherwise].map(|block| block_exit(block));
                    let rests = match exits {
                        [Exit::Always, _] => [&[][..], rest],
                        [_, Exit::Always] => [rest, &[][..]],
                        _ => [&[][..]; 2],
                    };
                    let moved = exits.contains(&Exit::Always);
                    self.conditional(
                        frame,
                        condition,
                        [&mut |this, frame| this.guarded(frame, then, rests[0]), &mut |this, frame| {
                            this.guarded(frame, otherwise, rests[1])
                        }],
                    )?;
                    if moved {
                        return Ok(());
                    }
                    if exits.contains(&Exit::Maybe) {
                        return self.guarded(frame, &[], rest);
                    }
                }
                Stmt::Break | Stmt::Continue | Stmt::Return(_) => return self.exit(frame, stmt),
                Stmt::For { .. } | Stmt::Loop { .. } => {
                    self.loop_(frame, stmt)?;
                    if stmt_exit(stmt) != Exit::Never {
                        return self.guarded(frame, &[], rest);
                    }
                }
                _ => self.plain(frame, stmt)?,
            }
        }
        Ok(())
    }

    /// Adds `first`, then `rest` unless `first`, or a statement before both, exits.
    fn guarded(&mut self, frame: &mut Frame<'k>, first: &'k [Stmt], rest: &'k [Stmt]) -> Result<(), AdjointError> {
        self.sequence(frame, first)?;
        if rest.is_empty() {
            return Ok(());
        }
        let flag = frame.loops.last().map_or(frame.returned, |flags| flags.skip);
        let skip = self.read(flag);
        match self.code.constant(skip) {
            Some(value) if value.bits() == 0 => self.sequence(frame, rest),
            Some(_) => Ok(()),
            None => self.conditional(frame, skip, [&mut |_, _| Ok(()), &mut |this, frame| this.sequence(frame, rest)]),
        }
    }

    fn exit(&mut self, frame: &mut Frame<'k>, stmt: &'k Stmt) -> Result<(), AdjointError> {
        match stmt {
            Stmt::Return(value) => {
                if let Some(value) = value {
                    let components = self.operand(frame, *value)?;
                    match &mut frame.result {
                        FrameResult::Value(result) => *result = components,
                        FrameResult::Vars(vars) => {
                            for (var, component) in vars.clone().into_iter().zip(components) {
                                self.assign(var, component);
                            }
                        }
                    }
                }
                for flags in frame.loops.clone() {
                    self.assign_bool(flags.skip, true);
                    self.assign_bool(flags.exit, true);
                }
                self.assign_bool(frame.returned, true);
            }
            _ => {
                let Some(flags) = frame.loops.last().copied() else { return Ok(()) };
                self.assign_bool(flags.skip, true);
                if matches!(stmt, Stmt::Break) {
                    self.assign_bool(flags.exit, true);
                }
            }
        }
        Ok(())
    }

    fn loop_(&mut self, frame: &mut Frame<'k>, stmt: &'k Stmt) -> Result<(), AdjointError> {
        let (counted, body) = match stmt {
            Stmt::For { counter, end, body } => (Some((*counter, *end)), body),
            Stmt::Loop { body } => (None, body),
            _ => return Ok(()),
        };
        let leaves = leaves_loop(body);
        if counted.is_none() && !leaves {
            return self.refuse("a loop without an exit", "add a condition under which it ends");
        }
        let counted = match counted {
            Some((counter, end)) => Some((frame.vars[counter.0 as usize][0], self.scalar(frame, end)?)),
            None => None,
        };
        let flags = LoopFlags { skip: self.flag("skip"), exit: self.flag("exit") };
        let id = LoopId(self.code.loops.len() as u32);
        let exit = leaves.then_some(flags.exit);
        self.code.loops.push(Loop { body: BlockId(0), counted, exit });

        let mut locals = vec![];
        assigned(body, &mut locals);
        let mut changed: BTreeSet<VarId> =
            locals.iter().flat_map(|local| frame.vars[local.0 as usize].clone()).collect();
        changed.extend([flags.skip, flags.exit]);
        changed.extend(counted.map(|(counter, _)| counter));
        if body.iter().any(|stmt| stmt.any(&|inner| matches!(inner, Stmt::Return(_)))) {
            changed.insert(frame.returned);
            changed.extend(frame.loops.iter().flat_map(|outer| [outer.skip, outer.exit]));
            if let FrameResult::Vars(vars) = &frame.result {
                changed.extend(vars);
            }
        }
        let mut inductions = self.inductions_of(frame, id, body)?;
        self.known.retain(|var, _| !changed.contains(var));
        let before = self.known.clone();
        std::mem::swap(&mut self.inductions, &mut inductions);
        // Variables of enclosing loops that this one does not change keep their values.
        let (outer_inductions, own) = (inductions.clone(), std::mem::take(&mut self.inductions));
        self.inductions = outer_inductions.into_iter().filter(|(var, _)| !changed.contains(var)).chain(own).collect();

        let outer = self.open(None, Some(id))?;
        self.code.loops[id.0 as usize].body = self.current;
        self.assign_bool(flags.skip, false);
        frame.loops.push(flags);
        self.sequence(frame, body)?;
        frame.loops.pop();
        self.close(outer);
        self.inductions = inductions;
        self.known = before;
        self.push(ScalarStmt::Loop(id));
        Ok(())
    }

    /// Finds the integer variables that a loop changes once per iteration, by the same step.
    fn inductions_of(
        &mut self,
        frame: &mut Frame<'k>,
        of: LoopId,
        body: &'k [Stmt],
    ) -> Result<BTreeMap<VarId, (LoopId, ValueId, ValueId, Op)>, AdjointError> {
        let mut all = vec![];
        assigned(body, &mut all);
        let mut found = BTreeMap::new();
        for (n, stmt) in body.iter().enumerate() {
            if continues(stmt) {
                break;
            }
            let Stmt::Assign(local, value) = stmt else { continue };
            let scalar = frame.code.local(*local).ty.as_scalar();
            if all.iter().filter(|other| *other == local).count() != 1 || !scalar.is_some_and(Scalar::is_int) {
                continue;
            }
            let Expr::Op(op @ (Op::Add | Op::Sub), args) = frame.code.expr(*value) else { continue };
            let is_read = |id: ExprId| {
                *frame.code.expr(id) == Expr::Read(*local)
                    && body[..n].iter().any(|stmt| matches!(stmt, Stmt::Let(read) if *read == id))
            };
            let step = match (op, is_read(args[0]), is_read(args[1])) {
                (_, true, false) => args[1],
                (Op::Add, false, true) => args[0],
                _ => continue,
            };
            if !frame.code.expr(step).is_leaf() {
                continue;
            }
            let step = self.scalar(frame, step)?;
            let var = frame.vars[local.0 as usize][0];
            let init = self.read(var);
            found.insert(var, (of, init, step, *op));
        }
        Ok(found)
    }
}
