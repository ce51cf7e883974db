//! Table of all environment variables of Bornite, and functions that read them.
//!
//! `docs/settings.md` is generated from this table (`tests/settings.rs`), and a test searches all
//! sources for variables that are missing here. Every setting can also be set in code, which takes
//! precedence.

mod switch;
mod unknown;

use std::ffi::OsString;

use crate::{Error, Result, memory};

pub use switch::Switch;
pub use unknown::{UnknownVariable, unknown_variables};

/// One environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Accepted values.
    pub values: &'static str,
    /// Default if the variable is unset or empty.
    pub default: &'static str,
    /// Effect.
    pub meaning: &'static str,
    /// Equivalent in code.
    pub code: &'static str,
    /// Validates a value; the error is the reason.
    check: fn(&str) -> std::result::Result<(), String>,
}

/// Mode of the tuner.
pub const TUNE_VARIABLE: &str = "BORNITE_TUNE";
/// Printing of the time of every kernel.
pub const PROFILE_VARIABLE: &str = "BORNITE_PROFILE";
/// Level of log messages.
pub const LOG_VARIABLE: &str = "BORNITE_LOG";
/// Implementation of matrix products of floats.
pub const MATMUL_VARIABLE: &str = "BORNITE_MATMUL";
/// Check of computed values.
pub const CHECK_VARIABLE: &str = "BORNITE_CHECK";
/// Implementation of exp, log and the like on a GPU.
pub const MATH_VARIABLE: &str = "BORNITE_MATH";
/// Order of sums in kernels that several blocks add to.
pub const DETERMINISTIC_VARIABLE: &str = "BORNITE_DETERMINISTIC";
/// Fusion of ops.
pub const FUSION_VARIABLE: &str = "BORNITE_FUSION";
/// Folders to search for libraries.
pub const LIBRARY_PATH_VARIABLE: &str = "BORNITE_LIBRARY_PATH";
/// Libraries to treat as missing.
pub const HIDE_LIBRARIES_VARIABLE: &str = "BORNITE_HIDE_LIBRARIES";
/// Synchronous launches.
pub const SYNC_VARIABLE: &str = "BORNITE_SYNC";
/// All settings, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "BORNITE_DEVICE",
        values: "`cpu`, `cpu:N`, `cuda`, `cuda:N`, `interpreter`, `auto`",
        default: "`auto`: the best usable GPU, else the CPU",
        meaning: "Device of commands that take `--device`; the flag takes precedence.",
        code: "`bornite::Device::choose(Some(\"cuda:1\"))`",
        check: |value| {
            let (kind, number) = value.split_once(':').map_or((value, None), |(kind, n)| (kind, Some(n)));
            let numbered = matches!(kind, "cpu" | "cuda") && number.is_none_or(|n| n.parse::<usize>().is_ok());
            let plain = matches!(kind, "interpreter" | "auto") && number.is_none();
            if numbered || plain { Ok(()) } else { Err("use cpu, cpu:N, cuda, cuda:N, interpreter or auto".into()) }
        },
    },
    Setting {
        name: LIBRARY_PATH_VARIABLE,
        values: "folders, separated by `:`",
        default: "none: the system's search path and the CUDA toolkit's folder",
        meaning: "Folders to search first for libcuda, libnvrtc and other libraries.",
        code: "`bornite::runtime::Library::set_path`, before the first call",
        check: |value| match std::env::split_paths(value).find(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
            Some(invalid) => Err(format!("{} is not a folder", invalid.display())),
            None => Ok(()),
        },
    },
    Setting {
        name: HIDE_LIBRARIES_VARIABLE,
        values: "`cuda`, `nvrtc`, `cublaslt`, separated by commas",
        default: "none",
        meaning: "Libraries to treat as missing, to test how a program behaves without them.",
        code: "`bornite::runtime::Library::hide`, before the first call",
        check: |value| match value.split(',').find(|name| !matches!(*name, "cuda" | "nvrtc" | "cublaslt" | "")) {
            Some(invalid) => {
                Err(format!("there is no library '{invalid}'; use cuda, nvrtc and cublaslt, separated by commas"))
            }
            None => Ok(()),
        },
    },
    Setting {
        name: crate::cache::CACHE_VARIABLE,
        values: "`on`, `off`",
        default: "`on`",
        meaning: "Caching of compiled kernels and tuning results on disk.",
        code: "`bornite::cache::CacheSettings::set_for_process`: `enabled`",
        check: |value| parse_choice(value, &[("on", ()), ("off", ())]),
    },
    Setting {
        name: crate::cache::CACHE_DIR_VARIABLE,
        values: "a folder that only you can write to",
        default: "`$XDG_CACHE_HOME/bornite`, else `~/.cache/bornite`",
        meaning: "Folder of the cache: kernels in `kernels/`, tuning results in `tuning/`.",
        code: "`bornite::cache::CacheSettings::set_for_process`: `folder`",
        check: accept_any,
    },
    Setting {
        name: crate::cache::KERNEL_CACHE_DIR_VARIABLE,
        values: "a folder that only you can write to",
        default: "none",
        meaning: "Alias of `BORNITE_CACHE_DIR`, which takes precedence.",
        code: "`bornite::cache::CacheSettings::set_for_process`: `folder`",
        check: accept_any,
    },
    Setting {
        name: crate::cache::SHARED_CACHE_DIR_VARIABLE,
        values: "a folder",
        default: "none",
        meaning: "A second folder with the same layout, searched first and never written.",
        code: "`bornite::cache::CacheSettings::set_for_process`: `shared`",
        check: accept_any,
    },
    Setting {
        name: crate::cache::CACHE_SIZE_VARIABLE,
        values: "a size, such as `500 MB` or `2 GiB`",
        default: "`2 GiB`",
        meaning: "Maximum size of compiled kernels on disk; the least recently used are removed first.",
        code: "`bornite::cache::CacheSettings::set_for_process`: `limit_bytes`",
        check: |value| {
            let lookup = |name: &str| (name == crate::cache::CACHE_SIZE_VARIABLE).then(|| OsString::from(value));
            crate::cache::CacheSettings::from_lookup(lookup).map(drop).map_err(reason_of)
        },
    },
    Setting {
        name: TUNE_VARIABLE,
        values: "`off`, `cached`, `tune`",
        default: "`cached`",
        meaning: "`off`: always the first variant of a kernel; `cached`: the fastest variant of an earlier tuning, else the \
                  first; `tune`: measures variants that are not in the cache.",
        code: "`bornite::tune::Tuner::set_mode`",
        check: |value| parse_choice(value, &crate::tune::TuneMode::NAMES).map(drop),
    },
    Setting {
        name: MATMUL_VARIABLE,
        values: "`library`, `tf32`, `exact`",
        default: "`library`",
        meaning: "Matrix products of floats. `library`: cuBLASLt on a GPU if it is installed, f32 in full precision, and gemm on \
                  the CPU; `tf32`: TF32 for f32 inputs on a GPU, faster; `exact`: generated kernels, which give the same \
                  bits on every device. Slow.",
        code: "`bornite::settings::MatmulMode::set_for_process`; `bornite::settings::MatmulMode::within` for a closure",
        check: |value| parse_choice(value, &[("library", ()), ("tf32", ()), ("exact", ())]),
    },
    Setting {
        name: PROFILE_VARIABLE,
        values: "`off`, `print`",
        default: "`off`",
        meaning: "`print`: writes the time of every kernel and transfer to stderr; synchronizes with the GPU each time.",
        code: "`bornite::profile::set_print`; `bornite::profile::scope` for a report",
        check: |value| parse_choice(value, &[("off", ()), ("print", ())]),
    },
    Setting {
        name: LOG_VARIABLE,
        values: "`error`, `warn`, `info`, `debug`",
        default: "`warn`",
        meaning: "Maximum level of messages on stderr.",
        code: "`bornite::log::set_level`",
        check: |value| parse_choice(value, &crate::log::LogLevel::NAMES).map(drop),
    },
    Setting {
        name: SYNC_VARIABLE,
        values: "`0`, `1`",
        default: "`0`",
        meaning: "`1`: synchronous launches, so that an error of the GPU is reported by the launch that caused it. Slow.",
        code: "`bornite::settings::set_sync`",
        check: |value| parse_choice(value, &[("0", ()), ("1", ())]),
    },
    Setting {
        name: MATH_VARIABLE,
        values: "`native`, `exact`",
        default: "`native`",
        meaning: "Math functions (exp, log, …) in tensor kernels on a GPU. `native`: CUDA's functions; `exact`: functions \
                  that give the same bits as on the CPU. Slower.",
        code: "`bornite::settings::set_exact_math`",
        check: |value| parse_choice(value, &[("native", ()), ("exact", ())]),
    },
    Setting {
        name: DETERMINISTIC_VARIABLE,
        values: "`on`, `off`",
        default: "`on`",
        meaning: "`off`: the gradient of attention's queries is summed in any order on a GPU of compute capability 9.0, so \
                  that runs differ in the last bits.",
        code: "`bornite::settings::set_deterministic`",
        check: |value| parse_choice(value, &[("on", ()), ("off", ())]),
    },
    Setting {
        name: FUSION_VARIABLE,
        values: "`on`, `off`",
        default: "`on`",
        meaning: "`off`: computes every op of a graph in its own kernel, to find out whether a wrong result comes from fusion. \
                  Slow.",
        code: "`bornite::fused::set_fusion`; `bornite::fused::with_fusion` for a closure",
        check: |value| parse_choice(value, &[("on", ()), ("off", ())]),
    },
    Setting {
        name: CHECK_VARIABLE,
        values: "`off`, `nan`",
        default: "`off`",
        meaning: "`nan`: computes tensors one op at a time; the first op that produces a NaN or an infinity is an error. \
                  Slow.",
        code: "`bornite::settings::check_nan`",
        check: |value| parse_choice(value, &[("off", ()), ("nan", ())]),
    },
    Setting {
        name: memory::FRACTION_VARIABLE,
        values: "a number from 0 to 1",
        default: "`1`",
        meaning: "Fraction of a GPU's memory that its pool may take.",
        code: "`bornite::pool::Pool::set_fraction`",
        check: |value| check_pool_setting(memory::FRACTION_VARIABLE, value),
    },
    Setting {
        name: memory::LIMIT_VARIABLE,
        values: "a size, such as `20GB` (in powers of 1024)",
        default: "no limit",
        meaning: "Bytes of a GPU's memory that its pool may take.",
        code: "`bornite::pool::Pool::set_limit`",
        check: |value| check_pool_setting(memory::LIMIT_VARIABLE, value),
    },
    Setting {
        name: memory::CACHE_VARIABLE,
        values: "a size, such as `512MB` or `2GiB` (both in powers of 1024)",
        default: "no limit",
        meaning: "Maximum freed GPU memory that is cached for reuse; the rest is returned to the driver.",
        code: "`bornite::pool::Pool::set_cache_limit`",
        check: |value| check_pool_setting(memory::CACHE_VARIABLE, value),
    },
    Setting {
        name: memory::DEBUG_VARIABLE,
        values: "`0`, `1`",
        default: "`0`",
        meaning: "`1`: guard bytes after each block of GPU memory, and a pattern over freed blocks. Slow.",
        code: "`bornite::pool::Pool::set_debug`",
        check: |value| check_pool_setting(memory::DEBUG_VARIABLE, value),
    },
    Setting {
        name: crate::INPUT_LIMIT_VARIABLE,
        values: "a size of `1 MiB` or more (in powers of 1024)",
        default: "`128 MiB`",
        meaning: "Maximum size of a page, row or line of an input file (Parquet, JSONL, zstd) after decompression, of a CSV \
                  file and of a decoded image; larger ones are an error. The text of a compressed file may in total have 1000 times the bytes of the file, or this \
                  many.",
        code: "`bornite::settings::set_input_limit`",
        check: |value| crate::input::parse_limit(value).map(drop),
    },
];

