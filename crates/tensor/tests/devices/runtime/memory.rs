//! Buffers of the pool, copies of all kinds, limits, debug mode.

use std::sync::Arc;

use bornite_cuda::pool::{Backing, DriverBacking, Tag};
use bornite_cuda::{Buffer, Device, Error, LaunchConfig, PinnedBuffer, Pool, Stream};

use super::kernels::{self, buffer, load};
use crate::Outcome;
use crate::random::Random;

fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    for chunk in out.chunks_mut(8) {
        let word = random.bits().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    out
}

pub fn buffers_round_trip(device: &Arc<Device>) -> Outcome {
    let mut random = Random::fresh();
    // Also around the sizes of the staging ring and its pieces.
    for bytes in [0, 1, 4, 511, 512, 513, 1 << 20, (4 << 20) - 1, (4 << 20) + 1, (16 << 20) + 3, (40 << 20) + 7] {
        let data = noise(&mut random, bytes);
        let tag = device.pool().tag("round trip");
        let first = Buffer::with_tag(device, bytes, tag)?;
        first.upload(&data)?;
        let second = Buffer::new(device, bytes)?;
        second.copy_from(&first)?;
        let address = first.address();
        assert!(address.is_multiple_of(512), "{address:#x}");
        let snapshot = serde_json::to_value(device.pool().snapshot())?;
        assert!(snapshot.to_string().contains("round trip"), "the snapshot names who holds memory");
        drop(first);
        // Likely the same memory: written only after the copy above, in stream order.
        let third = Buffer::new(device, bytes)?;
        third.upload(&noise(&mut random, bytes))?;
        let mut back = vec![0; bytes];
        second.download(&mut back)?;
        assert!(back == data, "{bytes} bytes came back changed");
        second.free()?;
    }
    assert!(Buffer::new(device, 8)?.upload(&[0; 4]).is_err(), "lengths must agree");
    Ok(())
}

pub fn copies_wait_for_the_streams_of_both_buffers(device: &Arc<Device>) -> Outcome {
    let spin = load(device, kernels::SPIN)?;
    let (word, side) = (buffer(device, &[0])?, Stream::new(device)?);
    let data = noise(&mut Random::fresh(), 1 << 20);
    for (from_side, to_side) in [(true, false), (false, true)] {
        let made =
            |on_side| if on_side { Buffer::on_stream(&side, data.len()) } else { Buffer::new(device, data.len()) };
        let (from, to) = (made(from_side)?, made(to_side)?);
        to.upload(&vec![0; data.len()])?;
        // The other stream is busy when the copy is submitted to the default stream.
        let (busy, geometry) = (kernels::values(&[50_000, 1]), LaunchConfig::new([1; 3], [1; 3]));
        // SAFETY: the kernel writes the one word.
        unsafe { spin.launch_with(&geometry, Some(&side), &[(&word, 0)], &busy)? };
        if from_side {
            from.upload_on(&side, &data)?;
        } else {
            from.upload(&data)?;
            to.upload_on(&side, &vec![1; data.len()])?;
        }
        to.copy_from(&from)?;
        // Likely the same memory, which that stream could overwrite immediately without the
        // dependency.
        drop(from);
        Buffer::on_stream(&side, data.len())?.upload_on(&side, &vec![2; data.len()])?;
        let mut back = vec![0; data.len()];
        to.download(&mut back)?;
        assert!(back == data, "the copy did not wait: from the other stream's memory {from_side}, to it {to_side}");
    }
    Ok(())
}

