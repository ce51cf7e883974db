#ifdef DOUBLE_PRECISION
typedef double real;
typedef double4 real4;
#else
typedef float real;
typedef float4 real4;
#endif

__device__ __forceinline__ real square(real v) { return v * v; }

// Forces from neighbour lists stored with atoms as the fastest index.
__global__ void lennard_jones(real4* force, const real4* __restrict__ position, const int neighCount,
                              const int* __restrict__ neighList, const real cutsq, const real lj1, const real lj2, const int inum) {
    const unsigned int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < inum) {
        const real4 ipos = position[idx];
        real4 f = {0.0f, 0.0f, 0.0f, 0.0f};
        int j = 0;
        while (j < neighCount) {
            const int jidx = neighList[j * inum + idx];
            const real4 jpos = position[jidx];
            const real delx = ipos.x - jpos.x, dely = ipos.y - jpos.y, delz = ipos.z - jpos.z;
            real r2inv = square(delx) + square(dely) + square(delz);
            if (jidx != idx && r2inv < cutsq) {
                r2inv = (real)1.0 / r2inv;
                const real r6inv = r2inv * r2inv * r2inv;
                const real fpair = r2inv * r6inv * (lj1 * r6inv - lj2);
                f.x += delx * fpair;
                f.y += dely * fpair;
                f.z += delz * fpair;
            }
            j++;
        }
        force[idx] = f;
    }
}
