//! Evaluation of expressions.

use std::rc::Rc;

use super::compute::{Compute, single_lane};
use super::lanes::{Mask, Register};
use super::{CHUNK, Component, Machine, coordinates};
use crate::{
    Axis, Builtin, Components, Emit, EmitBits, Expr, ExprId, Fault, FaultKind, LaunchMode, Op, Shuffle, Value, Vote,
    WARP_SIZE,
};

impl Machine<'_, '_, '_> {
    /// Evaluates an expression and stores its components in registers.
    pub(super) fn evaluate(&mut self, id: ExprId, mask: &Mask) -> Result<(), Fault> {
        let compute = &mut Compute { lanes: self.lanes };
        let code = self.frame.code;
        let components: Vec<Component> =
            match code.expr(id) {
                Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => self.components(id),
                Expr::Read(local) => {
                    let first = self.frame.slots.locals[local.0 as usize] as usize;
                    let count = code.local(*local).init.len();
                    self.frame.locals[first..first + count].iter().map(|register| Rc::new(register.clone())).collect()
                }
                Expr::Op(op, args) => {
                    for component in 0..self.component_count_of(id) {
                        if self.options.check_division && matches!(op, Op::Div | Op::Rem) {
                            self.check_division(
                                &self.component_or_scalar(args[0], component),
                                &self.component_or_scalar(args[1], component),
                                mask,
                            )?;
                        }
                        let args: Vec<Component> =
                            args.iter().map(|&arg| self.component_or_scalar(arg, component)).collect();
                        let value = compute.op(*op, &args.iter().collect::<Vec<_>>());
                        self.set(id, component, value);
                    }
                    return Ok(());
                }
                Expr::Algebra { op, component, args } => {
                    let args: Vec<Components<Component>> = args
                        .iter()
                        .map(|&arg| Components { ty: code.ty(arg), components: self.components(arg) })
                        .collect();
                    op.body(compute, *component, code.ty(id), &args, &self.kernel.structs)
                }
                Expr::Cast(to, from) => {
                    self.components(*from).iter().map(|component| compute.cast(*to, component)).collect()
                }
                Expr::Bitcast(to, from) => {
                    self.components(*from).iter().map(|component| compute.bitcast(*to, component)).collect()
                }
                Expr::Call(function, args) => self.call(*function, args, mask)?,
                Expr::Load { view, indices, width } => {
                    let at = self.scalars(indices);
                    self.load(*view, &at, *width, mask)?
                }
                Expr::Atomic { atomic, view, indices, value } => {
                    let (at, components) = (self.scalars(indices), self.components(*value));
                    self.atomic_update(*view, &at, mask, |component, lane, old| {
                        let value = &components[component];
                        let (old, new) = (single_lane(value.scalar, old), single_lane(value.scalar, value.bits[lane]));
                        match atomic.op() {
                            Some(op) => Compute { lanes: 1 }.op(op, &[&old, &new]).bits[0],
                            None => new.bits[0],
                        }
                    })?
                }
                Expr::CompareExchange { view, indices, expected, value } => {
                    let (at, expected, value) =
                        (self.scalars(indices), self.component(*expected, 0), self.component(*value, 0));
                    self.atomic_update(*view, &at, mask, |_, lane, old| {
                        if old == expected.bits[lane] { value.bits[lane] } else { old }
                    })?
                }
                Expr::Shuffle { shuffle, value, lane, mask: named } => {
                    let named = named.map(|named| self.component(named, 0));
                    self.require_warps(mask, named.as_deref(), "shuffle")?;
                    let (value, from) = (self.component(*value, 0), self.component(*lane, 0));
                    vec![self.shuffle(*shuffle, &value, &from, named.as_deref(), mask)?]
                }
                Expr::Vote { vote, value, mask: named } => {
                    let named = named.map(|named| self.component(named, 0));
                    self.require_warps(mask, named.as_deref(), "vote")?;
                    let value = self.component(*value, 0);
                    vec![self.vote(*vote, &value, named.as_deref(), mask)]
                }
            };
        for (n, component) in components.into_iter().enumerate() {
            self.set(id, n, component);
        }
        Ok(())
    }

    /// Reports integer division by zero, and quotients that overflow.
    fn check_division(&self, a: &Register, b: &Register, mask: &Mask) -> Result<(), Fault> {
        let scalar = a.scalar;
        if !scalar.is_int() {
            return Ok(());
        }
        let smallest = Value::int(scalar, scalar.int_range().0 as i64).bits();
        let minus_one = Value::int(scalar, -1).bits();
        let overflows = |lane: usize| scalar.is_signed() && a.bits[lane] == smallest && b.bits[lane] == minus_one;
        match mask.lanes().find(|&lane| b.bits[lane] == 0 || overflows(lane)) {
            Some(lane) => {
                let (a, b) = (a.value(lane).to_string(), b.value(lane).to_string());
                Err(self.fault(FaultKind::Division { a, b, thread: self.lane_name(lane) }))
            }
            None => Ok(()),
        }
    }

    fn shuffle(
        &self,
        shuffle: Shuffle,
        value: &Register,
        from: &Register,
        named: Option<&Register>,
        mask: &Mask,
    ) -> Result<Component, Fault> {
        let mut out = value.clone();
        for lane in mask.lanes() {
            let (base, own) = (lane / WARP_SIZE * WARP_SIZE, lane % WARP_SIZE);
            // The hardware uses only five bits.
            let distance = from.int(lane) & (WARP_SIZE as i64 - 1);
            let source = match shuffle {
                Shuffle::Index => distance,
                Shuffle::Up => own as i64 - distance,
                Shuffle::Down => own as i64 + distance,
                Shuffle::Xor => own as i64 ^ distance,
            };
            let source = if (0..WARP_SIZE as i64).contains(&source) { base + source as usize } else { lane };
            let takes_part = named.is_none_or(|named| named.bits[lane] >> (source - base) & 1 == 1);
            if !takes_part || !mask.0.get(source).copied().unwrap_or(false) {
                let warp = base..self.lanes.min(base + WARP_SIZE);
                let (reached, thread) = (warp.filter(|&lane| mask.0[lane]).count(), self.lane_name(lane));
                return Err(self.fault(FaultKind::PartialWarp {
                    operation: "shuffle",
                    reached,
                    expected: WARP_SIZE,
                    thread,
                }));
            }
            out.bits[lane] = value.bits[source];
        }
        Ok(Rc::new(out))
    }

    fn vote(&self, vote: Vote, value: &Register, named: Option<&Register>, mask: &Mask) -> Component {
        let scalar = if vote == Vote::Ballot { crate::Scalar::U32 } else { crate::Scalar::Bool };
        let mut out = Register::splat(Value::int(scalar, 0), self.lanes);
        for lane in mask.lanes() {
            let base = lane / WARP_SIZE * WARP_SIZE;
            let bits = named.map_or(u64::MAX, |named| named.bits[lane]);
            let warp = || {
                (base..self.lanes.min(base + WARP_SIZE)).filter(|&lane| mask.0[lane] && bits >> (lane - base) & 1 == 1)
            };
            let ballot = warp().fold(0u64, |bits, lane| bits | (value.bits[lane] & 1) << (lane - base));
            out.bits[lane] = match vote {
                Vote::Any => (ballot != 0) as u64,
                Vote::All => (ballot.count_ones() as usize == warp().count()) as u64,
                Vote::Ballot => ballot,
            };
        }
        Rc::new(out)
    }

    /// Reports threads that take part in a shuffle or vote without all threads of `named`, or else
    /// of their warp. All must name the same threads, themselves among them.
    fn require_warps(&self, mask: &Mask, named: Option<&Register>, operation: &'static str) -> Result<(), Fault> {
        if let Some(named) = named {
            for lane in mask.lanes() {
                let base = lane / WARP_SIZE * WARP_SIZE;
                let bits = named.bits[lane];
                let expected = (base..self.lanes.min(base + WARP_SIZE))
                    .filter(|&other| other == lane || bits >> (other - base) & 1 == 1 && !self.frame.returned.0[other]);
                let agrees = |&other: &usize| mask.0[other] && named.bits[other] == bits;
                let (reached, expected) = (expected.clone().filter(agrees).count(), expected.count());
                if reached != expected || bits >> (lane - base) & 1 == 0 {
                    let reached = if reached == expected { expected - 1 } else { reached };
                    let thread = self.lane_name(lane);
                    return Err(self.fault(FaultKind::PartialWarp { operation, reached, expected, thread }));
                }
            }
            return Ok(());
        }
        for (warp, reached, expected) in self.partial_warps(mask) {
            if reached != expected {
                let thread = mask
                    .lanes()
                    .find(|lane| lane / WARP_SIZE == warp)
                    .map_or(String::new(), |lane| self.lane_name(lane));
                return Err(self.fault(FaultKind::PartialWarp { operation, reached, expected, thread }));
            }
        }
        Ok(())
    }

    fn set(&mut self, id: ExprId, component: usize, value: Component) {
        let slot = self.frame.slots.exprs[id.0 as usize] as usize + component;
        self.frame.registers[slot] = Some(value);
    }

    fn component_count_of(&self, id: ExprId) -> usize {
        self.frame.code.ty(id).component_count(&self.kernel.structs)
    }

    /// Returns all components of a value.
    pub(super) fn components(&self, id: ExprId) -> Vec<Component> {
        (0..self.component_count_of(id)).map(|component| self.component(id, component)).collect()
    }

    /// Returns the values of scalar operands.
    pub(super) fn scalars(&self, ids: &[ExprId]) -> Vec<Component> {
        ids.iter().map(|&id| self.component(id, 0)).collect()
    }

    /// Returns a component; for scalars, such as a condition shared by all components, the only
    /// one.
    fn component_or_scalar(&self, id: ExprId, component: usize) -> Component {
        self.component(id, if self.frame.code.ty(id).as_scalar().is_some() { 0 } else { component })
    }

    /// Returns a component of an expression that is already evaluated (guaranteed by the verifier)
    /// or needs no evaluation.
    pub(super) fn component(&self, id: ExprId, component: usize) -> Component {
        let index = self.kernel.index;
        match self.frame.code.expr(id) {
            Expr::Const(value) => Rc::new(Register::splat(*value, self.lanes)),
            Expr::Index => Rc::new(Register::ints(index, self.lanes, |lane| self.block * CHUNK + lane as u64)),
            Expr::Builtin(builtin) => self.builtin(*builtin),
            Expr::Argument(n) => self.frame.arguments[*n as usize][component].clone(),
            _ => {
                let slot = self.frame.slots.exprs[id.0 as usize] as usize + component;
                match &self.frame.registers[slot] {
                    Some(register) => register.clone(),
                    // Evaluated only in a branch that no lane took.
                    None => {
                        let scalar = self.frame.code.ty(id).components(&self.kernel.structs)[component];
                        Rc::new(Register::splat(Value::int(scalar, 0), self.lanes))
                    }
                }
            }
        }
    }

    fn builtin(&self, builtin: Builtin) -> Component {
        let index = self.kernel.index;
        let LaunchMode::Blocks { grid, block } = self.kernel.launch else {
            return Rc::new(Register::splat(Value::int(index, 0), self.lanes));
        };
        let at = |axis| match axis {
            Axis::X => 0,
            Axis::Y => 1,
            Axis::Z => 2,
        };
        Rc::new(Register::ints(index, self.lanes, |lane| match builtin {
            Builtin::Thread(axis) => coordinates(lane as u64, block)[at(axis)],
            Builtin::Block(axis) => coordinates(self.block, grid)[at(axis)],
            Builtin::BlockSize(axis) => block[at(axis)] as u64,
            Builtin::GridSize(axis) => grid[at(axis)] as u64,
        }))
    }
}
