//! `bornite model …`: models of other libraries, in and out.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite::Device;
use bornite_nn::train::{Trained, parameters};
use clap::Subcommand;
use serde_json::json;

use crate::{Failure, note, print, print_json};

/// `bornite model …`.
#[derive(Subcommand)]
pub enum ModelCommand {
    /// Make the folder of a run from a Hugging Face folder (GPT-2 or Llama)
    Import {
        /// A folder of config.json, model.safetensors and tokenizer.json
        #[arg(value_name = "FOLDER")]
        from: PathBuf,
        /// The run's folder
        #[arg(long, value_name = "RUN")]
        out: PathBuf,
        /// Another tokenizer than the folder's: bytes, gpt2 or the path of a tokenizer.json
        #[arg(long, value_name = "NAME")]
        tokenizer: Option<String>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Make a Hugging Face folder from a run's latest checkpoint
    Export {
        /// The run's folder
        #[arg(value_name = "RUN")]
        from: PathBuf,
        /// The folder to make
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &ModelCommand) -> Result<ExitCode, Failure> {
    let (ModelCommand::Import { from, out, json, .. } | ModelCommand::Export { from, out, json }) = command;
    let tokenizer = match command {
        ModelCommand::Import { tokenizer, .. } => tokenizer.as_deref(),
        ModelCommand::Export { .. } => None,
    };
    let trained = Trained::open(from, tokenizer, Device::cpu())?;
    if let Some(text) = &trained.note {
        note(text);
    }
    match command {
        ModelCommand::Import { .. } => {
            trained.save_as_run(out)?;
        }
        ModelCommand::Export { .. } => trained.export(out)?,
    }
    let count = parameters(trained.gpt.config()) as u64;
    if *json {
        print_json(&json!({"out": out, "parameters": count, "step": trained.step}))?;
    } else {
        print(&format!("{count} parameters of step {} in {}\n", trained.step, out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
