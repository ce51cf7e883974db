//! Functions of the dialect that are written in it. They are parsed once, when a kernel first asks for one.

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
    static FILES_READ: OnceLock<Vec<File>> = OnceLock::new();
    static PROGRAM: OnceLock<Program<'static>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let read = |(name, text): &(&str, &str)| super::parse(&format!("prelude/{name}"), text).ok();
        let files = FILES_READ.get_or_init(|| FILES.iter().filter_map(read).collect());
        Program { shared: true, ..Program::new(files) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No file lies there unread, and each is right.
    #[test]
    fn every_file_is_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/python/prelude");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(FILES.iter().any(|(file, _)| *file == name), "{name} is not among the files");
        }
        for (name, text) in FILES {
            super::super::parse(name, text).unwrap_or_else(|errors| panic!("{errors}"));
        }
        assert_eq!(program().files.len(), FILES.len());
    }
}
