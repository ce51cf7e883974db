#include <assert.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

// Gradient of the input of a layer norm, a warp per row.
__global__ void layernorm_backward(float* dinp, const float* dout, const float* inp, const float* weight,
                                   const float* mean, const float* rstd, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;

    const float* dout_row = dout + idx * C;
    const float* inp_row = inp + idx * C;
    float* dinp_row = dinp + idx * C;
    const float m = mean[idx], s = rstd[idx];

    float dnorm_mean = 0.0f, dnorm_norm_mean = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        float norm = (inp_row[i] - m) * s;
        float dnorm = weight[i] * dout_row[i];
        dnorm_mean += dnorm;
        dnorm_norm_mean += dnorm * norm;
    }
    dnorm_mean = cg::reduce(warp, dnorm_mean, cg::plus<float>{}) / C;
    dnorm_norm_mean = cg::reduce(warp, dnorm_norm_mean, cg::plus<float>{}) / C;

    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        float norm = (inp_row[i] - m) * s;
        float dval = weight[i] * dout_row[i] - dnorm_mean - norm * dnorm_norm_mean;
        dinp_row[i] += dval * s;
    }
}
