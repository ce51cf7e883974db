//! Every format contains the same rows and can be read back.

use bornite_data::Level;
use bornite_data::files::{Dataset, DatasetFormat, check, check_pairs};
use serde_json::Value;

use crate::{folder, hash, listed, make_dataset, seed, settings};

pub fn every_format_contains_the_same_rows() {
    let mut settings = settings(150, 2);
    settings.seed = seed();
    settings.faults = true;
    let mut first: Option<String> = None;
    for format in DatasetFormat::ALL {
        settings.format = format;
        let folder = folder(&format!("format-{}", format.name()));
        let hash = hash(&make_dataset(&folder, &settings));
        assert_eq!(*first.get_or_insert(hash.clone()), hash, "{}", format.name());
        let dataset = Dataset::open(&folder).unwrap();
        let report = check(&dataset, Level::Types, 2, None, &mut |_| {}).unwrap();
        assert_eq!(report.findings, [], "{}", format.name());
        if format == DatasetFormat::SeedJson {
            let names = listed(&folder);
            assert!(names.contains(&"cuda_synth_0000.json".into()), "{names:?}");
            let stats: Value =
                serde_json::from_slice(&std::fs::read(folder.join("generation_stats.json")).unwrap()).unwrap();
            assert_eq!(stats["total_pairs"], 150);
            let progress: Value =
                serde_json::from_slice(&std::fs::read(folder.join("progress.json")).unwrap()).unwrap();
            assert_eq!((&progress["total_generated"], &progress["batches_completed"]), (&150.into(), &2.into()));
            let pairs = check_pairs(&folder).unwrap();
            assert_eq!(pairs.len(), 150);
            for pair in pairs {
                assert!(pair.passes() && pair.checks.len() == 6, "{pair:?}");
            }
        } else {
            assert_eq!(report.rows, 150);
            let mut variants = 0;
            dataset
                .for_each(&mut |record| {
                    variants += !record.text("fault_kind").is_empty() as u64;
                    assert_eq!(record.text("fault_kind").is_empty(), record.text("fault_cuda").is_empty());
                    Ok(true)
                })
                .unwrap();
            assert!(variants > 30, "{variants} incorrect variants of 150 rows");
            let found = dataset.find("3").unwrap();
            assert!(found.is_none_or(|record| record.int("index") == 3));
        }
    }
}

pub fn files_next_to_the_rows_are_valid() {
    let folder = folder("beside");
    make_dataset(&folder, &settings(200, 2));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let stats: Value = serde_json::from_str(&read("stats.json")).unwrap();
    assert_eq!(stats["rows"], 200);
    assert_eq!(
        stats["counts"]["categories"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>(),
        200
    );
    let page = read("report.html");
    assert!(page.contains("<svg") && !page.contains("http") && !page.contains("<script"), "{page}");
    for tag in ["div", "svg", "table", "tr", "td", "h2", "text"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    let card = read("README.md");
    let header = card.strip_prefix("---\n").and_then(|rest| rest.split_once("---\n")).unwrap().0;
    assert!(header.contains("- split: train\n    path: data/train-*.parquet"), "{header}");
    assert!(header.lines().all(|line| line.contains(": ") || line.ends_with(':') || line.trim().starts_with("- ")));
}

pub fn card_of_pairs_lists_their_keys() {
    let folder = folder("card-of-pairs");
    let settings = bornite_data::files::DatasetSettings { format: DatasetFormat::SeedJson, ..settings(40, 1) };
    make_dataset(&folder, &settings);
    let card = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let pair: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("cuda_synth_0000.json")).unwrap()).unwrap();
    let listed = card.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let listed: Vec<&str> = listed.filter(|key| *key != settings.level).collect();
    assert_eq!(listed, ["python_source", "cuda_forward", "metadata"], "{card}");
    assert!(pair.as_object().unwrap().keys().all(|key| listed.contains(&key.as_str())));
    for word in ["## Splits", "held_out", "kernel IR", "`cpp`", "regenerates and checks every row"] {
        assert!(!card.contains(word), "{word}: {card}");
    }
    assert!(card.contains("--format seed-json") && card.contains("structure of each pair"), "{card}");
}

/// Manifests of earlier versions had other names for the counts of candidates and rejections.
pub fn manifests_with_retired_names_are_read() {
    let target = folder("retired");
    let present = make_dataset(&target, &settings(40, 2)).manifest.unwrap();
    let path = target.join("manifest.json");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let rejected = "\"rejected\": {}";
    assert!(text.contains(rejected), "rows at the level types are not rejected: {text}");
    text =
        text.replace(rejected, "\"rejected\": {\"dead\": 2, \"dead_code\": 1, \"compiler_died\": 1, \"invalid\": 4}");
    for (new, retired) in [
        ("\"candidate_counts\"", "\"reached\""),
        ("\"unsupported\"", "\"unmade\""),
        ("\"near_duplicates\"", "\"near\""),
        ("\"split_conflicts\"", "\"between\""),
        ("\"compiler_failures\": []", "\"lost\": [{\"id\": \"a\", \"why\": \"compiler_died\", \"what\": \"signal\"}]"),
    ] {
        assert!(text.contains(new), "{new} is not in {text}");
        text = text.replace(new, retired);
    }
    std::fs::write(&path, text).unwrap();
    let read = Dataset::open(&target).unwrap().manifest;
    assert_eq!((read.candidate_counts, read.set_hash), (present.candidate_counts, present.set_hash));
    let shard = &read.shards[0];
    let rejected = [("compiler_crashed", 1), ("dead_code", 3), ("invalid", 4)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(shard.counts.rejected, rejected.into());
    let failure = &shard.compiler_failures[0];
    assert_eq!((&failure.kind[..], &failure.message[..]), ("compiler_died", "signal"));
}
