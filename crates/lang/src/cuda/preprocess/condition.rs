//! Conditions of `#if` and `#elif`: integer expressions of the preprocessor.

use super::{Preprocessor, is_keyword};
use bornite_ir::Scalar;

use crate::cuda::lex::{Token, TokenKind};

/// Macros of the compiler: those of nvcc for device code of compute capability 9.0.
pub const PREDEFINED: &[&str] = &[
    "__CUDACC__ 1",
    "__NVCC__ 1",
    "__CUDA_ARCH__ 900",
    "__CUDACC_VER_MAJOR__ 12",
    "__CUDACC_VER_MINOR__ 4",
    "CUDART_VERSION 12040",
    "CUDA_VERSION 12040",
    "__cplusplus 201703L",
    "__linux__ 1",
    "__x86_64__ 1",
    "__GNUC__ 11",
    "__GNUC_MINOR__ 0",
    "UINT64_C(c) c##ULL",
    "INT64_C(c) c##LL",
    "UINT32_C(c) c##U",
    "INT32_C(c) c",
];

/// Maximum nesting of a condition.
const MAX_DEPTH: usize = 100;

impl Preprocessor<'_> {
    /// Evaluates the condition of an `#if`; undefined names are 0.
    pub(super) fn condition(&mut self, word: &Token, line: &[Token]) -> bool {
        let mut tokens = vec![];
        let mut at = 0;
        while at < line.len() {
            let token = line[at];
            at += 1;
            let TokenKind::Name(symbol) = token.kind else {
                tokens.push(token);
                continue;
            };
            let holds = match self.names.text(symbol) {
                "defined" => {
                    let parenthesis = line.get(at).is_some_and(|t| t.kind == TokenKind::Reserved("("));
                    let name = line.get(at + parenthesis as usize).copied();
                    let closes = line.get(at + 2).is_some_and(|t| t.kind == TokenKind::Reserved(")"));
                    at += if parenthesis { 3 } else { 1 };
                    match name.and_then(|name| self.interned_word(&name)).filter(|_| closes || !parenthesis) {
                        Some(name) => self.is_defined(name),
                        None => {
                            self.fail(word, "'defined' without a name", Some("write 'defined(NAME)'"));
                            return false;
                        }
                    }
                }
                "__has_include" => {
                    let close = line[at..].iter().position(|t| t.kind == TokenKind::Reserved(")"));
                    let Some(close) = close else { break };
                    let found = self.has_include(&line[(at + 1).min(at + close)..at + close]);
                    at += close + 1;
                    found
                }
                _ => {
                    tokens.push(token);
                    continue;
                }
            };
            tokens.push(self.number(holds as u64, &token));
        }
        let mut expanded = vec![];
        self.expand(&tokens, &[], &mut expanded);
        let tokens: Vec<(TokenKind, bool)> = expanded
            .iter()
            .map(|token| match token.kind {
                TokenKind::Reserved("true") => (self.number(1, token).kind, false),
                TokenKind::Name(_) => (self.number(0, token).kind, false),
                TokenKind::Reserved(word) if is_keyword(word) => (self.number(0, token).kind, false),
                TokenKind::Int { text, .. } => (token.kind, self.names.text(text).contains(['u', 'U'])),
                kind => (kind, false),
            })
            .collect();
        let mut reader = Reader { tokens: &tokens, at: 0, divides_by_zero: false };
        match reader.conditional(0, true) {
            Some(_) if reader.divides_by_zero => self.fail(word, "division by zero in a '#if' condition", None),
            Some(value) if reader.at == tokens.len() => return value.bits != 0,
            _ => {
                self.fail(word, "this '#if' condition is not supported", Some("compare integers and 'defined(NAME)'"));
            }
        }
        false
    }

    fn number(&mut self, value: u64, token: &Token) -> Token {
        let text = self.names.intern(if value == 0 { "0" } else { "1" });
        Token { kind: TokenKind::Int { value, scalar: Scalar::I64, hex: false, text }, ..*token }
    }
}

/// An integer of 64 bits: `intmax_t` or `uintmax_t`.
#[derive(Clone, Copy)]
struct Number {
    bits: u64,
    unsigned: bool,
}

impl Number {
    fn signed(value: i64) -> Number {
        Number { bits: value as u64, unsigned: false }
    }
}

struct Reader<'a> {
    /// Tokens; for a number, whether it has the suffix `u`.
    tokens: &'a [(TokenKind, bool)],
    at: usize,
    divides_by_zero: bool,
}

