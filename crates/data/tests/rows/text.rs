//! A row's source as text: tokens, lines, elements. Shares nothing with the program tree that the
//! text was printed from.

use std::collections::BTreeMap;

/// The kernel of a source.
pub struct Kernel {
    /// Array parameters, in order.
    pub arrays: Vec<String>,
    /// Names assigned from `wp.tid()`.
    pub grid: Vec<String>,
    /// Statements of the kernel, without docstring.
    pub lines: Vec<Line>,
    /// Variables assigned once, with the tokens of their value.
    definitions: BTreeMap<String, Vec<String>>,
}

/// One statement.
#[derive(Clone, Debug)]
pub struct Line {
    /// Indentation levels below the kernel's body.
    pub depth: usize,
    /// Tokens.
    pub tokens: Vec<String>,
}

/// An array element: the array's name and the tokens of its indices.
#[derive(Clone, PartialEq, Debug)]
pub struct Element {
    pub array: String,
    pub at: Vec<String>,
}

/// Tokenizes into dotted names, numbers, and operators of one or two characters.
pub fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' || first == '%' && !rest.starts_with("% ") {
            let end = |c: char| !(c.is_alphanumeric() || "_.%".contains(c));
            let end = rest.find(end).unwrap_or(rest.len());
            // An exponent has a sign.
            if first.is_ascii_digit() && rest[..end].ends_with('e') {
                rest[end + 1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |n| end + 1 + n)
            } else {
                end
            }
        } else if ["+=", "-=", "*=", "//", "<=", ">=", "==", "!=", "<<", ">>", "^=", "|=", "&="]
            .iter()
            .any(|two| rest.starts_with(two))
        {
            2
        } else {
            first.len_utf8()
        };
        all.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    without_literal_casts(all)
}

/// Removes type conversions around literals: `wp.float64(0.5)` becomes `0.5`.
fn without_literal_casts(all: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    let mut at = 0;
    while at < all.len() {
        let typed = matches!(&all[at..], [name, open, number, close, ..]
            if (name.starts_with("wp.") || name == "float" || name == "int") && open == "(" && close == ")"
                && number.starts_with(|c: char| c.is_ascii_digit()));
        let negative = matches!(&all[at..], [name, open, minus, number, close, ..]
            if (name.starts_with("wp.") || name == "float" || name == "int") && open == "(" && minus == "-" && close == ")"
                && number.starts_with(|c: char| c.is_ascii_digit()));
        if typed {
            out.push(all[at + 2].clone());
            at += 4;
        } else if negative {
            out.extend(all[at + 2..at + 4].iter().cloned());
            at += 5;
        } else {
            out.push(all[at].clone());
            at += 1;
        }
    }
    out
}

impl Kernel {
    pub fn new(source: &str) -> Kernel {
        let kernel = source.split("@wp.kernel").nth(1).expect("a kernel");
        let (head, body) = kernel.split_once("\"\"\"").expect("a docstring");
        let body = body.split_once("\"\"\"").expect("its end").1;
        let arrays =
            head.split(['(', ',', '\n']).filter_map(|part| Some(part.split_once(": wp.array")?.0.trim().to_owned()));
        let mut lines: Vec<Line> = vec![];
        let mut grid = vec![];
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            if let Some((names, "wp.tid()")) = line.trim().split_once(" = ") {
                grid = names.split(", ").map(str::to_owned).collect();
                continue;
            }
            let depth = (line.len() - line.trim_start().len()) / 4 - 1;
            lines.push(Line { depth, tokens: tokens(line) });
        }
        let mut set: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for line in &lines {
            if let [name, op, rest @ ..] = &line.tokens[..]
                && op.ends_with('=')
                && !["==", "<=", ">=", "!="].contains(&op.as_str())
            {
                set.entry(name.clone()).or_default().push(if op == "=" { rest.to_vec() } else { vec![] });
            }
        }
        let once = set.into_iter().filter(|(_, values)| values.len() == 1 && !values[0].is_empty());
        let definitions = once.map(|(name, mut values)| (name, values.remove(0))).collect();
        Kernel { arrays: arrays.collect(), grid, lines, definitions }
    }

    /// Tokens with variables replaced by their values, in parentheses where these are operations.
    pub fn resolved(&self, tokens: &[String]) -> Vec<String> {
        let mut out = vec![];
        for token in tokens {
            match self.definitions.get(token) {
                Some(value) => {
                    let value = self.resolved(value);
                    let primary = value.len() == 1 || closes(&value, 1) == Some(value.len());
                    if primary {
                        out.extend(value);
                    } else {
                        out.push("(".into());
                        out.extend(value);
                        out.push(")".into());
                    }
                }
                None => out.push(token.clone()),
            }
        }
        out
    }

    /// Elements in some tokens, with resolved indices, including nested ones.
    pub fn elements(&self, tokens: &[String]) -> Vec<Element> {
        let mut found = vec![];
        for (n, token) in tokens.iter().enumerate() {
            if self.arrays.contains(token)
                && tokens.get(n + 1).is_some_and(|next| next == "[")
                && let Some(end) = closes(tokens, n + 1)
            {
                found.push(Element { array: token.clone(), at: self.resolved(&tokens[n + 2..end - 1]) });
            }
        }
        found
    }

    /// True if the tokens are a single element.
    pub fn is_element(&self, tokens: &[String]) -> bool {
        tokens.first().is_some_and(|name| self.arrays.contains(name)) && closes(tokens, 1) == Some(tokens.len())
    }

    /// The element that a line stores to, and the tokens of the value.
    pub fn store(&self, line: &Line) -> Option<(Element, Vec<String>)> {
        let end = closes(&line.tokens, 1)?;
        if !self.arrays.contains(&line.tokens[0]) || line.tokens.get(end)? != "=" {
            return None;
        }
        Some((self.elements(&line.tokens[..end]).remove(0), line.tokens[end + 1..].to_vec()))
    }

    /// Name and argument tokens of a line that is a call.
    pub fn call(&self, line: &Line) -> Option<(String, Vec<Vec<String>>)> {
        let tokens = &line.tokens;
        if tokens.get(1)? != "(" || closes(tokens, 1)? != tokens.len() {
            return None;
        }
        let mut args: Vec<Vec<String>> = vec![vec![]];
        let mut depth = 0;
        for token in &tokens[2..tokens.len() - 1] {
            depth += opens(token);
            match token.as_str() {
                "," if depth == 0 => args.push(vec![]),
                _ => args.last_mut()?.push(token.clone()),
            }
        }
        Some((tokens[0].clone(), args))
    }

    /// True if a template occurs in a line, as written or with variables resolved.
    pub fn has(&self, template: &str) -> bool {
        let template = tokens(template);
        self.lines.iter().any(|line| {
            let resolved = self.resolved(&line.tokens);
            let is = |tokens: &[String]| {
                find(tokens, &template).is_some() || find(&ungrouped(tokens), &ungrouped(&template)).is_some()
            };
            is(&line.tokens) || is(&resolved)
        })
    }

    /// Captures of `%1` to `%9` in the first line that matches a template completely, as written.
    pub fn line(&self, template: &str) -> Option<Captures> {
        let template = tokens(template);
        self.lines.iter().find_map(|line| match_all(&line.tokens, &template))
    }
}

