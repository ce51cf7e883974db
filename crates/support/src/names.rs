//! Names from files, as messages show them.

/// Most names that [`listed`] shows.
pub const MOST_LISTED: usize = 20;

/// A name in quotes, with control characters escaped, cut where it is long.
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 120;
    let mut short: String = name.chars().take(LONGEST).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    format!("'{}'", short.escape_debug())
}

/// The names that exist, for a message about one that does not.
///
/// ```
/// assert_eq!(bornite_support::listed("columns", &["id", "text"]), "its columns are 'id', 'text'");
/// ```
pub fn listed(what: &str, names: &[impl AsRef<str>]) -> String {
    if names.is_empty() {
        return format!("it has no {what} at all");
    }
    let mut list: Vec<String> = names.iter().take(MOST_LISTED).map(|name| quoted(name.as_ref())).collect();
    if names.len() > MOST_LISTED {
        list.push(format!("and {} more", names.len() - MOST_LISTED));
    }
    format!("its {what} are {}", list.join(", "))
}
