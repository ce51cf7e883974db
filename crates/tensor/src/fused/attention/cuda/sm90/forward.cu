// Attention for compute capability 9.0: softmax(scale · q kᵀ) v and each row's log-sum-exp.
//
// Compiled with D (features of a head: 64 or 128), CAUSAL (0 or 1), HALF (1: f16, 0: bf16), and GROUPS
// (warpgroups that compute) defined first, after `instructions.cuh`.
//
//                 block: GROUPS · 64 queries of one head at a time
//   producer      q ──► smem (2 buffers)        k, v ──► smem (ring of STAGES tiles of KEYS keys each)
//   group g       for its 64 queries, tiles of keys from last to first:
//                   S(t) = q k(t)ᵀ     wgmma from smem      ┐ both in flight while
//                   O   += P(t+1) v(t+1)  wgmma, P in registers ┘ S(t) is awaited
//                   softmax of S(t) while O is being computed ──► P(t)
//
// Blocks are persistent: the producer loads the next queries and keys while the groups finish a head. Two groups take
// turns to issue products, so that one computes weights while the tensor cores work for the other; three groups overlap
// as well without.

// One block per multiprocessor. With 64 features: three groups, 128 registers per thread at launch (32 for the
// producer, 160 for the groups after setmaxnreg), 113 KB of shared memory. With 128 features: two groups, 168 registers
// (24 and 240), 193 KB.

#define KEYS 128
#define ROWS (GROUPS * 64)
#define PANELS (D / 64)
#define STAGES 2
#define QUERY_BUFFERS 2
#define THREADS ((GROUPS + 1) * 128)

// Bytes of a panel of rows, and of complete tiles.
#define PANEL_BYTES(rows) ((rows) * 128)
#define QUERY_BYTES (ROWS * D * 2)
#define KEY_BYTES (KEYS * D * 2)

struct Shared {
    u32 query, key, value;
    u32 query_full, query_empty, key_full, key_empty, value_full, value_empty;

    __device__ __forceinline__ explicit Shared(u32 begin) {
        query = (begin + 1023) & ~1023u;
        key = query + QUERY_BUFFERS * QUERY_BYTES;
        value = key + STAGES * KEY_BYTES;
        query_full = value + STAGES * KEY_BYTES;
        query_empty = query_full + 8 * QUERY_BUFFERS;
        key_full = query_empty + 8 * QUERY_BUFFERS;
        key_empty = key_full + 8 * STAGES;
        value_full = key_empty + 8 * STAGES;
        value_empty = value_full + 8 * STAGES;
    }
};

struct Sizes {
    int batch, heads, queries, keys;
    // Query heads per head of keys and values.
    int shared_heads;
    // Heads whose blocks are adjacent in time, so that their keys and values stay in the L2.
    int heads_in_cache;
};

// A block's work: ROWS queries of one head.
struct Tile {
    int head, batch, first, count;

    // The `n`th tile in order of execution: the longest of a set of heads first.
    __device__ __forceinline__ Tile(int n, const Sizes& sizes) {
        const int blocks = (sizes.queries + ROWS - 1) / ROWS, all = sizes.heads * sizes.batch;
        const int set = n / (blocks * sizes.heads_in_cache), begin = set * sizes.heads_in_cache;
        const int in_set = min(sizes.heads_in_cache, all - begin), rest = n - begin * blocks;
        const int index = begin + rest % in_set;
        head = index % sizes.heads, batch = index / sizes.heads;
        first = (blocks - 1 - rest / in_set) * ROWS;
        count = tiles_for(min(first + ROWS, sizes.queries) - 1, sizes);
    }

    // Tiles of keys that queries up to `last` attend to.
    static __device__ __forceinline__ int tiles_for(int last, const Sizes& sizes) {
        const int visible = CAUSAL ? min(sizes.keys, last + sizes.keys - sizes.queries + 1) : sizes.keys;
        return (visible + KEYS - 1) / KEYS;
    }
};

__device__ __forceinline__ void produce(const Shared& shared, const Sizes& sizes, const TensorMap& map_q,
                                        const TensorMap& map_k, const TensorMap& map_v, int tiles) {
    Ring<QUERY_BUFFERS> query;
    Ring<STAGES> stage;
    for (int n = blockIdx.x; n < tiles; n += gridDim.x) {
        const Tile tile(n, sizes);
        const int shared_head = tile.head / sizes.shared_heads;
        wait_barrier(shared.query_empty + 8 * query.slot, query.parity ^ 1);
        const u32 full = shared.query_full + 8 * query.slot;
        arrive_expecting(full, QUERY_BYTES);
        for (int panel = 0; panel < PANELS; panel++)
            copy_box(shared.query + query.slot * QUERY_BYTES + panel * PANEL_BYTES(ROWS), map_q, full, panel * 64, tile.first,
                     tile.head, tile.batch);
        query.next();
        for (int t = tile.count - 1; t >= 0; t--) {
            const u32 key_full = shared.key_full + 8 * stage.slot, value_full = shared.value_full + 8 * stage.slot;
            wait_barrier(shared.key_empty + 8 * stage.slot, stage.parity ^ 1);
            arrive_expecting(key_full, KEY_BYTES);
            for (int panel = 0; panel < PANELS; panel++)
                copy_box(shared.key + stage.slot * KEY_BYTES + panel * PANEL_BYTES(KEYS), map_k, key_full, panel * 64,
                         t * KEYS, shared_head, tile.batch);
            wait_barrier(shared.value_empty + 8 * stage.slot, stage.parity ^ 1);
            arrive_expecting(value_full, KEY_BYTES);
            for (int panel = 0; panel < PANELS; panel++)
                copy_box(shared.value + stage.slot * KEY_BYTES + panel * PANEL_BYTES(KEYS), map_v, value_full, panel * 64,
                         t * KEYS, shared_head, tile.batch);
            stage.next();
        }
    }
}

