//! Folders: rejected ones, the shared one, the size limit, stale files, and failing writes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use bornite_cuda::Cache;
use bornite_cuda::cache::{CacheSettings, KernelSource};

use crate::{Fake, Outcome, Scratch, code, file_of, files, program};

crate::tests![
    the_folder_is_made_private,
    unsafe_folders_are_rejected,
    a_disabled_cache_touches_nothing,
    the_shared_folder_is_used_and_untouched,
    an_invalid_shared_folder_is_ignored,
    the_least_recently_used_entries_are_evicted,
    stale_temporaries_are_removed,
    a_deleted_folder_is_created_again,
    an_unwritable_folder_is_not_an_error,
    entries_are_listed_and_cleared,
];

fn mode(path: &std::path::Path) -> Result<u32, std::io::Error> {
    Ok(fs::metadata(path)?.mode() & 0o7777)
}

fn the_folder_is_made_private() -> Outcome {
    let scratch = Scratch::new()?;
    let root = scratch.0.join("home/.cache/bornite");
    let cache = Cache::open(CacheSettings::in_folder(&root));
    assert_eq!(cache.status().folder, Ok(root.join("kernels")));
    assert_eq!((mode(&root)?, mode(&root.join("kernels"))?), (0o700, 0o700));
    cache.compile(&program("k", "source"), &Fake::default())?;
    assert_eq!(mode(&file_of(&root, &Fake::default().key(&program("k", "source"))))?, 0o600);
    Ok(())
}

/// Checks that kernels are compiled without a cache, and that the reason is reported.
fn is_rejected(settings: CacheSettings, reason: &str) -> Outcome {
    let (cache, fake) = (Cache::open(settings), Fake::default());
    assert_eq!(cache.compile(&program("k", "source"), &fake)?, code("source", 500));
    assert_eq!(cache.compile(&program("k", "source"), &fake)?, code("source", 500));
    assert_eq!((fake.calls(), cache.stats().entries), (2, 0));
    let Err(found) = cache.status().folder else { return Err("the folder was accepted".into()) };
    assert!(found.contains(reason), "{found}");
    let Err(error) = cache.clear() else { return Err("cleared a folder that is not in use".into()) };
    assert!(error.to_string().contains(reason), "{error}");
    Ok(())
}

fn unsafe_folders_are_rejected() -> Outcome {
    let scratch = Scratch::new()?;
    let root = scratch.root();
    fs::write(&root, "a file")?;
    is_rejected(CacheSettings::in_folder(&root), "is not a folder; set BORNITE_CACHE_DIR")?;
    is_rejected(CacheSettings::in_folder(root.join("below")), "cannot be used")?;
    assert_eq!(fs::read_to_string(&root)?, "a file");
    fs::remove_file(&root)?;
    fs::create_dir(&root)?;
    for open in [0o777, 0o1777, 0o770, 0o702] {
        fs::set_permissions(&root, Permissions::from_mode(open))?;
        is_rejected(CacheSettings::in_folder(&root), &format!("(mode {open:04o})"))?;
        assert_eq!(fs::read_dir(&root)?.count(), 0, "something was written");
    }
    fs::set_permissions(&root, Permissions::from_mode(0o755))?;
    fs::create_dir(root.join("kernels"))?;
    fs::set_permissions(root.join("kernels"), Permissions::from_mode(0o777))?;
    is_rejected(CacheSettings::in_folder(&root), "(mode 0777)")?;
    is_rejected(CacheSettings { folder: None, ..CacheSettings::in_folder("") }, "set BORNITE_CACHE_DIR")
}

pub fn a_folder_of_another_user_is_rejected() -> Outcome {
    let scratch = Scratch::new()?;
    fs::create_dir(scratch.root())?;
    std::os::unix::fs::chown(scratch.root(), Some(12345), None)?;
    is_rejected(CacheSettings::in_folder(scratch.root()), "belongs to user 12345")
}

fn a_disabled_cache_touches_nothing() -> Outcome {
    let scratch = Scratch::new()?;
    scratch.open().compile(&program("k", "source"), &Fake::default())?;
    let folders = CacheSettings { shared: Some(scratch.root()), ..CacheSettings::in_folder(scratch.0.join("new")) };
    is_rejected(CacheSettings { enabled: false, ..folders }, "BORNITE_CACHE=off")?;
    assert!(!scratch.0.join("new").exists());
    Ok(())
}

