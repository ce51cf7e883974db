#define MAX_LEN 24

// Edit distance of pairs of words, a row of the table in registers.
__global__ void edit_distance(const char* words, const int* lengths, const int2* pairs, int* distance, int count) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= count) return;
    const char *a = words + pairs[p].x * MAX_LEN, *b = words + pairs[p].y * MAX_LEN;
    const int la = lengths[pairs[p].x], lb = lengths[pairs[p].y];
    unsigned short row[MAX_LEN + 1];
    for (int j = 0; j <= MAX_LEN; j++) row[j] = j;
    for (int i = 1; i <= la; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int cost = a[i - 1] == b[j - 1] ? diagonal : 1 + min(diagonal, min((int)row[j], (int)row[j - 1]));
            diagonal = row[j];
            row[j] = cost;
        }
    }
    distance[p] = row[lb];
}
