//! Search for the fastest algorithm of the library by measurement: the library's heuristic is off
//! by up to a third on some shapes. The tuner stores the result, and a checkpoint can pin it.

use std::any::Any;
use std::sync::Arc;

use bornite_support::tune::{Choice, ExclusiveTimer, Fallible, Tuner, TuningKey, TuningRequest};

use super::library::{no_algorithm, version};
use super::{Algorithm, ElementType, Matmul, MatmulArgs, MatmulPlan};
use crate::capture::is_capturing;
use crate::{Buffer, Device, DeviceTimer, Error, Graph, Result, platform};

/// Maximum number of algorithms to request from the library.
const MAX_ALGORITHMS: usize = 64;
/// Maximum runs per graph, so that the host's launch overhead does not dominate a product of
/// microseconds.
const MAX_RUNS: usize = 16;
/// Duration of a graph to aim at.
const GRAPH_SECONDS: f64 = 4e-4;
/// Total size of all operand sets, so that no set is cached when it is used again.
const ROUND_BYTES: usize = 128 << 20;

impl MatmulPlan {
    /// Creates a plan with the best algorithm that the process's tuner has cached or, in mode
    /// `Tune`, measures; else with the library's first. If the library has none,
    /// [`super::is_unsupported`] is true for the error. Not during stream capture.
    pub fn best(device: &Arc<Device>, matmul: &Matmul) -> Result<MatmulPlan> {
        MatmulPlan::best_with(device, matmul, || ())
    }

    /// Like [`MatmulPlan::best`], if other threads use the device as well: everything that is
    /// launched for a measurement is launched while the guard of `lock` is held, one run at a time.
    /// The caller must not hold it.
    pub(super) fn best_with<G>(device: &Arc<Device>, matmul: &Matmul, lock: impl Fn() -> G) -> Result<MatmulPlan> {
        let tuner = Tuner::global()?;
        let mut plan = MatmulPlan::without_algorithm(device, matmul)?;
        let max = if tuner.mode() == bornite_support::tune::TuneMode::Off { 1 } else { MAX_ALGORITHMS };
        let algorithms = plan.algorithms(max)?;
        let first = *algorithms.first().ok_or_else(|| no_algorithm(matmul))?;
        plan.algorithm = first;
        if algorithms.len() == 1 {
            return Ok(plan);
        }
        let candidates: Vec<Choice> = algorithms.iter().map(choice).collect();
        let key = key(device, matmul)?;
        let busy = is_capturing(device.info().ordinal);
        let trial = TrialMatmul { device, matmul };
        let runs = trial.runs();
        let (mut memory, mut expected) = (None, None);
        let prepare = |choice: &Choice| -> Fallible<Graph> {
            let at = candidates.iter().position(|c| c == choice).ok_or("unknown algorithm")?;
            let plan = Arc::new(MatmulPlan::with_algorithm(device, matmul, &algorithms[at])?);
            if memory.is_none() {
                memory = Some(trial.memory()?);
            }
            let sets = memory.clone().ok_or("no memory")?;
            // All runs of a device share a workspace, which a run of another thread would
            // overwrite.
            let _exclusive = lock();
            plan.run(&sets[0].args())?;
            let result = sets[0].sample(matmul)?;
            let expected = expected.get_or_insert_with(|| result.clone());
            check_agreement(&result, expected, matmul)?;
            let retained = sets.iter().cloned().map(|set| set as Arc<dyn Any + Send + Sync>);
            let retained = retained.chain([plan.clone() as Arc<dyn Any + Send + Sync>]).collect();
            let run = || (0..runs).try_for_each(|n| plan.run(&sets[n % sets.len()].args()));
            // SAFETY: the graph retains the plan and all of its buffers; the library's workspace is
            // never freed.
            Ok(unsafe { Graph::capture::<Error>(device, retained, run)? })
        };
        let request = TuningRequest { key: &key, candidates: &candidates, busy, may_wait: true };
        let mut timer = ExclusiveTimer::new(DeviceTimer::with_repeats(device, runs), &lock);
        let found = tuner.choose(&request, &mut timer, prepare, |_| Ok(()), |graph, _| Ok(graph.launch()?));
        // Used even if the tuner could not measure now: equal products must give equal bits.
        let at = candidates.iter().position(|candidate| *candidate == found.choice).unwrap_or(0);
        plan.algorithm = algorithms[at];
        Ok(plan)
    }
}

