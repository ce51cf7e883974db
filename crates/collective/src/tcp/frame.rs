//! Messages on a connection between two ranks: a header of fixed length, then the contents.

use std::io::{self, ErrorKind, Read, Write};

use crate::FailureKind;

const HEADER_BYTES: usize = 1 + 8 + 8;
const MESSAGE: u8 = 0;
const FAILURE: u8 = 1;
/// Contents that are sent together with their header, in one packet.
const SMALL_BYTES: usize = 1 << 14;
/// Maximum contents of a message: collectives send less.
const MAX_MESSAGE_BYTES: u64 = 1 << 32;
const MAX_FAILURE_BYTES: u64 = 4096;
/// Memory that is reserved for contents before they arrive.
const MAX_RESERVED_BYTES: usize = 64 << 20;

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// Contents for an exchange.
    Message { sequence: u64, bytes: Vec<u8> },
    /// Failure that the sender reports.
    Failure { kind: FailureKind, message: String },
}

/// Writes the contents for an exchange.
pub(super) fn write_message(stream: &mut impl Write, sequence: u64, bytes: &[u8]) -> io::Result<()> {
    write(stream, MESSAGE, sequence, bytes)
}

/// Writes a report of a failure.
pub(super) fn write_failure(stream: &mut impl Write, kind: FailureKind, message: &str) -> io::Result<()> {
    let bytes = message.as_bytes();
    write(stream, FAILURE, kind as u64, &bytes[..bytes.len().min(MAX_FAILURE_BYTES as usize)])
}

fn write(stream: &mut impl Write, kind: u8, number: u64, bytes: &[u8]) -> io::Result<()> {
    let (with_header, rest) = bytes.split_at(if bytes.len() <= SMALL_BYTES { bytes.len() } else { 0 });
    let mut start = Vec::with_capacity(HEADER_BYTES + with_header.len());
    start.push(kind);
    start.extend(number.to_le_bytes());
    start.extend((bytes.len() as u64).to_le_bytes());
    start.extend(with_header);
    stream.write_all(&start)?;
    stream.write_all(rest)
}

/// Reads a message; `None` at the end of the connection. Beyond [`MAX_RESERVED_BYTES`], memory is
/// allocated for bytes that arrived, not for those announced.
pub(super) fn read(stream: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match stream.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (kind, number, len) = (header[0], number(1), number(9));
    let max = if kind == FAILURE { MAX_FAILURE_BYTES } else { MAX_MESSAGE_BYTES };
    if kind > FAILURE || len > max {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("invalid message of kind {kind} with {len} bytes")));
    }
    let mut bytes = Vec::with_capacity((len as usize).min(MAX_RESERVED_BYTES));
    stream.take(len).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(match kind {
        FAILURE => Frame::Failure {
            kind: FailureKind::from_number(number as u8),
            message: String::from_utf8_lossy(&bytes).into_owned(),
        },
        _ => Frame::Message { sequence: number, bytes },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written() {
        let mut stream = vec![];
        let contents = [vec![], vec![1, 2, 3], vec![7; SMALL_BYTES], vec![9; 3 * SMALL_BYTES]];
        for (sequence, bytes) in contents.iter().enumerate() {
            write_message(&mut stream, sequence as u64, bytes).unwrap();
        }
        write_failure(&mut stream, FailureKind::RankLost, "the disk is full").unwrap();
        let mut rest = &stream[..];
        for (sequence, bytes) in contents.into_iter().enumerate() {
            assert_eq!(read(&mut rest).unwrap(), Some(Frame::Message { sequence: sequence as u64, bytes }));
        }
        let failure = Frame::Failure { kind: FailureKind::RankLost, message: "the disk is full".into() };
        assert_eq!(read(&mut rest).unwrap(), Some(failure));
        assert_eq!(read(&mut rest).unwrap(), None);
        // A connection that ends within a message.
        for len in [1, HEADER_BYTES - 1, HEADER_BYTES * 2 + 1] {
            let mut rest = &stream[..len];
            while let Ok(Some(_)) = read(&mut rest) {}
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn announced_lengths_are_bounded() {
        for (kind, len) in [(MESSAGE, MAX_MESSAGE_BYTES + 1), (FAILURE, MAX_FAILURE_BYTES + 1), (2, 0), (255, u64::MAX)]
        {
            let header = [&[kind][..], &0u64.to_le_bytes(), &len.to_le_bytes()].concat();
            assert_eq!(read(&mut &header[..]).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        // Announced, but not sent.
        let header = [&[MESSAGE][..], &0u64.to_le_bytes(), &MAX_MESSAGE_BYTES.to_le_bytes()].concat();
        assert_eq!(read(&mut &header[..]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes =
                [state.to_le_bytes(), state.rotate_left(23).to_le_bytes(), (state >> 40).to_le_bytes()].concat();
            let mut rest = &bytes[(state % 3) as usize..];
            while let Ok(Some(_)) = read(&mut rest) {}
        }
    }
}
