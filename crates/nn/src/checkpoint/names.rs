//! Names of tensors and files from outside: which are refused, how they are shown, which known one is meant.

use std::fmt::Write;

pub(crate) use bornite_support::quoted as shown;

/// The longest name of a tensor, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// Says what is wrong with a tensor's name. Tools unpack tensors into files of their names, so `..` is never harmless.
pub(crate) fn check_tensor_name(name: &str) -> Result<(), String> {
    let wrong = if name.is_empty() {
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
    Err(format!("the name of tensor {} {wrong}", shown(name)))
}

/// True for the name of a file right inside its folder.
pub(crate) fn is_plain_file_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, '/' | '\\' | ':');
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(odd)
}

/// Candidates that are compared; files with more names than this are not searched to their end.
const MAX_CANDIDATES: usize = 4096;

/// The candidate that is most like `name`, if one is like it at all.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().count();
    // Most often a prefix is too much or missing.
    let is_end = |a: &str, b: &str| a.strip_suffix(b).is_some_and(|rest| rest.ends_with('.'));
    let steps = |known: &str| if is_end(name, known) || is_end(known, name) { 1 } else { distance(name, known) };
    let near = candidates.take(MAX_CANDIDATES).map(|known| (steps(known), known));
    let (steps, best) = near.min_by_key(|(steps, _)| *steps)?;
    (steps < letters && steps <= (letters / 3).max(2)).then_some(best)
}

/// How many letters must be put in, taken out or exchanged to make one word the other. Looks at the last 100 letters of
/// each: names differ at their ends.
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

/// Up to eight names, each with the nearest of `known` where there is one, and how many more there are.
pub(crate) fn listed<'a>(names: &[&str], known: impl Iterator<Item = &'a str> + Clone) -> String {
    const SHOWN: usize = 8;
    let mut text = String::new();
    for (n, name) in names.iter().take(SHOWN).enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        let near = nearest(name, known.clone()).map(|near| format!(" (is it {}?)", shown(near)));
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}{}", shown(name), near.unwrap_or_default());
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
    fn names_are_refused_for_what_they_could_do() {
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
    fn the_nearest_name_is_the_one_that_was_meant() {
        let known = ["wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"];
        for (asked, meant) in [
            ("transformer.wte.weight", Some("wte.weight")),
            ("wte.weigth", Some("wte.weight")),
            ("h.0.attn.c_atn.bias", Some("h.0.attn.c_attn.bias")),
            ("lm_head", None),
        ] {
            assert_eq!(nearest(asked, known.into_iter()), meant, "{asked}");
        }
        let text = listed(&["wte.weigth", "zzzzzzzzz"], known.into_iter());
        assert_eq!(text, "'wte.weigth' (is it 'wte.weight'?), 'zzzzzzzzz'");
        let many: Vec<String> = (0..20).map(|n| format!("q{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(listed(&many, [].into_iter()).ends_with(" and 12 more"));
    }
}
