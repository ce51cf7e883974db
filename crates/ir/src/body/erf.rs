//! Error function and complementary error function.

use super::{abs, float, polynomial, via_f64};
use crate::{EmitBits, Op};

#[allow(clippy::approx_constant)] // a fitted coefficient that comes close to 2/√π
/// erf(x) / x in x² on |x| ≤ 1, interpolated at Chebyshev nodes.
const ERF: [f64; 13] = [
    1.1283791670955126,
    -0.3761263890318375,
    0.11283791670954879,
    -0.026866170645076792,
    0.0052239776248180145,
    -0.000854832698083379,
    0.0001205533111164271,
    -1.4925595266831182e-05,
    1.6461000484121368e-06,
    -1.6350312701054695e-07,
    1.4659775274047436e-08,
    -1.1372848856791674e-09,
    5.957176147748911e-11,
];
/// exp(x²) erfc(x) on [0.5, 1.25], in a variable scaled to [-1, 1].
const NEAR: [f64; 17] = [
    0.464311583202669,
    -0.11843771118406568,
    0.026431442405603776,
    -0.005321657397280383,
    0.0009853763774027165,
    -0.00017001257906220388,
    2.7594391855670542e-05,
    -4.243888319610608e-06,
    6.219838757995321e-07,
    -8.726850412300243e-08,
    1.176629836107086e-08,
    -1.5293585474089778e-09,
    1.9214036237306007e-10,
    -2.3357273626958327e-11,
    2.7604360384314523e-12,
    -3.3456833987505314e-13,
    3.735983662062139e-14,
];
/// The same on [1.25, 2.5].
const MIDDLE: [f64; 19] = [
    0.2694299851646704,
    -0.073760451704999,
    0.018808058613153707,
    -0.004514655173317131,
    0.001028143182266061,
    -0.00022347275414397365,
    4.657876560361101e-05,
    -9.345586752822322e-06,
    1.810742708129158e-06,
    -3.397012833161193e-07,
    6.184679089532213e-08,
    -1.0948893946355701e-08,
    1.8880162789299317e-09,
    -3.1765178225033204e-10,
    5.219621211867327e-11,
    -8.340285714631855e-12,
    1.312859426506622e-12,
    -2.2651106701517276e-13,
    3.41312282471736e-14,
];
/// The same on [2.5, 5].
const FAR: [f64; 21] = [
    0.14558972127503855,
    -0.04557032191590441,
    0.013873055511445777,
    -0.004115786855799148,
    0.0011919491750380293,
    -0.0003374620816758777,
    9.352235937637782e-05,
    -2.5399555177497706e-05,
    6.7670679389947135e-06,
    -1.7702607651485915e-06,
    4.5508912217667866e-07,
    -1.1505534926075452e-07,
    2.8626201178730846e-08,
    -7.0128053577076e-09,
    1.6929716154076386e-09,
    -4.039778459502451e-10,
    9.48102498545142e-11,
    -2.1113415133647118e-11,
    4.837249583347e-12,
    -1.4695131819776936e-12,
    3.259152571689646e-13,
];
/// x exp(x²) erfc(x) in 1/x² for 5 ≤ x < 28.
const TAIL: [f64; 14] = [
    0.5641895835477563,
    -0.2820947917738724,
    0.42314218765629,
    -1.0578554672394183,
    3.7024936505629022,
    -16.66114080083208,
    91.62711465983868,
    -594.8447947858888,
    4419.636313229884,
    -35863.0180922454,
    291215.9468149905,
    -2061305.9542182293,
    10483750.489787875,
    -27136089.109363623,
];

/// x times a polynomial for |x| ≤ 1; otherwise 1 - erfc |x| with the sign of x.
pub(crate) fn erf<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Erf, args) {
        return result;
    }
    let x = args[0];
    let near = small(e, x);
    let magnitude = abs(e, x);
    let complement = e.op(Op::Erfc, &[&magnitude]);
    let one = float(e, x, 1.0);
    let far = e.sub(&one, &complement);
    let far = e.op(Op::Copysign, &[&far, x]);
    let is_near = e.lt(&magnitude, &one);
    e.select(&is_near, &near, &far)
}

/// erf for |x| ≤ 1.
fn small<E: EmitBits>(e: &mut E, x: &E::V) -> E::V {
    let square = e.mul(x, x);
    let ratio = polynomial(e, &square, &ERF);
    e.mul(x, &ratio)
}

/// 1 - erf(x) below 0.5; above, exp(-x²) times a smooth function; 2 - erfc(-x) below 0.
pub(crate) fn erfc<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Erfc, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    let one = float(e, &magnitude, 1.0);

    let on = |e: &mut E, middle: f64, half_width: f64, coefficients: &[f64]| {
        let shifted = float(e, &magnitude, -middle);
        let t = e.add(&magnitude, &shifted);
        let t = e.scale(&t, 1.0 / half_width);
        polynomial(e, &t, coefficients)
    };
    let (near, middle, far) = (on(e, 0.875, 0.375, &NEAR), on(e, 1.875, 0.625, &MIDDLE), on(e, 3.75, 1.25, &FAR));
    let inverse = e.div(&one, &magnitude);
    let square = e.mul(&inverse, &inverse);
    let tail = polynomial(e, &square, &TAIL);
    let tail = e.mul(&tail, &inverse);
    let mut factor = tail;
    for (limit, approximation) in [(5.0, far), (2.5, middle), (1.25, near)] {
        let limit = float(e, &magnitude, limit);
        let below = e.lt(&magnitude, &limit);
        factor = e.select(&below, &approximation, &factor);
    }
    // exp(-x²), corrected by the rounding error of x².
    let square = e.mul(&magnitude, &magnitude);
    let minus = e.neg(&square);
    let lost = e.fma(&magnitude, &magnitude, &minus);
    let exp = e.op(Op::Exp, &[&minus]);
    let correction = e.mul(&exp, &lost);
    let exp = e.sub(&exp, &correction);
    let large = e.mul(&exp, &factor);

    // Above 28 the result is 0 (and x² may have overflowed).
    let (limit, zero) = (float(e, &magnitude, 28.0), float(e, &magnitude, 0.0));
    let vanishes = e.lt(&limit, &magnitude);
    let large = e.select(&vanishes, &zero, &large);
    let half = float(e, &magnitude, 0.5);
    let is_small = e.lt(&magnitude, &half);
    let erf = small(e, &magnitude);
    let complement = e.sub(&one, &erf);
    let result = e.select(&is_small, &complement, &large);
    let two = float(e, &magnitude, 2.0);
    let mirrored = e.sub(&two, &result);
    let negative = e.lt(args[0], &zero);
    e.select(&negative, &mirrored, &result)
}