pub fn pinned_copies(device: &Arc<Device>) -> Outcome {
    let mut random = Random::fresh();
    let (up, down) = (Stream::h2d(device), Stream::d2h(device));
    for bytes in [0, 1, 4097, (32 << 20) + 5] {
        let data = noise(&mut random, bytes);
        let there = Buffer::on_stream(&up, bytes)?;
        let (_, up_ms) = up.upload(PinnedBuffer::from_bytes(device, &data)?, &there)?.finish()?;
        let copy = Buffer::new(device, bytes)?;
        let (_, copy_ms) = up.copy(&there, &copy)?.finish()?;
        let back = down.download(&copy, PinnedBuffer::new(device, bytes)?)?;
        let (back, down_ms) = back.finish()?;
        assert!(*back == data[..], "{bytes} bytes came back changed");
        assert!(up_ms >= 0.0 && copy_ms >= 0.0 && down_ms >= 0.0);
        if bytes > 1 << 20 {
            println!("{bytes} bytes: up {up_ms:.3} ms, on the device {copy_ms:.3} ms, down {down_ms:.3} ms");
            assert!(up_ms > 0.0 && down_ms > 0.0);
        }
        // A transfer that is not waited for retains its memory until it is complete.
        drop(up.upload(back, &there)?);
    }
    let odd = Buffer::new(device, 8)?;
    assert!(up.upload(PinnedBuffer::new(device, 4)?, &odd).is_err(), "lengths must agree");
    let (_, ms) = device.timed(|| odd.upload(&[1; 8]))?;
    assert!(ms >= 0.0);
    Ok(())
}

/// A copy and a prefetch complete while the default stream is busy. To be run in a separate
/// process, since copies of other tests would be waited for.
pub fn overlap(device: &Arc<Device>) -> Outcome {
    let spin = load(device, kernels::SPIN)?;
    let word = buffer(device, &[0])?;
    let data = noise(&mut Random::fresh(), 4 << 20);
    let pinned = PinnedBuffer::from_bytes(device, &data)?;
    let up = Stream::h2d(device);
    let there = Buffer::on_stream(&up, data.len())?;
    // The first copy of a stream may synchronize the device.
    let (pinned, _) = up.upload(pinned, &there)?.finish()?;
    device.synchronize()?;
    let busy = kernels::values(&[300_000, 1]);
    let started = std::time::Instant::now();
    // SAFETY: the kernel writes the one word.
    unsafe { spin.launch([1, 1, 1], [1, 1, 1], &[(&word, 0)], &busy)? };
    let end = Stream::main(device).record()?;
    let launched = started.elapsed();
    let transfer = up.upload(pinned, &there)?;
    let queued = started.elapsed();
    // Held until the end: freeing pinned memory synchronizes the device.
    let (_pinned, _) = transfer.finish()?;
    let times = format!("launched after {launched:?}, copy given after {queued:?}, done after {:?}", started.elapsed());
    assert!(!end.is_done()?, "the copy waited for the kernel: {times}");
    let fetched = Buffer::prefetch(device, &data)?;
    assert!(!end.is_done()?, "the prefetch waited for the kernel");
    for copy in [&there, &fetched] {
        let mut back = vec![0; data.len()];
        copy.download(&mut back)?;
        assert!(back == data);
    }
    assert!(end.is_done()?, "a download on the device's own stream comes after the kernel");
    Ok(())
}

/// A separate pool, so that the limits do not affect other tests.
pub fn memory_fraction_limits_allocations(device: &Arc<Device>) -> Outcome {
    let pool = Pool::new(Arc::new(DriverBacking::new(device)));
    pool.set_fraction(0.1)?;
    let total = device.info().memory_bytes;
    let main = DriverBacking::MAIN;
    match pool.alloc(total / 5, main, Tag::default()) {
        Err(error @ Error::OutOfMemory(_)) => {
            let text = error.to_string();
            assert!(text.contains("0.1 of the device's memory") && text.contains("raise the limit"), "{text}");
        }
        other => return Err(format!("a fifth of the memory within a tenth: {other:?}").into()),
    }
    let block = pool.alloc(total / 20, main, Tag::default())?;
    assert!(pool.stats().reserved <= total / 10);
    pool.free(block)?;
    Ok(())
}

