//! Definite initialization: finds variables in registers that may be read before they are written.
//! They are then placed in local memory, where the interpreter reports such a read. Variables that
//! are written on every path before each read stay in registers, at no cost.

use bornite_ir::{AlgebraOp, Code, Expr, ExprId, LocalId, Stmt, Struct, Type};
use foldhash::{HashMap, HashMapExt};

/// A value that is not initialized completely: its variable, and a mask of its initialized scalar
/// components.
type Partial = (usize, u64);

/// Initialized components of each variable.
type State = Vec<u64>;

struct Analysis<'a> {
    code: &'a Code,
    structs: &'a [Struct],
    /// Positions of the tracked variables in a state.
    variables: HashMap<LocalId, usize>,
    values: HashMap<ExprId, Partial>,
    /// State where execution continues; `None` after `break`, `continue` and `return`.
    state: Option<State>,
    /// States at the `break`s of each enclosing loop.
    breaks: Vec<Vec<State>>,
    /// Per variable: it may be read before it is written.
    found: Vec<bool>,
}

/// Returns the variables that may be read before they are written. A shuffle of such
/// a value is no read: lanes provide values that no lane uses.
pub(super) fn maybe_uninitialized(code: &Code, structs: &[Struct], variables: &[LocalId]) -> Vec<LocalId> {
    let count = variables.len();
    if count == 0 {
        return vec![];
    }
    let mut analysis = Analysis {
        code,
        structs,
        variables: variables.iter().enumerate().map(|(n, local)| (*local, n)).collect(),
        values: HashMap::new(),
        state: Some(vec![0; count]),
        breaks: vec![],
        found: vec![false; count],
    };
    analysis.block(&code.body);
    variables.iter().zip(&analysis.found).filter(|(_, found)| **found).map(|(local, _)| *local).collect()
}

/// Mask of `count` components.
fn all(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn meet(a: Option<State>, b: Option<State>) -> Option<State> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.iter().zip(b).map(|(a, b)| a & b).collect()),
        (a, b) => a.or(b),
    }
}

impl Analysis<'_> {
    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            if self.state.is_none() {
                return;
            }
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(id) => self.evaluate(*id),
            Stmt::Assign(local, value) => match (self.variables.get(local).copied(), &mut self.state) {
                (Some(n), Some(state)) => state[n] = self.values.get(value).map_or(u64::MAX, |(_, mask)| *mask),
                _ => self.read(*value),
            },
            Stmt::If { then, otherwise, .. } => {
                let before = self.state.clone();
                self.block(then);
                let after = std::mem::replace(&mut self.state, before);
                self.block(otherwise);
                self.state = meet(after, self.state.take());
            }
            Stmt::For { body, .. } => {
                let before = self.state.clone();
                self.breaks.push(vec![]);
                self.block(body);
                self.breaks.pop();
                self.state = before;
            }
            Stmt::Loop { body } => {
                self.breaks.push(vec![]);
                self.block(body);
                let breaks = self.breaks.pop().unwrap_or_default();
                self.state = breaks.into_iter().map(Some).fold(None, meet);
            }
            Stmt::Break => {
                let state = self.state.take();
                if let Some(breaks) = self.breaks.last_mut() {
                    breaks.extend(state);
                }
            }
            Stmt::Continue | Stmt::Return(None) => self.state = None,
            Stmt::Return(Some(value)) => {
                self.read(*value);
                self.state = None;
            }
            Stmt::Store { value, .. } => self.read(*value),
            Stmt::Print { args, .. } => args.iter().for_each(|arg| self.read(*arg)),
            Stmt::Declare(_) | Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence(_) | Stmt::Check(_) => {}
        }
    }

    fn component_count(&self, ty: Type) -> usize {
        ty.component_count(self.structs)
    }

    /// First component and number of components of a field or component of a type.
    fn part(&self, ty: Type, at: u32) -> (usize, usize) {
        let Type::Struct(id) = ty else { return (at as usize, 1) };
        let fields = &self.structs[id.0 as usize].fields;
        let first = fields[..at as usize].iter().map(|field| self.component_count(field.ty)).sum();
        (first, self.component_count(fields[at as usize].ty))
    }

    fn evaluate(&mut self, id: ExprId) {
        let count = self.component_count(self.code.ty(id));
        let partial = match self.code.expr(id) {
            Expr::Read(local) => self.variables.get(local).and_then(|n| Some((*n, self.state.as_ref()?[*n]))),
            Expr::Cast(_, from) | Expr::Bitcast(_, from) => self.values.get(from).copied(),
            Expr::Algebra { op: AlgebraOp::Extract, component, args } => self.values.get(&args[0]).map(|(n, mask)| {
                let (first, count) = self.part(self.code.ty(args[0]), *component);
                (*n, mask >> first & all(count))
            }),
            Expr::Algebra { op: AlgebraOp::Insert, component, args } => {
                let part = self.values.get(&args[1]).map_or(u64::MAX, |(_, mask)| *mask);
                self.values.get(&args[0]).map(|(n, mask)| {
                    let (first, count) = self.part(self.code.ty(id), *component);
                    (*n, mask & !(all(count) << first) | (part & all(count)) << first)
                })
            }
            Expr::Shuffle { .. } | Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => None,
            Expr::Op(_, args) => {
                args.iter().for_each(|arg| self.read(*arg));
                None
            }
            Expr::Algebra { args, .. } | Expr::Call(_, args) => {
                args.iter().for_each(|arg| self.read(*arg));
                None
            }
            Expr::Load { indices, .. } => {
                indices.iter().for_each(|index| self.read(*index));
                None
            }
            Expr::Atomic { indices, value, .. } => {
                indices.iter().chain([value]).for_each(|operand| self.read(*operand));
                None
            }
            Expr::CompareExchange { indices, expected, value, .. } => {
                indices.iter().chain([expected, value]).for_each(|operand| self.read(*operand));
                None
            }
            Expr::Vote { value, .. } => {
                self.read(*value);
                None
            }
        };
        if let Some((n, mask)) = partial.filter(|(_, mask)| mask & all(count) != all(count)) {
            self.values.insert(id, (n, mask));
        }
    }

    /// Notes a read of a value. A struct may be copied before all of its fields are written.
    fn read(&mut self, id: ExprId) {
        let Some((n, mask)) = self.values.get(&id) else { return };
        if *mask == 0 || !matches!(self.code.ty(id), Type::Struct(_)) {
            self.found[*n] = true;
        }
    }
}
