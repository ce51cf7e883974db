//! How deep a text nests, found without parsing it: the parser and all that walks its tree recurse.

/// Brackets, blocks and operators within each other.
const MAX_DEPTH: usize = 100;
/// Operators in one logical line: a chain of them nests to the left.
const MAX_OPERATORS: usize = 1000;

/// The first place that is nested too deep, and what is.
pub(crate) fn too_deep(text: &str) -> Option<(usize, &'static str)> {
    let bytes = text.as_bytes();
    let (mut brackets, mut operators, mut unary, mut chain) = (0usize, 0usize, 0usize, 0usize);
    let mut at = 0;
    let mut line_start = true;
    while at < bytes.len() {
        if line_start && brackets == 0 {
            let indent = bytes[at..].iter().take_while(|c| matches!(c, b' ' | b'\t' | b'\x0c')).count();
            // A tab or a space is a level at most.
            if indent > MAX_DEPTH * 8 {
                return Some((at, "lines are indented too far"));
            }
            at += indent;
            line_start = false;
            continue;
        }
        let c = bytes[at];
        match c {
            b'#' => {
                at += bytes[at..].iter().take_while(|c| **c != b'\n').count();
                continue;
            }
            b'"' | b'\'' => {
                at = after_string(bytes, at);
                unary = 0;
                continue;
            }
            b'(' | b'[' | b'{' => {
                brackets += 1;
                if brackets > MAX_DEPTH {
                    return Some((at, "brackets are nested too deep"));
                }
            }
            b')' | b']' | b'}' => {
                brackets = brackets.saturating_sub(1);
                // Chains of calls and subscripts nest to the left.
                let next = bytes[at + 1..].iter().find(|c| !matches!(c, b' ' | b'\t' | b'\\' | b'\r' | b'\n'));
                if matches!(next, Some(b'(' | b'[' | b'.')) {
                    chain += 1;
                }
                if chain > MAX_OPERATORS {
                    return Some((at, "a chain of calls or subscripts is too long"));
                }
            }
            b'\n' => {
                line_start = true;
                if brackets == 0 {
                    (operators, unary, chain) = (0, 0, 0);
                }
            }
            b',' => (operators, unary) = (0, 0),
            b'+' | b'-' | b'~' | b'*' | b'/' | b'%' | b'&' | b'|' | b'^' | b'@' | b'<' | b'>' | b'=' | b'!' | b'.'
            | b':' => {
                operators += 1;
                unary += 1;
            }
            c if c.is_ascii_alphabetic() => {
                let length = bytes[at..].iter().take_while(|c| c.is_ascii_alphanumeric() || **c == b'_').count();
                match &bytes[at..at + length] {
                    b"not" | b"await" | b"if" | b"else" | b"and" | b"or" | b"lambda" | b"in" | b"is" | b"for" => {
                        operators += 1;
                        unary += 1;
                    }
                    _ => unary = 0,
                }
                at += length;
                if unary > MAX_DEPTH || operators > MAX_OPERATORS {
                    return Some((at, "an expression is nested too deep or has too many operators"));
                }
                continue;
            }
            b' ' | b'\t' | b'\r' | b'\\' => {}
            _ => unary = 0,
        }
        if unary > MAX_DEPTH || operators > MAX_OPERATORS {
            return Some((at, "an expression is nested too deep or has too many operators"));
        }
        at += 1;
    }
    None
}

fn after_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let triple = bytes[at..].starts_with(&[quote; 3]);
    let mut n = at + if triple { 3 } else { 1 };
    while n < bytes.len() {
        match bytes[n] {
            b'\\' => n += 1,
            b'\n' if !triple => return n,
            c if c == quote && (!triple || bytes[n..].starts_with(&[quote; 3])) => {
                return n + if triple { 3 } else { 1 };
            }
            _ => {}
        }
        n += 1;
    }
    n
}
