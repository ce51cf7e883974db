//! Selects the declarations that kernels need, by name: those that the kept text mentions, until
//! nothing is added. This keeps more than C++ would look up (a local variable may have the name of
//! a function), never less.

use std::ops::Range;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::Outline;
use super::units::{TextUnit, Units};
use crate::SourceSpan;
use crate::cuda::CudaModule;
use crate::cuda::lex::{Interner, Symbol, Token, TokenKind};
use crate::cuda::parse::OutlineKind;
use crate::cuda::preprocess::TraceKind;

/// The kernels to keep.
pub struct Roots {
    pub kernels: Vec<Symbol>,
    /// True if one instance of a template is selected, so that other explicit instances are left
    /// out.
    pub is_instance: bool,
}

pub struct Needed<'a> {
    outline: &'a Outline,
    units: &'a Units,
    interner: &'a Interner,
    declared: Vec<Vec<Symbol>>,
    /// Units that are kept.
    pub kept: Vec<bool>,
    /// Active directives outside of units that are kept, by element.
    pub directives: Vec<bool>,
    /// Conditional groups that are kept.
    pub groups: Vec<bool>,
    /// Names of declarations and macros in the kept text.
    pub names: HashSet<Symbol>,
    macros: HashSet<Symbol>,
}

impl<'a> Needed<'a> {
    pub fn new(module: &'a CudaModule, outline: &'a Outline, units: &'a Units) -> Needed<'a> {
        let mut needed = Needed {
            outline,
            units,
            interner: &module.names,
            declared: vec![],
            kept: vec![false; units.units.len()],
            directives: vec![false; units.elements.len()],
            groups: vec![false; units.groups.len()],
            names: HashSet::new(),
            macros: HashSet::new(),
        };
        needed.declared = units.units.iter().map(|unit| needed.declared_names(unit)).collect();
        needed
    }

    /// Returns true if the kept text mentions a macro of this name.
    pub fn mentions(&self, name: &str) -> bool {
        self.interner.find(name).is_some_and(|name| self.macros.contains(&name))
    }

    /// Returns true if a kept declaration or macro has this name.
    pub fn declares(&self, name: &str) -> bool {
        let Some(name) = self.interner.find(name) else { return false };
        let defines = |element: &super::units::TextElement| {
            element.word == "define"
                && self.units.raw[element.raw.clone()].get(2).is_some_and(|t| t.kind == TokenKind::Name(name))
        };
        self.declared.iter().zip(&self.kept).any(|(names, kept)| *kept && names.contains(&name))
            || self.units.elements.iter().zip(&self.directives).any(|(element, kept)| *kept && defines(element))
    }

    /// Texts of the names that the kept text mentions.
    pub fn mentioned(&self) -> impl Iterator<Item = &str> {
        self.macros.iter().map(|name| self.interner.text(*name))
    }

    /// Adds the names in a text to those that are needed.
    pub fn add_text(&mut self, text: &str) {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if let Some(name) = self.interner.find(word) {
                self.names.insert(name);
                self.macros.insert(name);
            }
        }
    }

    pub fn select(&mut self, roots: &Roots) {
        loop {
            let before = (self.kept.clone(), self.directives.clone(), self.groups.clone());
            for n in 0..self.kept.len() {
                if !self.kept[n] && self.is_needed(n, roots) {
                    self.keep(n);
                }
            }
            self.keep_scopes();
            self.keep_directives();
            if before == (self.kept.clone(), self.directives.clone(), self.groups.clone()) {
                break;
            }
        }
        self.keep_assertions();
    }

    fn words(&self, unit: &TextUnit) -> impl Iterator<Item = TokenKind> {
        let entries = self.outline.entries[unit.entries.clone()].iter();
        entries.flat_map(|entry| self.outline.tokens[entry.tokens.clone()].iter().map(|token| token.kind))
    }

    fn first(&self, unit: &TextUnit) -> (TokenKind, TokenKind) {
        let mut words = self.words(unit);
        (words.next().unwrap_or(TokenKind::End), words.next().unwrap_or(TokenKind::End))
    }

