//! Datasets on disk: the same rows regardless of shards and threads, atomic files, and clear
//! errors.

#[path = "../../../ir/tests/suite/mod.rs"]
mod suite;

mod claims;
mod columns;
mod coverage;
mod errors;
mod formats;
mod manual;
mod pairs;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bornite_data::files::{DatasetDir, DatasetSettings, Error, JobPart, MakeOptions, MakeOutcome, MakeProgress, make};
use bornite_data::{Level, Random};

suite! {
    rows_do_not_depend_on_shards_or_threads,
    independent_jobs_write_the_same_rows,
    stopped_run_resumes_after_the_last_shard,
    claims::shard_is_written_by_one_run_at_a_time,
    columns::warp_style_column_is_written_on_request,
    columns::code_columns_are_written_on_request,
    columns::extra_columns_have_unique_names,
    coverage::combinations_are_of_operand_types,
    coverage::coverage_table_lists_every_combination_or_the_reason,
    formats::every_format_contains_the_same_rows,
    formats::files_next_to_the_rows_are_valid,
    formats::card_of_pairs_lists_their_keys,
    formats::manifests_with_retired_names_are_read,
    manual::documentation_has_an_example_of_each_category,
    pairs::pairs_from_warp_pass_and_damage_fails_the_right_check,
    pairs::damaged_pair_among_others_is_reported,
    workers::text_that_crashes_the_compiler_is_rejected_alone,
    workers::worker_that_cannot_compile_is_an_error,
    workers::compiler_failures_are_listed_in_the_statistics,
    errors::invalid_options_are_rejected_in_one_sentence,
    errors::different_dataset_is_not_overwritten,
    errors::damaged_shard_is_found_and_regenerated,
    errors::full_disk_loses_no_finished_shard,
    errors::pairs_in_the_style_of_warp_are_checked,
    errors::unlisted_row_files_are_found,
    errors::rows_of_another_generator_version_are_not_failures,
    errors::unrelated_files_are_not_overwritten,
    errors::inconsistent_manifest_is_rejected,
    errors::named_pipe_is_reported_without_blocking,
    errors::unreadable_pair_does_not_hide_the_others,
}

/// Seed of the run.
fn seed() -> u64 {
    std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = now.as_nanos() as u64 % 1_000_000;
        println!("BORNITE_TEST_SEED={seed}");
        seed
    })
}

fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

/// A test's folder, which does not exist yet.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Settings at the level `types`, which is fast.
fn settings(count: u64, shards: u32) -> DatasetSettings {
    let mut settings = DatasetSettings::new(count);
    (settings.shards, settings.level) = (shards, Level::Types.name().into());
    settings
}

fn options(settings: &DatasetSettings) -> MakeOptions {
    let stop = Arc::new(AtomicBool::new(false));
    MakeOptions { settings: Some(settings.clone()), resume: false, part: None, jobs: 2, stop, workers: None }
}

fn make_dataset(folder: &Path, settings: &DatasetSettings) -> MakeOutcome {
    make(&DatasetDir::new(folder), &options(settings), &mut |_| {}).unwrap()
}

fn hash(outcome: &MakeOutcome) -> String {
    outcome.manifest.as_ref().expect("a finished dataset").set_hash.to_string()
}

/// Files of a folder and its subfolders.
fn listed(folder: &Path) -> Vec<String> {
    let mut all = vec![];
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            all.extend(listed(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}")));
        } else {
            all.push(name);
        }
    }
    all.sort();
    all
}

fn rows_do_not_depend_on_shards_or_threads() {
    let mut settings = settings(300, 1);
    settings.seed = seed();
    let expected = make_dataset(&folder("one"), &settings);
    assert_eq!(expected.manifest.as_ref().unwrap().rows, 300);
    for (shards, jobs) in [(7, 1), (64, 3)] {
        settings.shards = shards;
        let dir = DatasetDir::new(&folder(&format!("shards-{shards}")));
        let other = make(&dir, &MakeOptions { jobs, ..options(&settings) }, &mut |_| {}).unwrap();
        assert_eq!(hash(&other), hash(&expected), "{shards} shards");
        assert_eq!(other.manifest.unwrap().counts(), expected.manifest.as_ref().unwrap().counts());
    }
    settings.seed += 1;
    assert_ne!(hash(&make_dataset(&folder("other-seed"), &settings)), hash(&expected));
}

fn independent_jobs_write_the_same_rows() {
    let mut settings = settings(240, 6);
    settings.seed = seed();
    let expected = hash(&make_dataset(&folder("whole"), &settings));
    let dir = DatasetDir::new(&folder("parts"));
    // The last part first: jobs do not wait for each other.
    for number in [2, 0, 1] {
        let part = Some(JobPart { index: number, count: 3 });
        let outcome = make(&dir, &MakeOptions { part, ..options(&settings) }, &mut |_| {}).unwrap();
        assert_eq!(outcome.shards.len(), 2);
        assert_eq!(outcome.manifest.is_some(), number == 1, "part {number}");
        if number == 1 {
            assert_eq!(hash(&outcome), expected);
        }
    }
    let names = listed(&dir.path(""));
    assert!(names.iter().all(|name| !name.contains(".making") && !name.contains(".writing-")), "{names:?}");
    assert!(names.contains(&"data/train-00003-of-00006.parquet".into()), "{names:?}");
}

fn stopped_run_resumes_after_the_last_shard() {
    let mut settings = settings(400, 5);
    settings.seed = seed();
    let expected = hash(&make_dataset(&folder("unstopped"), &settings));
    let mut random = Random::new(settings.seed);
    for round in 0..if full() { 20 } else { 4 } {
        let dir = DatasetDir::new(&folder("stopped"));
        let mut fresh = vec![];
        loop {
            let first = fresh.is_empty();
            let options = MakeOptions { resume: !first, ..options(&settings) };
            let stop = options.stop.clone();
            let after = 1 + random.below(350) as u64;
            let mut last = MakeProgress::default();
            let outcome = make(&dir, &options, &mut |progress| {
                last = progress;
                stop.store(progress.written >= after, std::sync::atomic::Ordering::Relaxed);
            });
            fresh.push(last.written);
            match outcome {
                Err(Error::Stopped) => assert!(fresh.len() < 30, "{fresh:?}"),
                outcome => {
                    assert_eq!(hash(&outcome.unwrap()), expected, "round {round}: {fresh:?}");
                    break;
                }
            }
        }
        // At most the rest of one shard is generated twice per stop.
        let stops = fresh.len() as u64 - 1;
        assert!(fresh.iter().sum::<u64>() <= 400 + stops * 80, "{fresh:?}");
    }
}
