//! The CUDA runtime on a real device: memory, streams, launches, graphs, and errors.
#![allow(unsafe_code)] // kernels of our own, launched over buffers of the sizes they are told

mod child;
mod graphs;
mod kernels;
mod launches;
mod memory;
mod stress;

use std::sync::Arc;

use bornite_cuda::Device;
use libtest_mimic::Trial;

use crate::Outcome;

pub use child::{child, fusion_can_be_switched_off, run_child};

type Body = fn(&Arc<Device>) -> Outcome;

const SUITE: [(&str, Body); 22] = [
    ("buffers_round_trip", memory::buffers_round_trip),
    ("copies_wait_for_the_streams_of_both_buffers", memory::copies_wait_for_the_streams_of_both_buffers),
    ("pointers_stay_within_their_buffers", launches::pointers_stay_within_their_buffers),
    ("pinned_copies", memory::pinned_copies),
    ("copies_overlap_compute", child::copies_overlap_compute),
    ("memory_fraction_limits_allocations", memory::memory_fraction_limits_allocations),
    ("out_of_memory_recovers", memory::out_of_memory_recovers),
    ("backing_fills_and_compares", memory::backing_fills_and_compares),
    ("debug_mode_finds_out_of_bounds_writes", memory::debug_mode_finds_out_of_bounds_writes),
    ("two_streams_with_events", launches::two_streams_with_events),
    ("prepared_launch_equals_plain_launch", launches::prepared_launch_equals_plain_launch),
    ("large_shared_memory", launches::large_shared_memory),
    ("occupancy_and_registry", launches::occupancy_and_registry),
    ("clusters_and_cooperation", launches::clusters_and_cooperation),
    ("graph_replays_equal_eager", graphs::replays_equal_eager),
    ("graph_update", graphs::update),
    ("graph_arguments", graphs::arguments),
    ("capture_neither_allocates_nor_frees", graphs::capture_neither_allocates_nor_frees),
    ("fault_names_its_kernel", child::fault_names_its_kernel),
    ("settings_of_the_environment", child::settings_of_the_environment),
    ("devices_and_threads", launches::devices_and_threads),
    ("random_work_on_two_streams", stress::random_work_on_two_streams),
];

/// One trial per test; all ignored without a GPU.
pub fn trials(cuda: bool, nvrtc: bool) -> Vec<Trial> {
    let mut trials: Vec<Trial> = (SUITE.iter())
        .map(|&(name, body)| {
            let trial = Trial::test(format!("cuda::runtime::{name}"), move || body(&Device::open(0)?));
            trial.with_ignored_flag(!cuda)
        })
        .collect();
    trials.push(Trial::test("nvrtc::runtime_kernels_compile", kernels_compile).with_ignored_flag(!nvrtc));
    trials
}

fn kernels_compile() -> Outcome {
    for (n, &kernel) in kernels::ALL.iter().enumerate() {
        let arch = if n < kernels::COMMON { "sm_75" } else { "sm_90" };
        kernels::compiled(kernel, arch)?;
    }
    Ok(())
}

/// Returns true if the long forms of tests are requested.
pub fn full() -> bool {
    std::env::var("BORNITE_TEST_FULL").is_ok_and(|value| value == "1")
}
