//! Parses expressions by precedence climbing.

use bornite_ir::Value;

use super::{ParseResult, Parser};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Binary, Expr, ExprKind, Function, TemplateArg, Unary};
use crate::cuda::lex::{Symbol, TokenKind};
use crate::cuda::lower::is_math;
use crate::cuda::preprocess::undeclared_hint;

/// Precedence of a binary operator, and the operator.
fn binary(token: &str) -> Option<(u8, Binary)> {
    Some(match token {
        "||" => (1, Binary::LogicalOr),
        "&&" => (2, Binary::LogicalAnd),
        "|" => (3, Binary::Or),
        "^" => (4, Binary::Xor),
        "&" => (5, Binary::And),
        "==" => (6, Binary::Eq),
        "!=" => (6, Binary::Ne),
        "<" => (7, Binary::Lt),
        "<=" => (7, Binary::Le),
        ">" => (7, Binary::Gt),
        ">=" => (7, Binary::Ge),
        "<<" => (8, Binary::Shl),
        ">>" => (8, Binary::Shr),
        "+" => (9, Binary::Add),
        "-" => (9, Binary::Sub),
        "*" => (10, Binary::Mul),
        "/" => (10, Binary::Div),
        "%" => (10, Binary::Rem),
        _ => return None,
    })
}

fn assigning(token: &str) -> Option<Option<Binary>> {
    Some(match token {
        "=" => None,
        "+=" => Some(Binary::Add),
        "-=" => Some(Binary::Sub),
        "*=" => Some(Binary::Mul),
        "/=" => Some(Binary::Div),
        "%=" => Some(Binary::Rem),
        "&=" => Some(Binary::And),
        "|=" => Some(Binary::Or),
        "^=" => Some(Binary::Xor),
        "<<=" => Some(Binary::Shl),
        ">>=" => Some(Binary::Shr),
        _ => return None,
    })
}

