//! Variables. A name is bound to a value while one assignment reaches all its uses, and to an IR
//! variable where several do.

use std::rc::Rc;

use bornite_ir::{LocalId, Value};
use foldhash::{HashMap, HashMapExt};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::scan::{BlockId, Change, NameBlocks, access_chain, block_id, collect_changes, collect_passed};
use super::value::{Binding, PyValue, Rvalue, literal};
use super::{ErrorReported, Lower, LowerResult, ir_name};
use crate::python::const_eval::ConstValue;
use crate::python::program::{Func, FuncId};
use crate::python::types::{Pattern, Ty, conversion_syntax, zeros};

/// The return convention of a function.
#[derive(Clone, Debug)]
pub(crate) enum ReturnMode {
    /// A kernel, which returns nothing.
    Kernel,
    /// A function of the IR: the types of its results, once known.
    Function(Option<Vec<Ty>>),
    /// Inlined, in a loop that runs once and that a return breaks out of: variables for the results
    /// and their types, once known, and a flag for returns from within loops.
    Inline { results: Option<Vec<LocalId>>, types: Option<Vec<Ty>>, returned: Option<LocalId> },
    /// Inlined, with a single return at its end: the returned values.
    SingleReturn(Option<Vec<PyValue>>),
}

/// A function being lowered.
pub(crate) struct Frame<'p> {
    pub func: &'p Func<'p>,
    pub prelude: bool,
    pub id: FuncId,
    pub names: HashMap<String, Binding>,
    /// Number of open blocks when each name was bound.
    bound_depth: HashMap<String, usize>,
    pub name_blocks: Rc<NameBlocks<'p>>,
    /// IR blocks around the current statement.
    open: Vec<OpenBlock>,
    pub return_mode: ReturnMode,
    /// IR loops around the current statement.
    pub loops: Vec<LoopKind>,
    /// The statement being lowered.
    pub current_range: TextRange,
    /// Parameters that are passed by reference.
    pub ref_params: Vec<String>,
    /// Variables of unrolled loops, which are constants that may change nevertheless.
    pub unrolled_vars: Vec<String>,
    /// Variables whose last assignment was a constant, with the number of open blocks at that
    /// point. They are constants until that block is closed.
    constants: Vec<(String, Rvalue, usize)>,
}

/// An IR loop, which determines how `break` and `continue` are lowered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum LoopKind {
    /// A loop of the source.
    IrLoop,
    /// One iteration of an unrolled loop: an IR loop that runs once, so that `continue` can leave
    /// it.
    UnrolledIteration,
}

/// A block of the IR.
#[derive(Default)]
struct OpenBlock {
    /// The source blocks lowered into it: several if branches are resolved or loops unrolled.
    ids: Vec<BlockId>,
    /// Names bound in it.
    bound: Vec<String>,
}

