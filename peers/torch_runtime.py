"""PyTorch's caching allocator: an allocation and its free, once its segments are there.

    python3 peers/torch_runtime.py > torch_runtime.jsonl
    cargo bench -p bornite-cuda --bench runtime -- --peer torch_runtime.jsonl

The loop is C++ inside the process (`via: c++`), as Bornite's is Rust: Python would add a microsecond
that is not the allocator's. Where no C++ compiler is found, Python calls are timed (`via: python`),
less the time of an empty call; take such rows with care.
"""

import sys
import time

import torch

import common

SIZES = (512, 4096, 1 << 20, 30 << 20)

SOURCE = """
#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>

double alloc_free_ns(int64_t bytes, int64_t calls) {
  auto start = std::chrono::steady_clock::now();
  for (int64_t n = 0; n < calls; ++n) {
    void* block = c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
    c10::cuda::CUDACachingAllocator::raw_delete(block);
  }
  auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() / calls;
}
"""


def compiled():
    """A function (bytes, calls) -> nanoseconds a call, in C++; None where it cannot be built."""
    try:
        from torch.utils.cpp_extension import load_inline

        module = load_inline(
            "bornite_peer_allocator",
            cpp_sources=[SOURCE],
            functions=["alloc_free_ns"],
            with_cuda=True,
            extra_cflags=["-O3"],
        )
        return module.alloc_free_ns
    except Exception as error:  # no compiler, no headers: a weaker row is better than none
        print(f"no C++ loop: {common.first_line(error)}", file=sys.stderr, flush=True)
        return None


def interpreted(bytes_, calls):
    """Nanoseconds an alloc and free from Python, less those of an empty call."""
    alloc, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    start = time.perf_counter_ns()
    for _ in range(calls):
        free(alloc(bytes_))
    middle = time.perf_counter_ns()
    for _ in range(calls):
        id(id(bytes_))
    end = time.perf_counter_ns()
    return ((middle - start) - (end - middle)) / calls


def main():
    common.require("cuda")
    common.print_machine("cuda")
    torch.cuda.init()
    loop = compiled()
    via, calls, loop = ("c++", 20_000, loop) if loop else ("python", 5_000, interpreted)
    for bytes_ in SIZES:
        loop(bytes_, calls)
        samples = sorted(loop(bytes_, calls) for _ in range(31))
        # Rows carry milliseconds with six decimals: a nanosecond is the last of them.
        common.print_row(f"pool_alloc_free_{bytes_}", samples[15] / 1e6, via=via)


if __name__ == "__main__":
    main()
