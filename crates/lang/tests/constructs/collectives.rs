//! Collectives of CUB.

use bornite_lang::cuda::CudaModule;

use super::run_kernel;

const REDUCE: &str = "#include <cub/cub.cuh>
    struct Larger { __device__ int operator()(int a, int b) const { return a > b ? a : b; } };
    template <int N> __global__ void k(int* x) {
        typedef cub::BlockReduce<int, N, cub::BLOCK_REDUCE_WARP_REDUCTIONS> BlockReduce;
        __shared__ typename BlockReduce::TempStorage temp;
        __shared__ int first;
        int v = x[threadIdx.x];
        int sum = BlockReduce(temp).Sum(v);
        if (threadIdx.x == 0) first = sum;
        __syncthreads();
        int largest = BlockReduce(temp).Reduce(v, cub::Max());
        __syncthreads();
        int mine = BlockReduce(temp).Reduce(-v, Larger());
        __syncthreads();
        int some = BlockReduce(temp).Sum(v, 10);
        if (threadIdx.x == 0) { x[0] = first; x[1] = largest; x[2] = mine; x[3] = some; }
    }
    int main() { k<64><<<1, 64>>>(x); }";

const SCAN: &str = "__global__ void k(int* x) {
        using BlockScan = cub::BlockScan<int, 64>;
        using WarpReduce = cub::WarpReduce<int>;
        __shared__ BlockScan::TempStorage temp;
        __shared__ typename WarpReduce::TempStorage warps[2];
        int before, up_to, total;
        BlockScan(temp).ExclusiveSum(x[threadIdx.x], before, total);
        __syncthreads();
        BlockScan(temp).InclusiveSum(x[threadIdx.x], up_to);
        int warp = WarpReduce(warps[threadIdx.x / 32]).Sum(1);
        x[threadIdx.x] = up_to - before + (threadIdx.x == 7 ? total : 0) + (threadIdx.x % 32 == 0 ? 100 * warp : 0);
    }";

#[test]
fn collectives() {
    let module = CudaModule::parse("k.cu", REDUCE).unwrap_or_else(|errors| panic!("{errors}"));
    let found = run_kernel(&module, "k<64>", 64).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(found[..5], [2016.0, 63.0, 0.0, 45.0, 4.0]);
    let module = CudaModule::parse("k.cu", SCAN).unwrap_or_else(|errors| panic!("{errors}"));
    let found = run_kernel(&module, "k", 64).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!([found[0], found[1], found[7], found[8], found[32]], [3200.0, 1.0, 7.0 + 2016.0, 8.0, 3232.0]);
}

/// Faults of the caller are found: storage that is used again too early, blocks of another size.
#[test]
fn misused_collectives() {
    let module = CudaModule::parse("k.cu", &REDUCE.replacen("__syncthreads();", "", 1)).unwrap();
    let race = run_kernel(&module, "k<64>", 64).unwrap_err();
    assert!(race.contains("race on 'temp["), "{race}");
    let module = CudaModule::parse("k.cu", REDUCE).unwrap();
    let size = run_kernel(&module, "k<64>", 32).unwrap_err();
    assert!(size.contains("the collective is for blocks of 64 threads"), "{size}");
    let other = REDUCE.replace("BlockReduce<", "BlockRadixSort<");
    let error = run_kernel(&CudaModule::read("k.cu", &other, None, &Default::default()), "k<64>", 64).unwrap_err();
    assert!(error.contains("cub"), "{error}");
}
