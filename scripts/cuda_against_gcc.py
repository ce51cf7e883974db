#!/usr/bin/env python3
"""Compares the interpreter with g++ on kernels of public CUDA collections.

  scripts/cuda_against_gcc.py FOLDER...               60 kernels, drawn with seed 1
  scripts/cuda_against_gcc.py --count 20 --seed 7 --keep DIR FOLDER

Kernels are drawn among those that `bornite kernel check` finds without errors and that need no barrier, shared memory,
warp function or atomic. For each, a launch and arguments are invented for which the interpreter finds no fault; kernels
without one are skipped. The text that `bornite kernel emit` writes is then compiled by g++ with `scripts/cuda_shim` and
run on the same data. Integers must be equal; floats may differ by the rounding of the math functions.
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

SHIM = Path(__file__).parent / "cuda_shim"
EXCLUDED = re.compile(
    r"\b(__sync\w+|__shared__|__shfl\w*|__ballot\w*|__any\w*|__all\w*|__activemask|__match\w*|__reduce\w*|atomic\w+|"
    r"cooperative_groups|cub|thrust|curand\w*|half2?|__half\w*|\w*bfloat16\w*|clock\w*|asm|__threadfence\w*|printf|"
    r"assert|__trap|(?:tex|surf)[123]D\w*|texture|cuda(?:Texture|Surface)\w+|malloc|wmma|"
    r"__nv_fp8\w*|__nanosleep|__dp4a|__vabsdiff\w*)\b"
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
FORMATS = {"f32": "f", "f64": "d", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q",
           "u64": "Q", "bool": "?"}
LENGTH = 20_000
# C++ leaves open what the interpreter defines: signed overflow wraps and uninitialized variables are 0 here too; out of
# range conversions, shifts and divisions end the program.
FLAGS = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing",
         "-ftrivial-auto-var-init=zero",
         "-fsanitize=float-cast-overflow,integer-divide-by-zero,shift", "-fsanitize-undefined-trap-on-error"]


class Skip(Exception):
    """Why a kernel is not compared."""


def run(command, timeout=60):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Skip(f"{os.path.basename(command[0])} takes too long") from None


def layout(name, structs):
    """Component types of a type with their offsets, and its size and alignment."""
    if name in FORMATS:
        size = struct.calcsize(FORMATS[name])
        return [(0, name)], size, size
    vector = re.fullmatch(r"(\w+?)x([234])", name)
    if vector and vector[1] in FORMATS:
        size, count = struct.calcsize(FORMATS[vector[1]]), int(vector[2])
        align = size if count == 3 else min(16, size * count)
        return [(n * size, vector[1]) for n in range(count)], size * count, align
    if name in structs:
        parts, at, largest = [], 0, 1
        for field in structs[name]:
            inner, size, align = layout(field, structs)
            at = -(-at // align) * align
            parts += [(at + offset, scalar) for offset, scalar in inner]
            at, largest = at + size, max(largest, align)
        return parts, -(-at // largest) * largest, largest
    raise Skip(f"type {re.sub('[0-9]+', 'N', name)}")


def signature(ir):
    """Parameters of a kernel in IR text: name to kind ('value' or an access) and type; structs; lengths of arrays."""
    structs = {}
    for name, fields in re.findall(r"^struct (\w+) \{ (.*) \}$", ir, re.M):
        structs[name] = [field.split(": ")[1] for field in fields.split(", ")]
    values = {name: ("value", ty) for name, ty in re.findall(r"^  value (\w+): (\S+)$", ir, re.M)}
    arrays, lengths = {}, {}
    for name, access, ty, length in re.findall(r"^  param (\w+): (\w+) (\w+)\[(\d+)\]", ir, re.M):
        arrays[name], lengths[name] = (access, ty), min(int(length), LENGTH)
    return values | arrays, structs, lengths


def parameter_order(text, kernel, names):
    """Names of the parameters as the source orders them."""
    for found in re.finditer(rf"\b{re.escape(kernel)}\s*\(", text):
        depth, at = 1, found.end()
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        inside = text[found.end():at - 1]
        # The name is the last word of a parameter, before array sizes.
        pieces = re.split(r",(?![^<>]*>)", re.sub(r"\[[^\]]*\]", "", inside))
        order = [(re.findall(r"\w+", piece) or [""])[-1] for piece in pieces]
        # Other names are variables in device memory.
        if set(order) <= set(names) and re.match(r"\s*\{", text[at:]):
            return order
    raise Skip("its parameters were not found")


def random_value(rng, scalar, limit):
    if scalar in ("f32", "f64"):
        return rng.uniform(0.05, 2)
    return rng.random() < 0.5 if scalar == "bool" else rng.randrange(limit)


class Case:
    """A kernel with a launch and arguments."""

    def __init__(self, arguments, file, kernel, folder):
        self.arguments, self.file, self.kernel, self.folder = arguments, file, kernel, folder
        emitted = run([arguments.bornite, "kernel", "emit", file, "--kernel", kernel])
        if emitted.returncode:
            raise Skip("not emitted: " + emitted.stderr.strip()[:80])
        self.text = emitted.stdout
        self.code = COMMENT.sub(" ", self.text)
        excluded = EXCLUDED.search(self.code)
        if excluded:
            raise Skip(f"uses {excluded[1]}" if not excluded[1].startswith("atomic") else "uses atomics")

    def command(self, *options):
        (grid, block), runner = self.launch, self.arguments.runner or self.arguments.bornite
        sizes = lambda all: "x".join(map(str, all))
        launch = [f"--grid={sizes(grid)}", f"--block={sizes(block)}"]
        return [runner, "kernel", options[0], self.file, "--kernel", self.kernel, *launch, *options[1:]]

    def invent(self, rng, size, is_flat):
        """Chooses launch, data and values for problems of about `size`; writes the data."""
        dims = 1 + ("Idx.y" in self.code or "Dim.y" in self.code)
        dims = 3 if "Idx.z" in self.code or "Dim.z" in self.code else dims
        dims = 1 if is_flat else dims
        self.launch = {1: ((2, 1, 1), (32, 1, 1)), 2: ((2, 2, 1), (8, 4, 1)), 3: ((2, 2, 2), (4, 4, 2))}[dims]
        lowered = run(self.command("emit", "--target", "ir"))
        if lowered.returncode:
            raise Skip("not lowered: " + lowered.stderr.strip().split("\n")[0][:80])
        self.params, self.structs, self.lengths = signature(lowered.stdout)
        self.order = parameter_order(self.code, re.split("[<(]", self.kernel)[0], list(self.params))
        self.options, self.cpp, self.globals = [], [], []
        for name in [*self.order, *(name for name in self.params if name not in self.order)]:
            kind, ty = self.params[name]
            if kind == "value":
                if ty not in FORMATS:
                    raise Skip("a struct or vector by value")
                value = round(rng.uniform(0.1, 2), 3) if ty in ("f32", "f64") else 1 if ty == "bool" else size
                self.options.append(f"--arg={name}={value}")
                self.cpp.append(f"{{nullptr, {value}, (long long){value}}}")
                continue
            parts, stride, _ = layout(ty, self.structs)
            data = bytearray(self.lengths[name] * stride)
            for n in range(self.lengths[name]):
                for offset, scalar in parts:
                    value = random_value(rng, scalar, max(size // 2, 1))
                    struct.pack_into(FORMATS[scalar], data, n * stride + offset, value)
            path = self.folder / f"{name}.in.bin"
            path.write_bytes(data)
            self.options.append(f"--arg={name}=@{path}")
            array = f'read_array("{path}", {len(data)})'
            if name in self.order:
                self.cpp.append(f"{{{array}, 0, 0}}")
            else:
                self.globals.append(f"memcpy((void*)&{name}, {array}, {len(data)});")

    def interpret(self):
        """Runs the interpreter; returns a fault, or None."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        found = run(self.command("run", *self.options, "--json", "--out", str(self.folder / "out")), 120)
        if not found.stdout.startswith("{"):
            raise Skip("not run: " + (found.stderr.strip().split("\n") or [""])[0][:100])
        result = json.loads(found.stdout)
        return None if result["ok"] else str(result["error"])[:100]

    def compile_and_run(self):
        main = ["int main() {", f"Argument args[] = {{{', '.join(self.cpp)}}};"]
        (grid, block), name = self.launch, re.sub(r"\([^()]*\)$", "", self.kernel)
        scopes = re.findall(r"^((?:namespace [\w:]* *\{ )+)template __global__", self.text, re.M)
        path = "".join(f"{one}::" for one in re.findall(r"namespace (\w+)", scopes[0] if scopes else ""))
        main += self.globals
        main.append(f"launch({path}{name}, dim3{grid}, dim3{block}, args);")
        for param, (kind, ty) in self.params.items():
            if kind not in ("value", "read"):
                size = self.lengths[param] * layout(ty, self.structs)[1]
                array = f"args[{self.order.index(param)}].array" if param in self.order else f"&{param}"
                main.append(f'write_array("{self.folder}/{param}.gcc.bin", {array}, {size});')
        text = re.sub(r"^.*\btemplate __global__ decltype.*$", "", self.text, flags=re.M)
        source = self.folder / "kernel.cpp"
        source.write_text('#include "cuda_shim.h"\n' + text + "\n" + "\n".join(main) + "\n}\n")
        built = run(["g++", *FLAGS, f"-I{SHIM}", str(source), "-o", str(self.folder / "kernel")], 120)
        if built.returncode:
            error = next((line for line in built.stderr.split("\n") if "error" in line), "?")
            raise Skip("g++: " + re.sub(r"^.*?error: ", "", error)[:90])
        ended = run([str(self.folder / "kernel")])
        if ended.returncode == -signal.SIGILL:
            raise Skip("undefined in C++: a conversion, shift or division out of range")
        if ended.returncode:
            raise Skip(f"the g++ build ends with {ended.returncode}")

    def compare(self):
        """Returns the differences of all arrays."""
        out, written = [], 0
        for name, (kind, ty) in self.params.items():
            if kind in ("value", "read"):
                continue
            parts, stride, _ = layout(ty, self.structs)
            ours, theirs = self.read_ours(name), (self.folder / f"{name}.gcc.bin").read_bytes()
            before = (self.folder / f"{name}.in.bin").read_bytes()
            written += before != theirs
            if len(ours) != len(theirs):
                raise Skip(f"'{name}' has {len(ours)} bytes, not {len(theirs)}")
            for offset, scalar in parts:
                a, b = (column(data, scalar, offset, stride) for data in (ours, theirs))
                bad = next((n for n in range(len(a)) if not agrees(a[n], b[n], scalar)), None)
                if bad is not None:
                    out.append(f"{name}[{bad}] ({scalar}): {a[bad]} is not g++'s {b[bad]}")
        if not written:
            raise Skip("it writes nothing here")
        return out

    def read_ours(self, name):
        path = self.folder / "out" / f"{name}.bin"
        if path.exists():
            return path.read_bytes()
        data = (self.folder / "out" / f"{name}.npy").read_bytes()
        return data[10 + struct.unpack_from("<H", data, 8)[0]:]


