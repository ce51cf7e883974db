"""Writes scikit-learn's 1,797 handwritten digits of 8 x 8 pixels as IDX files: 1,437 to train on and 360 held out, at
random.

pip install scikit-learn; python3 scripts/digits.py FOLDER
bornite train --model resnet18 --image-size 32 --data FOLDER --out RUN
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HELD_OUT = 360


def write(path, array):
    """An IDX file of bytes."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    for part, rows in ("train", order[HELD_OUT:]), ("t10k", order[:HELD_OUT]):
        write(folder / f"{part}-images-idx3-ubyte", np.round(digits.images[rows] * 255 / 16))
        write(folder / f"{part}-labels-idx1-ubyte", digits.target[rows])


if __name__ == "__main__":
    main()
