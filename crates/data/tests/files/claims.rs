//! A shard is written by one process at a time; processes that write different shards share a
//! folder.

use std::sync::mpsc;

use bornite_data::files::{DatasetDir, Error, JobPart, MakeOptions, make};

use crate::{folder, hash, listed, make_dataset, options, seed, settings};

pub fn shard_is_written_by_one_run_at_a_time() {
    let mut settings = settings(200, 8);
    settings.seed = seed();
    let expected = hash(&make_dataset(&folder("alone"), &settings));
    let part = |index, count| Some(JobPart { index, count });
    // Running job, second job, and whether both may run.
    let cases: [(Option<JobPart>, Option<JobPart>, bool); 7] = [
        (None, None, false),
        (None, part(1, 4), false),
        (part(1, 4), None, false),
        (part(1, 4), part(1, 4), false),
        (part(0, 2), part(1, 4), false),
        (part(0, 2), part(2, 4), true),
        (part(3, 4), part(0, 8), true),
    ];
    for (n, (first, second, both)) in cases.into_iter().enumerate() {
        let folder = folder(&format!("claims-{n}"));
        let ((begin, begun), (go, wait)) = (mpsc::channel(), mpsc::channel());
        std::thread::scope(|scope| {
            let (settings, folder) = (&settings, &folder);
            let running = scope.spawn(move || {
                let mut started = false;
                make(&DatasetDir::new(folder), &MakeOptions { part: first, ..options(settings) }, &mut move |_| {
                    if !std::mem::replace(&mut started, true) {
                        begin.send(()).unwrap();
                        wait.recv().unwrap();
                    }
                })
            });
            begun.recv().unwrap();
            let resume = second.is_none();
            let outcome =
                make(&DatasetDir::new(folder), &MakeOptions { part: second, resume, ..options(settings) }, &mut |_| {});
            match outcome {
                Err(Error::InvalidRequest(what)) => {
                    let holder = format!("process {} ", std::process::id());
                    assert!(!both && what.starts_with(&holder), "case {n}: {what}");
                    assert!(what.contains("is writing shards"), "{what}");
                }
                outcome => assert!(both && outcome.is_ok(), "case {n}: {outcome:?}"),
            }
            go.send(()).unwrap();
            running.join().unwrap().unwrap();
        });
        // No other run is active now.
        let rest =
            make(&DatasetDir::new(&folder), &MakeOptions { resume: true, ..options(&settings) }, &mut |_| {}).unwrap();
        assert_eq!(hash(&rest), expected, "case {n}");
        let names = listed(&folder);
        assert!(!folder.join(".making").exists(), "case {n}: {names:?}");
    }
}
