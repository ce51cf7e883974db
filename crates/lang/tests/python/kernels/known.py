"""Compile-time evaluation: order of statements, conditions, enclosing functions; and keyword arguments."""

import enum
import math
from math import ceil

import warp as wp

N = 2
TWENTY = N * 10
N = 3

COUNT = 4
COUNT += 2
COUNT *= N

DOUBLE = True
Real = wp.float64 if DOUBLE else wp.float32
if DOUBLE:
    Vec = wp.vec3d
elif N > 100:
    Vec = wp.vec3h
else:
    Vec = wp.vec3f

if N > 5:
    LIMIT = 10
elif N == 3:
    LIMIT = 20
else:
    LIMIT = 30

A, B = 1, 2
A, B = B, A
C = A
A = A + 10


class Config:
    size = 4


Config.size = 8

class Shape(enum.IntEnum):
    ROUND = enum.auto()
    SQUARE = enum.auto()
    LONG = 7
    LAST = enum.auto()


class Bits(enum.IntFlag):
    A = enum.auto()
    B = enum.auto()
    C = enum.auto()


STAYS = True
if STAYS:

    @wp.func
    def shifted(x: int):
        return x + 1

else:

    @wp.func
    def shifted(x: int):
        return x + 2


STAYS = False
MEMBER = 2.0 in [1, 2]
LARGE = 9007199254740992 == 9007199254740993
UPPER = ceil(7 / 2)


NINE = 1.0 // 0.1
REST = 1.0 % 0.1
BIG = int(1e10)
TENTH = float(0.1)
MOST = max(3, 2.5)
SUM = sum([k * k for k in range(5) if k != 2])
LEAST = min([4, 2, 9])
DOWN = math.floor(-2.5)
UP = math.ceil(2.25)
ROUNDED = round(2.675, 2)
EVEN = round(2.5)

FAST = True
if FAST:

    @wp.func
    def gain(x: float):
        return x * 2.0

else:

    @wp.func
    def gain(x: float):
        return x * 3.0


@wp.kernel
def ordered(out: wp.array[int], wide: wp.array[wp.int64]):
    out[0] = N
    out[1] = TWENTY
    out[2] = COUNT
    out[3] = LIMIT
    out[4] = A * 100 + B * 10 + C
    out[5] = wp.static(Config.size)
    out[6] = MOST + SUM + LEAST
    out[7] = DOWN * 10 + UP + EVEN
    out[9] = int(Bits.C) * 100 + shifted(3) * 10 + UPPER
    out[10] = wp.static(int(MEMBER) * 10 + int(LARGE))
    wide[3] = wp.int64(-9223372036854775808)
    out[8] = Shape.ROUND * 100 + Shape.SQUARE * 10 + Shape.LAST
    wide[0] = wp.int64(BIG)
    wide[1] = wp.int64(-3000000000)
    wide[2] = wp.int64(-9007199254740993)


@wp.kernel
def exact(out: wp.array[wp.float64], vectors: wp.array[Vec], y: wp.array[float]):
    out[0] = wp.float64(NINE)
    out[1] = wp.float64(REST)
    out[2] = wp.float64(TENTH)
    out[3] = wp.float64(-0.1)
    out[4] = wp.float64(-1.0e300)
    out[5] = wp.float64(ROUNDED)
    vectors[0] = Vec(Real(0.1), Real(-0.2), Real(0.3))
    y[0] = gain(1.5)


def made(n=None, fast: bool = True):
    if n is None:
        n = 6
    m = n
    m *= 2
    if fast:
        scale = 10
    else:
        scale = 20

    @wp.kernel(module="unique")
    def kernel(out: wp.array[int]):
        out[0] = n
        out[1] = m
        if wp.static(fast):
            out[2] = scale
        else:
            out[2] = -scale

    return kernel


M = 2
early = made(M)
M = 9
by_default = made()
by_place = made(3)
by_name = made(fast=False, n=5)


@wp.kernel
def named(out: wp.array[float], v: wp.array[wp.vec3], p: wp.array[float]):
    out[0] = wp.clamp(x=1.5, high=1.0, low=0.0)
    out[1] = wp.lerp(t=0.25, a=1.0, b=2.0)
    out[2] = wp.where(cond=True, value_if_false=1.0, value_if_true=2.0)
    out[3] = wp.atan2(x=1.0, y=2.0)
    out[4] = wp.pow(y=2.0, x=3.0)
    out[5] = wp.min(b=3.0, a=2.0)
    out[6] = wp.dot(b=wp.vec3(1.0, 2.0, 3.0), a=wp.vec3(4.0, 5.0, 6.0))
    v[0] = wp.cross(b=wp.vec3(1.0, 0.0, 0.0), a=wp.vec3(0.0, 1.0, 0.0))
    q = wp.quat(w=1.0, x=0.1, y=0.2, z=0.3)
    out[7] = q[3] * 100.0 + q[0]
    t = wp.transform(q=wp.quat_identity(), p=wp.vec3(1.0, 2.0, 3.0))
    v[1] = wp.transform_get_translation(t)
    turned = wp.quat_from_axis_angle(angle=0.5, axis=wp.vec3(0.0, 0.0, 1.0))
    v[2] = wp.quat_rotate(turned, wp.vec3(1.0, 0.0, 0.0))
    state = wp.rand_init(offset=5, seed=3)
    out[8] = wp.randf(state)
    wp.atomic_add(p, value=1.5, i=1)
    wp.atomic_add(arr=p, value=2.5, i=0)


LAUNCHES = {
    "ordered": {"dim": 1, "out": 11, "wide": 4, "check": "exact"},
    "exact": {"dim": 1, "out": 6, "vectors": 1, "y": 1, "check": "exact"},
    "early": {"dim": 1, "out": 3, "check": "exact"},
    "by_default": {"dim": 1, "out": 3, "check": "exact"},
    "by_place": {"dim": 1, "out": 3, "check": "exact"},
    "by_name": {"dim": 1, "out": 3, "check": "exact"},
    "named": {"dim": 1, "out": 9, "v": 3, "p": 2, "check": "ulp 2"},
}
