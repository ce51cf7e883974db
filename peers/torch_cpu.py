"""PyTorch on the CPU, asked op by op: the other side of `cargo bench -p bornite --bench cpu -- --torch DIR`.

Reads lines `op calls` and answers each with the milliseconds of a call, so that both sides can be
measured in turns; `none` where there is no such op. The first line printed says what PyTorch this is.

Results go to memory that is there already wherever PyTorch can do that, which is to its advantage
against a plain call. `cross_entropy_autograd` is the plain call and its `backward`.
"""

import argparse
import sys
import time

import torch
import torch.nn.functional as F

import common
import torch_gpt
import torch_transformer

ATEN = torch.ops.aten
F32 = torch.float32


def matmul(n, dtype):
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def small_matmul():
    a, b, out = torch.randn(4, 3), torch.randn(3, 2), torch.empty(4, 2)
    return lambda: torch.matmul(a, b, out=out)


def softmax(forward, rows=4096, columns=1024):
    x, out = torch.randn(rows, columns), torch.empty(rows, columns)
    return lambda: forward.out(x, -1, False, out=out)


def softmax_backward(forward, backward, rows=4096, columns=1024):
    x, dy = torch.randn(rows, columns), torch.randn(rows, columns)
    y, dx = forward(x, -1, False), torch.empty(rows, columns)
    if backward is ATEN._softmax_backward_data:
        return lambda: backward.out(dy, y, -1, F32, grad_input=dx)
    return lambda: backward.out(dy, y, -1, F32, out=dx)


def layer_norm(rows=4096, columns=768):
    x, gamma, beta = torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)
    out, mean, rstd = torch.empty_like(x), torch.empty(rows, 1), torch.empty(rows, 1)
    into = dict(out0=out, out1=mean, out2=rstd)
    return lambda: ATEN.native_layer_norm.out(x, [columns], gamma, beta, 1e-5, **into)


def layer_norm_backward(rows=4096, columns=768):
    x, dy = torch.randn(rows, columns), torch.randn(rows, columns)
    gamma, beta = torch.randn(columns), torch.randn(columns)
    _, mean, rstd = torch.native_layer_norm(x, [columns], gamma, beta, 1e-5)
    wanted = [True] * 3
    return lambda: ATEN.native_layer_norm_backward(
        dy, x, [columns], mean, rstd, gamma, beta, wanted
    )


def cross_entropy(rows=1024, columns=32000):
    """Its four parts, into memory that is there."""
    x, classes = torch.randn(rows, columns), torch.arange(rows) * 7919 % columns
    log, dlog, dx = torch.empty_like(x), torch.zeros_like(x), torch.empty_like(x)
    one = torch.ones(())

    def call():
        ATEN._log_softmax.out(x, -1, False, out=log)
        _, weight = ATEN.nll_loss_forward(log, classes, None, 1, -100)
        ATEN.nll_loss_backward.grad_input(
            one, log, classes, None, 1, -100, weight, grad_input=dlog
        )
        ATEN._log_softmax_backward_data.out(dlog, log, -1, F32, out=dx)

    return call


def cross_entropy_autograd(rows=1024, columns=32000):
    x = torch.randn(rows, columns, requires_grad=True)
    classes = torch.arange(rows) * 7919 % columns
    return lambda: torch.autograd.grad(F.cross_entropy(x, classes), x)


def gelu(approximate, n=10_000_000):
    x, out = torch.randn(n), torch.empty(n)
    return lambda: ATEN.gelu.out(x, approximate=approximate, out=out)


def gelu_backward(approximate, n=10_000_000):
    x, dy, dx = torch.randn(n), torch.randn(n), torch.empty(n)
    return lambda: ATEN.gelu_backward.grad_input(
        dy, x, approximate=approximate, grad_input=dx
    )


def adamw(n=10_000_000):
    p, g = torch.randn(n), torch.randn(n)
    m, v, step = torch.zeros(n), torch.zeros(n), torch.zeros(())
    numbers = dict(
        lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False
    )

    def call():
        step.add_(1)
        torch._fused_adamw_([p], [g], [m], [v], [], [step], **numbers)

    return call


def in_turn(*calls):
    """Several calls as one."""
    return lambda: [call() for call in calls]


def eager(f, *shapes):
    """A plain call, which makes its result."""
    inputs = [torch.randn(*shape) for shape in shapes]
    return lambda: f(*inputs)


def eager_both(f, *shapes):
    """A plain call and its gradient by all inputs but the last, by which the result is weighted."""
    inputs = [torch.randn(*shape, requires_grad=True) for shape in shapes[:-1]]
    weight = torch.randn(*shapes[-1])

    def call():
        y = f(*inputs)
        return y, torch.autograd.grad(y, inputs, weight)

    return call


def add(n):
    a, b, out = torch.randn(n), torch.randn(n), torch.empty(n)
    return lambda: torch.add(a, b, out=out)


def sums(axis, rows=4096, columns=1024):
    x = torch.randn(rows, columns)
    out = torch.empty(columns if axis == 0 else rows)
    return lambda: torch.sum(x, axis, out=out)


def norm(x, gamma, beta):
    return F.layer_norm(x, gamma.shape, gamma, beta)


