import warp as wp


@wp.func
def shift(x: float):
    return x + 0.25
