//! Conditions of `#if` and `#elif`: integer expressions of the preprocessor.

use super::Preprocessor;
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
                    let name = line.get(at + parenthesis as usize).map(|t| t.kind);
                    at += if parenthesis { 3 } else { 1 };
                    matches!(name, Some(TokenKind::Name(name)) if self.is_defined(name))
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
        self.expand(&tokens, &mut vec![], &mut expanded);
        let kinds: Vec<TokenKind> = expanded
            .iter()
            .map(|token| match token.kind {
                TokenKind::Name(_) | TokenKind::Reserved("false") => self.number(0, token).kind,
                TokenKind::Reserved("true") => self.number(1, token).kind,
                kind => kind,
            })
            .collect();
        let mut reader = Reader { tokens: &kinds, at: 0 };
        match reader.conditional(0) {
            Some(value) if reader.at == kinds.len() => value != 0,
            _ => {
                self.fail(word, "this '#if' condition is not supported", Some("compare integers and 'defined(NAME)'"));
                false
            }
        }
    }

    fn number(&mut self, value: u64, token: &Token) -> Token {
        let text = self.names.intern(if value == 0 { "0" } else { "1" });
        Token { kind: TokenKind::Int { value, scalar: bornite_ir::Scalar::I64, hex: false, text }, ..*token }
    }
}

struct Reader<'a> {
    tokens: &'a [TokenKind],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(TokenKind::Reserved(found)) if *found == token);
        self.at += found as usize;
        found
    }

    fn conditional(&mut self, depth: usize) -> Option<i64> {
        let condition = self.binary(0, depth)?;
        if !self.take("?") {
            return Some(condition);
        }
        let yes = self.conditional(depth + 1)?;
        if !self.take(":") {
            return None;
        }
        let no = self.conditional(depth + 1)?;
        Some(if condition != 0 { yes } else { no })
    }

    fn unary(&mut self, depth: usize) -> Option<i64> {
        if depth > MAX_DEPTH {
            return None;
        }
        let token = *self.tokens.get(self.at)?;
        self.at += 1;
        match token {
            TokenKind::Int { value, .. } => Some(value as i64),
            TokenKind::Reserved("!") => self.unary(depth + 1).map(|value| (value == 0) as i64),
            TokenKind::Reserved("-") => self.unary(depth + 1).map(i64::wrapping_neg),
            TokenKind::Reserved("+") => self.unary(depth + 1),
            TokenKind::Reserved("~") => self.unary(depth + 1).map(|value| !value),
            TokenKind::Reserved("(") => {
                let value = self.conditional(depth + 1)?;
                self.take(")").then_some(value)
            }
            _ => None,
        }
    }

    fn binary(&mut self, min_level: u8, depth: usize) -> Option<i64> {
        let mut value = self.unary(depth)?;
        while let Some(TokenKind::Reserved(token)) = self.tokens.get(self.at) {
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
            let right = self.binary(level, depth + 1)?;
            value = match *token {
                "||" => (value != 0 || right != 0) as i64,
                "&&" => (value != 0 && right != 0) as i64,
                "|" => value | right,
                "^" => value ^ right,
                "&" => value & right,
                "==" => (value == right) as i64,
                "!=" => (value != right) as i64,
                "<" => (value < right) as i64,
                "<=" => (value <= right) as i64,
                ">" => (value > right) as i64,
                ">=" => (value >= right) as i64,
                "<<" => value.checked_shl(right.try_into().unwrap_or(u32::MAX)).unwrap_or(0),
                ">>" => value.checked_shr(right.try_into().unwrap_or(u32::MAX)).unwrap_or(0),
                "+" => value.wrapping_add(right),
                "-" => value.wrapping_sub(right),
                "*" => value.wrapping_mul(right),
                "/" => value.checked_div(right).unwrap_or(0),
                _ => value.checked_rem(right).unwrap_or(0),
            };
        }
        Some(value)
    }
}
