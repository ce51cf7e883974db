//! Names and docstrings from what a program does.

use std::collections::BTreeSet;

use super::maker::Maker;
use super::names;
use crate::Category;
use crate::program::{Binary, Kind, Program, Stmt, Update};

/// Ends a program with a name.
pub fn finish(mut m: Maker, category: Category) -> Program {
    let name = if m.program.name.is_empty() {
        let (verb, noun) = (*m.random.pick(names::VERBS), *m.random.pick(names::NOUNS));
        match m.random.below(3) {
            0 => format!("{verb}_{noun}"),
            1 => format!("{noun}_{}", category.name()),
            _ => format!("{verb}_{noun}_{}", m.random.pick(&["kernel", "step", "pass", "op", "map"])),
        }
    } else {
        std::mem::take(&mut m.program.name)
    };
    m.finish(name)
}

/// Gives a program the sentence that says what it does.
pub fn told(program: &mut Program) {
    program.doc = sentence(program);
}

/// What a program does, in a sentence made of its parts.
fn sentence(program: &Program) -> String {
    let read: Vec<&str> =
        program.arrays.iter().filter(|array| !array.written).map(|array| array.name.as_str()).collect();
    let written: Vec<&str> =
        program.arrays.iter().filter(|array| array.written).map(|array| array.name.as_str()).collect();
    let mut words: BTreeSet<&str> = BTreeSet::new();
    let mut calls: BTreeSet<&str> = BTreeSet::new();
    program.each_expr(&mut |e| match &e.kind {
        Kind::Binary(Binary::Add, _) => drop(words.insert("sums")),
        Kind::Binary(Binary::Sub, _) => drop(words.insert("differences")),
        Kind::Binary(Binary::Mul, _) => drop(words.insert("products")),
        Kind::Binary(Binary::Div | Binary::Quotient, _) => drop(words.insert("quotients")),
        Kind::Binary(Binary::Rem, _) => drop(words.insert("remainders")),
        Kind::Binary(Binary::Shl | Binary::Shr, _) => drop(words.insert("shifts")),
        Kind::Binary(Binary::BitAnd | Binary::BitOr | Binary::BitXor, _) => drop(words.insert("masks")),
        Kind::Where(_) => drop(words.insert("choices")),
        Kind::Call(builtin, _) => drop(calls.insert(builtin.name())),
        _ => {}
    });
    let mut shape: BTreeSet<&str> = BTreeSet::new();
    program.each_stmt(&mut |stmt| match stmt {
        Stmt::If(..) => drop(shape.insert("branches")),
        Stmt::For(..) => drop(shape.insert("a counted loop")),
        Stmt::While(..) => drop(shape.insert("a loop that ends by itself")),
        Stmt::Atomic(Update::Add | Update::Sub, ..) => drop(shape.insert("atomic sums")),
        Stmt::Atomic(..) => drop(shape.insert("atomic updates")),
        Stmt::Draw(..) => drop(shape.insert("random numbers")),
        _ => {}
    });
    let mut parts: Vec<String> = vec![];
    if !words.is_empty() {
        parts.push(list(&words.into_iter().collect::<Vec<_>>()));
    }
    if !calls.is_empty() {
        parts.push(list(&calls.into_iter().take(4).collect::<Vec<_>>()));
    }
    let what = if parts.is_empty() { "copies".into() } else { parts.join(" with ") };
    let from = if read.is_empty() { String::new() } else { format!(" of {}", list(&read)) };
    let with = if shape.is_empty() {
        String::new()
    } else {
        format!(", with {}", list(&shape.into_iter().collect::<Vec<_>>()))
    };
    let mut text = format!("{what}{from} into {}{with}.", list(&written));
    if let Some(first) = text.get(..1) {
        let upper = first.to_uppercase();
        text.replace_range(..1, &upper);
    }
    text
}

/// `a, b and c`.
fn list(of: &[&str]) -> String {
    match of {
        [] => String::new(),
        [one] => (*one).into(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
