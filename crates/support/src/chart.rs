//! Charts as SVG: lines and points over linear or logarithmic axes, and bars.
//!
//! Colors are CSS classes of [`STYLE`], which follow the reader's light or dark mode. A chart in a
//! page ([`crate::page`]) shares the page's style; [`Chart::standalone`] contains it.
//!
//! ```
//! use bornite_support::chart::{ChartAxis, Chart, SeriesMark, Series};
//! let chart = Chart {
//!     title: "loss".into(),
//!     x: ChartAxis::linear("step"),
//!     y: ChartAxis::linear("loss"),
//!     series: vec![Series::new("run", SeriesMark::Line, [(1.0, 3.0), (2.0, 2.5)])],
//! };
//! assert!(chart.standalone().starts_with("<svg"));
//! ```

mod axis;
mod bars;

use std::fmt::Write;

pub use axis::{ChartAxis, Scale, short_number};
pub use bars::Bars;

use crate::page::escaped;
use axis::PlotAxis;

/// Colors, as CSS.
pub const STYLE: &str = "\
:root{--bg:#fff;--fg:#1c2330;--muted:#566072;--line:#d5dae2;--c0:#1f6feb;--c1:#c2410c;--c2:#15803d;--c3:#7e22ce;\
--c4:#0e7490;--c5:#8a6100;--c6:#be123c;--c7:#475569}\
@media(prefers-color-scheme:dark){:root{--bg:#12161d;--fg:#e6e9ef;--muted:#a3adbd;--line:#343c4a;--c0:#6cb0ff;\
--c1:#fb923c;--c2:#4ade80;--c3:#c99bff;--c4:#22d3ee;--c5:#facc15;--c6:#fb7185;--c7:#94a3b8}}\
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}\
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}\
.chart text{fill:var(--fg);font:13px system-ui,sans-serif}.chart .tick{fill:var(--muted);font-size:12px}\
.chart .grid{stroke:var(--line);fill:none}.chart .line{stroke:currentColor;fill:none;stroke-width:1.5}\
.chart .bold{stroke-width:3}.chart .dashed{stroke-dasharray:6 4}.chart .mark{fill:currentColor}\
.chart .key{fill:currentColor}.chart .bg{fill:var(--bg)}";

/// Number of colors; further series repeat them.
pub const COLORS: usize = 8;

/// Returns the CSS class of the color of the n-th series.
pub fn color_class(n: usize) -> String {
    format!("c{}", n % COLORS)
}

/// Appearance of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesMark {
    /// Thin line.
    Line,
    /// Thick line.
    Bold,
    /// Dashed line.
    Dashed,
    /// Points.
    Points,
}

/// Points of one name.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Appearance.
    pub mark: SeriesMark,
    /// Color, as an index; by default the position of the series.
    pub color: Option<usize>,
    /// Coordinates; those that are not finite, or not positive on a logarithmic axis, are left out.
    pub points: Vec<(f64, f64)>,
    /// Descriptions of the points, shown as tooltips; may be shorter than `points`.
    pub labels: Vec<String>,
}

impl Series {
    /// Creates a series.
    pub fn new(name: impl Into<String>, mark: SeriesMark, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series { name: name.into(), mark, color: None, points: points.into_iter().collect(), labels: vec![] }
    }
}

/// Chart of several series over common axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Horizontal axis.
    pub x: ChartAxis,
    /// Vertical axis.
    pub y: ChartAxis,
    /// The series, first at the bottom.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 46.0;
/// Height of the title and legend of a standalone chart.
const HEAD: f64 = 44.0;

