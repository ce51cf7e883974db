//! Masks of attention on the CPU: the elements of a mask that belong to a row of scores.

use crate::fused::{InputInfo, Memory};
use crate::{DType, Result};

/// Positions of the rows of a mask that broadcasts to the scores.
pub(super) struct MaskLayout {
    /// Offset of the mask of each head.
    head_offsets: Vec<usize>,
    /// Distance of the rows of two queries; 0 if all queries have one row.
    row_stride: usize,
}

impl MaskLayout {
    /// The layout for scores of shape `[lead.., queries, keys]`, if the CPU routines support the
    /// mask: bool or f32, one element per key, all other axes of the scores' length or 1.
    pub fn new(mask: InputInfo<'_>, lead: &[usize], queries: usize, keys: usize) -> Option<MaskLayout> {
        let supported = [DType::Bool, DType::F32].contains(&mask.dtype);
        let [mask_lead @ .., last] = mask.shape else { return None };
        let (mask_lead, rows) = match mask_lead {
            [mask_lead @ .., rows] => (mask_lead, *rows),
            [] => (mask_lead, 1),
        };
        let missing = lead.len().checked_sub(mask_lead.len())?;
        let broadcasts = mask_lead.iter().zip(&lead[missing..]).all(|(&mask, &length)| mask == length || mask == 1);
        if !supported || *last != keys || ![1, queries].contains(&rows) || !broadcasts {
            return None;
        }
        let row_stride = if rows == 1 { 0 } else { keys };
        let head_offsets = (0..lead.iter().product())
            .map(|head| {
                let (mut rest, mut stride, mut offset) = (head, rows * keys, 0);
                for (&mask, &length) in mask_lead.iter().zip(&lead[missing..]).rev() {
                    offset += if mask == 1 { 0 } else { rest % length * stride };
                    (rest, stride) = (rest / length, stride * mask);
                }
                offset
            })
            .collect();
        Some(MaskLayout { head_offsets, row_stride })
    }

    /// The rows of a head from a query on.
    pub fn rows<'a>(&self, elements: MaskElements<'a>, head: usize, query: usize) -> MaskRows<'a> {
        let start = self.head_offsets[head] + query * self.row_stride;
        let elements = match elements {
            MaskElements::Keep(keep) => MaskElements::Keep(&keep[start..]),
            MaskElements::Add(add) => MaskElements::Add(&add[start..]),
        };
        MaskRows { elements, stride: self.row_stride }
    }
}

/// Elements of a mask.
#[derive(Clone, Copy)]
pub(super) enum MaskElements<'a> {
    /// Nonzero for keys to attend to.
    Keep(&'a [u8]),
    /// Added to the scores.
    Add(&'a [f32]),
}

impl<'a> MaskElements<'a> {
    /// The elements of a bool or f32 input.
    pub fn of(mask: &'a Memory<'_>) -> Result<MaskElements<'a>> {
        Ok(if mask.dtype == DType::Bool { MaskElements::Keep(mask.bools()?) } else { MaskElements::Add(mask.slice()?) })
    }
}

/// The mask of consecutive rows of scores.
#[derive(Clone, Copy)]
pub(super) struct MaskRows<'a> {
    elements: MaskElements<'a>,
    stride: usize,
}

impl MaskRows<'_> {
    /// Masks the scaled scores of a row.
    #[inline(always)]
    pub fn apply(&self, row: usize, scores: &mut [f32]) {
        let start = row * self.stride;
        match self.elements {
            MaskElements::Keep(keep) => {
                for (score, &keep) in scores.iter_mut().zip(&keep[start..]) {
                    *score = if keep != 0 { *score } else { f32::NEG_INFINITY };
                }
            }
            MaskElements::Add(add) => {
                for (score, &add) in scores.iter_mut().zip(&add[start..]) {
                    *score += add;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_broadcasting() {
        let layout = |shape: &[usize]| MaskLayout::new(InputInfo { dtype: DType::Bool, shape }, &[2, 3], 4, 5);
        let found = |shape: &[usize]| layout(shape).map(|layout| (layout.head_offsets, layout.row_stride));
        assert_eq!(found(&[5]), Some((vec![0; 6], 0)));
        assert_eq!(found(&[1, 5]), Some((vec![0; 6], 0)));
        assert_eq!(found(&[4, 5]), Some((vec![0; 6], 5)));
        assert_eq!(found(&[3, 1, 5]), Some((vec![0, 5, 10, 0, 5, 10], 0)));
        assert_eq!(found(&[2, 1, 4, 5]), Some((vec![0, 0, 0, 20, 20, 20], 5)));
        assert_eq!(found(&[2, 3, 4, 5]), Some((vec![0, 20, 40, 60, 80, 100], 5)));
        for shape in [&[][..], &[1], &[4, 1], &[3, 5], &[2, 4, 5], &[1, 2, 3, 4, 5]] {
            assert!(layout(shape).is_none(), "{shape:?}");
        }
        assert!(MaskLayout::new(InputInfo { dtype: DType::F64, shape: &[5] }, &[2, 3], 4, 5).is_none());
    }
}
