//! Max and average pooling.

use bornite::{Tensor, error::SourceLocation};

use super::conv::AsImage;
use crate::module::{Forward, Module, Visitor, observed};

/// Defines a pooling layer over images and one over series.
macro_rules! pools {
    ($($(#[$doc:meta])* $images:ident, $(#[$series_doc:meta])* $series:ident = $method:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $images {
            kernel: usize,
            stride: usize,
        }

        impl $images {
            /// Creates the layer for square windows, which do not overlap.
            pub fn new(kernel: usize) -> $images {
                $images { kernel, stride: kernel }
            }

            /// Sets the distance between windows.
            pub fn stride(self, stride: usize) -> $images {
                $images { stride, ..self }
            }
        }

        impl Module for $images {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }

        impl Forward for $images {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let y = x.$method([self.kernel, self.kernel], (self.stride, self.stride));
                observed(self, stringify!($images), &y, |elements| elements * (self.kernel * self.kernel) as u64)
            }
        }

        $(#[$series_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $series {
            kernel: usize,
            stride: usize,
        }

        impl $series {
            /// Creates the layer for windows that do not overlap.
            pub fn new(kernel: usize) -> $series {
                $series { kernel, stride: kernel }
            }

            /// Sets the distance between windows.
            pub fn stride(self, stride: usize) -> $series {
                $series { stride, ..self }
            }
        }

        impl Module for $series {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }

        impl Forward for $series {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let y = SourceLocation::here().in_scope(|| match x.as_image(stringify!($series)) {
                    Ok(x) => x.$method([1, self.kernel], (1, self.stride)).squeeze(2),
                    Err(failed) => failed,
                });
                observed(self, stringify!($series), &y, |elements| elements * self.kernel as u64)
            }
        }
    )+ };
}

pools! {
    /// Max pooling of images.
    ///
    /// Input `[n, channels, height, width]`, output `[n, channels, height', width']`.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// use bornite_nn::{Forward, layers::MaxPool2d};
    /// # fn main() -> bornite_nn::Result<()> {
    /// let images = Tensor::ones(&[1, 2, 8, 6], DType::F32, Device::cpu());
    /// assert_eq!(MaxPool2d::new(2).forward(&images).shape()?, [1, 2, 4, 3]);
    /// # Ok(())
    /// # }
    /// ```
    MaxPool2d,
    /// Max pooling of series.
    ///
    /// Input `[n, channels, length]`, output `[n, channels, length']`.
    MaxPool1d = max_pool2d;
    /// Average pooling of images.
    ///
    /// Input `[n, channels, height, width]`, output `[n, channels, height', width']`.
    AvgPool2d,
    /// Average pooling of series.
    ///
    /// Input `[n, channels, length]`, output `[n, channels, length']`.
    AvgPool1d = avg_pool2d;
}
