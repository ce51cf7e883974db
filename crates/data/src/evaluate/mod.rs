//! Reference evaluator: runs a program directly, in f64 with error bounds and in exact integers.
//!
//! It interprets the tree that the source was printed from and shares no code with the kernel IR,
//! its readers or the front ends, so no single bug can make both agree on a wrong result. Instances
//! run one after the other, in order; the generator makes no program whose result depends on that.

mod arrays;
mod execution;
mod influence;
mod informative;
mod interval;
mod math;

pub use execution::{ExecutionCoverage, is_same};
pub use influence::{Influence, Parameter};
pub use informative::{TestCase, require_informative};
pub use interval::{Interval, half_ulp, round_to};

use crate::program::{BinaryOp, Body, ExprKind, Program, ProgramExpr, ProgramStmt, ScalarType, Ty, UnaryOp, VarId};

/// Reason why an evaluation has no result.
#[derive(Clone, PartialEq, Debug)]
pub enum EvalError {
    /// A comparison or step that depends on rounding: other inputs are needed.
    Undecided,
    /// The program has an error, which is a bug of the generator.
    Invalid(String),
}

/// A value during evaluation.
#[derive(Clone, PartialEq, Debug)]
pub enum EvalValue {
    /// A float.
    Float(Interval),
    /// An integer; a `u64` is stored as the `i64` with the same bits.
    Int(i64),
    /// A bool; `None` if rounding could change it.
    Bool(Option<bool>),
    /// All components of a vector, matrix or struct, in order.
    Composite(Vec<EvalValue>),
}

impl EvalValue {
    fn float(&self) -> Interval {
        if let EvalValue::Float(interval) = self { *interval } else { Interval::exact(0.0) }
    }

    fn int(&self) -> i64 {
        if let EvalValue::Int(value) = self { *value } else { 0 }
    }
}

/// Contents of an array: the components of all elements, one after the other.
#[derive(PartialEq, Debug)]
pub struct ArrayContents {
    /// Extents.
    pub shape: Vec<u32>,
    /// Types of the components of an element.
    pub scalars: Vec<ScalarType>,
    /// Components.
    pub cells: Vec<EvalValue>,
    /// Per component: total magnitude and number of atomic float additions; empty if there are
    /// none.
    added: Vec<(f64, u32)>,
}

impl ArrayContents {
    /// An array with these components.
    pub fn new(shape: Vec<u32>, scalars: Vec<ScalarType>, cells: Vec<EvalValue>) -> ArrayContents {
        ArrayContents { shape, scalars, cells, added: vec![] }
    }
}

impl Clone for ArrayContents {
    fn clone(&self) -> ArrayContents {
        let ArrayContents { shape, scalars, cells, added } = self;
        ArrayContents { shape: shape.clone(), scalars: scalars.clone(), cells: cells.clone(), added: added.clone() }
    }

    /// Reuses the allocations: programs are run many times over the same arrays.
    fn clone_from(&mut self, other: &ArrayContents) {
        self.shape.clone_from(&other.shape);
        self.scalars.clone_from(&other.scalars);
        self.cells.clone_from(&other.cells);
        self.added.clone_from(&other.added);
    }
}

/// Wraps an integer to its type.
pub fn wrap_int(scalar: ScalarType, value: i64) -> i64 {
    match scalar {
        ScalarType::I8 => value as i8 as i64,
        ScalarType::I16 => value as i16 as i64,
        ScalarType::I32 => value as i32 as i64,
        ScalarType::U8 => value as u8 as i64,
        ScalarType::U16 => value as u16 as i64,
        ScalarType::U32 => value as u32 as i64,
        _ => value,
    }
}

/// Loop iterations after which a program is considered non-terminating.
const MAX_ITERATIONS: usize = 100_000;

/// Exit from a block of statements.
#[derive(PartialEq)]
enum BlockExit {
    AtEnd,
    Break,
    Continue,
    Return(Option<EvalValue>),
}

type EvalResult<T> = Result<T, EvalError>;

/// Runs a program over the contents of its arrays, with its sizes and scalar parameters; `coverage`
/// records which parts were executed.
pub fn run<'p>(
    program: &'p Program,
    sizes: &[u32],
    values: &[EvalValue],
    arrays: &mut [ArrayContents],
    coverage: &mut ExecutionCoverage<'p>,
) -> Result<(), EvalError> {
    execute(program, u64::MAX, sizes, values, arrays, coverage)
}

