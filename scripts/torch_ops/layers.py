"""Products, layers, losses."""

import torch

from .signature import FLOATS, NUMBERS, OPS, dtype_name, inexpressible, one_axis, ours, same

# Products.

@ours("matmul mm bmm", NUMBERS)
def _(x, y):
    inexpressible(min(x.ndim, y.ndim) < 2, "fewer than two axes")
    return same("matmul", x, y)


OPS["__rmatmul__"] = NUMBERS, lambda x, y: OPS["matmul"][1](y, x)


@ours("einsum", NUMBERS)
def _(tensors, equation):
    inexpressible("." in equation, "an ellipsis")
    lengths = {}
    for letters, x in zip(equation.replace(" ", "").split("->")[0].split(","), tensors):
        inexpressible(len(set(letters)) < len(letters), "a diagonal")
        for letter, length in zip(letters, x.shape):
            inexpressible(lengths.setdefault(letter, length) != length, "a letter that broadcasts")
    return "einsum", list(tensors), {"equation": equation}


@ours("nn.functional.linear", NUMBERS)
def _(x, weight, bias=None):
    inexpressible(weight.ndim < 2, "a weight of one axis")
    return "linear", [x, weight] + ([] if bias is None else [bias]), {}


# Layers.

for row in ("softmax", "log_softmax"):
    def normalised(x, dim, dtype=None, row=row):
        return row, [x], {"axis": one_axis(x, dim), "dtype": dtype_name(dtype)}
    OPS[row] = OPS[f"{row}/with_dtype"] = FLOATS, normalised


@ours("nn.functional.layer_norm", FLOATS)
def _(x, shape, weight=None, bias=None, eps=1e-5):
    inexpressible(weight is None or bias is None, "no weight or no bias")
    return "layer_norm", [x, weight, bias], {"eps": eps}


@ours("nn.functional.rms_norm", FLOATS)
def _(x, shape, weight=None, eps=None):
    inexpressible(weight is None, "no weight or no bias")
    return "rms_norm", [x, weight], {"eps": torch.finfo(x.dtype).eps if eps is None else eps}


