//! `bornite generate`: text from a run or a Hugging Face folder, as it is written.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use bornite_data::task::MARK;
use bornite_nn::generate::{Finish, Request, Sampling};
use bornite_nn::train::Trained;
use serde_json::json;

use crate::demo::layout::Layout;
use crate::{Failure, chosen_device, note, print};

/// Options of `bornite generate`.
#[derive(clap::Args)]
pub struct Options {
    /// The folder of a run, or of a Hugging Face model
    #[arg(value_name = "RUN")]
    from: PathBuf,
    /// What the text starts with
    #[arg(long, value_name = "TEXT", conflicts_with = "prompts")]
    prompt: Option<String>,
    /// A file with a prompt a line; each is continued on its own
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Most tokens to write
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: usize,
    /// What scores are divided by: 0 takes the likeliest token always
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8)]
    temperature: f64,
    /// Choose among so many of the likeliest tokens; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    top_k: usize,
    /// Choose among the likeliest tokens whose probabilities add up to this
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    top_p: f64,
    /// What fixes the choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// End before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Another tokenizer than the folder's: bytes, gpt2 or the path of a tokenizer.json
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Write a line of JSON a prompt to stdout, when it is done
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let Options { temperature, top_k, top_p, seed, .. } = *options;
    let sampling = Sampling { temperature, top_k, top_p, seed };
    sampling.check()?;
    let request = Request { sampling, max_tokens: options.max_tokens, stops: options.stop.clone() };
    let prompts = match &options.prompts {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            text.lines().map(String::from).collect()
        }
        None => vec![options.prompt.clone().unwrap_or_default()],
    };
    let trained = Trained::open(&options.from, options.tokenizer.as_deref(), chosen_device(&options.device)?)?;
    if let Some(text) = &trained.note {
        note(text);
    }
    let generator = trained.generator()?;
    let layout = Layout::of(&options.from, &trained.tokenizer)?;
    for prompt in prompts {
        let mut out = std::io::stdout();
        // What has been written is seen at once; a reader that went away ends it.
        let mut show = |text: &str| options.json || out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok();
        // A run of the demo answers a source, which is laid out as it was in training.
        let laid_out = layout.prompt(&trained.tokenizer, prompt.trim_end());
        show(&prompt);
        if laid_out.is_some() {
            show(MARK);
        }
        let asked = laid_out.as_deref().unwrap_or(&prompt);
        let written = generator.write(&trained.tokenizer, asked, &request, &mut show)?;
        if options.json {
            let line = json!({
                "prompt": prompt, "text": written.text, "tokens": written.tokens,
                "prompt_tokens": written.prompt_tokens, "finish": written.finish.name(),
            });
            print(&format!("{line}\n"))?;
        } else {
            show("\n");
        }
        match written.finish {
            Finish::Context => note(&format!(
                "stopped after {} tokens: the model looks at no more than {}",
                written.tokens.len(),
                trained.gpt.config().context
            )),
            Finish::Reader => break,
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}
