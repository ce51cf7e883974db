//! New values on their way to variables, in a captured step that can meet a bad index. The device itself looks at the words
//! in which that is reported before it copies, so that a call is one launch: the host looks afterwards.

use std::sync::Arc;

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Access, Builder, Emit, EmitBits, Extent, Kernel, Op as ScalarOp, Scalar, Value, contiguous};

use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{CodegenMode, Program, program};
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Result, SourceLocation};

/// Copies memory unless a bad index was reported. Memory has whole words, whatever it holds.
pub(super) struct GuardedCopy(Arc<Program>);

impl GuardedCopy {
    /// The code for a device, compiled if need be.
    pub fn ready(device: Device) -> Result<GuardedCopy> {
        program(device, &kernel()?, CodegenMode::Exact).map(GuardedCopy)
    }

    /// What keeps the code alive.
    pub fn kept(&self) -> Arc<Program> {
        self.0.clone()
    }

    /// Copies, in the order of the device's work. The device's lock is held.
    pub fn run(&self, to: &Buffer, from: &Buffer, status: &Buffer) -> Result<()> {
        let words = to.bytes().min(from.bytes()) / 8;
        if words == 0 {
            return Ok(());
        }
        let count = [Value::int(Scalar::I64, words as i64)];
        self.0.launch(&[to, from, status], &[&count], BLOCK, LaunchInfo::at(SourceLocation::here()))
    }
}

fn kernel() -> Result<Kernel> {
    let mut b = Builder::new("homecoming", 0, Scalar::I64);
    let _words = b.value("words", Scalar::I64);
    b.count(Extent::Value(0));
    let home = b.view("home", Scalar::U64, &contiguous(&[Extent::Value(0)]), Access::Write);
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
            b.store(home, i, value);
        },
        |_| {},
    );
    Ok(b.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_home_unless_an_index_was_bad() {
        for device in [Device::cpu(), Device::Interpreter] {
            for (status, expected) in [([0, 0], vec![1, 2, 3]), ([0, 9], vec![1, 2, 3]), ([4, 0], vec![7; 3])] {
                let buffer = |words: &[u64]| Buffer::from_words(device, words.to_vec()).unwrap();
                let (home, new, status) = (buffer(&[7; 3]), buffer(&[1, 2, 3]), buffer(&status));
                GuardedCopy::ready(device).unwrap().run(&home, &new, &status).unwrap();
                assert_eq!(home.to_words().unwrap(), expected, "on {device}");
                let nothing = buffer(&[]);
                GuardedCopy::ready(device).unwrap().run(&nothing, &nothing, &status).unwrap();
            }
        }
    }

    #[test]
    fn the_kernel_is_cuda() {
        match bornite_cuda::nvrtc_version() {
            Ok(_) => {
                let source = bornite_codegen::cuda::print(&kernel().unwrap());
                bornite_cuda::compile("homecoming", &source, "sm_75").unwrap();
            }
            Err(why) => println!("skipped: {why}"),
        }
    }
}
