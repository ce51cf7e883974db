//! Sizes of a convolution, and the elements that each pass over it reads and writes.

use std::ops::Range;

/// Spatial axes: depth, height, width. Signals and images have leading axes of length 1.
pub(crate) type Spatial = [usize; 3];

/// Sizes and options of a convolution of images `[batch, groups · channels, input…]` with a kernel
/// `[groups · out_channels, channels, kernel…]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// Number of spatial axes: 1, 2 or 3.
    pub rank: usize,
    pub batch: usize,
    pub groups: usize,
    /// Input channels per group.
    pub channels: usize,
    /// Output channels per group.
    pub out_channels: usize,
    pub input: Spatial,
    pub kernel: Spatial,
    pub output: Spatial,
    pub stride: Spatial,
    pub dilation: Spatial,
    /// Zeros before the first element of each axis.
    pub padding: Spatial,
}

/// Extends lengths of 1 to 3 axes to three axes by leading axes of length `fill`.
pub(crate) fn spatial(lengths: &[usize], fill: usize) -> Spatial {
    let mut all = [fill; 3];
    let first = 3usize.saturating_sub(lengths.len());
    all[first..].iter_mut().zip(lengths).for_each(|(to, length)| *to = *length);
    all
}

impl Geometry {
    fn shape(&self, batch: usize, channels: usize, spatial: Spatial) -> Vec<usize> {
        [&[batch, channels], &spatial[3 - self.rank..]].concat()
    }

    /// Shape of the image that is convolved.
    #[cfg(test)]
    pub fn input_shape(&self) -> Vec<usize> {
        self.shape(self.batch, self.groups * self.channels, self.input)
    }

    /// Shape of the kernel.
    pub fn weight_shape(&self) -> Vec<usize> {
        self.shape(self.groups * self.out_channels, self.channels, self.kernel)
    }

    /// Shape of the result.
    pub fn output_shape(&self) -> Vec<usize> {
        self.shape(self.batch, self.groups * self.out_channels, self.output)
    }

    /// Multiplications of a convolution or of one of its gradients.
    pub fn multiplications(&self) -> usize {
        let sizes = [self.batch, self.groups, self.out_channels, self.channels].into_iter();
        sizes.chain(self.kernel).chain(self.output).fold(1, |product: usize, size| product.saturating_mul(size))
    }

    /// The pass that computes the output from the input.
    pub(super) fn forward(&self) -> Pass {
        let taps = |axis: usize| {
            let tap = |k: usize| (k, (k * self.dilation[axis]) as isize - self.padding[axis] as isize);
            vec![(0..self.kernel[axis]).map(tap).collect()]
        };
        Pass {
            source: self.input,
            source_step: self.stride,
            target: self.output,
            target_step: [1; 3],
            taps: [taps(0), taps(1), taps(2)],
        }
    }

    /// The pass that computes the gradient of the input from the gradient of the output. With a
    /// stride s, elements of the input that are s apart form a phase: each phase reads its own
    /// elements of the kernel, at stride 1.
    pub(super) fn input_gradient(&self) -> Pass {
        let phase = |axis: usize, phase: usize| {
            let stride = self.stride[axis] as isize;
            let offset = |k: usize| (phase + self.padding[axis]) as isize - (k * self.dilation[axis]) as isize;
            let reached = (0..self.kernel[axis]).filter(|&k| offset(k).rem_euclid(stride) == 0);
            reached.map(|k| (k, offset(k).div_euclid(stride))).collect()
        };
        let taps = |axis: usize| (0..self.stride[axis]).map(|n| phase(axis, n)).collect();
        Pass {
            source: self.output,
            source_step: [1; 3],
            target: self.input,
            target_step: self.stride,
            taps: [taps(0), taps(1), taps(2)],
        }
    }
}

/// Element of the kernel along an axis, and the offset of the source element that it multiplies.
type AxisTap = (usize, isize);

/// A pass over an image: target element `t · target_step + phase` is a sum over the taps of the
/// phase, of source elements `t · source_step + offset`. Source elements outside the image are 0.
pub(super) struct Pass {
    pub source: Spatial,
    pub source_step: Spatial,
    pub target: Spatial,
    pub target_step: Spatial,
    /// Taps by axis and phase.
    taps: [Vec<Vec<AxisTap>>; 3],
}

