//! Datasets as files: the same rows however they are made, whole files or none, and what is wrong is said.

#[path = "../../../ir/tests/suite/mod.rs"]
mod suite;

mod claims;
mod columns;
mod coverage;
mod formats;
mod manual;
mod pairs;
mod workers;
mod wrong;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bornite_data::files::{Asked, Error, Made, Part, Place, Progress, Settings, make};
use bornite_data::{Level, Random};

suite! {
    the_set_does_not_depend_on_shards_or_threads,
    jobs_that_do_not_talk_make_the_same_set,
    a_run_that_was_stopped_goes_on_and_makes_no_shard_twice,
    claims::a_shard_is_made_by_one_run_at_a_time,
    columns::rows_have_the_style_of_warp_where_it_is_asked_for,
    columns::rows_have_code_where_it_is_asked_for,
    columns::columns_have_one_name_each,
    coverage::pairs_are_of_operands,
    coverage::the_table_has_every_pair_or_says_why_not,
    formats::every_format_has_the_same_rows,
    formats::what_stands_beside_the_rows_is_whole,
    formats::the_card_of_pairs_says_what_their_files_have,
    manual::the_manual_has_an_example_of_each_category,
    pairs::what_warp_generates_passes_and_what_is_damaged_is_named,
    pairs::a_damaged_pair_among_others_is_named,
    workers::a_text_that_costs_its_compiler_is_left_out_alone,
    workers::a_worker_that_cannot_work_is_an_error_and_no_lost_row,
    workers::a_dataset_tells_which_rows_cost_a_compiler,
    wrong::what_cannot_be_is_refused_in_a_sentence,
    wrong::another_dataset_is_not_written_over,
    wrong::a_damaged_shard_is_found_and_made_again,
    wrong::a_disk_that_fills_up_loses_nothing,
    wrong::pairs_from_elsewhere_are_checked_too,
    wrong::files_that_a_loader_would_take_for_rows_are_found,
    wrong::rows_of_another_generator_are_not_called_wrong,
    wrong::files_of_others_are_not_written_over,
    wrong::a_manifest_that_cannot_be_is_damaged,
    wrong::what_is_no_plain_file_is_not_waited_for,
    wrong::a_pair_that_cannot_be_read_does_not_hide_the_others,
}

/// The seed of the run, and whether it is a long one.
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

/// A folder of a test's own that is not there yet.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Settings at the level `types`, which takes no time.
fn settings(count: u64, shards: u32) -> Settings {
    let mut settings = Settings::new(count);
    (settings.shards, settings.level) = (shards, Level::Types.name().into());
    settings
}

fn asked(settings: &Settings) -> Asked {
    let stop = Arc::new(AtomicBool::new(false));
    Asked { settings: Some(settings.clone()), resume: false, part: None, jobs: 2, stop, workers: None }
}

fn made(folder: &Path, settings: &Settings) -> Made {
    make(&Place::new(folder), &asked(settings), &mut |_| {}).unwrap()
}

fn hash(made: &Made) -> String {
    made.manifest.as_ref().expect("a finished dataset").set_hash.to_string()
}

/// Files of a folder and those below it.
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

fn the_set_does_not_depend_on_shards_or_threads() {
    let mut settings = settings(300, 1);
    settings.seed = seed();
    let whole = made(&folder("one"), &settings);
    assert_eq!(whole.manifest.as_ref().unwrap().rows, 300);
    for (shards, jobs) in [(7, 1), (64, 3)] {
        settings.shards = shards;
        let place = Place::new(&folder(&format!("shards-{shards}")));
        let other = make(&place, &Asked { jobs, ..asked(&settings) }, &mut |_| {}).unwrap();
        assert_eq!(hash(&other), hash(&whole), "{shards} shards");
        assert_eq!(other.manifest.unwrap().counts(), whole.manifest.as_ref().unwrap().counts());
    }
    settings.seed += 1;
    assert_ne!(hash(&made(&folder("other-seed"), &settings)), hash(&whole));
}

fn jobs_that_do_not_talk_make_the_same_set() {
    let mut settings = settings(240, 6);
    settings.seed = seed();
    let whole = hash(&made(&folder("whole"), &settings));
    let place = Place::new(&folder("parts"));
    // The last first: nobody waits for another.
    for number in [2, 0, 1] {
        let part = Some(Part { number, of: 3 });
        let made = make(&place, &Asked { part, ..asked(&settings) }, &mut |_| {}).unwrap();
        assert_eq!(made.shards.len(), 2);
        assert_eq!(made.manifest.is_some(), number == 1, "part {number}");
        if number == 1 {
            assert_eq!(hash(&made), whole);
        }
    }
    let names = listed(&place.path(""));
    assert!(names.iter().all(|name| !name.contains(".making") && !name.contains(".writing-")), "{names:?}");
    assert!(names.contains(&"data/train-00003-of-00006.parquet".into()), "{names:?}");
}

fn a_run_that_was_stopped_goes_on_and_makes_no_shard_twice() {
    let mut settings = settings(400, 5);
    settings.seed = seed();
    let whole = hash(&made(&folder("unstopped"), &settings));
    let mut random = Random::new(settings.seed);
    for round in 0..if full() { 20 } else { 4 } {
        let place = Place::new(&folder("stopped"));
        let mut fresh = vec![];
        loop {
            let first = fresh.is_empty();
            let asked = Asked { resume: !first, ..asked(&settings) };
            let stop = asked.stop.clone();
            let after = 1 + random.below(350) as u64;
            let mut last = Progress::default();
            let outcome = make(&place, &asked, &mut |progress| {
                last = progress;
                stop.store(progress.fresh >= after, std::sync::atomic::Ordering::Relaxed);
            });
            fresh.push(last.fresh);
            match outcome {
                Err(Error::Stopped) => assert!(fresh.len() < 30, "{fresh:?}"),
                outcome => {
                    assert_eq!(hash(&outcome.unwrap()), whole, "round {round}: {fresh:?}");
                    break;
                }
            }
        }
        // What is made twice is the rest of a shard, once a stop.
        let stops = fresh.len() as u64 - 1;
        assert!(fresh.iter().sum::<u64>() <= 400 + stops * 80, "{fresh:?}");
    }
}
