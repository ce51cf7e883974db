//! A launch that is repeated over memory of its own: all that can be found out before is found out once.

use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Kernel, Value};

use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{Flavour, Program, program};
use crate::runtime::status;
use crate::runtime::timing::About;
use crate::schedule::{realize, value_of};
use crate::{Device, Error, Place, Result, Tensor};

/// A launch of a kernel over arrays that it keeps: see [`crate::kernel::SourceKernel::record`].
///
/// ```
/// use bornite::{Device, Tensor, kernel::Module};
/// # fn main() -> bornite::Result<()> {
/// let module = Module::parse("twice.cu", "__global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }")?;
/// let x = Tensor::from_slice(&[1.0f32; 256], &[256], Device::cpu());
/// let twice = module.kernel("twice")?.record(256, &[(&x).into()])?;
/// (0..10).try_for_each(|_| twice.run())?;
/// assert_eq!(twice.array("x")?.to_vec::<f32>()?[7], 1024.0);
/// # Ok(())
/// # }
/// ```
pub struct Recorded {
    program: Arc<Program>,
    /// By view; on CUDA, words of its own for bad indices come last.
    buffers: Vec<Buffer>,
    values: Vec<Vec<Value>>,
    /// The arrays as they came, and the view of each name.
    like: Vec<Tensor>,
    names: Vec<(String, usize)>,
    device: Device,
    place: Place,
    /// The first bad index: what was computed with it is of no use ever after.
    failed: Mutex<Option<Error>>,
}

impl Recorded {
    pub(crate) fn new(
        kernel: &Kernel,
        names: Vec<(String, usize)>,
        arrays: &[Tensor],
        mut values: Vec<Vec<Value>>,
        place: Place,
    ) -> Result<Recorded> {
        realize(arrays)?;
        let device = arrays.first().map_or(Ok(Device::cpu()), |array| array.node().map(|node| node.device))?;
        if let Some(other) = arrays.iter().find(|array| array.0.device != device) {
            let what = format!("arrays are on {device} and {}; make them on one device", other.0.device);
            return Err(Error::Op { op: "kernel", what, at: place });
        }
        let flavour = if device.is_cuda() { Flavour::Checked } else { Flavour::Exact };
        let program = program(device, kernel, flavour)?;
        let _running = device.lock();
        let mut buffers =
            arrays.iter().map(|array| value_of(array)?.duplicate(device)).collect::<Result<Vec<Buffer>>>()?;
        if flavour == Flavour::Checked {
            buffers.push(Buffer::from_words(device, vec![0; status::WORDS as usize])?);
            values.push(vec![Value::int(crate::DType::I64, status::kernel_code(kernel, &values, place))]);
        }
        let failed = Mutex::default();
        Ok(Recorded { program, buffers, values, like: arrays.to_vec(), names, device, place, failed })
    }

    /// Gives a launch to the device. A GPU may go on after this returns; a bad index is then an error of [`Recorded::array`].
    pub fn run(&self) -> Result<()> {
        let _running = self.device.lock();
        let buffers: Vec<&Buffer> = self.buffers.iter().collect();
        let values: Vec<&[Value]> = self.values.iter().map(Vec::as_slice).collect();
        let launched = self.program.launch(&buffers, &values, BLOCK, About::at(self.place));
        if let Err(error) = &launched {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
        launched
    }

    /// An array as it is after all launches so far.
    pub fn array(&self, name: &str) -> Result<Tensor> {
        let Some((_, view)) = self.names.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = self.names.iter().map(|(name, _)| &name[..]).collect();
            let what = format!("there is no array '{name}'; there are {}", names.join(", "));
            return Err(Error::Op { op: "kernel", what, at: self.place });
        };
        let _running = self.device.lock();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(words), None) = (self.device.is_cuda(), self.buffers.last(), &*failed) {
            *failed = status::check(self.device, words).err();
        }
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let like = &self.like[*view].0;
        Ok(Tensor(Arc::new(Node::leaf(Op::Data, like, self.place, self.buffers[*view].duplicate(self.device)?))))
    }
}