fn accept_any(_: &str) -> std::result::Result<(), String> {
    Ok(())
}

/// Returns the reason of an error without the name of the variable.
fn reason_of(error: Error) -> String {
    match error {
        Error::InvalidSetting { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// Validates a value of a memory pool's variable.
fn check_pool_setting(variable: &str, value: &str) -> std::result::Result<(), String> {
    memory::PoolSettings::from_lookup(|name| (name == variable).then(|| value.into())).map(drop).map_err(reason_of)
}

/// Returns the value of a named choice; the error lists the valid names.
pub fn parse_choice<T: Copy>(value: &str, choices: &[(&str, T)]) -> std::result::Result<T, String> {
    match choices.iter().find(|(choice, _)| *choice == value) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let choices: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            let (last, rest) = choices.split_last().unwrap_or((&"", &[]));
            Err(format!("use {} or {last}", rest.join(", ")))
        }
    }
}

/// Returns the value of an environment variable; an empty one counts as unset.
pub fn get(variable: &str) -> Option<String> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}

/// Reads a variable with `parse`, whose error is extended by the name of the variable.
pub fn read<T>(
    variable: &'static str,
    default: T,
    parse: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    match get(variable) {
        None => Ok(default),
        Some(value) => parse(&value).map_err(|reason| Error::InvalidSetting { variable, value, reason }),
    }
}

