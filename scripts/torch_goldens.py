#!/usr/bin/env python3
"""Writes crates/tensor/tests/goldens/torch.txt: values and gradients of expressions, as PyTorch has them in float32.

Needs PyTorch; the CPU is enough:

    pip install --target target/torch torch numpy
    PYTHONPATH=target/torch python3 scripts/torch_goldens.py

Run it again only to add expressions; the file is part of the repository. Each expression here has its twin of the same
name in crates/tensor/tests/torch.rs, which draws the same inputs.

The file: `= name inputs`, then a line for the value and one for the gradient by each input of floats (none where there
is no gradient): the shape, the 2-norm, the sum of elements times weights drawn after the inputs, and the elements: all,
or of more than 63 those at i n / 48. Gradients are of the value's sum. Inputs are `kind:shape`: x is from -2 to 2, p
from 0.5 to 2.5, u from 0.05 to 0.95, s from -0.5 to 0.5, m a bool, and i with a number an integer below it.
"""

import math
import pathlib

import torch
import torch.nn.functional as F

RANGES = {"x": (-2.0, 2.0), "p": (0.5, 2.5), "u": (0.05, 0.95), "s": (-0.5, 0.5)}
SAMPLES = 48
INF = math.inf


class Draw:
    """Numbers in [0, 1) from a linear congruential generator, seeded by a name (FNV-1a)."""

    def __init__(self, name):
        self.state = 0xCBF29CE484222325
        for byte in name.encode():
            self.state = ((self.state ^ byte) * 0x100000001B3) % 2**64

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 11) * 2.0**-53

    def tensor(self, spec):
        kind, _, shape = spec.partition(":")
        shape = [int(n) for n in shape.split(",") if n]
        numbers = [self.next() for _ in range(math.prod(shape))]
        if kind == "m":
            return torch.tensor([n < 0.5 for n in numbers]).reshape(shape)
        if kind[0] == "i":
            return torch.tensor([int(n * int(kind[1:])) for n in numbers]).reshape(shape)
        low, high = RANGES[kind]
        wide = torch.tensor([low + (high - low) * n for n in numbers], dtype=torch.float64)
        return wide.float().reshape(shape).requires_grad_()


def grad(loss, *wrt):
    """Gradients that have gradients."""
    return torch.autograd.grad(loss, wrt, create_graph=True)


def heads(x, n):
    batch, length, width = x.shape
    return x.reshape(batch, length, n, width // n).permute(0, 2, 1, 3)


def joined(x):
    batch, n, length, width = x.shape
    return x.permute(0, 2, 1, 3).reshape(batch, length, n * width)


def block(x, g1, b1, qkv, out, g2, b2, up, ub, down, db):
    q, k, v = (heads(t, 2) for t in F.linear(F.layer_norm(x, (8,), g1, b1), qkv).split(8, -1))
    x = x + F.linear(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)), out)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (8,), g2, b2), up, ub), approximate="tanh"), down, db)


def llama(x, g1, q, k, v, out, g2, gate, up, down):
    h = F.rms_norm(x, (8,), g1, 1e-6)
    h = F.scaled_dot_product_attention(*(heads(F.linear(h, w), 2) for w in (q, k, v)), is_causal=True)
    x = x + F.linear(joined(h), out)
    h = F.rms_norm(x, (8,), g2, 1e-6)
    return x + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)


def cnn(x, w1, b1, w2, b2, w3):
    x = F.max_pool2d(F.conv2d(x, w1, b1, padding=1).relu(), 2)
    x = F.avg_pool2d(F.conv2d(x, w2, b2).relu(), 2)
    return F.linear(x.flatten(1), w3).log_softmax(-1)


def seen(queries, keys):
    """Which keys a query sees, counted from the end."""
    return torch.ones(queries, keys).tril(keys - queries).bool()


