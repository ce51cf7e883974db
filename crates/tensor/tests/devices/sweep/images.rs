//! Layers of images over the ops: transposed and one-dimensional convolution, adaptive and global
//! pooling, group norm, resizing.

use bornite::DType;
use bornite::ops::{Conv1dOptions, ConvTranspose2dOptions, UpsampleMode};

use super::array::{Array, Bound, DTYPES, Num, limits};
use super::layouts::Layout;
use super::{Fill, Sweep};

const LAYOUTS: [Layout; 6] =
    [Layout::Plain, Layout::Transposed, Layout::Stepped, Layout::Reversed, Layout::RepeatedColumns, Layout::Joined];

/// Images, and the size that they are pooled or resized to.
const IMAGES: [([usize; 4], [usize; 2]); 5] = [
    ([1, 2, 4, 6], [2, 3]),
    ([2, 4, 5, 3], [3, 2]),
    ([2, 2, 1, 7], [1, 4]),
    ([1, 6, 3, 3], [5, 6]),
    ([0, 2, 2, 2], [4, 1]),
];

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate() {
        for (n, (image, layout)) in IMAGES.iter().flat_map(|image| LAYOUTS.map(|layout| (image, layout))).enumerate() {
            if !s.takes(n + d, 1) {
                continue;
            }
            let (shape, size) = (&image.0, image.1);
            nearest(s, n, dtype, shape, size, layout);
            if dtype.is_float() {
                pools(s, n, dtype, shape, size, layout);
                global_pools(s, n, dtype, shape, layout);
                bilinear(s, n, dtype, shape, size, layout);
                group_norm(s, n, dtype, shape, layout);
                conv_transpose2d(s, n, dtype, shape, layout);
                conv1d(s, n, dtype, shape, layout);
            }
        }
    }
}

fn sized(shape: &[usize; 4], size: [usize; 2]) -> [usize; 4] {
    [shape[0], shape[1], size[0], size[1]]
}

/// Builds the expected array from values with their magnitudes, and bounds of a few roundings.
fn approximate(dtype: DType, shape: &[usize], mut f: impl FnMut(&[usize]) -> (f64, f64)) -> (Array, Bound) {
    let mut bounds = vec![];
    let expected = Array::build(dtype, shape, |index| {
        let (value, magnitude) = f(index);
        bounds.push(8.0 * limits(dtype).0 * (value.abs() + magnitude));
        Num::Real(value)
    });
    (expected, Bound::Each(bounds))
}

fn nearest(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], size: [usize; 2], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let expected = Array::build(dtype, &sized(shape, size), |i| {
        a.at(&[i[0], i[1], i[2] * shape[2] / size[0], i[3] * shape[3] / size[1]])
    });
    s.check(
        &format!("upsample nearest {dtype}"),
        n,
        &x.upsample(size, UpsampleMode::Nearest),
        &expected,
        &Bound::Exact,
    );
}

fn pools(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], size: [usize; 2], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let window = |i: &[usize]| -> Vec<f64> {
        let range = |axis: usize| {
            let (len, out) = (shape[axis], size[axis - 2]);
            i[axis] * len / out..((i[axis] + 1) * len).div_ceil(out)
        };
        range(2)
            .flat_map(|row| range(3).map(move |column| (row, column)))
            .map(|(r, c)| a.at(&[i[0], i[1], r, c]).real())
            .collect()
    };
    let (expected, bound) = approximate(dtype, &sized(shape, size), |i| {
        let window = window(i);
        (window.iter().sum::<f64>() / window.len() as f64, 4.0)
    });
    s.check(&format!("adaptive_avg_pool2d {dtype}"), n, &x.adaptive_avg_pool2d(size), &expected, &bound);
    let largest = |i: &[usize]| Num::Real(window(i).into_iter().fold(f64::NEG_INFINITY, f64::max));
    let expected = Array::build(dtype, &sized(shape, size), largest);
    let found = x.adaptive_max_pool2d(size);
    s.check(&format!("adaptive_max_pool2d {dtype}"), n, &found, &expected, &Bound::Relative(0.0));
}

fn global_pools(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let plane = |i: &[usize]| -> Vec<f64> {
        (0..shape[2] * shape[3]).map(|p| a.at(&[i[0], i[1], p / shape[3], p % shape[3]]).real()).collect()
    };
    let (expected, bound) =
        approximate(dtype, &shape[..2], |i| (plane(i).iter().sum::<f64>() / plane(i).len() as f64, 4.0));
    s.check(&format!("global_avg_pool {dtype}"), n, &x.global_avg_pool(), &expected, &bound);
    let expected =
        Array::build(dtype, &shape[..2], |i| Num::Real(plane(i).into_iter().fold(f64::NEG_INFINITY, f64::max)));
    s.check(&format!("global_max_pool {dtype}"), n, &x.global_max_pool(), &expected, &Bound::Relative(0.0));
}

