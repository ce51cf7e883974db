//! Image kernels: pixels and their neighbourhoods.

use super::builder::ProgramBuilder;
use super::elementwise::scalars;
use super::grids::{add, weighted};
use super::term::{MIXED, Term, TermOp};
use crate::program::{
    ArrayFill, ArrayId, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, ScalarType, SizeExpr,
};

/// Colours, thresholds, small filters and sampling.
pub fn image(m: &mut ProgramBuilder) {
    match m.random.below(4) {
        0 => colors(m),
        1 => filter(m),
        2 => bytes(m),
        _ => sampled(m),
    }
}

/// A filter with weights passed as an array.
fn filter(m: &mut ProgramBuilder) {
    let (rows, cols) = (m.size("height", true, 0, 40), m.size("width", true, 0, 40));
    let side = *m.random.pick(&[3u32, 3, 5]);
    let pixels = m.array("image", ScalarType::F32, &[rows, cols], ArrayFill::Uniform(0.0, 1.0), false);
    let weights = m.array(
        "kernel_weights",
        ScalarType::F32,
        &[SizeExpr::Constant(side), SizeExpr::Constant(side)],
        ArrayFill::Uniform(-1.0, 1.0),
        false,
    );
    let out = m.output(ScalarType::F32, &[rows, cols]);
    let count = m.random.below(2);
    let numbers = scalars(m, count, ScalarType::F32);
    let (i, j) = (m.index("y", rows), m.index("x", cols));
    let (height, width) = (m.extent(rows), m.extent(cols));
    let half = (side / 2) as i64;
    let sum = m.mutable("acc", ProgramExpr::float(ScalarType::F32, 0.0));
    let clamped = m.random.chance(50);
    let (di, dj) = (ProgramExpr::int(side as i64), ProgramExpr::int(side as i64));
    let unary = m.random.below(3);
    m.for_range("dy", ProgramExpr::int(0), di, 1, |m, dy| {
        let offset_row = ProgramExpr::binary(
            BinaryOp::Sub,
            ProgramExpr::binary(BinaryOp::Add, i.clone(), dy.clone()),
            ProgramExpr::int(half),
        );
        let row = if clamped {
            let last = ProgramExpr::binary(BinaryOp::Sub, height.clone(), ProgramExpr::int(1));
            ProgramExpr::call(BuiltinFn::Clamp, vec![offset_row, ProgramExpr::int(0), last])
        } else {
            offset_row
        };
        let row = m.bind_as("sy", row);
        m.for_range("dx", ProgramExpr::int(0), dj, 1, |m, dx| {
            let offset_column = ProgramExpr::binary(
                BinaryOp::Sub,
                ProgramExpr::binary(BinaryOp::Add, j.clone(), dx.clone()),
                ProgramExpr::int(half),
            );
            let column = if clamped {
                let last = ProgramExpr::binary(BinaryOp::Sub, width.clone(), ProgramExpr::int(1));
                ProgramExpr::call(BuiltinFn::Clamp, vec![offset_column, ProgramExpr::int(0), last])
            } else {
                offset_column
            };
            let column = m.bind_as("sx", column);
            let weight = ProgramExpr::load(weights, vec![dy.clone(), dx], ScalarType::F32);
            let pixel =
                Term::new(ProgramExpr::load(pixels, vec![row.clone(), column.clone()], ScalarType::F32), 0.0, 1.0);
            // Nothing may be loaded before the bounds check.
            let can_bind = std::mem::replace(&mut m.can_bind, clamped);
            let pixel = m.combine(vec![pixel], unary, 20, &MIXED);
            m.can_bind = can_bind;
            let step = ProgramStmt::Update(sum, BinaryOp::Add, ProgramExpr::binary(BinaryOp::Mul, pixel.e, weight));
            if clamped {
                return m.push(step);
            }
            let inside = [
                ProgramExpr::binary(BinaryOp::Ge, row.clone(), ProgramExpr::int(0)),
                ProgramExpr::binary(BinaryOp::Lt, row.clone(), height.clone()),
                ProgramExpr::binary(BinaryOp::Ge, column.clone(), ProgramExpr::int(0)),
                ProgramExpr::binary(BinaryOp::Lt, column, width.clone()),
            ];
            let inside = inside.into_iter().reduce(|a, b| ProgramExpr::binary(BinaryOp::And, a, b));
            if let Some(inside) = inside {
                m.push(ProgramStmt::If(inside, vec![step], vec![]));
            }
        });
    });
    let mut terms = vec![Term::new(m.read(sum), -25.0, 25.0)];
    terms.extend(numbers);
    if m.random.chance(40) {
        terms.push(Term::new(ProgramExpr::load(pixels, vec![i.clone(), j.clone()], ScalarType::F32), 0.0, 1.0));
    }
    let unary = 2 + m.random.below(3);
    let value = m.combine(terms, unary, 10, &MIXED);
    m.push(ProgramStmt::Store(out, vec![i, j], value.e));
}

