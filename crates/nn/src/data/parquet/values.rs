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

/// Numbers as packed differences, at most so many; and how many bytes they took.
fn differences(bytes: &[u8], most: u64) -> Checked<(Vec<usize>, usize)> {
    let mut reader = Reader::new(bytes);
    let mut number = || reader.varint().map_err(|_| short());
    let (block, parts, total) = (number()?, number()?, number()?);
    let mut value = reader.number().map_err(|_| short())?;
    let per_part = block.checked_div(parts).unwrap_or(0);
    if block > LARGEST_BLOCK || per_part == 0 || !per_part.is_multiple_of(8) || total > most {
        return Err(format!(
            "a page has {total} of {most} values in blocks of {block} in {parts} parts, which cannot be"
        ));
    }
    let (parts, per_part, total) = (parts as usize, per_part as usize, total as usize);
    let mut at = reader.at();
    let length = |value: i64| usize::try_from(value).map_err(|_| "a page has a text of negative length".to_owned());
    let mut values = vec![];
    if total > 0 {
        values.push(length(value)?);
    }
    while values.len() < total {
        let mut reader = Reader::new(&bytes[at..]);
        let least = reader.number().map_err(|_| short())?;
        at += reader.at();
        let widths = bytes[at..].get(..parts).ok_or_else(short)?;
        at += parts;
        for &width in widths {
            let (width, count) = (usize::from(width), per_part.min(total - values.len()));
            if count == 0 {
                break;
            }
            let packed = &bytes[at..bytes.len().min(at + width * per_part / 8)];
            if width > 64 || packed.len() * 8 < width * count {
                return Err(short());
            }
            for n in 0..count {
                value = value.wrapping_add(least).wrapping_add(bits(packed, n * width, width) as i64);
                values.push(length(value)?);
            }
            at += packed.len();
        }
    }
    Ok((values, at))
}

/// The texts that pages refer to by number.
#[derive(Default)]
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Dictionary {
    pub(super) fn new(bytes: Vec<u8>, count: u64) -> Checked<Dictionary> {
        let (mut places, mut at) = (vec![], 0);
        for _ in 0..count {
            let text = plain(&bytes[at..])?;
            places.push((at + 4, at + 4 + text.len()));
            at += 4 + text.len();
        }
        Ok(Dictionary { bytes, places })
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
    Lengths(std::vec::IntoIter<usize>, &'a [u8]),
    Prefixes { prefixes: std::vec::IntoIter<usize>, lengths: std::vec::IntoIter<usize>, bytes: &'a [u8], last: Vec<u8> },
}

impl Values<'_> {
    fn next(&mut self) -> Checked<Vec<u8>> {
        fn cut<'a>(bytes: &mut &'a [u8], length: Option<usize>) -> Checked<&'a [u8]> {
            let (text, rest) = length.and_then(|length| bytes.split_at_checked(length)).ok_or_else(short)?;
            *bytes = rest;
            Ok(text)
        }
        match self {
            Values::Plain(bytes) => {
                let text = plain(bytes)?;
                *bytes = &bytes[4 + text.len()..];
                Ok(text.into())
            }
            Values::Indices(indices, dictionary) => {
                let index = indices.next()?;
                let place = dictionary.places.get(index as usize);
                let &(start, end) =
                    place.ok_or_else(|| format!("a page names text {index}, which its dictionary has not"))?;
                Ok(dictionary.bytes[start..end].into())
            }
            Values::Lengths(lengths, bytes) => Ok(cut(bytes, lengths.next())?.into()),
            Values::Prefixes { prefixes, lengths, bytes, last } => {
                let prefix = prefixes.next().filter(|&prefix| prefix <= last.len()).ok_or_else(short)?;
                last.truncate(prefix);
                last.extend_from_slice(cut(bytes, lengths.next())?);
                Ok(last.clone())
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
                let (lengths, at) = differences(bytes, count)?;
                Values::Lengths(lengths.into_iter(), &bytes[at..])
            }
            7 => {
                let (prefixes, at) = differences(bytes, count)?;
                let (lengths, after) = differences(&bytes[at..], count)?;
                let (prefixes, lengths) = (prefixes.into_iter(), lengths.into_iter());
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
    pub(super) fn next(&mut self) -> Checked<Option<Vec<u8>>> {
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
