//! Loss plot of a run, as a self-contained SVG.

use bornite_support::chart::{Chart, ChartAxis, Series, SeriesMark};

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

/// Plots training loss and validation loss, the latter with a thicker line.
pub(crate) fn svg(title: &str, training: &Curve, validation: &Curve) -> String {
    let series = [(training, "training", SeriesMark::Line), (validation, "validation", SeriesMark::Bold)];
    let series = series.map(|(curve, name, mark)| Series::new(name, mark, curve.points.iter().copied()));
    let (x, y) = (ChartAxis::linear("step"), ChartAxis::linear("loss"));
    Chart { title: title.into(), x, y, series: series.into() }.standalone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_curves_are_thinned() {
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
        assert!(!svg("", &Curve::new(), &Curve::new()).contains("polyline"));
    }
}
