//! A process that compiles for another: batches of texts come in on stdin, a line of JSON each, and answers go out on stdout.
//! Whatever NVRTC does to its process (it may crash, hang or eat memory) is done to this one.

use std::io::{BufRead, Write};
use std::sync::mpsc;

use serde::{Deserialize, Serialize};

use super::code::{Code, Text, Wanted, compiled};

/// The first line of a worker.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Greeting {
    /// It is of this version and can work.
    Ready(String),
    /// It cannot, and why.
    Failed(String),
}

/// The version of what is said between the two.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Request {
    pub arch: String,
    pub wanted: Wanted,
    pub texts: Vec<Text>,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Answer {
    /// Of each text: its code, or what NVRTC says of it.
    Answers(Vec<Result<Code, String>>),
    /// Nothing can be compiled, and why.
    Failed(String),
}

/// Answers requests until there are no more. `gone` is called when whoever asks is gone, also while NVRTC is at work: a
/// compiler that hangs must not outlive its run.
pub fn serve(
    from: impl BufRead + Send + 'static,
    mut to: impl Write,
    gone: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let greeting = match bornite_cuda::nvrtc_version() {
        Ok(_) => Greeting::Ready(VERSION.into()),
        Err(error) => Greeting::Failed(error.to_string()),
    };
    say(&mut to, &greeting)?;
    let (send, requests) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        for line in from.lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
        gone();
    })?;
    for line in requests {
        let answer = match serde_json::from_str::<Request>(&line) {
            Err(error) => Answer::Failed(format!("a worker was asked what it does not understand: {error}")),
            Ok(Request { arch, wanted, texts }) => match compiled(&texts, wanted, &arch) {
                Ok(answers) => Answer::Answers(answers),
                Err(error) => Answer::Failed(error.to_string()),
            },
        };
        say(&mut to, &answer)?;
    }
    Ok(())
}

fn say(to: &mut impl Write, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    to.write_all(line.as_bytes())?;
    to.flush()
}
