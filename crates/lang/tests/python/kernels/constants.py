"""Module-level constants, enums, closures over constants, compile-time values."""

import enum
import math

import warp as wp

COUNT = 4
SCALE = wp.constant(2.5)
GRAVITY = wp.constant(wp.vec3(0.0, -9.81, 0.0))
WEIGHTS = (1, 4, 6, 4, 1)
HALF_PI = math.pi / 2.0
WIDTH = COUNT * 2 + 1


class Kind(enum.IntEnum):
    FLUID = 1
    SOLID = 2


@wp.kernel
def constants(out: wp.array2d[float], n: wp.array[int]):
    i = wp.tid()
    out[i, 0] = SCALE * float(i)
    out[i, 1] = GRAVITY[1]
    out[i, 2] = HALF_PI
    n[i] = COUNT + WIDTH * 100


@wp.kernel
def loops_over_constants(x: wp.array2d[float], out: wp.array[float]):
    i = wp.tid()
    s = 0.0
    for k in range(COUNT):
        s += x[i, k]
    out[i] = s


@wp.kernel
def enums(kind: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    if kind[i] == Kind.FLUID:
        out[i] = 10
    elif kind[i] == int(Kind.SOLID):
        out[i] = 20
    else:
        out[i] = Kind.SOLID + 1


@wp.kernel
def fixed(x: wp.array2d[float], out: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for k in range(wp.static(len(WEIGHTS))):
        s += x[i, k] * wp.static(float(WEIGHTS[k]) / 16.0)
    out[i] = s


@wp.kernel
def dead_branches(x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    if wp.static(COUNT > 10):
        out[i] = x[i] + 1
    else:
        out[i] = x[i] * wp.static(math.sqrt(2.0))


def powers(exponent, offset):
    @wp.kernel(module="unique")
    def power(x: wp.array[float], out: wp.array[float]):
        i = wp.tid()
        p = float(1.0)
        for _k in range(exponent):
            p *= x[i]
        out[i] = p + offset

    return power


cube = powers(3, 0.5)
fifth = powers(5, 1.0)


@wp.func
def layered(x: float):
    return x * SCALE + float(COUNT)


@wp.kernel
def in_functions(x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    out[i] = layered(layered(x[i]))


LAUNCHES = {
    "constants": {"dim": 4, "out": (4, 3), "n": 4, "check": "exact"},
    "loops_over_constants": {"dim": 4, "x": [(4, 4), -1, 1], "out": 4, "check": "exact"},
    "enums": {"dim": 16, "kind": [16, 0, 4], "out": 16, "check": "exact"},
    "fixed": {"dim": 4, "x": [(4, 5), -1, 1], "out": 4, "check": "exact"},
    "dead_branches": {"dim": 4, "x": [4, -1, 1], "out": 4, "check": "exact"},
    "cube": {"dim": 8, "x": [8, -1, 1], "out": 8, "check": "exact"},
    "fifth": {"dim": 8, "x": [8, -1, 1], "out": 8, "check": "exact"},
    "in_functions": {"dim": 8, "x": [8, -1, 1], "out": 8, "check": "exact"},
}
