//! The tuner without a GPU: a fake timer, damaged files, concurrent threads and processes.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use bornite_support::cache::CacheSettings;
use bornite_support::tune::{
    Budget, Choice, Fallible, HostTimer, Platform, Timer, TrialOutcome, TuneMode, Tuner, TuningKey, TuningRecord,
    TuningRequest, TuningResult, TuningStore, Variant,
};

/// A clock that advances only when work says so.
#[derive(Default)]
struct FakeTimer<'a> {
    now_ms: Option<&'a Cell<f64>>,
}

impl Timer for FakeTimer<'_> {
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64> {
        let start = self.now_ms();
        work()?;
        Ok(self.now_ms() - start)
    }

    fn now_ms(&mut self) -> f64 {
        self.now_ms.map_or(0.0, Cell::get)
    }
}

fn key(operation: &str) -> TuningKey {
    TuningKey {
        operation: operation.into(),
        shape: vec![64, 32],
        dtype: "f32".into(),
        platform: Platform::named("fake"),
    }
}

fn blocks(sizes: &[i64]) -> Vec<Choice> {
    sizes.iter().map(|size| Choice::new().with("block", *size)).collect()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tune-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn tuner(mode: TuneMode, folder: &Path) -> Tuner {
    Tuner::new(mode, TuningStore::open(&CacheSettings::in_folder(folder)))
}

/// Tunes candidates whose run times `cost` returns; `None` is a compile error, a negative time a
/// wrong result.
fn tune(tuner: &Tuner, operation: &str, candidates: &[Choice], cost: impl Fn(i64) -> Option<f64>) -> TuningResult {
    let now = Cell::new(0.0);
    let mut timer = FakeTimer { now_ms: Some(&now) };
    tuner.choose(
        &TuningRequest { key: &key(operation), candidates, busy: false, may_wait: true },
        &mut timer,
        |choice| {
            let block = choice.get("block").unwrap_or(0);
            cost(block).ok_or_else(|| format!("block {block} does not compile").into())
        },
        |ms| if *ms < 0.0 { Err("wrong by 0.5".into()) } else { Ok(()) },
        |ms, _| {
            now.set(now.get() + *ms);
            Ok(())
        },
    )
}

fn reason(record: &TuningRecord, n: usize) -> &str {
    match &record.trials[n].outcome {
        TrialOutcome::Rejected { reason } | TrialOutcome::Skipped { reason } => reason,
        TrialOutcome::Timed { .. } => "timed",
    }
}

#[test]
fn the_fastest_correct_candidate_wins_and_all_are_recorded() {
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    let candidates = blocks(&[64, 128, 256, 512]);
    let found = tune(&tuner, "a", &candidates, |block| match block {
        64 => Some(2.0),
        128 => None,
        256 => Some(-0.1),
        _ => Some(1.5),
    });
    let record = found.record.unwrap();
    assert_eq!((found.choice.get("block"), found.measured), (Some(512), true));
    assert_eq!(record.best_ms(), Some(1.5));
    assert_eq!(reason(&record, 1), "block 128 does not compile");
    assert_eq!(reason(&record, 2), "wrong by 0.5");
    let table = record.to_string();
    assert!(table.contains("* block=512  1.5000 ms") && table.contains("rejected: wrong by 0.5"), "{table}");
}

#[test]
fn the_median_decides_and_buffers_rotate() {
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    tuner.set_budget(Budget { runs: 5, ..Budget::default() });
    let now = Cell::new(0.0);
    let rotations = RefCell::new(vec![]);
    let candidates = blocks(&[1, 2]);
    // Runs of 1: warm-up 9, then 2 2 2 50 50 (median 2). Runs of 2: warm-up 9, then 3 3 3 3 0.
    let times: [&[f64]; 2] = [&[9.0, 2.0, 2.0, 2.0, 50.0, 50.0], &[9.0, 3.0, 3.0, 3.0, 3.0, 0.0]];
    let (mut runs, mut order) = ([0, 0], vec![]);
    let found = tuner.choose(
        &TuningRequest { key: &key("median"), candidates: &candidates, busy: false, may_wait: true },
        &mut FakeTimer { now_ms: Some(&now) },
        |choice| Ok(choice.get("block").unwrap_or(1) as usize - 1),
        |_| Ok(()),
        |block, rotation| {
            rotations.borrow_mut().push(rotation);
            order.push(*block + 1);
            now.set(now.get() + times[*block][runs[*block]]);
            runs[*block] += 1;
            Ok(())
        },
    );
    assert_eq!(found.choice.get("block"), Some(1));
    assert_eq!(order, [1, 1, 2, 2, 1, 2, 1, 2, 1, 2, 1], "the second is too slow for the last round");
    assert_eq!(rotations.into_inner(), (0..11).collect::<Vec<_>>(), "buffers rotate");
    let TrialOutcome::Timed { median_ms, min_ms, max_ms, runs } = found.record.unwrap().trials[0].outcome else {
        panic!()
    };
    assert_eq!((median_ms, min_ms, max_ms, runs), (2.0, 2.0, 50.0, 5));
}

/// Candidates that are measured while a device slows down are slowed down alike.
#[test]
fn candidates_run_in_turn() {
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    let (now, candidates) = (Cell::new(0.0), blocks(&[10, 11, 12]));
    let found = tuner.choose(
        &TuningRequest { key: &key("drift"), candidates: &candidates, busy: false, may_wait: true },
        &mut FakeTimer { now_ms: Some(&now) },
        |choice| Ok(choice.get("block").unwrap_or(0) as f64),
        |_| Ok(()),
        |cost, _| {
            now.set(now.get() + *cost * (1.0 + now.get() / 1000.0));
            Ok(())
        },
    );
    assert_eq!(found.choice.get("block"), Some(10));
    let runs = found
        .record
        .unwrap()
        .trials
        .iter()
        .map(|trial| match trial.outcome {
            TrialOutcome::Timed { runs, .. } => runs,
            _ => 0,
        })
        .collect::<Vec<_>>();
    assert!(runs[0] == 11 && runs[2] > 2, "{runs:?}");
}

#[test]
fn all_tunings_in_a_scope_share_a_limit() {
    let tuner = Tuner::new(TuneMode::Cached, TuningStore::disabled());
    let slow = |name: &str| {
        let variants = [1, 2].map(|n| {
            let run = move |_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                Ok(())
            };
            Variant::new(Choice::new().with("block", n), run)
        });
        tuner.best_of(&key(name), variants.into(), &mut HostTimer::new())
    };
    let found = tuner.within_limit(30.0, || [slow("a"), slow("b"), slow("c"), slow("d"), slow("e"), slow("f")]);
    assert!(found[0].measured && !found[5].measured && !found[5].retry_later, "{found:?}");
    assert_eq!(found[5].choice.get("block"), Some(1), "the first candidate");
    assert_eq!(tuner.mode(), TuneMode::Cached);
    assert!(!slow("g").measured);
    tuner.set_mode(TuneMode::Tune);
    assert!(slow("h").measured, "the limit is that of the scope");
}

