//! The dataset card: a `README.md` with the header that Hugging Face reads.

use std::fmt::Write;

use super::record::columns;
use super::shard::SPLITS;
use super::{Counts, Format, Manifest, Settings, ingested};
use crate::Category;
use crate::distinct::HELD_OUT;

/// Names that the hub has for sizes of datasets.
fn size(rows: u64) -> &'static str {
    match rows {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        _ => "10M<n<100M",
    }
}

/// The card of a dataset.
pub(super) fn card(manifest: &Manifest) -> String {
    let counts = manifest.counts();
    let settings = &manifest.settings;
    let mut text = String::from("---\npretty_name: Verified CUDA kernels\nlanguage:\n- code\n- en\n");
    text += "task_categories:\n- text-generation\ntags:\n- code\n- cuda\n- gpu-kernels\n";
    // Of kernels that people wrote, other things are true.
    let ingested = settings.categories == [ingested::CATEGORY];
    text += if ingested { "" } else { "- synthetic\n" };
    let _ = writeln!(text, "size_categories:\n- {}", size(counts.rows));
    if settings.format != Format::SeedJson {
        text += "configs:\n- config_name: default\n  data_files:\n";
        // A split without rows would not load.
        for split in SPLITS.iter().filter(|split| counts.splits.contains_key(**split)) {
            let _ = writeln!(text, "  - split: {split}\n    path: data/{split}-*.{}", settings.format.ending());
        }
    }
    text += "---\n\n# Verified CUDA kernels\n\n";
    let pairs = settings.format == Format::SeedJson;
    let _ = writeln!(
        text,
        "{} {}. Each is a kernel as Python source (the dialect of NVIDIA Warp){}, with a sentence on what it does. {}\n",
        counts.rows,
        if pairs { "pairs" } else { "rows" },
        if pairs { " and CUDA C++" } else { ", CUDA C++, C++ for a CPU and kernel IR" },
        if ingested {
            "The sources were written by people, and the other texts follow from them."
        } else {
            "All were made by a generator of random well-typed programs; no text is anybody's."
        }
    );
    let _ = writeln!(
        text,
        "| | |\n|---|---|\n| made by | bornite {}, generator {} |\n| seed | {} |\n| checked at | `{}` |\n| set hash | `{}` |",
        manifest.bornite, settings.version, settings.seed, settings.level, manifest.set_hash
    );
    if let Some(compiler) = &settings.compiled_by {
        let _ = writeln!(text, "| compiled by | {compiler} |");
    }
    text.push('\n');
    text += "## Checks\n\n";
    text += match settings.level.as_str() {
        _ if ingested => {
            "The CUDA text of every row, in which sizes are parameters, comes back as the kernel of its source. That text was \
             executed by a checking interpreter (bounds, races) in eight launches of several sizes, forwards and backwards, and \
             leaves what the source lowered for each launch leaves, but for the rounding of sums whose order is open. Nobody \
             else said what is right.\n"
        }
        "types" => "The CUDA text of every row was read back and is well typed. Nothing was executed.\n",
        "compile" => "The CUDA text of every row was read back and compiled by NVRTC. Nothing was executed.\n",
        "run" => {
            "The CUDA text of every row was executed by a checking interpreter (bounds, races, barriers, uninitialised \
             memory) on 8 inputs, with lengths around warps and blocks, and gives what an independent evaluation of the \
             source gives.\n"
        }
        _ => {
            "The CUDA text of every row was executed by a checking interpreter and on a GPU, on 8 inputs, and gives what an \
             independent evaluation of the source gives.\n"
        }
    };
    let reached = &manifest.reached;
    if ingested {
        let _ = writeln!(
            text,
            "\nOf {} kernels, {} were duplicates but for names and constants, and {} failed a check; none of these is here.",
            reached.candidates,
            reached.duplicates,
            counts.rejected.values().sum::<u64>()
        );
        told_columns(settings, &mut text);
        return text + "\n`bornite data verify DIR` makes and checks every row again from its source.\n";
    }
    let _ = writeln!(
        text,
        "\nOf {} candidates, {} were duplicates but for names and constants, {} near duplicates (MinHash, 85 % of 5-token \
         shingles), {} like rows of two splits, {} were not understood and {} failed a check; none of these is here. {} of {} programs have a structure \
         of their own.\n",
        reached.candidates,
        reached.duplicates,
        reached.near,
        reached.between,
        reached.unmade,
        counts.rejected.values().sum::<u64>(),
        reached.structures,
        reached.distinct
    );
    if !pairs {
        told_splits(&counts, &mut text);
    }
    text += "## Categories\n\n| category | rows | |\n|---|---|---|\n";
    for category in Category::ALL {
        if let Some(count) = counts.categories.get(category.name()) {
            let _ = writeln!(text, "| {} | {count} | {} |", category.name(), category.about());
        }
    }
    if pairs {
        told_pairs(settings, &mut text);
    } else {
        told_columns(settings, &mut text);
    }
    let mut again = String::new();
    if settings.format != Format::Parquet {
        again += &format!(" --format {}", settings.format.name());
    }
    if settings.categories.len() < Category::ALL.len() {
        again += &format!(" --categories {}", settings.categories.join(","));
    }
    again += if settings.faults { " --faults" } else { "" };
    if !settings.with.is_empty() {
        again += &format!(" --with {}", settings.with.join(","));
    }
    let _ = writeln!(
        text,
        "\n## Make it again\n\n```sh\nbornite data make --count {} --seed {} --level {}{} --out DIR\n```\n\nRow *i* follows from \
         seed, version of the generator and *i* alone; `bornite data verify DIR` {}.\n\n\
         ## Limits\n\nKernels are random: they exercise the language, not tasks that somebody had. Names and descriptions \
         come from small vocabularies. Floats are kept within ranges in which rounding can be bounded.",
        settings.count,
        settings.seed,
        settings.level,
        again,
        if pairs {
            "compares files with their checksums and looks at the structure of each pair; rows of the other formats are also \
             made and checked again"
        } else {
            "makes and checks every row again"
        }
    );
    text
}

