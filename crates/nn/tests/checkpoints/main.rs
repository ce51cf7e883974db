//! Checkpoints with killed writers, full disks, flipped bits and hostile headers.
//!
//! Child processes are this binary itself, started with `child` and a task.

mod allocation;
mod damage;
mod disks;
mod folders;
mod fuzz;
mod goldens;
mod killed;
mod models;
#[allow(dead_code)] // what only tests of tensors need
#[path = "../../../tensor/tests/devices/random.rs"]
mod random;
mod sample;
mod stores;

use libtest_mimic::{Arguments, Failed, Trial};

/// Result of a test body.
type Outcome = Result<(), Failed>;

const TESTS: [(&str, fn() -> Outcome); 30] = [
    ("goldens::python_files_are_read", goldens::python_files_are_read),
    ("goldens::written_files_match_python_byte_for_byte", goldens::written_files_match_python_byte_for_byte),
    ("goldens::a_checkpoint_of_this_version_is_read", goldens::a_checkpoint_of_this_version_is_read),
    ("stores::checkpoints_round_trip_exactly", stores::checkpoints_round_trip_exactly),
    ("stores::the_last_and_the_best_are_kept", stores::the_last_and_the_best_are_kept),
    ("stores::a_step_can_be_saved_again", stores::a_step_can_be_saved_again),
    ("stores::newer_versions_are_rejected", stores::newer_versions_are_rejected),
    (
        "stores::older_checkpoints_are_loaded_only_with_fall_back",
        stores::older_checkpoints_are_loaded_only_with_fall_back,
    ),
    ("stores::checkpoints_are_found_without_a_valid_pointer", stores::checkpoints_are_found_without_a_valid_pointer),
    ("stores::stale_files_are_removed", stores::stale_files_are_removed),
    ("stores::loads_need_little_more_than_the_tensors", stores::loads_need_little_more_than_the_tensors),
    ("killed::latest_always_loads", killed::latest_always_loads),
    ("killed::at_every_call", killed::at_every_call),
    ("disks::full_at_each_call", disks::full_at_each_call),
    ("disks::file_size_limits_of_the_system", disks::file_size_limits_of_the_system),
    ("disks::a_full_device", disks::a_full_device),
    ("damage::every_header_byte", damage::every_header_byte),
    ("damage::payload_bytes", damage::payload_bytes),
    ("damage::every_byte_of_json", damage::every_byte_of_json),
    ("damage::truncations", damage::truncations),
    ("damage::files_that_are_missing_or_exchanged", damage::files_that_are_missing_or_exchanged),
    ("fuzz::bytes", fuzz::bytes),
    ("fuzz::headers", fuzz::headers),
    ("fuzz::folders", fuzz::folders),
    ("folders::one_writer_at_a_time", folders::one_writer_at_a_time),
    ("folders::errors_are_one_sentence", folders::errors_are_one_sentence),
    ("folders::without_permission", folders::without_permission),
    ("models::export_and_import_round_trip", models::export_and_import_round_trip),
    ("models::names_and_shapes_must_match", models::names_and_shapes_must_match),
    ("models::shards_must_match_their_index", models::shards_must_match_their_index),
];

/// Returns true if the long versions are requested.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, task, rest @ ..] = &arguments[..]
        && child == "child"
    {
        return match task.as_str() {
            "save" => killed::save_forever(rest),
            "save-until" => killed::save_until_call(rest),
            "save-once" => folders::save_once(rest),
            "load" => stores::load_and_count(rest),
            other => panic!("no task {other}"),
        };
    }
    let is_missing = |name: &str| name == "folders::without_permission" && !folders::can_drop_rights();
    let trial = |(name, body): (&'static str, _)| Trial::test(name, body).with_ignored_flag(is_missing(name));
    let trials = TESTS.into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
