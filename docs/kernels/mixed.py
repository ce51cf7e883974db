import warp as wp


@wp.kernel
def total(x: wp.array(dtype=float), out: wp.array(dtype=float), n: int):
    s = 0.0
    for i in range(n):
        s += 2 * x[i]
    out[0] = s
