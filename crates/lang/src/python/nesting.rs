//! How deep a text nests, found from its tokens without parsing it, and how deep its blocks are in each other: what walks
//! the tree recurses, even to drop it. (The parser itself makes room for its stack.)

use ruff_python_ast::token::TokenKind;
use ruff_python_ast::visitor::{Visitor, walk_body, walk_stmt};
use ruff_python_ast::{Expr, Stmt};
use ruff_python_parser::{Mode, lexer::lex};
use ruff_text_size::{Ranged, TextRange};

/// Brackets or blocks within each other, and operators that stand side by side.
const MAX_DEPTH: usize = 100;
/// Operators and brackets in one logical line, elements of a list apart: a chain of them nests.
const MAX_OPERATORS: usize = 1000;
/// Blocks within each other where each elif is a block of the else before it, as it is in the IR.
const MAX_BRANCHES: usize = 256;

/// What is within a pair of brackets.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Operators around its elements.
    around: usize,
    /// The same with those of the deepest element so far.
    most: usize,
    /// Whether a lambda's parameters are being listed: their commas do not end an element.
    lambda: bool,
}

/// The place of the line that is nested too deep, and what is.
pub(crate) fn too_deep(text: &str) -> Option<(usize, &'static str)> {
    let (token, what) = deep_token(text)?;
    // The lexer does not tell where it is, so that the line is found by how many tokens are before it.
    let mut starts = vec![0];
    starts.extend(text.bytes().enumerate().filter(|(_, c)| *c == b'\n').map(|(n, _)| n + 1));
    let line = starts.partition_point(|&start| tokens(&text[..start]) <= token);
    Some((starts[line.saturating_sub(1)], what))
}

fn tokens(text: &str) -> usize {
    let mut lexer = lex(text, Mode::Module);
    let kinds = std::iter::from_fn(|| Some(lexer.next_token()).filter(|kind| *kind != TokenKind::EndOfFile));
    kinds.filter(|kind| is_written(*kind)).count()
}

/// Whether a token is in the text: the end of a text ends its line and blocks too, or is an error after a backslash.
fn is_written(kind: TokenKind) -> bool {
    use TokenKind::{Dedent, Newline, NonLogicalNewline, Unknown};
    !matches!(kind, Dedent | Newline | NonLogicalNewline | Unknown)
}

/// The first token that is nested too deep, by its number among those that are written.
fn deep_token(text: &str) -> Option<(usize, &'static str)> {
    let mut lexer = lex(text, Mode::Module);
    let mut levels: Vec<Level> = vec![];
    // The level of what is in no brackets.
    let mut outer = Level::default();
    let (mut operators, mut row, mut blocks, mut number) = (0usize, 0usize, 0usize, 0usize);
    loop {
        let kind = lexer.next_token();
        let level = levels.last_mut().unwrap_or(&mut outer);
        match kind {
            TokenKind::EndOfFile => return None,
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            // Only the end of a logical line: in brackets and after a backslash, lines go on.
            TokenKind::Newline => {
                levels.clear();
                outer = Level::default();
                (operators, row) = (0, 0);
            }
            TokenKind::NonLogicalNewline | TokenKind::Comment => {}
            TokenKind::Comma => {
                row = 0;
                if !level.lambda {
                    level.most = level.most.max(operators);
                    operators = level.around;
                }
            }
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                operators += 1;
                levels.push(Level { around: operators, most: operators, lambda: false });
            }
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace | TokenKind::FStringEnd | TokenKind::TStringEnd => {
                // What stands after it may hold it as its first operand.
                operators = operators.max(level.most);
                levels.pop();
                row = 0;
            }
            TokenKind::Name | TokenKind::Int | TokenKind::Float | TokenKind::Complex | TokenKind::String => row = 0,
            TokenKind::FStringMiddle | TokenKind::TStringMiddle => row = 0,
            _ => {
                match kind {
                    TokenKind::Lambda => level.lambda = true,
                    TokenKind::Colon => level.lambda = false,
                    _ => {}
                }
                operators += 1;
                row += 1;
            }
        }
        if levels.len() > MAX_DEPTH {
            return Some((number, "brackets are nested too deep"));
        }
        if blocks > MAX_DEPTH {
            return Some((number, "blocks are nested too deep"));
        }
        if row > MAX_DEPTH || operators > MAX_OPERATORS {
            return Some((number, "an expression is nested too deep or has too many operators"));
        }
        number += is_written(kind) as usize;
    }
}

/// The first branch that is in too many others.
pub(crate) fn too_branched(suite: &[Stmt]) -> Option<TextRange> {
    let mut branches = Branches { depth: 0, found: None };
    walk_body(&mut branches, suite);
    branches.found
}

struct Branches {
    depth: usize,
    found: Option<TextRange>,
}

impl<'a> Visitor<'a> for Branches {
    fn visit_expr(&mut self, _: &'a Expr) {}

    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if self.found.is_some() {
            return;
        }
        let before = self.depth;
        self.depth += 1;
        if let Stmt::If(branch) = stmt {
            walk_body(self, &branch.body);
            for clause in &branch.elif_else_clauses {
                self.depth += clause.test.is_some() as usize;
                if self.depth > MAX_BRANCHES {
                    self.found = Some(clause.range());
                    break;
                }
                walk_body(self, &clause.body);
            }
        } else {
            walk_stmt(self, stmt);
        }
        self.depth = before;
    }
}
