#!/usr/bin/env python3
"""Writes crates/nn/tests/goldens/python.safetensors by the format's own library, and has it read what ours wrote.

Needs three packages that nothing else here does: `pip install --target target/safetensors safetensors numpy ml_dtypes`,
then `PYTHONPATH=target/safetensors python3 scripts/safetensors_goldens.py`. The tests `goldens` of bornite-nn read the file
and write the same bytes; what ours wrote is the checkpoint in goldens/checkpoint (`BLESS=1 cargo test -p bornite-nn`).

Element n of a tensor is k - 50 for signed integers, (k - 50) / 8 for floats, k for unsigned integers and k mod 2 for bools,
where k = 7919 n mod 101: exact in all of them.
"""

import pathlib
import sys

import ml_dtypes
import numpy
import safetensors
import safetensors.numpy

GOLDENS = pathlib.Path(__file__).parent.parent / "crates/nn/tests/goldens"
DTYPES = {
    "bool": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "bf16": ml_dtypes.bfloat16,
    "f32": "float32",
    "f64": "float64",
}
SHAPES = [(), (3,), (2, 5), (0, 4), (2, 1, 3)]


def array(name, shape):
    k = 7919 * numpy.arange(int(numpy.prod(shape)), dtype=numpy.int64) % 101
    if name == "bool":
        k = k % 2
    elif name[0] == "i":
        k = k - 50
    elif name[0] != "u":
        k = (k - 50) / 8
    return k.astype(DTYPES[name]).reshape(shape)


def expected():
    """All dtypes in all shapes. The names need escaping here and there."""
    return {f"{name}.\"{n}\".é": array(name, shape) for name in DTYPES for n, shape in enumerate(SHAPES)}


def check(path):
    """Has the library read a file of ours."""
    wanted = expected()
    with safetensors.safe_open(path, framework="numpy") as file:
        if sorted(file.keys()) != sorted(wanted):
            sys.exit(f"{path}: other names")
        for name in file.keys():
            shape = tuple(file.get_slice(name).get_shape())
            if shape != wanted[name].shape:
                sys.exit(f"{path}: {name} has shape {shape}")
    raw = dict(safetensors.deserialize(path.read_bytes()))
    for name, values in wanted.items():
        if bytes(raw[name]["data"]) != values.tobytes():
            sys.exit(f"{path}: {name} has other bytes")
    print(f"{path}: {len(wanted)} tensors as they should be", file=sys.stderr)


def main():
    path = GOLDENS / "python.safetensors"
    path.write_bytes(safetensors.numpy.save(expected(), metadata={"format": "np"}))
    print(f"safetensors {safetensors.__version__} wrote {path}", file=sys.stderr)
    check(path)
    ours = GOLDENS / "checkpoint/weights.safetensors"
    if ours.exists():
        check(ours)
    else:
        print(f"{ours} is not there: BLESS=1 cargo test -p bornite-nn writes it", file=sys.stderr)


main()
