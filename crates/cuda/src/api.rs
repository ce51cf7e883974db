//! Tables of the functions that we call, resolved by name from the libraries that [`Library`]
//! opened.
//!
//! Types come from cudarc's generated bindings, and the compiler checks each signature against
//! cudarc's. We resolve functions ourselves because cudarc's loader panics if a library is missing
//! and takes no search path (`docs/decisions/0002-own-loader.md`).

#![allow(non_snake_case)] // NVIDIA's names

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys::{self as lt, cublasStatus_t};
use cudarc::driver::sys::{self as cu, CUresult};
use cudarc::nvrtc::sys::{self as rtc, nvrtcResult};

use crate::{Error, Library, Result};

macro_rules! api {
    ($(#[$doc:meta])* $table:ident, $library:expr, $sys:path {
        $( fn $name:ident($($t:ty),*) -> $r:ty; )+
    }) => {
        $(#[$doc])*
        pub(crate) struct $table {
            /// Path of the library.
            pub path: String,
            $( pub $name: unsafe extern "C" fn($($t),*) -> $r, )+
            _library: libloading::Library,
        }

        const _: () = {
            use $sys as sys;
            $( const _: unsafe fn($($t),*) -> $r = sys::$name; )+
        };

        impl $table {
            /// Returns the table, resolved on first use. A missing library is searched again at the
            /// next call.
            pub fn get() -> Result<&'static $table> {
                static TABLE: OnceLock<$table> = OnceLock::new();
                if let Some(table) = TABLE.get() {
                    return Ok(table);
                }
                let table = $table::open()?;
                Ok(TABLE.get_or_init(|| table))
            }

            fn open() -> Result<$table> {
                let (library, path) = $library.open()?;
                $(
                    // SAFETY: the signature is the one of NVIDIA's headers, checked above against
                    // cudarc's bindings.
                    let $name = unsafe {
                        library.get::<unsafe extern "C" fn($($t),*) -> $r>(stringify!($name).as_bytes()).map(|f| *f)
                    };
                    let Ok($name) = $name else {
                        let remedy = $library.remedy();
                        return Err(Error::OldLibrary { path, symbol: stringify!($name), remedy });
                    };
                )+
                Ok($table { path, $($name,)+ _library: library })
            }
        }
    };
}

