#!/usr/bin/env python3
"""Writes crates/nn/tests/goldens/samples/: small .npy, .npz, IDX and image files, which the test `data` reads.

Needs NumPy and Pillow: `pip install numpy pillow`. Element n of an array is as `values` here and `value` in the test.
"""

import gzip
import pathlib
import struct

import numpy as np
from PIL import Image

FOLDER = pathlib.Path(__file__).parent.parent / "crates/nn/tests/goldens/samples"
SHAPES = {"cube": (2, 3, 4), "scalar": (), "empty": (0, 3), "line": (5,)}
IDX = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def values(dtype, shape):
    numbers = (np.arange(np.prod(shape, dtype=int)) * 5 + 3) % 17
    kind = np.dtype(dtype).kind
    numbers = {"b": numbers % 2, "u": numbers, "i": numbers - 8, "f": numbers / 2 - 2}[kind]
    return numbers.astype(dtype).reshape(shape)


def write_npy():
    for code in ["?", "u1", "i1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", ">f4", ">i8", ">u2"]:
        name = code.replace("?", "b1").replace("<", "").replace(">", "big_")
        np.save(FOLDER / f"{name}.npy", values(code, SHAPES["cube"]))
    for name in ["scalar", "empty", "line"]:
        np.save(FOLDER / f"{name}.npy", values("<f4", SHAPES[name]))
    np.save(FOLDER / "fortran.npy", np.asfortranarray(values("<f4", SHAPES["cube"])))
    for version in [2, 3]:
        with open(FOLDER / f"version_{version}.npy", "wb") as file:
            np.lib.format.write_array(file, values("<i4", SHAPES["cube"]), version=(version, 0))
    np.save(FOLDER / "complex.npy", np.zeros(2, "<c8"))
    np.save(FOLDER / "objects.npy", np.array([1, None]), allow_pickle=True)
    np.save(FOLDER / "fields.npy", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
    arrays = {"a": values("<f4", SHAPES["cube"]), "labels": values("<i8", SHAPES["line"])}
    np.savez(FOLDER / "stored.npz", **arrays)
    np.savez_compressed(FOLDER / "deflated.npz", **arrays)


def write_idx():
    for kind, dtype in IDX.items():
        data = struct.pack(">BBBBIII", 0, 0, kind, 3, *SHAPES["cube"]) + values(dtype, SHAPES["cube"]).tobytes()
        (FOLDER / f"{dtype[1:]}.idx").write_bytes(data)
    (FOLDER / "u1.idx.gz").write_bytes(gzip.compress((FOLDER / "u1.idx").read_bytes(), mtime=0))


def write_images():
    rows, columns = np.mgrid[0:20, 0:24]
    rgb = np.stack([rows * 12, columns * 10, (rows + columns) * 5], -1).astype("u1")
    image = Image.fromarray(rgb)
    image.save(FOLDER / "rgb.png")
    image.save(FOLDER / "rgb.bmp")
    image.save(FOLDER / "rgb.jpg", quality=95, subsampling=0)
    image.convert("P", palette=Image.ADAPTIVE, colors=16).save(FOLDER / "palette.png")
    image.convert("L").save(FOLDER / "gray.png")
    image.convert("RGBA").save(FOLDER / "rgba.png")
    for name in ["rgb.png", "rgb.jpg", "palette.png", "gray.png"]:
        np.save(FOLDER / f"{name}.npy", np.asarray(Image.open(FOLDER / name).convert("RGB")).transpose(2, 0, 1))
    plane = Image.fromarray(np.sin(rows * 0.7 + columns * columns * 0.05).astype("f4"))
    np.save(FOLDER / "plane.npy", np.asarray(plane))
    for height, width in [(7, 9), (31, 40), (20, 5), (1, 1)]:
        np.save(FOLDER / f"plane_{height}x{width}.npy", np.asarray(plane.resize((width, height), Image.BILINEAR)))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_npy()
    write_idx()
    write_images()
    files = list(FOLDER.iterdir())
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files)} bytes")


main()
