// Gradients of attention for compute capability 9.0.
//
// Compiled with D (features of a head: 64 or 128), CAUSAL (0 or 1), HALF (1: f16, 0: bf16) and ORDERED (1: sums of
// dq in the order of keys, 0: in any order) defined first, after `instructions.cuh`.
//
// With p = exp(s - lse) and delta = Σ o · do: ds = p (do · v - delta), dq = scale ds k, dk = scale dsᵀ q, dv = pᵀ do.
// Three launches:
//
//   attention_prepare_sm90   delta and lse per query, padded to complete tiles; semaphores and ticket = 0
//   attention_backward_sm90  five products; dq is added up in f32, in the order of keys
//   attention_finish_sm90    dq from f32
//
//                 block: KEYS keys of one head at a time, in the order of tickets
//   loading warps k, v ──► smem       q, do, lse, delta ──► smem (ring of STAGES tiles of QUERIES), last first
//   group g       for its 64 keys, transposed, so that p and ds are operands in registers:
//                   Sᵀ = k qᵀ, dPᵀ = v doᵀ        wgmma from smem
//                   P, dS                         dS ──► smem, for both groups
//                   dv += Pᵀ do, dk += dSᵀ q      wgmma, P and dS in registers
//                   dq = dS k                     wgmma from smem: half of the tile ──► smem
//   writing warp  dq ──► memory: stored by the block of the first keys, added by the others in order
//
// The blocks of a head add to a tile of dq one after the other, as its semaphore says, so that sums have one
// order and results repeat bit for bit. A block waits only for lower tickets, which have been drawn by running blocks.

// One block per multiprocessor, 168 registers per thread at launch: FEW_REGISTERS and MANY_REGISTERS after setmaxnreg.
// Shared memory: 195 KB with 64 features, 178 KB with 128.

#define KEYS 128
#if D == 64
#define QUERIES 128
#define KEY_BUFFERS 2
// Registers of threads that move data, and of threads that compute: together those of 384 threads with 168.
#define FEW_REGISTERS 40
#define MANY_REGISTERS 232
#else
#define QUERIES 64
#define KEY_BUFFERS 1
#define FEW_REGISTERS 24
#define MANY_REGISTERS 240
#endif
#define GROUPS 2
#define STAGES 2
#define PANELS (D / 64)
#define QUERY_PANELS (QUERIES / 64)
#define THREADS ((GROUPS + 1) * 128)

#define PANEL_BYTES(rows) ((rows) * 128)
#define KEY_BYTES (KEYS * D * 2)
#define QUERY_BYTES (QUERIES * D * 2)
#define LINE_BYTES (QUERIES * 4)
#define DS_BYTES (KEYS * QUERIES * 2)
#define DQ_BYTES (QUERIES * D * 4)
// Rows of dq that one warpgroup computes in 64 x 64 elements.
#define DQ_PART_BYTES (64 * 64 * 4)

struct Sizes {
    int batch, heads, queries, keys;
    // Query heads per head of keys and values.
    int shared_heads;
    // Heads of keys whose blocks are adjacent in time, so that their tensors stay in the L2.
    int heads_in_cache;

    __device__ __forceinline__ int query_tiles() const { return (queries + QUERIES - 1) / QUERIES; }
    __device__ __forceinline__ int key_tiles() const { return (keys + KEYS - 1) / KEYS; }
    __device__ __forceinline__ int key_heads() const { return heads / shared_heads; }
};

// ---- Preparation: eight lanes per query, QUERIES rows per block.

