//! Evaluation of expressions on samples of the inputs. Ranges bound the values, but do not show
//! their distribution or correlation; samples do, so that generated conditions can be true and
//! false.

use super::builder::ProgramBuilder;
use super::term::{Term, bin};
use crate::Random;
use crate::program::{ArrayFill, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, UnaryOp, VarId};

/// Number of samples.
const SAMPLES: usize = 32;

/// Samples per simulated launch: scalar parameters are the same in all of them.
const LAUNCH: usize = 8;

/// Minimum number of samples for each outcome of a condition.
const MIN_SAMPLES: usize = 2;

/// One sample: values drawn and computed so far.
struct Sample<'m> {
    builder: &'m ProgramBuilder,
    number: usize,
    /// Variables with known values.
    known: Vec<(VarId, f64)>,
    /// Array elements drawn so far.
    drawn: Vec<(&'m ProgramExpr, f64)>,
}

impl<'m> Sample<'m> {
    fn new(builder: &'m ProgramBuilder, number: usize) -> Sample<'m> {
        Sample { builder, number, known: vec![], drawn: vec![] }
    }

    /// A number between 0 and 1 for the n-th drawn value.
    fn unit(&self, n: usize, number: usize) -> f64 {
        // The first drawn value is stratified over the samples.
        let (jitter, at) = (Random::from_keys(&[n as u64, number as u64]).unit_f64(), number as f64);
        if n == 0 { (at + jitter) / SAMPLES as f64 } else { jitter }
    }

    fn set(&mut self, var: VarId, value: f64) {
        match self.known.iter_mut().find(|(known, _)| *known == var) {
            Some((_, old)) => *old = value,
            None => self.known.push((var, value)),
        }
    }

    fn var(&mut self, var: VarId) -> Option<f64> {
        if let Some((_, value)) = self.known.iter().find(|(known, _)| *known == var) {
            return Some(*value);
        }
        let builder = self.builder;
        let between = |(low, high): (f64, f64), share: f64| low + (high - low) * share;
        let value = if builder.in_function() && (var.0 as usize) < builder.body.params {
            builder.arguments.get(var.0 as usize)?.as_ref()?[self.number]
        } else if let (false, Some(param)) =
            (builder.in_function(), builder.program.values.iter().find(|param| param.var == var))
        {
            let launch = self.number / LAUNCH;
            // Stratified over the launches too, in an order that depends on the parameter.
            let stratum = (launch + var.0 as usize) % (SAMPLES / LAUNCH);
            let share = (stratum as f64 + self.unit(1 + var.0 as usize, launch)) / (SAMPLES / LAUNCH) as f64;
            let value = between(param.range, share);
            if builder.body.var(var).ty.element()?.is_float() { value } else { value.round() }
        } else if builder.body.var(var).mutable {
            return None;
        } else if let Some(e) = builder.initial_value(var) {
            self.value(e)?
        } else if builder.body.var(var).ty.element()?.is_int() {
            // Loop counters, and indices in the launch.
            let iterations =
                builder.counters.iter().find(|(counter, _)| *counter == var).map_or(8, |(_, iterations)| *iterations);
            Random::from_keys(&[var.0 as u64, self.number as u64]).below(iterations) as f64
        } else if builder.is_random(var) {
            Random::from_keys(&[var.0 as u64, self.number as u64]).unit_f64()
        } else {
            return None;
        };
        self.known.push((var, value));
        Some(value)
    }

    fn element(&mut self, e: &'m ProgramExpr, fill: &ArrayFill) -> Option<f64> {
        if let Some((_, value)) = self.drawn.iter().find(|(other, _)| *other == e) {
            return Some(*value);
        }
        let share = self.unit(self.drawn.len(), self.number);
        let value = match fill {
            ArrayFill::Zero => 0.0,
            ArrayFill::Constant(value) => *value,
            ArrayFill::Uniform(low, high) if e.ty.element()?.is_float() => low + (high - low) * share,
            ArrayFill::Uniform(low, high) => (low + (high - low) * share).round(),
            ArrayFill::Below(_) | ArrayFill::Permutation(_) | ArrayFill::Offsets(_) => (share * 32.0).floor(),
            ArrayFill::Fields(_) => return None,
        };
        self.drawn.push((e, value));
        Some(value)
    }

    /// Value of a scalar expression; `None` if unknown.
    fn value(&mut self, e: &'m ProgramExpr) -> Option<f64> {
        let value = match &e.kind {
            ExprKind::Float(value) => *value,
            ExprKind::Int(value) => *value as f64,
            ExprKind::Var(var) => self.var(*var)?,
            ExprKind::Load(array, _) => self.element(e, &self.builder.program.array(*array).fill)?,
            ExprKind::Component(base, at) => match &base.kind {
                ExprKind::Load(array, _) => match &self.builder.program.array(*array).fill {
                    ArrayFill::Fields(fields) => self.element(e, fields.get(*at as usize)?)?,
                    fill => self.element(e, fill)?,
                },
                _ => return None,
            },
            ExprKind::Unary(UnaryOp::Neg, a) => -self.value(a)?,
            ExprKind::Unary(UnaryOp::Not, a) => 1.0 - self.value(a)?,
            ExprKind::Unary(UnaryOp::Invert, _) | ExprKind::Construct(_) => return None,
            ExprKind::Function(func, args) => {
                let mut inner = Sample::new(self.builder, self.number);
                for (n, arg) in args.iter().enumerate() {
                    inner.known.push((VarId(n as u16), self.value(arg)?));
                }
                inner.execute(&self.builder.program.functions[func.0 as usize].body.stmts)??
            }
            ExprKind::Binary(op, both) => {
                let (a, b) = (self.value(&both[0])?, self.value(&both[1])?);
                binary(*op, a, b)?
            }
            ExprKind::Where(three) => {
                let holds = self.value(&three[0])? != 0.0;
                self.value(&three[if holds { 1 } else { 2 }])?
            }
            ExprKind::Cast(a) => {
                let value = self.value(a)?;
                if e.ty.element()?.is_float() { value } else { value.trunc() }
            }
            ExprKind::Call(builtin, args) => {
                let mut values = [0.0; 3];
                for (value, arg) in values.iter_mut().zip(args) {
                    *value = self.value(arg)?;
                }
                call(*builtin, values)?
            }
        };
        value.is_finite().then_some(value)
    }

    /// Executes statements without loops and stores; returns their return value, if any. `None` if
    /// unknown.
    fn execute(&mut self, stmts: &'m [ProgramStmt]) -> Option<Option<f64>> {
        for stmt in stmts {
            let (var, value) = match stmt {
                ProgramStmt::Let(var, e) | ProgramStmt::Assign(var, e) => (*var, self.value(e)?),
                ProgramStmt::Update(var, op, e) => (*var, binary(*op, self.var(*var)?, self.value(e)?)?),
                ProgramStmt::Return(Some(e)) => return Some(Some(self.value(e)?)),
                ProgramStmt::If(condition, then, otherwise) => {
                    let holds = self.value(condition)? != 0.0;
                    match self.execute(if holds { then } else { otherwise })? {
                        None => continue,
                        returned => return Some(returned),
                    }
                }
                _ => return None,
            };
            self.set(var, value);
        }
        Some(None)
    }
}

fn binary(op: BinaryOp, a: f64, b: f64) -> Option<f64> {
    use BinaryOp::*;
    let truth = |holds: bool| holds as u8 as f64;
    Some(match op {
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        Div => a / b,
        Quotient => (a / b).trunc(),
        Rem => a % b,
        Lt => truth(a < b),
        Le => truth(a <= b),
        Gt => truth(a > b),
        Ge => truth(a >= b),
        Eq => truth(a == b),
        Ne => truth(a != b),
        And => a * b,
        Or => a.max(b),
        BitAnd | BitOr | BitXor | Shl | Shr => return None,
    })
}

fn call(builtin: BuiltinFn, [a, b, c]: [f64; 3]) -> Option<f64> {
    use BuiltinFn::*;
    Some(match builtin {
        Abs => a.abs(),
        Sign => 1f64.copysign(a),
        Min => a.min(b),
        Max => a.max(b),
        Clamp => a.max(b).min(c),
        Floor => a.floor(),
        Ceil => a.ceil(),
        Round | Rint => a.round(),
        Trunc => a.trunc(),
        Frac => a.fract(),
        Sqrt => a.sqrt(),
        Cbrt => a.cbrt(),
        Pow => a.powf(b),
        Exp => a.exp(),
        Log => a.ln(),
        Log2 => a.log2(),
        Log10 => a.log10(),
        Sin => a.sin(),
        Cos => a.cos(),
        Tan => a.tan(),
        Asin => a.asin(),
        Acos => a.acos(),
        Atan => a.atan(),
        Atan2 => a.atan2(b),
        Sinh => a.sinh(),
        Cosh => a.cosh(),
        // Close enough to distinguish large from small values.
        Tanh | Erf => a.tanh(),
        Erfc => 1.0 - a.tanh(),
        Copysign => a.copysign(b),
        Lerp => a * (1.0 - c) + b * c,
        Degrees => a.to_degrees(),
        Radians => a.to_radians(),
        _ => return None,
    })
}

/// A condition with its known outcome at a point of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct PathCondition {
    pub condition: ProgramExpr,
    pub holds: bool,
}

