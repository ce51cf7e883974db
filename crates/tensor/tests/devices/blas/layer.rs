//! The cuBLASLt bindings: scaling factors, algorithms, captures, epilogues, errors.

use std::sync::Arc;

use bornite::{Device, ops::bf16};
use bornite_cuda::blas::{
    Algorithm, ElementType, Epilogue, Matmul, MatmulArgs, MatmulPlan, MatrixLayout, is_unsupported,
};
use bornite_cuda::{Buffer, Graph};

use crate::Outcome;

/// Uploads data for these tests.
fn upload(device: &Arc<bornite_cuda::Device>, data: &[f32]) -> bornite_cuda::Result<Buffer> {
    let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    let buffer = Buffer::new(device, bytes.len())?;
    buffer.upload(&bytes)?;
    Ok(buffer)
}

fn download(buffer: &Buffer) -> bornite_cuda::Result<Vec<f32>> {
    let mut bytes = vec![0; buffer.bytes()];
    buffer.download(&mut bytes)?;
    Ok(bytes.chunks(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect())
}

/// Small integers, whose sums are exact in any order.
fn whole_numbers(count: usize, salt: usize) -> Vec<f32> {
    (0..count).map(|n| ((n * 7 + salt) % 11) as f32 - 5.0).collect()
}

fn naive(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    (0..m * n).map(|i| (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]).sum()).collect()
}

pub fn factors_and_algorithms(_: Device) -> Outcome {
    let device = bornite_cuda::Device::open(0)?;
    let (m, n, k) = (24, 40, 16);
    let (a, b, c) = (whole_numbers(m * k, 1), whole_numbers(k * n, 2), whole_numbers(m * n, 3));
    let product = naive(&a, &b, m, n, k);
    let matmul = Matmul::new(m as u64, n as u64, k as u64, ElementType::F32);
    let (at, bt, ct) = (upload(&device, &a)?, upload(&device, &b)?, upload(&device, &c)?);
    let first = MatmulPlan::new(&device, &matmul)?;
    let mut algorithms: Vec<Algorithm> = first.algorithms(8)?;
    assert!(!algorithms.is_empty() && algorithms.len() <= 8);
    println!("{} algorithms for {matmul}, the first with {:?}", algorithms.len(), algorithms[0]);
    algorithms.truncate(4);
    for algorithm in algorithms {
        let plan = MatmulPlan::with_algorithm(&device, &matmul, &algorithm)?;
        assert_eq!(plan.algorithm().data(), algorithm.data());
        for (alpha, beta) in [(1.0, 0.0), (0.5, 0.0), (-2.0, 1.0), (0.0, 3.0)] {
            let d = upload(&device, &vec![f32::NAN; m * n])?;
            let call = MatmulArgs { alpha, beta, c: Some((&ct, 0)), ..MatmulArgs::new((&at, 0), (&bt, 0), (&d, 0)) };
            plan.run(&call)?;
            let expected = product.iter().zip(&c).map(|(p, c)| alpha as f32 * p + beta as f32 * c);
            assert_eq!(download(&d)?, expected.collect::<Vec<_>>(), "alpha {alpha}, beta {beta}, {algorithm:?}");
        }
        // Accumulates into the output.
        let d = upload(&device, &c)?;
        plan.run(&MatmulArgs { beta: 1.0, ..MatmulArgs::new((&at, 0), (&bt, 0), (&d, 0)) })?;
        assert_eq!(download(&d)?, product.iter().zip(&c).map(|(p, c)| p + c).collect::<Vec<_>>());
    }
    // An algorithm for aligned operands must not run on others, which the library does not check.
    let unaligned = Matmul { a: MatrixLayout { alignment: 4, ..matmul.a }, ..matmul };
    let rejected = MatmulPlan::with_algorithm(&device, &unaligned, &first.algorithm()).err().ok_or("a plan")?;
    assert!(rejected.to_string().contains("bytes, found [4, 256, 256]"), "{rejected}");
    let same = (MatmulPlan::cached(&device, &matmul)?, MatmulPlan::cached(&device, &matmul)?);
    assert!(Arc::ptr_eq(&same.0, &same.1), "equal products share a plan");
    Ok(())
}

