//! The values of the forward sweep that the backward sweep uses, and how it gets them.
//!
//! Outside of loops they are in registers. In a loop, values that depend on constants of the
//! iteration only are computed again; others are taped at the end of their block and taken back at
//! the beginning of the same block in the backward sweep.

use super::activity::Activity;
use super::arrays::{Arrays, GradientArray};
use super::scalar_code::{BlockId, Def, Element, LoopId, ScalarCode, ScalarStmt, ValueId};
use crate::{AlgebraOp, Components, Emit, Kernel, Op, ParamId, View};

/// Source of a value in the backward sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Storage {
    Unused,
    /// The expression of the forward sweep, which is visible.
    Direct,
    /// A variable of its own.
    Variable,
    Recomputed,
    Taped,
}

/// Taped item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taped {
    Value(ValueId),
    /// Number of iterations of a loop.
    Iterations(LoopId),
}

pub(super) struct Needs {
    pub storage: Vec<Storage>,
    /// Taped items of each block, in order.
    pub taped: Vec<Vec<Taped>>,
    /// True for blocks with a backward sweep.
    pub has_work: Vec<bool>,
}

impl Needs {
    /// Maximum number of items that an instance tapes; `None` if loop bounds do not determine it.
    pub fn tape_bound(&self, code: &ScalarCode<'_>, block: BlockId) -> Option<u64> {
        let mut total = self.taped[block.0 as usize].len() as u64;
        for stmt in &code.block(block).stmts {
            let inner = match stmt {
                ScalarStmt::If { then, otherwise, .. } => {
                    self.tape_bound(code, *then)?.max(self.tape_bound(code, *otherwise)?)
                }
                ScalarStmt::Loop(id) => {
                    match (self.tape_bound(code, code.each_loop(*id).body), code.each_loop(*id).counted) {
                        (Some(0), _) => 0,
                        (each, Some((_, end))) => {
                            let count = code.constant(end)?.as_i64().max(0) as u64;
                            each?.saturating_mul(count)
                        }
                        _ => return None,
                    }
                }
                _ => 0,
            };
            total = total.saturating_add(inner);
        }
        Some(total)
    }

    pub fn is_taped(&self) -> bool {
        self.taped.iter().any(|items| !items.is_empty())
    }
}

/// Operands of an op that its derivative uses.
pub(super) struct DerivativeUses {
    pub args: Vec<bool>,
    pub out: bool,
}

/// Set of inputs, as bits.
#[derive(Clone, Copy, Default)]
struct Bits([u64; 4]);

impl Bits {
    fn one(n: usize) -> Bits {
        let mut out = Bits::default();
        if let Some(word) = out.0.get_mut(n / 64) {
            *word = 1 << (n % 64);
        }
        out
    }

    fn or(self, other: Bits) -> Bits {
        Bits(std::array::from_fn(|n| self.0[n] | other.0[n]))
    }

    fn has(self, n: usize) -> bool {
        self.0.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }
}

/// [`Emit`] that records the inputs that a result depends on.
struct Probe;

impl Emit for Probe {
    type V = Bits;

    fn op(&mut self, _: Op, args: &[&Bits]) -> Bits {
        args.iter().fold(Bits::default(), |all, arg| all.or(**arg))
    }

    fn constant_like(&mut self, _: &Bits, _: f64) -> Bits {
        Bits::default()
    }
}

/// Returns the inputs that the derivative of an op uses, with respect to the operands in `active`;
/// `None` if the op has no derivative.
pub(super) fn derivative_uses(op: Op, active: &[bool]) -> Option<DerivativeUses> {
    let count = active.len();
    let args: Vec<Bits> = (0..count).map(Bits::one).collect();
    let by_arg = op.derivative(&mut Probe, &args.iter().collect::<Vec<_>>(), &Bits::one(count), &Bits::default())?;
    let pairs = by_arg.into_iter().zip(active).filter(|(_, active)| **active);
    let used = pairs.fold(Bits::default(), |all, (bits, _)| all.or(bits.unwrap_or_default()));
    Some(DerivativeUses { args: (0..count).map(|n| used.has(n)).collect(), out: used.has(count) })
}

