//! Reads the text form back. Whatever `text.rs` prints parses to a kernel that prints the same.

use std::collections::HashMap;
use std::fmt;

use crate::{
    Access, Args, Atomic, Axis, Builtin, Expr, ExprId, Kernel, Launch, Local, LocalId, Op, Param, ParamId, Scalar,
    Shared, SharedId, Shuffle, Stmt, VERSION, Value, View, Vote, verify,
};

/// Why a text is not a kernel, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What was expected or is wrong.
    pub what: String,
    /// The text of the line.
    pub source_line: String,
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { line, column, what, source_line } = self;
        writeln!(f, "line {line}, column {column}: {what}")?;
        writeln!(f, "{line:4} | {source_line}")?;
        write!(f, "     | {}^", " ".repeat(column - 1))
    }
}

type Result<T> = std::result::Result<T, ParseError>;

/// Blocks within blocks; more are refused, so that no text overflows the stack.
const MAX_DEPTH: usize = 64;

impl std::str::FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Kernel> {
        let mut p = Parser {
            lines: text.lines().collect(),
            line: 0,
            at: 0,
            kernel: empty(),
            evaluated: vec![],
            free: HashMap::new(),
        };
        p.reserve_numbers();
        p.header()?;
        p.body()
    }
}

fn empty() -> Kernel {
    Kernel {
        name: String::new(),
        launch: Launch::ParallelFor { count: 0 },
        index: Scalar::I32,
        params: vec![],
        shared: vec![],
        locals: vec![],
        exprs: vec![],
        types: vec![],
        body: vec![],
    }
}

struct Parser<'t> {
    lines: Vec<&'t str>,
    /// The line and byte being looked at.
    line: usize,
    at: usize,
    kernel: Kernel,
    /// For each number that the text may use, whether a `Let` has it and whether that was reached.
    evaluated: Vec<Numbered>,
    /// Constants and places, which have no number in the text: they follow all that have.
    free: HashMap<Expr, ExprId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbered {
    Never,
    Later,
    Done,
}

impl<'t> Parser<'t> {
    fn fail<T>(&self, what: impl Into<String>) -> Result<T> {
        let source_line = self.lines.get(self.line).copied().unwrap_or_default();
        let column = source_line.get(..self.at).map_or(1, |before| before.chars().count() + 1);
        Err(ParseError { line: self.line + 1, column, what: what.into(), source_line: source_line.into() })
    }

    fn rest(&self) -> &'t str {
        self.lines.get(self.line).and_then(|line| line.get(self.at..)).unwrap_or_default()
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Goes on to the next line that is not empty.
    fn next_line(&mut self) -> Result<()> {
        self.space();
        if !self.rest().is_empty() {
            return self.fail("expected the end of the line");
        }
        (self.line, self.at) = (self.line + 1, 0);
        self.skip_empty_lines();
        Ok(())
    }

    fn skip_empty_lines(&mut self) {
        while self.lines.get(self.line).is_some_and(|line| line.trim().is_empty()) {
            self.line += 1;
        }
        self.space();
    }

    /// Takes `token` if it comes next; words end where letters, digits and `_` do.
    fn take(&mut self, token: &str) -> bool {
        self.space();
        let Some(after) = self.rest().strip_prefix(token) else { return false };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if token.ends_with(word) && after.starts_with(word) {
            return false;
        }
        self.at += token.len();
        true
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { self.fail(format!("expected '{token}'")) }
    }

    /// Letters, digits and `_`.
    fn word(&mut self, what: &str) -> Result<&'t str> {
        self.space();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if len == 0 {
            return self.fail(format!("expected {what}"));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let start = self.at;
        let word = self.word(what)?;
        word.parse().or_else(|_| {
            self.at = start;
            self.space();
            self.fail(format!("expected {what}"))
        })
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let start = self.at;
        let word = self.word("a type")?;
        match Scalar::ALL.into_iter().find(|s| s.name() == word) {
            Some(scalar) => Ok(scalar),
            None => {
                self.at = start;
                self.space();
                let names: Vec<&str> = Scalar::ALL.iter().map(|s| s.name()).collect();
                self.fail(format!("expected a type: {}", names.join(", ")))
            }
        }
    }