/// Algorithm as a choice of the tuner: the words of the library's description.
fn choice(algorithm: &Algorithm) -> Choice {
    let words = algorithm.data().into_iter().enumerate();
    words.fold(Choice::new(), |choice, (n, word)| choice.with(&format!("word{n}"), word as i64))
}

/// Key of the tuning: everything that the best algorithm depends on.
fn key(device: &Device, matmul: &Matmul) -> Result<TuningKey> {
    let Matmul { m, n, k, batch, a, b, d, input, output, compute, epilogue } = *matmul;
    let mut shape = vec![m, n, k, batch];
    for operand in [a, b, d] {
        let alignment = u64::from(operand.alignment);
        shape.extend([u64::from(operand.transposed), operand.stride, operand.batch_stride, alignment]);
    }
    let mut platform = platform(device)?;
    let (major, minor) = version()?;
    platform.libraries = [("cublasLt".into(), format!("{major}.{minor}"))].into();
    let dtype = format!("{} to {} in {compute:?}", input.name(), output.name());
    Ok(TuningKey { operation: format!("cublasLt {epilogue:?}"), shape, dtype, platform })
}

/// A product to be measured.
struct TrialMatmul<'a> {
    device: &'a Arc<Device>,
    matmul: &'a Matmul,
}

/// Buffers of one run.
struct OperandSet {
    a: Buffer,
    b: Buffer,
    d: Buffer,
    bias: Option<Buffer>,
    aux: Option<Buffer>,
}

impl TrialMatmul<'_> {
    /// Number of runs per graph: fewer of a large product.
    fn runs(&self) -> usize {
        let Matmul { m, n, k, batch, input, .. } = *self.matmul;
        // Of a fast GPU.
        let flops_per_second = match input {
            ElementType::F16 | ElementType::Bf16 => 600e12,
            _ => 60e12,
        };
        let seconds = 2.0 * m as f64 * n as f64 * k as f64 * batch as f64 / flops_per_second;
        ((GRAPH_SECONDS / seconds.max(1e-9)) as usize).clamp(1, MAX_RUNS)
    }

    /// Creates several sets of operands, or one if they are large, with numbers of both signs:
    /// zeros would reduce the power use, and with it the clock throttling.
    fn memory(&self) -> Result<Vec<Arc<OperandSet>>> {
        let Matmul { m, n, batch, input, output, epilogue, .. } = *self.matmul;
        let [Some(a), Some(b), Some(d)] = self.matmul.byte_spans() else { return Err(no_algorithm(self.matmul)) };
        let count = (ROUND_BYTES / (a + b + d).max(1)).clamp(1, 8);
        (0..count)
            .map(|n_th| {
                let random_elements = |bytes: usize, element: ElementType, salt: u64| {
                    let buffer = Buffer::new(self.device, bytes)?;
                    buffer.upload(&random_elements(element, bytes, salt + 7 * n_th as u64))?;
                    Ok::<Buffer, Error>(buffer)
                };
                let optional = |there: bool, elements: u64, salt: u64| {
                    there.then(|| random_elements(elements as usize * output.bytes(), output, salt)).transpose()
                };
                Ok(Arc::new(OperandSet {
                    a: random_elements(a, input, 1)?,
                    b: random_elements(b, input, 2)?,
                    d: Buffer::new(self.device, d)?,
                    bias: optional(epilogue.has_bias(), n, 3)?,
                    aux: optional(epilogue.has_aux(), m * n * batch, 4)?,
                }))
            })
            .collect()
    }
}

impl OperandSet {
    fn args(&self) -> MatmulArgs<'_> {
        let bias = self.bias.as_ref().map(|bias| (bias, 0));
        let aux = self.aux.as_ref().map(|aux| (aux, 0));
        MatmulArgs { bias, aux, ..MatmulArgs::new((&self.a, 0), (&self.b, 0), (&self.d, 0)) }
    }

    /// Returns the first elements of the result.
    fn sample(&self, matmul: &Matmul) -> Result<Vec<f64>> {
        let mut bytes = vec![0; self.d.bytes().min(1 << 16)];
        self.d.download_range(0, &mut bytes)?;
        Ok(bytes.chunks_exact(matmul.output.bytes()).map(|bytes| decode_element(matmul.output, bytes)).collect())
    }
}

