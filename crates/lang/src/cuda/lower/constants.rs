//! Constants that CUDA and the C++ library define, and names that are not declared.

use bornite_ir::{Scalar, Value};

use super::lvalue::CudaOperand;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::lex::Symbol;
use crate::cuda::preprocess::undeclared_hint;
use crate::lower::Tree;

impl<'m> Lowering<'m> {
    /// Constants that CUDA and the C++ library define.
    pub(super) fn builtin_constant(&mut self, name: Symbol, span: SourceSpan) -> LowerResult<CudaOperand> {
        let float = |value: f64| Ok(CudaOperand::Tree(Tree::constant(Value::from_f64(Scalar::F32, value))));
        let double = |value: f64| Ok(CudaOperand::Tree(Tree::constant(Value::from_f64(Scalar::F64, value))));
        let int = |scalar, value| Ok(CudaOperand::Tree(Tree::int(scalar, value)));
        match self.text(name) {
            "warpSize" => int(Scalar::I32, 32),
            "NULL" => Ok(CudaOperand::Null(None)),
            "INFINITY" | "HUGE_VALF" | "CUDART_INF_F" => float(f64::INFINITY),
            "NAN" | "CUDART_NAN_F" => float(f64::NAN),
            "FLT_MAX" => float(f32::MAX as f64),
            "FLT_MIN" => float(f32::MIN_POSITIVE as f64),
            "FLT_EPSILON" => float(f32::EPSILON as f64),
            "DBL_MAX" => double(f64::MAX),
            "DBL_MIN" => double(f64::MIN_POSITIVE),
            "DBL_EPSILON" => double(f64::EPSILON),
            "M_PI" => double(std::f64::consts::PI),
            "M_E" => double(std::f64::consts::E),
            "M_SQRT2" => double(std::f64::consts::SQRT_2),
            "M_SQRT1_2" => double(std::f64::consts::FRAC_1_SQRT_2),
            "M_LN2" => double(std::f64::consts::LN_2),
            "CUDART_PI_F" => float(std::f32::consts::PI as f64),
            "INT_MAX" => int(Scalar::I32, i32::MAX as i64),
            "INT_MIN" => int(Scalar::I32, i32::MIN as i64),
            "UINT8_MAX" => int(Scalar::I32, u8::MAX as i64),
            "INT8_MAX" => int(Scalar::I32, i8::MAX as i64),
            "INT8_MIN" => int(Scalar::I32, i8::MIN as i64),
            "UINT16_MAX" | "USHRT_MAX" => int(Scalar::I32, u16::MAX as i64),
            "INT16_MAX" | "SHRT_MAX" => int(Scalar::I32, i16::MAX as i64),
            "INT16_MIN" | "SHRT_MIN" => int(Scalar::I32, i16::MIN as i64),
            "INT32_MAX" => int(Scalar::I32, i32::MAX as i64),
            "INT32_MIN" => int(Scalar::I32, i32::MIN as i64),
            "UINT32_MAX" => int(Scalar::U32, u32::MAX as i64),
            "INT64_MAX" | "LONG_MAX" => int(Scalar::I64, i64::MAX),
            "INT64_MIN" | "LONG_MIN" => int(Scalar::I64, i64::MIN),
            "UINT64_MAX" | "SIZE_MAX" | "ULONG_MAX" => int(Scalar::U64, -1),
            "RAND_MAX" => int(Scalar::I32, i32::MAX as i64),
            "HUGE_VAL" | "CUDART_INF" => double(f64::INFINITY),
            "CUDART_NAN" => double(f64::NAN),
            "M_PI_2" => double(std::f64::consts::FRAC_PI_2),
            "M_PI_4" => double(std::f64::consts::FRAC_PI_4),
            "M_1_PI" => double(std::f64::consts::FRAC_1_PI),
            "M_2_PI" => double(std::f64::consts::FRAC_2_PI),
            "M_2_SQRTPI" => double(std::f64::consts::FRAC_2_SQRT_PI),
            "M_LN10" => double(std::f64::consts::LN_10),
            "M_LOG2E" => double(std::f64::consts::LOG2_E),
            "M_LOG10E" => double(std::f64::consts::LOG10_E),
            "CUDART_PI" => double(std::f64::consts::PI),
            "UINT_MAX" => int(Scalar::U32, u32::MAX as i64),
            "LLONG_MAX" => int(Scalar::I64, i64::MAX),
            "LLONG_MIN" => int(Scalar::I64, i64::MIN),
            "ULLONG_MAX" => int(Scalar::U64, -1),
            "CHAR_BIT" => int(Scalar::I32, 8),
            text @ ("threadIdx" | "blockIdx" | "blockDim" | "gridDim") => {
                self.fail(span, format!("'{text}' without an axis"), "expected '.x', '.y' or '.z'", "")
            }
            text => {
                self.check_supported(name, span)?;
                if self.module.file.functions.iter().any(|function| function.name == name) {
                    return self.unsupported(span, format!("using function '{text}' as a value"), "call it directly");
                }
                let what = format!("'{text}' is not declared");
                let hint = match self.similar(text) {
                    Some(other) => format!("did you mean '{other}'?"),
                    None => undeclared_hint(&self.module.missing_headers, &self.module.source, span, ""),
                };
                self.fail(span, what, "unknown name", hint)
            }
        }
    }

    /// Returns a name in scope that differs in a letter or two.
    pub(super) fn similar(&self, text: &str) -> Option<&'m str> {
        let names = self.scope[self.base..].iter().map(|(name, _)| self.text(*name));
        names
            .filter(|name| *name != text && text.len() > 2 && distance(name, text) <= 1 + text.len() / 4)
            .min_by_key(|name| distance(name, text))
    }
}

/// Edit distance of two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
