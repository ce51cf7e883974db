//! Implements [`Emit`] by computing, so that op-table bodies run in the interpreter unchanged.

use std::rc::Rc;

use super::lanes::{self, Register};
use crate::{AlgebraOp, Components, Emit, EmitBits, LookupTable, Op, Scalar, Struct, Type, Value};

pub(super) fn single_lane(scalar: Scalar, bits: u64) -> Rc<Register> {
    Rc::new(Register { scalar, bits: vec![bits] })
}

/// Computes on registers of `lanes` lanes.
pub(super) struct Compute {
    pub lanes: usize,
}

impl Emit for Compute {
    type V = Rc<Register>;

    fn op(&mut self, op: Op, args: &[&Rc<Register>]) -> Rc<Register> {
        match self.expand(op, args) {
            Some(value) => value,
            None => Rc::new(lanes::primitive(op, &args.iter().map(|a| &***a).collect::<Vec<_>>())),
        }
    }

    fn constant_like(&mut self, like: &Rc<Register>, value: f64) -> Rc<Register> {
        self.constant(Value::from_f64(like.scalar, value))
    }
}

impl EmitBits for Compute {
    fn scalar(&self, v: &Rc<Register>) -> Scalar {
        v.scalar
    }

    fn constant(&mut self, value: Value) -> Rc<Register> {
        Rc::new(Register::splat(value, self.lanes))
    }

    fn cast_step(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        Rc::new(lanes::cast_step(to, v))
    }

    fn bitcast(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        Rc::new(Register { scalar: to, bits: v.bits.clone() })
    }

    fn lookup(&mut self, table: &'static LookupTable, index: &Rc<Register>) -> Rc<Register> {
        let bits = index.bits.iter().map(|&at| table.words[at as usize]).collect();
        Rc::new(Register { scalar: Scalar::U64, bits })
    }

    fn select_unlikely<const N: usize>(
        &mut self,
        condition: &Rc<Register>,
        common: [Rc<Register>; N],
        rare: impl FnOnce(&mut Self) -> [Rc<Register>; N],
    ) -> [Rc<Register>; N] {
        if condition.bits.iter().all(|&bit| bit == 0) {
            return common;
        }
        let rare = rare(self);
        std::array::from_fn(|n| self.select(condition, &rare[n], &common[n]))
    }
}

/// Evaluates an op on constants; the reference semantics of an op. On a type error, returns a
/// description of the expected arguments.
pub fn evaluate(op: Op, args: &[Value]) -> Result<Value, &'static str> {
    if args.len() != op.arity() {
        return Err("as many arguments as the op takes");
    }
    op.row().rule.result(&args.iter().map(|a| a.scalar()).collect::<Vec<_>>())?;
    let registers: Vec<_> = args.iter().map(|&a| single_lane(a.scalar(), a.bits())).collect();
    let result = Compute { lanes: 1 }.op(op, &registers.iter().collect::<Vec<_>>());
    Ok(Value::from_bits(result.scalar, result.bits[0]))
}

/// Evaluates an algebra op on constants. `wanted` is the type that a `Construct` constructs.
pub fn evaluate_algebra(
    op: AlgebraOp,
    component_index: u32,
    wanted: Type,
    args: &[(Type, Vec<Value>)],
    structs: &[Struct],
) -> Result<(Type, Vec<Value>), &'static str> {
    let types: Vec<Type> = args.iter().map(|(ty, _)| *ty).collect();
    let ty = op.result(component_index, wanted, &types, structs)?;
    let args: Vec<Components<Rc<Register>>> = (args.iter())
        .map(|(ty, values)| Components {
            ty: *ty,
            components: values.iter().map(|v| single_lane(v.scalar(), v.bits())).collect(),
        })
        .collect();
    let components = op.body(&mut Compute { lanes: 1 }, component_index, ty, &args, structs);
    Ok((ty, components.iter().map(|component| Value::from_bits(component.scalar, component.bits[0])).collect()))
}
