//! A kernel with its memory, run again and again: for timing, tuning and trying out kernels of one's own.

use std::sync::Arc;

use bornite_codegen::cuda::BLOCK;
use bornite_cuda::DeviceTimer;
use bornite_ir::{Kernel, Scalar, Value, peek, verify};
use bornite_support::tune::{Choice, Found, HostTimer, Key, Platform, Request, Timer, Tuner, digest};

use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{Flavour, Program, bad_call, limited, program};
use crate::runtime::timing::About;
use crate::{Device, Place, Result};

/// A kernel on a device with one or more sets of memory to rotate over, each a list of 64-bit words a view.
///
/// ```
/// use bornite::{Device, ir::{Scalar, Value, peek, poke, templates}, kernel::Runner};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kernel = templates::axpy(Scalar::F32, 4, 2.0)?; // out = 2 x + y
/// let mut x = vec![0; 2];
/// (0..4).for_each(|n| poke(&mut x, 4 * n, Value::from_f64(Scalar::F32, n as f64)));
/// let runner = Runner::new(&kernel, &[], Device::cpu(), vec![vec![x.clone(), x, vec![0; 2]]])?;
/// runner.run(0)?;
/// assert_eq!(peek(&runner.memory(0)?[2], 12, Scalar::F32).as_f64(), 9.0);
/// # Ok(())
/// # }
/// ```
pub struct Runner {
    program: Arc<Program>,
    kernel: Kernel,
    values: Vec<Vec<Value>>,
    sets: Vec<Vec<Buffer>>,
    /// What views that are read and written held at first, where it must be so at every run.
    fresh: Option<Vec<Vec<Vec<u64>>>>,
    device: Device,
    place: Place,
}

impl Runner {
    /// Compiles a kernel and puts its memory on the device. On CUDA the kernel first runs on the interpreter over every
    /// set, whose checks the GPU has not; and a view that is both read and written is filled anew before each run, since
    /// only its first contents were checked.
    #[track_caller]
    pub fn new(kernel: &Kernel, values: &[&[Value]], device: Device, memory: Vec<Vec<Vec<u64>>>) -> Result<Runner> {
        Runner::checked(kernel, values, device, memory, None, Place::here())
    }

