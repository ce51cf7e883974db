// Producers take the slots of a ring in turn and consumers a countdown, both wrap around.
__global__ void ring_slots(unsigned int* head, unsigned int* credit, int* uses, int* grants, int slots, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int slot = atomicInc(head, slots - 1);
    atomicAdd(&uses[slot], 1);
    unsigned int left = atomicDec(credit, 4);
    atomicAdd(&grants[left], 1);
}
