"""Random numbers: a permuted congruential generator of 32 bits (PCG-RXS-M-XS), whose state is its last number.

All that draw take the state by reference: they draw from a copy and leave it behind.
"""

import warp as wp


@wp.func
def rand_next(state: wp.uint32):
    b = state * wp.uint32(747796405) + wp.uint32(2891336453)
    c = ((b >> ((b >> wp.uint32(28)) + wp.uint32(4))) ^ b) * wp.uint32(277803737)
    return (c >> wp.uint32(22)) ^ c


@wp.func
def rand_unit(number: wp.uint32):
    """The upper 24 bits as a number in [0, 1)."""
    return float(number >> wp.uint32(8)) * 5.9604644775390625e-08


@wp.func
def rand_init(seed: int):
    return rand_next(wp.uint32(seed))


@wp.func
def rand_init(seed: int, offset: int):
    return rand_next(wp.uint32(seed) + rand_next(wp.uint32(offset)))


@wp.func
def randi(state: wp.ref[wp.uint32]):
    s = rand_next(wp.uint32(state))
    state = s
    return int(s)


@wp.func
def randi(state: wp.ref[wp.uint32], low: int, high: int):
    s = rand_next(wp.uint32(state))
    state = s
    return int(s % wp.uint32(high - low)) + low


@wp.func
def randu(state: wp.ref[wp.uint32]):
    s = rand_next(wp.uint32(state))
    state = s
    return s


@wp.func
def randu(state: wp.ref[wp.uint32], low: wp.uint32, high: wp.uint32):
    s = rand_next(wp.uint32(state))
    state = s
    return s % (high - low) + low


@wp.func
def randf(state: wp.ref[wp.uint32]):
    s = rand_next(wp.uint32(state))
    state = s
    return rand_unit(s)


@wp.func
def randf(state: wp.ref[wp.uint32], low: float, high: float):
    s = rand_next(wp.uint32(state))
    state = s
    return (high - low) * rand_unit(s) + low


@wp.func
def randn(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    state = b
    # Moved up by one step, so that the logarithm is finite.
    u = rand_unit(a) + 5.9604644775390625e-08
    return wp.sqrt(-2.0 * wp.log(u)) * wp.cos(6.2831855 * rand_unit(b))


@wp.func
def sample_cdf(state: wp.ref[wp.uint32], cdf: wp.array(dtype=float)):
    s = rand_next(wp.uint32(state))
    state = s
    return wp.lower_bound(cdf, rand_unit(s))


@wp.func
def sample_triangle(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    state = b
    r = wp.sqrt(rand_unit(a))
    return wp.vec2(1.0 - r, rand_unit(b) * r)


@wp.func
def unit_circle(turn: float):
    angle = 6.2831855 * turn
    return wp.vec2(wp.cos(angle), wp.sin(angle))


@wp.func
def sample_unit_ring(state: wp.ref[wp.uint32]):
    s = rand_next(wp.uint32(state))
    state = s
    return unit_circle(rand_unit(s))


@wp.func
def sample_unit_disk(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    state = b
    return unit_circle(rand_unit(b)) * wp.sqrt(rand_unit(a))


@wp.func
def on_sphere(z: float, turn: float):
    xy = unit_circle(turn) * wp.sqrt(wp.max(1.0 - z * z, 0.0))
    return wp.vec3(xy[0], xy[1], z)


@wp.func
def sample_unit_sphere_surface(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    state = b
    return on_sphere(1.0 - 2.0 * rand_unit(a), rand_unit(b))


@wp.func
def sample_unit_sphere(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    c = rand_next(b)
    state = c
    return on_sphere(1.0 - 2.0 * rand_unit(a), rand_unit(b)) * wp.cbrt(rand_unit(c))


@wp.func
def sample_unit_hemisphere_surface(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    state = b
    return on_sphere(1.0 - rand_unit(a), rand_unit(b))


@wp.func
def sample_unit_hemisphere(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    c = rand_next(b)
    state = c
    return on_sphere(1.0 - rand_unit(a), rand_unit(b)) * wp.cbrt(rand_unit(c))


@wp.func
def sample_unit_square(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    state = b
    return wp.vec2(rand_unit(a) - 0.5, rand_unit(b) - 0.5)


@wp.func
def sample_unit_cube(state: wp.ref[wp.uint32]):
    a = rand_next(wp.uint32(state))
    b = rand_next(a)
    c = rand_next(b)
    state = c
    return wp.vec3(rand_unit(a) - 0.5, rand_unit(b) - 0.5, rand_unit(c) - 0.5)
