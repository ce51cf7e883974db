"""Thread-local arrays of fixed length; sorting and scans by one thread."""

import warp as wp


@wp.kernel
def histogram_of_row(a: wp.array2d[int], out: wp.array2d[int]):
    i = wp.tid()
    bins = wp.zeros(shape=4, dtype=int)
    for k in range(a.shape[1]):
        bins[a[i, k]] += 1
    for b in range(4):
        out[i, b] = bins[b]


@wp.kernel
def reversed_row(a: wp.array2d[float], out: wp.array2d[float]):
    i = wp.tid()
    t = wp.zeros(shape=(6,), dtype=float)
    for k in range(6):
        t[5 - k] = a[i, k]
    for k in range(6):
        out[i, k] = t[k]


@wp.kernel
def sorted_row(a: wp.array2d[float], out: wp.array2d[float]):
    i = wp.tid()
    for k in range(a.shape[1]):
        out[i, k] = a[i, k]
    for k in range(1, a.shape[1]):
        key = out[i, k]
        j = k - 1
        while j >= 0 and out[i, j] > key:
            out[i, j + 1] = out[i, j]
            j -= 1
        out[i, j + 1] = key


@wp.kernel
def scanned(a: wp.array2d[int], out: wp.array2d[int]):
    i = wp.tid()
    s = int(0)
    for k in range(a.shape[1]):
        s += a[i, k]
        out[i, k] = s


@wp.kernel
def largest(a: wp.array2d[float], out: wp.array[int]):
    i = wp.tid()
    best = int(0)
    for k in range(1, a.shape[1]):
        if a[i, k] > a[i, best]:
            best = k
    out[i] = best


@wp.kernel
def binary_search(a: wp.array[float], x: wp.array[float], out: wp.array[int]):
    i = wp.tid()
    low = int(0)
    high = a.shape[0]
    while low < high:
        middle = (low + high) // 2
        if a[middle] < x[i]:
            low = middle + 1
        else:
            high = middle
    out[i] = low


@wp.kernel
def polynomial(c: wp.array[float], x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for k in range(c.shape[0]):
        s = s * x[i] + c[c.shape[0] - 1 - k]
    out[i] = s


LAUNCHES = {
    "histogram_of_row": {"dim": 8, "a": [(8, 12), 0, 4], "out": (8, 4), "check": "exact"},
    "reversed_row": {"dim": 8, "a": [(8, 6), -1, 1], "out": (8, 6), "check": "exact"},
    "sorted_row": {"dim": 8, "a": [(8, 9), -1, 1], "out": (8, 9), "check": "exact"},
    "scanned": {"dim": 8, "a": [(8, 9), -50, 50], "out": (8, 9), "check": "exact"},
    "largest": {"dim": 8, "a": [(8, 9), -1, 1], "out": 8, "check": "exact"},
    "binary_search": {"dim": 16, "a": [20, -1, 1], "x": [16, -1, 1], "out": 16, "check": "exact"},
    "polynomial": {"dim": 16, "c": [6, -1, 1], "x": [16, -1, 1], "out": 16, "check": "exact"},
}
