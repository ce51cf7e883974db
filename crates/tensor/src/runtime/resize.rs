//! Copies whose sizes are known only when they are made. Their kernel takes sizes as arguments, so that one is compiled
//! where a tensor's ops would need one for each size.

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Access, Builder, Emit, Extent, Kernel, Op as ScalarOp, Scalar, Value, contiguous};

use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{CodegenMode, Program, program};
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Result, SourceLocation};

/// A copy of blocks of `from` elements to blocks of `to` elements: cut where these are shorter, followed by zeros where they
/// are longer. What is written begins at `offset`.
pub(crate) struct ResizeCopy {
    pub blocks: usize,
    pub from: usize,
    pub to: usize,
    pub offset: usize,
}

impl ResizeCopy {
    /// The copies that take a tensor of one shape to another of the same rank, axis by axis.
    pub fn between(from: &[usize], to: &[usize]) -> Vec<ResizeCopy> {
        let mut shape = from.to_vec();
        let mut moves = vec![];
        for (axis, &length) in to.iter().enumerate().filter(|(axis, length)| from[*axis] != **length) {
            let (blocks, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product::<usize>());
            moves.push(ResizeCopy { blocks, from: shape[axis] * inner, to: length * inner, offset: 0 });
            shape[axis] = length;
        }
        moves
    }

    /// Elements read, and written.
    pub fn sizes(&self) -> (usize, usize) {
        (self.blocks * self.from, self.blocks * self.to)
    }

    /// Copies, in the order of the device's work. The device's lock is held.
    pub fn run(&self, to: &Buffer, from: &Buffer, dtype: DType, device: Device, place: SourceLocation) -> Result<()> {
        let (read, written) = self.sizes();
        let numbers = [written, self.to, self.from, read, self.offset, self.offset + written];
        let values = numbers.map(|n| [Value::int(Scalar::I64, n as i64)]);
        let values: Vec<&[Value]> = values.iter().map(|value| &value[..]).collect();
        ready(dtype, device)?.launch(&[to, from], &values, BLOCK, LaunchInfo::at(place))
    }
}

/// The code for a dtype on a device, compiled if need be.
pub(crate) fn ready(dtype: DType, device: Device) -> Result<std::sync::Arc<Program>> {
    // Bits are moved, whatever they mean.
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
    b.count(Extent::Value(0));
    let out = b.view("out", bits, &contiguous(&[Extent::Value(5)]), Access::Write);
    let given = b.view("given", bits, &contiguous(&[Extent::Value(3)]), Access::Read);
    let i = b.index();
    let (block, within) = (b.op(ScalarOp::Div, &[&i, &to]), b.op(ScalarOp::Rem, &[&i, &to]));
    let start = b.mul(&block, &from);
    let at = b.add(&start, &within);
    let element = b.local("element", Value::int(bits, 0));
    let inside = b.lt(&within, &from);
    b.if_else(
        inside,
        |b| {
            let value = b.load(given, at);
            b.assign(element, value);
        },
        |_| {},
    );
    let place = b.add(&offset, &i);
    let value = b.read(element);
    b.store(out, place, value);
    Ok(b.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_and_filled() {
        // Blocks, from, to, offset, what comes of 1, 2, 3, … in a place of sevens.
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
                let given = Buffer::from_words(device, (1..=(blocks * from) as u64).collect()).unwrap();
                let out = Buffer::from_words(device, vec![7; 6]).unwrap();
                let copy = ResizeCopy { blocks, from, to, offset };
                copy.run(&out, &given, DType::F64, device, SourceLocation::here()).unwrap();
                assert_eq!(out.to_words().unwrap(), expected, "{blocks} of {from} to {to} at {offset} on {device}");
            }
        }
        let moves = ResizeCopy::between(&[2, 5, 3, 7], &[4, 5, 2, 7]);
        let numbers: Vec<_> = moves.iter().map(|m| (m.blocks, m.from, m.to)).collect();
        assert_eq!(numbers, [(1, 210, 420), (20, 21, 14)]);
        assert!(ResizeCopy::between(&[3], &[3]).is_empty());
    }

    #[test]
    fn the_kernels_are_cuda() {
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
