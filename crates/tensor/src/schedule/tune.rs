//! Pass 5, tune: autotuned launch shapes of generated kernels: elements per thread, threads per
//! block, rows per block.
//!
//! Reads `units`; sets `launch_shape` of groups for which the default is not the fastest. A launch
//! shape does not change results, which is checked before anything is timed; summation order is not
//! tuned. Without measurements (`BORNITE_TUNE`) the default is used.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cpu::is_interrupted;
use bornite_cuda::DeviceTimer;
use bornite_cuda::Graph;
use bornite_ir::Value;
use bornite_support::tune::{Choice, ExclusiveTimer, Fallible, TuneMode, Tuner, TuningKey, TuningRequest, digest};

use super::Schedule;
use super::fuse::WorkItem;
use super::steps::codegen_mode_of;
use crate::graph::node::{NodeId, Op};
use crate::lower::{
    Group, InPlaceOutputs, IterationSpace, LaunchShape, Lowered, SumStorage, can_report_bad_index, kernel_name,
    launch_shapes, look_through, lower_group, strided_view,
};
use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{CodegenMode, Program, program};
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Error, Result, Tensor};

/// Launches in one captured graph.
const RUNS: usize = 64;
/// Total bytes of the sets of arguments that launches rotate through, so that they do not stay in a
/// cache.
const ROUND_BYTES: usize = 256 << 20;

/// Kernels that access more bytes are not tuned: they are bandwidth-bound with any launch shape.
const MAX_BYTES: usize = 1 << 30;

pub(super) fn choose_launch_shapes(schedule: &mut Schedule) -> Result<()> {
    let Some(on) = schedule.device.gpu()? else { return Ok(()) };
    let tuner = Tuner::global()?;
    if tuner.mode() == TuneMode::Off {
        return Ok(());
    }
    for unit in &mut schedule.units {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        if let WorkItem::Group(group) = unit
            && !group.order.iter().any(|tensor| can_report_bad_index(&tensor.0))
        {
            group.launch_shape = cached_choice(tuner, &on, group, schedule.device)?;
        }
    }
    Ok(())
}

/// Device ordinal and structure of a group.
type CacheKey = (usize, String);

/// The launch shape chosen for a group, if it is not the default. Choices are cached, since layers
/// repeat the same groups.
fn cached_choice(
    tuner: &Tuner,
    on: &Arc<bornite_cuda::Device>,
    group: &Group,
    device: Device,
) -> Result<Option<LaunchShape>> {
    const MAX_ENTRIES: usize = 4096;
    static CACHE: Mutex<Option<HashMap<CacheKey, (TuneMode, Option<LaunchShape>)>>> = Mutex::new(None);
    let lock = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (on.info().ordinal, structure(group));
    // A choice made in another mode, which may not have allowed measurements, does not count.
    let found = lock().get_or_insert_default().get(&key).filter(|(mode, _)| *mode == tuner.mode()).copied();
    if let Some((_, launch_shape)) = found {
        return Ok(launch_shape);
    }
    let (launch_shape, is_provisional) = choose(tuner, on, group, &key.1, device)?;
    if is_provisional {
        return Ok(launch_shape);
    }
    let mut cache = lock();
    let cache = cache.get_or_insert_default();
    if cache.len() >= MAX_ENTRIES {
        cache.clear();
    }
    cache.insert(key, (tuner.mode(), launch_shape));
    Ok(launch_shape)
}

/// Text of everything that a group's kernel depends on except node ids: ops, dtypes, shapes and
/// layouts of inputs.
fn structure(group: &Group) -> String {
    let mut numbers: HashMap<NodeId, usize> = HashMap::new();
    let mut text = format!("{:?}", group.space);
    let mut node = |tensor: &Tensor, text: &mut String| {
        let next = numbers.len();
        let number = *numbers.entry(tensor.0.id).or_insert(next);
        let _ = write!(text, " {number}:{}{:?}", tensor.0.dtype, tensor.0.shape);
    };
    let input = |tensor: &Tensor, text: &mut String, node: &mut dyn FnMut(&Tensor, &mut String)| {
        let (base, views) = look_through(tensor);
        match (&base.0.op, strided_view(base, &views)) {
            // Float constants other than 0 and 1 are arguments of the kernel.
            (Op::Full(value), _) if !base.0.has_value() => {
                let plain = !value.scalar().is_float() || [0.0, 1.0].contains(&value.as_f64());
                let _ = if plain { write!(text, " {value:?}") } else { write!(text, " {}", value.scalar()) };
            }
            (_, Some(layout)) => {
                node(base, text);
                let _ = write!(text, "@{layout:?}");
            }
            (_, None) => {
                node(base, text);
                views.iter().for_each(|view| _ = write!(text, "@{:?}", view.0.op));
            }
        }
    };
    for tensor in &group.order {
        let _ = write!(text, ";{:?}", tensor.0.op);
        node(tensor, &mut text);
        tensor.0.reads().iter().for_each(|read| input(read, &mut text, &mut node));
    }
    for output in group.outputs.iter().chain(&group.column_sums) {
        text.push('>');
        node(output, &mut text);
        input(output, &mut text, &mut node);
    }
    text
}

