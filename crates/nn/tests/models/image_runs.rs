//! Runs of image classifiers: resumed after stops, evaluated, and what is wrong with their data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_nn::data::LabeledImages;
use bornite_nn::prelude::*;
use bornite_nn::train::{
    ImageRunSummary, Observer, RunConfig, TrainEvent, TrainedImages, TrainedModel, read_metrics, train_images,
};
use image::{Rgb, RgbImage};

const CPU: Device = Device::Cpu(0);

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("images-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes images of three classes: red, green and blue ones with noise.
fn write_images(folder: &Path, per_class: u32, size: u32) {
    for (class, name) in ["blue", "green", "red"].into_iter().enumerate() {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        for n in 0..per_class {
            let pixel = |x: u32, y: u32| {
                let noise = (x * 37 + y * 91 + n * 53) % 120;
                let mut color = [noise as u8; 3];
                color[2 - class] = 150 + (noise / 2) as u8;
                Rgb(color)
            };
            RgbImage::from_fn(size, size, pixel).save(folder.join(name).join(format!("{n}.png"))).unwrap();
        }
    }
}

fn config(data: &Path) -> RunConfig {
    let mut config = RunConfig::default();
    for text in [
        "model.name=vit-tiny",
        "train.epochs=2",
        "train.batch=8",
        "train.seed=3",
        "data.flip=true",
        "data.crop_padding=1",
    ] {
        config.set(text).unwrap();
    }
    config.data.path = Some(vec![data.into()]);
    config
}

/// Stops when the line of a step is reported, or after an epoch's training.
#[derive(Default)]
struct StopAfter {
    step: Option<u64>,
    stop: Arc<AtomicBool>,
    notes: Vec<String>,
}

impl Observer for StopAfter {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        match event {
            TrainEvent::Step(line) if Some(line.step) == self.step => self.stop.store(true, Ordering::Relaxed),
            TrainEvent::Note(text) => self.notes.push(text.into()),
            _ => {}
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn interrupt_flag(&self) -> Option<Arc<AtomicBool>> {
        Some(self.stop.clone())
    }
}

fn run(config: &RunConfig, folder: &Path, resume: bool, stop_after: Option<u64>) -> Result<ImageRunSummary> {
    train_images(config, folder, CPU, resume, &mut StopAfter { step: stop_after, ..StopAfter::default() })
}

fn weights(folder: &Path) -> Vec<(String, Vec<u32>)> {
    let trained = TrainedImages::open(folder, CPU).unwrap();
    let bits = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect();
    trained.params.tensors().unwrap().iter().map(|(name, tensor)| (name.clone(), bits(tensor))).collect()
}

#[test]
fn a_stopped_run_is_resumed_to_the_bit_and_evaluated() {
    let folder = scratch("resumed");
    let data = folder.join("data");
    write_images(&data, 10, 8);
    let config = config(&data);
    let (whole, parts) = (folder.join("whole"), folder.join("parts"));
    let complete = run(&config, &whole, false, None).unwrap();
    assert_eq!((complete.fit.epochs.len(), complete.step, complete.fit.stopped), (2, 8, false));

    // Within the first epoch, and before the evaluation of the second.
    let stopped = run(&config, &parts, false, Some(2)).unwrap();
    assert!(stopped.fit.stopped && stopped.evaluation.is_none());
    let stopped = run(&config, &parts, true, Some(7)).unwrap();
    assert!(stopped.fit.stopped, "{stopped:?}");
    let resumed = run(&config, &parts, true, None).unwrap();
    assert_eq!((&resumed.fit, &resumed.evaluation), (&complete.fit, &complete.evaluation));
    assert!(weights(&parts) == weights(&whole), "weights differ");
    let lines = |folder: &Path| read_metrics(&folder.join("metrics.jsonl")).unwrap();
    let kept = |folder: &Path| -> Vec<_> {
        lines(folder).iter().map(|l| (l.step, l.loss, l.validation_loss, l.validation_accuracy)).collect()
    };
    assert_eq!(kept(&parts), kept(&whole));
    assert_eq!(kept(&whole).iter().map(|line| line.0).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    assert!(lines(&whole).iter().all(|line| line.validation_loss.is_some() == (line.step % 4 == 0)));
    assert!(lines(&whole).iter().all(|line| line.images_per_second > Some(0.0) && line.tokens_per_second.is_none()));

    // Colors are easy.
    let evaluation = complete.evaluation.unwrap();
    assert_eq!((evaluation.images, evaluation.classes.len()), (3, 3));
    let page = std::fs::read_to_string(complete.report.unwrap()).unwrap();
    assert!(page.contains("Confusion matrix") && page.contains("<th>green</th>"), "{page}");

    // A missing class folder does not change the indices.
    let trained = TrainedImages::open(&whole, CPU).unwrap();
    let all = LabeledImages::open_with_classes(&data, &trained.run.classes).unwrap();
    let all = trained.evaluate(&all, 7, &|| false).unwrap();
    assert!(all.images == 30 && all.accuracy() > 0.5, "{}", all.confusion_text());
    std::fs::remove_dir_all(data.join("blue")).unwrap();
    let rest = LabeledImages::open_with_classes(&data, &trained.run.classes).unwrap();
    let rest = trained.evaluate(&rest, 4, &|| false).unwrap();
    assert_eq!(rest.confusion[0], [0, 0, 0]);
    assert_eq!(rest.confusion[1..], all.confusion[1..], "{}", rest.confusion_text());
    // Of another size: resized.
    RgbImage::from_pixel(20, 30, Rgb([0, 200, 0])).save(folder.join("green.png")).unwrap();
    let classes = trained.classify_file(folder.join("green.png")).unwrap();
    assert_eq!(classes.len(), 3);
    assert!((classes.iter().map(|(_, p)| p).sum::<f32>() - 1.0).abs() < 1e-5 && classes[0].1 >= classes[1].1);

    // Its weights, exported, start another run; the head of another number of classes is new.
    let file = folder.join("weights.safetensors");
    trained.export(&file).unwrap();
    std::fs::create_dir(data.join("black")).unwrap();
    RgbImage::from_pixel(8, 8, Rgb([0, 0, 0])).save(data.join("black/1.png")).unwrap();
    std::fs::create_dir(data.join("white")).unwrap();
    RgbImage::from_pixel(8, 8, Rgb([255, 255, 255])).save(data.join("white/1.png")).unwrap();
    let mut from = config.clone();
    from.model.from = Some(file);
    from.train.epochs = Some(1);
    let mut observer = StopAfter::default();
    train_images(&from, &folder.join("from"), CPU, false, &mut observer).unwrap();
    assert!(observer.notes.iter().any(|note| note.contains("the last layer, for 4, starts from initial values")));
    // Other data is not resumed.
    let error = run(&config, &whole, true, None).unwrap_err().to_string();
    assert!(error.contains("resume with the same model and data") || error.contains("other batches"), "{error}");
    let text = TrainedModel::open(&whole, None, CPU).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("is a run of the image model vit-tiny; expected a model of text"), "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn bad_data_and_settings_are_errors_with_remedies() {
    let folder = scratch("errors");
    let data = folder.join("data");
    write_images(&data, 2, 8);
    let out = folder.join("run");
    let fails = |data: &Path, settings: &[&str]| {
        let mut config = config(data);
        settings.iter().for_each(|text| config.set(text).unwrap());
        run(&config, &out, false, None).unwrap_err().kind().to_string()
    };
    #[track_caller]
    fn contains(error: String, expected: &str) {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    contains(fails(&folder.join("nothing"), &[]), "nothing");
    contains(
        fails(&data, &["train.steps=5"]),
        "train.steps has no effect: vit-tiny is a model of images; set train.epochs instead",
    );
    contains(fails(&data, &["model.layers=5"]), "model.layers has no effect: vit-tiny is a model of images");
    contains(fails(&data, &["data.image_size=10"]), "must be a multiple of 4; found 10 (data.image_size)");
    contains(fails(&data, &["data.validation_fraction=0.99"]), "leaves no images to train on");
    contains(fails(&data, &["train.accumulate=100"]), "train.accumulate is 100, more than the");
    contains(fails(&data, &["train.patience=1", "data.validation_fraction=0"]), "early stopping needs validation");
    let mut text = RunConfig::parse("[train]\nepochs = 3\n").unwrap();
    text.data.path = Some(vec![data.clone()]);
    let error = text.resolved().unwrap_err().kind().to_string();
    contains(error, "train.epochs has no effect: tiny is a model of text; set train.steps instead");

    let image = |path: &str, width: u32, height: u32| {
        let path = data.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(width, height, Rgb([9, 9, 9])).save(&path).unwrap();
        path
    };
    let wide = image("red/wide.png", 12, 8);
    contains(fails(&data, &["data.validation_fraction=0"]), "wide.png: data: the image has 12 × 8 pixels, but");
    std::fs::remove_file(wide).unwrap();
    let whole = std::fs::read(data.join("red/0.png")).unwrap();
    std::fs::write(data.join("red/0.png"), &whole[..whole.len() / 2]).unwrap();
    contains(fails(&data, &["data.validation_fraction=0"]), "red/0.png: cannot be decoded as an image");
    std::fs::write(data.join("red/0.png"), whole).unwrap();
    std::fs::create_dir(data.join("void")).unwrap();
    contains(
        fails(&data, &[]),
        "void: contains no images (png, jpg, jpeg, bmp), but is a class; add images or remove the folder",
    );
    std::fs::remove_dir(data.join("void")).unwrap();
    let first = image("aaa/1.png", 9, 8);
    contains(fails(&data, &[]), "has 9 × 8 pixels, which is not a square; set data.image_size (--image-size N)");
    std::fs::remove_dir_all(first.parent().unwrap()).unwrap();
    let one = folder.join("one");
    std::fs::create_dir_all(one.join("red")).unwrap();
    std::fs::copy(data.join("red/0.png"), one.join("red/0.png")).unwrap();
    contains(fails(&one, &[]), "contains one class; a classifier needs at least two");

    // None of them has begun a run. A folder of another class, and MNIST's files.
    assert!(!out.join("checkpoints/latest").exists());
    let classes: Vec<String> = ["blue", "red"].map(String::from).to_vec();
    let error = LabeledImages::open_with_classes(&data, &classes).unwrap_err().kind().to_string();
    contains(error, "green: is not a class of the model, whose classes are blue, red; rename or remove the folder");
    let idx = folder.join("idx");
    std::fs::create_dir(&idx).unwrap();
    let mut pixels = vec![0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4];
    pixels.extend((0..32).map(|n| n * 8));
    std::fs::write(idx.join("train-images-idx3-ubyte"), pixels).unwrap();
    contains(LabeledImages::open(&idx).unwrap_err().kind().to_string(), "has no labels beside it");
    let labels = idx.join("train-labels-idx1-ubyte");
    std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 3, 1, 0, 1]).unwrap();
    contains(LabeledImages::open(&idx).unwrap_err().kind().to_string(), "has 3 labels for 2 images");
    std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 2, 2, 0]).unwrap();
    let images = LabeledImages::open(&idx).unwrap();
    assert_eq!(images.classes(), ["0", "1", "2"]);
    let sample = bornite_nn::data::Dataset::get(&images, 1).unwrap();
    assert_eq!(sample[0].shape(), [3, 4, 4]);
    assert_eq!(sample[0].to_vec::<f32>().unwrap()[..2], [128.0 / 255.0, 136.0 / 255.0]);
    assert_eq!(sample[1].to_vec::<i64>().unwrap(), [0]);
    contains(
        LabeledImages::open_with_classes(&idx, &classes).unwrap_err().kind().to_string(),
        "numbers its classes, but class 0 of the model is 'blue'",
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
