// Segmented sums within warps: values of equal keys that follow each other are added.
__global__ void segment_sums(const int* keys, const float* values, float* sums, int n) {
    const unsigned lane = threadIdx.x & 31u;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int key = i < n ? keys[i] : -1;
    float v = i < n ? values[i] : 0.f;
    const int left = __shfl_up_sync(~0u, key, 1);
    const bool head = lane == 0 || left != key;
    const unsigned heads = __ballot_sync(~0u, head);
    const unsigned first = 31u - __clz(heads & (0xffffffffu >> (31u - lane)));
    for (unsigned offset = 1; offset < 32; offset <<= 1) {
        const float other = __shfl_up_sync(~0u, v, offset);
        if (lane >= first + offset) v += other;
    }
    const bool tail = lane == 31 || (heads >> (lane + 1)) & 1u;
    if (tail && key >= 0) atomicAdd(sums + key, v);
}
