//! Evaluation of expressions.

use std::rc::Rc;

use bornite_ir::{
    Axis, Builtin, Components, Emit, EmitBits, Expr, ExprId, LaunchMode, Scalar, Shuffle, Value, Vote, WARP_SIZE,
};

use super::compute::{Compute, Register};
use super::{CHUNK, Component, Lane, Machine, Mask, NoBounds, Outcome};

impl Machine<'_, '_> {
    /// Evaluates an expression and stores its components in registers.
    pub(super) fn evaluate(&mut self, id: ExprId, mask: &Mask) -> Outcome<()> {
        let compute = &mut Compute::new(self.lanes);
        let code = self.frame.code;
        let components: Vec<Component> = match code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => self.components(id),
            Expr::Read(local) => {
                let first = self.frame.slots.locals[local.0 as usize] as usize;
                self.frame.locals[first..first + code.local(*local).init.len()].to_vec()
            }
            Expr::Op(op, args) => (0..self.component_count(id))
                .map(|component| {
                    let of = |&arg: &ExprId| {
                        self.component(arg, if code.ty(arg).as_scalar().is_some() { 0 } else { component })
                    };
                    let args: Vec<Component> = args.iter().map(of).collect();
                    compute.op(*op, &args.iter().collect::<Vec<_>>())
                })
                .collect(),
            Expr::Algebra { op, component, args } => {
                let args: Vec<Components<Component>> = (args.iter())
                    .map(|&arg| Components { ty: code.ty(arg), components: self.components(arg) })
                    .collect();
                op.body(compute, *component, code.ty(id), &args, &self.kernel.structs)
            }
            Expr::Cast(to, from) => self.components(*from).iter().map(|part| compute.cast(*to, part)).collect(),
            Expr::Bitcast(to, from) => self.components(*from).iter().map(|part| compute.bitcast(*to, part)).collect(),
            Expr::Call(function, args) => self.call(*function, args, mask)?,
            Expr::Load { view, indices, width } => {
                let at = self.scalars(indices);
                self.load(*view, &at, *width as usize, mask)?
            }
            Expr::Atomic { atomic, view, indices, value } => {
                let (at, operands) = (self.scalars(indices), self.components(*value));
                self.atomic_update(*view, &at, mask, |component, lane, scalar, old| {
                    let new = operands[component].lanes[lane];
                    let Some(op) = atomic.op() else { return Ok(new) };
                    let [old, new] = [old, new].map(|lane| Rc::new(Register { scalar, lanes: vec![lane] }));
                    Ok(Compute::new(1).op(op, &[&old, &new]).lanes[0])
                })?
            }
            Expr::CompareExchange { view, indices, expected, value } => {
                let at = self.scalars(indices);
                let (expected, value) = (self.component(*expected, 0), self.component(*value, 0));
                self.atomic_update(*view, &at, mask, |_, lane, scalar, old| {
                    match (old.bits(scalar), expected.lanes[lane].bits(scalar)) {
                        (Some(old_bits), Some(bits)) if old_bits == bits => Ok(value.lanes[lane]),
                        (Some(_), Some(_)) => Ok(old),
                        _ => Err(NoBounds::Undecided("a compare-and-swap")),
                    }
                })?
            }
            // The interpreter has checked that all threads of the mask take part.
            Expr::Shuffle { shuffle, value, lane, mask: _ } => {
                let (value, from) = (self.component(*value, 0), self.component(*lane, 0));
                vec![self.shuffle(*shuffle, &value, &from, mask)?]
            }
            Expr::Vote { vote, value, mask: named } => {
                let (value, named) = (self.component(*value, 0), named.map(|named| self.component(named, 0)));
                vec![self.vote(*vote, &value, named.as_ref(), mask)?]
            }
        };
        if let Some(op) = compute.unsupported {
            return Err(NoBounds::Unsupported(format!("op '{}'", op.row().name)));
        }
        let first = self.frame.slots.exprs[id.0 as usize] as usize;
        for (n, component) in components.into_iter().enumerate() {
            self.frame.registers[first + n] = Some(component);
        }
        Ok(())
    }

    fn shuffle(&self, shuffle: Shuffle, value: &Component, from: &Component, mask: &Mask) -> Outcome<Component> {
        let mut out = (**value).clone();
        for lane in mask.lanes() {
            let (base, own) = (lane / WARP_SIZE * WARP_SIZE, (lane % WARP_SIZE) as i64);
            let distance = from.int(lane).ok_or(NoBounds::Undecided("the lane of a shuffle"))? & (WARP_SIZE as i64 - 1);
            let source = match shuffle {
                Shuffle::Index => distance,
                Shuffle::Up => own - distance,
                Shuffle::Down => own + distance,
                Shuffle::Xor => own ^ distance,
            };
            let source = if (0..WARP_SIZE as i64).contains(&source) { base + source as usize } else { lane };
            out.lanes[lane] = value.lanes.get(source).copied().unwrap_or(Lane::Undecided);
        }
        Ok(Rc::new(out))
    }

    fn vote(&self, vote: Vote, value: &Component, named: Option<&Component>, mask: &Mask) -> Outcome<Component> {
        let scalar = if vote == Vote::Ballot { Scalar::U32 } else { Scalar::Bool };
        let mut out = Register::splat(Value::int(scalar, 0), self.lanes);
        for lane in mask.lanes() {
            let base = lane / WARP_SIZE * WARP_SIZE;
            let bits =
                named.map_or(Some(-1), |named| named.int(lane)).ok_or(NoBounds::Undecided("the mask of a vote"))?;
            let takes_part = |lane: usize| mask.0[lane] && bits >> (lane - base) & 1 == 1;
            let warp = || (base..self.lanes.min(base + WARP_SIZE)).filter(|&lane| takes_part(lane));
            out.lanes[lane] = match warp().any(|lane| value.lanes[lane] == Lane::Undecided) {
                true => Lane::Undecided,
                false => {
                    let bit = |lane: usize| (value.lanes[lane] != Lane::Bits(0)) as u64;
                    let ballot = warp().fold(0, |bits, lane| bits | bit(lane) << (lane - base));
                    Lane::Bits(match vote {
                        Vote::Any => (ballot != 0) as u64,
                        Vote::All => (ballot.count_ones() as usize == warp().count()) as u64,
                        Vote::Ballot => ballot,
                    })
                }
            };
        }
        Ok(Rc::new(out))
    }

    fn component_count(&self, id: ExprId) -> usize {
        self.frame.code.ty(id).component_count(&self.kernel.structs)
    }

    /// Returns all components of a value.
    pub(super) fn components(&self, id: ExprId) -> Vec<Component> {
        (0..self.component_count(id)).map(|component| self.component(id, component)).collect()
    }

    /// Returns the values of scalar operands.
    pub(super) fn scalars(&self, ids: &[ExprId]) -> Vec<Component> {
        ids.iter().map(|&id| self.component(id, 0)).collect()
    }

    /// Returns a component of an expression that is evaluated or needs no evaluation.
    pub(super) fn component(&self, id: ExprId, component: usize) -> Component {
        let index = self.kernel.index;
        let ints = |of: &dyn Fn(usize) -> u64| {
            let lanes = (0..self.lanes).map(|lane| Lane::exact(Value::int(index, of(lane) as i64))).collect();
            Rc::new(Register { scalar: index, lanes })
        };
        match self.frame.code.expr(id) {
            Expr::Const(value) => Rc::new(Register::splat(*value, self.lanes)),
            Expr::Index => ints(&|lane| self.block * CHUNK + lane as u64),
            Expr::Builtin(builtin) => {
                let LaunchMode::Blocks { grid, block } = self.kernel.launch else { return ints(&|_| 0) };
                ints(&|lane| match *builtin {
                    Builtin::Thread(axis) => coordinate(lane as u64, block, axis),
                    Builtin::Block(axis) => coordinate(self.block, grid, axis),
                    Builtin::BlockSize(axis) => block[axis as usize] as u64,
                    Builtin::GridSize(axis) => grid[axis as usize] as u64,
                })
            }
            Expr::Argument(n) => self.frame.arguments[*n as usize][component].clone(),
            _ => {
                let slot = self.frame.slots.exprs[id.0 as usize] as usize + component;
                self.frame.registers[slot].clone().unwrap_or_else(|| {
                    // Evaluated only in a branch that no thread took.
                    let scalar = self.frame.code.ty(id).components(&self.kernel.structs)[component];
                    Rc::new(Register::splat(Value::int(scalar, 0), self.lanes))
                })
            }
        }
    }
}

/// Coordinate along an axis of linear index `n` in a grid of extents `of`, x fastest.
fn coordinate(n: u64, of: [u32; 3], axis: Axis) -> u64 {
    let [x, y, _] = of.map(|n| n.max(1) as u64);
    [n % x, n / x % y, n / (x * y)][axis as usize]
}
