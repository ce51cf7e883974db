//! Fine-tuning from code: a Hugging Face folder in, some steps on a text, a Hugging Face folder out. By command it is
//! `bornite train --set model.from=FOLDER …` and `bornite model export`.
//!
//! `cargo run --release -p bornite-nn --example fine_tune FOLDER TEXT OUT [steps]`

use std::path::{Path, PathBuf};

use bornite::Device;
use bornite_nn::generate::GenerationOptions;
use bornite_nn::train::{Observer, RunConfig, TrainEvent, TrainedModel, run};

/// Shows notes, losses on validation data and what is saved.
struct Printer;

impl Observer for Printer {
    fn tell(&mut self, event: TrainEvent<'_>) {
        match event {
            TrainEvent::Note(text) => println!("{text}"),
            TrainEvent::Step(line) => {
                if let Some(loss) = line.validation_loss {
                    println!("step {:>4}  validation loss {loss:.4}", line.step);
                }
            }
            TrainEvent::Saved { path, .. } => println!("saved {}", path.display()),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [from, text, out, rest @ ..] = &given[..] else {
        return Err(
            "say where the model is, which text to train on, and where to write: FOLDER TEXT OUT [steps]".into()
        );
    };
    let (device, folder) = (Device::choose(None)?, Path::new(out));
    let mut config = RunConfig::default();
    config.set_text("model.from", from)?;
    config.data.path = Some(vec![PathBuf::from(text)]);
    let steps = rest.first().map_or("100", String::as_str);
    // Small rates, or what it knew is lost; the best on validation data is kept beside the last.
    for setting in [&format!("train.steps={steps}")[..], "rate.highest=1e-3", "train.eval_every=20", "train.batch=4"] {
        config.set(setting)?;
    }
    let tuned = run(&config, &folder.join("run"), device, false, &mut Printer)?;

    let trained = TrainedModel::open(&tuned.folder, None, device)?;
    trained.export(folder.join("model"))?;
    println!("a model of {} steps is in {}", trained.step, folder.join("model").display());
    let request = GenerationOptions { max_tokens: 24, ..GenerationOptions::default() };
    let written = trained.generator(32)?.write(&trained.tokenizer, "", &request, &mut |_| true)?;
    println!("it writes: {:?}", written.text);
    Ok(())
}
