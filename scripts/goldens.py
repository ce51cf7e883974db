#!/usr/bin/env python3
"""Writes crates/ir/tests/goldens/*.txt: arguments and correctly rounded results of the op table's bodies in f64.

Needs mpmath. Run it again only to add functions or arguments; the files are part of the repository.
Each line: the bits of the arguments and of the result, in hexadecimal.
"""

import pathlib
import random
import struct

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


folder = pathlib.Path(__file__).parent.parent / "crates/ir/tests/goldens"
for name, (function, draws) in FUNCTIONS.items():
    source = random.Random(name)
    lines = set()
    while len(lines) < COUNT:
        arguments = [draw(source) for draw in draws]
        result = rounded(function(*map(mp.mpf, arguments)))
        if result is not None and result != 0.0:
            lines.add(" ".join(map(bits, [*arguments, result])) + "\n")
    (folder / f"{name}.txt").write_text("".join(sorted(lines)))
    print(name, len(lines))
