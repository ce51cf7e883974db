#!/usr/bin/env python3
"""How fast NVIDIA Warp is on this machine's CPU at what `cargo bench -p bornite-lang` measures of Bornite. Prints JSON.

    pip install warp-lang==1.19.0 numpy
    scripts/warp_speed.py

Medians of several runs: source -> CUDA text (Warp's own code generation, no compiler), y = a*x + y on 10 million floats in
one and in two dimensions, what a launch costs, and a cold process until its first result, with and without Warp's cache.
"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import warp as wp

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lang/tests/python/kernels"
FIRST = """
import sys, warp as wp
wp.config.kernel_cache_dir = sys.argv[1]
wp.config.enable_backward = False

@wp.kernel
def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = a * x[i] + y[i]

x, y = wp.zeros(1024, device="cpu"), wp.zeros(1024, device="cpu")
wp.launch(saxpy, 1024, inputs=[2.0, x, y], device="cpu")
y.numpy()
"""


@wp.kernel
def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = a * x[i] + y[i]


@wp.kernel
def saxpy_2d(a: float, x: wp.array2d[float], y: wp.array2d[float]):
    i, j = wp.tid()
    y[i, j] = a * x[i, j] + y[i, j]


def median(op, count=9):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        op()
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2]


def source_to_cuda():
    """Kernels a second from Python functions to CUDA text, over our kernels of tests."""
    import importlib.util

    modules, kernels = [], 0
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem == "functions":  # kernels of any type have no text before they are launched
            continue
        spec = importlib.util.spec_from_file_location(f"speed_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        modules.append(wp.get_module(spec.name))
        kernels += len(modules[-1].kernels)

    def generate():
        for module in modules:
            options = dict(module.options, block_dim=256, output_arch=90)
            wp._src.context.ModuleBuilder(module, options, target="cuda").codegen("cuda")

    generate()
    return kernels, kernels / median(generate, 3)


def main():
    wp.config.enable_backward = False
    with contextlib.redirect_stdout(io.StringIO()):
        wp.init()
        n = 10_000_000
        rng = np.random.default_rng(1)
        x = wp.array(rng.random(n, dtype=np.float32), device="cpu")
        y = wp.array(rng.random(n, dtype=np.float32), device="cpu")
        x2, y2 = x.reshape((2500, 4000)), y.reshape((2500, 4000))
        wp.launch(saxpy, n, inputs=[2.0, x, y], device="cpu")
        wp.launch(saxpy_2d, (2500, 4000), inputs=[2.0, x2, y2], device="cpu")
        one = median(lambda: wp.launch(saxpy, n, inputs=[2.0, x, y], device="cpu"), 15)
        two = median(lambda: wp.launch(saxpy_2d, (2500, 4000), inputs=[2.0, x2, y2], device="cpu"), 15)

        def launches():
            for _ in range(1000):
                wp.launch(saxpy, 1, inputs=[2.0, x, y], device="cpu")

        launch = median(launches, 5) / 1000
        command = wp.launch(saxpy, 1, inputs=[2.0, x, y], device="cpu", record_cmd=True)

        def recorded():
            for _ in range(1000):
                command.launch()

        recorded_launch = median(recorded, 5) / 1000
        try:
            kernels, rate = source_to_cuda()
        except Exception as error:  # Warp's inner names change between versions
            kernels, rate = 0, f"{type(error).__name__}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "first.py"
        script.write_text(FIRST)
        times = []
        for cache in ("first", "second", "third", "first"):
            where = pathlib.Path(folder) / cache
            start = time.perf_counter()
            subprocess.run([sys.executable, str(script), str(where)], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
    print(json.dumps({
        "warp": wp.__version__,
        "source_to_cuda_kernels": kernels,
        "source_to_cuda_kernels_per_s": rate,
        "saxpy_10m_ms": one * 1e3,
        "saxpy_10m_2d_ms": two * 1e3,
        "launch_us": launch * 1e6,
        "recorded_launch_us": recorded_launch * 1e6,
        "process_to_first_result_s": sorted(times[:3])[1],
        "process_to_first_result_cached_s": times[3],
    }, indent=2))


if __name__ == "__main__":
    main()