/// Like [`run`], for the first `instances` of the launch only.
pub fn run_first_instances(
    program: &Program,
    instances: u64,
    sizes: &[u32],
    values: &[EvalValue],
    arrays: &mut [ArrayContents],
) -> Result<(), EvalError> {
    execute(program, instances, sizes, values, arrays, &mut ExecutionCoverage::default())
}

fn execute<'p>(
    program: &'p Program,
    instances: u64,
    sizes: &[u32],
    values: &[EvalValue],
    arrays: &mut [ArrayContents],
    coverage: &mut ExecutionCoverage<'p>,
) -> Result<(), EvalError> {
    let ordered = matches!(program.form, crate::program::CudaForm::Direct(_));
    let mut evaluator = Evaluator { program, arrays, ordered, coverage };
    let mut frame = Frame::new(&program.body);
    for (param, value) in program.values.iter().zip(values) {
        frame.vars[param.var.0 as usize] = value.clone();
    }
    for (param, size) in program.sizes.iter().zip(sizes) {
        frame.vars[param.var.0 as usize] = EvalValue::Int(*size as i64);
    }
    let extents: Vec<u64> = program.grid.iter().map(|(_, size)| size.eval(sizes) as u64).collect();
    for n in 0..extents.iter().product::<u64>().min(instances) {
        let mut rest: u64 = n;
        for ((var, _), extent) in program.grid.iter().zip(&extents).rev() {
            frame.vars[var.0 as usize] = EvalValue::Int((rest % extent) as i64);
            rest /= extent;
        }
        evaluator.block(&program.body.stmts, &mut frame)?;
    }
    for contents in evaluator.arrays.iter_mut() {
        contents.apply_sum_bounds();
        if !contents.is_bounded() {
            return Err(EvalError::Undecided);
        }
    }
    Ok(())
}

/// Variables of the kernel or a function.
struct Frame {
    vars: Vec<EvalValue>,
    /// Per variable summed in unspecified order: total magnitude, number of additions, and error
    /// inherited from the terms.
    sums: Vec<(f64, f64, f64)>,
}

impl Frame {
    fn new(body: &Body) -> Frame {
        Frame { vars: vec![EvalValue::Int(0); body.vars.len()], sums: vec![(0.0, 0.0, 0.0); body.vars.len()] }
    }
}

struct Evaluator<'p, 'a> {
    program: &'p Program,
    arrays: &'a mut [ArrayContents],
    /// True if sums are computed in the order of the source.
    ordered: bool,
    coverage: &'a mut ExecutionCoverage<'p>,
}