/// Checks that the results of two algorithms differ by rounding only.
fn check_agreement(found: &[f64], expected: &[f64], matmul: &Matmul) -> Fallible<()> {
    let rounding = match (matmul.output, matmul.compute) {
        (ElementType::F64, _) => 1e-12,
        (ElementType::F32, super::ComputeType::F32) if matmul.input == ElementType::F32 => 1e-5,
        _ => 2e-2,
    };
    let size = expected.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let agrees = off <= rounding * size && found.iter().all(|x| x.is_finite());
    if agrees { Ok(()) } else { Err(format!("its results differ by {off:e}; the largest is {size:e}").into()) }
}

/// Returns `bytes` bytes of pseudorandom numbers between -1 and 1, determined by `salt`.
fn random_elements(element: ElementType, bytes: usize, salt: u64) -> Vec<u8> {
    const PERIOD: usize = 1 << 16;
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    let width = element.bytes();
    let mut all = Vec::with_capacity(bytes + width);
    // A period that is no multiple of row lengths, so that rows differ.
    while all.len() < bytes.min((PERIOD + 61) * width) {
        let x = next();
        match element {
            ElementType::F64 => all.extend(x.to_le_bytes()),
            ElementType::F32 => all.extend((x as f32).to_le_bytes()),
            ElementType::Bf16 => all.extend(((x as f32).to_bits() >> 16).to_le_bytes().iter().take(2)),
            // Truncates to half precision; subnormals become 0.
            ElementType::F16 => all.extend(half_bits(x as f32).to_le_bytes()),
        }
    }
    let period = all.len();
    while all.len() < bytes {
        let more = period.min(bytes - all.len());
        all.extend_from_within(..more);
    }
    all.truncate(bytes);
    all
}

fn half_bits(x: f32) -> u16 {
    let (sign, exponent, mantissa) = (x.to_bits() >> 31, (x.to_bits() >> 23 & 0xff) as i32 - 112, x.to_bits() >> 13);
    let size = if exponent <= 0 { 0 } else { (exponent as u32) << 10 | mantissa & 0x3ff };
    (sign << 15 | size) as u16
}

fn decode_element(element: ElementType, bytes: &[u8]) -> f64 {
    let bits = bytes.iter().rev().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
    match element {
        ElementType::F64 => f64::from_bits(bits),
        ElementType::F32 => f64::from(f32::from_bits(bits as u32)),
        ElementType::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
        ElementType::F16 => {
            let (sign, exponent, mantissa) = (bits >> 15, (bits >> 10 & 0x1f) as i32, (bits & 0x3ff) as f64);
            let size = match exponent {
                0 => mantissa * 2f64.powi(-24),
                31 => f64::NAN,
                _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
            };
            if sign == 1 { -size } else { size }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_elements_are_between_minus_one_and_one() {
        for element in [ElementType::F16, ElementType::Bf16, ElementType::F32, ElementType::F64] {
            let bytes = random_elements(element, 3_000_000 * element.bytes(), 5);
            assert_eq!(bytes.len(), 3_000_000 * element.bytes());
            let all: Vec<f64> =
                bytes.chunks_exact(element.bytes()).map(|bytes| decode_element(element, bytes)).collect();
            assert!(
                all.iter().all(|x| x.abs() <= 1.0) && all.iter().any(|x| *x < -0.9) && all.iter().any(|x| *x > 0.9)
            );
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            assert!(mean.abs() < 0.01, "{element:?}: {mean}");
            assert_ne!(bytes, random_elements(element, bytes.len(), 6));
        }
        assert_eq!(
            [0.5, -0.75, 1e-9].map(|x| decode_element(ElementType::F16, &half_bits(x).to_le_bytes())),
            [0.5, -0.75, 0.0]
        );
    }

    #[test]
    fn results_may_differ_by_rounding_only() {
        let matmul = Matmul::new(2, 2, 2, ElementType::F32);
        assert!(check_agreement(&[1.0, 2.0 + 1e-6], &[1.0, 2.0], &matmul).is_ok());
        assert!(check_agreement(&[1.0, 2.1], &[1.0, 2.0], &matmul).is_err());
        assert!(check_agreement(&[1.0, f64::NAN], &[1.0, 2.0], &matmul).is_err());
        assert!(check_agreement(&[1.0, 2.01], &[1.0, 2.0], &Matmul::new(2, 2, 2, ElementType::Bf16)).is_ok());
    }
}
