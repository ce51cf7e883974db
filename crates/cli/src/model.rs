//! `bornite model …`: imports Hugging Face models, exports to Hugging Face and torchvision.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite::Device;
use bornite_nn::train::{TrainedModel, parameter_count};
use clap::Subcommand;
use serde_json::json;

use crate::{Failure, images, note, print, print_json};

/// `bornite model …`.
#[derive(Subcommand)]
pub enum ModelCommand {
    /// Create a run from a Hugging Face folder (GPT-2 or Llama)
    Import {
        /// Folder with config.json, model.safetensors and tokenizer.json
        #[arg(value_name = "FOLDER")]
        from: PathBuf,
        /// Folder of the run to create
        #[arg(long, value_name = "RUN")]
        out: PathBuf,
        /// Tokenizer to use instead of the folder's: bytes, gpt2 or a path to tokenizer.json
        #[arg(long, value_name = "NAME")]
        tokenizer: Option<String>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Export a run's latest checkpoint as a Hugging Face folder; of an image model, as a
    /// safetensors file of a torchvision state dict
    Export {
        /// Folder of the run
        #[arg(value_name = "RUN")]
        from: PathBuf,
        /// Folder to create, or file to write
        #[arg(long, value_name = "PATH")]
        out: PathBuf,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &ModelCommand) -> Result<ExitCode, Failure> {
    let (ModelCommand::Import { from, out, json, .. } | ModelCommand::Export { from, out, json }) = command;
    if images::is_image_run(from) {
        return match command {
            ModelCommand::Export { .. } => images::export(from, out, *json),
            ModelCommand::Import { .. } => {
                let what = "import reads a Hugging Face folder, but this is a run of an image model";
                Err(bornite_nn::Error::config(format!("{}: {what}", from.display())).into())
            }
        };
    }
    let tokenizer = match command {
        ModelCommand::Import { tokenizer, .. } => tokenizer.as_deref(),
        ModelCommand::Export { .. } => None,
    };
    let trained = TrainedModel::open(from, tokenizer, Device::cpu())?;
    if let Some(text) = &trained.note {
        note(text);
    }
    match command {
        ModelCommand::Import { .. } => {
            trained.save_as_run(out)?;
        }
        ModelCommand::Export { .. } => trained.export(out)?,
    }
    let count = parameter_count(trained.gpt.config()) as u64;
    if *json {
        print_json(&json!({"out": out, "parameters": count, "step": trained.step}))?;
    } else {
        print(&format!("wrote {count} parameters of step {} to {}\n", trained.step, out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