    fn triple(&mut self) -> Result<[u32; 3]> {
        self.expect("[")?;
        let mut numbers = [0; 3];
        for (n, number) in numbers.iter_mut().enumerate() {
            if n > 0 {
                self.expect(",")?;
            }
            *number = self.number("a number")?;
        }
        self.expect("]")?;
        Ok(numbers)
    }

    fn header(&mut self) -> Result<()> {
        self.skip_empty_lines();
        self.expect("bornite-ir")?;
        let version: u32 = self.number("a version")?;
        if version > VERSION {
            return self
                .fail(format!("the text is of version {version}, this program reads up to {VERSION}: update it"));
        }
        self.next_line()?;
        self.expect("kernel")?;
        self.kernel.name = self.word("a name")?.into();
        self.kernel.launch = if self.take("parallel_for") {
            Launch::ParallelFor { count: self.number("a number")? }
        } else {
            self.expect("grid")?;
            let grid = self.triple()?;
            self.expect("block")?;
            Launch::Blocks { grid, block: self.triple()? }
        };
        self.expect("index")?;
        self.kernel.index = self.scalar()?;
        self.next_line()?;
        while !self.take("{") {
            if self.take("param") {
                let name = self.word("a name")?.into();
                self.expect(":")?;
                let access = match self.word("read, write or update")? {
                    "read" => Access::Read,
                    "write" => Access::Write,
                    "update" => Access::ReadWrite,
                    _ => return self.fail("expected read, write or update"),
                };
                let (scalar, len) = self.array()?;
                self.kernel.params.push(Param { name, scalar, len, access });
            } else if self.take("shared") {
                let name = self.word("a name")?.into();
                self.expect(":")?;
                let (scalar, len) = self.array()?;
                self.kernel.shared.push(Shared { name, scalar, len });
            } else {
                self.expect("var")?;
                self.expect("$")?;
                let n: usize = self.number("the variable's number")?;
                if n != self.kernel.locals.len() {
                    return self.fail(format!("expected variable ${}", self.kernel.locals.len()));
                }
                let name = self.word("a name")?.into();
                self.expect(":")?;
                let scalar = self.scalar()?;
                self.expect("=")?;
                let init = self.literal()?;
                if init.scalar() != scalar {
                    return self.fail(format!("expected a value of {scalar}"));
                }
                self.kernel.locals.push(Local { name, init });
            }
            self.next_line()?;
        }
        self.next_line()
    }

    fn array(&mut self) -> Result<(Scalar, u64)> {
        let scalar = self.scalar()?;
        self.expect("[")?;
        let len = self.number("a number of elements")?;
        self.expect("]")?;
        Ok((scalar, len))
    }

    fn body(mut self) -> Result<Kernel> {
        self.kernel.body = self.block(0)?;
        self.expect("}")?;
        self.space();
        if !self.rest().is_empty()
            || self.lines[(self.line + 1).min(self.lines.len())..].iter().any(|l| !l.trim().is_empty())
        {
            return self.fail("expected nothing after the kernel");
        }
        if let Err(error) = verify(&self.kernel) {
            (self.line, self.at) = (0, 0);
            return self.fail(error.to_string());
        }
        Ok(self.kernel)
    }

    /// Statements up to, not including, the closing brace.
    fn block(&mut self, depth: usize) -> Result<Vec<Stmt>> {
        if depth > MAX_DEPTH {
            return self.fail(format!("blocks are nested more than {MAX_DEPTH} deep"));
        }
        let mut block = vec![];
        while !self.rest().starts_with('}') {
            if self.line >= self.lines.len() {
                return self.fail("expected '}'");
            }
            let stmt = self.statement(depth)?;
            block.push(stmt);
            self.next_line()?;
        }
        Ok(block)
    }

    /// An indented block after an opening brace; leaves the cursor behind the closing one.
    fn nested(&mut self, depth: usize) -> Result<Vec<Stmt>> {
        self.expect("{")?;
        self.next_line()?;
        let block = self.block(depth + 1)?;
        self.expect("}")?;
        Ok(block)
    }

