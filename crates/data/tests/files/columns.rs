//! Extra columns: their contents, and that they change nothing else.

use std::collections::BTreeSet;

use bornite_data::Level;
use bornite_data::files::{
    Dataset, DatasetDir, DatasetFormat, DatasetSettings, ExtraColumn, MakeOptions, RowRecord, check, check_pair, make,
};
use bornite_data::verify::code::compiler;

use crate::suite::Outcome;
use crate::{folder, hash, make_dataset, options, seed, settings};

fn with(settings: DatasetSettings, names: &[&str]) -> DatasetSettings {
    settings.with_columns(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn rows(dataset: &Dataset) -> Vec<RowRecord> {
    let mut rows = vec![];
    let visit = &mut |record| {
        rows.push(record);
        Ok(true)
    };
    dataset.for_each(visit).unwrap();
    rows
}

pub fn warp_style_column_is_written_on_request() {
    let mut plain = settings(120, 2);
    plain.seed = seed();
    let expected = hash(&make_dataset(&folder("without-columns"), &plain));
    for format in DatasetFormat::ALL {
        let mut settings = with(plain.clone(), &["cuda_warp", "cuda-warp"]);
        settings.format = format;
        let folder = folder(&format!("warp-{}", format.name()));
        assert_eq!(hash(&make_dataset(&folder, &settings)), expected, "{}", format.name());
        let dataset = Dataset::open(&folder).unwrap();
        assert_eq!(dataset.manifest.settings.with, ["cuda-warp"]);
        let report = check(&dataset, Level::Types, 2, None, &mut |_| {}).unwrap();
        assert_eq!((report.findings, report.notes), (vec![], vec![]));
        let card = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(card.contains("| `cuda_warp` |") && !card.contains("| `ptx` |"), "{card}");
        assert!(card.contains(" --with cuda-warp --out DIR"), "{card}");
        if format == DatasetFormat::SeedJson {
            let pair = std::fs::read_to_string(folder.join("cuda_synth_0000.json")).unwrap();
            assert!(pair.contains("\"cuda_warp\": "), "{pair}");
            let report = check_pair(&pair);
            assert!(report.passes() && report.checks.len() == 7, "{report:?}");
            let failed = check_pair(&pair.replace("_cuda_kernel_forward(", "_other("));
            let failed: Vec<&str> = failed.checks.iter().filter(|check| !check.holds).map(|check| check.what).collect();
            assert_eq!(failed, ["the Warp-style CUDA text is of this kernel"]);
            continue;
        }
        for row in rows(&dataset) {
            let head = format!("extern \"C\" __global__ void {}_cuda_kernel_forward(", row.text("name"));
            assert!(row.text("cuda_warp").contains(&head), "{}: {}", row.text("id"), row.text("cuda_warp"));
        }
    }
    // A text that does not match its source, in a file with a valid checksum.
    let settings = DatasetSettings { format: DatasetFormat::Jsonl, ..with(plain, &["cuda-warp"]) };
    let (target, dir) = (folder("warp-other"), DatasetDir::new(&folder("warp-other")));
    make_dataset(&target, &settings);
    let file = target.join("data/train-00000-of-00002.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let manifest = std::fs::read_to_string(target.join("manifest.json")).unwrap();
    let sum = |text: &str| {
        use sha2::Digest;
        sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let wrong = text.replacen("_cuda_kernel_forward(", "_cpu_kernel_forwards(", 1);
    assert_eq!(text.len(), wrong.len());
    std::fs::write(&file, &wrong).unwrap();
    std::fs::write(target.join("manifest.json"), manifest.replace(&sum(&text), &sum(&wrong))).unwrap();
    let report = check(&Dataset::open(&target).unwrap(), Level::Types, 1, None, &mut |_| {}).unwrap();
    let found: Vec<&str> = report.findings.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(found, ["column 'cuda_warp' does not match the row's other texts"]);
    // Resuming with other columns is an error.
    let options = MakeOptions { resume: true, ..options(&DatasetSettings { with: vec![], ..settings }) };
    let error = make(&dir, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("has with cuda-warp, but nothing was requested"), "{error}");
}

pub fn code_columns_are_written_on_request() -> Outcome {
    let here = compiler().map_err(|why| why.to_string())?;
    let disassembles = bornite_cuda::Disassembler::find();
    let names: &[&str] = if disassembles.is_ok() { &["sass", "ptx", "cuda-warp"] } else { &["ptx"] };
    if let Err(why) = disassembles {
        let options = options(&with(settings(5, 1), &["sass"]));
        let error = make(&DatasetDir::new(&folder("no-sass")), &options, &mut |_| {}).unwrap_err().to_string();
        assert_eq!(error, why.to_string());
        assert!(!folder("no-sass").exists());
        eprintln!("SASS is not tested: {why}");
    }
    let mut plain = settings(81, 1);
    plain.seed = seed();
    let expected = hash(&make_dataset(&folder("without-code"), &plain));
    let settings = with(plain, names);
    let target = folder("code");
    assert_eq!(hash(&make_dataset(&target, &settings)), expected);
    let dataset = Dataset::open(&target).unwrap();
    assert_eq!(dataset.manifest.settings.compiled_by.as_ref(), Some(&here));
    let card = std::fs::read_to_string(target.join("README.md")).unwrap();
    assert!(card.contains(&format!("| compiled by | {here} |")), "{card}");
    let mut categories = BTreeSet::new();
    for row in rows(&dataset) {
        categories.insert(row.text("category").to_owned());
        let (name, ptx) = (row.text("name"), row.text("ptx"));
        assert!(ptx.starts_with(".version") && ptx.contains(&format!(".visible .entry {name}(")), "{ptx}");
        assert_eq!(ptx.matches(".entry ").count(), 1, "{ptx}");
        assert!(ptx.trim_end().ends_with('}'), "{ptx}");
        if names.contains(&"sass") {
            assert!(row.text("sass").contains(name) && row.text("sass").contains("EXIT"), "{}", row.text("sass"));
        }
    }
    assert!(categories.len() > 20, "{categories:?}");
    assert!(dataset.manifest.counts().missing.is_empty(), "{:?}", dataset.manifest.counts().missing);
    let report = check(&dataset, Level::Types, 2, None, &mut |_| {}).unwrap();
    assert_eq!((report.findings, report.notes), (vec![], vec![]));
    // Compiled elsewhere: plausibility is checked, and a note explains the rest.
    let manifest = std::fs::read_to_string(target.join("manifest.json")).unwrap();
    std::fs::write(target.join("manifest.json"), manifest.replace(&here, "NVRTC 99.0 for sm_90")).unwrap();
    let report = check(&Dataset::open(&target).unwrap(), Level::Types, 2, None, &mut |_| {}).unwrap();
    assert_eq!(report.findings, []);
    assert!(report.notes[0].contains("NVRTC 99.0 for sm_90 and was not recompiled"), "{:?}", report.notes);
    let options = MakeOptions { settings: None, resume: true, ..options(&settings) };
    let error = make(&DatasetDir::new(&target), &options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("was compiled by NVRTC 99.0 for sm_90, but this machine has"), "{error}");
    Ok(())
}

pub fn extra_columns_have_unique_names() {
    let names: BTreeSet<&str> = ExtraColumn::ALL.iter().flat_map(|extra| [extra.name(), extra.column()]).collect();
    assert_eq!(names, ["ptx", "sass", "cuda-warp", "cuda_warp", "text"].into());
}