#[test]
fn time_and_candidates_are_bounded() {
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    let candidates = blocks(&(1..=100).collect::<Vec<_>>());
    tuner.set_budget(Budget { max_candidates: 3, ..Budget::default() });
    let record = tune(&tuner, "few", &candidates, |_| Some(1.0)).record.unwrap();
    assert_eq!(reason(&record, 3), "the limit of 3 candidates was reached");
    assert_eq!(record.chosen.get("block"), Some(1), "the first of equals");

    tuner.set_budget(Budget { total_ms: 100.0, max_candidates: 100, runs: 10, give_up_ratio: 3.0 });
    let record = tune(&tuner, "short", &candidates, |block| Some(block as f64)).record.unwrap();
    let spent: f64 = record
        .trials
        .iter()
        .map(|trial| match trial.outcome {
            TrialOutcome::Timed { median_ms, runs, .. } => median_ms * (runs + 1) as f64,
            _ => 0.0,
        })
        .sum();
    assert!(spent < 140.0, "{spent} ms");
    assert!(reason(&record, 99).contains("time limit of 100 ms was reached"), "{}", reason(&record, 99));

    // Even without any time a working candidate is found.
    tuner.set_budget(Budget { total_ms: 0.0, ..Budget::default() });
    let found = tune(&tuner, "none", &candidates, |block| (block > 2).then_some(1.0));
    assert_eq!(found.choice.get("block"), Some(3));

    // A much slower candidate is run only once.
    tuner.set_budget(Budget::default());
    let record = tune(&tuner, "hopeless", &blocks(&[1, 2]), |block| Some(10.0 * block as f64 * block as f64)).record;
    let TrialOutcome::Timed { runs, .. } = record.unwrap().trials[1].outcome else { panic!() };
    assert_eq!(runs, 1);
}

