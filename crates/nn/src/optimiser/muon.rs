//! Muon's directions: the orthogonal matrix that is nearest to a matrix, by a few Newton–Schulz steps (Keller Jordan,
//! 2024).

use bornite::{Tensor, var::Arena};

use crate::parameters::Declared;

/// Coefficients of the odd quintic whose iterates send singular values from 0 to 1 into about 0.7 to 1.2, and quickly.
const QUINTIC: [f64; 3] = [3.4445, -4.7750, 2.0315];
const STEPS: usize = 5;

/// Whether a parameter is a matrix between hidden layers: not a table of tokens or places, nor the head.
pub fn is_hidden(parameter: &Declared) -> bool {
    parameter.shape.len() == 2 && parameter.name.contains("blocks.")
}

/// For all hidden matrices of an arena the direction in which each moves, flat; zeros elsewhere.
pub fn directions(declared: &crate::Declarations, arena: &Arena, momentum: &Tensor) -> Tensor {
    let parts: Vec<Tensor> = (declared.iter().zip(arena.unflatten(momentum)))
        .map(|(parameter, matrix)| match is_hidden(parameter) {
            true => orthogonal(&matrix),
            false => matrix * 0.0,
        })
        .collect();
    arena.flatten(&parts)
}

/// About the nearest orthogonal matrix, scaled so that moves have the size that AdamW's have.
fn orthogonal(matrix: &Tensor) -> Tensor {
    let Ok(&[rows, columns]) = matrix.shape() else { return matrix.clone() };
    let turned = rows > columns;
    let mut x = if turned { matrix.t() } else { matrix.clone() };
    x = &x / (x.norm(2.0, ..) + 1e-7);
    let [a, b, c] = QUINTIC;
    for _ in 0..STEPS {
        let square = x.matmul(&x.t());
        let polynomial = &square * b + square.matmul(&square) * c;
        x = &x * a + polynomial.matmul(&x);
    }
    let x = if turned { x.t() } else { x };
    x * (0.2 * (rows.max(columns) as f64).sqrt())
}
