"""What the peer scripts share: timing, rotation over inputs, and the lines they print.

Times are taken as `bornite-bench` takes them (crates/bench/src/measure.rs), so that a ratio of the
two compares like with like: a sample repeats the call until it lasts some milliseconds, waits once,
and the median of the samples counts. Inputs rotate, so that a repeat does not time the cache.

Standard output is JSON lines alone: the machine first, then a row an op. All else is on stderr.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch

MAX_INNER = 1 << 24
CPU_CACHE_BYTES = 64 << 20  # more than a core reaches on today's servers


class Timer:
    """Times calls on one device. A call takes a rising index, to choose its inputs by."""

    def __init__(self, device, samples=31, warmup=5, min_sample_ms=5.0, max_total_ms=3000.0):
        self.is_cuda = device == "cuda"
        self.samples = samples
        self.warmup = warmup
        self.min_sample_ms = min_sample_ms
        self.max_total_ms = max_total_ms
        self.cache_bytes = CPU_CACHE_BYTES
        if self.is_cuda:
            self.cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size

    def rotating(self, make, op, set_bytes):
        """A call of `op` over as many inputs of `make()` as exceed four caches, 64 at most."""
        count = max(1, min(64, 4 * self.cache_bytes // max(1, set_bytes) + 1))
        sets = [make() for _ in range(count)]
        return lambda i: op(*sets[i % count])

    def median_ms(self, call):
        """The median time of a call."""
        warmup_ms = 0.0
        for i in range(max(1, self.warmup)):
            warmup_ms += self._sample_ms(call, i, 1)
            if warmup_ms >= self.max_total_ms:
                break

        index, inner, total_ms = self.warmup, 1, 0.0
        target_ms = min(self.min_sample_ms, self.max_total_ms / 3)
        while True:
            sample_ms = self._sample_ms(call, index, inner)
            index += inner
            total_ms += sample_ms
            if sample_ms >= target_ms or inner >= MAX_INNER:
                break
            factor = min(10.0, 1.2 * target_ms / max(sample_ms, 1e-6))
            inner = min(MAX_INNER, max(inner + 1, round(inner * factor)))

        call_ms = []
        while len(call_ms) < 3 or (
            len(call_ms) < self.samples and total_ms + sample_ms <= self.max_total_ms
        ):
            sample_ms = self._sample_ms(call, index, inner)
            index += inner
            total_ms += sample_ms
            call_ms.append(sample_ms / inner)
        return statistics.median(call_ms)

    def graph_ms(self, call, calls):
        """The median time of a call when `calls` of them are one CUDA graph: no launch cost.

        The graph keeps all results, as Bornite's does: else each call would write to the memory of
        the one before, which is still in the cache.
        """
        for i in range(3):
            call(i)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = [call(i) for i in range(calls)]
        ms = self.median_ms(lambda _: graph.replay()) / calls
        del results
        return ms

    def _sample_ms(self, call, first, calls):
        if not self.is_cuda:
            start = time.perf_counter()
            for i in range(first, first + calls):
                call(i)
            return (time.perf_counter() - start) * 1e3
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        for i in range(first, first + calls):
            call(i)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def require(device):
    """Ends the script with a sentence if the device is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("this PyTorch sees no CUDA device; run on a machine with a GPU")


def print_machine(device):
    """The first line: where the rows come from."""
    machine = {
        "gpu": torch.cuda.get_device_name(0) if device == "cuda" else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": device,
        "cpu": cpu_model(),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps({"machine": machine}), flush=True)


def print_row(op, ms, *, eager_ms=None, flops=None, moved_bytes=None, **extra):
    """A row: `ms` is the best time a call, `eager_ms` that of the plain call."""
    row = {"op": op, "ms": round(ms, 6)}
    if eager_ms is not None:
        row["eager_ms"] = round(eager_ms, 6)
    if flops is not None:
        row["tflops"] = round(flops / ms / 1e9, 3)
    if moved_bytes is not None:
        row["gbs"] = round(moved_bytes / ms / 1e6, 1)
    print(json.dumps(row | extra), flush=True)


def print_skipped(op, error):
    """Says on stderr that an op has no row, and why."""
    print(f"skipped {op}: {first_line(error)}", file=sys.stderr, flush=True)


def first_line(error):
    """The first line of an exception's message; PyTorch's run to pages."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def cpu_model():
    """The processor's model name, as `bornite bench` reads it; None where there is no /proc."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, None)
