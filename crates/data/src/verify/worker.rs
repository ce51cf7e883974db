//! Compiler worker process: receives batches of texts on stdin as JSON lines and answers on stdout.
//! A crash, hang or memory leak in NVRTC affects only this process (see `workers.rs`).

use std::io::{BufRead, Write};

use bornite_support::worker::serve_lines;
use serde::{Deserialize, Serialize};

use super::code::{CompiledCode, CudaSource, EmitOptions, compile_sources};

/// First line that a worker sends.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Greeting {
    /// The worker is ready, with its version.
    Ready(String),
    /// The worker cannot compile, and why.
    Failed(String),
}

/// Protocol version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct CompileRequest {
    pub arch: String,
    pub emit: EmitOptions,
    pub texts: Vec<CudaSource>,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum CompileResponse {
    /// Per text: its code, or NVRTC's log.
    Answers(Vec<Result<CompiledCode, String>>),
    /// Compilation is not possible at all, and why.
    Failed(String),
}

/// Answers requests until stdin ends. `on_disconnect` is called when the parent process is gone,
/// even during a compilation: a hanging compiler must not outlive its run.
pub fn serve(
    from: impl BufRead + Send + 'static,
    to: impl Write,
    on_disconnect: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let greeting = match bornite_cuda::nvrtc_version() {
        Ok(_) => Greeting::Ready(VERSION.into()),
        Err(error) => Greeting::Failed(error.to_string()),
    };
    serve_lines(from, to, on_disconnect, &serde_json::to_string(&greeting)?, |line| {
        let answer = match serde_json::from_str::<CompileRequest>(line) {
            Err(error) => CompileResponse::Failed(format!("invalid request to a compiler worker: {error}")),
            Ok(CompileRequest { arch, emit, texts }) => match compile_sources(&texts, emit, &arch) {
                Ok(answers) => CompileResponse::Answers(answers),
                Err(error) => CompileResponse::Failed(error.to_string()),
            },
        };
        serde_json::to_string(&answer).unwrap_or_default()
    })
}
