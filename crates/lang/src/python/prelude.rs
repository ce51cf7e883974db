//! Warp builtins that are themselves written in Python syntax (`prelude/*.py`). They are parsed
//! once, on first use.

use std::sync::OnceLock;

use super::File;
use super::program::Program;

macro_rules! files {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("prelude/", $name)))),+] };
}

const FILES: &[(&str, &str)] = files![
    "curl.py",
    "decompositions.py",
    "dense.py",
    "geometry.py",
    "matrices.py",
    "noise.py",
    "quaternions.py",
    "random.py",
    "scalars.py",
    "transforms.py",
    "vectors.py",
];

/// The prelude's functions.
pub(crate) fn program() -> &'static Program<'static> {
    static PARSED_FILES: OnceLock<Vec<File>> = OnceLock::new();
    static PROGRAM: OnceLock<Program<'static>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let read = |(name, text): &(&str, &str)| super::parse(&format!("prelude/{name}"), text).ok();
        let files = PARSED_FILES.get_or_init(|| FILES.iter().filter_map(read).collect());
        Program { files_share_names: true, ..Program::new(files) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FILES` lists every file of the folder, and all of them parse.
    #[test]
    fn every_file_is_listed_and_parses() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/python/prelude");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(FILES.iter().any(|(file, _)| *file == name), "{name} is not listed in FILES");
        }
        for (name, text) in FILES {
            super::super::parse(name, text).unwrap_or_else(|errors| panic!("{errors}"));
        }
        assert_eq!(program().files.len(), FILES.len());
    }
}
