"""The ops that torch_ops.py times; those that need a GPU and are large are in cases_cuda.py.

A group yields its cases; a case allocates its inputs only when it is built, so that a filtered run
costs nothing for the rest. Names are those of `bornite bench`'s rows: a ratio is found by name.
"""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Callable, ContextManager

import torch
import torch.nn.functional as F

import common

BF16 = torch.bfloat16
F32 = torch.float32
SHORT = {BF16: "bf16", F32: "f32"}


@dataclass(frozen=True)
class Case:
    """An op to time. `build` allocates its inputs and returns the call; nothing runs before."""

    name: str
    build: Callable[[common.Timer], Callable[[int], object]]
    flops: float | None = None
    moved_bytes: float | None = None
    on_cpu: bool = False
    graph_calls: int | None = None  # how many make one CUDA graph; None: by time, 0: no graph
    context: Callable[[], ContextManager] = nullcontext


def rotating(name, make, op, *, set_bytes=None, moved_bytes=None, **options):
    """A case of `op(*make())` over rotating inputs."""
    set_bytes = set_bytes or moved_bytes
    return Case(
        name,
        lambda timer: timer.rotating(make, op, set_bytes),
        moved_bytes=moved_bytes,
        **options,
    )


@contextmanager
def tf32():
    """Lets matmuls and convolutions round their f32 inputs to TF32."""
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn)
    for setting in settings:
        setting.allow_tf32 = True
    try:
        yield
    finally:
        for setting in settings:
            setting.allow_tf32 = False


def gelu(x):
    """GELU by tanh, as GPT-2 has it."""
    return F.gelu(x, approximate="tanh")


def elementwise(randn):
    """Ops bound by memory: each element is read and written once."""
    for n in (10**power for power in range(3, 9)):
        pair = lambda n=n: (randn(n), randn(n))
        yield rotating(f"add_f32_{n}", pair, torch.add, moved_bytes=12 * n, on_cpu=True)
    for n in (1_000_000, 100_000_000):
        one = lambda n=n: (randn(n),)
        pair = lambda n=n: (randn(n), randn(n))
        chain = torch.compile(lambda a, b: gelu(a * b + a) * b)
        yield rotating(f"sum_f32_{n}", one, torch.sum, moved_bytes=4 * n, on_cpu=True)
        yield rotating(f"relu_f32_{n}", one, F.relu, moved_bytes=8 * n, on_cpu=True)
        yield rotating(f"gelu_tanh_f32_{n}", one, gelu, moved_bytes=8 * n, on_cpu=True)
        yield rotating(f"chain5_compiled_f32_{n}", pair, chain, moved_bytes=12 * n)
    n = 100_000_000
    dropout = partial(F.dropout, p=0.5)
    one = lambda: (randn(n),)
    yield rotating("dropout_f32_100M", one, dropout, moved_bytes=8 * n, on_cpu=True)


def matmul(randn):
    """Products, most of them square; plain f32 is without TF32."""
    def product(m, k, n, dtype, name, **options):
        return rotating(
            f"matmul_{name}_{n}" if m == k == n else f"matmul_{name}_{m}x{k}x{n}",
            lambda: (randn(m, k, dtype=dtype), randn(k, n, dtype=dtype)),
            torch.matmul,
            flops=2 * m * k * n,
            set_bytes=dtype.itemsize * (m * k + k * n),
            **options,
        )

    def square(n, dtype, name, **options):
        return product(n, n, n, dtype, name, **options)

    sizes = [2**power for power in range(7, 14)]
    for n in sizes:
        yield square(n, F32, "f32", on_cpu=True)
    for n in sizes:
        yield square(n, F32, "tf32", context=tf32)
    for n in sizes[2:]:
        yield square(n, BF16, "bf16")
    yield product(1000, 1001, 1003, BF16, "bf16")
    yield square(4097, BF16, "bf16")


