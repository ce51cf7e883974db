//! Commands in the manuals' `console` blocks are run, and every line shown below one must be in what it prints.
//!
//! `…` in a shown line stands for anything. The commands run as on a machine without a GPU. Rust blocks of the same files
//! are documentation tests of `bornite`.

use std::path::Path;
use std::process::Command;

/// With the commands that each has at least.
const MANUALS: [(&str, usize); 5] =
    [("cuda.md", 4), ("troubleshooting.md", 4), ("kernels.md", 5), ("judging.md", 1), ("../README.md", 1)];

/// A command and the lines shown below it.
struct Shown<'a> {
    command: &'a str,
    lines: Vec<&'a str>,
}

fn commands(manual: &str) -> Vec<Shown<'_>> {
    let mut found: Vec<Shown> = vec![];
    let mut inside = false;
    for line in manual.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => found.push(Shown { command, lines: vec![] }),
                None => found.last_mut().expect("a command before what it prints").lines.push(line),
            },
            (false, _) => {}
        }
    }
    found
}

/// Whether a line of `output` is the shown one, with anything for `…`.
fn printed(output: &str, shown: &str) -> bool {
    output.lines().any(|line| {
        let (mut rest, mut first) = (line, true);
        for part in shown.split('…') {
            let Some(at) = rest.find(part).filter(|at| !first || *at == 0) else { return false };
            (rest, first) = (&rest[at + part.len()..], false);
        }
        shown.ends_with('…') || rest.trim_end().is_empty()
    })
}

#[test]
fn the_commands_of_the_manuals_do_what_they_show() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manuals-cache");
    for (manual, least) in MANUALS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(manual);
        let text = std::fs::read_to_string(&path).unwrap();
        let commands = commands(&text);
        assert!(commands.len() >= least, "{manual} shows {} commands", commands.len());
        for Shown { command, lines } in commands {
            let _ = std::fs::remove_dir_all(&cache);
            let mut words = command.split_whitespace().peekable();
            let mut run = Command::new(env!("CARGO_BIN_EXE_bornite"));
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("BORNITE_") {
                    run.env_remove(name);
                }
            }
            run.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
            run.env("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc").env("BORNITE_CACHE_DIR", &cache);
            while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
                run.env(name, value);
                words.next();
            }
            assert_eq!(words.next(), Some("bornite"), "{manual}: {command}");
            let output = run.args(words).output().unwrap();
            let all = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            let fails = lines.iter().any(|line| line.starts_with("error:"));
            assert_eq!(output.status.success(), !fails, "{manual}: {command}\n{all}");
            for line in lines {
                assert!(printed(&all, line), "{manual}: {command}\ndoes not print\n{line}\nbut\n{all}");
            }
        }
    }
}

#[test]
fn lines_are_compared_with_gaps() {
    let output = "kernels  /tmp/x/kernels: 0 entries\n  median 0.1 ms, spread 2%\n";
    for shown in ["kernels  …/kernels: 0 entries", "kernels …", "  median … ms, spread …", "  median 0.1 ms, spread 2%"]
    {
        assert!(printed(output, shown), "{shown}");
    }
    for shown in ["kernels", "…/kernels: 0", "median … ms, spread …", "kernels …/tuning…", "spread … median …"]
    {
        assert!(!printed(output, shown), "{shown}");
    }
}

/// Commands of a job file, as arguments of `bornite`: lines of shell, continued by `\`, or a list
/// of YAML in one line.
fn job_commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let of_line = |line: &str| {
        let line = line.trim();
        if let Some(list) = line.strip_prefix("args: ").filter(|list| list.starts_with('[')) {
            return serde_json::from_str(list).ok();
        }
        let (_, command) = line.split_once("bornite ").filter(|_| !line.starts_with('#'))?;
        let command = command.split("||").next().unwrap_or(command);
        ["train ", "data "]
            .iter()
            .any(|name| command.starts_with(name))
            .then(|| command.split_whitespace().map(|word| word.trim_matches('"').to_string()).collect())
    };
    text.lines().filter_map(of_line).collect()
}

#[test]
fn the_commands_of_the_job_files_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let listed = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut count = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        assert!(listed.contains(&format!("`{name}`")), "{name} is not listed in deploy/README.md");
        for command in job_commands(&std::fs::read_to_string(&path).unwrap()) {
            // The help is printed only if everything before it is accepted.
            let output = Command::new(env!("CARGO_BIN_EXE_bornite")).args(&command).arg("--help").output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert_eq!(count, 5);
    let wrong =
        Command::new(env!("CARGO_BIN_EXE_bornite")).args(["train", "--no-such-flag", "--help"]).output().unwrap();
    assert!(!wrong.status.success());
}
