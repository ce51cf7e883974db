//! Tiled kernels: square tiles in shared memory.

use super::{I32, KernelResult, less_than, matrix, mul_add_index};
use crate::{Access, Axis, Builder, Builtin, Emit, EmitBits, Op, Scalar, Stmt, Value};

/// `out[j, i] = x[i, j]` through tiles of 32 × 33; the padding avoids shared-memory bank conflicts.
pub fn transpose(scalar: Scalar, rows: u64, columns: u64) -> KernelResult {
    const TILE: u64 = 32;
    let grid = [columns.div_ceil(TILE).max(1) as u32, rows.div_ceil(TILE).max(1) as u32, 1];
    let mut b = Builder::blocks("transpose", grid, [TILE as u32, 8, 1], I32);
    let x = b.view("x", scalar, &matrix(rows, columns), Access::Read);
    let out = b.view("out", scalar, &matrix(columns, rows), Access::Write);
    let tile = b.shared_array("tile", scalar, &[TILE, TILE + 1]);
    let [tx, ty] = [Axis::X, Axis::Y].map(|axis| b.builtin(Builtin::Thread(axis)));
    let [bx, by] = [Axis::X, Axis::Y].map(|axis| b.builtin(Builtin::Block(axis)));
    for (loading, first, second, width, height) in [(true, by, bx, columns, rows), (false, bx, by, rows, columns)] {
        for step in (0..TILE).step_by(8) {
            let offset = b.index_constant(step);
            let line = b.add(&ty, &offset);
            let (i, j) = (mul_add_index(&mut b, first, TILE, line), mul_add_index(&mut b, second, TILE, tx));
            let (inside_i, inside_j) = (less_than(&mut b, i, height), less_than(&mut b, j, width));
            let inside = b.op(Op::And, &[&inside_i, &inside_j]);
            b.if_else(
                inside,
                |b| {
                    if loading {
                        let value = b.load(x, [i, j]);
                        b.store(tile, [line, tx], value);
                    } else {
                        let value = b.load(tile, [tx, line]);
                        b.store(out, [i, j], value);
                    }
                },
                |_| {},
            );
        }
        if loading {
            b.push_stmt(Stmt::Barrier);
        }
    }
    b.finish()
}

/// out = a · b for a of m × k and b of k × n, with square tiles in shared memory.
pub fn matmul(scalar: Scalar, m: u64, k: u64, n: u64, tile: u64) -> KernelResult {
    let grid = [n.div_ceil(tile.max(1)).max(1) as u32, m.div_ceil(tile.max(1)).max(1) as u32, 1];
    let mut b = Builder::blocks("matmul", grid, [tile as u32, tile as u32, 1], I32);
    let left = b.view("a", scalar, &matrix(m, k), Access::Read);
    let right = b.view("b", scalar, &matrix(k, n), Access::Read);
    let out = b.view("out", scalar, &matrix(m, n), Access::Write);
    let [tile_a, tile_b] = ["tile_a", "tile_b"].map(|name| b.shared_array(name, scalar, &[tile, tile]));
    let [tx, ty] = [Axis::X, Axis::Y].map(|axis| b.builtin(Builtin::Thread(axis)));
    let [bx, by] = [Axis::X, Axis::Y].map(|axis| b.builtin(Builtin::Block(axis)));
    let (row, column) = (mul_add_index(&mut b, by, tile, ty), mul_add_index(&mut b, bx, tile, tx));
    let (row_inside, column_inside) = (less_than(&mut b, row, m), less_than(&mut b, column, n));
    let zero = b.constant(Value::from_f64(scalar, 0.0));
    let sum = b.local("sum", Value::from_f64(scalar, 0.0));
    let steps = b.index_constant(k.div_ceil(tile.max(1)));
    let step = b.open_loop("step");
    let first = b.read(step);
    for (from, to, is_left) in [(left, tile_a, true), (right, tile_b, false)] {
        let depth = mul_add_index(&mut b, first, tile, if is_left { tx } else { ty });
        let depth_inside = less_than(&mut b, depth, k);
        let inside = b.op(Op::And, &[&depth_inside, if is_left { &row_inside } else { &column_inside }]);
        b.if_else(
            inside,
            |b| {
                let value = b.load(from, if is_left { [row, depth] } else { [depth, column] });
                b.store(to, [ty, tx], value);
            },
            |b| b.store(to, [ty, tx], zero),
        );
    }
    b.push_stmt(Stmt::Barrier);
    let width = b.index_constant(tile);
    let inner = b.open_loop("inner");
    let l = b.read(inner);
    let (x, y, before) = (b.load(tile_a, [ty, l]), b.load(tile_b, [l, tx]), b.read(sum));
    let after = b.fma(&x, &y, &before);
    b.assign(sum, after);
    b.close_loop(inner, width);
    b.push_stmt(Stmt::Barrier);
    b.close_loop(step, steps);
    let inside = b.op(Op::And, &[&row_inside, &column_inside]);
    b.if_else(
        inside,
        |b| {
            let total = b.read(sum);
            b.store(out, [row, column], total);
        },
        |_| {},
    );
    b.finish()
}
