//! `docs/dataset-categories.md` has a valid example of each category.
//!
//! `BLESS=1 cargo test -p bornite-data --test files` regenerates it.

use bornite_data::{Category, Level, Row, generate_in, verify};

fn example(category: Category) -> Row {
    let rows = (0..40).filter_map(|index| generate_in(42, index, &[category]).ok());
    let verified = rows.filter(|row| verify(row, Level::Run).is_ok());
    verified.min_by_key(|row| (row.source.len() + row.cuda.len(), row.index)).expect("a row of each category")
}

/// Code blocks of one language, in order.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let open = format!("```{language}\n");
    text.split(&open[..]).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect()
}

/// Breaks lines at 98 columns, for a quotation.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + word.len() < 98 => {
                *line += if line.is_empty() { "" } else { " " };
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n> ")
}

pub fn documentation_has_an_example_of_each_category() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dataset-categories.md");
    if std::env::var_os("BLESS").is_some() {
        let mut text = String::from(
            "# Categories of kernels\n\nA short row of each category. Written by a test of `bornite-data`\n\
             (`BLESS=1 cargo test -p bornite-data --test files`); do not edit. [dataset.md](dataset.md)\n\
             describes how rows are generated.\n",
        );
        for category in Category::ALL {
            let row = example(*category);
            text += &format!("\n## `{}`\n\n{}\n\n> {}\n", category.name(), category.about(), wrapped(&row.description));
            text += &format!("\n```python\n{}\n```\n\n```cuda\n{}\n```\n", row.source.trim_end(), row.cuda.trim_end());
        }
        std::fs::write(path, text).unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    for category in Category::ALL {
        assert!(text.contains(&format!("\n## `{}`\n\n{}", category.name(), category.about())), "{}", category.name());
    }
    let (sources, cuda) = (blocks(&text, "python"), blocks(&text, "cuda"));
    assert_eq!((sources.len(), cuda.len()), (Category::ALL.len(), Category::ALL.len()));
    for (source, cuda) in sources.into_iter().zip(cuda) {
        let source = bornite_lang::python::PythonModule::parse("manual.py", source).unwrap_or_else(|e| panic!("{e}"));
        let cuda = bornite_lang::cuda::CudaModule::parse("manual.cu", cuda).unwrap_or_else(|e| panic!("{e}"));
        let names: Vec<String> = source.kernels().into_iter().map(|kernel| kernel.name).collect();
        assert!(cuda.kernels().iter().any(|kernel| names.contains(&kernel.name)), "{names:?}");
    }
}
