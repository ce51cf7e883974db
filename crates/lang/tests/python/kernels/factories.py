"""Kernels and functions created by functions: name resolution and captured values."""

import warp as wp


@wp.kernel
def step(out: wp.array[int]):
    out[wp.tid()] = 2


def make(n):
    @wp.kernel
    def step(out: wp.array[int]):
        out[wp.tid()] = n

    return step


other = make(3)
kept = make(n=5)
kept = make(7)


def make_pair(n, scale=10):
    @wp.kernel
    def once(out: wp.array[int]):
        out[wp.tid()] = n

    @wp.kernel
    def scaled(out: wp.array[int]):
        out[wp.tid()] = n * scale

    return once, scaled


once_four, scaled_four = make_pair(4)
once_seven, scaled_seven = make_pair(7, scale=100)


def power(p):
    if p == 0:

        @wp.func
        def one(x: float):
            return 1.0

        return one

    @wp.func
    def of(x: float):
        return wp.pow(x, float(p))

    return of


nothing = power(0)
square = power(2)
cube = power(3)


@wp.kernel
def powers(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    out[i, 0] = nothing(x[i])
    out[i, 1] = square(x[i])
    out[i, 2] = cube(x[i]) + square(2.0)


def outer(a):
    def middle(b):
        c = a * b

        @wp.kernel
        def inner(out: wp.array[int]):
            out[wp.tid()] = a * 100 + b * 10 + c

        return inner

    return middle(a + 1)


nested = outer(2)


def typed(dtype, f, g=None):
    h = g if g is not None else f

    @wp.kernel
    def apply(x: wp.array[dtype], out: wp.array[dtype]):
        i = wp.tid()
        out[i] = f(x[i]) + h(dtype(2.0))

    return apply


@wp.func
def plus(x: float):
    return x + 1.0


@wp.func
def plus(x: wp.float64):
    return x + wp.float64(1.0)


@wp.func
def twice(x: float):
    return x * 2.0


single = typed(wp.float32, plus, twice)
double = typed(wp.float64, plus)


def area(width, height=2):
    inside = width - 1
    return inside * height


@wp.kernel
def counted(out: wp.array[int]):
    out[wp.tid()] = wp.static(area(5) + area(3, height=10))


LAUNCHES = {
    "step": {"dim": 2, "out": 2, "check": "exact"},
    "other": {"dim": 2, "out": 2, "check": "exact"},
    "kept": {"dim": 2, "out": 2, "check": "exact"},
    "once_four": {"dim": 2, "out": 2, "check": "exact"},
    "scaled_four": {"dim": 2, "out": 2, "check": "exact"},
    "once_seven": {"dim": 2, "out": 2, "check": "exact"},
    "scaled_seven": {"dim": 2, "out": 2, "check": "exact"},
    "powers": {"dim": 4, "x": [4, 0.5, 2], "out": (4, 3), "check": "near 1e-6"},
    "nested": {"dim": 2, "out": 2, "check": "exact"},
    "single": {"dim": 4, "x": [4, -1, 1], "out": 4, "check": "exact"},
    "double": {"dim": 4, "x": [4, -1, 1], "out": 4, "check": "exact"},
    "counted": {"dim": 2, "out": 2, "check": "exact"},
}
