//! Limits on nesting depth, checked on the tokens before parsing and on the blocks afterwards:
//! every walk over the syntax tree recurses, even dropping it. (The parser itself grows its stack.)

use ruff_python_ast::token::TokenKind;
use ruff_python_ast::visitor::{Visitor, walk_body, walk_stmt};
use ruff_python_ast::{Expr, Stmt};
use ruff_python_parser::{Mode, lexer::lex};
use ruff_text_size::{Ranged, TextRange};

/// Largest nesting depth of brackets or blocks, and largest number of consecutive operators.
const MAX_DEPTH: usize = 100;
/// Largest number of operators and brackets in one logical line, not counting sibling elements of a
/// list: a chain of operators nests.
const MAX_OPERATORS: usize = 1000;
/// Largest nesting depth of branches, where each elif nests in the else before it, as in the IR.
const MAX_BRANCHES: usize = 256;

/// The state of one pair of brackets.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Number of operators outside the brackets.
    outside: usize,
    /// `outside` plus the operators of the deepest element so far.
    deepest: usize,
    /// True within the parameter list of a lambda, where commas do not end an element.
    lambda: bool,
}

/// The first line that is nested too deeply: its byte offset and the error message.
pub(crate) fn too_deep(text: &str) -> Option<(usize, &'static str)> {
    let (token, what) = first_token_too_deep(text)?;
    // The lexer does not report offsets, so the line is found by the number of tokens before it.
    let mut starts = vec![0];
    starts.extend(text.bytes().enumerate().filter(|(_, c)| *c == b'\n').map(|(n, _)| n + 1));
    let line = starts.partition_point(|&start| tokens(&text[..start]) <= token);
    Some((starts[line.saturating_sub(1)], what))
}

fn tokens(text: &str) -> usize {
    let mut lexer = lex(text, Mode::Module);
    let kinds = std::iter::from_fn(|| Some(lexer.next_token()).filter(|kind| *kind != TokenKind::EndOfFile));
    kinds.filter(|kind| is_source_token(*kind)).count()
}

/// Returns true if a token is present in the source. The end of a source also ends its line and
/// blocks, or is an error after a backslash.
fn is_source_token(kind: TokenKind) -> bool {
    use TokenKind::{Dedent, Newline, NonLogicalNewline, Unknown};
    !matches!(kind, Dedent | Newline | NonLogicalNewline | Unknown)
}

/// The index of the first token that is nested too deeply, and the error message.
fn first_token_too_deep(text: &str) -> Option<(usize, &'static str)> {
    let mut lexer = lex(text, Mode::Module);
    let mut levels: Vec<Level> = vec![];
    // The level outside all brackets.
    let mut outer = Level::default();
    let (mut operators, mut consecutive, mut blocks, mut number) = (0usize, 0usize, 0usize, 0usize);
    loop {
        let kind = lexer.next_token();
        let level = levels.last_mut().unwrap_or(&mut outer);
        match kind {
            TokenKind::EndOfFile => return None,
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            // Only at the end of a logical line, which continues in brackets and after a backslash.
            TokenKind::Newline => {
                levels.clear();
                outer = Level::default();
                (operators, consecutive) = (0, 0);
            }
            TokenKind::NonLogicalNewline | TokenKind::Comment => {}
            TokenKind::Comma => {
                consecutive = 0;
                if !level.lambda {
                    level.deepest = level.deepest.max(operators);
                    operators = level.outside;
                }
            }
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                operators += 1;
                levels.push(Level { outside: operators, deepest: operators, lambda: false });
            }
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace | TokenKind::FStringEnd | TokenKind::TStringEnd => {
                // The bracketed expression may be the first operand of what follows.
                operators = operators.max(level.deepest);
                levels.pop();
                consecutive = 0;
            }
            TokenKind::Name | TokenKind::Int | TokenKind::Float | TokenKind::Complex | TokenKind::String => {
                consecutive = 0
            }
            TokenKind::FStringMiddle | TokenKind::TStringMiddle => consecutive = 0,
            _ => {
                match kind {
                    TokenKind::Lambda => level.lambda = true,
                    TokenKind::Colon => level.lambda = false,
                    _ => {}
                }
                operators += 1;
                consecutive += 1;
            }
        }
        if levels.len() > MAX_DEPTH {
            return Some((number, "brackets are nested too deeply"));
        }
        if blocks > MAX_DEPTH {
            return Some((number, "blocks are nested too deeply"));
        }
        if consecutive > MAX_DEPTH || operators > MAX_OPERATORS {
            return Some((number, "expression is nested too deeply or has too many operators"));
        }
        number += is_source_token(kind) as usize;
    }
}

/// The first branch that is nested in too many others.
pub(crate) fn too_many_branches(suite: &[Stmt]) -> Option<TextRange> {
    let mut branches = BranchDepth { depth: 0, found: None };
    walk_body(&mut branches, suite);
    branches.found
}

struct BranchDepth {
    depth: usize,
    found: Option<TextRange>,
}

impl<'a> Visitor<'a> for BranchDepth {
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
