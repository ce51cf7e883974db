"""Atomics, and sums and counts made with them."""

import warp as wp


@wp.kernel
def histogram(a: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    wp.atomic_add(out, a[i], 1)


@wp.kernel
def augmented_histogram(a: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    out[a[i]] += 1


@wp.kernel
def sums(a: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    wp.atomic_add(out, 0, a[i])
    wp.atomic_sub(out, 1, a[i])
    wp.atomic_min(out, 2, a[i])
    wp.atomic_max(out, 3, a[i])


@wp.kernel
def integer_kinds(a: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    wp.atomic_add(out, 0, a[i])
    wp.atomic_sub(out, 1, a[i])
    wp.atomic_min(out, 2, a[i])
    wp.atomic_max(out, 3, a[i])
    wp.atomic_or(out, 4, a[i])
    wp.atomic_xor(out, 5, a[i])
    wp.atomic_and(out, 6, a[i])


@wp.kernel
def unsigned_kinds(a: wp.array[wp.uint32], out: wp.array[wp.uint32]):
    i = wp.tid()
    wp.atomic_add(out, 0, a[i])
    wp.atomic_max(out, 1, a[i])
    wp.atomic_or(out, 2, a[i])


@wp.kernel
def vector_sums(a: wp.array[wp.vec3], at: wp.array[int], out: wp.array[wp.vec3]):
    i = wp.tid()
    wp.atomic_add(out, at[i], a[i])


@wp.kernel
def in_the_plane(a: wp.array2d[int], out: wp.array2d[int]):
    i, j = wp.tid()
    wp.atomic_add(out, a[i, j], j % 2, 1)
    wp.atomic_max(out, 4, 0, a[i, j] + i)


@wp.kernel
def places(a: wp.array[int], count: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    if a[i] > 5:
        at = wp.atomic_add(count, 0, 1)
        if at >= 0:
            wp.atomic_add(out, 0, a[i])


@wp.kernel
def double_sums(a: wp.array[wp.float64], out: wp.array[wp.float64]):
    i = wp.tid()
    wp.atomic_add(out, i % 4, a[i])


@wp.kernel
def long_sums(a: wp.array[wp.int64], out: wp.array[wp.int64]):
    i = wp.tid()
    wp.atomic_add(out, 0, a[i])
    wp.atomic_max(out, 1, a[i])


LAUNCHES = {
    "histogram": {"dim": 64, "a": [64, 0, 8], "out": 8, "check": "exact"},
    "augmented_histogram": {"dim": 64, "a": [64, 0, 8], "out": 8, "check": "exact"},
    "sums": {"dim": 64, "a": [64, -1, 1], "out": 4, "check": "near 1e-5"},
    "integer_kinds": {"dim": 64, "a": [64, -900, 900], "out": [7, 0, 99], "check": "exact"},
    "unsigned_kinds": {"dim": 64, "a": [64, 0, 4294967295], "out": 3, "check": "exact"},
    "vector_sums": {"dim": 64, "a": [64, -1, 1], "at": [64, 0, 4], "out": 4, "check": "near 1e-5"},
    "in_the_plane": {"dim": (8, 8), "a": [(8, 8), 0, 4], "out": (5, 2), "check": "exact"},
    "places": {"dim": 64, "a": [64, 0, 12], "count": 1, "out": 1, "check": "exact"},
    "double_sums": {"dim": 64, "a": [64, -1, 1], "out": 4, "check": "near 1e-13"},
    "long_sums": {"dim": 64, "a": [64, -9e14, 9e14], "out": 2, "check": "exact"},
}
