//! How strings are encoded in pages: one after the other, by a dictionary, or by differences of lengths and prefixes.

use super::Checked;
use super::thrift::Reader;

/// Blocks of differences have 128 values, by most writers.
const LARGEST_BLOCK: u64 = 1 << 20;

fn short() -> String {
    "a page ends before its values do".into()
}

/// `width` bits, at most 64, from a place counted in bits; beyond the end there are zeros.
fn bits(bytes: &[u8], at: usize, width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let mut window = 0u128;
    let (first, last) = (at / 8, (at + width).div_ceil(8));
    for (n, &byte) in bytes.iter().take(last).skip(first).enumerate() {
        window |= u128::from(byte) << (8 * n);
    }
    (window >> (at % 8)) as u64 & (u64::MAX >> (64 - width.min(64)))
}

/// Small numbers as runs of one value or packed into bits.
struct Runs<'a> {
    bytes: &'a [u8],
    at: usize,
    width: usize,
    run: Run,
}

enum Run {
    Same { value: u32, left: u64 },
    Packed { bit: usize, left: u64 },
}

impl<'a> Runs<'a> {
    fn new(bytes: &'a [u8], width: usize) -> Runs<'a> {
        Runs { bytes, at: 0, width, run: Run::Same { value: 0, left: 0 } }
    }

    /// Starts the next run if this one is over.
    fn advance(&mut self) -> Checked<()> {
        while let Run::Same { left: 0, .. } | Run::Packed { left: 0, .. } = self.run {
            let mut reader = Reader::new(&self.bytes[self.at..]);
            let header = reader.varint().map_err(|_| short())?;
            self.at += reader.at();
            let rest = &self.bytes[self.at..];
            if header & 1 == 0 {
                let size = self.width.div_ceil(8);
                let value = bits(rest.get(..size).ok_or_else(short)?, 0, size * 8) as u32;
                self.at += size;
                self.run = Run::Same { value, left: header >> 1 };
            } else {
                // Eight values a group; a last group that is cut short has as many as fit.
                let groups = header >> 1;
                let size = groups.saturating_mul(self.width as u64).min(rest.len() as u64) as usize;
                let fit = (size * 8).checked_div(self.width).map_or(u64::MAX, |fit| fit as u64);
                let left = groups.saturating_mul(8).min(fit);
                if left == 0 {
                    return Err(short());
                }
                self.run = Run::Packed { bit: self.at * 8, left };
                self.at += size;
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Checked<u32> {
        self.advance()?;
        Ok(match &mut self.run {
            Run::Same { value, left } => {
                *left -= 1;
                *value
            }
            Run::Packed { bit, left } => {
                *left -= 1;
                *bit += self.width;
                bits(self.bytes, *bit - self.width, self.width) as u32
            }
        })
    }

    /// Leaves out zeros that come as one run, at most so many, and says how many those were.
    fn skip_zeros(&mut self, most: u64) -> Checked<u64> {
        self.advance()?;
        match &mut self.run {
            Run::Same { value: 0, left } => {
                let skipped = most.min(*left);
                *left -= skipped;
                Ok(skipped)
            }
            _ => Ok(0),
        }
    }
}

/// Lengths stored as packed differences in blocks of parts, decoded one at a time: a few bytes can hold millions.
struct Differences<'a> {
    bytes: &'a [u8],
    parts: usize,
    per_part: usize,
    /// Values that are still to come.
    left: usize,
    /// The last value; before the first one, that one.
    value: i64,
    started: bool,
    /// Start of the current part, or of the next block.
    at: usize,
    least: i64,
    /// Widths of the current part and of those after it in its block.
    widths: &'a [u8],
    /// Values of the current part that were read.
    read: usize,
}

impl<'a> Differences<'a> {
    /// At most `most` lengths, and how many bytes they take.
    fn new(bytes: &'a [u8], most: u64) -> Checked<(Differences<'a>, usize)> {
        let mut reader = Reader::new(bytes);
        let mut number = || reader.varint().map_err(|_| short());
        let (block, parts, total) = (number()?, number()?, number()?);
        let value = reader.number().map_err(|_| short())?;
        let per_part = block.checked_div(parts).unwrap_or(0);
        if block > LARGEST_BLOCK || per_part == 0 || !per_part.is_multiple_of(8) || total > most {
            return Err(format!(
                "a page has {total} of {most} values in blocks of {block} in {parts} parts, which cannot be"
            ));
        }
        let (parts, per_part, left, at) = (parts as usize, per_part as usize, total as usize, reader.at());
        let start =
            Differences { bytes, parts, per_part, left, value, started: false, at, least: 0, widths: &[], read: 0 };
        // What follows begins after the last block.
        let mut walk = Differences { left: left.saturating_sub(1), started: true, ..start };
        while walk.left > 0 {
            walk.begin_part()?;
            walk.left -= walk.per_part.min(walk.left);
            walk.end_part();
        }
        Ok((start, walk.at))
    }

    /// Reads the header of a block if the one before is over, and checks that the part is there.
    fn begin_part(&mut self) -> Checked<()> {
        if self.widths.is_empty() {
            let mut reader = Reader::new(&self.bytes[self.at..]);
            self.least = reader.number().map_err(|_| short())?;
            self.at += reader.at();
            self.widths = self.bytes[self.at..].get(..self.parts).ok_or_else(short)?;
            self.at += self.parts;
        }
        let width = usize::from(self.widths[0]);
        let count = self.per_part.min(self.left);
        if width > 64 || self.part().len() * 8 < width * count {
            return Err(short());
        }
        Ok(())
    }

    /// Packed differences of the current part; the last one of a page may be cut short.
    fn part(&self) -> &'a [u8] {
        let size = self.widths.first().map_or(0, |&width| usize::from(width) * self.per_part / 8);
        &self.bytes[self.at..self.bytes.len().min(self.at + size)]
    }

    fn end_part(&mut self) {
        self.at += self.part().len();
        self.widths = &self.widths[1..];
        self.read = 0;
    }

    fn next(&mut self) -> Checked<usize> {
        if self.left == 0 {
            return Err(short());
        }
        if std::mem::replace(&mut self.started, true) {
            if self.read == 0 {
                self.begin_part()?;
            }
            let width = usize::from(self.widths[0]);
            let difference = bits(self.part(), self.read * width, width) as i64;
            self.value = self.value.wrapping_add(self.least).wrapping_add(difference);
            self.read += 1;
            if self.read == self.per_part {
                self.end_part();
            }
        }
        self.left -= 1;
        usize::try_from(self.value).map_err(|_| "a page has a text of negative length".to_owned())
    }
}

/// The texts that pages refer to by number.
#[derive(Default)]
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    /// Offset of the length of each text.
    starts: Vec<u32>,
}

impl Dictionary {
    pub(super) fn new(bytes: Vec<u8>, count: u64) -> Checked<Dictionary> {
        // A text takes four bytes at least.
        if count > bytes.len() as u64 / 4 || bytes.len() > u32::MAX as usize {
            return Err(short());
        }
        let (mut starts, mut at) = (Vec::with_capacity(count as usize), 0);
        for _ in 0..count {
            starts.push(at as u32);
            at += 4 + plain(&bytes[at..])?.len();
        }
        Ok(Dictionary { bytes, starts })
    }

