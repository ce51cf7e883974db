//! The 150 most used Warp builtins, most used first (`tests/python/builtins.txt`), without tiles,
//! volumes, textures and geometry queries: all of them are supported.

use bornite_lang::LaunchRequest;
use bornite_lang::python::PythonModule;

#[test]
fn most_used_builtins_are_supported() {
    let list = super::read(super::folder().join("builtins.txt"));
    let names: Vec<&str> = list.lines().collect();
    assert_eq!(names.len(), 150);
    let mut request = LaunchRequest::with_dims(&[1]);
    request.default_length = Some(16);
    // A call without arguments is valid or an error about the arguments.
    let message = |name: &str| {
        let text = format!(
            "import warp as wp\n\n@wp.kernel\ndef k(out: wp.array[float]):\n    wp.{name}()\n    out[0] = 1.0\n"
        );
        match PythonModule::parse("called.py", &text) {
            Ok(module) => module.kernel("k", &request).err().map(|errors| errors.to_string()).unwrap_or_default(),
            Err(errors) => errors.to_string(),
        }
    };
    let is_known = |name: &str| {
        let message = message(name);
        !message.contains("unknown builtin") && !message.contains("not supported")
    };
    let absent: Vec<&str> = names.iter().copied().filter(|name| !is_known(name)).collect();
    assert!(absent.is_empty(), "{}", absent.iter().map(|name| message(name)).collect::<Vec<_>>().join("\n"));
    assert!(!is_known("no_such_builtin"));
}
