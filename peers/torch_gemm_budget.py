"""The matmuls of one GPT-2 124M training step (B=64, T=1024, bf16), each alone.

    python3 peers/torch_gemm_budget.py > torch_gemm_budget.jsonl

What the vendor's library gives at these shapes is the floor of the step, made of measured parts.
Each row is printed once with cuBLAS and once with cuBLASLt; `bornite bench` takes the faster.
cublaslt_search.cu asks the same of cuBLASLt itself. Three backward passes follow at the end.
"""

from functools import partial

import torch
import torch.nn.functional as F

import common

TOKENS = 64 * 1024
WIDTH = 768
VOCABULARY = 50304
# name, inputs, outputs, how many the model has, whether it has a bias
LAYERS = (
    ("qkv", WIDTH, 3 * WIDTH, 12, True),
    ("attn_proj", WIDTH, WIDTH, 12, True),
    ("fc", WIDTH, 4 * WIDTH, 12, True),
    ("fc_proj", 4 * WIDTH, WIDTH, 12, True),
    ("lm_head", WIDTH, VOCABULARY, 1, False),
)

randn = partial(torch.randn, device="cuda", dtype=torch.bfloat16)


def time_layer(timer, library, name, k, n):
    """Prints a row a pass of one layer, and returns the passes' times by name."""
    x, weight, bias, dy = randn(TOKENS, k), randn(n, k), randn(n), randn(TOKENS, n)
    passes = {
        "fwd": lambda _: x @ weight.t(),
        "fwd_bias": lambda _: torch.addmm(bias, x, weight.t()),
        "fwd_bias_gelu": lambda _: torch._addmm_activation(bias, x, weight.t(), use_gelu=True),
        "dgrad": lambda _: dy @ weight,
        "wgrad": lambda _: dy.t() @ x,
    }
    times = {}
    for kind, call in passes.items():
        op = f"gpt2_matmul_bf16_{name}_{kind}"
        try:
            times[kind] = timer.median_ms(call)
        except RuntimeError as error:
            common.print_skipped(op, error)
            continue
        common.print_row(op, times[kind], flops=2 * TOKENS * k * n, library=library)
    return times


def time_all_layers(timer, library):
    """Prints every layer's rows and the sum over a step."""
    torch.backends.cuda.preferred_blas_library(library)
    step_ms = 0.0
    for name, k, n, count, has_bias in LAYERS:
        times = time_layer(timer, library, name, k, n)
        forward_ms = times["fwd_bias" if has_bias else "fwd"]
        step_ms += count * (forward_ms + times["dgrad"] + times["wgrad"])
    common.print_row("gpt2_matmul_bf16_step", step_ms, library=library)


def backward(timer, op, function, *inputs):
    """Prints the time of a function's gradient; inputs that are no floats have none."""
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    out = function(*inputs)
    grad = torch.randn_like(out)
    call = lambda _: torch.autograd.grad(out, leaves, grad, retain_graph=True)
    common.print_row(op, timer.median_ms(call))


def main():
    common.require("cuda")
    torch.manual_seed(0)
    common.print_machine("cuda")
    timer = common.Timer("cuda")
    for library in ("cublas", "cublaslt"):
        time_all_layers(timer, library)

    norm = lambda x, weight, bias: F.layer_norm(x, (WIDTH,), weight, bias)
    norm_inputs = randn(TOKENS, WIDTH), randn(WIDTH), randn(WIDTH)
    backward(timer, f"layernorm_bwd_bf16_{TOKENS}x{WIDTH}", norm, *norm_inputs)

    gelu = partial(F.gelu, approximate="tanh")
    backward(timer, f"gelu_bwd_bf16_{TOKENS}x{4 * WIDTH}", gelu, randn(TOKENS, 4 * WIDTH))

    tokens = torch.randint(0, 50257, (TOKENS,), device="cuda")
    table = randn(VOCABULARY, WIDTH, dtype=torch.float32)
    backward(timer, f"embedding_bwd_f32_{TOKENS}x{WIDTH}", F.embedding, tokens, table)


if __name__ == "__main__":
    main()
