//! Training that is stopped and resumed gives the same bits.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bornite::Generator;
use bornite_nn::checkpoint::Tensors;
use bornite_nn::data::RandomFlip;
use bornite_nn::prelude::*;
use bornite_nn::train::{EpochReport, FitEvent, FitReport};

const CPU: Device = Device::Cpu(0);

/// A model with dropout and running statistics.
fn net(params: &Params) -> Sequential {
    Sequential::new()
        .add(Flatten)
        .add(Linear::new(&params.at("fc1"), 6, 16))
        .add(BatchNorm::new(&params.at("norm"), 16))
        .add(Relu)
        .add(Dropout::new(0.3))
        .add(Linear::new(&params.at("fc2"), 16, 3))
}

/// Seven shuffled batches per epoch, the last one short, with random crops of the samples.
fn loader() -> DataLoader {
    let generator = Generator::new(11);
    let x = Tensor::randn(&[53, 1, 3, 2], DType::F32, &generator, CPU);
    let y = x.reshape(&[53, 6]).slice(1, 0..3).argmax(-1);
    let dataset = TensorDataset::from_tensors(&[&x, &y]).unwrap();
    DataLoader::new(dataset)
        .batch(8)
        .shuffle(5)
        .workers(2)
        .device(CPU)
        .transform(0, RandomFlip { horizontal: 0.5, vertical: 0.0 })
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fit-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Trains in a new process's state, up to `max_steps`; returns the report and all tensors.
fn fit(folder: Option<&Path>, max_steps: Option<u64>, precision: Precision, accumulate: usize) -> (FitReport, Tensors) {
    let params = Params::new(CPU, 3);
    let net = net(&params);
    let schedule = LrSchedule { lr: 3e-2, warmup: 3, ..LrSchedule::default() };
    let adam = AdamW::new(&params).schedule(schedule, 28).clip_norm(1.0).precision(precision).accumulate(accumulate);
    let validation = loader();
    let mut fit = Fit::new(&adam, |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]))
        .epochs(4)
        .validation(&validation)
        .metric("accuracy", |b: &[Tensor]| metrics::accuracy(&net.forward(&b[0]), &b[1]));
    if let Some(folder) = folder {
        fit = fit.checkpoints(folder);
    }
    if let Some(steps) = max_steps {
        fit = fit.max_steps(steps);
    }
    let report = fit.run(&loader()).unwrap();
    (report, params.tensors().unwrap())
}

fn bits(tensors: &Tensors) -> Vec<(String, Vec<u32>)> {
    let bits = |t: &Tensor| t.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect();
    tensors.iter().map(|(name, tensor)| (name.clone(), bits(tensor))).collect()
}

