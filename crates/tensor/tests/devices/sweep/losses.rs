//! Losses with their reductions and options.

use bornite::ops::{CrossEntropyOptions, NllOptions, Reduction};
use bornite::{DType, Tensor};

use super::array::{Array, Bound, DTYPES, Num, limits};
use super::layouts::{CASES, Layout};
use super::networks::log_total;
use super::reductions::lines;
use super::{Fill, Sweep};

type Loss = (&'static str, fn(&Tensor, &Tensor, Reduction) -> Tensor, fn(f64, f64) -> f64);

fn huber(distance: f64, delta: f64) -> f64 {
    if distance <= delta { 0.5 * distance * distance } else { delta * (distance - 0.5 * delta) }
}

const LOSSES: [Loss; 6] = [
    ("mse_loss", Tensor::mse_loss, |x, t| (x - t).powi(2)),
    ("l1_loss", Tensor::l1_loss, |x, t| (x - t).abs()),
    ("huber_loss", |x, t, r| x.huber_loss(t, 1.5, r), |x, t| huber((x - t).abs(), 1.5)),
    ("smooth_l1_loss", |x, t, r| x.smooth_l1_loss(t, 0.5, r), |x, t| huber((x - t).abs(), 0.5) / 0.5),
    ("bce_with_logits_loss", |x, t, r| x.bce_with_logits_loss(t, None, r), |x, t| x.exp().ln_1p() - x * t),
    (
        "kl_div_loss",
        // Its mean is over rows.
        |x, t, r| if r == Reduction::Mean { x.kl_div_loss(t, Reduction::None).mean(..) } else { x.kl_div_loss(t, r) },
        |x, t| if t > 0.0 { t * (t.ln() - x) } else { -t * x },
    ),
];

const REDUCTIONS: [Reduction; 3] = [Reduction::Mean, Reduction::Sum, Reduction::None];

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate().filter(|(_, dtype)| dtype.is_float()) {
        for (n, (shape, layout)) in CASES.into_iter().enumerate().filter(|(_, (shape, _))| !shape.contains(&0)) {
            for (o, loss) in LOSSES.into_iter().enumerate() {
                if s.takes(n + o + d, 2) {
                    pairs(s, n, dtype, (shape, layout), loss, REDUCTIONS[(n + o) % 3]);
                }
            }
            if !shape.is_empty() && s.takes(n + d, 1) {
                classes(s, n, dtype, (shape, layout), REDUCTIONS[n % 3]);
            }
        }
    }
}

/// A loss of each element and its magnitude, reduced, with a bound.
fn reduced(dtype: DType, shape: &[usize], losses: &[(f64, f64)], weight: f64, reduction: Reduction) -> (Array, Bound) {
    let epsilon = 12.0 * limits(dtype).0;
    let total = losses.iter().fold((0.0, 0.0), |(sum, size), (loss, by)| (sum + loss, size + loss.abs() + by));
    let (shape, values): (&[usize], Vec<(f64, f64)>) = match reduction {
        Reduction::Mean => (&[], vec![(total.0 / weight, total.1 / weight.abs())]),
        Reduction::Sum => (&[], vec![total]),
        Reduction::None => (shape, losses.iter().map(|(loss, size)| (*loss, loss.abs() + size)).collect()),
    };
    let data = values.iter().map(|(value, _)| Num::Real(*value)).collect();
    let bounds = values.iter().map(|(_, size)| epsilon * size).collect();
    (Array { dtype, shape: shape.to_vec(), data }, Bound::Each(bounds))
}

fn pairs(
    s: &mut Sweep,
    n: usize,
    dtype: DType,
    (shape, layout): (&[usize], Layout),
    (name, tensor, plain): Loss,
    reduction: Reduction,
) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (t, b) = s.input(shape, Layout::Reversed, dtype, Fill::Unit);
    let losses: Vec<(f64, f64)> = (a.data.iter().zip(&b.data))
        .map(|(x, t)| (plain(x.real(), t.real()), 1.0 + x.real().abs() + x.real().powi(2)))
        .collect();
    let (expected, bound) = reduced(dtype, shape, &losses, losses.len() as f64, reduction);
    s.check(&format!("{name} {reduction:?} {dtype}"), n, &tensor(&x, &t, reduction), &expected, &bound);
}

/// Cross-entropy with all options, and the negative log-likelihood.
fn classes(s: &mut Sweep, n: usize, dtype: DType, (shape, layout): (&[usize], Layout), reduction: Reduction) {
    let count = shape[shape.len() - 1];
    let lead = &shape[..shape.len() - 1];
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (t, targets) =
        s.input(lead, Layout::Reversed, [DType::U8, DType::I32, DType::I64][n % 3], Fill::Below(count.min(200)));
    let (w, weights) = s.input(&[count], Layout::Plain, dtype, Fill::Unit);
    let (ignored, smoothing) = ([0, 1, -100][n % 3], [0.0, 0.25][n / 3 % 2]);
    let weighted = n % 4 < 2;
    let weight = |class: usize| if weighted { weights.data[class].real() } else { 1.0 };
    let (_, rows) = lines(&a, &[shape.len() as isize - 1]);
    let (mut losses, mut plain, mut total, mut counted) = (vec![], vec![], 0.0, 0.0);
    for (row, target) in rows.iter().zip(&targets.data) {
        let target = target.int();
        let log = log_total(row);
        let nll = |class: usize| weight(class) * (log - row[class].real());
        if target == ignored {
            losses.push((0.0, 0.0));
            plain.push((0.0, 0.0));
            continue;
        }
        let even: f64 = (0..count).map(nll).sum::<f64>() / count as f64;
        let own = nll(target as usize);
        (total, counted) = (total + weight(target as usize), counted + 1.0);
        losses.push(((1.0 - smoothing) * own + smoothing * even, 16.0 + even.abs()));
        plain.push((-row[target as usize].real(), 16.0));
    }
    // A sum of weights near zero has no digits to compare, nor has a mean over no rows.
    let skipped = reduction == Reduction::Mean && (total.abs() < 0.5 * counted || counted == 0.0);
    // A loss of 16-bit logits is f32; its inputs are exact.
    let wide = if dtype.bytes() == 2 { DType::F32 } else { dtype };
    let (expected, bound) = reduced(wide, lead, &losses, total, reduction);
    let (ignore_index, weight) = (Some(ignored), weighted.then_some(w));
    let options = CrossEntropyOptions { label_smoothing: smoothing, ignore_index, weight, reduction };
    if !skipped {
        s.check(
            &format!("cross_entropy_loss {options:?} {dtype}"),
            n,
            &x.cross_entropy_loss(&t, &options),
            &expected,
            &bound,
        );
    }
    if reduction != Reduction::Mean || counted > 0.0 {
        let (expected, bound) = reduced(dtype, lead, &plain, counted, reduction);
        let options = NllOptions { ignore_index, reduction, ..NllOptions::default() };
        s.check(&format!("nll_loss {dtype}"), n, &x.nll_loss(&t, &options), &expected, &bound);
    }
}
