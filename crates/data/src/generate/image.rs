//! Image kernels: pixels and their neighbourhoods.

use super::elementwise::scalars;
use super::grids::{add, weighted};
use super::maker::Maker;
use super::term::{MIXED, Op, Term};
use crate::program::{Array, Binary, Builtin, Expr, Fill, Kind, Scalar, Size, Stmt};

/// Colours, thresholds, small filters and sampling.
pub fn image(m: &mut Maker) {
    match m.random.below(4) {
        0 => colours(m),
        1 => filter(m),
        2 => bytes(m),
        _ => sampled(m),
    }
}

/// A filter with weights passed as an array.
fn filter(m: &mut Maker) {
    let (rows, cols) = (m.size("height", true, 0, 40), m.size("width", true, 0, 40));
    let side = *m.random.pick(&[3u32, 3, 5]);
    let pixels = m.array("image", Scalar::F32, &[rows, cols], Fill::Uniform(0.0, 1.0), false);
    let weights = m.array(
        "kernel_weights",
        Scalar::F32,
        &[Size::Known(side), Size::Known(side)],
        Fill::Uniform(-1.0, 1.0),
        false,
    );
    let out = m.output(Scalar::F32, &[rows, cols]);
    let count = m.random.below(2);
    let numbers = scalars(m, count, Scalar::F32);
    let (i, j) = (m.index("y", rows), m.index("x", cols));
    let (height, width) = (m.extent(rows), m.extent(cols));
    let half = (side / 2) as i64;
    let sum = m.changing("acc", Expr::float(Scalar::F32, 0.0));
    let clamped = m.random.chance(50);
    let (di, dj) = (Expr::int(side as i64), Expr::int(side as i64));
    let unary = m.random.below(3);
    m.count("dy", Expr::int(0), di, 1, |m, dy| {
        let offset_row = Expr::binary(Binary::Sub, Expr::binary(Binary::Add, i.clone(), dy.clone()), Expr::int(half));
        let row = if clamped {
            let last = Expr::binary(Binary::Sub, height.clone(), Expr::int(1));
            Expr::call(Builtin::Clamp, vec![offset_row, Expr::int(0), last])
        } else {
            offset_row
        };
        let row = m.bind_as("sy", row);
        m.count("dx", Expr::int(0), dj, 1, |m, dx| {
            let offset_column = Expr::binary(Binary::Sub, Expr::binary(Binary::Add, j.clone(), dx.clone()), Expr::int(half));
            let column = if clamped {
                let last = Expr::binary(Binary::Sub, width.clone(), Expr::int(1));
                Expr::call(Builtin::Clamp, vec![offset_column, Expr::int(0), last])
            } else {
                offset_column
            };
            let column = m.bind_as("sx", column);
            let weight = Expr::load(weights, vec![dy.clone(), dx], Scalar::F32);
            let pixel = Term::new(Expr::load(pixels, vec![row.clone(), column.clone()], Scalar::F32), 0.0, 1.0);
            // Nothing may be loaded before the bounds check.
            let binds = std::mem::replace(&mut m.binds, clamped);
            let pixel = m.combine(vec![pixel], unary, 20, &MIXED);
            m.binds = binds;
            let step = Stmt::Update(sum, Binary::Add, Expr::binary(Binary::Mul, pixel.e, weight));
            if clamped {
                return m.push(step);
            }
            let inside = [
                Expr::binary(Binary::Ge, row.clone(), Expr::int(0)),
                Expr::binary(Binary::Lt, row.clone(), height.clone()),
                Expr::binary(Binary::Ge, column.clone(), Expr::int(0)),
                Expr::binary(Binary::Lt, column, width.clone()),
            ];
            let inside = inside.into_iter().reduce(|a, b| Expr::binary(Binary::And, a, b));
            if let Some(inside) = inside {
                m.push(Stmt::If(inside, vec![step], vec![]));
            }
        });
    });
    let mut terms = vec![Term::new(m.read(sum), -25.0, 25.0)];
    terms.extend(numbers);
    if m.random.chance(40) {
        terms.push(Term::new(Expr::load(pixels, vec![i.clone(), j.clone()], Scalar::F32), 0.0, 1.0));
    }
    let unary = 2 + m.random.below(3);
    let value = m.combine(terms, unary, 10, &MIXED);
    m.push(Stmt::Store(out, vec![i, j], value.e));
}

