"""Small dense row-major matrices in 1D arrays, each processed by one thread."""

import warp as wp


@wp.func
def dense_place(rows: int, columns: int, i: int, j: int, transposed: int):
    return wp.where(transposed == 1, j * rows + i, i * columns + j)


@wp.func
def dense_gemm(
    m: int,
    n: int,
    p: int,
    t1: int,
    t2: int,
    A: wp.array(dtype=float),
    B: wp.array(dtype=float),
    C: wp.array(dtype=float),
):
    """C = A B for m × p and p × n matrices; flag 1 marks a transposed factor. Other flags than 0 and 1 leave C unchanged."""
    if t1 >= 0 and t1 <= 1 and t2 >= 0 and t2 <= 1:
        for i in range(m):
            for j in range(n):
                total = float(0.0)
                for k in range(p):
                    total += A[dense_place(m, p, i, k, t1)] * B[dense_place(p, n, k, j, t2)]
                C[i * n + j] = total


@wp.func
def dense_chol(n: int, A: wp.array(dtype=float), regularization: float, L: wp.array(dtype=float)):
    """Cholesky factor L of A with a regularized diagonal; entries above the diagonal of L are unchanged."""
    for j in range(n):
        rest = float(A[j * n + j] + regularization)
        for k in range(j):
            rest -= L[j * n + k] * L[j * n + k]
        root = wp.sqrt(rest)
        scale = 1.0 / root
        L[j * n + j] = root
        for i in range(j + 1, n):
            below = float(A[i * n + j])
            for k in range(j):
                below -= L[i * n + k] * L[j * n + k]
            L[i * n + j] = below * scale


@wp.func
def dense_subs(n: int, L: wp.array(dtype=float), b: wp.array(dtype=float), x: wp.array(dtype=float)):
    """Solves L Lᵀ x = b by forward and backward substitution."""
    for i in range(n):
        rest = float(b[i])
        for j in range(i):
            rest -= L[i * n + j] * x[j]
        x[i] = rest / L[i * n + i]
    for turn in range(n):
        i = n - 1 - turn
        rest = float(x[i])
        for j in range(i + 1, n):
            rest -= L[j * n + i] * x[j]
        x[i] = rest / L[i * n + i]


@wp.func
def dense_solve(
    n: int, A: wp.array(dtype=float), L: wp.array(dtype=float), b: wp.array(dtype=float), x: wp.array(dtype=float)
):
    """Solves A x = b with the factor L from `dense_chol`."""
    dense_subs(n, L, b, x)
