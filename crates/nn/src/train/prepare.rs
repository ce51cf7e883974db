//! What stands before a run's first step: settings made whole, a checkpoint to go on from, tokenizer, model, data, learner.
//!
//! In this order, so that a mistake costs no time and no memory: settings, files, sizes, then work.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::time::Instant;

use bornite::{Device, Tensor};
use bornite_support::Machine;
use bornite_support::tune::Tuner;

use super::config::RunConfig;
use super::estimate::{Load, available, flops_a_token, parameters, peak_flops, size};
use super::folder::{
    CHECKPOINTS, CONFIG, MOMENTS, SAMPLES, State, TOKENIZER, Trained, check_tokenizer, claim, named_tokenizer,
    own_tokenizer,
};
use super::learner::{Learner, Learning};
use super::metrics::Metrics;
use super::precision::Precision;
use super::run::{Beginning, Event, Observer, Run};
use crate::checkpoint::{Checkpoint, Keep, Store, load_latest};
use crate::data::{Dataset, Plan, Progress, Source, Watch, train_tokenizer_watched};
use crate::model::{Gpt, GptConfig};
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result, files};

/// Makes everything ready, up to the first step.
pub(super) fn prepare(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    observer: &mut dyn Observer,
) -> Result<Run> {
    let (mut config, store, saved) = begin(config, folder, device, resume, observer)?;
    let state = saved.as_ref().map(|(_, state)| state);
    let sources = sources_of(&config)?;
    let from = match (state, &config.model.from) {
        (None, Some(from)) => Some(Trained::open(from, config.data.tokenizer.as_deref(), device)?),
        _ => None,
    };
    let tokenizer = tokenizer(&config, folder, state, from.as_ref(), &sources, observer)?;
    let model = model(&config, state, from.as_ref(), &tokenizer)?;
    config.set_gpt(&model);
    let load = load(&mut config, &model, device)?;
    let Load { batch, context, accumulate, precision, rule, checkpointing, .. } = load;
    let seed = config.train.seed.unwrap_or(0);

    let (training, validation) = data(&config, folder, &sources, &tokenizer, context, observer)?;
    let mut batches = training.batches(&Plan { batch, context, seed, ..Plan::default() })?;

    let clip = config.optimiser.clip.filter(|clip| *clip > 0.0);
    let decay = config.optimiser.decay.unwrap_or(0.0);
    let learning = Learning { rule, decay, clip, precision, accumulate, seed };
    let gpt = Gpt::new(model.clone())?.recomputing(checkpointing);
    let arena = gpt.parameters().arena(seed, device)?;
    if let Some(from) = from {
        let named: Vec<(&str, &Tensor)> = from.parameters.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
        arena.load(&named)?;
    }
    let mut learner = Learner::with(gpt, learning, arena)?;
    if let Some((checkpoint, state)) = &saved {
        let none = Default::default();
        let moments = checkpoint.groups.get(MOMENTS).unwrap_or(&none);
        learner.restore([&checkpoint.weights, moments], checkpoint.step, state.scale)?;
        state.cursor.map(|cursor| batches.seek(cursor)).transpose()?;
    }
    cut_samples(&folder.join(SAMPLES), saved.as_ref().map_or(Some(0), |(_, state)| state.samples))?;
    files::replace(&folder.join(CONFIG), config.text()?.as_bytes())?;
    write_environment(folder, device)?;
    let step = learner.steps();
    let beginning = Beginning {
        step,
        steps: config.train.steps.unwrap_or(0),
        parameters: parameters(&model) as u64,
        tokens: training.len(),
        validation_tokens: validation.as_ref().map_or(0, Dataset::len),
        tokens_a_step: batch.saturating_mul(context).saturating_mul(accumulate) as u64,
        precision,
        flops_a_token: flops_a_token(&model, context),
        peak_flops: peak_flops(device, precision),
        needs_bytes: load.memory().total() as u64,
        saved_bytes: checkpointing.then(|| load.saved() as u64),
    };
    if checkpointing {
        let whole = Load { checkpointing: false, ..load.clone() }.memory().total();
        let (saved, whole) = (size(load.saved()), size(whole));
        let what = format!("--checkpointing saves about {saved} of at least {whole}; steps take about a third longer");
        observer.tell(Event::Note(&what));
    }
    observer.tell(Event::Begin(&beginning));
    let (unapplied, seconds, pending) =
        saved.as_ref().map_or((None, 0.0, None), |(_, state)| (state.unapplied, state.seconds, state.pending));
    Ok(Run {
        rates: config.rates(),
        // The numbers of an interrupted step are written anew.
        metrics: Metrics::open(folder, step - u64::from(pending.is_some()).min(step))?,
        folder: folder.into(),
        tokens_a_step: beginning.tokens_a_step,
        config,
        device,
        learner,
        tokenizer,
        batches,
        validation,
        store,
        shape: [batch, context],
        late: None,
        unapplied,
        seconds,
        saved_at: saved.is_some().then_some(step),
        last: None,
        pending,
        generator: None,
    })
}