    /// As [`Runner::new`], for a kernel that may not end: a run ends with [`FaultKind::TooLong`](bornite_ir::FaultKind) after
    /// `max_statements` statements of a block, or of an instance where the CPU runs it as machine code. On CUDA that limit is
    /// the interpreter's, before the first launch.
    ///
    /// ```
    /// use bornite::{Device, ir::Kernel, kernel::Runner};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = "bornite-ir 1\nkernel endless parallel_for 4 index i64\n{\n  loop {\n  }\n}\n";
    /// let endless: Kernel = text.parse()?;
    /// let runner = Runner::limited(&endless, &[], Device::cpu(), vec![vec![]], 1_000_000)?;
    /// assert!(runner.run(0).unwrap_err().to_string().contains("still running after 1000000 statements"));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn limited(
        kernel: &Kernel,
        values: &[&[Value]],
        device: Device,
        memory: Vec<Vec<Vec<u64>>>,
        max_statements: u64,
    ) -> Result<Runner> {
        Runner::checked(kernel, values, device, memory, Some(max_statements), Place::here())
    }

    fn checked(
        kernel: &Kernel,
        values: &[&[Value]],
        device: Device,
        memory: Vec<Vec<Vec<u64>>>,
        max_statements: Option<u64>,
        place: Place,
    ) -> Result<Runner> {
        let mut fresh = None;
        if device.is_cuda() {
            for set in &memory {
                let set = vec![set.clone()];
                Runner::load(kernel, values, Device::Interpreter, set, max_statements, place)?.run(0)?;
            }
            let changes = kernel.params.iter().any(|p| p.access.reads() && p.access.writes());
            fresh = changes.then(|| memory.clone());
        }
        Ok(Runner { fresh, ..Runner::load(kernel, values, device, memory, max_statements, place)? })
    }

    /// As [`Runner::new`], without the interpreter's check, which takes long for large kernels.
    ///
    /// # Safety
    /// With these values and this memory, however often it ran before, the kernel must index within its views, and its
    /// threads must not race.
    #[allow(unsafe_code)]
    #[track_caller]
    pub unsafe fn unchecked(
        kernel: &Kernel,
        values: &[&[Value]],
        device: Device,
        memory: Vec<Vec<Vec<u64>>>,
    ) -> Result<Runner> {
        Runner::load(kernel, values, device, memory, None, Place::here())
    }

    fn load(
        kernel: &Kernel,
        values: &[&[Value]],
        device: Device,
        memory: Vec<Vec<Vec<u64>>>,
        max_statements: Option<u64>,
        place: Place,
    ) -> Result<Runner> {
        verify(kernel)?;
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        for set in &memory {
            let fits = |(param, words): (_, &Vec<u64>)| {
                kernel.view_bytes(param, &firsts).is_some_and(|b| b <= words.len() * 8)
            };
            if set.len() != kernel.params.len() || !kernel.params.iter().zip(set).all(fits) {
                return Err(bad_call(kernel, "its memory is not as long as its views"));
            }
        }
        let program = match max_statements {
            None => program(device, kernel, Flavour::Exact)?,
            Some(most) => Arc::new(limited(device, kernel, most)?),
        };
        let _running = device.lock();
        let load = |words| Buffer::from_words(device, words);
        let sets = memory.into_iter().map(|set| set.into_iter().map(load).collect::<Result<Vec<_>>>());
        Ok(Runner {
            program,
            kernel: kernel.clone(),
            values: values.iter().map(|parts| parts.to_vec()).collect(),
            sets: sets.collect::<Result<_>>()?,
            fresh: None,
            device,
            place,
        })
    }

    /// Gives one run over a set of memory to the device, modulo the number of sets. A GPU may go on after this returns.
    pub fn run(&self, set: usize) -> Result<()> {
        let Some(index) = set.checked_rem(self.sets.len()) else { return Ok(()) };
        let _running = self.device.lock();
        let buffers = &self.sets[index];
        if let Some(fresh) = &self.fresh {
            for ((param, buffer), words) in self.kernel.params.iter().zip(buffers).zip(&fresh[index]) {
                if param.access.reads() && param.access.writes() {
                    buffer.copy_from(&Buffer::from_words(self.device, words.clone())?)?;
                }
            }
        }
        let values: Vec<&[Value]> = self.values.iter().map(Vec::as_slice).collect();
        self.program.launch(&buffers.iter().collect::<Vec<_>>(), &values, BLOCK, About::at(self.place))
    }

    /// What a set's views hold, after all runs.
    pub fn memory(&self, set: usize) -> Result<Vec<Vec<u64>>> {
        let Some(index) = set.checked_rem(self.sets.len()) else { return Ok(vec![]) };
        self.sets[index].iter().map(Buffer::to_words).collect()
    }

    /// What runs it: `interpreter` (also on the CPU, for kernels whose threads wait for each other), `machine code` or
    /// `CUDA`.
    pub fn engine(&self) -> &'static str {
        self.program.engine()
    }

    /// The largest difference in what two runs wrote, relative to the largest magnitude in the view; 0 for equal values,
    /// infinite where only one is a number.
    pub fn difference(&self, ours: &[Vec<u64>], theirs: &[Vec<u64>]) -> f64 {
        let firsts: Vec<Value> = self.values.iter().filter_map(|parts| parts.first().copied()).collect();
        let mut largest: f64 = 0.0;
        let views = self.kernel.params.iter().zip(ours).zip(theirs);
        for ((param, a), b) in views.filter(|((param, _), _)| param.access.writes()) {
            let layout = param.ty.layout(&self.kernel.structs);
            let elements = self.kernel.span(&param.dims, &firsts).map_or(0, |span| span.elements as usize);
            let places =
                (0..elements).flat_map(|n| layout.offsets.iter().map(move |(at, s)| (n * layout.bytes + at, *s)));
            let pairs: Vec<(f64, f64)> =
                places.map(|(at, s): (usize, Scalar)| (read(a, at, s), read(b, at, s))).collect();
            let scale = pairs.iter().map(|(_, b)| b.abs()).filter(|b| b.is_finite()).fold(0.0, f64::max);
            for (a, b) in pairs {
                let difference = match (a == b || (a.is_nan() && b.is_nan()), scale > 0.0) {
                    (true, _) => 0.0,
                    (false, true) => (a - b).abs() / scale,
                    (false, false) => (a - b).abs(),
                };
                largest = largest.max(if difference.is_nan() { f64::INFINITY } else { difference });
            }
        }
        largest
    }
}

fn read(words: &[u64], at: usize, scalar: Scalar) -> f64 {
    if at + scalar.bytes() <= words.len() * 8 { peek(words, at, scalar).as_f64() } else { f64::NAN }
}

