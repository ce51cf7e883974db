#!/usr/bin/env python3
"""Writes the samples of PyTorch's op test database that our operations can express, with what PyTorch makes of them.

Installs PyTorch (the CPU is enough) under target/torch if it is not there. Two files come out:

    python3 scripts/torch_samples.py            # target/torch_samples.jsonl: every sample, about 75 MB
    python3 scripts/torch_samples.py --keep     # and crates/tensor/tests/goldens/torch_samples.jsonl: a few of each op

`cargo test -p bornite --test torch_samples` runs those of the repository, and all of them if they are there. How the
arguments of an op become ours is in scripts/torch_ops/; ours are called in crates/tensor/tests/torch_samples/ops.rs.

The first line is PyTorch's `version`. Any other is a JSON object: `torch`, the name in the database, and either `not`,
why ours cannot express a sample (with `count`, how many such there are), or `op`, our name, `in`, the inputs (tensors or
numbers), `args`, what else it takes, `out`, the results, and for f64 `grad`: by each input of floats the gradient of the
sum of all results times weights, where element i of a result has the weight (5 i mod 11) / 8 - 1/2. A tensor is
`dtype[shape] elements`, or `dtype[shape](strides) storage`; floats are the hexadecimal digits of their bits, bools 0 and
1, integers apart by spaces. Storage begins at the first element and ends where its longest stride would.
"""

import collections
import json
import math
import pathlib
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "target" / "torch"
ALL = ROOT / "target" / "torch_samples.jsonl"
KEPT = ROOT / "crates" / "tensor" / "tests" / "goldens" / "torch_samples.jsonl"

# Of each op so many samples are kept, and none whose line is longer than this if a shorter one is there.
KEPT_SAMPLES, KEPT_LENGTH = 6, 800

# Of the reference inputs, those with at most so many elements.
REFERENCE_ELEMENTS = 2048

sys.path.insert(0, str(PACKAGES))
try:
    import torch
    import expecttest  # the database asks for it
except ImportError:
    subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(PACKAGES),
                           "torch", "numpy", "expecttest", "hypothesis"])
    import torch

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo import core as opinfo  # noqa: E402

from torch_ops import NAMES, OPS, Inexpressible, differentiable  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
BITS = {torch.float64: (torch.int64, 16), torch.float32: (torch.int32, 8),
        torch.float16: (torch.int16, 4), torch.bfloat16: (torch.int16, 4)}


def elements(flat):
    """The elements of a tensor of one axis as text."""
    if flat.dtype in BITS:
        as_int, digits = BITS[flat.dtype]
        mask = (1 << 4 * digits) - 1
        return "".join(f"{n & mask:0{digits}x}" for n in flat.view(as_int).tolist())
    if flat.dtype == torch.bool:
        return "".join("01"[b] for b in flat.tolist())
    return " ".join(str(n) for n in flat.tolist())


def nested(shape, strides):
    """How much storage strides take that slices of a contiguous tensor have; None where no slices have them."""
    axes = sorted(((s, n) for s, n in zip(strides, shape) if s != 0 and n > 1), reverse=True)
    for (wide, _), (narrow, length) in zip(axes, axes[1:]):
        if wide % narrow != 0 or length > wide // narrow:
            return None
    return axes[0][0] * axes[0][1] if axes else 1


def written(x):
    """A tensor as text."""
    x = x.detach().resolve_conj().resolve_neg()
    head = f"{NAMES[x.dtype]}[{','.join(map(str, x.shape))}]"
    needed = None if x.is_contiguous() or x.numel() == 0 else nested(x.shape, x.stride())
    if needed is None:
        return f"{head} {elements(x.contiguous().reshape(-1))}"
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
    storage = x.as_strided((span,), (1,))
    # Nothing may read between the elements: what is missing there is no number.
    rest = torch.full((needed - span,), math.nan if x.dtype.is_floating_point else 1).to(x.dtype)
    return f"{head}({','.join(map(str, x.stride()))}) {elements(torch.cat([storage, rest]))}"


