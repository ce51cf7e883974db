// Instructions of compute capability 9.0 that the attention kernels use: barriers in shared memory, bulk
// tensor copies, and matrix products of a warpgroup (wgmma).
//
// Compiled after `pairs.cuh`, with DELAYS (a seed) defined first in tests of synchronization.
// Tiles in shared memory consist of panels of 64 features: rows of 128 bytes, in the 128-byte swizzle that the
// tensor copies write and wgmma reads. A panel starts at a multiple of 1024 bytes.

// A tensor map of the driver (CUtensorMap).
struct __align__(64) TensorMap {
    unsigned char bytes[128];
};

// Waits for up to 2 µs, differently for each warp and at each call, in tests of synchronization.
__device__ __forceinline__ void delay() {
#ifdef DELAYS
    u32 x;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(x));
    x = (__shfl_sync(__activemask(), x, 0) + DELAYS) * 2654435761u;
    x ^= (threadIdx.x / 32 + blockIdx.x * 97) * 2246822519u;
    if (x >> 30 == 0) __nanosleep(x >> 8 & 2047);
#endif
}

// ---- Barriers in shared memory. A wait is for the end of the phase of the given parity.

__device__ __forceinline__ void init_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialized barriers visible to tensor copies.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(u32 barrier) {
    delay();
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets the phase end only after copies of `bytes` bytes have completed.
__device__ __forceinline__ void arrive_expecting(u32 barrier, u32 bytes) {
    delay();
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_barrier(u32 barrier, u32 parity) {
    delay();
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Position in a ring of buffers: the buffer, and the parity of its current phase.
template <int COUNT>
struct Ring {
    u32 slot = 0, parity = 0;
    __device__ __forceinline__ void next() {
        if (++slot == COUNT) slot = 0, parity ^= 1;
    }
};

// Barrier among `THREADS` threads of a block, other than __syncthreads (0).
template <int THREADS>
__device__ __forceinline__ void sync_threads(u32 id) {
    delay();
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

template <int THREADS>
__device__ __forceinline__ void arrive_threads(u32 id) {
    delay();
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// ---- Bulk copies. One thread issues a copy.

// Copies a box of a tensor [batch, head, token, feature] to shared memory; elements outside are zeros.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, u32 barrier, int feature, int token, int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(feature), "r"(token), "r"(head), "r"(batch)
        : "memory");
}

// Copies `bytes` contiguous bytes to shared memory; addresses and size are multiples of 16.
__device__ __forceinline__ void copy_line(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier)
                 : "memory");
}

// Stores contiguous bytes of shared memory, or adds them to memory as f32.
__device__ __forceinline__ void store_bulk(float* to, u32 from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ void add_bulk(float* to, u32 from, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until this thread's bulk stores have read shared memory, or have been written.
__device__ __forceinline__ void wait_bulk_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

__device__ __forceinline__ void wait_bulk() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- Semaphores in memory.

__device__ __forceinline__ u32 load_acquire(const u32* semaphore) {
    u32 r;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(semaphore) : "memory");
    return r;
}

__device__ __forceinline__ void store_release(u32* semaphore, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(semaphore), "r"(value) : "memory");
}

// Orders accesses to memory before it and bulk copies after it, and the other way round.
__device__ __forceinline__ void fence_memory() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Fetches a tensor map ahead of its first use.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Makes writes to shared memory by this thread visible to wgmma and bulk copies.
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Registers per thread of a warpgroup.

// Number of this thread's warpgroup, in a form that the compiler knows to be uniform in a warp: it does not overlap
// products in branches that could diverge.
__device__ __forceinline__ int warpgroup() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

template <int COUNT>
__device__ __forceinline__ void grow_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void shrink_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- Products of a warpgroup: d (64 x N, f32) += a (64 x 16) b (16 x N). In d, thread t of warp w holds
// elements (16 w + t / 4, 8 n + 2 (t % 4) + {0, 1}) in d[4 n + {0, 1}] and those 8 rows below in
// d[4 n + {2, 3}]; a in registers has the same layout with 16-bit pairs.

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `LEFT` of the committed groups are not complete.
template <int LEFT>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from moving accesses to registers of an operand across this point.
template <int N>
__device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N>
__device__ __forceinline__ void pin(u32 (&a)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(a[i])::"memory");
}

// Descriptor of an operand in shared memory with 128-byte swizzle; `across` is the distance in bytes between
// panels, of operands whose contiguous axis is not the summed one (TRANSPOSED).
__device__ __forceinline__ u64 describe(u32 address, u32 across) {
    return (1ull << 62) | (64ull << 32) | ((u64)(across >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

// Contiguous along the summed axis if not TRANSPOSED. `accumulate` 0 overwrites d.

template <bool TRANSPOSED_A, bool TRANSPOSED_B>
__device__ __forceinline__ void multiply(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEMENT "." ELEMENT " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, p, 1, 1, %35, %36;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                       "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                       "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TRANSPOSED_A ? 1 : 0), "n"(TRANSPOSED_B ? 1 : 0));
}

template <bool TRANSPOSED_B>
__device__ __forceinline__ void multiply(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEMENT "." ELEMENT " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                       "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                       "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED_B ? 1 : 0));
}

template <bool TRANSPOSED_A, bool TRANSPOSED_B>
__device__ __forceinline__ void multiply(float (&d)[64], u64 a, u64 b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEMENT "." ELEMENT " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, %67, %68;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                       "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                       "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
                       "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
                       "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                       "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                       "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TRANSPOSED_A ? 1 : 0), "n"(TRANSPOSED_B ? 1 : 0));
}

template <bool TRANSPOSED_B>
__device__ __forceinline__ void multiply(float (&d)[64], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEMENT "." ELEMENT " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                       "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                       "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
                       "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
                       "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                       "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                       "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED_B ? 1 : 0));
}

// ---- Stores of accumulators.

// Stores four 8 x 8 tiles of 16-bit elements; lanes 8 i to 8 i + 7 hold the addresses of the rows of tile i.
__device__ __forceinline__ void store_tiles(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Exchanges registers of the four threads of a row so that each holds 8 consecutive features: thread i those of column i of
// the four columns of 8.
__device__ __forceinline__ uint4 gather_columns(u32 a, u32 b, u32 c, u32 d) {
    // Transposes a 4 x 4 matrix in two steps: pairs of threads 1 apart, then 2 apart.
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    u32 x = __shfl_xor_sync(~0u, odd ? a : b, 1), y = __shfl_xor_sync(~0u, odd ? c : d, 1);
    if (odd) a = x, c = y;
    else b = x, d = y;
    x = __shfl_xor_sync(~0u, high ? a : c, 2), y = __shfl_xor_sync(~0u, high ? b : d, 2);
    if (high) a = x, b = y;
    else c = x, d = y;
    return make_uint4(a, b, c, d);
}

// Stores an accumulator, times a factor for each of the two rows of a thread, as rows of 16-bit floats. `row` is the thread's
// first row; those from `rows` on are left out.
template <int N>
__device__ __forceinline__ void store_rows(u16* to, i64 stride, const float (&d)[N], int row, int rows, const float (&factors)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = 4 * (4 * n + i) + 2 * h;
                pairs[i] = pack(d[at] * factors[h], d[at + 1] * factors[h]);
            }
            const uint4 features = gather_columns(pairs[0], pairs[1], pairs[2], pairs[3]);
            if (row + 8 * h < rows) *(uint4*)(to + (row + 8 * h) * stride + n * 32 + (threadIdx.x & 3) * 8) = features;
        }
}