/// Three channels in, one or three out.
fn colours(m: &mut Maker) {
    let scalar = Scalar::F32;
    let pixels = m.size("n", false, 0, 300);
    let names = [["red", "green", "blue"], ["hue", "sat", "val"], ["y_plane", "cb", "cr"], ["r", "g", "b"]];
    let names = *m.random.pick(&names);
    let arrays: Vec<Array> =
        names.iter().map(|name| m.array(name, scalar, &[pixels], Fill::Uniform(0.0, 1.0), false)).collect();
    let outs = if m.random.chance(50) { 1 } else { 3 };
    let written: Vec<Array> = (0..outs)
        .map(|n| m.array(&format!("out_{}", names[n as usize]), scalar, &[pixels], Fill::Zero, true))
        .collect();
    let count = m.random.below(3);
    let numbers = scalars(m, count, scalar);
    let i = m.index("i", pixels);
    let channels: Vec<Term> = (arrays.iter())
        .map(|array| {
            let e = Expr::load(*array, vec![i.clone()], scalar);
            let e = m.bind(e);
            Term::new(e, 0.0, 1.0)
        })
        .collect();
    let mut numbers = numbers.into_iter();
    for out in written {
        let mut parts = vec![];
        for channel in &channels {
            let w = *m.random.pick(&[0.299, 0.587, 0.114, 0.393, 0.769, 0.189, 0.5, 0.25, 0.2126, 0.7152, 0.0722]);
            let e = Expr::binary(Binary::Mul, Expr::float(scalar, w), channel.e.clone());
            parts.push(Term::new(e, 0.0, w));
        }
        let mut sum = weighted(m, scalar, parts);
        if let Some(number) = numbers.next() {
            let op = *m.random.pick(&[Op::Mul, Op::Add, Op::Pow]);
            sum = m.join(op, sum, number);
        }
        let mut terms = vec![sum];
        if m.random.chance(50) {
            terms.push(m.random.pick(&channels).clone());
        }
        let unary = 1 + m.random.below(3);
        let mut value = m.combine(terms, unary, 20, &MIXED);
        // Values outside the colour range would be black or white everywhere.
        let beyond = ((value.low + value.high) * 2.0).round() / 4.0 - 0.5;
        if value.low > 0.5 || value.high < 0.5 {
            let op = if beyond > 0.0 { Binary::Sub } else { Binary::Add };
            value.e = Expr::binary(op, value.e, Expr::float(scalar, beyond.abs()));
        }
        let zero_one = [Expr::float(scalar, 0.0), Expr::float(scalar, 1.0)];
        let [zero, one] = zero_one;
        let e = Expr::call(Builtin::Clamp, vec![value.e, zero, one]);
        m.push(Stmt::Store(out, vec![i.clone()], e));
    }
    // Unused scalar parameters scale the last output.
    for number in numbers {
        let first = m.program.arrays.len() as u8 - 1;
        let e = Expr::load(Array(first), vec![i.clone()], scalar);
        m.push(Stmt::Store(Array(first), vec![i.clone()], Expr::binary(Binary::Mul, e, number.e)));
    }
}

/// 8-bit images.
fn bytes(m: &mut Maker) {
    let (rows, cols) = (m.size("height", false, 0, 40), m.size("width", false, 0, 40));
    let count = 1 + m.random.below(2);
    let arrays: Vec<Array> = (0..count)
        .map(|n| m.array(["image", "mask"][n], Scalar::U8, &[rows, cols], Fill::Uniform(0.0, 255.0), false))
        .collect();
    let out = m.array("out", Scalar::U8, &[rows, cols], Fill::Zero, true);
    let threshold = m.random.chance(50).then(|| {
        let var = m.value("threshold", Scalar::I32, 20.0, 235.0);
        Term::new(Expr::var(var, Scalar::I32), 20.0, 235.0)
    });
    let (i, j) = (m.index("y", rows), m.index("x", cols));
    let mut terms: Vec<Term> = (arrays.iter())
        .map(|array| {
            let e = Expr::load(*array, vec![i.clone(), j.clone()], Scalar::U8).cast(Scalar::I32);
            let e = m.bind(e);
            Term::new(e, 0.0, 255.0)
        })
        .collect();
    if m.random.chance(40) {
        let duplicate = terms[0].clone();
        terms.push(duplicate);
    }
    let first = terms[0].clone();
    let more = m.random.below(3);
    super::elementwise::repeated(m, &mut terms, more);
    let unary = 2 + m.random.below(4);
    let mut value = m.combine_int(terms, unary, 25);
    if let Some(threshold) = threshold {
        let bright = Expr::binary(*m.random.pick(&[Binary::Gt, Binary::Ge, Binary::Lt]), first.e, threshold.e);
        let other = *m.random.pick(&[0, 255, 128, 32]);
        value = Term::new(Expr::choose(bright, value.e, Expr::int(other)), value.low.min(0.0), value.high.max(255.0));
    }
    // If nearly all values would be clamped, the low bits are used instead.
    let e = if value.low > 60.0 || value.high < 60.0 || value.high > 4000.0 {
        let value = m.not_negative(value);
        Expr::binary(Binary::Rem, value.e, Expr::int(256))
    } else {
        Expr::call(Builtin::Clamp, vec![value.e, Expr::int(0), Expr::int(255)])
    };
    m.push(Stmt::Store(out, vec![i, j], e.cast(Scalar::U8)));
}

