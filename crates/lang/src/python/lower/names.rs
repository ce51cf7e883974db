//! Variables: a name is a value where one assignment reaches all its uses, and a variable of the IR where several do.

use std::rc::Rc;

use bornite_ir::{LocalId, Value};
use foldhash::{HashMap, HashMapExt};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::scan::{Block, Change, Homes, arguments, changed, key, way};
use super::value::{Binding, Run, Val, literal};
use super::{Lower, Lowers, Noted, ir_name};
use crate::python::fixed::Fixed;
use crate::python::program::{Func, FuncId};
use crate::python::types::{Pattern, Ty, spelled, zeros};

/// How a function's value is handed back.
#[derive(Clone, Debug)]
pub(crate) enum Back {
    /// It is a kernel.
    Kernel,
    /// A function of the IR; the types of what it returns, once they are known.
    Function(Option<Vec<Ty>>),
    /// Written out where it is called, in a loop that runs once and that a return leaves: variables that take the values
    /// and their types, once they are known, and a flag for returns from within loops.
    Inline { results: Option<Vec<LocalId>>, types: Option<Vec<Ty>>, returned: Option<LocalId> },
    /// Written out, with one return at its end.
    Straight(Option<Vec<Val>>),
}

/// A function being lowered.
pub(crate) struct Frame<'p> {
    pub func: &'p Func<'p>,
    pub prelude: bool,
    pub id: FuncId,
    pub names: HashMap<String, Binding>,
    /// How many blocks were open where a name was given its value.
    bound_at: HashMap<String, usize>,
    pub homes: Rc<Homes<'p>>,
    /// Blocks around the current statement; each is several blocks of the source where loops are written out.
    open: Vec<Open>,
    pub back: Back,
    /// Loops of the IR around the current statement, and what a `continue` of each is.
    pub loops: Vec<Turn>,
    /// The statement being lowered.
    pub at: TextRange,
    /// Parameters that are variables of the caller.
    pub refs: Vec<String>,
    /// Variables of loops that are written out: constants that may change all the same.
    pub counted: Vec<String>,
    /// Variables that were assigned a constant last, and how many blocks were open: they are that constant until then.
    constants: Vec<(String, Run, usize)>,
}

/// What leaves a turn of a loop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Turn {
    /// A loop of the IR.
    Loop,
    /// One turn of a loop that is written out: a loop of the IR that runs once, so that `continue` can leave it.
    Once,
}

#[derive(Default)]
struct Open {
    keys: Vec<Block>,
    bound: Vec<String>,
}