/// Operands that are not evaluated may divide by zero: the parameter `used` is false for them.
impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some((TokenKind::Reserved(found), _)) if *found == token);
        self.at += found as usize;
        found
    }

    fn conditional(&mut self, depth: usize, used: bool) -> Option<Number> {
        let condition = self.binary(0, depth, used)?;
        if !self.take("?") {
            return Some(condition);
        }
        let holds = condition.bits != 0;
        let yes = self.conditional(depth + 1, used && holds)?;
        if !self.take(":") {
            return None;
        }
        let no = self.conditional(depth + 1, used && !holds)?;
        Some(Number { bits: if holds { yes.bits } else { no.bits }, unsigned: yes.unsigned || no.unsigned })
    }

    fn unary(&mut self, depth: usize, used: bool) -> Option<Number> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (token, is_suffixed) = *self.tokens.get(self.at)?;
        self.at += 1;
        match token {
            // A character is signed.
            TokenKind::Int { value, scalar: Scalar::I8, .. } => Some(Number::signed(value as i8 as i64)),
            TokenKind::Int { value, .. } => {
                Some(Number { bits: value, unsigned: is_suffixed || value > i64::MAX as u64 })
            }
            TokenKind::Reserved("!") => self.unary(depth + 1, used).map(|a| Number::signed((a.bits == 0) as i64)),
            TokenKind::Reserved("-") => {
                self.unary(depth + 1, used).map(|a| Number { bits: a.bits.wrapping_neg(), ..a })
            }
            TokenKind::Reserved("+") => self.unary(depth + 1, used),
            TokenKind::Reserved("~") => self.unary(depth + 1, used).map(|a| Number { bits: !a.bits, ..a }),
            TokenKind::Reserved("(") => {
                let value = self.conditional(depth + 1, used)?;
                self.take(")").then_some(value)
            }
            _ => None,
        }
    }

    fn binary(&mut self, min_level: u8, depth: usize, used: bool) -> Option<Number> {
        let mut left = self.unary(depth, used)?;
        while let Some((TokenKind::Reserved(token), _)) = self.tokens.get(self.at) {
            let level = match *token {
                "||" => 1,
                "&&" => 2,
                "|" => 3,
                "^" => 4,
                "&" => 5,
                "==" | "!=" => 6,
                "<" | "<=" | ">" | ">=" => 7,
                "<<" | ">>" => 8,
                "+" | "-" => 9,
                "*" | "/" | "%" => 10,
                _ => break,
            };
            if level <= min_level {
                break;
            }
            self.at += 1;
            let used = match *token {
                "||" => used && left.bits == 0,
                "&&" => used && left.bits != 0,
                _ => used,
            };
            let right = self.binary(level, depth + 1, used)?;
            self.divides_by_zero |= used && matches!(*token, "/" | "%") && right.bits == 0;
            left = combined(token, left, right);
        }
        Some(left)
    }
}

/// Result of a binary operator.
fn combined(operator: &str, left: Number, right: Number) -> Number {
    let unsigned = left.unsigned || right.unsigned;
    let (a, b) = (left.bits, right.bits);
    let (signed_a, signed_b) = (a as i64, b as i64);
    let less = |a: u64, b: u64| if unsigned { a < b } else { (a as i64) < b as i64 };
    let truth = |holds: bool| Number::signed(holds as i64);
    let bits = match operator {
        "||" => return truth(a != 0 || b != 0),
        "&&" => return truth(a != 0 && b != 0),
        "==" => return truth(a == b),
        "!=" => return truth(a != b),
        "<" => return truth(less(a, b)),
        "<=" => return truth(!less(b, a)),
        ">" => return truth(less(b, a)),
        ">=" => return truth(!less(a, b)),
        "<<" | ">>" => return shifted(left, right, operator == "<<"),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        _ if b == 0 => 0,
        "/" if unsigned => a / b,
        "/" => signed_a.wrapping_div(signed_b) as u64,
        _ if unsigned => a % b,
        _ => signed_a.wrapping_rem(signed_b) as u64,
    };
    Number { bits, unsigned }
}

/// A shift; by a negative count, in the other direction.
fn shifted(value: Number, by: Number, to_left: bool) -> Number {
    let is_negative = !by.unsigned && (by.bits as i64) < 0;
    let count = if is_negative { by.bits.wrapping_neg() } else { by.bits };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let bits = match (to_left != is_negative, value.unsigned) {
        (true, _) => value.bits.checked_shl(count).unwrap_or(0),
        (false, true) => value.bits.checked_shr(count).unwrap_or(0),
        (false, false) => ((value.bits as i64) >> count.min(63)) as u64,
    };
    Number { bits, ..value }
}
