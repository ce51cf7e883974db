//! Preparation of a run: resolved settings, the checkpoint to resume from, tokenizer, model, data
//! and optimizer.
//!
//! Cheap checks come first (settings, files, sizes), so that a mistake costs neither time nor
//! memory. `run.rs` is the loop.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::time::Instant;

use bornite::{Device, Tensor};
use bornite_support::Machine;
use bornite_support::tune::{Tuner, TuningRecord};

use super::builder::{AnyOptimizer, OptimizerProgress};
use super::config::RunConfig;
use super::data_parallel::DataParallel;
use super::folder::{
    CHECKPOINTS, CONFIG, MOMENTS, SAMPLES, State, TOKENIZER, TrainedModel, check_text_run, check_tokenizer,
    claim_run_folder, named_tokenizer, rename_retired_tensors, run_tokenizer,
};
use super::metrics::Metrics;
use super::observer::{Observer, RunInfo, TrainEvent};
use super::precision::Precision;
use super::run::{Run, RunFiles};
use super::workload::{Workload, available_bytes, flops_per_token, format_bytes, parameter_count, peak_flops};
use crate::checkpoint::{Checkpoint, CheckpointStore, Keep, load_latest};
use crate::data::{BatchOptions, DataObserver, DataProgress, DataSource, TokenDataset, train_tokenizer_with_observer};
use crate::inputs::LossInputs;
use crate::model::{Gpt, GptConfig};
use crate::parameters::Params;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result, files};