extern "C" __global__ void __launch_bounds__(256)
    attention_prepare_sm90(float* __restrict__ shift, float* __restrict__ delta, u32* __restrict__ semaphores, const u16* __restrict__ o,
                           const u16* __restrict__ dout, const float* __restrict__ lse, Strides so, Strides sd, Sizes sizes) {
    const int lane = threadIdx.x & 7, tile = blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
    const i64 row = (i64)batch * sizes.heads + head;
    // The ticket follows the semaphores.
    if (threadIdx.x == 0) {
        semaphores[row * gridDim.x + tile] = 0;
        if (row == 0 && tile == 0) semaphores[(i64)sizes.batch * sizes.heads * gridDim.x] = 0;
    }
    o += batch * so.batch + head * so.head, dout += batch * sd.batch + head * sd.head;
#pragma unroll
    for (int n = threadIdx.x >> 3; n < QUERIES; n += 32) {
        const int query = tile * QUERIES + n;
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (query < sizes.queries) {
#pragma unroll
            for (int d = lane * 8; d < D; d += 64) {
                const uint4 a = *(const uint4*)(o + query * so.token + d), b = *(const uint4*)(dout + query * sd.token + d);
                const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
                for (int i = 0; i < 4; i++) sum[i] = fmaf(low_of(x[i]), low_of(y[i]), fmaf(high_of(x[i]), high_of(y[i]), sum[i]));
            }
        }
#pragma unroll
        for (int apart = 4; apart > 0; apart /= 2)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] += __shfl_xor_sync(~0u, sum[i], apart);
        if (lane == 0) {
            const i64 to = (row * gridDim.x + tile) * QUERIES + n;
            // Weights of queries after the last are exp2(-infinity) = 0.
            shift[to] = query < sizes.queries ? lse[row * sizes.queries + query] * LOG2E : INFINITY_F;
            delta[to] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
        }
    }
}

// ---- Main kernel.

// Offsets in shared memory.
struct Shared {
    static constexpr u32 KEY = 0, VALUE = KEY + KEY_BUFFERS * KEY_BYTES, QUERY = VALUE + KEY_BUFFERS * KEY_BYTES,
                         DOUT = QUERY + STAGES * QUERY_BYTES, DS = DOUT + STAGES * QUERY_BYTES, DQ = DS + DS_BYTES, LINES = DQ + DQ_BYTES,
                         KEY_FULL = LINES + STAGES * 2 * LINE_BYTES, KEY_EMPTY = KEY_FULL + 8 * KEY_BUFFERS,
                         QUERY_FULL = KEY_EMPTY + 8 * KEY_BUFFERS, DOUT_FULL = QUERY_FULL + 8 * STAGES,
                         QUERY_EMPTY = DOUT_FULL + 8 * STAGES, DQ_FULL = QUERY_EMPTY + 8 * STAGES, DQ_EMPTY = DQ_FULL + 8,
                         TICKET_FULL = DQ_EMPTY + 8, TICKET_EMPTY = TICKET_FULL + 8, TICKET = TICKET_EMPTY + 8, END = TICKET + 8;
    u32 begin;

    // Address of the `n`th of several buffers of `bytes` bytes.
    __device__ __forceinline__ u32 at(u32 offset, u32 n = 0, u32 bytes = 8) const { return begin + offset + n * bytes; }
};

// A block's work: KEYS keys of one head of keys and values, and the queries that attend to them.
struct Tile {
    int head, batch, index, first_queries;

    // The `n`th tile in order of execution: the longest of a set of heads first.
    __device__ __forceinline__ Tile(int n, const Sizes& sizes) {
        const int tiles = sizes.key_tiles(), all = sizes.key_heads() * sizes.batch;
        const int set = n / (tiles * sizes.heads_in_cache), begin = set * sizes.heads_in_cache;
        const int in_set = min(sizes.heads_in_cache, all - begin), rest = n - begin * tiles;
        const int row = begin + rest % in_set;
        head = row % sizes.key_heads(), batch = row / sizes.key_heads();
        index = rest / in_set;
        first_queries = CAUSAL ? max(0, index * KEYS - (sizes.keys - sizes.queries)) / QUERIES : 0;
    }
};

// Draws the tickets of this block, each when the loads for the tile before it have been issued: a ticket that is drawn
// earlier would wait here while other blocks wait for its sums. One thread.
__device__ __forceinline__ void draw_tickets(const Shared& shared, const Sizes& sizes, u32* counter) {
    const int tiles = sizes.key_tiles() * sizes.key_heads() * sizes.batch;
    u32 parity = 1;
    int ticket;
    do {
        wait_barrier(shared.at(Shared::TICKET_EMPTY), parity);
        parity ^= 1;
        ticket = atomicAdd(counter, 1);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared.at(Shared::TICKET)), "r"(ticket) : "memory");
        arrive(shared.at(Shared::TICKET_FULL));
    } while (ticket < tiles);
}