fn the_shared_folder_is_used_and_untouched() -> Outcome {
    let (shared, scratch) = (Scratch::new()?, Scratch::new()?);
    let (fake, known, new) = (Fake::default(), program("k", "known"), program("k", "new"));
    shared.open().compile(&known, &fake)?;
    let settings = CacheSettings { shared: Some(shared.root()), ..CacheSettings::in_folder(scratch.root()) };
    let path = file_of(&shared.root(), &fake.key(&known));
    let long_ago = SystemTime::now() - Duration::from_secs(86400);
    File::options().write(true).open(&path)?.set_modified(long_ago)?;
    fs::write(shared.root().join("kernels/.writing-1-1"), "not ours to remove")?;
    let before = (fs::metadata(&path)?.mtime_nsec(), fs::metadata(shared.root().join("kernels"))?.mtime_nsec());

    let cache = Cache::open(settings.clone());
    assert_eq!(cache.status().shared, Some(Ok(shared.root().join("kernels"))));
    assert_eq!(cache.compile(&known, &fake)?, code("known", 500));
    assert_eq!((fake.calls(), cache.stats().hits), (1, 1));
    assert!(files(&scratch.root())?.is_empty());
    assert_eq!(cache.compile(&new, &fake)?, code("new", 500));
    assert_eq!(files(&scratch.root())?.len(), 1);
    assert_eq!(cache.clear()?, 1);
    assert_eq!(files(&shared.root())?.len(), 2);
    assert_eq!(before, (fs::metadata(&path)?.mtime_nsec(), fs::metadata(shared.root().join("kernels"))?.mtime_nsec()));

    // A damaged shared entry is compiled again and stored in our own folder; the shared file is
    // unchanged.
    fs::write(&path, "damaged")?;
    for _ in 0..2 {
        assert_eq!(Cache::open(settings.clone()).compile(&known, &fake)?, code("known", 500));
    }
    assert_eq!(fake.calls(), 3);
    assert_eq!(fs::read(&path)?, b"damaged");
    // The shared folder is also used without an own folder.
    shared.open().compile(&known, &fake)?;
    let cache = Cache::open(CacheSettings { folder: None, ..settings });
    assert_eq!(cache.get(&fake.key(&known)), Some(code("known", 500)));
    Ok(())
}

fn an_invalid_shared_folder_is_ignored() -> Outcome {
    let (shared, scratch) = (Scratch::new()?, Scratch::new()?);
    let (fake, program) = (Fake::default(), program("k", "source"));
    shared.open().compile(&program, &fake)?;
    let open =
        || Cache::open(CacheSettings { shared: Some(shared.root()), ..CacheSettings::in_folder(scratch.root()) });
    fs::set_permissions(shared.root().join("kernels"), Permissions::from_mode(0o777))?;
    let cache = open();
    assert!(matches!(cache.status().shared, Some(Err(reason)) if reason.contains("(mode 0777)")));
    assert_eq!(cache.compile(&program, &fake)?, code("source", 500));
    assert_eq!((fake.calls(), cache.stats().entries), (2, 1));
    fs::remove_dir_all(shared.root())?;
    assert!(matches!(open().status().shared, Some(Err(reason)) if reason.contains("No such file")));
    assert_eq!(open().get(&fake.key(&program)), Some(code("source", 500)));
    Ok(())
}

