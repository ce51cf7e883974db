#!/usr/bin/env python3
"""Writes crates/ir/tests/goldens/*.txt: arguments and correctly rounded results of the op table's bodies in f64.

Needs mpmath. Run it again only to add functions or arguments; the files are part of the repository.
Each line: the bits of the arguments and of the result, in hexadecimal.

`--table` prints the bits of 2/π in crates/ir/src/body/reduction.rs instead.
"""

import math
import pathlib
import random
import struct
import sys

import mpmath as mp

mp.mp.prec = 400
COUNT = 1000


def wide(r):
    """Any size, either sign."""
    return r.choice([-1, 1]) * 2.0 ** r.uniform(-1070, 1023)


def tiny(r):
    return r.uniform(-1, 1) * 2.0 ** r.randint(-60, 0)


def between(low, high):
    return lambda r: r.uniform(low, high)


def any_of(*draws):
    return lambda r: r.choice(draws)(r)


def positive(draw):
    return lambda r: abs(draw(r))


def near_one(r):
    return 1 + r.uniform(-1, 1) * 2.0 ** r.randint(-40, -1)


angle = any_of(between(-7, 7), between(-1e4, 1e4), tiny, lambda r: r.uniform(-1, 1) * 2.0 ** r.randint(10, 49),
               lambda r: float(r.randint(-10**6, 10**6) * mp.pi / 2))


def nearest_multiple(bits, exponent):
    """How near m 2^exponent comes to a multiple of π/2 (in units of it), and m, the best below 2^bits: the denominator
    of a convergent of 2^exponent · 2/π."""
    with mp.workprec(1500):
        ratio = mp.ldexp(2 / mp.pi, exponent)
        rest, before, m = ratio - mp.floor(ratio), 0, 1
        while True:
            rest = 1 / rest
            after = before + int(mp.floor(rest)) * m
            if after >= 2**bits:
                return abs(m * ratio - mp.nint(m * ratio)), m
            rest, before, m = rest - mp.floor(rest), m, after


def large_angles():
    """Up to the largest f32 and f64, and those nearest to multiples of π/2: where reduction loses most."""
    r = random.Random("large angles")
    hard64 = sorted((*nearest_multiple(53, e), e) for e in range(-20, 971))[:150]
    hard32 = sorted((*nearest_multiple(24, e), e) for e in range(8, 104))[:50]
    hard = [math.ldexp(m, e) for _, m, e in hard64 + hard32]
    assert math.ldexp(6381956970095103, 797) in hard, "the known worst case of f64"
    # On either side of where the long reduction begins.
    edges = [2.0**32, math.nextafter(2.0**32, 0), 2.0**1023, sys.float_info.max, 2.0**127, (2 - 2.0**-23) * 2.0**127]
    drawn = [r.uniform(1, 2) * 2.0 ** r.randint(30, top) for top in [127, 1023] for _ in range(100)]
    return [x * r.choice([-1, 1]) for x in hard + drawn] + edges


# Arguments beside those drawn.
SPECIAL = {name: [[x] for x in large_angles()] for name in ["sin", "cos", "tan"]}

