//! Guarded write-back: copies new values into their variables on the device, unless the step
//! reported an out-of-range index. The device checks the status words itself, so that a call is one
//! graph launch; the host checks them afterwards.

use std::sync::Arc;

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::{Access, Builder, Emit, EmitBits, Extent, Kernel, Op as ScalarOp, Scalar, Value, contiguous};

use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{CodegenMode, Program, program};
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Result, SourceLocation};

/// The kernel that copies memory unless an out-of-range index was reported. It copies 64-bit words.
pub(super) struct GuardedCopy(Arc<Program>);

impl GuardedCopy {
    /// The kernel for a device; compiled on first use.
    pub fn compiled(device: Device) -> Result<GuardedCopy> {
        program(device, &kernel()?, CodegenMode::Exact).map(GuardedCopy)
    }

    /// A handle that keeps the code alive.
    pub fn keep_alive(&self) -> Arc<Program> {
        self.0.clone()
    }

    /// Copies in stream order. The device must be locked.
    pub fn run(&self, to: &Buffer, from: &Buffer, status: &Buffer) -> Result<()> {
        let words = to.bytes().min(from.bytes()) / 8;
        if words == 0 {
            return Ok(());
        }
        let count = [Value::int(Scalar::I64, words as i64)];
        self.0.launch(&[to, from, status], &[&count], THREADS_PER_BLOCK, LaunchInfo::at(SourceLocation::here()))
    }
}

fn kernel() -> Result<Kernel> {
    let mut b = Builder::new("homecoming", 0, Scalar::I64);
    let _words = b.value("words", Scalar::I64);
    b.set_instance_count(Extent::Value(0));
    let to = b.view("home", Scalar::U64, &contiguous(&[Extent::Value(0)]), Access::Write);
    let new = b.view("new", Scalar::U64, &contiguous(&[Extent::Value(0)]), Access::Read);
    let status = b.view("status", Scalar::U64, &contiguous(&[crate::runtime::status::WORDS.into()]), Access::Read);
    let i = b.index();
    let first = b.constant(Value::int(Scalar::I64, 0));
    let reported = b.load(status, first);
    let none = b.constant(Value::int(Scalar::U64, 0));
    let good = b.op(ScalarOp::Eq, &[&reported, &none]);
    b.if_else(
        good,
        |b| {
            let value = b.load(new, i);
            b.store(to, i, value);
        },
        |_| {},
    );
    Ok(b.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_copied_unless_an_index_was_out_of_range() {
        for device in [Device::cpu(), Device::Interpreter] {
            for (status, expected) in [([0, 0], vec![1, 2, 3]), ([0, 9], vec![1, 2, 3]), ([4, 0], vec![7; 3])] {
                let buffer = |words: &[u64]| Buffer::from_words(device, words.to_vec()).unwrap();
                let (to, new, status) = (buffer(&[7; 3]), buffer(&[1, 2, 3]), buffer(&status));
                GuardedCopy::compiled(device).unwrap().run(&to, &new, &status).unwrap();
                assert_eq!(to.to_words().unwrap(), expected, "on {device}");
                let nothing = buffer(&[]);
                GuardedCopy::compiled(device).unwrap().run(&nothing, &nothing, &status).unwrap();
            }
        }
    }

    #[test]
    fn the_kernel_compiles_for_cuda() {
        match bornite_cuda::nvrtc_version() {
            Ok(_) => {
                let source = bornite_codegen::cuda::print(&kernel().unwrap());
                bornite_cuda::compile("homecoming", &source, "sm_75").unwrap();
            }
            Err(why) => println!("skipped: {why}"),
        }
    }
}