#[test]
fn modes_decide_what_is_measured() {
    let folder = folder("modes");
    let candidates = blocks(&[64, 128]);
    let faster_second = |block| Some(if block == 128 { 1.0 } else { 2.0 });
    for mode in [TuneMode::Off, TuneMode::Cached] {
        let found = tune(&tuner(mode, &folder), "modes", &candidates, |_| panic!("measured"));
        assert_eq!((found.choice.get("block"), found.record.is_none()), (Some(64), true));
    }
    assert!(tune(&tuner(TuneMode::Tune, &folder), "modes", &candidates, faster_second).measured);
    for mode in [TuneMode::Cached, TuneMode::Tune] {
        let found = tune(&tuner(mode, &folder), "modes", &candidates, |_| panic!("measured although it is cached"));
        assert_eq!((found.choice.get("block"), found.measured), (Some(128), false));
    }
    assert_eq!(tune(&tuner(TuneMode::Off, &folder), "modes", &candidates, faster_second).choice.get("block"), Some(64));
    // A recorded choice that is no longer a candidate is not used.
    let found = tune(&tuner(TuneMode::Cached, &folder), "modes", &blocks(&[32, 64]), faster_second);
    assert_eq!((found.choice.get("block"), found.record.is_none()), (Some(32), true));
    // A new candidate is measured in mode `Tune` only.
    let more = blocks(&[64, 128, 256]);
    let found = tune(&tuner(TuneMode::Cached, &folder), "modes", &more, |_| panic!("measured"));
    assert_eq!((found.choice.get("block"), found.measured), (Some(128), false));
    let found = tune(&tuner(TuneMode::Tune, &folder), "modes", &more, |block| Some(256.0 / block as f64));
    assert_eq!((found.choice.get("block"), found.measured), (Some(256), true));
    assert!(
        tune(&tuner(TuneMode::Tune, &folder), "modes", &candidates, faster_second).measured,
        "256 is not a candidate"
    );
    // During a capture nothing is measured, but cached choices are used.
    let busy = |operation: &str| {
        tuner(TuneMode::Tune, &folder).choose(
            &TuningRequest { key: &key(operation), candidates: &candidates, busy: true, may_wait: true },
            &mut FakeTimer::default(),
            |_| -> Fallible<()> { panic!("measured inside a capture") },
            |()| Ok(()),
            |(), _| Ok(()),
        )
    };
    assert_eq!(busy("unknown").choice.get("block"), Some(64));
    assert_eq!(busy("modes").choice.get("block"), Some(128));
    // Nothing to choose from, and nothing that works.
    assert_eq!(tune(&tuner(TuneMode::Tune, &folder), "empty", &[], faster_second).choice, Choice::new());
    let found = tune(&tuner(TuneMode::Tune, &folder), "all bad", &candidates, |_| None);
    assert_eq!((found.choice.get("block"), found.record.is_none()), (Some(64), true));
}

#[test]
fn every_field_of_the_key_matters() {
    let folder = folder("keys");
    let (store, candidates) = (TuningStore::open(&CacheSettings::in_folder(&folder)), blocks(&[1]));
    let base = key("k");
    let others = [
        TuningKey { operation: "l".into(), ..base.clone() },
        TuningKey { shape: vec![64, 33], ..base.clone() },
        TuningKey { dtype: "f64".into(), ..base.clone() },
        TuningKey { platform: Platform { device: "x".into(), ..base.platform.clone() }, ..base.clone() },
        TuningKey { platform: Platform { driver: "13.1".into(), ..base.platform.clone() }, ..base.clone() },
        TuningKey { platform: Platform { bornite: "9".into(), ..base.platform.clone() }, ..base.clone() },
        TuningKey {
            platform: Platform { libraries: [("nvrtc".into(), "13".into())].into(), ..base.platform.clone() },
            ..base.clone()
        },
    ];
    let record = |key: &TuningKey| TuningRecord {
        key: key.clone(),
        chosen: candidates[0].clone(),
        trials: vec![],
        unix_time: 1,
    };
    store.put(&record(&base)).unwrap();
    for other in &others {
        assert_eq!(store.get(other), None, "{other:?}");
        store.put(&record(other)).unwrap();
        assert_eq!(store.get(other), Some(record(other)));
    }
    assert_eq!(store.stats().entries, 8);
    assert_eq!(store.records().len(), 8);
    assert_eq!(store.clear().unwrap(), 8);
    assert_eq!(store.get(&base), None);
}

