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


@ours("nn.functional.max_pool2d", FLOATS)
def _(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    inexpressible(x.ndim != 4, "an image without a batch")
    inexpressible(pair(padding) != [0, 0] or pair(dilation) != [1, 1] or ceil_mode, "padding, dilation or rounding up")
    inexpressible(return_indices, "where the largest were")
    return "max_pool2d", [x], {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size)}


@ours("nn.functional.avg_pool2d", FLOATS)
def _(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    inexpressible(x.ndim != 4, "an image without a batch")
    inexpressible(pair(padding) != [0, 0] or ceil_mode, "padding, dilation or rounding up")
    inexpressible(divisor_override is not None, "another divisor")
    return "avg_pool2d", [x], {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size)}


# Losses.

def mean_only(reduction, weight=None):
    inexpressible(reduction != "mean", "another reduction than the mean")
    inexpressible(weight is not None, "weights of classes or elements")


@ours("nn.functional.cross_entropy", FLOATS)
def _(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    mean_only(reduction, weight)
    inexpressible(label_smoothing != 0, "smoothed labels")
    inexpressible(not target.dtype.is_floating_point and bool((target == ignore_index).any()), "classes to ignore")
    return "cross_entropy", [x, target], {}


@ours("nn.functional.nll_loss", FLOATS)
def _(x, target, weight=None, ignore_index=-100, reduction="mean"):
    mean_only(reduction, weight)
    inexpressible(bool((target == ignore_index).any()), "classes to ignore")
    narrow = x.dtype in (torch.bfloat16, torch.float16)
    inexpressible(narrow and x.ndim == 4, "a sum that PyTorch rounds to 16 bits at every step")
    return "nll", [x, target], {}


def alike(x, target):
    inexpressible(x.shape != target.shape, "a target of another shape")


for torch_row, row in {"mse_loss": "mse", "l1_loss": "l1", "binary_cross_entropy": "bce"}.items():
    def loss(x, target, weight=None, reduction="mean", row=row):
        mean_only(reduction, weight)
        alike(x, target)
        return same(row, x, target)
    OPS[f"nn.functional.{torch_row}"] = FLOATS, loss


@ours("nn.functional.binary_cross_entropy_with_logits", FLOATS)
def _(x, target, weight=None, reduction="mean", pos_weight=None):
    mean_only(reduction, weight if weight is not None else pos_weight)
    alike(x, target)
    return same("bce_with_logits", x, target)


@ours("nn.functional.huber_loss", FLOATS)
def _(x, target, reduction="mean", delta=1.0, weight=None):
    mean_only(reduction, weight)
    alike(x, target)
    return "huber", [x, target], {"delta": delta}


@ours("nn.functional.kl_div", FLOATS)
def _(x, target, reduction="mean", log_target=False):
    inexpressible(reduction != "batchmean", "another reduction than the mean over rows")
    inexpressible(log_target, "logarithms as targets")
    inexpressible(x.ndim != 2, "more axes than rows and columns")
    alike(x, target)
    return same("kl_div", x, target)
