//! Batches of samples: order, resumption, threads and errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bornite::{Device, Tensor};
use bornite_nn::data::{
    DataCursor, DataLoader, Dataset, HostArray, RandomCrop, RandomFlip, SampleRandom, TensorDataset, split,
};
use bornite_nn::{Error, Result};

use crate::{Random, says};

/// Images with distinct pixels, and their indices.
fn images(count: usize) -> TensorDataset {
    let pixels: Vec<f32> = (0..count * 3 * 5 * 4).map(|n| n as f32).collect();
    let classes: Vec<i64> = (0..count as i64).collect();
    let images = HostArray::from_slice(&pixels, &[count, 3, 5, 4]).unwrap();
    TensorDataset::new(vec![images, HostArray::from_slice(&classes, &[count]).unwrap()]).unwrap()
}

fn augmented(count: usize) -> DataLoader {
    DataLoader::new(images(count))
        .device(Device::cpu())
        .transform(0, RandomCrop { height: 3, width: 3, padding: 1 })
        .transform(0, RandomFlip { horizontal: 0.5, vertical: 0.5 })
        .transform(1, |array: HostArray, random: &mut SampleRandom| {
            let noise = random.below(1000) as i64;
            Ok(HostArray::scalar(array.to_vec::<i64>()?[0] * 1000 + noise))
        })
}

/// The elements of a batch.
fn read(batch: Result<Vec<Tensor>>) -> (Vec<f32>, Vec<i64>) {
    let batch = batch.unwrap();
    (batch[0].to_vec().unwrap(), batch[1].to_vec().unwrap())
}

fn classes(batches: &[(Vec<f32>, Vec<i64>)]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.1.iter().map(|class| class / 1000)).collect()
}

#[test]
fn every_sample_is_used_once_per_epoch_whatever_the_number_of_workers() {
    let mut random = Random::fresh();
    for _ in 0..20 {
        let (count, batch) = (1 + random.below(40) as usize, 1 + random.below(9) as usize);
        let (seed, shuffle) = (random.below(u64::MAX), random.below(2) == 0);
        let (drop_last, prefetch) = (random.below(2) == 0 && count >= batch, 1 + random.below(4) as usize);
        let mut found = vec![];
        for workers in [0, 1, 3, 7] {
            let loader = augmented(count).batch(batch).workers(workers).prefetch(prefetch).drop_last(drop_last);
            let loader = if shuffle { loader.shuffle(seed) } else { loader.seed(seed) };
            let epochs: Vec<Vec<_>> = (0..3).map(|_| loader.epoch().map(read).collect()).collect();
            assert_eq!((loader.cursor().epoch, loader.cursor().position), (3, 0));
            found.push(epochs);
        }
        assert!(found.iter().all(|epochs| *epochs == found[0]));
        let used = if drop_last { count / batch * batch } else { count };
        let mut orders = vec![];
        for epoch in &found[0] {
            let mut order = classes(epoch);
            assert_eq!((order.len(), epoch.len()), (used, used.div_ceil(batch)));
            assert!(epoch[..epoch.len() - 1].iter().all(|(_, classes)| classes.len() == batch));
            orders.push(order.clone());
            order.sort();
            order.dedup();
            assert_eq!(order.len(), used);
        }
        assert!(shuffle || orders[0].is_sorted());
        if count > 20 && used == count {
            assert_eq!(orders[0] != orders[1], shuffle);
            // Random transforms differ between epochs.
            let mut sets = [0, 1].map(|n| found[0][n].iter().flat_map(|batch| batch.1.clone()).collect::<Vec<_>>());
            sets.iter_mut().for_each(|set| set.sort());
            assert_ne!(sets[0], sets[1]);
        }
    }
}

