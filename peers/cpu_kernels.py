"""NumPy and PyTorch on the CPU beside compiled kernels, in one run.

    python3 peers/cpu_kernels.py [--threads 1] [--rounds 3]

Runs `cargo bench -p bornite-codegen --bench vectors` between rounds of NumPy's and PyTorch's own
loops over the same sizes, and prints the peers' median over ours: above 1 ours is faster. NumPy
has one thread whatever is asked for.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy

N = 10_000_000


def median_ms(call, samples=9):
    """The median of some calls after one that does not count."""
    call()
    times = []
    for _ in range(samples):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e3


def peers(threads):
    """Name of our row, name of the peer, and what it runs."""
    rng = numpy.random.default_rng(0)
    x = rng.uniform(-10, 10, N).astype(numpy.float32)
    y = rng.uniform(-5, 5, N).astype(numpy.float32)
    out, other = numpy.empty_like(x), numpy.empty_like(x)

    def in_place():
        numpy.sin(x, out=out)
        numpy.exp(y, out=other)
        numpy.multiply(out, other, out=out)

    yield "sin_exp_f32_10m", "numpy", lambda: numpy.sin(x) * numpy.exp(y)
    yield "sin_exp_f32_10m", "numpy, in place", in_place
    yield "chain_of_5_f32_10m", "numpy", lambda: numpy.maximum((x + y) * x - y, 0) * numpy.float32(0.5)
    matrix = x.reshape(4000, 2500)
    yield "sum_columns_f32_4000x2500", "numpy", lambda: matrix.sum(axis=0)
    yield "sum_rows_f32_4000x2500", "numpy", lambda: matrix.sum(axis=1)
    try:
        import torch
    except ImportError:
        print("PyTorch is not here: its rows are left out", file=sys.stderr)
        return
    torch.set_num_threads(threads)
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    yield "sin_exp_f32_10m", "pytorch", lambda: torch.sin(a) * torch.exp(b)
    yield "chain_of_5_f32_10m", "pytorch", lambda: ((a + b) * a - b).relu() * 0.5
    kept = torch.empty_like(a)
    yield (
        "chain_of_5_f32_10m",
        "pytorch, in place",
        lambda: torch.add(a, b, out=kept).mul_(a).sub_(b).relu_().mul_(0.5),
    )
    yield "axpy_f32_10m", "pytorch, in place", lambda: torch.add(b, a, alpha=2.0, out=kept)
    yield "axpy_f32_10m", "pytorch", lambda: torch.add(b, a, alpha=2.0)
    rows = a.reshape(4000, 2500)
    yield "sum_columns_f32_4000x2500", "pytorch", lambda: rows.sum(0)
    yield "sum_rows_f32_4000x2500", "pytorch", lambda: rows.sum(1)


def ours(threads):
    """Median times of our rows."""
    command = ["cargo", "bench", "-q", "-p", "bornite-codegen", "--bench", "vectors", "--"]
    text = subprocess.run([*command, "--json", "--threads", str(threads)], check=True, stdout=subprocess.PIPE).stdout
    return {row["name"]: row["median_ms"] for row in json.loads(text)["rows"]}


def theirs_once(threads):
    """Median times of the peers, in a process of their own: threads of theirs may spin while ours run."""
    command = [sys.executable, __file__, "--only-peers", "--threads", str(threads)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured, in turn")
    parser.add_argument("--only-peers", action="store_true", help="print the peers' times as JSON lines")
    given = parser.parse_args()
    if given.only_peers:
        for name, peer, call in peers(given.threads):
            print(json.dumps([name, peer, median_ms(call)]))
        return
    found, theirs = {}, {}
    for _ in range(given.rounds):
        for name, ms in ours(given.threads).items():
            found.setdefault(name, []).append(ms)
        for name, peer, ms in theirs_once(given.threads):
            theirs.setdefault((name, peer), []).append(ms)
    for name, times in found.items():
        print(f"{name:32} {statistics.median(times):10.4f} ms")
    rustc, axpy = (statistics.median(found[name]) for name in ("axpy_f32_10m_rustc", "axpy_f32_10m"))
    print(f"{'axpy_f32_10m':32} rustc: {rustc:.3f} ms, {rustc / axpy:.2f} of ours")
    for (name, peer), times in theirs.items():
        ms = statistics.median(times)
        print(f"{name:32} {peer}: {ms:.3f} ms, {ms / statistics.median(found[name]):.2f} of ours")


if __name__ == "__main__":
    main()
