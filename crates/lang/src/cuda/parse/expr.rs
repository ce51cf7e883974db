//! Expressions, by precedence.

use bornite_ir::Value;

use super::{Parsed, Parser};
use crate::Span;
use crate::cuda::ast::{Base, Binary, Expr, ExprKind, Unary};
use crate::cuda::lex::{Kind, Symbol};

/// How tightly a sign binds its operands, and what it is.
fn binary(sign: &str) -> Option<(u8, Binary)> {
    Some(match sign {
        "||" => (1, Binary::Either),
        "&&" => (2, Binary::Both),
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

fn assigning(sign: &str) -> Option<Option<Binary>> {
    Some(match sign {
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
    /// An expression, commas included.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        let mut left = self.assignment()?;
        while self.take(",") {
            let right = self.assignment()?;
            let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
            left = self.expr_of(ExprKind::Binary(Binary::Comma, Box::new(left), Box::new(right)), span, below)?;
        }
        Ok(left)
    }

    /// An expression without commas.
    pub(super) fn assignment(&mut self) -> Parsed<Expr> {
        self.nested(|p| {
            let left = p.choice()?;
            let Kind::Sign(sign) = p.kind() else { return Ok(left) };
            let Some(op) = assigning(sign) else { return Ok(left) };
            p.advance();
            let right = p.initial()?;
            let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
            p.expr_of(ExprKind::Assign(op, Box::new(left), Box::new(right)), span, below)
        })
    }

    pub(super) fn choice(&mut self) -> Parsed<Expr> {
        let condition = self.operators(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.nested(|p| p.expr())?;
        self.expect(":", "between the two values of '?'")?;
        let no = self.assignment()?;
        let (span, below) = (condition.span.to(no.span), condition.depth.max(yes.depth).max(no.depth));
        self.expr_of(ExprKind::Choose(Box::new(condition), Box::new(yes), Box::new(no)), span, below)
    }

    /// Operators that bind tighter than `least`.
    pub(super) fn operators(&mut self, least: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Kind::Sign(sign) = self.kind() {
            // `>` ends the arguments of a template, `>>` those of two.
            let ends = self.in_angles && matches!(sign, ">" | ">>" | ">>>");
            let Some((level, op)) = binary(sign).filter(|(level, _)| *level > least && !ends) else {
                if sign == "<<<" {
                    let span = self.span();
                    return self.refuse(span, "a launch of a kernel from a kernel", "launch it from the host");
                }
                break;
            };
            self.advance();
            let right = self.operators(level)?;
            let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
            left = self.expr_of(ExprKind::Binary(op, Box::new(left), Box::new(right)), span, below)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let Kind::Sign(sign) = self.kind() else { return self.postfix() };
        let op = match sign {
            "-" => Unary::Minus,
            "+" => Unary::Plus,
            "!" => Unary::Not,
            "~" => Unary::Complement,
            "*" => Unary::Deref,
            "&" => Unary::Address,
            "++" | "--" => {
                self.advance();
                let place = self.nested(|p| p.unary())?;
                let (span, below, by) = (start.to(place.span), place.depth, if sign == "++" { 1 } else { -1 });
                return self.expr_of(ExprKind::Step { by, before: false, place: Box::new(place) }, span, below);
            }
            "(" if self.cast_ahead() => {
                self.advance();
                let mut ty = self.type_name()?;
                // A const reference to a number of another type refers to a converted copy.
                ty.reference &= !(ty.constant && matches!(ty.base, Base::Scalar(_)));
                self.expect(")", "after the type of a cast")?;
                let value = self.nested(|p| p.unary())?;
                let (span, below) = (start.to(value.span), value.depth);
                return self.expr_of(ExprKind::Cast(ty, Box::new(value)), span, below);
            }
            "sizeof" => return self.size(),
            _ => return self.postfix(),
        };
        self.advance();
        let value = self.nested(|p| p.unary())?;
        let (span, below) = (start.to(value.span), value.depth);
        self.expr_of(ExprKind::Unary(op, Box::new(value)), span, below)
    }

    /// True if the parenthesis here holds a type and nothing else.
    fn cast_ahead(&mut self) -> bool {
        let before = self.at;
        self.advance();
        let mut found = self.at_type();
        while found && !self.is(")") {
            found = match self.kind() {
                Kind::Sign("*" | "&" | "::" | "__restrict__") => true,
                Kind::Name(symbol) => self.is_type_name(symbol) || self.names.text(symbol) == "std",
                Kind::Sign(_) => self.at_type() || self.is("long"),
                _ => false,
            };
            self.advance();
        }
        self.at = before;
        found
    }

    fn size(&mut self) -> Parsed<Expr> {
        let start = self.span();
        self.advance();
        if !self.is("(") {
            let value = self.nested(|p| p.unary())?;
            let (span, below) = (start.to(value.span), value.depth);
            return self.expr_of(ExprKind::SizeOfValue(Box::new(value)), span, below);
        }
        self.expect("(", "after 'sizeof'")?;
        let (kind, below) = if self.at_type() {
            (ExprKind::SizeOf(self.type_name()?), 0)
        } else {
            let value = self.expr()?;
            let depth = value.depth;
            (ExprKind::SizeOfValue(Box::new(value)), depth)
        };
        self.expect(")", "after what 'sizeof' measures")?;
        let span = start.to(self.last_span());
        self.expr_of(kind, span, below)
    }

    /// Expressions up to a closing sign, which is taken.
    pub(super) fn list(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let angles = std::mem::replace(&mut self.in_angles, false);
        let mut all = vec![];
        while !self.is(close) {
            all.push(self.initial()?);
            if !self.take(",") {
                break;
            }
        }
        self.in_angles = angles;
        self.expect(close, "after a list of arguments")?;
        Ok(all)
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut left = self.primary()?;
        loop {
            let start = left.span;
            let Kind::Sign(sign) = self.kind() else { return Ok(left) };
            let below = left.depth;
            let kind = match sign {
                "[" => {
                    self.advance();
                    let angles = std::mem::replace(&mut self.in_angles, false);
                    let index = self.expr()?;
                    self.in_angles = angles;
                    self.expect("]", "after an index")?;
                    let span = start.to(self.last_span());
                    let deepest = below.max(index.depth);
                    left = self.expr_of(ExprKind::Index(Box::new(left), Box::new(index)), span, deepest)?;
                    continue;
                }
                "." | "->" => {
                    self.advance();
                    let (member, _) = self.name("a member")?;
                    if self.is("(") {
                        let span = start.to(self.last_span());
                        return self.refuse(span, "a call of a member function", "write a '__device__' function");
                    }
                    if sign == "." {
                        ExprKind::Member(Box::new(left), member)
                    } else {
                        ExprKind::Arrow(Box::new(left), member)
                    }
                }
                "++" | "--" => {
                    self.advance();
                    ExprKind::Step { by: if sign == "++" { 1 } else { -1 }, before: true, place: Box::new(left) }
                }
                "(" => {
                    let span = start.to(self.span());
                    return self.refuse(span, "a call of something that is not a name", "");
                }
                _ => return Ok(left),
            };
            let span = start.to(self.last_span());
            left = self.expr_of(kind, span, below)?;
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let span = self.span();
        match self.kind() {
            Kind::Int { value, scalar, hex } => {
                self.advance();
                self.expr_of(ExprKind::Number { value: Value::from_bits(scalar, value), hex }, span, 0)
            }
            Kind::Float { bits, scalar } => {
                self.advance();
                self.expr_of(ExprKind::Number { value: Value::from_bits(scalar, bits), hex: false }, span, 0)
            }
            Kind::Text => {
                self.advance();
                while self.kind() == Kind::Text {
                    self.advance();
                }
                let span = span.to(self.last_span());
                self.expr_of(ExprKind::Text, span, 0)
            }
            Kind::Sign(word @ ("true" | "false")) => {
                self.advance();
                let value = Value::int(bornite_ir::Scalar::Bool, (word == "true") as i64);
                self.expr_of(ExprKind::Number { value, hex: false }, span, 0)
            }
            Kind::Sign("(") => {
                self.advance();
                let angles = std::mem::replace(&mut self.in_angles, false);
                let inner = self.nested(|p| p.expr())?;
                self.in_angles = angles;
                self.expect(")", "after an expression in parentheses")?;
                Ok(Expr { span: span.to(self.last_span()), ..inner })
            }
            Kind::Sign(word @ ("static_cast" | "reinterpret_cast" | "const_cast")) => {
                self.advance();
                self.expect("<", "before the type of a cast")?;
                let mut ty = self.type_name()?;
                ty.reference &= word != "static_cast";
                self.expect(">", "after the type of a cast")?;
                self.expect("(", "before what is cast")?;
                let value = self.nested(|p| p.expr())?;
                self.expect(")", "after what is cast")?;
                let (span, below) = (span.to(self.last_span()), value.depth);
                self.expr_of(ExprKind::Cast(ty, Box::new(value)), span, below)
            }
            Kind::Unusable(name) => {
                let what = format!("macro '{}' with '#', '##' or '...'", self.names.text(name));
                self.refuse(span, &what, "write out what it stands for")
            }
            Kind::Sign("nullptr") => {
                self.advance();
                self.expr_of(ExprKind::Null, span, 0)
            }
            Kind::Sign(".") => {
                self.refuse(span, "a value of a field by its name", "write the values in the order of the fields")
            }
            Kind::Sign("[") => self.refuse(span, "a lambda", "write a '__device__' function"),
            Kind::Sign(word @ ("new" | "delete")) => {
                self.refuse(span, &format!("'{word}'"), "memory is given to a kernel by its caller")
            }
            Kind::Sign(word @ ("throw" | "this" | "operator" | "asm" | "dynamic_cast" | "decltype")) => {
                self.refuse(span, &format!("'{word}'"), "")
            }
            _ if self.at_type() => self.constructed(),
            Kind::Name(_) | Kind::Sign("::") => self.named(),
            _ => {
                let found = self.found();
                self.fail(span, format!("expected an expression, found {found}"), "expected an expression", "")
            }
        }
    }

    /// `float(x)`, `float4{a, b, c, d}`.
    fn constructed(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let ty = self.base_type()?;
        let args = if self.take("(") {
            self.list(")")?
        } else if self.is("{") {
            vec![self.braces()?]
        } else {
            let (span, found) = (self.span(), self.found());
            return self.fail(span, format!("expected '(' after a type, found {found}"), "expected '('", "");
        };
        let below = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        let span = start.to(self.last_span());
        self.expr_of(ExprKind::Construct(ty, args), span, below)
    }

    /// A name, or a call of one.
    fn named(&mut self) -> Parsed<Expr> {
        let start = self.span();
        (0..self.scopes()).for_each(|_| self.advance());
        let (name, _) = self.name("a variable or function")?;
        let text = self.names.text(name);
        if text == "numeric_limits" && self.is("<") {
            return self.limit(name, start);
        }
        if self.is("::") {
            let what = format!("a name in a namespace or class ('{}::')", self.names.text(name));
            return self.refuse(start, &what, "use its plain name, or what CUDA itself offers");
        }
        if self.is("<") && !self.templates.contains(&name) {
            self.told(name, start)?;
            if text.starts_with("tex") || text.starts_with("surf") {
                return self.refuse(start, &format!("'{text}' of a texture or surface"), "pass an array");
            }
        }
        let mut templates = vec![];
        if self.is("<") && (self.templates.contains(&name) || text == "bn_load") {
            templates = self.template_args()?;
        }
        if !self.is("(") {
            return self.expr_of(ExprKind::Name(name), start.to(self.last_span()), 0);
        }
        self.advance();
        let args = self.nested(|p| p.list(")"))?;
        let below = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        let span = start.to(self.last_span());
        self.expr_of(ExprKind::Call { callee: name, templates, args }, span, below)
    }

    /// `numeric_limits<T>::max()`: a call of it, whose argument is the member's name.
    fn limit(&mut self, name: Symbol, start: Span) -> Parsed<Expr> {
        let templates = self.template_args()?;
        self.expect("::", "after 'numeric_limits<…>'")?;
        let (member, span) = self.name("a limit")?;
        self.expect("(", "after a limit")?;
        self.expect(")", "after a limit")?;
        let args = vec![Expr { kind: ExprKind::Name(member), span, depth: 1 }];
        let span = start.to(self.last_span());
        self.expr_of(ExprKind::Call { callee: name, templates, args }, span, 1)
    }
}