LOG = (ATEN._log_softmax, ATEN._log_softmax_backward_data)
PLAIN = (ATEN._softmax, ATEN._softmax_backward_data)
WIDE, NORM, LONG = (4096, 1024), ((4096, 768), (768,), (768,)), 10_000_000
OPS = {
    # Layers, heads, width, most tokens: as in crates/nn/benches/steps.rs.
    "gpt_step_1.0M_8x128": lambda: torch_gpt.step((5, 4, 128, 128), 257, 8, 128),
    "gpt_step_1.9M_8x128": lambda: torch_gpt.step((4, 4, 192, 128), 257, 8, 128),
    "gpt_step_2.7M_8x128": lambda: torch_gpt.step((6, 4, 192, 128), 257, 8, 128),
    "gpt_step_2.7M_2x64": lambda: torch_gpt.step((6, 4, 192, 128), 257, 2, 64),
    "matmul_f32_512": lambda: matmul(512, F32),
    "matmul_f32_1024": lambda: matmul(1024, F32),
    "matmul_f32_2048": lambda: matmul(2048, F32),
    "matmul_bf16_1024": lambda: matmul(1024, torch.bfloat16),
    "matmul_f32_4x3x2": small_matmul,
    "softmax_f32_4096x1024": lambda: softmax(PLAIN[0]),
    "softmax_backward_f32_4096x1024": lambda: softmax_backward(*PLAIN),
    "log_softmax_f32_4096x1024": lambda: softmax(LOG[0]),
    "log_softmax_backward_f32_4096x1024": lambda: softmax_backward(*LOG),
    "layer_norm_f32_4096x768": layer_norm,
    "layer_norm_backward_f32_4096x768": layer_norm_backward,
    "cross_entropy_f32_1024x32000": cross_entropy,
    "cross_entropy_autograd_f32_1024x32000": cross_entropy_autograd,
    "gelu_tanh_f32_10M": lambda: gelu("tanh"),
    "gelu_tanh_backward_f32_10M": lambda: gelu_backward("tanh"),
    "gelu_erf_f32_10M": lambda: gelu("none"),
    "gelu_erf_backward_f32_10M": lambda: gelu_backward("none"),
    "trace_add_f32_100K": lambda: add(100_000),
    "trace_add_f32_1M": lambda: add(1_000_000),
    "trace_row_sums_f32_4096x1024": lambda: sums(1),
    "trace_column_sums_f32_4096x1024": lambda: sums(0),
    "trace_softmax_f32_4096x1024": lambda: softmax(PLAIN[0]),
    "trace_softmax_both_f32_4096x1024": lambda: in_turn(softmax(PLAIN[0]), softmax_backward(*PLAIN)),
    "trace_layer_norm_f32_4096x768": layer_norm,
    "trace_layer_norm_both_f32_4096x768": lambda: in_turn(layer_norm(), layer_norm_backward()),
    "trace_cross_entropy_f32_1024x32000": cross_entropy,
    "trace_gelu_tanh_f32_10M": lambda: gelu("tanh"),
    "trace_gelu_tanh_both_f32_10M": lambda: in_turn(gelu("tanh"), gelu_backward("tanh")),
    "trace_gelu_erf_f32_10M": lambda: gelu("none"),
    "trace_gelu_erf_both_f32_10M": lambda: in_turn(gelu("none"), gelu_backward("none")),
    "trace_adamw_f32_10M": adamw,
    "eager_add_f32_100K": lambda: eager(torch.add, (100_000,), (100_000,)),
    "eager_add_f32_1M": lambda: eager(torch.add, (1_000_000,), (1_000_000,)),
    "eager_row_sums_f32_4096x1024": lambda: eager(lambda x: x.sum(-1), WIDE),
    "eager_column_sums_f32_4096x1024": lambda: eager(lambda x: x.sum(0), WIDE),
    "eager_softmax_f32_4096x1024": lambda: eager(lambda x: x.softmax(-1), WIDE),
    "eager_softmax_both_f32_4096x1024": lambda: eager_both(lambda x: x.softmax(-1), WIDE, WIDE),
    "eager_layer_norm_f32_4096x768": lambda: eager(norm, *NORM),
    "eager_layer_norm_both_f32_4096x768": lambda: eager_both(norm, *NORM, NORM[0]),
    "eager_cross_entropy_f32_1024x32000": cross_entropy_autograd,
    "eager_gelu_tanh_f32_10M": lambda: eager(lambda x: F.gelu(x, approximate="tanh"), (LONG,)),
    "eager_gelu_tanh_both_f32_10M": lambda: eager_both(
        lambda x: F.gelu(x, approximate="tanh"), (LONG,), (LONG,)
    ),
    "eager_gelu_erf_f32_10M": lambda: eager(F.gelu, (LONG,)),
    "eager_gelu_erf_both_f32_10M": lambda: eager_both(F.gelu, (LONG,), (LONG,)),
    "transformer_step_v1024": lambda: torch_transformer.Model(1024).step,
    "transformer_step_v8192": lambda: torch_transformer.Model(8192).step,
}
# Answered with a number rather than with a time: `calls` says of which step.
VALUES = {
    "transformer_step_v1024_loss": lambda n: torch_transformer.loss(1024, n),
    "transformer_step_v8192_loss": lambda n: torch_transformer.loss(8192, n),
}


def main():
    parser = argparse.ArgumentParser(description="Time PyTorch's ops on the CPU as asked on stdin.")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    common.print_machine("cpu")
    name, call = None, None
    for line in sys.stdin:
        wanted, calls = line.split()
        if wanted in VALUES:
            print(VALUES[wanted](int(calls)), flush=True)
            continue
        if wanted != name:
            name, call = wanted, None
            call = OPS[wanted]() if wanted in OPS else None
            if call:
                call()
        if not call:
            print("none", flush=True)
            continue
        start = time.perf_counter()
        for _ in range(int(calls)):
            call()
        print((time.perf_counter() - start) * 1e3 / int(calls), flush=True)


if __name__ == "__main__":
    main()
