//! CPU routine of cross-entropy over rows, with its gradient in the same pass.

use std::sync::atomic::{AtomicUsize, Ordering};

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::{load_tail, parallel_for_each, row_max, rows_per_chunk, store_tail};
use crate::fused::softmax::{exp_and_sum, exp_sum};

/// Integer type of class indices.
pub(crate) trait Class: Copy + Sync {
    /// The index, if it is below `classes`.
    fn index(self, classes: usize) -> Option<usize>;
}

impl Class for i32 {
    fn index(self, classes: usize) -> Option<usize> {
        usize::try_from(self).ok().filter(|&class| class < classes)
    }
}

impl Class for i64 {
    fn index(self, classes: usize) -> Option<usize> {
        usize::try_from(self).ok().filter(|&class| class < classes)
    }
}

/// Width of rows of logits.
#[derive(Clone, Copy)]
pub(crate) struct Width {
    /// Number of classes: the first logits of a row.
    pub classes: usize,
    /// Number of logits in a row. Those after the classes are padding, with a gradient of zero.
    pub columns: usize,
}

/// Writes the negative log-probability of each row's class to `losses` and, if requested, `scale`
/// times the gradient of their sum to `gradient`. Returns `Err` with the first row whose class is
/// out of range; the outputs are then unspecified.
pub(crate) fn cross_entropy<T: Class>(
    logits: &[f32],
    targets: &[T],
    width: Width,
    losses: &mut [f32],
    gradient: Option<&mut [f32]>,
    scale: f32,
    threads: usize,
) -> Result<(), usize> {
    cross_entropy_on(Arch::new(), logits, targets, width, losses, gradient, scale, threads)
}

#[allow(clippy::too_many_arguments)]
fn cross_entropy_on<T: Class>(
    arch: Arch,
    logits: &[f32],
    targets: &[T],
    width: Width,
    losses: &mut [f32],
    gradient: Option<&mut [f32]>,
    scale: f32,
    threads: usize,
) -> Result<(), usize> {
    let columns = width.columns;
    if columns == 0 {
        return if targets.is_empty() { Ok(()) } else { Err(0) };
    }
    let rows = rows_per_chunk(columns);
    let first_invalid = AtomicUsize::new(usize::MAX);
    let check = |outcome: Option<usize>, chunk: usize| {
        if let Some(row) = outcome {
            // The first invalid row, independent of the order of threads.
            first_invalid.fetch_min(chunk * rows + row, Ordering::Relaxed);
        }
    };
    let rows_of_chunks =
        logits.chunks(rows * columns).zip(targets.chunks(rows)).zip(losses.chunks_mut(rows)).enumerate();
    match gradient {
        Some(gradient) => {
            parallel_for_each(
                rows_of_chunks.zip(gradient.chunks_mut(rows * columns)),
                threads,
                |((chunk, ((x, targets), losses)), gradient)| {
                    check(arch.dispatch(Rows { x, targets, width, losses, gradient: Some(gradient), scale }), chunk);
                },
            );
        }
        None => parallel_for_each(rows_of_chunks, threads, |(chunk, ((x, targets), losses))| {
            check(arch.dispatch(Rows { x, targets, width, losses, gradient: None, scale }), chunk);
        }),
    }
    match first_invalid.into_inner() {
        usize::MAX => Ok(()),
        row => Err(row),
    }
}

struct Rows<'a, T> {
    x: &'a [f32],
    targets: &'a [T],
    width: Width,
    losses: &'a mut [f32],
    gradient: Option<&'a mut [f32]>,
    scale: f32,
}

