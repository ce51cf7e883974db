use std::process::Command;

/// The program of an example, built with the features of the workspace: those of its package alone
/// would build the dependencies again.
pub fn command(example: &str) -> Command {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--example", example]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "{example}");
    let test = std::env::current_exe().unwrap();
    Command::new(test.ancestors().nth(2).unwrap().join("examples").join(example))
}