/// Prepares a run up to its first step.
pub(super) fn prepare(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    ranks: Option<&DataParallel>,
    observer: &mut dyn Observer,
) -> Result<Run> {
    let mut inputs = || prepare_inputs(config, folder, device, resume, ranks, observer);
    let inputs = match ranks {
        None => inputs()?,
        // The files that rank 0 writes are read by the others.
        Some(ranks) if ranks.rank() == 0 => {
            let inputs = ranks.long_work(inputs)?;
            ranks.long_work(|| Ok(()))?;
            inputs
        }
        Some(ranks) => {
            ranks.long_work(|| Ok(()))?;
            ranks.long_work(inputs)?
        }
    };
    let Inputs { config, store, resumed, from, tokenizer, model, workload, training, validation } = inputs;
    let Workload { batch, context, accumulate, precision, optimizer, activation_checkpointing, .. } = workload;
    let seed = config.train.seed.unwrap_or(0);
    let ranks = match ranks {
        Some(ranks) => {
            let start = starting_state(&config, resumed.as_ref(), &training, validation.as_ref())?;
            check_equal_start(ranks, &start)?;
            share_tuned_choices(ranks)?;
            Some(ranks.clone().shard_optimizer(config.train.shard_optimizer.unwrap_or(false)))
        }
        None => None,
    };
    let (rank, size) = ranks.as_ref().map_or((0, 1), |ranks| (ranks.rank(), ranks.size()));
    let batches = training.batches(&BatchOptions { batch, context, seed, ..BatchOptions::default() })?;
    let mut batches = batches.of_rank(rank, size);

    let clip_norm = config.optimizer.clip_norm.filter(|clip_norm| *clip_norm > 0.0);
    let weight_decay = config.optimizer.weight_decay.unwrap_or(0.0);
    let params = Params::new(device, seed);
    let gpt = Gpt::new(&params, model.clone())?.activation_checkpointing(activation_checkpointing);
    let optimizer = AnyOptimizer::of_kind(&params, optimizer).weight_decay(weight_decay);
    let optimizer = optimizer.precision(precision).accumulate(accumulate);
    let optimizer = match &ranks {
        Some(ranks) => optimizer.data_parallel(ranks),
        None => optimizer,
    };
    let optimizer = match clip_norm {
        Some(clip_norm) => optimizer.clip_norm(clip_norm),
        None => optimizer,
    };
    if let Some(from) = from {
        params.load_tensors(&from.gpt.params().tensors()?)?;
    }
    if let Some((checkpoint, state)) = &resumed {
        let none = Default::default();
        let moments = checkpoint.groups.get(MOMENTS).unwrap_or(&none);
        params.load_tensors(&checkpoint.weights)?;
        let progress = OptimizerProgress { steps: checkpoint.step, loss_scale: state.loss_scale, accumulated: 0 };
        optimizer.restore(moments, progress)?;
        state.data_cursor.map(|cursor| batches.seek(cursor)).transpose()?;
    }
    // Allocates parameters and optimizer state before anything is written.
    optimizer.weights()?;
    if store.is_some() {
        truncate_samples(&folder.join(SAMPLES), resumed.as_ref().map_or(Some(0), |(_, state)| state.samples_bytes))?;
        files::replace(&folder.join(CONFIG), config.text()?.as_bytes())?;
        write_environment(folder, device)?;
    }
    let step = optimizer.steps();
    let info = RunInfo {
        step,
        steps: config.train.steps.unwrap_or(0),
        parameters: parameter_count(&model) as u64,
        tokens: training.len(),
        validation_tokens: validation.as_ref().map_or(0, TokenDataset::len),
        tokens_per_step: batch.saturating_mul(context).saturating_mul(accumulate).saturating_mul(size) as u64,
        precision,
        flops_per_token: flops_per_token(&model, context),
        peak_flops: peak_flops(device, precision).map(|of_device| of_device * size as f64),
        required_bytes: workload.memory().total() as u64,
        checkpointing_saved_bytes: activation_checkpointing.then(|| workload.checkpointing_saved_bytes() as u64),
    };
    if activation_checkpointing {
        let without = Workload { activation_checkpointing: false, ..workload.clone() }.memory().total();
        let (saved, without) = (format_bytes(workload.checkpointing_saved_bytes()), format_bytes(without));
        let note = format!(
            "activation checkpointing saves about {saved} of at least {without}; steps take about a third longer"
        );
        observer.on_event(TrainEvent::Note(&note));
    }
    observer.on_event(TrainEvent::Begin(&info));
    let (pending_scale_update, elapsed_seconds, pending_metrics) =
        resumed.as_ref().map_or((None, 0.0, None), |(_, state)| {
            (state.pending_scale_update, state.elapsed_seconds, state.pending_metrics)
        });
    // The metrics of an interrupted step are written again.
    let written_step = step - u64::from(pending_metrics.is_some()).min(step);
    let files = match store {
        Some(store) => Some(RunFiles { store, metrics: Metrics::open(folder, written_step)? }),
        None => None,
    };
    Ok(Run {
        schedule: config.lr_schedule(),
        skipped: files.as_ref().map_or(0, |files| files.metrics.skipped()),
        files,
        ranks,
        folder: folder.into(),
        tokens_per_step: info.tokens_per_step,
        config,
        device,
        train_step: optimizer.compile({
            let gpt = gpt.clone();
            move |batch: &[Tensor]| match LossInputs::from_list(batch) {
                Ok(LossInputs { tokens, targets }) => gpt.loss(tokens, targets),
                Err(error) => error.into(),
            }
        }),
        gpt,
        optimizer,
        tokenizer,
        batches,
        validation,
        shape: [batch, context],
        unread: None,
        gpu_timer: Default::default(),
        pending_scale_update,
        elapsed_seconds,
        saved_step: resumed.is_some().then_some(step),
        last_metrics: None,
        pending_metrics,
        generator: None,
    })
}

/// Settings, data and checkpoint that a run starts from.
struct Inputs {
    config: RunConfig,
    /// `None` on other ranks than 0.
    store: Option<CheckpointStore>,
    /// The checkpoint to resume from.
    resumed: Option<(Checkpoint, State)>,
    /// The model to fine-tune.
    from: Option<TrainedModel>,
    tokenizer: Tokenizer,
    model: GptConfig,
    /// Of this rank.
    workload: Workload,
    training: TokenDataset,
    validation: Option<TokenDataset>,
}

