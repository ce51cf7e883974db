//! Detection of misspelled environment variables.

use std::fmt;

use super::{SETTINGS, is_test_variable};

const PREFIX: &str = "BORNITE_";

/// An environment variable that begins with `BORNITE_` and is not a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The setting with the most similar name, if one is similar.
    pub suggestion: Option<&'static str>,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.suggestion {
            Some(suggestion) => {
                write!(f, "{} is not a setting and has no effect; did you mean {suggestion}?", self.name)
            }
            None => write!(f, "{} is not a setting and has no effect; docs/settings.md lists all of them", self.name),
        }
    }
}

/// Returns the environment variables that begin with `BORNITE_` and are not settings, sorted by
/// name.
pub fn unknown_variables() -> Vec<UnknownVariable> {
    unknown_variables_in(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

fn unknown_variables_in(names: impl Iterator<Item = String>) -> Vec<UnknownVariable> {
    let known = |name: &str| SETTINGS.iter().any(|setting| setting.name == name) || is_test_variable(name);
    let unknown = names.filter(|name| name.starts_with(PREFIX) && !known(name));
    let mut unknown: Vec<UnknownVariable> =
        unknown.map(|name| UnknownVariable { suggestion: suggest(&name), name }).collect();
    unknown.sort_by(|a, b| a.name.cmp(&b.name));
    unknown
}

/// Returns the setting with the smallest edit distance, if that is less than half of its length.
fn suggest(name: &str) -> Option<&'static str> {
    let suffix = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_uppercase();
    let changes = |setting: &str| distance(suffix(name).as_bytes(), suffix(setting).as_bytes());
    let near = SETTINGS.iter().map(|setting| (changes(setting.name), setting.name));
    let (changes, setting) = near.min_by_key(|(changes, _)| *changes)?;
    (changes * 2 < suffix(setting).len() || changes == 1).then_some(setting)
}

/// Restricted Damerau-Levenshtein distance: number of insertions, deletions, substitutions and
/// swaps of adjacent letters.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, more) | (more, 0) => more,
                _ => {
                    let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    let swapped = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                    exchanged.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_names_get_a_suggestion() {
        let known = ["PATH", "BORNITE_LOG", "BORNITE_TEST_SEED"];
        // Without the prefix, so that the search for variables in all sources does not find them.
        for (name, suggestion) in [
            ("LGO", Some("LOG")),
            ("log", Some("LOG")),
            ("LOGS", Some("LOG")),
            ("DEVICES", Some("DEVICE")),
            ("LIBARY_PATH", Some("LIBRARY_PATH")),
            ("MEM_FRACTION", Some("MEMORY_FRACTION")),
            ("CACHEDIR", Some("CACHE_DIR")),
            ("", None),
            ("X", None),
            ("NUMBER_OF_WORKERS", None),
        ] {
            let name = format!("{PREFIX}{name}");
            let found = unknown_variables_in(known.iter().map(|known| known.to_string()).chain([name.clone()]));
            let [UnknownVariable { name: found, suggestion: found_suggestion }] = &found[..] else {
                panic!("{name}: {found:?}")
            };
            assert_eq!((found, found_suggestion.and_then(|name| name.strip_prefix(PREFIX))), (&name, suggestion));
        }
        let message = |name: &str| UnknownVariable { name: name.into(), suggestion: suggest(name) }.to_string();
        assert_eq!(message("BORNITE_LGO"), "BORNITE_LGO is not a setting and has no effect; did you mean BORNITE_LOG?");
        assert!(message(PREFIX).ends_with("docs/settings.md lists all of them"));
    }

    #[test]
    fn edit_distances() {
        for (a, b, expected) in
            [("", "", 0), ("", "AB", 2), ("LOG", "LGO", 1), ("CACHE", "CHACE", 2), ("SYNC", "SYNC", 0)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }
}
