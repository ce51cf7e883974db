"""Functions and constants of other files, with all forms of import."""

import parts
import parts.inner.deep
import parts.shifts as moved
import warp as wp
from parts import SCALE, shifts
from parts.inner.deep import deepest as deep
from parts.scales import scaled


@wp.kernel
def imported(x: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    out[i, 0] = scaled(x[i])
    out[i, 1] = deep(x[i])
    out[i, 2] = parts.inner.deep.deepest(x[i]) + parts.scaled(x[i])
    out[i, 3] = moved.shift(x[i]) * shifts.shift(SCALE)


LAUNCHES = {
    "imported": {"dim": 8, "x": [8, -1, 1], "out": (8, 4), "check": "exact"},
}
