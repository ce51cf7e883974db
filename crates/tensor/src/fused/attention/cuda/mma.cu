// Tiled attention: softmax(scale · q kᵀ) v without storing the score matrix in memory, and its gradient.
//
// Compiled with D (features of a head, a multiple of 16, at most 128), CAUSAL (0 or 1) and HALF (1: f16, 0: bf16) defined
// first, after `pairs.cuh`. Rows of q, k, v and the outputs have strides that the caller passes, in elements; features
// are contiguous.
// Products go through the tensor cores as 16 x 8 x 16 tiles: in an accumulator, lane l holds elements
// (l / 4, 2 (l % 4) + {0, 1}) and (l / 4 + 8, the same). That is also the layout of half an A operand, so that a
// product is an operand of the next one without leaving registers.
// The gradient is two kernels, one over queries and one over keys, each of which recomputes the weights: there are
// no atomic additions, so results are bitwise reproducible.

// Row stride of a tile in shared memory, in bytes: 16 more than a row, so that eight rows are in different banks.
#define PITCH (D * 2 + 16)
#define STEPS (D / 16)

// Asynchronous copy of 16 bytes from global to shared memory; zeros if `inside` is false.
__device__ __forceinline__ void copy16(u32 to, const void* from, bool inside) {
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int LEFT>
__device__ __forceinline__ void copies_done() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Four 8 x 8 tiles of 16-bit elements; lanes 8 i to 8 i + 7 hold the addresses of the rows of tile i.
__device__ __forceinline__ void load_tiles(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if HALF
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads rows of a matrix into a tile of ROWS rows; zeros after the last.
template <int ROWS, int THREADS>
__device__ __forceinline__ void fetch(u32 tile, const u16* from, i64 stride, int first, int rows) {
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int n = threadIdx.x; n < ROWS * CHUNKS; n += THREADS) {
        int row = n / CHUNKS, chunk = n % CHUNKS;
        bool inside = first + row < rows;
        const u16* source = from + (inside ? (i64)(first + row) * stride + chunk * 8 : 0);
        copy16(tile + row * PITCH + chunk * 16, source, inside);
    }
}

// The A operand: rows `row` to `row + 15` of a tile, 16 features from `step` on.
__device__ __forceinline__ void load_a(u32 (&a)[4], u32 tile, int row, int step) {
    int lane = threadIdx.x & 31;
    load_tiles(a, tile + (row + (lane & 15)) * PITCH + (step * 2 + (lane >> 4)) * 16);
}

// B operands whose columns are rows `row` to `row + 15` of a tile, and whose rows are 16 features.
__device__ __forceinline__ void load_b(u32 (&b)[4], u32 tile, int row, int step) {
    int lane = threadIdx.x & 31;
    load_tiles(b, tile + (row + (lane & 7) + ((lane >> 4) << 3)) * PITCH + (step * 2 + ((lane >> 3) & 1)) * 16);
}

// B operands whose rows are rows `row` to `row + 15` of a tile, and whose columns are 16 features.
__device__ __forceinline__ void load_b_transposed(u32 (&b)[4], u32 tile, int row, int step) {
    int lane = threadIdx.x & 31;
    load_transposed(b, tile + (row + (lane & 15)) * PITCH + (step * 2 + (lane >> 4)) * 16);
}

// ---------------------------------------------------------------------------------------------------------------------
// Forward: a block processes 128 queries, each warp 32; keys and values are loaded in tiles of 64.

#define QUERIES 128
#define KEYS 64

extern "C" __global__ void __launch_bounds__(128) attention_forward(
    u16* __restrict__ o, float* __restrict__ lse, const u16* __restrict__ q, const u16* __restrict__ k,
    const u16* __restrict__ v, Strides so, Strides sq, Strides sk, Strides sv, int queries, int keys, int group,
    float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int head = blockIdx.y, batch = blockIdx.z;
    // The last queries have the most keys, so they start first.
    const int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    q += batch * sq.batch + head * sq.head;
    k += batch * sk.batch + head / group * sk.head;
    v += batch * sv.batch + head / group * sv.head;
    const u32 tile_q = shared_address(memory), tiles = tile_q + QUERIES * PITCH;
    const int past = keys - queries;
    const int last = min(first + QUERIES, queries) - 1;
    const int reach = CAUSAL ? min(keys, last + past + 1) : keys;
    const int count = (reach + KEYS - 1) / KEYS;

    fetch<QUERIES, 128>(tile_q, q, sq.token, first, queries);
    fetch<KEYS, 128>(tiles, k, sk.token, 0, keys);
    fetch<KEYS, 128>(tiles + KEYS * PITCH, v, sv.token, 0, keys);
    copies_begun();

    float out[2][D / 8][4], most[2][2], sum[2][2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            for (int i = 0; i < 4; i++) out[m][n][i] = 0.0f;
        for (int h = 0; h < 2; h++) most[m][h] = -1.0f / 0.0f, sum[m][h] = 0.0f;
    }
    const float factor = scale * LOG2E;

    for (int t = 0; t < count; t++) {
        const u32 tile_k = tiles + (t & 1) * 2 * KEYS * PITCH, tile_v = tile_k + KEYS * PITCH;
        copies_done<0>();
        __syncthreads();
        if (t + 1 < count) {
            const u32 next = tiles + ((t + 1) & 1) * 2 * KEYS * PITCH;
            fetch<KEYS, 128>(next, k, sk.token, (t + 1) * KEYS, keys);
            fetch<KEYS, 128>(next + KEYS * PITCH, v, sv.token, (t + 1) * KEYS, keys);
            copies_begun();
        }
        float scores[2][KEYS / 8][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                for (int i = 0; i < 4; i++) scores[m][n][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            u32 a[2][4];
            load_a(a[0], tile_q, warp * 32, step);
            load_a(a[1], tile_q, warp * 32 + 16, step);
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                u32 b[4];
                load_b(b, tile_k, n * 16, step);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    multiply(scores[m][2 * n], a[m], b[0], b[1]);
                    multiply(scores[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
        const int lowest = first + warp * 32;
        if ((t + 1) * KEYS > keys || (CAUSAL && (t + 1) * KEYS > lowest + past + 1)) {
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int key = t * KEYS + n * 8 + (lane & 3) * 2 + (i & 1);
                        int query = lowest + m * 16 + (lane >> 2) + (i >> 1) * 8;
                        if (key >= keys || (CAUSAL && key > query + past)) scores[m][n][i] = -1.0f / 0.0f;
                    }
        }
        u32 weights[2][KEYS / 8][2];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float larger = most[m][h];
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
                    larger = fmaxf(larger, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
                larger = max_of_quad(larger);
                const float shift = larger == -1.0f / 0.0f ? 0.0f : larger * factor;
                const float shrink = exp2_approx(fmaf(most[m][h], factor, -shift));
                most[m][h] = larger;
                float more = 0.0f;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
                    float a = exp2_approx(fmaf(scores[m][n][2 * h], factor, -shift));
                    float b = exp2_approx(fmaf(scores[m][n][2 * h + 1], factor, -shift));
                    // Sums the rounded weights that the product below uses, so that rows of equal values are exact.
                    u32 pair = pack(a, b);
                    weights[m][n][h] = pair;
                    more += low_of(pair) + high_of(pair);
                }
                sum[m][h] = fmaf(sum[m][h], shrink, more);
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    out[m][n][2 * h] *= shrink;
                    out[m][n][2 * h + 1] *= shrink;
                }
            }
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++) {
            u32 a[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++)
                for (int i = 0; i < 4; i++) a[m][i] = weights[m][2 * step + (i >> 1)][i & 1];
#pragma unroll
            for (int n = 0; n < STEPS; n++) {
                u32 b[4];
                load_b_transposed(b, tile_v, step * 16, n);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    multiply(out[m][2 * n], a[m], b[0], b[1]);
                    multiply(out[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    o += batch * so.batch + head * so.head;
    lse += ((i64)batch * gridDim.y + head) * queries;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int query = first + warp * 32 + m * 16 + h * 8 + (lane >> 2);
            const float total = sum_of_quad(sum[m][h]);
            if (query >= queries) continue;
            const float inverse = 1.0f / total;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                u32 pair = pack(out[m][n][2 * h] * inverse, out[m][n][2 * h + 1] * inverse);
                *(u32*)(o + query * so.token + n * 8 + (lane & 3) * 2) = pair;
            }
            if ((lane & 3) == 0) lse[query] = most[m][h] * scale + logf(total);
        }
}

// ---------------------------------------------------------------------------------------------------------------------
// Backward. With p = exp(s - lse) and delta = Σ o · do: ds = p (do · v - delta), dq = scale ds k, dk = scale dsᵀ q,
// dv = pᵀ do.

// delta: eight lanes per row, four rows per warp, 16 bytes per load. The order of sums is that of a warp with two features per
// lane: lanes 16, 8 and 4 apart are adjacent here, those 2 and 1 apart are in one thread.
extern "C" __global__ void __launch_bounds__(256) attention_delta(
    float* __restrict__ delta, const u16* __restrict__ o, const u16* __restrict__ dout, Strides so, Strides sd,
    int queries) {
    const int lane = threadIdx.x & 7, query = blockIdx.x * 32 + (threadIdx.x >> 3);
    const int head = blockIdx.y, batch = blockIdx.z;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    // Lanes without a row continue: warp sums need all lanes.
    if (query < queries) {
        o += batch * so.batch + head * so.head + query * so.token;
        dout += batch * sd.batch + head * sd.head + query * sd.token;
#pragma unroll
        for (int n = lane * 8; n < D; n += 64) {
            const uint4 a = *(const uint4*)(o + n), b = *(const uint4*)(dout + n);
            const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] = fmaf(low_of(x[i]), low_of(y[i]), fmaf(high_of(x[i]), high_of(y[i]), sum[i]));
        }
    }
#pragma unroll
    for (int apart = 4; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] += __shfl_xor_sync(~0u, sum[i], apart);
    const float total = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    if (lane == 0 && query < queries) delta[((i64)batch * gridDim.y + head) * queries + query] = total;
}

// A block processes 16 rows per warp; the other operand is loaded in tiles of 64.
#ifndef WARPS
#define WARPS 4
#endif
#define OWN (WARPS * 16)
#define OTHER 64

// dq: a block processes queries; keys and values are loaded in tiles.
extern "C" __global__ void __launch_bounds__(WARPS * 32) attention_by_queries(
    u16* __restrict__ dq, const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v,
    const u16* __restrict__ dout, const float* __restrict__ lse, const float* __restrict__ delta, Strides so,
    Strides sq, Strides sk, Strides sv, Strides sd, int queries, int keys, int group, float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int head = blockIdx.y, batch = blockIdx.z;
    const int first = (int)(gridDim.x - 1 - blockIdx.x) * OWN;
    q += batch * sq.batch + head * sq.head;
    k += batch * sk.batch + head / group * sk.head;
    v += batch * sv.batch + head / group * sv.head;
    dout += batch * sd.batch + head * sd.head;
    const i64 line = ((i64)batch * gridDim.y + head) * queries;
    const u32 tile_q = shared_address(memory), tile_d = tile_q + OWN * PITCH, tiles = tile_d + OWN * PITCH;
    const int past = keys - queries;
    const int last = min(first + OWN, queries) - 1;
    const int reach = CAUSAL ? min(keys, last + past + 1) : keys;
    const int count = (reach + OTHER - 1) / OTHER;

    fetch<OWN, WARPS * 32>(tile_q, q, sq.token, first, queries);
    fetch<OWN, WARPS * 32>(tile_d, dout, sd.token, first, queries);
    fetch<OTHER, WARPS * 32>(tiles, k, sk.token, 0, keys);
    fetch<OTHER, WARPS * 32>(tiles + OTHER * PITCH, v, sv.token, 0, keys);
    copies_begun();

    const float factor = scale * LOG2E;
    const int lowest = first + warp * 16;
    float shift[2], less[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int query = lowest + h * 8 + (lane >> 2);
        shift[h] = query < queries ? lse[line + query] * LOG2E : 0.0f;
        less[h] = query < queries ? delta[line + query] : 0.0f;
    }
    float out[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        for (int i = 0; i < 4; i++) out[n][i] = 0.0f;

    for (int t = 0; t < count; t++) {
        const u32 tile_k = tiles + (t & 1) * 2 * OTHER * PITCH, tile_v = tile_k + OTHER * PITCH;
        copies_done<0>();
        __syncthreads();
        if (t + 1 < count) {
            const u32 next = tiles + ((t + 1) & 1) * 2 * OTHER * PITCH;
            fetch<OTHER, WARPS * 32>(next, k, sk.token, (t + 1) * OTHER, keys);
            fetch<OTHER, WARPS * 32>(next + OTHER * PITCH, v, sv.token, (t + 1) * OTHER, keys);
            copies_begun();
        }
        // All queries of the warp precede this tile.
        if (CAUSAL && t * OTHER > lowest + 15 + past) continue;
        float scores[OTHER / 8][4], weight_gradients[OTHER / 8][4];
#pragma unroll
        for (int n = 0; n < OTHER / 8; n++)
            for (int i = 0; i < 4; i++) scores[n][i] = weight_gradients[n][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            u32 a[4], d[4];
            load_a(a, tile_q, warp * 16, step);
            load_a(d, tile_d, warp * 16, step);
#pragma unroll
            for (int n = 0; n < OTHER / 16; n++) {
                u32 b[4];
                load_b(b, tile_k, n * 16, step);
                multiply(scores[2 * n], a, b[0], b[1]);
                multiply(scores[2 * n + 1], a, b[2], b[3]);
                load_b(b, tile_v, n * 16, step);
                multiply(weight_gradients[2 * n], d, b[0], b[1]);
                multiply(weight_gradients[2 * n + 1], d, b[2], b[3]);
            }
        }
        const bool edge = (t + 1) * OTHER > keys || (CAUSAL && (t + 1) * OTHER > lowest + past + 1);
        u32 ds[OTHER / 8][2];
#pragma unroll
        for (int n = 0; n < OTHER / 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float pair[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float p = exp2_approx(fmaf(scores[n][2 * h + i], factor, -shift[h]));
                    if (edge) {
                        int key = t * OTHER + n * 8 + (lane & 3) * 2 + i;
                        int query = lowest + h * 8 + (lane >> 2);
                        if (key >= keys || (CAUSAL && key > query + past)) p = 0.0f;
                    }
                    pair[i] = p * (weight_gradients[n][2 * h + i] - less[h]);
                }
                ds[n][h] = pack(pair[0], pair[1]);
            }
#pragma unroll
        for (int step = 0; step < OTHER / 16; step++) {
            u32 a[4];
            for (int i = 0; i < 4; i++) a[i] = ds[2 * step + (i >> 1)][i & 1];
#pragma unroll
            for (int n = 0; n < STEPS; n++) {
                u32 b[4];
                load_b_transposed(b, tile_k, step * 16, n);
                multiply(out[2 * n], a, b[0], b[1]);
                multiply(out[2 * n + 1], a, b[2], b[3]);
            }
        }
    }
    dq += batch * so.batch + head * so.head;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int query = lowest + h * 8 + (lane >> 2);
        if (query >= queries) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            u32 pair = pack(out[n][2 * h] * scale, out[n][2 * h + 1] * scale);
            *(u32*)(dq + query * so.token + n * 8 + (lane & 3) * 2) = pair;
        }
    }
}

// dk and dv: a block processes keys and values of one head; queries and output gradients of all heads of its group are
// loaded in tiles. Scores are computed transposed (keys are rows), so that they are A operands without a conversion.
extern "C" __global__ void __launch_bounds__(WARPS * 32) attention_by_keys(
    u16* __restrict__ dk, u16* __restrict__ dv, const u16* __restrict__ q, const u16* __restrict__ k,
    const u16* __restrict__ v, const u16* __restrict__ dout, const float* __restrict__ lse,
    const float* __restrict__ delta, Strides so, Strides sp, Strides sq, Strides sk, Strides sv, Strides sd,
    int queries, int keys, int group, float scale) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int batch = blockIdx.z, heads = gridDim.y * group;
    const int first = blockIdx.x * OWN;
    const u32 tile_k = shared_address(memory), tile_v = tile_k + OWN * PITCH, tiles = tile_v + OWN * PITCH;
    float* lines = (float*)(memory + 2 * OWN * PITCH + 4 * OTHER * PITCH);
    const int past = keys - queries;
    // The first query that attends to a key of this block.
    const int begin = CAUSAL ? max(0, first - past) / OTHER : 0;
    const int tiles_a_head = (queries + OTHER - 1) / OTHER - begin;
    const int count = max(tiles_a_head, 0) * group;

    // Loads a tile of queries and output gradients, with their lse and delta, into one of the two buffers.
    auto next_tile = [&](int t) {
        const int head = blockIdx.y * group + t / tiles_a_head, row = (begin + t % tiles_a_head) * OTHER;
        const u32 buffer = tiles + (t & 1) * 2 * OTHER * PITCH;
        fetch<OTHER, WARPS * 32>(buffer, q + batch * sq.batch + head * sq.head, sq.token, row, queries);
        fetch<OTHER, WARPS * 32>(buffer + OTHER * PITCH, dout + batch * sd.batch + head * sd.head, sd.token, row, queries);
        copies_begun();
        const i64 line = ((i64)batch * heads + head) * queries;
        float* to = lines + (t & 1) * 2 * OTHER;
        const int n = threadIdx.x;
        if (n < OTHER) to[n] = row + n < queries ? lse[line + row + n] * LOG2E : 0.0f;
        else if (n < 2 * OTHER) to[n] = row + n - OTHER < queries ? delta[line + row + n - OTHER] : 0.0f;
    };

    fetch<OWN, WARPS * 32>(tile_k, k + batch * sk.batch + blockIdx.y * sk.head, sk.token, first, keys);
    fetch<OWN, WARPS * 32>(tile_v, v + batch * sv.batch + blockIdx.y * sv.head, sv.token, first, keys);
    if (count > 0) next_tile(0);

    const float factor = scale * LOG2E;
    const int lowest = first + warp * 16;
    float keys_out[D / 8][4], values_out[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        for (int i = 0; i < 4; i++) keys_out[n][i] = values_out[n][i] = 0.0f;

    for (int t = 0; t < count; t++) {
        const u32 tile_q = tiles + (t & 1) * 2 * OTHER * PITCH, tile_d = tile_q + OTHER * PITCH;
        const float *shift = lines + (t & 1) * 2 * OTHER, *less = shift + OTHER;
        copies_done<0>();
        __syncthreads();
        if (t + 1 < count) next_tile(t + 1);
        const int row = (begin + t % tiles_a_head) * OTHER;
        // All queries of the tile precede the keys of the warp.
        if (CAUSAL && row + OTHER - 1 + past < lowest) continue;
        float scores[OTHER / 8][4], weight_gradients[OTHER / 8][4];
#pragma unroll
        for (int n = 0; n < OTHER / 8; n++)
            for (int i = 0; i < 4; i++) scores[n][i] = weight_gradients[n][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            u32 a[4], d[4];
            load_a(a, tile_k, warp * 16, step);
            load_a(d, tile_v, warp * 16, step);
#pragma unroll
            for (int n = 0; n < OTHER / 16; n++) {
                u32 b[4];
                load_b(b, tile_q, n * 16, step);
                multiply(scores[2 * n], a, b[0], b[1]);
                multiply(scores[2 * n + 1], a, b[2], b[3]);
                load_b(b, tile_d, n * 16, step);
                multiply(weight_gradients[2 * n], d, b[0], b[1]);
                multiply(weight_gradients[2 * n + 1], d, b[2], b[3]);
            }
        }
        const bool edge = row + OTHER > queries || (CAUSAL && row + past < lowest + 15);
        u32 p[OTHER / 8][2], ds[OTHER / 8][2];
#pragma unroll
        for (int n = 0; n < OTHER / 8; n++) {
            const int column = n * 8 + (lane & 3) * 2;
            const float2 down = *(const float2*)(shift + column), off = *(const float2*)(less + column);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float weight[2], pair[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    weight[i] = exp2_approx(fmaf(scores[n][2 * h + i], factor, -(i ? down.y : down.x)));
                    if (edge) {
                        int query = row + column + i, key = lowest + h * 8 + (lane >> 2);
                        if (query >= queries || (CAUSAL && key > query + past)) weight[i] = 0.0f;
                    }
                    pair[i] = weight[i] * (weight_gradients[n][2 * h + i] - (i ? off.y : off.x));
                }
                p[n][h] = pack(weight[0], weight[1]);
                ds[n][h] = pack(pair[0], pair[1]);
            }
        }
#pragma unroll
        for (int step = 0; step < OTHER / 16; step++) {
            u32 a[4], d[4];
            for (int i = 0; i < 4; i++) a[i] = p[2 * step + (i >> 1)][i & 1], d[i] = ds[2 * step + (i >> 1)][i & 1];
#pragma unroll
            for (int n = 0; n < STEPS; n++) {
                u32 b[4];
                load_b_transposed(b, tile_d, step * 16, n);
                multiply(values_out[2 * n], a, b[0], b[1]);
                multiply(values_out[2 * n + 1], a, b[2], b[3]);
                load_b_transposed(b, tile_q, step * 16, n);
                multiply(keys_out[2 * n], d, b[0], b[1]);
                multiply(keys_out[2 * n + 1], d, b[2], b[3]);
            }
        }
    }
    copies_done<0>();
    dk += batch * so.batch + blockIdx.y * so.head;
    dv += batch * sp.batch + blockIdx.y * sp.head;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int key = lowest + h * 8 + (lane >> 2);
        if (key >= keys) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const int column = n * 8 + (lane & 3) * 2;
            *(u32*)(dk + key * so.token + column) = pack(keys_out[n][2 * h] * scale, keys_out[n][2 * h + 1] * scale);
            *(u32*)(dv + key * sp.token + column) = pack(values_out[n][2 * h], values_out[n][2 * h + 1]);
        }
    }
}