impl Chart {
    /// Returns true if no series has a point that can be drawn.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| self.drawn(series).next().is_none())
    }

    /// Returns the color class of each series.
    pub fn colors(&self) -> impl Iterator<Item = String> {
        self.series.iter().enumerate().map(|(n, series)| color_class(series.color.unwrap_or(n)))
    }

    fn drawn<'a>(&self, series: &'a Series) -> impl Iterator<Item = (usize, (f64, f64))> + use<'a> {
        let (x, y) = (self.x.scale, self.y.scale);
        series.points.iter().copied().enumerate().filter(move |(_, point)| x.allows(point.0) && y.allows(point.1))
    }

    /// Returns the chart as an SVG element for a page that has [`STYLE`] and shows title and
    /// legend.
    pub fn svg(&self) -> String {
        let title = escaped(&self.title);
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n{}</svg>\n",
            self.content()
        )
    }

    /// Returns the chart as an SVG file, with title and legend.
    pub fn standalone(&self) -> String {
        let height = HEIGHT + HEAD;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\">\n\
             <style>{STYLE}</style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text x=\"{LEFT}\" y=\"20\">{}</text>\n",
            escaped(&self.title)
        );
        let shown = self.series.iter().zip(self.colors()).filter(|(series, _)| self.drawn(series).next().is_some());
        for (n, (series, color)) in shown.enumerate() {
            let (x, y, name) = (WIDTH - RIGHT, 20 + 16 * n, escaped(&series.name));
            let _ = writeln!(svg, "<text class=\"key {color}\" x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>");
        }
        svg + &format!("<g transform=\"translate(0 {HEAD})\">\n{}</g>\n</svg>\n", self.content())
    }

    /// Axes and series.
    fn content(&self) -> String {
        let points = || self.series.iter().flat_map(|series| self.drawn(series)).map(|(_, point)| point);
        let x = PlotAxis::new(self.x.scale, points().map(|point| point.0), [LEFT, WIDTH - RIGHT]);
        let y = PlotAxis::new(self.y.scale, points().map(|point| point.1), [HEIGHT - BOTTOM, TOP]);
        let mut out = String::new();
        for (at, text) in y.ticks() {
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/>", WIDTH - RIGHT);
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        for (at, text) in x.ticks() {
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{:.1}\"/>", HEIGHT - BOTTOM);
            let below = HEIGHT - BOTTOM + 17.0;
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{text}</text>"
            );
        }
        let _ = writeln!(out, "<text class=\"tick\" x=\"4\" y=\"14\">{}</text>", escaped(&self.y.label));
        let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0);
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>",
            escaped(&self.x.label)
        );
        for (series, color) in self.series.iter().zip(self.colors()) {
            let _ = writeln!(out, "<g class=\"{color}\">");
            if series.mark == SeriesMark::Points {
                for (n, point) in self.drawn(series) {
                    let label = series.labels.get(n).unwrap_or(&series.name);
                    let (cx, cy) = (x.position(point.0), y.position(point.1));
                    let _ = writeln!(
                        out,
                        "<circle class=\"mark\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\"><title>{}</title></circle>",
                        escaped(label)
                    );
                }
            } else {
                let mut points: Vec<String> = self
                    .drawn(series)
                    .map(|(_, point)| format!("{:.1},{:.1}", x.position(point.0), y.position(point.1)))
                    .collect();
                // A single point has no line.
                if let [only] = &points[..] {
                    points.push(only.clone());
                }
                let style = match series.mark {
                    SeriesMark::Bold => " bold",
                    SeriesMark::Dashed => " dashed",
                    _ => "",
                };
                if !points.is_empty() {
                    let (points, name) = (points.join(" "), escaped(&series.name));
                    let _ = writeln!(
                        out,
                        "<polyline class=\"line{style}\" stroke-linecap=\"round\" points=\"{points}\"><title>{name}</title></polyline>"
                    );
                }
            }
            out += "</g>\n";
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: Vec<(f64, f64)>) -> Chart {
        let axis = |label: &str| ChartAxis { label: label.into(), scale };
        let series =
            vec![Series::new("<run>", SeriesMark::Line, points.clone()), Series::new("b", SeriesMark::Points, points)];
        Chart { title: "a & b".into(), x: axis("x"), y: axis("y"), series }
    }

    #[test]
    fn points_lie_inside_the_frame_for_any_values() {
        let cases: [&[(f64, f64)]; 8] = [
            &[],
            &[(0.0, 0.0)],
            &[(5.0, 5.0), (5.0, 5.0)],
            &[(1e-300, 1e300), (1e300, 1e-300)],
            &[(-3.0, -4.0), (1e9, 2.0)],
            &[(1.0, f64::NAN), (f64::INFINITY, 2.0), (3.0, 4.0)],
            &[(1e15, 1.0), (1e15 + 1.0, 1.0 + 1e-12)],
            &[(f64::MAX, f64::MIN), (f64::MIN, f64::MAX)],
        ];
        for points in cases {
            for scale in [Scale::Linear, Scale::Log] {
                for svg in [chart(scale, points.to_vec()).svg(), chart(scale, points.to_vec()).standalone()] {
                    assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.len() < 20_000, "{points:?}: {svg}");
                    let coordinates = svg.split("points=\"").skip(1).map(|part| part.split('"').next().unwrap());
                    for point in coordinates.flat_map(|points| points.split(' ')) {
                        let (x, y) = point.split_once(',').unwrap();
                        let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                        assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{points:?}: {point}");
                    }
                    assert!(svg.contains("a &amp; b") && !svg.contains("<run>"), "{svg}");
                }
            }
        }
        assert!(chart(Scale::Log, vec![(0.0, 1.0)]).is_empty() && !chart(Scale::Linear, vec![(0.0, 1.0)]).is_empty());
    }
}
