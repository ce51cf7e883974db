//! Progress on a terminal: a bar on stderr that is cleared in the end, also by an interrupt.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both ends of a new pseudo-terminal.
fn terminal() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, vec![]).unwrap();
    let theirs = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (ours.into(), theirs)
}

fn bornite(arguments: &[&str], term: &str, stderr: OwnedFd) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    command.args(arguments).env("TERM", term).env_remove("BORNITE_LOG").stdin(Stdio::null()).stderr(stderr);
    command
}

/// Everything that is written to a terminal until its last writer exits, which ends reads with an error.
fn shown(terminal: File) -> String {
    let mut bytes = vec![];
    let _ = BufReader::new(terminal).read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("terminal").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_bar_is_drawn_on_stderr_and_cleared() {
    let folder = scratch("make");
    for term in ["xterm", "dumb"] {
        let (ours, theirs) = terminal();
        let out = folder.join(term);
        let arguments = ["data", "make", "--count", "300", "--jobs", "1", "--out", out.to_str().unwrap()];
        let child = bornite(&arguments, term, theirs).stdout(Stdio::piped()).spawn().unwrap();
        let shown = shown(ours);
        let output = child.wait_with_output().unwrap();
        let results = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && results.contains(" rows in "), "{shown}");
        assert!(!results.contains('\x1b'), "{results:?}");
        if term == "dumb" {
            assert!(!shown.contains('\x1b'), "{shown:?}");
        } else {
            assert!(shown.contains("] 300/300 rows  generating shard 0"), "{shown:?}");
            assert!(shown.ends_with("\r\x1b[2K"), "{shown:?}");
        }
    }
}

#[test]
fn an_interrupt_leaves_the_terminal_clean() {
    let folder = scratch("train");
    let (corpus, out) = (folder.join("corpus.txt"), folder.join("run"));
    std::fs::write(&corpus, "one of many lines\n".repeat(400)).unwrap();
    let arguments = ["train", "--data", corpus.to_str().unwrap(), "--out", out.to_str().unwrap(), "--device", "cpu"];
    let size =
        ["--steps", "1000000", "--set", "model.layers=1", "--set", "model.width=32", "--set", "model.context=32"];
    let (ours, theirs) = terminal();
    let child = bornite(&[&arguments[..], &size].concat(), "xterm", theirs).stdout(Stdio::null()).spawn().unwrap();
    let mut ours = BufReader::new(ours);
    let (mut shown, mut piece) = (vec![], vec![]);
    while !String::from_utf8_lossy(&shown).contains("loss") {
        piece.clear();
        ours.read_until(b'K', &mut piece).unwrap();
        shown.extend(&piece);
    }
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let _ = ours.read_to_end(&mut shown);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(75));
    let shown = String::from_utf8(shown).unwrap();
    // Every line that stays stands alone: after a clear or at the beginning of a line.
    let last = shown.rsplit("\x1b[2K").next().unwrap();
    assert!(last.ends_with("continue with --resume\r\n") && !last.contains("] step"), "{last:?}");
    let saved = shown.find("saved ").unwrap();
    assert!(shown[..saved].ends_with("\r\x1b[2K") || shown[..saved].ends_with("\r\n"), "{shown:?}");
}
