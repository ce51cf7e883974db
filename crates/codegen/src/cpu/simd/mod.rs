//! Vectorization: several instances of a kernel at once, in 128-bit vectors.
//!
//! `uniformity.rs` decides which kernels are vectorized: those whose instances all take the same
//! path. Each value is then either uniform (computed once), linear in the instance number (such as
//! an address), or held in vectors. Op-table bodies are emitted over vectors unchanged and nothing
//! is reordered, so results are bit-identical to scalar code.

mod emit;
mod memory;
mod primitive;
mod uniformity;
mod value;

use bornite_ir::{Code, Components, Emit, EmitBits, Expr, ExprId, FunctionId, Kernel, Op, OpKind, Scalar, Stmt};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder};
use cranelift_frontend::Variable;

use super::lower::{Lowering, TypedValue, ty};
use super::range_analysis::RangeAnalysis;
use uniformity::{Uniformity, UniformityInfo};
pub(super) use value::ConstantPool;
use value::{LaneValue, lane_bytes, vector};

/// Vectorization of a kernel.
pub(super) struct Vectorization {
    /// Instances per iteration.
    pub count: usize,
    uniformity: UniformityInfo,
}

/// Analyzes a kernel; returns `None` if it cannot be vectorized.
pub(super) fn vectorize(kernel: &Kernel, ranges: &RangeAnalysis) -> Option<Vectorization> {
    let count = lane_count(kernel);
    Some(Vectorization { count, uniformity: uniformity::uniformity(kernel, ranges, count as i64)? })
}

/// Returns the number of instances per iteration. Loops carry a dependency through their
/// accumulators, so several accumulators are kept in flight. The body of a math function keeps the
/// CPU busy by itself, and its constants would not fit into registers twice.
fn lane_count(kernel: &Kernel) -> usize {
    let code = &kernel.code;
    let loops = code.any(&|stmt| matches!(stmt, Stmt::For { .. }));
    let long = |expr: &Expr| matches!(expr, Expr::Op(op, _) if op.row().kind == OpKind::Body && op.row().ulp.f32 > 0.0);
    let wide = code.types.iter().any(|ty| ty.components(&kernel.structs).iter().any(|scalar| scalar.bytes() == 8));
    match (loops, code.exprs.iter().any(long), wide) {
        (true, false, false) => 16,
        (true, false, true) | (false, false, _) => 8,
        _ => 4,
    }
}

/// The lane being computed where lanes diverge.
#[derive(Clone)]
struct CurrentLane {
    /// Its lane number.
    number: ir::Value,
    /// Lanes already extracted, by vector.
    values: Vec<(ir::Value, TypedValue)>,
}

/// Variable of all lanes.
enum Local {
    Uniform(Variable),
    Vectors(Vec<Variable>),
}

/// State of the kernel or function being lowered.
struct Frame<'s, 'k> {
    code: &'k Code,
    uniformity: &'s UniformityInfo,
    arguments: Vec<Vec<LaneValue>>,
    locals: Vec<Vec<Local>>,
    values: Vec<Vec<LaneValue>>,
}

struct SimdLowering<'s, 'k, 'f> {
    l: &'s mut Lowering<'k, 'f>,
    count: usize,
    current_lane: Option<CurrentLane>,
    frame: Frame<'s, 'k>,
    /// Block that runs these instances without vectors; may only be entered before anything is
    /// stored.
    scalar_fallback: Block,
    /// Constants loaded before the loop over instances, at `before`.
    hoisted: Vec<(u128, ir::Value)>,
    before: ir::Inst,
    /// False for an operand that its instruction can load from memory.
    hoist_constants: bool,
}

/// Lowers `count` instances, starting with the current one, into the current block. The loop over
/// instances begins at `before`.
pub(super) fn lower(l: &mut Lowering<'_, '_>, vectorization: &Vectorization, scalar_fallback: Block, before: ir::Inst) {
    let code = &l.kernel.code;
    let arguments = l
        .frame
        .arguments
        .iter()
        .map(|components| components.iter().map(|&component| LaneValue::Uniform(component)).collect())
        .collect();
    let frame =
        Frame { code, uniformity: &vectorization.uniformity, arguments: vec![], locals: vec![], values: vec![] };
    let mut lanes = SimdLowering {
        l,
        count: vectorization.count,
        current_lane: None,
        frame,
        scalar_fallback,
        hoisted: vec![],
        before,
        hoist_constants: true,
    };
    lanes.enter_frame(code, &vectorization.uniformity, arguments);
    lanes.block(&code.body);
}

