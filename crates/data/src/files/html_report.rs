//! HTML report of a dataset: inline SVG plots, no network resources, light and dark mode.

use std::fmt::Write;

use super::coverage::CoverageTable;
use super::{Counts, DatasetManifest};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1f1d1a;--quiet:#6b665e;--paper:#fdfcfa;--line:#e4dfd6;--bar:184 84 30}
@media(prefers-color-scheme:dark){:root{--ink:#ece7df;--quiet:#a39c91;--paper:#191715;--line:#37322d;--bar:226 128 70}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:68rem;padding:1.5rem 1rem 4rem;color:var(--ink);background:var(--paper)}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.05rem;margin:0 0 .5rem}
section{margin-top:2.5rem}
p{margin:.3rem 0;max-width:50rem}
.quiet{color:var(--quiet)}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));gap:2.5rem 2rem;margin-top:2.5rem}
svg{display:block;width:100%;max-width:30rem;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .value{fill:var(--quiet)}
svg rect{fill:rgb(var(--bar))}
.wide{overflow:auto;max-height:85vh;width:fit-content;max-width:100%;border:1px solid var(--line);border-radius:4px}
table{border-collapse:separate;border-spacing:0;font-size:12px;font-variant-numeric:tabular-nums}
th,td{padding:2px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{font-weight:600;background:var(--paper);position:sticky;top:0;z-index:1}
tr>:first-child{text-align:left;background:var(--paper);position:sticky;left:0}
tr:first-child>:first-child{z-index:2}
td[style]{background:rgb(var(--bar)/var(--s))}
";

/// Plot layout, in SVG units.
const LABEL_WIDTH: f64 = 150.0;
const BAR_WIDTH: f64 = 230.0;
const PLOT_WIDTH: f64 = 460.0;
const ROW_HEIGHT: usize = 20;

/// Bar plot.
fn bars(title: &str, values: &[(String, u64)]) -> String {
    let max = values.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let height = values.len() * ROW_HEIGHT;
    let mut text = format!(
        "<div><h2>{title}</h2><svg viewBox=\"0 0 {PLOT_WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
    );
    for (n, (name, value)) in values.iter().enumerate() {
        let (y, width) = (n * ROW_HEIGHT, (*value as f64 / max as f64 * BAR_WIDTH).max(1.0));
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LABEL_WIDTH}\" y=\"{}\" width=\"{width:.1}\" \
             height=\"14\" rx=\"2\"/><text class=\"value\" x=\"{:.1}\" y=\"{}\">{}</text>",
            LABEL_WIDTH - 8.0,
            y + 14,
            escape(name),
            y + 3,
            LABEL_WIDTH + width + 6.0,
            y + 14,
            with_thousands_separators(*value)
        );
    }
    text + "</svg></div>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a number with thousands separators.
fn with_thousands_separators(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn entries(tally: &super::counts::Tally) -> Vec<(String, u64)> {
    tally.iter().map(|(name, value)| (name.clone(), *value)).collect()
}

fn by_size(tally: &super::counts::Tally) -> Vec<(String, u64)> {
    let mut all = entries(tally);
    all.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    all
}

/// Table of rows per operation and type, darker where there are more.
fn coverage(counts: &Counts) -> String {
    let table = CoverageTable::new(counts);
    if table.types.is_empty() {
        return String::new();
    }
    let max = table.rows.iter().flat_map(|(_, row)| row).copied().max().unwrap_or(1) as f64;
    let mut text = String::from(
        "<section><h2>Operations and types</h2>\n<p class=\"quiet\">Rows in which an operation has an operand of a type.</p>\n\
         <div class=\"wide\"><table><tr><th></th>",
    );
    table.types.iter().for_each(|ty| text += &format!("<th>{}</th>", escape(ty)));
    text += "</tr>\n";
    for (op, row) in table.rows.iter().filter(|(_, row)| row.iter().any(|count| *count > 0)) {
        let _ = write!(text, "<tr><td>{}</td>", escape(op));
        for count in row {
            if *count == 0 {
                text += "<td></td>";
                continue;
            }
            let shade = ((*count as f64 + 1.0).ln() / (max + 1.0).ln()).powi(2) * 0.75;
            let _ = write!(text, "<td style=\"--s:{shade:.2}\">{}</td>", with_thousands_separators(*count));
        }
        text += "</tr>\n";
    }
    text + "</table></div></section>\n"
}

/// Renders the report.
pub(super) fn render(manifest: &DatasetManifest) -> String {
    let counts = manifest.counts();
    let (settings, reached) = (&manifest.settings, &manifest.candidate_counts);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{0} verified kernels</title>\n<style>{STYLE}</style></head>\n\
         <body>\n<h1>{0} verified kernels</h1>\n",
        with_thousands_separators(counts.rows)
    );
    let _ = writeln!(
        text,
        "<p>Seed {}, generator {}, verified at <code>{}</code>.</p>\n<p class=\"quiet\">{} candidates; excluded: {} \
         duplicates, {} near duplicates, {} similar to rows of two splits, {} rejected by the front end, {} that failed a check. {} structures.</p>\n\
         <p class=\"quiet\">Set hash <code>{}</code></p>",
        settings.seed,
        settings.version,
        settings.level,
        with_thousands_separators(reached.candidates),
        with_thousands_separators(reached.duplicates),
        with_thousands_separators(reached.near_duplicates),
        with_thousands_separators(reached.split_conflicts),
        with_thousands_separators(reached.unsupported),
        with_thousands_separators(counts.rejected.values().sum::<u64>()),
        with_thousands_separators(reached.structures),
        manifest.set_hash,
    );
    text += "<div class=\"plots\">\n";
    let mut complexity = entries(&counts.complexity);
    complexity.sort_by_key(|(name, _)| name.parse::<u64>().unwrap_or(0));
    for (name, _) in &mut complexity {
        let min: u64 = name.parse().unwrap_or(0);
        *name = if min >= 100 { "100 and more".into() } else { format!("{min} to {}", min + 9) };
    }
    let ops = counts.ops.iter().map(|(op, tally)| (op.clone(), tally.values().copied().max().unwrap_or(0)));
    let mut ops: Vec<(String, u64)> = ops.collect();
    ops.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    ops.truncate(24);
    // Tall plots side by side.
    text += &bars("Categories", &by_size(&counts.categories));
    if !ops.is_empty() {
        text += &bars("Most frequent operations", &ops);
    }
    text += &bars("Complexity", &complexity);
    text += &bars("Types", &by_size(&counts.types));
    text += &bars("Difficulty", &entries(&counts.difficulty));
    text += &bars("Splits", &by_size(&counts.splits));
    if !counts.faults.is_empty() {
        text += &bars("Incorrect variants", &by_size(&counts.faults));
    }
    if !counts.rejected.is_empty() {
        text += &bars("Failed checks", &by_size(&counts.rejected));
    }
    text += "</div>\n";
    text += &coverage(&counts);
    text + "</body></html>\n"
}
