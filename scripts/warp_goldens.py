#!/usr/bin/env python3
"""Runs NVIDIA Warp on its CPU device and keeps what it gives, for the tests of the Python-syntax front end.

    pip install warp-lang==1.19.0 numpy
    scripts/warp_goldens.py             # all files of crates/lang/tests/python/kernels, and the probes
    scripts/warp_goldens.py vectors     # kernels/vectors.py only
    scripts/warp_goldens.py probes      # probes/probes.txt only

A file of kernels ends with `LAUNCHES`: kernel -> how it is launched. `dim` is the launch's, `check` how results are compared
(`exact`, `ulp N`, `near X`: off by X at most, relative to the value where that is above 1). The other keys are parameters: an
array is its shape (then it is zero), `[shape, low, high]` or `[[its, numbers]]`, a value its number or tuple of numbers. For parameters that are
`Any` a type is added: `[shape, low, high, "float64"]`, `["float64", 2.0]`. With a key `kernel` the launch is one more of
that kernel.

`goldens/FILE.json` keeps, a line a launch, all that was passed and all that came back, as bits in hexadecimal; so the test
needs neither Warp nor this script.
"""

import contextlib
import ctypes
import importlib.util
import io
import json
import math
import pathlib
import re
import struct
import sys
import tempfile

import numpy as np
import warp as wp

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lang/tests/python"
SCALARS = {
    wp.bool: "bool", wp.int8: "i8", wp.int16: "i16", wp.int32: "i32", wp.int64: "i64", wp.uint8: "u8", wp.uint16: "u16",
    wp.uint32: "u32", wp.uint64: "u64", wp.float16: "f16", wp.bfloat16: "bf16", wp.float32: "f32", wp.float64: "f64",
}
BYTES = {"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8,
         "u64": 8, "f64": 8}
PYTHON = {bool: wp.bool, int: wp.int32, float: wp.float32}


