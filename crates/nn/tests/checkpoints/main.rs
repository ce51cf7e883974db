//! Checkpoints under everything that happens to files: killed writers, full disks, flipped bits, hostile headers.
//!
//! The processes that are killed, starved or watched are this binary itself, called with `child` and a task.

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

/// What a test body returns.
type Outcome = Result<(), Failed>;

const TESTS: [(&str, fn() -> Outcome); 30] = [
    ("goldens::python_files_are_read", goldens::python_files_are_read),
    ("goldens::our_bytes_are_those_of_python", goldens::our_bytes_are_those_of_python),
    ("goldens::a_checkpoint_of_this_version_is_read", goldens::a_checkpoint_of_this_version_is_read),
    ("stores::checkpoints_come_back_to_the_bit", stores::checkpoints_come_back_to_the_bit),
    ("stores::the_last_and_the_best_are_kept", stores::the_last_and_the_best_are_kept),
    ("stores::a_step_can_be_saved_again", stores::a_step_can_be_saved_again),
    ("stores::newer_versions_are_refused", stores::newer_versions_are_refused),
    ("stores::an_older_one_is_loaded_only_when_asked_for", stores::an_older_one_is_loaded_only_when_asked_for),
    ("stores::the_folder_counts_without_its_pointer", stores::the_folder_counts_without_its_pointer),
    ("stores::strays_are_swept", stores::strays_are_swept),
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
    ("folders::refusals_are_one_sentence", folders::refusals_are_one_sentence),
    ("folders::without_permission", folders::without_permission),
    ("models::go_out_and_come_back", models::go_out_and_come_back),
    ("models::names_and_shapes_must_fit", models::names_and_shapes_must_fit),
    ("models::shards_must_fit_their_index", models::shards_must_fit_their_index),
];

/// True where the long versions are asked for.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, child, task, rest @ ..] = &arguments[..]
        && child == "child"
    {
        return match task.as_str() {
            "save" => killed::save_for_ever(rest),
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