#[test]
fn damaged_and_newer_files_are_ignored() {
    let folder = folder("damage");
    let store = TuningStore::open(&CacheSettings::in_folder(&folder));
    let candidates = blocks(&[64, 128]);
    tune(&tuner(TuneMode::Tune, &folder), "d", &candidates, |block| Some(block as f64));
    let path = std::fs::read_dir(folder.join("tuning")).unwrap().next().unwrap().unwrap().path();
    let complete = std::fs::read_to_string(&path).unwrap();
    assert!(store.get(&key("d")).is_some());
    for cut in 0..complete.trim_end().len() {
        std::fs::write(&path, &complete.as_bytes()[..cut]).unwrap();
        assert_eq!(store.get(&key("d")), None, "cut at {cut}");
    }
    // A flipped byte gives another record or none, never a panic and never a record of another key.
    for at in 0..complete.len() {
        let mut bytes = complete.clone().into_bytes();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        assert!(store.get(&key("d")).is_none_or(|record| record.key == key("d")), "flip at {at}");
    }
    // A damaged file is replaced.
    std::fs::write(&path, "{").unwrap();
    assert!(tune(&tuner(TuneMode::Tune, &folder), "d", &candidates, |_| Some(1.0)).measured);
    assert!(store.get(&key("d")).is_some());
    // A newer format is neither read nor overwritten; tuning works as if there were no file.
    let newer = r#"{"format": 2, "record": "who knows"}"#;
    std::fs::write(&path, newer).unwrap();
    assert!(tune(&tuner(TuneMode::Tune, &folder), "d", &candidates, |_| Some(1.0)).measured);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
    let rejected = store.put(&TuningRecord { key: key("d"), chosen: Choice::new(), trials: vec![], unix_time: 0 });
    assert!(rejected.unwrap_err().contains("newer format 2"));
    assert_eq!(std::fs::read_dir(folder.join("tuning")).unwrap().count(), 1, "no temporary files");
}

#[test]
fn an_unusable_folder_is_not_an_error() {
    let file = folder("file");
    std::fs::write(&file, "not a folder").unwrap();
    for settings in [
        CacheSettings::in_folder(&file),
        CacheSettings { enabled: false, ..CacheSettings::in_folder(folder("off")) },
        CacheSettings { folder: None, ..CacheSettings::in_folder("x") },
    ] {
        let tuner = Tuner::new(TuneMode::Tune, TuningStore::open(&settings));
        assert!(tuner.store().folder().is_err());
        assert!(tune(&tuner, "t", &blocks(&[1, 2]), |_| Some(1.0)).measured);
        assert!(!tune(&tuner, "t", &blocks(&[1, 2]), |_| Some(1.0)).measured, "known in memory");
        assert!(tuner.store().clear().is_err());
        assert_eq!(tuner.store().stats().entries, 0);
    }
}

#[test]
fn concurrent_threads_and_tuners_measure_once_and_lose_nothing() {
    let folder = folder("threads");
    let (shared, measured, start) = (tuner(TuneMode::Tune, &folder), AtomicUsize::new(0), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                let found = tune(&shared, "same", &blocks(&[1, 2]), |block| Some(block as f64));
                measured.fetch_add(found.measured as usize, Ordering::Relaxed);
                assert_eq!(found.choice.get("block"), Some(1));
            });
        }
    });
    assert_eq!(measured.into_inner(), 1);
    // Separate tuners, as separate processes have, each with its own key and one in common.
    std::thread::scope(|scope| {
        for n in 0..8 {
            let folder = &folder;
            scope.spawn(move || {
                let own = tuner(TuneMode::Tune, folder);
                for operation in [format!("own {n}"), "common".into()] {
                    tune(&own, &operation, &blocks(&[1, 2]), |block| Some(block as f64));
                }
            });
        }
    });
    let store = TuningStore::open(&CacheSettings::in_folder(&folder));
    assert_eq!(store.records().len(), 1 + 8 + 1);
}