impl<'s, 'k> SimdLowering<'s, 'k, '_> {
    /// Enters a new frame and initializes its variables; returns the previous frame.
    fn enter_frame(
        &mut self,
        code: &'k Code,
        uniformity: &'s UniformityInfo,
        arguments: Vec<Vec<LaneValue>>,
    ) -> Frame<'s, 'k> {
        let locals = (code.locals.iter().zip(&uniformity.varying))
            .map(|(local, &varies)| {
                let components = local.init.iter().map(|&init| {
                    let scalar = init.scalar();
                    let init = self.constant_lanes(init);
                    let variable = match varies {
                        false => Local::Uniform(self.l.b.declare_var(ty(scalar))),
                        true => {
                            let count = self.vector_count(lane_bytes(scalar));
                            Local::Vectors((0..count).map(|_| self.l.b.declare_var(vector(scalar))).collect())
                        }
                    };
                    self.assign(&variable, &init);
                    variable
                });
                components.collect()
            })
            .collect();
        let values = vec![vec![]; code.exprs.len()];
        std::mem::replace(&mut self.frame, Frame { code, uniformity, arguments, locals, values })
    }

    fn assign(&mut self, local: &Local, value: &LaneValue) {
        match local {
            // The analysis guarantees that the value is uniform.
            Local::Uniform(variable) => {
                let value = self.lane(value, 0).value;
                self.l.b.def_var(*variable, value);
            }
            Local::Vectors(variables) => {
                let vectors = match value.scalar() {
                    Scalar::Bool => self.masks(value, 4),
                    _ => self.vectors(value),
                };
                for (&variable, vector) in variables.iter().zip(vectors) {
                    self.l.b.def_var(variable, vector);
                }
            }
        }
    }

    fn block(&mut self, block: &'k [Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    let components = self.evaluate(*id);
                    self.frame.values[id.0 as usize] = components;
                }
                Stmt::Assign(local, value) => {
                    let components = self.components(*value);
                    let locals = std::mem::take(&mut self.frame.locals[local.0 as usize]);
                    for (local, component) in locals.iter().zip(&components) {
                        self.assign(local, component);
                    }
                    self.frame.locals[local.0 as usize] = locals;
                }
                Stmt::Store { view, indices, value } => {
                    let components = self.components(*value);
                    self.store(*view, indices, &components);
                }
                Stmt::For { counter, end, body } => {
                    let end = self.uniform_value(*end).value;
                    let Local::Uniform(counter) = self.frame.locals[counter.0 as usize][0] else { return };
                    let [latch, done] = self.l.open_loop(counter, end);
                    self.block(body);
                    self.l.b.ins().jump(latch, &[]);
                    self.l.b.switch_to_block(latch);
                    self.l.close_loop(counter);
                    self.l.b.switch_to_block(done);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.uniform_value(*condition).value;
                    if self.frame.uniformity.runs_scalar(then) {
                        let next = self.l.b.create_block();
                        self.l.b.ins().brif(condition, self.scalar_fallback, &[], next, &[]);
                        self.l.b.switch_to_block(next);
                        continue;
                    }
                    let [yes, no, done] = std::array::from_fn(|_| self.l.b.create_block());
                    self.l.b.ins().brif(condition, yes, &[], no, &[]);
                    for (block, stmts) in [(yes, then), (no, otherwise)] {
                        self.l.b.switch_to_block(block);
                        self.block(stmts);
                        self.l.b.ins().jump(done, &[]);
                    }
                    self.l.b.switch_to_block(done);
                }
                // A function's last statement, whose value the call uses; the analysis rejects all
                // others.
                _ => {}
            }
        }
    }

    /// Returns a uniform value.
    fn uniform_value(&mut self, id: ExprId) -> TypedValue {
        let pack = self.components(id)[0].clone();
        self.lane(&pack, 0)
    }

    fn evaluate(&mut self, id: ExprId) -> Vec<LaneValue> {
        let code = self.frame.code;
        let structs = &self.l.kernel.structs;
        match code.expr(id) {
            Expr::Read(local) => {
                let scalars: Vec<Scalar> = code.local(*local).init.iter().map(|init| init.scalar()).collect();
                (self.frame.locals[local.0 as usize].iter().zip(scalars))
                    .map(|(local, scalar)| match local {
                        Local::Uniform(variable) => {
                            LaneValue::Uniform(TypedValue { value: self.l.b.use_var(*variable), scalar, known: None })
                        }
                        Local::Vectors(variables) => {
                            let vectors = variables.iter().map(|&variable| self.l.b.use_var(variable)).collect();
                            LaneValue::Vectors { scalar, vectors }
                        }
                    })
                    .collect()
            }
            Expr::Op(op, args) => {
                let args: Vec<Vec<LaneValue>> = args.iter().map(|&arg| self.components(arg)).collect();
                if let Some(counted) = self.linear_op(*op, &args, self.frame.uniformity.of(id)) {
                    return vec![counted];
                }
                (0..code.ty(id).component_count(structs))
                    .map(|n| {
                        // A condition may be one bool for all components.
                        let components: Vec<&LaneValue> =
                            args.iter().map(|arg| arg.get(n).unwrap_or(&arg[0])).collect();
                        self.op(*op, &components)
                    })
                    .collect()
            }
            Expr::Algebra { op, component, args } => {
                let args: Vec<Components<LaneValue>> =
                    args.iter().map(|&arg| Components { ty: code.ty(arg), components: self.components(arg) }).collect();
                op.body(self, *component, code.ty(id), &args, structs)
            }
            Expr::Cast(to, from) => {
                let components = self.components(*from);
                match (&components[..], self.frame.uniformity.of(id)) {
                    ([LaneValue::Linear { first, step }], Uniformity::Linear(_)) => {
                        let first = self.l.cast(*to, first);
                        vec![LaneValue::Linear { first, step: *step }]
                    }
                    _ => components.iter().map(|component| self.cast(*to, component)).collect(),
                }
            }
            Expr::Bitcast(to, from) => {
                self.components(*from).iter().map(|component| self.bitcast(*to, component)).collect()
            }
            Expr::Call(function, args) => self.call(id, *function, args),
            Expr::Load { view, indices, .. } => self.load(*view, indices, code.ty(id).component_count(structs)),
            _ => self.components(id),
        }
    }

    /// Applies an op to linear integers if the result is linear or uniform.
    fn linear_op(&mut self, op: Op, args: &[Vec<LaneValue>], shape: Uniformity) -> Option<LaneValue> {
        let counts = args.iter().any(|arg| matches!(arg[..], [LaneValue::Linear { .. }]));
        if !counts || shape == Uniformity::Varying {
            return None;
        }
        let firsts = args.iter().map(|arg| arg[0].first()).collect::<Option<Vec<TypedValue>>>()?;
        if matches!(op, Op::Div | Op::Rem) {
            self.fall_back_if_multiple_crossed(&firsts[0], &firsts[1]);
        }
        let first = self.l.op(op, &firsts.iter().collect::<Vec<_>>());
        if matches!(op, Op::Lt | Op::Le | Op::Gt | Op::Ge) {
            self.fall_back_unless_uniform(op, args, &first);
        }
        Some(match shape {
            Uniformity::Linear(step) => LaneValue::Linear { first, step },
            _ => LaneValue::Uniform(first),
        })
    }

    /// Falls back to scalar code if the instances cross a multiple of `by`, or are negative.
    fn fall_back_if_multiple_crossed(&mut self, first: &TypedValue, by: &TypedValue) {
        let rest = self.l.op(Op::Rem, &[first, by]);
        let last = self.l.b.ins().iadd_imm_s(by.value, -(self.count as i64));
        let signed = self.l.b.ins().icmp(IntCC::SignedLessThanOrEqual, rest.value, last);
        let positive = self.l.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, first.value, 0);
        let ok = self.l.b.ins().band(signed, positive);
        let next = self.l.b.create_block();
        self.l.b.ins().brif(ok, next, &[], self.scalar_fallback, &[]);
        self.l.b.switch_to_block(next);
    }

    /// Falls back to scalar code if the last instance compares differently from the first.
    fn fall_back_unless_uniform(&mut self, op: Op, args: &[Vec<LaneValue>], first: &TypedValue) {
        let lasts: Vec<TypedValue> = args.iter().map(|arg| self.lane(&arg[0], self.count - 1)).collect();
        let last = self.l.op(op, &lasts.iter().collect::<Vec<_>>());
        let next = self.l.b.create_block();
        let differ = self.l.b.ins().bxor(first.value, last.value);
        self.l.b.ins().brif(differ, self.scalar_fallback, &[], next, &[]);
        self.l.b.switch_to_block(next);
    }

    /// Lowers a call by inlining the function's code.
    fn call(&mut self, id: ExprId, FunctionId(n): FunctionId, args: &[ExprId]) -> Vec<LaneValue> {
        let kernel: &'k Kernel = self.l.kernel;
        let uniformity: &'s UniformityInfo = &self.frame.uniformity.calls[&id];
        let code = &kernel.functions[n as usize].code;
        let arguments = args.iter().map(|&arg| self.components(arg)).collect();
        let outer = self.enter_frame(code, uniformity, arguments);
        self.block(&code.body);
        let result = uniformity.result.map(|result| self.components(result)).unwrap_or_default();
        self.frame = outer;
        result
    }

    /// Returns the components of an expression that is already evaluated or needs no evaluation.
    fn components(&mut self, id: ExprId) -> Vec<LaneValue> {
        match *self.frame.code.expr(id) {
            Expr::Const(value) => vec![self.constant_lanes(value)],
            Expr::Index => {
                let first = TypedValue { value: self.l.index, scalar: self.l.kernel.index, known: None };
                vec![LaneValue::Linear { first, step: 1 }]
            }
            Expr::Argument(n) => self.frame.arguments[n as usize].clone(),
            _ => self.frame.values[id.0 as usize].clone(),
        }
    }
}
