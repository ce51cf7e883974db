//! Matrix products compared with f64 sums for random sizes and strides, and bit for bit for
//! different numbers of threads.

use super::*;
use crate::test_random::Random;

/// A random layout of a batch of matrices with gaps, steps, broadcasts and transposes; also returns
/// the size of its memory.
fn lay_out(random: &mut Random, batch: &[usize], rows: usize, columns: usize) -> (Strided, usize) {
    let shape = [batch, &[rows, columns]].concat();
    let mut order: Vec<usize> = (0..shape.len()).collect();
    for n in (1..order.len()).rev() {
        order.swap(n, random.bits() as usize % (n + 1));
    }
    let plain = random.bits().is_multiple_of(3);
    if plain {
        order = (0..shape.len()).collect();
    }
    let mut layout = Strided { offset: 0, shape: shape.clone(), strides: vec![0; shape.len()] };
    let mut stride = 1;
    for &axis in order.iter().rev() {
        let step = if plain { 1 } else { [1, 1, 1, 2, 3][random.bits() as usize % 5] };
        let is_broadcast = axis < batch.len() && random.bits().is_multiple_of(4);
        let reversed = !plain && random.bits().is_multiple_of(5);
        let length = shape[axis] as isize;
        if !is_broadcast {
            layout.strides[axis] = if reversed { -stride * step } else { stride * step };
            layout.offset += if reversed { stride * step * (length - 1) } else { 0 };
            stride *= length * step;
        }
    }
    let gap = random.bits() as isize % 5;
    layout.offset += gap.abs();
    (layout, (stride + 2 * gap.abs()) as usize)
}

fn at(layout: &Strided, batch: usize, row: usize, column: usize) -> usize {
    let lead = layout.shape.len() - 2;
    let (mut index, mut rest) = (layout.offset, batch);
    for axis in (0..lead).rev() {
        index += (rest % layout.shape[axis]) as isize * layout.strides[axis];
        rest /= layout.shape[axis];
    }
    (index + row as isize * layout.strides[lead] + column as isize * layout.strides[lead + 1]) as usize
}

/// Sizes around the edges of vectors, tiles, panels and the library's special cases.
fn size(random: &mut Random) -> usize {
    let sizes = [1, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 200, 255, 257, 300, 513];
    sizes[random.bits() as usize % sizes.len()]
}

struct Case {
    a: Strided,
    b: Strided,
    lengths: [usize; 2],
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
}

fn case(random: &mut Random) -> Case {
    let batch: &[usize] = [&[][..], &[], &[3], &[2, 3], &[40]][random.bits() as usize % 5];
    let (mut m, mut n, k) = (size(random), size(random), size(random) * [1, 1, 1, 5][random.bits() as usize % 4]);
    if !batch.is_empty() {
        (m, n) = (m.min(65), n.min(65));
    }
    let (a, length_a) = lay_out(random, batch, m, k);
    let (b, length_b) = lay_out(random, batch, k, n);
    Case { a, b, lengths: [length_a, length_b], batch: batch.iter().product(), m, n, k }
}

/// Runs a product with 1, 2, 3 and 5 threads, which must agree to the bit, and compares it with
/// f64.
fn check<T: Copy + PartialEq + std::fmt::Debug>(
    case: &Case,
    data: [&[T]; 2],
    value: impl Fn(T) -> f64,
    roundings: [f64; 3],
    multiply: impl Fn(&mut [T], Operand<'_, T>, Operand<'_, T>, usize) -> bool,
) {
    let Case { batch, m, n, k, .. } = *case;
    let [a, b] = [Operand { data: data[0], layout: &case.a }, Operand { data: data[1], layout: &case.b }];
    let fill = data[0][0];
    let mut out = vec![fill; batch * m * n + 1];
    assert!(multiply(&mut out, a, b, 1));
    let what = format!("{batch} of {m}x{k} by {k}x{n}, {:?} and {:?}", case.a, case.b);
    assert_eq!(out[batch * m * n], fill, "written past the end: {what}");
    for threads in [2, 3, 5] {
        let mut other = vec![fill; batch * m * n + 1];
        assert!(multiply(&mut other, a, b, threads));
        assert_eq!(out, other, "{threads} threads: {what}");
    }
    let [sums, result, tiny] = roundings;
    // A sample of long results: all of them would take minutes.
    for index in (0..batch * m * n).step_by((batch * m * n * k / 200_000).max(1)) {
        let (row, column) = (index / n % m, index % n);
        let terms = (0..k).map(|l| {
            let left = data[0][at(&case.a, index / n / m, row, l)];
            let right = data[1][at(&case.b, index / n / m, l, column)];
            value(left) * value(right)
        });
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term: f64| (sum + term, size + term.abs()));
        let bound = k as f64 * sums * size + result * sum.abs() + tiny;
        let off = (value(out[index]) - sum).abs();
        assert!(off <= bound, "element {index} of {what} is {}, not {sum} ± {bound:e}", value(out[index]));
    }
}

