//! Variables: commits are whole or nothing, and what was read never changes.

use bornite::{DType, Device, Tensor, Var, commit};

use crate::Outcome;

fn var(values: &[f32], device: Device) -> bornite::Result<Var> {
    Var::new(&Tensor::from_slice(values, &[values.len()], device))
}

pub fn commit_is_whole_or_nothing(device: Device) -> Outcome {
    let (a, b) = (var(&[1.0, 2.0], device)?, var(&[3.0], device)?);
    let wrong_shape = commit(&[], vec![a.set(a.get() * 2.0), b.set(a.get())]).unwrap_err().to_string();
    assert!(
        wrong_shape.contains("the variable is f32[1]") && wrong_shape.contains("the new value is f32[2]"),
        "{wrong_shape}"
    );
    let failed = a.get().matmul(&b.get());
    assert!(commit(&[], vec![a.set(a.get() * 2.0), b.set(failed)]).is_err());
    let twice = commit(&[], vec![a.set(a.get() * 2.0), a.set(a.get() * 3.0)]).unwrap_err().to_string();
    assert!(twice.contains("written twice") && twice.contains(file!()), "{twice}");
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
pub fn commits_are_seen_whole(device: Device) -> Outcome {
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