// Order in which the groups issue products, by a barrier for each.
struct Turns {
    int group;

    __device__ __forceinline__ explicit Turns(int group) : group(group) {
        if (GROUPS == 2 && group == 1) pass();
    }

    __device__ __forceinline__ void wait() const {
        if (GROUPS == 2) sync_threads<256>(1 + group);
    }

    // Lets the other group go on.
    __device__ __forceinline__ void pass() const {
        if (GROUPS == 2) arrive_threads<256>(2 - group);
    }
};

// Issues scores = q kᵀ for 64 queries.
__device__ __forceinline__ void multiply_keys(float (&scores)[KEYS / 2], u32 query, u32 key) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        const u32 panel = step / 4, within = step % 4 * 32;
        multiply<false, false>(scores, describe(query + panel * PANEL_BYTES(ROWS) + within, 0),
                               describe(key + panel * PANEL_BYTES(KEYS) + within, 0), step > 0);
    }
    commit_products();
}

// Issues out += weights v.
__device__ __forceinline__ void multiply_values(float (&out)[D / 2], const u32 (&weights)[KEYS / 4], u32 value) {
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        const u32 a[4] = {weights[4 * step], weights[4 * step + 1], weights[4 * step + 2], weights[4 * step + 3]};
        multiply<true>(out, a, describe(value + step * 16 * 128, PANEL_BYTES(KEYS)), 1);
    }
    commit_products();
}

// Running maximum and sum of the two rows of a thread.
struct Rows {
    float largest[2], sum[2];
};

// Replaces scores by weights, rounded to 16 bits and relative to the new maxima, and returns in `shrink` the factors by
// which sums and outputs so far are scaled.
__device__ __forceinline__ void softmax(float (&scores)[KEYS / 2], Rows& rows, float (&shrink)[2], float factor) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float largest = rows.largest[h];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) largest = fmaxf(largest, fmaxf(scores[4 * n + 2 * h], scores[4 * n + 2 * h + 1]));
        largest = max_of_quad(largest);
        const float shift = largest == -INFINITY_F ? 0.0f : largest * factor;
        shrink[h] = exp2_approx(fmaf(rows.largest[h], factor, -shift));
        rows.largest[h] = largest;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            float &a = scores[4 * n + 2 * h], &b = scores[4 * n + 2 * h + 1];
            // The sum is of rounded weights, which the product uses, so that rows of equal values are exact.
            const u32 pair = pack(exp2_approx(fmaf(a, factor, -shift)), exp2_approx(fmaf(b, factor, -shift)));
            a = low_of(pair), b = high_of(pair);
            sum += a + b;
        }
        rows.sum[h] = fmaf(rows.sum[h], shrink[h], sum);
    }
}

// Packs weights as an operand. While a product reads `weights`, their registers must not be written.
__device__ __forceinline__ void pack_weights(u32 (&weights)[KEYS / 4], const float (&scores)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
}

// Sets scores of keys that a row does not attend to to -infinity. `row` is the thread's first row, `begin` the first key.
__device__ __forceinline__ void mask(float (&scores)[KEYS / 2], int row, int begin, const Sizes& sizes) {
    const int column = begin + (threadIdx.x & 3) * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int visible = CAUSAL ? min(sizes.keys, row + 8 * h + sizes.keys - sizes.queries + 1) : sizes.keys;
        const int left = visible - column;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (8 * n + i >= left) scores[4 * n + 2 * h + i] = -INFINITY_F;
    }
}

