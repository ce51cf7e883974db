//! Launches: on streams, prepared, with large shared memory, in clusters; and properties of
//! kernels.

use std::sync::Arc;

use bornite_cuda::{
    Buffer, Device, DeviceInfo, Error, Event, LaunchConfig, LaunchWorkload, Stream, advise, loaded_kernels, occupancy,
};

use super::kernels::{self, buffer, load, read, values};
use crate::Outcome;

pub fn two_streams_with_events(device: &Arc<Device>) -> Outcome {
    let (spin, affine) = (load(device, kernels::SPIN)?, load(device, kernels::AFFINE)?);
    let (a, b) = (Stream::new(device)?, Stream::new(device)?);
    let one = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    for round in 0..20 {
        let word = Buffer::on_stream(&a, 4)?;
        word.upload_on(&a, &1u32.to_ne_bytes())?;
        let begin = a.record()?;
        // SAFETY: each kernel touches the one word.
        unsafe {
            // + 10 on a, · 3 + 1 on b, + 100 on a: any other order gives another number.
            spin.launch_with(&one, Some(&a), &[(&word, 0)], &values(&[2000, 10]))?;
            b.wait(&a.record()?)?;
            affine.launch_with(&one, Some(&b), &[(&word, 0)], &values(&[3, 1, 1]))?;
            a.wait_for(&b)?;
            spin.launch_with(&one, Some(&a), &[(&word, 0)], &values(&[100, 100]))?;
        }
        let end = a.record()?;
        let mut found = [0; 4];
        word.download_on(&a, &mut found)?;
        assert_eq!(u32::from_ne_bytes(found), (1 + 10) * 3 + 1 + 100, "round {round}");
        let ms = end.ms_since(&begin)?;
        assert!((2.1..1000.0).contains(&ms), "two kernels of 2.1 ms together took {ms} ms");
    }
    b.synchronize()?;
    assert!(b.is_idle()?);
    assert!(Event::timed(device)?.is_done()?, "what was never recorded counts as done");

    // Memory freed while another stream still uses it must not be reused: `late` would be
    // overwritten.
    for _ in 0..20 {
        let (early, far) = (buffer(device, &[7; 256])?, Stream::new(device)?);
        far.wait_for(&Stream::main(device))?;
        // SAFETY: each kernel accesses only the words of its buffers.
        unsafe {
            spin.launch_with(&one, Some(&far), &[(&early, 0)], &values(&[3000, 1]))?;
            affine.launch_with(&one, Some(&far), &[(&early, 0)], &values(&[1, 1, 256]))?;
        }
        drop(early);
        let late = buffer(device, &[9; 256])?;
        far.synchronize()?;
        assert_eq!(read(&late)?, [9; 256]);
    }
    Ok(())
}

pub fn prepared_launch_equals_plain_launch(device: &Arc<Device>) -> Outcome {
    let function = load(device, kernels::AFFINE_TO)?;
    let n = 10_000u32;
    let content: Vec<u32> = (0..n).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let (x, z) = (buffer(device, &content)?, buffer(device, &vec![5; n as usize])?);
    let (plain, fired) = (buffer(device, &vec![0; n as usize])?, buffer(device, &vec![0; n as usize])?);
    let geometry = function.config_for(n.into())?;
    let word = |value: u32| value.to_ne_bytes();
    let (three, one, count) = (word(3), word(1), word(n));
    let pointers = [(x.clone(), 0), (fired.clone(), 0)];
    let mut prepared = function.prepare(geometry, &pointers, &[&three, &one, &count])?;
    // SAFETY: the buffers have n words each, also if fewer are used below.
    unsafe {
        function.launch(geometry.grid, geometry.block, &[(&x, 0), (&plain, 0)], &values(&[3, 1, n]))?;
        prepared.launch()?;
        assert_eq!(read(&plain)?, read(&fired)?);
        prepared.set_value(0, &word(7))?;
        prepared.set_pointer(0, &z, 0)?;
        prepared.launch()?;
        assert_eq!(read(&fired)?, vec![36; n as usize]);
        // 100 words from the 50th on.
        prepared.set_pointer(1, &fired, 200)?;
        prepared.set_value(1, &word(2))?;
        prepared.set_value(2, &word(100))?;
        prepared.launch()?;
        let stream = Stream::new(device)?;
        stream.wait_for(&Stream::main(device))?;
        prepared.launch_on(&stream)?;
        stream.synchronize()?;
    }
    let found = read(&fired)?;
    assert!(found[..50].iter().chain(&found[150..]).all(|&v| v == 36) && found[50..150].iter().all(|&v| v == 37));
    for wrong in [
        prepared.set_value(0, &[1]),
        prepared.set_value(3, &word(1)),
        prepared.set_pointer(2, &x, 0),
        prepared.set_config(LaunchConfig::new([1, 1, 1], [2048, 1, 1])),
        function.prepare(geometry, &pointers[..1], &[&three, &one, &count]).map(drop),
    ] {
        assert!(matches!(&wrong, Err(Error::InvalidLaunch { kernel, .. }) if kernel == "affine_to"), "{wrong:?}");
    }
    Ok(())
}

