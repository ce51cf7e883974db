//! Self-contained HTML pages of reports: headings, texts, charts and tables in one file that makes
//! no network requests, follows light and dark mode, and is complete without scripts. A script of
//! the page only adds sorting to tables.
//!
//! Every text is escaped.

use std::fmt::Write;

use crate::chart::{Bars, Chart, STYLE, SeriesMark};

/// Escapes a text for HTML and XML, also in attributes. Control characters, which XML does not
/// allow, are replaced.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// TableCell of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCell {
    /// Text.
    pub text: String,
    /// Value to sort by, instead of the text.
    pub value: Option<f64>,
    /// True for a result that needs attention.
    pub is_bad: bool,
}

impl TableCell {
    /// A text.
    pub fn text(text: impl Into<String>) -> TableCell {
        TableCell { text: text.into(), value: None, is_bad: false }
    }

    /// A number, with its text; `-` if there is none.
    pub fn number(value: Option<f64>, format: impl FnOnce(f64) -> String) -> TableCell {
        TableCell { text: value.map_or("-".into(), format), value: Some(value.unwrap_or(f64::NAN)), is_bad: false }
    }
}

/// A table that can be sorted where scripts run.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Caption.
    pub caption: String,
    /// Titles of the columns.
    pub titles: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<TableCell>>,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

const LAYOUT: &str = "\
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}\
main{max-width:1100px;margin:auto;padding:1rem}h1{font-size:1.5rem;line-height:1.25;overflow-wrap:anywhere}\
h2{font-size:1.15rem;margin:2rem 0 .5rem}p{overflow-wrap:anywhere}.muted{color:var(--muted)}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:1.25rem}\
figure{margin:0;min-width:0;max-width:640px}figcaption{font-weight:600}svg{display:block;width:100%;height:auto}\
.legend{list-style:none;margin:.25rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.875rem}\
.legend li::before{content:'';display:inline-block;width:1em;height:.15em;margin-right:.4em;vertical-align:middle;\
background:currentColor}.legend .thick::before{height:.35em}.legend .dot::before{width:.6em;height:.6em;\
border-radius:50%}.legend span{color:var(--fg);overflow-wrap:anywhere}\
.scroll{overflow-x:auto}.scroll:focus-visible{outline:2px solid var(--c0)}\
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;min-width:100%}\
caption{text-align:left;font-weight:600;padding:.25rem 0}\
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th{color:var(--muted);font-weight:600}th:first-child,td:first-child,.words td,.words th{text-align:left}\
td.bad{color:var(--c6);font-weight:600}\
th button{all:unset;cursor:pointer}th button:focus-visible{outline:2px solid var(--c0)}\
th[aria-sort=ascending] button::after{content:' \\2191'}th[aria-sort=descending] button::after{content:' \\2193'}\
pre{overflow-x:auto;padding:.75rem;border:1px solid var(--line);border-radius:.4rem;font-size:.8125rem;\
white-space:pre-wrap;overflow-wrap:anywhere}";

const SORTING: &str = "\
const addSorting = () => { for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, n) => {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const order = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order > 0 ? 'ascending' : 'descending');
      const key = row => row.cells[n].dataset.value ?? row.cells[n].textContent;
      const compare = (a, b) => {
        if (a === '' || b === '') return order * ((a === '') - (b === ''));
        return isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
      };
      body.append(...[...body.rows].sort((a, b) => order * compare(key(a), key(b))));
    };
  });
} };
addSorting();";

/// Replaces the contents of a live page when its version changes. A lost connection is retried.
const POLLING: &str = "\
const state = document.querySelector('#state');
const get = async path => (await fetch(path, {cache: 'no-store'})).text();
const poll = async () => {
  try {
    const main = document.querySelector('main');
    if (await get('/version') !== main.dataset.version) {
      const page = new DOMParser().parseFromString(await get('/'), 'text/html');
      main.replaceWith(page.querySelector('main'));
      addSorting();
    }
    state.textContent = '';
  } catch {
    state.textContent = 'The connection is lost; trying again.';
  }
  setTimeout(poll, 1000);
};
poll();";