/// The launch shape chosen for a group, if it is not the default, and whether the choice is
/// provisional.
fn choose(
    tuner: &Tuner,
    on: &Arc<bornite_cuda::Device>,
    group: &Group,
    structure: &str,
    device: Device,
) -> Result<(Option<LaunchShape>, bool)> {
    let shapes = launch_shapes(group, device);
    if shapes.len() < 2 {
        return Ok((None, false));
    }
    let candidates: Vec<Choice> = shapes.iter().map(choice).collect();
    let shape = match group.space {
        IterationSpace::Elements(elements) => vec![elements],
        IterationSpace::Rows { rows, columns } => vec![rows, columns],
        IterationSpace::Middle { outer, middle, inner } => vec![outer, middle, inner],
    };
    let key = TuningKey {
        operation: format!("{} {}", kernel_name(group), digest(structure)),
        shape: shape.into_iter().map(|n| n as u64).collect(),
        dtype: group.outputs.first().map_or(DType::F32, |output| output.0.dtype).to_string(),
        platform: bornite_cuda::platform(on)?,
    };
    let flavour = codegen_mode_of(group)?;
    let mut memory: Vec<Vec<Buffer>> = vec![];
    let mut expected: Option<Vec<Vec<u64>>> = None;
    let prepare = |choice: &Choice| -> Fallible<Graph> {
        let at = candidates.iter().position(|candidate| candidate == choice).ok_or("unknown launch shape")?;
        let trial = TrialKernel::new(group, shapes[at], device, flavour)?;
        if memory.is_empty() {
            memory = arguments(device, &trial.lowered)?;
        }
        let _exclusive = device.lock();
        let results = trial.results(&memory[0])?;
        if *expected.get_or_insert_with(|| results.clone()) != results {
            return Err("its results differ from those of the default launch shape".into());
        }
        let run = |n: usize| trial.launch(&memory[n % memory.len()]);
        let keep_alive = memory.iter().flatten().filter_map(Buffer::keep_alive);
        let keep_alive = keep_alive.chain([trial.program.clone() as Arc<dyn Any + Send + Sync>]).collect();
        // SAFETY: these are the program and all of the buffers that the launches use.
        #[allow(unsafe_code)]
        let graph = unsafe { Graph::capture::<Error>(on, keep_alive, || (0..RUNS).try_for_each(run))? };
        Ok(graph)
    };
    // No capture is in progress during planning. Candidates are compiled while other threads use
    // the device, and timed under its lock.
    let request = TuningRequest { key: &key, candidates: &candidates, busy: false, may_wait: true };
    let mut timer = ExclusiveTimer::new(DeviceTimer::with_repeats(on, RUNS), || device.lock());
    let choose = || tuner.choose(&request, &mut timer, prepare, |_| Ok(()), |graph, _| Ok(graph.launch()?));
    // Not interruptible: candidates skipped by an interrupt would be recorded as failed.
    let found = crate::interruptible(None, choose);
    let at = candidates.iter().position(|candidate| *candidate == found.choice).unwrap_or(0);
    Ok(((at > 0).then(|| shapes[at]), found.retry_later))
}

fn choice(launch_shape: &LaunchShape) -> Choice {
    let LaunchShape { lanes, threads, sum_storage } = *launch_shape;
    let choice = Choice::new().with("lanes", lanes as i64).with("threads", i64::from(threads));
    match sum_storage {
        None => choice,
        Some(storage) => choice.with("shared_sums", i64::from(storage == SumStorage::Shared)),
    }
}

/// The kernel of a group with one launch shape.
struct TrialKernel {
    device: Device,
    lowered: Lowered,
    program: Arc<Program>,
    /// Outputs of the group, which are the first arguments.
    output_count: usize,
}

impl TrialKernel {
    fn new(group: &Group, shape: LaunchShape, device: Device, mode: CodegenMode) -> Result<TrialKernel> {
        let group = Group { launch_shape: Some(shape), ..group.clone() };
        let lowered = lower_group(&group, device, &InPlaceOutputs::default())?;
        let program = program(device, &lowered.kernel, mode)?;
        Ok(TrialKernel { device, lowered, program, output_count: group.outputs.len() + group.column_sums.len() })
    }

    fn launch(&self, buffers: &[Buffer]) -> Result<()> {
        let values: Vec<[Value; 1]> = self.lowered.values.iter().map(|value| [*value]).collect();
        let values: Vec<&[Value]> = values.iter().map(|value| &value[..]).collect();
        let buffers: Vec<&Buffer> = buffers.iter().collect();
        self.program.launch(&buffers, &values, self.lowered.threads, LaunchInfo::default())
    }

    /// The outputs of one launch.
    fn results(&self, buffers: &[Buffer]) -> Result<Vec<Vec<u64>>> {
        let outputs = &buffers[..self.output_count];
        // Clear the outputs, so that elements left out by this candidate do not keep the values of
        // the previous one.
        for out in outputs {
            out.copy_from(&Buffer::from_words(self.device, vec![0xa5a5_a5a5_a5a5_a5a5; out.bytes() / 8])?)?;
        }
        self.launch(buffers)?;
        outputs.iter().map(Buffer::to_words).collect()
    }
}