def column(data, scalar, offset, stride):
    return [struct.unpack_from(FORMATS[scalar], data, at + offset)[0] for at in range(0, len(data), stride)]


def agrees(a, b, scalar):
    if scalar not in ("f32", "f64"):
        return a == b
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return a == b or math.isnan(a) and math.isnan(b)
    relative, absolute = (2e-5, 1e-6) if scalar == "f32" else (1e-11, 1e-13)
    return abs(a - b) <= absolute + relative * max(abs(a), abs(b))


def compare_kernel(arguments, file, kernel, folder, rng):
    case, fault = Case(arguments, file, kernel, folder), None
    for n, size in enumerate((64, 16, 32, 100, 8, 4, 2, 1)):
        case.invent(rng, size, n % 2 == 1)
        fault = case.interpret()
        if fault is None:
            case.compile_and_run()
            return case.compare()
    raise Skip("no launch without a fault: " + re.sub(r"\d+", "N", fault))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--bornite", default="target/debug/bornite", help="the command")
    parser.add_argument("--runner", help="another build of the command that runs kernels")
    parser.add_argument("--count", type=int, default=60, help="kernels to compare")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="keep the sources and data of kernels that differ")
    arguments = parser.parse_args()
    kernels = set()
    for folder in arguments.folders:
        reports = run([arguments.bornite, "kernel", "check", "--json", folder], 600).stdout.splitlines()
        for report in map(json.loads, reports):
            if report["ok"] is True and report.get("kernel"):
                kernels.add((report.get("included_by") or report["file"], report["kernel"]))
    drawn = sorted(kernels)
    random.Random(arguments.seed).shuffle(drawn)
    compared, differing, skipped = 0, 0, Counter()
    for n, (file, kernel) in enumerate(drawn):
        if compared == arguments.count:
            break
        with tempfile.TemporaryDirectory() as folder:
            try:
                differences = compare_kernel(arguments, file, kernel, Path(folder), random.Random(arguments.seed + n))
            except Skip as why:
                skipped[str(why)] += 1
                continue
            compared += 1
            if differences:
                differing += 1
                print(f"{file}: {kernel}: " + "; ".join(differences))
                if arguments.keep:
                    kept = Path(arguments.keep) / f"{n}-{re.split('[<(]', kernel)[0]}"
                    shutil.copytree(folder, kept, dirs_exist_ok=True)
            sys.stdout.flush()
    print(f"{compared - differing} of {compared} kernels agree; skipped:")
    for reason, count in skipped.most_common(40):
        print(f"{count:6}  {reason}")
    return differing > 0


if __name__ == "__main__":
    sys.exit(main())