impl<'p> Evaluator<'p, '_> {
    fn block(&mut self, stmts: &'p [ProgramStmt], frame: &mut Frame) -> EvalResult<BlockExit> {
        let block = self.coverage.block(stmts);
        for (n, stmt) in stmts.iter().enumerate() {
            self.coverage.statement(block, n);
            match stmt {
                ProgramStmt::Let(var, e) | ProgramStmt::Assign(var, e) => {
                    let value = self.expr(e, frame)?;
                    self.set(*var, value, frame);
                }
                ProgramStmt::Update(var, op, e) => {
                    let value = self.expr(e, frame)?;
                    self.update(*var, *op, value, e.ty, frame)?;
                }
                ProgramStmt::SetComponent(var, at, e) => {
                    let value = self.expr(e, frame)?;
                    if let EvalValue::Composite(parts) = &mut frame.vars[var.0 as usize] {
                        match value {
                            EvalValue::Composite(_) => {
                                return Err(EvalError::Invalid("a component that is a vector".into()));
                            }
                            value => parts[*at as usize] = value,
                        }
                    }
                }
                ProgramStmt::Store(array, at, e) => {
                    let value = self.expr(e, frame)?;
                    let offset = self.element_offset(*array, at, frame)?;
                    self.store(*array, offset, value)?;
                }
                ProgramStmt::Atomic(update, array, at, e) => {
                    let value = self.expr(e, frame)?;
                    let offset = self.element_offset(*array, at, frame)?;
                    self.atomic(*update, *array, offset, value)?;
                }
                ProgramStmt::If(condition, then, otherwise) => {
                    let holds = self.condition(condition, frame)?;
                    let taken = if holds { then } else { otherwise };
                    match self.block(taken, frame)? {
                        BlockExit::AtEnd => {}
                        left => return Ok(left),
                    }
                }
                ProgramStmt::For(var, low, high, step, body) => {
                    let (low, high) = (self.expr(low, frame)?.int(), self.expr(high, frame)?.int());
                    let mut n = low;
                    while if *step > 0 { n < high } else { n > high } {
                        frame.vars[var.0 as usize] = EvalValue::Int(n);
                        match self.block(body, frame)? {
                            BlockExit::AtEnd | BlockExit::Continue => {}
                            BlockExit::Break => break,
                            left => return Ok(left),
                        }
                        n += step;
                    }
                }
                ProgramStmt::While(condition, body) => {
                    let mut iterations = 0;
                    while self.condition(condition, frame)? {
                        match self.block(body, frame)? {
                            BlockExit::AtEnd | BlockExit::Continue => {}
                            BlockExit::Break => break,
                            left => return Ok(left),
                        }
                        iterations += 1;
                        if iterations > MAX_ITERATIONS {
                            return Err(EvalError::Invalid("a loop does not terminate".into()));
                        }
                    }
                }
                ProgramStmt::Break => return Ok(BlockExit::Break),
                ProgramStmt::Continue => return Ok(BlockExit::Continue),
                ProgramStmt::Return(None) => return Ok(BlockExit::Return(None)),
                ProgramStmt::Return(Some(e)) => return Ok(BlockExit::Return(Some(self.expr(e, frame)?))),
                ProgramStmt::Seed(var, seed, offset) => {
                    let (seed, offset) = (self.expr(seed, frame)?.int(), self.expr(offset, frame)?.int());
                    let state = math::pcg((seed as u32).wrapping_add(math::pcg(offset as u32)));
                    frame.vars[var.0 as usize] = EvalValue::Int(state as i64);
                }
                ProgramStmt::Draw(var, state, range) => {
                    let next = math::pcg(frame.vars[state.0 as usize].int() as u32);
                    frame.vars[state.0 as usize] = EvalValue::Int(next as i64);
                    let drawn = match range {
                        None => EvalValue::Float(Interval::exact((next >> 8) as f64 / 16777216.0)),
                        Some((low, high)) => EvalValue::Int((next % (high - low) as u32) as i64 + low),
                    };
                    self.set(*var, drawn, frame);
                }
            }
        }
        Ok(BlockExit::AtEnd)
    }

    fn set(&mut self, VarId(n): VarId, value: EvalValue, frame: &mut Frame) {
        if let (false, EvalValue::Float(interval)) = (self.ordered, &value) {
            frame.sums[n as usize] = (interval.mid.abs(), 0.0, interval.err);
        }
        frame.vars[n as usize] = value;
    }

    fn update(&mut self, var: VarId, op: BinaryOp, value: EvalValue, ty: Ty, frame: &mut Frame) -> EvalResult<()> {
        let n = var.0 as usize;
        if let (false, BinaryOp::Add | BinaryOp::Sub, EvalValue::Float(part), EvalValue::Float(sum)) =
            (self.ordered, op, &value, &frame.vars[n])
        {
            let scalar = ty.element().unwrap_or(ScalarType::F32);
            let (size, count, err) = &mut frame.sums[n];
            *size += part.mid.abs();
            *count += 1.0;
            *err += part.err;
            let mid = if op == BinaryOp::Add { sum.mid + part.mid } else { sum.mid - part.mid };
            let factor = if scalar == ScalarType::F64 { 3.0 } else { 1.01 };
            frame.vars[n] = EvalValue::Float(Interval { mid, err: *err + *size * *count * half_ulp(scalar) * factor });
            return Ok(());
        }
        let before = std::mem::replace(&mut frame.vars[n], EvalValue::Int(0));
        let after = math::binary(op, before, value, ty, ty)?;
        self.set(var, after, frame);
        Ok(())
    }

    fn condition(&mut self, e: &'p ProgramExpr, frame: &mut Frame) -> EvalResult<bool> {
        match self.expr(e, frame)? {
            EvalValue::Bool(Some(truth)) => Ok(truth),
            _ => Err(EvalError::Undecided),
        }
    }

    fn expr(&mut self, e: &'p ProgramExpr, frame: &mut Frame) -> EvalResult<EvalValue> {
        if !self.coverage.observes(e) {
            return self.computed(e, frame, None);
        }
        let mut operands = [const { EvalValue::Int(0) }; 3];
        let value = self.computed(e, frame, Some(&mut operands))?;
        self.coverage.value(e, &value, &operands);
        Ok(value)
    }

    /// Computes an expression; operands that the operation could return unchanged are stored in
    /// `operands`.
    fn computed(
        &mut self,
        e: &'p ProgramExpr,
        frame: &mut Frame,
        operands: Option<&mut [EvalValue; 3]>,
    ) -> EvalResult<EvalValue> {
        Ok(match &e.kind {
            ExprKind::Float(value) => {
                EvalValue::Float(Interval::exact(round_to(e.ty.element().unwrap_or(ScalarType::F32), *value)))
            }
            ExprKind::Int(value) if e.ty == Ty::BOOL => EvalValue::Bool(Some(*value != 0)),
            ExprKind::Int(value) => EvalValue::Int(*value),
            ExprKind::Var(VarId(n)) => frame.vars[*n as usize].clone(),
            ExprKind::Load(array, at) => {
                let offset = self.element_offset(*array, at, frame)?;
                let contents = &self.arrays[array.0 as usize];
                match e.ty {
                    Ty::Scalar(_) => contents.cells[offset].clone(),
                    _ => EvalValue::Composite(contents.cells[offset..offset + contents.scalars.len()].to_vec()),
                }
            }
            ExprKind::Unary(op, a) => {
                let value = self.expr(a, frame)?;
                unary(*op, value, e.ty)
            }
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), both) => {
                let short_circuit = *op == BinaryOp::Or;
                let first = self.expr(&both[0], frame)?;
                if first == EvalValue::Bool(Some(short_circuit)) {
                    return Ok(first);
                }
                match (first, self.expr(&both[1], frame)?) {
                    (_, EvalValue::Bool(Some(second))) if second == short_circuit => {
                        EvalValue::Bool(Some(short_circuit))
                    }
                    (EvalValue::Bool(None), _) => EvalValue::Bool(None),
                    (_, second) => second,
                }
            }
            ExprKind::Binary(op, both) => {
                let (a, b) = (self.expr(&both[0], frame)?, self.expr(&both[1], frame)?);
                if let Some(operands) = operands {
                    (operands[0], operands[1]) = (a.clone(), b.clone());
                }
                math::binary(*op, a, b, both[0].ty, both[1].ty)?
            }
            ExprKind::Call(builtin, args) => {
                let mut values = [EvalValue::Int(0), EvalValue::Int(0), EvalValue::Int(0)];
                for (value, arg) in values.iter_mut().zip(args) {
                    *value = self.expr(arg, frame)?;
                }
                if let Some(operands) = operands {
                    operands.clone_from(&values);
                }
                math::call(*builtin, &values[..args.len()], args[0].ty)?
            }
            ExprKind::Function(func, args) => {
                let function = &self.program.functions[func.0 as usize];
                let mut inner = Frame::new(&function.body);
                for (n, arg) in args.iter().enumerate() {
                    let passed = self.expr(arg, frame)?;
                    self.set(VarId(n as u16), passed, &mut inner);
                }
                match self.block(&function.body.stmts, &mut inner)? {
                    BlockExit::Return(Some(value)) => value,
                    _ => {
                        return Err(EvalError::Invalid(format!(
                            "function '{}' ends without returning a value",
                            function.name
                        )));
                    }
                }
            }
            ExprKind::Where(three) => {
                // Both operands are evaluated, as in Warp.
                let condition = self.expr(&three[0], frame)?;
                let (a, b) = (self.expr(&three[1], frame)?, self.expr(&three[2], frame)?);
                let EvalValue::Bool(Some(holds)) = condition else { return Err(EvalError::Undecided) };
                if let Some(operands) = operands {
                    (operands[0], operands[1]) = (a.clone(), b.clone());
                }
                if holds { a } else { b }
            }
            ExprKind::Cast(a) => {
                let value = self.expr(a, frame)?;
                cast(value, e.ty.element().unwrap_or(ScalarType::F32), a.ty.element().unwrap_or(ScalarType::F32))?
            }
            ExprKind::Component(a, at) => match self.expr(a, frame)? {
                EvalValue::Composite(parts) => match a.ty {
                    Ty::Struct(n) => {
                        let fields = &self.program.structs[n as usize].fields;
                        let first: usize = fields[..*at as usize].iter().map(|(_, ty)| ty.components()).sum();
                        match e.ty {
                            Ty::Scalar(_) => parts[first].clone(),
                            ty => EvalValue::Composite(parts[first..first + ty.components()].to_vec()),
                        }
                    }
                    _ => parts[*at as usize].clone(),
                },
                value => value,
            },
            ExprKind::Construct(args) => {
                let mut parts = vec![];
                for arg in args {
                    match self.expr(arg, frame)? {
                        EvalValue::Composite(inner) => parts.extend(inner),
                        value => parts.push(value),
                    }
                }
                // A single scalar fills a vector.
                if parts.len() == 1 {
                    parts = vec![parts[0].clone(); e.ty.components()];
                }
                EvalValue::Composite(parts)
            }
        })
    }
}