#[allow(unsafe_code)]
pub fn captured_products(_: Device) -> Outcome {
    let device = bornite_cuda::Device::open(0)?;
    let (m, n, k) = (32, 48, 64);
    let (a, b) = (whole_numbers(m * k, 4), whole_numbers(k * n, 5));
    let matmul = Matmul::new(m as u64, n as u64, k as u64, ElementType::F32);
    let plan = Arc::new(MatmulPlan::new(&device, &matmul)?);
    let [at, bt] = [upload(&device, &a)?, upload(&device, &b)?].map(Arc::new);
    let d = Arc::new(upload(&device, &vec![0.0; m * n])?);
    let run = || plan.run(&MatmulArgs::new((&at, 0), (&bt, 0), (&d, 0)));
    run()?; // loads the library's code, which a capture cannot
    let kept: Vec<Arc<dyn std::any::Any + Send + Sync>> = vec![at.clone(), bt.clone(), d.clone(), plan.clone()];
    // SAFETY: these are the buffers that `run` uses.
    let mut graph = unsafe { Graph::capture::<bornite_cuda::Error>(&device, kept, run)? };
    d.upload(&vec![0; m * n * 4])?;
    graph.launch()?;
    assert_eq!(download(&d)?, naive(&a, &b, m, n, k));
    // SAFETY: nothing runs, since planning fails.
    let planned = unsafe {
        let other = Matmul::new(3, 3, 3, ElementType::F32);
        Graph::capture::<bornite_cuda::Error>(&device, vec![], || MatmulPlan::new(&device, &other).map(drop))
    };
    assert!(
        planned.err().is_some_and(|e| e.to_string().contains("is not possible during the capture of a CUDA graph"))
    );
    Ok(())
}

/// GELU (tanh approximation) and its derivative.
fn gelu(x: f64) -> (f64, f64) {
    let (root, cubic) = ((2.0 / std::f64::consts::PI).sqrt(), 0.044715);
    let t = (root * (x + cubic * x * x * x)).tanh();
    (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * cubic * x * x))
}

pub fn epilogues(_: Device) -> Outcome {
    epilogues_of(ElementType::Bf16, 2e-2)?;
    match epilogues_of(ElementType::F32, 1e-4) {
        Err(TestError::Library(why)) if is_unsupported(&why) => println!("not all epilogues are there in f32: {why}"),
        other => other?,
    }
    Ok(())
}

/// Error of a test.
enum TestError {
    Library(bornite_cuda::Error),
    Wrong(String),
}

impl From<bornite_cuda::Error> for TestError {
    fn from(error: bornite_cuda::Error) -> TestError {
        TestError::Library(error)
    }
}

impl std::fmt::Display for TestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TestError::Library(error) => write!(f, "{error}"),
            TestError::Wrong(what) => write!(f, "{what}"),
        }
    }
}

