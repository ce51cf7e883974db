//! Kernel names and docstrings, derived from the finished program rather than from the generator's
//! intent.
//!
//! `view` resolves variables and matches patterns; `idioms` (activations, losses), `loops`,
//! `memory` and `steps` recognize what a program computes.

pub mod idioms;
mod loops;
mod memory;
mod steps;
mod view;

use std::collections::BTreeSet;

use self::view::ProgramView;
use super::builder::ProgramBuilder;
use super::names;
use crate::Category;
use crate::program::{AtomicOp, BinaryOp, ExprKind, Program, ProgramStmt, UnaryOp};

/// Finishes a program with a generated name.
pub fn finish(mut m: ProgramBuilder, category: Category) -> Program {
    let name = if m.program.name.is_empty() {
        let (verb, noun) = (*m.random.pick(names::VERBS), *m.random.pick(names::NOUNS));
        match m.random.below(3) {
            0 => format!("{verb}_{noun}"),
            1 => match *m.random.pick(results(category)) {
                result if result == noun => format!("{verb}_{noun}"),
                result => format!("{noun}_{result}"),
            },
            _ => format!("{verb}_{noun}_{}", m.random.pick(&["kernel", "step", "pass", "op", "map"])),
        }
    } else {
        std::mem::take(&mut m.program.name)
    };
    m.finish(name)
}

/// Nouns for the result of a kernel of a category.
fn results(category: Category) -> &'static [&'static str] {
    match category {
        Category::Arithmetic => &["mix", "balance", "blend", "offset"],
        Category::Math => &["curve", "wave", "shape"],
        Category::ExpressionTree => &["formula", "score", "model"],
        Category::ScalarParam => &["scaled", "tuned", "adjusted"],
        Category::ControlFlow => &["limiter", "selector", "cases"],
        Category::Vector => &["directions", "vectors"],
        Category::Matrix => &["transforms", "matrices"],
        Category::Struct => &["particles", "items"],
        Category::Physics => &["motion", "forces"],
        Category::Stencil => &["neighbours", "smoothing", "diffusion"],
        Category::GridTwo => &["plane", "sheet"],
        Category::GridThree => &["volume", "voxels"],
        Category::Image => &["pixels", "picture"],
        Category::Atomic => &["totals", "tally"],
        Category::GatherScatter => &["lookup", "shuffle"],
        Category::IntegerBits => &["hash", "flags", "checksum"],
        Category::HalfPrecision => &["half", "narrow"],
        Category::RandomNumbers => &["noise", "trials"],
        Category::Functions => &["pipeline", "parts"],
        Category::Nested => &["sweep", "by_row"],
        Category::Reduction => &["total", "summary"],
        Category::Scan => &["prefix", "running"],
        Category::Histogram => &["histogram", "bins", "counts"],
        Category::SharedMemory => &["tile", "exchange"],
        Category::WarpShuffle => &["exchange", "warps"],
        Category::TiledMatmul => &["product", "matmul"],
        Category::MlOps => &["layer", "training"],
    }
}

/// Sets the description of a program: names for what it computes, and its operations.
pub fn describe(program: &mut Program) {
    program.doc = sentence(program);
}

/// Names for what a program computes.
fn names(view: &ProgramView<'_>) -> Vec<String> {
    let mut all: Vec<String> = view.complete_idiom().into_iter().collect();
    all.extend(view.optimizer());
    all.extend(view.simulation());
    all.extend(view.random());
    all.extend(view.loops());
    all.extend(view.memory());
    // Columns of a sparse row are always gathered.
    if all.iter().any(|name| name.contains("sparse matrix")) {
        all.retain(|name| name != "gather");
    }
    let mut distinct: Vec<String> = vec![];
    all.into_iter().for_each(|name| {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    });
    distinct
}

/// One-sentence description of a program.
fn sentence(program: &Program) -> String {
    let view = ProgramView::new(program);
    let patterns = names(&view);
    let read: Vec<&str> =
        program.arrays.iter().filter(|array| !array.written).map(|array| array.name.as_str()).collect();
    let written: Vec<&str> =
        program.arrays.iter().filter(|array| array.written).map(|array| array.name.as_str()).collect();
    let mut words: BTreeSet<&str> = BTreeSet::new();
    let mut calls: BTreeSet<&str> = view.idioms();
    calls.retain(|idiom| !patterns.iter().any(|name| name.contains(idiom)));
    program.each_expr(&mut |e| match &e.kind {
        ExprKind::Binary(op, _) => words.extend(word(*op)),
        ExprKind::Unary(UnaryOp::Neg, a) if !matches!(a.kind, ExprKind::Float(_) | ExprKind::Int(_)) => {
            words.insert("negations");
        }
        ExprKind::Unary(UnaryOp::Invert, _) => drop(words.insert("complements")),
        ExprKind::Where(_) => drop(words.insert("choices")),
        ExprKind::Call(builtin, _) => drop(calls.insert(builtin.name())),
        _ => {}
    });
    let mut shape: BTreeSet<&str> = BTreeSet::new();
    program.each_stmt(&mut |stmt| match stmt {
        ProgramStmt::Update(_, op, _) => words.extend(word(*op)),
        ProgramStmt::If(..) => drop(shape.insert("branches")),
        ProgramStmt::For(..) => drop(shape.insert("a counted loop")),
        ProgramStmt::While(..) => drop(shape.insert("a loop with a condition")),
        ProgramStmt::Atomic(AtomicOp::Add | AtomicOp::Sub, ..) => drop(shape.insert("atomic sums")),
        ProgramStmt::Atomic(..) => drop(shape.insert("atomic updates")),
        ProgramStmt::Draw(..) => drop(shape.insert("random numbers")),
        _ => {}
    });
    let mut parts: Vec<String> = vec![];
    if !words.is_empty() {
        parts.push(list(&words.into_iter().collect::<Vec<_>>()));
    }
    if !calls.is_empty() {
        parts.push(list(&calls.into_iter().collect::<Vec<_>>()));
    }
    let how = parts.join(" with ");
    // A second `of` would be ambiguous.
    let of = if patterns.iter().any(|name| name.contains(" of ")) { "from" } else { "of" };
    let from = if read.is_empty() { String::new() } else { format!(" {of} {}", list(&read)) };
    let with = if shape.is_empty() {
        String::new()
    } else {
        format!(", with {}", list(&shape.into_iter().collect::<Vec<_>>()))
    };
    let into = list(&written);
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let mut text = match (&patterns[..], how.as_str()) {
        ([], "") => format!("copies{from} into {into}{with}."),
        ([], how) => format!("{how}{from} into {into}{with}."),
        (names, "") => format!("{}{from} into {into}{with}.", list(names)),
        (names, how) => format!("{}{from} into {into}: {how}{with}.", list(names)),
    };
    if let Some(first) = text.get(..1) {
        let upper = first.to_uppercase();
        text.replace_range(..1, &upper);
    }
    text
}

/// Noun for the results of an operator.
fn word(op: BinaryOp) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Add => "sums",
        BinaryOp::Sub => "differences",
        BinaryOp::Mul => "products",
        BinaryOp::Div | BinaryOp::Quotient => "quotients",
        BinaryOp::Rem => "remainders",
        BinaryOp::Shl | BinaryOp::Shr => "shifts",
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => "masks",
        _ => return None,
    })
}

/// `a, b and c`.
fn list(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [one] => (*one).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
