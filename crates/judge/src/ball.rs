//! Floats with an error bound (midpoint-radius intervals) that cover every correct implementation.
//!
//! A value is a polynomial of exact terms as far as sums and products go: `magnitude` is the sum of
//! the absolute values of its monomials, and the rounding errors of *any* order of evaluation are at
//! most `(additions + products) · magnitude`. A sequential loop therefore has the same bound as a
//! tree of warp shuffles, a split accumulator or a fused multiply-add. Functions, divisors and
//! conversions to narrower types collapse their argument to midpoint and radius.

use bornite_ir::{Scalar, Value};

/// A float with an error bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ball {
    /// Value, computed in f64.
    pub mid: f64,
    /// Error that does not come from rounding sums and products of this value's terms.
    err: f64,
    /// Sum of the absolute values of the terms.
    magnitude: f64,
    /// Unit roundoffs of the additions, in any order: one less than the number of terms.
    additions: f64,
    /// Unit roundoffs of the products and quotients in one term.
    products: f64,
}

/// Unit roundoff of a type: half a unit in the last place of 1. That of f64 is doubled, because
/// midpoints are computed in f64 and have the same error.
pub fn unit_roundoff(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 2f64.powi(-11),
        Scalar::BF16 => 2f64.powi(-8),
        Scalar::F64 => 2f64.powi(-52),
        _ => 2f64.powi(-24),
    }
}

/// Smallest positive number of a type.
pub fn min_positive(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 2f64.powi(-24),
        Scalar::BF16 => 2f64.powi(-133),
        Scalar::F64 => f64::MIN_POSITIVE,
        _ => 2f64.powi(-149),
    }
}

/// Largest finite number of a type.
fn max_finite(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 65504.0,
        Scalar::BF16 => half::bf16::MAX.to_f64(),
        Scalar::F64 => f64::MAX,
        _ => f32::MAX as f64,
    }
}

/// Largest magnitude up to which a type holds every integer.
fn max_exact_integer(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 2f64.powi(11),
        Scalar::BF16 => 2f64.powi(8),
        Scalar::F64 => 2f64.powi(53),
        _ => 2f64.powi(24),
    }
}

fn is_power_of_two(x: f64) -> bool {
    x.is_normal() && x.to_bits() << 12 == 0
}

impl Ball {
    /// A value without error.
    pub fn exact(mid: f64) -> Ball {
        Ball { mid, err: 0.0, magnitude: mid.abs(), additions: 0.0, products: 0.0 }
    }

    /// A value within `err` of `mid`.
    pub fn within(mid: f64, err: f64) -> Ball {
        Ball { mid, err, magnitude: mid.abs() + err, additions: 0.0, products: 0.0 }
    }

    /// A value that rounding leaves open.
    pub fn unknown() -> Ball {
        Ball::within(0.0, f64::INFINITY)
    }

    /// Maximum distance of a correct result from `mid`.
    pub fn radius(self) -> f64 {
        match self.additions + self.products {
            0.0 => self.err,
            roundings if roundings < 0.25 => self.err + roundings * (1.0 + 2.0 * roundings) * self.magnitude,
            _ => f64::INFINITY,
        }
    }

    /// Radius of a result in memory: two more roundings than the evaluation has, for algebraically
    /// equal forms. Exact results stay exact.
    pub fn result_radius(self, scalar: Scalar) -> f64 {
        if self.is_exact() {
            return 0.0;
        }
        let radius = self.radius();
        radius + 2.0 * unit_roundoff(scalar) * (self.magnitude + radius) + min_positive(scalar)
    }

    /// Returns true if every correct implementation computes exactly `mid`.
    pub fn is_exact(self) -> bool {
        self.err == 0.0 && (self.additions + self.products == 0.0 || self.magnitude == 0.0)
    }

    fn is_exact_integer(self) -> bool {
        self.is_exact() && self.mid.fract() == 0.0
    }

    /// Lowest and highest possible value.
    pub fn bounds(self) -> (f64, f64) {
        let radius = self.radius();
        if radius == 0.0 { (self.mid, self.mid) } else { (self.mid - radius, self.mid + radius) }
    }

