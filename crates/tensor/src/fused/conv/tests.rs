//! The CPU routines against the definition, over random sizes and options.

use bornite_support::random::Random;

use super::*;

/// Sizes by name, and random ones of all ranks.
fn geometries(count: usize) -> Vec<Geometry> {
    let mut random = Random::new(17);
    let mut pick = |low: usize, high: usize| low + random.below(high - low + 1);
    let mut all = vec![];
    while all.len() < count {
        let rank = pick(1, 3);
        // Every fifth is depthwise, every seventh large enough for several panels and tasks.
        let (groups, channels, out_channels) = match all.len() {
            n if n % 5 == 0 => (pick(1, 6), 1, pick(1, 3)),
            n if n % 7 == 0 => (pick(1, 2), pick(30, 90), pick(33, 70)),
            _ => (pick(1, 3), pick(1, 5), pick(1, 5)),
        };
        let mut axis = |length: usize| {
            let (kernel, stride, dilation) = (pick(1, 4), pick(1, 3), pick(1, 3));
            let padding = pick(0, 3);
            (pick(1, length), kernel, stride, dilation, padding)
        };
        let axes: Vec<_> = (0..rank).map(|n| axis(if n + 1 == rank { 19 } else { 7 })).collect();
        let fits = |&(len, kernel, _, dilation, padding): &_| len + 2 * padding > dilation * (kernel - 1);
        if !axes.iter().all(fits) {
            continue;
        }
        let lengths = |of: fn(&(usize, usize, usize, usize, usize)) -> usize, fill| {
            spatial(&axes.iter().map(of).collect::<Vec<_>>(), fill)
        };
        all.push(Geometry {
            rank,
            batch: pick(1, 4),
            groups,
            channels,
            out_channels,
            input: lengths(|a| a.0, 1),
            kernel: lengths(|a| a.1, 1),
            output: lengths(
                |&(len, kernel, stride, dilation, padding)| {
                    (len + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
                },
                1,
            ),
            stride: lengths(|a| a.2, 1),
            dilation: lengths(|a| a.3, 1),
            padding: lengths(|a| a.4, 0),
        });
    }
    all
}

/// Calls `visit` with the indices in x, weight and y of every product of the definition.
fn for_each_product(g: &Geometry, mut visit: impl FnMut(usize, usize, usize)) {
    let cells = |lengths: geometry::Spatial| {
        let [depth, height, width] = lengths;
        (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [z, y, x])))
    };
    let index = |at: [usize; 3], lengths: geometry::Spatial| (at[0] * lengths[1] + at[1]) * lengths[2] + at[2];
    let space = |lengths: geometry::Spatial| lengths.iter().product::<usize>();
    for out in cells(g.output) {
        for tap in cells(g.kernel) {
            let source = [0, 1, 2].map(|n| {
                (out[n] * g.stride[n] + tap[n] * g.dilation[n]).checked_sub(g.padding[n]).filter(|&at| at < g.input[n])
            });
            let [Some(z), Some(y), Some(x)] = source else { continue };
            for image in 0..g.batch {
                for group in 0..g.groups {
                    for o in 0..g.out_channels {
                        for c in 0..g.channels {
                            let (image_group, o) = (image * g.groups + group, o);
                            let x = (image_group * g.channels + c) * space(g.input) + index([z, y, x], g.input);
                            let w = ((group * g.out_channels + o) * g.channels + c) * space(g.kernel)
                                + index(tap, g.kernel);
                            let y = (image_group * g.out_channels + o) * space(g.output) + index(out, g.output);
                            visit(x, w, y);
                        }
                    }
                }
            }
        }
    }
}

#[track_caller]
fn near(what: &str, g: &Geometry, found: &[f64], expected: &[f64]) {
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-11, "{what} {n}: {found}, not {expected}, of {g:?}");
    }
}

#[test]
fn routines_agree_with_the_definition() {
    let mut random = Random::new(23);
    let mut values = |shape: Vec<usize>| -> Vec<f64> {
        let count = shape.iter().product();
        (0..count).map(|_| 2.0 * random.unit_f64() - 1.0).collect()
    };
    for g in &geometries(450) {
        let (x, weight, dy) = (values(g.input_shape()), values(g.weight_shape()), values(g.output_shape()));
        let bias = values(vec![g.groups * g.out_channels]);
        let space = g.output.iter().product::<usize>();
        let mut y: Vec<f64> = (0..dy.len()).map(|n| bias[n / space % bias.len()]).collect();
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
        for_each_product(g, |at_x, at_w, at_y| {
            y[at_y] += x[at_x] * weight[at_w];
            dx[at_x] += dy[at_y] * weight[at_w];
            dw[at_w] += dy[at_y] * x[at_x];
        });
        let run = |threads: usize| {
            // Outputs are written completely, whatever they hold.
            let (mut found_y, mut found_dx, mut found_dw) =
                (vec![f64::NAN; y.len()], vec![f64::NAN; x.len()], vec![f64::NAN; weight.len()]);
            cpu::forward(g, &x, &weight, Some(&bias), &mut found_y, threads);
            cpu::input_gradient(g, &dy, &weight, &mut found_dx, threads);
            weight_gradient::weight_gradient(g, &x, &dy, &mut found_dw, threads);
            [found_y, found_dx, found_dw]
        };
        let found = run(1);
        near("output", g, &found[0], &y);
        near("input gradient", g, &found[1], &dx);
        near("weight gradient", g, &found[2], &dw);
        assert_eq!(run(2), found, "threads change the bits of {g:?}");
    }
}

/// Gradients of all orders are those of the decomposition.
#[test]
fn gradients_agree_with_the_decomposition() {
    for g in geometries(60).iter().filter(|g| g.channels < 30) {
        let device = Device::cpu();
        let values = |shape: Vec<usize>, step: f64| {
            let count: usize = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|n| (n as f64 * step).sin()).collect();
            Tensor::from_slice(&values, &shape, device)
        };
        let (x, weight, bias) =
            (values(g.input_shape(), 0.7), values(g.weight_shape(), 1.3), values(vec![g.groups * g.out_channels], 2.1));
        let results = || -> Result<Vec<f64>> {
            let op = Convolve { kind: ConvKind::Conv, geometry: *g };
            let y = op.apply(vec![x.clone(), weight.clone(), bias.clone()], SourceLocation::here());
            let first = y.square().sum(..).grad(&[&x, &weight, &bias]);
            let second = (first[0].square().sum(..) + first[1].square().sum(..)).grad(&[&x, &weight]);
            let all = [vec![y], first, second].concat();
            all.iter().try_fold(vec![], |mut values, tensor| {
                values.extend(tensor.to_vec::<f64>()?);
                Ok(values)
            })
        };
        let found = results().unwrap();
        let expected = super::super::with_fusion(false, results).unwrap();
        let bound = 1e-10 * expected.iter().fold(1.0, |max: f64, value| max.max(value.abs()));
        for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= bound, "{n}: {found}, not {expected}, of {g:?}");
        }
    }
}