impl Page {
    /// Creates a page with a heading.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), body: String::new() }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(text));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escaped(text));
    }

    /// Adds a remark, in a muted color.
    pub fn remark(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"muted\">{}</p>", escaped(text));
    }

    /// Adds a preformatted text.
    pub fn preformatted(&mut self, text: &str) {
        let _ = writeln!(self.body, "<pre>{}</pre>", escaped(text));
    }

    /// Adds charts side by side where there is room. Empty ones are left out.
    pub fn charts(&mut self, charts: &[Chart]) {
        let shown: Vec<&Chart> = charts.iter().filter(|chart| !chart.is_empty()).collect();
        if shown.is_empty() {
            return;
        }
        self.body += "<div class=\"figures\">\n";
        for chart in shown {
            let entries: Vec<String> = (chart.series.iter().zip(chart.colors()))
                .map(|(series, color)| {
                    let style = match series.mark {
                        SeriesMark::Bold => " thick",
                        SeriesMark::Points => " dot",
                        SeriesMark::Line | SeriesMark::Dashed => "",
                    };
                    format!("<li class=\"{color}{style}\"><span>{}</span></li>", escaped(&series.name))
                })
                .collect();
            // One series needs no legend.
            let legend = match entries.len() {
                0 | 1 => String::new(),
                _ => format!("<ul class=\"legend\">{}</ul>\n", entries.concat()),
            };
            self.figure(&chart.title, &(chart.svg() + &legend));
        }
        self.body += "</div>\n";
    }

    /// Adds bars.
    pub fn bars(&mut self, bars: &Bars) {
        self.body += "<div class=\"figures\">\n";
        self.figure(&bars.title, &bars.svg());
        self.body += "</div>\n";
    }

    fn figure(&mut self, caption: &str, content: &str) {
        let _ = writeln!(self.body, "<figure><figcaption>{}</figcaption>\n{content}</figure>", escaped(caption));
    }

    /// Adds a table. On a narrow screen it scrolls by itself.
    pub fn table(&mut self, table: &Table) {
        let caption = escaped(&table.caption);
        let is_words = table.rows.iter().flatten().all(|cell| cell.value.is_none());
        let class = if is_words { "sortable words" } else { "sortable" };
        let _ = writeln!(
            self.body,
            "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table class=\"{class}\">\n\
             <caption>{caption}</caption>\n<thead><tr>"
        );
        for title in &table.titles {
            let _ = write!(self.body, "<th scope=\"col\">{}</th>", escaped(title));
        }
        self.body += "</tr></thead>\n<tbody>\n";
        for row in &table.rows {
            self.body += "<tr>";
            for cell in row {
                let class = if cell.is_bad { " class=\"bad\"" } else { "" };
                let value = match cell.value {
                    Some(value) if value.is_finite() => format!(" data-value=\"{value}\""),
                    Some(_) => " data-value=\"\"".into(),
                    None => String::new(),
                };
                let _ = write!(self.body, "<td{class}{value}>{}</td>", escaped(&cell.text));
            }
            self.body += "</tr>\n";
        }
        self.body += "</tbody></table></div>\n";
    }

    /// Returns the page as HTML.
    pub fn html(&self) -> String {
        self.document("", "", "", SORTING)
    }

    /// Returns the page as HTML that a server updates: where scripts run, it asks `/version` every
    /// second and replaces its contents with those of `/` when the version is another one.
    pub fn live_html(&self, version: u64) -> String {
        let script = format!("{SORTING}\n{POLLING}");
        let state = "<p id=\"state\" role=\"status\"></p>\n";
        self.document(";connect-src 'self'", &format!(" data-version=\"{version}\""), state, &script)
    }

    fn document(&self, policy: &str, attributes: &str, before: &str, script: &str) -> String {
        let title = escaped(&self.title);
        // The policy forbids every other request: an escaped text cannot cause one either.
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline';\
             script-src 'unsafe-inline';img-src data:{policy}\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>{STYLE}{LAYOUT}</style>\n</head>\n<body>\n{before}<main{attributes}>\n\
             <h1>{title}</h1>\n{}</main>\n<script>{script}</script>\n</body>\n</html>\n",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{ChartAxis, Series};

    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&\u{1}<img src=x onerror=alert(1)>";

    #[test]
    fn no_text_becomes_markup() {
        let mut page = Page::new(HOSTILE);
        page.heading(HOSTILE);
        page.paragraph(HOSTILE);
        page.remark(HOSTILE);
        page.preformatted(HOSTILE);
        let series = Series { labels: vec![HOSTILE.into()], ..Series::new(HOSTILE, SeriesMark::Points, [(1.0, 1.0)]) };
        let line = Series::new(HOSTILE, SeriesMark::Line, [(1.0, 1.0)]);
        let [x, y] = [ChartAxis::linear(HOSTILE), ChartAxis::log(HOSTILE)];
        page.charts(&[Chart { title: HOSTILE.into(), x, y, series: vec![series, line] }]);
        page.bars(&Bars { title: HOSTILE.into(), rows: vec![(HOSTILE.into(), 1.0)], reference: 1.0, unit: "x" });
        let cells = vec![TableCell::text(HOSTILE), TableCell::number(None, |_| String::new())];
        page.table(&Table { caption: HOSTILE.into(), titles: vec![HOSTILE.into(); 2], rows: vec![cells] });
        let html = page.html();
        assert_eq!(html.matches("<script>").count(), 1);
        assert_eq!(html.matches("</script>").count(), 1);
        assert!(!html.contains("<img") && !html.contains('\u{1}'));
        assert!(html.matches("&lt;img src=x onerror=alert(1)&gt;").count() >= 16, "{html}");
        for request in ["http://", "https://", "src=\"", "url(", "@import"] {
            assert!(!html.contains(request), "{request}");
        }
    }

    #[test]
    fn tables_sort_missing_numbers_last() {
        let mut page = Page::new("t");
        let number = |value| TableCell::number(value, |value| format!("{value:.1}"));
        let rows = vec![vec![TableCell::text("a"), number(Some(1.25))], vec![TableCell::text("b"), number(None)]];
        page.table(&Table { caption: "c".into(), titles: vec!["n".into(), "x".into()], rows });
        let html = page.html();
        assert!(html.contains("<td data-value=\"1.25\">1.2</td>") && html.contains("<td data-value=\"\">-</td>"));
    }
}
