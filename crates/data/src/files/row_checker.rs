//! Checks rows at a level and compiles them where code is requested.

use std::sync::Arc;

use bornite_cuda::{Device, Disassembler};
use rayon::prelude::*;

use super::{Error, Result};
use crate::verify::code::{ARCH, Code, Missed, Text, Wanted, compiled};
use crate::verify::compile::BATCH;
use crate::verify::{Crew, Workers, gpu};
use crate::{Level, Rejected, Row, verify};

/// Code of a row, as far as requested, or why the row is rejected.
pub(super) type Verdict = std::result::Result<Code, Rejected>;

/// Checks rows at a verification level.
pub(super) struct Judge {
    level: Level,
    device: Option<Arc<Device>>,
    wanted: Wanted,
    /// `None`: compile in this process.
    workers: Option<Workers>,
}

impl Judge {
    /// Finds the compiler, disassembler and device before the first row is generated.
    pub(super) fn new(level: Level, wanted: Wanted, crew: Option<&Crew>) -> Result<Judge> {
        let device = if level == Level::Gpu { Some(Device::best()?) } else { None };
        let compiles = level == Level::Compile || wanted.any();
        // Workers report a missing compiler themselves.
        if compiles && crew.is_none() {
            bornite_cuda::nvrtc_version()?;
        }
        if wanted.sass {
            Disassembler::find()?;
        }
        let workers = match crew.filter(|_| compiles) {
            Some(crew) => Some(Workers::new(crew).map_err(Error::Worker)?),
            None => None,
        };
        Ok(Judge { level, device, wanted, workers })
    }

    /// Checks all rows in parallel on the current thread pool.
    pub(super) fn judge(&self, rows: &[&Row]) -> Result<Vec<Verdict>> {
        let without_code = |found: std::result::Result<_, Rejected>| found.map(|_| Code::default());
        let mut verdicts: Vec<Verdict> = match (self.level, &self.device) {
            (Level::Compile, _) => return self.compiled(rows),
            (Level::Types, _) => vec![Ok(Code::default()); rows.len()],
            (Level::Gpu, Some(device)) => gpu::check(rows, device)?.into_iter().map(without_code).collect(),
            _ => rows.par_iter().map(|row| without_code(verify(row, Level::Run))).collect(),
        };
        if self.wanted.any() {
            let right: Vec<usize> = (0..rows.len()).filter(|n| verdicts[*n].is_ok()).collect();
            let chosen: Vec<&Row> = right.iter().map(|n| rows[*n]).collect();
            // Below the level `compile`, the set of rows must not depend on NVRTC: a row that fails
            // to compile stays, without code.
            for (n, code) in right.into_iter().zip(self.compiled(&chosen)?) {
                verdicts[n] = Ok(match code {
                    Ok(code) => code,
                    Err(Rejected::Compiler { kind, what }) => {
                        Code { missed: Some(Missed { why: kind.into(), what }), ..Code::default() }
                    }
                    Err(_) => Code::default(),
                });
            }
        }
        Ok(verdicts)
    }

    fn compiled(&self, rows: &[&Row]) -> Result<Vec<Verdict>> {
        let batches: Vec<Result<Vec<Verdict>>> = (rows.par_chunks(BATCH))
            .map(|batch| {
                let texts: Vec<Text> = batch.iter().map(|row| Text::from(*row)).collect();
                match &self.workers {
                    Some(workers) => workers.compiled(&texts, self.wanted, ARCH).map_err(Error::Worker),
                    None => {
                        let found = compiled(&texts, self.wanted, ARCH)?;
                        Ok(found.into_iter().map(|found| found.map_err(Rejected::Compile)).collect())
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
