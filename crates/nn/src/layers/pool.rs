//! Pooling: of windows, to a size, over all positions; upsampling.

use bornite::{Tensor, error::SourceLocation, ops::UpsampleMode};

use crate::module::{Forward, Module, Visitor, observed};

/// Defines a pooling layer over images and one over series.
macro_rules! pools {
    ($($(#[$doc:meta])* $images:ident, $(#[$series_doc:meta])* $series:ident = $method:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $images {
            kernel: usize,
            stride: usize,
            padding: usize,
        }

        impl $images {
            /// Creates the layer for square windows, which do not overlap.
            pub fn new(kernel: usize) -> $images {
                $images { kernel, stride: kernel, padding: 0 }
            }

            /// Sets the distance between windows.
            pub fn stride(self, stride: usize) -> $images {
                $images { stride, ..self }
            }

            /// Sets the padding on all four sides, at most half the kernel.
            pub fn padding(self, padding: usize) -> $images {
                $images { padding, ..self }
            }
        }

        impl Module for $images {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }

        impl Forward for $images {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let padding = (self.padding, self.padding);
                let y = x.$method([self.kernel, self.kernel], (self.stride, self.stride), padding);
                observed(self, stringify!($images), &y, |elements| elements * (self.kernel * self.kernel) as u64)
            }
        }

        $(#[$series_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $series {
            kernel: usize,
            stride: usize,
            padding: usize,
        }

        impl $series {
            /// Creates the layer for windows that do not overlap.
            pub fn new(kernel: usize) -> $series {
                $series { kernel, stride: kernel, padding: 0 }
            }

            /// Sets the distance between windows.
            pub fn stride(self, stride: usize) -> $series {
                $series { stride, ..self }
            }

            /// Sets the padding at both ends, at most half the kernel.
            pub fn padding(self, padding: usize) -> $series {
                $series { padding, ..self }
            }
        }

        impl Module for $series {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }

        impl Forward for $series {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let y = SourceLocation::here().in_scope(|| match as_image(x, stringify!($series)) {
                    Ok(x) => x.$method([1, self.kernel], (1, self.stride), (0, self.padding)).squeeze(2),
                    Err(failed) => failed,
                });
                observed(self, stringify!($series), &y, |elements| elements * self.kernel as u64)
            }
        }
    )+ };
}

pools! {
    /// Max pooling of images. Padding is never the maximum.
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
    MaxPool1d = max_pool2d_padded;
    /// Average pooling of images. Padding counts as zeros.
    ///
    /// Input `[n, channels, height, width]`, output `[n, channels, height', width']`.
    AvgPool2d,
    /// Average pooling of series.
    ///
    /// Input `[n, channels, length]`, output `[n, channels, length']`.
    AvgPool1d = avg_pool2d_padded;
}

/// `[n, channels, 1, length]` from `[n, channels, length]`.
fn as_image(x: &Tensor, layer: &'static str) -> Result<Tensor, Tensor> {
    match x.shape() {
        Ok([_, _, _]) => Ok(x.unsqueeze(2)),
        Ok(shape) => Err(Tensor::failed(layer, format!("expected [n, channels, length], found {shape:?}"))),
        Err(_) => Err(x.clone()),
    }
}

/// Implements a pooling layer whose windows depend on the size of the input.
macro_rules! adaptive_pool {
    ($name:ident, $method:ident($($size:ident)?)) => {
        impl Module for $name {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let elements = x.shape().map_or(0, |shape| shape.iter().map(|&length| length as u64).product());
                observed(self, stringify!($name), &x.$method($(self.$size)?), |_| elements)
            }
        }
    };
}

/// Average pooling to an image of a size.
///
/// Input `[n, channels, height, width]`, output `[n, channels, size…]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, layers::AdaptiveAvgPool2d};
/// # fn main() -> bornite_nn::Result<()> {
/// let images = Tensor::ones(&[1, 2, 9, 7], DType::F32, Device::cpu());
/// assert_eq!(AdaptiveAvgPool2d { size: [3, 2] }.forward(&images).shape()?, [1, 2, 3, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    pub size: [usize; 2],
}

adaptive_pool!(AdaptiveAvgPool2d, adaptive_avg_pool2d(size));

/// Max pooling to an image of a size.
///
/// Input `[n, channels, height, width]`, output `[n, channels, size…]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveMaxPool2d {
    /// Height and width of the output.
    pub size: [usize; 2],
}

adaptive_pool!(AdaptiveMaxPool2d, adaptive_max_pool2d(size));

/// Mean over all positions.
///
/// Input `[n, channels, …]`, output `[n, channels]`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GlobalAvgPool;

adaptive_pool!(GlobalAvgPool, global_avg_pool());

/// Maximum over all positions.
///
/// Input `[n, channels, …]`, output `[n, channels]`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GlobalMaxPool;

adaptive_pool!(GlobalMaxPool, global_max_pool());

/// Enlarges images by a factor.
///
/// Input `[n, channels, height, width]`, output `[n, channels, factor · height, factor · width]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, layers::Upsample};
/// # fn main() -> bornite_nn::Result<()> {
/// let images = Tensor::ones(&[1, 2, 4, 3], DType::F32, Device::cpu());
/// assert_eq!(Upsample::nearest(2).forward(&images).shape()?, [1, 2, 8, 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upsample {
    factor: usize,
    mode: UpsampleMode,
}

impl Upsample {
    /// Repeats each pixel.
    pub fn nearest(factor: usize) -> Upsample {
        Upsample { factor, mode: UpsampleMode::Nearest }
    }

    /// Interpolates linearly along both axes.
    pub fn bilinear(factor: usize) -> Upsample {
        Upsample { factor, mode: UpsampleMode::Bilinear { align_corners: false } }
    }
}

impl Module for Upsample {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl Forward for Upsample {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let enlarged = |length: usize| length.saturating_mul(self.factor);
        let y = match x.shape() {
            Ok(&[_, _, height, width]) => x.upsample([enlarged(height), enlarged(width)], self.mode),
            // The operation reports the shape.
            _ => x.upsample([1, 1], self.mode),
        };
        observed(self, "Upsample", &y, |elements| elements)
    }
}
