//! Complete runs: learning, stopping and resuming, settings, text generation, and errors of invalid
//! input.

mod bad_input;
mod corpus;
#[allow(dead_code)] // what only tests of tensors need
#[path = "../../../tensor/tests/devices/random.rs"]
mod random;
mod resume;
mod retired;
mod settings;
mod texts;

/// Returns true if the long versions are requested.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}
