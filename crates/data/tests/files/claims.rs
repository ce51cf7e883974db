//! One run at a time makes a shard; runs of different shards share a folder.

use std::sync::mpsc;

use bornite_data::files::{Asked, Error, Part, Place, make};

use crate::{asked, folder, hash, listed, made, seed, settings};

pub fn a_shard_is_made_by_one_run_at_a_time() {
    let mut settings = settings(200, 8);
    settings.seed = seed();
    let whole = hash(&made(&folder("alone"), &settings));
    let part = |number, of| Some(Part { number, of });
    // Who makes a part, and who may come to it.
    let cases: [(Option<Part>, Option<Part>, bool); 7] = [
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
                let mut told = false;
                make(&Place::new(folder), &Asked { part: first, ..asked(settings) }, &mut move |_| {
                    if !std::mem::replace(&mut told, true) {
                        begin.send(()).unwrap();
                        wait.recv().unwrap();
                    }
                })
            });
            begun.recv().unwrap();
            let resume = second.is_none();
            let met = make(&Place::new(folder), &Asked { part: second, resume, ..asked(settings) }, &mut |_| {});
            match met {
                Err(Error::Asked(what)) => {
                    let holder = format!("process {} ", std::process::id());
                    assert!(!both && what.starts_with(&holder), "case {n}: {what}");
                    assert!(what.contains("is making shards"), "{what}");
                }
                met => assert!(both && met.is_ok(), "case {n}: {met:?}"),
            }
            go.send(()).unwrap();
            running.join().unwrap().unwrap();
        });
        // Nobody is there now.
        let rest = make(&Place::new(&folder), &Asked { resume: true, ..asked(&settings) }, &mut |_| {}).unwrap();
        assert_eq!(hash(&rest), whole, "case {n}");
        let names = listed(&folder);
        assert!(!folder.join(".making").exists(), "case {n}: {names:?}");
    }
}
