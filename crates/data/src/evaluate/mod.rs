//! Reference evaluator: runs a program directly, in f64 with error bounds and in exact integers.
//!
//! It interprets the tree that the source was printed from and shares no code with the kernel IR,
//! its readers or the front ends, so no single bug can make both agree on a wrong result. Instances
//! run one after the other, in order; the generator makes no program whose result depends on that.

mod arrays;
mod ball;
mod influence;
mod math;
mod reached;
mod telling;

pub use ball::{Ball, nearest, unit};
pub use influence::{Influence, Parameter};
pub use reached::{Reached, is_same};
pub use telling::{Expected, telling};

use crate::program::{Binary, Body, Expr, Kind, Program, Scalar, Stmt, Ty, Unary, Var};

/// Why an evaluation has no result.
#[derive(Clone, PartialEq, Debug)]
pub enum Stop {
    /// A comparison or step that depends on rounding: other inputs are needed.
    Undecided,
    /// The program has an error, which is a bug of the generator.
    Invalid(String),
}

/// A value during evaluation.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A float.
    Float(Ball),
    /// An integer; unsigned 64-bit ones by their bits.
    Int(i64),
    /// True, false, or undecided.
    Bool(Option<bool>),
    /// All components of a vector, matrix or struct, in order.
    Many(Vec<Value>),
}

impl Value {
    fn float(&self) -> Ball {
        if let Value::Float(ball) = self { *ball } else { Ball::exact(0.0) }
    }

    fn int(&self) -> i64 {
        if let Value::Int(value) = self { *value } else { 0 }
    }
}

/// Contents of an array: the components of all elements, one after the other.
#[derive(PartialEq, Debug)]
pub struct Contents {
    /// Extents.
    pub shape: Vec<u32>,
    /// Types of the components of an element.
    pub scalars: Vec<Scalar>,
    /// Components.
    pub cells: Vec<Value>,
    /// Per component: total magnitude and number of atomic float additions; empty if there are
    /// none.
    added: Vec<(f64, u32)>,
}

impl Contents {
    /// An array with these components.
    pub fn new(shape: Vec<u32>, scalars: Vec<Scalar>, cells: Vec<Value>) -> Contents {
        Contents { shape, scalars, cells, added: vec![] }
    }
}

impl Clone for Contents {
    fn clone(&self) -> Contents {
        let Contents { shape, scalars, cells, added } = self;
        Contents { shape: shape.clone(), scalars: scalars.clone(), cells: cells.clone(), added: added.clone() }
    }

    /// Reuses the allocations: programs are run many times over the same arrays.
    fn clone_from(&mut self, other: &Contents) {
        self.shape.clone_from(&other.shape);
        self.scalars.clone_from(&other.scalars);
        self.cells.clone_from(&other.cells);
        self.added.clone_from(&other.added);
    }
}

/// Wraps an integer to its type.
pub fn wrapped(scalar: Scalar, value: i64) -> i64 {
    match scalar {
        Scalar::I8 => value as i8 as i64,
        Scalar::I16 => value as i16 as i64,
        Scalar::I32 => value as i32 as i64,
        Scalar::U8 => value as u8 as i64,
        Scalar::U16 => value as u16 as i64,
        Scalar::U32 => value as u32 as i64,
        _ => value,
    }
}

/// Loop iterations after which a program is considered non-terminating.
const MOST_TURNS: usize = 100_000;

/// How a block of statements was left.
#[derive(PartialEq)]
enum Left {
    AtEnd,
    Break,
    Continue,
    Return(Option<Value>),
}

type Done<T> = Result<T, Stop>;

/// Runs a program over the contents of its arrays, with its sizes and scalar parameters; `reached`
/// records which parts were executed.
pub fn run<'p>(
    program: &'p Program,
    sizes: &[u32],
    values: &[Value],
    arrays: &mut [Contents],
    reached: &mut Reached<'p>,
) -> Result<(), Stop> {
    execute(program, u64::MAX, sizes, values, arrays, reached)
}