impl<'p> Lower<'p> {
    pub(super) fn frame(&mut self) -> &mut Frame<'p> {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    pub(super) fn enter(&mut self, func: &'p Func<'p>, id: FuncId) {
        let at = func.def as *const _ as usize;
        let homes = self.homes.entry(at).or_insert_with(|| Rc::new(Homes::new(&func.def.body))).clone();
        self.frames.push(Frame {
            func,
            prelude: id.prelude,
            id,
            names: HashMap::new(),
            bound_at: HashMap::new(),
            homes,
            open: vec![Open { keys: vec![key(&func.def.body)], bound: vec![] }],
            back: Back::Kernel,
            loops: vec![],
            at: func.def.name.range(),
            refs: vec![],
            counted: vec![],
            constants: vec![],
        });
    }

    /// Lowers a block of the source into a new block of the IR.
    pub(super) fn block(&mut self, block: &'p [Stmt]) -> Vec<bornite_ir::Stmt> {
        self.block_at(block, key(block))
    }

    pub(super) fn block_at(&mut self, block: &'p [Stmt], at: Block) -> Vec<bornite_ir::Stmt> {
        self.open_block(at);
        let _ = self.stmts(block);
        self.close_block()
    }

    pub(super) fn open_block(&mut self, at: Block) {
        self.w.b.open_block();
        self.frame().open.push(Open { keys: vec![at], bound: vec![] });
    }

    pub(super) fn close_block(&mut self) -> Vec<bornite_ir::Stmt> {
        let frame = self.frame();
        let depth = frame.open.len();
        frame.constants.retain(|(.., at)| *at < depth);
        for name in frame.open.pop().unwrap_or_default().bound {
            // Its value is not seen outside; a variable stays.
            if matches!(frame.names.get(&name), Some(Binding::Val(_))) {
                frame.names.remove(&name);
            }
        }
        self.w.b.close_block()
    }

    /// Lowers a block of the source as part of the current block.
    pub(super) fn spliced(&mut self, block: &'p [Stmt]) -> Lowers<bool> {
        self.splices(block);
        self.stmts(block)
    }

    /// Gives a name that is not there yet a value, in the current block.
    pub(super) fn bind_new(&mut self, name: &str, val: Val) {
        let frame = self.frame();
        frame.names.insert(name.into(), Binding::Val(val));
        frame.bound_at.insert(name.into(), frame.open.len());
        if let Some(open) = frame.open.last_mut() {
            open.bound.push(name.into());
        }
    }

    /// The current block always runs, as far as its names matter: those of the block around it may change in it.
    pub(super) fn adopt_names(&mut self) {
        let frame = self.frame();
        let depth = frame.open.len();
        frame.bound_at.values_mut().for_each(|at| *at = depth);
    }

    /// The variable of a loop that is written out belongs to the block around the loop.
    pub(super) fn splices(&mut self, block: &'p [Stmt]) {
        let at = key(block);
        if let Some(open) = self.frame().open.last_mut()
            && !open.keys.contains(&at)
        {
            open.keys.push(at);
        }
    }

    /// Assigns to a name.
    pub(super) fn assign_name(&mut self, name: &str, val: Val, at: &impl Ranged) -> Lowers {
        let existing = self.frame().names.get(name).cloned();
        match (existing, val) {
            (Some(Binding::Local(local, ty)), Val::Run(run)) => {
                self.same_type(name, ty, run.ty, at)?;
                self.w.b.assign(local, run.id);
                let frame = self.frame();
                frame.constants.retain(|(other, ..)| other != name);
                if run.constant.is_some() {
                    frame.constants.push((name.into(), run, frame.open.len()));
                }
                Ok(())
            }
            (Some(Binding::Local(..)), _) => {
                let what = format!("'{name}' is a value that changes; only values can be assigned to it");
                self.fail(at, what, "", None)
            }
            (Some(Binding::Val(Val::Run(old))), Val::Run(run)) => {
                self.same_type(name, old.ty, run.ty, at)?;
                self.rebind(name, Val::Run(run), at)
            }
            (Some(Binding::Val(Val::Run(old))), _) => {
                let what = format!("'{name}' is {} and cannot become something else", self.type_name(old.ty));
                self.fail(at, what, "another kind of value", None)
            }
            (Some(Binding::Val(_)), val) => self.rebind(name, val, at),
            (Some(Binding::Broken) | None, Val::Run(run)) => {
                let frame = self.frame();
                let home = frame.homes.home(name);
                let here = frame.open.last().is_some_and(|open| home.is_some_and(|home| open.keys.contains(&home)));
                if here || frame.open.len() == 1 {
                    self.bind_new(name, Val::Run(run));
                    return Ok(());
                }
                let local = self.variable(name, &run, at)?;
                self.w.b.assign(local, run.id);
                self.frame().names.insert(name.into(), Binding::Local(local, run.ty));
                Ok(())
            }
            (_, val) => {
                self.bind_new(name, val);
                Ok(())
            }
        }
    }

    /// Gives a name another value. It has that for all that follows in the text, so that the block must be the one in
    /// which the name was bound: others may not run, or run again.
    fn rebind(&mut self, name: &str, val: Val, at: &impl Ranged) -> Lowers {
        let frame = self.frame();
        let here = frame.bound_at.get(name) == Some(&frame.open.len());
        let Some(Binding::Val(old)) = frame.names.get(name) else { return Err(Noted) };
        if here || *old == val {
            frame.names.insert(name.into(), Binding::Val(val));
            return Ok(());
        }
        if takes(old, &val) {
            let old = old.clone();
            self.refill(&old, &val);
            return Ok(());
        }
        let (kind, hint) = match old {
            Val::Array(_) => ("an array", "use each array in a branch of its own, or choose between elements"),
            Val::Aggregate(..) => (
                "a struct with arrays",
                "its values may change there, its arrays may not: use each array in a branch of its own",
            ),
            Val::Tuple(_) => ("a tuple", "give each of its values a name of its own"),
            _ => ("known only while the kernel is made", "assign it before the branch or loop"),
        };
        let what = format!("'{name}' is {kind} and changes in a branch or a loop that runs at run time");
        self.fail(at, what, "changes here", Some(hint.into()))
    }

    fn same_type(&mut self, name: &str, old: Ty, new: Ty, at: &impl Ranged) -> Lowers {
        if old == new {
            return Ok(());
        }
        let (old, new) = (self.type_name(old), self.type_name(new));
        let hint = format!("give the new value a name of its own, or convert it: {}", spelled(&old));
        self.fail(at, format!("'{name}' is {old} and cannot be assigned {new}"), &new, Some(hint))
    }

    /// A variable of the IR. A constant is its first value: what is only assigned where a condition holds has it anyway.
    fn variable(&mut self, name: &str, run: &Run, at: &impl Ranged) -> Lowers<LocalId> {
        let ty = self.ir_type(run.ty, at)?;
        let init = match run.constant.as_ref().and_then(literal) {
            Some((_, parts)) if parts.len() == ty.count(self.w.b.structs()) => parts,
            _ => zeros(ty, self.w.b.structs()),
        };
        Ok(self.w.b.local_of(ir_name(name), ty, &init))
    }

    pub(super) fn zero_variable(&mut self, name: &str, ty: Ty, at: &impl Ranged) -> Lowers<LocalId> {
        let ty = self.ir_type(ty, at)?;
        let init: Vec<Value> = zeros(ty, self.w.b.structs());
        Ok(self.w.b.local_of(ir_name(name), ty, &init))
    }

    /// Before blocks and expressions that may or may not run: names that they change become variables.
    pub(super) fn before_branches(&mut self, blocks: &[&'p [Stmt]], exprs: &[&'p Expr], repeats: bool) -> Lowers {
        let mut names = vec![];
        blocks.iter().for_each(|block| changed(block, &mut names));
        exprs.iter().for_each(|expr| arguments(expr, &mut names));
        let mut done: Vec<&str> = vec![];
        let mut failed = false;
        for (name, change) in names {
            let run = match self.frame().names.get(name).cloned() {
                Some(Binding::Val(Val::Run(run))) => run,
                Some(Binding::Local(..)) if repeats && matches!(change, Change::Named) => {
                    let found = self.frame().constants.iter().position(|(other, ..)| other == name);
                    if let Some((_, run, _)) = found.map(|n| self.frame().constants.swap_remove(n)) {
                        self.check_constant(name, &run, blocks);
                    }
                    continue;
                }
                Some(Binding::Val(whole @ Val::Aggregate(..))) => {
                    let fields = match change {
                        Change::Named => Some(vec![]),
                        Change::Part(target) => self.changed_field(&whole, target),
                        Change::Passed(_) => None,
                    };
                    match fields.map(|fields| self.held(name, whole, &fields)) {
                        Some(Ok(held)) => _ = self.frame().names.insert(name.into(), Binding::Val(held)),
                        Some(Err(Noted)) => failed = true,
                        None => {}
                    }
                    continue;
                }
                _ => continue,
            };
            let renamed = matches!(change, Change::Named);
            if matches!(change, Change::Passed(callee) if !self.takes_variables(callee, run.ty)) {
                continue;
            }
            if repeats && renamed && run.constant.is_some() && !done.contains(&name) {
                self.check_constant(name, &run, blocks);
            }
            done.push(name);
            let at = self.frame().at;
            let Ok(local) = self.variable(name, &run, &at) else {
                failed = true;
                continue;
            };
            self.w.b.assign(local, run.id);
            self.frame().names.insert(name.into(), Binding::Local(local, run.ty));
        }
        if failed { Err(Noted) } else { Ok(()) }
    }

    /// A constant does not change in a loop, but for the variables of loops that are written out.
    fn check_constant(&mut self, name: &str, run: &Run, blocks: &[&'p [Stmt]]) {
        if self.frame().prelude || self.frame().counted.iter().any(|counted| counted == name) {
            return;
        }
        let at = place(blocks, name).unwrap_or(self.frame().at);
        let ty = self.type_name(run.ty);
        let (short, shown) = (ty.trim_end_matches("32").to_owned(), shown(run));
        self.note(
            &at,
            format!("'{name}' is a constant and changes in a loop that runs at run time"),
            "changes here",
            Some(format!("make it a variable before the loop: {name} = {short}({shown})")),
        );
    }

    /// The way through the fields of a struct with arrays to what a target changes, if that is no array.
    fn changed_field(&mut self, whole: &Val, target: &'p Expr) -> Option<Vec<u32>> {
        let (mut val, mut fields) = (whole, vec![]);
        for step in &way(target)[1..] {
            let (Val::Aggregate(n, vals), Expr::Attribute(attribute)) = (val, *step) else { break };
            let names = self.fields_of(*n, target).ok()?;
            let at = names.iter().position(|(name, _)| name == attribute.attr.as_str())?;
            fields.push(at as u32);
            val = vals.get(at)?;
        }
        (!matches!(val, Val::Array(_))).then_some(fields)
    }

    /// A struct with arrays whose values, from those fields on, are variables.
    fn held(&mut self, name: &str, whole: Val, fields: &[u32]) -> Lowers<Val> {
        Ok(match whole {
            Val::Run(run) => {
                let at = self.frame().at;
                let local = self.variable(name, &run, &at)?;
                self.w.b.assign(local, run.id);
                Val::Held(local, run.ty)
            }
            Val::Aggregate(n, mut vals) => {
                let range = match fields.first() {
                    Some(&at) => at as usize..at as usize + 1,
                    None => 0..vals.len(),
                };
                for val in &mut vals[range] {
                    *val = self.held(name, val.clone(), fields.get(1..).unwrap_or_default())?;
                }
                Val::Aggregate(n, vals)
            }
            other => other,
        })
    }

    /// What a struct with arrays holds now.
    pub(super) fn seen(&mut self, val: Val) -> Val {
        match val {
            Val::Held(local, ty) => Val::Run(Run::new(self.w.b.read(local), ty)),
            Val::Aggregate(n, vals) => Val::Aggregate(n, vals.into_iter().map(|val| self.seen(val)).collect()),
            other => other,
        }
    }

    /// Assigns to the variables of a struct with arrays.
    fn refill(&mut self, old: &Val, new: &Val) {
        match (old, new) {
            (Val::Held(local, _), Val::Run(run)) => self.w.b.assign(*local, run.id),
            (Val::Aggregate(_, old), Val::Aggregate(_, new)) => {
                old.iter().zip(new).for_each(|(old, new)| self.refill(old, new));
            }
            _ => {}
        }
    }

    /// Whether a function changes variables that it is given.
    fn takes_variables(&mut self, callee: &'p Expr, given: Ty) -> bool {
        let ids = match self.fixed(callee, true) {
            Ok(Fixed::Functions(ids)) => ids,
            Ok(Fixed::Builtin(name)) if name.starts_with("transform_set_") => return true,
            Ok(Fixed::Builtin(name)) => self.prelude_functions(&name),
            _ => return false,
        };
        ids.into_iter().any(|id| {
            let signature = self.signature(id);
            let is_local = matches!(given, Ty::Fixed(..));
            let takes = |pattern: &Pattern| match pattern {
                Pattern::Array(..) => is_local,
                pattern => matches!(pattern, Pattern::Ref(_)),
            };
            signature.params.iter().any(|(_, pattern, _)| takes(pattern))
        })
    }

    /// The value of a name; `None` if it is not a variable of the function.
    pub(super) fn read_name(&mut self, name: &str) -> Option<Lowers<Val>> {
        match self.frame().names.get(name)? {
            Binding::Val(val) => {
                let val = val.clone();
                Some(Ok(self.seen(val)))
            }
            Binding::Local(local, ty) => {
                let (local, ty) = (*local, *ty);
                let id = self.w.b.read(local);
                Some(Ok(Val::Run(Run::new(id, ty))))
            }
            Binding::Broken => Some(Err(Noted)),
        }
    }

    /// After a failed statement: what it would have assigned is not reported again.
    pub(super) fn broken(&mut self, stmt: &'p Stmt) {
        let mut names = vec![];
        changed(std::slice::from_ref(stmt), &mut names);
        for (name, _) in names {
            self.frame().names.entry(name.into()).or_insert(Binding::Broken);
        }
    }
}

