#!/usr/bin/env python3
"""Writes crates/ir/tests/goldens/*.txt: arguments and correctly rounded results of the op table's bodies in f64.

Needs mpmath. Run it again only to add functions or arguments; the files are part of the repository.
Each line: the argument's bits, the result's bits, both in hexadecimal.
"""

import pathlib
import random
import struct

import mpmath as mp

mp.mp.prec = 250
FUNCTIONS = {
    "exp": (mp.exp, lambda r: r.choice([r.uniform(-745.2, 709.8), r.uniform(-1, 1), r.uniform(-1, 1) * 2.0 ** r.randint(-40, 0)])),
    "log": (mp.log, lambda r: r.choice([2.0 ** r.uniform(-1074, 1023.9), 1 + r.uniform(-0.4, 0.5), 1 + r.uniform(-1, 1) * 2.0 ** r.randint(-30, -1)])),
    "tanh": (mp.tanh, lambda r: r.choice([r.uniform(-20, 20), r.uniform(-1, 1), r.uniform(-1, 1) * 2.0 ** r.randint(-40, 0)])),
}


def bits(x: float) -> str:
    return f"{struct.unpack('<Q', struct.pack('<d', x))[0]:016x}"


def rounded(x: mp.mpf) -> float:
    """x rounded once to f64, denormals too (mpmath's own conversion rounds them twice)."""
    if x == 0:
        return 0.0
    exponent = max(int(mp.floor(mp.log(abs(x), 2))), -1022)
    quantum = mp.mpf(2) ** (exponent - 52)
    return float(mp.nint(x / quantum) * quantum)


folder = pathlib.Path(__file__).parent.parent / "crates/ir/tests/goldens"
for name, (function, draw) in FUNCTIONS.items():
    source = random.Random(name)
    arguments = sorted({draw(source) for _ in range(2000)})
    lines = [f"{bits(x)} {bits(rounded(function(mp.mpf(x))))}\n" for x in arguments]
    (folder / f"{name}.txt").write_text("".join(lines))
    print(name, len(lines))
