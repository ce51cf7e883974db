//! Peak rates of GPUs, for rooflines and utilization.

use bornite_support::profile::Roofline;

use crate::DeviceInfo;

/// Vendor peak throughput without sparsity: substring of the GPU's name, then TFLOP/s for TF32 and
/// 16-bit inputs.
const TENSOR_TFLOPS: [(&str, [f64; 2]); 9] = [
    ("GB200", [1250.0, 2500.0]),
    ("B200", [1125.0, 2250.0]),
    ("H200", [494.7, 989.4]),
    ("H100 PCIe", [378.0, 756.0]),
    ("H100", [494.7, 989.4]),
    ("A100", [156.0, 312.0]),
    ("L40S", [183.0, 362.0]),
    ("RTX 4090", [82.6, 165.2]),
    ("A10", [62.5, 125.0]),
];

/// Returns the peak rates of a GPU: of tensor cores by its data sheet, if it is a known GPU, all
/// others computed from its clocks and widths.
pub fn roofline(info: &DeviceInfo) -> Roofline {
    // f32 multiply-adds per multiprocessor and clock.
    let lanes = match info.compute_capability {
        (7, _) | (8, 0) => 64.0,
        _ => 128.0,
    };
    let flops_per_second = 2.0 * lanes * f64::from(info.multiprocessors) * f64::from(info.clock_khz) * 1e3;
    let [tf32_flops_per_second, tensor_flops_per_second] =
        match TENSOR_TFLOPS.iter().find(|(name, _)| has_words(&info.name, name)) {
            Some((_, peaks)) => peaks.map(|tflops| tflops * 1e12),
            None => tensor_core_speedups(info.compute_capability).map(|speedup| speedup * flops_per_second),
        };
    Roofline {
        // Two transfers per clock.
        bytes_per_second: 2.0 * f64::from(info.memory_clock_khz) * 1e3 * f64::from(info.memory_bus_bits) / 8.0,
        flops_per_second,
        tensor_flops_per_second,
        tf32_flops_per_second,
        cache_bytes: info.l2_bytes,
    }
}

/// True if `words` are consecutive words of a product name, so that an A100 is not an A10 and an
/// "A100-SXM4-80GB" is an A100.
fn has_words(name: &str, words: &str) -> bool {
    name.match_indices(words).any(|(start, found)| {
        let is_boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        is_boundary(name[..start].chars().next_back()) && is_boundary(name[start + found.len()..].chars().next())
    })
}

/// Throughput of tensor cores with TF32 and 16-bit inputs relative to f32 without them.
fn tensor_core_speedups(compute_capability: (u32, u32)) -> [f64; 2] {
    match compute_capability {
        (8, 0) | (9.., _) => [8.0, 16.0],
        // Without TF32.
        (7, _) => [1.0, 8.0],
        _ => [1.0, 2.0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::{h200, rtx3060};

    #[test]
    fn tensor_cores_have_their_own_peak() {
        let known = roofline(&h200(0));
        assert!((known.flops_per_second / 66.9e12 - 1.0).abs() < 0.01, "{known:?}");
        assert!((known.bytes_per_second / 4.92e12 - 1.0).abs() < 0.01, "{known:?}");
        assert_eq!((known.tensor_flops_per_second, known.tf32_flops_per_second), (989.4e12, 494.7e12));
        assert_eq!(known.cache_bytes, 60 << 20);
        let other = roofline(&rtx3060(0));
        assert_eq!(other.tensor_flops_per_second, 2.0 * other.flops_per_second);
        for (name, tflops) in [
            ("NVIDIA A100-SXM4-80GB", 312.0),
            ("NVIDIA A10", 125.0),
            ("NVIDIA H100 PCIe", 756.0),
            ("NVIDIA GB200", 2500.0),
        ] {
            assert_eq!(roofline(&DeviceInfo { name: name.into(), ..h200(0) }).tensor_flops_per_second, tflops * 1e12);
        }
        // An A10G is another GPU.
        let similar = roofline(&DeviceInfo { name: "NVIDIA A10G".into(), ..rtx3060(0) });
        assert_eq!(similar.tensor_flops_per_second, 2.0 * similar.flops_per_second);
    }
}
