// launch: grid=2x3 block=4x4
// args: in=range:96 out=zeros:96 width=8 height=12
// fault: out_of_bounds
// says: is outside 'out' of 96 elements
__global__ void transpose(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * 4 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= width || y >= height) return;
#ifdef FAULT
    out[x + y * height] = in[y * width + x];  // HERE
#else
    out[x * height + y] = in[y * width + x];
#endif
}
