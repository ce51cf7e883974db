"""Operations element by element, and reductions."""

import torch

from .signature import (ANY, BITS, FLOATS, INTEGERS, NAMES, NUMBERS, OPS, dtype_name, inexpressible, many_axes,
                        number, one_axis, ours, same)

# Element by element.

for row in "acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 " \
           "reciprocal rsqrt sigmoid sin sinh sqrt tan tanh trunc".split():
    OPS[row] = FLOATS, lambda x, row=row: same(row, x)
for row in "abs neg square".split():
    OPS[row] = NUMBERS, lambda x, row=row: same(row, x)


@ours("sign sgn", NUMBERS)
def _(x):
    inexpressible(bool(x.isnan().any()), "the sign of NaN: ours is NaN, PyTorch's 0")
    return same("sign", x)


for torch_row, row in {"relu": "relu", "relu6": "relu6", "selu": "selu", "logsigmoid": "log_sigmoid", "silu": "silu",
                       "mish": "mish", "softsign": "softsign", "hardswish": "hardswish",
                       "hardsigmoid": "hardsigmoid"}.items():
    def activation(x, inplace=False, row=row):
        return same(row, x)
    OPS[f"nn.functional.{torch_row}"] = FLOATS, activation
OPS["round"] = FLOATS, lambda x: same("rint", x)
OPS["bitwise_not"] = BITS, lambda x: same("not", x)
OPS["logical_not"] = (torch.bool,), lambda x: same("not", x)

for torch_row, row in {"add": "add", "sub": "sub"}.items():
    def with_alpha(x, y, alpha=1, row=row):
        inexpressible(alpha != 1, "a factor beside an operand")
        return same(row, x, y)
    OPS[torch_row] = NUMBERS, with_alpha
for torch_row, row in {"mul": "mul", "minimum": "minimum", "maximum": "maximum", "min/binary": "minimum",
                       "max/binary": "maximum"}.items():
    OPS[torch_row] = NUMBERS, lambda x, y, row=row: same(row, x, y)
for row in "fmin fmax hypot atan2 copysign pow".split():
    OPS[row] = FLOATS, lambda x, y, row=row: same(row, x, y)
OPS["true_divide"] = FLOATS, lambda x, y: same("div", x, y)
OPS["div/no_rounding_mode"] = FLOATS, lambda x, y, rounding_mode=None: same("div", x, y)
OPS["div/trunc_rounding"] = INTEGERS, lambda x, y, rounding_mode=None: same("div", x, y)
OPS["fmod"] = NUMBERS, lambda x, y: same("%", x, y)
for torch_row, row in {"eq": "equal", "ne": "not_equal", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}.items():
    OPS[torch_row] = ANY, lambda x, y, row=row: same(row, x, y)
for torch_row, row in {"and": "and", "or": "or", "xor": "xor"}.items():
    OPS[f"bitwise_{torch_row}"] = BITS, lambda x, y, row=row: same(row, x, y)
    OPS[f"__r{torch_row}__"] = BITS, lambda x, y, row=row: same(row, x, y)
    OPS[f"logical_{torch_row}"] = (torch.bool,), lambda x, y, row=row: same(row, x, y)
for torch_row, row in {"left": "shl", "right": "shr"}.items():
    def shift(x, y, row=row):
        counts = torch.as_tensor(y)
        inexpressible(bool(((counts < 0) | (counts > 63)).any()), "shift counts beyond the width, which ours masks")
        return same(row, x, y)
    OPS[f"bitwise_{torch_row}_shift"] = INTEGERS, shift
for torch_row, row in {"__radd__": "add", "__rmul__": "mul", "__rsub__": "sub"}.items():
    OPS[torch_row] = NUMBERS, lambda x, y, row=row: same(row, y, x)
for torch_row, row in {"__rdiv__": "div", "__rpow__": "pow"}.items():
    OPS[torch_row] = FLOATS, lambda x, y, row=row: same(row, y, x)


@ours("rsub", NUMBERS)
def _(x, y, alpha=1):
    inexpressible(alpha != 1, "a factor beside an operand")
    return same("sub", y, x)


@ours("clamp clamp_min clamp_max", NUMBERS)
def _(x, min=None, max=None):
    if min is None or max is None:
        return same("minimum" if min is None else "maximum", x, max if min is None else min)
    return same("clamp", x, min, max)


OPS["clamp_max"] = NUMBERS, lambda x, most: same("minimum", x, most)