pub fn large_shared_memory(device: &Arc<Device>) -> Outcome {
    let function = load(device, kernels::REVERSE)?;
    let most = device.info().max_shared_bytes_per_block;
    assert!(most > 48 << 10, "this device has {most} bytes only");
    for shared_bytes in [16 << 10, 48 << 10, 60 << 10, most, 1 << 10] {
        let n = shared_bytes / 4;
        let content: Vec<u32> = (0..n).collect();
        let x = buffer(device, &content)?;
        let geometry = LaunchConfig { shared_bytes, ..LaunchConfig::new([1, 1, 1], [256, 1, 1]) };
        // SAFETY: the buffer and the shared memory hold n words.
        unsafe { function.launch_with(&geometry, None, &[(&x, 0)], &values(&[n]))? };
        assert_eq!(read(&x)?, content.iter().rev().copied().collect::<Vec<_>>(), "{shared_bytes} bytes");
    }
    let x = buffer(device, &[0])?;
    let geometry = LaunchConfig { shared_bytes: most + 1, ..LaunchConfig::new([1, 1, 1], [32, 1, 1]) };
    // SAFETY: fails before it runs.
    let rejected = unsafe { function.launch_with(&geometry, None, &[(&x, 0)], &values(&[1])) };
    let text = rejected.expect_err("more shared memory than there is").to_string();
    assert!(text.contains("'reverse'") && text.contains(&most.to_string()), "{text}");
    Ok(())
}

pub fn occupancy_and_registry(device: &Arc<Device>) -> Outcome {
    for kernel in &kernels::ALL[..kernels::COMMON] {
        let function = load(device, *kernel)?;
        let resources = function.resources();
        assert!(resources.registers > 0 && resources.max_threads_per_block >= 32, "{resources:?}");
        for (threads, shared) in [(32, 0), (128, 0), (256, 0), (256, 40 << 10), (1024, 0), (96, 20 << 10)] {
            let (ours, drivers) =
                (occupancy(device.info(), threads, resources, shared), function.occupancy(threads, shared)?);
            assert_eq!(ours.blocks, drivers.blocks, "{}: {threads} threads, {shared} bytes", kernel.0);
        }
        let (block, grid) = function.max_potential_block_size(0)?;
        assert!((32..=1024).contains(&block) && grid >= device.info().multiprocessors);
        let listed = loaded_kernels();
        let entry = listed.iter().find(|entry| entry.name == kernel.0 && entry.device == 0);
        let entry = entry.ok_or_else(|| format!("{} is not in the registry", kernel.0))?;
        assert!(entry.loads >= 1 && entry.live >= 1 && entry.arch == device.info().arch());
    }
    // The suggested configuration can be launched.
    let affine = load(device, kernels::AFFINE)?;
    for elements in [1u32, 1000, 3_000_000] {
        let template = LaunchWorkload::Elementwise { elements: elements.into(), element_bytes: 4 };
        let advice = advise(device.info(), template, Some(affine.resources()));
        let x = buffer(device, &vec![1; elements as usize])?;
        let launch = || {
            // SAFETY: the buffer has as many words as the kernel accesses.
            unsafe { affine.launch_with(&advice.config, None, &[(&x, 0)], &values(&[2, 3, elements])) }
        };
        let ((), ms) = device.timed(launch)?;
        assert!(ms > 0.0 && read(&x)?.iter().all(|&v| v == 5), "{advice:?}");
    }
    Ok(())
}

