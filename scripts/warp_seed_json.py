#!/usr/bin/env python3
"""Makes pairs of Python source and CUDA text by NVIDIA Warp's own code generation, one JSON file each, for tests of
`bornite data verify`. Needs no GPU and no compiler.

    pip install warp-lang==1.19.0
    scripts/warp_seed_json.py [crates/data/tests/files/warp_pairs]

Two kernels of each of six categories for CUDA, and two of them for a CPU. Names in the texts carry Warp's hash of the kernel.
"""

import contextlib
import inspect
import io
import json
import pathlib
import re
import sys
import textwrap

import warp as wp

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/data/tests/files/warp_pairs"


@wp.kernel
def scale_and_shift(a: wp.array(dtype=float), b: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = a[i] * 2.5 - b[i] / (1.0 + a[i] * a[i])


@wp.kernel
def polynomial(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    v = x[i]
    y[i] = (
        ((0.5 * v + 1.25) * v - 3.0) * v
        + 0.125
    )


@wp.kernel
def damped_wave(t: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.exp(-0.1 * t[i]) * wp.sin(2.0 * t[i])


@wp.kernel
def soft_magnitude(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.log(1.0 + wp.sqrt(wp.abs(x[i])))  # (a size


@wp.kernel
def project(a: wp.array(dtype=wp.vec3), b: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    n = wp.normalize(b[i])
    out[i] = n * wp.dot(a[i], n)


@wp.kernel
def distances(a: wp.array(dtype=wp.vec2), b: wp.array(dtype=wp.vec2), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.length(a[i] - b[i])


@wp.kernel
def rotate(m: wp.array(dtype=wp.mat33), v: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = m[i] * v[i]


@wp.kernel
def areas(m: wp.array(dtype=wp.mat22), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.determinant(wp.transpose(m[i]) * m[i])


@wp.kernel
def threshold(x: wp.array(dtype=float), out: wp.array(dtype=float), limit: float):
    i = wp.tid()
    if x[i] > limit:
        out[i] = limit
    elif x[i] < -limit:
        out[i] = -limit
    else:
        out[i] = x[i]


@wp.kernel
def row_sums(x: wp.array2d(dtype=float), out: wp.array(dtype=float), columns: int):
    i = wp.tid()
    total = float(0.0)
    for j in range(columns):
        total += x[i, j]
    out[i] = total


@wp.kernel
def total(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(out, 0, x[i])


@wp.kernel
def extremes(x: wp.array(dtype=int), low: wp.array(dtype=int), high: wp.array(dtype=int)):
    i = wp.tid()
    wp.atomic_min(low, 0, x[i])
    wp.atomic_max(high, 0, x[i])


KERNELS = {
    "arithmetic": [(scale_and_shift, {"num_ops": 5}), (polynomial, {"num_ops": 6})],
    "math": [(damped_wave, {"functions": ["exp", "sin"]}), (soft_magnitude, {"functions": ["log", "sqrt", "abs"]})],
    "vector": [(project, {"vec_type": "vec3", "operation": "dot"}), (distances, {"vec_type": "vec2", "operation": "length"})],
    "matrix": [(rotate, {"mat_type": "mat33", "operation": "mul"}), (areas, {"mat_type": "mat22", "operation": "determinant"})],
    "control_flow": [(threshold, {"pattern": "if"}), (row_sums, {"pattern": "for"})],
    "atomic": [(total, {"operation": "add"}), (extremes, {"operation": "min"})],
}


def function(text, head):
    """The function that begins with what a pattern finds, to its closing brace."""
    start = re.search(head, text).start()
    depth = 0
    for at in range(text.index("{", start), len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start : at + 1]
    raise ValueError(f"nothing closes {head}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    wp.config.enable_backward = False
    module = wp.get_module(__name__)
    module.options["enable_backward"] = False
    texts = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for target in ["cuda", "cpu"]:
            options = dict(module.options, block_dim=256, output_arch=90)
            builder = wp._src.context.ModuleBuilder(module, options, target=target)
            texts[target] = builder.codegen(target)
    number = 0
    for category, kernels in KERNELS.items():
        for kernel, more in kernels:
            for target in ["cuda", "cpu"] if category in ("arithmetic", "control_flow") and kernel is kernels[0][0] else ["cuda"]:
                name = kernel.key
                if target == "cuda":
                    text = function(texts["cuda"], rf'extern "C" __global__ void {name}_\w*cuda_kernel_forward\(')
                else:
                    text = function(texts["cpu"], rf"void {name}_\w*cpu_kernel_forward\(")
                pair = {
                    "python_source": textwrap.dedent(inspect.getsource(kernel.func)),
                    f"{'cuda' if target == 'cuda' else 'cpu'}_forward": text + "\n",
                    "metadata": {"kernel_name": name, "category": category, "device": target, "seed": 42, **more},
                }
                file = folder / f"{'cuda_synth' if target == 'cuda' else 'cpu_synth'}_{number:04}.json"
                file.write_text(json.dumps(pair, indent=2) + "\n")
                number += 1
    print(f"{number} pairs in {folder}")


main()
