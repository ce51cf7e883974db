//! Scratch memory that all traces of a device share: their plans run one after the other, so none needs memory of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::runtime::buffer::Buffer;
use crate::{Device, Result};

/// Memory of at least `bytes` bytes. It is the same for every plan on the device, until a plan wants more: then those that hold
/// what was before should ask again. The device's lock must be held while it is used.
pub(crate) fn scratch(device: Device, bytes: usize) -> Result<Buffer> {
    static ARENAS: Mutex<Option<HashMap<Device, Buffer>>> = Mutex::new(None);
    let mut arenas = ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
    let arenas = arenas.get_or_insert_default();
    if let Some(arena) = arenas.get(&device).filter(|arena| arena.bytes() >= bytes) {
        return Ok(arena.clone());
    }
    let grown = Buffer::new(device, bytes)?;
    arenas.insert(device, grown.clone());
    Ok(grown)
}