#[test]
fn resumed_training_is_equal_to_the_bit() {
    let (report, tensors) = fit(None, None, Precision::F32, 1);
    assert_eq!((report.epochs.len(), report.epochs[3].steps), (4, 28));
    assert!(tensors.contains_key("norm.running_mean"));
    assert!(report.epochs[3].loss < report.epochs[0].loss, "{:?}", report.epochs);
    // Each stop is at another place: within and at the ends of epochs.
    for stop in 1..=27 {
        let folder = folder(&format!("stop-{stop}"));
        let (_, stopped) = fit(Some(&folder), Some(stop), Precision::F32, 1);
        let (_, again) = fit(Some(&folder), Some(stop), Precision::F32, 1);
        assert_eq!(bits(&again), bits(&stopped), "already stopped after {stop} steps");
        let (resumed, found) = fit(Some(&folder), None, Precision::F32, 1);
        assert_eq!(resumed, report, "stopped after {stop} steps");
        assert_eq!(bits(&found), bits(&tensors), "stopped after {stop} steps");
        // A complete run has nothing left to do.
        assert_eq!(fit(Some(&folder), None, Precision::F32, 1).0, report);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn resumed_training_in_16_bits_and_with_accumulation_is_equal_to_the_bit() {
    // With 3 batches per step, steps go across the ends of epochs of 7 batches.
    for (precision, accumulate) in [(Precision::Bf16, 1), (Precision::F16, 1), (Precision::F32, 3), (Precision::F16, 3)]
    {
        let (report, tensors) = fit(None, None, precision, accumulate);
        let steps = 28 / accumulate as u64;
        for stop in [1, steps / 2, steps - 1] {
            let folder = folder(&format!("{precision:?}-{accumulate}-{stop}"));
            fit(Some(&folder), Some(stop), precision, accumulate);
            let (resumed, found) = fit(Some(&folder), None, precision, accumulate);
            assert_eq!(resumed, report, "{precision:?}, {accumulate}, stopped after {stop} steps");
            assert_eq!(bits(&found), bits(&tensors), "{precision:?}, {accumulate}, stopped after {stop} steps");
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}

#[test]
fn training_reports_progress_and_stops_early() {
    let params = Params::new(CPU, 3);
    let net = net(&params);
    let folder = folder("early");
    let validation = loader();
    let (events, epochs) = (Mutex::new(vec![]), Mutex::new(Vec::<EpochReport>::new()));
    // A learning rate of 0: the loss never improves.
    let report = Fit::new(&Sgd::new(&params).lr(0.0), |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]))
        .epochs(50)
        .validation(&validation)
        .early_stopping(EarlyStopping { patience: 2, min_delta: 0.01 })
        .checkpoints(&folder)
        .save_every(3)
        .on_event(|event| match event {
            FitEvent::Batch { epoch, batch, loss, .. } => {
                assert!(loss.is_finite());
                events.lock().unwrap().push(format!("{epoch}.{batch}"));
            }
            FitEvent::Epoch(report) => epochs.lock().unwrap().push(report.clone()),
            FitEvent::Saved { path, .. } => events.lock().unwrap().push(format!("saved {}", path.display())),
            FitEvent::Resumed(_) => panic!("nothing to resume"),
        })
        .run(&loader())
        .unwrap();
    assert!(report.stopped_early);
    assert_eq!(report.epochs.len(), 3, "one, and two without improvement: {:?}", report.epochs);
    assert_eq!(*epochs.lock().unwrap(), report.epochs);
    let events = events.into_inner().unwrap();
    assert_eq!(events.iter().filter(|event| !event.starts_with("saved")).count(), 21);
    assert_eq!(events.iter().filter(|event| event.starts_with("saved")).count(), 21 / 3 + 3);
    assert!(report.epochs[0].to_string().starts_with("epoch 1  loss "), "{}", report.epochs[0]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Evaluation of a loader does not move its cursor, and a checkpoint is not resumed with other data.
#[test]
fn loaders_keep_their_cursors_and_are_compared() {
    let params = Params::new(CPU, 3);
    let net = net(&params);
    let loader = loader();
    let first: Vec<Tensor> = loader.epoch().next().unwrap().unwrap();
    let cursor = loader.cursor();
    evaluate(&net, &loader, metrics::accuracy).unwrap();
    assert_eq!(loader.cursor(), cursor);
    assert_eq!(loader.epoch().count(), 6, "the rest of the epoch");
    let again: Vec<Tensor> = loader.batches_of(0, 0).unwrap().next().unwrap().unwrap();
    assert_eq!(first[0].to_vec::<f32>().unwrap(), again[0].to_vec::<f32>().unwrap());
    assert_eq!(loader.batches_of(0, 7).unwrap().count(), 0);

    let folder = folder("other-data");
    let sgd = Sgd::new(&params);
    let fit = |loader: &DataLoader| {
        let loss = |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]);
        Fit::new(&sgd, loss).epochs(2).checkpoints(&folder).run(loader)
    };
    fit(&loader).unwrap();
    let error = fit(&self::loader().batch(4)).unwrap_err().to_string();
    assert!(error.contains("saved with other batches"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
