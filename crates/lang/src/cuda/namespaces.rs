//! Namespaces of a file. Items are stored by their plain names; where several namespaces define the
//! same name, the positions of its definitions and of its use tell which one is meant.

use foldhash::{HashMap, HashSet};

use super::lex::Symbol;
use crate::SourceSpan;
use crate::diagnostic::Source;

/// Text before a name: `a::b::`, or `::a::` if it is rooted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qualifier {
    pub is_rooted: bool,
    pub path: Vec<Symbol>,
}

impl Qualifier {
    /// Returns true if it can name the namespace `path`.
    pub fn names(&self, path: &[Symbol]) -> bool {
        if self.is_rooted { path == self.path } else { path.ends_with(&self.path) }
    }
}

/// A namespace that the file opens.
#[derive(Clone, Debug)]
struct Namespace {
    start: u32,
    end: u32,
    path: Vec<Symbol>,
}

#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    /// In the order in which they are opened.
    all: Vec<Namespace>,
    /// Qualifiers by the position and the name that they qualify.
    qualifiers: HashMap<(u32, Symbol), Qualifier>,
    /// Names of using-declarations, and namespaces of using-directives.
    used: HashSet<Symbol>,
}

impl Namespaces {
    /// Opens a namespace inside the namespace `outer`, and returns its index. One without a name,
    /// or an inline one, is part of the namespace around it.
    pub fn open(&mut self, outer: Option<usize>, names: &[Symbol], start: u32) -> usize {
        let mut path = outer.map_or(vec![], |outer| self.all[outer].path.clone());
        path.extend(names);
        self.all.push(Namespace { start, end: u32::MAX, path });
        self.all.len() - 1
    }

    pub fn close(&mut self, namespace: usize, end: u32) {
        self.all[namespace].end = end;
    }

    /// Path of the namespace around a position; empty outside of all namespaces.
    pub fn path_at(&self, position: u32) -> &[Symbol] {
        let around = |namespace: &&Namespace| (namespace.start..namespace.end).contains(&position);
        self.all.iter().rev().find(around).map_or(&[], |namespace| &namespace.path)
    }

    pub fn qualify(&mut self, position: u32, name: Symbol, qualifier: Qualifier) {
        self.qualifiers.insert((position, name), qualifier);
    }

    pub fn qualifier(&self, span: SourceSpan, name: Symbol) -> Option<&Qualifier> {
        self.qualifiers.get(&(span.start, name))
    }

    /// Records `using a::name;` or `using namespace name;`.
    pub fn record_using(&mut self, name: Symbol) {
        self.used.insert(name);
    }

    /// Returns true if a using-declaration or using-directive may make the definition of `name` in
    /// a namespace visible elsewhere.
    pub fn is_used(&self, name: Symbol, path: &[Symbol]) -> bool {
        self.used.contains(&name) || path.last().is_some_and(|last| self.used.contains(last))
    }

    /// Definitions, by index, that a use of a name may refer to. All are returned where that is not
    /// known, for example because of a using-directive.
    pub fn visible(&self, name: Symbol, at: SourceSpan, definitions: &[SourceSpan], source: &Source) -> Vec<usize> {
        let paths: Vec<&[Symbol]> = definitions.iter().map(|span| self.path_at(span.start)).collect();
        let every: Vec<usize> = (0..definitions.len()).collect();
        if paths.windows(2).all(|two| two[0] == two[1]) {
            return every;
        }
        if let Some(qualifier) = self.qualifier(at, name) {
            let named: Vec<usize> = every.iter().copied().filter(|n| qualifier.names(paths[*n])).collect();
            return if named.is_empty() { every } else { named };
        }
        if paths.iter().any(|path| self.is_used(name, path)) {
            return every;
        }
        let context = self.path_at(at.start);
        let Some(innermost) = paths.iter().filter(|path| context.starts_with(path)).map(|path| path.len()).max() else {
            return every;
        };
        let file = |span: SourceSpan| source.location(source.line(span.start)).0;
        let is_innermost = |n: &usize| context.starts_with(paths[*n]) && paths[*n].len() == innermost;
        let found: Vec<usize> = every.iter().copied().filter(is_innermost).collect();
        // A definition after the use is not visible there.
        let is_later = |n: &usize| definitions[*n].start > at.start && file(definitions[*n]) == file(at);
        if found.iter().any(is_later) { every } else { found }
    }
}
