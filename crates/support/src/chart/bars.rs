//! Horizontal bars with a reference line.

use std::fmt::Write;

use crate::page::escaped;

/// Horizontal bars of ratios. Bars that fall short of the reference have another color.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// Name and value of each bar.
    pub rows: Vec<(String, f64)>,
    /// Value at which a line is drawn.
    pub reference: f64,
    /// Unit after each value.
    pub unit: &'static str,
}

const WIDTH: f64 = 480.0;
const ROW: f64 = 34.0;
/// Place for the value beside the longest bar.
const VALUE: f64 = 70.0;
const LEFT: f64 = 4.0;

impl Bars {
    /// Returns the bars as an SVG element for a page with [`super::STYLE`]. Each name stands above
    /// its bar.
    pub fn svg(&self) -> String {
        let rows: Vec<&(String, f64)> =
            self.rows.iter().filter(|(_, value)| value.is_finite() && *value >= 0.0 && *value < 1e300).collect();
        let max = rows.iter().map(|(_, value)| *value).fold(self.reference, f64::max);
        let x = |value: f64| LEFT + value / max * (WIDTH - VALUE - LEFT);
        let height = ROW * rows.len() as f64 + 4.0;
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
            escaped(&self.title)
        );
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{:.1} 0V{height}\"/>", x(self.reference));
        for (n, (name, value)) in rows.into_iter().enumerate() {
            let top = ROW * n as f64;
            let color = if *value >= self.reference { "c2" } else { "c1" };
            let (name, end, text) = (escaped(name), x(*value), three_digits(*value));
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{LEFT}\" y=\"{:.1}\">{name}</text>\n\
                 <g class=\"{color}\"><rect class=\"mark\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\"/></g>\n\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{text}{}</text>",
                top + 12.0,
                top + 16.0,
                (end - LEFT).max(0.5),
                end + 5.0,
                top + 27.0,
                self.unit
            );
        }
        out + "</svg>\n"
    }
}

/// Formats with three significant digits, at most two decimals.
fn three_digits(value: f64) -> String {
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fit_and_names_are_escaped() {
        let rows = vec![("<b>".into(), 2.5), ("slow".into(), 0.5), ("none".into(), f64::NAN)];
        let svg = Bars { title: "speed-up".into(), rows, reference: 1.0, unit: "x" }.svg();
        assert!(svg.contains("&lt;b&gt;") && svg.contains("2.50x") && svg.contains("0.50x") && !svg.contains("none"));
        let widths = svg.split("width=\"").skip(1).map(|part| part.split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(widths.into_iter().all(|width| width > 0.0 && width <= WIDTH - VALUE));
        assert!(svg.contains("class=\"c2\"") && svg.contains("class=\"c1\""));
    }
}