def mlp_step(randn, batch, hidden):
    """One step of training a perceptron 2 -> hidden -> hidden -> 3 with tanh by plain SGD."""

    def build(timer):
        x = randn(batch, 2)
        params = []
        for fan_in, fan_out in ((2, hidden), (hidden, hidden), (hidden, 3)):
            params += [randn(fan_in, fan_out) / fan_in**0.5, x.new_zeros(fan_out)]
        for param in params:
            param.requires_grad_()
        targets = F.one_hot(torch.arange(batch, device=x.device) % 3, 3).to(F32)

        def step(_):
            w1, b1, w2, b2, w3, b3 = params
            h = torch.tanh(torch.addmm(b1, x, w1))
            h = torch.tanh(torch.addmm(b2, h, w2))
            loss = F.cross_entropy(torch.addmm(b3, h, w3), targets)
            grads = torch.autograd.grad(loss, params)
            with torch.no_grad():
                torch._foreach_add_(params, grads, alpha=-0.1)  # what optim.SGD calls, bare

        return step

    # Three products a weight, but the first layer's input needs no gradient.
    products = 3 * (2 * hidden + hidden**2 + 3 * hidden) - 2 * hidden
    return Case(
        f"mlp_step_f32_{batch}x{hidden}",
        build,
        flops=2 * batch * products,
        on_cpu=True,
        graph_calls=1,  # a step needs new data, so a user can graph no more than one
    )


def training_steps(randn):
    """Whole steps, small enough that launches weigh as much as kernels."""
    for batch, hidden in ((96, 32), (1024, 256)):
        yield mlp_step(randn, batch, hidden)


def layernorm_backward(randn, count, width, dtype):
    """The gradients of a layer norm by its input, weight and bias; the forward pass is not timed."""

    def build(timer):
        inputs = [randn(*shape, dtype=dtype).requires_grad_() for shape in ((count, width), (width,), (width,))]
        out = F.layer_norm(inputs[0], (width,), inputs[1], inputs[2])
        grad = torch.randn_like(out)
        return lambda _: torch.autograd.grad(out, inputs, grad, retain_graph=True)

    return Case(
        f"layernorm_backward_{SHORT[dtype]}_{count}x{width}",
        build,
        moved_bytes=3 * dtype.itemsize * count * width,
        graph_calls=0,
    )


def rows(randn):
    """Ops along rows, and the transpose."""
    for count, width in ((10_000, 1), (4096, 4096), (65536, 1024)):
        shape = (count,) if width == 1 else (count, width)
        yield rotating(
            f"softmax_f32_{count}x{width}",
            lambda shape=shape: (randn(*shape),),
            partial(F.softmax, dim=-1),
            moved_bytes=8 * count * width,
            on_cpu=True,
        )
    for count, width, dtype in ((128, 768, F32), (65536, 768, F32), (65536, 768, BF16)):
        weight, bias = randn(width, dtype=dtype), randn(width, dtype=dtype)
        yield rotating(
            f"layernorm_{SHORT[dtype]}_{count}x{width}",
            lambda shape=(count, width), dtype=dtype: (randn(*shape, dtype=dtype),),
            partial(F.layer_norm, normalized_shape=(width,), weight=weight, bias=bias),
            moved_bytes=2 * dtype.itemsize * count * width,
            on_cpu=dtype == F32,
        )
    for count, width, dtype in ((128, 768, F32), (65536, 768, F32), (65536, 768, BF16)):
        yield layernorm_backward(randn, count, width, dtype)
    yield rotating(
        "transpose_copy_f32_8192",
        lambda: (randn(8192, 8192),),
        lambda x: x.t().contiguous(),
        moved_bytes=8 * 8192**2,
        on_cpu=True,
    )


def linear_gelu(randn):
    """A linear layer with its activation, eager and fused by torch.compile."""
    for m, k, n, dtype in ((128, 512, 768, F32), (65536, 768, 3072, BF16)):
        weight, bias = randn(n, k, dtype=dtype), randn(n, dtype=dtype)
        eager = lambda x, weight=weight, bias=bias: gelu(F.linear(x, weight, bias))
        for name, op in (("eager", eager), ("compiled", torch.compile(eager))):
            yield rotating(
                f"linear_gelu_{name}_{m}x{k}x{n}",
                lambda shape=(m, k), dtype=dtype: (randn(*shape, dtype=dtype),),
                op,
                flops=2 * m * k * n,
                set_bytes=dtype.itemsize * m * (k + n),
                on_cpu=dtype == F32 and name == "eager",
            )


