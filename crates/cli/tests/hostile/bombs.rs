//! Small files that decompress to any size: each is rejected with a message or read in pieces, within 512 MB.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::parquet::*;
use crate::process::{Ended, SMALL, command, run, scratch, start, wait};

const MOST_MEMORY: u64 = 512 << 20;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Contents of a bomb.
enum Contents {
    Bytes(Vec<u8>),
    /// A file of zeros that takes no space.
    Sparse(u64),
}
use Contents::{Bytes, Sparse};

/// The command that reads it.
#[derive(Clone, Copy)]
enum Reader {
    /// `train` with a tokenizer.
    Train(&'static str),
    /// `data show` of a dataset of a format, whose rows it replaces.
    Show(&'static str),
    /// A file of a dataset, or of a folder of pairs.
    Verify,
    /// A file of a run that is resumed.
    Resume,
    Ingest,
}
use Reader::{Ingest, Resume, Show, Train, Verify};

struct Bomb {
    reader: Reader,
    file: &'static str,
    contents: Contents,
    /// Expected message, or alternatives separated by `|`; empty if the file is read.
    said: &'static str,
}

fn bomb(reader: Reader, file: &'static str, contents: Contents, said: &'static str) -> Bomb {
    Bomb { reader, file, contents, said }
}

/// A text of the plain encoding: its length, then one repeated byte.
fn plain(bytes: u64) -> Vec<u8> {
    zstd(&[(&(bytes as u32).to_le_bytes(), 1), (b"a", bytes)], WINDOW)
}

/// A compressed page with one text of `bytes` bytes.
fn one_text(kind: u64, bytes: u64) -> Page {
    Page::new(kind, 1, PLAIN, bytes + 4, plain(bytes))
}

fn column(pages: &[Page], codec: u64) -> Contents {
    Bytes(file(&[("text", pages)], codec, false))
}

/// Members of gzip that decompress to `bytes` bytes.
fn gzip(bytes: u64) -> Vec<u8> {
    let mut member = GzEncoder::new(vec![], Compression::fast());
    member.write_all(&vec![b'a'; 16 << 20]).unwrap();
    member.finish().unwrap().repeat((bytes >> 24) as usize)
}

/// A run of `count` equal indices.
fn indices(count: u64) -> Vec<u8> {
    let mut bytes = vec![1]; // width
    let mut header = count << 1;
    while header >= 0x80 {
        bytes.push(header as u8 | 0x80);
        header >>= 7;
    }
    bytes.extend([header as u8, 0]);
    bytes
}

fn dictionary(text: &[u8], pages: usize) -> Contents {
    let entry = [&(text.len() as u32).to_le_bytes(), text].concat();
    let mut all = vec![Page::new(DICTIONARY, 1, PLAIN, entry.len() as u64, entry)];
    for _ in 0..pages {
        let body = indices(1 << 24);
        all.push(Page::new(DATA, 1 << 24, INDICES, body.len() as u64, body));
    }
    column(&all, NONE)
}

fn tables_to_train_on() -> Vec<Bomb> {
    let large = "raise BORNITE_INPUT_LIMIT";
    let table = |contents: Contents, said| bomb(Train("bytes"), "a.parquet", contents, said);
    let of = |page: Page, codec, said| table(column(&[page], codec), said);
    let wide = zstd(&[(&(GIB as u32).to_le_bytes(), 1), (b"a", GIB)], 16 << 3);
    let raw = |kind, values, encoding, body: Vec<u8>| Page::new(kind, values, encoding, body.len() as u64, body);
    let mut all = vec![
        of(one_text(DATA, GIB), ZSTD, large),
        of(one_text(DATA_V2, GIB), ZSTD, large),
        of(one_text(DATA, 129 * MIB), ZSTD, large),
        of(Page::new(DATA, 1, PLAIN, GIB + 4, wide.clone()), ZSTD, large),
        of(Page::new(DATA, 1, PLAIN, GIB, gzip(GIB)), GZIP, large),
        of(Page::new(DATA, 1, PLAIN, GIB, lz4(b'a', GIB)), LZ4, large),
        of(Page::new(DATA, 1, PLAIN, 150 * MIB, snappy(b'a', 150 * MIB)), SNAPPY, large),
        // Headers that say less than is there.
        of(Page::new(DATA, 1, PLAIN, MIB, plain(GIB)), ZSTD, "but its header declares"),
        of(Page::new(DATA, 1, PLAIN, 100 * MIB, wide), ZSTD, "but its header declares"),
        of(Page::new(DATA_V2, 1, PLAIN, MIB, plain(GIB)), ZSTD, "but its header declares"),
        of(Page::new(DATA, 1, PLAIN, MIB, gzip(GIB)), GZIP, "but its header declares"),
        of(Page::new(DATA, 1, PLAIN, MIB, lz4(b'a', GIB)), LZ4, "is not valid LZ4"),
        of(Page::new(DATA, 1, PLAIN, MIB, snappy(b'a', 100 * MIB)), SNAPPY, "Snappy"),
        // More than there is.
        of(Page::new(DATA, 1, PLAIN, 100 * MIB, plain(MIB)), ZSTD, "but its header declares"),
        of(Page::new(DATA, 1 << 40, PLAIN, 4, vec![0; 4]), NONE, "which is impossible"),
        of(Page::new(DATA, 1, PLAIN, u32::MAX.into(), vec![0; 4]), NONE, large),
        // Within the limit: read in pieces.
        of(one_text(DATA, 60 * MIB), ZSTD, ""),
        // The space for tokens follows from the part that was read: otherwise it would be 600 TiB.
        of(raw(DATA, 1, PLAIN, [&(40u32 << 20).to_le_bytes()[..], &vec![b'a'; 40 << 20]].concat()), NONE, ""),
        // Each page is small, or none is too large, and all together are.
        table(column(&[20, 21, 22, 23, 24].map(|n| one_text(DATA, n * 4 * MIB)), ZSTD), large),
        table(dictionary(&[b'a'; 1000], 1), "raise BORNITE_INPUT_LIMIT|more for tokens"),
        // What all of it would take is more than most disks have.
        table(dictionary(&[b'a'; 1000], 40), "raise BORNITE_INPUT_LIMIT|more for tokens"),
        table(dictionary(b"", 40), large),
        table(column(&[one_text(DICTIONARY, GIB), raw(DATA, 1, INDICES, indices(1))], ZSTD), large),
        table(column(&[one_text(DICTIONARY, 40 * MIB), raw(DATA, 1, INDICES, indices(1))], ZSTD), large),
        // Eight million entries in a dictionary, all empty.
        table(
            column(
                &[
                    Page::new(DICTIONARY, 8 << 20, PLAIN, 32 * MIB, zstd(&[(&[0], 32 * MIB)], WINDOW)),
                    Page::new(DATA, 1, INDICES, 3, zstd(&[(&indices(1), 1)], WINDOW)),
                ],
                ZSTD,
            ),
            "there is nothing in",
        ),
        // Sixteen million lengths in a few bytes.
        of(raw(DATA, 1 << 24, DELTA_LENGTHS, differences(1 << 24, 0, 0)), NONE, large),
        of(
            raw(DATA, 1 << 24, DELTA_PREFIXES, [differences(1 << 24, 0, 0), differences(1 << 24, 0, 0)].concat()),
            NONE,
            large,
        ),
        // Each text is a byte longer than the one before.
        of(
            raw(
                DATA,
                200_000,
                DELTA_PREFIXES,
                [differences(200_000, 0, 1), differences(200_000, 1, 0), vec![b'a'; 200_000]].concat(),
            ),
            NONE,
            large,
        ),
        of(raw(DATA, 2, DELTA_LENGTHS, differences(2, u64::MAX >> 3, 0)), NONE, "has fewer values than declared"),
        // Fifty pages of sixteen million missing values.
        table(
            Bytes(file(
                &[(
                    "text",
                    &(0..50)
                        .map(|_| raw(DATA, 1 << 24, PLAIN, [&5u32.to_le_bytes()[..], &indices(1 << 24)[1..]].concat()))
                        .collect::<Vec<_>>(),
                )],
                NONE,
                true,
            )),
            "there is nothing in",
        ),
    ];
    // Footers: very many elements of a byte each.
    let footer = |fill: &dyn Fn(&mut Thrift)| {
        let mut footer = Thrift::default();
        fill(&mut footer);
        Bytes(ended(b"PAR1".to_vec(), footer))
    };
    let zeros = |footer: &mut Thrift, field: u8, count: usize| {
        footer.list(field, count);
        footer.bytes.resize(footer.bytes.len() + count, 0);
    };
    all.push(table(footer(&|footer| zeros(footer, 2, 8 << 20)), "its schema has more than"));
    all.push(table(footer(&|footer| zeros(footer, 2, 40 << 20)), large));
    all.push(table(
        footer(&|footer| {
            footer.list(2, 2).element().text(4, "schema").int(5, 1).end();
            footer.element().int(1, 6).int(3, 0).text(4, "text").end();
            zeros(footer, 4, 8 << 20);
        }),
        "has no chunk of the column 'text'",
    ));
    all.push(table(
        Bytes([b"PAR1".to_vec(), vec![0; 64], vec![0xff; 4], b"PAR1".to_vec()].concat()),
        "more than the file",
    ));
    all
}

fn texts_to_train_on() -> Vec<Bomb> {
    let lines = |text: String, said| bomb(Train("bytes"), "a.jsonl", Bytes(text.into_bytes()), said);
    let long = "a quarter of BORNITE_INPUT_LIMIT";
    vec![
        bomb(Train("bytes"), "a.jsonl", Sparse(3 * GIB), long),
        lines(format!("{{\"text\": \"{}\"}}", "a".repeat(33 << 20)), long),
        lines(format!("{{\"text\": [{}0]}}", "[],".repeat(10 << 20)), "is a list, not a string"),
        lines(format!("{{\"text\": {{{}\"\":0}}}}", "\"\":{},".repeat(4 << 20)), "is an object, not a string"),
        lines("[".repeat(30 << 20), "is not a JSON object"),
        lines(format!("{{\"text\": {}", "[".repeat(30 << 20)), "is not a JSON object"),
        lines(format!("{{\"{}\": 1}}", "k".repeat(30 << 20)), "has no field 'text'"),
        lines(format!("{{\"text\": \"{}\"}}", "\\u0061".repeat(5 << 20)), ""),
        lines("{\"text\": null}\n".repeat(2 << 20), "there is nothing in"),
        lines("{\"text\": \"\"}\n".repeat(2 << 20), "there is nothing in"),
        // Lines without an end.
        bomb(Train("bytes"), "a.txt", Sparse(48 * MIB), ""),
        bomb(Train("gpt2"), "a.txt", Bytes(vec![b'a'; 3 << 19]), ""),
    ]
}

fn datasets() -> Vec<Bomb> {
    let large = "raise BORNITE_INPUT_LIMIT";
    let packed = |contents, said| bomb(Show("jsonl-zst"), "rows", Bytes(contents), said);
    let table = |contents, said| bomb(Show("parquet"), "rows", contents, said);
    let zstd_page = |raw: u64, length: u64| {
        Page::new(DATA, 1, PLAIN, length, zstd(&[(&(raw as u32).to_le_bytes(), 1), (b"a", raw)], WINDOW))
    };
    let names: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let pages: Vec<[Page; 1]> = (0..20).map(|_| [zstd_page(30 * MIB, 30 * MIB + 4)]).collect();
    let wide: Vec<(&str, &[Page])> = names.iter().zip(&pages).map(|(name, page)| (&name[..], &page[..])).collect();
    let mut ints = Thrift::default();
    ints.list(2, 30 << 20);
    ints.bytes.resize(30 << 20, 0);
    let mut few = Thrift::default();
    few.list(2, 1).element().text(4, "schema").int(5, 0).end();
    few.list(4, 1).element().list(1, 0).int(3, 1 << 60).end();
    let mut head = vec![0xfc; 32 << 20];
    head[0] = 0x19;
    vec![
        packed(zstd(&[(b"{\"id\": \"", 1), (b"a", 8 * GIB)], WINDOW), large),
        packed(zstd(&[(b"a", GIB)], 16 << 3), large),
        packed(zstd(&[(b"\n", GIB)], WINDOW), "line 1"),
        packed([&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &(8 * GIB).to_le_bytes(), &[1, 0, 0]].concat(), "zstd"),
        packed(zstd(&[(b"a", GIB)], 0xf8), "zstd"),
        packed(zstd(&[(format!("{{\"id\": [{}0]}}\n", "[],".repeat(2 << 20)).as_bytes(), 1)], WINDOW), "neither"),
        bomb(Show("jsonl"), "rows", Sparse(3 * GIB), large),
        bomb(Show("jsonl"), "rows", Bytes("{\"a\":".repeat(1 << 20).into_bytes()), "recursion limit"),
        table(column(&[zstd_page(GIB, GIB + 4)], ZSTD), large),
        table(column(&[zstd_page(GIB, MIB)], ZSTD), "but its header declares"),
        table(Bytes(file(&wide, ZSTD, false)), large),
        table(
            column(&[Page::new(DATA, 1 << 40, PLAIN, 4, zstd(&[(&[0; 4], 1)], WINDOW))], ZSTD),
            "which is impossible",
        ),
        table(column(&[Page::new(DATA, 1, PLAIN, 4, head)], ZSTD), "zstd"),
        table(Bytes(ended(b"PAR1".to_vec(), ints)), "a header is truncated"),
        table(Bytes(ended(b"PAR1".to_vec(), few)), "was not written by"),
        bomb(Verify, "manifest.json", Sparse(4 * GIB), large),
        bomb(Verify, "manifest.json", Bytes("[".repeat(100 << 20).into_bytes()), "not a valid dataset manifest"),
        bomb(Verify, "cuda_synth_0001.json", Sparse(2 * GIB), large),
        bomb(
            Verify,
            "cuda_synth_0001.json",
            Bytes(format!("[{}0]", "[],".repeat(2 << 20)).into_bytes()),
            "missing one",
        ),
        bomb(Resume, "metrics.jsonl", Sparse(2 * GIB), "a line has"),
        bomb(Resume, "checkpoints/latest", Sparse(2 * GIB), ""),
        bomb(Resume, "run.toml", Sparse(2 * GIB), "run.toml"),
        bomb(Ingest, "a.py", Bytes("a=1;".repeat(3 << 20).into_bytes()), "is larger than 4 MiB"),
        bomb(Ingest, "a.py", Bytes(format!("x={}1", "(".repeat(500_000)).into_bytes()), "a.py"),
        bomb(Ingest, "a.py", Bytes("a=1;".repeat(240_000).into_bytes()), ""),
    ]
}

impl Bomb {
    /// Puts the bomb where its reader finds it, and has it read.
    fn read(&self, folder: &Path, samples: &Path) -> Ended {
        let write = |path: PathBuf| match &self.contents {
            Bytes(bytes) => std::fs::write(path, bytes).unwrap(),
            Sparse(bytes) => File::create(path).unwrap().set_len(*bytes).unwrap(),
        };
        let copy = |name: &str| {
            let copied = std::process::Command::new("cp").arg("-r").arg(samples.join(name)).arg(folder).status();
            assert!(copied.unwrap().success());
            folder.join(name)
        };
        let (file, out) = (folder.join(self.file), folder.join("run"));
        let (path, out) = (file.to_str().unwrap(), out.to_str().unwrap());
        match self.reader {
            Train(tokenizer) => {
                write(file.clone());
                let args = ["train", "--data", path, "--out", out, "--steps", "1", "--batch", "1"];
                run(&[&args[..], &["--tokenizer", tokenizer], &SMALL].concat())
            }
            Show(format) => {
                let dataset = copy(format);
                for entry in std::fs::read_dir(dataset.join("data")).unwrap() {
                    write(entry.unwrap().path());
                }
                run(&["data", "show", dataset.to_str().unwrap()])
            }
            Verify => {
                write(file);
                let mut verify = command(&["data", "verify", folder.to_str().unwrap()]);
                // What is wrong with rows and pairs is a result.
                let stderr = File::create(folder.join("said")).unwrap();
                let child = verify.stdout(stderr.try_clone().unwrap()).stderr(stderr).spawn().unwrap();
                let ended = wait(child, Duration::from_secs(60));
                Ended { error: std::fs::read_to_string(folder.join("said")).unwrap(), ..ended }
            }
            Resume => {
                let run = copy("run");
                std::fs::remove_file(run.join(self.file)).unwrap();
                write(run.join(self.file));
                wait(start(&["train", "--out", out, "--resume", "--steps", "3"]), Duration::from_secs(60))
            }
            Ingest => {
                write(file.clone());
                run(&["data", "ingest", path])
            }
        }
    }
}

impl Bomb {
    /// Describes an unexpected outcome.
    fn wrong(&self, ended: &Ended) -> Option<String> {
        let read = self.said.is_empty() && !matches!(self.reader, Ingest);
        let code = ended.code.unwrap_or(-1);
        if ended.peak >= MOST_MEMORY {
            return Some("too much memory".into());
        }
        if (code == 0) != read || !(0..=2).contains(&code) {
            return Some(format!("code {code}"));
        }
        if !self.said.split('|').any(|said| ended.error.contains(said)) {
            return Some(format!("it does not say '{}'", self.said));
        }
        // The line of a source is shown whole.
        (ended.error.len() > 2_000 && !matches!(self.reader, Ingest)).then(|| "too many words".into())
    }
}

#[test]
fn decompression_bombs_stay_within_bounds() {
    let samples = scratch("samples");
    let corpus = samples.join("corpus.txt");
    std::fs::write(&corpus, "some words to learn. ".repeat(200)).unwrap();
    let at = |name: &str| samples.join(name).to_str().unwrap().to_owned();
    for format in ["parquet", "jsonl", "jsonl-zst"] {
        let made = run(&["data", "make", "--count", "2", "--level", "types", "--format", format, "--out", &at(format)]);
        assert_eq!(made.code, Some(0), "{}", made.error);
    }
    let args = ["train", "--data", corpus.to_str().unwrap(), "--out", &at("run"), "--steps", "2", "--batch", "1"];
    let trained = run(&[&args[..], &SMALL].concat());
    assert_eq!(trained.code, Some(0), "{}", trained.error);

    let bombs: Vec<Bomb> = [tables_to_train_on(), texts_to_train_on(), datasets()].into_iter().flatten().collect();
    assert!(bombs.len() >= 50, "{} bombs", bombs.len());
    let (next, results) = (AtomicUsize::new(0), Mutex::new((0, Duration::ZERO, vec![])));
    let work = &|worker: usize| {
        while let Some((n, bomb)) = {
            let n = next.fetch_add(1, Ordering::Relaxed);
            bombs.get(n).map(|bomb| (n, bomb))
        } {
            let folder = scratch(&format!("bomb-{worker}"));
            let ended = bomb.read(&folder, &samples);
            std::fs::remove_dir_all(&folder).unwrap();
            let what = format!("bomb {n}, {}: {:?}, {} MB, {:?}", bomb.file, ended.code, ended.peak >> 20, ended.time);
            println!("{what}");
            let (most, slowest, wrong) = &mut *results.lock().unwrap();
            (*most, *slowest) = (ended.peak.max(*most), ended.time.max(*slowest));
            if let Some(why) = bomb.wrong(&ended) {
                wrong.push(format!("{what}: {why}: {}", ended.error.chars().take(500).collect::<String>()));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|worker| drop(scope.spawn(move || work(worker)))));
    let (most, slowest, wrong): (u64, Duration, Vec<String>) = results.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} bombs, at most {} MB, at most {slowest:?}", bombs.len(), most >> 20);
}
