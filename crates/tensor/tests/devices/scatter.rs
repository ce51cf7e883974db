//! Rows added by index: the order of sums is specified, so all devices equal a loop on the host
//! bitwise.

use bornite::{DType, Device, Tensor, plan::with_gpu_kernels};

use crate::Outcome;
use crate::fusion::compare;
use crate::random::Random;

/// On the device, and on the interpreter also with GPU kernels.
pub fn sums_by_index(device: Device) -> Outcome {
    random_tables(device)?;
    bad_indices(device)?;
    if device == Device::Interpreter {
        with_gpu_kernels(|| random_tables(device))?;
        with_gpu_kernels(|| bad_indices(device))?;
    }
    Ok(())
}

/// The definition: values are summed in order, in blocks of 64, and the blocks in order.
fn expected(base: &[f64], index: &[i64], values: &[f64], width: usize, round: fn(f64) -> f64) -> Vec<f64> {
    let mut out = base.to_vec();
    for (n, element) in out.iter_mut().enumerate() {
        let (row, column) = ((n / width) as i64, n % width);
        let own: Vec<f64> = (0..index.len()).filter(|&p| index[p] == row).map(|p| values[p * width + column]).collect();
        for part in own.chunks(64) {
            let sum = part.iter().copied().reduce(|sum, value| round(sum + value)).unwrap_or(0.0);
            *element = round(*element + sum);
        }
    }
    out
}

fn random_tables(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let mut pick = |from: &[usize]| from[(random.bits() % from.len() as u64) as usize];
    let dtypes = [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I64];
    for turn in 0..24 {
        let dtype = dtypes[turn % dtypes.len()];
        let (rows, width) = (pick(&[1, 2, 7, 100, 256, 257, 3000]), pick(&[0, 1, 2, 3, 4, 8, 33, 132]));
        let count = pick(&[0, 1, 63, 64, 65, 127, 128, 200, 511, 512, 700, 1500]);
        let kind = pick(&[0, 1, 2, 3]);
        let index: Vec<i64> = (0..count)
            .map(|n| match kind {
                0 => pick(&[0, 1, 2, 3, 5, 80, 2900, 77, 256]) % rows, // some rows often
                1 => rows - 1,                                         // all of them one row
                2 => (count - n) % rows,                               // falling
                _ => pick(&(0..64).map(|n| n * 61).collect::<Vec<_>>()) % rows,
            } as i64)
            .collect();
        let whole = dtype.is_int();
        let number = |n: usize| if whole { (n % 90) as f64 - 40.0 } else { (n % 9001) as f64 / 1234.0 - 3.0 };
        let table: Vec<f64> = (0..rows * width).map(|_| number(pick(&[1, 20, 300, 4000, 7777]))).collect();
        let added: Vec<f64> = (0..count * width).map(|n| number(n * 7919 + turn)).collect();
        let table = Tensor::from_slice(&table, &[rows, width], device).cast(dtype);
        let added = Tensor::from_slice(&added, &[count, width], device).cast(dtype);
        let short = turn % 2 == 0;
        let index_tensor = Tensor::from_slice(&index, &[count, 1], device);
        let index_tensor = if short { index_tensor.cast(DType::I32) } else { index_tensor };
        let found = table.scatter_add(0, &index_tensor.expand(&[count, width]), &added);
        let round: fn(f64) -> f64 = if dtype == DType::F64 { |x| x } else { |x| x as f32 as f64 };
        let [base, values] = [&table, &added].map(|t| t.cast(DType::F64).to_vec::<f64>());
        let sums = expected(&base?, &index, &values?, width.max(1), if whole { |x| x } else { round });
        let sums = Tensor::from_slice(&sums, &[rows, width], device);
        // Rounded to the dtype of the sums, as the ops do.
        let sums = if whole || dtype == DType::F64 { sums } else { sums.cast(DType::F32) }.cast(dtype);
        let what = format!("{dtype}: {count} values of {width} to {rows} rows, kind {kind}, turn {turn}");
        compare(&what, std::slice::from_ref(&found), &[sums])?;
        if width > 0 && count > 0 && dtype.is_float() {
            // As in the gradient of an embedding, with a base of 0.
            let picked = table.embedding(&index_tensor.reshape(&[count]));
            let gradient = (&picked * &added).sum(..).grad(&[&table]).remove(0);
            let zeros = Tensor::zeros(&[rows, width], dtype, device);
            let same = zeros.scatter_add(0, &index_tensor.expand(&[count, width]), &added);
            compare(&format!("gradient, {what}"), &[gradient], &[same])?;
        }
    }
    Ok(())
}

fn bad_indices(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (rows, width, count) = (50, 8, 300);
    for bad in [-1, 50, 1 << 40, i64::MIN] {
        let mut index: Vec<i64> = (0..count).map(|_| (random.bits() % rows as u64) as i64).collect();
        index[(random.bits() % count as u64) as usize] = bad;
        let index = Tensor::from_slice(&index, &[count, 1], device).expand(&[count, width]);
        let ones = Tensor::ones(&[count, width], DType::F32, device);
        let sums = Tensor::zeros(&[rows, width], DType::F32, device).scatter_add(0, &index, &ones);
        let error = sums.to_vec::<f32>().expect_err("a bad index").to_string();
        assert!(error.contains(&format!("scatter_add: index {bad}")), "{error}");
    }
    Ok(())
}

/// A scatter of one value per line that is computed inside the loop of a reduction over other axes
/// than its own: each element of the loop starts from zero.
pub fn inside_reductions(device: Device) -> Outcome {
    scatter_in_a_sum(device)?;
    if device == Device::Interpreter {
        with_gpu_kernels(|| scatter_in_a_sum(device))?;
    }
    Ok(())
}

fn scatter_in_a_sum(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (rows, columns) = (5, 7);
    let classes: Vec<i64> = (0..rows).map(|_| (random.bits() % columns as u64) as i64).collect();
    let (values, weights) = (random.vec(rows, 0.5, 2.0), random.vec(rows * columns, 0.5, 2.0));
    let index = Tensor::from_slice(&classes, &[rows, 1], device);
    let scattered = || {
        let zero = Tensor::zeros(&[rows, columns], DType::F64, device);
        let scattered = zero.scatter_add(1, &index, &Tensor::from_slice(&values, &[rows, 1], device));
        scattered * Tensor::from_slice(&weights, &[rows, columns], device)
    };
    let mut expected = vec![0.0; columns];
    for (row, &class) in classes.iter().enumerate() {
        expected[class as usize] += values[row] * weights[row * columns + class as usize];
    }
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
    let total = scattered().sum(..).item()?;
    assert!(near(total, expected.iter().sum()), "{total}, expected {expected:?}");
    let by_column = scattered().sum(0).to_vec::<f64>()?;
    assert!(by_column.iter().zip(&expected).all(|(a, b)| near(*a, *b)), "{by_column:?}, expected {expected:?}");
    // Positions of the maximum, read by a sum over another axis.
    let positions = scattered().argmax(1).cast(DType::F64).sum(..).item()?;
    assert_eq!(positions, classes.iter().sum::<i64>() as f64);
    Ok(())
}
