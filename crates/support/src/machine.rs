//! Description of the machine that a report was measured on.
//!
//! Reads `/proc` on Linux; on other systems unknown values are `None`. The caller describes the
//! GPUs.

use std::{
    env::consts::{ARCH, OS},
    fmt, fs, thread,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Hardware, software and time of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: Option<String>,
    /// Number of threads that this process can run at once.
    pub logical_cores: Option<usize>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// Operating system, architecture and, where known, kernel release.
    pub os: String,
    /// The features out of `avx2`, `fma` and `avx512f` that the processor has; `None` on
    /// architectures other than x86-64.
    pub cpu_features: Option<Vec<String>>,
    /// Bornite's version.
    pub bornite: String,
    /// One description per GPU; empty on a machine without.
    pub gpus: Vec<String>,
    /// Unix time in seconds at the start of the report.
    pub unix_time: u64,
}

impl Machine {
    /// Detects the machine that this runs on. `gpus` describes its GPUs, each with its full name so
    /// that results of other libraries can be matched.
    pub fn detect(gpus: Vec<String>) -> Self {
        let read = |path| fs::read_to_string(path).ok();
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            cpu: read("/proc/cpuinfo").and_then(|text| cpu_model(&text)),
            logical_cores: thread::available_parallelism().ok().map(usize::from),
            memory_bytes: read("/proc/meminfo").and_then(|text| memory_bytes(&text)),
            os: format!("{OS} {ARCH} {}", release.as_deref().unwrap_or_default()).trim_end().into(),
            cpu_features: cpu_features(),
            bornite: env!("CARGO_PKG_VERSION").into(),
            gpus,
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
        }
    }
}

impl fmt::Display for Machine {
    /// One line for the host and one per GPU.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "bornite {}, {}", self.bornite, self.cpu.as_deref().unwrap_or("unknown CPU"))?;
        if let Some(features) = self.cpu_features.as_deref().filter(|list| !list.is_empty()) {
            write!(f, " ({})", features.join(" "))?;
        }
        if let Some(cores) = self.logical_cores {
            write!(f, ", {cores} logical cores")?;
        }
        if let Some(bytes) = self.memory_bytes {
            write!(f, ", {:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)?;
        }
        write!(f, ", {}", self.os)?;
        self.gpus.iter().try_for_each(|gpu| write!(f, "\n{gpu}"))
    }
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    field(cpuinfo, "model name").map(Into::into)
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Option<Vec<String>> {
    let found = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    Some(found.iter().filter(|(_, has)| *has).map(|(name, _)| name.to_string()).collect())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_features() -> Option<Vec<String>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_proc_files() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC: 9654\nstepping\t: 1\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("AMD EPYC: 9654"));
        assert_eq!(cpu_model("processor\t: 0\nFeatures\t: fp asimd\n"), None);

        assert_eq!(memory_bytes("MemTotal:       24684100 kB\nMemFree: 1 kB\n"), Some(25276518400));
        for odd in ["", "MemFree: 1 kB", "MemTotal: many kB", "MemTotal: 12", "MemTotal: -1 kB"] {
            assert_eq!(memory_bytes(odd), None, "{odd}");
        }
    }

    #[test]
    fn detects_this_machine() {
        let machine = Machine::detect(vec!["cuda:0 NVIDIA H200".into()]);
        assert!(machine.logical_cores > Some(0));
        assert!(machine.os.starts_with(OS));
        assert!(machine.to_string().ends_with("\ncuda:0 NVIDIA H200"));
        assert!(!cfg!(target_os = "linux") || machine.memory_bytes > Some(0));
    }

    #[test]
    fn shows_what_is_known() {
        let mut machine = Machine {
            cpu: None,
            logical_cores: None,
            memory_bytes: None,
            os: "macos aarch64".into(),
            cpu_features: None,
            bornite: "0.1.0".into(),
            gpus: vec![],
            unix_time: 0,
        };
        assert_eq!(machine.to_string(), "bornite 0.1.0, unknown CPU, macos aarch64");
        machine.cpu = Some("AMD EPYC".into());
        machine.cpu_features = Some(vec!["avx2".into(), "fma".into()]);
        machine.logical_cores = Some(16);
        machine.memory_bytes = Some(128 << 30);
        let shown = "bornite 0.1.0, AMD EPYC (avx2 fma), 16 logical cores, 128.0 GiB, macos aarch64";
        assert_eq!(machine.to_string(), shown);
    }
}