/// Three channels in, one or three out.
fn colors(m: &mut ProgramBuilder) {
    let scalar = ScalarType::F32;
    let pixels = m.size("n", false, 0, 300);
    let names = [["red", "green", "blue"], ["hue", "sat", "val"], ["y_plane", "cb", "cr"], ["r", "g", "b"]];
    let names = *m.random.pick(&names);
    let arrays: Vec<ArrayId> =
        names.iter().map(|name| m.array(name, scalar, &[pixels], ArrayFill::Uniform(0.0, 1.0), false)).collect();
    let outs = if m.random.chance(50) { 1 } else { 3 };
    let written: Vec<ArrayId> = (0..outs)
        .map(|n| m.array(&format!("out_{}", names[n as usize]), scalar, &[pixels], ArrayFill::Zero, true))
        .collect();
    let count = m.random.below(3);
    let numbers = scalars(m, count, scalar);
    let i = m.index("i", pixels);
    let channels: Vec<Term> = (arrays.iter())
        .map(|array| {
            let e = ProgramExpr::load(*array, vec![i.clone()], scalar);
            let e = m.bind(e);
            Term::new(e, 0.0, 1.0)
        })
        .collect();
    let mut numbers = numbers.into_iter();
    for out in written {
        let mut parts = vec![];
        for channel in &channels {
            let w = *m.random.pick(&[0.299, 0.587, 0.114, 0.393, 0.769, 0.189, 0.5, 0.25, 0.2126, 0.7152, 0.0722]);
            let e = ProgramExpr::binary(BinaryOp::Mul, ProgramExpr::float(scalar, w), channel.e.clone());
            parts.push(Term::new(e, 0.0, w));
        }
        let mut sum = weighted(m, scalar, parts);
        if let Some(number) = numbers.next() {
            let op = *m.random.pick(&[TermOp::Mul, TermOp::Add, TermOp::Pow]);
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
            let op = if beyond > 0.0 { BinaryOp::Sub } else { BinaryOp::Add };
            value.e = ProgramExpr::binary(op, value.e, ProgramExpr::float(scalar, beyond.abs()));
        }
        let zero_one = [ProgramExpr::float(scalar, 0.0), ProgramExpr::float(scalar, 1.0)];
        let [zero, one] = zero_one;
        let e = ProgramExpr::call(BuiltinFn::Clamp, vec![value.e, zero, one]);
        m.push(ProgramStmt::Store(out, vec![i.clone()], e));
    }
    // Unused scalar parameters scale the last output.
    for number in numbers {
        let first = m.program.arrays.len() as u8 - 1;
        let e = ProgramExpr::load(ArrayId(first), vec![i.clone()], scalar);
        m.push(ProgramStmt::Store(ArrayId(first), vec![i.clone()], ProgramExpr::binary(BinaryOp::Mul, e, number.e)));
    }
}