impl<'p> Lower<'p> {
    pub(super) fn frame(&mut self) -> &mut Frame<'p> {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    pub(super) fn push_frame(&mut self, func: &'p Func<'p>, id: FuncId) {
        let at = func.def as *const _ as usize;
        let name_blocks =
            self.name_blocks.entry(at).or_insert_with(|| Rc::new(NameBlocks::new(&func.def.body))).clone();
        self.frames.push(Frame {
            func,
            prelude: id.prelude,
            id,
            names: HashMap::new(),
            bound_depth: HashMap::new(),
            name_blocks,
            open: vec![OpenBlock { ids: vec![block_id(&func.def.body)], bound: vec![] }],
            return_mode: ReturnMode::Kernel,
            loops: vec![],
            current_range: func.def.name.range(),
            ref_params: vec![],
            unrolled_vars: vec![],
            constants: vec![],
        });
    }

    /// Lowers a source block into a new IR block.
    pub(super) fn block(&mut self, block: &'p [Stmt]) -> Vec<bornite_ir::Stmt> {
        self.block_at(block, block_id(block))
    }

    pub(super) fn block_at(&mut self, block: &'p [Stmt], at: BlockId) -> Vec<bornite_ir::Stmt> {
        self.open_block(at);
        let _ = self.stmts(block);
        self.close_block()
    }

    pub(super) fn open_block(&mut self, at: BlockId) {
        self.w.b.open_block();
        self.frame().open.push(OpenBlock { ids: vec![at], bound: vec![] });
    }

    pub(super) fn close_block(&mut self) -> Vec<bornite_ir::Stmt> {
        let frame = self.frame();
        let depth = frame.open.len();
        frame.constants.retain(|(.., at)| *at < depth);
        for name in frame.open.pop().unwrap_or_default().bound {
            // A value is not visible outside the block; a variable stays.
            if matches!(frame.names.get(&name), Some(Binding::Value(_))) {
                frame.names.remove(&name);
            }
        }
        self.w.b.close_block()
    }

    /// Lowers a source block into the current IR block.
    pub(super) fn lower_spliced(&mut self, block: &'p [Stmt]) -> LowerResult<bool> {
        self.mark_spliced(block);
        self.stmts(block)
    }

    /// Binds a new name to a value in the current block.
    pub(super) fn bind_new(&mut self, name: &str, val: PyValue) {
        let frame = self.frame();
        frame.names.insert(name.into(), Binding::Value(val));
        frame.bound_depth.insert(name.into(), frame.open.len());
        if let Some(open) = frame.open.last_mut() {
            open.bound.push(name.into());
        }
    }

    /// Treats all names as bound in the current block, which always runs, so that they can be
    /// rebound in it.
    pub(super) fn adopt_names(&mut self) {
        let frame = self.frame();
        let depth = frame.open.len();
        frame.bound_depth.values_mut().for_each(|at| *at = depth);
    }

    /// Makes a source block part of the current IR block.
    pub(super) fn mark_spliced(&mut self, block: &'p [Stmt]) {
        let at = block_id(block);
        if let Some(open) = self.frame().open.last_mut()
            && !open.ids.contains(&at)
        {
            open.ids.push(at);
        }
    }

    /// Assigns to a name.
    pub(super) fn assign_name(&mut self, name: &str, val: PyValue, at: &impl Ranged) -> LowerResult {
        let existing = self.frame().names.get(name).cloned();
        match (existing, val) {
            (Some(Binding::Local(local, ty)), PyValue::Rvalue(rvalue)) => {
                self.check_assignable(name, ty, rvalue.ty, at)?;
                self.w.b.assign(local, rvalue.id);
                let frame = self.frame();
                frame.constants.retain(|(other, ..)| other != name);
                if rvalue.constant.is_some() {
                    frame.constants.push((name.into(), rvalue, frame.open.len()));
                }
                Ok(())
            }
            (Some(Binding::Local(..)), _) => {
                let what = format!("'{name}' is a variable of the kernel; only run-time values can be assigned to it");
                self.fail(at, what, "", None)
            }
            (Some(Binding::Value(PyValue::Rvalue(old))), PyValue::Rvalue(rvalue)) => {
                self.check_assignable(name, old.ty, rvalue.ty, at)?;
                self.rebind(name, PyValue::Rvalue(rvalue), at)
            }
            (Some(Binding::Value(PyValue::Rvalue(old))), _) => {
                let what = format!(
                    "'{name}' has type {} and cannot be assigned another kind of value",
                    self.type_name(old.ty)
                );
                self.fail(at, what, "different kind of value", None)
            }
            (Some(Binding::Value(_)), val) => self.rebind(name, val, at),
            (Some(Binding::Broken) | None, PyValue::Rvalue(rvalue)) => {
                let frame = self.frame();
                let block = frame.name_blocks.block_of(name);
                let here = frame.open.last().is_some_and(|open| block.is_some_and(|block| open.ids.contains(&block)));
                if here || frame.open.len() == 1 {
                    self.bind_new(name, PyValue::Rvalue(rvalue));
                    return Ok(());
                }
                let local = self.variable(name, &rvalue, at)?;
                self.w.b.assign(local, rvalue.id);
                self.frame().names.insert(name.into(), Binding::Local(local, rvalue.ty));
                Ok(())
            }
            (_, val) => {
                self.bind_new(name, val);
                Ok(())
            }
        }
    }

    /// Binds a name to another value. The binding holds for all code that follows, so the current
    /// block must be the one in which the name was bound: an inner block may not run, or run
    /// repeatedly.
    fn rebind(&mut self, name: &str, val: PyValue, at: &impl Ranged) -> LowerResult {
        let frame = self.frame();
        let here = frame.bound_depth.get(name) == Some(&frame.open.len());
        let Some(Binding::Value(old)) = frame.names.get(name) else { return Err(ErrorReported) };
        if here || *old == val {
            frame.names.insert(name.into(), Binding::Value(val));
            return Ok(());
        }
        if can_assign_fields(old, &val) {
            let old = old.clone();
            self.assign_fields(&old, &val);
            return Ok(());
        }
        let (kind, hint) = match old {
            PyValue::Array(_) => ("an array", "use each array in its own branch, or select between elements"),
            PyValue::Aggregate(..) => (
                "a struct with arrays",
                "its values may change there, but its arrays may not: use each array in its own branch",
            ),
            PyValue::Tuple(_) => ("a tuple", "assign each of its values to a separate name"),
            _ => ("a compile-time value", "assign it before the branch or loop"),
        };
        let what = format!("'{name}' is {kind} and cannot be reassigned in a run-time branch or loop");
        self.fail(at, what, "reassigned here", Some(hint.into()))
    }

    fn check_assignable(&mut self, name: &str, old: Ty, new: Ty, at: &impl Ranged) -> LowerResult {
        if old == new {
            return Ok(());
        }
        let (old, new) = (self.type_name(old), self.type_name(new));
        let hint = format!("use another name for the new value, or convert it: {}", conversion_syntax(&old));
        self.fail(at, format!("'{name}' has type {old} and cannot be assigned {new}"), &new, Some(hint))
    }

    /// Declares an IR variable for a name. A constant becomes its initial value, which it then has
    /// even where the condition around the assignment does not hold.
    fn variable(&mut self, name: &str, rvalue: &Rvalue, at: &impl Ranged) -> LowerResult<LocalId> {
        let ty = self.ir_type(rvalue.ty, at)?;
        let init = match rvalue.constant.as_ref().and_then(literal) {
            Some((_, parts)) if parts.len() == ty.component_count(self.w.b.structs()) => parts,
            _ => zeros(ty, self.w.b.structs()),
        };
        Ok(self.w.b.typed_local(ir_name(name), ty, &init))
    }

    pub(super) fn zero_variable(&mut self, name: &str, ty: Ty, at: &impl Ranged) -> LowerResult<LocalId> {
        let ty = self.ir_type(ty, at)?;
        let init: Vec<Value> = zeros(ty, self.w.b.structs());
        Ok(self.w.b.typed_local(ir_name(name), ty, &init))
    }

    /// Promotes names to variables if the given blocks or expressions change them: those may not
    /// run, or run repeatedly (`repeats`).
    pub(super) fn promote_changed_names(
        &mut self,
        blocks: &[&'p [Stmt]],
        exprs: &[&'p Expr],
        repeats: bool,
    ) -> LowerResult {
        let mut names = vec![];
        blocks.iter().for_each(|block| collect_changes(block, &mut names));
        exprs.iter().for_each(|expr| collect_passed(expr, &mut names));
        let mut done: Vec<&str> = vec![];
        let mut failed = false;
        for (name, change) in names {
            let rvalue = match self.frame().names.get(name).cloned() {
                Some(Binding::Value(PyValue::Rvalue(rvalue))) => rvalue,
                Some(Binding::Local(..)) if repeats && matches!(change, Change::Rebound) => {
                    let found = self.frame().constants.iter().position(|(other, ..)| other == name);
                    if let Some((_, rvalue, _)) = found.map(|n| self.frame().constants.swap_remove(n)) {
                        self.check_constant(name, &rvalue, blocks);
                    }
                    continue;
                }
                Some(Binding::Value(aggregate @ PyValue::Aggregate(..))) => {
                    let fields = match change {
                        Change::Rebound => Some(vec![]),
                        Change::Part(target) => self.changed_field(&aggregate, target),
                        Change::Passed(_) => None,
                    };
                    match fields.map(|fields| self.promote_fields(name, aggregate, &fields)) {
                        Some(Ok(promoted)) => _ = self.frame().names.insert(name.into(), Binding::Value(promoted)),
                        Some(Err(ErrorReported)) => failed = true,
                        None => {}
                    }
                    continue;
                }
                _ => continue,
            };
            let is_rebound = matches!(change, Change::Rebound);
            if matches!(change, Change::Passed(callee) if !self.mutates_arguments(callee, rvalue.ty)) {
                continue;
            }
            if repeats && is_rebound && rvalue.constant.is_some() && !done.contains(&name) {
                self.check_constant(name, &rvalue, blocks);
            }
            done.push(name);
            let at = self.frame().current_range;
            let Ok(local) = self.variable(name, &rvalue, &at) else {
                failed = true;
                continue;
            };
            self.w.b.assign(local, rvalue.id);
            self.frame().names.insert(name.into(), Binding::Local(local, rvalue.ty));
        }
        if failed { Err(ErrorReported) } else { Ok(()) }
    }

    /// Reports a constant that changes in a loop, unless it is the variable of an unrolled loop.
    fn check_constant(&mut self, name: &str, rvalue: &Rvalue, blocks: &[&'p [Stmt]]) {
        if self.frame().prelude || self.frame().unrolled_vars.iter().any(|var| var == name) {
            return;
        }
        let at = first_assignment(blocks, name).unwrap_or(self.frame().current_range);
        let ty = self.type_name(rvalue.ty);
        let (short, shown) = (ty.trim_end_matches("32").to_owned(), literal_text(rvalue));
        self.report(
            &at,
            format!("'{name}' is a constant and cannot be reassigned in a run-time loop"),
            "reassigned here",
            Some(format!("declare it as a variable before the loop: {name} = {short}({shown})")),
        );
    }

    /// The path of fields in a struct with arrays that an assignment target changes; `None` if that
    /// is an array.
    fn changed_field(&mut self, aggregate: &PyValue, target: &'p Expr) -> Option<Vec<u32>> {
        let (mut val, mut fields) = (aggregate, vec![]);
        for step in &access_chain(target)[1..] {
            let (PyValue::Aggregate(n, vals), Expr::Attribute(attribute)) = (val, *step) else { break };
            let names = self.fields_of(*n, target).ok()?;
            let at = names.iter().position(|(name, _)| name == attribute.attr.as_str())?;
            fields.push(at as u32);
            val = vals.get(at)?;
        }
        (!matches!(val, PyValue::Array(_))).then_some(fields)
    }

    /// A struct with arrays in which the values below a path of fields are kept in variables.
    fn promote_fields(&mut self, name: &str, aggregate: PyValue, fields: &[u32]) -> LowerResult<PyValue> {
        Ok(match aggregate {
            PyValue::Rvalue(rvalue) => {
                let at = self.frame().current_range;
                let local = self.variable(name, &rvalue, &at)?;
                self.w.b.assign(local, rvalue.id);
                PyValue::FieldVariable(local, rvalue.ty)
            }
            PyValue::Aggregate(n, mut vals) => {
                let range = match fields.first() {
                    Some(&at) => at as usize..at as usize + 1,
                    None => 0..vals.len(),
                };
                for val in &mut vals[range] {
                    *val = self.promote_fields(name, val.clone(), fields.get(1..).unwrap_or_default())?;
                }
                PyValue::Aggregate(n, vals)
            }
            other => other,
        })
    }

    /// Replaces field variables in a struct with arrays by their current values.
    pub(super) fn read_fields(&mut self, val: PyValue) -> PyValue {
        match val {
            PyValue::FieldVariable(local, ty) => PyValue::Rvalue(Rvalue::new(self.w.b.read(local), ty)),
            PyValue::Aggregate(n, vals) => {
                PyValue::Aggregate(n, vals.into_iter().map(|val| self.read_fields(val)).collect())
            }
            other => other,
        }
    }

    /// Assigns to the field variables of a struct with arrays.
    fn assign_fields(&mut self, old: &PyValue, new: &PyValue) {
        match (old, new) {
            (PyValue::FieldVariable(local, _), PyValue::Rvalue(rvalue)) => self.w.b.assign(*local, rvalue.id),
            (PyValue::Aggregate(_, old), PyValue::Aggregate(_, new)) => {
                old.iter().zip(new).for_each(|(old, new)| self.assign_fields(old, new));
            }
            _ => {}
        }
    }

    /// Returns true if a function may modify arguments of a type.
    fn mutates_arguments(&mut self, callee: &'p Expr, ty: Ty) -> bool {
        let ids = match self.eval_const(callee, true) {
            Ok(ConstValue::Functions(ids)) => ids,
            Ok(ConstValue::Builtin(name)) if name.starts_with("transform_set_") => return true,
            Ok(ConstValue::Builtin(name)) => self.prelude_functions(&name),
            _ => return false,
        };
        ids.into_iter().any(|id| {
            let signature = self.signature(id);
            let is_local_array = matches!(ty, Ty::FixedArray(..));
            let is_mutable = |pattern: &Pattern| match pattern {
                Pattern::Array(..) => is_local_array,
                pattern => matches!(pattern, Pattern::Ref(_)),
            };
            signature.params.iter().any(|(_, pattern, _)| is_mutable(pattern))
        })
    }

    /// The value of a name; `None` if it is not a local name of the function.
    pub(super) fn read_name(&mut self, name: &str) -> Option<LowerResult<PyValue>> {
        match self.frame().names.get(name)? {
            Binding::Value(val) => {
                let val = val.clone();
                Some(Ok(self.read_fields(val)))
            }
            Binding::Local(local, ty) => {
                let (local, ty) = (*local, *ty);
                let id = self.w.b.read(local);
                Some(Ok(PyValue::Rvalue(Rvalue::new(id, ty))))
            }
            Binding::Broken => Some(Err(ErrorReported)),
        }
    }

    /// Marks names that a failed statement would have assigned, so that uses of them are not
    /// reported.
    pub(super) fn mark_broken(&mut self, stmt: &'p Stmt) {
        let mut names = vec![];
        collect_changes(std::slice::from_ref(stmt), &mut names);
        for (name, _) in names {
            self.frame().names.entry(name.into()).or_insert(Binding::Broken);
        }
    }
}

/// Returns true if assigning to field variables of `old` turns it into `new`.
fn can_assign_fields(old: &PyValue, new: &PyValue) -> bool {
    match (old, new) {
        (PyValue::FieldVariable(_, ty), PyValue::Rvalue(rvalue)) => *ty == rvalue.ty,
        (PyValue::Aggregate(n, old), PyValue::Aggregate(m, new)) => {
            n == m && old.iter().zip(new).all(|(old, new)| can_assign_fields(old, new))
        }
        (old, new) => old == new,
    }
}

/// A constant as source text.
fn literal_text(rvalue: &Rvalue) -> String {
    match &rvalue.constant {
        Some(ConstValue::Int(n)) => n.to_string(),
        Some(ConstValue::Float(x)) => format!("{x:?}"),
        Some(ConstValue::Bool(b)) => if *b { "True" } else { "False" }.into(),
        _ => "…".into(),
    }
}

/// The first assignment to a name.
fn first_assignment(blocks: &[&[Stmt]], name: &str) -> Option<TextRange> {
    for stmt in blocks.iter().flat_map(|block| block.iter()) {
        let mut names = vec![];
        collect_changes(std::slice::from_ref(stmt), &mut names);
        if !names.iter().any(|(found, change)| *found == name && matches!(change, Change::Rebound)) {
            continue;
        }
        return match stmt {
            Stmt::For(each) => first_assignment(&[&each.body], name).or(Some(each.target.range())),
            Stmt::While(while_stmt) => first_assignment(&[&while_stmt.body], name),
            Stmt::If(branch) => {
                let clauses =
                    branch.elif_else_clauses.iter().find_map(|clause| first_assignment(&[&clause.body], name));
                first_assignment(&[&branch.body], name).or(clauses)
            }
            other => Some(other.range()),
        };
    }
    None
}