#[test]
fn products_are_within_their_bound_and_the_same_for_any_number_of_threads() {
    let mut random = Random::fresh();
    let f32s = f64::from(f32::EPSILON);
    for round in 0..160 {
        let case = case(&mut random);
        let [a, b] = case.lengths.map(|length| random.vec(length, -1.0, 1.0));
        match round % 4 {
            0 | 1 => {
                let [a, b] = [a, b].map(|data| data.into_iter().map(|x| x as f32).collect::<Vec<_>>());
                check(&case, [&a, &b], f64::from, [f32s, f32s, f64::from(f32::MIN_POSITIVE)], multiply);
            }
            2 => check(&case, [&a, &b], |x| x, [f64::EPSILON, f64::EPSILON, f64::MIN_POSITIVE], multiply),
            _ if round % 8 == 3 => {
                let [a, b] = [a, b].map(|data| data.into_iter().map(f16::from_f64).collect::<Vec<_>>());
                check(&case, [&a, &b], f16::to_f64, [f32s, 2f64.powi(-10), 2f64.powi(-24)], multiply_half);
            }
            _ => {
                let [a, b] = [a, b].map(|data| data.into_iter().map(bf16::from_f64).collect::<Vec<_>>());
                check(
                    &case,
                    [&a, &b],
                    bf16::to_f64,
                    [f32s, 2f64.powi(-7), f64::from(f32::MIN_POSITIVE)],
                    multiply_half,
                );
            }
        }
    }
}

#[test]
fn nan_and_infinity_propagate() {
    let layout = Strided::contiguous(&[2, 2]);
    let product = |a: [f32; 4], b: [f32; 4]| {
        // The previous contents of the output must not matter.
        let mut out = [f32::NAN; 4];
        assert!(multiply(&mut out, Operand { data: &a, layout: &layout }, Operand { data: &b, layout: &layout }, 1));
        out
    };
    let [a, b, c, d] = product([f32::INFINITY, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, f32::NEG_INFINITY]);
    assert!(a == f32::INFINITY && b.is_nan() && c == 0.0 && d == f32::NEG_INFINITY, "{:?}", [a, b, c, d]);
    assert!(product([f32::NAN; 4], [0.0; 4]).iter().all(|x| x.is_nan()));
    // A sum beyond the range of f16 is infinite, and long sums are accumulated in f32.
    let (row, column) = (Strided::contiguous(&[1, 4096]), Strided::contiguous(&[4096, 1]));
    let half = |left: f32, right: f32| {
        let (a, b, mut out) = ([f16::from_f32(left); 4096], [f16::from_f32(right); 4096], [f16::NAN]);
        assert!(multiply_half(&mut out, Operand { data: &a, layout: &row }, Operand { data: &b, layout: &column }, 1));
        out[0].to_f32()
    };
    assert_eq!((half(1.0, 1.0), half(16.0, 1.0), half(1.0, 0.25)), (4096.0, f32::INFINITY, 1024.0));
}

#[test]
fn mismatched_matrices_are_rejected() {
    let data = [1.0f32; 12];
    let good = Strided::contiguous(&[3, 4]);
    let is_rejected = |out: usize, a: &Strided, b: &Strided| {
        let mut out = vec![7.0f32; out];
        let done = multiply(&mut out, Operand { data: &data, layout: a }, Operand { data: &data, layout: b }, 1);
        assert!(done || out.iter().all(|&x| x == 7.0));
        !done
    };
    let transposed = good.apply_view(&crate::graph::node::Op::Permute(vec![1, 0])).unwrap();
    assert!(!is_rejected(9, &good, &transposed));
    assert!(is_rejected(8, &good, &transposed), "a short result");
    assert!(is_rejected(9, &good, &good), "sums of unequal lengths");
    for (offset, strides) in [(1, [4, 1]), (-1, [4, 1]), (0, [5, 1]), (0, [-4, 1]), (0, [isize::MAX, 1])] {
        let bad = Strided { offset, shape: vec![3, 4], strides: strides.to_vec() };
        assert!(is_rejected(9, &bad, &transposed), "{bad:?}");
    }
    assert!(is_rejected(9, &Strided::contiguous(&[1, 3, 4]), &transposed), "batches of unequal length");
    assert!(is_rejected(9, &Strided::contiguous(&[3, 0]), &Strided::contiguous(&[0, 3])), "no terms");
}

