//! Runs kernels on a GPU, if there is one.

#![allow(unsafe_code)] // launches, of kernels that the interpreter has run over the same memory

use std::sync::{Arc, OnceLock};

use bornite_codegen::cuda;
use bornite_cuda::{Buffer, Device, KernelFunction, LaunchConfig};
use bornite_ir::{Kernel, LaunchMode, Value};

/// The GPU; its absence is printed once.
fn device() -> Option<&'static Arc<Device>> {
    static DEVICE: OnceLock<Option<Arc<Device>>> = OnceLock::new();
    let open = || Device::open(0).map_err(|why| println!("not run on a GPU: {why}")).ok();
    DEVICE.get_or_init(open).as_ref()
}

/// Runs a kernel on copies of host memory; `None` if there is no GPU. The interpreter must have run
/// the same call without a fault.
pub fn run(kernel: &Kernel, memory: &mut [Vec<u64>], values: &[Vec<Value>]) -> Option<bornite_cuda::Result<()>> {
    device().map(|device| run_on(device, kernel, memory, values))
}

fn run_on(
    device: &Arc<Device>,
    kernel: &Kernel,
    memory: &mut [Vec<u64>],
    values: &[Vec<Value>],
) -> bornite_cuda::Result<()> {
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let count = kernel.launch.count(&firsts);
    if count == 0 {
        return Ok(());
    }
    let cubin = bornite_cuda::compile(&kernel.name, &cuda::print(kernel), &device.info().arch())?;
    let sizes = kernel.values.iter().map(|value| kernel.bytes_of(value.ty)).collect();
    let function = KernelFunction::load(device, &cubin, &cuda::symbol(kernel), kernel.params.len(), sizes)?;
    let mut buffers = vec![];
    for words in memory.iter() {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let buffer = Buffer::new(device, bytes.len().max(8))?;
        buffer.upload(&bytes)?;
        buffers.push(buffer);
    }
    let pointers: Vec<bornite_cuda::DevicePointer<'_>> = buffers.iter().map(|buffer| (buffer, 0)).collect();
    let packed: Vec<Vec<u8>> = (kernel.values.iter().zip(values))
        .map(|(param, parts)| {
            let layout = param.ty.layout(&kernel.structs);
            let mut bytes = vec![0; layout.bytes];
            for ((offset, scalar), part) in layout.offsets.iter().zip(parts) {
                bytes[*offset..offset + scalar.bytes()].copy_from_slice(&part.bits().to_le_bytes()[..scalar.bytes()]);
            }
            bytes
        })
        .collect();
    let (grid, block) = match kernel.launch {
        LaunchMode::Blocks { grid, block } => (grid, block),
        LaunchMode::ParallelFor { .. } => {
            ([count.div_ceil(cuda::THREADS_PER_BLOCK.into()) as u32, 1, 1], [cuda::THREADS_PER_BLOCK, 1, 1])
        }
    };
    let config = LaunchConfig { shared_bytes: cuda::dynamic_shared_bytes(kernel), ..LaunchConfig::new(grid, block) };
    // SAFETY: memory is as long as the views are; the interpreter ran the same call.
    unsafe { function.launch_with(&config, None, &pointers, &packed)? };
    for (words, buffer) in memory.iter_mut().zip(&buffers) {
        let mut bytes = vec![0; words.len() * 8];
        buffer.download(&mut bytes)?;
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
    }
    Ok(())
}