/// 8-bit images.
fn bytes(m: &mut ProgramBuilder) {
    let (rows, cols) = (m.size("height", false, 0, 40), m.size("width", false, 0, 40));
    let count = 1 + m.random.below(2);
    let arrays: Vec<ArrayId> = (0..count)
        .map(|n| m.array(["image", "mask"][n], ScalarType::U8, &[rows, cols], ArrayFill::Uniform(0.0, 255.0), false))
        .collect();
    let out = m.array("out", ScalarType::U8, &[rows, cols], ArrayFill::Zero, true);
    let threshold = m.random.chance(50).then(|| {
        let var = m.value("threshold", ScalarType::I32, 20.0, 235.0);
        Term::new(ProgramExpr::var(var, ScalarType::I32), 20.0, 235.0)
    });
    let (i, j) = (m.index("y", rows), m.index("x", cols));
    let mut terms: Vec<Term> = (arrays.iter())
        .map(|array| {
            let e = ProgramExpr::load(*array, vec![i.clone(), j.clone()], ScalarType::U8).cast(ScalarType::I32);
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
        let bright =
            ProgramExpr::binary(*m.random.pick(&[BinaryOp::Gt, BinaryOp::Ge, BinaryOp::Lt]), first.e, threshold.e);
        let other = *m.random.pick(&[0, 255, 128, 32]);
        value = Term::new(
            ProgramExpr::choose(bright, value.e, ProgramExpr::int(other)),
            value.low.min(0.0),
            value.high.max(255.0),
        );
    }
    // If nearly all values would be clamped, the low bits are used instead.
    let e = if value.low > 60.0 || value.high < 60.0 || value.high > 4000.0 {
        let value = m.not_negative(value);
        ProgramExpr::binary(BinaryOp::Rem, value.e, ProgramExpr::int(256))
    } else {
        ProgramExpr::call(BuiltinFn::Clamp, vec![value.e, ProgramExpr::int(0), ProgramExpr::int(255)])
    };
    m.push(ProgramStmt::Store(out, vec![i, j], e.cast(ScalarType::U8)));
}

/// An image that is shifted, mirrored or interpolated between pixels.
fn sampled(m: &mut ProgramBuilder) {
    let (rows, cols) = (m.size("height", true, 1, 40), m.size("width", true, 1, 40));
    let pixels = m.array("image", ScalarType::F32, &[rows, cols], ArrayFill::Uniform(0.0, 1.0), false);
    let out = m.output(ScalarType::F32, &[rows, cols]);
    let shift = m.value("shift", ScalarType::F32, 0.1, 0.9);
    let (i, j) = (m.index("y", rows), m.index("x", cols));
    let (height, width) = (m.extent(rows), m.extent(cols));
    let last = |extent: &ProgramExpr| ProgramExpr::binary(BinaryOp::Sub, extent.clone(), ProgramExpr::int(1));
    let along = |m: &mut ProgramBuilder, at: &ProgramExpr, extent: &ProgramExpr, name: &str| match m.random.below(3) {
        0 => (at.clone(), ProgramExpr::call(BuiltinFn::Min, vec![add(at.clone(), 1), last(extent)])),
        1 => {
            let mirrored = m.bind_as(name, ProgramExpr::binary(BinaryOp::Sub, last(extent), at.clone()));
            (mirrored.clone(), ProgramExpr::call(BuiltinFn::Max, vec![add(mirrored, -1), ProgramExpr::int(0)]))
        }
        _ => {
            let far = ProgramExpr::int(m.random.in_range(2, 4));
            let moved = m.bind_as(
                name,
                ProgramExpr::binary(BinaryOp::Rem, ProgramExpr::binary(BinaryOp::Add, at.clone(), far), extent.clone()),
            );
            (moved.clone(), ProgramExpr::call(BuiltinFn::Min, vec![add(moved, 1), last(extent)]))
        }
    };
    let (y0, y1) = along(m, &i, &height, "row");
    let (x0, x1) = along(m, &j, &width, "col");
    let read =
        |a: &ProgramExpr, b: &ProgramExpr| ProgramExpr::load(pixels, vec![a.clone(), b.clone()], ScalarType::F32);
    let t = ProgramExpr::var(shift, ScalarType::F32);
    let mix = |m: &mut ProgramBuilder, a: ProgramExpr, b: ProgramExpr, t: ProgramExpr| {
        if m.random.chance(50) {
            ProgramExpr::call(BuiltinFn::Lerp, vec![a, b, t])
        } else {
            let difference = ProgramExpr::binary(BinaryOp::Sub, b, a.clone());
            ProgramExpr::binary(BinaryOp::Add, a, ProgramExpr::binary(BinaryOp::Mul, t, difference))
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
    let e = if matches!(value.e.kind, ExprKind::Float(_)) { value.e.cast(ScalarType::F32) } else { value.e };
    m.push(ProgramStmt::Store(out, vec![i, j], e));
}