/// Whether a struct with arrays can become another by assigning to its variables.
fn takes(old: &Val, new: &Val) -> bool {
    match (old, new) {
        (Val::Held(_, ty), Val::Run(run)) => *ty == run.ty,
        (Val::Aggregate(n, old), Val::Aggregate(m, new)) => {
            n == m && old.iter().zip(new).all(|(old, new)| takes(old, new))
        }
        (old, new) => old == new,
    }
}

fn shown(run: &Run) -> String {
    match &run.constant {
        Some(Fixed::Int(n)) => n.to_string(),
        Some(Fixed::Float(x)) => format!("{x:?}"),
        Some(Fixed::Bool(b)) => if *b { "True" } else { "False" }.into(),
        _ => "…".into(),
    }
}

/// Where a name is assigned first.
fn place(blocks: &[&[Stmt]], name: &str) -> Option<TextRange> {
    for stmt in blocks.iter().flat_map(|block| block.iter()) {
        let mut names = vec![];
        changed(std::slice::from_ref(stmt), &mut names);
        if !names.iter().any(|(found, change)| *found == name && matches!(change, Change::Named)) {
            continue;
        }
        return match stmt {
            Stmt::For(each) => place(&[&each.body], name).or(Some(each.target.range())),
            Stmt::While(turn) => place(&[&turn.body], name),
            Stmt::If(branch) => {
                let clauses = branch.elif_else_clauses.iter().find_map(|clause| place(&[&clause.body], name));
                place(&[&branch.body], name).or(clauses)
            }
            other => Some(other.range()),
        };
    }
    None
}
