//! Writer of zstd frames: [ruzstd](https://docs.rs/ruzstd)'s compressor with a match finder for
//! source code. The output is deterministic.

mod match_finder;

use std::io::{self, Read, Write};

use ruzstd::encoding::{CompressionLevel, FrameCompressor};

use match_finder::MatchFinder;

/// Compresses bytes into one frame.
pub(crate) fn compress_to_vec(bytes: &[u8]) -> Vec<u8> {
    let mut compressed_bytes = vec![];
    let mut frame = FrameCompressor::new_with_matcher(MatchFinder::new(), CompressionLevel::Fastest);
    frame.set_source(bytes);
    frame.set_drain(&mut compressed_bytes);
    frame.compress();
    drop(frame);
    compressed_bytes
}

/// Reads and writes up to the first error, which it stores: the compressor would panic on it.
struct ErrorLatch<T> {
    inner: T,
    error: Option<io::Error>,
}

impl<T: Read> Read for ErrorLatch<T> {
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

impl<T: Write> Write for ErrorLatch<T> {
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

/// Compresses a stream into one frame: some readers stop after the first frame.
pub fn compress(from: impl Read, to: impl Write) -> io::Result<()> {
    let (mut from, mut to) = (ErrorLatch { inner: from, error: None }, ErrorLatch { inner: to, error: None });
    let mut frame = FrameCompressor::new_with_matcher(MatchFinder::new(), CompressionLevel::Fastest);
    frame.set_source(&mut from);
    frame.set_drain(&mut to);
    frame.compress();
    drop(frame);
    from.error.or(to.error).map_or(Ok(()), Err)
}