/// Sets of buffers for a kernel's arguments; inputs hold values between 1 and 2.
fn arguments(device: Device, lowered: &Lowered) -> Fallible<Vec<Vec<Buffer>>> {
    let bytes: Vec<usize> = (lowered.kernel.params.iter())
        .map(|param| lowered.kernel.view_bytes(param, &lowered.values).unwrap_or(usize::MAX))
        .collect();
    let all = bytes.iter().fold(0usize, |sum, bytes| sum.saturating_add(*bytes));
    if all > MAX_BYTES {
        return Err(format!("the arguments take {all} bytes; kernels above {MAX_BYTES} bytes are not tuned").into());
    }
    let make = |(param, bytes): (&bornite_ir::Param, usize)| match param.access.reads() {
        true => {
            Buffer::from_words(device, test_values(crate::runtime::execute::array_dtype(&lowered.kernel, param), bytes))
        }
        false => Buffer::new(device, bytes),
    };
    let set = || lowered.kernel.params.iter().zip(bytes.iter().copied()).map(make).collect::<Result<Vec<_>>>();
    let sets = (ROUND_BYTES / all.max(1)).clamp(1, RUNS);
    Ok((0..sets).map(|_| set()).collect::<Result<Vec<_>>>()?)
}

/// Packed values between 1 and 2, or 1 for integers; bools of both kinds.
fn test_values(dtype: DType, bytes: usize) -> Vec<u64> {
    let (width, mut state) = (dtype.bytes(), 1u64);
    let mut word = || {
        (0..8 / width).fold(0u64, |word, n| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = (state >> 40) as f64 / (1u64 << 24) as f64;
            let value = if dtype == DType::Bool {
                Value::int(dtype, i64::from(x < 0.5))
            } else {
                Value::from_f64(dtype, 1.0 + x)
            };
            word | value.bits() << (8 * width * n)
        })
    };
    let period: Vec<u64> = (0..4099).map(|_| word()).collect();
    period.iter().copied().cycle().take(bytes.div_ceil(8)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ExistingResults, collect, direct_writes, fuse, select};
    use super::*;
    use crate::lower::{SumStorage, with_gpu_kernels};

    /// Runs the kernels of `tensors` with all candidates in the interpreter; returns all of their
    /// launch shapes.
    fn check_launch_shapes(tensors: &[Tensor]) -> Fallible<Vec<LaunchShape>> {
        let device = Device::Interpreter;
        let mut schedule = Schedule::new(tensors, ExistingResults::Skip, &[])?;
        collect::collect(&mut schedule)?;
        select::select_library_calls(&mut schedule)?;
        direct_writes::plan_direct_writes(&mut schedule)?;
        fuse::fuse(&mut schedule)?;
        let mut all = vec![];
        for unit in &schedule.units {
            let WorkItem::Group(group) = unit else { continue };
            let shapes = launch_shapes(group, device);
            let (mut memory, mut expected) = (vec![], None);
            for &shape in &shapes {
                let trial = TrialKernel::new(group, shape, device, codegen_mode_of(group)?)?;
                if memory.is_empty() {
                    memory = arguments(device, &trial.lowered)?.swap_remove(0);
                }
                let results = trial.results(&memory)?;
                assert_eq!(*expected.get_or_insert_with(|| results.clone()), results, "{shape:?} of {shapes:?}");
            }
            all.extend(shapes);
        }
        Ok(all)
    }

    #[test]
    fn every_launch_shape_gives_the_same_bits() {
        let input = |shape: &[usize], dtype| {
            let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|n| (n * 37 % 101) as f32).collect();
            let tensor = Tensor::from_slice(&values, shape, Device::Interpreter).cast(dtype);
            tensor.realize().unwrap();
            tensor.detach()
        };
        for dtype in [DType::F32, DType::BF16] {
            let x = input(&[8192, 128], dtype);
            let (weight, bias) = (input(&[128], dtype), input(&[128], dtype));
            let norm = x.layer_norm(&weight, &bias, 1e-5);
            let gradients = (&norm * &x).sum(..).grad(&[&x, &weight, &bias]);
            let row = input(&[64, 256], dtype);
            let elements = (&row * 2.0 + &row).relu();
            let found = with_gpu_kernels(|| {
                let [norm, rows, elements] = [&gradients[..], &[row.softmax(-1)], &[elements]].map(check_launch_shapes);
                Fallible::Ok([norm?, rows?, elements?])
            });
            let [norm, rows, elements] = found.unwrap();
            let storages: Vec<SumStorage> = norm.iter().filter_map(|shape| shape.sum_storage).collect();
            assert_eq!(storages, [SumStorage::Shared, SumStorage::Registers]);
            assert_eq!(rows.len(), 4);
            assert!(elements.len() > 4);
        }
    }
}
