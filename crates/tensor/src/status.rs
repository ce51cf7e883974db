//! What kernels report that cannot stop: bad indices. Each device has a few words that such kernels write; whoever ran them
//! looks there before anything that depends on them is believed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::buffer::Buffer;
use crate::node::{Node, Op};
use crate::{Device, Error, Place, Result};

/// The code of the first bad access (0: none), and its index.
pub(crate) const WORDS: u64 = 2;

/// What a code stands for.
#[derive(Clone)]
struct Access {
    op: &'static str,
    len: usize,
    axis: usize,
    at: Place,
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
    let access = Access { op: node.op.name(), len: node.inputs[0].0.shape[axis], axis, at: node.place };
    table(|t| {
        let same = |a: &Access| (a.op, a.len, a.axis, a.at) == (access.op, access.len, access.axis, access.at);
        let found = t.accesses.iter().position(same).unwrap_or_else(|| {
            t.accesses.push(access.clone());
            t.accesses.len() - 1
        });
        found as i64 + 1
    })
}

/// The first bad index since the last check, as an error.
pub(crate) fn check(device: Device, buffer: &Buffer) -> Result<()> {
    let words = buffer.to_words()?;
    if words[0] == 0 {
        return Ok(());
    }
    buffer.copy_from(&Buffer::from_words(device, vec![0; words.len()])?)?;
    let Some(Access { op, len, axis, at }) = table(|t| t.accesses.get(words[0] as usize - 1).cloned()) else {
        return Ok(());
    };
    let what = format!("index {} is outside axis {axis} of length {len}", words[1] as i64);
    Err(Error::Op { op, what, at })
}
