"""Heat that spreads on a plate, one step of it."""

import warp as wp

RATE = wp.constant(0.1)


@wp.func
def spread(u: wp.array2d[float], i: int, j: int):
    return u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j]


@wp.kernel
def step(u: wp.array2d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    if i > 0 and j > 0 and i < u.shape[0] - 1 and j < u.shape[1] - 1:
        out[i, j] = u[i, j] + RATE * spread(u, i, j)


@wp.kernel
def careless(u: wp.array2d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    out[i, j] = u[i, j] + RATE * spread(u, i, j)
