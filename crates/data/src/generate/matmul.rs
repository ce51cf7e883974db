//! Tiled matrix products.

use super::block::{BlockWriter, indent, kernel_text};
use super::builder::ProgramBuilder;
use super::elementwise::scalars;
use super::shared::without_binding;
use super::term::{MATH, MIXED, Term};
use crate::program::python::size_text;
use crate::program::{ArrayFill, BinaryOp, CooperativeKernel, ProgramExpr, ProgramStmt, ScalarType, SizeExpr};

/// Tiled matrix products.
pub fn tiled_matmul(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(5, ScalarType::F32), (1, ScalarType::F64), (1, ScalarType::I32)]);
    let names =
        *m.random.pick(&[["m_rows", "n_cols", "k_dim"], ["rows", "cols", "inner"], ["height", "width", "depth"]]);
    let (rows, cols, inner) =
        (m.size(names[0], false, 0, 24), m.size(names[1], false, 0, 24), m.size(names[2], true, 0, 24));
    let fill = if scalar.is_float() { ArrayFill::Uniform(-1.0, 1.0) } else { ArrayFill::Uniform(-9.0, 9.0) };
    let letters = *m.random.pick(&[["a", "b", "c"], ["lhs", "rhs", "out"], ["left", "right", "prod"], ["x", "w", "y"]]);
    let (flip_a, flip_b) = (m.random.chance(25), m.random.chance(35));
    let a = m.array(letters[0], scalar, &if flip_a { [inner, rows] } else { [rows, inner] }, fill.clone(), false);
    let b = m.array(letters[1], scalar, &if flip_b { [cols, inner] } else { [inner, cols] }, fill, false);
    let bias = m.random.chance(30).then(|| m.array("bias", scalar, &[cols], ArrayFill::Uniform(-1.0, 1.0), false));
    let c = m.array(letters[2], scalar, &[rows, cols], ArrayFill::Zero, true);
    let count = if scalar.is_float() { m.random.below(2) } else { 0 };
    let numbers = scalars(m, count, scalar);
    let (i, j) = (m.index("i", rows), m.index("j", cols));
    let zero = if scalar.is_float() { ProgramExpr::float(scalar, 0.0) } else { ProgramExpr::typed_int(scalar, 0) };
    let acc = m.mutable("acc", zero.clone());
    let high = m.extent(inner);
    let k = m.variable("k", ScalarType::I32, false);
    let k_expr = ProgramExpr::var(k, ScalarType::I32);
    let at_a = if flip_a { vec![k_expr.clone(), i.clone()] } else { vec![i.clone(), k_expr.clone()] };
    let at_b = if flip_b { vec![j.clone(), k_expr.clone()] } else { vec![k_expr.clone(), j.clone()] };
    let max = if scalar.is_float() { 1.0 } else { 9.0 };
    let (load_a, load_b) = (ProgramExpr::load(a, at_a, scalar), ProgramExpr::load(b, at_b, scalar));
    // Optionally transforms an element before it is stored in its tile.
    let transformed = |m: &mut ProgramBuilder, e: ProgramExpr| {
        without_binding(m, |m| {
            let term = Term::new(e, -max, max);
            if !m.random.chance(55) {
                term
            } else if scalar.is_float() {
                let unary = 1 + m.random.below(3);
                let value = m.combine(vec![term], unary, 0, &MATH);
                m.narrowed(value, 4.0)
            } else {
                m.apply_int(term)
            }
        })
    };
    let (value_a, value_b) = (transformed(m, load_a), transformed(m, load_b));
    let product = ProgramExpr::binary(BinaryOp::Mul, value_a.e.clone(), value_b.e.clone());
    m.push(ProgramStmt::For(k, ProgramExpr::int(0), high, 1, vec![ProgramStmt::Update(acc, BinaryOp::Add, product)]));
    let total = 24.0 * value_a.size() * value_b.size();
    let last = without_binding(m, |m| {
        let mut terms = vec![Term::new(m.read(acc), -total, total)];
        terms.extend(bias.map(|bias| Term::new(ProgramExpr::load(bias, vec![j.clone()], scalar), -1.0, 1.0)));
        terms.extend(numbers);
        if scalar.is_float() {
            let duplicate = terms[0].clone();
            if m.random.chance(40) {
                terms.push(duplicate);
            }
            let unary = 1 + m.random.below(4);
            m.combine(terms, unary, 0, &MIXED)
        } else {
            let unary = m.random.below(3);
            m.combine_int(terms, unary, 0)
        }
    });
    m.push(ProgramStmt::Store(c, vec![i.clone(), j.clone()], last.e.clone()));
    let side = *m.random.pick_weighted(&[(4, 8u32), (3, 16), (2, 4)]);
    let (pad, unroll, restrict) = (m.random.chance(30) as u32, m.random.chance(50), m.random.chance(70));
    let named = m.random.chance(40);
    let [tile_a, tile_b] = [format!("tile_{}", letters[0]), format!("tile_{}", letters[1])].map(|n| m.names.unique(&n));
    let [tx, ty, base, q] = ["tx", "ty", "base", "q"].map(|n| m.names.unique(n));
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let [i, j] = [&i, &j].map(|e| p.expr_text(e));
            let (k_name, acc_name) = (program.body.var(k).name.clone(), program.body.var(acc).name.clone());
            let [rows, cols, inner] = [rows, cols, inner].map(|s| size_text(program, s));
            let (c_type, zero, out) = (scalar.c(), p.expr_text(&zero), program.array(c).name.clone());
            let (e_a, e_b, last) = (p.expr_text(&value_a.e), p.expr_text(&value_b.e), p.expr_text(&last.e));
            let side_text = if named { "TILE".to_owned() } else { side.to_string() };
            let wide = if pad > 0 { format!("{side_text} + {pad}") } else { side_text.clone() };
            let mut lines = vec![];
            if named {
                lines.push(format!("const int TILE = {side};"));
            }
            lines.extend([
                format!("__shared__ {c_type} {tile_a}[{side_text}][{wide}];"),
                format!("__shared__ {c_type} {tile_b}[{side_text}][{wide}];"),
                format!("int {tx} = threadIdx.x, {ty} = threadIdx.y;"),
                format!("int {i} = blockIdx.y * {side_text} + {ty};"),
                format!("int {j} = blockIdx.x * {side_text} + {tx};"),
                format!("{c_type} {acc_name} = {zero};"),
                format!("for (int {base} = 0; {base} < {inner}; {base} += {side_text}) {{"),
                format!("    int {k_name} = {base} + {tx};"),
                format!("    {tile_a}[{ty}][{tx}] = {i} < {rows} && {k_name} < {inner} ? {e_a} : {zero};"),
                format!("    {k_name} = {base} + {ty};"),
                format!("    {tile_b}[{ty}][{tx}] = {k_name} < {inner} && {j} < {cols} ? {e_b} : {zero};"),
                "    __syncthreads();".into(),
            ]);
            if unroll {
                lines.push("    #pragma unroll".into());
            }
            lines.push(format!(
                "    for (int {q} = 0; {q} < {side_text}; ++{q}) {acc_name} += {tile_a}[{ty}][{q}] * {tile_b}[{q}][{tx}];"
            ));
            lines.push("    __syncthreads();".into());
            lines.push("}".into());
            lines.push(format!("if ({i} < {rows} && {j} < {cols}) {out}[{i} * {cols} + {j}] = {last};"));
            indent(1, &lines)
        });
        CooperativeKernel {
            text,
            block: [side, side, 1],
            grid: [(cols, side), (rows, side), (SizeExpr::Constant(1), 1)],
            kind: "matmul_tile",
        }
    }))
}