api! {
    /// The CUDA driver.
    Driver, Library::Cuda, cudarc::driver::sys {
        fn cuInit(c_uint) -> CUresult;
        fn cuDriverGetVersion(*mut c_int) -> CUresult;
        fn cuGetErrorName(CUresult, *mut *const c_char) -> CUresult;
        fn cuGetErrorString(CUresult, *mut *const c_char) -> CUresult;
        fn cuDeviceGetCount(*mut c_int) -> CUresult;
        fn cuDeviceGet(*mut cu::CUdevice, c_int) -> CUresult;
        fn cuDeviceGetName(*mut c_char, c_int, cu::CUdevice) -> CUresult;
        fn cuDeviceGetAttribute(*mut c_int, cu::CUdevice_attribute, cu::CUdevice) -> CUresult;
        fn cuDeviceTotalMem_v2(*mut usize, cu::CUdevice) -> CUresult;
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, cu::CUdevice) -> CUresult;
        fn cuDeviceCanAccessPeer(*mut c_int, cu::CUdevice, cu::CUdevice) -> CUresult;
        fn cuDevicePrimaryCtxRetain(*mut cu::CUcontext, cu::CUdevice) -> CUresult;
        fn cuCtxSetCurrent(cu::CUcontext) -> CUresult;
        fn cuMemGetInfo_v2(*mut usize, *mut usize) -> CUresult;
        fn cuStreamCreate(*mut cu::CUstream, c_uint) -> CUresult;
        fn cuStreamSynchronize(cu::CUstream) -> CUresult;
        fn cuStreamQuery(cu::CUstream) -> CUresult;
        fn cuStreamWaitEvent(cu::CUstream, cu::CUevent, c_uint) -> CUresult;
        fn cuStreamBeginCapture_v2(cu::CUstream, cu::CUstreamCaptureMode) -> CUresult;
        fn cuStreamEndCapture(cu::CUstream, *mut cu::CUgraph) -> CUresult;
        fn cuMemAlloc_v2(*mut cu::CUdeviceptr, usize) -> CUresult;
        fn cuMemFree_v2(cu::CUdeviceptr) -> CUresult;
        fn cuMemsetD8Async(cu::CUdeviceptr, u8, usize, cu::CUstream) -> CUresult;
        fn cuEventCreate(*mut cu::CUevent, c_uint) -> CUresult;
        fn cuEventRecord(cu::CUevent, cu::CUstream) -> CUresult;
        fn cuEventQuery(cu::CUevent) -> CUresult;
        fn cuEventSynchronize(cu::CUevent) -> CUresult;
        fn cuEventElapsedTime_v2(*mut f32, cu::CUevent, cu::CUevent) -> CUresult;
        fn cuEventDestroy_v2(cu::CUevent) -> CUresult;
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> CUresult;
        fn cuMemFreeHost(*mut c_void) -> CUresult;
        fn cuMemcpyHtoDAsync_v2(cu::CUdeviceptr, *const c_void, usize, cu::CUstream) -> CUresult;
        fn cuMemcpyDtoHAsync_v2(*mut c_void, cu::CUdeviceptr, usize, cu::CUstream) -> CUresult;
        fn cuMemcpyDtoDAsync_v2(cu::CUdeviceptr, cu::CUdeviceptr, usize, cu::CUstream) -> CUresult;
        fn cuMemcpyPeerAsync(
            cu::CUdeviceptr, cu::CUcontext, cu::CUdeviceptr, cu::CUcontext, usize, cu::CUstream
        ) -> CUresult;
        fn cuModuleLoadData(*mut cu::CUmodule, *const c_void) -> CUresult;
        fn cuModuleUnload(cu::CUmodule) -> CUresult;
        fn cuModuleGetFunction(*mut cu::CUfunction, cu::CUmodule, *const c_char) -> CUresult;
        fn cuLaunchKernel(
            cu::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, cu::CUstream,
            *mut *mut c_void, *mut *mut c_void
        ) -> CUresult;
        fn cuLaunchKernelEx(*const cu::CUlaunchConfig, cu::CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult;
        fn cuFuncGetAttribute(*mut c_int, cu::CUfunction_attribute, cu::CUfunction) -> CUresult;
        fn cuFuncSetAttribute(cu::CUfunction, cu::CUfunction_attribute, c_int) -> CUresult;
        fn cuOccupancyMaxPotentialBlockSize(
            *mut c_int, *mut c_int, cu::CUfunction, cu::CUoccupancyB2DSize, usize, c_int
        ) -> CUresult;
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, cu::CUfunction, c_int, usize) -> CUresult;
        fn cuGraphInstantiateWithFlags(*mut cu::CUgraphExec, cu::CUgraph, u64) -> CUresult;
        fn cuGraphGetNodes(cu::CUgraph, *mut cu::CUgraphNode, *mut usize) -> CUresult;
        fn cuGraphExecUpdate_v2(cu::CUgraphExec, cu::CUgraph, *mut cu::CUgraphExecUpdateResultInfo) -> CUresult;
        fn cuGraphLaunch(cu::CUgraphExec, cu::CUstream) -> CUresult;
        fn cuGraphDestroy(cu::CUgraph) -> CUresult;
        fn cuGraphExecDestroy(cu::CUgraphExec) -> CUresult;
        fn cuTensorMapEncodeTiled(
            *mut cu::CUtensorMap, cu::CUtensorMapDataType, u32, *mut c_void, *const u64, *const u64, *const u32, *const u32,
            cu::CUtensorMapInterleave, cu::CUtensorMapSwizzle, cu::CUtensorMapL2promotion, cu::CUtensorMapFloatOOBfill
        ) -> CUresult;
    }
}