#[test]
fn resumes_to_the_bit_after_every_batch() {
    let new = |workers| augmented(23).batch(4).shuffle(5).workers(workers);
    let loader = new(2);
    let mut expected = vec![];
    let mut cursors = vec![loader.cursor()];
    for _ in 0..3 {
        for batch in loader.epoch() {
            expected.push(read(batch));
            cursors.push(loader.cursor());
        }
    }
    for (n, cursor) in cursors.iter().enumerate().take(expected.len()) {
        // Through a file, and with another seed in the settings.
        let saved: DataCursor = serde_json::from_str(&serde_json::to_string(cursor).unwrap()).unwrap();
        let resumed = new(n % 3).shuffle(99);
        resumed.seek(saved).unwrap();
        let mut found = vec![];
        while found.len() < expected.len() - n {
            found.extend(resumed.epoch().map(read));
        }
        assert!(found[..expected.len() - n] == expected[n..], "after {n} batches");
    }
    // An epoch that is dropped continues where it ended.
    let loader = new(2);
    let mut found: Vec<_> = loader.epoch().take(2).map(read).collect();
    found.extend(loader.epoch().map(read));
    assert!(found == expected[..6]);
    // With larger batches, fewer samples than one batch may be left; then the epoch is complete.
    let larger = augmented(23).batch(8).drop_last(true);
    larger.seek(DataCursor { position: 16, ..cursors[0] }).unwrap();
    assert_eq!(larger.epoch().count(), 0);
    assert_eq!((larger.cursor().epoch, larger.cursor().position, larger.epoch().count()), (1, 0, 2));
    // Other data, other positions.
    let cursor = loader.cursor();
    says(augmented(22).seek(cursor), &["cannot resume at sample 0 of 23: this dataset has 22 samples"]);
    says(loader.seek(DataCursor { position: 23, ..cursor }), &["cannot resume at sample 23"]);
    says(loader.seek(DataCursor { fingerprint: 1, ..cursor }), &["other data"]);
    let _epoch = loader.epoch().next();
    let mut reading = loader.epoch();
    reading.next().unwrap().unwrap();
    says(loader.seek(cursor), &["while an epoch is read"]);
    says(loader.epoch().next().unwrap(), &["another epoch of this loader is being read"]);
    drop(reading);
    loader.seek(cursor).unwrap();
}

/// Samples of which one fails, in one of several ways.
struct Faulty {
    at: usize,
    how: usize,
    reads: Arc<AtomicUsize>,
}

impl Dataset for Faulty {
    fn len(&self) -> usize {
        40
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let sample = HostArray::scalar(index as f32);
        match self.how {
            _ if index != self.at => Ok(vec![sample]),
            0 => Err(Error::config("the disk is on fire")),
            1 => panic!("no such pixel {index}"),
            2 => Ok(vec![HostArray::from_slice(&[1.0f32], &[1]).unwrap()]),
            3 => Ok(vec![HostArray::scalar(1.0f64)]),
            4 => Ok(vec![]),
            _ => Ok(vec![sample.clone(), sample]),
        }
    }

    fn describe(&self, index: usize) -> String {
        format!("sample {index} ({index}.png)")
    }
}

#[test]
fn errors_reach_the_caller_with_the_sample() {
    let messages: [&[&str]; 6] = [
        &["sample 13: the disk is on fire"],
        &["reading sample 13 (13.png) panicked: no such pixel 13"],
        &["array 0 of sample 13 (13.png) is f32[1], but of sample 12 (12.png) f32[]", "resize, crop or pad"],
        &["array 0 of sample 13 (13.png) is f64[], but"],
        &["sample 13 (13.png) has 0 arrays, but sample 12 (12.png) 1"],
        &["sample 13 (13.png) has 2 arrays, but sample 12 (12.png) 1"],
    ];
    for (how, message) in messages.iter().enumerate() {
        for workers in [0, 1, 4] {
            let dataset = Faulty { at: 13, how, reads: Arc::default() };
            let loader = DataLoader::new(dataset).batch(4).workers(workers).device(Device::cpu());
            let mut epoch = loader.epoch();
            assert!(epoch.by_ref().take(3).all(|batch| batch.is_ok()));
            let line = line!() + 1;
            let failed = epoch.next().unwrap();
            let error = failed.as_ref().unwrap_err().to_string();
            assert!(error.contains(&format!("loader.rs:{line}")), "{error}");
            says(failed, message);
            // The iterator ends, and the cursor stays at the failed batch.
            assert!(epoch.next().is_none());
            drop(epoch);
            assert_eq!(loader.cursor().position, 12);
            says(loader.epoch().next().unwrap(), message);
        }
    }
    let transformed = DataLoader::new(Faulty { at: 40, how: 0, reads: Arc::default() })
        .device(Device::cpu())
        .transform(0, RandomCrop { height: 1, width: 1, padding: 0 });
    says(transformed.epoch().next().unwrap(), &["sample 0 (0.png): data: RandomCrop: expected an image", "f32[]"]);
    let transformed = augmented(3).transform(2, RandomCrop { height: 1, width: 1, padding: 0 });
    says(transformed.epoch().next().unwrap(), &["a transform is set for array 2, but sample 0 has 2"]);
}

