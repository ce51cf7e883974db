//! Checks rows at a level and compiles them where code is requested.

use std::sync::Arc;

use bornite_cuda::{Device, Disassembler};
use rayon::prelude::*;

use super::{Error, Result};
use crate::verify::code::{ARCH, CodeFailure, CompiledCode, CudaSource, EmitOptions, compile_sources};
use crate::verify::compile::BATCH;
use crate::verify::{WorkerConfig, WorkerPool, gpu};
use crate::{Level, Rejection, Row, verify};

/// Code of a row, as far as requested, or why the row is rejected.
pub(super) type CheckResult = std::result::Result<CompiledCode, Rejection>;

/// Checks rows at a verification level.
pub(super) struct RowChecker {
    level: Level,
    device: Option<Arc<Device>>,
    emit: EmitOptions,
    /// `None`: compile in this process.
    workers: Option<WorkerPool>,
}

impl RowChecker {
    /// Finds the compiler, disassembler and device before the first row is generated.
    pub(super) fn new(level: Level, emit: EmitOptions, config: Option<&WorkerConfig>) -> Result<RowChecker> {
        let device = if level == Level::Gpu { Some(Device::best()?) } else { None };
        let compiles = level == Level::Compile || emit.any();
        // Workers report a missing compiler themselves.
        if compiles && config.is_none() {
            bornite_cuda::nvrtc_version()?;
        }
        if emit.sass {
            Disassembler::find()?;
        }
        let workers = match config.filter(|_| compiles) {
            Some(config) => Some(WorkerPool::new(config).map_err(Error::Worker)?),
            None => None,
        };
        Ok(RowChecker { level, device, emit, workers })
    }

    /// Checks all rows in parallel on the current thread pool.
    pub(super) fn check(&self, rows: &[&Row]) -> Result<Vec<CheckResult>> {
        let without_code = |found: std::result::Result<_, Rejection>| found.map(|_| CompiledCode::default());
        let mut verdicts: Vec<CheckResult> = match (self.level, &self.device) {
            (Level::Compile, _) => return self.compile(rows),
            (Level::Types, _) => vec![Ok(CompiledCode::default()); rows.len()],
            (Level::Gpu, Some(device)) => gpu::check(rows, device)?.into_iter().map(without_code).collect(),
            _ => rows.par_iter().map(|row| without_code(verify(row, Level::Run))).collect(),
        };
        if self.emit.any() {
            let passed: Vec<usize> = (0..rows.len()).filter(|n| verdicts[*n].is_ok()).collect();
            let chosen: Vec<&Row> = passed.iter().map(|n| rows[*n]).collect();
            // Below the level `compile`, the set of rows must not depend on NVRTC: a row that fails
            // to compile stays, without code.
            for (n, code) in passed.into_iter().zip(self.compile(&chosen)?) {
                verdicts[n] = Ok(match code {
                    Ok(code) => code,
                    Err(Rejection::CompilerFailure { kind, what }) => CompiledCode {
                        failure: Some(CodeFailure { why: kind.into(), what }),
                        ..CompiledCode::default()
                    },
                    Err(_) => CompiledCode::default(),
                });
            }
        }
        Ok(verdicts)
    }

    fn compile(&self, rows: &[&Row]) -> Result<Vec<CheckResult>> {
        let batches: Vec<Result<Vec<CheckResult>>> = (rows.par_chunks(BATCH))
            .map(|batch| {
                let texts: Vec<CudaSource> = batch.iter().map(|row| CudaSource::from(*row)).collect();
                match &self.workers {
                    Some(workers) => workers.compile(&texts, self.emit, ARCH).map_err(Error::Worker),
                    None => {
                        let found = compile_sources(&texts, self.emit, ARCH)?;
                        Ok(found.into_iter().map(|found| found.map_err(Rejection::Compile)).collect())
                    }
                }
            })
            .collect();
        let mut verdicts = vec![];
        for batch in batches {
            verdicts.extend(batch?);
        }
        Ok(verdicts)
    }
}