    fn get(&self, index: u32) -> Checked<&[u8]> {
        let start = self.starts.get(index as usize);
        let &start = start.ok_or_else(|| format!("a page names text {index}, which its dictionary has not"))?;
        plain(&self.bytes[start as usize..])
    }
}

/// The text that bytes start with, after its length.
fn plain(bytes: &[u8]) -> Checked<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
    rest.get(..u32::from_le_bytes(*length) as usize).ok_or_else(short)
}

enum Values<'a> {
    Plain(&'a [u8]),
    Indices(Runs<'a>, &'a Dictionary),
    Lengths(Differences<'a>, &'a [u8]),
    Prefixes { prefixes: Differences<'a>, lengths: Differences<'a>, bytes: &'a [u8], last: Vec<u8> },
}

impl Values<'_> {
    fn next(&mut self) -> Checked<&[u8]> {
        fn cut<'a>(bytes: &mut &'a [u8], length: usize) -> Checked<&'a [u8]> {
            let (text, rest) = bytes.split_at_checked(length).ok_or_else(short)?;
            *bytes = rest;
            Ok(text)
        }
        match self {
            Values::Plain(bytes) => {
                let text = plain(bytes)?;
                *bytes = &bytes[4 + text.len()..];
                Ok(text)
            }
            Values::Indices(indices, dictionary) => dictionary.get(indices.next()?),
            Values::Lengths(lengths, bytes) => cut(bytes, lengths.next()?),
            Values::Prefixes { prefixes, lengths, bytes, last } => {
                let prefix = prefixes.next()?;
                if prefix > last.len() {
                    return Err(short());
                }
                last.truncate(prefix);
                last.extend_from_slice(cut(bytes, lengths.next()?)?);
                Ok(last)
            }
        }
    }
}

/// The texts of a page.
pub(super) struct Texts<'a> {
    left: u64,
    levels: Option<Runs<'a>>,
    values: Values<'a>,
    skipped: u64,
}

impl<'a> Texts<'a> {
    pub(super) fn new(
        count: u64,
        encoding: i64,
        levels: Option<&'a [u8]>,
        bytes: &'a [u8],
        dictionary: &'a Dictionary,
    ) -> Checked<Texts<'a>> {
        let values = match encoding {
            0 => Values::Plain(bytes),
            // A page without values may have no bytes at all.
            2 | 8 => match bytes.split_first() {
                Some((&width, _)) if width > 32 => return Err(format!("a page has indices of {width} bits")),
                Some((&width, rest)) => Values::Indices(Runs::new(rest, usize::from(width)), dictionary),
                None => Values::Plain(&[]),
            },
            6 => {
                let (lengths, at) = Differences::new(bytes, count)?;
                Values::Lengths(lengths, &bytes[at..])
            }
            7 => {
                let (prefixes, at) = Differences::new(bytes, count)?;
                let (lengths, after) = Differences::new(&bytes[at..], count)?;
                Values::Prefixes { prefixes, lengths, bytes: &bytes[at + after..], last: vec![] }
            }
            other => return Err(format!("a page has its texts in encoding {other}, which is not supported")),
        };
        Ok(Texts { left: count, levels: levels.map(|levels| Runs::new(levels, 1)), values, skipped: 0 })
    }

    /// How many missing values were left out since the last call.
    pub(super) fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// The next text that is there.
    pub(super) fn next(&mut self) -> Checked<Option<&[u8]>> {
        while self.left > 0 {
            if let Some(levels) = &mut self.levels {
                let zeros = levels.skip_zeros(self.left)?;
                let missing = if zeros > 0 { zeros } else { u64::from(levels.next()? == 0) };
                if missing > 0 {
                    self.left -= missing;
                    self.skipped += missing;
                    continue;
                }
            }
            self.left -= 1;
            return self.values.next().map(Some);
        }
        Ok(None)
    }
}
