//! Data: files, batches, errors, the token cache, and killed processes.

mod batches;
mod cache;
mod formats;
mod images;
mod loader;
mod parquet;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use bornite_nn::data::{DataSource, TokenDataset};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::{Error, Result};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bornite-data-test-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path
    }

    fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    fn open(&self, source: DataSource, tokenizer: &Tokenizer) -> Result<TokenDataset> {
        TokenDataset::open(&[source], tokenizer, &self.cache(), &mut |_| {})
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn all(data: &TokenDataset) -> Vec<i32> {
    let mut tokens = vec![];
    data.read(0, data.len() as usize, &mut tokens).unwrap();
    tokens
}

/// Expected tokens of documents.
fn expected(documents: &[&str], tokenizer: &Tokenizer) -> Vec<i32> {
    let end = tokenizer.end_of_text().unwrap();
    let encode = |text: &&str| tokenizer.encode(text).into_iter().chain([end]).collect::<Vec<u32>>();
    documents.iter().filter(|text| !text.is_empty()).flat_map(encode).map(|token| token as i32).collect()
}

fn says<T>(result: Result<T>, parts: &[&str]) {
    let error: Error = result.err().expect("an error");
    let text = error.kind().to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "'{text}' does not contain {parts:?}");
    assert!(!text.contains('\n'), "not one line: {text}");
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

/// Random numbers, seeded by the clock or by `BORNITE_TEST_SEED`.
struct Random(u64);

impl Random {
    fn fresh() -> Random {
        let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64));
        println!("random cases from BORNITE_TEST_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}