def mlp_block(randn):
    """The half of a transformer's block that has GELU, with all gradients, fused by torch.compile."""
    k, n = 768, 3072

    def build(timer, m):
        shapes = ((m, k), (n, k), (n,), (k, n), (k,))
        inputs = [randn(*shape, dtype=BF16).requires_grad_() for shape in shapes]
        block = torch.compile(lambda x, w1, b1, w2, b2: F.linear(gelu(F.linear(x, w1, b1)), w2, b2))
        slope = randn(m, k, dtype=BF16)
        return lambda _: torch.autograd.grad(block(*inputs), inputs, slope)

    for m in (1024, 65536):
        name = f"mlp_block_fwd_bwd_compiled_{m}x{k}x{n}"
        yield Case(name, partial(build, m=m), flops=12 * m * k * n, graph_calls=0)


def convolution(randn):
    """Convolution, pooling and batch norm."""
    for b, c_in, hw, c_out, k, stride, groups in (
        (32, 64, 128, 128, 3, 1, 1),
        (1, 32, 64, 64, 3, 1, 1),
        (32, 64, 32, 128, 3, 1, 1),
        (8, 3, 224, 64, 7, 2, 1),
        (8, 256, 14, 1024, 1, 1, 1),
        (8, 512, 7, 512, 3, 1, 1),
        (8, 96, 56, 96, 3, 1, 96),
    ):
        shape = f"{b}x{c_in}x{hw}x{hw}->{c_out}"
        kind = f"conv{k}x{k}" + f"s{stride}" * (stride > 1) + f"g{groups}" * (groups > 1)
        flops = 2 * b * (hw // stride) ** 2 * c_in // groups * c_out * k * k

        def case(name, dtype, layout, backward=False, **options):
            tensor = lambda *dims: randn(*dims, dtype=dtype).to(memory_format=layout)
            weight, bias = tensor(c_out, c_in // groups, k, k), randn(c_out, dtype=dtype)
            forward = partial(F.conv2d, stride=stride, padding=k // 2, groups=groups)

            def gradients(x, dy):
                inputs = [t.requires_grad_() for t in (x, weight, bias)]
                return torch.autograd.grad(forward(*inputs), inputs, dy)

            image = lambda: tensor(b, c_in, hw, hw)
            dy = lambda: tensor(b, c_out, hw // stride, hw // stride)
            return rotating(
                f"{kind}_{'backward_' * backward}{name}_{shape}",
                (lambda: (image(), dy())) if backward else (lambda: (image(),)),
                gradients if backward else (lambda x: forward(x, weight, bias)),
                set_bytes=dtype.itemsize * b * hw * hw * (c_in + c_out),
                flops=3 * flops if backward else flops,
                **options,
            )

        yield case("f32", F32, torch.contiguous_format, on_cpu=True)
        yield case("f32", F32, torch.contiguous_format, on_cpu=True, backward=True)
        yield case("tf32", F32, torch.contiguous_format, context=tf32)
        yield case("bf16_nhwc", BF16, torch.channels_last)
    yield rotating(
        "maxpool2_f32_32x64x128x128",
        lambda: (randn(32, 64, 128, 128),),
        partial(F.max_pool2d, kernel_size=2),
        moved_bytes=5 * 32 * 64 * 128 * 128,
        on_cpu=True,
    )
    mean, variance, weight, bias = randn(64), randn(64).abs(), randn(64), randn(64)
    yield rotating(
        "batchnorm_eval_f32_32x64x32x32",
        lambda: (randn(32, 64, 32, 32),),
        lambda x: F.batch_norm(x, mean, variance, weight, bias),
        moved_bytes=8 * 32 * 64 * 32 * 32,
        on_cpu=True,
    )