/// What columns hold in rows of kernels that people wrote, where that differs.
const INGESTED: &[(&str, &str)] = &[
    ("id", "number of the row"),
    ("category", "`ingested`"),
    ("description", "the kernel's docstring"),
    ("source", "Python, in the dialect of NVIDIA Warp: the kernel with what it needs of its file"),
    ("ir", "kernel IR of the CUDA text, with sizes as parameters"),
    ("complexity", "lines of the IR"),
];

fn told_splits(counts: &Counts, text: &mut String) {
    *text += "## Splits\n\nLike rows (65 % of shingles as estimated, or one structure) are in one split. `held_out` has all rows with one of ";
    let held: Vec<String> = HELD_OUT.iter().map(|op| format!("`{op}`")).collect();
    let _ = writeln!(text, "{}: no other split has them.\n\n| split | rows |\n|---|---|", held.join(", "));
    for split in SPLITS {
        let _ = writeln!(text, "| {split} | {} |", counts.splits.get(split).copied().unwrap_or(0));
    }
    text.push('\n');
}

/// What a file of a pair holds.
fn told_pairs(settings: &Settings, text: &mut String) {
    *text += "\n## Files\n\nA file a pair, `cuda_synth_0000.json` and so on, without splits; `progress.json` and \
              `generation_stats.json` say how they were made.\n\n| key | |\n|---|---|\n\
              | `python_source` | Python, in the dialect of NVIDIA Warp |\n\
              | `cuda_forward` | CUDA C++ that stands alone, `extern \"C\"` |\n\
              | `metadata` | `kernel_name`, `category`, `description`, `device`, `seed`, and what its category has |\n";
    let extras: Vec<&str> = settings.extras().into_iter().map(|extra| extra.column()).collect();
    for (name, about) in COLUMNS.iter().filter(|(name, _)| extras.contains(name)) {
        let _ = writeln!(text, "| `{name}` | {about} |");
    }
}

fn told_columns(settings: &Settings, text: &mut String) {
    *text += "\n## Columns\n\n| column | |\n|---|---|\n";
    let there: Vec<&str> = columns(settings).into_iter().map(|(name, _)| name).collect();
    let ingested: &[(&str, &str)] = if settings.categories == [ingested::CATEGORY] { INGESTED } else { &[] };
    for (name, about) in COLUMNS.iter().filter(|(name, _)| there.contains(name)) {
        let about = ingested.iter().find(|(other, _)| other == name).map_or(about, |(_, about)| about);
        let _ = writeln!(text, "| `{name}` | {about} |");
    }
}

/// What each column holds.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("id", "seed and number of the row"),
    ("name", "name of the kernel in all texts"),
    ("category", "one of the categories above"),
    ("description", "what the kernel does, in a sentence"),
    ("source", "Python, in the dialect of NVIDIA Warp"),
    ("cuda", "CUDA C++ that stands alone"),
    ("cpp", "C++ for a CPU"),
    ("ir", "kernel IR of the CUDA text, for a launch over 1000 elements"),
    (
        "inputs",
        "recipe: a line a parameter, `block` and `grid` of the launch of `cuda`, and `dim` of `wp.launch` of `source`",
    ),
    ("block", "threads of a block along x, y and z, such as `256x1x1`"),
    ("ops", "operations of the source, with spaces between them"),
    ("types", "types of the source, with spaces between them"),
    ("complexity", "operations and statements, weighed"),
    ("difficulty", "1 to 5"),
    ("level", "what the row was checked for"),
    ("split", "train, validation, test or held_out"),
    ("cluster", "id of the first row of those that are alike"),
    ("seed", "of the dataset"),
    ("index", "number of the row"),
    ("version", "of the generator"),
    ("fault_kind", "what is wrong with the twin; empty where there is none"),
    ("fault_line", "the line that is wrong"),
    ("fault_cuda", "CUDA C++ with the mistake"),
    ("fault_report", "what the interpreter reports"),
    ("fault_report_line", "the line that it names"),
    ("ptx", "PTX of the CUDA text alone; empty where the compiler did not take it"),
    ("sass", "the GPU's own instructions for the CUDA text alone; empty where the compiler did not take it"),
    ("cuda_warp", "CUDA C++ of the source in the style of NVIDIA Warp's generated code"),
    ("text", "source, a line `//` and CUDA text in one, for a model to learn from"),
];