/// Settings, made whole, the folder to save to, and the checkpoint to go on from.
fn begin(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    observer: &mut dyn Observer,
) -> Result<(RunConfig, Store, Option<(Checkpoint, State)>)> {
    let asked = config.absolute()?;
    let mut config = asked.resolved()?;
    let checkpoints = folder.join(CHECKPOINTS);
    if !resume || !checkpoints.is_dir() {
        sources_of(&config)?;
        claim(folder)?;
    }
    let store = Store::open(&checkpoints, Keep { last: config.train.keep.unwrap_or(1), best: true })?;
    let tuner = Tuner::of_process().map_err(bornite::Error::from)?;
    // What is known at a run's beginning holds to its end, and goes into every checkpoint: also what is needed late.
    let begin = || tuner.pin(tuner.store().records());
    if !resume {
        begin();
        return Ok((config, store, None));
    }
    let loaded = match load_latest(&checkpoints, device, true) {
        Err(Error { kind: ErrorKind::NoCheckpoint { .. }, .. }) => {
            observer.tell(Event::Note("there is no checkpoint to resume from: the run starts at its beginning"));
            begin();
            return Ok((config, store, None));
        }
        loaded => loaded?,
    };
    loaded.note.iter().for_each(|note| observer.tell(Event::Note(note)));
    let state: State = loaded.checkpoint.state_as()?;
    if state.cursor.is_none() {
        let what = "holds a model that was imported, not a run; train from it with --set model.from=FOLDER";
        return Err(Error::file(folder, what));
    }
    // A release before this one may have written fewer settings.
    let mut begun = state.config.resolved()?;
    begun.set_gpt(&state.model);
    config = begun.clone();
    config.merge(&asked)?;
    config.check_resumed(&begun)?;
    if config.train.steps != begun.train.steps {
        observer.tell(Event::Note("train.steps is another number than before, so learning rates are others too"));
    }
    // Before anything is compiled: choices decide bits.
    tuner.pin(state.tuning.iter().cloned());
    Ok((config, store, Some((loaded.checkpoint, state))))
}

/// Sources that are there.
fn sources_of(config: &RunConfig) -> Result<Vec<Source>> {
    let sources = config.sources()?;
    for source in &sources {
        fs::metadata(&source.path).map_err(Error::io("open", &source.path))?;
    }
    Ok(sources)
}

/// The run's own tokenizer; at its beginning that of the model it starts from, one by name, or one learned from the data.
fn tokenizer(
    config: &RunConfig,
    folder: &Path,
    state: Option<&State>,
    from: Option<&Trained>,
    sources: &[Source],
    observer: &mut dyn Observer,
) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    if let Some(state) = state {
        let tokenizer = own_tokenizer(folder)?;
        if tokenizer.fingerprint() != state.tokenizer {
            return Err(Error::file(&path, "is not the tokenizer that the checkpoint was trained with"));
        }
        return Ok(tokenizer);
    }
    let name = config.data.tokenizer.as_deref().unwrap_or("bytes");
    let json = match (from, name.strip_prefix("bpe:")) {
        (Some(from), _) => from.tokenizer.to_json(),
        (None, None) => named_tokenizer(name)?.to_json(),
        (None, Some(count)) => {
            let Ok(count) = count.parse() else {
                let what = format!("data.tokenizer is '{name}'; write bpe:4096 for a vocabulary of 4096 tokens");
                return Err(Error::config(what));
            };
            train_tokenizer_watched(sources, count, &Teller::new(observer))?.to_json()
        }
    };
    // What is read back is what a resumed run has.
    files::replace(&path, json.as_bytes())?;
    Tokenizer::read(&path)
}

/// Reports work on data to an observer, often enough to be seen moving.
struct Teller<'a> {
    observer: RefCell<&'a mut dyn Observer>,
    told: Cell<Instant>,
}

