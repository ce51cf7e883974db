//! Cooperative groups.

use bornite_lang::cuda::CudaModule;

use super::{check_errors, run_kernel};

#[test]
fn groups() {
    let cases: &[(&str, &[f64])] = &[
        (
            "namespace cg = cooperative_groups;
            __global__ void k(int* x) {
                cg::thread_block cta = cg::this_thread_block();
                __shared__ int s[64];
                s[cta.thread_rank()] = x[threadIdx.x];
                cta.sync();
                x[threadIdx.x] = s[cta.size() - 1 - cta.thread_rank()] + cta.group_index().x;
                cg::sync(cta);
            }",
            &[63.0, 62.0, 61.0],
        ),
        (
            "#include <cooperative_groups.h>
            #include <cooperative_groups/reduce.h>
            using namespace cooperative_groups;
            __device__ int sum(thread_block_tile<32> tile, int v) {
                for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
                return v;
            }
            template <class G> __device__ int all(G& g, int v) {
                for (int d = g.size() / 2; d > 0; d /= 2) v += g.shfl_xor(v, d);
                return v;
            }
            __global__ void k(int* x) {
                auto block = this_thread_block();
                thread_block_tile<32> warp = tiled_partition<32>(block);
                auto quad = tiled_partition<4>(warp);
                int v = x[threadIdx.x];
                int s = sum(warp, v), q = all(quad, v), m = cooperative_groups::reduce(warp, v, cooperative_groups::greater<int>());
                block.sync();
                if (warp.thread_rank() == 0) x[warp.meta_group_rank()] = s;
                if (threadIdx.x == 9) { x[2] = q; x[3] = quad.thread_rank(); x[4] = quad.meta_group_size(); x[5] = m; }
                if (threadIdx.x == 40) { x[6] = m; x[7] = quad.meta_group_rank(); }
                unsigned votes = warp.ballot(threadIdx.x % 2 == 0);
                if (threadIdx.x == 0) x[8] = votes == 0x55555555u;
            }",
            &[496.0, 1520.0, 38.0, 1.0, 8.0, 31.0, 63.0, 2.0, 1.0],
        ),
        (
            "namespace cg = cooperative_groups;
            template <int N> __device__ int last(const cg::thread_block_tile<N>& tile, int v) { return tile.shfl(v, N - 1); }
            __global__ void k(int* x) {
                auto tile = cg::tiled_partition<8>(cg::this_thread_block());
                x[threadIdx.x] = last(tile, x[threadIdx.x]);
            }",
            &[7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 15.0],
        ),
        (
            "__global__ void k(int* x) { auto g = cooperative_groups::this_grid(); x[g.thread_rank()] = g.size() - g.thread_rank(); }",
            &[64.0, 63.0, 62.0],
        ),
    ];
    for (text, expected) in cases {
        let module = CudaModule::parse("k.cu", text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
        let found = run_kernel(&module, "k", 64).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
        assert_eq!(&found[..expected.len()], *expected, "{text}");
    }
    check_errors(&[
        (
            "__global__ void k(int* x) { cooperative_groups::this_grid().sync(); }",
            "synchronization of the whole grid is not supported",
        ),
        (
            "__global__ void k(int* x) { auto g = cooperative_groups::coalesced_threads(); }",
            "'coalesced_threads' is not supported",
        ),
        (
            "__global__ void k(int* x) { auto g = cooperative_groups::tiled_partition<64>(cooperative_groups::this_thread_block()); }",
            "a tile of 64 threads is not supported",
        ),
    ]);
}
