//! What kernels of bits come to on samples: integers as their types hold them, statements with loops and branches.

use super::maker::Maker;
use crate::Random;
use crate::program::{Binary, Expr, Fill, Kind, Scalar, Stmt, Ty, Unary, Var};

/// Samples that are drawn.
const SAMPLES: usize = 16;

/// Integers by their bits.
struct Words<'m> {
    maker: &'m Maker,
    random: Random,
    place: u64,
    vars: Vec<(Var, u64)>,
    drawn: Vec<(&'m Expr, u64)>,
}

/// As a type holds it, with the sign in all upper bits.
fn held(ty: Ty, word: u64) -> u64 {
    match ty.element() {
        Some(Scalar::U32) => word & 0xffff_ffff,
        Some(Scalar::I32) => word as u32 as i32 as i64 as u64,
        _ => word,
    }
}

impl<'m> Words<'m> {
    fn set(&mut self, var: Var, word: u64) {
        match self.vars.iter_mut().find(|(other, _)| *other == var) {
            Some((_, old)) => *old = word,
            None => self.vars.push((var, word)),
        }
    }

    fn value(&mut self, e: &'m Expr) -> Option<u64> {
        let word = match &e.kind {
            Kind::Int(value) => *value as u64,
            // What is not set is the instance's place.
            Kind::Var(var) => self.vars.iter().find(|(other, _)| other == var).map_or(self.place, |(_, word)| *word),
            Kind::Load(array, _) => {
                if let Some((_, word)) = self.drawn.iter().find(|(other, _)| *other == e) {
                    return Some(*word);
                }
                let Fill::Uniform(low, high) = self.maker.program.array(*array).fill else { return None };
                let word = self.random.within(low as i64, high as i64) as u64;
                self.drawn.push((e, word));
                word
            }
            Kind::Unary(op, a) => {
                let word = self.value(a)?;
                if *op == Unary::Neg { word.wrapping_neg() } else { !word }
            }
            Kind::Cast(a) => self.value(a)?,
            Kind::Binary(op, both) => {
                let (a, b) = (self.value(&both[0])?, self.value(&both[1])?);
                self.binary(*op, a, b, both[0].ty)?
            }
            _ => return None,
        };
        Some(held(e.ty, word))
    }

    fn binary(&self, op: Binary, a: u64, b: u64, ty: Ty) -> Option<u64> {
        let signed = ty.element().is_some_and(Scalar::is_signed);
        Some(match op {
            Binary::Add => a.wrapping_add(b),
            Binary::Sub => a.wrapping_sub(b),
            Binary::Mul => a.wrapping_mul(b),
            Binary::BitAnd => a & b,
            Binary::BitOr => a | b,
            Binary::BitXor => a ^ b,
            Binary::Shl => a.checked_shl(b as u32)?,
            Binary::Shr if signed => (a as i64).checked_shr(b as u32)? as u64,
            Binary::Shr => a.checked_shr(b as u32)?,
            Binary::Eq => (a == b) as u64,
            Binary::Ne => (a != b) as u64,
            _ => return None,
        })
    }

    fn execute(&mut self, stmts: &'m [Stmt]) -> Option<()> {
        for stmt in stmts {
            match stmt {
                Stmt::Let(var, e) | Stmt::Assign(var, e) => {
                    let word = self.value(e)?;
                    self.set(*var, word);
                }
                Stmt::Update(var, op, e) => {
                    let before = self.vars.iter().find(|(other, _)| other == var)?.1;
                    let word = self.value(e)?;
                    let word = held(e.ty, self.binary(*op, before, word, e.ty)?);
                    self.set(*var, word);
                }
                Stmt::If(condition, then, otherwise) => {
                    let holds = self.value(condition)? != 0;
                    self.execute(if holds { then } else { otherwise })?;
                }
                Stmt::For(var, low, high, step, body) => {
                    let (low, high) = (self.value(low)? as i64, self.value(high)? as i64);
                    for n in (low..high).step_by(*step as usize) {
                        self.set(*var, n as u64);
                        self.execute(body)?;
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }
}

impl Maker {
    /// What an expression of bits comes to on samples, after what is written so far, which sets variables alone.
    fn words(&self, e: &Expr) -> Option<[u64; SAMPLES]> {
        let mut words = [0; SAMPLES];
        for (number, word) in words.iter_mut().enumerate() {
            let random = Random::of(&[number as u64, 0xb175]);
            // Launches are small: places are too.
            let place = (number * number % 61) as u64;
            let mut sample = Words { maker: self, random, place, vars: vec![], drawn: vec![] };
            sample.execute(self.writing())?;
            *word = sample.value(e)?;
        }
        Some(words)
    }

    /// Whether a condition on bits goes both ways.
    pub fn bits_go_both_ways(&self, condition: &Expr) -> bool {
        self.words(condition).is_some_and(|words| {
            let held = words.iter().filter(|word| **word != 0).count();
            (2..=words.len() - 2).contains(&held)
        })
    }

    /// Whether an expression of bits is the same on all samples.
    pub fn bits_are_fixed(&self, e: &Expr) -> bool {
        self.words(e).is_some_and(|words| words.iter().all(|word| *word == words[0]))
    }
}