/// Like [`run`], for the first `instances` of the launch only.
pub fn run_first(
    program: &Program,
    instances: u64,
    sizes: &[u32],
    values: &[Value],
    arrays: &mut [Contents],
) -> Result<(), Stop> {
    execute(program, instances, sizes, values, arrays, &mut Reached::default())
}

fn execute<'p>(
    program: &'p Program,
    instances: u64,
    sizes: &[u32],
    values: &[Value],
    arrays: &mut [Contents],
    reached: &mut Reached<'p>,
) -> Result<(), Stop> {
    let ordered = matches!(program.form, crate::program::Form::Direct(_));
    let mut machine = Machine { program, arrays, ordered, reached };
    let mut frame = Frame::new(&program.body);
    for (param, value) in program.values.iter().zip(values) {
        frame.vars[param.var.0 as usize] = value.clone();
    }
    for (param, size) in program.sizes.iter().zip(sizes) {
        frame.vars[param.var.0 as usize] = Value::Int(*size as i64);
    }
    let extents: Vec<u64> = program.grid.iter().map(|(_, size)| size.of(sizes) as u64).collect();
    for n in 0..extents.iter().product::<u64>().min(instances) {
        let mut rest: u64 = n;
        for ((var, _), extent) in program.grid.iter().zip(&extents).rev() {
            frame.vars[var.0 as usize] = Value::Int((rest % extent) as i64);
            rest /= extent;
        }
        machine.block(&program.body.stmts, &mut frame)?;
    }
    for contents in machine.arrays.iter_mut() {
        contents.apply_sum_bounds();
        if !contents.is_bounded() {
            return Err(Stop::Undecided);
        }
    }
    Ok(())
}

/// Variables of the kernel or a function.
struct Frame {
    vars: Vec<Value>,
    /// Of sums in unspecified order: total magnitude, number of additions, and error inherited from
    /// the terms.
    sums: Vec<(f64, f64, f64)>,
}

impl Frame {
    fn new(body: &Body) -> Frame {
        Frame { vars: vec![Value::Int(0); body.vars.len()], sums: vec![(0.0, 0.0, 0.0); body.vars.len()] }
    }
}

struct Machine<'p, 'a> {
    program: &'p Program,
    arrays: &'a mut [Contents],
    /// True if sums are computed in the order of the source.
    ordered: bool,
    reached: &'a mut Reached<'p>,
}

