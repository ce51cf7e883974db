//! A dataset on one page: plots as SVG within the HTML, nothing from a network.

use std::fmt::Write;

use super::{Counts, Manifest};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#222;\
background:#fff}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;font-size:13px}\
td,th{padding:2px 8px;text-align:right}td:first-child,th:first-child{text-align:left}svg text{font:12px system-ui,sans-serif;\
fill:#222}.plots{display:flex;flex-wrap:wrap;gap:2rem}code{font-size:13px}";

/// A plot of bars.
fn bars(title: &str, values: &[(String, u64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let height = values.len() * 20 + 6;
    let mut text =
        format!("<div><h2>{title}</h2><svg width=\"440\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">");
    for (n, (name, value)) in values.iter().enumerate() {
        let (y, width) = (n * 20, (*value as f64 / most as f64 * 230.0).max(1.0));
        let _ = write!(
            text,
            "<text x=\"130\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"138\" y=\"{}\" width=\"{width:.1}\" height=\"15\" \
             fill=\"#b4531f\"/><text x=\"{:.1}\" y=\"{}\">{value}</text>",
            y + 14,
            escaped(name),
            y + 2,
            144.0 + width,
            y + 14
        );
    }
    text + "</svg></div>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn plain(tally: &super::counts::Tally) -> Vec<(String, u64)> {
    tally.iter().map(|(name, value)| (name.clone(), *value)).collect()
}

fn by_size(tally: &super::counts::Tally) -> Vec<(String, u64)> {
    let mut all = plain(tally);
    all.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    all
}

/// Rows of each operation with each type, darker where there are more.
fn coverage(counts: &Counts) -> String {
    let types: Vec<&String> = counts.types.keys().collect();
    let most = counts.ops.values().flat_map(|tally| tally.values()).copied().max().unwrap_or(1) as f64;
    let mut text = String::from("<h2>Operations and types</h2><table><tr><th></th>");
    types.iter().for_each(|ty| text += &format!("<th>{}</th>", escaped(ty)));
    text += "</tr>\n";
    for (op, tally) in &counts.ops {
        let _ = write!(text, "<tr><td>{}</td>", escaped(op));
        for ty in &types {
            let count = tally.get(*ty).copied().unwrap_or(0);
            let shade = ((count as f64 + 1.0).ln() / (most + 1.0).ln() * 60.0) as u32;
            let _ = write!(text, "<td style=\"background:hsl(20 70% {}%)\">{count}</td>", 100 - shade);
        }
        text += "</tr>\n";
    }
    text + "</table>\n"
}

/// The page of a dataset.
pub(super) fn page(manifest: &Manifest) -> String {
    let counts = manifest.counts();
    let (settings, reached) = (&manifest.settings, &manifest.reached);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0} verified kernels</title>\
         <style>{STYLE}</style></head><body>\n<h1>{0} verified kernels</h1>\n",
        counts.rows
    );
    let _ = writeln!(
        text,
        "<p>Seed {}, generator {}, checked at <code>{}</code>. Set hash <code>{}</code>.</p>\n<p>{} candidates; left out: {} \
         duplicates, {} near duplicates, {} not understood, {} that failed a check. {} structures.</p>",
        settings.seed,
        settings.version,
        settings.level,
        manifest.set_hash,
        reached.candidates,
        reached.duplicates,
        reached.near,
        reached.unmade,
        counts.rejected.values().sum::<u64>(),
        reached.structures
    );
    text += "<div class=\"plots\">\n";
    let mut complexity = plain(&counts.complexity);
    complexity.sort_by_key(|(name, _)| name.parse::<u64>().unwrap_or(0));
    for (name, _) in &mut complexity {
        let least: u64 = name.parse().unwrap_or(0);
        *name = if least >= 100 { "100 and more".into() } else { format!("{least} to {}", least + 9) };
    }
    text += &bars("Categories", &by_size(&counts.categories));
    text += &bars("Splits", &by_size(&counts.splits));
    text += &bars("Difficulty", &plain(&counts.difficulty));
    text += &bars("Complexity", &complexity);
    text += &bars("Types", &by_size(&counts.types));
    let ops = counts.ops.iter().map(|(op, tally)| (op.clone(), tally.values().copied().max().unwrap_or(0)));
    let mut ops: Vec<(String, u64)> = ops.collect();
    ops.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    ops.truncate(24);
    text += &bars("Most frequent operations", &ops);
    if !counts.faults.is_empty() {
        text += &bars("Wrong twins", &by_size(&counts.faults));
    }
    if !counts.rejected.is_empty() {
        text += &bars("Failed checks", &by_size(&counts.rejected));
    }
    text += "</div>\n";
    text += &coverage(&counts);
    text + "</body></html>\n"
}