/// Returns the inputs that the derivative of an operation on vectors uses: each component of the
/// operands, then each of the result. `None` if the operation has no derivative.
pub(super) fn algebra_uses(
    kernel: &Kernel,
    op: AlgebraOp,
    args: &[Components<ValueId>],
    out: &Components<ValueId>,
    active: &dyn Fn(ValueId) -> bool,
) -> Option<Vec<bool>> {
    let mut next = 0;
    let mut number = |part: &Components<ValueId>| {
        let components = part.components.iter().map(|_| {
            next += 1;
            Bits::one(next - 1)
        });
        Components { ty: part.ty, components: components.collect() }
    };
    let numbered: Vec<Components<Bits>> = args.iter().map(&mut number).collect();
    let numbered_out = number(out);
    let gradients = vec![Bits::default(); out.components.len()];
    let found = op.derivative(&mut Probe, 0, &numbered, &numbered_out, &gradients, &kernel.structs)?;
    let mut used = Bits::default();
    for (parts, arg) in found.iter().zip(args) {
        for (bits, id) in parts.iter().zip(&arg.components) {
            used = if active(*id) { used.or(*bits) } else { used };
        }
    }
    Some((0..next).map(|n| used.has(n)).collect())
}

/// True if an access to the element has a gradient.
pub(super) fn has_gradient(kernel: &Kernel, activity: &Activity, arrays: &Arrays, element: &Element) -> bool {
    match element.view {
        View::Param(ParamId(n)) => {
            debug_assert!((n as usize) < kernel.params.len());
            arrays.uses[n as usize].gradient != GradientArray::None
        }
        View::Local(id) => activity.local_array(id.0),
        View::Shared(_) => false,
    }
}

/// True if the backward sweep handles a store.
pub(super) fn store_has_work(
    kernel: &Kernel,
    code: &ScalarCode<'_>,
    activity: &Activity,
    arrays: &Arrays,
    element: &Element,
    value: ValueId,
) -> bool {
    let clears = match element.view {
        View::Param(ParamId(n)) => arrays.uses[n as usize].gradient == GradientArray::Output { cleared: true },
        _ => true,
    };
    code.value(value).scalar.is_float()
        && has_gradient(kernel, activity, arrays, element)
        && (clears || activity.value(value))
}

pub(super) fn find(kernel: &Kernel, code: &ScalarCode<'_>, activity: &Activity, arrays: &Arrays) -> Needs {
    let mut finder = Finder {
        kernel,
        code,
        activity,
        arrays,
        needed: vec![false; code.values.len()],
        has_work: vec![false; code.blocks.len()],
        iterations: vec![],
    };
    finder.block(BlockId(0));
    let recomputable = finder.recomputable();
    let mut storage = vec![Storage::Unused; code.values.len()];
    let mut taped: Vec<Vec<Taped>> = vec![vec![]; code.blocks.len()];
    // Operands come before the values that use them.
    for n in (0..code.values.len()).rev() {
        let (id, definition) = (ValueId(n as u32), &code.values[n]);
        if !finder.needed[n] || definition.is_leaf() {
            continue;
        }
        storage[n] = match (code.block(definition.block).in_loop, definition.block) {
            (None, BlockId(0)) => Storage::Direct,
            (None, _) => Storage::Variable,
            (Some(_), _) if recomputable[n] => {
                code.operands(id).into_iter().for_each(|operand| finder.needed[operand.0 as usize] = true);
                Storage::Recomputed
            }
            (Some(_), block) => {
                taped[block.0 as usize].push(Taped::Value(id));
                Storage::Taped
            }
        };
    }
    for (id, block) in &finder.iterations {
        taped[block.0 as usize].push(Taped::Iterations(*id));
    }
    Needs { storage, taped, has_work: finder.has_work }
}

struct Finder<'a, 'k> {
    kernel: &'a Kernel,
    code: &'a ScalarCode<'k>,
    activity: &'a Activity,
    arrays: &'a Arrays,
    needed: Vec<bool>,
    has_work: Vec<bool>,
    /// Loops whose number of iterations is taped, and the block that contains them.
    iterations: Vec<(LoopId, BlockId)>,
}