    fn from_bounds(low: f64, high: f64) -> Ball {
        if low == high {
            return Ball::exact(low);
        }
        let mid = low / 2.0 + high / 2.0;
        let err = (high - mid).max(mid - low);
        if err.is_finite() { Ball::within(mid, err) } else { Ball::unknown() }
    }

    /// Forgets the terms: the radius becomes a plain error.
    fn collapsed(self) -> Ball {
        let radius = self.radius();
        if radius == 0.0 { Ball::exact(self.mid) } else { Ball::within(self.mid, radius) }
    }

    /// Replaces results that the type does not hold: infinite if every implementation overflows,
    /// unknown if some do.
    pub fn in_range(self, scalar: Scalar, has_finite_operands: bool) -> Ball {
        let radius = self.radius();
        if !has_finite_operands || radius.is_nan() {
            return Ball::unknown();
        }
        if !self.mid.is_finite() {
            return Ball::exact(self.mid);
        }
        let max = max_finite(scalar);
        if self.mid.abs() + radius <= max {
            self
        } else if self.mid.abs() - radius > max * (1.0 + unit_roundoff(scalar)) {
            Ball::exact(f64::INFINITY.copysign(self.mid))
        } else {
            Ball::unknown()
        }
    }

    /// Sum.
    pub fn add(self, b: Ball, scalar: Scalar) -> Ball {
        if self.is_exact() && self.mid == 0.0 && !b.mid.is_nan() {
            return b;
        }
        if b.is_exact() && b.mid == 0.0 && !self.mid.is_nan() {
            return self;
        }
        let magnitude = self.magnitude + b.magnitude;
        let mut sum = Ball {
            mid: self.mid + b.mid,
            err: self.err + b.err,
            magnitude,
            additions: self.additions + b.additions,
            products: self.products.max(b.products),
        };
        if !(self.is_exact_integer() && b.is_exact_integer() && magnitude <= max_exact_integer(scalar)) {
            sum.additions += unit_roundoff(scalar);
        }
        sum.in_range(scalar, self.radius().is_finite() && b.radius().is_finite())
    }

    /// Negation.
    pub fn neg(self) -> Ball {
        Ball { mid: -self.mid, ..self }
    }

    /// Multiplies by a power of two, which is exact for normal numbers.
    fn scaled(self, factor: f64, scalar: Scalar) -> Ball {
        let mut scaled = Ball {
            mid: self.mid * factor,
            err: self.err * factor.abs(),
            magnitude: self.magnitude * factor.abs(),
            ..self
        };
        if scaled.mid != 0.0 && scaled.mid.abs() < min_positive(scalar) / unit_roundoff(scalar) {
            scaled.err += min_positive(scalar);
        }
        scaled.in_range(scalar, self.radius().is_finite())
    }

    /// Product.
    pub fn mul(self, b: Ball, scalar: Scalar) -> Ball {
        for (x, y) in [(self, b), (b, self)] {
            if x.is_exact() && is_power_of_two(x.mid) {
                return y.scaled(x.mid, scalar);
            }
        }
        let mut product = self.times(b);
        if !(self.is_exact_integer() && b.is_exact_integer() && product.mid.abs() <= max_exact_integer(scalar)) {
            product.products += unit_roundoff(scalar);
            product.err += min_positive(scalar);
        }
        product.in_range(scalar, self.radius().is_finite() && b.radius().is_finite())
    }

    /// Product without a rounding.
    fn times(self, b: Ball) -> Ball {
        let (ra, rb) = (self.additions + self.products, b.additions + b.products);
        let cross = |magnitude: f64, err: f64| if err == 0.0 { 0.0 } else { magnitude * err };
        Ball {
            mid: self.mid * b.mid,
            err: (cross(self.magnitude, b.err) + cross(b.magnitude, self.err)) * (1.0 + ra + rb)
                + cross(self.err, b.err),
            magnitude: self.magnitude * b.magnitude,
            additions: self.additions + b.additions,
            products: self.products + b.products + ra * rb,
        }
    }

