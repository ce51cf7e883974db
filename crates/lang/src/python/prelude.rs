//! Functions of the dialect that are written in it. They are parsed once, when a kernel first asks for one.

use std::sync::OnceLock;

use super::File;
use super::program::Program;

macro_rules! files {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("prelude/", $name)))),+] };
}

const FILES: &[(&str, &str)] = files![
    "decompositions.py",
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