impl<'a> Teller<'a> {
    fn new(observer: &'a mut dyn Observer) -> Teller<'a> {
        Teller { observer: RefCell::new(observer), told: Cell::new(Instant::now()) }
    }
}

impl Watch for Teller<'_> {
    fn progress(&self, progress: Progress) {
        if self.told.get().elapsed().as_millis() > 200 {
            self.told.set(Instant::now());
            self.observer.borrow_mut().tell(Event::Data(progress));
        }
    }

    fn stop(&self) -> bool {
        self.observer.borrow().stop()
    }
}

/// The model: the checkpoint's, that of the one to start from, or the one that is asked for.
fn model(
    config: &RunConfig,
    state: Option<&State>,
    from: Option<&Trained>,
    tokenizer: &Tokenizer,
) -> Result<GptConfig> {
    let model = match (state, from) {
        (Some(state), _) => state.model.clone(),
        (None, Some(from)) => {
            let mut model = from.gpt.config().clone();
            model.dropout = config.model.dropout.unwrap_or(model.dropout);
            config.check_from(&model)?;
            model
        }
        (None, None) => config.gpt(tokenizer.vocabulary())?,
    };
    model.check()?;
    check_tokenizer(tokenizer, &model)?;
    Ok(model)
}

/// What a step costs, if it fits into memory. Settings that follow from model and device are made whole.
fn load(config: &mut RunConfig, model: &GptConfig, device: Device) -> Result<Load> {
    let rule = config.rule()?;
    let train = &mut config.train;
    let context = *train.context.get_or_insert(model.context);
    if context > model.context {
        return Err(Error::config(format!(
            "train.context is {context}, but the model looks at {} tokens; lower it or set model.context",
            model.context
        )));
    }
    let usual = if matches!(device, Device::Cuda(_)) { Precision::Bf16 } else { Precision::F32 };
    let load = Load {
        model: model.clone(),
        batch: train.batch.unwrap_or(1),
        context,
        accumulate: train.accumulate.unwrap_or(1),
        precision: *train.precision.get_or_insert(usual),
        rule,
        checkpointing: train.checkpointing.unwrap_or(false),
        device,
    };
    if let Some(available) = available(device) {
        load.check(available, &device.to_string())?;
    }
    Ok(load)
}

/// Tokens to train on, and those to judge by, if they are enough for a window.
fn data(
    config: &RunConfig,
    folder: &Path,
    sources: &[Source],
    tokenizer: &Tokenizer,
    context: usize,
    observer: &mut dyn Observer,
) -> Result<(Dataset, Option<Dataset>)> {
    let cache = config.data.cache.clone().unwrap_or_else(|| folder.join("data"));
    let data = Dataset::open_watched(sources, tokenizer, &cache, &Teller::new(observer))?;
    let (training, validation) = data.split(config.data.validation.unwrap_or(0.0))?;
    if validation.len() > context as u64 {
        return Ok((training, Some(validation)));
    }
    if !validation.is_empty() {
        observer.tell(Event::Note(&format!(
            "the validation part has {} tokens, too few for a window of {context}: nothing is evaluated, and it is \
             trained on",
            validation.len()
        )));
    }
    Ok((data, None))
}

/// Removes the texts of steps that are made again: what is longer than the checkpoint knew it.
fn cut_samples(path: &Path, known: Option<u64>) -> Result<()> {
    let (Some(known), Ok(found)) = (known, fs::symlink_metadata(path)) else { return Ok(()) };
    if found.is_file() && found.len() <= known {
        return Ok(());
    }
    files::append(path)?.set_len(known).map_err(Error::io("write", path))
}

fn write_environment(folder: &Path, device: Device) -> Result<()> {
    let gpu = match device {
        Device::Cuda(ordinal) => bornite_cuda::DeviceInfo::of(ordinal).ok(),
        _ => None,
    };
    let machine = Machine::detect(gpu.iter().map(|gpu| gpu.name.clone()).collect());
    let settings: serde_json::Map<String, serde_json::Value> = std::env::vars()
        .filter(|(name, _)| name.starts_with("BORNITE_"))
        .map(|(name, value)| (name, value.into()))
        .collect();
    let json = serde_json::json!({
        "device": device.to_string(), "gpu": gpu, "machine": machine, "settings": settings, "process": std::process::id(),
    });
    files::replace(&folder.join("environment.json"), format!("{json:#}\n").as_bytes())
}