/// Tokens without grouping parentheses: a template has none around `%1`, which may be an operation.
fn ungrouped(tokens: &[String]) -> Vec<String> {
    let mut calls: Vec<bool> = vec![];
    let mut out: Vec<String> = vec![];
    for token in tokens {
        match token.as_str() {
            "(" => calls.push(out.last().is_some_and(|last| last.starts_with(|c: char| c.is_alphabetic()))),
            ")" if calls.pop() == Some(false) => continue,
            _ => {}
        }
        if token != "(" || calls.last() == Some(&true) {
            out.push(token.clone());
        }
    }
    out
}

fn opens(token: &str) -> i32 {
    match token {
        "(" | "[" => 1,
        ")" | "]" => -1,
        _ => 0,
    }
}

/// Position after the bracket that closes the one at `at`.
fn closes(tokens: &[String], at: usize) -> Option<usize> {
    if tokens.get(at).is_none_or(|token| opens(token) != 1) {
        return None;
    }
    let mut depth = 0;
    for (n, token) in tokens.iter().enumerate().skip(at) {
        depth += opens(token);
        if depth == 0 {
            return Some(n + 1);
        }
    }
    None
}

/// Tokens captured by the variables of a template.
pub type Captures = BTreeMap<String, Vec<String>>;

/// Captures of a template's first occurrence: `%1` matches tokens with balanced brackets, the same
/// at every occurrence.
pub fn find(tokens: &[String], template: &[String]) -> Option<Captures> {
    (0..tokens.len()).find_map(|at| matched(&tokens[at..], template, Captures::new(), false))
}

fn match_all(tokens: &[String], template: &[String]) -> Option<Captures> {
    matched(tokens, template, Captures::new(), true)
}

fn matched(tokens: &[String], template: &[String], captures: Captures, to_end: bool) -> Option<Captures> {
    let Some((first, rest)) = template.split_first() else {
        return (!to_end || tokens.is_empty()).then_some(captures);
    };
    if !first.starts_with('%') || first == "%" {
        return if tokens.first()? == first { matched(&tokens[1..], rest, captures, to_end) } else { None };
    }
    if let Some(bound) = captures.get(first) {
        return if tokens.starts_with(bound) {
            matched(&tokens[bound.len()..], rest, captures.clone(), to_end)
        } else {
            None
        };
    }
    let mut depth = 0;
    for (n, token) in tokens.iter().enumerate() {
        depth += opens(token);
        if depth < 0 || depth == 0 && token == "," {
            return None;
        }
        if depth == 0 {
            let mut extended = captures.clone();
            extended.insert(first.clone(), tokens[..=n].to_vec());
            if let Some(found) = matched(&tokens[n + 1..], rest, extended, to_end) {
                return Some(found);
            }
        }
    }
    None
}
