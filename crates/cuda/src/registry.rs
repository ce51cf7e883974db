//! Registry of loaded kernels and their resources, to diagnose slow launches.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::DeviceInfo;
use crate::occupancy::KernelResources;

/// A kernel as last loaded under its name on a device.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct LoadedKernel {
    /// Name of the kernel.
    pub name: String,
    /// Ordinal of the device.
    pub device: usize,
    /// Architecture of its code.
    pub arch: String,
    /// Resources per thread and block.
    #[serde(flatten)]
    pub resources: KernelResources,
    /// Number of times it was loaded.
    pub loads: u64,
    /// Number of instances that are loaded now.
    pub live: u64,
}

/// Maximum number of kernels in the registry: eager code may create ever new ones.
const MAX_KERNELS: usize = 4096;

type Kernels = BTreeMap<(usize, String), LoadedKernel>;

fn kernels() -> MutexGuard<'static, Kernels> {
    static KERNELS: Mutex<Kernels> = Mutex::new(BTreeMap::new());
    KERNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn record_load(info: &DeviceInfo, name: &str, resources: KernelResources) {
    load(&mut kernels(), info, name, resources, MAX_KERNELS);
}

pub(crate) fn record_unload(info: &DeviceInfo, name: &str) {
    if let Some(kernel) = kernels().get_mut(&(info.ordinal, name.into())) {
        kernel.live = kernel.live.saturating_sub(1);
    }
}

fn load(kernels: &mut Kernels, info: &DeviceInfo, name: &str, resources: KernelResources, max_kernels: usize) {
    let key = (info.ordinal, name.to_owned());
    if kernels.len() >= max_kernels && !kernels.contains_key(&key) {
        kernels.retain(|_, kernel| kernel.live > 0);
        if kernels.len() >= max_kernels {
            kernels.pop_first();
        }
    }
    let kernel = kernels.entry(key).or_insert_with(|| LoadedKernel {
        name: name.into(),
        device: info.ordinal,
        arch: info.arch(),
        resources,
        loads: 0,
        live: 0,
    });
    kernel.resources = resources;
    kernel.loads += 1;
    kernel.live += 1;
}

/// Returns the kernels loaded in this process so far, by device and name.
pub fn loaded_kernels() -> Vec<LoadedKernel> {
    kernels().values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::h200;

    #[test]
    fn loads_are_counted_by_name_and_bounded() {
        let mut kernels = Kernels::new();
        let resources = |registers| KernelResources { registers, ..KernelResources::default() };
        load(&mut kernels, &h200(0), "add", resources(16), 3);
        load(&mut kernels, &h200(0), "add", resources(18), 3);
        load(&mut kernels, &h200(1), "add", resources(18), 3);
        let first = kernels[&(0, "add".into())].clone();
        assert_eq!((first.loads, first.live, first.resources.registers), (2, 2, 18));
        assert_eq!((first.arch.as_str(), kernels.len()), ("sm_90", 2));
        for n in 0..100 {
            load(&mut kernels, &h200(0), &format!("k{n}"), resources(8), 3);
            assert!(kernels.len() <= 3);
        }
        assert!(kernels.contains_key(&(0, "k99".into())));
    }
}