/// Finds the fastest of several kernels that compute the same over the same memory, on a device: each is run on the
/// device, compared with what the first computes on the interpreter (`tolerance`, relative to the largest value), and
/// timed over all sets of memory. On CUDA every kernel is checked on the interpreter first, so sizes should be
/// moderate.
///
/// The tuner decides whether anything is measured at all ([`bornite_support::tune::Mode`]) and keeps what it found.
#[track_caller]
pub fn tune_kernel(
    tuner: &Tuner,
    variants: &[(Choice, Kernel)],
    values: &[&[Value]],
    memory: &[Vec<Vec<u64>>],
    device: Device,
    tolerance: f64,
) -> Result<Found> {
    let make = |kernel: &Kernel, device, memory| Runner::new(kernel, values, device, memory);
    tune_with(make, Device::Interpreter, tuner, variants, values, memory, device, tolerance)
}

/// As [`tune_kernel`], without the interpreter, which takes long for large kernels: each kernel is compared with the
/// first one on the same device.
///
/// # Safety
/// As for [`Runner::unchecked`], for every kernel.
#[allow(unsafe_code)]
#[track_caller]
pub unsafe fn tune_kernel_unchecked(
    tuner: &Tuner,
    variants: &[(Choice, Kernel)],
    values: &[&[Value]],
    memory: &[Vec<Vec<u64>>],
    device: Device,
    tolerance: f64,
) -> Result<Found> {
    let place = Place::here();
    let make = |kernel: &Kernel, device, memory| Runner::load(kernel, values, device, memory, None, place);
    tune_with(make, device, tuner, variants, values, memory, device, tolerance)
}

#[allow(clippy::too_many_arguments)] // the arguments of the two above, and what differs between them
#[track_caller]
fn tune_with(
    make: impl Fn(&Kernel, Device, Vec<Vec<Vec<u64>>>) -> Result<Runner>,
    judge: Device,
    tuner: &Tuner,
    variants: &[(Choice, Kernel)],
    values: &[&[Value]],
    memory: &[Vec<Vec<u64>>],
    device: Device,
    tolerance: f64,
) -> Result<Found> {
    let Some((_, first)) = variants.first() else {
        return Ok(Found { choice: Choice::new(), record: None, measured: false, again: false });
    };
    let (platform, mut timer): (Platform, Box<dyn Timer>) = match device.gpu()? {
        Some(gpu) => (bornite_cuda::platform(&gpu)?, Box::new(DeviceTimer::new(&gpu))),
        None => (Platform::host(&device.to_string()), Box::new(HostTimer::new())),
    };
    let key = key_of(variants, first, values, platform);
    let candidates: Vec<Choice> = variants.iter().map(|(choice, _)| choice.clone()).collect();
    let mut expected: Option<Vec<Vec<u64>>> = None;
    let choose = || {
        tuner.choose(
            &Request { key: &key, candidates: &candidates, busy: false, waits: true },
            &mut *timer,
            |choice| {
                let found = variants.iter().find(|(c, _)| c == choice);
                let (_, kernel) = found.ok_or("an unknown candidate")?;
                Ok(make(kernel, device, memory.to_vec())?)
            },
            |runner: &mut Runner| {
                let expected = match &expected {
                    Some(expected) => expected,
                    None => {
                        let judge = make(first, judge, memory.iter().take(1).cloned().collect())?;
                        judge.run(0)?;
                        expected.insert(judge.memory(0)?)
                    }
                };
                runner.run(0)?;
                match runner.difference(&runner.memory(0)?, expected) {
                    difference if difference <= tolerance => Ok(()),
                    difference => Err(format!("wrong by {difference:.1e} of the largest value").into()),
                }
            },
            |runner, set| Ok(runner.run(set)?),
        )
    };
    // To the end once it has begun: candidates that an interrupt left out would count as failed in a record that is kept.
    Ok(crate::interruptible(None, choose))
}

/// What the best variant of a kernel depends on: all of them.
fn key_of(variants: &[(Choice, Kernel)], kernel: &Kernel, values: &[&[Value]], platform: Platform) -> Key {
    let texts: String = variants.iter().map(|(_, kernel)| kernel.to_string()).collect();
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let extents = kernel.params.iter().flat_map(|param| param.dims.iter().map(|dim| dim.extent.of(&firsts)));
    Key {
        // Kernels of one name and shape may differ; the hash tells them apart.
        operation: format!("kernel {} {}", kernel.name, digest(&texts)),
        shape: extents.map(|extent| extent as u64).collect(),
        dtype: kernel.params.iter().map(|p| p.ty.name(&kernel.structs).to_string()).collect::<Vec<_>>().join(","),
        platform,
    }
}
