"""What the other files of this folder share: dtypes, the table of ops, and what several ops' arguments need."""

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