/// Reads the inputs of a run; rank 0 writes tokenizer and tokens.
fn prepare_inputs(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    ranks: Option<&DataParallel>,
    observer: &mut dyn Observer,
) -> Result<Inputs> {
    let writes = ranks.is_none_or(|ranks| ranks.rank() == 0);
    let (mut config, store, resumed) = start_or_resume(config, folder, device, resume, writes, observer)?;
    let state = resumed.as_ref().map(|(_, state)| state);
    let sources = existing_sources(&config)?;
    let from = match (state, &config.model.from) {
        (None, Some(from)) => Some(TrainedModel::open(from, config.data.tokenizer.as_deref(), device)?),
        _ => None,
    };
    let tokenizer = match writes {
        true => tokenizer(&config, folder, state, from.as_ref(), &sources, observer)?,
        false => run_tokenizer(folder)?,
    };
    let model = model(&config, state, from.as_ref(), &tokenizer)?;
    config.set_gpt(&model);
    let workload = workload(&mut config, &model, device, ranks)?;
    let (training, validation) = data(&config, folder, &sources, &tokenizer, workload.context, observer)?;
    Ok(Inputs { config, store, resumed, from, tokenizer, model, workload, training, validation })
}

/// State that all ranks must start from, one property per line: settings, checkpoint and data.
fn starting_state(
    config: &RunConfig,
    resumed: Option<&(Checkpoint, State)>,
    training: &TokenDataset,
    validation: Option<&TokenDataset>,
) -> Result<String> {
    let checkpoint = resumed.map_or("none".into(), |(checkpoint, _)| format!("step {}", checkpoint.step));
    let data = |data: &TokenDataset| format!("{} tokens, fingerprint {:016x}", data.len(), data.fingerprint());
    let validation = validation.map_or("none".into(), data);
    let text = config.text()?;
    let mut section = String::new();
    let mut lines = vec![];
    for line in text.lines() {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => section = format!("{name}."),
            None => lines.push(format!("{section}{line}")),
        }
    }
    lines.push(format!("checkpoint: {checkpoint}"));
    lines.push(format!("training data: {}", data(training)));
    lines.push(format!("validation data: {validation}"));
    Ok(lines.join("\n"))
}

/// Checks that this rank starts as rank 0 does.
fn check_equal_start(ranks: &DataParallel, own: &str) -> Result<()> {
    let first = ranks.broadcast_text(own)?;
    let missing = |from: &str, other: &str| {
        from.lines().find(|line| !other.lines().any(|known| known == *line)).unwrap_or("nothing else").to_string()
    };
    match own == first {
        true => Ok(()),
        false => Err(Error::config(format!(
            "rank {} starts with '{}', rank 0 with '{}'; all ranks need the same settings, data and run folder",
            ranks.rank(),
            missing(own, &first),
            missing(&first, own)
        ))),
    }
}

/// Gives all ranks the tuned choices of rank 0, so that they run the same kernels.
fn share_tuned_choices(ranks: &DataParallel) -> Result<()> {
    let tuner = Tuner::global().map_err(bornite::Error::from)?;
    let records = serde_json::to_string(&tuner.known_records()).unwrap_or_default();
    let records = ranks.broadcast_text(&records)?;
    if ranks.rank() > 0 {
        let records = serde_json::from_str::<Vec<TuningRecord>>(&records);
        tuner.replace_pins(records.map_err(|error| Error::config(format!("tuned choices of rank 0: {error}")))?);
    }
    Ok(())
}

