//! What kernels report that cannot stop: bad indices. Each device has a few words that such kernels write; whoever ran them
//! looks there before anything that depends on them is believed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bornite_ir::{Kernel, Value};

use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::{Device, Error, Result, SourceLocation};

/// The code of the first bad access (0: none), and its index.
pub(crate) const WORDS: u64 = 2;

/// What a code stands for.
#[derive(Clone, PartialEq, Eq)]
struct Access {
    op: &'static str,
    /// Where the index does not belong, in words.
    outside: String,
    at: SourceLocation,
}

#[derive(Default)]
struct Table {
    buffers: HashMap<Device, Buffer>,
    accesses: Vec<Access>,
}

fn table<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    static TABLE: Mutex<Option<Table>> = Mutex::new(None);
    work(TABLE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The device's words.
pub(crate) fn buffer(device: Device) -> Result<Buffer> {
    if let Some(buffer) = table(|t| t.buffers.get(&device).cloned()) {
        return Ok(buffer);
    }
    let made = Buffer::from_words(device, vec![0; WORDS as usize])?;
    Ok(table(|t| t.buffers.entry(device).or_insert(made).clone()))
}

/// The code under which a node reports. Lines of a program are few, so codes are too.
pub(crate) fn code(node: &Node) -> i64 {
    let axis = match node.op {
        Op::Gather(axis) | Op::ScatterAdd(axis) => axis,
        _ => 0,
    };
    let outside = format!("is outside axis {axis} of length {}", node.inputs[0].0.shape[axis]);
    codes(vec![Access { op: node.op.name(), outside, at: node.location }])
}

/// The code under which a checked kernel reports, to which it adds what `bornite_codegen::cuda::check_code` says.
pub(crate) fn kernel_code(kernel: &Kernel, values: &[Vec<Value>], at: SourceLocation) -> i64 {
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let name = &kernel.name;
    let access = |outside: String| Access { op: "kernel", outside: format!("{outside}, in kernel '{name}'"), at };
    let mut accesses =
        vec![access("is where several elements are accessed at once, but no multiple of their number".into())];
    let params = kernel.params.iter().map(|p| (&p.name, &p.dims));
    for (view, dims) in params.chain(kernel.shared.iter().map(|s| (&s.name, &s.dims))) {
        for (n, dim) in dims.iter().enumerate() {
            let extent = dim.extent.of(&firsts);
            accesses.push(access(format!("is outside axis {n} of '{view}', of length {extent}")));
        }
    }
    codes(accesses)
}

/// The code of the first of these, which follow each other.
fn codes(accesses: Vec<Access>) -> i64 {
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

/// The first bad index since the last check, as an error.
pub(crate) fn check(device: Device, buffer: &Buffer) -> Result<()> {
    let words = buffer.to_words()?;
    if words[0] == 0 {
        return Ok(());
    }
    buffer.copy_from(&Buffer::from_words(device, vec![0; words.len()])?)?;
    let Some(Access { op, outside, at }) = table(|t| t.accesses.get(words[0] as usize - 1).cloned()) else {
        return Ok(());
    };
    let what = format!("index {} {outside}", words[1] as i64);
    Err(Error::Op { op, message: what, location: at })
}
