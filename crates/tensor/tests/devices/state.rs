//! Variables: commits are atomic, and values that were read never change.

use bornite::{DType, Device, Tensor, Var, settings::DEVICE_VARIABLE, var::commit};

use crate::Outcome;
use crate::runtime::child;

fn var(values: &[f32], device: Device) -> bornite::Result<Var> {
    Var::new(&Tensor::from_slice(values, &[values.len()], device))
}

pub fn commit_is_atomic(device: Device) -> Outcome {
    let (a, b) = (var(&[1.0, 2.0], device)?, var(&[3.0], device)?);
    let wrong_shape = commit(&[], vec![a.set(a.get() * 2.0), b.set(a.get())]).unwrap_err().to_string();
    assert!(
        wrong_shape.contains("the variable is f32[1]") && wrong_shape.contains("the new value is f32[2]"),
        "{wrong_shape}"
    );
    let failed = a.get().matmul(&b.get());
    assert!(commit(&[], vec![a.set(a.get() * 2.0), b.set(failed)]).is_err());
    let twice = commit(&[], vec![a.set(a.get() * 2.0), a.set(a.get() * 3.0)]).unwrap_err().to_string();
    assert!(twice.contains("updated twice") && twice.contains(file!()), "{twice}");
    let bad_output = Tensor::zeros(&[3], DType::F32, device).reshape(&[4]);
    assert!(commit(&[bad_output], vec![a.set(a.get() * 2.0)]).is_err());
    assert_eq!(a.get().to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(b.get().to_vec::<f32>()?, [3.0]);

    let out = a.get().sum(..);
    commit(std::slice::from_ref(&out), vec![a.set(a.get() + 1.0), b.set(b.get() * 10.0)])?;
    assert_eq!(out.item()?, 3.0);
    assert_eq!(a.get().to_vec::<f32>()?, [2.0, 3.0]);
    assert_eq!(b.get().to_vec::<f32>()?, [30.0]);
    Ok(())
}

pub fn versions_never_change(device: Device) -> Outcome {
    let start = Tensor::from_slice(&[1.0f32, 2.0], &[2], device);
    let a = Var::new(&start)?;
    let (read, lazy) = (a.get(), a.get() * 100.0);
    for _ in 0..3 {
        commit(&[], vec![a.set(a.get() + 1.0)])?;
    }
    assert_eq!(read.to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(lazy.to_vec::<f32>()?, [100.0, 200.0], "computed after the commits, from what was read before");
    assert_eq!(start.to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(a.get().to_vec::<f32>()?, [4.0, 5.0]);
    Ok(())
}

/// Steps of another thread see all updates of a commit or none.
pub fn commits_are_atomic_for_other_threads(device: Device) -> Outcome {
    let (a, b) = (var(&[0.0], device)?, var(&[0.0], device)?);
    let difference = bornite::trace(|_| Ok((vec![a.get() - b.get()], vec![])));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| -> Outcome {
        let writer = scope.spawn(|| -> bornite::Result<()> {
            for n in 0..200 {
                let x = Tensor::from_slice(&[n as f32], &[1], device);
                commit(&[], vec![a.set(x.clone()), b.set(x)])?;
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) && !writer.is_finished() {
            assert_eq!(difference.call(&[])?[0].item()?, 0.0);
        }
        Ok(writer.join().expect("the writer does not panic")?)
    })
}

/// Bytes of every dtype round-trip; a wrong count or an invalid boolean is an error.
pub fn bytes_round_trip(device: Device) -> Outcome {
    for dtype in DType::ALL {
        for elements in [0usize, 1, 3, 8, 1001] {
            let byte = |n: usize| if dtype == DType::Bool { (n % 2) as u8 } else { (n * 37 % 251) as u8 };
            let bytes: Vec<u8> = (0..elements * dtype.bytes()).map(byte).collect();
            let tensor = Tensor::from_bytes(&bytes, &[elements], dtype, device);
            assert_eq!((tensor.to_bytes()?, tensor.dtype()?), (bytes.clone(), dtype));
            // A view, in row-major order.
            let flipped = tensor.reshape(&[elements, 1]).t().reshape(&[elements]).to_bytes()?;
            assert_eq!(flipped, bytes);
        }
    }
    let short = Tensor::from_bytes(&[0; 3], &[1], DType::F32, device).to_bytes().expect_err("too short").to_string();
    assert!(short.contains("got 3 bytes but shape [1] of f32 has 4"), "{short}");
    let two = Tensor::from_bytes(&[2], &[1], DType::Bool, device).to_bytes().expect_err("no boolean").to_string();
    assert!(two.contains("a boolean must be 0 or 1, found 2"), "{two}");
    Ok(())
}

pub fn swap(device: Device) -> Outcome {
    let (a, b) = (var(&[1.0], device)?, var(&[2.0], device)?);
    commit(&[], vec![a.set(b.get()), b.set(a.get())])?;
    assert_eq!((a.get().item()?, b.get().item()?), (2.0, 1.0));
    let step = bornite::trace(|_| Ok((vec![], vec![a.set(b.get()), b.set(a.get())])));
    step.call(&[])?;
    assert_eq!((a.get().item()?, b.get().item()?), (1.0, 2.0));
    step.call(&[])?;
    assert_eq!((a.get().item()?, b.get().item()?), (2.0, 1.0));
    Ok(())
}

/// In a separate process, so that only this test's memory is counted.
pub fn drop_frees_memory(device: Device) -> Outcome {
    let (passed, text) = child("drop", &[(DEVICE_VARIABLE, &device.to_string())])?;
    assert!(passed, "{text}");
    Ok(())
}

/// A computed value takes memory until its last handle is dropped; an uncomputed one takes none.
pub fn dropping_handles_frees_memory(device: Device) -> Outcome {
    const BYTES: usize = 1 << 20;
    let one = vec![1.0f32; BYTES / 4];
    let make = || Tensor::from_slice(&one, &[512, 512], device);
    // Memory that stays for the lifetime of the process: status words, scratch memory.
    make().gather(0, &Tensor::zeros(&[1, 512], DType::I64, device)).sum(..).realize()?;
    let before = device.allocated_bytes()?;
    let held = || -> bornite::Result<usize> { Ok((device.allocated_bytes()? - before) / BYTES) };
    let x = make();
    assert_eq!((x.bytes()?, held()?), (BYTES, 1));
    let y = &x * 2.0 + 1.0;
    assert_eq!(held()?, 1, "a promise takes no memory");
    y.realize()?;
    assert_eq!(held()?, 2);
    let (twice, view) = (y.clone(), y.t().slice(0, ..4));
    drop(y);
    assert_eq!(held()?, 2, "a handle and a view are left");
    drop(twice);
    assert_eq!(held()?, 2, "a view is left");
    assert_eq!(view.to_vec::<f32>()?[0], 3.0);
    drop(view);
    assert_eq!(held()?, 1, "the last handle is gone");
    // A value retains its inputs for the gradient.
    let root = x.sqrt();
    root.realize()?;
    drop(x);
    assert_eq!(held()?, 2);
    drop(root);
    assert_eq!(held()?, 0);
    // Detached after it is computed, it does not.
    let mut state = make();
    for _ in 0..5 {
        state = &state * 0.5;
        state.realize()?;
        state = state.detach();
        assert_eq!(held()?, 1);
    }
    assert_eq!(state.slice(0, ..1).to_vec::<f32>()?[0], 0.5f32.powi(5));
    drop(state);
    assert_eq!(held()?, 0);
    // The old value of a variable lives as long as it has a handle.
    let var = Var::new(&make())?;
    let old = var.get();
    commit(&[], vec![var.set(&old + 1.0)])?;
    assert_eq!(held()?, 2);
    drop(old);
    assert_eq!(held()?, 1);
    drop(var);
    assert_eq!(device.allocated_bytes()?, before);
    Ok(())
}