__device__ __forceinline__ void consume(const Shared& shared, const Sizes& sizes, u16* o, float* lse, const Strides& strides,
                                        float scale, int tiles) {
    const int group = warpgroup() - 1;
    // Each warp releases buffers: warps of a group that skip a tile do not wait for each other.
    const bool leader = threadIdx.x % 32 == 0;
    const float factor = scale * LOG2E;
    const Turns turns(group);
    Ring<QUERY_BUFFERS> query;
    // Tiles of values are read one iteration after those of keys.
    Ring<STAGES> key, value;
    for (int n = blockIdx.x; n < tiles; n += gridDim.x) {
        const Tile tile(n, sizes);
        const int first = tile.first + group * 64, row = first + threadIdx.x % 128 / 32 * 16 + (threadIdx.x & 31) / 4;
        // Tiles after the last that a query of this group attends to are skipped.
        const int own = first < sizes.queries ? Tile::tiles_for(min(first + 64, sizes.queries) - 1, sizes) : 0;
        const u32 q = shared.query + query.slot * QUERY_BYTES + group * PANEL_BYTES(64);
        int t = tile.count - 1;
        for (; t >= own; t--) {
            turns.wait(), turns.pass();
            wait_barrier(shared.key_full + 8 * key.slot, key.parity);
            wait_barrier(shared.value_full + 8 * key.slot, key.parity);
            __syncwarp();
            if (leader) arrive(shared.key_empty + 8 * key.slot), arrive(shared.value_empty + 8 * key.slot);
            key.next(), value.next();
        }
        wait_barrier(shared.query_full + 8 * query.slot, query.parity);
        __syncwarp();

        float out[D / 2];
#pragma unroll
        for (int i = 0; i < D / 2; i++) out[i] = 0.0f;
        Rows rows = {{-INFINITY_F, -INFINITY_F}, {0.0f, 0.0f}};
        float shrink[2], scores[KEYS / 2];
        u32 weights[KEYS / 4];

        if (own > 0) {
            wait_barrier(shared.key_full + 8 * key.slot, key.parity);
            turns.wait();
            begin_products();
            multiply_keys(scores, q, shared.key + key.slot * KEY_BYTES);
            turns.pass();
            wait_products<0>();
            pin(scores);
            if (leader) arrive(shared.key_empty + 8 * key.slot);
            key.next();
            mask(scores, row, t * KEYS, sizes);
            softmax(scores, rows, shrink, factor);
            pack_weights(weights, scores);
            t--;
        }
        // Only the second tile from the right can also need a mask: queries of a group span 64 keys.
        for (; t >= 0; t--) {
            wait_barrier(shared.key_full + 8 * key.slot, key.parity);
            turns.wait();
            begin_products();
            multiply_keys(scores, q, shared.key + key.slot * KEY_BYTES);
            wait_barrier(shared.value_full + 8 * value.slot, value.parity);
            begin_products();
            multiply_values(out, weights, shared.value + value.slot * KEY_BYTES);
            turns.pass();
            wait_products<1>();
            pin(scores);
            if (leader) arrive(shared.key_empty + 8 * key.slot);
            key.next();
            if (CAUSAL && (t + 1) * KEYS > first + sizes.keys - sizes.queries + 1) mask(scores, row, t * KEYS, sizes);
            softmax(scores, rows, shrink, factor);
            wait_products<0>();
            pin(out);
            if (leader) arrive(shared.value_empty + 8 * value.slot);
            value.next();
            pack_weights(weights, scores);
#pragma unroll
            for (int i = 0; i < D / 2; i++) out[i] *= shrink[i >> 1 & 1];
        }
        if (leader) arrive(shared.query_empty + 8 * query.slot);
        query.next();
        if (own > 0) {
            wait_barrier(shared.value_full + 8 * value.slot, value.parity);
            begin_products();
            multiply_values(out, weights, shared.value + value.slot * KEY_BYTES);
            wait_products<0>();
            pin(out);
            if (leader) arrive(shared.value_empty + 8 * value.slot);
            value.next();
            float inverse[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float total = sum_of_quad(rows.sum[h]);
                inverse[h] = 1.0f / total;
                if (row + 8 * h < sizes.queries && threadIdx.x % 4 == 0)
                    lse[((i64)tile.batch * sizes.heads + tile.head) * sizes.queries + row + 8 * h] = rows.largest[h] * scale + logf(total);
            }
            store_rows(o + tile.batch * strides.batch + tile.head * strides.head, strides.token, out, row, sizes.queries, inverse);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_forward_sm90(u16* __restrict__ o, float* __restrict__ lse, Strides strides, const __grid_constant__ TensorMap map_q,
                           const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v, Sizes sizes, float scale) {
    extern __shared__ unsigned char memory[];
    const Shared shared(shared_address(memory));
    const int tiles = (sizes.queries + ROWS - 1) / ROWS * sizes.heads * sizes.batch;
    if (threadIdx.x == 0) {
        prefetch_map(map_q), prefetch_map(map_k), prefetch_map(map_v);
        for (int i = 0; i < QUERY_BUFFERS; i++) init_barrier(shared.query_full + 8 * i, 1), init_barrier(shared.query_empty + 8 * i, GROUPS * 4);
        for (int i = 0; i < STAGES; i++) {
            init_barrier(shared.key_full + 8 * i, 1), init_barrier(shared.key_empty + 8 * i, GROUPS * 4);
            init_barrier(shared.value_full + 8 * i, 1), init_barrier(shared.value_empty + 8 * i, GROUPS * 4);
        }
        fence_barrier_init();
    }
    __syncthreads();
    if (warpgroup() == 0) {
        shrink_registers<GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x == 0) produce(shared, sizes, map_q, map_k, map_v, tiles);
    } else {
        grow_registers<GROUPS == 3 ? 160 : 240>();
        consume(shared, sizes, o, lse, strides, scale, tiles);
    }
}