/// Element of the kernel, and the source offset along each axis.
#[derive(Clone, Copy)]
pub(super) struct Tap {
    /// Row-major index in the kernel.
    pub index: usize,
    pub offset: [isize; 3],
}

/// One of the sets of target elements that read the same elements of the kernel.
pub(super) struct Phase {
    /// First target element along each axis.
    pub start: Spatial,
    /// Number of target elements along each axis.
    pub positions: Spatial,
    pub taps: Vec<Tap>,
}

impl Pass {
    /// All phases; `kernel` holds the lengths of the kernel.
    pub fn phases(&self, kernel: Spatial) -> Vec<Phase> {
        let mut phases = vec![];
        for z in 0..self.target_step[0] {
            for y in 0..self.target_step[1] {
                for x in 0..self.target_step[2] {
                    phases.push(self.phase([z, y, x], kernel));
                }
            }
        }
        phases
    }

    fn phase(&self, start: Spatial, kernel: Spatial) -> Phase {
        let positions =
            [0, 1, 2].map(|axis| self.target[axis].saturating_sub(start[axis]).div_ceil(self.target_step[axis]));
        let [depth, height, width] = [0, 1, 2].map(|axis| &self.taps[axis][start[axis]]);
        let mut taps = vec![];
        for &(kz, z) in depth {
            for &(ky, y) in height {
                for &(kx, x) in width {
                    taps.push(Tap { index: (kz * kernel[1] + ky) * kernel[2] + kx, offset: [z, y, x] });
                }
            }
        }
        Phase { start, positions, taps }
    }

    /// Source element along an axis that a position reads; `None` outside the image.
    pub fn source_index(&self, axis: usize, position: usize, offset: isize) -> Option<usize> {
        let at = (position * self.source_step[axis]) as isize + offset;
        usize::try_from(at).ok().filter(|&at| at < self.source[axis])
    }

    /// Positions along the width, of `count`, whose source element is inside the image.
    pub fn inside(&self, count: usize, offset: isize) -> Range<usize> {
        let (step, length) = (self.source_step[2] as isize, self.source[2] as isize);
        // Ceiling of a quotient whose divisor is positive.
        let ceil = |a: isize| -((-a).div_euclid(step));
        let start = ceil(-offset).clamp(0, count as isize);
        let end = ceil(length - offset).clamp(start, count as isize);
        start as usize..end as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pairs (source, kernel, target) of both passes along the width are those of the
    /// definition: source = target · stride + kernel · dilation - padding.
    #[test]
    fn passes_pair_the_elements_of_the_definition() {
        for (input, kernel, stride, dilation, padding) in
            [(7, 3, 1, 1, 0), (7, 3, 2, 1, 1), (9, 2, 3, 2, 2), (5, 5, 4, 1, 3), (4, 1, 3, 1, 0), (6, 3, 2, 3, 4)]
        {
            let output = (input + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
            let geometry = Geometry {
                rank: 1,
                batch: 1,
                groups: 1,
                channels: 1,
                out_channels: 1,
                input: spatial(&[input], 1),
                kernel: spatial(&[kernel], 1),
                output: spatial(&[output], 1),
                stride: spatial(&[stride], 1),
                dilation: spatial(&[dilation], 1),
                padding: spatial(&[padding], 0),
            };
            let mut expected = vec![];
            for out in 0..output {
                for k in 0..kernel {
                    if let Some(at) = (out * stride + k * dilation).checked_sub(padding).filter(|&at| at < input) {
                        expected.push((at, k, out));
                    }
                }
            }
            expected.sort();
            let pairs = |pass: &Pass| {
                let mut found = vec![];
                for phase in pass.phases(geometry.kernel) {
                    for tap in &phase.taps {
                        let inside = pass.inside(phase.positions[2], tap.offset[2]);
                        for position in 0..phase.positions[2] {
                            let source = pass.source_index(2, position, tap.offset[2]);
                            assert_eq!(source.is_some(), inside.contains(&position));
                            let target = position * pass.target_step[2] + phase.start[2];
                            found.extend(source.map(|source| (source, tap.index, target)));
                        }
                    }
                }
                found
            };
            let mut forward = pairs(&geometry.forward());
            forward.sort();
            assert_eq!(forward, expected);
            let swapped = pairs(&geometry.input_gradient()).into_iter().map(|(source, k, target)| (target, k, source));
            let mut gradient: Vec<_> = swapped.collect();
            gradient.sort();
            assert_eq!(gradient, expected);
        }
    }
}
