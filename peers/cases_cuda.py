"""Attention, loss and optimiser at a GPT's sizes: cases for torch_ops.py that need a large GPU."""

from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import BF16, F32, SHORT, Case, rotating


def attention(randn):
    """Scaled dot-product attention, forward and backward, by each of PyTorch's kernels."""
    shapes = (
        (4, 8, 512, 64, F32, False),
        (64, 12, 1024, 64, BF16, True),
        (16, 16, 2048, 128, BF16, True),
        (4, 16, 8192, 128, BF16, True),
    )
    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "effic": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }
    for b, h, t, d, dtype, causal in shapes:
        flops = 4 * b * h * t * t * d * (0.5 if causal else 1)
        make = lambda dims=(b, h, t, d), dtype=dtype: [randn(*dims, dtype=dtype) for _ in "qkv"]
        attend = partial(F.scaled_dot_product_attention, is_causal=causal)

        def backward(timer, make=make, attend=attend):
            qkv = [x.requires_grad_() for x in make()]
            out = attend(*qkv)
            grad = torch.randn_like(out)
            return lambda _: torch.autograd.grad(out, qkv, grad, retain_graph=True)

        for name, backend in backends.items():
            if name == "math" and t > 1024:
                continue  # its score matrix alone would fill the card
            context = partial(sdpa_kernel, backend)
            suffix = f"{SHORT[dtype]}{'_causal' if causal else ''}"
            yield rotating(
                f"sdpa_{name}_fwd_{b}x{h}x{t}x{d}_{suffix}",
                make,
                attend,
                flops=flops,
                set_bytes=4 * dtype.itemsize * b * h * t * d,
                context=context,
            )
            yield Case(
                f"sdpa_{name}_bwd_{b}x{h}x{t}x{d}",
                backward,
                flops=2.5 * flops,
                graph_calls=0,
                context=context,
            )


def loss_and_optimiser(randn):
    """The two large memory-bound parts of a GPT-2 step beside its layers."""
    tokens, parameters = 65536, 124_000_000

    def cross_entropy(timer, vocabulary):
        logits = randn(tokens, vocabulary, dtype=BF16).requires_grad_()
        targets = torch.randint(0, 50257, (tokens,), device=logits.device)
        # For these sizes, also if others were compiled before.
        loss = torch.compile(lambda x, t: F.cross_entropy(x.float(), t), dynamic=False)

        def step(_):
            logits.grad = None
            loss(logits, targets).backward()

        return step

    def adamw(timer):
        param = torch.nn.Parameter(randn(parameters))
        param.grad = randn(parameters)
        optimiser = torch.optim.AdamW([param], fused=True)
        return lambda _: optimiser.step()

    for vocabulary in (50304, 50257):
        yield Case(
            f"cross_entropy_fwd_bwd_compiled_{tokens}x{vocabulary}_bf16",
            partial(cross_entropy, vocabulary=vocabulary),
            moved_bytes=4 * tokens * vocabulary,
            graph_calls=0,
        )
    yield Case("adamw_fused_124M_f32", adamw, moved_bytes=28 * parameters, graph_calls=0)
