// launch: grid=1 block=7
// args: x=range:33 y=zeros:28
// fault: misaligned
// says: a vector of 4 elements starts at element 1, which is not a multiple of 4
__global__ void copy(const float* x, float* y) {
#ifdef FAULT
    const float4* vectors = reinterpret_cast<const float4*>(x + 1);
#else
    const float4* vectors = reinterpret_cast<const float4*>(x);
#endif
    float4 v = vectors[threadIdx.x];  // HERE
    reinterpret_cast<float4*>(y)[threadIdx.x] = v;
}