impl Parser<'_> {
    /// Parses an expression, including the comma operator.
    pub(super) fn expr(&mut self) -> ParseResult<Expr> {
        let mut left = self.assignment()?;
        while self.take(",") {
            let right = self.assignment()?;
            let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
            left = self.make_expr(ExprKind::Binary(Binary::Comma, Box::new(left), Box::new(right)), span, below)?;
        }
        Ok(left)
    }

    /// Parses an expression without the comma operator.
    pub(super) fn assignment(&mut self) -> ParseResult<Expr> {
        self.nested(|p| {
            let left = p.conditional()?;
            let TokenKind::Reserved(token) = p.kind() else { return Ok(left) };
            let Some(op) = assigning(token) else { return Ok(left) };
            p.advance();
            let right = p.initializer()?;
            let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
            p.make_expr(ExprKind::Assign(op, Box::new(left), Box::new(right)), span, below)
        })
    }

    pub(super) fn conditional(&mut self) -> ParseResult<Expr> {
        let condition = self.binary_expr(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.nested(|p| p.expr())?;
        self.expect(":", "between the operands of '?:'")?;
        let no = self.assignment()?;
        let (span, below) = (condition.span.to(no.span), condition.depth.max(yes.depth).max(no.depth));
        self.make_expr(ExprKind::Conditional(Box::new(condition), Box::new(yes), Box::new(no)), span, below)
    }

    /// Parses binary operators of a precedence above `min_level`.
    pub(super) fn binary_expr(&mut self, min_level: u8) -> ParseResult<Expr> {
        let mut left = self.unary()?;
        while let TokenKind::Reserved(token) = self.kind() {
            // `>` closes one template argument list, `>>` two.
            let ends = self.in_angles && matches!(token, ">" | ">>" | ">>>");
            let Some((level, op)) = binary(token).filter(|(level, _)| *level > min_level && !ends) else {
                if token == "<<<" {
                    let span = self.span();
                    return self.unsupported(span, "a kernel launch from device code", "launch it from the host");
                }
                break;
            };
            self.advance();
            let right = self.binary_expr(level)?;
            let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
            left = self.make_expr(ExprKind::Binary(op, Box::new(left), Box::new(right)), span, below)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> ParseResult<Expr> {
        let start = self.span();
        let TokenKind::Reserved(token) = self.kind() else { return self.postfix() };
        let op = match token {
            "-" => Unary::Minus,
            "+" => Unary::Plus,
            "!" => Unary::Not,
            "~" => Unary::Complement,
            "*" => Unary::Deref,
            "&" => Unary::Address,
            "++" | "--" => {
                self.advance();
                let lvalue = self.nested(|p| p.unary())?;
                let (span, below, delta) = (start.to(lvalue.span), lvalue.depth, if token == "++" { 1 } else { -1 });
                return self.make_expr(
                    ExprKind::IncDec { delta, is_postfix: false, lvalue: Box::new(lvalue) },
                    span,
                    below,
                );
            }
            "(" if self.cast_ahead() => {
                self.advance();
                let mut ty = self.type_name()?;
                // A const reference to a number of another type binds to a converted copy.
                ty.reference &= !(ty.constant && matches!(ty.base, Base::Scalar(_)));
                self.expect(")", "after the type of a cast")?;
                let value = self.nested(|p| p.unary())?;
                let (span, below) = (start.to(value.span), value.depth);
                return self.make_expr(ExprKind::Cast(ty, Box::new(value)), span, below);
            }
            "sizeof" => return self.sizeof_expr(),
            _ => return self.postfix(),
        };
        self.advance();
        let value = self.nested(|p| p.unary())?;
        let (span, below) = (start.to(value.span), value.depth);
        self.make_expr(ExprKind::Unary(op, Box::new(value)), span, below)
    }

    /// Returns true if the parentheses here contain only a type.
    fn cast_ahead(&mut self) -> bool {
        let before = self.at;
        self.advance();
        let mut found = self.at_type();
        while found && !self.is(")") {
            // Template arguments of a struct: `(Vec<float, 4>*)`.
            if self.is("<") {
                self.at = self.after_angles(self.at);
                found = !matches!(self.kind(), TokenKind::End);
                continue;
            }
            found = match self.kind() {
                TokenKind::Reserved("*" | "&" | "::" | "__restrict__") => true,
                TokenKind::Name(symbol) => self.is_type_name(symbol) || self.names.text(symbol) == "std",
                TokenKind::Reserved(_) => self.at_type() || self.is("long"),
                _ => false,
            };
            self.advance();
        }
        self.at = before;
        found
    }

    fn sizeof_expr(&mut self) -> ParseResult<Expr> {
        let start = self.span();
        self.advance();
        if !self.is("(") {
            let value = self.nested(|p| p.unary())?;
            let (span, below) = (start.to(value.span), value.depth);
            return self.make_expr(ExprKind::SizeOfExpr(Box::new(value)), span, below);
        }
        self.expect("(", "after 'sizeof'")?;
        let (kind, below) = if self.at_type() {
            (ExprKind::SizeOf(self.type_name()?), 0)
        } else {
            let value = self.expr()?;
            let depth = value.depth;
            (ExprKind::SizeOfExpr(Box::new(value)), depth)
        };
        self.expect(")", "after the operand of 'sizeof'")?;
        let span = start.to(self.last_span());
        self.make_expr(kind, span, below)
    }

    /// Parses expressions up to and including a closing bracket.
    pub(super) fn list(&mut self, close: &str) -> ParseResult<Vec<Expr>> {
        let angles = std::mem::replace(&mut self.in_angles, false);
        let mut all = vec![];
        while !self.is(close) {
            all.push(self.initializer()?);
            if !self.take(",") {
                break;
            }
        }
        self.in_angles = angles;
        self.expect(close, "after a list of arguments")?;
        Ok(all)
    }

    fn postfix(&mut self) -> ParseResult<Expr> {
        let mut left = self.primary()?;
        loop {
            let start = left.span;
            let TokenKind::Reserved(token) = self.kind() else { return Ok(left) };
            let below = left.depth;
            let kind = match token {
                "[" => {
                    self.advance();
                    let angles = std::mem::replace(&mut self.in_angles, false);
                    let index = self.expr()?;
                    self.in_angles = angles;
                    self.expect("]", "after an index")?;
                    let span = start.to(self.last_span());
                    let deepest = below.max(index.depth);
                    left = self.make_expr(ExprKind::Index(Box::new(left), Box::new(index)), span, deepest)?;
                    continue;
                }
                "." | "->" => {
                    self.advance();
                    self.take("template");
                    let (member, _) = if self.is("operator") { self.operator_name()? } else { self.name("a member")? };
                    if let Some((templates, args)) = self.call_after_name(member)? {
                        let span = start.to(self.last_span());
                        let deepest = args.iter().map(|arg| arg.depth).max().unwrap_or(0).max(below);
                        let object = match token {
                            "." => left,
                            _ => self.make_expr(ExprKind::Unary(Unary::Deref, Box::new(left)), start, below)?,
                        };
                        let object = Box::new(object);
                        let kind = ExprKind::MethodCall { object, name: member, templates, args };
                        left = self.make_expr(kind, span, deepest + 1)?;
                        continue;
                    }
                    if token == "." {
                        ExprKind::Member(Box::new(left), member)
                    } else {
                        ExprKind::Arrow(Box::new(left), member)
                    }
                }
                "++" | "--" => {
                    self.advance();
                    ExprKind::IncDec {
                        delta: if token == "++" { 1 } else { -1 },
                        is_postfix: true,
                        lvalue: Box::new(left),
                    }
                }
                "(" => {
                    self.advance();
                    let args = self.nested(|p| p.list(")"))?;
                    let deepest = args.iter().map(|arg| arg.depth).max().unwrap_or(0).max(below);
                    let span = start.to(self.last_span());
                    left = self.make_expr(ExprKind::Invoke(Box::new(left), args), span, deepest)?;
                    continue;
                }
                _ => return Ok(left),
            };
            let span = start.to(self.last_span());
            left = self.make_expr(kind, span, below)?;
        }
    }

    fn primary(&mut self) -> ParseResult<Expr> {
        let span = self.span();
        match self.kind() {
            TokenKind::Int { value, scalar, hex, .. } => {
                self.advance();
                self.make_expr(ExprKind::Number { value: Value::from_bits(scalar, value), hex }, span, 0)
            }
            TokenKind::Float { bits, scalar, .. } => {
                self.advance();
                self.make_expr(ExprKind::Number { value: Value::from_bits(scalar, bits), hex: false }, span, 0)
            }
            TokenKind::Str(_) => {
                let mut text = String::new();
                while let TokenKind::Str(part) = self.kind() {
                    text += self.names.text(part);
                    self.advance();
                }
                let span = span.to(self.last_span());
                self.make_expr(ExprKind::Str(text.into()), span, 0)
            }
            TokenKind::Reserved(word @ ("true" | "false")) => {
                self.advance();
                let value = Value::int(bornite_ir::Scalar::Bool, (word == "true") as i64);
                self.make_expr(ExprKind::Number { value, hex: false }, span, 0)
            }
            TokenKind::Reserved("(") => {
                self.advance();
                let angles = std::mem::replace(&mut self.in_angles, false);
                let inner = self.nested(|p| p.expr())?;
                self.in_angles = angles;
                self.expect(")", "after an expression in parentheses")?;
                Ok(Expr { span: span.to(self.last_span()), ..inner })
            }
            TokenKind::Reserved(word @ ("static_cast" | "reinterpret_cast" | "const_cast")) => {
                self.advance();
                self.expect("<", "before the type of a cast")?;
                let mut ty = self.type_name()?;
                ty.reference &= word != "static_cast";
                self.expect(">", "after the type of a cast")?;
                self.expect("(", "before the operand of a cast")?;
                let value = self.nested(|p| p.expr())?;
                self.expect(")", "after the operand of a cast")?;
                let (span, below) = (span.to(self.last_span()), value.depth);
                self.make_expr(ExprKind::Cast(ty, Box::new(value)), span, below)
            }
            TokenKind::Reserved("nullptr") => {
                self.advance();
                self.make_expr(ExprKind::Null, span, 0)
            }
            TokenKind::Reserved(".") if matches!(self.ahead(2), TokenKind::Reserved("=" | "{")) => {
                self.advance();
                let (field, _) = self.name("a field")?;
                self.take("=");
                let value = self.initializer()?;
                let (span, below) = (span.to(value.span), value.depth);
                self.make_expr(ExprKind::Designated(field, Box::new(value)), span, below)
            }
            TokenKind::Reserved("[") => self.unsupported(span, "a lambda", "write a '__device__' function"),
            TokenKind::Reserved(word @ ("new" | "delete")) => {
                self.unsupported(span, &format!("'{word}'"), "pass memory to the kernel from the host")
            }
            TokenKind::Reserved("this") => {
                self.advance();
                self.make_expr(ExprKind::This, span, 0)
            }
            TokenKind::Reserved(word @ ("throw" | "operator" | "asm" | "dynamic_cast" | "decltype")) => {
                self.unsupported(span, &format!("'{word}'"), "")
            }
            _ if self.at_type() => self.construct_expr(),
            TokenKind::Name(_) | TokenKind::Reserved("::") => self.name_or_call(),
            _ => {
                let found = self.current_text();
                self.fail(span, format!("expected an expression, found {found}"), "expected an expression", "")
            }
        }
    }

    /// `float(x)`, `float4{a, b, c, d}`.
    fn construct_expr(&mut self) -> ParseResult<Expr> {
        let start = self.span();
        let ty = self.base_type()?;
        if self.take("::") {
            self.take("template");
            let (name, _) = self.name("a member")?;
            let call = self.call_after_name(name)?;
            let span = start.to(self.last_span());
            let below = call.iter().flat_map(|(_, args)| args).map(|arg| arg.depth).max().unwrap_or(0);
            let kind = match call {
                Some((templates, args)) => ExprKind::ScopedCall { scope: ty, name, templates, args },
                None => ExprKind::Scoped(ty, name),
            };
            return self.make_expr(kind, span, below);
        }
        let args = if self.take("(") {
            self.list(")")?
        } else if self.is("{") {
            vec![self.braced_list()?]
        } else {
            let (span, found) = (self.span(), self.current_text());
            return self.fail(span, format!("expected '(' after a type, found {found}"), "expected '('", "");
        };
        let below = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        let span = start.to(self.last_span());
        self.make_expr(ExprKind::Construct(ty, args), span, below)
    }

    /// Parses the template arguments and arguments of a call after its name; `None` if it is not a
    /// call.
    fn call_after_name(&mut self, name: Symbol) -> ParseResult<Option<(Vec<TemplateArg>, Vec<Expr>)>> {
        let mut templates = vec![];
        if self.is("<") && self.templates.contains(&name) {
            templates = self.template_args()?;
        }
        if !self.take("(") {
            return Ok(None);
        }
        let args = self.nested(|p| p.list(")"))?;
        Ok(Some((templates, args)))
    }

    /// Parses a name or a call.
    fn name_or_call(&mut self) -> ParseResult<Expr> {
        let (start, start_at) = (self.span(), self.at);
        self.qualifier(start);
        let (name, _) = self.name("a variable or function")?;
        let text = self.names.text(name);
        if text == "numeric_limits" && self.is("<") {
            return self.numeric_limit(name, start);
        }
        if text.starts_with("is_") && self.is("<") && is_math(text) {
            let templates = self.template_args()?;
            if self.take("::") {
                self.name("'value'")?;
            } else if self.is("{") || self.is("(") {
                self.skip_brackets();
            }
            let span = start.to(self.last_span());
            return self.make_expr(ExprKind::Call { callee: name, templates, args: vec![] }, span, 0);
        }
        if self.is("::") {
            let member = match self.ahead(1) {
                TokenKind::Name(member) => self.names.text(member),
                _ => "",
            };
            return self.unsupported(
                start,
                &format!("'{text}::{member}'"),
                "use an unqualified name, or a function that CUDA provides",
            );
        }
        if self.is("<") && !self.templates.contains(&name) {
            self.check_supported(name, start)?;
            if text.starts_with("tex") || text.starts_with("surf") {
                return self.unsupported(start, &format!("texture function '{text}'"), "pass an array");
            }
            // Only a template takes a type as its argument. `i < float(n)` is a comparison.
            let is_known = is_wide_load(text) || is_group_name(text);
            if !is_known
                && matches!(
                    self.ahead(1),
                    TokenKind::Reserved("float" | "double" | "int" | "unsigned" | "bool" | "char")
                )
                && self.ahead(2) != TokenKind::Reserved("(")
            {
                let hint = "define it as a '__device__' function in this file";
                let hint = undeclared_hint(self.missing_headers, self.source, start, hint);
                return self.fail(start, format!("unknown function template '{text}'"), "not declared", &hint);
            }
        }
        // Functions and function objects of cooperative groups.
        let is_group_template = is_group_name(text) && (self.at > start_at + 1 || text == "tiled_partition");
        let mut templates = vec![];
        if self.is("<") && (self.templates.contains(&name) || is_wide_load(text) || is_group_template) {
            templates = self.template_args()?;
            let is_plain = |one: &Function| one.name == name && one.templates.is_empty();
            if templates.is_empty() && self.file.functions.iter().any(is_plain) {
                return self.unsupported(start, "'<>' that selects a template", "write its arguments");
            }
        }
        // `cg::plus<int>{}`
        if is_group_template && self.is("{") && self.ahead(1) == TokenKind::Reserved("}") {
            self.advance();
            self.advance();
            let span = start.to(self.last_span());
            return self.make_expr(ExprKind::Call { callee: name, templates, args: vec![] }, span, 0);
        }
        if !self.is("(") && !templates.is_empty() && self.variable_templates.contains(&name) {
            let span = start.to(self.last_span());
            return self.make_expr(ExprKind::Call { callee: name, templates, args: vec![] }, span, 0);
        }
        if !self.is("(") {
            return self.make_expr(ExprKind::Name(name), start.to(self.last_span()), 0);
        }
        self.advance();
        let args = self.nested(|p| p.list(")"))?;
        let below = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        let span = start.to(self.last_span());
        self.make_expr(ExprKind::Call { callee: name, templates, args }, span, below)
    }

    /// `numeric_limits<T>::max()`: parsed as a call whose argument is the member's name.
    fn numeric_limit(&mut self, name: Symbol, start: SourceSpan) -> ParseResult<Expr> {
        let templates = self.template_args()?;
        self.expect("::", "after 'numeric_limits<…>'")?;
        let (member, span) = self.name("a limit")?;
        self.expect("(", "after a limit")?;
        self.expect(")", "after a limit")?;
        let args = vec![Expr { kind: ExprKind::Name(member), span, depth: 1 }];
        let span = start.to(self.last_span());
        self.make_expr(ExprKind::Call { callee: name, templates, args }, span, 1)
    }
}

/// Returns true for function templates and function objects of cooperative groups.
fn is_group_name(name: &str) -> bool {
    matches!(name, "tiled_partition" | "plus" | "less" | "greater" | "bit_and" | "bit_or" | "bit_xor")
}

/// Returns true for functions of printed text that load several elements at once.
fn is_wide_load(name: &str) -> bool {
    matches!(name, "bn_load" | "bn_load_private")
}
