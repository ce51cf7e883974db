//! Block-cooperative CUDA texts, and the sequential programs that define what they compute.
//!
//! The source is the obvious implementation: a loop, or an atomic update. The CUDA text computes
//! the same with shared memory, barriers and shuffles, in one of many ways. Its writer is created
//! together with the source and runs once all names are known.

use super::builder::ProgramBuilder;
use crate::program::c::{CppTarget, Printer};
use crate::program::{
    AtomicOp, BinaryOp, BuiltinFn, CooperativeKernel, Program, ProgramExpr, ProgramStmt, ScalarType, SizeExpr, VarId,
};

/// Writes the CUDA text of a finished program.
pub type BlockWriter = Box<dyn FnOnce(&Program) -> CooperativeKernel>;

/// Reduction operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduce {
    Add,
    Max,
    Min,
    Xor,
    Or,
}

/// A number larger than every value of a kernel. For doubles it is representable as a float, since
/// the dialect's literals are floats.
fn far(scalar: ScalarType) -> f64 {
    if scalar == ScalarType::F64 { 1e6 } else { 1e30 }
}

impl Reduce {
    /// Draws an operation that suits a type.
    pub fn pick(m: &mut ProgramBuilder, scalar: ScalarType) -> Reduce {
        match scalar {
            ScalarType::I32 => *m.random.pick_weighted(&[
                (4, Reduce::Add),
                (2, Reduce::Max),
                (2, Reduce::Min),
                (1, Reduce::Xor),
                (1, Reduce::Or),
            ]),
            _ => *m.random.pick_weighted(&[(4, Reduce::Add), (2, Reduce::Max), (2, Reduce::Min)]),
        }
    }

    /// Identity element.
    pub fn identity(self, scalar: ScalarType) -> ProgramExpr {
        match (self, scalar.is_float()) {
            (Reduce::Max, true) => ProgramExpr::float(scalar, -far(scalar)),
            (Reduce::Min, true) => ProgramExpr::float(scalar, far(scalar)),
            (Reduce::Max, false) => ProgramExpr::typed_int(scalar, -2_000_000_000),
            (Reduce::Min, false) => ProgramExpr::typed_int(scalar, 2_000_000_000),
            (_, true) => ProgramExpr::float(scalar, 0.0),
            (_, false) => ProgramExpr::typed_int(scalar, 0),
        }
    }

    /// Step of the sequential loop.
    pub fn step(self, acc: VarId, now: ProgramExpr, value: ProgramExpr) -> ProgramStmt {
        match self {
            Reduce::Add => ProgramStmt::Update(acc, BinaryOp::Add, value),
            Reduce::Xor => ProgramStmt::Update(acc, BinaryOp::BitXor, value),
            Reduce::Or => ProgramStmt::Update(acc, BinaryOp::BitOr, value),
            Reduce::Max => ProgramStmt::Assign(acc, ProgramExpr::call(BuiltinFn::Max, vec![now, value])),
            Reduce::Min => ProgramStmt::Assign(acc, ProgramExpr::call(BuiltinFn::Min, vec![now, value])),
        }
    }

    pub fn update(self) -> AtomicOp {
        match self {
            Reduce::Add => AtomicOp::Add,
            Reduce::Max => AtomicOp::Max,
            Reduce::Min => AtomicOp::Min,
            Reduce::Xor => AtomicOp::Xor,
            Reduce::Or => AtomicOp::Or,
        }
    }

    /// `a op b` in C.
    pub fn combine_text(self, scalar: ScalarType, a: &str, b: &str) -> String {
        let f = if scalar == ScalarType::F64 { "" } else { "f" };
        match (self, scalar.is_float()) {
            (Reduce::Add, _) => format!("{a} + {b}"),
            (Reduce::Xor, _) => format!("{a} ^ {b}"),
            (Reduce::Or, _) => format!("{a} | {b}"),
            (Reduce::Max, true) => format!("fmax{f}({a}, {b})"),
            (Reduce::Min, true) => format!("fmin{f}({a}, {b})"),
            (Reduce::Max, false) => format!("max({a}, {b})"),
            (Reduce::Min, false) => format!("min({a}, {b})"),
        }
    }

    /// `a = a op b;` in C, with a compound assignment where possible.
    pub fn assign_text(self, scalar: ScalarType, a: &str, b: &str) -> String {
        match self {
            Reduce::Add => format!("{a} += {b};"),
            Reduce::Xor => format!("{a} ^= {b};"),
            Reduce::Or => format!("{a} |= {b};"),
            _ => format!("{a} = {};", self.combine_text(scalar, a, b)),
        }
    }

    pub fn atomic(self, target: &str, value: &str) -> String {
        let name = match self {
            Reduce::Add => "atomicAdd",
            Reduce::Max => "atomicMax",
            Reduce::Min => "atomicMin",
            Reduce::Xor => "atomicXor",
            Reduce::Or => "atomicOr",
        };
        format!("{name}(&{target}, {value});")
    }
}

/// Assembles a kernel's text.
pub fn kernel_text(program: &Program, restrict: bool, body: impl FnOnce(&mut Printer<'_>) -> String) -> String {
    let mut printer = Printer::new(program, CppTarget::Cuda);
    let body = body(&mut printer);
    let kernel = printer.head("__global__ void", restrict) + &body + "}\n";
    printer.with_prelude(kernel)
}

/// A block kernel launched along x.
pub fn along_x(text: String, threads: u32, coverage: (SizeExpr, u32), kind: &'static str) -> CooperativeKernel {
    CooperativeKernel {
        text,
        block: [threads, 1, 1],
        grid: [coverage, (SizeExpr::Constant(1), 1), (SizeExpr::Constant(1), 1)],
        kind,
    }
}

/// Indents lines.
pub fn indent(depth: usize, lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}{line}\n", "    ".repeat(depth))).collect()
}

