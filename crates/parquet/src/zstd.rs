//! zstd frames, written: [ruzstd](https://docs.rs/ruzstd)'s compressor with a search for repetitions that suits source
//! texts. The same bytes give the same frame.

mod matches;

use std::io::{self, Read, Write};

use ruzstd::encoding::{CompressionLevel, FrameCompressor};

use matches::Matches;

/// Compresses bytes into one frame.
pub(crate) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![];
    let mut frame = FrameCompressor::new_with_matcher(Matches::new(), CompressionLevel::Fastest);
    frame.set_source(bytes);
    frame.set_drain(&mut packed);
    frame.compress();
    drop(frame);
    packed
}

/// Reads and writes up to the first error, which it stores: the compressor would panic on it.
struct Guarded<T> {
    inner: T,
    error: Option<io::Error>,
}

impl<T: Read> Read for Guarded<T> {
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

impl<T: Write> Write for Guarded<T> {
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
pub fn compress(from: impl Read, to: impl Write) -> io::Result<()> {
    let (mut from, mut to) = (Guarded { inner: from, error: None }, Guarded { inner: to, error: None });
    let mut frame = FrameCompressor::new_with_matcher(Matches::new(), CompressionLevel::Fastest);
    frame.set_source(&mut from);
    frame.set_drain(&mut to);
    frame.compress();
    drop(frame);
    from.error.or(to.error).map_or(Ok(()), Err)
}
