//! CUDA C++ kernels for the tests of the runtime.

use std::sync::Arc;

use bornite_cuda::{Buffer, Cubin, Device, KernelFunction, Result};

/// Name, number of pointers, sizes of the values in bytes, and source of a kernel.
pub type Kernel = (&'static str, usize, &'static [usize], &'static str);

/// x = x * m + c over n words.
pub const AFFINE: Kernel = (
    "affine",
    1,
    &[4, 4, 4],
    "extern \"C\" __global__ void affine(unsigned* x, unsigned m, unsigned c, unsigned n) {
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) x[i] = x[i] * m + c;
}",
);

/// y = x * m + c over n words.
pub const AFFINE_TO: Kernel = (
    "affine_to",
    2,
    &[4, 4, 4],
    "extern \"C\" __global__ void affine_to(const unsigned* x, unsigned* y, unsigned m, unsigned c, unsigned n) {
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = x[i] * m + c;
}",
);

/// Counts the words that are not a * i + b.
pub const CHECK: Kernel = (
    "check",
    2,
    &[4, 4, 4],
    "extern \"C\" __global__ void check(const unsigned* x, unsigned* errors, unsigned a, unsigned b, unsigned n) {
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        if (x[i] != a * i + b) atomicAdd(errors, 1u);
}",
);

/// Keeps one thread busy for some microseconds, then adds to a word.
pub const SPIN: Kernel = (
    "spin",
    1,
    &[4, 4],
    "extern \"C\" __global__ void spin(unsigned* x, unsigned microseconds, unsigned add) {
    unsigned long long start, now;
    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(start));
    do {
        asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now));
    } while (now - start < 1000ull * microseconds);
    *x += add;
}",
);

/// Reverses n words through dynamic shared memory, in one block.
pub const REVERSE: Kernel = (
    "reverse",
    1,
    &[4],
    "extern \"C\" __global__ void reverse(unsigned* x, unsigned n) {
    extern __shared__ unsigned tile[];
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[n - 1 - i];
}",
);

/// Each block writes its rank in its cluster and the cluster's size.
pub const CLUSTER: Kernel = (
    "cluster_rank",
    1,
    &[],
    "extern \"C\" __global__ void cluster_rank(unsigned* out) {
    unsigned rank, size;
    asm volatile(\"mov.u32 %0, %cluster_ctarank;\" : \"=r\"(rank));
    asm volatile(\"mov.u32 %0, %cluster_nctarank;\" : \"=r\"(size));
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = rank; out[2 * blockIdx.x + 1] = size; }
}",
);

/// A grid-wide barrier, then each block writes the number of arrived blocks: correct only if all
/// run concurrently.
pub const MEET: Kernel = (
    "meet",
    2,
    &[],
    "extern \"C\" __global__ void meet(unsigned* arrived, unsigned* out) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned*)arrived < gridDim.x) { }
        out[blockIdx.x] = *(volatile unsigned*)arrived;
    }
}",
);

/// Waits for the previous kernel (programmatic dependent launch), then adds 1.
pub const FOLLOW: Kernel = (
    "follow",
    1,
    &[4],
    "extern \"C\" __global__ void follow(unsigned* x, unsigned n) {
    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 3 + 1;
    asm volatile(\"griddepcontrol.launch_dependents;\");
}",
);

/// Writes to unmapped memory.
pub const STRAY: Kernel =
    ("stray", 1, &[], "extern \"C\" __global__ void stray(unsigned* x) { x[(1ull << 44) + threadIdx.x] = 1; }");

/// Writes `past` bytes after the end of a buffer of n bytes.
pub const OVERRUN: Kernel = (
    "overrun",
    1,
    &[4],
    "extern \"C\" __global__ void overrun(unsigned char* x, unsigned at) { if (threadIdx.x == 0) x[at] = 7; }",
);

/// Every kernel here; those that need compute capability 9.0 last.
pub const ALL: [Kernel; 10] = [AFFINE, AFFINE_TO, CHECK, SPIN, REVERSE, MEET, STRAY, OVERRUN, CLUSTER, FOLLOW];

/// Number of kernels of [`ALL`] that every GPU supports.
pub const COMMON: usize = 8;

pub fn compiled((name, _, _, text): Kernel, arch: &str) -> Result<Cubin> {
    bornite_cuda::compile(name, text, arch)
}

pub fn load(device: &Arc<Device>, kernel: Kernel) -> Result<Arc<KernelFunction>> {
    let (name, pointers, values, _) = kernel;
    let cubin = compiled(kernel, &device.info().arch())?;
    Ok(Arc::new(KernelFunction::load(device, &cubin, name, pointers, values.into())?))
}

/// Words as bytes.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Values for a launch.
pub fn values(words: &[u32]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_ne_bytes().to_vec()).collect()
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}

pub fn buffer(device: &Arc<Device>, content: &[u32]) -> Result<Arc<Buffer>> {
    let buffer = Buffer::new(device, 4 * content.len())?;
    buffer.upload(&bytes(content))?;
    Ok(Arc::new(buffer))
}

pub fn read(buffer: &Buffer) -> Result<Vec<u32>> {
    let mut content = vec![0; buffer.bytes()];
    buffer.download(&mut content)?;
    Ok(words(&content))
}
