//! What can go wrong: each is one sentence, and nothing that was made is lost.

use bornite_data::Level;
use bornite_data::files::{
    Asked, Dataset, Error, Format, Part, Place, Settings, check, check_pair, check_pairs, make, write_ingested,
};

use crate::{asked, folder, hash, made, seed, settings};

fn refused(place: &Place, asked: &Asked) -> String {
    let error = make(place, asked, &mut |_| {}).unwrap_err().to_string();
    assert!(!error.contains('\n') && !error.contains(". "), "not one sentence: {error}");
    error
}

pub fn what_cannot_be_is_refused_in_a_sentence() {
    let place = Place::new(&folder("refused"));
    let part = |number, of| Some(Part { number, of });
    let cases: [(Asked, &str); 5] = [
        (asked(&settings(0, 1)), "a dataset of 0 rows was asked for"),
        (asked(&settings(5, 6)), "5 rows cannot be in 6 shards: choose 1 to 5"),
        (Asked { part: part(3, 3), ..asked(&settings(100, 3)) }, "part 3 of 3 cannot be made of 3 shards"),
        (Asked { part: part(0, 4), ..asked(&settings(100, 3)) }, "part 0 of 4 cannot be made of 3 shards"),
        (Asked { settings: None, resume: true, ..asked(&settings(1, 1)) }, "there is no dataset in"),
    ];
    for (asked, expected) in cases {
        let error = refused(&place, &asked);
        assert!(error.contains(expected), "{error}");
    }
    for (name, expected) in [
        ("aritmetic", "there is no category 'aritmetic'; did you mean 'arithmetic'?"),
        ("warpshuffle", "did you mean 'warp_shuffle'?"),
        ("quantum_foam", "there is no category 'quantum_foam'; there are arithmetic, math,"),
    ] {
        let error = Settings::new(10).of_categories(&[name.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // A file stands where the folder should be.
    let file = folder("file");
    std::fs::write(&file, "").unwrap();
    let error = Place::new(&file.join("inner")).create().unwrap_err().to_string();
    assert!(error.starts_with("could not make the folder"), "{error}");
}

pub fn another_dataset_is_not_written_over() {
    let folder = folder("mismatch");
    let settings = settings(60, 2);
    let whole = hash(&made(&folder, &settings));
    let place = Place::new(&folder);
    assert!(refused(&place, &asked(&settings)).contains("go on with it with --resume"));
    let others: [(&str, Settings); 4] = [
        ("seed 42, not 7", Settings { seed: 7, ..settings.clone() }),
        ("count 60, not 61", Settings { count: 61, ..settings.clone() }),
        ("level types, not run", Settings { level: "run".into(), ..settings.clone() }),
        ("shards 2, not 3", Settings { shards: 3, ..settings.clone() }),
    ];
    for (expected, other) in others {
        let error = refused(&place, &Asked { resume: true, ..asked(&other) });
        assert!(error.contains(expected), "{error}");
    }
    let again = make(&place, &Asked { resume: true, settings: None, ..asked(&settings) }, &mut |_| {}).unwrap();
    assert_eq!(hash(&again), whole);
}

pub fn a_damaged_shard_is_found_and_made_again() {
    let mut settings = settings(90, 3);
    settings.seed = seed();
    let folder = folder("damaged");
    let whole = hash(&made(&folder, &settings));
    let path = folder.join("data/train-00001-of-00003.parquet");
    let bytes = std::fs::read(&path).unwrap();
    for round in 0..3 {
        let mut wrong = bytes.clone();
        match round {
            0 => wrong[bytes.len() / 2] ^= 0x40,
            1 => wrong.truncate(bytes.len() / 3),
            _ => wrong.clear(),
        }
        std::fs::write(&path, &wrong).unwrap();
        let dataset = Dataset::open(&folder).unwrap();
        let report = check(&dataset, Level::Types, 1, None, &mut |_| {}).unwrap();
        assert_eq!(report.findings.len(), 1, "{report:?}");
        assert_eq!(report.findings[0].file, "data/train-00001-of-00003.parquet");
        // Reading rows of it gives an error, not a panic.
        let _ = dataset.each(&mut |_| Ok(true));
        let place = Place::new(&folder);
        let made = make(&place, &Asked { resume: true, settings: None, ..asked(&settings) }, &mut |_| {}).unwrap();
        assert_eq!((made.damaged.as_slice(), hash(&made)), (&[1][..], whole.clone()));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

pub fn a_disk_that_fills_up_loses_nothing() {
    let mut settings = settings(120, 4);
    settings.seed = seed();
    let whole = hash(&made(&folder("room"), &settings));
    let folder = folder("full");
    let mut failures = 0;
    // Room for a little more each time, until it is enough.
    for step in 0u64.. {
        let place = Place::new(&folder).with_room(2_000 + step * 30_000);
        let resume = step > 0;
        match make(&place, &Asked { resume, ..asked(&settings) }, &mut |_| {}) {
            Err(Error::Io { cause, .. }) => {
                assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull);
                failures += 1;
            }
            made => {
                assert_eq!(hash(&made.unwrap()), whole);
                break;
            }
        }
    }
    assert!(failures >= 2, "{failures} failures");
}

pub fn pairs_from_elsewhere_are_checked_too() {
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
        assert!(check_pair(junk).wrong.is_some(), "{junk}");
    }
}

pub fn files_that_a_loader_would_take_for_rows_are_found() {
    for (format, copy, of) in [
        (Format::Parquet, "data/train-00009-of-00003.parquet", "data/train-00000-of-00002.parquet"),
        (Format::Jsonl, "data/test-copy.jsonl", "data/train-00001-of-00002.jsonl"),
        (Format::SeedJson, "cuda_synth_9999.json", "cuda_synth_0000.json"),
    ] {
        let folder = folder(&format!("foreign-{}", format.name()));
        made(&folder, &Settings { format, ..settings(40, 2) });
        // What no loader reads is nobody's business.
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        let findings = || {
            let report = check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
            report.findings.into_iter().map(|finding| (finding.file, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(findings(), []);
        std::fs::copy(folder.join(of), folder.join(copy)).unwrap();
        let found = findings();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == copy && found[0].1.contains("no file of the dataset"), "{found:?}");
    }
}

pub fn rows_of_another_generator_are_not_called_wrong() {
    let folder = folder("older");
    made(&folder, &settings(40, 1));
    let path = folder.join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let now = format!("\"version\": {}", bornite_data::generate::VERSION);
    assert!(text.contains(&now), "{text}");
    std::fs::write(&path, text.replace(&now, "\"version\": 1")).unwrap();
    let checked = || check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {});
    let error = checked().unwrap_err().to_string();
    assert!(error.contains("have their checksums") && error.contains("version 1 of the generator"), "{error}");
    // What is damaged is told all the same.
    std::fs::write(folder.join("data/train-00000-of-00001.parquet"), "").unwrap();
    assert_eq!(checked().unwrap().findings.len(), 1);
}

pub fn files_of_others_are_not_written_over() {
    let settings = settings(10, 1);
    let pairs = Settings { format: Format::SeedJson, ..settings.clone() };
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
        let error = refused(&Place::new(&folder), &asked(settings));
        assert!(error.contains("would be written over: name another folder"), "{error}");
        let kernels = bornite_data::ingest::ingest("k.py", "").unwrap();
        let error = write_ingested(&Place::new(&folder), &kernels).unwrap_err().to_string();
        assert!(error.contains("would be written over"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
    // What is none of a dataset's names stays beside it.
    let folder = folder("beside");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    made(&folder, &settings);
    assert_eq!(std::fs::read_to_string(folder.join("notes.txt")).unwrap(), "mine");
}

pub fn a_manifest_that_cannot_be_is_damaged() {
    let folder = folder("manifest");
    made(&folder, &settings(60, 3));
    let path = folder.join("manifest.json");
    let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let edits: [(&str, serde_json::Value, &str); 10] = [
        ("/settings/categories", serde_json::json!(["foo"]), "there is no category 'foo'"),
        ("/settings/categories", serde_json::json!([]), "no category was chosen"),
        ("/settings/level", "high".into(), "there is no level 'high'"),
        ("/settings/count", 1_000_000_000_000_000u64.into(), "are not those of its shards"),
        ("/settings/shards", 1_000_000_000u64.into(), "it says 1000000000 shards and lists 3"),
        ("/rows", 7.into(), "are not those of its shards"),
        ("/reached/duplicates", 1_000_000u64.into(), "are not those of its shards"),
        ("/shards/1/files/0/rows", u64::MAX.into(), "the files of shard 1 do not have as many rows"),
        ("/set_hash", whole["shards"][0]["hash"].clone(), "its set hash is not that of its shards"),
        ("/shards", serde_json::json!([]), "it says 3 shards and lists 0"),
    ];
    for (at, value, expected) in edits {
        let mut wrong = whole.clone();
        *wrong.pointer_mut(at).unwrap() = value;
        std::fs::write(&path, wrong.to_string()).unwrap();
        let resume = Asked { settings: None, resume: true, ..asked(&settings(60, 3)) };
        for error in
            [Dataset::open(&folder).err().map(|error| error.to_string()), Some(refused(&Place::new(&folder), &resume))]
        {
            let error = error.unwrap_or_default();
            assert!(error.contains(expected), "{at}: {error}");
        }
    }
    // That rows were checked at another level, only they say.
    let mut wrong = whole;
    *wrong.pointer_mut("/settings/level").unwrap() = "run".into();
    std::fs::write(&path, wrong.to_string()).unwrap();
    let report = check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
    assert_eq!(report.findings.len(), 60);
    assert!(report.findings[0].what.contains("its level is not"), "{:?}", report.findings[0]);
}

pub fn what_is_no_plain_file_is_not_waited_for() {
    let folder = folder("pipe");
    made(&folder, &settings(30, 1));
    let pipe = folder.join("data/train-00000-of-00001.parquet");
    std::fs::remove_file(&pipe).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let report = check(&Dataset::open(&folder).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings[0].what.contains("it is no plain file"), "{:?}", report.findings[0]);
    // It is damage like other damage.
    let again = Asked { settings: None, resume: true, ..asked(&settings(30, 1)) };
    assert_eq!(make(&Place::new(&folder), &again, &mut |_| {}).unwrap().damaged, [0]);
    assert!(pipe.is_file());
}

pub fn a_pair_that_cannot_be_read_does_not_hide_the_others() {
    let folder = folder("unreadable");
    made(&folder, &Settings { format: Format::SeedJson, ..settings(12, 1) });
    std::fs::write(folder.join("cuda_synth_0003.json"), [0xff, 0xfe]).unwrap();
    std::fs::create_dir(folder.join("folder.json")).unwrap();
    let reports = check_pairs(&folder).unwrap();
    let wrong: Vec<_> = reports.iter().filter(|report| !report.passes()).map(|report| report.file.as_str()).collect();
    assert_eq!((reports.len(), wrong), (13, vec!["cuda_synth_0003.json", "folder.json"]));
}
