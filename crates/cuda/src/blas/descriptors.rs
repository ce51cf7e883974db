//! Owned descriptors of cuBLASLt, destroyed when dropped.

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::cublaslt::sys::{self as lt, cublasStatus_t};

use super::ElementType;
use super::library::check;
use super::matmul::{ComputeType, StoredMatrix};
use crate::Result;
use crate::api::CublasLt;

/// A descriptor and the function that destroys it.
struct OwnedDescriptor<T: Copy> {
    handle: T,
    destroy: unsafe extern "C" fn(T) -> cublasStatus_t,
}

impl<T: Copy> Drop for OwnedDescriptor<T> {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library's own create function and is not used again.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// Pointer and size of a value, as attributes are passed.
fn bytes<T: Copy>(value: &T) -> (*const c_void, usize) {
    ((value as *const T).cast(), size_of::<T>())
}

/// Descriptor of a matrix product: arithmetic, transposition, epilogue.
pub(super) struct MatmulDescriptor(OwnedDescriptor<lt::cublasLtMatmulDesc_t>);

impl MatmulDescriptor {
    pub fn new(api: &CublasLt, compute: ComputeType) -> Result<MatmulDescriptor> {
        let mut handle = null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (api.cublasLtMatmulDescCreate)(&mut handle, compute.raw(), compute.scale().raw()) };
        check(api, "cublasLtMatmulDescCreate", status)?;
        Ok(MatmulDescriptor(OwnedDescriptor { handle, destroy: api.cublasLtMatmulDescDestroy }))
    }

    pub fn raw(&self) -> lt::cublasLtMatmulDesc_t {
        self.0.handle
    }

    /// Sets an attribute. `T` must be its type: the library checks the size.
    pub fn set<T: Copy>(&self, api: &CublasLt, attribute: lt::cublasLtMatmulDescAttributes_t, value: T) -> Result<()> {
        let (pointer, size) = bytes(&value);
        // SAFETY: the library copies `size` bytes during the call.
        let status = unsafe { (api.cublasLtMatmulDescSetAttribute)(self.raw(), attribute, pointer, size) };
        check(api, "cublasLtMatmulDescSetAttribute", status)
    }
}

/// Descriptor of a matrix layout.
pub(super) struct LayoutDescriptor(OwnedDescriptor<lt::cublasLtMatrixLayout_t>);

impl LayoutDescriptor {
    pub fn new(api: &CublasLt, element: ElementType, stored: &StoredMatrix, batch: u64) -> Result<LayoutDescriptor> {
        use lt::cublasLtMatrixLayoutAttribute_t as Attribute;
        let mut handle = null_mut();
        let StoredMatrix { rows, columns, ld, batch_stride, .. } = *stored;
        // SAFETY: writes one handle.
        let status = unsafe { (api.cublasLtMatrixLayoutCreate)(&mut handle, element.raw(), rows, columns, ld as i64) };
        check(api, "cublasLtMatrixLayoutCreate", status)?;
        let layout = LayoutDescriptor(OwnedDescriptor { handle, destroy: api.cublasLtMatrixLayoutDestroy });
        if batch > 1 {
            layout.set(api, Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch as i32)?;
            layout.set(api, Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride as i64)?;
        }
        Ok(layout)
    }

    pub fn raw(&self) -> lt::cublasLtMatrixLayout_t {
        self.0.handle
    }

    fn set<T: Copy>(&self, api: &CublasLt, attribute: lt::cublasLtMatrixLayoutAttribute_t, value: T) -> Result<()> {
        let (pointer, size) = bytes(&value);
        // SAFETY: the library copies `size` bytes during the call.
        let status = unsafe { (api.cublasLtMatrixLayoutSetAttribute)(self.raw(), attribute, pointer, size) };
        check(api, "cublasLtMatrixLayoutSetAttribute", status)
    }
}

/// Constraints on the search for an algorithm.
pub(super) struct Preference(OwnedDescriptor<lt::cublasLtMatmulPreference_t>);

impl Preference {
    pub fn new(api: &CublasLt) -> Result<Preference> {
        let mut handle = null_mut();
        // SAFETY: writes one handle.
        check(api, "cublasLtMatmulPreferenceCreate", unsafe { (api.cublasLtMatmulPreferenceCreate)(&mut handle) })?;
        Ok(Preference(OwnedDescriptor { handle, destroy: api.cublasLtMatmulPreferenceDestroy }))
    }

    pub fn raw(&self) -> lt::cublasLtMatmulPreference_t {
        self.0.handle
    }

    pub fn set<T: Copy>(
        &self,
        api: &CublasLt,
        attribute: lt::cublasLtMatmulPreferenceAttributes_t,
        value: T,
    ) -> Result<()> {
        let (pointer, size) = bytes(&value);
        // SAFETY: the library copies `size` bytes during the call.
        let status = unsafe { (api.cublasLtMatmulPreferenceSetAttribute)(self.raw(), attribute, pointer, size) };
        check(api, "cublasLtMatmulPreferenceSetAttribute", status)
    }
}
