//! Decompression of pages, bounded by the size in the page header.

use std::io::Read;

use crate::thrift::Reader;
use crate::{Error, Result, code};

/// Decompresses a page. `length` is the size in its header, which the caller has checked against
/// the limit: memory is reserved for it, but only touched as it is filled.
pub(crate) fn decompress(codec: i64, bytes: Vec<u8>, length: usize) -> Result<Vec<u8>> {
    if codec == code::UNCOMPRESSED {
        return checked(bytes, length);
    }
    let bytes = &bytes[..];
    let mut found = Vec::new();
    let reserved = found.try_reserve_exact(length + 1);
    reserved.map_err(|_| Error::damaged(format!("cannot allocate {length} bytes for a page")))?;
    match codec {
        code::SNAPPY => snappy(bytes, length, &mut found)?,
        code::GZIP => read(flate2::read::MultiGzDecoder::new(bytes), length, "gzip", &mut found)?,
        code::ZSTD => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes);
            let decoder = decoder.map_err(|error| Error::damaged(format!("a page is not valid zstd: {error}")))?;
            read(decoder, length, "zstd", &mut found)?
        }
        code::LZ4_RAW => lz4(bytes, length, &mut found)?,
        other => {
            let name = match other {
                3 => "LZO",
                4 => "Brotli",
                5 => "Hadoop LZ4",
                _ => "unknown codec",
            };
            let what = format!("its compression ({name}) is not supported; use Snappy, gzip, zstd, LZ4 or none");
            return Err(Error::Unsupported(what));
        }
    }
    checked(found, length)
}

fn checked(found: Vec<u8>, length: usize) -> Result<Vec<u8>> {
    if found.len() != length {
        return Err(Error::damaged(format!("a page has {} bytes, but its header declares {length}", found.len())));
    }
    Ok(found)
}

fn read(decoder: impl Read, length: usize, name: &str, found: &mut Vec<u8>) -> Result<()> {
    let result = decoder.take(length as u64 + 1).read_to_end(found);
    result.map(drop).map_err(|error| Error::damaged(format!("a page is not valid {name}: {error}")))
}

/// Appends `count` bytes that start `back` bytes before the end; the ranges may overlap.
fn copy_back(found: &mut Vec<u8>, back: usize, count: usize, length: usize, name: &str) -> Result<()> {
    if back == 0 || back > found.len() || count > length - found.len() {
        return Err(Error::damaged(format!("a page is not valid {name}: a back reference is out of range")));
    }
    let start = found.len() - back;
    if back >= count {
        found.extend_from_within(start..start + count);
    } else {
        for at in start..start + count {
            found.push(found[at]);
        }
    }
    Ok(())
}

/// Snappy's raw format: the length, then literals and back references.
fn snappy(bytes: &[u8], length: usize, found: &mut Vec<u8>) -> Result<()> {
    let truncated = || Error::damaged("a page is not valid Snappy: it is truncated");
    let mut reader = Reader::new(bytes);
    let declared = reader.varint().map_err(|_| truncated())?;
    if declared != length as u64 {
        return Err(Error::damaged(format!("a page header declares {length} bytes, but its Snappy data {declared}")));
    }
    let mut rest = &bytes[reader.position()..];
    while let Some((&tag, after)) = rest.split_first() {
        let number = |count: usize| -> Result<usize> {
            let bytes = after.get(..count).ok_or_else(truncated)?;
            Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
        };
        let high = usize::from(tag >> 2);
        match tag & 3 {
            0 => {
                let extra = high.saturating_sub(59);
                let count = 1 + if extra > 0 { number(extra)? } else { high };
                let literal = after.get(extra..).and_then(|after| after.get(..count)).ok_or_else(truncated)?;
                if literal.len() > length - found.len() {
                    return Err(Error::damaged("a page is not valid Snappy: it has more bytes than declared"));
                }
                found.extend_from_slice(literal);
                rest = &after[extra + count..];
            }
            kind => {
                let (bytes, count, back) = match kind {
                    1 => (1, 4 + (high & 7), (high >> 3) << 8 | number(1)?),
                    2 => (2, 1 + high, number(2)?),
                    _ => (4, 1 + high, number(4)?),
                };
                copy_back(found, back, count, length, "Snappy")?;
                rest = &after[bytes..];
            }
        }
    }
    Ok(())
}

/// LZ4's block format: alternating literals and back references.
fn lz4(bytes: &[u8], length: usize, found: &mut Vec<u8>) -> Result<()> {
    let truncated = || Error::damaged("a page is not valid LZ4: it is truncated");
    let mut at = 0;
    let byte = |at: &mut usize| -> Result<usize> {
        let byte = *bytes.get(*at).ok_or_else(truncated)?;
        *at += 1;
        Ok(usize::from(byte))
    };
    let long = |at: &mut usize, mut count: usize| -> Result<usize> {
        if count == 15 {
            loop {
                let more = byte(at)?;
                count += more;
                if more < 255 {
                    break;
                }
            }
        }
        Ok(count)
    };
    while at < bytes.len() {
        let token = byte(&mut at)?;
        let literals = long(&mut at, token >> 4)?;
        let literal = bytes[at..].get(..literals).ok_or_else(truncated)?;
        if literals > length - found.len() {
            return Err(Error::damaged("a page is not valid LZ4: it has more bytes than declared"));
        }
        found.extend_from_slice(literal);
        at += literals;
        // The last sequence has literals only.
        if at == bytes.len() {
            break;
        }
        let back = byte(&mut at)? | byte(&mut at)? << 8;
        let count = 4 + long(&mut at, token & 15)?;
        copy_back(found, back, count, length, "LZ4")?;
    }
    Ok(())
}
