// launch: grid=1 block=32
// args: x=mod7:32 y=zeros:32
// fault: division
// says: undefined integer division: 100i32 / 0i32, in thread [0, 0, 0]
__global__ void shares(const int* x, int* y) {
    int i = threadIdx.x;
#ifdef FAULT
    y[i] = 100 / x[i];  // HERE
#else
    y[i] = x[i] == 0 ? 0 : 100 / x[i];
#endif
}
