//! Token cache: reused if it matches, rebuilt if not, and never used before it is complete.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use bornite_nn::data::{DataProgress, DataSource, TokenDataset};
use bornite_nn::tokenizer::Tokenizer;

use crate::{Folder, Random, all, expected, says};

/// Opens data; the second result is true if tokens were built.
fn open(source: &Path, cache: &Path, tokenizer: &Tokenizer) -> (TokenDataset, bool) {
    let mut built = false;
    let mut observe = |progress: DataProgress| built |= progress.phase == "tokenizing";
    let data = TokenDataset::open(&[DataSource::new(source)], tokenizer, cache, &mut observe).unwrap();
    (data, built)
}

/// The one folder of a cache.
fn entry(cache: &Path) -> PathBuf {
    let paths = std::fs::read_dir(cache).unwrap().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders.pop().unwrap()
}

#[test]
fn cache_is_reused_if_it_matches_and_rebuilt_if_not() {
    let folder = Folder::new();
    let (texts, cache, bytes) = (folder.0.join("texts"), folder.cache(), Tokenizer::bytes());
    let file = folder.write("texts/a.txt", "one text");
    folder.write("texts/b.txt", "another");
    let check = |documents: &[&str], expect_build: bool, why: &str| {
        let (data, built) = open(&texts, &cache, &bytes);
        assert_eq!(built, expect_build, "{why}");
        assert_eq!(all(&data), expected(documents, &bytes), "{why}");
    };
    check(&["one text", "another"], true, "at first");
    check(&["one text", "another"], false, "nothing changed");
    let touch = |time| std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    touch(SystemTime::now() + Duration::from_secs(5));
    check(&["one text", "another"], false, "touched, but the same bytes");
    folder.write("texts/a.txt", "own text");
    touch(SystemTime::now() + Duration::from_secs(9));
    check(&["own text", "another"], true, "other bytes, as many");
    folder.write("texts/a.txt", "longer text");
    check(&["longer text", "another"], true, "another length");
    folder.write("texts/c.txt", "new");
    check(&["longer text", "another", "new"], true, "a new file");
    check(&["longer text", "another", "new"], false, "nothing changed again");
    assert!(open(&texts, &cache, &Tokenizer::gpt2()).1, "another tokenizer");
    check(&["longer text", "another", "new"], false, "both are kept");
}

#[test]
fn damaged_folders_are_rebuilt() {
    let folder = Folder::new();
    let (text, cache, bytes) = (folder.write("a.txt", "some text to keep"), folder.cache(), Tokenizer::bytes());
    let good = all(&open(&text, &cache, &bytes).0);
    for name in ["tokens.bin", "documents.bin", "manifest.json"] {
        for damage in 0..3 {
            let path = entry(&cache).join(name);
            let mut contents = std::fs::read(&path).unwrap();
            match damage {
                0 => contents.truncate(contents.len() / 2),
                1 => contents.iter_mut().for_each(|byte| *byte ^= 0x15),
                _ => drop(std::fs::remove_file(&path)),
            }
            if damage < 2 {
                std::fs::write(&path, contents).unwrap();
            }
            let (data, built) = open(&text, &cache, &bytes);
            assert!(built, "{name}, damage {damage}");
            assert_eq!(all(&data), good);
        }
    }
}

#[test]
fn open_folder_checks_tokenizer_and_format_version() {
    let folder = Folder::new();
    let (text, cache, bytes) = (folder.write("a.txt", "some text"), folder.cache(), Tokenizer::bytes());
    let good = all(&open(&text, &cache, &bytes).0);
    let made = entry(&cache);
    assert_eq!(all(&TokenDataset::open_folder(&made, &bytes).unwrap()), good);
    let wrong = TokenDataset::open_folder(&made, &Tokenizer::gpt2());
    says(wrong, &["another tokenizer (257 tokens", "than the current one (50257 tokens", "rebuild the tokens"]);
    says(TokenDataset::open_folder(&folder.0, &bytes), &["cannot read", "manifest.json"]);
    let manifest = made.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"format_version\": 2", "\"format_version\": 3")).unwrap();
    says(
        TokenDataset::open_folder(&made, &bytes),
        &["manifest.json has format version 3; this release reads versions up to 2"],
    );
}