    fn is_needed(&self, n: usize, roots: &Roots) -> bool {
        let unit = &self.units.units[n];
        if unit.kind != OutlineKind::Item {
            return false;
        }
        let declares = |name: &Symbol| self.declared[n].contains(name);
        let is_root = || roots.kernels.iter().any(declares);
        let head = || self.words(unit).take_while(|word| *word != TokenKind::Reserved("{"));
        let has = |word: &'static str| head().any(|found| found == TokenKind::Reserved(word));
        match self.first(unit) {
            (TokenKind::Reserved("static_assert"), _) => false,
            (TokenKind::Reserved("using"), second)
                if !self.words(unit).any(|word| word == TokenKind::Reserved("=")) =>
            {
                self.is_used_namespace(unit, second == TokenKind::Reserved("namespace"))
            }
            // An explicit instance.
            (TokenKind::Reserved("template"), second) if second != TokenKind::Reserved("<") && is_root() => {
                !roots.is_instance
            }
            _ if unit.entries.len() == 1 && has("__global__") => is_root(),
            _ if has("operator") => self.operand_types(unit).iter().any(|name| self.names.contains(name)),
            _ if is_root() => true,
            _ => self.declared[n].iter().any(|name| self.names.contains(name)),
        }
    }

    /// Names before a parameter or a declarator in the head of an operator function.
    fn operand_types(&self, unit: &TextUnit) -> Vec<Symbol> {
        let head: Vec<TokenKind> = self.words(unit).take_while(|word| *word != TokenKind::Reserved("{")).collect();
        let is_type = |two: &[TokenKind]| match two {
            [TokenKind::Name(name), TokenKind::Name(_) | TokenKind::Reserved("&" | "*" | "<" | "::" | "const")] => {
                Some(*name)
            }
            _ => None,
        };
        head.windows(2).filter_map(is_type).collect()
    }

    /// Decides whether to keep a using-directive or using-declaration.
    fn is_used_namespace(&self, unit: &TextUnit, is_directive: bool) -> bool {
        let names: Vec<&str> = self
            .words(unit)
            .filter_map(|word| if let TokenKind::Name(name) = word { Some(self.interner.text(name)) } else { None })
            .collect();
        let (Some(first), Some(last)) = (names.first(), names.last()) else { return false };
        let uses = |used: &dyn Fn(&str) -> bool| self.names.iter().any(|name| used(self.interner.text(*name)));
        match (*first, is_directive) {
            (_, false) => self.mentions(last),
            ("std", _) => first == last,
            ("cooperative_groups", _) => uses(&|name| {
                name.starts_with("this_")
                    || name.starts_with("thread_block")
                    || name.starts_with("coalesced_")
                    || matches!(name, "tiled_partition" | "thread_group" | "grid_group")
            }),
            ("nvcuda", _) => uses(&|name| name == "wmma"),
            ("cub", _) => uses(&|name| name.starts_with("Block") || name.starts_with("Warp")),
            // A namespace of the file.
            _ => self.units.units.iter().zip(&self.kept).any(|(open, kept)| {
                open.kind == OutlineKind::Open
                    && *kept
                    && self
                        .words(open)
                        .any(|word| matches!(word, TokenKind::Name(name) if self.interner.text(name) == *last))
            }),
        }
    }

    fn keep(&mut self, n: usize) {
        self.kept[n] = true;
        let unit = &self.units.units[n];
        match unit.kind {
            // The name of a namespace does not need declarations.
            OutlineKind::Open | OutlineKind::Close => self.add_macros(unit.raw.clone()),
            _ => {
                self.add_names(self.words(unit).collect());
                self.add_raw(unit.raw.clone());
            }
        }
        for element in self.units.elements_of(&unit.raw) {
            self.keep_group(self.units.elements[element].group);
        }
    }