class Random:
    """Knuth's linear congruential numbers: the same inputs whenever the goldens are written."""

    def __init__(self, name):
        self.state = 0
        for byte in name.encode():
            self.state = (self.state ^ byte) * 0x100000001B3 % 2**64

    def unit(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**24


def layout(dtype):
    """Bytes of an element, and offset and type of each of its components."""
    dtype = PYTHON.get(dtype, dtype)
    if dtype in SCALARS:
        name = SCALARS[dtype]
        return BYTES[name], [(0, name)]
    if hasattr(dtype, "vars"):
        parts = []
        for name, _ in dtype.ctype._fields_:
            at = getattr(dtype.ctype, name).offset
            parts += [(at + inner, part) for inner, part in layout(dtype.vars[name].type)[1]]
        return ctypes.sizeof(dtype.ctype), parts
    name = SCALARS[PYTHON.get(dtype._wp_scalar_type_, dtype._wp_scalar_type_)]
    return BYTES[name] * dtype._length_, [(n * BYTES[name], name) for n in range(dtype._length_)]


def bits(name, value):
    """A number as the bytes of a type, rounded to nearest."""
    if name == "bf16":
        word = struct.unpack("<I", struct.pack("<f", value))[0]
        return struct.pack("<H", (word + 0x7FFF + (word >> 16 & 1)) >> 16)
    if name in ("f16", "f32", "f64"):
        return np.array(value, {"f16": np.float16, "f32": np.float32, "f64": np.float64}[name]).tobytes()
    if name == "bool":
        return bytes([int(value) & 1])
    return (math.floor(value) % 2 ** (8 * BYTES[name])).to_bytes(BYTES[name], "little")


def hexed(memory, size, parts):
    """Components as numbers of fixed width, without what lies between them."""
    text = ""
    for element in range(len(memory) // size):
        for at, name in parts:
            start = element * size + at
            text += memory[start : start + BYTES[name]][::-1].hex()
    return text


def typed(name):
    return getattr(wp, name) if hasattr(wp, name) else getattr(wp.types, name)


def array(annotation, given, random):
    """An array of Warp as a launch asks for it, its bytes, and its layout."""
    dtype = annotation.dtype
    if given is None:
        return None, b"", 1, []
    shape, low, high, written = given, None, None, None
    if isinstance(given, list) and isinstance(given[0], list):
        (written,) = given
        shape = len(written)
    elif isinstance(given, list):
        shape, low, high = given[:3]
        dtype = typed(given[3]) if len(given) > 3 else dtype
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    size, parts = layout(dtype)
    made = wp.zeros(shape, dtype=dtype, device="cpu")
    count = math.prod(shape)
    memory = bytearray(size * count)
    if low is not None or written is not None:
        for element in range(count):
            for at, name in parts:
                number = written[element] if written else low + (high - low) * random.unit()
                place = element * size + at
                memory[place : place + BYTES[name]] = bits(name, number)
        ctypes.memmove(made.ptr, bytes(memory), len(memory))
    return made, bytes(memory), size, parts


def passed(dtype, given):
    """A value of Warp, and its bits."""
    if isinstance(given, str):
        return given, "", []
    if isinstance(given, list):
        dtype, given = typed(given[0]), given[1]
    numbers = given if isinstance(given, tuple) else (given,)
    size, parts = layout(dtype)
    memory = bytearray(size)
    for (at, name), number in zip(parts, numbers, strict=True):
        memory[at : at + BYTES[name]] = bits(name, number)
    plain = PYTHON.get(dtype, dtype)
    if hasattr(dtype, "vars"):
        value, rest = dtype(), list(numbers)
        for name in dtype.vars:
            inner = dtype.vars[name].type
            count = len(layout(inner)[1])
            part, rest = rest[:count], rest[count:]
            setattr(value, name, part[0] if count == 1 else inner(*part))
    elif plain in SCALARS:
        value = given if dtype is PYTHON.get(type(given)) else plain(given)
    else:
        value = dtype(*numbers)
    return value, hexed(bytes(memory), size, parts), parts


def imported(path):
    """The file as a module, so that Warp finds its text; silent, since Warp tells of every module that it builds."""
    # Last, since files here are named as modules of Python are.
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def launched(kernel, launch, name):
    """Launches, and says what was passed and what came back."""
    random, args, record, arrays = Random(name), [], [], []
    for param in kernel.adj.args:
        given = launch[param.label]
        if getattr(param.type, "ndim", None) is not None and hasattr(param.type, "dtype"):
            made, before, size, parts = array(param.type, given, random)
            args.append(made)
            shape = list(made.shape) if made else []
            entry = {"name": param.label, "shape": shape, "parts": " ".join(part for _, part in parts)}
            if any(before):
                entry["in"] = hexed(before, size, parts)
            if isinstance(given, list) and len(given) > 3:
                entry["type"] = given[3]
            arrays.append((entry, made, before, size, parts))
        else:
            value, text, parts = passed(param.type, given)
            args.append(value)
            entry = {"name": param.label, "parts": " ".join(part for _, part in parts), "in": text}
            if isinstance(given, list):
                entry["type"] = given[0]
        record.append(entry)
    wp.launch(kernel, launch["dim"], inputs=args, device="cpu")
    for entry, made, before, size, parts in (array for array in arrays if array[1]):
        after = ctypes.string_at(made.ptr, len(before))
        if after != before:
            entry["out"] = hexed(after, size, parts)
    return record, arrays


def recorded(name, launch, check, args):
    dim = launch["dim"]
    return {"name": name, "kernel": launch.get("kernel", name), "dim": list(dim) if isinstance(dim, tuple) else [dim],
            "check": check, "args": args}


def goldens(path):
    module = imported(path)
    lines = []
    for name, launch in module.LAUNCHES.items():
        kernel = getattr(module, launch.get("kernel", name))
        record, _ = launched(kernel, launch, f"{path.stem}.{name}")
        assert any("out" in entry for entry in record), f"{path.stem}.{name}: nothing is written"
        lines.append(json.dumps(recorded(name, launch, launch["check"], record), separators=(",", ":")))
    (FOLDER / "goldens" / f"{path.stem}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return len(lines)


def shown(made, size, parts):
    """Components of an array, in decimal; a float has as many digits as its type needs."""
    kinds = {"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
             "f16": "e", "f32": "f", "f64": "d"}
    memory, words = ctypes.string_at(made.ptr, size * math.prod(made.shape)), []
    for element in range(math.prod(made.shape)):
        for at, name in parts:
            (value,) = struct.unpack_from("<" + kinds[name], memory, element * size + at)
            words.append(str(np.float32(value)) if name == "f32" else str(value))
    return " ".join(words)


def outcome(program, number):
    """What Warp does with a probe, for readers and for the test: each array after each launch, or its message."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"probe_{number}.py"
        path.write_text(program)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                module = imported(path)
                lines, launches = [], []
                for name, launch in module.LAUNCHES.items():
                    kernel = getattr(module, launch.get("kernel", name))
                    args, arrays = launched(kernel, launch, f"probe.{name}")
                    launches.append(recorded(name, launch, "exact", args))
                    lines += [f"{name}.{entry['name']}: {shown(made, size, parts)}"
                              for entry, made, _, size, parts in arrays if made]
            return "\n".join(lines), launches
        except Exception as error:
            text = re.sub(r"\s+", " ", str(error)).replace(str(path), "probe.py")
            return f"refused: {type(error).__name__}: {text}".rstrip(), None


def probes():
    """Writes anew what stands below `---` of each probe; a line `!!!` (why ours differs) is kept."""
    path = FOLDER / "probes/probes.txt"
    head, *parts = path.read_text().split("=== ")
    anew, records = head, []
    for number, part in enumerate(parts):
        title, rest = part.split("\n", 1)
        program = rest.split("\n---\n")[0].rstrip("\n")
        differs = [line for line in program.split("\n") if line.startswith("!!!")]
        text = "\n".join(line for line in program.split("\n") if not line.startswith("!!!"))
        said, launches = outcome("import warp as wp\n" + text + "\n", number)
        anew += f"=== {title}\n" + "".join(line + "\n" for line in differs) + f"{text}\n---\n{said}\n\n"
        records.append(json.dumps({"title": title, "launches": launches}, separators=(",", ":")))
    path.write_text(anew)
    (FOLDER / "goldens/probes.json").write_text("[\n" + ",\n".join(records) + "\n]\n")
    return len(parts)


def main():
    wp.config.enable_backward = False
    wp.init()
    asked = sys.argv[1:]
    for path in sorted((FOLDER / "kernels").glob("*.py")):
        if (not asked or path.stem in asked) and "LAUNCHES" in path.read_text():
            print(f"{path.stem}: {goldens(path)} launches")
    if not asked or "probes" in asked:
        print(f"{probes()} probes")


if __name__ == "__main__":
    main()
