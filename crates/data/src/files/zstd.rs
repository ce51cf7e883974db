//! zstd, by a compressor in Rust.

mod matches;

use std::io::{self, Read, Write};

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, FrameCompressor};

use matches::Matches;

/// The bytes as one frame.
pub(super) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![];
    let mut frame = FrameCompressor::new_with_matcher(Matches::new(), CompressionLevel::Fastest);
    frame.set_source(bytes);
    frame.set_drain(&mut packed);
    frame.compress();
    drop(frame);
    packed
}

/// The first frame of some bytes, of `length` bytes at most.
pub(super) fn decompressed(bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let decoder = StreamingDecoder::new(bytes).map_err(|error| format!("it is not zstd: {error}"))?;
    let mut found = Vec::new();
    found.try_reserve_exact(length + 1).map_err(|_| format!("there is no memory for {length} bytes"))?;
    let read = decoder.take(length as u64 + 1).read_to_end(&mut found);
    read.map_err(|error| format!("it is not zstd: {error}"))?;
    Ok(found)
}

/// Reads and writes until the first error, which is kept: the compressor would panic on it.
struct Kept<T> {
    inner: T,
    error: Option<io::Error>,
}

impl<T: Read> Read for Kept<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.inner.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    return Ok(0);
                }
                read => return read,
            }
        }
    }
}

impl<T: Write> Write for Kept<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.error.is_none()
            && let Err(error) = self.inner.write_all(bytes)
        {
            self.error = Some(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses a stream into one frame: some readers stop at the end of the first.
pub(super) fn compress(from: impl Read, to: impl Write) -> io::Result<()> {
    let (mut from, mut to) = (Kept { inner: from, error: None }, Kept { inner: to, error: None });
    let mut frame = FrameCompressor::new_with_matcher(Matches::new(), CompressionLevel::Fastest);
    frame.set_source(&mut from);
    frame.set_drain(&mut to);
    frame.compress();
    drop(frame);
    from.error.or(to.error).map_or(Ok(()), Err)
}