impl<'p> Machine<'p, '_> {
    fn block(&mut self, stmts: &'p [Stmt], frame: &mut Frame) -> Done<Left> {
        let block = self.reached.block(stmts);
        for (n, stmt) in stmts.iter().enumerate() {
            self.reached.statement(block, n);
            match stmt {
                Stmt::Let(var, e) | Stmt::Assign(var, e) => {
                    let value = self.expr(e, frame)?;
                    self.set(*var, value, frame);
                }
                Stmt::Update(var, op, e) => {
                    let value = self.expr(e, frame)?;
                    self.update(*var, *op, value, e.ty, frame)?;
                }
                Stmt::SetPart(var, at, e) => {
                    let value = self.expr(e, frame)?;
                    if let Value::Many(parts) = &mut frame.vars[var.0 as usize] {
                        match value {
                            Value::Many(_) => return Err(Stop::Invalid("a component that is a vector".into())),
                            value => parts[*at as usize] = value,
                        }
                    }
                }
                Stmt::Store(array, at, e) => {
                    let value = self.expr(e, frame)?;
                    let offset = self.element_offset(*array, at, frame)?;
                    self.store(*array, offset, value)?;
                }
                Stmt::Atomic(update, array, at, e) => {
                    let value = self.expr(e, frame)?;
                    let offset = self.element_offset(*array, at, frame)?;
                    self.atomic(*update, *array, offset, value)?;
                }
                Stmt::If(condition, then, otherwise) => {
                    let holds = self.condition(condition, frame)?;
                    let taken = if holds { then } else { otherwise };
                    match self.block(taken, frame)? {
                        Left::AtEnd => {}
                        left => return Ok(left),
                    }
                }
                Stmt::For(var, low, high, step, body) => {
                    let (low, high) = (self.expr(low, frame)?.int(), self.expr(high, frame)?.int());
                    let mut n = low;
                    while if *step > 0 { n < high } else { n > high } {
                        frame.vars[var.0 as usize] = Value::Int(n);
                        match self.block(body, frame)? {
                            Left::AtEnd | Left::Continue => {}
                            Left::Break => break,
                            left => return Ok(left),
                        }
                        n += step;
                    }
                }
                Stmt::While(condition, body) => {
                    let mut iterations = 0;
                    while self.condition(condition, frame)? {
                        match self.block(body, frame)? {
                            Left::AtEnd | Left::Continue => {}
                            Left::Break => break,
                            left => return Ok(left),
                        }
                        iterations += 1;
                        if iterations > MOST_TURNS {
                            return Err(Stop::Invalid("a loop does not terminate".into()));
                        }
                    }
                }
                Stmt::Break => return Ok(Left::Break),
                Stmt::Continue => return Ok(Left::Continue),
                Stmt::Return(None) => return Ok(Left::Return(None)),
                Stmt::Return(Some(e)) => return Ok(Left::Return(Some(self.expr(e, frame)?))),
                Stmt::Seed(var, seed, offset) => {
                    let (seed, offset) = (self.expr(seed, frame)?.int(), self.expr(offset, frame)?.int());
                    let state = math::pcg((seed as u32).wrapping_add(math::pcg(offset as u32)));
                    frame.vars[var.0 as usize] = Value::Int(state as i64);
                }
                Stmt::Draw(var, state, range) => {
                    let next = math::pcg(frame.vars[state.0 as usize].int() as u32);
                    frame.vars[state.0 as usize] = Value::Int(next as i64);
                    let drawn = match range {
                        None => Value::Float(Ball::exact((next >> 8) as f64 / 16777216.0)),
                        Some((low, high)) => Value::Int((next % (high - low) as u32) as i64 + low),
                    };
                    self.set(*var, drawn, frame);
                }
            }
        }
        Ok(Left::AtEnd)
    }

    fn set(&mut self, Var(n): Var, value: Value, frame: &mut Frame) {
        if let (false, Value::Float(ball)) = (self.ordered, &value) {
            frame.sums[n as usize] = (ball.mid.abs(), 0.0, ball.err);
        }
        frame.vars[n as usize] = value;
    }

    fn update(&mut self, var: Var, op: Binary, value: Value, ty: Ty, frame: &mut Frame) -> Done<()> {
        let n = var.0 as usize;
        if let (false, Binary::Add | Binary::Sub, Value::Float(part), Value::Float(sum)) =
            (self.ordered, op, &value, &frame.vars[n])
        {
            let scalar = ty.element().unwrap_or(Scalar::F32);
            let (size, count, err) = &mut frame.sums[n];
            *size += part.mid.abs();
            *count += 1.0;
            *err += part.err;
            let mid = if op == Binary::Add { sum.mid + part.mid } else { sum.mid - part.mid };
            let factor = if scalar == Scalar::F64 { 3.0 } else { 1.01 };
            frame.vars[n] = Value::Float(Ball { mid, err: *err + *size * *count * unit(scalar) * factor });
            return Ok(());
        }
        let before = std::mem::replace(&mut frame.vars[n], Value::Int(0));
        let after = math::binary(op, before, value, ty, ty)?;
        self.set(var, after, frame);
        Ok(())
    }

    fn condition(&mut self, e: &'p Expr, frame: &mut Frame) -> Done<bool> {
        match self.expr(e, frame)? {
            Value::Bool(Some(truth)) => Ok(truth),
            _ => Err(Stop::Undecided),
        }
    }

    fn expr(&mut self, e: &'p Expr, frame: &mut Frame) -> Done<Value> {
        if !self.reached.observes(e) {
            return self.computed(e, frame, None);
        }
        let mut operands = [const { Value::Int(0) }; 3];
        let value = self.computed(e, frame, Some(&mut operands))?;
        self.reached.value(e, &value, &operands);
        Ok(value)
    }

    /// Computes an expression; operands that the operation could return unchanged are stored in
    /// `operands`.
    fn computed(&mut self, e: &'p Expr, frame: &mut Frame, operands: Option<&mut [Value; 3]>) -> Done<Value> {
        Ok(match &e.kind {
            Kind::Float(value) => Value::Float(Ball::exact(nearest(e.ty.element().unwrap_or(Scalar::F32), *value))),
            Kind::Int(value) if e.ty == Ty::BOOL => Value::Bool(Some(*value != 0)),
            Kind::Int(value) => Value::Int(*value),
            Kind::Var(Var(n)) => frame.vars[*n as usize].clone(),
            Kind::Load(array, at) => {
                let offset = self.element_offset(*array, at, frame)?;
                let contents = &self.arrays[array.0 as usize];
                match e.ty {
                    Ty::Scalar(_) => contents.cells[offset].clone(),
                    _ => Value::Many(contents.cells[offset..offset + contents.scalars.len()].to_vec()),
                }
            }
            Kind::Unary(op, a) => {
                let value = self.expr(a, frame)?;
                unary(*op, value, e.ty)
            }
            Kind::Binary(op @ (Binary::And | Binary::Or), both) => {
                let short_circuit = *op == Binary::Or;
                let first = self.expr(&both[0], frame)?;
                if first == Value::Bool(Some(short_circuit)) {
                    return Ok(first);
                }
                match (first, self.expr(&both[1], frame)?) {
                    (_, Value::Bool(Some(second))) if second == short_circuit => Value::Bool(Some(short_circuit)),
                    (Value::Bool(None), _) => Value::Bool(None),
                    (_, second) => second,
                }
            }
            Kind::Binary(op, both) => {
                let (a, b) = (self.expr(&both[0], frame)?, self.expr(&both[1], frame)?);
                if let Some(operands) = operands {
                    (operands[0], operands[1]) = (a.clone(), b.clone());
                }
                math::binary(*op, a, b, both[0].ty, both[1].ty)?
            }
            Kind::Call(builtin, args) => {
                let mut values = [Value::Int(0), Value::Int(0), Value::Int(0)];
                for (value, arg) in values.iter_mut().zip(args) {
                    *value = self.expr(arg, frame)?;
                }
                if let Some(operands) = operands {
                    operands.clone_from(&values);
                }
                math::call(*builtin, &values[..args.len()], args[0].ty)?
            }
            Kind::Function(func, args) => {
                let function = &self.program.functions[func.0 as usize];
                let mut inner = Frame::new(&function.body);
                for (n, arg) in args.iter().enumerate() {
                    let passed = self.expr(arg, frame)?;
                    self.set(Var(n as u16), passed, &mut inner);
                }
                match self.block(&function.body.stmts, &mut inner)? {
                    Left::Return(Some(value)) => value,
                    _ => return Err(Stop::Invalid(format!("function '{}' ends without returning a value", function.name))),
                }
            }
            Kind::Where(three) => {
                // Both operands are evaluated, as in Warp.
                let condition = self.expr(&three[0], frame)?;
                let (a, b) = (self.expr(&three[1], frame)?, self.expr(&three[2], frame)?);
                let Value::Bool(Some(holds)) = condition else { return Err(Stop::Undecided) };
                if let Some(operands) = operands {
                    (operands[0], operands[1]) = (a.clone(), b.clone());
                }
                if holds { a } else { b }
            }
            Kind::Cast(a) => {
                let value = self.expr(a, frame)?;
                cast(value, e.ty.element().unwrap_or(Scalar::F32), a.ty.element().unwrap_or(Scalar::F32))?
            }
            Kind::Part(a, at) => match self.expr(a, frame)? {
                Value::Many(parts) => match a.ty {
                    Ty::Struct(n) => {
                        let fields = &self.program.structs[n as usize].fields;
                        let first: usize = fields[..*at as usize].iter().map(|(_, ty)| ty.parts()).sum();
                        match e.ty {
                            Ty::Scalar(_) => parts[first].clone(),
                            ty => Value::Many(parts[first..first + ty.parts()].to_vec()),
                        }
                    }
                    _ => parts[*at as usize].clone(),
                },
                value => value,
            },
            Kind::Make(args) => {
                let mut parts = vec![];
                for arg in args {
                    match self.expr(arg, frame)? {
                        Value::Many(inner) => parts.extend(inner),
                        value => parts.push(value),
                    }
                }
                // A single scalar fills a vector.
                if parts.len() == 1 {
                    parts = vec![parts[0].clone(); e.ty.parts()];
                }
                Value::Many(parts)
            }
        })
    }
}

