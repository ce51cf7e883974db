//! Parses the text form. Everything that `text.rs` prints parses to a kernel that prints the same
//! text.

mod cursor;
mod header;

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use crate::arg::counted;
use crate::{
    AlgebraOp, Args, Atomic, Axis, Builtin, Check, Code, Expr, ExprId, Extent, FunctionId, Kernel, LaunchMode, Local,
    LocalArrayId, LocalId, Op, ParamId, Scalar, Scope, SharedId, Shuffle, Stmt, TEXT_FORMAT_VERSION, Type, Value,
    ValueParam, View, Vote, verify,
};
pub use cursor::ParseError;
use cursor::{Cursor, Result};

/// Maximum nesting of blocks, so that parsing cannot overflow the stack.
const MAX_DEPTH: usize = 64;

impl std::str::FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Kernel> {
        let cursor = Cursor { lines: text.lines().collect(), line: 0, at: 0 };
        let kernel = Kernel {
            name: String::new(),
            launch: LaunchMode::ParallelFor { count: Extent::Const(0) },
            index: Scalar::I32,
            structs: vec![],
            functions: vec![],
            params: vec![],
            values: vec![],
            shared: vec![],
            local_arrays: vec![],
            code: Code::default(),
        };
        let mut p =
            Parser { cursor, kernel, arguments: vec![], code: Code::default(), lets: vec![], leaves: HashMap::new() };
        p.text()?;
        Ok(p.kernel)
    }
}

struct Parser<'t> {
    cursor: Cursor<'t>,
    kernel: Kernel,
    /// The code being parsed and the arguments it can name.
    code: Code,
    arguments: Vec<ValueParam>,
    /// For each expression number, whether a `Let` defines it and whether that `Let` has been
    /// parsed.
    lets: Vec<LetState>,
    /// Constants, arguments and built-in variables, which have no number in the text. They follow
    /// the numbered expressions.
    leaves: HashMap<Expr, ExprId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LetState {
    Absent,
    Pending,
    Evaluated,
}

impl<'t> Deref for Parser<'t> {
    type Target = Cursor<'t>;
    fn deref(&self) -> &Cursor<'t> {
        &self.cursor
    }
}

impl<'t> DerefMut for Parser<'t> {
    fn deref_mut(&mut self) -> &mut Cursor<'t> {
        &mut self.cursor
    }
}

