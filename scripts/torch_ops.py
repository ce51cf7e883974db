"""How a sample of PyTorch's op test database becomes a call of ours, or why it cannot.

Each function below takes what PyTorch's op of the names in its decorator takes, and returns our name of it, the inputs
and the other arguments as crates/tensor/tests/torch_samples/ops.rs reads them. An argument that is a function is asked
later, with PyTorch's first result; `only` says how many results are comparable. Only what a call of ours with little around it says is expressed: what would need
several of our operations to imitate one of PyTorch's would test the imitation.
"""

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NUMBERS = FLOATS + (torch.int64,)
INTEGERS = (torch.int64,)
ANY = NUMBERS + (torch.bool,)
BITS = INTEGERS + (torch.bool,)

# The dtypes that inputs and results may have, by our names.
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
         torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}

# Name in the database: the dtypes that ours takes, and the function.
OPS = {}


class Inexpressible(Exception):
    """Why ours cannot express a sample."""


def inexpressible(when, why):
    if when:
        raise Inexpressible(why)


def ours(names, dtypes):
    def add(build):
        for name in names.split():
            def checked(*args, build=build, **kwargs):
                for spare in ("out", "memory_format", "device", "requires_grad"):
                    kwargs.pop(spare, None)
                return build(*args, **kwargs)
            OPS[name] = dtypes, checked
        return build
    return add


def same(name, *inputs):
    inexpressible(not any(isinstance(value, torch.Tensor) for value in inputs), "numbers only")
    return name, [number(value) for value in inputs], {}