// Runs `work` for every ticket of this block. The next is drawn after `work` if `LATE`.
template <bool LATE = false, typename Work>
__device__ __forceinline__ void for_each_tile(const Shared& shared, const Sizes& sizes, Work work) {
    const int tiles = sizes.key_tiles() * sizes.key_heads() * sizes.batch;
    u32 parity = 0;
    while (true) {
        wait_barrier(shared.at(Shared::TICKET_FULL), parity);
        parity ^= 1;
        int ticket;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(ticket) : "r"(shared.at(Shared::TICKET)) : "memory");
        ticket = __shfl_sync(~0u, ticket, 0);
        if (ticket >= tiles) return;
        if (!LATE && threadIdx.x % 32 == 0) arrive(shared.at(Shared::TICKET_EMPTY));
        work(Tile(ticket, sizes));
        if (LATE && threadIdx.x % 32 == 0) arrive(shared.at(Shared::TICKET_EMPTY));
    }
}

// One of the two warps that load. All lanes wait, together, so that none lags by more than a phase: keys, queries and lse (`side` 0), or values, dout and delta (`side` 1).
__device__ __forceinline__ void load(const Shared& shared, const Sizes& sizes, const TensorMap& map_keys, const TensorMap& map_rows,
                                     const float* lines, u32 side) {
    const bool leader = (threadIdx.x & 31) == 0;
    Ring<KEY_BUFFERS> keys;
    Ring<STAGES> stage;
    for_each_tile<true>(shared, sizes, [&](const Tile& tile) {
        wait_barrier(shared.at(Shared::KEY_EMPTY, keys.slot), keys.parity ^ 1);
        __syncwarp();
        if (leader) {
            const u32 full = shared.at(Shared::KEY_FULL, keys.slot);
            const u32 to = shared.at(Shared::KEY, keys.slot, KEY_BYTES) + side * (Shared::VALUE - Shared::KEY);
            arrive_expecting(full, KEY_BYTES);
            for (int panel = 0; panel < PANELS; panel++)
                copy_box(to + panel * PANEL_BYTES(KEYS), map_keys, full, panel * 64, tile.index * KEYS, tile.head, tile.batch);
        }
        keys.next();
        for (int head = tile.head * sizes.shared_heads; head < (tile.head + 1) * sizes.shared_heads; head++)
            for (int m = sizes.query_tiles() - 1; m >= tile.first_queries; m--) {
                wait_barrier(shared.at(Shared::QUERY_EMPTY, stage.slot), stage.parity ^ 1);
                __syncwarp();
                if (leader) {
                    const u32 full = shared.at(Shared::QUERY_FULL, stage.slot) + side * (Shared::DOUT_FULL - Shared::QUERY_FULL);
                    const u32 to = shared.at(Shared::QUERY, stage.slot, QUERY_BYTES) + side * (Shared::DOUT - Shared::QUERY);
                    arrive_expecting(full, QUERY_BYTES + LINE_BYTES);
                    for (int panel = 0; panel < PANELS; panel++)
                        copy_box(to + panel * PANEL_BYTES(QUERIES), map_rows, full, panel * 64, m * QUERIES, head, tile.batch);
                    const i64 row = ((i64)tile.batch * sizes.heads + head) * sizes.query_tiles() + m;
                    copy_line(shared.at(Shared::LINES, stage.slot, 2 * LINE_BYTES) + side * LINE_BYTES, lines + row * QUERIES, LINE_BYTES, full);
                }
                stage.next();
            }
    });
}

