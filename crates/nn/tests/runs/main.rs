//! Runs as people have them: they learn, can be stopped anywhere and go on to the bit, and say what is wrong in a sentence.

mod bad_input;
mod corpus;
#[allow(dead_code)] // what only tests of tensors need
#[path = "../../../tensor/tests/devices/random.rs"]
mod random;
mod resume;
mod settings;
mod texts;

/// True where the long versions are asked for.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}