pub fn clusters_and_cooperation(device: &Arc<Device>) -> Outcome {
    let info = device.info();
    let meet = load(device, kernels::MEET)?;
    let blocks = meet.occupancy(32, 0)?.blocks * info.multiprocessors;
    let (arrived, out) = (buffer(device, &[0])?, buffer(device, &vec![0; blocks as usize])?);
    let geometry = LaunchConfig { cooperative: true, ..LaunchConfig::new([blocks, 1, 1], [32, 1, 1]) };
    // SAFETY: one word per block.
    unsafe { meet.launch_with(&geometry, None, &[(&arrived, 0), (&out, 0)], &[])? };
    assert_eq!(read(&out)?, vec![blocks; blocks as usize]);
    let too_many = LaunchConfig { grid: [blocks + 1, 1, 1], ..geometry };
    // SAFETY: the driver rejects it before it runs.
    let rejected = unsafe { meet.launch_with(&too_many, None, &[(&arrived, 0), (&out, 0)], &[]) };
    assert!(rejected.is_err(), "more blocks than can run at once");
    if !info.clusters {
        println!("{} has no clusters: the rest is skipped", info.label());
        return Ok(());
    }
    let ranks = load(device, kernels::CLUSTER)?;
    for size in [1u32, 2, 4, 8, 16] {
        let blocks = 4 * size;
        let out = buffer(device, &vec![99; 2 * blocks as usize])?;
        let geometry = LaunchConfig { cluster: Some([size, 1, 1]), ..LaunchConfig::new([blocks, 1, 1], [32, 1, 1]) };
        // SAFETY: two words per block.
        unsafe { ranks.launch_with(&geometry, None, &[(&out, 0)], &[])? };
        let expected: Vec<u32> = (0..blocks).flat_map(|block| [block % size, size]).collect();
        assert_eq!(read(&out)?, expected, "clusters of {size}");
    }
    let ragged = LaunchConfig { cluster: Some([2, 1, 1]), ..LaunchConfig::new([3, 1, 1], [32, 1, 1]) };
    let out = buffer(device, &[0; 8])?;
    // SAFETY: fails before it runs.
    assert!(unsafe { ranks.launch_with(&ragged, None, &[(&out, 0)], &[]) }.is_err());

    let follow = load(device, kernels::FOLLOW)?;
    let n = 4096;
    let x = buffer(device, &vec![0; n as usize])?;
    let geometry =
        LaunchConfig { programmatic_dependent_launch: true, ..LaunchConfig::new([n / 256, 1, 1], [256, 1, 1]) };
    let prepared = follow.prepare(geometry, &[(x.clone(), 0)], &[&n.to_ne_bytes()])?;
    let mut expected = 0u32;
    for _ in 0..200 {
        // SAFETY: n words.
        unsafe { prepared.launch()? };
        expected = expected.wrapping_mul(3).wrapping_add(1);
    }
    assert_eq!(read(&x)?, vec![expected; n as usize], "200 kernels that overlap their predecessors");
    Ok(())
}

pub fn devices_and_threads(device: &Arc<Device>) -> Outcome {
    let info = device.describe()?;
    assert!(info.free_memory_bytes.is_some_and(|free| free > 0 && free <= info.memory_bytes));
    assert!(info.max_block_dim[0] >= 1024 && info.max_grid_dim[0] > 65_535 && info.registers_per_block >= 32_768);
    assert!(info.pci_bus.contains(':') && info.warp_size == 32, "{info:?}");
    assert!(DeviceInfo::all()?.contains(device.info()));
    println!("{}", serde_json::to_string(&info)?);
    let error = Device::open(99).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("there is no cuda:99") && error.contains(&info.label()), "{error}");
    assert!(Device::set_current(99).is_err());
    assert_eq!(Device::current_ordinal(), 0, "a refused change changes nothing");
    assert!(Arc::ptr_eq(&Device::set_current(0)?, &Device::current()?));
    Device::best()?;

    let affine = load(device, kernels::AFFINE)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let affine = affine.clone();
                scope.spawn(move || -> Result<(), Error> {
                    for round in 0..100 {
                        let x = buffer(device, &[thread; 1000])?;
                        // SAFETY: 1000 words.
                        unsafe { affine.launch([4, 1, 1], [256, 1, 1], &[(&x, 0)], &values(&[3, round, 1000]))? };
                        assert_eq!(read(&x)?, [thread * 3 + round; 1000]);
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(())
}

pub fn pointers_stay_within_their_buffers(device: &Arc<Device>) -> Outcome {
    let function = load(device, kernels::STRAY)?;
    let word = buffer(device, &[0])?;
    let geometry = LaunchConfig::new([1; 3], [1; 3]);
    let says = "offset 5 in a buffer of 4 bytes";
    // SAFETY: never launched.
    let rejected = unsafe { function.launch_with(&geometry, None, &[(&word, 5)], &[]) };
    let text = rejected.err().ok_or("launched")?.to_string();
    assert!(text.contains(says), "{text}");
    let text = function.prepare(geometry, &[(word.clone(), 5)], &[]).err().ok_or("prepared")?.to_string();
    assert!(text.contains(says), "{text}");
    let huge = LaunchConfig::new([1; 3], [u32::MAX; 3]);
    let text = function.prepare(huge, &[(word, 0)], &[]).err().ok_or("prepared")?.to_string();
    assert!(text.contains("threads per block"), "{text}");
    Ok(())
}