// Moves tiles of dq from shared memory to memory. One warp.
__device__ __forceinline__ void write_query_gradients(const Shared& shared, const Sizes& sizes, float* sums, u32* semaphores) {
    u32 parity = 0;
    for_each_tile(shared, sizes, [&](const Tile& tile) {
        for (int head = tile.head * sizes.shared_heads; head < (tile.head + 1) * sizes.shared_heads; head++)
            for (int m = sizes.query_tiles() - 1; m >= tile.first_queries; m--) {
                const i64 row = ((i64)tile.batch * sizes.heads + head) * sizes.query_tiles() + m;
                wait_barrier(shared.at(Shared::DQ_FULL), parity);
                __syncwarp();
                if ((threadIdx.x & 31) == 0) {
                    float* to = sums + row * (QUERIES * D);
                    if (tile.index == 0) {
                        store_bulk(to, shared.at(Shared::DQ), DQ_BYTES);
                    } else {
                        // In any order, after the first block has stored its part.
                        while (ORDERED ? load_acquire(semaphores + row) != tile.index : load_acquire(semaphores + row) == 0) {
                        }
                        fence_memory();
                        add_bulk(to, shared.at(Shared::DQ), DQ_BYTES);
                    }
                    wait_bulk_read();
                    arrive(shared.at(Shared::DQ_EMPTY));
                    wait_bulk();
                    if (ORDERED || tile.index == 0) store_release(semaphores + row, tile.index + 1);
                }
                __syncwarp();
                parity ^= 1;
            }
    });
}

// Issues the transposed product of 64 rows of `a` (keys or values) and the rows of `b` (queries or dout).
__device__ __forceinline__ void multiply_rows(float (&d)[QUERIES / 2], u32 a, u32 b) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        const u32 panel = step / 4, within = step % 4 * 32;
        multiply<false, false>(d, describe(a + panel * PANEL_BYTES(KEYS) + within, 0), describe(b + panel * PANEL_BYTES(QUERIES) + within, 0),
                               step > 0);
    }
    commit_products();
}

// Issues d += a b, where a (keys x queries) is in registers and b is a tile of queries or dout.
__device__ __forceinline__ void accumulate_rows(float (&d)[D / 2], const u32 (&a)[QUERIES / 4], u32 b) {
#pragma unroll
    for (int step = 0; step < QUERIES / 16; step++) {
        const u32 part[4] = {a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]};
        multiply<true>(d, part, describe(b + step * 16 * 128, PANEL_BYTES(QUERIES)), 1);
    }
    commit_products();
}

__device__ __forceinline__ float2 load_pair(u32 address) {
    float2 r;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(address));
    return r;
}

