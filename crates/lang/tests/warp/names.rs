//! Resolution of kernel names, and checks of all kernels of a file.

use bornite_lang::LaunchRequest;
use bornite_lang::python::{CheckOutcome, PythonModule};

const FILE: &str = "
import warp as wp
from typing import Any

class A:
    @wp.kernel
    def step(o: wp.array[int]):
        o[wp.tid()] = 1

class B:
    @wp.kernel
    def step(o: wp.array[int]):
        o[wp.tid()] = 2

@wp.kernel
def step(o: wp.array[int]):
    o[wp.tid()] = 3

def test_of_steps():
    @wp.kernel
    def step(o: wp.array[int]):
        o[wp.tid()] = 4

def make(n, T=wp.float32):
    @wp.kernel
    def made(o: wp.array[int]):
        o[wp.tid()] = n + int(wp.sqrt(T(n)))
    return made

nine = make(9)
four = make(4)
wrong = make(4, wp.int32)
again = make(4)

def test_alone():
    @wp.kernel
    def alone(o: wp.array[int]):
        o[wp.tid()] = 5

if len(FOUND) > 2:
    unsure = make(3)

@wp.kernel
def dots(x: wp.array(dtype=Any), y: wp.array(dtype=Any), o: wp.array(dtype=Any)):
    o[wp.tid()] = wp.dot(x[0], y[0])

@wp.kernel
def turned(q: Any, v: wp.array(dtype=Any)):
    v[0] = wp.quat_rotate(q, v[0])

@wp.kernel
def lacking(x: wp.array(dtype=Any)):
    x[0] = wp.sin(x[0]) + nowhere

@wp.kernel
def rare(x: wp.array(dtype=Any)):
    x[0] = x[0] + wp.int64(1)
";

/// Lookup names, and the number that the kernel writes or the error.
const NAMES: [(&str, Result<i64, &str>); 12] = [
    ("step", Ok(3)),
    ("A.step", Ok(1)),
    ("B.step", Ok(2)),
    ("test_of_steps.step", Ok(4)),
    ("nine", Ok(12)),
    ("four", Ok(6)),
    ("again", Ok(6)),
    ("made", Err("kernel name 'made' is ambiguous: use nine or four or wrong or again")),
    ("alone", Ok(5)),
    ("unsure", Err("cannot resolve kernel name 'unsure': 'unsure' is assigned under a condition")),
    ("wrong", Err("'sqrt' does not take (int32)")),
    ("A.stop", Err("cannot resolve kernel name 'A.stop': the class has no attribute 'stop'")),
];

#[test]
fn kernel_names_resolve_as_in_python() {
    let module = PythonModule::parse("names.py", FILE).unwrap_or_else(|errors| panic!("{errors}"));
    for (name, expected) in NAMES {
        let lowered =
            module.kernel(name, &LaunchRequest::with_dims(&[2]).shape("o", &[2])).map_err(|errors| errors.to_string());
        let found = lowered.and_then(|lowered| super::semantics::first(&lowered, 2, "o"));
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found[0], expected, "{name}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{name}: {found}"),
            _ => panic!("{name}: expected {expected:?}, found {found:?}"),
        }
    }
}

#[test]
fn check_covers_every_kernel() {
    let module = PythonModule::parse("names.py", FILE).unwrap_or_else(|errors| panic!("{errors}"));
    let found: Vec<(String, String)> = (module.check().into_iter())
        .map(|checked| match checked.outcome {
            CheckOutcome::Valid => (checked.name, String::new()),
            CheckOutcome::Invalid(errors) => (checked.name, errors.diagnostics[0].message.clone()),
            CheckOutcome::Undetermined(tried) => (checked.name, tried),
        })
        .collect();
    let expected = [
        ("A.step", ""),
        ("B.step", ""),
        ("step", ""),
        ("test_of_steps.step", ""),
        ("nine", ""),
        ("four", ""),
        ("wrong", "'sqrt' does not take (int32)"),
        ("again", ""),
        ("test_alone.alone", ""),
        ("dots<x:vec3, y:vec3, o:float32>", ""),
        ("turned<q:quat, v:vec3>", ""),
        ("lacking", "'nowhere' is not defined"),
        ("rare", "float32, vec3, int32, mat33, quat, transform, vec2, vec4, mat44, float64 for x"),
    ];
    let found: Vec<(&str, &str)> = found.iter().map(|(name, what)| (name.as_str(), what.as_str())).collect();
    assert_eq!(found, expected);
}

/// Files of a package; the kernel in the last one imports from the others.
const PACKAGE: [(&str, &str); 6] = [
    ("pack/__init__.py", "from .core import one\n"),
    ("pack/core.py", "import warp as wp\n\n@wp.func\ndef one(x: int):\n    return x + 1\n"),
    ("pack/shared.py", "from .core import one as first\nfrom pack.core import *\nTEN = 10\n_hidden = 1\n"),
    ("pack/kernels/__init__.py", ""),
    ("pack/kernels/beside.py", "HUNDRED = 100\n"),
    (
        "pack/kernels/steps.py",
        "import warp as wp\nimport pack.core\nimport pack\nimport pack.core as c\nfrom pack.shared import *\n\
         from .beside import HUNDRED\nfrom ..core import one as again\nimport beside\n\n@wp.kernel\n\
         def k(o: wp.array[int]):\n    o[0] = pack.core.one(1) + pack.one(1) + c.one(1) + first(TEN) + one(1)\n    \
         o[1] = again(HUNDRED) + beside.HUNDRED\n",
    ),
];

#[test]
fn imports_within_a_package_are_resolved() {
    let folder = std::env::temp_dir().join(format!("bornite-package-{}", std::process::id()));
    for (path, text) in PACKAGE {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let module = PythonModule::load(&folder.join("pack/kernels/steps.py"));
    let lowered = module.map(|module| module.kernel("k", &LaunchRequest::with_dims(&[1]).shape("o", &[2])));
    std::fs::remove_dir_all(&folder).unwrap();
    let lowered = lowered.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(super::semantics::first(&lowered, 2, "o"), Ok(vec![2 + 2 + 2 + 11 + 2, 201]));
}
