//! Scratch memory that all traces of a device share: their plans run one after the other, so none needs memory of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::buffer::Buffer;
use crate::{Device, Result};

/// The n-th scratch buffer of every plan on a device is one buffer, as large as the largest plan wants it.
#[derive(Default)]
struct Arena {
    buffers: Vec<(Buffer, usize)>,
}

/// Buffers of at least these sizes. They are the same for every plan on the device, until a plan wants larger ones: then
/// those that hold the old ones should ask again. The device's lock must be held while they are used.
pub(crate) fn scratch(device: Device, sizes: &[usize]) -> Result<Vec<Buffer>> {
    static ARENAS: Mutex<Option<HashMap<Device, Arena>>> = Mutex::new(None);
    let mut arenas = ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
    let Arena { buffers } = arenas.get_or_insert_default().entry(device).or_default();
    for (n, &bytes) in sizes.iter().enumerate() {
        if buffers.get(n).is_none_or(|(_, held)| *held < bytes) {
            let grown = (Buffer::new(device, bytes)?, bytes);
            if n < buffers.len() {
                buffers[n] = grown;
            } else {
                buffers.push(grown);
            }
        }
    }
    Ok(buffers[..sizes.len()].iter().map(|(buffer, _)| buffer.clone()).collect())
}
