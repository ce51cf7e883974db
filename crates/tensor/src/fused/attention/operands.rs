//! Named inputs and outputs of attention and of its backward op. Their order in the lists of the
//! ops is defined only here.

use super::mask::MaskElements;
use crate::Result;
use crate::fused::{Memory, MemoryMut, unpack_inputs, unpack_outputs, wrong_count};

/// Inputs of attention; a mask follows them in the list.
#[derive(Clone, Copy)]
pub(super) struct ForwardInputs<T> {
    pub query: T,
    pub key: T,
    pub value: T,
}

impl ForwardInputs<usize> {
    /// Positions in the list of inputs.
    pub const POSITIONS: Self = ForwardInputs { query: 0, key: 1, value: 2 };
}

impl<'a> ForwardInputs<&'a [f32]> {
    /// Elements of the inputs of the CPU routine, and of the mask if there is one.
    pub fn slices(inputs: &'a [Memory<'_>]) -> Result<(Self, Option<MaskElements<'a>>)> {
        let (inputs, mask) = inputs.split_at(inputs.len().min(3));
        let [query, key, value] = unpack_inputs("attention", inputs)?;
        let inputs = ForwardInputs { query: query.slice()?, key: key.slice()?, value: value.slice()? };
        Ok((inputs, mask.first().map(MaskElements::of).transpose()?))
    }
}

/// Outputs of attention.
pub(super) struct ForwardOutputs<T> {
    pub output: T,
    /// Log-sum-exp of each row, for the backward op.
    pub log_sum_exp: T,
}

impl ForwardOutputs<usize> {
    /// Positions in the list of outputs.
    pub const POSITIONS: Self = ForwardOutputs { output: 0, log_sum_exp: 1 };
}

impl<'a> ForwardOutputs<&'a mut [f32]> {
    /// Elements of the outputs of the CPU routine.
    pub fn slices(outputs: &'a mut [MemoryMut<'_>]) -> Result<Self> {
        let [output, log_sum_exp] = unpack_outputs("attention", outputs)?;
        Ok(ForwardOutputs { output: output.slice_mut()?, log_sum_exp: log_sum_exp.slice_mut()? })
    }
}

/// Inputs of the backward op of attention; a mask stands after `value` in the list.
#[derive(Clone, Copy)]
pub(super) struct BackwardInputs<T> {
    pub query: T,
    pub key: T,
    pub value: T,
    pub output: T,
    pub log_sum_exp: T,
    /// Gradient of `output`.
    pub output_gradient: T,
}

impl BackwardInputs<usize> {
    /// Positions in the list of inputs.
    pub const POSITIONS: Self =
        BackwardInputs { query: 0, key: 1, value: 2, output: 3, log_sum_exp: 4, output_gradient: 5 };
}

impl<'a, T> BackwardInputs<&'a T> {
    /// Names the inputs of a list; `None` if its length differs, as with a mask.
    pub fn from_list(inputs: &'a [T]) -> Option<Self> {
        let [query, key, value, output, log_sum_exp, output_gradient] = inputs else { return None };
        Some(BackwardInputs { query, key, value, output, log_sum_exp, output_gradient })
    }

    /// Names the inputs of a list with or without a mask; `None` if its length differs.
    pub fn with_mask(inputs: &'a [T]) -> Option<(Self, Option<&'a T>)> {
        let [query, key, value, mask @ .., output, log_sum_exp, output_gradient] = inputs else { return None };
        let inputs = BackwardInputs { query, key, value, output, log_sum_exp, output_gradient };
        (mask.len() <= 1).then_some((inputs, mask.first()))
    }
}

impl<'a> BackwardInputs<&'a [f32]> {
    /// Elements of the inputs of the CPU routine, and of the mask if there is one.
    pub fn slices(inputs: &'a [Memory<'_>]) -> Result<(Self, Option<MaskElements<'a>>)> {
        let (BackwardInputs { query, key, value, output, log_sum_exp, output_gradient }, mask) =
            BackwardInputs::with_mask(inputs)
                .ok_or_else(|| wrong_count("attention_backward", "inputs", inputs.len(), 6))?;
        let inputs = BackwardInputs {
            query: query.slice()?,
            key: key.slice()?,
            value: value.slice()?,
            output: output.slice()?,
            log_sum_exp: log_sum_exp.slice()?,
            output_gradient: output_gradient.slice()?,
        };
        Ok((inputs, mask.map(MaskElements::of).transpose()?))
    }
}

/// Outputs of the backward op: the gradients of the inputs of attention.
pub(super) struct BackwardOutputs<T> {
    pub query: T,
    pub key: T,
    pub value: T,
}

impl BackwardOutputs<usize> {
    /// Positions in the list of outputs.
    pub const POSITIONS: Self = BackwardOutputs { query: 0, key: 1, value: 2 };
}

impl<'a> BackwardOutputs<&'a mut [f32]> {
    /// Elements of the outputs of the CPU routine.
    pub fn slices(outputs: &'a mut [MemoryMut<'_>]) -> Result<Self> {
        let [query, key, value] = unpack_outputs("attention_backward", outputs)?;
        Ok(BackwardOutputs { query: query.slice_mut()?, key: key.slice_mut()?, value: value.slice_mut()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_match_the_lists() {
        let BackwardInputs { query, key, value, output, log_sum_exp, output_gradient } = BackwardInputs::POSITIONS;
        let list = [0, 1, 2, 3, 4, 5];
        assert_eq!([query, key, value, output, log_sum_exp, output_gradient], list);
        let named = BackwardInputs::from_list(&list).unwrap();
        assert_eq!((*named.output, *named.log_sum_exp, *named.output_gradient), (output, log_sum_exp, output_gradient));
        assert!(BackwardInputs::from_list(&list[..5]).is_none());
        let masked = [0, 1, 2, 9, 3, 4, 5];
        let (named, mask) = BackwardInputs::with_mask(&masked).unwrap();
        assert_eq!(
            (*named.value, *named.output, *named.output_gradient, mask),
            (value, output, output_gradient, Some(&9))
        );
        assert!(BackwardInputs::from_list(&masked).is_none() && BackwardInputs::with_mask(&list[..5]).is_none());
    }

    #[test]
    fn wrong_number_of_inputs_is_an_error() {
        let message = ForwardInputs::slices(&[]).map(|_| ()).unwrap_err().to_string();
        let expected = "attention: the number of inputs passed to the routine is 0; expected 3";
        assert!(message.starts_with(expected), "{message}");
        let message = BackwardOutputs::slices(&mut []).map(|_| ()).unwrap_err().to_string();
        let expected = "attention_backward: the number of outputs passed to the routine is 0; expected 3";
        assert!(message.starts_with(expected), "{message}");
    }
}
