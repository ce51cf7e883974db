"""Functions of one and two floats."""

import math

import warp as wp


@wp.kernel
def circular(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.sin(a)
    out[i, 1] = wp.cos(a)
    out[i, 2] = wp.tan(a)
    out[i, 3] = wp.asin(a * 0.1)
    out[i, 4] = wp.acos(a * 0.1)
    out[i, 5] = wp.atan(a)
    out[i, 6] = wp.atan2(a, 1.5)
    out[i, 7] = wp.degrees(a)
    out[i, 8] = wp.radians(a)


@wp.kernel
def exponential(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.exp(a)
    out[i, 1] = wp.log(a)
    out[i, 2] = wp.log2(a)
    out[i, 3] = wp.log10(a)
    out[i, 4] = wp.sqrt(a)
    out[i, 5] = wp.cbrt(a)
    out[i, 6] = wp.pow(a, 1.5)
    out[i, 7] = a ** 2.0
    out[i, 8] = wp.sinh(a)
    out[i, 9] = wp.cosh(a)
    out[i, 10] = wp.tanh(a)


@wp.kernel
def error_functions(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.erf(a)
    out[i, 1] = wp.erfc(a)
    out[i, 2] = wp.erfinv(a * 0.3)
    out[i, 3] = wp.erfcinv(1.0 + a * 0.3)


@wp.kernel
def rounding(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.floor(a)
    out[i, 1] = wp.ceil(a)
    out[i, 2] = wp.round(a)
    out[i, 3] = wp.rint(a)
    out[i, 4] = wp.trunc(a)
    out[i, 5] = wp.frac(a)
    out[i, 6] = wp.copysign(2.0, a)


@wp.kernel
def halves(out: wp.array2d[float]):
    i = wp.tid()
    a = float(i) * 0.5 - 4.0
    out[i, 0] = wp.round(a)
    out[i, 1] = wp.rint(a)
    out[i, 2] = wp.floor(a)
    out[i, 3] = wp.ceil(a)
    out[i, 4] = wp.trunc(a)


@wp.kernel
def circular_double(x: wp.array[wp.float64], out: wp.array2d[wp.float64]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.sin(a)
    out[i, 1] = wp.cos(a)
    out[i, 2] = wp.exp(a)
    out[i, 3] = wp.log(wp.abs(a) + wp.float64(1.0))
    out[i, 4] = wp.sqrt(wp.abs(a))
    out[i, 5] = wp.tanh(a)
    out[i, 6] = wp.pow(wp.abs(a), wp.float64(0.3))
    out[i, 7] = wp.atan2(a, wp.float64(0.5))


@wp.kernel
def python_math(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    out[i, 0] = math.sin(x[i])
    out[i, 1] = math.cos(x[i])
    out[i, 2] = math.sqrt(abs(x[i]))
    out[i, 3] = math.pi * x[i]
    out[i, 4] = wp.pi * x[i]
    out[i, 5] = wp.tau * x[i] + wp.E
    out[i, 6] = math.floor(x[i])


@wp.kernel
def classes(x: wp.array[float], out: wp.array[int]):
    i = wp.tid()
    n = int(0)
    a = x[i] / float(i % 3)
    if wp.isnan(a - a):
        n += 1
    if wp.isinf(a):
        n += 2
    if wp.isfinite(a):
        n += 4
    if a == wp.inf:
        n += 8
    out[i] = n


LAUNCHES = {
    "circular": {"dim": 32, "x": [32, -9, 9], "out": (32, 9), "check": "ulp 8"},
    "exponential": {"dim": 32, "x": [32, 0.01, 6], "out": (32, 11), "check": "ulp 8"},
    "error_functions": {"dim": 32, "x": [32, -3, 3], "out": (32, 4), "check": "near 2e-6"},
    "rounding": {"dim": 32, "x": [32, -9, 9], "out": (32, 7), "check": "exact"},
    "halves": {"dim": 17, "out": (17, 5), "check": "exact"},
    "circular_double": {"dim": 32, "x": [32, -5, 5], "out": (32, 8), "check": "ulp 8"},
    "python_math": {"dim": 16, "x": [16, -3, 3], "out": (16, 7), "check": "ulp 4"},
    "classes": {"dim": 12, "x": [12, -3, 3], "out": 12, "check": "exact"},
}
