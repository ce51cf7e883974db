//! Choice between library products and generated kernels.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use bornite_support::settings::{MATMUL_VARIABLE, parse_choice, read};

use crate::Result;

/// Implementation of float matrix products, on a GPU and on the CPU. It is chosen when work is
/// planned; a [`crate::trace::Trace`] keeps the mode of the first call with each signature.
///
/// ```
/// use bornite::{Device, Tensor, settings::MatmulMode};
/// # fn main() -> bornite::Result<()> {
/// let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], Device::auto());
/// let square = MatmulMode::Exact.within(|| a.matmul(&a).to_vec::<f32>())?; // the same bits on every device
/// assert_eq!(square, [7.0, 10.0, 15.0, 22.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatmulMode {
    /// cuBLASLt on a GPU, if available, with f32 products in full precision; gemm on the CPU, with
    /// the same bits for any number of threads.
    Library = 1,
    /// As `Library`, but f32 inputs are rounded to TF32 on a GPU.
    Tf32 = 2,
    /// Generated kernels, which give the same bits on every device. Slow.
    Exact = 3,
}

/// Mode of the process; 0 if the environment was not read yet.
static PROCESS: AtomicU8 = AtomicU8::new(0);

thread_local! {
    /// Mode set by [`MatmulMode::within`] on this thread.
    static THREAD: Cell<Option<MatmulMode>> = const { Cell::new(None) };
}

impl MatmulMode {
    const NAMES: [(&str, MatmulMode); 3] =
        [("library", MatmulMode::Library), ("tf32", MatmulMode::Tf32), ("exact", MatmulMode::Exact)];

    /// The mode of this thread: that of the innermost [`MatmulMode::within`], else of
    /// [`MatmulMode::set_for_process`], else `BORNITE_MATMUL`, else `Library`.
    #[track_caller]
    pub fn current() -> Result<MatmulMode> {
        if let Some(mode) = THREAD.get() {
            return Ok(mode);
        }
        match PROCESS.load(Ordering::Relaxed) {
            0 => {
                let mode = read(MATMUL_VARIABLE, MatmulMode::Library, parse)?;
                // A mode set meanwhile wins.
                let _ = PROCESS.compare_exchange(0, mode as u8, Ordering::Relaxed, Ordering::Relaxed);
                Ok(mode)
            }
            set => Ok(MatmulMode::NAMES[usize::from(set) - 1].1),
        }
    }

    /// Sets the mode of the process; overrides the environment.
    pub fn set_for_process(self) {
        PROCESS.store(self as u8, Ordering::Relaxed);
    }

    /// Runs `work` with this mode on this thread. Tensors are lazy, so the mode applies to products
    /// that are computed in `work`, not to those that are built in it.
    pub fn within<R>(self, work: impl FnOnce() -> R) -> R {
        // Restored also if `work` panics.
        struct Before(Option<MatmulMode>);
        impl Drop for Before {
            fn drop(&mut self) {
                THREAD.set(self.0);
            }
        }
        let _before = Before(THREAD.replace(Some(self)));
        work()
    }
}

fn parse(value: &str) -> std::result::Result<MatmulMode, String> {
    parse_choice(value, &MatmulMode::NAMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_others_rejected() {
        assert_eq!(parse("library"), Ok(MatmulMode::Library));
        assert_eq!(parse("tf32"), Ok(MatmulMode::Tf32));
        assert_eq!(parse("exact"), Ok(MatmulMode::Exact));
        assert_eq!(parse("fast"), Err("use library, tf32 or exact".into()));
        for (n, (_, mode)) in MatmulMode::NAMES.iter().enumerate() {
            assert_eq!(*mode as usize, n + 1, "current() uses the number as an index");
        }
    }

    #[test]
    fn a_scope_affects_only_its_thread_and_ends_after_a_panic() {
        let before = MatmulMode::current().unwrap();
        let other = if before == MatmulMode::Exact { MatmulMode::Library } else { MatmulMode::Exact };
        other.within(|| {
            assert_eq!(MatmulMode::current().unwrap(), other);
            let inner = MatmulMode::Tf32.within(|| MatmulMode::current().unwrap());
            assert_eq!((inner, MatmulMode::current().unwrap()), (MatmulMode::Tf32, other));
            std::thread::spawn(move || assert_eq!(MatmulMode::current().unwrap(), before)).join().unwrap();
        });
        let _ = std::panic::catch_unwind(|| other.within(|| panic!("in a scope")));
        assert_eq!(MatmulMode::current().unwrap(), before);
    }
}
