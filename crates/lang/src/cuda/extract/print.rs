//! Copies the selected parts of a source. White space and comments before a part belong to it, and
//! so does a comment after it on its last line.

use std::ops::Range;

use super::needed::Needed;
use super::units::{TextElement, Units, is_conditional};
use crate::cuda::CudaModule;
use crate::cuda::lex::{Symbol, TokenKind};
use crate::cuda::parse::OutlineKind;
use crate::cuda::preprocess::TraceKind;
use crate::diagnostic::Source;

/// A file that is being copied.
struct OpenFile {
    /// Byte after the last part that was read.
    at: usize,
    end: usize,
    /// Comment at the begin of the file, until it is written.
    head: Option<Range<usize>>,
    is_begun: bool,
}

struct Printer<'a> {
    source: &'a Source,
    units: &'a Units,
    needed: &'a Needed<'a>,
    files: Vec<OpenFile>,
    /// File that was named last.
    named: String,
    out: String,
}

/// Prints the kept text, and instances of templates after it.
pub fn print(module: &CudaModule, units: &Units, needed: &Needed, instances: &[(Symbol, String)]) -> String {
    let end = module.source.own_length();
    let main = OpenFile { at: 0, end, head: None, is_begun: false };
    let (source, named) = (&module.source, module.source.file.clone());
    let mut printer = Printer { source, units, needed, files: vec![main], named, out: String::new() };
    for n in 0..units.elements.len() {
        printer.element(n);
    }
    printer.end_line();
    printer.instantiate(module, instances);
    printer.out
}