EXPRESSIONS = [
    # Chains element by element, and broadcasting.
    ("chain_exp_sin", "x:4,5", lambda x: (x.sin() * x.exp() + 1).square()),
    ("chain_log_sqrt", "p:4,5", lambda x: x.log() * x.sqrt() + x.rsqrt()),
    ("chain_trigonometric", "u:4,5", lambda x: x.tan() + x.asin() * x.acos() - x.atan() * x.cos()),
    ("chain_hyperbolic", "x:4,5", lambda x: x.sinh() / x.cosh() + x.tanh() * x.asinh()),
    ("chain_inverse_hyperbolic", "u:4,5", lambda x: x.atanh() + (x + 1.1).acosh()),
    ("chain_logs", "p:4,5", lambda x: x.log2() * x.log10() + x.log1p()),
    ("chain_exps", "s:4,5", lambda x: x.exp2() + x.expm1() / (x + 2)),
    ("chain_erf", "x:4,5", lambda x: x.erf() + x.erfc() * x),
    ("chain_abs_sign", "x:4,5", lambda x: x.abs() * x + x.sign() * x.square()),
    ("chain_rounding", "x:4,5", lambda x: x.floor() * x + x.ceil() * x.square() - x.trunc() * x),
    ("pow_numbers", "p:4,5", lambda x: x**2 + x**0.5 + x**3 + x**-1.5),
    ("pow_tensors", "p:4,5 x:4,5", lambda x, y: x**y),
    ("hypot_atan2", "x:4,5 x:4,5", lambda x, y: torch.hypot(x, y) * torch.atan2(x, y)),
    ("minimum_maximum", "x:4,5 x:4,5", lambda x, y: torch.minimum(x, y) * torch.maximum(x, y * 2)),
    ("fmin_fmax", "x:4,5 x:4,5", lambda x, y: torch.fmin(x, y).exp() + torch.fmax(x, y).sin()),
    ("fmod", "x:4,5 p:4,5", lambda x, y: torch.fmod(x * 3, y)),
    ("copysign", "p:4,5 x:4,5", lambda x, y: torch.copysign(x, y) * x),
    ("clamp_numbers", "x:4,5", lambda x: x.clamp(-0.7, 1.1) * x),
    ("clamp_tensors", "x:4,5 s:5 p:4,1", lambda x, low, high: (x * 2).clamp(low, high).exp()),
    ("reciprocal_neg", "p:4,5", lambda x: -x.reciprocal() + 2 / x - (3 - x)),
    ("shared_subexpression", "x:4,5", lambda x: (lambda y: y * y + y / (y.abs() + 1))(x.tanh() + x)),
    ("broadcast_rows", "x:4,5 x:5", lambda x, y: x * y + y),
    ("broadcast_columns", "x:4,5 p:4,1", lambda x, y: x / y - y),
    ("broadcast_outer", "x:4,1 x:5", lambda x, y: (x + y).sin()),
    ("broadcast_scalar", "x:3,4 p:", lambda x, y: x / y + y),
    ("broadcast_ranks", "x:2,1,3 x:4,1 x:1", lambda x, y, z: x * y * z + x),
    ("expand", "x:3,1", lambda x: x.expand(2, 3, 4).exp() * torch.arange(4.0)),
    # Activations.
    ("relu", "x:4,6", lambda x: x.relu() * x),
    ("relu6", "x:4,6", lambda x: F.relu6(x * 5)),
    ("leaky_relu", "x:4,6", lambda x: F.leaky_relu(x, 0.1)),
    ("elu", "x:4,6", lambda x: F.elu(x, 1.3)),
    ("selu", "x:4,6", F.selu),
    ("sigmoid", "x:4,6", lambda x: (x * 3).sigmoid()),
    ("log_sigmoid", "x:4,6", lambda x: F.logsigmoid(x * 3)),
    ("tanh", "x:4,6", torch.tanh),
    ("softplus", "x:4,6", lambda x: F.softplus(x * 3)),
    ("silu", "x:4,6", F.silu),
    ("gelu_tanh", "x:4,6", lambda x: F.gelu(x, approximate="tanh")),
    ("gelu_erf", "x:4,6", F.gelu),
    ("mish", "x:4,6", F.mish),
    ("softsign", "x:4,6", F.softsign),
    ("hardtanh", "x:4,6", F.hardtanh),
    ("hardsigmoid", "x:4,6", lambda x: F.hardsigmoid(x * 2)),
    ("hardswish", "x:4,6", lambda x: F.hardswish(x * 2)),
    # Reductions.
    ("sum_all", "x:3,4,5", lambda x: x.square().sum()),
    ("sum_axes", "x:3,4,5", lambda x: x.exp().sum((0, 2))),
    ("sum_large", "x:300,40", lambda x: x.sin().sum(0)),
    ("mean_axis", "x:3,4,5", lambda x: (x * x).mean(1)),
    ("mean_centred", "x:3,4,5", lambda x: (x - x.mean(-1, keepdim=True)) * x),
    ("var_sample", "x:3,4,5", lambda x: x.var(-1, correction=1)),
    ("var_whole", "x:3,4,5", lambda x: x.var((0, 2), correction=0)),
    ("std_sample", "x:3,4,5", lambda x: x.std(1, correction=1)),
    ("standardised", "x:6,5", lambda x: (x - x.mean(0, keepdim=True)) / x.std(0, correction=1, keepdim=True)),
    ("prod_axis", "x:3,4", lambda x: x.prod(1)),
    ("prod_all", "p:2,3", lambda x: x.prod()),
    ("max_axis", "x:4,6", lambda x: x.amax(1) * x.amax(0).sum()),
    ("min_axes", "x:3,4,5", lambda x: x.amin((0, 1))),
    ("max_minus_min", "x:4,6", lambda x: (x.max() - x.min()) * x.amax(-1, keepdim=True)),
    ("logsumexp_axis", "x:4,6", lambda x: (x * 4).logsumexp(1)),
    ("logsumexp_axes", "x:3,4,5", lambda x: x.logsumexp((0, 2))),
    ("norm_1", "x:4,6", lambda x: x.norm(1, 1)),
    ("norm_2", "x:4,6", lambda x: x.norm(2, 0)),
    ("norm_3", "x:4,6", lambda x: x.norm(3, 1)),
    ("norm_infinity", "x:4,6", lambda x: torch.linalg.vector_norm(x, INF, 1)),
    ("norm_all", "x:4,6", lambda x: x / x.norm()),
    ("argmax_argmin", "x:5,7", lambda x: x.argmax(1) * 10 + x.argmin(1)),
    ("any_all", "m:5,3 m:5,3", lambda a, b: a.any(1).int() * 2 + (a | b).all(1).int()),
    # Products.
    ("matmul", "x:7,9 x:9,8", torch.matmul),
    ("matmul_chain", "x:4,5 x:5,6 x:6,3", lambda a, b, c: (a @ b).tanh() @ c),
    ("matmul_batch", "x:3,4,5 x:3,5,2", torch.matmul),
    ("matmul_broadcast", "x:2,1,3,4 x:5,4,2", torch.matmul),
    ("matmul_transposed", "x:6,4 x:5,4", lambda a, b: a @ b.T),
    ("matmul_gram", "x:6,4", lambda a: a.T @ a),
    ("matmul_large", "x:48,70 x:70,40", torch.matmul),
    ("quadratic_form", "x:5,1 x:5,5", lambda x, a: x.T @ a @ x),
    ("einsum_matmul", "x:4,5 x:5,6", lambda a, b: torch.einsum("ij,jk->ik", a, b)),
    ("einsum_batch", "x:2,3,4 x:2,5,4", lambda a, b: torch.einsum("bik,bjk->bij", a, b)),
    ("einsum_bilinear", "x:3,4 x:5,4,6 x:3,6", lambda a, w, b: torch.einsum("bi,oij,bj->bo", a, w, b)),
    ("einsum_outer", "x:4 x:5", lambda a, b: torch.einsum("i,j->ji", a, b)),
    ("einsum_sum", "x:3,4,5", lambda a: torch.einsum("ijk->kj", a)),
    ("einsum_heads", "x:2,3,2,4 x:2,5,2,4", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k)),
    ("linear", "x:2,3,5 x:4,5 x:4", F.linear),
    ("linear_without_bias", "x:3,5 x:4,5", F.linear),
    ("linear_gelu", "x:3,5 x:4,5 x:4", lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")),
    # What layers are made of.
    ("softmax", "x:4,6", lambda x: x.softmax(-1)),
    ("softmax_first_axis", "x:4,6", lambda x: (x * 5).softmax(0)),
    ("log_softmax", "x:4,6", lambda x: (x * 5).log_softmax(-1)),
    ("entropy", "x:4,6", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)),
    ("layer_norm", "x:3,8 x:8 x:8", lambda x, w, b: F.layer_norm(x, (8,), w, b)),
    ("layer_norm_two_axes", "x:2,3,4 x:3,4 x:3,4", lambda x, w, b: F.layer_norm(x, (3, 4), w, b)),
    ("rms_norm", "x:3,8 x:8", lambda x, w: F.rms_norm(x, (8,), w, 1e-6)),
    ("batch_norm", "x:2,3,4 x:3 x:3 x:3 p:3", lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach(), w, b)),
    ("attention", "x:2,4,8 x:2,6,8 x:2,6,3", F.scaled_dot_product_attention),
    ("attention_scale", "x:2,4,8 x:2,6,8 x:2,6,8", lambda *t: F.scaled_dot_product_attention(*t, scale=0.2)),
    ("attention_causal", "x:2,5,4 x:2,5,4 x:2,5,4", lambda *t: F.scaled_dot_product_attention(*t, is_causal=True)),
    ("attention_causal_cache", "x:3,4 x:7,4 x:7,5",
     lambda *t: F.scaled_dot_product_attention(*t, attn_mask=seen(3, 7))),
    ("attention_bool_mask", "x:2,2,4,6 x:2,2,5,6 x:2,2,5,6 m:4,5",
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m | seen(4, 5))),
    ("attention_added_mask", "x:2,4,6 x:2,5,6 x:2,5,6 x:4,5",
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)),
    ("attention_self_heads", "x:2,5,8", lambda x: joined(F.scaled_dot_product_attention(*[heads(x, 2)] * 3))),
    # Losses.
    ("cross_entropy_classes", "x:6,5 i5:6", F.cross_entropy),
    ("cross_entropy_sequence", "x:2,3,5 i5:2,3", lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten())),
    ("cross_entropy_probabilities", "x:6,5 x:6,5", lambda x, t: F.cross_entropy(x, t.softmax(-1))),
    ("nll", "x:6,5 i5:6", lambda x, t: F.nll_loss(x.log_softmax(-1), t)),
    ("mse", "x:6,5 x:6,5", F.mse_loss),
    ("l1", "x:6,5 x:6,5", F.l1_loss),
    ("huber", "x:6,5 x:6,5", lambda x, t: F.huber_loss(x, t, delta=0.8)),
    ("bce", "u:6,5 u:6,5", F.binary_cross_entropy),
    ("bce_with_logits", "x:6,5 u:6,5", lambda x, t: F.binary_cross_entropy_with_logits(x * 4, t)),
    ("kl_div", "x:6,5 x:6,5", lambda x, t: F.kl_div(x.log_softmax(-1), t.softmax(-1), reduction="batchmean")),
    ("cross_entropy_smoothed", "x:6,5 i5:6", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.2)),
    ("cross_entropy_ignored", "x:9,4 i4:9", lambda x, t: F.cross_entropy(x, t, ignore_index=2)),
    ("cross_entropy_weighted", "x:7,4 i4:7 p:4", lambda x, t, w: F.cross_entropy(x, t, w.detach())),
    ("cross_entropy_all_options", "x:9,4 i4:9 p:4",
     lambda x, t, w: F.cross_entropy(x, t, w.detach(), ignore_index=1, label_smoothing=0.3)),
    ("cross_entropy_all_options_sum", "x:9,4 i4:9 p:4",
     lambda x, t, w: F.cross_entropy(x, t, w.detach(), ignore_index=1, label_smoothing=0.3, reduction="sum")),
    ("cross_entropy_all_options_none", "x:9,4 i4:9 p:4",
     lambda x, t, w: F.cross_entropy(x, t, w.detach(), ignore_index=1, label_smoothing=0.3, reduction="none")),
    ("cross_entropy_none", "x:6,5 i5:6", lambda x, t: F.cross_entropy(x, t, reduction="none")),
    ("cross_entropy_sum_ignored", "x:9,4 i4:9", lambda x, t: F.cross_entropy(x, t, ignore_index=0, reduction="sum")),
    ("cross_entropy_probabilities_options", "x:6,5 x:6,5 p:5",
     lambda x, t, w: F.cross_entropy(x, t.softmax(-1), w.detach(), label_smoothing=0.1)),
    ("nll_options", "x:9,4 i4:9 p:4",
     lambda x, t, w: F.nll_loss(x.log_softmax(-1), t, w.detach(), ignore_index=3)),
    ("nll_none", "x:6,5 i5:6", lambda x, t: F.nll_loss(x.log_softmax(-1), t, reduction="none")),
    ("mse_none", "x:6,5 x:6,5", lambda x, t: F.mse_loss(x, t, reduction="none")),
    ("l1_sum", "x:6,5 x:6,5", lambda x, t: F.l1_loss(x, t, reduction="sum")),
    ("huber_none", "x:6,5 x:6,5", lambda x, t: F.huber_loss(x, t, delta=1.2, reduction="none")),
    ("smooth_l1", "x:6,5 x:6,5", lambda x, t: F.smooth_l1_loss(x, t, beta=0.7)),
    ("smooth_l1_beta_0", "x:6,5 x:6,5", lambda x, t: F.smooth_l1_loss(x, t, beta=0.0, reduction="sum")),
    ("bce_none", "u:6,5 u:6,5", lambda x, t: F.binary_cross_entropy(x, t, reduction="none")),
    ("bce_with_logits_pos_weight", "x:6,5 u:6,5 p:5",
     lambda x, t, w: F.binary_cross_entropy_with_logits(x * 4, t, pos_weight=w.detach())),
    ("bce_with_logits_sum", "x:6,5 u:6,5", lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum")),
    ("kl_div_none", "x:6,5 x:6,5", lambda x, t: F.kl_div(x.log_softmax(-1), t.softmax(-1), reduction="none")),
    ("kl_div_sum", "x:6,5 x:6,5", lambda x, t: F.kl_div(x.log_softmax(-1), t.softmax(-1), reduction="sum")),
    # Images.
    ("conv1d", "x:2,3,9 x:4,3,3 x:4", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1)),
    ("conv1d_groups", "x:2,4,9 x:6,2,3", lambda x, w: F.conv1d(x, w, dilation=2, groups=2)),
    ("conv_transpose2d", "x:2,3,4,5 x:3,4,3,3", F.conv_transpose2d),
    ("conv_transpose2d_stride", "x:2,3,4,5 x:3,2,4,4 x:2",
     lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1)),
    ("conv_transpose2d_options", "x:1,4,3,4 x:4,3,3,2 x:6",
     lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 2), (1, 2), 2, (3, 2))),
    ("conv_transpose2d_depthwise", "x:1,3,4,4 x:3,1,2,2", lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=3)),
    ("adaptive_avg_pool2d", "x:2,2,6,8", lambda x: F.adaptive_avg_pool2d(x.exp(), (3, 2))),
    ("adaptive_avg_pool2d_uneven", "x:2,2,7,5", lambda x: F.adaptive_avg_pool2d(x.exp(), (3, 7))),
    ("adaptive_max_pool2d", "x:2,2,6,8", lambda x: F.adaptive_max_pool2d(x, (2, 4))),
    ("adaptive_max_pool2d_uneven", "x:2,2,7,5", lambda x: F.adaptive_max_pool2d(x, (4, 3))),
    ("global_avg_pool", "x:2,3,4,5", lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1).exp()),
    ("global_max_pool", "x:2,3,4,5", lambda x: F.adaptive_max_pool2d(x, 1).flatten(1).exp()),
    ("group_norm", "x:2,6,3,4 p:6 x:6", lambda x, w, b: F.group_norm(x, 3, w, b)),
    ("group_norm_plain", "x:3,4,5", lambda x: F.group_norm(x, 2).exp()),
    ("instance_norm", "x:2,3,4,4 p:3 x:3", lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
    ("upsample_nearest", "x:2,2,3,4", lambda x: F.interpolate(x, (6, 12)).exp()),
    ("upsample_nearest_uneven", "x:2,2,5,4", lambda x: F.interpolate(x, (7, 3)).exp()),
    ("upsample_bilinear", "x:2,2,3,4", lambda x: F.interpolate(x, (6, 9), mode="bilinear")),
    ("upsample_bilinear_smaller", "x:2,2,7,5", lambda x: F.interpolate(x, (3, 4), mode="bilinear")),
    ("upsample_bilinear_corners", "x:2,2,3,4", lambda x: F.interpolate(x, (7, 9), mode="bilinear", align_corners=True)),
    ("upsample_bilinear_corner", "x:1,2,3,4", lambda x: F.interpolate(x, (1, 2), mode="bilinear", align_corners=True)),
    ("conv2d", "x:2,3,6,7 x:4,3,3,3", F.conv2d),
    ("conv2d_bias_padding", "x:2,2,5,5 x:3,2,3,3 x:3", lambda x, w, b: F.conv2d(x, w, b, padding=1)),
    ("conv2d_stride", "x:1,2,7,8 x:3,2,3,2", lambda x, w: F.conv2d(x, w, stride=(2, 3))),
    ("conv2d_dilation", "x:1,2,8,8 x:2,2,3,3", lambda x, w: F.conv2d(x, w, dilation=(2, 1), padding=(1, 2))),
    ("conv2d_groups", "x:2,4,5,5 x:6,2,3,3", lambda x, w: F.conv2d(x, w, groups=2)),
    ("conv2d_depthwise", "x:1,3,5,5 x:3,1,3,3", lambda x, w: F.conv2d(x, w, groups=3, padding=1)),
    ("max_pool2d", "x:2,2,6,6", lambda x: F.max_pool2d(x, 2)),
    ("max_pool2d_overlapping", "x:1,2,7,7", lambda x: F.max_pool2d(x, (3, 2), (2, 1))),
    ("avg_pool2d", "x:2,2,6,6", lambda x: F.avg_pool2d(x.square(), 2)),
    ("avg_pool2d_overlapping", "x:1,2,7,7", lambda x: F.avg_pool2d(x.exp(), (3, 2), (2, 1))),
    ("max_pool2d_padded", "x:2,2,6,7", lambda x: F.max_pool2d(x - 3, (3, 2), 2, (1, 1))),
    ("avg_pool2d_padded", "x:2,2,6,7", lambda x: F.avg_pool2d(x.exp(), 3, 2, 1)),
    # Choosing elements.
    ("embedding", "x:7,4 i7:3,5", lambda w, i: F.embedding(i, w).tanh()),
    ("gather", "x:4,6 i6:4,3", lambda x, i: x.gather(1, i).exp()),
    ("gather_first_axis", "x:5,3 i5:4,3", lambda x, i: x.gather(0, i) * x.sum(0)),
    ("scatter_add", "x:5,3 i5:8,3 x:8,3", lambda x, i, v: x.scatter_add(0, i, v.sin())),
    ("scatter_add_last_axis", "x:3,5 i5:3,7 x:3,7", lambda x, i, v: x.square().scatter_add(1, i, v)),
    ("index_select", "x:4,6 i6:8", lambda x, i: x.index_select(1, i).square()),
    ("one_hot", "i6:5 x:6,3", lambda i, w: F.one_hot(i, 6).float() @ w),
    ("cumsum", "x:4,6", lambda x: x.square().cumsum(1)),
    ("cumsum_first_axis", "x:4,6", lambda x: x.cumsum(0).tanh()),
    ("sort", "x:4,6", lambda x: x.sort(1)[0] * torch.arange(6.0)),
    ("sort_descending", "x:6,4", lambda x: x.sort(0, descending=True)[0].exp().cumsum(0)),
    ("argsort", "x:4,6", lambda x: x.argsort(1)),
    ("topk", "x:4,6", lambda x: x.topk(3)[0].softmax(-1)),
    ("where", "m:4,5 x:4,5 x:5", lambda m, x, y: torch.where(m, x.exp(), y * 2)),
    ("where_compared", "x:4,5 x:4,5", lambda x, y: torch.where(x > y, x * y, y.square())),
    ("masked_fill", "x:4,5 m:5", lambda x, m: x.masked_fill(m, 0.5).square()),
    ("masked_softmax", "x:4,6 m:4,1", lambda x, m: x.masked_fill(m & (torch.arange(6) > 2), -INF).softmax(-1)),
    ("pad", "x:3,4", lambda x: F.pad(x, (1, 2, 0, 1), value=0.5).exp()),
    ("concat", "x:2,3 x:4,3 x:1,3", lambda *t: torch.cat(t, 0).cumsum(0)),
    ("concat_last_axis", "x:3,2 x:3,4", lambda a, b: torch.cat([a, b.exp(), a], 1).softmax(-1)),
    ("stack", "x:3,4 x:3,4", lambda a, b: torch.stack([a, b, a * b], 1).square()),
    ("split", "x:3,7", lambda x: (lambda a, b, c: a * b + c)(*x.split(3, 1))),
    ("slice", "x:5,6", lambda x: x[1:-1, 2:5].exp()),
    ("slice_steps", "x:7,9", lambda x: x[::2, 1::3] * x[1:5, 6:9]),
    ("slice_differences", "x:4,8", lambda x: (x[:, 1:] - x[:, :-1]).square().mean(-1)),
    ("flip", "x:4,5", lambda x: x * x.flip(1) + x.flip(0).exp()),
    ("tril", "x:5,5", lambda x: x.tril(-1) @ x),
    ("triu", "x:4,6", lambda x: x.triu(1).exp()),
    ("repeat", "x:2,3", lambda x: x.repeat(2, 3, 2).cumsum(-1)),
    # Shapes.
    ("reshape_permute", "x:2,3,4", lambda x: x.permute(2, 0, 1).reshape(4, 6).cumsum(0)),
    ("transpose", "x:2,3,4", lambda x: x.transpose(0, 2) * torch.arange(3.0).reshape(3, 1)),
    ("movedim", "x:2,3,4", lambda x: x.movedim(0, 2).softmax(-1)),
    ("squeeze_unsqueeze", "x:3,1,4", lambda x: x.squeeze(1).unsqueeze(0) * x),
    ("flatten", "x:2,3,4", lambda x: x.flatten(1, 2).logsumexp(-1)),
    # Gradients of gradients.
    ("second_tanh", "x:4,5", lambda x: grad(x.tanh().sum(), x)[0]),
    ("second_softmax", "x:4,5", lambda x: grad(x.softmax(-1).square().sum(), x)[0]),
    ("second_layer_norm", "x:3,8 p:8 x:8", lambda x, w, b: grad(F.layer_norm(x, (8,), w, b).square().sum(), x)[0]),
    ("gradient_penalty", "x:3,5 s:6,5 s:6 s:1,6",
     lambda x, w, b, v: (grad(F.linear(F.silu(F.linear(x, w, b)), v).sum(), x)[0].norm(2, 1) - 1).square().mean()),
    # Models.
    ("mlp", "x:6,5 s:8,5 s:8 s:4,8 s:4", lambda x, w, b, v, c: F.linear(F.linear(x, w, b).relu(), v, c)),
    ("mlp_loss", "x:6,5 s:8,5 s:8 s:4,8 s:4 i4:6",
     lambda x, w, b, v, c, t: F.cross_entropy(F.linear(F.gelu(F.linear(x, w, b)), v, c), t)),
    ("autoencoder", "u:6,8 x:3,8 x:8,3",
     lambda x, w, v: F.binary_cross_entropy_with_logits(F.linear(F.linear(x, w).tanh(), v), x)),
    ("recurrent", "x:3,4,5 s:6,5 s:6,6",
     lambda x, w, u: (lambda s: s(s(s(s(torch.zeros(3, 6), 0), 1), 2), 3))(
         lambda h, n: (F.linear(x[:, n], w) + F.linear(h, u)).tanh())),
    ("cnn", "x:2,1,10,10 x:3,1,3,3 x:3 s:4,3,2,2 s:4 s:5,16", cnn),
    ("transformer_block", "x:2,5,8 p:8 s:8 s:24,8 s:8,8 p:8 s:8 s:16,8 s:16 s:8,16 s:8", block),
    ("transformer_loss", "s:7,8 i7:2,5 p:8 s:8 s:24,8 s:8,8 p:8 s:8 s:16,8 s:16 s:8,16 s:8 i7:2,5",
     lambda e, i, *rest: F.cross_entropy(F.linear(block(F.embedding(i, e), *rest[:-1]), e).flatten(0, 1),
                                         rest[-1].flatten())),
    ("llama_block", "x:2,5,8 p:8 s:8,8 s:8,8 s:8,8 s:8,8 p:8 s:12,8 s:12,8 s:8,12", llama),
    ("contrastive_loss", "x:5,8 x:5,8",
     lambda a, b: F.cross_entropy(F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T * 5, torch.arange(5))),
]