__device__ __forceinline__ void consume(const Shared& shared, const Sizes& sizes, u16* dk, u16* dv, const Strides& sk, const Strides& sv,
                                        float scale) {
    const int group = warpgroup() - 1, thread = threadIdx.x % 128, lane = threadIdx.x & 31;
    const bool leader = lane == 0;
    const float factor = scale * LOG2E;
    const int past = sizes.keys - sizes.queries;
    // Rows of this thread among the keys of the block: `own` and `own + 8`.
    const int own = group * 64 + thread / 32 * 16 + lane / 4;
    // Rows of dS that this lane passes to stmatrix, and the parts of dS and of keys that give this group's part of dq.
    const int ds_row = group * 64 + thread / 32 * 16 + (lane & 15);
    const u32 ds_to = shared.at(Shared::DS) + ds_row * 128, ds_from = shared.at(Shared::DS) + group % QUERY_PANELS * PANEL_BYTES(KEYS);
    const u32 key_panel = group / QUERY_PANELS * PANEL_BYTES(KEYS);
    const u32 dq_to = shared.at(Shared::DQ) + group * DQ_PART_BYTES + thread * 16;
    Ring<KEY_BUFFERS> keys;
    Ring<STAGES> stage;
    u32 dq_parity = 1;
    for_each_tile(shared, sizes, [&](const Tile& tile) {
        const u32 key = shared.at(Shared::KEY, keys.slot, KEY_BYTES), value = shared.at(Shared::VALUE, keys.slot, KEY_BYTES);
        const int first_key = tile.index * KEYS;
        float key_sums[D / 2], value_sums[D / 2];
#pragma unroll
        for (int i = 0; i < D / 2; i++) key_sums[i] = value_sums[i] = 0.0f;
        wait_barrier(shared.at(Shared::KEY_FULL, keys.slot), keys.parity);
        const int steps = (sizes.query_tiles() - tile.first_queries) * sizes.shared_heads;
        int m = sizes.query_tiles() - 1;
        for (int n = 0; n < steps; n++) {
            const u32 query = shared.at(Shared::QUERY, stage.slot, QUERY_BYTES), dout = shared.at(Shared::DOUT, stage.slot, QUERY_BYTES);
            const u32 lines = shared.at(Shared::LINES, stage.slot, 2 * LINE_BYTES) + lane % 4 * 8;
            float scores[QUERIES / 2], gradients[QUERIES / 2];
            wait_barrier(shared.at(Shared::QUERY_FULL, stage.slot), stage.parity);
            begin_products();
            multiply_rows(scores, key + group * PANEL_BYTES(64), query);
            wait_barrier(shared.at(Shared::DOUT_FULL, stage.slot), stage.parity);
            begin_products();
            multiply_rows(gradients, value + group * PANEL_BYTES(64), dout);
            wait_products<1>();
            pin(scores);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
                const float2 shift = load_pair(lines + n * 32);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    scores[4 * n + 2 * h] = exp2_approx(fmaf(scores[4 * n + 2 * h], factor, -shift.x));
                    scores[4 * n + 2 * h + 1] = exp2_approx(fmaf(scores[4 * n + 2 * h + 1], factor, -shift.y));
                }
            }
            const int first_query = m * QUERIES;
            // Keys after the last, and keys that some queries of the tile do not attend to.
            if (first_key + KEYS > sizes.keys || (CAUSAL && first_query + past < first_key + KEYS - 1)) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int at = first_key + own + 8 * h;
                    // Columns before this one have weight 0.
                    const int begin = (at >= sizes.keys ? QUERIES : CAUSAL ? at - past - first_query : 0) - lane % 4 * 2;
#pragma unroll
                    for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (8 * n + i < begin) scores[4 * n + 2 * h + i] = 0.0f;
                }
            }
            u32 weights[QUERIES / 4], ds[QUERIES / 4];
#pragma unroll
            for (int i = 0; i < QUERIES / 4; i++) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
            wait_products<0>();
            pin(gradients);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
                const float2 delta = load_pair(lines + LINE_BYTES + n * 32);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float a = scores[4 * n + 2 * h] * (gradients[4 * n + 2 * h] - delta.x);
                    const float b = scores[4 * n + 2 * h + 1] * (gradients[4 * n + 2 * h + 1] - delta.y);
                    ds[2 * n + h] = pack(a, b);
                }
            }
            begin_products();
            accumulate_rows(value_sums, weights, dout);
            // The previous dS has been read by both groups.
            sync_threads<256>(1);
#pragma unroll
            for (int step = 0; step < QUERIES / 16; step++) {
                const u32 chunk = step % 4 * 2 + lane / 16;
                store_tiles(ds_to + step / 4 * PANEL_BYTES(KEYS) + (chunk ^ (ds_row & 7)) * 16, ds[4 * step], ds[4 * step + 1], ds[4 * step + 2],
                            ds[4 * step + 3]);
            }
            fence_shared();
            sync_threads<256>(2);
            float dq[32];
            begin_products();
#pragma unroll
            for (int step = 0; step < KEYS / 16; step++)
                multiply<true, true>(dq, describe(ds_from + step * 16 * 128, 0), describe(key + key_panel + step * 16 * 128, 0), step > 0);
            commit_products();
            accumulate_rows(key_sums, ds, query);
            wait_products<1>();
            pin(dq), pin(value_sums);
            wait_barrier(shared.at(Shared::DQ_EMPTY), dq_parity);
            dq_parity ^= 1;
