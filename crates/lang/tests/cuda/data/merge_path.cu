// Merges two sorted arrays: each thread finds its diagonal by binary search and merges ITEMS elements.
template <typename T>
__device__ int diagonal(const T* a, int na, const T* b, int nb, int diag) {
    int low = max(0, diag - nb), high = min(diag, na);
    while (low < high) {
        const int mid = (low + high) >> 1;
        if (a[mid] <= b[diag - 1 - mid]) low = mid + 1;
        else high = mid;
    }
    return low;
}

template <typename T, int ITEMS>
__global__ void merge_path(const T* a, int na, const T* b, int nb, T* out) {
    const int start = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    if (start >= na + nb) return;
    int i = diagonal(a, na, b, nb, start), j = start - i;
    const int end = min(start + ITEMS, na + nb);
    for (int o = start; o < end; o++) {
        const bool take_a = j >= nb || (i < na && a[i] <= b[j]);
        out[o] = take_a ? a[i++] : b[j++];
    }
}

void merge(const int* a, int na, const int* b, int nb, int* out) { merge_path<int, 5><<<1, 64>>>(a, na, b, nb, out); }
