//! Parses statements. After an error in one statement, the next is parsed.

use super::{MAX_ARMS, ParseResult, Parser};
use crate::SourceSpan;
use crate::cuda::ast::{Case, Expr, Stmt, StmtKind, Storage};
use crate::cuda::lex::{Symbol, TokenKind};

impl Parser<'_> {
    /// Parses statements up to and including a closing brace.
    pub(super) fn statements(&mut self) -> ParseResult<Vec<Stmt>> {
        let mut all = vec![];
        while !self.is("}") {
            if self.kind() == TokenKind::End {
                let span = self.span();
                return self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
            }
            let start = self.at;
            match self.statement() {
                Ok(stmt) => all.push(stmt),
                Err(_) => self.recover(start),
            }
        }
        self.advance();
        Ok(all)
    }

    /// Skips to the next statement after an error in the one at `start`.
    fn recover(&mut self, start: usize) {
        self.at = start;
        loop {
            match self.kind() {
                TokenKind::Reserved(end @ (";" | "{")) => {
                    if end == ";" {
                        self.advance()
                    } else {
                        self.skip_brackets()
                    }
                    // An 'else' continues the same statement.
                    if !self.take("else") {
                        return;
                    }
                }
                TokenKind::Reserved("(" | "[") => self.skip_brackets(),
                TokenKind::Reserved("}") | TokenKind::End => return,
                _ => self.advance(),
            }
        }
    }

    fn statement(&mut self) -> ParseResult<Stmt> {
        self.nested(|p| {
            let start = p.span();
            let kind = p.statement_kind()?;
            Ok(Stmt { kind, span: start.to(p.last_span()) })
        })
    }

    fn statement_kind(&mut self) -> ParseResult<StmtKind> {
        let start = self.span();
        if let TokenKind::Reserved(word) = self.kind() {
            match word {
                ";" => {
                    self.advance();
                    return Ok(StmtKind::Empty);
                }
                "{" => {
                    self.advance();
                    return Ok(StmtKind::Block(self.scoped(|p| p.statements())?));
                }
                "if" => return self.branch(),
                "for" => return self.scoped(|p| p.for_loop()),
                "while" => {
                    self.advance();
                    let condition = self.condition("while")?;
                    return Ok(StmtKind::While(condition, Box::new(self.statement()?)));
                }
                "do" => {
                    self.advance();
                    let body = self.statement()?;
                    self.expect("while", "after the body of 'do'")?;
                    let condition = self.condition("while")?;
                    self.expect(";", "after 'do … while (…)'")?;
                    return Ok(StmtKind::Do(Box::new(body), condition));
                }
                "switch" => return self.scoped(|p| p.switch()),
                "break" | "continue" => {
                    self.advance();
                    self.expect(";", &format!("after '{word}'"))?;
                    return Ok(if word == "break" { StmtKind::Break } else { StmtKind::Continue });
                }
                "return" => {
                    self.advance();
                    let value = if self.is(";") { None } else { Some(self.initializer()?) };
                    self.expect(";", "after 'return'")?;
                    return Ok(StmtKind::Return(value));
                }
                "goto" | "try" | "asm" | "throw" | "union" | "class" | "template" => {
                    return self.unsupported(start, &format!("'{word}'"), "");
                }
                "struct" if self.defines_struct() => {
                    return self.unsupported(start, "a local struct", "move it out of the function");
                }
                "enum" => return self.unsupported(start, "a local enum", "move it out of the function"),
                "static_assert" => return Ok(StmtKind::Assertion(self.static_assertion()?)),
                "namespace" => {
                    self.namespace_alias();
                    return Ok(StmtKind::Empty);
                }
                "using"
                    if self.ahead(1) == TokenKind::Reserved("namespace")
                        || self.ahead(2) == TokenKind::Reserved("::") =>
                {
                    let start = self.at;
                    while !self.is(";") && self.kind() != TokenKind::End {
                        self.advance();
                    }
                    let end = std::mem::replace(&mut self.at, start);
                    self.record_using(end);
                    self.at = end;
                    return Ok(StmtKind::Empty);
                }
                "using" => {
                    self.advance();
                    let (name, _) = self.name("an alias")?;
                    self.expect("=", "after the name of an alias")?;
                    let ty = self.type_name()?;
                    self.expect(";", "after an alias")?;
                    self.local_type(name);
                    return Ok(StmtKind::Alias(name, ty));
                }
                "typedef" => {
                    self.advance();
                    let ty = self.type_name()?;
                    let (name, _) = self.name("an alias")?;
                    self.expect(";", "after an alias")?;
                    self.local_type(name);
                    return Ok(StmtKind::Alias(name, ty));
                }
                "else" => return self.fail(start, "'else' without 'if'", "no 'if' before it", ""),
                "case" | "default" => {
                    return self.fail(start, format!("'{word}' outside a switch"), "no enclosing switch", "");
                }
                _ => {}
            }
        }
        if let (TokenKind::Name(_), TokenKind::Reserved(":")) = (self.kind(), self.ahead(1)) {
            return self.unsupported(start, "a label", "use a loop, or a function that returns");
        }
        let is_parenthesized = matches!(
            [1, 2, 3, 4].map(|n| self.ahead(n)),
            [
                TokenKind::Reserved("("),
                TokenKind::Name(_),
                TokenKind::Reserved(")"),
                TokenKind::Reserved(";" | "=" | "," | "[")
            ]
        );
        if is_parenthesized && self.at_type() {
            let what = "a declaration with its name in parentheses";
            return self.unsupported(start, what, "remove the parentheses");
        }
        if self.at_declaration() {
            let kind = self.declaration()?;
            self.expect(";", "after a declaration")?;
            return Ok(kind);
        }
        let value = self.expr()?;
        self.expect(";", "after an expression")?;
        Ok(StmtKind::Expr(value))
    }

    /// Returns true if a declaration starts here.
    fn at_declaration(&self) -> bool {
        match self.kind() {
            TokenKind::Reserved(
                "__shared__" | "__attribute__" | "extern" | "static" | "__align__" | "alignas" | "register"
                | "__constant__" | "__device__",
            ) => true,
            TokenKind::Name(_) | TokenKind::Reserved("::") if self.scope_prefix_len() > 0 => {
                let after = self.scope_prefix_len() + 1;
                self.at_type() && !matches!(self.ahead(after), TokenKind::Reserved("(" | "{"))
            }
            // A type can also start an expression: float4(…).
            TokenKind::Name(symbol) if self.is_type_name(symbol) => {
                !matches!(self.ahead(1), TokenKind::Reserved("(" | "{" | "." | "[" | "=" | ";" | ","))
                    || self.ahead(1) == TokenKind::Reserved("(") && self.ahead(2) == TokenKind::Reserved("&")
            }
            TokenKind::Name(_) => {
                // `Foo x;` and `Foo* x;` are declarations, whatever Foo is.
                self.at_type()
                    || matches!(self.ahead(1), TokenKind::Name(_))
                    || self.ahead(1) == TokenKind::Reserved("*")
                        && matches!(self.ahead(2), TokenKind::Name(_))
                        && matches!(self.ahead(3), TokenKind::Reserved("=" | ";"))
            }
            TokenKind::Reserved(_) => {
                self.at_type()
                    && (self.ahead(1) != TokenKind::Reserved("(") || self.ahead(2) == TokenKind::Reserved("&"))
            }
            _ => false,
        }
    }

    /// Parses a declaration without its semicolon.
    pub(super) fn declaration(&mut self) -> ParseResult<StmtKind> {
        let storage: Storage = self.storage()?;
        let base = self.base_type()?;
        let storage = storage.merge(self.inner_storage);
        let rest = self.storage()?;
        let storage = storage.merge(rest);
        let is_constexpr = storage.constant;
        let storage = storage.merge(Storage { constant: base.constant, ..Storage::default() });
        let mut all = vec![];
        self.placed_shared = false;
        loop {
            let mut found = self.declarator(&base, "a variable")?;
            // 'constexpr' implies const, for a pointer itself too.
            match found.ty.pointers {
                0 => found.ty.constant |= storage.constant,
                _ => found.ty.is_const_pointer |= is_constexpr,
            }
            if !storage.external {
                self.check_redeclaration(found.name, found.span)?;
            }
            all.push(found);
            if !self.take(",") {
                break;
            }
        }
        let shared = storage.shared || self.placed_shared;
        Ok(StmtKind::Declare(Storage { shared, ..storage }, all))
    }

    /// Records a name of the current block; rejects one that it already has.
    fn check_redeclaration(&mut self, name: Symbol, span: SourceSpan) -> ParseResult<()> {
        if self.block_names.last().is_some_and(|block| block.contains(&name)) {
            let what = format!("'{}' is declared twice in this block", self.names.text(name));
            return self.fail(span, what, "the second", "give it another name, or assign it");
        }
        if let Some(block) = self.block_names.last_mut() {
            block.push(name);
        }
        Ok(())
    }

    fn condition(&mut self, of: &str) -> ParseResult<Expr> {
        self.expect("(", &format!("after '{of}'"))?;
        if self.at_type() && !matches!(self.ahead(1), TokenKind::Reserved("(" | "{")) {
            let span = self.span();
            return self.unsupported(span, "a declaration in a condition", "declare the variable before the statement");
        }
        let condition = self.expr()?;
        self.expect(")", &format!("after the condition of '{of}'"))?;
        Ok(condition)
    }

    /// Parses an `if` with its whole else-if chain, which does not count as nested.
    fn branch(&mut self) -> ParseResult<StmtKind> {
        let (condition, then) = self.arm()?;
        let (mut arms, mut otherwise) = (vec![], None);
        while self.take("else") {
            let start = self.span();
            if !self.is("if") {
                otherwise = Some(Box::new(self.statement()?));
                break;
            }
            if arms.len() + 1 == MAX_ARMS {
                let what = format!("an else-if chain of more than {MAX_ARMS} conditions");
                return self.fail(start, what, "too long", "use 'switch', or an array of values");
            }
            arms.push((start, self.arm()?));
        }
        let end = self.last_span();
        for (start, (condition, then)) in arms.into_iter().rev() {
            let kind = StmtKind::If(condition, then, otherwise);
            otherwise = Some(Box::new(Stmt { kind, span: start.to(end) }));
        }
        Ok(StmtKind::If(condition, then, otherwise))
    }

    /// `if (condition) statement`.
    fn arm(&mut self) -> ParseResult<(Expr, Box<Stmt>)> {
        self.advance();
        self.take("constexpr");
        Ok((self.condition("if")?, Box::new(self.statement()?)))
    }

    fn for_loop(&mut self) -> ParseResult<StmtKind> {
        self.advance();
        self.expect("(", "after 'for'")?;
        let start = self.span();
        let init = if self.is(";") {
            StmtKind::Empty
        } else if self.at_declaration() {
            self.declaration()?
        } else {
            StmtKind::Expr(self.expr()?)
        };
        let init = Box::new(Stmt { kind: init, span: start.to(self.last_span()) });
        if self.is(":") {
            return self.unsupported(start, "a range-based 'for'", "count with an index");
        }
        self.expect(";", "after the initializer of 'for'")?;
        let condition = if self.is(";") { None } else { Some(self.expr()?) };
        self.expect(";", "after the condition of 'for'")?;
        let step = if self.is(")") { None } else { Some(self.expr()?) };
        self.expect(")", "after the step of 'for'")?;
        let start = self.span();
        let body = match self.take("{") {
            // The body cannot declare the names of the initializer again.
            true => self.nested(|p| {
                let kind = StmtKind::Block(p.statements()?);
                Ok(Stmt { kind, span: start.to(p.last_span()) })
            })?,
            false => self.statement()?,
        };
        let body = Box::new(body);
        Ok(StmtKind::For { init, condition, step, body })
    }

    fn switch(&mut self) -> ParseResult<StmtKind> {
        self.advance();
        let value = self.condition("switch")?;
        let braces = self.take("{");
        let mut cases: Vec<Case> = vec![];
        while !braces || !self.take("}") {
            let span: SourceSpan = self.span();
            let label = match self.kind() {
                TokenKind::Reserved("case") => {
                    self.advance();
                    let label = self.expr()?;
                    Some(Some(label))
                }
                TokenKind::Reserved("default") => {
                    self.advance();
                    Some(None)
                }
                TokenKind::End => {
                    return self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
                }
                _ => None,
            };
            match label {
                Some(label) => {
                    self.expect(":", "after the label of a case")?;
                    match cases.last_mut().filter(|case| case.body.is_empty()) {
                        Some(case) => case.labels.push(label),
                        None => cases.push(Case { labels: vec![label], body: vec![] }),
                    }
                }
                None => {
                    let stmt = self.statement()?;
                    match cases.last_mut() {
                        Some(case) if !braces => {
                            case.body.push(stmt);
                            break;
                        }
                        Some(case) => case.body.push(stmt),
                        None => return self.fail(span, "statement before the first 'case'", "expected 'case'", ""),
                    }
                }
            }
        }
        Ok(StmtKind::Switch(value, cases))
    }
}
