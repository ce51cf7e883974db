//! cuBLASLt on a device: handle, workspace, cached plans and errors.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::sys::{self as lt, cublasStatus_t};

use super::{Matmul, MatmulPlan};
use crate::api::CublasLt;
use crate::{Buffer, Device, Error, Result};

/// cuBLASLt's version as (major, minor).
pub fn version() -> Result<(u32, u32)> {
    // SAFETY: takes nothing, returns a number.
    let version = unsafe { (CublasLt::get()?.cublasLtGetVersion)() } as u32;
    Ok((version / 10_000, version / 100 % 100))
}

/// Workspace size that NVIDIA recommends: Hopper's algorithms store partial results.
fn workspace_bytes(compute_capability: (u32, u32)) -> usize {
    if compute_capability.0 >= 9 { 32 << 20 } else { 4 << 20 }
}

/// cuBLASLt on a device, open until the process ends.
pub(super) struct Blas {
    pub api: &'static CublasLt,
    pub device: Arc<Device>,
    pub handle: lt::cublasLtHandle_t,
    /// Shared by all plans: their work is ordered by the device's main stream.
    pub workspace: Buffer,
    /// Cached plans. Bounded, since eager code may use ever new shapes.
    plans: Mutex<HashMap<Matmul, Arc<MatmulPlan>>>,
}

// SAFETY: NVIDIA allows the handle to be used from any thread once the context is current there,
// which every call sees to; what changes is behind a lock.
unsafe impl Send for Blas {}
// SAFETY: as above; the handle holds no state that a call changes.
unsafe impl Sync for Blas {}

impl Blas {
    const MAX_CACHED_PLANS: usize = 2048;

    /// Returns the library on a device, opened on first use. Not during stream capture: it
    /// allocates.
    pub fn on(device: &Arc<Device>) -> Result<&'static Blas> {
        static OPEN: Mutex<BTreeMap<usize, &'static Blas>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(blas) = open.get(&device.info().ordinal) {
            return Ok(blas);
        }
        let api = CublasLt::get()?;
        device.check_not_capturing("opening cuBLASLt")?;
        device.bind()?;
        let tag = device.pool().tag("cuBLASLt workspace");
        let workspace = Buffer::with_tag(device, workspace_bytes(device.info().compute_capability), tag)?;
        let mut handle = null_mut();
        // SAFETY: writes one handle, for the context that is current.
        check(api, "cublasLtCreate", unsafe { (api.cublasLtCreate)(&mut handle) })?;
        let blas = Blas { api, device: device.clone(), handle, workspace, plans: Mutex::default() };
        // Devices stay open until the process ends, and so does this.
        let blas: &'static Blas = Box::leak(Box::new(blas));
        open.insert(device.info().ordinal, blas);
        Ok(blas)
    }

    /// Returns the cached plan, or creates it with `make`.
    pub fn plan(&self, matmul: &Matmul, make: impl FnOnce() -> Result<MatmulPlan>) -> Result<Arc<MatmulPlan>> {
        let plans = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans().get(matmul) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(make()?);
        let mut plans = plans();
        if plans.len() >= Blas::MAX_CACHED_PLANS {
            plans.clear();
        }
        // If two threads created one, the first wins: equal products must give equal bits.
        Ok(plans.entry(*matmul).or_insert(plan).clone())
    }
}

/// Converts a status of the library to a result.
pub(super) fn check(api: &CublasLt, call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    let describe = |function: unsafe extern "C" fn(cublasStatus_t) -> *const c_char| {
        // SAFETY: the library returns a static string, or null for a status that it does not know.
        unsafe {
            let text = function(status);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    let (name, text) = (describe(api.cublasLtGetStatusName), describe(api.cublasLtGetStatusString));
    Err(Error::Driver { call, code: status as u32, name, text })
}

/// Creates an error in the library's form.
fn library_error(status: cublasStatus_t, text: String) -> Error {
    Error::Driver { call: "cublasLtMatmul", code: status as u32, name: format!("{status:?}"), text }
}

/// Error for an invalid argument.
pub(super) fn invalid_value(text: String) -> Error {
    library_error(cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE, text)
}

/// Error if the library has no algorithm for a product.
pub(super) fn no_algorithm(matmul: &Matmul) -> Error {
    library_error(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED, format!("no algorithm for {matmul}"))
}

/// Returns true if the error means that the library cannot compute a product, so that another
/// implementation must.
pub fn is_unsupported(error: &Error) -> bool {
    let status = cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED;
    matches!(error, Error::Driver { call, code, .. } if call.starts_with("cublasLt") && *code == status as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_the_librarys_names() {
        let none = no_algorithm(&Matmul::new(1, 2, 3, super::super::ElementType::F32));
        assert!(none.to_string().contains("CUBLAS_STATUS_NOT_SUPPORTED: no algorithm for 1x3 by 3x2"), "{none}");
        assert!(is_unsupported(&none) && !is_unsupported(&invalid_value("bad stride".into())));
        assert_eq!(
            invalid_value("bad stride".into()).to_string(),
            "cublasLtMatmul failed with CUBLAS_STATUS_INVALID_VALUE: bad stride"
        );
    }

    #[test]
    fn hopper_has_the_larger_workspace() {
        assert_eq!([(7, 5), (8, 9), (9, 0), (12, 0)].map(workspace_bytes), [4 << 20, 4 << 20, 32 << 20, 32 << 20]);
    }
}
