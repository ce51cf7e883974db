//! What a product is, in row-major words, and the same in the library's column-major ones.

use std::fmt;

use cudarc::cublaslt::sys::{cublasComputeType_t, cublasLtEpilogue_t, cudaDataType_t};

use super::library::invalid_value;
use crate::Result;

/// A type of elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElementType {
    /// IEEE half.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Single.
    F32,
    /// Double.
    F64,
}

impl ElementType {
    /// Its size.
    pub fn bytes(self) -> usize {
        match self {
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::F32 => 4,
            ElementType::F64 => 8,
        }
    }

    /// Its name in messages.
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

/// In which arithmetic products are formed and summed.
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
    /// The exact one for an input type.
    pub fn of(input: ElementType) -> ComputeType {
        if input == ElementType::F64 { ComputeType::F64 } else { ComputeType::F32 }
    }

    /// The type of alpha and beta.
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

/// What happens to the product before it is stored. A bias has `n` elements of the output's type, one a column of D; an
/// auxiliary matrix is `m × n` of the output's type, row after row without gaps, and `n` a multiple of 8. GELU is the one
/// by tanh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// A bias is added.
    Bias,
    /// A bias is added, then GELU.
    BiasGelu,
    /// As `BiasGelu`; what GELU was given is stored in the auxiliary matrix.
    BiasGeluAux,
    /// Times the slope of GELU at the auxiliary matrix.
    Dgelu,
    /// As `Dgelu`; the sums of D's columns are stored in the bias.
    DgeluBiasGradient,
    /// The sums of B's columns are stored in the bias: the bias gradient beside a weight gradient `xᵀ·dy`.
    BiasGradient,
}

impl Epilogue {
    /// Whether it reads or writes a bias.
    pub fn has_bias(self) -> bool {
        !matches!(self, Epilogue::None | Epilogue::Dgelu)
    }

    /// Whether it reads or writes an auxiliary matrix.
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
            // Of the library's first operand, which is our B.
            Epilogue::BiasGradient => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADA,
        }
    }
}

/// How a matrix lies in memory. Strides are in elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixLayout {
    /// False: row after row. True: column after column.
    pub transposed: bool,
    /// From one row (if transposed: column) to the next.
    pub stride: u64,
    /// From one matrix of a batch to the next; 0 where all are the same.
    pub batch_stride: u64,
    /// What addresses are a multiple of, in bytes: a power of two, at most 256. Low ones leave out the fastest kernels.
    pub alignment: u32,
}

impl MatrixLayout {
    /// Rows one after the other at this stride, in one matrix, at an address of 256 bytes' alignment.
    pub fn rows(stride: u64) -> MatrixLayout {
        MatrixLayout { transposed: false, stride, batch_stride: 0, alignment: 256 }
    }

    /// As [`MatrixLayout::rows`], column by column.
    pub fn columns(stride: u64) -> MatrixLayout {
        MatrixLayout { transposed: true, ..MatrixLayout::rows(stride) }
    }
}

/// A product `D = alpha · A·B + beta · C`, once or for each matrix of a batch. C lies as D does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matmul {
    /// Rows of A and D.
    pub m: u64,
    /// Columns of B and D.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// How many products.
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
    /// What is done before D is stored.
    pub epilogue: Epilogue,
}

impl Matmul {
    /// One product of matrices without gaps, in exact arithmetic.
    pub fn new(m: u64, n: u64, k: u64, element: ElementType) -> Matmul {
        let (a, b, d) = (MatrixLayout::rows(k), MatrixLayout::rows(n), MatrixLayout::rows(n));
        let (compute, epilogue) = (ComputeType::of(element), Epilogue::None);
        Matmul { m, n, k, batch: 1, a, b, d, input: element, output: element, compute, epilogue }
    }

    /// Refuses what the library would not compute, or would compute out of bounds.
    pub(super) fn validate(&self) -> Result<()> {
        let Matmul { m, n, k, batch, a, b, d, input, output, compute, epilogue } = *self;
        if [m, n, k, batch].contains(&0) || batch > i32::MAX as u64 {
            return Err(invalid_value(format!("{batch} products of {m} x {k} by {k} x {n}: none of these may be 0")));
        }
        for (name, operand, rows, columns) in [("A", a, m, k), ("B", b, k, n), ("D", d, m, n)] {
            let width = if operand.transposed { rows } else { columns };
            if operand.stride < width || operand.stride > i64::MAX as u64 || operand.batch_stride > i64::MAX as u64 {
                let stride = operand.stride;
                return Err(invalid_value(format!(
                    "{name} has lines of {width} elements, which do not fit a stride of {stride}"
                )));
            }
            if !operand.alignment.is_power_of_two() || operand.alignment > 256 {
                return Err(invalid_value(format!("{name} cannot be aligned to {} bytes", operand.alignment)));
            }
        }
        if d.transposed || batch > 1 && d.batch_stride < self.m.saturating_mul(d.stride) {
            return Err(invalid_value("D must be written row after row, each of a batch in a place of its own".into()));
        }
        let outputs: &[ElementType] = if input.bytes() == 2 { &[input, ElementType::F32] } else { &[input] };
        let computes: &[ComputeType] = match input {
            ElementType::F64 => &[ComputeType::F64],
            ElementType::F32 => &[ComputeType::F32, ComputeType::Tf32],
            ElementType::F16 | ElementType::Bf16 => &[ComputeType::F32],
        };
        if !outputs.contains(&output) || !computes.contains(&compute) {
            let (input, output) = (input.name(), output.name());
            return Err(invalid_value(format!("there is no product from {input} to {output} in {compute:?}")));
        }
        if epilogue.has_aux() && !n.is_multiple_of(8) {
            return Err(invalid_value(format!("an auxiliary matrix has columns in multiples of 8, here {n}")));
        }
        Ok(())
    }

    /// Alignments of A, B and D, in bytes.
    pub(super) fn alignments(&self) -> [u32; 3] {
        [self.a, self.b, self.d].map(|operand| operand.alignment)
    }

    /// Refuses an algorithm for operands that are aligned to more bytes than these.
    pub(super) fn check_alignments(&self, alignments: [u32; 3]) -> Result<()> {
        let ours = self.alignments();
        if ours.iter().zip(&alignments).all(|(ours, needed)| ours >= needed) {
            return Ok(());
        }
        Err(invalid_value(format!(
            "the algorithm was found for operands aligned to {alignments:?} bytes, here {ours:?}"
        )))
    }

    /// Bytes from the first element of A, B and D to behind the last, if memory could hold them.
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

    /// The same product in the library's words: see the notes on rows and columns in `mod.rs`.
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
            write!(f, "{batch} of ")?;
        }
        let mark = |operand: &MatrixLayout| if operand.transposed { " (by columns)" } else { "" };
        write!(f, "{m}x{k}{} by {k}x{n}{}", mark(&self.a), mark(&self.b))?;
        write!(f, ", strides {}, {} and {}", self.a.stride, self.b.stride, self.d.stride)?;
        if *batch > 1 {
            write!(f, ", of batches {}, {} and {}", self.a.batch_stride, self.b.batch_stride, self.d.batch_stride)?;
        }
        if self.compute == ComputeType::Tf32 {
            write!(f, ", in TF32")?;
        }
        Ok(())
    }
}

/// A matrix as the library sees it: column after column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredMatrix {
    pub rows: u64,
    pub columns: u64,
    pub ld: u64,
    pub batch_stride: u64,
    /// Whether the operand is the transpose of what is stored.
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
