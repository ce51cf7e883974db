//! Ops with index tensors.

use bornite::DType;

use super::array::{Array, Bound, DTYPES, Num, indices};
use super::layouts::{CASES, Layout};
use super::reductions::sum;
use super::views::{an_axis, signed};
use super::{Fill, Sweep};

const INDEX_DTYPES: [DType; 3] = [DType::I64, DType::I32, DType::U8];

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate() {
        for (n, (shape, layout)) in CASES.into_iter().enumerate() {
            let n_and_d = n + d;
            if !s.takes(n_and_d, 1) {
                continue;
            }
            let index_dtype = INDEX_DTYPES[n_and_d % 3];
            if let Some(axis) = an_axis(shape, n_and_d) {
                gather(s, (n, dtype, index_dtype), shape, layout, axis);
                index_select(s, (n, dtype, index_dtype), shape, layout, axis);
                if dtype != DType::Bool {
                    scatter_add(s, (n, dtype, index_dtype), shape, layout, axis);
                }
            }
            embedding(s, (n, dtype, index_dtype), shape, layout);
            one_hot(s, (n, dtype, index_dtype), shape, layout);
        }
    }
}

type IndexCase = (usize, DType, DType);

/// Maximum axis length that an index dtype can address: 8-bit indices end at 255.
fn reach(len: usize) -> usize {
    len.min(256)
}

fn gather(s: &mut Sweep, (n, dtype, index_dtype): IndexCase, shape: &[usize], layout: Layout, axis: usize) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Special);
    let mut wanted = shape.to_vec();
    wanted[axis] = if shape[axis] == 0 { 0 } else { n % 5 };
    let index_layout = [Layout::Plain, Layout::Transposed, Layout::RepeatedColumns][n % 3];
    let (index, i) = s.input(&wanted, index_layout, index_dtype, Fill::Below(reach(shape[axis])));
    let expected = Array::build(dtype, &wanted, |at| {
        let mut inner = at.to_vec();
        inner[axis] = i.at(at).int() as usize;
        a.at(&inner)
    });
    let found = x.gather(signed(axis, shape.len(), n), &index);
    s.check(&format!("gather {dtype} by {index_dtype} along {axis}"), n, &found, &expected, &Bound::Exact);
}

fn index_select(s: &mut Sweep, (n, dtype, index_dtype): IndexCase, shape: &[usize], layout: Layout, axis: usize) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Special);
    let count = if shape[axis] == 0 { 0 } else { n % 4 };
    let (index, i) = s.input(&[count], Layout::Reversed, index_dtype, Fill::Below(reach(shape[axis])));
    let expected = super::views::along(&a, axis, count, |at| i.data[at].int() as usize);
    let found = x.index_select(signed(axis, shape.len(), n), &index);
    s.check(&format!("index_select {dtype} by {index_dtype} along {axis}"), n, &found, &expected, &Bound::Exact);
}

/// The case's shape is that of the indices.
fn embedding(s: &mut Sweep, (n, dtype, index_dtype): IndexCase, shape: &[usize], layout: Layout) {
    let (rows, width) = (n % 6 + 1, [3, 1, 0, 5][n % 4]);
    let (table, t) = s.input(&[rows, width], Layout::Transposed, dtype, Fill::Special);
    let (index, i) = s.input(shape, layout, index_dtype, Fill::Below(rows));
    let expected = Array::build(dtype, &[shape, &[width]].concat(), |at| {
        let (position, column) = at.split_at(shape.len());
        t.at(&[i.at(position).int() as usize, column[0]])
    });
    s.check(&format!("embedding {dtype} by {index_dtype}"), n, &table.embedding(&index), &expected, &Bound::Exact);
}

fn scatter_add(s: &mut Sweep, (n, dtype, index_dtype): IndexCase, shape: &[usize], layout: Layout, axis: usize) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let mut index_shape = shape.to_vec();
    index_shape[axis] = if shape[axis] == 0 { 0 } else { n % 9 };
    let (index, i) = s.input(&index_shape, Layout::Narrow, index_dtype, Fill::Below(reach(shape[axis])));
    let (values, v) = s.input(&index_shape, Layout::Reversed, dtype, Fill::Small);
    let mut terms: Vec<Vec<Num>> = a.data.iter().map(|&x| vec![x]).collect();
    for at in indices(&index_shape) {
        let mut to = at.clone();
        to[axis] = i.at(&at).int() as usize;
        terms[to.iter().zip(shape).fold(0, |n, (&i, &len)| n * len + i)].push(v.at(&at));
    }
    let sums: Vec<(Num, f64)> = terms.iter().map(|terms| sum(dtype, terms)).collect();
    let data = sums.iter().map(|(total, _)| *total).collect();
    let expected = Array { dtype, shape: shape.to_vec(), data };
    let bound = Bound::Each(sums.iter().map(|(_, bound)| *bound).collect());
    let found = x.scatter_add(signed(axis, shape.len(), n), &index, &values);
    s.check(&format!("scatter_add {dtype} by {index_dtype} along {axis}"), n, &found, &expected, &bound);
}

/// To every dtype, from every index dtype; sometimes with more classes than a byte can represent.
fn one_hot(s: &mut Sweep, (n, dtype, index_dtype): IndexCase, shape: &[usize], layout: Layout) {
    let classes = if n % 8 == 7 { 300 } else { n % 5 };
    let (index, i) = s.input(shape, layout, index_dtype, Fill::Below(reach(classes)));
    let expected = Array::build(dtype, &[shape, &[classes]].concat(), |at| {
        let (position, class) = at.split_at(shape.len());
        Num::of(dtype, (i.at(position).int() as usize == class[0]) as u8 as f64)
    });
    let what = format!("one_hot {dtype} of {index_dtype}, {classes} classes");
    s.check(&what, n, &index.one_hot(classes, dtype), &expected, &Bound::Exact);
}
