//! Random kernels on a device, bitwise equal to the interpreter.

use bornite::ir::{Access, Layout, Scalar, Value, load_scalar, store_scalar};
use bornite::{Device, Tensor};

use crate::Outcome;
use crate::generate::{Case, Random, case};
use crate::ir_kernels::run_kernel;
use crate::rows::{bits, tensor};

/// The components of elements, with all NaNs replaced by one.
fn results(tensor: &Tensor, layout: &Layout) -> bornite::Result<Vec<u64>> {
    let first = layout.offsets[0].1;
    if layout.offsets.iter().all(|(_, scalar)| *scalar == first) {
        return bits(tensor);
    }
    let mut words = vec![0; tensor.to_vec::<u8>()?.len().div_ceil(8)];
    for (n, byte) in tensor.to_vec::<u8>()?.into_iter().enumerate() {
        store_scalar(&mut words, n, Value::int(Scalar::U8, byte as i64));
    }
    let elements = words.len() * 8 / layout.bytes;
    let cells =
        (0..elements).flat_map(|n| layout.offsets.iter().map(move |(at, scalar)| (n * layout.bytes + at, *scalar)));
    Ok(cells
        .map(|(byte, scalar)| {
            let value = load_scalar(&words, byte, scalar);
            if scalar.is_float() && value.as_f64().is_nan() { u64::MAX } else { value.bits() }
        })
        .collect())
}

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
    let from_env = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let first = from_env.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 20);
    for seed in first..first + count {
        let Case { kernel, values } = case(seed, true);
        let values: Vec<&[Value]> = values.iter().map(|parts| &parts[..]).collect();
        let firsts: Vec<Value> = values.iter().map(|parts| parts[0]).collect();
        let on = |device: Device| -> bornite::Result<Vec<Vec<u64>>> {
            let mut random = Random(seed);
            let read = kernel.params.iter().filter(|p| p.access != Access::Write);
            let inputs: Vec<Tensor> = (read)
                .map(|p| {
                    // Components in order, or bytes for structs of several types.
                    let layout = p.ty.layout(&kernel.structs);
                    let elements = kernel.memory_span(&p.dims, &firsts).map_or(0, |span| span.elements as usize);
                    let mut words = vec![0; (elements * layout.bytes).div_ceil(8)];
                    for (n, (offset, scalar)) in (0..elements).flat_map(|n| layout.offsets.iter().map(move |o| (n, *o)))
                    {
                        store_scalar(&mut words, n * layout.bytes + offset, random.value(scalar));
                    }
                    let first = layout.offsets[0].1;
                    let dtype = if layout.offsets.iter().all(|(_, s)| *s == first) { first } else { Scalar::U8 };
                    let count = elements * layout.bytes / dtype.bytes();
                    tensor(
                        &(0..count).map(|n| load_scalar(&words, n * dtype.bytes(), dtype)).collect::<Vec<_>>(),
                        device,
                    )
                })
                .collect();
            let written = run_kernel(&kernel, &inputs.iter().collect::<Vec<_>>(), &values, device)?;
            let params = kernel.params.iter().filter(|p| p.access != Access::Read);
            written.iter().zip(params).map(|(tensor, p)| results(tensor, &p.ty.layout(&kernel.structs))).collect()
        };
        let (found, expected) = (on(device), on(Device::Interpreter)?);
        let found = found.map_err(|e| format!("BORNITE_TEST_SEED={seed}: {e}\n{kernel}"))?;
        if found != expected {
            return Err(format!("BORNITE_TEST_SEED={seed}: {device} differs from the interpreter\n{kernel}").into());
        }
    }
    Ok(())
}