#[test]
fn tiles_cover_the_result_once() {
    let mut random = Random::fresh();
    for _ in 0..500 {
        let (batch, m, n) = (1 + random.bits() as usize % 4, size(&mut random) * 3, size(&mut random));
        let [a, b] = [[batch, m, 1], [batch, 1, n]].map(|shape| Strided::contiguous(&shape));
        let data = vec![0.0f32; batch * m.max(n)];
        let [a, b] = [&a, &b].map(|layout| Operand { data: &data, layout });
        let tiles = Tiles::new(batch * m * n, &a, &b, &[512, 256, 128]).unwrap();
        let mut seen = vec![0; batch * m * n];
        for tile in (0..tiles.count).map(|index| tiles.tile(index)) {
            assert!(!tile.rows.is_empty() && !tile.columns.is_empty());
            for row in tile.rows.clone() {
                seen[tiles.row_offset(&tile, row)..][..tile.columns.len()].iter_mut().for_each(|seen| *seen += 1);
            }
        }
        assert!(seen.iter().all(|&times| times == 1), "{batch} of {m}x{n}");
    }
}

/// Strides that conflict in caches, so that tiles are copied first, in both directions.
#[test]
fn matrices_with_cache_conflicts() {
    let mut random = Random::fresh();
    for (m, n, k, apart, transposed) in [
        (33, 40, 70, 2048, false),
        (200, 300, 50, 4096, false),
        (33, 40, 70, 256, true),
        (140, 150, 300, 1024, true),
        (5, 16, 16, 2048, false),
        (5, 15, 300, 256, true),
        (5, 17, 9, 0, false),
    ] {
        for sign in [1, -1] {
            let (count, stride) = (if transposed { n } else { k }, sign * apart);
            let strides = if transposed { vec![1, stride] } else { vec![stride, 1] };
            let offset = if sign < 0 { apart * (count as isize - 1) } else { 0 };
            let b = Strided { offset, shape: vec![k, n], strides };
            let lengths = [m * k, apart as usize * count + k.max(n)];
            let case = Case { a: Strided::contiguous(&[m, k]), b, lengths, batch: 1, m, n, k };
            let data = lengths.map(|count| random.vec(count, -1.0, 1.0));
            let floats = data.each_ref().map(|data| data.iter().map(|&x| x as f32).collect::<Vec<f32>>());
            let roundings = [f64::from(f32::EPSILON), f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE)];
            check(&case, [&floats[0][..], &floats[1][..]], f64::from, roundings, multiply::<f32>);
        }
    }
}

/// Products on one thread, plain and transposed, added or not; mismatched matrices are rejected.
#[test]
fn single_threaded_products() {
    let mut random = Random::fresh();
    for _ in 0..40 {
        let [m, n, k] = std::array::from_fn(|_| 1 + random.bits() as usize % 40);
        let floats = |random: &mut Random, count| random.vec(count, -1.0, 1.0).iter().map(|&x| x as f32).collect();
        let (a, b): (Vec<f32>, Vec<f32>) = (floats(&mut random, m * k), floats(&mut random, k * n));
        let start: Vec<f32> = floats(&mut random, m * n);
        let [transposed_a, transposed_b, add] = std::array::from_fn(|_| random.bits().is_multiple_of(2));
        let left = if transposed_a { FlatMatrix::row_major(&a, m).transposed() } else { FlatMatrix::row_major(&a, k) };
        let right = if transposed_b { FlatMatrix::row_major(&b, k).transposed() } else { FlatMatrix::row_major(&b, n) };
        let mut out = start.clone();
        assert!(multiply_single_threaded(&mut out, [m, n, k], left, right, add));
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let x = |l: usize| f64::from(a[if transposed_a { l * m + i } else { i * k + l }]);
            let y = |l: usize| f64::from(b[if transposed_b { j * k + l } else { l * n + j }]);
            let before = if add { f64::from(start[i * n + j]) } else { 0.0 };
            let expected = before + (0..k).map(|l| x(l) * y(l)).sum::<f64>();
            assert!((f64::from(out[i * n + j]) - expected).abs() < 1e-5, "{m}x{k} by {k}x{n}: {i}, {j}");
        }
        assert!(!multiply_single_threaded(&mut out, [m + 1, n, k], left, right, add));
        assert!(!multiply_single_threaded(&mut out, [m, n, 0], left, right, add));
        assert!(!multiply_single_threaded(&mut out, [m, n, k], left, FlatMatrix::row_major(&b[..k * n - 1], n), add));
    }
}
