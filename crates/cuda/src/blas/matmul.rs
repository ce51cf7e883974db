//! Description of a matrix product in row-major terms, and its translation to the library's
//! column-major terms.

use std::fmt;

use cudarc::cublaslt::sys::{cublasComputeType_t, cublasLtEpilogue_t, cudaDataType_t};

use super::library::invalid_value;
use crate::Result;

/// Element type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElementType {
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Single.
    F32,
    /// Double.
    F64,
}

impl ElementType {
    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::F32 => 4,
            ElementType::F64 => 8,
        }
    }

    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
        }
    }

    pub(super) fn raw(self) -> cudaDataType_t {
        match self {
            ElementType::F16 => cudaDataType_t::CUDA_R_16F,
            ElementType::Bf16 => cudaDataType_t::CUDA_R_16BF,
            ElementType::F32 => cudaDataType_t::CUDA_R_32F,
            ElementType::F64 => cudaDataType_t::CUDA_R_64F,
        }
    }
}

/// Arithmetic of multiplication and accumulation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ComputeType {
    /// f32 throughout; for inputs of f16, bf16 and f32.
    F32,
    /// f32 inputs rounded to TF32 (11 bits of mantissa), summed in f32.
    Tf32,
    /// f64 throughout.
    F64,
}

impl ComputeType {
    /// Returns the exact arithmetic for an input type.
    pub fn of(input: ElementType) -> ComputeType {
        if input == ElementType::F64 { ComputeType::F64 } else { ComputeType::F32 }
    }

    /// Returns the type of alpha and beta.
    pub(super) fn scale(self) -> ElementType {
        if self == ComputeType::F64 { ElementType::F64 } else { ElementType::F32 }
    }

    pub(super) fn raw(self) -> cublasComputeType_t {
        match self {
            ComputeType::F32 => cublasComputeType_t::CUBLAS_COMPUTE_32F,
            ComputeType::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            ComputeType::F64 => cublasComputeType_t::CUBLAS_COMPUTE_64F,
        }
    }
}

/// Operation on the product before it is stored. A bias has `n` elements of the output type, one
/// per column of D; an auxiliary matrix is a contiguous row-major `m × n` matrix of the output
/// type, with `n` a multiple of 8. GELU is the tanh approximation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Epilogue {
    /// No operation.
    None,
    /// Adds a bias.
    Bias,
    /// Adds a bias, then applies GELU.
    BiasGelu,
    /// Like `BiasGelu`; also stores the input of GELU in the auxiliary matrix.
    BiasGeluAux,
    /// Multiplies by the derivative of GELU at the auxiliary matrix.
    Dgelu,
    /// Like `Dgelu`; also stores the column sums of D in the bias.
    DgeluBiasGradient,
    /// Stores the column sums of B in the bias: the bias gradient computed with a weight gradient
    /// `xᵀ·dy`.
    BiasGradient,
}

impl Epilogue {
    /// Returns true if it reads or writes a bias.
    pub fn has_bias(self) -> bool {
        !matches!(self, Epilogue::None | Epilogue::Dgelu)
    }

    /// Returns true if it reads or writes an auxiliary matrix.
    pub fn has_aux(self) -> bool {
        matches!(self, Epilogue::BiasGeluAux | Epilogue::Dgelu | Epilogue::DgeluBiasGradient)
    }

    pub(super) fn raw(self) -> cublasLtEpilogue_t {
        match self {
            Epilogue::None => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            Epilogue::Bias => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Epilogue::BiasGelu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
            Epilogue::BiasGeluAux => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
            Epilogue::Dgelu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DGELU,
            Epilogue::DgeluBiasGradient => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DGELU_BGRAD,
            // The library's first operand is our B.
            Epilogue::BiasGradient => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADA,
        }
    }
}

