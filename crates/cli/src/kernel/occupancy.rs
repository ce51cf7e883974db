//! Registers, shared memory and occupancy of a kernel by architecture: what NVRTC compiles, with
//! the limits of each.

use bornite::ir::Kernel;
use bornite_codegen::cuda::{self, MathMode};
use bornite_cuda::{KernelResources, Limiter, MultiprocessorLimits, Occupancy, occupancy};
use serde_json::{Value as Json, json};

use super::source::KernelSelector;
use super::standalone;
use crate::Failure;

/// Architectures that are shown unless others are requested.
pub const DEFAULT_ARCHITECTURES: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Resources of a kernel compiled for one architecture.
pub struct ArchResources {
    arch: String,
    kernel: KernelResources,
    occupancy: Occupancy,
}

/// Limits of each architecture, with its name.
pub fn limits(architectures: &[String]) -> Result<Vec<(String, MultiprocessorLimits)>, Failure> {
    let limits = |arch: &String| match MultiprocessorLimits::of_arch(arch) {
        Some(limits) => Ok((arch.clone(), limits)),
        None => {
            let known = MultiprocessorLimits::architectures().map(|arch| format!("sm_{arch}"));
            let known = known.collect::<Vec<_>>().join(", ");
            Err(format!("--arch {arch}: the limits of this architecture are not known; known are {known}").into())
        }
    };
    architectures.iter().map(limits).collect()
}

/// Compiles the kernel for each architecture. CUDA C++ files are compiled from their own text,
/// other kernels from the text that is generated for a GPU.
pub fn resources(
    source: &KernelSelector,
    kernel: &Kernel,
    threads: u64,
    limits: &[(String, MultiprocessorLimits)],
) -> Result<Vec<ArchResources>, Failure> {
    let (name, launch) = source.kernel_and_launch();
    // The image also counts what the driver reserves. Dynamic arrays are arrays of the kernel too.
    let array_bytes = |n: usize| {
        let array = &kernel.shared[n];
        let elements: u64 = array.dims.iter().map(|dim| dim.extent.resolve(&[]).max(0) as u64).product();
        (elements * kernel.bytes_of(array.ty) as u64).next_multiple_of(16)
    };
    let shared_bytes: u64 = (0..kernel.shared.len()).map(array_bytes).sum();
    let mut all = vec![];
    for (arch, limits) in limits {
        let cubin = match source.cuda_file() {
            Some(file) => standalone::compile(file, name, launch, arch)?,
            None => {
                let native = MathMode::Native;
                let text = match source.python_file() {
                    Some(_) => cuda::print_aliased(kernel, native),
                    None => cuda::print_with(kernel, native),
                };
                bornite_cuda::compile(&kernel.name, &text, arch)?
            }
        };
        let mut found = cubin.resources();
        // Device functions that were not inlined have entries of their own.
        let plain = name.unwrap_or(&kernel.name).split('<').next().unwrap_or_default().trim();
        let n = found.iter().position(|(symbol, _)| symbol.contains(plain)).unwrap_or(0);
        if found.is_empty() {
            return Err(
                format!("NVRTC compiled '{}' for {arch} without information on its resources", kernel.name).into()
            );
        }
        let (_, kernel) = found.swap_remove(n);
        let kernel = KernelResources { static_shared_bytes: shared_bytes as u32, ..kernel };
        let occupancy = occupancy(*limits, threads as u32, kernel, 0);
        all.push(ArchResources { arch: arch.clone(), kernel, occupancy });
    }
    Ok(all)
}

fn limiter(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Threads => "threads",
        Limiter::Blocks => "blocks",
        Limiter::Registers => "registers",
        Limiter::SharedMemory => "shared memory",
        Limiter::TooLarge => "a block does not fit",
    }
}

impl ArchResources {
    /// Cells of a line of the table.
    pub fn row(&self) -> Vec<String> {
        let Occupancy { blocks, warps, share, limiter: by } = self.occupancy;
        vec![
            self.arch.clone(),
            self.kernel.registers.to_string(),
            self.kernel.spill_bytes.to_string(),
            self.kernel.static_shared_bytes.to_string(),
            blocks.to_string(),
            warps.to_string(),
            format!("{:.0}%", 100.0 * share),
            limiter(by).into(),
        ]
    }

    pub fn json(&self) -> Json {
        json!({
            "arch": self.arch, "registers": self.kernel.registers, "local_bytes": self.kernel.spill_bytes,
            "shared_bytes": self.kernel.static_shared_bytes, "occupancy": self.occupancy,
        })
    }
}