/// One value per sample.
pub type Values = [f64; SAMPLES];

impl ProgramBuilder {
    /// Values of an expression on all samples, if known.
    pub fn samples(&self, e: &ProgramExpr) -> Option<Values> {
        let mut values = [0.0; SAMPLES];
        for (number, value) in values.iter_mut().enumerate() {
            *value = Sample::new(self, number).value(e)?;
        }
        Some(values)
    }

    /// True if a sample reaches the current statement, as far as known.
    fn reaches_here<'m>(&'m self, sample: &mut Sample<'m>) -> bool {
        self.path_conditions.iter().all(|PathCondition { condition, holds }| {
            sample.value(condition).is_none_or(|value| (value != 0.0) == *holds)
        })
    }

    /// Values of an expression on the samples that reach the current statement.
    fn samples_here(&self, e: &ProgramExpr) -> Option<Vec<f64>> {
        let mut values = Vec::with_capacity(SAMPLES);
        for number in 0..SAMPLES {
            let mut sample = Sample::new(self, number);
            if self.reaches_here(&mut sample) {
                values.push(sample.value(e)?);
            }
        }
        Some(values)
    }

    /// True if a condition and each of its operands matter: among the samples that reach the
    /// current statement, some take each branch, and neither operand decides alone.
    pub fn has_both_outcomes(&self, condition: &ProgramExpr) -> bool {
        let parts: Vec<&ProgramExpr> = match &condition.kind {
            ExprKind::Binary(BinaryOp::And | BinaryOp::Or, both) => both.iter().collect(),
            _ => vec![condition],
        };
        let is_or = matches!(condition.kind, ExprKind::Binary(BinaryOp::Or, _));
        // Per launch: conditions on scalar parameters alone must differ between launches.
        let mut seen = [[0usize; 2]; SAMPLES / LAUNCH];
        // Per operand: its outcomes where the other operand leaves the result open.
        let mut open = [[0usize; 2]; 2];
        for number in 0..SAMPLES {
            let mut sample = Sample::new(self, number);
            if !self.reaches_here(&mut sample) {
                continue;
            }
            let mut outcomes = [false; 2];
            for (outcome, part) in outcomes.iter_mut().zip(&parts) {
                let Some(value) = sample.value(part) else { return false };
                *outcome = value != 0.0;
            }
            if parts.len() == 1 {
                seen[number / LAUNCH][outcomes[0] as usize] += 1;
                continue;
            }
            let result = if is_or { outcomes[0] || outcomes[1] } else { outcomes[0] && outcomes[1] };
            seen[number / LAUNCH][result as usize] += 1;
            for n in 0..2 {
                if outcomes[1 - n] != is_or {
                    open[n][outcomes[n] as usize] += 1;
                }
            }
        }
        let launches = |outcome: usize| seen.iter().filter(|counts| counts[outcome] > 0).count();
        let samples = |outcome: usize| seen.iter().map(|counts| counts[outcome]).sum::<usize>();
        (0..2).all(|outcome| launches(outcome) >= MIN_SAMPLES && samples(outcome) >= MIN_SAMPLES)
            && (parts.len() == 1 || open.iter().flatten().all(|count| *count >= MIN_SAMPLES))
    }

    /// A short decimal number with samples of the term on both sides.
    pub fn dividing_value(&mut self, a: &Term) -> Option<f64> {
        let values = self.samples_here(&a.e)?;
        let middle = self.is_uniform(a);
        self.between(values, middle)
    }

    /// Range that contains most values of a term, with some outside; the term's range if samples
    /// are unknown.
    pub fn typical_range(&self, a: &Term) -> (f64, f64) {
        let range = (a.low, a.high.max(a.low + 0.5));
        let Some(mut sorted) = self.samples(&a.e) else { return range };
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (sorted[SAMPLES / 8], sorted[SAMPLES - 1 - SAMPLES / 8]);
        if high - low > 1e-3 * high.abs().max(1.0) { (low, high) } else { range }
    }

    /// True if samples of a term lie both within a magnitude and beyond it.
    pub fn exceeds(&self, a: &Term, size: f64) -> bool {
        self.samples_here(&a.e).is_some_and(|values| {
            let beyond = values.iter().filter(|value| value.abs() > size).count();
            beyond >= MIN_SAMPLES && values.len() - beyond >= MIN_SAMPLES
        })
    }

    /// True if all samples of a term at the current statement have the same sign.
    pub fn has_constant_sign(&self, a: &Term) -> bool {
        self.samples_here(&a.e).is_some_and(|values| {
            let negative = values.iter().filter(|value| **value < 0.0).count();
            negative == 0 || negative == values.len()
        })
    }

    /// A condition on a variable assigned in the current loop body, with which some samples exit
    /// the loop and some continue; `counter` counts its iterations.
    pub fn exit_condition(&mut self, var: VarId, counter: VarId, iterations: usize) -> Option<ProgramExpr> {
        let first = self.initial_value(var)?;
        let body = self.current_block();
        let mut runs = vec![];
        for number in 0..SAMPLES {
            let mut sample = Sample::new(self, number);
            let start = sample.value(first)?;
            sample.set(var, start);
            let mut values = vec![];
            for iteration in 0..iterations {
                sample.set(counter, iteration as f64);
                sample.execute(body)?;
                values.push(sample.var(var)?);
            }
            runs.push(values);
        }
        let at = self.between(runs.concat(), false)?;
        let flipped = self.random.chance(50);
        let ops = if flipped { [BinaryOp::Gt, BinaryOp::Lt] } else { [BinaryOp::Lt, BinaryOp::Gt] };
        let op = ops.into_iter().find(|op| {
            let exits = |value: &f64| if *op == BinaryOp::Lt { *value < at } else { *value > at };
            let exited = runs.iter().filter(|run| run[..iterations - 1].iter().any(exits)).count();
            let continued = runs.iter().filter(|run| !exits(&run[0])).count();
            exited >= MIN_SAMPLES && continued >= MIN_SAMPLES
        })?;
        let ty = self.body.var(var).ty;
        Some(bin(op, self.read(var), ProgramExpr::float(ty.element()?, at)))
    }

    /// A short decimal number between values, or near their median, with enough of them on both
    /// sides.
    fn between(&mut self, mut sorted: Vec<f64>, middle: bool) -> Option<f64> {
        sorted.sort_unstable_by(f64::total_cmp);
        let count = sorted.len();
        if count < 2 * MIN_SAMPLES {
            return None;
        }
        let margin = if middle { count / 2 - 1 } else { count / 4 };
        let (low, high) = (sorted[margin], sorted[count - 1 - margin]);
        let at = low + (high - low) * self.random.unit_f64();
        let width = sorted[count - 1 - count / 16] - sorted[count / 16];
        // Comparisons of nearly equal values depend on rounding.
        if width <= 1e-3 * at.abs().max(0.1) {
            return None;
        }
        let step = 2f64.powi((width / 8.0).log2().floor() as i32);
        [step, step / 4.0].into_iter().find_map(|step| {
            // Avoids -0.
            let at = (at / step).round() * step + 0.0;
            let (below, above) =
                (sorted.iter().filter(|v| **v < at).count(), sorted.iter().filter(|v| **v > at).count());
            (below.min(above) >= (count / 8).max(1)).then_some(at)
        })
    }

    /// True if a term is uniform over a launch: computed from scalar parameters only.
    pub fn is_uniform(&self, a: &Term) -> bool {
        let mut uniform = true;
        a.e.walk(&mut |e| {
            uniform &= match &e.kind {
                ExprKind::Var(var) => self.program.values.iter().any(|param| param.var == *var),
                ExprKind::Load(..) => false,
                _ => true,
            }
        });
        uniform
    }

    /// A comparison of a term with a number that has samples on both sides, if one is found.
    pub fn threshold(&mut self, a: &Term, op: BinaryOp) -> Option<ProgramExpr> {
        let at = self.dividing_value(a)?;
        Some(bin(op, a.e.clone(), ProgramExpr::float(a.scalar(), at)))
    }

    /// A comparison of a term with a number, near the middle of its range if samples are unknown.
    pub fn any_threshold(&mut self, a: &Term, op: BinaryOp) -> ProgramExpr {
        self.threshold(a, op).unwrap_or_else(|| {
            let share = 0.25 + 0.5 * self.random.unit_f64();
            let at = a.low + (a.high - a.low) * share;
            let step = 2f64.powi(((a.high - a.low).max(1e-3) / 16.0).log2().floor() as i32);
            // Avoids -0.
            let at = (at / step).round() * step + 0.0;
            bin(op, a.e.clone(), ProgramExpr::float(a.scalar(), at))
        })
    }
}
