//! Classifies items before they are parsed: where an item ends, the name that it declares, and
//! whether it is code of the host or of the device.

use super::Parser;
use crate::cuda::lex::{Symbol, Token, TokenKind};

impl Parser<'_> {
    /// Number of tokens of `template <…>` at `start`.
    pub(super) fn template_header_len(&self, start: usize) -> usize {
        let two = self.tokens.get(start..start + 2).unwrap_or_default();
        if !two.iter().map(|token| token.kind).eq([TokenKind::Reserved("template"), TokenKind::Reserved("<")]) {
            return 0;
        }
        let (mut depth, mut angles) = (0usize, 0usize);
        for (n, token) in self.tokens[start..].iter().enumerate().skip(1) {
            match token.kind {
                TokenKind::Reserved("(" | "[" | "{") => depth += 1,
                TokenKind::Reserved(")" | "]" | "}") => depth = depth.saturating_sub(1),
                TokenKind::Reserved("<") if depth == 0 => angles += 1,
                TokenKind::Reserved(">") if depth == 0 => angles = angles.saturating_sub(1),
                TokenKind::Reserved(sign @ (">>" | ">>>")) if depth == 0 => angles = angles.saturating_sub(sign.len()),
                TokenKind::Reserved(";") | TokenKind::End => return 0,
                _ => {}
            }
            if angles == 0 {
                return n + 1;
            }
        }
        0
    }

    /// Index of the token after the item here.
    pub(super) fn item_end(&self) -> usize {
        let (mut depth, mut assigned) = (0usize, false);
        for n in self.at + self.template_header_len(self.at)..self.tokens.len() {
            match self.tokens[n].kind {
                TokenKind::Reserved("(" | "[" | "{") => depth += 1,
                TokenKind::Reserved(")" | "]") => depth = depth.saturating_sub(1),
                TokenKind::Reserved("=") if depth == 0 && !self.is_operator_symbol(n) => assigned = true,
                TokenKind::Reserved("}") => {
                    depth = depth.saturating_sub(1);
                    // `Pair(int v) : a{v}, b{v} { … }`.
                    let next = self.tokens.get(n + 1).map(|token| token.kind);
                    let continues = matches!(next, Some(TokenKind::Reserved("," | "{")));
                    if depth == 0 && !assigned && !continues {
                        return self.after_semicolon(n + 1);
                    }
                }
                TokenKind::Reserved(";") if depth == 0 => return n + 1,
                TokenKind::End => return n,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    /// Reports an item that the end of the file cuts off, and one that contains a kernel: what
    /// follows would be lost.
    pub(super) fn check_finished(&mut self, start: usize, end: usize) {
        let item = &self.tokens[start..end];
        let head = self.head_of(start, end).len() + self.template_header_len(start);
        let inner = item.iter().skip(head).position(|token| token.kind == TokenKind::Reserved("__global__"));
        let is_friend = |at: usize| item[at.saturating_sub(1)].kind == TokenKind::Reserved("friend");
        let inner = inner.map(|at| at + head).filter(|at| !is_friend(*at));
        let mut depth = 0usize;
        for token in item {
            match token.kind {
                TokenKind::Reserved("(" | "[" | "{") => depth += 1,
                TokenKind::Reserved(")" | "]" | "}") => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        let last = item.last().map(|token| token.kind);
        let is_cut = self.tokens[end].kind == TokenKind::End
            && (depth > 0 || !matches!(last, Some(TokenKind::Reserved(";" | "}"))));
        let construct = self.construct_name(start, end);
        let is_reported = self
            .file
            .unsupported_functions
            .last()
            .is_some_and(|last| last.is_kernel && last.span == self.tokens[start].span);
        let (span, what, label) = match inner {
            Some(at) => {
                let what = format!("a kernel inside {construct}: a '}}' or ';' is missing before it");
                (self.tokens[start + at].span, what, "kernels are declared in namespaces only")
            }
            None if is_cut && !is_reported => {
                let what = format!("{construct} is unfinished: found the end of the file");
                (self.tokens[start].span, what, "it starts here")
            }
            None => return,
        };
        let found = self.source.diagnostic(span, what, label.into(), None);
        if self.errors.len() < super::MAX_ERRORS {
            self.errors.push(found);
        }
    }

    /// An item in words: `struct 'S'`, `function 'f'`.
    fn construct_name(&self, start: usize, end: usize) -> String {
        let head = self.head_of(start, end);
        let has = |word: &'static str| head.iter().any(|token| token.kind == TokenKind::Reserved(word));
        let kind = match self.tokens[start].kind {
            _ if has("__global__") => "kernel",
            _ if has("enum") => "enum",
            _ if has("struct") => "struct",
            _ if has("class") => "class",
            _ if has("union") => "union",
            TokenKind::Reserved("using" | "typedef") => "alias",
            TokenKind::Reserved("template") if head.is_empty() || self.template_header_len(start) == 0 => "template",
            _ if has("(") => "function",
            _ => "declaration",
        };
        match self.declared_name(start, end) {
            Some(name) => format!("{kind} '{}'", self.names.text(name)),
            None if kind.starts_with(['a', 'e']) => format!("an {kind}"),
            None => format!("a {kind}"),
        }
    }

    /// Returns true for the symbol of an operator function, such as the `=` of `operator=`.
    fn is_operator_symbol(&self, at: usize) -> bool {
        at > 0 && self.tokens[at - 1].kind == TokenKind::Reserved("operator")
    }

    /// Index after an optional semicolon that follows a brace: `};`, `} name;`, `} name, *other;`.
    pub(super) fn after_semicolon(&self, at: usize) -> usize {
        let kind = |n: usize| self.tokens.get(n).map(|token| token.kind);
        let aggregate = matches!(self.kind(), TokenKind::Reserved("typedef" | "struct" | "class" | "union" | "enum"));
        match (kind(at), kind(at + 1)) {
            (Some(TokenKind::Reserved(";")), _) => at + 1,
            (Some(TokenKind::Name(_)), Some(TokenKind::Reserved(";"))) if aggregate => at + 2,
            (Some(TokenKind::Name(_)), Some(TokenKind::Reserved(",")))
            | (Some(TokenKind::Reserved("*")), Some(TokenKind::Name(_)))
                if aggregate =>
            {
                let end = (at..self.tokens.len()).find(|n| kind(*n) == Some(TokenKind::Reserved(";")));
                end.map_or(at, |end| end + 1)
            }
            _ => at,
        }
    }

    pub(super) fn head(&self, end: usize) -> Vec<Token> {
        self.head_of(self.at, end)
    }

    /// Tokens of an item before its body or initializer, without template parameters and alignment
    /// specifiers.
    pub(super) fn head_of(&self, start: usize, end: usize) -> Vec<Token> {
        let mut out: Vec<Token> = vec![];
        let mut at = (start + self.template_header_len(start)).min(end);
        while at < end {
            let token = self.tokens[at];
            at += 1;
            match token.kind {
                TokenKind::Reserved("{" | ";" | "=") if !self.is_operator_symbol(at - 1) => break,
                TokenKind::Reserved("__align__" | "alignas") => {
                    at = self.after_parentheses(at).min(end);
                }
                _ => out.push(token),
            }
        }
        out
    }

    /// Returns true for device code.
    pub(super) fn is_device_item(&self, start: usize, end: usize) -> bool {
        let words = ["__global__", "__device__", "__constant__", "__shared__", "__managed__"];
        self.head_of(start, end)
            .iter()
            .any(|token| matches!(token.kind, TokenKind::Reserved(word) if words.contains(&word)))
    }

    /// Returns true for items to skip: host code, and helper functions of the CUDA printer.
    pub(super) fn is_host_item(&self, end: usize) -> bool {
        let head = self.head(end);
        let names = head.iter().filter_map(|t| if let TokenKind::Name(s) = t.kind { Some(s) } else { None });
        if names.clone().any(|s| self.names.text(s).starts_with("bn_") && self.item_name(&head) == Some(s)) {
            return true;
        }
        let has = |word: &'static str| head.iter().any(|t| t.kind == TokenKind::Reserved(word));
        let is_deleted = self.tokens[self.at..end].iter().rev().nth(1).map(|token| token.kind);
        if is_deleted == Some(TokenKind::Reserved("delete")) && has("(") {
            return false;
        }
        if has("__global__") || has("__device__") || has("__constant__") || has("__shared__") || has("constexpr") {
            return false;
        }
        let parenthesis = has("(");
        let declares = has("struct") || has("typedef") || has("using") || has("enum") || has("union") || has("class");
        if declares && !parenthesis {
            // using namespace std; using std::min;
            return has("using") && (has("namespace") || has("::"));
        }
        if has("static_assert") {
            return true;
        }
        // Host constants are visible in kernels too, also `const int n(4);`.
        let initialized = |three: &[Token]| {
            matches!(three[0].kind, TokenKind::Name(_))
                && three[1].kind == TokenKind::Reserved("(")
                && match three[2].kind {
                    TokenKind::Int { .. } | TokenKind::Float { .. } => true,
                    TokenKind::Name(name) => {
                        let globals = &self.file.globals;
                        globals.iter().any(|(_, found)| found.name == name)
                    }
                    _ => false,
                }
        };
        parenthesis && !head.windows(3).any(initialized) || !has("const")
    }

    /// Name that an item declares: before the parenthesis of a function, otherwise the last name.
    pub(super) fn item_name(&self, head: &[Token]) -> Option<Symbol> {
        let name = |kind: TokenKind| if let TokenKind::Name(symbol) = kind { Some(symbol) } else { None };
        let aggregate =
            |token: &Token| matches!(token.kind, TokenKind::Reserved("struct" | "class" | "union" | "enum"));
        if let Some(n) = head.iter().position(aggregate) {
            return head[n..].iter().find_map(|token| name(token.kind));
        }
        let pairs =
            head.windows(2).find(|pair| pair[1].kind == TokenKind::Reserved("(") && name(pair[0].kind).is_some());
        match pairs {
            Some(pair) => name(pair[0].kind),
            None => head.iter().rev().find_map(|t| name(t.kind)),
        }
    }

    /// Name that an item declares.
    pub(super) fn declared_name(&self, start: usize, end: usize) -> Option<Symbol> {
        let name = |token: &Token| if let TokenKind::Name(symbol) = token.kind { Some(symbol) } else { None };
        match self.tokens[start].kind {
            TokenKind::Reserved("typedef") => self.tokens[start..end].iter().rev().find_map(name),
            TokenKind::Reserved("using") => self.tokens[start..end].iter().find_map(name),
            _ => self.item_name(&self.head_of(start, end)),
        }
    }

    /// Returns true if a brace follows before the end of the statement at `at`.
    pub(super) fn has_brace(&self, at: usize) -> bool {
        let rest = self.tokens[at.min(self.tokens.len())..].iter().map(|token| token.kind);
        rest.take_while(|kind| *kind != TokenKind::Reserved(";")).any(|kind| kind == TokenKind::Reserved("{"))
    }
}