def differentiable(name, inputs):
    """False where a gradient has no value, or another one than ours for a reason: see docs/tensors.md."""
    floats = [x.detach() for x in inputs if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    if not all(x.isfinite().all() for x in floats) or name == "hardsigmoid":
        return False
    if name in ("minimum", "maximum", "fmin", "fmax", "atan2", "%"):
        a, b = (torch.as_tensor(x).detach() for x in inputs)
        apart = {"atan2": lambda: (a != 0) | (b != 0), "%": lambda: (a - a.fmod(b)) / b == (a / b).trunc()}
        return bool(apart.get(name, lambda: a != b)().all())
    return True


def shape_of(out):
    return list(out.shape)


def number(value):
    """A tensor or a number that ours can be."""
    inexpressible(isinstance(value, (bool, complex)), "a bool or a complex number as an argument")
    return value


def one_axis(x, dim):
    inexpressible(x.ndim == 0, "an axis of a scalar")
    return dim


def many_axes(x, dim):
    """None is all of them, and so are none in PyTorch."""
    if dim is None or dim == () or dim == []:
        return None
    inexpressible(x.ndim == 0, "an axis of a scalar")
    return [dim] if isinstance(dim, int) else list(dim)


def dtype_name(dtype):
    inexpressible(dtype is not None and dtype not in NAMES, "a dtype that is not ours")
    return None if dtype is None else NAMES[dtype]


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


# Views.

OPS["reshape"] = OPS["view"] = OPS["reshape_as"] = OPS["view_as"] = OPS["ravel"] = OPS["unflatten"] = \
    ANY, lambda x, *shape, **_: ("reshape", [x], {"shape": shape_of})
OPS["expand"] = OPS["expand_as"] = OPS["broadcast_to"] = ANY, lambda x, shape: ("expand", [x], {"shape": shape_of})


@ours("permute", ANY)
def _(x, dims):
    return "permute", [x], {"axes": [d % x.ndim for d in dims]}


@ours("transpose", ANY)
def _(x, dim0, dim1):
    inexpressible(x.ndim == 0, "an axis of a scalar")
    return "transpose", [x], {"a": dim0, "b": dim1}


@ours("t T mT mH", ANY)
def _(x):
    inexpressible(x.ndim < 2, "fewer than two axes")
    return same("t", x)


@ours("squeeze squeeze/multiple", ANY)
def _(x, dim=None):
    if dim is not None:
        dim = [dim] if isinstance(dim, int) else list(dim)
        inexpressible(x.ndim == 0 and len(dim) > 0, "an axis of a scalar")
        inexpressible(any(x.shape[d] != 1 for d in dim), "an axis to squeeze that is longer than 1")
    return "squeeze", [x], {"axes": dim}


@ours("unsqueeze", ANY)
def _(x, dim):
    return "unsqueeze", [x], {"axis": dim}


@ours("flatten", ANY)
def _(x, start_dim=0, end_dim=-1):
    return "flatten", [x], {"first": start_dim, "last": end_dim}


@ours("movedim", ANY)
def _(x, source, destination):
    single = [d if isinstance(d, int) else d[0] if len(d) == 1 else None for d in (source, destination)]
    inexpressible(None in single, "several axes moved at once")
    return "movedim", [x], {"from": one_axis(x, single[0]), "to": single[1]}


@ours("flip", ANY)
def _(x, dims):
    return "flip", [x], {"axes": many_axes(x, dims) or []}


OPS["fliplr"] = ANY, lambda x: ("flip", [x], {"axes": [1]})
OPS["flipud"] = ANY, lambda x: ("flip", [x], {"axes": [0]})


@ours("repeat", ANY)
def _(x, counts):
    return "repeat", [x], {"counts": list(counts)}


@ours("tile", ANY)
def _(x, counts):
    return "repeat", [x], {"counts": [1] * (x.ndim - len(counts)) + list(counts)}


@ours("narrow", ANY)
def _(x, dim, start, length):
    start = int(start)
    start = start if start >= 0 else start + x.shape[dim]
    return "slice", [x], {"cuts": [[dim, start, start + length, 1]], "drop": []}


@ours("slice", ANY)
def _(x, dim=0, start=None, end=None, step=1):
    return "slice", [x], {"cuts": [[dim, start, end, step]], "drop": []}


@ours("__getitem__", ANY)
def _(x, index):
    cuts, drop = [], []
    for axis, at in enumerate(index if isinstance(index, tuple) else (index,)):
        if isinstance(at, int) and not isinstance(at, bool):
            cuts.append([axis, at, None if at == -1 else at + 1, 1])
            drop.append(axis)
        elif isinstance(at, slice):
            cuts.append([axis, at.start, at.stop, at.step or 1])
        else:
            raise Inexpressible("indices that are neither slices nor numbers")
    return "slice", [x], {"cuts": cuts, "drop": drop}


@ours("split", ANY)
def _(x, size, dim=0):
    inexpressible(not isinstance(size, int), "pieces of several sizes")
    return "split", [x], {"size": size, "axis": dim}


# Joining and choosing.

@ours("cat", ANY)
def _(tensors, dim=0):
    inexpressible(len({x.dtype for x in tensors}) > 1, "several dtypes to join")
    inexpressible(len({x.ndim for x in tensors}) > 1, "ranks that differ, to join")
    return "concat", list(tensors), {"axis": dim}


@ours("stack", ANY)
def _(tensors, dim=0):
    return "stack", list(tensors), {"axis": dim}


@ours("nn.functional.pad/constant constant_pad_nd", ANY)
def _(x, pad, mode="constant", value=None):
    if mode != "constant":
        value = mode
    value = 0.0 if value is None else float(value)
    inexpressible(min(pad, default=0) < 0, "padding that cuts off")
    inexpressible(x.dtype == torch.bool and value not in (0, 1), "a fill that the dtype does not have")
    inexpressible(not x.dtype.is_floating_point and value != int(value), "a fill that the dtype does not have")
    widths = [[pad[2 * n], pad[2 * n + 1]] for n in range(len(pad) // 2)][::-1]
    return "pad", [x], {"widths": [[0, 0]] * (x.ndim - len(widths)) + widths, "value": value}


def along(x, dim, index):
    inexpressible(x.ndim == 0 or index.ndim == 0, "an axis of a scalar")
    inexpressible(x.ndim != index.ndim, "indices of another rank")
    inexpressible(bool((index < 0).any()), "indices below 0")
    dim = dim % x.ndim
    others = [n for n in range(x.ndim) if n != dim and x.shape[n] != index.shape[n]]
    inexpressible(others != [], "indices that are shorter along other axes")


@ours("gather", ANY)
def _(x, dim, index, sparse_grad=False):
    along(x, dim, index)
    return "gather", [x, index], {"axis": dim}


@ours("take_along_dim", ANY)
def _(x, index, dim=None):
    inexpressible(dim is None, "places in the flattened tensor")
    along(x, dim, index)
    return "gather", [x, index], {"axis": dim}


@ours("scatter_add", NUMBERS)
def _(x, dim, index, values):
    along(x, dim, index)
    inexpressible(index.shape != values.shape, "more values than indices")
    return "scatter_add", [x, index, values], {"axis": dim}


@ours("index_select", ANY)
def _(x, dim, index):
    inexpressible(x.ndim == 0 or index.ndim == 0, "an axis of a scalar")
    return "index_select", [x, index], {"axis": dim}


@ours("nn.functional.embedding", FLOATS)
def _(table, index, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    special = padding_idx is not None or max_norm is not None or scale_grad_by_freq or sparse
    inexpressible(special, "padding, renormalised or sparse rows")
    return same("embedding", table, index)


@ours("nn.functional.one_hot", INTEGERS)
def _(x, num_classes=-1):
    return "one_hot", [x], {"classes": lambda out: out.shape[-1]}


def tied(x, dim):
    """True where elements along an axis are equal: where PyTorch says in no order, ours has the first first."""
    ordered = x.detach().sort(one_axis(x, dim)).values
    return bool((ordered.diff(dim=dim) == 0).any() if x.dtype != torch.bool else x.shape[dim] > 1)


@ours("sort", ANY)
def _(x, dim=-1, descending=False, stable=False):
    args = {"axis": one_axis(x, dim), "descending": descending}
    return "sort", [x], args | {"only": 1 if tied(x, dim) and not stable else None}


@ours("argsort", ANY)
def _(x, dim=-1, descending=False, stable=False):
    inexpressible(tied(x, dim) and not stable, "the order of equal elements, which PyTorch leaves open")
    return "argsort", [x], {"axis": one_axis(x, dim), "descending": descending}


@ours("topk", NUMBERS)
def _(x, k, dim=-1, largest=True, sorted=True):
    inexpressible(not largest, "the smallest")
    inexpressible(not sorted, "results in no order")
    return "topk", [x], {"k": k, "axis": one_axis(x, dim), "only": 1 if tied(x, dim) else None}


@ours("cumsum", NUMBERS)
def _(x, dim, dtype=None):
    return "cumsum", [x], {"axis": one_axis(x, dim), "dtype": dtype_name(dtype)}


for row in ("tril", "triu"):
    OPS[row] = ANY, lambda x, diagonal=0, row=row: (row, [x], {"k": diagonal})


# Making.

def result_dtype(out):
    return NAMES[out.dtype]


for row, value in {"zeros": 0.0, "ones": 1.0}.items():
    def filled(shape, dtype=None, device=None, value=value):
        return "full", [], {"shape": shape_of, "value": value, "dtype": result_dtype}
    OPS[row] = ANY, filled


@ours("full", NUMBERS)
def _(shape, value, dtype=None):
    return "full", [], {"shape": shape_of, "value": float(value), "dtype": result_dtype}


@ours("eye", ANY)
def _(n, m=None, dtype=None):
    inexpressible(m is not None and m != n, "a unit matrix that is not square")
    return "eye", [], {"n": n, "dtype": result_dtype}


@ours("arange", NUMBERS)
def _(start, end=None, step=1, dtype=None):
    start, end = (0, start) if end is None else (start, end)
    inexpressible(start != 0 or step != 1, "a start or a step")
    return "arange", [], {"n": lambda out: out.shape[0], "dtype": result_dtype}


@ours("linspace", FLOATS)
def _(start, end, steps, dtype=None):
    inexpressible(isinstance(start, complex) or isinstance(end, complex), "complex numbers")
    return "linspace", [], {"start": float(start), "end": float(end), "n": steps, "dtype": result_dtype}


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
