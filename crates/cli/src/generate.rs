//! `bornite generate`: text from a run or a Hugging Face folder, as it is written.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_data::task::MARK;
use bornite_nn::generate::{Finish, Request, Sampling, prompt_tokens};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::train::Trained;
use serde_json::json;

use crate::demo::layout::Layout;
use crate::{Failure, chosen_device, note, print, text_file};

/// The longest file of prompts.
const MAX_PROMPTS_BYTES: u64 = 64 << 20;

/// Options of `bornite generate`.
#[derive(clap::Args)]
pub struct GenerateOptions {
    /// The folder of a run, or of a Hugging Face model
    #[arg(value_name = "RUN")]
    from: PathBuf,
    /// What the text starts with
    #[arg(long, value_name = "TEXT", conflicts_with = "prompts")]
    prompt: Option<String>,
    /// A file with a prompt a line; each is continued on its own
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// The prompt as token ids, separated by commas
    #[arg(long, value_name = "ID,…", value_delimiter = ',', conflicts_with_all = ["prompt", "prompts"])]
    tokens: Vec<u32>,
    /// Texts for each prompt; text n, counted from 0, is that of seed + n
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    samples: u64,
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

pub fn run(options: &GenerateOptions) -> Result<ExitCode, Failure> {
    let GenerateOptions { temperature, top_k, top_p, seed, .. } = *options;
    let sampling = Sampling { temperature, top_k, top_p, seed };
    sampling.check()?;
    let texts = match &options.prompts {
        Some(path) => read_lines(path)?,
        None => vec![options.prompt.clone().unwrap_or_default()],
    };
    let trained = Trained::open(&options.from, options.tokenizer.as_deref(), chosen_device(&options.device)?)?;
    if let Some(text) = &trained.note {
        note(text);
    }
    let layout = Layout::of(&options.from, &trained.tokenizer)?;
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
        // What has been written is seen at once; a reader that went away ends it.
        let mut show = |text: &str| options.json || out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok();
        show(&prompt.shown);
        let sampling = Sampling { seed: seed.wrapping_add(sample), ..sampling };
        let request = Request { sampling, max_tokens: options.max_tokens, stops: options.stop.clone() };
        let written = generator.write_after(&trained.tokenizer, &prompt.tokens, &request, &mut show)?;
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
                "the text is longer than the context of {context} tokens: the model saw at least the last {} of it",
                (context / 2).max(1)
            ));
        }
        if written.finish == Finish::Reader {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A prompt as it is asked, shown and read.
struct Prompt {
    text: String,
    /// The text with what marks the answer.
    shown: String,
    tokens: Vec<u32>,
}

impl Prompt {
    /// A run of the demo answers a source, which is laid out as it was in training.
    fn new(tokenizer: &Tokenizer, layout: &Layout, text: String) -> Result<Prompt, Failure> {
        let (shown, tokens) = match layout.prompt(tokenizer, text.trim_end()) {
            Some(laid_out) => (format!("{text}{MARK}"), prompt_tokens(tokenizer, &laid_out)?),
            None => (text.clone(), prompt_tokens(tokenizer, &text)?),
        };
        Ok(Prompt { text, shown, tokens })
    }

    fn of_tokens(tokenizer: &Tokenizer, tokens: Vec<u32>) -> Result<Prompt, Failure> {
        if let Some(id) = tokens.iter().find(|id| tokenizer.token(**id).is_none()) {
            let what = format!("--tokens has {id}, but the tokenizer has {} tokens, from 0", tokenizer.vocabulary());
            return Err(bornite_nn::Error::config(what).into());
        }
        let text = tokenizer.decode(&tokens);
        Ok(Prompt { shown: text.clone(), text, tokens })
    }
}

/// The lines of a file, one prompt each.
fn read_lines(path: &Path) -> Result<Vec<String>, Failure> {
    Ok(text_file::read(path, MAX_PROMPTS_BYTES)?.lines().map(String::from).collect())
}