FUNCTIONS = {
    "exp": (mp.exp, [any_of(between(-745.2, 709.8), between(-1, 1), tiny)]),
    "exp2": (lambda x: mp.mpf(2) ** x, [any_of(between(-1074.9, 1023.9), between(-1, 1), tiny)]),
    "expm1": (mp.expm1, [any_of(between(-50, 709), between(-2, 2), tiny)]),
    "log": (mp.log, [any_of(positive(wide), near_one)]),
    "log2": (lambda x: mp.log(x) / mp.log(2), [any_of(positive(wide), near_one)]),
    "log10": (lambda x: mp.log(x) / mp.log(10), [any_of(positive(wide), near_one)]),
    "log1p": (mp.log1p, [any_of(positive(wide), between(-0.9999, 3), tiny)]),
    "sin": (mp.sin, [angle]),
    "cos": (mp.cos, [angle]),
    "tan": (mp.tan, [angle]),
    "asin": (mp.asin, [any_of(between(-1, 1), tiny, lambda r: r.choice([-1, 1]) * (1 - 2.0 ** r.uniform(-52, -1)))]),
    "acos": (mp.acos, [any_of(between(-1, 1), tiny, lambda r: r.choice([-1, 1]) * (1 - 2.0 ** r.uniform(-52, -1)))]),
    "atan": (mp.atan, [any_of(between(-3, 3), tiny, wide)]),
    "atan2": (lambda y, x: mp.atan2(y, x), [any_of(between(-3, 3), tiny), any_of(between(-3, 3), tiny)]),
    "sinh": (mp.sinh, [any_of(between(-710.4, 710.4), between(-3, 3), tiny)]),
    "cosh": (mp.cosh, [any_of(between(-710.4, 710.4), between(-3, 3), tiny)]),
    "tanh": (mp.tanh, [any_of(between(-20, 20), between(-1, 1), tiny)]),
    "asinh": (mp.asinh, [any_of(wide, between(-10, 10), tiny)]),
    "acosh": (mp.acosh, [any_of(lambda r: 1 + abs(wide(r)), between(1, 10), lambda r: 1 + abs(tiny(r)))]),
    "atanh": (mp.atanh, [any_of(between(-1, 1), tiny, lambda r: r.choice([-1, 1]) * (1 - 2.0 ** r.uniform(-52, -1)))]),
    "erf": (mp.erf, [any_of(between(-6, 6), between(-1.2, 1.2), tiny)]),
    "erfc": (mp.erfc, [any_of(between(-6, 26.5), between(-1.2, 5.5), tiny)]),
    "pow": (lambda x, y: mp.mpf(x) ** y, [any_of(positive(wide), between(0, 3), near_one), any_of(between(-3, 3), between(-700, 700), tiny)]),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), [any_of(wide, between(-10, 10))]),
    "hypot": (mp.hypot, [any_of(wide, between(-3, 3)), any_of(wide, between(-3, 3))]),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), [positive(any_of(wide, between(-3, 3)))]),
}


def bits(x: float) -> str:
    return f"{struct.unpack('<Q', struct.pack('<d', x))[0]:016x}"


def rounded(x: mp.mpf):
    """x rounded once to f64, denormals too (mpmath's own conversion rounds them twice); None beyond f64."""
    if x == 0:
        return 0.0
    if abs(x) >= mp.mpf(2) ** 1024:
        return None
    exponent = max(int(mp.floor(mp.log(abs(x), 2))), -1022)
    quantum = mp.mpf(2) ** (exponent - 52)
    return float(mp.nint(x / quantum) * quantum)


def table():
    """The first bit weighs 2 beside a mantissa of exponent field 1055, which counts units of 2^(1055 - 1075)."""
    with mp.workprec(2000):
        words = 19
        number = int(mp.floor(mp.ldexp(2 / mp.pi, 1055 - 1075 + 64 * words - 2)))
    for n in reversed(range(words)):
        print(f"0x{number >> 64 * n & 2**64 - 1:016x},")


if sys.argv[1:] == ["--table"]:
    table()
    sys.exit()

folder = pathlib.Path(__file__).parent.parent / "crates/ir/tests/goldens"
for name, (function, draws) in FUNCTIONS.items():
    source = random.Random(name)
    lines = set()
    special = list(SPECIAL.get(name, []))
    while len(lines) < COUNT or special:
        arguments = [draw(source) for draw in draws] if len(lines) < COUNT else special.pop()
        result = rounded(function(*map(mp.mpf, arguments)))
        if result is not None and result != 0.0:
            lines.add(" ".join(map(bits, [*arguments, result])) + "\n")
    (folder / f"{name}.txt").write_text("".join(sorted(lines)))
    print(name, len(lines))
