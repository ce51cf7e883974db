//! Checks descriptions against the printed source: every claim must hold in the text, and what the
//! text does must be claimed.

use std::collections::BTreeMap;

use bornite_data::{Category, Row};

use crate::claims::{NAMES, SUFFIXES, all, binned, by_index, gathers, scatters, softmax, transposes};
use crate::text::Kernel;
use crate::{full, rows, seed};

/// Removes a name from the beginning of `text`, where `#` in the name stands for one word or
/// number; returns the rest and that word.
fn strip<'a>(text: &'a str, name: &str) -> Option<(&'a str, String)> {
    let starts = |text: &str, name: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([',', ' ']);
    match name.split_once('#') {
        None => (starts(text, name) && ends(&text[name.len()..])).then(|| (&text[name.len()..], String::new())),
        Some((before, after)) => {
            let rest = starts(text, before).then(|| &text[before.len()..])?;
            let end = rest.find([' ', ',']).unwrap_or(rest.len());
            let (word, rest) = rest.split_at(end);
            (starts(rest, after) && ends(&rest[after.len()..])).then(|| (&rest[after.len()..], word.to_lowercase()))
        }
    }
}

/// Names that a head consists of, each verified; or the first claim that does not hold.
fn claims(kernel: &Kernel, mut head: &str) -> Result<Vec<&'static str>, String> {
    let mut found = vec![];
    while !head.is_empty() {
        let known = NAMES.iter().find_map(|(name, check)| Some((*name, check, strip(head, name)?)));
        let Some((name, check, (rest, number))) = known else {
            return Err(format!("'{head}' is not a known claim"));
        };
        if !check(kernel, &number) {
            return Err(format!("'{name}' does not hold"));
        }
        found.push(name);
        head = rest;
        for (suffix, check) in SUFFIXES {
            if let Some(rest) = head.strip_prefix(suffix) {
                if !check(kernel, "") {
                    return Err(format!("'{suffix}' does not hold"));
                }
                head = rest;
            }
        }
        head = head.strip_prefix(", ").or(head.strip_prefix(" and ")).unwrap_or(head);
    }
    Ok(found)
}

/// `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        all => all.join(""),
    }
}

/// Words for operators, and their tokens.
const WORDS: &[(&str, &[&str])] = &[
    ("sums", &[" + ", " += "]),
    ("differences", &[" - ", " -= "]),
    ("products", &[" * ", " *= "]),
    ("quotients", &[" / ", " // "]),
    ("remainders", &[" % "]),
    ("shifts", &[" << ", " >> "]),
    ("masks", &[" & ", " | ", " ^ ", " &= ", " |= ", " ^= "]),
    ("choices", &["wp.where("]),
    ("branches", &["if "]),
    ("a counted loop", &["for "]),
    ("a loop with a condition", &["while "]),
    ("atomic sums", &["wp.atomic_add(", "wp.atomic_sub("]),
    ("random numbers", &["wp.randf(", "wp.randi("]),
];

