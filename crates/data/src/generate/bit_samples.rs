//! Evaluation of bit kernels on samples: integers in the width of their types, statements with
//! loops and branches.

use super::maker::Maker;
use crate::Random;
use crate::program::{Binary, Expr, Fill, Kind, Scalar, Stmt, Ty, Unary, Var};

/// Number of samples.
const SAMPLES: usize = 16;

/// One sample; integers are represented by their bits.
struct Words<'m> {
    maker: &'m Maker,
    random: Random,
    index: u64,
    vars: Vec<(Var, u64)>,
    drawn: Vec<(&'m Expr, u64)>,
}

/// Truncates or sign-extends a word to its type.
fn to_type(ty: Ty, word: u64) -> u64 {
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
            // A variable that is not set is the instance's index.
            Kind::Var(var) => self.vars.iter().find(|(other, _)| other == var).map_or(self.index, |(_, word)| *word),
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
        Some(to_type(e.ty, word))
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
                    let word = to_type(e.ty, self.binary(*op, before, word, e.ty)?);
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
    /// Values of a bit expression on samples, after the statements so far, which only assign
    /// variables.
    fn words(&self, e: &Expr) -> Option<[u64; SAMPLES]> {
        let mut words = [0; SAMPLES];
        for (number, word) in words.iter_mut().enumerate() {
            let random = Random::of(&[number as u64, 0xb175]);
            // Indices are small, like launches.
            let index = (number * number % 61) as u64;
            let mut sample = Words { maker: self, random, index, vars: vec![], drawn: vec![] };
            sample.execute(self.writing())?;
            *word = sample.value(e)?;
        }
        Some(words)
    }

    /// True if a condition on bits has both outcomes on samples.
    pub fn bits_have_both_outcomes(&self, condition: &Expr) -> bool {
        self.words(condition).is_some_and(|words| {
            let true_count = words.iter().filter(|word| **word != 0).count();
            (2..=words.len() - 2).contains(&true_count)
        })
    }

    /// True if a bit expression is the same on all samples.
    pub fn bits_are_constant(&self, e: &Expr) -> bool {
        self.words(e).is_some_and(|words| words.iter().all(|word| *word == words[0]))
    }
}