fn unary(op: UnaryOp, value: EvalValue, ty: Ty) -> EvalValue {
    match (op, value) {
        (UnaryOp::Neg, EvalValue::Float(interval)) => EvalValue::Float(interval.negated()),
        (UnaryOp::Neg, EvalValue::Composite(parts)) => {
            EvalValue::Composite(parts.into_iter().map(|part| unary(op, part, ty)).collect())
        }
        (UnaryOp::Not, EvalValue::Bool(truth)) => EvalValue::Bool(truth.map(|truth| !truth)),
        (op, value) => {
            let scalar = ty.element().unwrap_or(ScalarType::I32);
            let value = value.int();
            EvalValue::Int(wrap_int(scalar, if op == UnaryOp::Neg { value.wrapping_neg() } else { !value }))
        }
    }
}

fn cast(value: EvalValue, to: ScalarType, from: ScalarType) -> EvalResult<EvalValue> {
    Ok(match value {
        EvalValue::Float(interval) if to.is_float() => EvalValue::Float(interval.to(to)),
        EvalValue::Float(interval) => {
            let truncated = interval.step(f64::trunc).ok_or(EvalError::Undecided)?.mid;
            let (low, high) = match (to.is_signed(), to.bits()) {
                (true, bits) => (-2f64.powi(bits as i32 - 1), 2f64.powi(bits as i32 - 1)),
                (false, bits) => (0.0, 2f64.powi(bits as i32)),
            };
            if !(low..high).contains(&truncated) {
                return Err(EvalError::Invalid(format!("{truncated} does not fit {}", to.name())));
            }
            EvalValue::Int(if to == ScalarType::U64 { truncated as u64 as i64 } else { truncated as i64 })
        }
        EvalValue::Int(value) if to.is_float() => {
            let value = if from == ScalarType::U64 { value as u64 as f64 } else { value as f64 };
            EvalValue::Float(Interval::rounded(value, 0.0, to))
        }
        EvalValue::Int(value) if to == ScalarType::Bool => EvalValue::Bool(Some(value != 0)),
        EvalValue::Int(value) => EvalValue::Int(wrap_int(to, value)),
        EvalValue::Bool(truth) => {
            let truth = truth.ok_or(EvalError::Undecided)?;
            if to.is_float() {
                EvalValue::Float(Interval::exact(truth as u8 as f64))
            } else {
                EvalValue::Int(truth as i64)
            }
        }
        composite => composite,
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
            .find(|program| matches!(program.form, crate::program::CudaForm::Block(_)))
            .expect("a reduction by blocks");
        let mut coverage = ExecutionCoverage::default();
        let mut evaluator = Evaluator { program: &program, arrays: &mut [], ordered: false, coverage: &mut coverage };
        let var = VarId(0);
        for (op, by, size) in [(BinaryOp::Mul, 1e6, 3e6), (BinaryOp::Mul, 0.0, 0.0), (BinaryOp::Div, 2.0, 1.5)] {
            let mut frame = Frame { vars: vec![EvalValue::Int(0)], sums: vec![(0.0, 0.0, 0.0)] };
            let number = |value: f64| EvalValue::Float(Interval::exact(value));
            evaluator.set(var, number(3.0), &mut frame);
            evaluator.update(var, op, number(by), Ty::F32, &mut frame).unwrap();
            evaluator.update(var, BinaryOp::Add, number(1.0), Ty::F32, &mut frame).unwrap();
            let interval = frame.vars[0].float();
            // One addition rounds by the magnitude of its operand, and by at most a few ulps for
            // the step before.
            let rounds = (size + 1.0) * half_ulp(ScalarType::F32);
            assert!(
                interval.err >= rounds && interval.err <= rounds * 3.0,
                "{op:?} {by}: {interval:?}, one rounding is {rounds}"
            );
        }
    }
}