/// Returns the resolved settings, the checkpoint store if this rank writes files, and the
/// checkpoint to resume from.
fn start_or_resume(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    writes: bool,
    observer: &mut dyn Observer,
) -> Result<(RunConfig, Option<CheckpointStore>, Option<(Checkpoint, State)>)> {
    let requested = config.absolute()?;
    let mut config = requested.resolved()?;
    let checkpoints = folder.join(CHECKPOINTS);
    if writes && (!resume || !checkpoints.is_dir()) {
        existing_sources(&config)?;
        claim_run_folder(folder)?;
    }
    let keep = Keep { last: config.train.keep_checkpoints.unwrap_or(1), best: true };
    let store = writes.then(|| CheckpointStore::open(&checkpoints, keep)).transpose()?;
    let tuner = Tuner::global().map_err(bornite::Error::from)?;
    // Tuned choices stay fixed for the whole run and are part of every checkpoint, also those that
    // are needed late.
    let pin_choices = || tuner.pin(tuner.store().records());
    if !resume {
        pin_choices();
        return Ok((config, store, None));
    }
    let mut loaded = match load_latest(&checkpoints, device, true) {
        Err(Error { kind: ErrorKind::NoCheckpoint { .. }, .. }) => {
            observer.on_event(TrainEvent::Note("no checkpoint to resume from; starting at step 1"));
            pin_choices();
            return Ok((config, store, None));
        }
        loaded => loaded?,
    };
    loaded.note.iter().for_each(|note| observer.on_event(TrainEvent::Note(note)));
    rename_retired_tensors(&mut loaded.checkpoint);
    check_text_run(folder, &loaded.checkpoint)?;
    let state: State = loaded.checkpoint.state_as()?;
    if state.data_cursor.is_none() {
        let what = "contains an imported model, not a training run; start from it with --set model.from=FOLDER";
        return Err(Error::file(folder, what));
    }
    // An earlier release may have written fewer settings.
    let mut saved = state.config.resolved()?;
    saved.set_gpt(&state.model);
    config = saved.clone();
    config.merge(&requested)?;
    config.check_resumed(&saved)?;
    if config.train.steps != saved.train.steps {
        observer.on_event(TrainEvent::Note("train.steps changed, and the learning-rate schedule with it"));
    }
    // Before anything is compiled: the choices affect rounding.
    tuner.pin(state.tuning.iter().cloned());
    Ok((config, store, Some((loaded.checkpoint, state))))
}

/// Returns the data sources; a missing path is an error.
fn existing_sources(config: &RunConfig) -> Result<Vec<DataSource>> {
    let sources = config.sources()?;
    for source in &sources {
        fs::metadata(&source.path).map_err(Error::io("open", &source.path))?;
    }
    Ok(sources)
}

/// Returns the run's tokenizer. A new run takes that of `model.from`, a named one, or trains one on
/// the data.
fn tokenizer(
    config: &RunConfig,
    folder: &Path,
    state: Option<&State>,
    from: Option<&TrainedModel>,
    sources: &[DataSource],
    observer: &mut dyn Observer,
) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    if let Some(state) = state {
        let tokenizer = run_tokenizer(folder)?;
        if tokenizer.fingerprint() != state.tokenizer_fingerprint {
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
                let what = format!("data.tokenizer is '{name}'; write bpe:N with a vocabulary size, such as bpe:4096");
                return Err(Error::config(what));
            };
            train_tokenizer_with_observer(sources, count, &DataReporter::new(observer))?.to_json()
        }
    };
    // Read back, as a resumed run does.
    files::replace(&path, json.as_bytes())?;
    Tokenizer::read(&path)
}

/// Forwards data progress to an [`Observer`] a few times per second.
struct DataReporter<'a> {
    observer: RefCell<&'a mut dyn Observer>,
    last_report: Cell<Instant>,
}

impl<'a> DataReporter<'a> {
    fn new(observer: &'a mut dyn Observer) -> DataReporter<'a> {
        DataReporter { observer: RefCell::new(observer), last_report: Cell::new(Instant::now()) }
    }
}

impl DataObserver for DataReporter<'_> {
    fn on_progress(&self, progress: DataProgress) {
        if self.last_report.get().elapsed().as_millis() > 200 {
            self.last_report.set(Instant::now());
            self.observer.borrow_mut().on_event(TrainEvent::Data(progress));
        }
    }

