//! Untrusted names of tensors and files: validation, and suggestions of similar names.

use std::fmt::Write;

pub(crate) use bornite_support::quoted;

/// Maximum length of a tensor's name.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// Validates a tensor's name; the error describes the problem. `..` is rejected, since tools unpack
/// tensors into files of their names.
pub(crate) fn check_tensor_name(name: &str) -> Result<(), String> {
    let problem = if name.is_empty() {
        "is empty".into()
    } else if name.len() > MAX_NAME_BYTES {
        format!("is {} bytes long, more than {MAX_NAME_BYTES}", name.len())
    } else if name.chars().any(char::is_control) {
        "has a control character".into()
    } else if name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..") {
        "leads out of its folder".into()
    } else {
        return Ok(());
    };
    Err(format!("the name of tensor {} {problem}", quoted(name)))
}

/// Returns true for a file name without path separators.
pub(crate) fn is_plain_file_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, '/' | '\\' | ':');
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(odd)
}

/// Maximum number of candidates that are compared.
const MAX_CANDIDATES: usize = 4096;

/// Returns the candidate most similar to `name`, if one is similar.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().count();
    // The most common mistake is an additional or missing prefix.
    let is_end = |a: &str, b: &str| a.strip_suffix(b).is_some_and(|rest| rest.ends_with('.'));
    let edits = |known: &str| if is_end(name, known) || is_end(known, name) { 1 } else { distance(name, known) };
    let near = candidates.take(MAX_CANDIDATES).map(|known| (edits(known), known));
    let (edits, best) = near.min_by_key(|(edits, _)| *edits)?;
    (edits < letters && edits <= (letters / 3).max(2)).then_some(best)
}

/// Returns the edit distance of the last 100 characters of two words: names differ at their ends.
fn distance(a: &str, b: &str) -> usize {
    let ends = |word: &str| -> Vec<char> { word.chars().rev().take(100).collect() };
    let (a, b) = (ends(a), ends(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + (x != y) as usize).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

/// Lists up to eight names, each with the most similar of `known`, and the number of further names.
pub(crate) fn listed<'a>(names: &[&str], known: impl Iterator<Item = &'a str> + Clone) -> String {
    const SHOWN: usize = 8;
    let mut text = String::new();
    for (n, name) in names.iter().take(SHOWN).enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        let near = nearest(name, known.clone()).map(|near| format!(" (did you mean {}?)", quoted(near)));
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}{}", quoted(name), near.unwrap_or_default());
    }
    if names.len() > SHOWN {
        let _ = write!(text, " and {} more", names.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_names_are_rejected() {
        for fine in ["wte.weight", "model/h0/attn", "a..b", "ключ", "a b", "first_moment/wte", "..."] {
            assert_eq!(check_tensor_name(fine), Ok(()), "{fine}");
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for bad in ["", "../x", "a/../b", "/etc/passwd", "..", "a\\..\\b", "a\nb", "a\0", "\u{7f}", &long] {
            let error = check_tensor_name(bad).unwrap_err();
            assert!(error.len() < 250 && !error.contains(char::is_control), "{error}");
        }
        for fine in ["model.safetensors", "model-00001-of-00002.safetensors"] {
            assert!(is_plain_file_name(fine));
        }
        for bad in ["", ".", "..", ".hidden", "a/b", "../a", "/a", "a\\b", "c:a", "a\n"] {
            assert!(!is_plain_file_name(bad), "{bad}");
        }
    }

    #[test]
    fn similar_names_are_suggested() {
        let known = ["wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"];
        for (requested, meant) in [
            ("transformer.wte.weight", Some("wte.weight")),
            ("wte.weigth", Some("wte.weight")),
            ("h.0.attn.c_atn.bias", Some("h.0.attn.c_attn.bias")),
            ("lm_head", None),
        ] {
            assert_eq!(nearest(requested, known.into_iter()), meant, "{requested}");
        }
        let text = listed(&["wte.weigth", "zzzzzzzzz"], known.into_iter());
        assert_eq!(text, "'wte.weigth' (did you mean 'wte.weight'?), 'zzzzzzzzz'");
        let many: Vec<String> = (0..20).map(|n| format!("q{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(listed(&many, [].into_iter()).ends_with(" and 12 more"));
    }
}
