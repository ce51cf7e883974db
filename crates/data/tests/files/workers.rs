//! Compiler workers that crash, hang, exceed their memory limit or send garbage: only the rows that
//! cause it are rejected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bornite_data::Rejection;
use bornite_data::files::{Dataset, DatasetDir, MakeOptions, make};
use bornite_data::verify::code::{CudaSource, EmitOptions};
use bornite_data::verify::{WorkerConfig, WorkerPool};

use crate::{folder, make_dataset, options, seed, settings};

/// A worker that accepts every text, but executes `harm` on the text with the marked name.
fn script(name: &str, marked: &str, harm: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("worker-{name}.sh"));
    let text = format!(
        r#"printf '{{"ready":"{}"}}\n'
while IFS= read -r line; do
    case "$line" in *'"name":"{marked}"'*) {harm};; esac
    count=$(printf '%s' "$line" | grep -o '"cuda":' | wc -l)
    answers=''
    while [ "$count" -gt 0 ]; do
        answers="$answers,{{\"Ok\":{{\"ptx\":\"\",\"sass\":\"\"}}}}"
        count=$((count - 1))
    done
    printf '{{"answers":[%s]}}\n' "${{answers#,}}"
done
"#,
        env!("CARGO_PKG_VERSION")
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn config(script: &Path) -> WorkerConfig {
    let mut config = WorkerConfig::new("sh".into(), &[script.to_str().unwrap()]);
    config.timeout = Duration::from_secs(60);
    config.max_memory_bytes = 256 << 20;
    config
}

/// Harm done by the worker, the resulting kind of failure, and part of its description.
const HARMS: [(&str, &str, &str); 6] = [
    ("kill -9 $$", "compiler_crashed", "signal: 9"),
    ("exit 3", "compiler_crashed", "exit status: 3"),
    ("exec sleep 1000", "compiler_timeout", "no answer within"),
    ("exec tail /dev/zero", "compiler_out_of_memory", "MB"),
    ("echo nonsense; continue", "compiler_invalid_response", "nonsense"),
    ("printf '{\"answers\":[]}\\n'; continue", "compiler_invalid_response", "0 results for 1 texts"),
];

pub fn text_that_crashes_the_compiler_is_rejected_alone() {
    let texts: Vec<CudaSource> = (0..8)
        .map(|n| CudaSource { name: format!("k{n}"), cuda: format!("__global__ void k{n}() {{\n}}\n") })
        .collect();
    std::thread::scope(|scope| {
        for (n, (harm, kind, description)) in HARMS.into_iter().enumerate() {
            let texts = &texts;
            scope.spawn(move || {
                let mut config = config(&script(&n.to_string(), "k5", harm));
                if kind == "compiler_timeout" {
                    // Generous enough for workers that do not hang, even on a busy machine.
                    (config.timeout, config.timeout_per_text) = (Duration::from_secs(4), Duration::ZERO);
                }
                let workers = WorkerPool::new(&config).unwrap();
                // Twice: the restarted worker works too.
                for batch in [&texts[..], &texts[5..6]] {
                    let found = workers.compile(batch, EmitOptions::default(), "sm_90").unwrap();
                    assert_eq!(found.len(), batch.len(), "{harm}");
                    for (text, found) in batch.iter().zip(found) {
                        match found {
                            Ok(_) => assert_ne!(text.name, "k5", "{harm}"),
                            Err(Rejection::CompilerFailure { kind: found, what }) => {
                                assert_eq!((text.name.as_str(), found), ("k5", kind), "{harm}");
                                assert!(what.contains(description), "{harm}: {what}");
                            }
                            Err(other) => panic!("{harm}: {}: {other}", text.name),
                        }
                    }
                }
            });
        }
    });
}

pub fn worker_that_cannot_compile_is_an_error() {
    let texts = [CudaSource { name: "k".into(), cuda: String::new() }];
    let write_script = |name: &str, text: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("worker-bad-{name}.sh"));
        std::fs::write(&path, text).unwrap();
        path
    };
    for (name, text, expected) in [
        ("silent", "exit 4", "the process ended immediately (exit status: 4)"),
        ("other", "echo hello; cat", "unexpected first line 'hello'"),
        ("old", "echo '{\"ready\":\"0.0.1\"}'; cat", "it has version 0.0.1"),
        ("without", "echo '{\"failed\":\"libnvrtc was not found\"}'; cat", "libnvrtc was not found"),
    ] {
        let error = WorkerPool::new(&config(&write_script(name, text))).err().unwrap();
        assert!(error.contains(expected), "{name}: {error}");
    }
    let error = WorkerPool::new(&WorkerConfig::new("/no/such/program".into(), &[])).err().unwrap();
    assert!(error.starts_with("could not start compiler worker /no/such/program: "), "{error}");
    // A worker that fails at a later request.
    let later = format!(
        "echo '{{\"ready\":\"{}\"}}'; read -r line; echo '{{\"failed\":\"no driver\"}}'",
        env!("CARGO_PKG_VERSION")
    );
    let workers = WorkerPool::new(&config(&write_script("later", &later))).unwrap();
    assert_eq!(workers.compile(&texts, EmitOptions::default(), "sm_90").unwrap_err(), "no driver");
}

pub fn compiler_failures_are_listed_in_the_statistics() {
    let mut settings = settings(70, 1);
    settings.seed = seed();
    let types = folder("lost-types");
    make_dataset(&types, &settings);
    let mut rows: Vec<(String, String)> = vec![];
    let visit = &mut |record: bornite_data::files::RowRecord| {
        rows.push((record.text("name").to_owned(), record.text("id").to_owned()));
        Ok(true)
    };
    Dataset::open(&types).unwrap().for_each(visit).unwrap();
    let once = |name: &str| rows.iter().filter(|(other, _)| other == name).count() == 1;
    let (name, id) = rows.iter().find(|(name, _)| once(name)).unwrap();
    settings.level = "compile".into();
    let target = folder("lost");
    let workers = Some(config(&script("dataset", name, "kill -9 $$")));
    let outcome = make(&DatasetDir::new(&target), &MakeOptions { workers, ..options(&settings) }, &mut |_| {}).unwrap();
    let manifest = outcome.manifest.unwrap();
    assert_eq!(manifest.rows, 69);
    assert_eq!(manifest.counts().rejected, [("compiler_crashed".to_owned(), 1)].into());
    let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(target.join("stats.json")).unwrap()).unwrap();
    let lost = &stats["compiler_failures"][0];
    assert_eq!((lost["id"].as_str(), lost["kind"].as_str()), (Some(id.as_str()), Some("compiler_crashed")), "{stats}");
}
