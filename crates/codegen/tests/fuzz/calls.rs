//! Launches of random kernels: arguments and results.

use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_with};
use bornite_ir::{Access, Arg, Fault, Kernel, Value, load_scalar, store_scalar};

use crate::generate::{Case, Random};

/// First component of each value, which resolves dynamic extents.
pub fn firsts(case: &Case) -> Vec<Value> {
    case.values.iter().map(|parts| parts[0]).collect()
}

/// Byte offset and type of every component of every element of a view.
fn cells(case: &Case, n: usize) -> Vec<(usize, bornite_ir::Scalar)> {
    let Case { kernel, .. } = case;
    let param = &kernel.params[n];
    let layout = param.ty.layout(&kernel.structs);
    let elements = kernel.memory_span(&param.dims, &firsts(case)).map_or(0, |span| span.elements as usize);
    (0..elements)
        .flat_map(|element| {
            layout.offsets.iter().map(move |(offset, scalar)| (element * layout.bytes + offset, *scalar))
        })
        .collect::<Vec<_>>()
}

/// Allocates buffers for a kernel's views, with random contents where they are read.
pub fn memory(case: &Case, seed: u64) -> Vec<Vec<u64>> {
    let mut random = Random(seed);
    (case.kernel.params.iter().enumerate())
        .map(|(n, p)| {
            let bytes = case.kernel.view_bytes(p, &firsts(case)).unwrap_or(0);
            let mut words = vec![0u64; bytes.div_ceil(8)];
            for (byte, scalar) in cells(case, n).into_iter().filter(|_| p.access != Access::Write) {
                store_scalar(&mut words, byte, random.value(scalar));
            }
            words
        })
        .collect()
}

/// Returns buffers and values as arguments.
pub fn lend<'a>(case: &'a Case, memory: &'a mut [Vec<u64>]) -> Vec<Arg<'a>> {
    (memory.iter_mut().zip(&case.kernel.params))
        .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
        .chain(case.values.iter().map(|parts| Arg::Value(parts)))
        .collect()
}

/// Returns the results with canonical NaNs.
pub fn results(case: &Case, memory: &[Vec<u64>]) -> Vec<u64> {
    let written = case.kernel.params.iter().enumerate().filter(|(_, p)| p.access != Access::Read);
    written
        .flat_map(|(n, _)| cells(case, n).into_iter().map(move |cell| (n, cell)))
        .map(|(n, (byte, scalar))| {
            let value = load_scalar(&memory[n], byte, scalar);
            if scalar.is_float() && value.as_f64().is_nan() { u64::MAX } else { value.bits() }
        })
        .collect()
}

pub fn interpreted(case: &Case, kernel: &Kernel, seed: u64, order: ExecutionOrder) -> Result<Vec<u64>, Fault> {
    let mut memory = memory(case, seed);
    let options = InterpreterOptions { order, max_statements: Some(1 << 20), ..InterpreterOptions::default() };
    run_with(kernel, &mut lend(case, &mut memory), options)?;
    Ok(results(case, &memory))
}