    /// Adds the names of text before macro expansion.
    fn add_raw(&mut self, raw: Range<usize>) {
        self.add_macros(raw.clone());
        self.add_names(self.units.raw[raw].iter().map(|token| token.kind).collect());
    }

    /// Adds the names of text that may be macros, and the macros that were expanded in it, whose
    /// names may be pasted.
    fn add_macros(&mut self, raw: Range<usize>) {
        let tokens = &self.units.raw[raw.clone()];
        self.macros.extend(tokens.iter().filter_map(|token| name_of(&token.kind)));
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return };
        for element in &self.units.elements[self.units.elements_of(&raw)] {
            // The positions of an element in between may be those of another file.
            let is_after = |span: SourceSpan| !element.raw.contains(&raw.start) || span.start >= first.span.start;
            let is_before = |span: SourceSpan| !element.raw.contains(&(raw.end - 1)) || span.start < last.span.end;
            let within = |(span, _): &&(SourceSpan, Symbol)| is_after(*span) && is_before(*span);
            self.macros.extend(element.uses.iter().filter(within).map(|(_, name)| *name));
        }
    }

    /// Adds names, except those of members.
    fn add_names(&mut self, kinds: Vec<TokenKind>) {
        let before = [TokenKind::End].into_iter().chain(kinds.iter().copied());
        let names = kinds.iter().zip(before).filter(|(_, before)| !matches!(before, TokenKind::Reserved("." | "->")));
        self.names.extend(names.filter_map(|(kind, _)| name_of(kind)));
    }

    /// Keeps a conditional group with its parts that are excluded.
    fn keep_group(&mut self, group: Option<usize>) {
        let Some(n) = group.filter(|n| !self.groups[*n]) else { return };
        self.groups[n] = true;
        let group = &self.units.groups[n];
        if !group.is_guard {
            for directive in &group.directives {
                self.add_raw(self.units.elements[*directive].raw.clone());
            }
            for element in self.units.elements.iter().filter(|element| element.group == Some(n)) {
                if matches!(element.kind, TraceKind::Excluded | TraceKind::Directive(false)) {
                    self.add_raw(element.raw.clone());
                }
            }
        }
        self.keep_group(group.parent);
    }

    fn keep_scopes(&mut self) {
        let (mut open, mut kept) = (vec![], vec![]);
        for (n, unit) in self.units.units.iter().enumerate() {
            match unit.kind {
                OutlineKind::Open => open.push((n, false)),
                OutlineKind::Close => {
                    if let Some((start, true)) = open.pop() {
                        kept.extend([start, n]);
                    }
                }
                _ if self.kept[n] => open.iter_mut().for_each(|(_, keeps)| *keeps = true),
                _ => {}
            }
        }
        kept.into_iter().filter(|n| !self.kept[*n]).collect::<Vec<_>>().into_iter().for_each(|n| self.keep(n));
    }

    /// Keeps definitions of macros that the kept text mentions.
    fn keep_directives(&mut self) {
        for (n, element) in self.units.elements.iter().enumerate() {
            let line = &self.units.raw[element.raw.clone()];
            match element.kind {
                TraceKind::Directive(true)
                    if !self.directives[n] && matches!(element.word.as_str(), "define" | "undef") =>
                {
                    let is_needed = match line.get(2).map(|token| token.kind) {
                        Some(TokenKind::Name(name)) => self.macros.contains(&name),
                        Some(TokenKind::Reserved(_)) => true,
                        _ => false,
                    };
                    if is_needed {
                        self.directives[n] = true;
                        self.add_raw(element.raw.start + 3..element.raw.end.max(element.raw.start + 3));
                        self.keep_group(element.group);
                    }
                }
                // Another architecture may need what this one excludes.
                TraceKind::Excluded | TraceKind::Directive(false)
                    if self.depends_on_architecture(element.group)
                        && self.units.unit_at(element.raw.start).is_none()
                        && line
                            .iter()
                            .any(|token| name_of(&token.kind).is_some_and(|name| self.macros.contains(&name))) =>
                {
                    self.keep_group(element.group);
                }
                _ => {}
            }
        }
    }

    fn depends_on_architecture(&self, group: Option<usize>) -> bool {
        let Some(group) = group.filter(|n| !self.groups[*n]).map(|n| &self.units.groups[n]) else { return false };
        let is_architecture = |token: &Token| match token.kind {
            TokenKind::Name(name) => self.interner.text(name) == "__CUDA_ARCH__",
            _ => false,
        };
        let mut lines = group.directives.iter().map(|n| self.units.elements[*n].raw.clone());
        lines.any(|line| self.units.raw[line].iter().any(is_architecture))
    }

    /// Keeps assertions about kept declarations only.
    fn keep_assertions(&mut self) {
        let mut all: HashMap<Symbol, bool> = HashMap::new();
        for (names, kept) in self.declared.iter().zip(&self.kept) {
            names.iter().for_each(|name| *all.entry(*name).or_default() |= *kept);
        }
        for n in 0..self.kept.len() {
            let unit = &self.units.units[n];
            if self.first(unit).0 == TokenKind::Reserved("static_assert") {
                let names: Vec<bool> = self.words(unit).filter_map(|word| all.get(&name_of(&word)?).copied()).collect();
                if names.contains(&true) && !names.contains(&false) {
                    self.keep(n);
                }
            }
        }
        self.keep_directives();
    }

    /// Names that a unit declares, and names of types before its declarators.
    fn declared_names(&self, unit: &TextUnit) -> Vec<Symbol> {
        let mut out = vec![];
        for entry in &self.outline.entries[unit.entries.clone()] {
            let all: Vec<TokenKind> =
                self.outline.tokens[entry.tokens.clone()].iter().map(|token| token.kind).collect();
            let body = &all[template_header(&all)..];
            let is_enum = body.iter().take(2).any(|word| *word == TokenKind::Reserved("enum"));
            let (mut depth, mut after_key, mut in_value) = (0usize, false, false);
            for (n, word) in body.iter().enumerate() {
                match (word, body.get(n + 1)) {
                    (TokenKind::Reserved("(" | "[" | "{"), _) => depth += 1,
                    (TokenKind::Reserved(")" | "]" | "}"), _) => depth = depth.saturating_sub(1),
                    (TokenKind::Reserved("="), _) if depth == 0 => in_value = true,
                    (TokenKind::Reserved(","), _) if depth == 0 => in_value = false,
                    (TokenKind::Reserved("struct" | "class" | "union" | "enum" | "namespace"), _) => {
                        after_key = depth == 0
                    }
                    (TokenKind::Name(name), next) => {
                        let declares = match next {
                            Some(TokenKind::Reserved("(" | "=" | "," | ";" | "[" | "{" | ":" | "::" | "<")) => {
                                depth == 0 && !in_value
                            }
                            // `typedef void (*callback)(int);`
                            Some(TokenKind::Reserved(")")) => all[0] == TokenKind::Reserved("typedef"),
                            _ => false,
                        };
                        if declares || after_key || is_enum && depth == 1 {
                            out.push(*name);
                        }
                        after_key = false;
                    }
                    _ => {}
                }
            }
        }
        out
    }
}

fn name_of(kind: &TokenKind) -> Option<Symbol> {
    if let TokenKind::Name(name) = kind { Some(*name) } else { None }
}

/// Number of tokens of `template <…>`.
fn template_header(all: &[TokenKind]) -> usize {
    if !matches!(all, [TokenKind::Reserved("template"), TokenKind::Reserved("<"), ..]) {
        return 0;
    }
    let mut angles = 0usize;
    for (n, word) in all.iter().enumerate() {
        match word {
            TokenKind::Reserved("<") => angles += 1,
            TokenKind::Reserved(close @ (">" | ">>" | ">>>")) => {
                angles = angles.saturating_sub(close.len());
                if angles == 0 {
                    return n + 1;
                }
            }
            _ => {}
        }
    }
    0
}
