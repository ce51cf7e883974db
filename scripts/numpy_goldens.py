#!/usr/bin/env python3
"""Writes crates/tensor/tests/goldens/numpy.txt: how NumPy prints arrays.

Needs NumPy, which nothing else here does: `pip install --target target/numpy numpy`, then
`PYTHONPATH=target/numpy python3 scripts/numpy_goldens.py`. The test `display` makes the same arrays and compares.

An array is `dtype shape numerator divisor`: element n is (7919 n mod 1013 - 506) * numerator / divisor, in f64, then cast.
"""

import pathlib
import sys

import numpy

CASES = [
    (dtype, shape, numerator, divisor)
    for dtype in ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"]
    for shape in [(), (1,), (5,), (30,), (4, 12), (2, 1, 2), (2, 0), (1100,), (40, 50), (3, 4, 200), (5, 2, 2, 90)]
    for numerator, divisor in [(1, 1), (1, 64), (1, 3), (1, 10**7), (10**9, 7)]
    if divisor == 1 or dtype.startswith("float") and (dtype != "float16" or numerator == 1)
]


def array(dtype, shape, numerator, divisor):
    n = numpy.arange(int(numpy.prod(shape)), dtype=numpy.int64)
    numbers = (7919 * n % 1013 - 506).astype(numpy.float64) * numerator / divisor
    if dtype == "uint8":
        numbers = numpy.abs(numbers) % 256
    return numbers.astype(dtype).reshape(shape)


def main():
    path = pathlib.Path(__file__).parent.parent / "crates/tensor/tests/goldens/numpy.txt"
    with path.open("w") as out:
        print(f"# NumPy {numpy.__version__}, by scripts/numpy_goldens.py", file=out)
        for dtype, shape, numerator, divisor in CASES:
            lengths = ",".join(map(str, shape))
            print(f"== {dtype} [{lengths}] {numerator} {divisor}", file=out)
            print(array(dtype, shape, numerator, divisor), file=out)
    print(f"{len(CASES)} arrays in {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