impl Parser<'_> {
    fn text(&mut self) -> Result<()> {
        self.skip_empty_lines();
        self.expect("bornite-ir")?;
        let version: u32 = self.number("a version")?;
        if version > TEXT_FORMAT_VERSION {
            return self.fail(format!(
                "text format version {version} is not supported; this program reads up to {TEXT_FORMAT_VERSION}: update it"
            ));
        }
        self.next_line()?;
        while self.take("struct") {
            self.structure()?;
            self.next_line()?;
        }
        while self.take("function") {
            self.function()?;
            self.next_line()?;
        }
        self.expect("kernel")?;
        self.header()?;
        self.arguments = self.kernel.values.clone();
        self.kernel.code = self.code()?;
        self.skip_whitespace();
        let after = (self.line + 1).min(self.lines.len());
        if !self.rest().is_empty() || self.lines[after..].iter().any(|line| !line.trim().is_empty()) {
            return self.fail("expected the end of the text after the kernel");
        }
        if let Err(error) = verify(&self.kernel) {
            (self.cursor.line, self.cursor.at) = (0, 0);
            return self.fail(error.to_string());
        }
        Ok(())
    }

    /// Parses variables and a block of statements; leaves the cursor after the closing brace.
    fn code(&mut self) -> Result<Code> {
        self.code = Code::default();
        self.leaves.clear();
        while self.take("var") {
            self.expect("$")?;
            let n: usize = self.number("the variable's number")?;
            if n != self.code.locals.len() {
                return self.fail(format!("expected variable ${}", self.code.locals.len()));
            }
            let (name, ty) = self.typed_name()?;
            self.expect("=")?;
            let mut init = vec![];
            if self.take("{") {
                while init.is_empty() || self.take(",") {
                    init.push(self.literal()?);
                }
                self.expect("}")?;
            } else {
                init.push(self.literal()?);
            }
            let scalars: Vec<Scalar> = init.iter().map(|value: &Value| value.scalar()).collect();
            if scalars != ty.components(&self.kernel.structs) {
                return self.fail(format!("expected a value of {}", ty.name(&self.kernel.structs)));
            }
            self.code.locals.push(Local { name, ty, init });
            self.next_line()?;
        }
        self.reserve_numbers();
        self.expect("{")?;
        self.next_line()?;
        let body = self.block(0)?;
        self.expect("}")?;
        self.code.body = body;
        Ok(std::mem::take(&mut self.code))
    }

    /// Parses statements up to, but not including, the closing brace.
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

    /// Parses a block in braces; leaves the cursor after the closing one.
    fn nested(&mut self, depth: usize) -> Result<Vec<Stmt>> {
        self.expect("{")?;
        self.next_line()?;
        let block = self.block(depth + 1)?;
        self.expect("}")?;
        Ok(block)
    }

    fn statement(&mut self, depth: usize) -> Result<Stmt> {
        // A view may be named like a statement.
        let rest = self.rest();
        let word = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        if word > 0 && rest[word..].starts_with('[') {
            return self.store();
        }
        for (word, stmt) in [
            ("break", Stmt::Break),
            ("continue", Stmt::Continue),
            ("barrier", Stmt::Barrier),
            ("warp_barrier", Stmt::WarpBarrier),
        ] {
            if self.take(word) {
                return Ok(stmt);
            }
        }
        if self.take("return") {
            self.skip_whitespace();
            let value = if self.rest().is_empty() { None } else { Some(self.operand()?) };
            return Ok(Stmt::Return(value));
        }
        if self.take("fence") {
            let scope = Scope::ALL.into_iter().find(|scope| self.take(scope.name()));
            return Ok(Stmt::Fence(scope.unwrap_or(Scope::Device)));
        }
        if self.take("claim") {
            let message = self.quoted()?;
            self.expect(",")?;
            return Ok(Stmt::Check(Check::Assert { condition: self.operand()?, message }));
        }
        if self.take("within") {
            let array = self.quoted()?;
            self.expect(",")?;
            let index = self.operand()?;
            self.expect(",")?;
            let len = self.number("a length")?;
            return Ok(Stmt::Check(Check::InBounds { index, len, array }));
        }
        if self.take("declare") {
            let name = self.word("a local array")?;
            return match self.local_array(name) {
                Some(id) => Ok(Stmt::Declare(id)),
                None => self.fail(format!("there is no local array '{name}'")),
            };
        }
        if self.take("print") {
            let format = self.quoted()?;
            let mut args = vec![];
            while self.take(",") {
                args.push(self.operand()?);
            }
            return Ok(Stmt::Print { format, args });
        }
        if self.take("%") {
            let id = self.expr_number()?;
            if std::mem::replace(&mut self.lets[id.0 as usize], LetState::Evaluated) == LetState::Evaluated {
                return self.fail(format!("%{} is evaluated twice", id.0));
            }
            self.expect(":")?;
            let ty = self.ty()?;
            self.expect("=")?;
            let expr = self.let_value()?;
            self.code.exprs[id.0 as usize] = expr;
            self.code.types[id.0 as usize] = ty;
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
        self.store()
    }

    /// Parses a string in quotes.
    fn quoted(&mut self) -> Result<String> {
        self.expect("\"")?;
        let Some(len) = self.rest().find('"') else { return self.fail("expected '\"' at the end of the line") };
        let text = self.rest()[..len].to_owned();
        self.cursor.at += len + 1;
        Ok(text)
    }

    fn store(&mut self) -> Result<Stmt> {
        let (view, indices) = self.element()?;
        self.expect("=")?;
        Ok(Stmt::Store { view, indices, value: self.operand()? })
    }

    /// Reserves every expression that a `Let` of the following block numbers. Numbers greater than
    /// the block's length in bytes are not reserved and fail later.
    fn reserve_numbers(&mut self) {
        self.lets.clear();
        let (mut depth, mut bytes, mut numbers) = (0i64, 0, vec![]);
        for line in self.cursor.lines.get(self.cursor.line..).unwrap_or_default() {
            let line = line.trim();
            bytes += line.len();
            depth += line.ends_with('{') as i64 - line.starts_with('}') as i64;
            if depth <= 0 {
                break;
            }
            let number = line.strip_prefix('%').and_then(|rest| rest.split_once(':'));
            numbers.extend(number.and_then(|(n, _)| n.parse::<usize>().ok()));
        }
        for n in numbers.into_iter().filter(|&n| n <= bytes) {
            if n >= self.lets.len() {
                self.lets.resize(n + 1, LetState::Absent);
            }
            self.lets[n] = LetState::Pending;
        }
        let unused = Value::int(Scalar::Bool, 0);
        self.code.exprs = vec![Expr::Const(unused); self.lets.len()];
        self.code.types = vec![Scalar::Bool.into(); self.lets.len()];
    }

    /// Parses the number after a `%`.
    fn expr_number(&mut self) -> Result<ExprId> {
        let id: u32 = self.number("the expression's number")?;
        match self.lets.get(id as usize) {
            Some(LetState::Pending | LetState::Evaluated) => Ok(ExprId(id)),
            _ => self.fail(format!("%{id} is never evaluated")),
        }
    }

    /// Adds a constant, argument or built-in variable.
    fn leaf(&mut self, expr: Expr, ty: impl Into<Type>) -> ExprId {
        let Code { exprs, types, .. } = &mut self.code;
        *self.leaves.entry(expr).or_insert_with_key(|expr| {
            exprs.push(expr.clone());
            types.push(ty.into());
            ExprId(exprs.len() as u32 - 1)
        })
    }

    fn operand(&mut self) -> Result<ExprId> {
        if self.take("%") {
            return self.expr_number();
        }
        if self.take("@") {
            let name = self.word("an argument")?;
            let found = self.arguments.iter().position(|argument| argument.name == name);
            return match found {
                Some(n) => Ok(self.leaf(Expr::Argument(n as u32), self.arguments[n].ty)),
                None => self.fail(format!("there is no argument '{name}'")),
            };
        }
        if self.take("index") {
            return Ok(self.leaf(Expr::Index, self.kernel.index));
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
                return Ok(self.leaf(Expr::Builtin(make(axis)), self.kernel.index));
            }
        }
        let value = self.literal()?;
        Ok(self.leaf(Expr::Const(value), value.scalar()))
    }

    /// Parses operands in parentheses, separated by commas.
    fn operands(&mut self) -> Result<Vec<ExprId>> {
        self.expect("(")?;
        let mut args = vec![];
        while !self.take(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.operand()?);
        }
        Ok(args)
    }

    /// Returns the local array of a name.
    fn local_array(&self, name: &str) -> Option<LocalArrayId> {
        self.kernel.local_arrays.iter().position(|array| array.name == name).map(|n| LocalArrayId(n as u32))
    }

    /// Parses `view[index, index]`.
    fn element(&mut self) -> Result<(View, Args)> {
        let start = self.at;
        let name = self.word("a statement")?;
        let param = self.kernel.params.iter().position(|p| p.name == name).map(|n| View::Param(ParamId(n as u32)));
        let shared = self.kernel.shared.iter().position(|s| s.name == name).map(|n| View::Shared(SharedId(n as u32)));
        let local = self.local_array(name).map(View::Local);
        let Some(view) = param.or(shared).or(local) else {
            self.cursor.at = start;
            self.skip_whitespace();
            return self.fail(format!("there is no view '{name}'"));
        };
        self.expect("[")?;
        let mut indices = vec![self.operand()?];
        while self.take(",") {
            indices.push(self.operand()?);
        }
        self.expect("]")?;
        match Args::new(&indices) {
            Some(indices) => Ok((view, indices)),
            None => self.fail("expected at most four indices and a component index"),
        }
    }

    /// Parses the right-hand side of a `Let`.
    fn let_value(&mut self) -> Result<Expr> {
        if self.take("$") {
            return Ok(Expr::Read(LocalId(self.number("the variable's number")?)));
        }
        self.skip_whitespace();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        if after.starts_with('[') {
            let (view, indices) = self.element()?;
            return Ok(Expr::Load { view, indices, width: 1 });
        }
        if let (Some(op), true) = (AlgebraOp::by_name(word), after.starts_with(['(', '.'])) {
            self.cursor.at += len;
            let component = if op.has_component() {
                self.expect(".")?;
                self.number("the number of a component or field")?
            } else {
                0
            };
            return Ok(Expr::Algebra { op, component, args: self.operands()?.into() });
        }
        if after.starts_with('(') {
            let Some(op) = Op::by_name(word) else { return self.fail(format!("there is no operation '{word}'")) };
            self.cursor.at += len;
            let args = self.operands()?;
            return match Args::new(&args) {
                Some(args) => Ok(Expr::Op(op, args)),
                None => self.fail(format!("{word} takes {}", counted(op.arity(), "argument"))),
            };
        }
        self.cursor.at += len;
        match word {
            "cast" => Ok(Expr::Cast(self.scalar()?, self.operand()?)),
            "bitcast" => Ok(Expr::Bitcast(self.scalar()?, self.operand()?)),
            "call" => {
                let name = self.word("a function")?;
                let Some(n) = self.kernel.functions.iter().position(|function| function.name == name) else {
                    return self.fail(format!("there is no function '{name}' above"));
                };
                Ok(Expr::Call(FunctionId(n as u32), self.operands()?.into()))
            }
            "wide" => {
                let width = self.number("the number of elements")?;
                let (view, indices) = self.element()?;
                Ok(Expr::Load { view, indices, width })
            }
            "atomic" => self.atomic(),
            "shuffle" => {
                let all = [Shuffle::Index, Shuffle::Up, Shuffle::Down, Shuffle::Xor];
                let Some(shuffle) = all.into_iter().find(|s| self.take(s.name())) else {
                    return self.fail("expected index, up, down or xor");
                };
                let value = self.operand()?;
                self.expect(",")?;
                Ok(Expr::Shuffle { shuffle, value, lane: self.operand()?, mask: self.warp_mask()? })
            }
            "vote" => {
                let Some(vote) = [Vote::Any, Vote::All, Vote::Ballot].into_iter().find(|v| self.take(v.name())) else {
                    return self.fail("expected any, all or ballot");
                };
                Ok(Expr::Vote { vote, value: self.operand()?, mask: self.warp_mask()? })
            }
            _ => {
                self.cursor.at -= len;
                self.fail("expected an operation, a load or a variable")
            }
        }
    }

    /// Lanes that participate in a shuffle or vote.
    fn warp_mask(&mut self) -> Result<Option<ExprId>> {
        if self.take("mask") { self.operand().map(Some) } else { Ok(None) }
    }

    fn atomic(&mut self) -> Result<Expr> {
        if self.take("compare_exchange") {
            let (view, indices) = self.element()?;
            self.expect(",")?;
            let expected = self.operand()?;
            self.expect(",")?;
            return Ok(Expr::CompareExchange { view, indices, expected, value: self.operand()? });
        }
        let Some(atomic) = Atomic::ALL.into_iter().find(|a| self.take(a.name())) else {
            return self.fail("expected an atomic update: add, sub, min, max, and, or, xor, exchange");
        };
        let (view, indices) = self.element()?;
        self.expect(",")?;
        Ok(Expr::Atomic { atomic, view, indices, value: self.operand()? })
    }
}