/// Strategy of a block-wide reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduceStrategy {
    /// A tree in shared memory, halving the stride.
    Tree,
    /// A tree in shared memory, unrolled.
    Unrolled,
    /// A tree with strides 1, 2, 4, ….
    Interleaved,
    /// Warp shuffles, then shared memory, then shuffles in the first warp.
    Warps,
    /// Warp shuffles, then one thread reduces the warps' values.
    WarpsThenOne,
}

impl ReduceStrategy {
    pub fn pick(m: &mut ProgramBuilder) -> ReduceStrategy {
        *m.random.pick_weighted(&[
            (4, ReduceStrategy::Tree),
            (2, ReduceStrategy::Unrolled),
            (2, ReduceStrategy::Interleaved),
            (3, ReduceStrategy::Warps),
            (2, ReduceStrategy::WarpsThenOne),
        ])
    }

    pub fn kind(self) -> &'static str {
        match self {
            ReduceStrategy::Tree | ReduceStrategy::Unrolled | ReduceStrategy::Interleaved => "shared_tree",
            ReduceStrategy::Warps | ReduceStrategy::WarpsThenOne => "warp_reduce",
        }
    }
}

/// Names of a block kernel's helper variables.
pub struct BlockNames {
    pub t: String,
    pub tile: String,
    pub value: String,
    pub step: String,
}

impl BlockNames {
    pub fn new(m: &mut ProgramBuilder) -> BlockNames {
        let t = *m.random.pick(&["t", "tid", "tx", "thread", "lane_id"]);
        let tile = *m.random.pick(&["partial", "tile", "sdata", "scratch", "cache", "shared_vals"]);
        let value = *m.random.pick(&["v", "sum_v", "mine", "local_v", "acc_v"]);
        let step = *m.random.pick(&["s", "stride", "half", "offset", "o"]);
        BlockNames {
            t: m.names.unique(t),
            tile: m.names.unique(tile),
            value: m.names.unique(value),
            step: m.names.unique(step),
        }
    }
}

/// Lines that reduce `names.value` of all threads, and the expression that holds the result in the
/// first thread.
pub fn reduction_lines(
    strategy: ReduceStrategy,
    reduce: Reduce,
    scalar: ScalarType,
    threads: u32,
    names: &BlockNames,
    identity: &str,
) -> (Vec<String>, String) {
    let (t, tile, v, s) = (&names.t, &names.tile, &names.value, &names.step);
    let c = scalar.c();
    let mut lines = vec![];
    let into = |a: String, b: String| reduce.assign_text(scalar, &a, &b);
    match strategy {
        ReduceStrategy::Tree | ReduceStrategy::Unrolled | ReduceStrategy::Interleaved => {
            lines.push(format!("__shared__ {c} {tile}[{threads}];"));
            lines.push(format!("{tile}[{t}] = {v};"));
            lines.push("__syncthreads();".into());
            if strategy == ReduceStrategy::Unrolled {
                let mut width = threads / 2;
                while width > 0 {
                    lines.push(format!(
                        "if ({t} < {width}) {}",
                        into(format!("{tile}[{t}]"), format!("{tile}[{t} + {width}]"))
                    ));
                    lines.push("__syncthreads();".into());
                    width /= 2;
                }
            } else if strategy == ReduceStrategy::Tree {
                lines.push(format!("for (int {s} = {}; {s} > 0; {s} >>= 1) {{", threads / 2));
                lines
                    .push(format!("    if ({t} < {s}) {}", into(format!("{tile}[{t}]"), format!("{tile}[{t} + {s}]"))));
                lines.push("    __syncthreads();".into());
                lines.push("}".into());
            } else {
                lines.push(format!("for (int {s} = 1; {s} < {threads}; {s} *= 2) {{"));
                lines.push(format!(
                    "    if ({t} % (2 * {s}) == 0) {}",
                    into(format!("{tile}[{t}]"), format!("{tile}[{t} + {s}]"))
                ));
                lines.push("    __syncthreads();".into());
                lines.push("}".into());
            }
            (lines, format!("{tile}[0]"))
        }
        ReduceStrategy::Warps | ReduceStrategy::WarpsThenOne => {
            let shuffle = |lines: &mut Vec<String>, depth: &str, from: u32| {
                lines.push(format!("{depth}for (int {s} = {from}; {s} > 0; {s} >>= 1) {{"));
                let other = format!("__shfl_down_sync(0xffffffff, {v}, {s})");
                lines.push(format!("{depth}    {}", reduce.assign_text(scalar, v, &other)));
                lines.push(format!("{depth}}}"));
            };
            shuffle(&mut lines, "", 16);
            let warps = threads / 32;
            if warps <= 1 {
                return (lines, v.clone());
            }
            lines.insert(0, format!("__shared__ {c} {tile}[{warps}];"));
            lines.push(format!("if ({t} % 32 == 0) {tile}[{t} / 32] = {v};"));
            lines.push("__syncthreads();".into());
            if strategy == ReduceStrategy::Warps {
                lines.push(format!("if ({t} < 32) {{"));
                lines.push(format!("    {v} = {t} < {warps} ? {tile}[{t}] : {identity};"));
                shuffle(&mut lines, "    ", 16);
                lines.push("}".into());
                (lines, v.clone())
            } else {
                lines.push(format!("if ({t} == 0) {{"));
                lines.push(format!(
                    "    for (int {s} = 1; {s} < {warps}; ++{s}) {}",
                    reduce.assign_text(scalar, v, &format!("{tile}[{s}]"))
                ));
                lines.push("}".into());
                (lines, v.clone())
            }
        }
    }
}
