"""Arrays of one to four dimensions: both notations of their types, views, slices, shapes."""

import warp as wp


@wp.kernel
def two(a: wp.array2d[float], out: wp.array(dtype=float, ndim=2)):
    i, j = wp.tid()
    out[j, i] = a[i, j]


@wp.kernel
def three(a: wp.array3d[int], out: wp.array3d[int]):
    i, j, k = wp.tid()
    out[k, i, j] = a[i, j, k] * 2 + i


@wp.kernel
def four(a: wp.array4d[float], out: wp.array4d[float]):
    i, j, k, l = wp.tid()
    out[l, k, j, i] = a[i, j, k, l] + float(i * 1000 + j * 100 + k * 10 + l)


@wp.kernel
def shapes(a: wp.array3d[float], out: wp.array[int]):
    out[0] = a.shape[0]
    out[1] = a.shape[1]
    out[2] = a.shape[2]
    out[3] = len(a)


@wp.kernel
def rows(a: wp.array2d[float], out: wp.array[float]):
    i = wp.tid()
    row = a[i]
    s = float(0.0)
    for k in range(row.shape[0]):
        s += row[k]
    row[0] = -1.0
    out[i] = s


@wp.func
def total(row: wp.array[float], n: int):
    s = float(0.0)
    for k in range(n):
        s += row[k]
    return s


@wp.kernel
def planes(a: wp.array3d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    plane = a[i]
    out[i, j] = total(plane[j], 5) + plane[j, 0] + a[i, j][1]


@wp.kernel
def slices(a: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    part = a[2 + i : 6 + i]
    out[i] = part[0] + part[3] * 10.0 + float(part.shape[0])
    tail = a[i:]
    out[i] += tail[1]


@wp.kernel
def aliases(a: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    b = a
    b[i] = b[i] + 1.0
    out[i] = a[i]


@wp.kernel
def vectors_in_rows(a: wp.array2d[wp.vec3], out: wp.array2d[float]):
    i, j = wp.tid()
    out[i, j] = a[i, j][2] - a[i, j].x
    a[i, j][1] = 4.0


@wp.kernel
def gather(a: wp.array[float], at: wp.array[int], out: wp.array[float]):
    i = wp.tid()
    out[i] = a[at[i]]


@wp.kernel
def wide_indices(a: wp.array[float], at: wp.array[wp.int64], small: wp.array[wp.uint8], out: wp.array[float]):
    i = wp.tid()
    out[i] = a[at[i]] + a[small[i]]


@wp.kernel
def augmented(a: wp.array[float], n: wp.array[int]):
    i = wp.tid()
    a[i] *= 2.0
    a[i] /= 4.0
    a[i] += 1.0
    a[i] -= 0.5
    n[i] |= 8
    n[i] &= 12
    n[i] ^= 5


@wp.kernel
def slices_both_ways(
    a: wp.array[int], m: wp.array2d[int], start: int, stop: int, step: int, out: wp.array2d[int], sizes: wp.array[int]
):
    i = wp.tid()
    back = a[::-1]
    out[i, 0] = back[i]
    out[i, 1] = a[3::-1][i]
    out[i, 2] = a[::-2][::-1][i]
    out[i, 3] = a[-2:2:-1][i]
    out[i, 4] = a[start:stop:step][i]
    out[i, 5] = m[start:stop:step, 1][i]
    out[i, 6] = m[1][start:stop:step][::-1][i]
    if i == 0:
        sizes[0] = len(back)
        sizes[1] = a[2:100].shape[0]
        sizes[2] = a[5:2].shape[0]
        sizes[3] = a[-100:3].shape[0]
        sizes[4] = a[start:stop:step].shape[0]
        sizes[5] = a[::-5].shape[0]
        sizes[6] = a[100:3:-1].shape[0]
        sizes[7] = a[start : -step].shape[0]
        sizes[8] = a[step::7].shape[0]


LAUNCHES = {
    "slices_up": {"kernel": "slices_both_ways", "dim": 3, "a": [12, -99, 99], "m": [(12, 12), -99, 99], "start": 1, "stop": 50,
                  "step": 3, "out": (3, 7), "sizes": 9, "check": "exact"},
    "slices_down": {"kernel": "slices_both_ways", "dim": 3, "a": [12, -99, 99], "m": [(12, 12), -99, 99], "start": -1, "stop": 2,
                    "step": -3, "out": (3, 7), "sizes": 9, "check": "exact"},
    "two": {"dim": (5, 7), "a": [(5, 7), -1, 1], "out": (7, 5), "check": "exact"},
    "three": {"dim": (3, 4, 5), "a": [(3, 4, 5), -99, 99], "out": (5, 3, 4), "check": "exact"},
    "four": {"dim": (2, 3, 2, 4), "a": [(2, 3, 2, 4), -1, 1], "out": (4, 2, 3, 2), "check": "exact"},
    "shapes": {"dim": 1, "a": (3, 4, 5), "out": 4, "check": "exact"},
    "rows": {"dim": 6, "a": [(6, 5), -1, 1], "out": 6, "check": "exact"},
    "planes": {"dim": (3, 4), "a": [(3, 4, 5), -1, 1], "out": (3, 4), "check": "exact"},
    "slices": {"dim": 4, "a": [12, -1, 1], "out": 4, "check": "exact"},
    "aliases": {"dim": 8, "a": [8, -1, 1], "out": 8, "check": "exact"},
    "vectors_in_rows": {"dim": (3, 4), "a": [(3, 4), -1, 1], "out": (3, 4), "check": "exact"},
    "gather": {"dim": 16, "a": [20, -1, 1], "at": [16, 0, 20], "out": 16, "check": "exact"},
    "wide_indices": {"dim": 16, "a": [20, -1, 1], "at": [16, 0, 20], "small": [16, 0, 20], "out": 16, "check": "exact"},
    "augmented": {"dim": 16, "a": [16, -1, 1], "n": [16, 0, 16], "check": "exact"},
}