/// Checks a row's description; returns its names, or what is wrong.
fn check(row: &Row) -> Result<Vec<&'static str>, String> {
    let kernel = Kernel::new(&row.source);
    let text = row.description.strip_suffix('.').ok_or("no full stop")?;
    let written: Vec<String> = (kernel.arrays.iter())
        .filter(|name| {
            let stores = kernel.lines.iter().filter_map(|line| kernel.store(line)).any(|(to, _)| to.array == **name);
            stores || row.source.lines().any(|line| line.contains("wp.atomic_") && line.contains(&format!("({name}, ")))
        })
        .cloned()
        .collect();
    let read: Vec<String> = kernel.arrays.iter().filter(|name| !written.contains(name)).cloned().collect();
    let into = format!(" into {}", list(&written));
    let (head, how) = text.split_once(&into).ok_or_else(|| format!("the description lacks '{into}'"))?;
    let from = [format!(" of {}", list(&read)), format!(" from {}", list(&read))];
    let bare = from.iter().find_map(|from| head.strip_suffix(from.as_str()));
    let head =
        if read.is_empty() { head } else { bare.ok_or("the description does not name the arrays that are read")? };
    // Without a name, the head lists the operations.
    let (names, operations) = match how.strip_prefix(": ") {
        Some(operations) => (claims(&kernel, head)?, operations.to_owned()),
        None => match claims(&kernel, head) {
            Ok(names) => (names, how.to_owned()),
            Err(why) if why.contains("does not hold") => return Err(why),
            Err(_) => (vec![], format!("{head}{how}")),
        },
    };
    let body = row.source.split("\"\"\"").nth(2).unwrap_or_default().to_owned()
        + row.source.split("@wp.kernel").next().unwrap_or_default();
    // The only phrase that contains `with`.
    const CONDITION: &str = "a loop with a condition";
    let operations = operations.to_lowercase();
    let conditional = operations.contains(CONDITION);
    let operations = operations.replace(CONDITION, "");
    let parts = operations.split(", ").flat_map(|part| part.split(" and ")).flat_map(|part| part.split("with "));
    let mut parts: Vec<&str> = parts.map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.extend(conditional.then_some(CONDITION));
    for (word, signs) in WORDS {
        let (claimed, there) = (parts.contains(word), signs.iter().any(|sign| body.contains(sign)));
        if claimed != there {
            return Err(format!("'{word}' is {}claimed", if claimed { "" } else { "not " }));
        }
    }
    let tokens = all(&kernel);
    let negated = |n: usize| {
        let number = tokens[n + 1].starts_with(|c: char| c.is_ascii_digit());
        let operand = n > 0 && tokens[n - 1].ends_with(|c: char| c.is_alphanumeric() || ")]_".contains(c));
        tokens[n] == "-" && !number && (!operand || ["return", "and", "or"].contains(&tokens[n - 1].as_str()))
    };
    let function = row.source.split("@wp.kernel").next().unwrap_or_default().contains('-');
    let negates = (0..tokens.len().saturating_sub(1)).any(negated);
    for (word, there) in [("negations", negates), ("complements", body.contains('~'))] {
        let claimed = parts.contains(&word);
        if claimed != there && !(claimed && function) {
            return Err(format!("'{word}' is {}claimed", if claimed { "" } else { "not " }));
        }
    }
    parts.retain(|part| !["negations", "complements"].contains(part));
    // Remaining words are builtin functions, or idioms with a check.
    parts.retain(|part| !WORDS.iter().any(|(word, _)| word == part));
    for part in parts {
        let called = body.contains(&format!("wp.{part}("));
        let idiom = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(part));
        let stored = || kernel.lines.iter().filter_map(|line| kernel.store(line));
        let copies = part == "copies" && stored().all(|(_, value)| value.len() == 1 || kernel.is_element(&value));
        let updates = part == "atomic updates" && body.contains("wp.atomic_");
        if !called && !copies && !updates && !idiom.is_some_and(|(_, check)| check(&kernel, "")) {
            return Err(format!("'{part}' does not hold"));
        }
    }
    // Patterns found in the text must be named.
    let sparse = names.iter().any(|name| name.contains("sparse"));
    for (name, there) in [
        ("gather", gathers(&kernel) && !sparse),
        ("scatter", scatters(&kernel)),
        ("matrix transpose", transposes(&kernel)),
        ("histogram", binned(&kernel, "atomic_add", true)),
        ("weighted histogram", binned(&kernel, "atomic_add", false)),
        ("sums by index", by_index(&kernel, "atomic_add")),
        ("softmax over rows", softmax(&kernel)),
    ] {
        if names.contains(&name) != there {
            return Err(format!("'{name}' is {}named", if there { "not " } else { "" }));
        }
    }
    Ok(names)
}

pub fn descriptions_match_the_text() {
    let seed = seed();
    let (each, seeds) = if full() { (400, 4) } else { (40, 1) };
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    let mut bad: Vec<String> = vec![];
    let mut count = 0;
    for seed in seed..seed + seeds {
        for category in Category::ALL {
            for row in rows(seed, *category, each) {
                count += 1;
                match check(&row) {
                    Ok(names) => names.into_iter().for_each(|name| *met.entry(name).or_default() += 1),
                    Err(why) => bad.push(format!("{} {}: {why}\n{}", category.name(), row.id(), row.source)),
                }
            }
        }
    }
    println!("{count} rows: {met:?}");
    assert!(bad.is_empty(), "{} of {count}:\n{}", bad.len(), bad[..bad.len().min(12)].join("\n"));
    // All kinds of names occur, the rare ones in full mode.
    for name in [
        "gather",
        "scatter",
        "matrix transpose",
        "histogram",
        "matrix product",
        "stencil",
        "softmax over rows",
        "# over rows",
    ] {
        assert!(met.contains_key(name), "no '{name}': {met:?}");
    }
    if full() {
        let missing: Vec<&str> = NAMES.iter().map(|(name, _)| *name).filter(|name| !met.contains_key(name)).collect();
        println!("no row is described by: {missing:?}");
    }
}

/// A description of another memory access or operation does not pass.
pub fn wrong_descriptions_are_found() {
    let mut tried = 0;
    for row in rows(seed(), Category::GatherScatter, 60) {
        let Ok(names) = check(&row) else { continue };
        for (from, to) in [("scatter", "gather"), ("gather", "scatter"), ("sums by index", "histogram")] {
            if names.contains(&from) && !names.contains(&to) {
                let described = row.description.to_lowercase().replacen(from, to, 1);
                let other = Row { description: described, ..row.clone() };
                assert!(check(&other).is_err(), "{}\n{}", other.description, row.source);
                tried += 1;
            }
        }
    }
    assert!(tried > 10, "{tried}");
}
