//! Arrays as bytes in C layout, as a GPU reads them.

use crate::evaluate::{ArrayContents, EvalValue};
use crate::program::{ScalarType, StructDef, Ty};

/// Offsets and types of the components of an element, and its size.
fn layout(ty: &Ty, structs: &[StructDef]) -> (Vec<(usize, ScalarType)>, usize) {
    let mut offsets = vec![];
    let (mut at, mut widest) = (0usize, 1usize);
    let fields: Vec<Ty> = match ty {
        Ty::Struct(n) => structs[*n as usize].fields.iter().map(|(_, ty)| *ty).collect(),
        ty => vec![*ty],
    };
    for field in fields {
        // CUDA aligns vectors of two and four components to their size, up to 16 bytes.
        let each = field.element().map_or(4, |scalar| scalar.bits() as usize / 8);
        let align = match field {
            Ty::Vector(_, n @ (2 | 4)) => (each * n as usize).min(16),
            _ => each,
        };
        at = at.next_multiple_of(align);
        widest = widest.max(align);
        for scalar in field.scalars(structs) {
            offsets.push((at, scalar));
            at += each;
        }
    }
    (offsets, at.next_multiple_of(widest))
}

/// A scalar as bytes.
pub fn scalar_bytes(scalar: ScalarType, value: &EvalValue) -> Vec<u8> {
    match value {
        EvalValue::Float(interval) => match scalar {
            ScalarType::F64 => interval.mid.to_le_bytes().to_vec(),
            ScalarType::F16 => half::f16::from_f64(interval.mid).to_le_bytes().to_vec(),
            ScalarType::BF16 => half::bf16::from_f64(interval.mid).to_le_bytes().to_vec(),
            _ => (interval.mid as f32).to_le_bytes().to_vec(),
        },
        EvalValue::Int(value) => value.to_le_bytes()[..scalar.bits() as usize / 8].to_vec(),
        EvalValue::Bool(truth) => vec![(*truth == Some(true)) as u8],
        EvalValue::Composite(_) => vec![],
    }
}

/// An array as bytes.
pub fn pack(ty: &Ty, structs: &[StructDef], contents: &ArrayContents) -> Vec<u8> {
    let (offsets, size) = layout(ty, structs);
    let mut all = vec![0; contents.cells.len() / offsets.len() * size];
    for (n, cell) in contents.cells.iter().enumerate() {
        let (offset, scalar) = offsets[n % offsets.len()];
        let bytes = scalar_bytes(scalar, cell);
        let at = n / offsets.len() * size + offset;
        all[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    all
}

/// Components decoded from the bytes of an array: floats as intervals without error, integers by
/// their bits.
pub fn unpack(ty: &Ty, structs: &[StructDef], bytes: &[u8], like: &ArrayContents) -> Vec<EvalValue> {
    let (offsets, size) = layout(ty, structs);
    let word = |at: usize, count: usize| {
        let mut word = [0u8; 8];
        word[..count].copy_from_slice(&bytes[at..at + count]);
        u64::from_le_bytes(word)
    };
    (0..like.cells.len())
        .map(|n| {
            let (offset, scalar) = offsets[n % offsets.len()];
            let at = n / offsets.len() * size + offset;
            let bits = word(at, scalar.bits() as usize / 8);
            let float = |value: f64| EvalValue::Float(crate::evaluate::Interval::exact(value));
            match scalar {
                ScalarType::F64 => float(f64::from_bits(bits)),
                ScalarType::F32 => float(f32::from_bits(bits as u32) as f64),
                ScalarType::F16 => float(half::f16::from_bits(bits as u16).to_f64()),
                ScalarType::BF16 => float(half::bf16::from_bits(bits as u16).to_f64()),
                ScalarType::Bool => EvalValue::Bool(Some(bits != 0)),
                _ => EvalValue::Int(crate::evaluate::wrap_int(scalar, bits as i64)),
            }
        })
        .collect()
}