/// A setting with its value in the environment.
#[derive(Clone, Debug)]
pub struct SettingStatus {
    /// The setting.
    pub setting: &'static Setting,
    /// The variable's value, if it is set.
    pub value: Option<String>,
    /// Error if the value is invalid.
    pub error: Option<Error>,
}

/// Returns every setting with its value and error.
pub fn check_all() -> Vec<SettingStatus> {
    let one = |setting: &'static Setting| {
        let value = get(setting.name);
        let checked = read(setting.name, (), setting.check);
        SettingStatus { setting, value, error: checked.err() }
    };
    SETTINGS.iter().map(one).collect()
}

/// Returns true for variables that only tests and benchmarks read; those are not settings.
pub fn is_test_variable(name: &str) -> bool {
    ["BORNITE_TEST_", "BORNITE_CACHE_TEST_", "BORNITE_BENCH_"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_explained() {
        let cases = [
            ("BORNITE_DEVICE", "cuda:1", "tpu", "use cpu, cpu:N"),
            ("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc,cublaslt", "cublas", "no library 'cublas'"),
            ("BORNITE_LIBRARY_PATH", "/tmp", "/no/such/folder", "/no/such/folder is not a folder"),
            ("BORNITE_CACHE", "off", "no", "use on or off"),
            ("BORNITE_CACHE_SIZE", "1 GiB", "2 parsecs", "'parsecs' is not a unit"),
            ("BORNITE_TUNE", "tune", "yes", "use off, cached or tune"),
            ("BORNITE_MATMUL", "exact", "fast", "use library, tf32 or exact"),
            ("BORNITE_MATH", "exact", "fast", "use native or exact"),
            ("BORNITE_DETERMINISTIC", "off", "no", "use on or off"),
            ("BORNITE_FUSION", "off", "no", "use on or off"),
            ("BORNITE_CHECK", "nan", "inf", "use off or nan"),
            ("BORNITE_PROFILE", "print", "1", "use off or print"),
            ("BORNITE_LOG", "debug", "loud", "use error, warn, info or debug"),
            ("BORNITE_SYNC", "1", "yes", "use 0 or 1"),
            ("BORNITE_MEMORY_FRACTION", "0.5", "1.5", "between 0 and 1"),
            ("BORNITE_MEMORY_FRACTION", "1", "NaN", "between 0 and 1"),
            ("BORNITE_MEMORY_LIMIT", "20GB", "-1", "negative"),
            ("BORNITE_MEMORY_CACHE", "2GB", "2 parsecs", "'parsecs' is not a unit"),
            ("BORNITE_MEMORY_DEBUG", "1", "yes", "use 1 or 0"),
            ("BORNITE_INPUT_LIMIT", "2 GiB", "2 parsecs", "'parsecs' is not a unit"),
            ("BORNITE_INPUT_LIMIT", "1 MiB", "1 KiB", "use 1 MiB or more"),
        ];
        for (name, good, invalid, choices) in cases {
            let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
            assert_eq!((setting.check)(good), Ok(()), "{name}={good}");
            let reason = (setting.check)(invalid).expect_err(name);
            assert!(reason.contains(choices), "{name}={invalid}: {reason}");
        }
        let checked = |name| cases.iter().any(|case| case.0 == name);
        let free: Vec<&str> = SETTINGS.iter().map(|s| s.name).filter(|name| !checked(*name)).collect();
        assert_eq!(free, ["BORNITE_CACHE_DIR", "BORNITE_KERNEL_CACHE_DIR", "BORNITE_SHARED_CACHE_DIR"]);
    }
}
