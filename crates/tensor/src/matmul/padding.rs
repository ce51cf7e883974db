//! Products of odd sizes by cuBLASLt, whose kernels for them are several times slower: operands are
//! copied into padded memory where that is faster.

use bornite_cuda::blas::Matmul;

use crate::graph::node::{AxisSlice, Op};
use crate::{DType, Tensor};

/// Multiple of a fast length of the contiguous axis of a matrix, in elements of 16 bits.
const MULTIPLE: usize = 8;
// Rates of an H200 with bf16. Their ratios, which decide, are similar on other GPUs.
const ODD_FLOPS_PER_SECOND: f64 = 120e12;
const EVEN_FLOPS_PER_SECOND: f64 = 600e12;
const BYTES_PER_SECOND: f64 = 3.5e12;
const SECONDS_PER_LAUNCH: f64 = 2.5e-6;

/// A product of padded copies of its operands.
pub(crate) struct PaddedMatmul {
    /// Padded copies, to be computed first.
    pub copies: Vec<Tensor>,
    /// The product of the padded operands.
    pub product: Tensor,
    /// The tensors from whose memory the library reads the operands of `product`.
    pub operands: Vec<Tensor>,
    /// The product without padding, a view to be copied; `None` if its shape is not padded.
    pub result: Option<Tensor>,
}

impl PaddedMatmul {
    /// Pads a product that the library would compute as `matmul`. `None` if that is not faster.
    pub fn new(tensor: &Tensor, matmul: &Matmul) -> Option<PaddedMatmul> {
        if !matches!(tensor.0.dtype, DType::F16 | DType::BF16) {
            return None;
        }
        let padded = PaddedMatmul::padded(tensor, matmul)?;
        let k = tensor.0.inputs[0].0.shape.last().copied()?;
        let flops = 2.0 * tensor.0.elements() as f64 * k as f64;
        (flops / EVEN_FLOPS_PER_SECOND + padded.copy_seconds() < flops / ODD_FLOPS_PER_SECOND).then_some(padded)
    }

    /// Pads a product, even if that is slower. `None` if all lengths are even.
    pub(super) fn padded(tensor: &Tensor, matmul: &Matmul) -> Option<PaddedMatmul> {
        let [a, b] = &tensor.0.inputs[..] else { return None };
        let (&[.., m, k], &[.., n]) = (a.0.shape.as_slice(), b.0.shape.as_slice()) else { return None };
        let (left_transposed, right_transposed) = (matmul.a.transposed, matmul.b.transposed);
        // The contiguous axes of both operands and of the result.
        let even = |length: usize, is_contiguous: bool| match is_contiguous {
            true => length.next_multiple_of(MULTIPLE),
            false => length,
        };
        let padded_m = even(m, left_transposed);
        let padded_n = even(n, true);
        let padded_k = even(k, !left_transposed || right_transposed);
        let (left, left_copy) = pad_matrix(a, [padded_m, padded_k], left_transposed);
        let (right, right_copy) = pad_matrix(b, [padded_k, padded_n], right_transposed);
        let copies: Vec<Tensor> = [left_copy, right_copy].into_iter().flatten().collect();
        let product = Tensor::build(Op::Matmul, vec![left, right], tensor.0.location);
        let result = (product.0.shape != tensor.0.shape).then(|| {
            let cuts = tensor.0.shape.iter().map(|&len| AxisSlice { start: 0, step: 1, len }).collect();
            Tensor::build(Op::Slice(cuts), vec![product.clone()], tensor.0.location)
        });
        (!copies.is_empty()).then_some(PaddedMatmul { copies, product, operands: vec![], result })
    }

    /// Duration of all copies, estimated.
    fn copy_seconds(&self) -> f64 {
        let copies = || self.copies.iter().chain(&self.result);
        let bytes: usize = copies().map(|copy| 2 * copy.0.bytes()).sum();
        bytes as f64 / BYTES_PER_SECOND + copies().count() as f64 * SECONDS_PER_LAUNCH
    }
}

/// A batch of matrices with zeros added to rows and columns, and the copy that this needs. The copy
/// is transposed in memory if the original is.
fn pad_matrix(matrix: &Tensor, [rows, columns]: [usize; 2], transposed: bool) -> (Tensor, Option<Tensor>) {
    let rank = matrix.0.shape.len();
    if matrix.0.shape[rank - 2..] == [rows, columns] {
        return (matrix.clone(), None);
    }
    if transposed {
        let (padded, copy) = pad_matrix(&matrix.t(), [columns, rows], false);
        return (padded.t(), copy);
    }
    let mut widths = vec![(0, 0); rank];
    widths[rank - 2].1 = rows - matrix.0.shape[rank - 2];
    widths[rank - 1].1 = columns - matrix.0.shape[rank - 1];
    let padded = matrix.pad(&widths, 0.0);
    (padded.clone(), Some(padded))
}