fn epilogues_of(element: ElementType, tolerance: f64) -> Result<(), TestError> {
    let device = bornite_cuda::Device::open(0)?;
    let (m, n, k) = (24, 32, 16);
    let small = |count, salt| whole_numbers(count, salt).iter().map(|x| x / 8.0).collect::<Vec<f32>>();
    let put = |data: &[f32]| match element {
        ElementType::F32 => upload(&device, data),
        _ => {
            let bytes: Vec<u8> = data.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
            let buffer = Buffer::new(&device, bytes.len())?;
            buffer.upload(&bytes).map(|()| buffer)
        }
    };
    let near = |what: &str, found: &Buffer, expected: &[f64]| -> Result<(), TestError> {
        let found = match element {
            ElementType::F32 => download(found)?,
            _ => {
                let mut bytes = vec![0; found.bytes()];
                found.download(&mut bytes)?;
                bytes.chunks(2).map(|x| bf16::from_le_bytes([x[0], x[1]]).to_f32()).collect()
            }
        };
        for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
            let off = (f64::from(*found) - expected).abs();
            if off.is_nan() || off > tolerance * (1.0 + expected.abs()) {
                return Err(TestError::Wrong(format!("{what}: element {n} is {found}, expected {expected}")));
            }
        }
        Ok(())
    };
    // Multiples of 1/8 up to 5/8: exact in bf16.
    let (a, b, bias) = (small(m * k, 1), small(k * n, 2), small(n, 3));
    let product: Vec<f64> = naive(&a, &b, m, n, k).into_iter().map(f64::from).collect();
    let before: Vec<f64> = product.iter().enumerate().map(|(i, p)| p + f64::from(bias[i % n])).collect();
    let (at, bt, bias) = (put(&a)?, put(&b)?, put(&bias)?);
    let (d, aux, sums) = (put(&vec![0.0; m * n])?, put(&vec![0.0; m * n])?, put(&vec![0.0; n])?);
    let plan =
        |epilogue| MatmulPlan::new(&device, &Matmul { epilogue, ..Matmul::new(m as u64, n as u64, k as u64, element) });
    let call = MatmulArgs::new((&at, 0), (&bt, 0), (&d, 0));
    plan(Epilogue::Bias)?.run(&MatmulArgs { bias: Some((&bias, 0)), ..call })?;
    near("bias", &d, &before)?;
    let gelus: Vec<f64> = before.iter().map(|&x| gelu(x).0).collect();
    plan(Epilogue::BiasGelu)?.run(&MatmulArgs { bias: Some((&bias, 0)), ..call })?;
    near("gelu", &d, &gelus)?;
    let with_aux = plan(Epilogue::BiasGeluAux)?;
    with_aux.run(&MatmulArgs { bias: Some((&bias, 0)), aux: Some((&aux, 0)), ..call })?;
    near("gelu with saved input", &d, &gelus)?;
    near("input of gelu", &aux, &before)?;
    if !with_aux.run(&call).is_err_and(|e| e.to_string().contains("needs a bias or an auxiliary matrix")) {
        return Err(TestError::Wrong("an epilogue ran without its bias".into()));
    }
    plan(Epilogue::Dgelu)?.run(&MatmulArgs { aux: Some((&aux, 0)), ..call })?;
    let gradients: Vec<f64> = before.iter().zip(&product).map(|(&x, &p)| gelu(x).1 * p).collect();
    near("gradient of gelu", &d, &gradients)?;
    plan(Epilogue::DgeluBiasGradient)?.run(&MatmulArgs { aux: Some((&aux, 0)), bias: Some((&sums, 0)), ..call })?;
    let columns = |x: &[f64], rows: usize| (0..n).map(|j| (0..rows).map(|i| x[i * n + j]).sum()).collect::<Vec<f64>>();
    near("its bias gradient", &sums, &columns(&gradients, m))?;
    plan(Epilogue::BiasGradient)?.run(&MatmulArgs { bias: Some((&sums, 0)), ..call })?;
    let wide: Vec<f64> = b.iter().map(|&x| f64::from(x)).collect();
    near("the bias gradient", &sums, &columns(&wide, k))?;
    near("the product beside it", &d, &product)
}

pub fn invalid_calls_are_errors(_: Device) -> Outcome {
    let device = bornite_cuda::Device::open(0)?;
    let plan = MatmulPlan::new(&device, &Matmul::new(4, 4, 4, ElementType::F32))?;
    let [full, short] = [16, 15].map(|count| upload(&device, &vec![1.0; count]));
    let (full, short, d) = (full?, short?, upload(&device, &[0.0; 16])?);
    let rejected = |call: &MatmulArgs<'_>, words: &str| {
        let text = plan.run(call).map_or_else(|e| e.to_string(), |()| "it ran".into());
        assert!(text.contains(words) && text.contains("CUBLAS_STATUS_INVALID_VALUE"), "{words}: {text}");
    };
    rejected(&MatmulArgs::new((&short, 0), (&full, 0), (&d, 0)), "A needs 64 bytes, but its buffer has 60");
    rejected(&MatmulArgs::new((&full, 0), (&full, 4), (&d, 0)), "B needs 64 bytes, but its buffer has 60");
    rejected(&MatmulArgs::new((&full, 0), (&full, 0), (&short, 0)), "C needs 64 bytes");
    rejected(&MatmulArgs::new((&full, usize::MAX), (&full, 0), (&d, 0)), "A needs 64 bytes, but its buffer has 0");
    let large = upload(&device, &[1.0; 32])?;
    rejected(&MatmulArgs::new((&large, 4), (&full, 0), (&d, 0)), "A is not aligned to 256 bytes");
    plan.run(&MatmulArgs::new((&full, 0), (&full, 0), (&d, 0)))?;
    assert_eq!(download(&d)?, [4.0; 16]);
    let wrong = Matmul { a: MatrixLayout::rows(3), ..Matmul::new(4, 4, 4, ElementType::F32) };
    assert!(MatmulPlan::new(&device, &wrong).is_err_and(|e| e.to_string().contains("do not fit a stride of 3")));
    Ok(())
}