#pragma unroll
            for (int i = 0; i < 8; i++)
                asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(dq_to + i * 2048), "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]),
                             "f"(dq[4 * i + 3])
                             : "memory");
            fence_shared();
            __syncwarp();
            if (leader) arrive(shared.at(Shared::DQ_FULL));
            wait_products<0>();
            pin(key_sums);
            if (leader) arrive(shared.at(Shared::QUERY_EMPTY, stage.slot));
            stage.next();
            if (--m < tile.first_queries) m = sizes.query_tiles() - 1;
        }
        if (leader) arrive(shared.at(Shared::KEY_EMPTY, keys.slot));
        keys.next();
        u16* const to_k = dk + tile.batch * sk.batch + tile.head * sk.head;
        u16* const to_v = dv + tile.batch * sv.batch + tile.head * sv.head;
        const float factors[2] = {scale, scale}, ones[2] = {1.0f, 1.0f};
        store_rows(to_k, sk.token, key_sums, first_key + own, sizes.keys, factors);
        store_rows(to_v, sv.token, value_sums, first_key + own, sizes.keys, ones);
    });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward_sm90(u16* __restrict__ dk, u16* __restrict__ dv, float* __restrict__ sums, u32* __restrict__ semaphores,
                            const float* __restrict__ shift, const float* __restrict__ delta, Strides sk, Strides sv,
                            const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                            const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_dout, Sizes sizes, float scale) {
    extern __shared__ unsigned char memory[];
    const Shared shared = {(shared_address(memory) + 1023) & ~1023u};
    if (threadIdx.x == 0) {
        prefetch_map(map_q), prefetch_map(map_k), prefetch_map(map_v), prefetch_map(map_dout);
        for (int i = 0; i < KEY_BUFFERS; i++) init_barrier(shared.at(Shared::KEY_FULL, i), 2), init_barrier(shared.at(Shared::KEY_EMPTY, i), GROUPS * 4);
        for (int i = 0; i < STAGES; i++) {
            init_barrier(shared.at(Shared::QUERY_FULL, i), 1), init_barrier(shared.at(Shared::DOUT_FULL, i), 1);
            init_barrier(shared.at(Shared::QUERY_EMPTY, i), GROUPS * 4);
        }
        init_barrier(shared.at(Shared::DQ_FULL), GROUPS * 4), init_barrier(shared.at(Shared::DQ_EMPTY), 1);
        // Read by all warps of the groups, and by the three that load and write.
        init_barrier(shared.at(Shared::TICKET_FULL), 1), init_barrier(shared.at(Shared::TICKET_EMPTY), GROUPS * 4 + 3);
        fence_barrier_init();
    }
    __syncthreads();
    if (warpgroup() == 0) {
        shrink_registers<FEW_REGISTERS>();
        const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
        if (warp == 0) {
            load(shared, sizes, map_k, map_q, shift, 0);
        } else if (warp == 1) {
            load(shared, sizes, map_v, map_dout, delta, 1);
        } else if (warp == 2) {
            write_query_gradients(shared, sizes, sums, semaphores);
        } else if (threadIdx.x % 32 == 0) {
            // The ticket follows the semaphores.
            draw_tickets(shared, sizes, semaphores + (i64)sizes.batch * sizes.heads * sizes.query_tiles());
        }
    } else {
        grow_registers<MANY_REGISTERS>();
        consume(shared, sizes, dk, dv, sk, sv, scale);
    }
}

// ---- Conversion of dq: a block of 128 threads per part of 64 x 64 elements, in the layout of an accumulator.

extern "C" __global__ void __launch_bounds__(128) attention_finish_sm90(u16* __restrict__ dq, const float* __restrict__ sums, Strides strides,
                                                                        Sizes sizes, float scale) {
    const int tile = blockIdx.x / GROUPS, part = blockIdx.x % GROUPS, head = blockIdx.y, batch = blockIdx.z;
    const float4* from = (const float4*)(sums + (((i64)batch * sizes.heads + head) * sizes.query_tiles() + tile) * (QUERIES * D) + part * (64 * 64));
    float d[32];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 x = from[i * 128 + threadIdx.x];
        d[4 * i] = x.x, d[4 * i + 1] = x.y, d[4 * i + 2] = x.z, d[4 * i + 3] = x.w;
    }
    const int row = tile * QUERIES + part % QUERY_PANELS * 64 + threadIdx.x / 32 * 16 + (threadIdx.x & 31) / 4;
    dq += batch * strides.batch + head * strides.head + part / QUERY_PANELS * 64;
    const float factors[2] = {scale, scale};
    store_rows(dq, strides.token, d, row, sizes.queries, factors);
}