def plain(value):
    """What JSON can hold: infinities as text."""
    if isinstance(value, torch.Tensor):
        return written(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return value


def gradients(outs, inputs):
    """By each input of floats, the gradient of the sum of results times weights, or None where PyTorch has none."""
    wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    leaves = [x for x in wanted if x.requires_grad]
    total = 0
    for out in outs:
        if out.dtype.is_floating_point and out.requires_grad:
            weights = torch.tensor([5 * i % 11 / 8 - 0.5 for i in range(out.numel())], dtype=out.dtype)
            total = total + (out * weights.reshape(out.shape)).sum()
    if not isinstance(total, torch.Tensor):
        return None
    found = iter(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
    # A new tensor, since a gradient may be zeros that have no storage.
    return [torch.zeros(x.shape, dtype=x.dtype).copy_(next(found)) if x.requires_grad else None for x in wanted]


def leaf(x):
    """A tensor of the same layout that nothing leads to, so that a gradient by it is its own."""
    return x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x


def line(op, name, build, sample, dtype):
    """What the file says of a sample."""
    sample = sample.transform(leaf)
    ours, inputs, args = build(sample.input, *sample.args, **sample.kwargs)
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.dtype not in NAMES:
            raise Inexpressible(f"{x.dtype} elements")
    result = op.op(sample.input, *sample.args, **sample.kwargs)
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    if any(not isinstance(out, torch.Tensor) or out.dtype not in NAMES for out in outs):
        raise Inexpressible("other results than tensors")
    outs = outs[:args.pop("only", None)]
    args = {key: value(outs[0]) if callable(value) else value for key, value in args.items()}
    text = {"torch": name, "op": ours, "in": plain(inputs), "args": plain(args)}
    if dtype == torch.float64 and differentiable(ours, inputs):
        grads = gradients(outs, inputs)
        if grads is not None:
            text["grad"] = [g if g is None else written(g.contiguous()) for g in grads]
    text["out"] = [written(out.detach().contiguous()) for out in outs]
    return text


def tensors(sample):
    """The tensors among the arguments."""
    values = [sample.input, *sample.args, *sample.kwargs.values()]
    return [x for x in values if isinstance(x, torch.Tensor)]


def samples(op, dtype):
    """The database's samples, those of f32 once more with storage that is not contiguous. Operations by element and
    reductions have reference inputs as well, which begin with the samples: extremal and special values, more layouts."""
    leaves = dtype == torch.float64 and op.supports_autograd
    more = isinstance(op, (opinfo.BinaryUfuncInfo, opinfo.ReductionOpInfo, opinfo.UnaryUfuncInfo))
    for sample in op.sample_inputs("cpu", dtype, requires_grad=leaves):
        if not more:
            yield sample
        if dtype == torch.float32:
            yield sample.noncontiguous()
    if more:
        for sample in op.reference_inputs("cpu", dtype, requires_grad=leaves):
            if max((x.numel() for x in tensors(sample)), default=0) <= REFERENCE_ELEMENTS:
                yield sample


def kept(lines):
    """A few short samples of an op: with a gradient, not contiguous, of each dtype, and then the next that are short."""
    def kind(text):
        sample = json.loads(text)
        heads = [x.split(" ")[0] if isinstance(x, str) else type(x).__name__ for x in sample["in"]]
        empty = any(math.prod(map(int, filter(None, h[h.index("[") + 1:h.index("]")].split(",")))) == 0
                    for h in heads if "[" in h)
        strided = any("(" in h for h in heads)
        return empty, "grad" not in sample, not strided, tuple(h.split("[")[0] for h in heads)

    short = sorted(lines, key=len)
    short = [text for text in short if len(text) <= KEPT_LENGTH] or short[:1]
    first = {}
    for text in short:
        first.setdefault(kind(text), text)
    chosen = [first[k] for k in sorted(first)]
    return (chosen + [text for text in short if text not in chosen])[:KEPT_SAMPLES]


def main():
    warnings.filterwarnings("ignore")
    by_op = collections.defaultdict(dict)  # of lines, each once
    counts = collections.Counter()
    left = collections.Counter()
    version = json.dumps({"version": torch.__version__.partition("+")[0]}) + "\n"
    with ALL.open("w") as file:
        file.write(version)
        for op in op_db:
            name = f"{op.name}/{op.variant_test_name}" if op.variant_test_name else op.name
            if name not in OPS:
                continue
            dtypes, build = OPS[name]
            reasons = collections.Counter()
            for dtype in DTYPES:
                if dtype not in op.supported_dtypes("cpu"):
                    continue
                torch.manual_seed(0)
                for sample in samples(op, dtype):
                    try:
                        if dtype not in dtypes:
                            raise Inexpressible(f"{NAMES[dtype]}, which ours takes only after a cast")
                        text = json.dumps(line(op, name, build, sample, dtype), separators=(",", ":"))
                    except Inexpressible as why:
                        reasons[str(why)] += 1
                        continue
                    if text in by_op[name]:
                        continue
                    by_op[name][text] = None
                    file.write(text + "\n")
            for why, count in reasons.items():
                left[why] += count
                file.write(json.dumps({"torch": name, "not": why, "count": count}) + "\n")
            counts[name] = len(by_op[name]), sum(reasons.values())
    missing = OPS.keys() - counts.keys()
    assert not missing, f"not in the database: {missing}"
    written_samples = sum(n for n, _ in counts.values())
    print(f"PyTorch {torch.__version__}: {written_samples} samples of {len(counts)} ops, {sum(left.values())} left out")
    for what, mark in {"with gradients": '"grad":', "not contiguous": "](" }.items():
        print(f"  {sum(mark in text for lines in by_op.values() for text in lines):6} {what}")
    print("ops without one:", *(name for name, (found, _) in counts.items() if found == 0))
    for why, count in left.most_common():
        print(f"  {count:6} {why}")
    if "--keep" in sys.argv:
        with KEPT.open("w") as file:
            file.write(version)
            for name in sorted(by_op):
                for text in kept(by_op[name]):
                    file.write(text + "\n")
        print(f"{KEPT}: {KEPT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