fn unary(op: Unary, value: Value, ty: Ty) -> Value {
    match (op, value) {
        (Unary::Neg, Value::Float(ball)) => Value::Float(ball.negated()),
        (Unary::Neg, Value::Many(parts)) => Value::Many(parts.into_iter().map(|part| unary(op, part, ty)).collect()),
        (Unary::Not, Value::Bool(truth)) => Value::Bool(truth.map(|truth| !truth)),
        (op, value) => {
            let scalar = ty.element().unwrap_or(Scalar::I32);
            let value = value.int();
            Value::Int(wrapped(scalar, if op == Unary::Neg { value.wrapping_neg() } else { !value }))
        }
    }
}

fn cast(value: Value, to: Scalar, from: Scalar) -> Done<Value> {
    Ok(match value {
        Value::Float(ball) if to.is_float() => Value::Float(ball.to(to)),
        Value::Float(ball) => {
            let truncated = ball.step(f64::trunc).ok_or(Stop::Undecided)?.mid;
            let (low, high) = match (to.is_signed(), to.bits()) {
                (true, bits) => (-2f64.powi(bits as i32 - 1), 2f64.powi(bits as i32 - 1)),
                (false, bits) => (0.0, 2f64.powi(bits as i32)),
            };
            if !(low..high).contains(&truncated) {
                return Err(Stop::Invalid(format!("{truncated} does not fit {}", to.name())));
            }
            Value::Int(if to == Scalar::U64 { truncated as u64 as i64 } else { truncated as i64 })
        }
        Value::Int(value) if to.is_float() => {
            let value = if from == Scalar::U64 { value as u64 as f64 } else { value as f64 };
            Value::Float(Ball::rounded(value, 0.0, to))
        }
        Value::Int(value) if to == Scalar::Bool => Value::Bool(Some(value != 0)),
        Value::Int(value) => Value::Int(wrapped(to, value)),
        Value::Bool(truth) => {
            let truth = truth.ok_or(Stop::Undecided)?;
            if to.is_float() { Value::Float(Ball::exact(truth as u8 as f64)) } else { Value::Int(truth as i64) }
        }
        many => many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_sums_include_every_update() {
        // A block kernel, in which the order of sums is unspecified, from a category that has such
        // kernels.
        let category = crate::Category::Reduction;
        let program = (0..200)
            .map(|index| crate::generate::program(1, index, category))
            .find(|program| matches!(program.form, crate::program::Form::Block(_)))
            .expect("a reduction by blocks");
        let mut reached = Reached::default();
        let mut machine = Machine { program: &program, arrays: &mut [], ordered: false, reached: &mut reached };
        let var = Var(0);
        for (op, by, size) in [(Binary::Mul, 1e6, 3e6), (Binary::Mul, 0.0, 0.0), (Binary::Div, 2.0, 1.5)] {
            let mut frame = Frame { vars: vec![Value::Int(0)], sums: vec![(0.0, 0.0, 0.0)] };
            let number = |value: f64| Value::Float(Ball::exact(value));
            machine.set(var, number(3.0), &mut frame);
            machine.update(var, op, number(by), Ty::F32, &mut frame).unwrap();
            machine.update(var, Binary::Add, number(1.0), Ty::F32, &mut frame).unwrap();
            let ball = frame.vars[0].float();
            // One addition rounds by the magnitude of its operand, and by at most a few ulps for
            // the step before.
            let rounds = (size + 1.0) * unit(Scalar::F32);
            assert!(ball.err >= rounds && ball.err <= rounds * 3.0, "{op:?} {by}: {ball:?}, one rounding is {rounds}");
        }
    }
}
