import warp as wp

from ..shifts import shift


@wp.func
def deepest(x: float):
    return shift(x) * 2.0
