//! Test harness for targets whose tests need something that may be missing: a GPU, NVRTC, a C++
//! compiler. Such a test returns an error that says what is missing, and is reported and counted as
//! ignored. The target has `harness = false` and calls `suite!`. All other failures are panics.

use libtest_mimic::{Arguments, Completion, Trial};

/// Outcome of a test; the error says what is missing.
pub type Outcome = Result<(), String>;

/// Converts a test's result for the harness.
pub trait Report {
    fn completion(self) -> Completion;
}

impl Report for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

impl Report for Outcome {
    fn completion(self) -> Completion {
        match self {
            Ok(()) => Completion::Completed,
            // The first sentence; the rest lists where a library was searched.
            Err(why) => Completion::ignored_with(why.split(';').next().unwrap_or_default()),
        }
    }
}

/// Creates a test. A panic fails it.
pub fn trial<T: Report + 'static>(name: &str, body: fn() -> T) -> Trial {
    Trial::ignorable_test(name, move || Ok(body().completion()))
}

/// Runs the tests that the command line selects, and exits.
pub fn run(trials: Vec<Trial>) -> ! {
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}

/// Returns an error if `g++` is missing.
#[allow(dead_code)] // used by targets that compile C++
pub fn gpp() -> Outcome {
    let found = std::process::Command::new("g++").arg("--version").output();
    found.map(drop).map_err(|why| format!("g++ cannot be run: {why}"))
}

/// Defines the target's `main`, which runs these functions as tests, named by their paths.
#[macro_export]
macro_rules! suite {
    ($($test:path),+ $(,)?) => {
        fn main() {
            $crate::suite::run(vec![$($crate::suite::trial(stringify!($test), $test)),+]);
        }
    };
}
