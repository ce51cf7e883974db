//! The 150 functions of Warp that programs call most, outside tiles, volumes, textures and queries of geometry, most used
//! first (`tests/python/builtins.txt`): each is known.

use bornite_lang::LaunchRequest;
use bornite_lang::python::Module;

#[test]
fn the_most_used_builtins_are_known() {
    let list = super::read(super::folder().join("builtins.txt"));
    let names: Vec<&str> = list.lines().collect();
    assert_eq!(names.len(), 150);
    let mut request = LaunchRequest::with_dims(&[1]);
    request.default_length = Some(16);
    // What takes no arguments is right; of the others it is said that the arguments do not fit.
    let said = |name: &str| {
        let text = format!(
            "import warp as wp\n\n@wp.kernel\ndef k(out: wp.array[float]):\n    wp.{name}()\n    out[0] = 1.0\n"
        );
        match Module::parse("called.py", &text) {
            Ok(module) => module.kernel("k", &request).err().map(|errors| errors.to_string()).unwrap_or_default(),
            Err(errors) => errors.to_string(),
        }
    };
    let is_known = |name: &str| {
        let said = said(name);
        !said.contains("there is no") && !said.contains("not supported")
    };
    let absent: Vec<&str> = names.iter().copied().filter(|name| !is_known(name)).collect();
    assert!(absent.is_empty(), "{}", absent.iter().map(|name| said(name)).collect::<Vec<_>>().join("\n"));
    assert!(!is_known("no_such_builtin"));
}
