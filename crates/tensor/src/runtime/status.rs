//! Status words, by which kernels report out-of-range indices. Each device has a few words that
//! kernels write; the caller checks them before it uses the results.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bornite_ir::{Kernel, Value};

use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::{Device, Error, Result, SourceLocation};

/// Number of words: the code of the first out-of-range access (0 if none), and its index.
pub(crate) const WORDS: u64 = 2;

/// The access that a code identifies.
#[derive(Clone, PartialEq, Eq)]
struct ReportedAccess {
    op: &'static str,
    /// Message after the index.
    outside: String,
    at: SourceLocation,
}

#[derive(Default)]
struct Table {
    buffers: HashMap<Device, Buffer>,
    accesses: Vec<ReportedAccess>,
}

fn table<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    static TABLE: Mutex<Option<Table>> = Mutex::new(None);
    work(TABLE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The device's status words.
pub(crate) fn buffer(device: Device) -> Result<Buffer> {
    if let Some(buffer) = table(|t| t.buffers.get(&device).cloned()) {
        return Ok(buffer);
    }
    let new = Buffer::from_words(device, vec![0; WORDS as usize])?;
    Ok(table(|t| t.buffers.entry(device).or_insert(new).clone()))
}

/// The code of a node's accesses. There is one per source location and shape, so the table stays
/// small.
pub(crate) fn code(node: &Node) -> i64 {
    let axis = match node.op {
        Op::Gather(axis) | Op::ScatterAdd(axis) => axis,
        _ => 0,
    };
    let outside = format!("is outside axis {axis} of length {}", node.inputs[0].0.shape[axis]);
    codes(vec![ReportedAccess { op: node.op.name(), outside, at: node.location }])
}

/// The first code of a checked kernel; the kernel adds `bornite_codegen::cuda::check_code`.
pub(crate) fn kernel_code(kernel: &Kernel, values: &[Vec<Value>], at: SourceLocation) -> i64 {
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let name = &kernel.name;
    let access =
        |outside: String| ReportedAccess { op: "kernel", outside: format!("{outside}, in kernel '{name}'"), at };
    let mut accesses = vec![access("of a vector access is not a multiple of the vector's length".into())];
    let params = kernel.params.iter().map(|p| (&p.name, &p.dims));
    let local = kernel.local_arrays.iter().map(|array| (&array.name, &array.dims));
    for (view, dims) in params.chain(kernel.shared.iter().map(|s| (&s.name, &s.dims))).chain(local) {
        for (n, dim) in dims.iter().enumerate() {
            let extent = dim.extent.resolve(&firsts);
            accesses.push(access(format!("is outside axis {n} of '{view}', of length {extent}")));
        }
    }
    codes(accesses)
}

/// The code of the first of these accesses; the others have consecutive codes.
fn codes(accesses: Vec<ReportedAccess>) -> i64 {
    table(|t| {
        let found = t.accesses.windows(accesses.len()).position(|window| window == accesses);
        let first = found.unwrap_or_else(|| {
            let first = t.accesses.len();
            t.accesses.extend(accesses);
            first
        });
        first as i64 + 1
    })
}

/// Returns the first out-of-range index since the last check as an error, and resets the words.
pub(crate) fn check(device: Device, buffer: &Buffer) -> Result<()> {
    let words = buffer.to_words()?;
    if words[0] == 0 {
        return Ok(());
    }
    buffer.copy_from(&Buffer::from_words(device, vec![0; words.len()])?)?;
    let Some(ReportedAccess { op, outside, at }) = table(|t| t.accesses.get(words[0] as usize - 1).cloned()) else {
        return Ok(());
    };
    let what = format!("index {} {outside}", words[1] as i64);
    Err(Error::Op { op, message: what, location: at })
}