api! {
    /// NVRTC, the run-time compiler.
    Nvrtc, Library::Nvrtc, cudarc::nvrtc::sys {
        fn nvrtcVersion(*mut c_int, *mut c_int) -> nvrtcResult;
        fn nvrtcGetErrorString(nvrtcResult) -> *const c_char;
        fn nvrtcCreateProgram(
            *mut rtc::nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ) -> nvrtcResult;
        fn nvrtcDestroyProgram(*mut rtc::nvrtcProgram) -> nvrtcResult;
        fn nvrtcCompileProgram(rtc::nvrtcProgram, c_int, *const *const c_char) -> nvrtcResult;
        fn nvrtcGetCUBINSize(rtc::nvrtcProgram, *mut usize) -> nvrtcResult;
        fn nvrtcGetCUBIN(rtc::nvrtcProgram, *mut c_char) -> nvrtcResult;
        fn nvrtcGetPTXSize(rtc::nvrtcProgram, *mut usize) -> nvrtcResult;
        fn nvrtcGetPTX(rtc::nvrtcProgram, *mut c_char) -> nvrtcResult;
        fn nvrtcGetProgramLogSize(rtc::nvrtcProgram, *mut usize) -> nvrtcResult;
        fn nvrtcGetProgramLog(rtc::nvrtcProgram, *mut c_char) -> nvrtcResult;
    }
}

api! {
    /// cuBLASLt.
    CublasLt, Library::CublasLt, cudarc::cublaslt::sys {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtGetStatusName(cublasStatus_t) -> *const c_char;
        fn cublasLtGetStatusString(cublasStatus_t) -> *const c_char;
        fn cublasLtCreate(*mut lt::cublasLtHandle_t) -> cublasStatus_t;
        fn cublasLtMatmulDescCreate(
            *mut lt::cublasLtMatmulDesc_t, lt::cublasComputeType_t, lt::cudaDataType_t
        ) -> cublasStatus_t;
        fn cublasLtMatmulDescDestroy(lt::cublasLtMatmulDesc_t) -> cublasStatus_t;
        fn cublasLtMatmulDescSetAttribute(
            lt::cublasLtMatmulDesc_t, lt::cublasLtMatmulDescAttributes_t, *const c_void, usize
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutCreate(
            *mut lt::cublasLtMatrixLayout_t, lt::cudaDataType_t, u64, u64, i64
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutDestroy(lt::cublasLtMatrixLayout_t) -> cublasStatus_t;
        fn cublasLtMatrixLayoutSetAttribute(
            lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayoutAttribute_t, *const c_void, usize
        ) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceCreate(*mut lt::cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceDestroy(lt::cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceSetAttribute(
            lt::cublasLtMatmulPreference_t, lt::cublasLtMatmulPreferenceAttributes_t, *const c_void, usize
        ) -> cublasStatus_t;
        fn cublasLtMatmulAlgoGetHeuristic(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatmulPreference_t, c_int,
            *mut lt::cublasLtMatmulHeuristicResult_t, *mut c_int
        ) -> cublasStatus_t;
        fn cublasLtMatmulAlgoCheck(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t, *const lt::cublasLtMatmulAlgo_t,
            *mut lt::cublasLtMatmulHeuristicResult_t
        ) -> cublasStatus_t;
        fn cublasLtMatmul(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *const c_void, lt::cublasLtMatrixLayout_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *mut c_void, lt::cublasLtMatrixLayout_t, *const lt::cublasLtMatmulAlgo_t, *mut c_void, usize,
            lt::cudaStream_t
        ) -> cublasStatus_t;
    }
}

impl Library {
    /// Opens the library if needed and returns its path.
    pub fn find(self) -> Result<&'static str> {
        Ok(match self {
            Library::Cuda => &Driver::get()?.path,
            Library::Nvrtc => &Nvrtc::get()?.path,
            Library::CublasLt => &CublasLt::get()?.path,
        })
    }
}