/// Every flipped bit is detected, with and without access to the sources; a changed token changes
/// the fingerprint.
#[test]
fn flipped_bits_of_tokens_are_detected() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    // Three pieces of 16 MiB, of which the last is short.
    let text: String = (0..600_000).map(|n| format!("line {n} of a text that is long\n")).collect();
    let (path, cache, bytes) = (folder.write("a.txt", &text), folder.cache(), Tokenizer::bytes());
    let (data, _) = open(&path, &cache, &bytes);
    let made = entry(&cache);
    let tokens = made.join("tokens.bin");
    let good = std::fs::read(&tokens).unwrap();
    assert!(good.len() > 2 * (16 << 20) && !good.len().is_multiple_of(16 << 20));
    for n in 0..12 {
        let mut bad = good.clone();
        let at = if n == 0 { bad.len() - 1 } else { random.below(bad.len() as u64) as usize };
        // Also tokens that stay within the vocabulary must be detected.
        bad[at] ^= 1;
        std::fs::write(&tokens, &bad).unwrap();
        let piece = at >> 24;
        says(
            TokenDataset::open_folder(&made, &bytes),
            &["tokens.bin", "is damaged", &format!("tokens {} to", piece << 23)],
        );
    }
    let (again, built) = open(&path, &cache, &bytes);
    assert!(built && again.fingerprint() == data.fingerprint() && std::fs::read(&tokens).unwrap() == good);
    assert!(!open(&path, &cache, &bytes).1);
    // One token of a million changes: a sampled fingerprint would miss it.
    let mut changed = text.into_bytes();
    let at = random.below(changed.len() as u64) as usize;
    changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
    folder.write("a.txt", changed);
    let (other, built) = open(&path, &cache, &bytes);
    assert!(built && other.len() == data.len() && other.fingerprint() != data.fingerprint());
    let options = bornite_nn::data::BatchOptions { batch: 1, context: 8, ..Default::default() };
    let cursor = data.batches(&options).unwrap().cursor();
    says(other.batches(&options).unwrap().seek(cursor), &["was saved with other data"]);
}

/// Folder of the child process of the next test; unset in ordinary runs, where the child does
/// nothing.
const CHILD: &str = "KILLED_WHILE_BUILDING";

#[test]
fn child_that_builds() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    open(&folder.join("texts"), &folder.join("cache"), &Tokenizer::gpt2());
}

#[test]
fn killed_processes_leave_no_incomplete_cache() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    let text = "Some words, and more words; again 12345 words.\n".repeat(20_000);
    let documents = [&text[..], &text[..text.len() / 2]];
    let child = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cache::child_that_builds"]).env(CHILD, &folder.0);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let kills = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 500 } else { 12 };
    let gpt2 = Tokenizer::gpt2();
    let right = expected(&documents, &gpt2);
    // Duration of a child that is not killed.
    for (n, document) in documents.iter().enumerate() {
        folder.write(&format!("texts/{n}.txt"), document);
    }
    let start = std::time::Instant::now();
    assert!(child().wait().unwrap().success());
    let build_ms = start.elapsed().as_millis() as u64;
    let mut complete = 0;
    for _ in 0..kills {
        if random.below(2) == 0 {
            let _ = std::fs::remove_dir_all(folder.cache());
        }
        let mut child = child();
        std::thread::sleep(Duration::from_millis(random.below(build_ms + 1)));
        child.kill().unwrap();
        child.wait().unwrap();
        // The next process gets the correct tokens and leaves no temporary files.
        let (data, built) = open(&folder.0.join("texts"), &folder.cache(), &gpt2);
        assert!(all(&data) == right);
        complete += usize::from(!built);
        let entries = std::fs::read_dir(folder.cache()).unwrap().flatten().map(|entry| entry.file_name());
        let leftovers: Vec<_> = entries.filter(|name| name.as_encoded_bytes().starts_with(b".")).collect();
        assert!(!built || leftovers.is_empty(), "{leftovers:?}");
    }
    println!("{kills} killed, {complete} times the cache was complete");
}
