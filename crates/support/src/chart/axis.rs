//! Axes: range of the data, ticks, positions.

/// Mapping of values to positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Proportional to the value.
    Linear,
    /// Proportional to the logarithm; only positive values are drawn.
    Log,
}

impl Scale {
    pub(super) fn allows(self, value: f64) -> bool {
        // Larger values would overflow in differences.
        value.is_finite() && value.abs() < 1e300 && (self == Scale::Linear || value > 0.0)
    }

    fn apply(self, value: f64) -> f64 {
        if self == Scale::Log { value.log10() } else { value }
    }
}

/// ChartAxis of a chart.
#[derive(Clone, Debug)]
pub struct ChartAxis {
    /// Quantity and unit.
    pub label: String,
    /// Scale.
    pub scale: Scale,
}

impl ChartAxis {
    /// Creates a linear axis.
    pub fn linear(label: impl Into<String>) -> ChartAxis {
        ChartAxis { label: label.into(), scale: Scale::Linear }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: impl Into<String>) -> ChartAxis {
        ChartAxis { label: label.into(), scale: Scale::Log }
    }
}

/// An axis with the range of its data.
pub(super) struct PlotAxis {
    scale: Scale,
    /// Range, as powers of ten on a logarithmic axis.
    low: f64,
    high: f64,
    step: f64,
    /// Positions of both ends.
    ends: [f64; 2],
}

/// Approximate number of ticks.
const TICKS: f64 = 5.0;

impl PlotAxis {
    pub fn new(scale: Scale, values: impl Iterator<Item = f64>, ends: [f64; 2]) -> PlotAxis {
        let range = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = values.map(|value| scale.apply(value)).fold((f64::INFINITY, f64::NEG_INFINITY), range);
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        // Neighbouring floats have no ticks between them.
        let min_width = if scale == Scale::Log { 1.0 } else { low.abs().max(high.abs()).max(1e-9) * 1e-6 };
        let high = high.max(low + min_width);
        let step = match scale {
            Scale::Log => ((high - low) / TICKS).ceil().max(1.0),
            Scale::Linear => tick_step(high - low),
        };
        PlotAxis { scale, low: (low / step).floor() * step, high: (high / step).ceil() * step, step, ends }
    }

    pub fn position(&self, value: f64) -> f64 {
        let share = (self.scale.apply(value) - self.low) / (self.high - self.low);
        self.ends[0] + share * (self.ends[1] - self.ends[0])
    }

    /// Positions and texts of the ticks.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let count = ((self.high - self.low) / self.step).round().clamp(1.0, 20.0) as u32;
        (0..=count)
            .map(|n| {
                let at = self.low + f64::from(n) * self.step;
                let share = f64::from(n) / f64::from(count);
                let value = if self.scale == Scale::Log { 10f64.powf(at) } else { at };
                // Multiples of the step are exact only up to rounding.
                let value = if value.abs() < self.step * 1e-9 && self.scale == Scale::Linear { 0.0 } else { value };
                (self.ends[0] + share * (self.ends[1] - self.ends[0]), short_number(value))
            })
            .collect()
    }
}

/// Distance of ticks: 1, 2 or 5 times a power of ten.
fn tick_step(range: f64) -> f64 {
    let rough = range / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| n * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Formats a number for people: four significant digits, with k, M, G or T from 10,000 on.
pub fn short_number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        x if x >= 1e16 => return format!("{value:.0e}"),
        x if x >= 1e12 => (value / 1e12, "T"),
        x if x >= 1e9 => (value / 1e9, "G"),
        x if x >= 1e6 => (value / 1e6, "M"),
        x if x >= 1e4 => (value / 1e3, "k"),
        x if x < 1e-4 && x > 0.0 => return format!("{value:.0e}"),
        _ => (value, ""),
    };
    let digits = if scaled == 0.0 { 0 } else { (3 - scaled.abs().log10().floor() as i32).clamp(0, 7) as usize };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.2, "0.2"),
            (1.0 / 3.0, "0.3333"),
            (-2.5, "-2.5"),
            (1000.0, "1000"),
            (12_000.0, "12k"),
            (10_000_000.0, "10M"),
            (2.5e9, "2.5G"),
            (3e12, "3T"),
            (1e-5, "1e-5"),
            (0.0003, "0.0003"),
            (1e20, "1e20"),
        ];
        for (value, expected) in cases {
            assert_eq!(short_number(value), expected);
        }
    }

    #[test]
    fn ticks_enclose_the_data() {
        for (scale, values, expected) in [
            (Scale::Linear, [0.0, 7.0], "0 2 4 6 8"),
            (Scale::Linear, [1.2, 4.9], "1 2 3 4 5"),
            (Scale::Linear, [0.0, 0.03], "0 0.01 0.02 0.03"),
            (Scale::Log, [3.0, 900.0], "1 10 100 1000"),
            (Scale::Log, [1e-3, 1e9], "0.001 1 1000 1M 1G"),
        ] {
            let axis = PlotAxis::new(scale, values.into_iter(), [0.0, 100.0]);
            let texts: Vec<String> = axis.ticks().into_iter().map(|(_, text)| text).collect();
            assert_eq!(texts.join(" "), expected, "{values:?}");
            assert!(values.iter().all(|&value| (0.0..=100.0).contains(&axis.position(value))));
        }
    }
}
