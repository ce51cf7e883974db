//! Floats with an error bound (midpoint-radius intervals).
//!
//! A float of a kernel is an f64 value and the distance within which every correct implementation
//! lies: each operation may round once to its type (or be contracted with its neighbour, which
//! rounds less), and functions may have the error in ulps that CUDA's manual and our own
//! table allow. Exact values stay exact, so comparisons of loaded values are decided; only
//! comparisons that rounding could change are undecided.

use crate::program::ScalarType;

/// A float with an error bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// Value in f64.
    pub mid: f64,
    /// Maximum distance of a correct result from `mid`.
    pub err: f64,
}

/// Maximum error of a math function on any device, in ulps.
const FUNCTION_ULPS: f64 = 6.0;

/// Half a unit in the last place of 1.
pub fn half_ulp(scalar: ScalarType) -> f64 {
    match scalar {
        ScalarType::F16 => 2f64.powi(-11),
        ScalarType::BF16 => 2f64.powi(-8),
        ScalarType::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

/// Half the smallest positive number.
fn half_min_positive(scalar: ScalarType) -> f64 {
    match scalar {
        ScalarType::F16 => 2f64.powi(-25),
        ScalarType::BF16 => 2f64.powi(-134),
        ScalarType::F64 => f64::MIN_POSITIVE,
        _ => 2f64.powi(-150),
    }
}

/// Largest finite number.
fn max_finite(scalar: ScalarType) -> f64 {
    match scalar {
        ScalarType::F16 => 65504.0,
        ScalarType::BF16 => half::bf16::MAX.to_f64(),
        ScalarType::F64 => f64::MAX,
        _ => f32::MAX as f64,
    }
}

/// Rounds a value to a type, ties to even.
pub fn round_to(scalar: ScalarType, value: f64) -> f64 {
    match scalar {
        ScalarType::F64 => value,
        ScalarType::F32 => value as f32 as f64,
        _ if value == 0.0 || !value.is_finite() => value,
        _ => {
            // Mantissa bits and minimum exponent of normal numbers.
            let (bits, min_exponent) = if scalar == ScalarType::F16 { (10, -14) } else { (7, -126) };
            let exponent = (((value.abs().to_bits() >> 52) as i32) - 1023).max(min_exponent);
            let step = 2f64.powi(exponent - bits);
            (value / step).round_ties_even() * step
        }
    }
}

impl Interval {
    /// A value with error bound 0.
    pub fn exact(mid: f64) -> Interval {
        Interval { mid, err: 0.0 }
    }

    /// A result that rounds once to its type; `inherited` is the error from its operands.
    pub fn rounded(mid: f64, inherited: f64, scalar: ScalarType) -> Interval {
        if inherited == 0.0 && scalar != ScalarType::F64 && round_to(scalar, mid) == mid {
            return Interval::exact(mid).within(scalar);
        }
        let factor = if scalar == ScalarType::F64 { 3.0 } else { 1.0000001 };
        Interval { mid, err: inherited * 1.0000001 + mid.abs() * half_ulp(scalar) * factor + half_min_positive(scalar) }
            .within(scalar)
    }

    /// Makes the bound infinite if the type may overflow: a kernel continues with infinity where
    /// f64 has a number.
    fn within(self, scalar: ScalarType) -> Interval {
        let holds = !self.mid.is_finite() || self.mid.abs() + self.err <= max_finite(scalar);
        if holds { self } else { Interval { mid: self.mid, err: f64::INFINITY } }
    }

    /// Result of a math function.
    fn function(mid: f64, inherited: f64, scalar: ScalarType) -> Interval {
        let ulps = if matches!(scalar, ScalarType::F16 | ScalarType::BF16) { 1.0 } else { FUNCTION_ULPS };
        let own_error = mid.abs() * half_ulp(scalar) * 2.0 * ulps + half_min_positive(scalar) * 8.0;
        Interval { mid, err: inherited * 1.0000001 + own_error }.within(scalar)
    }

    /// Sum.
    pub fn add(self, b: Interval, scalar: ScalarType) -> Interval {
        Interval::rounded(self.mid + b.mid, self.err + b.err, scalar)
    }

    /// Difference.
    pub fn sub(self, b: Interval, scalar: ScalarType) -> Interval {
        Interval::rounded(self.mid - b.mid, self.err + b.err, scalar)
    }

    /// Product.
    pub fn mul(self, b: Interval, scalar: ScalarType) -> Interval {
        let inherited = self.mid.abs() * b.err + b.mid.abs() * self.err + self.err * b.err;
        Interval::rounded(self.mid * b.mid, inherited, scalar)
    }

    /// Quotient; a divisor that may be 0 makes the bound infinite.
    pub fn div(self, b: Interval, scalar: ScalarType) -> Interval {
        let min_divisor = b.mid.abs() - b.err;
        if min_divisor <= 0.0 {
            return Interval { mid: self.mid / b.mid, err: f64::INFINITY };
        }
        let mid = self.mid / b.mid;
        let inherited = (self.err + mid.abs() * b.err) / min_divisor;
        // A quotient that f64 does not represent is not exact, even if its nearest f64 looks like
        // it.
        if inherited == 0.0 && mid * b.mid != self.mid {
            return Interval { mid, err: mid.abs() * half_ulp(scalar) * 1.001 + half_min_positive(scalar) };
        }
        Interval::rounded(mid, inherited, scalar)
    }

    /// Negation.
    pub fn negated(self) -> Interval {
        Interval { mid: -self.mid, err: self.err }
    }

    /// Minimum.
    pub fn min(self, b: Interval) -> Interval {
        Interval { mid: self.mid.min(b.mid), err: error_of_choice(self, b, self.mid <= b.mid) }
    }

    /// Maximum.
    pub fn max(self, b: Interval) -> Interval {
        Interval { mid: self.mid.max(b.mid), err: error_of_choice(self, b, self.mid >= b.mid) }
    }

    /// Conversion to another type.
    pub fn to(self, scalar: ScalarType) -> Interval {
        Interval::rounded(self.mid, self.err, scalar)
    }

    /// A function that is monotone on `[mid - err, mid + err]`.
    pub fn monotone(self, scalar: ScalarType, f: impl Fn(f64) -> f64) -> Interval {
        let mid = f(self.mid);
        let mut inherited = 0.0;
        if self.err > 0.0 {
            let (low, high) = (f(self.mid - self.err), f(self.mid + self.err));
            inherited = (low - mid).abs().max((high - mid).abs());
            if !inherited.is_finite() {
                inherited = f64::INFINITY;
            }
        }
        Interval::function(mid, inherited, scalar)
    }

    /// A function whose derivative is at most `max_derivative` in magnitude.
    pub fn bounded(self, scalar: ScalarType, max_derivative: f64, f: impl Fn(f64) -> f64) -> Interval {
        Interval::function(f(self.mid), self.err * max_derivative, scalar)
    }

    /// The square root.
    pub fn sqrt(self, scalar: ScalarType) -> Interval {
        let mid = self.mid.max(0.0).sqrt();
        if self.err == 0.0 {
            return if mid * mid == self.mid {
                Interval::rounded(mid, 0.0, scalar)
            } else {
                Interval::function(mid, 0.0, scalar)
            };
        }
        let (low, high) = ((self.mid - self.err).max(0.0).sqrt(), (self.mid + self.err).sqrt());
        Interval::function(mid, (mid - low).max(high - mid), scalar)
    }

    /// Power with a positive base.
    pub fn pow(self, b: Interval, scalar: ScalarType) -> Interval {
        let mid = self.mid.powf(b.mid);
        let mut inherited: f64 = 0.0;
        for base in [self.mid - self.err, self.mid + self.err] {
            for power in [b.mid - b.err, b.mid + b.err] {
                inherited = inherited.max((base.powf(power) - mid).abs());
            }
        }
        Interval::function(mid, if inherited.is_finite() { inherited } else { f64::INFINITY }, scalar)
    }

    /// Angle of the point (b, self).
    pub fn atan2(self, b: Interval, scalar: ScalarType) -> Interval {
        let distance = self.err.hypot(b.err);
        let min_radius = self.mid.hypot(b.mid) - distance;
        let crosses = b.mid < distance && self.mid.abs() <= self.err;
        let inherited =
            if min_radius <= 0.0 || crosses && distance > 0.0 { f64::INFINITY } else { distance / min_radius * 1.6 };
        Interval::function(self.mid.atan2(b.mid), inherited, scalar)
    }

    /// Value of a step function, if it is constant within the bound.
    pub fn step(self, f: impl Fn(f64) -> f64) -> Option<Interval> {
        let mid = f(self.mid);
        let same = self.err == 0.0 || f(self.mid - self.err) == mid && f(self.mid + self.err) == mid;
        same.then_some(Interval::exact(mid))
    }

    /// Compares with `<`; `None` if rounding decides.
    pub fn less_than(self, b: Interval) -> Option<bool> {
        let distance = self.err + b.err;
        match b.mid - self.mid {
            gap if gap > distance => Some(true),
            gap if distance == 0.0 || gap < -distance => Some(false),
            _ => None,
        }
    }

    /// Compares with `==`; `None` if rounding decides.
    pub fn equals(self, b: Interval) -> Option<bool> {
        let distance = self.err + b.err;
        match (b.mid - self.mid).abs() {
            gap if distance == 0.0 => Some(gap == 0.0),
            gap if gap > distance => Some(false),
            _ => None,
        }
    }
}

/// Error bound of the selected operand, or of both if either might be selected.
fn error_of_choice(a: Interval, b: Interval, first: bool) -> f64 {
    if (a.mid - b.mid).abs() > a.err + b.err {
        return if first { a.err } else { b.err };
    }
    a.err.max(b.err)
}

/// Error function, by its series and, for large arguments, its continued fraction.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 2.5 {
        return x.signum() * (1.0 - erfc_far(x.abs()));
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// Complementary error function, accurate where it is small.
pub fn erfc(x: f64) -> f64 {
    if x > 1.0 { erfc_far(x) } else { 1.0 - erf(x) }
}

fn erfc_far(x: f64) -> f64 {
    let fraction = (1..400).rev().fold(x, |denominator, n| x + n as f64 / 2.0 / denominator);
    (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflowing_values_have_an_infinite_bound() {
        for (scalar, held, beyond) in [
            (ScalarType::F16, 65000.0, 66000.0),
            (ScalarType::F16, 300.0, 1e6),
            (ScalarType::BF16, 3.3e38, 3.5e38),
            (ScalarType::F32, 3.4e38, 3.5e38),
            (ScalarType::F32, 1e30, 6.6e41),
        ] {
            for sign in [1.0, -1.0] {
                let sum =
                    |total: f64| Interval::exact(sign * total / 2.0).add(Interval::exact(sign * total / 2.0), scalar);
                assert!(sum(held).err.is_finite(), "{scalar:?} holds {held}");
                assert!(sum(beyond).err.is_infinite(), "{scalar:?} does not hold {beyond}");
            }
        }
    }

    #[test]
    fn erf_matches_known_values() {
        for (x, expected) in
            [(0.0, 0.0), (0.5, 0.5204998778130465), (1.0, 0.8427007929497149), (3.0, 0.9999779095030014)]
        {
            assert!((erf(x) - expected).abs() < 1e-14, "erf({x}) = {}", erf(x));
            assert!((erf(-x) + expected).abs() < 1e-14);
        }
        for (x, expected) in [
            (1.25, 7.709987174354177e-2),
            (2.0, 4.677734981047266e-3),
            (3.0, 2.209049699858544e-5),
            (5.0, 1.537459794428035e-12),
        ] {
            assert!((erfc(x) / expected - 1.0).abs() < 1e-14, "erfc({x}) = {}", erfc(x));
        }
    }

    #[test]
    fn sixteen_bit_floats_round_ties_to_even() {
        for (scalar, value, expected) in [
            (ScalarType::F16, 1.0 + 2f64.powi(-11), 1.0),
            (ScalarType::F16, 1.0 + 3.0 * 2f64.powi(-11), 1.0 + 2f64.powi(-9)),
            (ScalarType::F16, 2f64.powi(-24), 2f64.powi(-24)),
            (ScalarType::F16, 2f64.powi(-26), 0.0),
            (ScalarType::BF16, 1.0 + 2f64.powi(-8), 1.0),
            (ScalarType::BF16, -5.1415927, -5.15625),
        ] {
            assert_eq!(round_to(scalar, value), expected, "{value} in {}", scalar.name());
        }
    }
}
