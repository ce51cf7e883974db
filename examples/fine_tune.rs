//! Fine-tuning from code: reads a Hugging Face folder, trains on a text, writes a Hugging Face
//! folder. The commands are `bornite train --set model.from=FOLDER …` and `bornite model export`.
//!
//! `cargo run --release -p bornite-nn --example fine_tune FOLDER TEXT OUT [steps]`

use std::path::{Path, PathBuf};

use bornite::Device;
use bornite_nn::generate::GenerationOptions;
use bornite_nn::train::{Observer, RunConfig, TrainEvent, TrainedModel, run};

/// Prints notes, validation losses and saved checkpoints.
struct Printer;

impl Observer for Printer {
    fn on_event(&mut self, event: TrainEvent<'_>) {
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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, text, out, rest @ ..] = &arguments[..] else {
        return Err(
            "expected the model's folder, a text to train on and an output folder: FOLDER TEXT OUT [steps]".into()
        );
    };
    let (device, folder) = (Device::choose(None)?, Path::new(out));
    let mut config = RunConfig::default();
    config.set_text("model.from", from)?;
    config.data.path = Some(vec![PathBuf::from(text)]);
    let steps = rest.first().map_or("100", String::as_str);
    // A small learning rate, so that the model does not forget; the best checkpoint is kept in
    // addition to the last.
    for setting in [&format!("train.steps={steps}")[..], "schedule.lr=1e-3", "train.eval_every=20", "train.batch=4"] {
        config.set(setting)?;
    }
    let tuned = run(&config, &folder.join("run"), device, false, &mut Printer)?;

    let trained = TrainedModel::open(&tuned.folder, None, device)?;
    trained.export(folder.join("model"))?;
    println!("model after {} steps: {}", trained.step, folder.join("model").display());
    let options = GenerationOptions { max_tokens: 24, ..GenerationOptions::default() };
    let generated = trained.generator(32)?.generate(&trained.tokenizer, "", &options, &mut |_| true)?;
    println!("sample: {:?}", generated.text);
    Ok(())
}
