//! The roofline model: peak rates of a device, and which of them bounds a kernel.

use std::fmt;

use serde::Serialize;

use super::ComputeUnit;

/// Peak rates of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// Memory bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// Floating-point operations per second without tensor cores.
    pub flops_per_second: f64,
    /// Floating-point operations per second of tensor cores with 16-bit inputs.
    pub tensor_flops_per_second: f64,
    /// Floating-point operations per second of tensor cores with TF32 inputs.
    pub tf32_flops_per_second: f64,
    /// Size of the last-level cache. The bandwidth of a smaller working set is not that of memory.
    pub cache_bytes: u64,
}

/// Resource that bounds a kernel in the roofline model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Memory bandwidth.
    Memory,
    /// Bandwidth of the last-level cache, whose peak is not known.
    Cache,
    /// Arithmetic without tensor cores.
    Cores,
    /// Tensor cores.
    TensorCores,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Memory => "memory",
            Bound::Cache => "cached",
            Bound::Cores => "cores",
            Bound::TensorCores => "tensor",
        })
    }
}

impl Roofline {
    /// Peak rates of a device without tensor cores and with a negligible cache.
    pub fn new(bytes_per_second: f64, flops_per_second: f64) -> Roofline {
        let (tensor_flops_per_second, tf32_flops_per_second) = (flops_per_second, flops_per_second);
        Roofline { bytes_per_second, flops_per_second, tensor_flops_per_second, tf32_flops_per_second, cache_bytes: 0 }
    }

    /// Peak floating-point operations per second of a unit.
    pub fn peak_flops(&self, unit: ComputeUnit) -> f64 {
        match unit {
            ComputeUnit::Cores => self.flops_per_second,
            ComputeUnit::TensorCores => self.tensor_flops_per_second,
            ComputeUnit::TensorCoresTf32 => self.tf32_flops_per_second,
        }
    }

    /// Minimum time in seconds of work with this traffic and arithmetic.
    pub fn min_seconds(&self, bytes: u64, flops: u64, unit: ComputeUnit) -> f64 {
        (bytes as f64 / self.bytes_per_second).max(flops as f64 / self.peak_flops(unit))
    }

    /// The resource that bounds a call with this traffic and arithmetic, and the fraction of its
    /// peak that a call of `seconds` achieves; no fraction if the working set fits the cache.
    /// `None` if neither bytes nor flops are known.
    pub fn bound(
        &self,
        bytes: Option<f64>,
        flops: Option<f64>,
        unit: ComputeUnit,
        seconds: f64,
    ) -> Option<(Bound, Option<f64>)> {
        let fraction = |min_seconds: f64| Some(min_seconds / seconds).filter(|fraction| fraction.is_finite());
        let memory_seconds = bytes.map(|bytes| bytes / self.bytes_per_second);
        let compute_seconds = flops.map(|flops| flops / self.peak_flops(unit));
        match (memory_seconds, compute_seconds) {
            (memory, Some(compute)) if memory.is_none_or(|memory| memory <= compute) => {
                let bound = if unit == ComputeUnit::Cores { Bound::Cores } else { Bound::TensorCores };
                Some((bound, fraction(compute)))
            }
            (Some(_), _) if bytes.is_some_and(|bytes| bytes <= self.cache_bytes as f64) => Some((Bound::Cache, None)),
            (Some(memory), _) => Some((Bound::Memory, fraction(memory))),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of an H200.
    const H200: Roofline = Roofline {
        bytes_per_second: 4.8e12,
        flops_per_second: 67e12,
        tensor_flops_per_second: 989e12,
        tf32_flops_per_second: 495e12,
        cache_bytes: 60 << 20,
    };

    #[test]
    fn work_is_compared_with_the_unit_that_did_it() {
        let bound = |bytes: f64, flops: Option<f64>, unit, seconds| H200.bound(Some(bytes), flops, unit, seconds);
        // A bf16 product of 8192³ in 1.6 ms, and the same count of operations by f32 cores in 18 ms.
        let (bytes, flops) = (3.0 * 8192.0 * 8192.0 * 2.0, 2.0 * 8192f64.powi(3));
        let (unit, fraction) = bound(bytes, Some(flops), ComputeUnit::TensorCores, 1.6e-3).unwrap();
        assert!(unit == Bound::TensorCores && (fraction.unwrap() - 0.695).abs() < 1e-3, "{fraction:?}");
        let (unit, fraction) = bound(bytes, Some(flops), ComputeUnit::Cores, 18e-3).unwrap();
        assert!(unit == Bound::Cores && (fraction.unwrap() - 0.912).abs() < 1e-3, "{fraction:?}");
        // An addition of 100 M floats is bounded by memory; one of 1 M floats is served by the cache.
        let (unit, fraction) = bound(1.2e9, Some(1e8), ComputeUnit::Cores, 0.28e-3).unwrap();
        assert!(unit == Bound::Memory && (fraction.unwrap() - 0.893).abs() < 1e-3, "{fraction:?}");
        assert_eq!(bound(12e6, Some(1e6), ComputeUnit::Cores, 2e-6), Some((Bound::Cache, None)));
        assert_eq!(bound(12e6, None, ComputeUnit::Cores, 2e-6), Some((Bound::Cache, None)));
        assert_eq!(bound(1e9, None, ComputeUnit::Cores, 0.0), Some((Bound::Memory, None)));
        assert_eq!(H200.bound(None, None, ComputeUnit::Cores, 1.0), None);
        assert_eq!(H200.min_seconds(4_800_000_000, 1, ComputeUnit::Cores), 1e-3);
    }
}
