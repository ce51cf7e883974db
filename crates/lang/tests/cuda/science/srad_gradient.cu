typedef float fp;

// Diffusion coefficients of an image from its derivatives; neighbours are index arrays.
__global__ void srad_gradient(fp d_lambda, int d_Nr, int d_Nc, long d_Ne, const int* d_iN, const int* d_iS, const int* d_jE,
                              const int* d_jW, fp d_q0sqr, fp* d_c, const fp* d_I) {
    int bx = blockIdx.x;
    int tx = threadIdx.x;
    int ei = bx * blockDim.x + tx;
    int row = (ei + 1) % d_Nr - 1;
    int col = (ei + 1) / d_Nr + 1 - 1;
    if ((ei + 1) % d_Nr == 0) {
        row = d_Nr - 1;
        col = col - 1;
    }
    fp d_Jc, d_dN_loc, d_dS_loc, d_dW_loc, d_dE_loc, d_c_loc, d_G2, d_L, d_num, d_den, d_qsqr;
    if (ei < d_Ne) {
        d_Jc = d_I[ei];
        d_dN_loc = d_I[d_iN[row] + d_Nr * col] - d_Jc;
        d_dS_loc = d_I[d_iS[row] + d_Nr * col] - d_Jc;
        d_dW_loc = d_I[row + d_Nr * d_jW[col]] - d_Jc;
        d_dE_loc = d_I[row + d_Nr * d_jE[col]] - d_Jc;
        d_G2 = (d_dN_loc * d_dN_loc + d_dS_loc * d_dS_loc + d_dW_loc * d_dW_loc + d_dE_loc * d_dE_loc) / (d_Jc * d_Jc);
        d_L = (d_dN_loc + d_dS_loc + d_dW_loc + d_dE_loc) / d_Jc;
        d_num = (0.5 * d_G2) - ((1.0 / 16.0) * (d_L * d_L));
        d_den = 1 + (0.25 * d_L);
        d_qsqr = d_num / (d_den * d_den);
        d_den = (d_qsqr - d_q0sqr) / (d_q0sqr * (1 + d_q0sqr));
        d_c_loc = 1.0 / (1.0 + d_den);
        if (d_c_loc < 0) {
            d_c_loc = 0;
        } else if (d_c_loc > 1) {
            d_c_loc = 1;
        }
        d_c[ei] = d_c_loc;
    }
}