    /// Quotient, also as the product with the rounded reciprocal.
    pub fn div(self, b: Ball, scalar: Scalar) -> Ball {
        if b.is_exact() && is_power_of_two(b.mid) {
            return self.scaled(1.0 / b.mid, scalar);
        }
        let (b, is_finite) = (b.collapsed(), self.radius().is_finite() && b.radius().is_finite());
        if b.is_exact() && (b.mid == 0.0 || !b.mid.is_finite()) {
            let (low, high) = self.bounds();
            let sign_is_known = self.is_exact() || low > 0.0 || high < 0.0 || !b.mid.is_finite();
            return Ball::exact(self.mid / b.mid).in_range(scalar, is_finite && sign_is_known);
        }
        let min_divisor = b.mid.abs() - b.err;
        if !is_finite || min_divisor <= 0.0 {
            return Ball::unknown();
        }
        let inverse = 1.0 / b.mid;
        let reciprocal = Ball { magnitude: inverse.abs(), ..Ball::within(inverse, b.err / b.mid.abs() / min_divisor) };
        let mut quotient = self.times(reciprocal);
        quotient.mid = self.mid / b.mid;
        if self.mid != 0.0 || !self.is_exact() {
            quotient.products += 2.0 * unit_roundoff(scalar);
            quotient.err += min_positive(scalar);
        }
        quotient.in_range(scalar, is_finite)
    }

    /// Absolute value.
    pub fn abs(self) -> Ball {
        Ball { mid: self.mid.abs(), ..self }
    }

    /// Maximum; NaN if either is NaN.
    pub fn max(self, b: Ball) -> Ball {
        if self.mid.is_nan() || b.mid.is_nan() {
            return if self.mid.is_nan() { self } else { b };
        }
        let ((low, high), (other_low, other_high)) = (self.bounds(), b.bounds());
        if low >= other_high {
            self
        } else if other_low >= high {
            b
        } else {
            Ball::from_bounds(low.max(other_low), high.max(other_high))
        }
    }

    /// Minimum; NaN if either is NaN.
    pub fn min(self, b: Ball) -> Ball {
        self.neg().max(b.neg()).neg()
    }

    /// Smallest ball around both values: the result of a choice that rounding decides.
    pub fn hull(self, b: Ball) -> Ball {
        let ((low, high), (other_low, other_high)) = (self.bounds(), b.bounds());
        let bounds = [low, high, other_low, other_high];
        if bounds.iter().any(|bound| !bound.is_finite()) {
            return if self == b { self } else { Ball::unknown() };
        }
        Ball::from_bounds(low.min(other_low), high.max(other_high))
    }

    /// Conversion to another type.
    pub fn to(self, from: Scalar, to: Scalar) -> Ball {
        if to == from || to == Scalar::F64 || to == Scalar::F32 && from != Scalar::F64 {
            return self;
        }
        if self.is_exact() {
            return Ball::exact(Value::from_f64(to, self.mid).as_f64());
        }
        let is_finite = self.radius().is_finite();
        let mut rounded = if to == Scalar::F32 { self } else { self.collapsed() };
        rounded.products += unit_roundoff(to);
        rounded.err += min_positive(to);
        rounded.in_range(to, is_finite)
    }

    /// A step function, such as `floor`.
    pub fn step(self, f: impl Fn(f64) -> f64) -> Ball {
        let (low, high) = self.bounds();
        if low == high || low.is_nan() {
            return Ball::exact(f(self.mid));
        }
        if low.is_finite() && high.is_finite() { Ball::from_bounds(f(low), f(high)) } else { Ball::unknown() }
    }

    /// Compares with `<`; `None` if rounding decides.
    pub fn lt(self, b: Ball) -> Option<bool> {
        self.compare(b, |low, high| low < high)
    }

    /// Compares with `<=`; `None` if rounding decides.
    pub fn le(self, b: Ball) -> Option<bool> {
        self.compare(b, |low, high| low <= high)
    }

    /// Compares with `==`; `None` if rounding decides.
    pub fn eq(self, b: Ball) -> Option<bool> {
        match (self.le(b), b.le(self)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    fn compare(self, b: Ball, holds: impl Fn(f64, f64) -> bool) -> Option<bool> {
        if !self.radius().is_finite() || !b.radius().is_finite() {
            return None;
        }
        let ((low, high), (other_low, other_high)) = (self.bounds(), b.bounds());
        let (surely, possibly) = (holds(high, other_low), holds(low, other_high));
        (surely == possibly).then_some(surely)
    }
}