    fn should_stop(&self) -> bool {
        self.observer.borrow().should_stop()
    }
}

/// Returns the model of the checkpoint, of `model.from`, or of the settings.
fn model(
    config: &RunConfig,
    state: Option<&State>,
    from: Option<&TrainedModel>,
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

/// Returns the workload of a step, which must fit into memory, and fills in settings that depend on
/// model and device.
fn workload(
    config: &mut RunConfig,
    model: &GptConfig,
    device: Device,
    ranks: Option<&DataParallel>,
) -> Result<Workload> {
    let optimizer = config.optimizer_kind()?;
    let train = &mut config.train;
    let context = *train.context.get_or_insert(model.context);
    if context > model.context {
        return Err(Error::config(format!(
            "train.context is {context}, but model.context is {}; lower train.context or raise model.context",
            model.context
        )));
    }
    let default = if device.is_cuda() { Precision::Bf16 } else { Precision::F32 };
    let (batch, accumulate) = (train.batch.unwrap_or(1), train.accumulate.unwrap_or(1));
    let (batch, accumulate) = ranks.map_or(Ok((batch, accumulate)), |ranks| ranks.share(batch, accumulate))?;
    let workload = Workload {
        model: model.clone(),
        batch,
        context,
        accumulate,
        ranks: ranks.map_or(1, DataParallel::size),
        shard_optimizer: train.shard_optimizer.unwrap_or(false),
        precision: *train.precision.get_or_insert(default),
        optimizer,
        activation_checkpointing: train.activation_checkpointing.unwrap_or(false),
        device,
    };
    if let Some(available) = available_bytes(device) {
        workload.check(available, &device.to_string())?;
    }
    Ok(workload)
}

/// Returns the training data, and the validation data if it has enough tokens for a sequence.
fn data(
    config: &RunConfig,
    folder: &Path,
    sources: &[DataSource],
    tokenizer: &Tokenizer,
    context: usize,
    observer: &mut dyn Observer,
) -> Result<(TokenDataset, Option<TokenDataset>)> {
    let cache = config.data.cache.clone().unwrap_or_else(|| folder.join("data"));
    let data = TokenDataset::open_with_observer(sources, tokenizer, &cache, &DataReporter::new(observer))?;
    let (training, validation) = data.split(config.data.validation_fraction.unwrap_or(0.0))?;
    if validation.len() > context as u64 {
        return Ok((training, Some(validation)));
    }
    if !validation.is_empty() {
        observer.on_event(TrainEvent::Note(&format!(
            "the validation data has {} tokens, too few for a sequence of {context}; training uses all data, without \
             evaluation",
            validation.len()
        )));
    }
    Ok((data, None))
}

/// Truncates `samples.txt` to its size at the checkpoint: later steps are repeated.
fn truncate_samples(path: &Path, bytes: Option<u64>) -> Result<()> {
    let (Some(bytes), Ok(found)) = (bytes, fs::symlink_metadata(path)) else { return Ok(()) };
    if found.is_file() && found.len() <= bytes {
        return Ok(());
    }
    files::append(path)?.set_len(bytes).map_err(Error::io("write", path))
}

pub(super) fn write_environment(folder: &Path, device: Device) -> Result<()> {
    let gpu = device.cuda_ordinal().and_then(|ordinal| bornite_cuda::DeviceInfo::query(ordinal).ok());
    let machine = Machine::detect(gpu.iter().map(|gpu| gpu.name.clone()).collect());
    let variables: serde_json::Map<String, serde_json::Value> = std::env::vars()
        .filter(|(name, _)| name.starts_with("BORNITE_"))
        .map(|(name, value)| (name, value.into()))
        .collect();
    let json = serde_json::json!({
        "device": device.to_string(), "gpu": gpu, "machine": machine, "environment": variables, "pid": std::process::id(),
    });
    files::replace(&folder.join("environment.json"), format!("{json:#}\n").as_bytes())
}
