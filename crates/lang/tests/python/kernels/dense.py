"""Small dense matrices in arrays: products, Cholesky factorization and solves."""

import warp as wp


@wp.kernel
def products(a: wp.array2d[float], b: wp.array2d[float], out: wp.array3d[float]):
    i = wp.tid()
    # 3 × 4 and 4 × 2, with every combination of transposed factors.
    wp.dense_gemm(3, 2, 4, 0, 0, a[i], b[i], out[i, 0])
    wp.dense_gemm(3, 2, 4, 1, 0, a[i], b[i], out[i, 1])
    wp.dense_gemm(3, 2, 4, 0, 1, a[i], b[i], out[i, 2])
    wp.dense_gemm(3, 2, 4, 1, 1, a[i], b[i], out[i, 3])
    wp.dense_gemm(3, 2, 4, 2, 0, a[i], b[i], out[i, 4])


@wp.kernel
def solutions(
    n: int,
    m: wp.array2d[float],
    b: wp.array2d[float],
    a: wp.array2d[float],
    l: wp.array2d[float],
    x: wp.array2d[float],
    y: wp.array2d[float],
):
    i = wp.tid()
    wp.dense_gemm(n, n, n, 0, 1, m[i], m[i], a[i])
    wp.dense_chol(n, a[i], 0.5, l[i])
    wp.dense_subs(n, l[i], b[i], x[i])
    wp.dense_solve(n, a[i], l[i], b[i], y[i])


LAUNCHES = {
    "products": {"dim": 5, "a": [(5, 12), -1, 1], "b": [(5, 8), -1, 1], "out": (5, 5, 6), "check": "near 1e-6"},
    "solutions": {"dim": 4, "n": 5, "m": [(4, 25), -1, 1], "b": [(4, 5), -1, 1], "a": (4, 25), "l": (4, 25), "x": (4, 5),
                  "y": (4, 5), "check": "near 1e-5"},
}
