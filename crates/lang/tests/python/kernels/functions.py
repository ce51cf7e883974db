"""Functions: overloads, defaults, keywords, Any, several results, functions as arguments."""

from typing import Any

import warp as wp


@wp.func
def square(x: float):
    return x * x


@wp.func
def square(x: int):
    return x * x + 1000


@wp.func
def square(x: wp.vec3):
    return wp.cw_mul(x, x)


@wp.func
def scaled(x: float, by: float = 2.0, plus: float = 0.5):
    return x * by + plus


@wp.func
def twice(x: Any):
    return x + x


@wp.func
def polar(x: float, y: float):
    return wp.sqrt(x * x + y * y), wp.atan2(y, x)


@wp.func
def annotated(n: int) -> int:
    return n * 3


@wp.func
def applied(f: wp.Function, x: float):
    return f(x) + 1.0


@wp.func
def half(x: float):
    return x * 0.5


@wp.func
def written(out: wp.array2d[float], i: int, v: float):
    out[i, 0] = v


@wp.func
def deepest(x: float):
    return wp.max(x, 0.0)


@wp.func
def deeper(x: float):
    return deepest(x) + deepest(-x) * 2.0


@wp.kernel
def overloads(x: wp.array[float], out: wp.array[float], whole: wp.array[int], vectors: wp.array[wp.vec3]):
    i = wp.tid()
    out[i] = square(x[i])
    whole[i] = square(i)
    vectors[i] = square(wp.vec3(x[i], 2.0, 3.0))


@wp.kernel
def defaults(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    out[i, 0] = scaled(x[i])
    out[i, 1] = scaled(x[i], 3.0)
    out[i, 2] = scaled(x[i], plus=0.25)
    out[i, 3] = scaled(plus=1.0, by=4.0, x=x[i])


@wp.kernel
def generic(x: wp.array[float], n: wp.array[int], v: wp.array[wp.vec2], d: wp.array[wp.float64]):
    i = wp.tid()
    x[i] = twice(x[i])
    n[i] = twice(n[i])
    v[i] = twice(v[i])
    d[i] = twice(d[i])


@wp.kernel
def several_results(x: wp.array[wp.vec2], out: wp.array2d[float]):
    i = wp.tid()
    r, angle = polar(x[i][0], x[i][1])
    out[i, 0] = r
    out[i, 1] = angle


@wp.kernel
def as_arguments(x: wp.array[float], out: wp.array2d[float], n: wp.array[int]):
    i = wp.tid()
    out[i, 1] = applied(half, x[i])
    written(out, i, deeper(x[i]))
    n[i] = annotated(i)


@wp.kernel
def generic_kernel(x: wp.array(dtype=Any), by: Any):
    i = wp.tid()
    x[i] = x[i] * by + x.dtype(1.0)


@wp.func
def dot_any(a: Any, b: Any):
    s = a[0] * b[0]
    for k in range(1, len(a)):
        s += a[k] * b[k]
    return s


@wp.kernel
def lengths_of_vectors(a: wp.array[wp.vec3], b: wp.array[wp.vec4], out: wp.array2d[float]):
    i = wp.tid()
    out[i, 0] = dot_any(a[i], a[i])
    out[i, 1] = dot_any(b[i], b[i])


LAUNCHES = {
    "overloads": {"dim": 8, "x": [8, -1, 1], "out": 8, "whole": 8, "vectors": 8, "check": "exact"},
    "defaults": {"dim": 8, "x": [8, -1, 1], "out": (8, 4), "check": "exact"},
    "generic": {"dim": 8, "x": [8, -1, 1], "n": [8, -9, 9], "v": [8, -1, 1], "d": [8, -1, 1], "check": "exact"},
    "several_results": {"dim": 8, "x": [8, -1, 1], "out": (8, 2), "check": "ulp 4"},
    "as_arguments": {"dim": 8, "x": [8, -1, 1], "out": (8, 2), "n": 8, "check": "exact"},
    "generic_kernel": {"dim": 8, "x": [8, -1, 1, "float32"], "by": ["float32", 2.5], "check": "exact"},
    "generic_double": {"kernel": "generic_kernel", "dim": 8, "x": [8, -1, 1, "float64"], "by": ["float64", 2.5],
                       "check": "exact"},
    "lengths_of_vectors": {"dim": 8, "a": [8, -1, 1], "b": [8, -1, 1], "out": (8, 2), "check": "exact"},
}
