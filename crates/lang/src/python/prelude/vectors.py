"""Vector functions beyond sums and products: norms, argmin and argmax, binary search."""

from typing import Any

import warp as wp

Vec = wp.types.vector(length=Any, dtype=Any)


@wp.func
def length_sq(v: Any):
    return wp.dot(v, v)


@wp.func
def argmin(v: Vec):
    best = int(0)
    for k in range(1, len(v)):
        # A NaN in the first component is replaced by any number.
        if v[k] < v[best] or (v[best] != v[best] and v[k] == v[k]):
            best = k
    return wp.uint32(best)


@wp.func
def argmax(v: Vec):
    best = int(0)
    for k in range(1, len(v)):
        if v[k] > v[best] or (v[best] != v[best] and v[k] == v[k]):
            best = k
    return wp.uint32(best)


@wp.func
def norm_l1(v: Any):
    s = wp.abs(v[0])
    for k in range(1, len(v)):
        s = s + wp.abs(v[k])
    return s


@wp.func
def norm_l2(v: Any):
    return wp.length(v)


@wp.func
def norm_huber(v: Any, delta: float = 1.0):
    d = v.dtype(delta)
    squared = wp.dot(v, v)
    if squared <= d * d:
        return v.dtype(0.5) * squared
    return d * (wp.sqrt(squared) - v.dtype(0.5) * d)


@wp.func
def norm_pseudo_huber(v: Any, delta: float = 1.0):
    d = v.dtype(delta)
    return d * wp.sqrt(v.dtype(1.0) + wp.dot(v, v) / (d * d))


@wp.func
def smooth_normalize(v: Any, delta: float = 1.0):
    return v / wp.norm_pseudo_huber(v, delta)


@wp.func
def lower_bound(arr: wp.array(dtype=Any), arr_begin: int, arr_end: int, value: Any):
    low = int(arr_begin)
    # If all are smaller, the last index is returned.
    high = int(arr_end) - 1
    while low < high:
        middle = low + (high - low) // 2
        if arr[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@wp.func
def lower_bound(arr: wp.array(dtype=Any), value: Any):
    return wp.lower_bound(arr, 0, arr.shape[0], value)