fn bilinear(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], size: [usize; 2], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    for align_corners in [false, true] {
        let (expected, bound) = approximate(dtype, &sized(shape, size), |i| {
            let corners = |axis: usize| {
                let (len, out, at) = (shape[axis] as f64, size[axis - 2] as f64, i[axis] as f64);
                let position = match align_corners {
                    true if out == 1.0 => 0.0,
                    true => at * (len - 1.0) / (out - 1.0),
                    false => ((at + 0.5) * len / out - 0.5).max(0.0),
                };
                let below = (position as usize).min(shape[axis] - 1);
                let fraction = position - below as f64;
                [(below, 1.0 - fraction), ((below + 1).min(shape[axis] - 1), fraction)]
            };
            let (mut value, mut magnitude) = (0.0, 1.0);
            for (row, vertical) in corners(2) {
                for (column, horizontal) in corners(3) {
                    let term = a.at(&[i[0], i[1], row, column]).real() * vertical * horizontal;
                    (value, magnitude) = (value + term, magnitude + term.abs());
                }
            }
            (value, magnitude)
        });
        let found = x.upsample(size, UpsampleMode::Bilinear { align_corners });
        s.check(&format!("upsample bilinear {align_corners} {dtype}"), n, &found, &expected, &bound);
    }
}

fn group_norm(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (w, weight) = s.input(&shape[1..2], Layout::Reversed, dtype, Fill::Unit);
    let (b, bias) = s.input(&shape[1..2], Layout::Stepped, dtype, Fill::Unit);
    let (groups, eps) = (2, 0.5);
    let per_group = shape[1] / groups;
    let (expected, bound) = approximate(dtype, shape, |i| {
        let first = i[1] / per_group * per_group;
        let (rows, columns) = (shape[2], shape[3]);
        let group: Vec<f64> = (0..per_group * rows * columns)
            .map(|p| a.at(&[i[0], first + p / rows / columns, p / columns % rows, p % columns]).real())
            .collect();
        let mean = group.iter().sum::<f64>() / group.len() as f64;
        let variance = group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / group.len() as f64;
        let (scale, shift) = (weight.at(&i[1..2]).real(), bias.at(&i[1..2]).real());
        ((a.at(i).real() - mean) / (variance + eps).sqrt() * scale + shift, 8.0)
    });
    let found = x.group_norm(groups, Some(&w), Some(&b), eps);
    s.check(&format!("group_norm {dtype}"), n, &found, &expected, &bound);
}

fn conv_transpose2d(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], layout: Layout) {
    let &[batch, channels, height, width] = shape;
    let (groups, group_out, kernel) = (2, 1 + n % 2, [1 + n % 3, 2]);
    let (stride, dilation, output_padding) = ((1 + n % 2, 2), (1, 1 + n % 2), (0, n % 2));
    let padding = (0, n % 2);
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (w, weight) = s.input(&[channels, group_out, kernel[0], kernel[1]], Layout::Reversed, dtype, Fill::Unit);
    let rows = (height - 1) * stride.0 + dilation.0 * (kernel[0] - 1) + 1;
    let columns = (width - 1) * stride.1 + dilation.1 * (kernel[1] - 1) + output_padding.1 + 1 - 2 * padding.1;
    let (expected, bound) = approximate(dtype, &[batch, groups * group_out, rows, columns], |i| {
        let (mut value, mut magnitude) = (0.0, 0.0);
        let first = i[1] / group_out * (channels / groups);
        for c in first..first + channels / groups {
            for (y, z, k, l) in (0..height * width * kernel[0] * kernel[1]).map(|p| {
                let (pixel, tap) = (p / kernel[0] / kernel[1], p % (kernel[0] * kernel[1]));
                (pixel / width, pixel % width, tap / kernel[1], tap % kernel[1])
            }) {
                let hit = (y * stride.0 + k * dilation.0, z * stride.1 + l * dilation.1) == (i[2], i[3] + padding.1);
                if hit {
                    let term = a.at(&[i[0], c, y, z]).real() * weight.at(&[c, i[1] % group_out, k, l]).real();
                    (value, magnitude) = (value + term, magnitude + term.abs());
                }
            }
        }
        (value, magnitude)
    });
    let options = ConvTranspose2dOptions { stride, padding, output_padding, dilation, groups };
    s.check(&format!("conv_transpose2d {dtype}"), n, &x.conv_transpose2d(&w, None, options), &expected, &bound);
}

/// Of the rows of images as signals.
fn conv1d(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize; 4], layout: Layout) {
    let signal = [shape[0], shape[1], shape[2] * shape[3]];
    let (groups, out, window, padding, stride) = (2, 4, 2, n % 3, 1 + n % 2);
    let group_channels = signal[1] / groups;
    let (x, a) = s.input(&signal, layout, dtype, Fill::Small);
    let (w, weight) = s.input(&[out, group_channels, window], Layout::Transposed, dtype, Fill::Unit);
    let length = (signal[2] + 2 * padding - window) / stride + 1;
    let (expected, bound) = approximate(dtype, &[signal[0], out, length], |i| {
        let (mut value, mut magnitude) = (0.0, 0.0);
        for (c, k) in (0..group_channels * window).map(|p| (p / window, p % window)) {
            let Some(at) = (i[2] * stride + k).checked_sub(padding).filter(|at| *at < signal[2]) else { continue };
            let channel = i[1] / (out / groups) * group_channels + c;
            let term = a.at(&[i[0], channel, at]).real() * weight.at(&[i[1], c, k]).real();
            (value, magnitude) = (value + term, magnitude + term.abs());
        }
        (value, magnitude)
    });
    let options = Conv1dOptions { stride, padding, groups, ..Conv1dOptions::default() };
    s.check(&format!("conv1d {dtype}"), n, &x.conv1d(&w, None, options), &expected, &bound);
}