#[test]
fn invalid_settings_are_errors() {
    says(augmented(0).epoch().next().unwrap(), &["the dataset is empty"]);
    says(augmented(3).batch(0).epoch().next().unwrap(), &["the batch size is 0"]);
    says(augmented(3).batch(4).drop_last(true).epoch().next().unwrap(), &["3 samples, fewer than one batch of 4"]);
    assert_eq!(augmented(3).batch(usize::MAX).workers(usize::MAX).epoch().map(read).count(), 1);
    assert_eq!((augmented(10).batch(4).batches(), augmented(10).batch(4).drop_last(true).batches()), (3, 2));
}

#[test]
fn a_dropped_epoch_ends_its_threads_and_reads_no_further() {
    let reads = Arc::new(AtomicUsize::new(0));
    let dataset = Arc::new(Faulty { at: 40, how: 0, reads: reads.clone() });
    let loader = DataLoader::new(dataset.clone()).batch(2).workers(3).prefetch(3).device(Device::cpu());
    let mut epoch = loader.epoch();
    epoch.next().unwrap().unwrap();
    // No more than the prefetched batches are read.
    let start = Instant::now();
    while reads.load(Ordering::Relaxed) < 8 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(reads.load(Ordering::Relaxed), 8);
    drop(epoch);
    drop(loader);
    // The threads held clones of the dataset.
    assert_eq!(Arc::strong_count(&dataset), 1);
}

#[test]
fn splits_are_disjoint_and_reproducible() {
    let (train, test) = split(images(30), 0.3, 8).unwrap();
    assert_eq!((train.len(), test.len()), (21, 9));
    let class = |sample: Vec<HostArray>| sample[1].to_vec::<i64>().unwrap()[0];
    let all = |part: &dyn Dataset| (0..part.len()).map(|n| class(part.get(n).unwrap())).collect::<Vec<_>>();
    let mut both = [all(&train), all(&test)].concat();
    assert_eq!(all(&split(images(30), 0.3, 8).unwrap().1), all(&test));
    assert_ne!(all(&split(images(30), 0.3, 9).unwrap().1), all(&test));
    assert_ne!(train.fingerprint(), test.fingerprint());
    both.sort();
    assert_eq!(both, (0..30).collect::<Vec<_>>());
    says(train.get(21), &["no sample 21"]);
    says(split(images(3), 1.5, 0), &["1.5"]);
}

#[test]
fn fingerprints_identify_the_data() {
    let one = images(10).fingerprint();
    assert_eq!(one, images(10).fingerprint());
    assert_ne!(one, images(11).fingerprint());
    let labels = |values: &[i64]| {
        TensorDataset::new(vec![HostArray::from_slice(values, &[values.len()]).unwrap()]).unwrap().fingerprint()
    };
    assert_ne!(labels(&[1, 2, 3]), labels(&[1, 2, 4]));
    assert_ne!(labels(&[1, 0]), labels(&[1, 0, 0]));
}
