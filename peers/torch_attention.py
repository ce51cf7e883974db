"""Scaled dot-product attention in bf16 by PyTorch's kernels: forward, and forward with all gradients.

    python3 peers/torch_attention.py > torch_attention.jsonl
    bornite bench attention --peer torch_attention.jsonl

Rows ending in `_cudnn` and `_flash` are those of one backend; the row without a suffix is the faster of
the two. Rows ending in `_deterministic` are measured with deterministic algorithms, and printed only if
repeated calls return the same bits.
"""

import argparse
import os
import subprocess
import sys
from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import common
from cases import BF16, rotating

# Batch, heads, tokens, width, causal.
SIZES = (
    (64, 12, 1024, 64, True),
    (16, 16, 2048, 128, True),
    (2, 16, 8192, 128, False),
)
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
# PyTorch 2.11 does not pass its deterministic setting to cuDNN. On compute capability 9.0, cuDNN's
# deterministic algorithm is the one that stores the gradients of the scores, which cuDNN's frontend
# selects up to this number of bytes (256 MiB if it is not set). Read when the first plan is built.
CUDNN_SCORE_GRADIENT_LIMIT = {"CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT": str(1 << 62)}


def heads_first(tensors):
    """Permutes `[batch, tokens, heads, width]` to `[batch, heads, tokens, width]`."""
    return [tensor.transpose(1, 2) for tensor in tensors]


def forward(*qkv, causal):
    """Attention of `[batch, tokens, heads, width]`, the layout of a model's projections."""
    return F.scaled_dot_product_attention(*heads_first(qkv), is_causal=causal)


def forward_backward(*qkv_grad, causal):
    """The gradients of queries, keys and values, given that of the output; includes the forward pass."""
    *qkv, grad = heads_first(qkv_grad)
    return torch.autograd.grad(F.scaled_dot_product_attention(*qkv, is_causal=causal), qkv, grad)


def forward_case(sizes, backend):
    """The case of the forward pass by a backend, without its suffix."""
    return case("", forward, sizes, backend, inputs=3, differentiable=0, products=2)


def forward_backward_case(sizes, backend):
    """The case of the forward and backward pass by a backend, without its suffix."""
    return case("fwd_bwd_", forward_backward, sizes, backend, inputs=4, differentiable=3, products=7)


def case(name, op, sizes, backend, inputs, differentiable, products):
    b, h, t, d, causal = sizes

    def make():
        tensors = [torch.randn(b, t, h, d, dtype=BF16, device="cuda") for _ in range(inputs)]
        for tensor in tensors[:differentiable]:
            tensor.requires_grad_()
        return tensors

    return rotating(
        f"attention_{name}bf16_{b}x{h}x{t}x{d}{'_causal' * causal}",
        make,
        partial(op, causal=causal),
        set_bytes=inputs * BF16.itemsize * b * h * t * d,
        flops=2 * products * b * h * t * t * d // (2 if causal else 1),
        context=partial(sdpa_kernel, BACKENDS[backend]),
    )


def fastest(build, sizes, timer):
    """Prints a row per backend, and the fastest one again without a suffix."""
    times = {}
    for backend in BACKENDS:
        measured = build(sizes, backend)
        try:
            with measured.context():
                times[backend] = timer.median_ms(measured.build(timer))
        except RuntimeError as error:  # no such kernel, or out of memory
            common.print_skipped(f"{measured.name}_{backend}", error)
            continue
        common.print_row(f"{measured.name}_{backend}", times[backend], flops=measured.flops)
    if times:
        backend = min(times, key=times.get)
        common.print_row(measured.name, times[backend], flops=measured.flops, backend=backend)


def deterministic(sizes, timer):
    """Prints the rows of forward and backward passes that return the same bits in every call."""
    for backend in BACKENDS:
        measured = forward_backward_case(sizes, backend)
        name = f"{measured.name}_{backend}_deterministic"
        try:
            with measured.context():
                call = measured.build(timer)
                first = call(0)
                if not all(torch.equal(a, b) for _ in range(5) for a, b in zip(first, call(0))):
                    common.print_skipped(name, "its gradients differ between calls")
                    continue
                ms = timer.median_ms(call)
        except RuntimeError as error:
            common.print_skipped(name, error)
            continue
        common.print_row(name, ms, flops=measured.flops)


def main():
    parser = argparse.ArgumentParser(description="Time attention; prints JSON lines.")
    parser.add_argument(
        "--deterministic", action="store_true", help="only these rows, without the line of the machine"
    )
    arguments = parser.parse_args()
    common.require("cuda")
    torch.manual_seed(0)
    timer = common.Timer("cuda")
    if arguments.deterministic:
        os.environ.update(CUDNN_SCORE_GRADIENT_LIMIT)
        # With `warn_only`, since PyTorch otherwise rejects cuDNN; without fills of new tensors.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        for sizes in SIZES:
            deterministic(sizes, timer)
        return

    common.print_machine("cuda")
    for sizes in SIZES:
        for build in (forward_case, forward_backward_case):
            fastest(build, sizes, timer)
    # In another process: PyTorch caches the plans of cuDNN by sizes alone.
    torch.cuda.empty_cache()
    subprocess.run([sys.executable, __file__, "--deterministic"], check=True)


if __name__ == "__main__":
    main()