    fn statement(&mut self, depth: usize) -> Result<Stmt> {
        for (word, stmt) in [
            ("break", Stmt::Break),
            ("continue", Stmt::Continue),
            ("return", Stmt::Return),
            ("barrier", Stmt::Barrier),
            ("warp_barrier", Stmt::WarpBarrier),
            ("fence", Stmt::Fence),
        ] {
            if self.take(word) {
                return Ok(stmt);
            }
        }
        if self.take("%") {
            let id = self.expr_number()?;
            if std::mem::replace(&mut self.evaluated[id.0 as usize], Numbered::Done) == Numbered::Done {
                return self.fail(format!("%{} is evaluated twice", id.0));
            }
            self.expect(":")?;
            let scalar = self.scalar()?;
            self.expect("=")?;
            let expr = self.right()?;
            self.kernel.exprs[id.0 as usize] = expr;
            self.kernel.types[id.0 as usize] = scalar;
            return Ok(Stmt::Let(id));
        }
        if self.take("$") {
            let local = LocalId(self.number("the variable's number")?);
            self.expect("=")?;
            return Ok(Stmt::Assign(local, self.operand()?));
        }
        if self.take("for") {
            self.expect("$")?;
            let counter = LocalId(self.number("the variable's number")?);
            self.expect("below")?;
            let end = self.operand()?;
            return Ok(Stmt::For { counter, end, body: self.nested(depth)? });
        }
        if self.take("loop") {
            return Ok(Stmt::Loop { body: self.nested(depth)? });
        }
        if self.take("if") {
            let condition = self.operand()?;
            let then = self.nested(depth)?;
            let otherwise = if self.take("else") { self.nested(depth)? } else { vec![] };
            return Ok(Stmt::If { condition, then, otherwise });
        }
        let (view, index) = self.element()?;
        self.expect("=")?;
        Ok(Stmt::Store { view, index, value: self.operand()? })
    }

    /// Makes room for every expression that a `Let` numbers. Numbers beyond the text's length are left to fail later.
    fn reserve_numbers(&mut self) {
        let longest: usize = self.lines.iter().map(|line| line.len()).sum();
        for line in &self.lines {
            let number = line.trim_start().strip_prefix('%').and_then(|rest| rest.split_once(':'));
            let Some(n) = number.and_then(|(n, _)| n.parse::<usize>().ok()).filter(|&n| n <= longest) else { continue };
            if n >= self.evaluated.len() {
                self.evaluated.resize(n + 1, Numbered::Never);
            }
            self.evaluated[n] = Numbered::Later;
        }
        let unused = Value::int(Scalar::Bool, 0);
        self.kernel.exprs = vec![Expr::Const(unused); self.evaluated.len()];
        self.kernel.types = vec![Scalar::Bool; self.evaluated.len()];
    }

    /// The number after a `%`.
    fn expr_number(&mut self) -> Result<ExprId> {
        let id: u32 = self.number("the expression's number")?;
        match self.evaluated.get(id as usize) {
            Some(Numbered::Later | Numbered::Done) => Ok(ExprId(id)),
            _ => self.fail(format!("%{id} is never evaluated")),
        }
    }

    /// A constant or a place.
    fn free(&mut self, expr: Expr, scalar: Scalar) -> ExprId {
        let Kernel { exprs, types, .. } = &mut self.kernel;
        *self.free.entry(expr).or_insert_with(|| {
            exprs.push(expr);
            types.push(scalar);
            ExprId(exprs.len() as u32 - 1)
        })
    }

    fn operand(&mut self) -> Result<ExprId> {
        if self.take("%") {
            return self.expr_number();
        }
        if self.take("index") {
            return Ok(self.free(Expr::Index, self.kernel.index));
        }
        for (name, make) in [
            ("thread", Builtin::Thread as fn(Axis) -> Builtin),
            ("block", Builtin::Block),
            ("block_size", Builtin::BlockSize),
            ("grid_size", Builtin::GridSize),
        ] {
            if self.take(name) {
                self.expect(".")?;
                let axis = match self.word("x, y or z")? {
                    "x" => Axis::X,
                    "y" => Axis::Y,
                    "z" => Axis::Z,
                    _ => return self.fail("expected x, y or z"),
                };
                return Ok(self.free(Expr::Builtin(make(axis)), self.kernel.index));
            }
        }
        let value = self.literal()?;
        Ok(self.free(Expr::Const(value), value.scalar()))
    }

