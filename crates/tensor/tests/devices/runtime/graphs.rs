//! CUDA graphs: replays, updates, and operations that a capture does not allow.

use std::any::Any;
use std::sync::Arc;

use bornite_cuda::{Buffer, Device, Error, Graph, GraphArgument, GraphUpdate, LaunchConfig, PreparedFunction};

use super::kernels::{self, buffer, load, read};
use crate::Outcome;

const WORDS: u32 = 1024;
const GEOMETRY: LaunchConfig = LaunchConfig {
    grid: [4, 1, 1],
    block: [256, 1, 1],
    shared_bytes: 0,
    cluster: None,
    cooperative: false,
    programmatic_dependent_launch: false,
};

/// A launch of x = x * m + c.
fn affine(
    function: &Arc<bornite_cuda::KernelFunction>,
    x: &Arc<Buffer>,
    m: u32,
    c: u32,
) -> Result<PreparedFunction, Error> {
    function.prepare(GEOMETRY, &[(x.clone(), 0)], &[&m.to_ne_bytes(), &c.to_ne_bytes(), &WORDS.to_ne_bytes()])
}

/// Captures each of the launches in turn, `count` in all.
fn captured(
    device: &Arc<Device>,
    launches: &[PreparedFunction],
    count: usize,
    kept: &Arc<Buffer>,
) -> Result<Graph, Error> {
    // SAFETY: the buffers and the function are retained, and the kernel accesses only their words.
    unsafe {
        Graph::capture(device, keep(launches, kept), || {
            launches.iter().cycle().take(count).try_for_each(|launch| launch.launch())
        })
    }
}

fn keep(launches: &[PreparedFunction], buffer: &Arc<Buffer>) -> Vec<Arc<dyn Any + Send + Sync>> {
    let functions = launches.iter().map(|launch| launch.function().clone() as Arc<dyn Any + Send + Sync>);
    functions.chain([buffer.clone() as _]).collect()
}

pub fn replays_equal_eager(device: &Arc<Device>) -> Outcome {
    let replays = if super::full() { 10_000 } else { 300 };
    let function = load(device, kernels::AFFINE)?;
    let start: Vec<u32> = (0..WORDS).collect();
    let (graphed, eager) = (buffer(device, &start)?, buffer(device, &start)?);
    let steps = [(3, 1), (5, 7), (1_664_525, 1_013_904_223), (9, 4)];
    let launches = |x| steps.iter().map(|&(m, c)| affine(&function, x, m, c)).collect::<Result<Vec<_>, _>>();
    let (for_graph, for_eager) = (launches(&graphed)?, launches(&eager)?);
    let mut graph = captured(device, &for_graph, 200, &graphed)?;
    assert_eq!(graph.nodes(), 200);
    assert_eq!(read(&graphed)?, start, "a capture runs nothing");
    for _ in 0..replays {
        graph.launch()?;
    }
    for _ in 0..replays {
        for launch in for_eager.iter().cycle().take(200) {
            // SAFETY: the kernel accesses only the words of the buffer.
            unsafe { launch.launch()? };
        }
    }
    assert_eq!(read(&graphed)?, read(&eager)?);
    // Both equal the host's result.
    let (mut m, mut c) = (1u32, 0u32);
    for &(by, plus) in steps.iter().cycle().take(200 * replays) {
        (m, c) = (m.wrapping_mul(by), c.wrapping_mul(by).wrapping_add(plus));
    }
    let expected: Vec<u32> = start.iter().map(|x| x.wrapping_mul(m).wrapping_add(c)).collect();
    assert_eq!(read(&graphed)?, expected);
    let stream = bornite_cuda::Stream::new(device)?;
    stream.wait_for(&bornite_cuda::Stream::main(device))?;
    // SAFETY: the stream waits for all previous work, and is synchronized below.
    unsafe { graph.launch_on(&stream)? };
    stream.synchronize()?;
    assert_ne!(read(&graphed)?, expected);
    Ok(())
}

pub fn update(device: &Arc<Device>) -> Outcome {
    let function = load(device, kernels::AFFINE)?;
    let (x, y) = (buffer(device, &[1; WORDS as usize])?, buffer(device, &[1; WORDS as usize])?);
    let on_x = [affine(&function, &x, 2, 1)?];
    let mut graph = captured(device, &on_x, 3, &x)?;
    graph.launch()?;
    assert_eq!((read(&x)?[0], read(&y)?[0]), (15, 1));
    // The same topology with another buffer and other values.
    let on_y = [affine(&function, &y, 10, 3)?];
    // SAFETY: as in `captured`.
    let updated = unsafe { graph.update(keep(&on_y, &y), || (0..3).try_for_each(|_| on_y[0].launch())) };
    assert_eq!(updated.map_err(|e: Error| e)?, GraphUpdate::InPlace);
    graph.launch()?;
    assert_eq!((read(&x)?[0], read(&y)?[0]), (15, 1333));
    // Another number of launches.
    // SAFETY: as above.
    let updated = unsafe { graph.update(keep(&on_x, &x), || (0..5).try_for_each(|_| on_x[0].launch())) };
    assert_eq!((updated.map_err(|e: Error| e)?, graph.nodes()), (GraphUpdate::Rebuilt, 5));
    graph.launch()?;
    assert_eq!((read(&x)?[0], read(&y)?[0]), (15 * 32 + 31, 1333));
    // A failed update does not change the graph.
    // SAFETY: as above.
    let failed = unsafe {
        graph.update(vec![], || {
            on_y[0].launch()?;
            Err(Error::Disassembler("made to fail".into()))
        })
    };
    assert!(matches!(failed, Err(Error::Disassembler(_))), "{failed:?}");
    assert_eq!(graph.nodes(), 5);
    drop((on_x, on_y, function, x));
    graph.launch()?;
    device.synchronize()?;
    Ok(())
}

