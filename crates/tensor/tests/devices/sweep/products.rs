//! Matrix products with batches and broadcasting, on operands of every layout.

use super::array::{Array, Bound, DTYPES, Num};
use super::elementwise::broadcast;
use super::layouts::Layout;
use super::reductions::sum;
use super::{Fill, Sweep};

type Case = (&'static [usize], &'static [usize]);

const SHAPES: [Case; 14] = [
    (&[1, 1], &[1, 1]),
    (&[2, 2], &[2, 2]),
    (&[3, 5], &[5, 4]),
    (&[1, 7], &[7, 1]),
    (&[7, 1], &[1, 7]),
    (&[1, 768], &[768, 3]),
    (&[9, 17], &[17, 11]),
    (&[4, 0], &[0, 3]),
    (&[0, 4], &[4, 3]),
    (&[2, 3, 4], &[2, 4, 5]),
    (&[2, 3, 4], &[4, 5]),
    (&[3, 4], &[2, 4, 5]),
    (&[3, 1, 2, 5], &[2, 5, 3]),
    (&[0, 2, 3], &[3, 2]),
];

const LAYOUTS: [Layout; 8] = [
    Layout::Plain,
    Layout::Transposed,
    Layout::Stepped,
    Layout::Reversed,
    Layout::Narrow,
    Layout::RepeatedRows,
    Layout::RepeatedColumns,
    Layout::Joined,
];

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate().skip(1) {
        for (n, (left, right)) in SHAPES.into_iter().enumerate() {
            for (l, layout) in LAYOUTS.into_iter().enumerate() {
                if !s.takes(n + l + d, 2) {
                    continue;
                }
                let (a, a_array) = s.input(left, layout, dtype, Fill::Small);
                let (b, b_array) = s.input(right, LAYOUTS[(n + 3 * l + d) % 8], dtype, Fill::Small);
                let (rows, depth) = (left[left.len() - 2], left[left.len() - 1]);
                let columns = right[right.len() - 1];
                let batch = broadcast(&left[..left.len() - 2], &right[..right.len() - 2]);
                let shape = [&batch[..], &[rows, columns]].concat();
                let mut bounds = vec![];
                let expected = Array::build(dtype, &shape, |index| {
                    let (batch, position) = index.split_at(index.len() - 2);
                    let terms: Vec<Num> = (0..depth)
                        .map(|k| {
                            let x = a_array.at(&[batch, &[position[0], k]].concat());
                            let y = b_array.at(&[batch, &[k, position[1]]].concat());
                            match (x, y) {
                                (Num::Int(x), Num::Int(y)) => Num::Int(x * y),
                                (x, y) => Num::Real(x.real() * y.real()),
                            }
                        })
                        .collect();
                    let (total, bound) = sum(dtype, &terms);
                    bounds.push(bound);
                    total
                });
                let what = format!("matmul {dtype} of {left:?} {layout:?} and {right:?}");
                s.check(&what, usize::MAX, &a.matmul(&b), &expected, &Bound::Each(bounds));
            }
        }
    }
}
