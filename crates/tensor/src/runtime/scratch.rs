//! Scratch memory shared by all traces of a device. Their plans run one at a time, so none needs
//! its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::runtime::buffer::Buffer;
use crate::{Device, Result};

/// The device's scratch buffer, of at least `bytes` bytes. All plans of the device share it until
/// one needs more and a larger one replaces it, so callers must ask again before each run. The
/// device must be locked while it is used.
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