#[test]
fn nested_requests_and_requests_that_may_not_wait_get_the_default() {
    let shared = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    let candidates = blocks(&[64, 128]);
    let faster_second = |block| Some(if block == 128 { 1.0 } else { 2.0 });
    let (measuring, requested) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut first = true;
            let variants = vec![Variant::new(Choice::new().with("n", 1), |_| {
                let nested = tune(&shared, "nested", &candidates, |_| panic!("measured inside a measurement"));
                assert_eq!((nested.choice.get("block"), nested.retry_later), (Some(64), true));
                if std::mem::take(&mut first) {
                    measuring.wait();
                    requested.wait();
                }
                Ok(())
            })];
            assert!(shared.best_of(&key("outer"), variants, &mut HostTimer::new()).measured);
        });
        measuring.wait();
        let found = shared.choose(
            &TuningRequest { key: &key("concurrent"), candidates: &candidates, busy: false, may_wait: false },
            &mut FakeTimer::default(),
            |_| -> Fallible<()> { panic!("measured during another measurement") },
            |()| Ok(()),
            |(), _| Ok(()),
        );
        assert_eq!((found.choice.get("block"), found.retry_later), (Some(64), true));
        requested.wait();
    });
    for operation in ["nested", "concurrent"] {
        let found = tune(&shared, operation, &candidates, faster_second);
        assert_eq!(
            (found.choice.get("block"), found.measured, found.retry_later),
            (Some(128), true, false),
            "{operation}"
        );
    }
}

#[test]
fn pinned_choices_come_first() {
    let folder = folder("pins");
    let candidates = blocks(&[64, 128]);
    let first = tuner(TuneMode::Tune, &folder);
    tune(&first, "p", &candidates, |block| Some(block as f64));
    let mut saved = first.known_records();
    assert_eq!(saved.len(), 1);
    saved[0].chosen = candidates[1].clone();
    let resumed = tuner(TuneMode::Tune, &folder);
    resumed.pin(saved);
    assert_eq!(tune(&resumed, "p", &candidates, |_| panic!()).choice, candidates[1]);
}

#[test]
fn closures_are_tuned() {
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    let value = Cell::new(0);
    let variants = vec![
        Variant::new(Choice::new().with("n", 1), |_| Err("fails".into())),
        Variant::new(Choice::new().with("n", 2), |_| {
            value.set(5);
            Ok(())
        })
        .verified_by(|| if value.get() == 4 { Ok(()) } else { Err("not 4".into()) }),
        Variant::new(Choice::new().with("n", 3), |_| {
            value.set(4);
            Ok(())
        })
        .verified_by(|| if value.get() == 4 { Ok(()) } else { Err("not 4".into()) }),
    ];
    let found = tuner.best_of(&key("closures"), variants, &mut HostTimer::new());
    let record = found.record.unwrap();
    assert_eq!(found.choice.get("n"), Some(3));
    assert_eq!((reason(&record, 0), reason(&record, 1)), ("fails", "not 4"));
}

#[test]
fn ignore_disk_stops_reads_from_disk() {
    let (folder, candidates) = (folder("sealed"), blocks(&[1, 2, 4]));
    let cost = |best: i64| move |block: i64| Some(if block == best { 1.0 } else { 5.0 });
    tune(&tuner(TuneMode::Tune, &folder), "saved", &candidates, cost(4));
    let again = tuner(TuneMode::Cached, &folder);
    let sealed = (again.ignore_disk(), again.ignore_disk());
    assert_eq!(tune(&again, "saved", &candidates, cost(2)).choice, candidates[0]);
    again.pin(again.store().records());
    assert_eq!(tune(&again, "saved", &candidates, cost(2)).choice, candidates[2]);
    // Records that appear on disk later are used only after the last guard is dropped.
    tune(&tuner(TuneMode::Tune, &folder), "later", &candidates, cost(2));
    drop(sealed.0);
    assert_eq!(tune(&again, "later", &candidates, cost(4)).choice, candidates[0]);
    drop(sealed.1);
    assert_eq!(tune(&again, "later", &candidates, cost(4)).choice, candidates[1]);
}
