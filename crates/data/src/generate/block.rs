//! Block-cooperative CUDA texts, and the sequential programs that define what they compute.
//!
//! The source is the obvious implementation: a loop, or an atomic update. The CUDA text computes
//! the same with shared memory, barriers and shuffles, in one of many ways. Its writer is created
//! together with the source and runs once all names are known.

use super::maker::Maker;
use crate::program::c::{Dialect, Printer};
use crate::program::{Binary, Builtin, Cooperative, Expr, Program, Scalar, Size, Stmt, Update, Var};

/// Writes the CUDA text of a finished program.
pub type Plan = Box<dyn FnOnce(&Program) -> Cooperative>;

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
fn far(scalar: Scalar) -> f64 {
    if scalar == Scalar::F64 { 1e6 } else { 1e30 }
}

impl Reduce {
    /// Draws an operation that suits a type.
    pub fn pick(m: &mut Maker, scalar: Scalar) -> Reduce {
        match scalar {
            Scalar::I32 => *m.random.weighted(&[
                (4, Reduce::Add),
                (2, Reduce::Max),
                (2, Reduce::Min),
                (1, Reduce::Xor),
                (1, Reduce::Or),
            ]),
            _ => *m.random.weighted(&[(4, Reduce::Add), (2, Reduce::Max), (2, Reduce::Min)]),
        }
    }

    /// Identity element.
    pub fn identity(self, scalar: Scalar) -> Expr {
        match (self, scalar.is_float()) {
            (Reduce::Max, true) => Expr::float(scalar, -far(scalar)),
            (Reduce::Min, true) => Expr::float(scalar, far(scalar)),
            (Reduce::Max, false) => Expr::int_of(scalar, -2_000_000_000),
            (Reduce::Min, false) => Expr::int_of(scalar, 2_000_000_000),
            (_, true) => Expr::float(scalar, 0.0),
            (_, false) => Expr::int_of(scalar, 0),
        }
    }

    /// Step of the sequential loop.
    pub fn step(self, acc: Var, now: Expr, value: Expr) -> Stmt {
        match self {
            Reduce::Add => Stmt::Update(acc, Binary::Add, value),
            Reduce::Xor => Stmt::Update(acc, Binary::BitXor, value),
            Reduce::Or => Stmt::Update(acc, Binary::BitOr, value),
            Reduce::Max => Stmt::Assign(acc, Expr::call(Builtin::Max, vec![now, value])),
            Reduce::Min => Stmt::Assign(acc, Expr::call(Builtin::Min, vec![now, value])),
        }
    }

    pub fn update(self) -> Update {
        match self {
            Reduce::Add => Update::Add,
            Reduce::Max => Update::Max,
            Reduce::Min => Update::Min,
            Reduce::Xor => Update::Xor,
            Reduce::Or => Update::Or,
        }
    }

    /// `a op b` in C.
    pub fn joined(self, scalar: Scalar, a: &str, b: &str) -> String {
        let f = if scalar == Scalar::F64 { "" } else { "f" };
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
    pub fn into(self, scalar: Scalar, a: &str, b: &str) -> String {
        match self {
            Reduce::Add => format!("{a} += {b};"),
            Reduce::Xor => format!("{a} ^= {b};"),
            Reduce::Or => format!("{a} |= {b};"),
            _ => format!("{a} = {};", self.joined(scalar, a, b)),
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
pub fn written(program: &Program, restrict: bool, body: impl FnOnce(&mut Printer<'_>) -> String) -> String {
    let mut printer = Printer::new(program, Dialect::Cuda);
    let body = body(&mut printer);
    let kernel = printer.head("__global__ void", restrict) + &body + "}\n";
    printer.whole(kernel)
}

/// A block kernel launched along x.
pub fn along_x(text: String, threads: u32, coverage: (Size, u32), kind: &'static str) -> Cooperative {
    Cooperative { text, block: [threads, 1, 1], grid: [coverage, (Size::Known(1), 1), (Size::Known(1), 1)], kind }
}

/// Indents lines.
pub fn indent(depth: usize, lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}{line}\n", "    ".repeat(depth))).collect()
}

/// Strategy of a block-wide reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
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

impl Way {
    pub fn pick(m: &mut Maker) -> Way {
        *m.random.weighted(&[
            (4, Way::Tree),
            (2, Way::Unrolled),
            (2, Way::Interleaved),
            (3, Way::Warps),
            (2, Way::WarpsThenOne),
        ])
    }

    pub fn kind(self) -> &'static str {
        match self {
            Way::Tree | Way::Unrolled | Way::Interleaved => "shared_tree",
            Way::Warps | Way::WarpsThenOne => "warp_reduce",
        }
    }
}

/// Names of a block kernel's helper variables.
pub struct Own {
    pub t: String,
    pub tile: String,
    pub value: String,
    pub step: String,
}

impl Own {
    pub fn new(m: &mut Maker) -> Own {
        let t = *m.random.pick(&["t", "tid", "tx", "thread", "lane_id"]);
        let tile = *m.random.pick(&["partial", "tile", "sdata", "scratch", "cache", "shared_vals"]);
        let value = *m.random.pick(&["v", "sum_v", "mine", "local_v", "acc_v"]);
        let step = *m.random.pick(&["s", "stride", "half", "offset", "o"]);
        Own { t: m.names.free(t), tile: m.names.free(tile), value: m.names.free(value), step: m.names.free(step) }
    }
}

/// Lines that reduce `names.value` of all threads, and the expression that holds the result in the
/// first thread.
pub fn reduced(
    way: Way,
    reduce: Reduce,
    scalar: Scalar,
    threads: u32,
    own: &Own,
    identity: &str,
) -> (Vec<String>, String) {
    let (t, tile, v, s) = (&own.t, &own.tile, &own.value, &own.step);
    let c = scalar.c();
    let mut lines = vec![];
    let into = |a: String, b: String| reduce.into(scalar, &a, &b);
    match way {
        Way::Tree | Way::Unrolled | Way::Interleaved => {
            lines.push(format!("__shared__ {c} {tile}[{threads}];"));
            lines.push(format!("{tile}[{t}] = {v};"));
            lines.push("__syncthreads();".into());
            if way == Way::Unrolled {
                let mut width = threads / 2;
                while width > 0 {
                    lines.push(format!(
                        "if ({t} < {width}) {}",
                        into(format!("{tile}[{t}]"), format!("{tile}[{t} + {width}]"))
                    ));
                    lines.push("__syncthreads();".into());
                    width /= 2;
                }
            } else if way == Way::Tree {
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
        Way::Warps | Way::WarpsThenOne => {
            let shuffle = |lines: &mut Vec<String>, depth: &str, from: u32| {
                lines.push(format!("{depth}for (int {s} = {from}; {s} > 0; {s} >>= 1) {{"));
                let other = format!("__shfl_down_sync(0xffffffff, {v}, {s})");
                lines.push(format!("{depth}    {}", reduce.into(scalar, v, &other)));
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
            if way == Way::Warps {
                lines.push(format!("if ({t} < 32) {{"));
                lines.push(format!("    {v} = {t} < {warps} ? {tile}[{t}] : {identity};"));
                shuffle(&mut lines, "    ", 16);
                lines.push("}".into());
                (lines, v.clone())
            } else {
                lines.push(format!("if ({t} == 0) {{"));
                lines.push(format!(
                    "    for (int {s} = 1; {s} < {warps}; ++{s}) {}",
                    reduce.into(scalar, v, &format!("{tile}[{s}]"))
                ));
                lines.push("}".into());
                (lines, v.clone())
            }
        }
    }
}
