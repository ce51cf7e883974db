import warp as wp

from . import shifts
from .inner.deep import deepest

SCALE = 3.0


@wp.func
def scaled(x: float):
    return deepest(x) * SCALE + shifts.shift(x)
