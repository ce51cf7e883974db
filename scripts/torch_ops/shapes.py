"""Views, joining, choosing elements, making tensors."""

import torch

from .signature import (ANY, FLOATS, INTEGERS, NAMES, NUMBERS, OPS, Inexpressible, dtype_name, inexpressible, many_axes,
                        one_axis, ours, same, shape_of)

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