@ours("nn.functional.batch_norm", FLOATS)
def _(x, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    inexpressible(training, "batch statistics, in training")
    inexpressible(weight is None or bias is None, "no weight or no bias")
    return "batch_norm", [x, weight, bias, mean, variance], {"eps": eps}


@ours("nn.functional.scaled_dot_product_attention", FLOATS)
def _(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    inexpressible(dropout_p > 0, "dropout")
    inexpressible(enable_gqa, "heads that share keys")
    inexpressible(is_causal and q.shape[-2] != k.shape[-2], "causal with more keys than queries")
    mask = [] if attn_mask is None else [attn_mask]
    return "attention", [q, k, v, *mask], {"scale": scale, "causal": is_causal}


def pair(value):
    value = [value] if isinstance(value, int) else list(value)
    return value * 2 if len(value) == 1 else value


@ours("nn.functional.conv2d", FLOATS)
def _(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    inexpressible(x.ndim != 4, "an image without a batch")
    dilation = pair(dilation)
    if padding == "same":
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        inexpressible(any(r % 2 for r in reach), "padding of one side only")
        padding = [r // 2 for r in reach]
    padding = pair(0 if padding == "valid" else padding)
    args = {"stride": pair(stride), "padding": padding, "dilation": dilation, "groups": groups}
    return "conv2d", [x, weight] + ([] if bias is None else [bias]), args


@ours("nn.functional.conv1d", FLOATS)
def _(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    inexpressible(x.ndim != 3, "an image without a batch")
    single = lambda value: value if isinstance(value, int) else value[0]
    if padding == "same":
        reach = single(dilation) * (weight.shape[2] - 1)
        inexpressible(reach % 2, "padding of one side only")
        padding = reach // 2
    padding = 0 if padding == "valid" else single(padding)
    args = {"stride": single(stride), "padding": padding, "dilation": single(dilation), "groups": groups}
    return "conv1d", [x, weight] + ([] if bias is None else [bias]), args


@ours("nn.functional.conv_transpose2d", FLOATS)
def _(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    inexpressible(x.ndim != 4, "an image without a batch")
    args = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    args = {name: pair(value) for name, value in args.items()} | {"groups": groups}
    return "conv_transpose2d", [x, weight] + ([] if bias is None else [bias]), args


@ours("nn.functional.max_pool2d", FLOATS)
def _(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    inexpressible(x.ndim != 4, "an image without a batch")
    inexpressible(pair(dilation) != [1, 1] or ceil_mode, "dilation or rounding up")
    inexpressible(return_indices, "where the largest were")
    args = {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size), "padding": pair(padding)}
    return "max_pool2d", [x], args


@ours("nn.functional.avg_pool2d", FLOATS)
def _(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    inexpressible(x.ndim != 4, "an image without a batch")
    inexpressible(ceil_mode, "dilation or rounding up")
    inexpressible(pair(padding) != [0, 0] and not count_include_pad, "padding that does not count")
    inexpressible(divisor_override is not None, "another divisor")
    args = {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size), "padding": pair(padding)}
    return "avg_pool2d", [x], args


for row in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
    def adaptive(x, output_size, return_indices=False, row=row):
        inexpressible(x.ndim != 4, "an image without a batch")
        inexpressible(return_indices, "where the largest were")
        size = pair(output_size) if isinstance(output_size, int) else list(output_size)
        inexpressible(None in size, "a size that stays")
        inexpressible(0 in size, "an empty size")
        return row, [x], {"size": size}
    OPS[f"nn.functional.{row}"] = FLOATS, adaptive


@ours("nn.functional.group_norm", FLOATS)
def _(x, num_groups, weight=None, bias=None, eps=1e-5):
    inexpressible(weight is None and bias is not None, "no weight or no bias")
    inexpressible(x.numel() == 0, "an empty image")
    parameters = [p for p in (weight, bias) if p is not None]
    return "group_norm", [x, *parameters], {"groups": num_groups, "eps": eps}


def resized(x, size=None, scale_factor=None, mode="nearest", align_corners=None, **rest):
    inexpressible(x.ndim != 4, "other images than of two axes with a batch")
    inexpressible(size is None, "a scale instead of a size")
    inexpressible(mode not in ("nearest", "bilinear") or rest.get("antialias"), "another interpolation")
    return "upsample", [x], {"size": pair(size), "mode": mode, "align_corners": bool(align_corners)}


for mode in ("nearest", "bilinear"):
    OPS[f"nn.functional.interpolate/{mode}"] = FLOATS, resized
    OPS[f"nn.functional.upsample_{mode}"] = FLOATS, lambda x, size=None, scale_factor=None, mode=mode: resized(
        x, size, scale_factor, mode, mode == "bilinear")


# Losses.

def unweighted(weight):
    inexpressible(weight is not None, "weights of classes or elements")


def classes(x, target, ignore_index, reduction):
    narrow = x.dtype in (torch.bfloat16, torch.float16)
    inexpressible(narrow and reduction != "mean", "a sum that PyTorch rounds to 16 bits at every step")
    ignored = not target.dtype.is_floating_point and bool((target == ignore_index).any())
    return {"ignore_index": ignore_index if ignored else None, "reduction": reduction}


@ours("nn.functional.cross_entropy", FLOATS)
def _(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    unweighted(weight)
    args = classes(x, target, ignore_index, reduction)
    inexpressible(target.dtype.is_floating_point and x.ndim != target.ndim, "a target of another shape")
    return "cross_entropy", [x, target], args | {"label_smoothing": label_smoothing}


@ours("nn.functional.nll_loss", FLOATS)
def _(x, target, weight=None, ignore_index=-100, reduction="mean"):
    unweighted(weight)
    narrow = x.dtype in (torch.bfloat16, torch.float16)
    inexpressible(narrow and x.ndim == 4, "a sum that PyTorch rounds to 16 bits at every step")
    return "nll", [x, target], classes(x, target, ignore_index, reduction)


def alike(x, target):
    inexpressible(x.shape != target.shape, "a target of another shape")


for torch_row, row in {"mse_loss": "mse", "l1_loss": "l1", "binary_cross_entropy": "bce"}.items():
    def loss(x, target, weight=None, reduction="mean", row=row):
        unweighted(weight)
        alike(x, target)
        return row, [x, target], {"reduction": reduction}
    OPS[f"nn.functional.{torch_row}"] = FLOATS, loss


@ours("nn.functional.binary_cross_entropy_with_logits", FLOATS)
def _(x, target, weight=None, reduction="mean", pos_weight=None):
    unweighted(weight if weight is not None else pos_weight)
    alike(x, target)
    return "bce_with_logits", [x, target], {"reduction": reduction}


@ours("nn.functional.huber_loss", FLOATS)
def _(x, target, reduction="mean", delta=1.0, weight=None):
    unweighted(weight)
    alike(x, target)
    return "huber", [x, target], {"delta": delta, "reduction": reduction}


@ours("nn.functional.smooth_l1_loss", FLOATS)
def _(x, target, reduction="mean", beta=1.0):
    alike(x, target)
    return "smooth_l1", [x, target], {"beta": beta, "reduction": reduction}


@ours("nn.functional.kl_div", FLOATS)
def _(x, target, reduction="mean", log_target=False):
    inexpressible(reduction == "mean", "a mean over elements")
    inexpressible(log_target, "logarithms as targets")
    inexpressible(reduction == "batchmean" and x.ndim != 2, "more axes than rows and columns")
    alike(x, target)
    return "kl_div", [x, target], {"reduction": "mean" if reduction == "batchmean" else reduction}