def line(tensor, weights):
    """The shape, the norm, the weighted sum and samples of a tensor; the last as few digits as name a float32."""
    flat = tensor.detach().float().contiguous().flatten().tolist()
    assert all(map(math.isfinite, flat))
    norm = math.sqrt(math.fsum(v * v for v in flat))
    dot = math.fsum(v * w for v, w in zip(flat, weights))
    picked = flat if len(flat) < 64 else [flat[i * len(flat) // SAMPLES] for i in range(SAMPLES)]
    shape = ",".join(map(str, tensor.shape))
    return f"[{shape}] {norm:.9g} {dot:.9g} " + " ".join(f"{v:.9g}" for v in picked)


def main():
    lines = []
    for name, specs, expression in EXPRESSIONS:
        draw = Draw(name)
        inputs = [draw.tensor(spec) for spec in specs.split()]
        value = expression(*inputs)
        floats = [t for t in inputs if t.is_floating_point()]
        most = max(t.numel() for t in [value, *floats])
        weights = [2 * draw.next() - 1 for _ in range(most)]
        lines += [f"= {name} {specs}", line(value, weights)]
        if value.requires_grad:
            loss = (value * torch.tensor(weights[: value.numel()]).reshape(value.shape)).sum()
            gradients = torch.autograd.grad(loss, floats, allow_unused=True)
            lines += [line(torch.zeros_like(x) if g is None else g, weights) for x, g in zip(floats, gradients)]
    path = pathlib.Path(__file__).parent.parent / "crates/tensor/tests/goldens/torch.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(EXPRESSIONS)} expressions, {path.stat().st_size} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
