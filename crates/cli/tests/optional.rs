//! Tests of the command that need NVRTC or a browser: ignored where they are missing. They stand beside those that they
//! share code with.
#![allow(missing_docs)]

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

#[allow(dead_code, unused_imports)] // what the other tests there need
mod analyze;
#[allow(dead_code, unused_imports)]
mod data;
#[allow(dead_code, unused_imports)]
mod reports;
#[allow(dead_code, unused_imports)]
mod sources;
#[allow(dead_code, unused_imports)]
mod tooling;

suite! {
    analyze::resources_are_compiled,
    data::workers_of_the_command_compile,
    reports::pages_render,
    sources::emitted_text_compiles,
    tooling::caches_are_warmed_without_a_gpu,
}
