//! Datasets of ingested (handwritten) kernels, written as one file.

use super::claim::Claim;
use super::record::base_columns;
use super::shard::ShardWriter;
use super::{
    CandidateCounts, Cell, DatasetDir, DatasetFormat, DatasetManifest, DatasetSettings, Error, Result, RowRecord,
    finish,
};
use crate::distinct::Fingerprint;
use crate::ingest::{IngestedKernel, KernelTexts};

/// Category of ingested rows.
pub(super) const CATEGORY: &str = "ingested";

/// Record of the `number`-th kernel that passed its checks.
fn record(kernel: &IngestedKernel, number: u64) -> Option<RowRecord> {
    let texts = kernel.outcome.as_ref().ok()?;
    let names: Vec<String> = base_columns(false).into_iter().map(|(name, _)| name.to_owned()).collect();
    let id = format!("{CATEGORY}-{number:08}");
    let complexity = texts.ir.lines().count() as u64;
    let cells: Vec<Cell> = (names.iter().map(String::as_str))
        .map(|name| match name {
            "id" | "cluster" => Cell::Text(id.clone()),
            "name" => kernel.name.as_str().into(),
            "category" => CATEGORY.into(),
            "description" => texts.description.as_str().into(),
            "source" => texts.source.as_str().into(),
            "cuda" => texts.cuda.as_str().into(),
            "cpp" => texts.cpp.as_str().into(),
            "ir" => texts.ir.as_str().into(),
            "inputs" => texts.inputs.as_str().into(),
            "block" => Cell::Text(texts.block.map(|size| size.to_string()).join("x")),
            "ops" => Cell::Text(texts.ops.join(" ")),
            "types" => Cell::Text(texts.types.join(" ")),
            "level" => "run".into(),
            "split" => "train".into(),
            "complexity" => complexity.into(),
            "difficulty" => (1 + complexity / 25).min(5).into(),
            "index" => number.into(),
            "version" => u64::from(crate::generate::VERSION).into(),
            "seed" => 0.into(),
            _ => "".into(),
        })
        .collect();
    Some(RowRecord::from_cells(&names, cells))
}

/// Checks that a record's texts match its source; returns the exact fingerprint, or what is wrong.
pub(super) fn check(record: &RowRecord) -> std::result::Result<u64, String> {
    let kernels = crate::ingest::ingest("kernel.py", record.text("source")).map_err(|errors| errors.to_string())?;
    let name = record.text("name");
    // A source can define several kernels with this name, under conditions.
    let outcomes: Vec<_> =
        kernels.into_iter().filter(|kernel| kernel.name == name).map(|kernel| kernel.outcome).collect();
    let recorded = ["cuda", "cpp", "ir", "inputs"].map(|name| record.text(name));
    let is_same = |texts: &KernelTexts| [&texts.cuda, &texts.cpp, &texts.ir, &texts.inputs] == recorded;
    match outcomes.iter().find(|outcome| !matches!(outcome, Ok(texts) if !is_same(texts))) {
        Some(Ok(texts)) => Ok(Fingerprint::new(&texts.cuda, "").exact),
        Some(Err(why)) => Err(why.clone()),
        None if outcomes.is_empty() => Err("the source has no kernel of this name".into()),
        None => Err("the texts do not match the source".into()),
    }
}

/// For each kernel that passed: the index of the earlier kernel that it duplicates up to names and
/// constants, if any.
pub fn duplicates(kernels: &[IngestedKernel]) -> Vec<Option<usize>> {
    let mut first = std::collections::HashMap::new();
    (kernels.iter().enumerate())
        .map(|(n, kernel)| {
            let texts = kernel.outcome.as_ref().ok()?;
            let earlier = *first.entry(Fingerprint::new(&texts.cuda, "").exact).or_insert(n);
            (earlier != n).then_some(earlier)
        })
        .collect()
}

/// Writes the kernels that passed as a dataset, without duplicates.
pub fn write_ingested(dir: &DatasetDir, kernels: &[IngestedKernel]) -> Result<DatasetManifest> {
    if super::settings(dir)?.is_some() {
        let folder = dir.path("");
        let what = format!("{} already contains a dataset: choose another folder", folder.display());
        return Err(Error::InvalidRequest(what));
    }
    dir.require_no_unrelated_files()?;
    if kernels.iter().all(|kernel| kernel.outcome.is_err()) {
        return Err(Error::InvalidRequest("no kernel passed its checks: nothing to write".into()));
    }
    dir.create()?;
    let (_claim, ()) = Claim::take(dir, 0..1, || Ok(()))?;
    let mut settings = DatasetSettings::new(0);
    (settings.seed, settings.categories, settings.format) = (0, vec![CATEGORY.into()], DatasetFormat::Parquet);
    settings.shards = 1;
    let mut writer = ShardWriter::new(dir, &settings, 0)?;
    let mut reached = CandidateCounts { candidates: kernels.len() as u64, ..CandidateCounts::default() };
    for (kernel, duplicate) in kernels.iter().zip(duplicates(kernels)) {
        if duplicate.is_some() {
            reached.duplicates += 1;
            continue;
        }
        let Some(record) = record(kernel, reached.distinct) else {
            writer.counts.reject("check");
            continue;
        };
        writer.push(&record, &[], record.hash(), reached.distinct)?;
        reached.distinct += 1;
    }
    reached.structures = reached.distinct;
    let record = writer.finish(reached)?;
    settings.count = reached.distinct;
    finish::write(dir, &settings, vec![record])
}
