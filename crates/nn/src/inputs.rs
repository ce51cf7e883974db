//! Named inputs of traced functions.
//!
//! A traced function takes a list of tensors. Each struct here defines the order of one such list,
//! for the caller and for the function; the same struct of `Spec`s describes a call without running
//! it.

use bornite::{Error, Result, Tensor};

/// Defines structs with one field per input, in the order of the function's input list. The string
/// is the function's name in error messages.
macro_rules! input_structs {
    ($($(#[$doc:meta])* $name:ident($function:literal) { $($(#[$field_doc:meta])* $field:ident,)+ })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name<T> {
            $($(#[$field_doc])* pub $field: T,)+
        }

        impl<T> $name<T> {
            /// Converts to the input list of the traced function.
            pub fn into_list(self) -> Vec<T> {
                vec![$(self.$field),+]
            }
        }

        impl<'a, T> $name<&'a T> {
            /// Unpacks the input list of the traced function.
            pub fn from_list(list: &'a [T]) -> Result<Self> {
                match list {
                    [$($field),+] => Ok($name { $($field),+ }),
                    _ => {
                        let (found, expected) = (list.len(), stringify!($($field),+));
                        Err(Error::op($function, format!("the number of inputs is {found}; expected {expected}")))
                    }
                }
            }
        }
    )+ };
}

input_structs! {
    /// Inputs of the loss of one batch.
    LossInputs("loss") {
        /// Token ids, `[batch, tokens]`.
        tokens,
        /// The token after each of `tokens`, in the same shape.
        targets,
    }

    /// Inputs of the gradients of one batch, after the tensors of the batch.
    GradientInputs("gradients") {
        /// Factor of the loss, a scalar.
        loss_scale,
        /// Seed and offset of dropout, two u64.
        random_state,
    }

    /// Inputs of an optimizer step from one batch, after the tensors of the batch.
    StepInputs("train_step") {
        /// [`StepScalars`](crate::optimizer::StepScalars), packed into one tensor.
        scalars,
        /// Factor of the loss, a scalar.
        loss_scale,
        /// Seed and offset of dropout, two u64.
        random_state,
    }

    /// Inputs of an optimizer step from accumulated gradients.
    ApplyInputs("apply_gradients") {
        /// [`StepScalars`](crate::optimizer::StepScalars), packed into one tensor.
        scalars,
        /// Factor of the loss of each batch, a scalar.
        loss_scale,
    }

    /// Inputs of an optimizer step of a part of the parameters.
    ApplyPartInputs("apply_part") {
        /// Sums of the part's gradients over the batches of all ranks.
        gradients,
        /// Norm of all gradients, after the division by scale and number of batches.
        grad_norm,
        /// [`StepScalars`](crate::optimizer::StepScalars), packed into one tensor.
        scalars,
        /// Factor of the loss of each batch, a scalar.
        loss_scale,
    }

    /// Inputs of a decoding step with a key/value cache.
    AdvanceInputs("advance") {
        /// Token ids, `[batch, tokens]`.
        tokens,
        /// Position of the first of `tokens` in the text, a scalar.
        position,
        /// Number of `tokens` per row that are not padding, a scalar.
        count,
    }
}

/// Unpacks the `N` outputs of a traced function.
pub(crate) fn unpack_outputs<const N: usize>(function: &'static str, outputs: Vec<Tensor>) -> Result<[Tensor; N]> {
    outputs.try_into().map_err(|outputs: Vec<Tensor>| {
        Error::op(function, format!("the number of outputs is {}; expected {N}", outputs.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_keep_the_order_of_their_list() {
        let inputs = StepInputs { scalars: 1, loss_scale: 2, random_state: 3 };
        let list = inputs.into_list();
        assert_eq!(list, [1, 2, 3]);
        let StepInputs { scalars, loss_scale, random_state } = StepInputs::from_list(&list).unwrap();
        assert_eq!([scalars, loss_scale, random_state], [&1, &2, &3]);
    }

    #[test]
    fn a_wrong_number_of_inputs_or_outputs_is_an_error() {
        let message = LossInputs::from_list(&[1]).map(|_| ()).unwrap_err().to_string();
        assert!(message.starts_with("loss: the number of inputs is 1; expected tokens, targets"), "{message}");
        let message = unpack_outputs::<1>("loss", vec![]).unwrap_err().to_string();
        assert!(message.starts_with("loss: the number of outputs is 0; expected 1"), "{message}");
    }
}