fn the_least_recently_used_entries_are_evicted() -> Outcome {
    let scratch = Scratch::new()?;
    let fake = Fake::default();
    let entry_bytes = 88 + 1 + 500;
    let limit_bytes = entry_bytes * 16 + 10;
    let sources: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let programs: Vec<KernelSource<'_>> = sources.iter().map(|source| program("k", source)).collect();
    let open = || Cache::open(CacheSettings { limit_bytes, ..CacheSettings::in_folder(scratch.root()) });
    // Two caches, like those of two processes: neither knows all writes.
    let (one, other) = (open(), open());
    for program in &programs[..16] {
        one.compile(program, &fake)?;
    }
    assert_eq!((one.stats().entries, one.stats().evicted), (16, 0));
    assert!(one.get(&fake.key(&programs[0])).is_some());
    other.compile(&programs[16], &fake)?;
    let there = |n: usize| file_of(&scratch.root(), &fake.key(&programs[n])).exists();
    assert!(there(0) && !there(1) && !there(2) && there(3) && there(16));
    assert_eq!(other.stats().evicted, 2);
    for program in &programs[17..] {
        one.compile(program, &fake)?;
        assert!(one.stats().bytes <= limit_bytes);
    }
    assert!(one.stats().entries >= 15 && there(99) && there(85) && !there(16));

    // Larger than the limit: not stored, and nothing is removed.
    let entries = one.stats().entries;
    assert!(!one.put(&fake.key(&programs[1]), "huge", &code("huge", limit_bytes as usize)));
    assert!(one.status().last_error.is_some_and(|last_error| last_error.contains("kernel 'huge' is larger")));
    assert_eq!(one.stats().entries, entries);
    Ok(())
}

fn stale_temporaries_are_removed() -> Outcome {
    let scratch = Scratch::new()?;
    scratch.open().compile(&program("k", "source"), &Fake::default())?;
    let folder = scratch.root().join("kernels");
    let make = |name: &str, hours: u64| -> Result<File, std::io::Error> {
        let file = File::create(folder.join(name))?;
        file.set_modified(SystemTime::now() - Duration::from_secs(3600 * hours))?;
        Ok(file)
    };
    make(".writing-1-1", 0)?;
    let (living, hung) = (make(".writing-1-2", 0)?, make(".writing-1-3", 2)?);
    living.lock()?;
    hung.lock()?;
    make("notes.txt", 2)?; // not ours
    let mut expected = vec![".writing-1-2".into(), "notes.txt".into()];
    expected.push(format!("{}.kernel", Fake::default().key(&program("k", "source"))));
    expected.sort();
    scratch.open();
    let mut found = files(&scratch.root())?;
    found.sort();
    assert_eq!(found, expected);
    Ok(())
}

fn a_deleted_folder_is_created_again() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake) = (scratch.open(), Fake::default());
    for calls in 1..4 {
        assert_eq!(cache.compile(&program("k", "source"), &fake)?, code("source", 500));
        assert_eq!((fake.calls(), cache.stats().entries, mode(&scratch.root())?), (calls, 1, 0o700));
        fs::remove_dir_all(scratch.root())?;
    }
    assert_eq!(cache.status().last_error, None);
    Ok(())
}

fn an_unwritable_folder_is_not_an_error() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake) = (scratch.open(), Fake::default());
    // Root can write anywhere, but not below a file.
    fs::remove_dir(scratch.root().join("kernels"))?;
    fs::write(scratch.root().join("kernels"), "")?;
    assert_eq!(cache.compile(&program("k", "source"), &fake)?, code("source", 500));
    assert!(cache.status().last_error.is_some_and(|last_error| last_error.contains("kernel 'k' was not saved in")));
    assert!(cache.clear().is_err() && cache.entries().is_err());
    Ok(())
}

fn entries_are_listed_and_cleared() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake) = (scratch.open(), Fake::default());
    for name in ["first", "second", "third"] {
        cache.compile(&program(name, "source"), &fake)?;
    }
    cache.get(&fake.key(&program("first", "source")));
    let path = file_of(&scratch.root(), &fake.key(&program("second", "source")));
    let used = fs::metadata(&path)?.modified()?;
    fs::write(&path, "damaged")?;
    File::options().write(true).open(&path)?.set_modified(used)?;
    let entries = cache.entries()?;
    let names: Vec<Option<&str>> = entries.iter().map(|entry| entry.name.as_deref()).collect();
    assert_eq!(names, [None, Some("third"), Some("first")]);
    fs::write(scratch.root().join("kernels/notes.txt"), "not ours")?;
    assert_eq!((cache.clear()?, cache.stats().entries, cache.clear()?), (3, 0, 0));
    assert_eq!(files(&scratch.root())?, ["notes.txt"]);
    Ok(())
}