/// Arguments, which a graph does not retain: each launch gets a buffer at the captured address.
pub fn arguments(device: &Arc<Device>) -> Outcome {
    const BYTES: usize = 4 * WORDS as usize;
    fn entire_buffer(buffer: &Buffer) -> GraphArgument<'_> {
        GraphArgument { buffer, offset: 0, bytes: buffer.bytes() }
    }
    let function = load(device, kernels::AFFINE_TO)?;
    let y = buffer(device, &[0; WORDS as usize])?;
    let kept = || vec![function.clone() as Arc<dyn Any + Send + Sync>, y.clone() as _];
    let values = [2u32, 1, WORDS].map(|value| value.to_ne_bytes().to_vec());
    // SAFETY: the kernel accesses only the words of both buffers.
    let run = |x: &Buffer| unsafe { function.launch([4, 1, 1], [256, 1, 1], &[(x, 0), (&y, 0)], &values) };
    let (x, other) = (buffer(device, &[3; WORDS as usize])?, buffer(device, &[10; WORDS as usize])?);
    // SAFETY: the function and the output are retained, the rest is an argument.
    let mut graph = unsafe { Graph::capture_with::<Error>(device, kept(), &[entire_buffer(&x)], || run(&x))? };
    graph.launch_with(&[entire_buffer(&x)])?;
    assert_eq!(read(&y)?, [7; WORDS as usize]);
    let rejected = |launched: Result<(), Error>, expected: &str| {
        let error = launched.expect_err("other arguments than those of the capture").to_string();
        assert!(error.contains(expected), "{error}");
    };
    rejected(graph.launch(), "the graph was captured with 1 argument, but the launch has 0");
    rejected(graph.launch_with(&[entire_buffer(&other)]), "argument 0 had 4096 bytes at");
    rejected(graph.launch_with(&[GraphArgument { bytes: BYTES - 8, ..entire_buffer(&x) }]), "but now has 4088 at");
    rejected(graph.launch_with(&[GraphArgument { offset: 8, ..entire_buffer(&x) }]), "4096 bytes at offset 8 exceed");
    assert_eq!(read(&y)?, [7; WORDS as usize], "nothing was launched");
    // An argument that is dropped while the launch may still run, and another at its address.
    let address = x.address();
    let (mut x, mut found) = (x, 0);
    for n in 0..50u32 {
        graph.launch_with(&[entire_buffer(&x)])?;
        drop(x);
        assert_eq!(Arc::strong_count(&y), 2, "the graph keeps its result");
        x = buffer(device, &[n; WORDS as usize])?;
        if x.address() != address {
            break;
        }
        found += 1;
        graph.launch_with(&[entire_buffer(&x)])?;
        assert_eq!(read(&y)?, [2 * n + 1; WORDS as usize]);
    }
    // Other tests may allocate the memory in between.
    println!("an argument had the address of the one before {found} times");
    // SAFETY: as above.
    let updated = unsafe { graph.update_with::<Error>(kept(), &[entire_buffer(&other)], || run(&other))? };
    assert_eq!(updated, GraphUpdate::InPlace);
    graph.launch_with(&[entire_buffer(&other)])?;
    assert_eq!(read(&y)?, [21; WORDS as usize]);
    Ok(())
}

pub fn capture_neither_allocates_nor_frees(device: &Arc<Device>) -> Outcome {
    let function = load(device, kernels::AFFINE)?;
    let x = buffer(device, &[1; WORDS as usize])?;
    let launch = [affine(&function, &x, 2, 1)?];
    let passing = Buffer::new(device, 4096)?;
    let mut passing = Some(passing);
    // SAFETY: as in `captured`.
    let graph = unsafe {
        Graph::capture::<Error>(device, keep(&launch, &x), || {
            assert!(matches!(Buffer::new(device, 4), Err(Error::Capturing { .. })));
            assert!(matches!(x.upload(&[0; 4 * WORDS as usize]), Err(Error::Capturing { .. })));
            assert!(matches!(x.download(&mut [0; 4 * WORDS as usize]), Err(Error::Capturing { .. })));
            assert!(Graph::capture::<Error>(device, vec![], || Ok(())).is_err(), "a capture in a capture");
            drop(passing.take());
            // Work of another thread continues and is not captured.
            std::thread::scope(|scope| scope.spawn(|| buffer(device, &[3; 64]).and_then(|b| read(&b))).join())
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .map(|found| assert_eq!(found, [3; 64]))?;
            launch[0].launch()
        })
    };
    let mut graph = graph?;
    assert_eq!(graph.nodes(), 1);
    graph.launch()?;
    assert_eq!(read(&x)?[0], 3);
    // A panic in the work ends the capture too.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // SAFETY: as above.
        unsafe { Graph::capture::<Error>(device, vec![], || panic!("on purpose")) }.map(drop)
    }));
    assert!(panicked.is_err());
    let mut again = captured(device, &launch, 2, &x)?;
    again.launch()?;
    assert_eq!(read(&x)?[0], 15);
    Ok(())
}