/// Layout of a matrix in memory. Strides are in elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixLayout {
    /// False: row-major. True: column-major.
    pub transposed: bool,
    /// Distance between rows (columns if transposed).
    pub stride: u64,
    /// Distance between the matrices of a batch; 0 if all are the same matrix.
    pub batch_stride: u64,
    /// Alignment of the address in bytes: a power of two, at most 256. A small alignment excludes
    /// the fastest kernels.
    pub alignment: u32,
}

impl MatrixLayout {
    /// Row-major layout of one matrix with this stride, aligned to 256 bytes.
    pub fn rows(stride: u64) -> MatrixLayout {
        MatrixLayout { transposed: false, stride, batch_stride: 0, alignment: 256 }
    }

    /// Like [`MatrixLayout::rows`], column-major.
    pub fn columns(stride: u64) -> MatrixLayout {
        MatrixLayout { transposed: true, ..MatrixLayout::rows(stride) }
    }
}

/// A product `D = alpha · A·B + beta · C`, single or batched. C has the layout of D.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matmul {
    /// Rows of A and D.
    pub m: u64,
    /// Columns of B and D.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Number of products in the batch.
    pub batch: u64,
    /// `m × k`.
    pub a: MatrixLayout,
    /// `k × n`.
    pub b: MatrixLayout,
    /// `m × n`, never transposed.
    pub d: MatrixLayout,
    /// Type of A and B.
    pub input: ElementType,
    /// Type of C and D: the input's, or f32 for 16-bit inputs.
    pub output: ElementType,
    /// Arithmetic.
    pub compute: ComputeType,
    /// Operation before D is stored.
    pub epilogue: Epilogue,
}

impl Matmul {
    /// Creates a single product of contiguous matrices, in exact arithmetic.
    pub fn new(m: u64, n: u64, k: u64, element: ElementType) -> Matmul {
        let (a, b, d) = (MatrixLayout::rows(k), MatrixLayout::rows(n), MatrixLayout::rows(n));
        let (compute, epilogue) = (ComputeType::of(element), Epilogue::None);
        Matmul { m, n, k, batch: 1, a, b, d, input: element, output: element, compute, epilogue }
    }

    /// Validates the product: the library must support it and stay within the matrices.
    pub(super) fn validate(&self) -> Result<()> {
        let Matmul { m, n, k, batch, a, b, d, input, output, compute, epilogue } = *self;
        if [m, n, k, batch].contains(&0) || batch > i32::MAX as u64 {
            return Err(invalid_value(format!(
                "{batch} products of {m} x {k} by {k} x {n}: all sizes must be at least 1 and the batch at most 2147483647"
            )));
        }
        for (name, operand, rows, columns) in [("A", a, m, k), ("B", b, k, n), ("D", d, m, n)] {
            let width = if operand.transposed { rows } else { columns };
            if operand.stride < width || operand.stride > i64::MAX as u64 || operand.batch_stride > i64::MAX as u64 {
                let stride = operand.stride;
                return Err(invalid_value(format!(
                    "{name} has stride {stride}, but its rows (columns if transposed) have {width} elements"
                )));
            }
            if !operand.alignment.is_power_of_two() || operand.alignment > 256 {
                return Err(invalid_value(format!(
                    "{name} has alignment {}; expected a power of two up to 256",
                    operand.alignment
                )));
            }
        }
        if d.transposed || batch > 1 && d.batch_stride < self.m.saturating_mul(d.stride) {
            return Err(invalid_value("D must be row-major, and the matrices of a batch must not overlap".into()));
        }
        let outputs: &[ElementType] = if input.bytes() == 2 { &[input, ElementType::F32] } else { &[input] };
        let computes: &[ComputeType] = match input {
            ElementType::F64 => &[ComputeType::F64],
            ElementType::F32 => &[ComputeType::F32, ComputeType::Tf32],
            ElementType::F16 | ElementType::Bf16 => &[ComputeType::F32],
        };
        if !outputs.contains(&output) || !computes.contains(&compute) {
            let (input, output) = (input.name(), output.name());
            return Err(invalid_value(format!(
                "a product with inputs {input} and output {output} in {compute:?} is not supported"
            )));
        }
        if epilogue.has_aux() && !n.is_multiple_of(8) {
            return Err(invalid_value(format!("an auxiliary matrix needs a multiple of 8 columns, found {n}")));
        }
        Ok(())
    }

