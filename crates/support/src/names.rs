//! Formatting of names from files in messages.

/// Maximum number of names that [`list_names`] shows.
pub const MAX_LISTED: usize = 20;

/// Quotes a name, with control characters escaped and long names truncated.
pub fn quoted(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    let mut short: String = name.chars().take(MAX_CHARS).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    format!("'{}'", short.escape_debug())
}

/// Lists the names that exist, for a message about one that does not.
///
/// ```
/// assert_eq!(bornite_support::list_names("columns", &["id", "text"]), "its columns are 'id', 'text'");
/// ```
pub fn list_names(noun: &str, names: &[impl AsRef<str>]) -> String {
    if names.is_empty() {
        return format!("it has no {noun}");
    }
    let mut list: Vec<String> = names.iter().take(MAX_LISTED).map(|name| quoted(name.as_ref())).collect();
    if names.len() > MAX_LISTED {
        list.push(format!("and {} more", names.len() - MAX_LISTED));
    }
    format!("its {noun} are {}", list.join(", "))
}
