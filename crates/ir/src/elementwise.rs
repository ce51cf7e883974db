//! Elementwise kernels from an expression such as `gelu(x) * y + 1`.
//!
//! Names are inputs, in order of first appearance; numbers have the kernel's element type. Ops and
//! [formulas](crate::FORMULAS) are functions; `+ - * / %`, comparisons and `c ? a : b` have C's
//! meaning and precedence.

use std::fmt;

use crate::arg::counted;
use crate::{Access, Builder, Emit, EmitBits, ExprId, Kernel, Op, Scalar, Type, Value, formula};

/// Error in an expression, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementwiseError {
    /// The expression.
    pub text: String,
    /// Byte offset of the error.
    pub offset: usize,
    /// Description of the error.
    pub message: String,
}

impl std::error::Error for ElementwiseError {}

impl fmt::Display for ElementwiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text.get(..self.offset).map_or(0, |before| before.chars().count());
        write!(f, "{}\n  {}\n  {}^", self.message, self.text, " ".repeat(column))
    }
}

/// Maximum nesting of parentheses, so that parsing cannot overflow the stack.
const MAX_DEPTH: usize = 64;
/// Maximum number of inputs.
const MAX_INPUTS: usize = 32;

/// Builds the kernel `out[i] = text` over `n` elements of type `scalar`.
pub fn elementwise(name: &str, text: &str, scalar: Scalar, n: u64) -> Result<Kernel, ElementwiseError> {
    let index = if n > i32::MAX as u64 { Scalar::I64 } else { Scalar::I32 };
    let mut b = Builder::new(name, n, index);
    let index = b.index();
    let mut p = Parser { text, at: 0, depth: 0, scalar, b, n, index, inputs: vec![] };
    let value = p.ternary()?;
    p.skip_whitespace();
    if p.at < text.len() {
        return p.fail("expected an operator or the end of the expression");
    }
    let ty = p.b.type_of(value);
    let out = p.b.param("out", ty, n, Access::Write);
    p.b.store(out, index, value);
    let error = |message: String| ElementwiseError { text: text.into(), offset: 0, message };
    p.b.finish().map_err(|e| error(e.message))
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    scalar: Scalar,
    b: Builder,
    n: u64,
    index: ExprId,
    inputs: Vec<(&'t str, ExprId)>,
}

type Parsed<T = ExprId> = Result<T, ElementwiseError>;

impl<'t> Parser<'t> {
    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(ElementwiseError { text: self.text.into(), offset: self.at, message: message.into() })
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_whitespace();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return self.fail(format!("expression is nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Applies an op after checking its operand types; errors point after the operands.
    fn apply(&mut self, op: Op, args: &[ExprId]) -> Parsed {
        let types: Vec<Scalar> = args.iter().map(|arg| self.b.scalar(arg)).collect();
        if let Err(expected) = op.row().rule.result(&types) {
            return self.fail(format!("{} expects {expected}", op.row().name));
        }
        Ok(self.b.op(op, &args.iter().collect::<Vec<_>>()))
    }

    fn ternary(&mut self) -> Parsed {
        let condition = self.comparison()?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.nested(Self::ternary)?;
        if !self.take(":") {
            return self.fail("expected ':'");
        }
        let no = self.nested(Self::ternary)?;
        self.apply(Op::Select, &[condition, yes, no])
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let signs = [("<=", Op::Le), (">=", Op::Ge), ("==", Op::Eq), ("!=", Op::Ne), ("<", Op::Lt), (">", Op::Gt)];
        match signs.into_iter().find(|(sign, _)| self.take(sign)) {
            Some((_, op)) => {
                let right = self.sum()?;
                self.apply(op, &[left, right])
            }
            None => Ok(left),
        }
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        while let Some((_, op)) = [("+", Op::Add), ("-", Op::Sub)].into_iter().find(|(sign, _)| self.take(sign)) {
            let right = self.product()?;
            left = self.apply(op, &[left, right])?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.unary()?;
        let rest = if self.scalar.is_float() { Op::Fmod } else { Op::Rem };
        let signs = [("*", Op::Mul), ("/", Op::Div), ("%", rest)];
        while let Some((_, op)) = signs.into_iter().find(|(sign, _)| self.take(sign)) {
            let right = self.unary()?;
            left = self.apply(op, &[left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        if self.take("-") {
            let value = self.nested(Self::unary)?;
            return self.apply(Op::Neg, &[value]);
        }
        self.primary()
    }

    fn primary(&mut self) -> Parsed {
        if self.take("(") {
            let value = self.nested(Self::ternary)?;
            return if self.take(")") { Ok(value) } else { self.fail("expected ')'") };
        }
        self.skip_whitespace();
        let rest = &self.text[self.at..];
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number(rest);
        }
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if len == 0 {
            return self.fail("expected a number, a name, a function or '('");
        }
        let name = &rest[..len];
        let start = self.at;
        self.at += len;
        if self.take("(") { self.call(name, start) } else { self.input(name, start) }
    }

    fn number(&mut self, rest: &str) -> Parsed {
        let mut len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if let Some(exponent) = rest[len..].strip_prefix(['e', 'E']) {
            let digits = exponent.trim_start_matches(['+', '-']);
            let count = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            if count > 0 {
                len += 1 + exponent.len() - digits.len() + count;
            }
        }
        match rest[..len].parse::<f64>() {
            Ok(number) => {
                self.at += len;
                Ok(self.b.constant(Value::from_f64(self.scalar, number)))
            }
            Err(_) => self.fail("expected a number"),
        }
    }

    fn input(&mut self, name: &'t str, start: usize) -> Parsed {
        if name == "pi" {
            return Ok(self.b.constant(Value::from_f64(self.scalar, std::f64::consts::PI)));
        }
        if let Some((_, value)) = self.inputs.iter().find(|(known, _)| *known == name) {
            return Ok(*value);
        }
        if name == "out" || self.inputs.len() == MAX_INPUTS {
            self.at = start;
            return self.fail(match name {
                "out" => "'out' cannot be an input: it is the name of the result".into(),
                _ => format!("an expression has at most {MAX_INPUTS} inputs; '{name}' is one more"),
            });
        }
        let view = self.b.param(name, self.scalar, self.n, Access::Read);
        let value = self.b.load(view, self.index);
        self.inputs.push((name, value));
        Ok(value)
    }

    /// Parses a call's arguments and applies the function; the cursor is after the opening
    /// parenthesis.
    fn call(&mut self, name: &str, start: usize) -> Parsed {
        let mut args = vec![];
        while !self.take(")") {
            if !args.is_empty() && !self.take(",") {
                return self.fail("expected ',' or ')'");
            }
            args.push(self.nested(Self::ternary)?);
        }
        let wrong_count = |takes: usize| format!("'{name}' takes {}, found {}", counted(takes, "argument"), args.len());
        if let Some(op) = Op::by_name(name) {
            if args.len() != op.arity() {
                self.at = start;
                return self.fail(wrong_count(op.arity()));
            }
            return self.apply(op, &args);
        }
        if crate::FORMULAS.iter().any(|formula| formula.name == name) {
            let [x] = args[..] else {
                self.at = start;
                return self.fail(wrong_count(1));
            };
            if !self.b.scalar(&x).is_float() || self.b.type_of(x) != Type::Scalar(self.scalar) {
                return self.fail(format!("'{name}' expects floats"));
            }
            if let Some(value) = formula(&mut self.b, name, &x) {
                return Ok(value);
            }
        }
        self.at = start;
        let near = Op::ALL.iter().map(|op| op.row().name).chain(crate::FORMULAS.iter().map(|f| f.name));
        let near =
            near.min_by_key(|known| (edit_distance(known, name), known.len().abs_diff(name.len()))).unwrap_or_default();
        self.fail(format!("unknown function '{name}'; did you mean '{near}'?"))
    }
}

/// Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(40).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + (x != *y) as usize).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}
