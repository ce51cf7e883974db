//! TensorBoard event files: framed records with checksums, each a protocol buffer with scalars.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Error, Result};

/// Writer of an event file.
pub(crate) struct EventWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl EventWriter {
    /// Creates a new file in a folder. TensorBoard then ignores steps after `step` in older files.
    pub fn create(folder: &Path, step: u64) -> Result<EventWriter> {
        let name = |n: u32| format!("events.out.tfevents.{:010}.bornite.{}.{n}", now() as u64, std::process::id());
        // Readers order files by name; a file of the same second gets the next number.
        for n in 0.. {
            let path = folder.join(name(n));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut events = EventWriter { path, file: BufWriter::new(file) };
                    events.write(&event(0, &field_bytes(3, b"brain.Event:2")))?;
                    // Session log: a session starts at the next step.
                    events.write(&event(step + 1, &field_bytes(7, &field_varint(1, 1))))?;
                    events.flush()?;
                    return Ok(events);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("write", &path)(error)),
            }
        }
        Err(Error::file(folder, "has no unused name for an event file"))
    }

    /// Writes the scalars of a step.
    pub fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        let mut summary = vec![];
        for (name, value) in scalars {
            let mut one = field_bytes(1, name.as_bytes());
            one.push(2 << 3 | 5); // simple_value, 32 bits
            one.extend((*value as f32).to_le_bytes());
            summary.extend(field_bytes(1, &one));
        }
        self.write(&event(step, &field_bytes(5, &summary)))
    }

    fn write(&mut self, record: &[u8]) -> Result<()> {
        self.file.write_all(&framed(record)).map_err(Error::io("write", &self.path))
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(Error::io("write", &self.path))
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Encodes an `Event` of time, step and content.
fn event(step: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1 << 3 | 1]; // wall_time, 64 bits
    bytes.extend(now().to_le_bytes());
    bytes.extend(field_varint(2, step));
    bytes.extend(content);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = vec![];
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn field_varint(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

fn field_bytes(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(value.len() as u64), value].concat()
}

/// Frames a TFRecord: length, checksum of the length, bytes, checksum of the bytes.
fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), record, &masked(record).to_le_bytes()].concat()
}

/// Masked CRC of the TFRecord format, so that data which contains CRCs is not a special case.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: records are few and short.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_standard() {
        // RFC 3720, B.4, and the usual check value.
        let cases: [(&[u8], u32); 4] =
            [(b"", 0), (b"123456789", 0xe306_9283), (&[0; 32], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43)];
        for (bytes, crc) in cases {
            assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        }
    }

    #[test]
    fn records_are_framed_scalars() {
        let folder = std::env::temp_dir().join(format!("bornite-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut events = EventWriter::create(&folder, 300).unwrap();
        events.scalars(301, &[("loss", 1.5), ("rate", 0.25)]).unwrap();
        events.flush().unwrap();
        assert_ne!(EventWriter::create(&folder, 0).unwrap().path, events.path, "another name in the same second");
        let bytes = std::fs::read(&events.path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let (mut at, mut records) = (0, vec![]);
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            let record = &bytes[at + 12..at + 12 + length];
            assert_eq!(framed(record), bytes[at..at + 16 + length]);
            records.push(record);
            at += 16 + length;
        }
        assert!(records[0].ends_with(b"\x1a\x0dbrain.Event:2"));
        assert!(records[1].ends_with(&[0x10, 0xad, 0x02, 0x3a, 2, 8, 1]), "step 301, session starts: {:?}", records[1]);
        let scalars = [
            &[0x10, 0xad, 0x02, 0x2a, 26, 0x0a, 11, 0x0a, 4][..],
            b"loss\x15",
            &1.5f32.to_le_bytes(),
            &[0x0a, 11, 0x0a, 4],
            b"rate\x15",
            &0.25f32.to_le_bytes(),
        ];
        assert!(records[2].ends_with(&scalars.concat()), "{:?}", records[2]);
    }
}
