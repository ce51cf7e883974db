//! Random kernels on a device against the interpreter, to the bit.

use bornite::ir::Access;
use bornite::{Device, Tensor, run_kernel};

use crate::Outcome;
use crate::generate::{Random, kernel};
use crate::rows::{bits, tensor};

pub fn random_kernels(device: Device) -> Outcome {
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let count = match device {
        Device::Interpreter => 50, // against itself: only that it runs
        _ => {
            if full {
                2000
            } else {
                100
            }
        }
    };
    let given = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let first = given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 20);
    for seed in first..first + count {
        let kernel = kernel(seed, true);
        let on = |device: Device| -> bornite::Result<Vec<Vec<u64>>> {
            let mut random = Random(seed);
            let read = kernel.params.iter().filter(|p| p.access != Access::Write);
            let inputs: Vec<Tensor> = (read)
                .map(|p| tensor(&(0..p.len).map(|_| random.value(p.scalar)).collect::<Vec<_>>(), device))
                .collect();
            run_kernel(&kernel, &inputs.iter().collect::<Vec<_>>(), device)?.iter().map(bits).collect()
        };
        let (found, expected) = (on(device), on(Device::Interpreter)?);
        let found = found.map_err(|e| format!("BORNITE_TEST_SEED={seed}: {e}\n{kernel}"))?;
        if found != expected {
            return Err(format!("BORNITE_TEST_SEED={seed}: {device} differs from the interpreter\n{kernel}").into());
        }
    }
    Ok(())
}