pub fn out_of_memory_recovers(device: &Arc<Device>) -> Outcome {
    let pool = device.pool();
    let mut calls = 0;
    for round in 0..3 {
        let (free, total) = device.memory_bytes()?;
        // More than there is: the driver rejects it without affecting others.
        let mut failed = vec![Buffer::new(device, total as usize)];
        // Most of the free memory, then as much again. Some stays free for other tests.
        let room = 16 << 30;
        if free > 3 * room {
            let tag = pool.tag("most of it");
            let most = Buffer::with_tag(device, (free - room) as usize, tag)?;
            failed.push(Buffer::new(device, (free - room) as usize));
            calls += 1;
            let text = failed[1].as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert!(text.contains("most of it"), "the error says who holds memory: {text}");
            drop(most);
        }
        for failure in failed {
            match failure {
                Err(Error::OutOfMemory(_)) => {}
                Err(other) => return Err(format!("round {round}: {other}").into()),
                Ok(_) => return Err(format!("round {round}: the request was met").into()),
            }
        }
        let data: Vec<u32> = (0..1000).collect();
        assert_eq!(kernels::read(&*buffer(device, &data)?)?, data, "round {round}");
        pool.empty_cache()?;
    }
    println!("{calls} rounds filled the device");
    Ok(())
}

pub fn backing_fills_and_compares(device: &Arc<Device>) -> Outcome {
    let backing = DriverBacking::new(device);
    let main = DriverBacking::MAIN;
    let bytes = 2 << 20;
    let Some(address) = backing.reserve(bytes)? else { return Err("no memory".into()) };
    assert!(backing.free_bytes()? > 0 && backing.total_bytes() == device.info().memory_bytes);
    backing.fill(address, bytes, 0xab, main)?;
    assert_eq!(backing.first_difference(address, bytes, 0xab, main)?, None);
    backing.fill(address + 12_345, 1, 0xac, main)?;
    assert_eq!(backing.first_difference(address, bytes, 0xab, main)?, Some(12_345));
    assert!(backing.fill(address + bytes - 1, 2, 0, main).is_err(), "past the segment");
    let event = backing.record(main)?;
    backing.wait(event)?;
    assert!(backing.is_done(event)?);
    backing.retire(event);
    backing.release(address, bytes, main)?;
    assert!(backing.release(address, bytes, main).is_err(), "released twice");
    Ok(())
}

pub fn debug_mode_finds_out_of_bounds_writes(device: &Arc<Device>) -> Outcome {
    let backing = Arc::new(DriverBacking::new(device));
    let pool = Pool::new(backing.clone());
    pool.set_debug(true);
    let main = DriverBacking::MAIN;
    let sound = pool.alloc(1000, main, pool.tag("sound"))?;
    backing.fill(sound.address(), 1000, 1, main)?;
    pool.free(sound)?;
    assert_eq!(backing.first_difference(sound.address(), 1000, 0xdd, main)?, None, "freed memory is covered");
    let damaged = pool.alloc(1000, main, pool.tag("damaged"))?;
    backing.fill(damaged.address() + 1003, 1, 9, main)?;
    match pool.free(damaged) {
        Err(Error::Overrun { tag, bytes: 1000, offset: 3, .. }) if tag == "damaged" => {}
        other => return Err(format!("{other:?}").into()),
    }
    assert_eq!(pool.stats().live_blocks, 0);
    // A launch through the runtime still finds its memory.
    let affine = load(device, kernels::AFFINE)?;
    let block = buffer(device, &[5; 64])?;
    let prepared = affine.prepare(
        LaunchConfig::new([1, 1, 1], [64, 1, 1]),
        &[(block.clone(), 0)],
        &[&[2, 0, 0, 0], &[1, 0, 0, 0], &[64, 0, 0, 0]],
    )?;
    // SAFETY: 64 words, as the kernel accesses.
    unsafe { prepared.launch()? };
    assert_eq!(kernels::read(&block)?, [11; 64]);
    Ok(())
}
