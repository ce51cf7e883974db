//! Padding and truncating copies with dynamic sizes. The kernel takes sizes as arguments, so that
//! no kernel is compiled per size.

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::{Access, Builder, Emit, Extent, Kernel, Op as ScalarOp, Scalar, Value, contiguous};

use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{CodegenMode, Program, program};
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Result, SourceLocation};

/// A copy of blocks of `from` elements to blocks of `to` elements, truncated or padded with zeros.
/// The destination starts at element `offset`.
pub(crate) struct ResizeCopy {
    pub blocks: usize,
    pub from: usize,
    pub to: usize,
    pub offset: usize,
}

impl ResizeCopy {
    /// The copies that resize a tensor to another shape of the same rank, one per axis that
    /// differs.
    pub fn between(from: &[usize], to: &[usize]) -> Vec<ResizeCopy> {
        let mut shape = from.to_vec();
        let mut copies = vec![];
        for (axis, &length) in to.iter().enumerate().filter(|(axis, length)| from[*axis] != **length) {
            let (blocks, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product::<usize>());
            copies.push(ResizeCopy { blocks, from: shape[axis] * inner, to: length * inner, offset: 0 });
            shape[axis] = length;
        }
        copies
    }

    /// Number of elements read and written.
    pub fn sizes(&self) -> (usize, usize) {
        (self.blocks * self.from, self.blocks * self.to)
    }

    /// Runs the copy in stream order. The device must be locked.
    pub fn run(
        &self,
        to: &Buffer,
        from: &Buffer,
        dtype: DType,
        device: Device,
        location: SourceLocation,
    ) -> Result<()> {
        let (read, written) = self.sizes();
        let numbers = [written, self.to, self.from, read, self.offset, self.offset + written];
        let values = numbers.map(|n| [Value::int(Scalar::I64, n as i64)]);
        let values: Vec<&[Value]> = values.iter().map(|value| &value[..]).collect();
        compiled(dtype, device)?.launch(&[to, from], &values, THREADS_PER_BLOCK, LaunchInfo::at(location))
    }
}

/// The copy kernel for a dtype on a device; compiled on first use.
pub(crate) fn compiled(dtype: DType, device: Device) -> Result<std::sync::Arc<Program>> {
    // Only the size of an element matters.
    let bits = match dtype.bytes() {
        1 => Scalar::U8,
        2 => Scalar::U16,
        4 => Scalar::U32,
        _ => Scalar::U64,
    };
    program(device, &kernel(bits)?, CodegenMode::Exact)
}

fn kernel(bits: Scalar) -> Result<Kernel> {
    let mut b = Builder::new("move", 0, Scalar::I64);
    let _written = b.value("written", Scalar::I64);
    let to = b.value("to", Scalar::I64);
    let from = b.value("from", Scalar::I64);
    let _read = b.value("read", Scalar::I64);
    let offset = b.value("offset", Scalar::I64);
    let _end = b.value("end", Scalar::I64);
    b.set_instance_count(Extent::Value(0));
    let out = b.view("out", bits, &contiguous(&[Extent::Value(5)]), Access::Write);
    let source = b.view("given", bits, &contiguous(&[Extent::Value(3)]), Access::Read);
    let i = b.index();
    let (block, within) = (b.op(ScalarOp::Div, &[&i, &to]), b.op(ScalarOp::Rem, &[&i, &to]));
    let start = b.mul(&block, &from);
    let at = b.add(&start, &within);
    let element = b.local("element", Value::int(bits, 0));
    let inside = b.lt(&within, &from);
    b.if_else(
        inside,
        |b| {
            let value = b.load(source, at);
            b.assign(element, value);
        },
        |_| {},
    );
    let destination = b.add(&offset, &i);
    let value = b.read(element);
    b.store(out, destination, value);
    Ok(b.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_truncated_and_padded() {
        // Blocks, from, to, offset; result of copying 1, 2, 3, … over sevens.
        let cases: [([usize; 4], &[u64]); 6] = [
            ([2, 3, 2, 0], &[1, 2, 4, 5, 7, 7]),
            ([2, 2, 3, 0], &[1, 2, 0, 3, 4, 0]),
            ([1, 3, 3, 2], &[7, 7, 1, 2, 3, 7]),
            ([1, 0, 2, 1], &[7, 0, 0, 7, 7, 7]),
            ([3, 2, 0, 0], &[7, 7, 7, 7, 7, 7]),
            ([0, 2, 2, 0], &[7, 7, 7, 7, 7, 7]),
        ];
        for device in [Device::cpu(), Device::Interpreter] {
            for ([blocks, from, to, offset], expected) in cases {
                let source = Buffer::from_words(device, (1..=(blocks * from) as u64).collect()).unwrap();
                let out = Buffer::from_words(device, vec![7; 6]).unwrap();
                let copy = ResizeCopy { blocks, from, to, offset };
                copy.run(&out, &source, DType::F64, device, SourceLocation::here()).unwrap();
                assert_eq!(out.to_words().unwrap(), expected, "{blocks} of {from} to {to} at {offset} on {device}");
            }
        }
        let copies = ResizeCopy::between(&[2, 5, 3, 7], &[4, 5, 2, 7]);
        let numbers: Vec<_> = copies.iter().map(|m| (m.blocks, m.from, m.to)).collect();
        assert_eq!(numbers, [(1, 210, 420), (20, 21, 14)]);
        assert!(ResizeCopy::between(&[3], &[3]).is_empty());
    }

    #[test]
    fn the_kernels_compile_for_cuda() {
        if let Err(why) = bornite_cuda::nvrtc_version() {
            println!("skipped: {why}");
            return;
        }
        for bits in [Scalar::U8, Scalar::U16, Scalar::U32, Scalar::U64] {
            let source = bornite_codegen::cuda::print(&kernel(bits).unwrap());
            bornite_cuda::compile("move", &source, "sm_75").unwrap();
        }
    }
}
