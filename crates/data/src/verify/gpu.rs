//! Verification on a GPU, on the inputs that the interpreter has run.

use std::sync::Arc;

use bornite_cuda::{Buffer, Device, Error, KernelFunction, LaunchConfig};

use super::compile::{symbol, to_machine_code};
use super::run::{self, TestCase};
use super::{CheckStats, Rejection, memory};
use crate::Row;
use crate::evaluate::EvalValue;
use crate::program::ScalarType;

/// Checks rows on a GPU. Each row first passes the interpreter, which makes it safe to launch: on
/// the same inputs, no index leaves its array.
pub fn check(rows: &[&Row], device: &Arc<Device>) -> Result<Vec<Result<CheckStats, Rejection>>, Error> {
    check_as(rows, device, true)
}

/// Like [`check`], with `ptxas -O0`: if a row passes only this check, ptxas miscompiled it.
pub fn check_unoptimized(rows: &[&Row], device: &Arc<Device>) -> Result<Vec<Result<CheckStats, Rejection>>, Error> {
    check_as(rows, device, false)
}

fn check_as(rows: &[&Row], device: &Arc<Device>, optimized: bool) -> Result<Vec<Result<CheckStats, Rejection>>, Error> {
    let mut outcome: Vec<Result<CheckStats, Rejection>> = vec![Ok(CheckStats::default()); rows.len()];
    let (compiled, failed) = to_machine_code(rows, &device.info().arch(), optimized)?;
    for (n, log) in failed {
        outcome[n] = Err(Rejection::Compile(log));
    }
    for batch in compiled {
        for (number, n) in batch.rows.iter().enumerate() {
            let row = rows[*n];
            let cases = match run::test_cases(&row.program, [row.seed, row.index]) {
                Ok(cases) => match run::check_cuda(&row.program, &row.cuda, &cases) {
                    Ok(_) => cases,
                    Err(why) => {
                        outcome[*n] = Err(why);
                        continue;
                    }
                },
                Err(why) => {
                    outcome[*n] = Err(why);
                    continue;
                }
            };
            let program = &row.program;
            let sizes: Vec<usize> = (program.values.iter().map(|value| program.body.var(value.var).ty))
                .chain(program.sizes.iter().map(|_| ScalarType::I32.into()))
                .map(|ty| ty.element().map_or(4, |scalar| scalar.bits() as usize / 8))
                .collect();
            let name = symbol(number, row);
            outcome[*n] = match KernelFunction::load(device, &batch.code, &name, program.arrays.len(), sizes) {
                Ok(function) => launch_and_compare(row, &function, &cases)?,
                // Other rows of the batch may load; a broken device shows in their launches.
                Err(why) => Err(Rejection::Compile(format!("could not load kernel '{name}': {why}"))),
            };
        }
    }
    Ok(outcome)
}

fn launch_and_compare(
    row: &Row,
    function: &KernelFunction,
    cases: &[TestCase],
) -> Result<Result<CheckStats, Rejection>, Error> {
    let program = &row.program;
    let mut checked = CheckStats::default();
    for (number, case) in cases.iter().enumerate() {
        let mut buffers = vec![];
        for (array, contents) in program.arrays.iter().zip(&case.input.arrays) {
            let bytes = memory::pack(&array.ty, &program.structs, contents);
            let buffer = Buffer::new(function.device(), bytes.len().max(16))?;
            let mut padded = bytes;
            padded.resize(padded.len().max(16), 0);
            buffer.upload(&padded)?;
            buffers.push((buffer, padded));
        }
        let mut values: Vec<Vec<u8>> = vec![];
        for (param, value) in program.values.iter().zip(&case.input.values) {
            let scalar = program.body.var(param.var).ty.element().unwrap_or(ScalarType::F32);
            values.push(memory::scalar_bytes(scalar, value));
        }
        for size in &case.input.sizes {
            values.push(memory::scalar_bytes(ScalarType::I32, &EvalValue::Int(*size as i64)));
        }
        let pointers: Vec<(&Buffer, usize)> = buffers.iter().map(|(buffer, _)| (buffer, 0)).collect();
        let geometry = LaunchConfig::new(program.blocks(&case.input.sizes), program.block());
        // SAFETY: the interpreter ran this text on these inputs without a report, so every access
        // is inside its buffer, and the parameters are those of the text: its arrays, its values,
        // its sizes.
        #[allow(unsafe_code)]
        unsafe {
            function.launch_with(&geometry, None, &pointers, &values)?;
        }
        for (n, array) in program.arrays.iter().enumerate().filter(|(_, array)| array.written) {
            let (buffer, bytes) = &mut buffers[n];
            buffer.download(bytes)?;
            let found = memory::unpack(&array.ty, &program.structs, bytes, &case.after[n]);
            match run::compare(&found, &case.after[n], &array.name, number) {
                Ok(count) => checked.compared += count,
                Err(why) => return Ok(Err(why)),
            }
        }
        checked.inputs += 1;
    }
    Ok(Ok(checked))
}