/// An image that is shifted, mirrored or interpolated between pixels.
fn sampled(m: &mut Maker) {
    let (rows, cols) = (m.size("height", true, 1, 40), m.size("width", true, 1, 40));
    let pixels = m.array("image", Scalar::F32, &[rows, cols], Fill::Uniform(0.0, 1.0), false);
    let out = m.output(Scalar::F32, &[rows, cols]);
    let shift = m.value("shift", Scalar::F32, 0.1, 0.9);
    let (i, j) = (m.index("y", rows), m.index("x", cols));
    let (height, width) = (m.extent(rows), m.extent(cols));
    let last = |extent: &Expr| Expr::binary(Binary::Sub, extent.clone(), Expr::int(1));
    let along = |m: &mut Maker, at: &Expr, extent: &Expr, name: &str| match m.random.below(3) {
        0 => (at.clone(), Expr::call(Builtin::Min, vec![add(at.clone(), 1), last(extent)])),
        1 => {
            let mirrored = m.bind_as(name, Expr::binary(Binary::Sub, last(extent), at.clone()));
            (mirrored.clone(), Expr::call(Builtin::Max, vec![add(mirrored, -1), Expr::int(0)]))
        }
        _ => {
            let far = Expr::int(m.random.within(2, 4));
            let moved =
                m.bind_as(name, Expr::binary(Binary::Rem, Expr::binary(Binary::Add, at.clone(), far), extent.clone()));
            (moved.clone(), Expr::call(Builtin::Min, vec![add(moved, 1), last(extent)]))
        }
    };
    let (y0, y1) = along(m, &i, &height, "row");
    let (x0, x1) = along(m, &j, &width, "col");
    let read = |a: &Expr, b: &Expr| Expr::load(pixels, vec![a.clone(), b.clone()], Scalar::F32);
    let t = Expr::var(shift, Scalar::F32);
    let mix = |m: &mut Maker, a: Expr, b: Expr, t: Expr| {
        if m.random.chance(50) {
            Expr::call(Builtin::Lerp, vec![a, b, t])
        } else {
            let difference = Expr::binary(Binary::Sub, b, a.clone());
            Expr::binary(Binary::Add, a, Expr::binary(Binary::Mul, t, difference))
        }
    };
    let top = mix(m, read(&y0, &x0), read(&y0, &x1), t.clone());
    let top = m.bind_as("top", top);
    let value = if m.random.chance(70) {
        let bottom = mix(m, read(&y1, &x0), read(&y1, &x1), t.clone());
        let bottom = m.bind_as("bottom", bottom);
        mix(m, top, bottom, t)
    } else {
        top
    };
    let value = Term::new(value, 0.0, 1.0);
    let mut terms = vec![Term { e: m.bind_as("mixed", value.e), ..value }];
    if m.random.chance(60) {
        terms.push(Term::new(read(&i, &j), 0.0, 1.0));
    }
    let more = m.random.below(2);
    super::elementwise::repeated(m, &mut terms, more);
    let unary = 2 + m.random.below(3);
    let value = m.combine(terms, unary, 10, &MIXED);
    let e = if matches!(value.e.kind, Kind::Float(_)) { value.e.cast(Scalar::F32) } else { value.e };
    m.push(Stmt::Store(out, vec![i, j], e));
}
