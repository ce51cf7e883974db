"""Scalar functions without an IR op."""

from typing import Any

import warp as wp

ERF_DERIVATIVE = 1.1283791670955126  # 2 / sqrt(pi): the derivative of erf at 0
WINITZKI = 0.147  # constant of Winitzki's initial approximation of the inverse of erf
GUESS_OFFSET = 4.330746750799873  # 2 / (pi * WINITZKI)


@wp.func
def degrees(x: wp.Float):
    return x * type(x)(57.29577951308232)


@wp.func
def radians(x: wp.Float):
    return x * type(x)(0.017453292519943295)


@wp.func
def frac(x: wp.Float):
    return x - wp.trunc(x)


@wp.func
def nonzero(x: wp.Scalar):
    return wp.where(x == type(x)(0), type(x)(0), type(x)(1))


@wp.func
def smoothstep(a: wp.Float, b: wp.Float, x: wp.Float):
    t = wp.clamp((x - a) / (b - a), type(x)(0.0), type(x)(1.0))
    return t * t * (type(x)(3.0) - type(x)(2.0) * t)


@wp.func
def lerp(a: Any, b: Any, t: wp.Float):
    return a * (type(t)(1.0) - t) + b * t


@wp.func
def div_approx(a: Any, b: Any):
    return a / b


# Winitzki's formula is accurate to two digits; each step of Halley's method triples the number of correct digits.
@wp.func
def inverse_guess(log_of_product: wp.Float):
    t = type(log_of_product)(GUESS_OFFSET) + type(log_of_product)(0.5) * log_of_product
    return wp.sqrt(wp.sqrt(t * t - log_of_product / type(log_of_product)(WINITZKI)) - t)


@wp.func
def inverse_erfc_below_one(q: wp.Float):
    x = inverse_guess(wp.log(q * (type(q)(2.0) - q)))
    for _step in range(3):
        off = (wp.erfc(x) - q) / (type(q)(ERF_DERIVATIVE) * wp.exp(-x * x))
        x = x + off / (type(q)(1.0) - x * off)
    return x


@wp.func
def inverse_erf_of_middle(y: wp.Float):
    x = inverse_guess(wp.log(type(y)(1.0) - y * y))
    for _step in range(3):
        off = (wp.erf(x) - y) / (type(y)(ERF_DERIVATIVE) * wp.exp(-x * x))
        x = x - off / (type(y)(1.0) + x * off)
    return x


@wp.func
def erfinv(x: wp.Float):
    y = wp.abs(x)
    found = type(x)(0.0)
    if y > type(x)(1.0):
        found = type(x)(wp.nan)
    elif y == type(x)(1.0):
        found = type(x)(wp.inf)
    elif y > type(x)(0.5):
        found = inverse_erfc_below_one(type(x)(1.0) - y)
    elif y > type(x)(0.01):
        found = inverse_erf_of_middle(y)
    else:
        # The initial approximation suffers cancellation near 0, where three terms of the series suffice.
        s = type(x)(0.7853981633974483) * y * y
        c = type(x)(7.0) / type(x)(30.0) + s * type(x)(127.0) / type(x)(630.0)
        found = y * type(x)(0.886226925452758) * (type(x)(1.0) + s * (type(x)(1.0) / type(x)(3.0) + s * c))
    return wp.where(x < type(x)(0.0), -found, found)


@wp.func
def erfcinv(x: wp.Float):
    found = type(x)(0.0)
    if x < type(x)(0.0) or x > type(x)(2.0):
        found = type(x)(wp.nan)
    elif x == type(x)(0.0):
        found = type(x)(wp.inf)
    elif x == type(x)(2.0):
        found = -type(x)(wp.inf)
    elif x < type(x)(0.5):
        found = inverse_erfc_below_one(x)
    elif x > type(x)(1.5):
        found = -inverse_erfc_below_one(type(x)(2.0) - x)
    else:
        found = wp.erfinv(type(x)(1.0) - x)
    return found
