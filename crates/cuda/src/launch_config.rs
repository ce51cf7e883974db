//! Launch configuration and its encoding as driver attributes.

use std::mem::MaybeUninit;

use cudarc::driver::sys::{self as cu, CUlaunchAttributeID_enum as AttributeId};

/// Grid, block and options of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchConfig {
    /// Blocks per axis.
    pub grid: [u32; 3],
    /// Threads per block and axis.
    pub block: [u32; 3],
    /// Dynamic shared memory per block. Above 48 KB the launch opts in, up to the device's limit.
    pub shared_bytes: u32,
    /// Thread block cluster size (compute capability 9.0 or newer).
    pub cluster: Option<[u32; 3]>,
    /// Cooperative launch: all blocks are resident at once, so that they may wait for each other.
    pub cooperative: bool,
    /// Programmatic dependent launch: the kernel may start before the previous one in the stream
    /// has finished (`griddepcontrol`, 9.0 or newer).
    pub programmatic_dependent_launch: bool,
}

impl LaunchConfig {
    /// Creates a plain launch.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> LaunchConfig {
        LaunchConfig {
            grid,
            block,
            shared_bytes: 0,
            cluster: None,
            cooperative: false,
            programmatic_dependent_launch: false,
        }
    }

    /// Returns the threads per block, saturated at `u64::MAX`.
    pub(crate) fn threads(&self) -> u64 {
        self.block.iter().fold(1, |threads: u64, &n| threads.saturating_mul(u64::from(n)))
    }

    /// Returns true if it needs no launch attributes.
    pub(crate) fn is_plain(&self) -> bool {
        self.cluster.is_none() && !self.cooperative && !self.programmatic_dependent_launch
    }
}

/// Returns the launch attributes and their number.
pub(crate) fn attributes(config: &LaunchConfig) -> ([cu::CUlaunchAttribute; 3], u32) {
    // SAFETY: integers, and unions of them, all of which may be zero; `IGNORE` is 0.
    let mut list: [cu::CUlaunchAttribute; 3] = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut count = 0;
    let mut entry = |id: AttributeId| {
        count += 1;
        let entry = &mut list[count - 1];
        entry.id = id;
        &mut entry.value as *mut cu::CUlaunchAttributeValue
    };
    // SAFETY: each pointer is to an entry of the list, and each entry's field is the one that its
    // id names.
    unsafe {
        if let Some([x, y, z]) = config.cluster {
            let value = entry(AttributeId::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
            ((*value).clusterDim.x, (*value).clusterDim.y, (*value).clusterDim.z) = (x, y, z);
        }
        if config.cooperative {
            (*entry(AttributeId::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)).cooperative = 1;
        }
        if config.programmatic_dependent_launch {
            let value = entry(AttributeId::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
            (*value).programmaticStreamSerializationAllowed = 1;
        }
    }
    (list, count as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_needed_attributes_are_set() {
        let plain = LaunchConfig::new([4, 1, 1], [128, 1, 1]);
        assert!(plain.is_plain());
        assert_eq!((plain.threads(), LaunchConfig::new([1; 3], [u32::MAX; 3]).threads()), (128, u64::MAX));
        assert_eq!(attributes(&plain).1, 0);
        let all =
            LaunchConfig { cluster: Some([2, 1, 1]), cooperative: true, programmatic_dependent_launch: true, ..plain };
        let (list, count) = attributes(&all);
        assert_eq!(count, 3);
        // SAFETY: these are the fields that the ids name.
        unsafe {
            assert_eq!((list[0].value.clusterDim.x, list[0].value.clusterDim.z), (2, 1));
            assert_eq!(list[1].value.cooperative, 1);
            assert_eq!(list[2].value.programmaticStreamSerializationAllowed, 1);
        }
        assert_eq!(list[0].id, AttributeId::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        let one = LaunchConfig { programmatic_dependent_launch: true, ..plain };
        let (list, count) = attributes(&one);
        assert_eq!((count, list[0].id), (1, AttributeId::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
    }
}
