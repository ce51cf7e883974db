//! Error cases: each message is one sentence, and no finished data is lost.

use bornite_data::Level;
use bornite_data::files::{
    Dataset, DatasetDir, DatasetFormat, DatasetSettings, Error, JobPart, MakeOptions, check, check_pair, check_pairs,
    make, write_ingested,
};

use crate::{folder, hash, make_dataset, options, seed, settings};

fn error_of(dir: &DatasetDir, options: &MakeOptions) -> String {
    let error = make(dir, options, &mut |_| {}).unwrap_err().to_string();
    assert!(!error.contains('\n') && !error.contains(". "), "not one sentence: {error}");
    error
}

pub fn invalid_options_are_rejected_in_one_sentence() {
    let dir = DatasetDir::new(&folder("refused"));
    let part = |index, count| Some(JobPart { index, count });
    let cases: [(MakeOptions, &str); 5] = [
        (options(&settings(0, 1)), "--count must be at least 1"),
        (options(&settings(5, 6)), "5 rows cannot be split into 6 shards: --shards must be 1 to 5"),
        (MakeOptions { part: part(3, 3), ..options(&settings(100, 3)) }, "part 3/3 is invalid for 3 shards"),
        (MakeOptions { part: part(0, 4), ..options(&settings(100, 3)) }, "part 0/4 is invalid for 3 shards"),
        (MakeOptions { settings: None, resume: true, ..options(&settings(1, 1)) }, "contains no dataset to resume"),
    ];
    for (options, expected) in cases {
        let error = error_of(&dir, &options);
        assert!(error.contains(expected), "{error}");
    }
    for (name, expected) in [
        ("aritmetic", "unknown category 'aritmetic'; did you mean 'arithmetic'?"),
        ("warpshuffle", "did you mean 'warp_shuffle'?"),
        ("quantum_foam", "unknown category 'quantum_foam'; available: arithmetic, math,"),
    ] {
        let error = DatasetSettings::new(10).with_categories(&[name.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // A file exists at the path of the folder.
    let file = folder("file");
    std::fs::write(&file, "").unwrap();
    let error = DatasetDir::new(&file.join("inner")).create().unwrap_err().to_string();
    assert!(error.starts_with("could not create the folder"), "{error}");
}

pub fn different_dataset_is_not_overwritten() {
    let folder = folder("mismatch");
    let settings = settings(60, 2);
    let expected = hash(&make_dataset(&folder, &settings));
    let dir = DatasetDir::new(&folder);
    assert!(error_of(&dir, &options(&settings)).contains("resume it with --resume"));
    let others: [(&str, DatasetSettings); 4] = [
        ("seed 42, but 7 was requested", DatasetSettings { seed: 7, ..settings.clone() }),
        ("count 60, but 61 was requested", DatasetSettings { count: 61, ..settings.clone() }),
        ("level types, but run was requested", DatasetSettings { level: "run".into(), ..settings.clone() }),
        ("shards 2, but 3 was requested", DatasetSettings { shards: 3, ..settings.clone() }),
    ];
    for (message, other) in others {
        let error = error_of(&dir, &MakeOptions { resume: true, ..options(&other) });
        assert!(error.contains(message), "{error}");
    }
    let resumed = make(&dir, &MakeOptions { resume: true, settings: None, ..options(&settings) }, &mut |_| {}).unwrap();
    assert_eq!(hash(&resumed), expected);
}

pub fn damaged_shard_is_found_and_regenerated() {
    let mut settings = settings(90, 3);
    settings.seed = seed();
    let folder = folder("damaged");
    let expected = hash(&make_dataset(&folder, &settings));
    let path = folder.join("data/train-00001-of-00003.parquet");
    let bytes = std::fs::read(&path).unwrap();
    for round in 0..3 {
        let mut damaged = bytes.clone();
        match round {
            0 => damaged[bytes.len() / 2] ^= 0x40,
            1 => damaged.truncate(bytes.len() / 3),
            _ => damaged.clear(),
        }
        std::fs::write(&path, &damaged).unwrap();
        let dataset = Dataset::open(&folder).unwrap();
        let report = check(&dataset, Level::Types, 1, None, &mut |_| {}).unwrap();
        assert_eq!(report.findings.len(), 1, "{report:?}");
        assert_eq!(report.findings[0].file, "data/train-00001-of-00003.parquet");
        // Reading its rows returns an error and does not panic.
        let _ = dataset.for_each(&mut |_| Ok(true));
        let dir = DatasetDir::new(&folder);
        let outcome =
            make(&dir, &MakeOptions { resume: true, settings: None, ..options(&settings) }, &mut |_| {}).unwrap();
        assert_eq!((outcome.damaged.as_slice(), hash(&outcome)), (&[1][..], expected.clone()));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

pub fn full_disk_loses_no_finished_shard() {
    let mut settings = settings(120, 4);
    settings.seed = seed();
    let expected = hash(&make_dataset(&folder("room"), &settings));
    let folder = folder("full");
    let mut failures = 0;
    // A little more free space each time, until it is enough.
    for step in 0u64.. {
        let dir = DatasetDir::new(&folder).with_free_bytes(2_000 + step * 30_000);
        let resume = step > 0;
        match make(&dir, &MakeOptions { resume, ..options(&settings) }, &mut |_| {}) {
            Err(Error::Io { cause, .. }) => {
                assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
                failures += 1;
            }
            outcome => {
                assert_eq!(hash(&outcome.unwrap()), expected);
                break;
            }
        }
    }
    assert!(failures >= 2, "{failures} failures");
}

pub fn pairs_in_the_style_of_warp_are_checked() {
    let cuda = "extern \\\"C\\\" __global__ void add_kernel_cuda_kernel_forward(wp::launch_bounds_t dim, wp::array_t<wp::float32> var_a)\\n{\\n\
        for (size_t _idx = static_cast<size_t>(blockDim.x) * static_cast<size_t>(blockIdx.x) + static_cast<size_t>(threadIdx.x);\\n\
        _idx < dim.size;\\n _idx += static_cast<size_t>(blockDim.x) * static_cast<size_t>(gridDim.x))\\n{\\n\
        var_3 = wp::add(var_1, var_2);\\n wp::array_store(var_a, var_0, var_3);\\n}\\n}";
    let pair = format!(
        "{{\"python_source\": \"@wp.kernel\\ndef add_kernel(a: wp.array(dtype=float)):\\n    pass\", \"cuda_forward\": \"{cuda}\", \
         \"metadata\": {{\"kernel_name\": \"add_kernel\", \"category\": \"arithmetic\", \"device\": \"cuda\"}}}}"
    );
    let report = check_pair(&pair);
    assert!(report.passes() && report.checks.len() == 6, "{report:?}");
    for (right, wrong, fails) in [
        ("extern \\\"C\\\" ", "", 0),
        ("gridDim.x", "other.x", 1),
        ("Idx.x", "Idy.x", 2),
        (";\\n}\\n}", ";\\n}", 3),
        ("add_kernel_cuda", "sub_kernel_cuda", 4),
    ] {
        let mut changed = pair.replace(right, wrong);
        if fails == 2 {
            changed = changed.replace("blockId", "b").replace("threadId", "t");
        }
        let report = check_pair(&changed);
        let failed: Vec<usize> = (0..6).filter(|n| !report.checks[*n].holds).collect();
        assert_eq!(failed, [fails], "{right}: {report:?}");
    }
    assert!(!check_pair(&pair.replace("arithmetic", "atomic")).passes());
    for junk in ["", "{}", "[1, 2]", "{\"python_source\": 3}"] {
        assert!(check_pair(junk).error.is_some(), "{junk}");
    }
}

pub fn unlisted_row_files_are_found() {
    for (format, copy, of) in [
        (DatasetFormat::Parquet, "data/train-00009-of-00003.parquet", "data/train-00000-of-00002.parquet"),
        (DatasetFormat::Jsonl, "data/test-copy.jsonl", "data/train-00001-of-00002.jsonl"),
        (DatasetFormat::SeedJson, "cuda_synth_9999.json", "cuda_synth_0000.json"),
    ] {
        let folder = folder(&format!("foreign-{}", format.name()));
        make_dataset(&folder, &DatasetSettings { format, ..settings(40, 2) });
        // Files that no loader reads are ignored.
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        let findings = || {
            let report = check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
            report.findings.into_iter().map(|finding| (finding.file, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(findings(), []);
        std::fs::copy(folder.join(of), folder.join(copy)).unwrap();
        let found = findings();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == copy && found[0].1.contains("does not belong to the dataset"), "{found:?}");
    }
}

pub fn rows_of_another_generator_version_are_not_failures() {
    let folder = folder("older");
    make_dataset(&folder, &settings(40, 1));
    let path = folder.join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let now = format!("\"version\": {}", bornite_data::generate::VERSION);
    assert!(text.contains(&now), "{text}");
    std::fs::write(&path, text.replace(&now, "\"version\": 1")).unwrap();
    let checked = || check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {});
    let error = checked().unwrap_err().to_string();
    assert!(error.contains("match their checksums") && error.contains("version 1 of the generator"), "{error}");
    // Damage is still reported.
    std::fs::write(folder.join("data/train-00000-of-00001.parquet"), "").unwrap();
    assert_eq!(checked().unwrap().findings.len(), 1);
}

pub fn unrelated_files_are_not_overwritten() {
    let settings = settings(10, 1);
    let pairs = DatasetSettings { format: DatasetFormat::SeedJson, ..settings.clone() };
    for (n, (name, settings)) in [
        ("README.md", &settings),
        ("stats.json", &settings),
        ("data/train-00000-of-00001.parquet", &settings),
        ("cuda_synth_0001.json", &pairs),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = folder(&format!("mine-{n}"));
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine").unwrap();
        let error = error_of(&DatasetDir::new(&folder), &options(settings));
        assert!(error.contains("would be overwritten: choose another folder"), "{error}");
        let kernels = bornite_data::ingest::ingest("k.py", "").unwrap();
        let error = write_ingested(&DatasetDir::new(&folder), &kernels).unwrap_err().to_string();
        assert!(error.contains("would be overwritten"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
    // Files with other names are left in place.
    let folder = folder("beside");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    make_dataset(&folder, &settings);
    assert_eq!(std::fs::read_to_string(folder.join("notes.txt")).unwrap(), "mine");
}

pub fn inconsistent_manifest_is_rejected() {
    let folder = folder("manifest");
    make_dataset(&folder, &settings(60, 3));
    let path = folder.join("manifest.json");
    let valid: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let edits: [(&str, serde_json::Value, &str); 10] = [
        ("/settings/categories", serde_json::json!(["foo"]), "unknown category 'foo'"),
        ("/settings/categories", serde_json::json!([]), "no category selected"),
        ("/settings/level", "high".into(), "unknown verification level 'high'"),
        ("/settings/count", 1_000_000_000_000_000u64.into(), "do not match those of the shards"),
        ("/settings/shards", 1_000_000_000u64.into(), "settings.shards is 1000000000, but 3 shards are listed"),
        ("/rows", 7.into(), "do not match those of the shards"),
        ("/candidate_counts/duplicates", 1_000_000u64.into(), "do not match those of the shards"),
        ("/shards/1/files/0/rows", u64::MAX.into(), "the row counts of the files of shard 1 do not add up"),
        ("/set_hash", valid["shards"][0]["hash"].clone(), "the set hash does not match the shards"),
        ("/shards", serde_json::json!([]), "settings.shards is 3, but 0 shards are listed"),
    ];
    for (at, value, expected) in edits {
        let mut edited = valid.clone();
        *edited.pointer_mut(at).unwrap() = value;
        std::fs::write(&path, edited.to_string()).unwrap();
        let resume = MakeOptions { settings: None, resume: true, ..options(&settings(60, 3)) };
        for error in [
            Dataset::open(&folder).err().map(|error| error.to_string()),
            Some(error_of(&DatasetDir::new(&folder), &resume)),
        ] {
            let error = error.unwrap_or_default();
            assert!(error.contains(expected), "{at}: {error}");
        }
    }
    // A wrong level in the settings only shows in the rows.
    let mut edited = valid;
    *edited.pointer_mut("/settings/level").unwrap() = "run".into();
    std::fs::write(&path, edited.to_string()).unwrap();
    let report = check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
    assert_eq!(report.findings.len(), 60);
    assert!(report.findings[0].what.contains("column 'level' does not match"), "{:?}", report.findings[0]);
}

pub fn named_pipe_is_reported_without_blocking() {
    let folder = folder("pipe");
    make_dataset(&folder, &settings(30, 1));
    let pipe = folder.join("data/train-00000-of-00001.parquet");
    std::fs::remove_file(&pipe).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let report = check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings[0].what.contains("not a regular file"), "{:?}", report.findings[0]);
    // It is treated like other damage.
    let options = MakeOptions { settings: None, resume: true, ..crate::options(&settings(30, 1)) };
    assert_eq!(make(&DatasetDir::new(&folder), &options, &mut |_| {}).unwrap().damaged, [0]);
    assert!(pipe.is_file());
}

pub fn unreadable_pair_does_not_hide_the_others() {
    let folder = folder("unreadable");
    make_dataset(&folder, &DatasetSettings { format: DatasetFormat::SeedJson, ..settings(12, 1) });
    std::fs::write(folder.join("cuda_synth_0003.json"), [0xff, 0xfe]).unwrap();
    std::fs::create_dir(folder.join("folder.json")).unwrap();
    let reports = check_pairs(&folder).unwrap();
    let wrong: Vec<_> = reports.iter().filter(|report| !report.passes()).map(|report| report.file.as_str()).collect();
    assert_eq!((reports.len(), wrong), (13, vec!["cuda_synth_0003.json", "folder.json"]));
}
