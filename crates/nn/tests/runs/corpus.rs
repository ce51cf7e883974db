//! A corpus, a folder and a small run for the tests.

use std::path::{Path, PathBuf};

use bornite::Device;
use bornite_nn::Result;
use bornite_nn::train::{Observer, RunConfig, RunSummary, TrainEvent, run};

use crate::random::Random;

/// A folder that is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file of sentences.
    pub fn corpus(&self, random: &mut Random, sentences: usize) -> PathBuf {
        let path = self.at("corpus.txt");
        std::fs::write(&path, sentences_of(random, sentences)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sentences of a few words: easy to learn, not all the same.
pub fn sentences_of(random: &mut Random, count: usize) -> String {
    let words = [["the copper", "a green", "our old"], ["ore", "vein", "mine"], ["glows", "sleeps", "ends"]];
    let mut text = String::new();
    for _ in 0..count {
        let picked: Vec<&str> = words.iter().map(|of| of[(random.bits() % 3) as usize]).collect();
        text += &format!("{}.\n", picked.join(" "));
    }
    text
}

/// Settings of a run that takes a second.
pub fn small(corpus: &Path, more: &[&str]) -> RunConfig {
    let mut config = RunConfig::default();
    config.data.path = Some(vec![corpus.into()]);
    let usual = [
        "model.layers=1",
        "model.width=32",
        "model.context=16",
        "train.batch=2",
        "train.eval_batches=2",
        "data.validation_fraction=0.1",
        "schedule.lr=3e-3",
    ];
    for text in usual.iter().chain(more) {
        config.set(text).unwrap();
    }
    config
}

/// Hears of everything, and stops a run after its n-th step from where it began: before what
/// follows that step.
#[derive(Default, Debug)]
pub struct Listener {
    pub stop_after: Option<u64>,
    begun: bool,
    made: u64,
    pub notes: Vec<String>,
    pub samples: Vec<String>,
    pub saved: Vec<u64>,
    pub steps: Vec<u64>,
}

impl Observer for Listener {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        match event {
            TrainEvent::Note(text) => self.notes.push(text.into()),
            TrainEvent::Sample { text, .. } => self.samples.push(text.into()),
            TrainEvent::Saved { step, .. } => self.saved.push(step),
            TrainEvent::Step(line) => self.steps.push(line.step),
            TrainEvent::Begin(_) => self.begun = true,
            TrainEvent::Data(_) | TrainEvent::BeginImages(_) | TrainEvent::Epoch(_) => {}
        }
    }

    fn should_stop(&self) -> bool {
        self.begun && self.stop_after.is_some_and(|steps| self.made >= steps)
    }

    fn on_unsaved_steps(&mut self, steps: u64) {
        self.made += u64::from(steps > 0);
    }
}

/// A run on the CPU.
pub fn go(config: &RunConfig, folder: &Path, resume: bool, stop_after: Option<u64>) -> Result<(RunSummary, Listener)> {
    let mut listener = Listener { stop_after, ..Listener::default() };
    let finished = run(config, folder, Device::cpu(), resume, &mut listener)?;
    Ok((finished, listener))
}