impl Printer<'_> {
    fn element(&mut self, n: usize) {
        let element = &self.units.elements[n];
        match element.kind {
            TraceKind::Enter(span) => {
                let (at, end) = (span.start as usize, span.end as usize);
                self.files.push(OpenFile { at, end, head: None, is_begun: false });
            }
            TraceKind::Leave => {
                self.files.pop();
            }
            TraceKind::Text => self.text(element.raw.clone()),
            TraceKind::Excluded => self.part(element.raw.clone(), self.is_group_kept(element), false),
            TraceKind::Directive(_) => self.part(element.raw.clone(), self.keeps_directive(n, element), true),
        }
    }

    fn is_group_kept(&self, element: &TextElement) -> bool {
        element.group.is_none_or(|group| self.needed.groups[group])
    }

    fn keeps_directive(&self, n: usize, element: &TextElement) -> bool {
        let word = element.word.as_str();
        if is_conditional(word) {
            return self.is_group_kept(element)
                && !element.group.is_some_and(|group| self.units.groups[group].is_guard);
        }
        if element.kind == TraceKind::Directive(false) {
            return self.is_group_kept(element);
        }
        let second = self.units.raw[element.raw.clone()].get(2).map(|token| self.source.text_of(token.span));
        let in_kept = self.units.unit_at(element.raw.start).is_some_and(|unit| self.needed.kept[unit]);
        match (word, second) {
            // A local header is inlined; others are added at the top.
            ("include", _) | ("pragma", Some("once")) => false,
            ("pragma", Some("pack")) => true,
            ("define" | "undef", _) => in_kept || self.needed.directives[n],
            _ => in_kept,
        }
    }

    /// Copies the kept declarations of an active text.
    fn text(&mut self, raw: Range<usize>) {
        let mut at = raw.start;
        while at < raw.end {
            let (end, kept) = match self.units.unit_at(at) {
                Some(n) => (self.units.units[n].raw.end.min(raw.end), self.needed.kept[n]),
                None => (at + 1, false),
            };
            self.part(at..end, kept, false);
            at = end;
        }
    }

    /// Copies tokens with the comments that belong to them, or skips them.
    fn part(&mut self, raw: Range<usize>, kept: bool, is_directive: bool) {
        let (Some(first), Some(last)) = (self.units.raw.get(raw.start), self.units.raw[raw.clone()].last()) else {
            return;
        };
        let (start, end) = (first.span.start as usize, last.span.end as usize);
        let Some(file) = self.files.last_mut() else { return };
        let gap = file.at..start.max(file.at);
        let tail = end_of_line(&self.source.text, end, file.end);
        file.at = tail;
        let is_begun = std::mem::replace(&mut file.is_begun, true);
        if !kept {
            if !is_begun && !self.source.text[gap.clone()].trim().is_empty() {
                file.head = Some(gap);
            }
            return;
        }
        // Inside a declaration the text is copied as it is.
        let is_inner = self.units.unit_at(raw.start).is_some_and(|n| self.units.units[n].raw.start < raw.start);
        if is_inner && !self.out.is_empty() {
            if !is_begun {
                self.end_line();
            }
            self.out += &self.source.text[gap];
        } else {
            for head in self.files.iter_mut().filter_map(|file| file.head.take()).collect::<Vec<_>>() {
                self.name_file(head.start);
                self.gap(head);
                self.end_line();
                self.out.push('\n');
            }
            self.name_file(start);
            if is_directive {
                self.end_line();
            }
            self.gap(gap);
        }
        if is_directive && !self.out.trim_end_matches([' ', '\t']).ends_with('\n') {
            self.end_line();
        }
        self.out += &self.source.text[start..tail];
    }

    /// Names the file of the text that follows, if it is another one than before.
    fn name_file(&mut self, at: usize) {
        let (file, _) = self.source.location(self.source.line(at as u32));
        if file != self.named {
            self.named = file.to_owned();
            self.end_line();
            let blank = if self.out.is_empty() || self.out.ends_with("\n\n") { "" } else { "\n" };
            self.out += &format!("{blank}// From {file}:\n");
        }
    }

    /// Copies white space and comments between declarations; several empty lines become one.
    fn gap(&mut self, range: Range<usize>) {
        let gap = self.source.text[range].trim_start_matches('\u{feff}');
        let content = gap.len() - gap.trim_start().len();
        let line = gap[..content].rfind('\n').map_or(0, |n| n + 1);
        let newlines = gap[..line].matches('\n').count();
        if newlines > 0 || self.out.is_empty() {
            self.end_line();
        } else if !self.out.ends_with(char::is_whitespace) && gap.is_empty() {
            self.out.push('\n');
        }
        if newlines > 1 && !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
        self.out += &gap[line..];
    }

    fn end_line(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
    }

    /// Adds explicit instances, each in the namespace of its template.
    fn instantiate(&mut self, module: &CudaModule, instances: &[(Symbol, String)]) {
        for (n, (name, args)) in instances.iter().enumerate() {
            if n == 0 {
                self.out += "\n// Instances of templates:\n";
            }
            let scopes = self.scopes_of(*name);
            let instance = format!("{}<{args}>", module.names.text(*name));
            scopes.iter().for_each(|scope| self.out += &format!("{scope} "));
            self.out += &format!("template __global__ decltype({instance}) {instance};");
            scopes.iter().for_each(|_| self.out += " }");
            self.out.push('\n');
        }
    }

    /// Openings of the namespaces around a kernel: `namespace a {`.
    fn scopes_of(&self, kernel: Symbol) -> Vec<String> {
        let mut open: Vec<String> = vec![];
        for unit in &self.units.units {
            let raw = &self.units.raw[unit.raw.clone()];
            match (unit.kind, raw) {
                (OutlineKind::Open, [first, .., last]) => {
                    open.push(self.source.text_of(first.span.to(last.span)).to_owned());
                }
                (OutlineKind::Close, _) => {
                    open.pop();
                }
                (OutlineKind::Item, _) if raw.iter().any(|token| token.kind == TokenKind::Name(kernel)) => break,
                _ => {}
            }
        }
        open.retain(|scope| scope.contains("namespace"));
        open
    }
}

/// End of the white space and comments after `at` that are on the same line.
fn end_of_line(text: &str, at: usize, end: usize) -> usize {
    let (mut at, mut last) = (at, at);
    while at < end {
        let rest = &text[at..end];
        if rest.starts_with("//") {
            return at + rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |n| n + 2);
            last = at;
        } else if rest.starts_with([' ', '\t', '\r']) {
            at += 1;
        } else {
            break;
        }
    }
    last
}
