//! Random work on two streams and the default stream, with memory passed between them; every result
//! is checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bornite_cuda::{Buffer, Device, Error, KernelFunction, LaunchConfig, PinnedBuffer, Stream};

use super::kernels::{self, load, values, words};
use crate::Outcome;
use crate::random::Random;

/// A buffer whose word i holds a * i + b, and the stream that wrote it last.
struct Live {
    buffer: Buffer,
    words: u32,
    a: u32,
    b: u32,
    last: usize,
}

struct Work<'a> {
    device: &'a Arc<Device>,
    streams: [Stream; 3],
    affine: Arc<KernelFunction>,
    affine_to: Arc<KernelFunction>,
    check: Arc<KernelFunction>,
    /// Counts wrong words.
    errors: Buffer,
    checked: u64,
}

impl Work<'_> {
    fn geometry(words: u32) -> LaunchConfig {
        LaunchConfig::new([words.div_ceil(256).clamp(1, 264), 1, 1], [256, 1, 1])
    }

    /// Makes the stream wait for the last write to a buffer.
    fn follow(&self, live: &mut Live, stream: usize) -> Result<(), Error> {
        if live.last != stream {
            self.streams[stream].wait_for(&self.streams[live.last])?;
            live.last = stream;
        }
        Ok(())
    }

    fn create(&self, random: &mut Random) -> Result<Live, Error> {
        let stream = random.bits() as usize % 3;
        // Small and large, of both size classes of the pool.
        let words = 1 + (random.bits() as u32 % 1000) * [1, 1, 37, 997, 5003][random.bits() as usize % 5];
        let (a, b) = (random.bits() as u32, random.bits() as u32);
        let content: Vec<u32> = (0..words).map(|i| a.wrapping_mul(i).wrapping_add(b)).collect();
        let content = kernels::bytes(&content);
        let target = &self.streams[stream];
        let buffer = Buffer::on_stream(target, content.len())?;
        if random.bits().is_multiple_of(4) {
            // Not waited for: it waits when it is dropped.
            target.upload(PinnedBuffer::from_bytes(self.device, &content)?, &buffer)?;
        } else {
            buffer.upload_on(target, &content)?;
        }
        Ok(Live { buffer, words, a, b, last: stream })
    }

    fn change(&self, live: &mut Live, random: &mut Random) -> Result<(), Error> {
        let stream = random.bits() as usize % 3;
        let (m, c) = (random.bits() as u32 | 1, random.bits() as u32);
        self.follow(live, stream)?;
        let target = &self.streams[stream];
        if random.bits().is_multiple_of(2) {
            let values = values(&[m, c, live.words]);
            // SAFETY: the buffer has this many words.
            unsafe {
                let pointers = [(&live.buffer, 0)];
                self.affine.launch_with(&Work::geometry(live.words), Some(target), &pointers, &values)?;
            }
        } else {
            // Into new memory of that stream; the old buffer is freed while the kernel may still
            // read it.
            let to = Buffer::on_stream(target, live.buffer.bytes())?;
            let values = values(&[m, c, live.words]);
            // SAFETY: both buffers have this many words.
            unsafe {
                let pointers = [(&live.buffer, 0), (&to, 0)];
                self.affine_to.launch_with(&Work::geometry(live.words), Some(target), &pointers, &values)?;
            }
            live.buffer = to;
        }
        live.a = live.a.wrapping_mul(m);
        live.b = live.b.wrapping_mul(m).wrapping_add(c);
        Ok(())
    }

    fn verify(&mut self, live: &mut Live, random: &mut Random) -> Outcome {
        let stream = random.bits() as usize % 3;
        self.follow(live, stream)?;
        self.checked += 1;
        let target = &self.streams[stream];
        if random.bits().is_multiple_of(8) {
            let mut found = vec![0; live.buffer.bytes()];
            live.buffer.download_on(target, &mut found)?;
            let expected = |i: u32| live.a.wrapping_mul(i).wrapping_add(live.b);
            let wrong = words(&found).iter().zip(0..).position(|(&word, i)| word != expected(i));
            return wrong.map_or(Ok(()), |at| Err(format!("word {at} of {} is wrong", live.words).into()));
        }
        let values = values(&[live.a, live.b, live.words]);
        // SAFETY: the buffer has this many words, and the counter is one word.
        unsafe {
            let pointers = [(&live.buffer, 0), (&self.errors, 0)];
            self.check.launch_with(&Work::geometry(live.words), Some(target), &pointers, &values)?;
        }
        Ok(())
    }

    fn wrong_words(&self) -> Result<u32, Error> {
        for stream in &self.streams {
            stream.synchronize()?;
        }
        Ok(kernels::read(&self.errors)?[0])
    }
}

pub fn random_work_on_two_streams(device: &Arc<Device>) -> Outcome {
    let time = Duration::from_secs(if super::full() { 60 } else { 3 });
    let mut random = Random::fresh();
    let errors = Buffer::new(device, 4)?;
    errors.upload(&[0; 4])?;
    device.synchronize()?;
    let mut work = Work {
        device,
        streams: [Stream::main(device), Stream::new(device)?, Stream::new(device)?],
        affine: load(device, kernels::AFFINE)?,
        affine_to: load(device, kernels::AFFINE_TO)?,
        check: load(device, kernels::CHECK)?,
        errors,
        checked: 0,
    };
    let start = Instant::now();
    let mut live: Vec<Live> = vec![];
    let mut steps = 0u64;
    while start.elapsed() < time {
        steps += 1;
        let chosen = random.bits() as usize % live.len().max(1);
        match random.bits() % 16 {
            0..4 if live.len() < 64 => live.push(work.create(&mut random)?),
            4..11 if !live.is_empty() => work.change(&mut live[chosen], &mut random)?,
            11..14 if !live.is_empty() => work.verify(&mut live[chosen], &mut random)?,
            14 if !live.is_empty() => {
                let mut last = live.swap_remove(chosen);
                work.verify(&mut last, &mut random)?;
            }
            15 if steps.is_multiple_of(512) => {
                device.pool().empty_cache()?;
            }
            _ => {}
        }
        if steps.is_multiple_of(4096) {
            assert_eq!(work.wrong_words()?, 0, "wrong words after {steps} steps");
        }
    }
    for mut last in live {
        work.verify(&mut last, &mut random)?;
    }
    assert_eq!(work.wrong_words()?, 0, "wrong words after {steps} steps");
    println!("{steps} steps, {} buffers checked, {:?}", work.checked, device.pool().stats());
    assert!(work.checked > 100, "only {} checks", work.checked);
    Ok(())
}