impl<T: Class> WithSimd for Rows<'_, T> {
    type Output = Option<usize>;

    /// Returns the first row whose class is out of range.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<usize> {
        let Rows { x, targets, width: Width { classes, columns }, losses, mut gradient, scale } = self;
        for (row, ((x, &target), loss)) in x.chunks_exact(columns).zip(targets).zip(losses).enumerate() {
            let Some(class) = target.index(classes) else { return Some(row) };
            let x = &x[..classes];
            let (max, sum) = match &mut gradient {
                Some(gradient) => {
                    let (gradient, padding) = gradient[row * columns..][..columns].split_at_mut(classes);
                    padding.fill(0.0);
                    let (max, sum) = exp_and_sum(simd, x, gradient);
                    multiply(simd, gradient, scale / sum);
                    gradient[class] -= scale;
                    (max, sum)
                }
                None => {
                    let max = row_max(simd, x);
                    (max, exp_sum(simd, x, max))
                }
            };
            // In this order, since max + log would lose the logarithm for a large maximum.
            *loss = sum.ln() - (x[class] - max);
        }
        None
    }
}

#[inline(always)]
fn multiply<S: Simd>(simd: S, row: &mut [f32], factor: f32) {
    let factor = simd.splat_f32s(factor);
    let (body, tail) = S::as_mut_simd_f32s(row);
    for x in body {
        *x = simd.mul_f32s(*x, factor);
    }
    if !tail.is_empty() {
        let x = load_tail(simd, tail, 0.0);
        store_tail(simd, tail, simd.mul_f32s(x, factor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random_f32, results_on_every_arch};

    const THREE: Width = Width { classes: 3, columns: 3 };

    #[test]
    fn losses_and_gradients_agree_with_f64() {
        for (rows, columns) in [(0, 5), (4, 1), (7, 2), (5, 15), (5, 16), (40, 17), (50, 1000), (3, 4097), (2, 40_000)]
        {
            let x = random_f32(rows * columns, -20.0, 20.0);
            let width = Width { classes: columns, columns };
            let classes: Vec<i64> = (0..rows).map(|row| (row * 7919 % columns) as i64).collect();
            let narrow: Vec<i32> = classes.iter().map(|&class| class as i32).collect();
            let scale = 1.0 / rows.max(1) as f32;
            let run = |arch, threads| {
                let (mut losses, mut gradient) = (vec![7.0; rows], vec![7.0; rows * columns]);
                let wanted = Some(&mut gradient[..]);
                cross_entropy_on(arch, &x, &classes, width, &mut losses, wanted, scale, threads).unwrap();
                let mut alone = vec![7.0; rows];
                cross_entropy_on(arch, &x, &narrow, width, &mut alone, None, scale, threads).unwrap();
                [losses, alone, gradient].concat()
            };
            for found in results_on_every_arch(run) {
                let (losses, gradient) = found.split_at(2 * rows);
                for row in 0..rows {
                    let x: Vec<f64> = x[row * columns..][..columns].iter().map(|&x| f64::from(x)).collect();
                    let max = x.iter().copied().fold(f64::MIN, f64::max);
                    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
                    let class = classes[row] as usize;
                    let expected = sum.ln() + max - x[class];
                    for loss in [losses[row], losses[rows + row]] {
                        let off = (f64::from(loss) - expected).abs();
                        assert!(
                            off <= 1e-6 * (1.0 + expected.abs()),
                            "{rows}x{columns}, row {row}: {loss}, not {expected}"
                        );
                    }
                    for n in 0..columns {
                        let p = (x[n] - max).exp() / sum;
                        let expected = (p - f64::from(n == class)) * f64::from(scale);
                        let off = (f64::from(gradient[row * columns + n]) - expected).abs();
                        let bound = f64::from(scale) * (5e-6 * p + if n == class { 1e-7 } else { 0.0 }) + 1e-44;
                        assert!(off <= bound, "{rows}x{columns}, row {row}, {n}: off by {off:e} of {bound:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn padding_is_ignored_and_has_no_gradient() {
        for (classes, columns) in [(1, 2), (3, 8), (17, 64), (257, 320), (1000, 1001)] {
            let rows = 5;
            let targets: Vec<i32> = (0..rows).map(|row| (row * 7919 % classes) as i32).collect();
            let plain = random_f32(rows * classes, -20.0, 20.0);
            let run = |arch, threads, x: &[f32], columns| {
                let (mut losses, mut gradient) = (vec![7.0; rows], vec![7.0; rows * columns]);
                let (width, wanted) = (Width { classes, columns }, Some(&mut gradient[..]));
                cross_entropy_on(arch, x, &targets, width, &mut losses, wanted, 0.5, threads).unwrap();
                (losses, gradient)
            };
            for padding in [0.0, 1e30, f32::NAN, f32::INFINITY] {
                let mut padded = vec![padding; rows * columns];
                padded
                    .chunks_mut(columns)
                    .zip(plain.chunks(classes))
                    .for_each(|(to, x)| to[..classes].copy_from_slice(x));
                for equal in results_on_every_arch(|arch, threads| {
                    let (losses, gradient) = run(arch, threads, &plain, classes);
                    let (padded_losses, padded_gradient) = run(arch, threads, &padded, columns);
                    assert_eq!(losses, padded_losses);
                    for (row, padded_row) in gradient.chunks(classes).zip(padded_gradient.chunks(columns)) {
                        assert_eq!(row, &padded_row[..classes]);
                        assert!(padded_row[classes..].iter().all(|x| x.to_bits() == 0), "{padded_row:?}");
                    }
                    vec![]
                }) {
                    assert!(equal.is_empty());
                }
            }
            let outside = [classes as i32];
            let width = Width { classes, columns };
            assert_eq!(cross_entropy(&vec![0.0; columns], &outside, width, &mut [0.0], None, 1.0, 1), Err(0));
        }
    }

    #[test]
    fn classes_out_of_range_are_reported() {
        let x = random_f32(70 * 1000, -1.0, 1.0);
        let mut losses = vec![0.0; 70];
        let mut try_classes = |bad: &[(usize, i64)], columns: usize| {
            let mut classes = vec![0i64; 70];
            bad.iter().for_each(|&(row, class)| classes[row] = class);
            let x = &x[..70 * columns];
            [1, 5].map(|threads| {
                cross_entropy(x, &classes, Width { classes: columns, columns }, &mut losses, None, 1.0, threads)
            })
        };
        assert_eq!(try_classes(&[], 1000), [Ok(()); 2]);
        assert_eq!(try_classes(&[(3, 999)], 1000), [Ok(()); 2]);
        assert_eq!(try_classes(&[(69, 1000), (66, -1)], 1000), [Err(66); 2]);
        assert_eq!(try_classes(&[(5, i64::MIN)], 1000), [Err(5); 2]);
        assert_eq!(try_classes(&[(5, 1 << 40)], 10), [Err(5); 2]);
        assert_eq!(try_classes(&[], 0), [Err(0); 2]);
        assert_eq!(cross_entropy::<i32>(&[], &[], Width { classes: 0, columns: 0 }, &mut [], None, 1.0, 1), Ok(()));
        assert_eq!(cross_entropy(&[0.0; 3], &[-1i32], THREE, &mut [0.0], Some(&mut [0.0; 3]), 1.0, 1), Err(0));
    }

    #[test]
    fn special_values_agree_with_plain_ops() {
        const INF: f32 = f32::INFINITY;
        let cases: [([f32; 3], f32); 6] = [
            ([1e30, -1e30, 0.0], 0.0),
            ([-1e30, 1e30, 0.0], 2e30),
            ([5.0, -INF, -INF], 0.0),
            ([-INF, 5.0, 5.0], INF),
            ([INF, 0.0, 0.0], f32::NAN),
            ([0.0, f32::NAN, 0.0], f32::NAN),
        ];
        for (x, expected) in cases {
            for found in results_on_every_arch(|arch, threads| {
                let (mut loss, mut gradient) = ([7.0], [7.0; 3]);
                cross_entropy_on(arch, &x, &[0i64], THREE, &mut loss, Some(&mut gradient), 1.0, threads).unwrap();
                assert!(gradient.iter().all(|x| x.is_nan() == expected.is_nan()), "{x:?}: {gradient:?}");
                loss.to_vec()
            }) {
                assert!(found[0] == expected || (found[0].is_nan() && expected.is_nan()), "{x:?}: {found:?}");
            }
        }
    }
}