    /// A value with its type behind it: `1.5f32`, `-3i64`, `true`.
    fn literal(&mut self) -> Result<Value> {
        for (word, value) in [("true", 1), ("false", 0)] {
            if self.take(word) {
                return Ok(Value::int(Scalar::Bool, value));
            }
        }
        self.space();
        let rest = self.rest();
        let len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c))).unwrap_or(rest.len());
        let text = &rest[..len];
        // The longest type name that the text ends with, so that bf16 is not taken for f16.
        let scalar = (Scalar::ALL.into_iter()).filter(|s| text.ends_with(s.name())).max_by_key(|s| s.name().len());
        let Some(scalar) = scalar else { return self.fail("expected a value with its type, such as 1.5f32") };
        let digits = &text[..text.len() - scalar.name().len()];
        let value = match scalar {
            Scalar::U64 => digits.parse::<u64>().ok().map(|v| Value::from_bits(scalar, v)),
            Scalar::F32 => digits.parse::<f32>().ok().map(|v| Value::from_bits(scalar, v.to_bits() as u64)),
            _ if scalar.is_float() => digits.parse::<f64>().ok().map(|v| Value::from_f64(scalar, v)),
            _ => {
                let (low, high) = scalar.int_range();
                let fits = |v: &i64| (low..=high).contains(&(*v as i128));
                digits.parse::<i64>().ok().filter(fits).map(|v| Value::int(scalar, v))
            }
        };
        match value {
            Some(value) => {
                self.at += len;
                Ok(value)
            }
            None => self.fail(format!("expected a value of {scalar}")),
        }
    }

    /// `view[index]`.
    fn element(&mut self) -> Result<(View, ExprId)> {
        let start = self.at;
        let name = self.word("a statement")?;
        let param = self.kernel.params.iter().position(|p| p.name == name).map(|n| View::Param(ParamId(n as u32)));
        let shared = self.kernel.shared.iter().position(|s| s.name == name).map(|n| View::Shared(SharedId(n as u32)));
        let Some(view) = param.or(shared) else {
            self.at = start;
            self.space();
            return self.fail(format!("there is no view '{name}'"));
        };
        self.expect("[")?;
        let index = self.operand()?;
        self.expect("]")?;
        Ok((view, index))
    }

    /// The right-hand side of a `Let`.
    fn right(&mut self) -> Result<Expr> {
        if self.take("$") {
            return Ok(Expr::Read(LocalId(self.number("the variable's number")?)));
        }
        self.space();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        if after.starts_with('[') {
            let (view, index) = self.element()?;
            return Ok(Expr::Load { view, index });
        }
        if after.starts_with('(') {
            let Some(op) = Op::by_name(word) else { return self.fail(format!("there is no operation '{word}'")) };
            self.at += len;
            self.expect("(")?;
            let mut args = vec![self.operand()?];
            while self.take(",") {
                args.push(self.operand()?);
            }
            self.expect(")")?;
            return match Args::new(&args) {
                Some(args) => Ok(Expr::Op(op, args)),
                None => self.fail(format!("{word} takes {} arguments", op.arity())),
            };
        }
        self.at += len;
        match word {
            "cast" => Ok(Expr::Cast(self.scalar()?, self.operand()?)),
            "bitcast" => Ok(Expr::Bitcast(self.scalar()?, self.operand()?)),
            "atomic" => {
                if self.take("compare_exchange") {
                    let (view, index) = self.element()?;
                    self.expect(",")?;
                    let expected = self.operand()?;
                    self.expect(",")?;
                    return Ok(Expr::CompareExchange { view, index, expected, value: self.operand()? });
                }
                let Some(atomic) = Atomic::ALL.into_iter().find(|a| self.take(a.name())) else {
                    return self.fail("expected an atomic update: add, sub, min, max, and, or, xor, exchange");
                };
                let (view, index) = self.element()?;
                self.expect(",")?;
                Ok(Expr::Atomic { atomic, view, index, value: self.operand()? })
            }
            "shuffle" => {
                let all = [Shuffle::Index, Shuffle::Up, Shuffle::Down, Shuffle::Xor];
                let Some(shuffle) = all.into_iter().find(|s| self.take(s.name())) else {
                    return self.fail("expected index, up, down or xor");
                };
                let value = self.operand()?;
                self.expect(",")?;
                Ok(Expr::Shuffle { shuffle, value, lane: self.operand()? })
            }
            "vote" => {
                let Some(vote) = [Vote::Any, Vote::All, Vote::Ballot].into_iter().find(|v| self.take(v.name())) else {
                    return self.fail("expected any, all or ballot");
                };
                Ok(Expr::Vote { vote, value: self.operand()? })
            }
            _ => {
                self.at -= len;
                self.fail("expected an operation, a load or a variable")
            }
        }
    }
}