impl Finder<'_, '_> {
    fn need(&mut self, id: ValueId) {
        self.needed[id.0 as usize] = true;
    }

    fn need_element(&mut self, element: &Element) {
        element.selectors().for_each(|id| self.need(id));
    }

    /// Finds the needs of a block; returns true if it has a backward sweep.
    fn block(&mut self, id: BlockId) -> bool {
        let code = self.code;
        let mut work = false;
        for stmt in &code.block(id).stmts {
            work |= self.stmt(stmt, id);
        }
        self.has_work[id.0 as usize] = work;
        work
    }

    fn stmt(&mut self, stmt: &ScalarStmt<'_>, block: BlockId) -> bool {
        let code = self.code;
        match stmt {
            ScalarStmt::Let(id) if !self.activity.value(*id) => false,
            ScalarStmt::Let(id) => {
                match &code.value(*id).def {
                    Def::Op(op, args) => {
                        let active: Vec<bool> = args.iter().map(|arg| self.activity.value(*arg)).collect();
                        let uses = derivative_uses(*op, &active);
                        let uses = uses.unwrap_or(DerivativeUses { args: vec![], out: false });
                        args.iter().zip(&uses.args).filter(|(_, used)| **used).for_each(|(arg, _)| self.need(*arg));
                        if uses.out {
                            self.need(*id);
                        }
                    }
                    Def::Load(element) if has_gradient(self.kernel, self.activity, self.arrays, element) => {
                        self.need_element(element);
                    }
                    _ => {}
                }
                true
            }
            ScalarStmt::Algebra(group) => {
                let group = code.group(*group);
                if !group.out.components.iter().any(|part| self.activity.value(*part)) {
                    return false;
                }
                let active = |id| self.activity.value(id);
                let uses = algebra_uses(self.kernel, group.op, &group.args, &group.out, &active).unwrap_or_default();
                let parts = group.args.iter().chain([&group.out]).flat_map(|part| part.components.clone());
                parts.zip(uses).filter(|(_, used)| *used).for_each(|(id, _)| self.need(id));
                true
            }
            ScalarStmt::Assign(var, _) => self.activity.var(*var),
            ScalarStmt::Store { element, value, .. } => {
                let work = store_has_work(self.kernel, code, self.activity, self.arrays, element, *value);
                if work {
                    self.need_element(element);
                }
                work
            }
            ScalarStmt::AtomicAdd { element, value, .. } => {
                let work = self.activity.value(*value);
                if work {
                    self.need_element(element);
                }
                work
            }
            ScalarStmt::Declare(id) => self.activity.local_array(id.0),
            ScalarStmt::If { condition, then, otherwise } => {
                let work = self.block(*then) | self.block(*otherwise);
                if work {
                    self.need(*condition);
                }
                work
            }
            ScalarStmt::Loop(id) => {
                let each = code.each_loop(*id);
                let work = self.block(each.body);
                match each.counted {
                    Some((_, end)) if work && each.exit.is_none() => self.need(end),
                    _ if work && code.block(block).in_loop.is_some() => self.iterations.push((*id, block)),
                    _ => {}
                }
                work
            }
        }
    }

    /// For each value in a loop, true if it is computed from constants of the iteration.
    fn recomputable(&self) -> Vec<bool> {
        let code = self.code;
        let in_loop = |id: ValueId| code.block(code.value(id).block).in_loop;
        let counters: Vec<_> = code.loops.iter().filter_map(|each| Some(each.counted?.0)).collect();
        let mut out: Vec<bool> = vec![];
        for (n, definition) in code.values.iter().enumerate() {
            let id = ValueId(n as u32);
            let available = |operand: &ValueId| {
                in_loop(*operand).is_none() || in_loop(*operand) != in_loop(id) || out[operand.0 as usize]
            };
            let found = match &definition.def {
                Def::Const(_) | Def::Argument { .. } | Def::Instance(_) => true,
                Def::Read(var) => counters.contains(var),
                Def::Load(element) => self.arrays.is_constant(element.view) && code.operands(id).iter().all(available),
                _ => code.operands(id).iter().all(available),
            };
            out.push(found);
        }
        out
    }
}