    /// Returns the alignments of A, B and D in bytes.
    pub(super) fn alignments(&self) -> [u32; 3] {
        [self.a, self.b, self.d].map(|operand| operand.alignment)
    }

    /// Checks that the operands are at least as aligned as those that an algorithm was found for.
    pub(super) fn check_alignments(&self, alignments: [u32; 3]) -> Result<()> {
        let ours = self.alignments();
        if ours.iter().zip(&alignments).all(|(ours, needed)| ours >= needed) {
            return Ok(());
        }
        Err(invalid_value(format!("the algorithm needs operands aligned to {alignments:?} bytes, found {ours:?}")))
    }

    /// Returns the bytes from the first to the last element of A, B and D, `None` if they exceed
    /// the address space.
    pub(super) fn byte_spans(&self) -> [Option<usize>; 3] {
        let span = |operand: MatrixLayout, rows: u64, columns: u64, element: ElementType| {
            let (lines, width) = if operand.transposed { (columns, rows) } else { (rows, columns) };
            let last = u128::from(self.batch - 1) * u128::from(operand.batch_stride)
                + u128::from(lines - 1) * u128::from(operand.stride)
                + u128::from(width);
            usize::try_from(last * element.bytes() as u128).ok()
        };
        [
            span(self.a, self.m, self.k, self.input),
            span(self.b, self.k, self.n, self.input),
            span(self.d, self.m, self.n, self.output),
        ]
    }

    /// Returns the same product in the library's column-major terms: see the notes in `mod.rs`.
    pub(super) fn column_major(&self) -> ColumnMajorMatmul {
        let stored = |operand: MatrixLayout, lines: u64, width: u64| StoredMatrix {
            rows: width,
            columns: lines,
            ld: operand.stride,
            batch_stride: operand.batch_stride,
            transposed: operand.transposed,
        };
        let to_column_major = |operand: MatrixLayout, rows: u64, columns: u64| {
            if operand.transposed { stored(operand, columns, rows) } else { stored(operand, rows, columns) }
        };
        ColumnMajorMatmul {
            first: to_column_major(self.b, self.k, self.n),
            second: to_column_major(self.a, self.m, self.k),
            out: to_column_major(self.d, self.m, self.n),
        }
    }
}

impl fmt::Display for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Matmul { m, n, k, batch, .. } = self;
        if *batch > 1 {
            write!(f, "batch of {batch}: ")?;
        }
        let mark = |operand: &MatrixLayout| if operand.transposed { " (transposed)" } else { "" };
        write!(f, "{m}x{k}{} by {k}x{n}{}", mark(&self.a), mark(&self.b))?;
        write!(f, ", strides {}, {} and {}", self.a.stride, self.b.stride, self.d.stride)?;
        if *batch > 1 {
            write!(f, ", batch strides {}, {} and {}", self.a.batch_stride, self.b.batch_stride, self.d.batch_stride)?;
        }
        if self.compute == ComputeType::Tf32 {
            write!(f, ", in TF32")?;
        }
        Ok(())
    }
}

/// A matrix as the library sees it: column-major.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredMatrix {
    pub rows: u64,
    pub columns: u64,
    pub ld: u64,
    pub batch_stride: u64,
    /// True if the operand is the transpose of the stored matrix.
    pub transposed: bool,
}

/// A product as the library sees it: out = first · second.
pub(super) struct ColumnMajorMatmul {
    pub first: StoredMatrix,
    pub second: StoredMatrix,
    pub out: StoredMatrix,
}

#[cfg(test)]
#[path = "matmul_tests.rs"]
mod tests;
