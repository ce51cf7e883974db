//! `bornite generate`: streams text from a run or a Hugging Face model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_data::task::SEPARATOR;
use bornite_nn::generate::{FinishReason, GenerationOptions, Sampling, prompt_tokens};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::train::TrainedModel;
use serde_json::json;

use crate::demo::layout::PromptLayout;
use crate::{Failure, note, parse_device, print, text_file};

/// Maximum size of a file of prompts.
const MAX_PROMPTS_BYTES: u64 = 64 << 20;

/// Options of `bornite generate`.
#[derive(clap::Args)]
pub struct GenerateOptions {
    /// Folder of a run or of a Hugging Face model
    #[arg(value_name = "RUN")]
    from: PathBuf,
    /// Prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "prompts")]
    prompt: Option<String>,
    /// File with one prompt per line
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Prompt as token ids
    #[arg(long, value_name = "ID,…", value_delimiter = ',', conflicts_with_all = ["prompt", "prompts"])]
    tokens: Vec<u32>,
    /// Samples per prompt; sample n (from 0) uses seed + n
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    samples: u64,
    /// Maximum number of tokens to generate
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: usize,
    /// Sampling temperature; 0 selects the most likely token
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8)]
    temperature: f64,
    /// Sample from the N most likely tokens; 0 means all
    #[arg(long, value_name = "N", default_value_t = 0)]
    top_k: usize,
    /// Nucleus sampling: sample from the most likely tokens with this total probability
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    top_p: f64,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Stop before this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Tokenizer to use instead of the folder's: bytes, gpt2 or a path to tokenizer.json
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Write one JSON line per sample to stdout
    #[arg(long)]
    json: bool,
}

pub fn run(options: &GenerateOptions) -> Result<ExitCode, Failure> {
    let GenerateOptions { temperature, top_k, top_p, seed, .. } = *options;
    let sampling = Sampling { temperature, top_k, top_p, seed };
    sampling.check()?;
    let texts = match &options.prompts {
        Some(path) => read_lines(path)?,
        None => vec![options.prompt.clone().unwrap_or_default()],
    };
    let trained = TrainedModel::open(&options.from, options.tokenizer.as_deref(), parse_device(&options.device)?)?;
    if let Some(text) = &trained.note {
        note(text);
    }
    let layout = PromptLayout::of(&options.from, &trained.tokenizer)?;
    let prompts = match options.tokens.is_empty() {
        true => {
            texts.into_iter().map(|text| Prompt::new(&trained.tokenizer, &layout, text)).collect::<Result<_, _>>()?
        }
        false => vec![Prompt::of_tokens(&trained.tokenizer, options.tokens.clone())?],
    };
    let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    let generator = trained.generator(longest.saturating_add(options.max_tokens))?;
    for (prompt, sample) in prompts.iter().flat_map(|prompt| (0..options.samples).map(move |sample| (prompt, sample))) {
        let mut out = std::io::stdout();
        // Text is flushed as it is generated; a closed pipe ends it.
        let mut show = |text: &str| options.json || out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok();
        show(&prompt.shown);
        let sampling = Sampling { seed: seed.wrapping_add(sample), ..sampling };
        let request = GenerationOptions { sampling, max_tokens: options.max_tokens, stops: options.stop.clone() };
        let written = generator.generate_from_tokens(&trained.tokenizer, &prompt.tokens, &request, &mut show)?;
        if options.json {
            let line = json!({
                "prompt": prompt.text, "text": written.text, "tokens": written.tokens, "seed": sampling.seed,
                "prompt_tokens": written.prompt_tokens, "finish": written.finish.name(),
                "context_shifts": written.context_shifts,
            });
            print(&format!("{line}\n"))?;
        } else {
            show("\n");
        }
        if written.context_shifts > 0 {
            let context = trained.gpt.config().context;
            note(&format!(
                "the text exceeds the context of {context} tokens; the model saw at least the last {} tokens",
                (context / 2).max(1)
            ));
        }
        if written.finish == FinishReason::Cancelled {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A prompt.
struct Prompt {
    text: String,
    /// Text to display, with the answer marker.
    shown: String,
    tokens: Vec<u32>,
}

impl Prompt {
    /// Encodes a prompt; for runs of the demo, with the layout used in training.
    fn new(tokenizer: &Tokenizer, layout: &PromptLayout, text: String) -> Result<Prompt, Failure> {
        let (shown, tokens) = match layout.prompt(tokenizer, text.trim_end()) {
            Some(laid_out) => (format!("{text}{SEPARATOR}"), prompt_tokens(tokenizer, &laid_out)?),
            None => (text.clone(), prompt_tokens(tokenizer, &text)?),
        };
        Ok(Prompt { text, shown, tokens })
    }

    fn of_tokens(tokenizer: &Tokenizer, tokens: Vec<u32>) -> Result<Prompt, Failure> {
        if let Some(id) = tokens.iter().find(|id| tokenizer.token(**id).is_none()) {
            let what = format!("--tokens contains {id}, but the vocabulary has {} tokens", tokenizer.vocabulary());
            return Err(bornite_nn::Error::config(what).into());
        }
        let text = tokenizer.decode(&tokens);
        Ok(Prompt { shown: text.clone(), text, tokens })
    }
}

/// Reads one prompt per line.
fn read_lines(path: &Path) -> Result<Vec<String>, Failure> {
    Ok(text_file::read(path, MAX_PROMPTS_BYTES)?.lines().map(String::from).collect())
}
