//! Resources of the kernels in a cubin, from its `.nv.info` section: what `cuobjdump
//! --dump-resource-usage` prints, without the tool and without a GPU.

use super::{Cubin, Elf, ElfResult, SYMBOL_BYTES, SYMBOLS};
use crate::KernelResources;

// Entries of `.nv.info`: format `EIFMT_SVAL` and the attributes with a symbol and a number.
const SIZED_VALUE: u64 = 4;
const FRAME_BYTES: u64 = 0x11;
const REGISTERS: u64 = 0x2f;

impl Cubin {
    /// Returns the symbols of all kernels with their resources; empty if the image has no such
    /// information.
    pub fn resources(&self) -> Vec<(String, KernelResources)> {
        Elf { image: self.bytes() }.resources().unwrap_or_default()
    }
}

impl Elf<'_> {
    fn resources(&self) -> ElfResult<Vec<(String, KernelResources)>> {
        let sections = self.named_sections()?;
        let find = |name: &str| sections.iter().find(|(found, _)| found == name).map(|(_, section)| section);
        let symbols = sections.iter().map(|(_, section)| section).find(|section| section.kind == SYMBOLS);
        let (Some(info), Some(symbols)) = (find(".nv.info"), symbols) else { return Ok(vec![]) };
        let symbol = |n: u64| -> ElfResult<String> {
            let name = self.number(symbols.offset + n * SYMBOL_BYTES, 4)?;
            let strings = sections.get(symbols.link as usize).map_or(0, |(_, strings)| strings.offset);
            self.string(strings + name)
        };
        let (mut at, end) = (info.offset, info.offset + info.bytes);
        let mut kernels: Vec<(u64, String, KernelResources)> = vec![];
        let mut frames: Vec<(u64, u64)> = vec![];
        while at + 4 <= end {
            let (format, attribute, bytes) = (self.number(at, 1)?, self.number(at + 1, 1)?, self.number(at + 2, 2)?);
            at += 4;
            if format != SIZED_VALUE {
                continue;
            }
            if bytes == 8 && [REGISTERS, FRAME_BYTES].contains(&attribute) {
                let (index, value) = (self.number(at, 4)?, self.number(at + 4, 4)?);
                match attribute {
                    FRAME_BYTES => frames.push((index, value)),
                    _ => {
                        let symbol = symbol(index)?;
                        let shared = find(&format!(".nv.shared.{symbol}")).map_or(0, |section| section.bytes);
                        kernels.push((index, symbol, resources(value as u32, shared as u32)));
                    }
                }
            }
            at += bytes;
        }
        for (index, _, kernel) in &mut kernels {
            let frame = frames.iter().find(|(of, _)| of == index);
            kernel.spill_bytes = frame.map_or(0, |(_, bytes)| *bytes as u32);
        }
        Ok(kernels.into_iter().map(|(_, symbol, kernel)| (symbol, kernel)).collect())
    }
}

/// Resources of a kernel without spills.
fn resources(registers: u32, static_shared_bytes: u32) -> KernelResources {
    // A warp allocates registers in units of 256, of 65,536 per block.
    let warps = (1 << 16) / (32 * registers.max(1).next_multiple_of(8));
    let max_threads_per_block = (32 * warps).min(1024);
    KernelResources { registers, static_shared_bytes, spill_bytes: 0, max_threads_per_block }
}

#[cfg(test)]
mod tests {
    use super::super::tests::image;
    use super::*;

    /// Compiled kernels are tested where NVRTC is required.
    #[test]
    fn images_without_information_have_no_resources() {
        assert_eq!(Cubin::checked(image()).unwrap().resources(), []);
        let threads = [1, 32, 64, 65, 128, 255].map(|registers| resources(registers, 0).max_threads_per_block);
        assert_eq!(threads, [1024, 1024, 1024, 896, 512, 256]);
    }
}
