//! Loss plot of a run, as a self-contained SVG.

use std::fmt::Write;

/// Points of a curve; beyond [`MAX_POINTS`] neighbours are averaged.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    points: Vec<(f64, f64)>,
    /// Values averaged per point.
    values_per_point: u64,
    /// Sum of steps, sum of values and count of the next point.
    partial: (f64, f64, u64),
}

const MAX_POINTS: usize = 2048;

impl Curve {
    pub fn new() -> Curve {
        Curve { points: vec![], values_per_point: 1, partial: (0.0, 0.0, 0) }
    }

    pub fn push(&mut self, step: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        let (steps, values, count) = self.partial;
        self.partial = (steps + step as f64, values + value, count + 1);
        if self.partial.2 < self.values_per_point {
            return;
        }
        let count = self.partial.2 as f64;
        self.points.push((self.partial.0 / count, self.partial.1 / count));
        self.partial = (0.0, 0.0, 0);
        if self.points.len() == MAX_POINTS {
            self.points = self.points.chunks(2).map(|p| ((p[0].0 + p[1].0) / 2.0, (p[0].1 + p[1].1) / 2.0)).collect();
            self.values_per_point *= 2;
        }
    }
}

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 450.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 45.0;

/// Plots training loss and validation loss, the latter with a thicker line.
pub(crate) fn svg(title: &str, training: &Curve, validation: &Curve) -> String {
    let all = || training.points.iter().chain(&validation.points);
    let last = all().map(|p| p.0).fold(1.0, f64::max);
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let (low, high) = if low.is_finite() { (low, high.max(low + 1e-6)) } else { (0.0, 1.0) };
    let tick = tick_step(high - low);
    let (low, high) = ((low / tick).floor() * tick, (high / tick).ceil() * tick);
    let x = |step: f64| LEFT + step / last * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM);

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    let mut line = |x1: f64, y1: f64, x2: f64, y2: f64, label: String, at: (f64, f64), anchor: &str| {
        let _ = writeln!(out, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>");
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>", at.0, at.1);
    };
    for n in 0..=((high - low) / tick).round().min(50.0) as u64 {
        let value = low + n as f64 * tick;
        line(LEFT, y(value), WIDTH - RIGHT, y(value), short(value), (LEFT - 8.0, y(value) + 4.0), "end");
    }
    let tick = tick_step(last).max(1.0);
    for n in 0..=(last / tick).floor().min(50.0) as u64 {
        let step = n as f64 * tick;
        line(x(step), TOP, x(step), HEIGHT - BOTTOM, short(step), (x(step), HEIGHT - BOTTOM + 18.0), "middle");
    }
    for (n, (curve, name, color, width)) in
        [(training, "training", "#3b76af", 1.0), (validation, "validation", "#c8573c", 2.5)].into_iter().enumerate()
    {
        let points: Vec<String> = curve.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        if points.is_empty() {
            continue;
        }
        let points = points.join(" ");
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" points=\"{points}\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{color}\">{name}</text>",
            WIDTH - RIGHT,
            24 + 14 * n,
        );
    }
    out + "</svg>\n"
}

/// Distance of axis ticks: 1, 2 or 5 times a power of ten, about five ticks per range.
fn tick_step(range: f64) -> f64 {
    let rough = (range / 5.0).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| n * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_curves_are_thinned_and_drawn_inside_the_frame() {
        let (mut training, mut validation) = (Curve::new(), Curve::new());
        for step in 1..=20_000u64 {
            training.push(step, 10.0 / step as f64 + 1.0);
            if step % 1000 == 0 {
                validation.push(step, 2.0);
            }
        }
        training.push(20_001, f64::NAN);
        assert!((MAX_POINTS / 2..MAX_POINTS).contains(&training.points.len()), "{}", training.points.len());
        let mean = training.points.iter().map(|p| p.0).sum::<f64>() / training.points.len() as f64;
        assert!((mean - 10_000.0).abs() < 50.0, "{mean}");
        let text = svg("a <run>", &training, &validation);
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && text.contains("a &lt;run&gt;"));
        let points = text.split("points=\"").skip(1).flat_map(|part| part.split('"').next().unwrap().split(' '));
        for point in points {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{point}");
        }
        assert!(!svg("", &Curve::new(), &Curve::new()).contains("polyline"));
        assert_eq!([tick_step(1.0), tick_step(7.0), tick_step(0.03)].map(short), ["0.2", "2", "0.01"]);
    }
}
