"""How a sample of PyTorch's op test database becomes a call of ours, or why it cannot.

Each function in these files takes what PyTorch's ops of the names in its decorator take, and returns our name, the
inputs and the other arguments as crates/tensor/tests/torch_samples/ops.rs reads them. An argument that is a function is
asked later, with PyTorch's first result; `only` says how many results can be compared. Expressed is only what a call of
ours with little around it says: what would need several of our operations to imitate one of PyTorch's would test the
imitation.
"""

from . import elements, layers, shapes  # noqa: F401 (they fill the table)
from .signature import NAMES, OPS, Inexpressible, differentiable  # noqa: F401