@ours("nn.functional.leaky_relu", FLOATS)
def _(x, negative_slope=0.01, inplace=False):
    return "leaky_relu", [x], {"slope": negative_slope}


@ours("nn.functional.elu", FLOATS)
def _(x, alpha=1.0, inplace=False):
    return "elu", [x], {"alpha": alpha}


@ours("nn.functional.softplus", FLOATS)
def _(x, beta=1, threshold=20):
    inexpressible(beta != 1 or threshold != 20, "another slope or threshold")
    return same("softplus", x)


@ours("nn.functional.hardtanh", FLOATS)
def _(x, min_val=-1.0, max_val=1.0, inplace=False):
    inexpressible((min_val, max_val) != (-1, 1), "other bounds than -1 and 1")
    return same("hardtanh", x)


@ours("nn.functional.gelu", FLOATS)
def _(x, approximate="none"):
    return same("gelu" if approximate == "tanh" else "gelu_erf", x)


@ours("where", ANY)
def _(x, condition, other):
    return same("where", condition, x, other)


@ours("masked_fill", NUMBERS)
def _(x, mask, value):
    inexpressible(isinstance(value, torch.Tensor), "a fill that is a tensor")
    return "masked_fill", [x, mask], {"value": float(number(value))}


CASTS = {"bfloat16": torch.bfloat16, "bool": torch.bool, "byte": torch.uint8, "char": torch.int8, "double": torch.float64,
         "float": torch.float32, "half": torch.float16, "int": torch.int32, "long": torch.int64, "short": torch.int16}
for cast, to in CASTS.items():
    def casted(x, memory_format=None, to=to):
        if x.dtype.is_floating_point and not to.is_floating_point and to != torch.bool:
            span = torch.iinfo(to)
            within = (x.double() > float(span.min) - 1) & (x.double() < float(span.max) + 1)
            inexpressible(not bool(within.all()), "a cast out of range, where ours saturates")
        return "cast", [x], {"dtype": NAMES[to]}
    OPS[cast] = ANY, casted


# Reductions.

def reduction(name):
    def build(x, dim=None, keepdim=False, dtype=None):
        return name, [x], {"axes": many_axes(x, dim), "keep": keepdim, "dtype": dtype_name(dtype)}
    return build


for torch_row, row, dtypes in [("sum", "sum", NUMBERS), ("prod", "prod", NUMBERS), ("mean", "mean", FLOATS),
                               ("amax", "max", NUMBERS), ("amin", "min", NUMBERS), ("all", "all", ANY),
                               ("any", "any", ANY), ("logsumexp", "logsumexp", FLOATS),
                               ("max/reduction_no_dim", "max", NUMBERS), ("min/reduction_no_dim", "min", NUMBERS)]:
    OPS[torch_row] = dtypes, reduction(row)


for row in ("argmax", "argmin"):
    def place(x, dim=None, keepdim=False, row=row):
        inexpressible(dim is None and keepdim, "all axes kept")
        return row, [x], {"axis": None if dim is None else one_axis(x, dim), "keep": keepdim}
    OPS[row] = NUMBERS, place
for row in ("max", "min"):
    def with_place(x, dim, keepdim=False, row=row):
        return f"{row}_and_place", [x], {"axis": one_axis(x, dim), "keep": keepdim}
    OPS[f"{row}/reduction_with_dim"] = NUMBERS, with_place


def spread(row):
    def build(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        inexpressible(correction != int(correction) or correction < 0, "a correction that is no count")
        return row, [x], {"axes": many_axes(x, dim), "keep": keepdim, "correction": int(correction)}
    return build


for row in ("var", "std"):
    OPS[row] = OPS[f"{row}/unbiased"] = FLOATS, spread(row)


@ours("norm norm/fro norm/inf", FLOATS)
def _(x, p="fro", dim=None, keepdim=False, dtype=None):
    inexpressible(p == "nuc", "norms of matrices")
    args = {"p": 2.0 if p == "fro" else float(p), "axes": many_axes(x, dim), "keep": keepdim}
    return "norm", [x], args | {"dtype": dtype_name(dtype)}


@ours("linalg.vector_norm", FLOATS)
def _(x, ord=2, dim=None, keepdim=False, dtype=None):
    args = {"p": float(ord), "axes": many_axes(x, dim), "keep": keepdim}
    return "norm", [x], args | {"dtype": dtype_name(dtype)}
