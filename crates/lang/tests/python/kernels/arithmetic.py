"""Operators of floats and integers, comparisons, choices."""

import warp as wp


@wp.kernel
def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = a * x[i] + y[i]


@wp.kernel
def operators(x: wp.array[float], y: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = a + b
    out[i, 1] = a - b
    out[i, 2] = a * b
    out[i, 3] = a / b
    out[i, 4] = -a
    out[i, 5] = a // b
    out[i, 6] = a % b
    out[i, 7] = +b


@wp.kernel
def integers(x: wp.array[int], y: wp.array[int], out: wp.array2d[int]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = a + b
    out[i, 1] = a - b
    out[i, 2] = a * b
    out[i, 3] = a / b
    out[i, 4] = a // b
    out[i, 5] = a % b
    out[i, 6] = -a
    out[i, 7] = wp.abs(a) + wp.sign(b)


@wp.kernel
def comparisons(x: wp.array[float], y: wp.array[float], out: wp.array[int]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    n = int(0)
    if a < b:
        n += 1
    if a <= b:
        n += 2
    if a > b:
        n += 4
    if a >= b:
        n += 8
    if a == a:
        n += 16
    if a != b:
        n += 32
    if 0.0 < a < 1.0:
        n += 64
    if not (a < b) and (b < 0.0 or a > 0.5):
        n += 128
    out[i] = n


@wp.kernel
def choices(x: wp.array[float], y: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = wp.min(a, b)
    out[i, 1] = wp.max(a, b)
    out[i, 2] = wp.clamp(a, -0.5, 0.25)
    out[i, 3] = wp.abs(a)
    out[i, 4] = wp.sign(a)
    out[i, 5] = wp.step(a)
    out[i, 6] = wp.where(a > b, a, b * 2.0)
    out[i, 7] = a if a > 0.0 else b
    out[i, 8] = wp.nonzero(a)
    out[i, 9] = wp.lerp(a, b, 0.25)
    out[i, 10] = wp.smoothstep(-1.0, 1.0, a)
    out[i, 11] = min(max(a, -0.1), abs(b))


@wp.kernel
def integer_choices(x: wp.array[int], y: wp.array[int], out: wp.array2d[int]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = wp.min(a, b)
    out[i, 1] = wp.max(a, b)
    out[i, 2] = wp.clamp(a, -10, 25)
    out[i, 3] = wp.where(a > b, a, b)
    out[i, 4] = wp.sign(a)
    out[i, 5] = wp.step(a)
    out[i, 6] = wp.nonzero(a)
    out[i, 7] = a if a % 2 == 0 else -b


@wp.kernel
def augmented(x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    a = x[i]
    a += 1.5
    a *= 2.0
    a -= 0.25
    a /= 3.0
    b = float(i)
    b %= 3.0
    b //= 2.0
    out[i] = a + b


@wp.kernel
def order_of_operations(x: wp.array[float], n: wp.array[int], out: wp.array[float], whole: wp.array[int]):
    i = wp.tid()
    a = x[i]
    out[i] = a + a * a - a / (a + 2.0) - -a * (1.0 - a)
    k = n[i]
    whole[i] = (k << 2 | k & 6 ^ 3) + ~k * 2 - (k >> 1)


LAUNCHES = {
    "saxpy": {"dim": 64, "a": 2.5, "x": [64, -1, 1], "y": [64, -1, 1], "check": "exact"},
    "operators": {"dim": 32, "x": [32, -4, 4], "y": [32, -2, 2], "out": (32, 8), "check": "exact"},
    "integers": {"dim": 32, "x": [32, -1000, 1000], "y": [32, 1, 40], "out": (32, 8), "check": "exact"},
    "integers_negative": {"kernel": "integers", "dim": 32, "x": [32, -2000000000, 2000000000], "y": [32, -50, -1],
                          "out": (32, 8), "check": "exact"},
    "comparisons": {"dim": 64, "x": [64, -1, 1], "y": [64, -1, 1], "out": 64, "check": "exact"},
    "choices": {"dim": 32, "x": [32, -1, 1], "y": [32, -1, 1], "out": (32, 12), "check": "ulp 4"},
    "integer_choices": {"dim": 32, "x": [32, -40, 40], "y": [32, -40, 40], "out": (32, 8), "check": "exact"},
    "augmented": {"dim": 32, "x": [32, -3, 3], "out": 32, "check": "exact"},
    "order_of_operations": {"dim": 32, "x": [32, -1, 1], "n": [32, -100, 100], "out": 32, "whole": 32, "check": "exact"},
}
