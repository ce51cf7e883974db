"""Random numbers: a 32-bit permuted congruential generator (PCG-RXS-M-XS); its state is its last output.

Samplers take the state by reference: they draw from a copy and store it back.
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
    # Shifted by 2^-24, so that the logarithm is finite.
    u = rand_unit(a) + 5.9604644775390625e-08
    return wp.sqrt(-2.0 * wp.log(u)) * wp.cos(6.2831855 * rand_unit(b))


@wp.func
def log_gamma(x: float):
    """Stirling's series, which needs an argument of at least about 7: smaller ones are shifted up by integers."""
    steps = wp.max(int(7.0 - x), 0)
    at = float(x + float(steps))
    square = (1.0 / at) * (1.0 / at)
    series = -1.39243221690590 * square + 0.1796443723688307
    series = series * square - 0.02955065359477124
    series = series * square + 0.006410256410256410
    series = series * square - 0.001917526917526918
    series = series * square + 0.0008417508417508418
    series = series * square - 0.0005952380952380952
    series = series * square + 0.0007936507936507937
    series = series * square - 0.002777777777777778
    series = series * square + 0.08333333333333333
    total = float(series / at + 0.9189385332046727 + (at - 0.5) * wp.log(at) - at)
    for n in range(steps):
        at -= 1.0
        total -= wp.log(at)
    return wp.where(x == 1.0 or x == 2.0, 0.0, total)


@wp.func
def poisson_few(state: wp.ref[wp.uint32], mean: float):
    """Knuth's algorithm: multiplies uniform samples until the product falls below exp(-mean)."""
    s = rand_next(wp.uint32(state))
    least = wp.exp(-mean)
    product = float(rand_unit(s))
    count = int(0)
    while product > least:
        s = rand_next(s)
        product *= rand_unit(s)
        count += 1
    state = s
    return wp.uint32(count)


@wp.func
def poisson_many(state: wp.ref[wp.uint32], mean: float):
    """Hörmann's rejection, "The transformed rejection method for generating Poisson random variables" (1993), algorithm PTRS."""
    b = 0.931 + 2.53 * wp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    log_inverse_alpha = wp.log(1.1239 + 1.1328 / (b - 3.4))
    quick = 0.9277 - 3.6224 / (b - 2.0)
    s = wp.uint32(state)
    k = float(-1.0)
    accepted = bool(False)
    while not accepted:
        s = rand_next(s)
        u = rand_unit(s) - 0.5
        s = rand_next(s)
        v = rand_unit(s)
        us = 0.5 - wp.abs(u)
        k = wp.floor((2.0 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= quick:
            accepted = True
        elif k >= 0.0 and (us >= 0.013 or v <= us):
            likely = k * wp.log(mean) - mean - log_gamma(k + 1.0)
            accepted = wp.log(v) + log_inverse_alpha - wp.log(a / (us * us) + b) <= likely
    state = s
    return wp.uint32(k)


@wp.func
def poisson(state: wp.ref[wp.uint32], lam: float):
    count = wp.uint32(0)
    if lam >= 10.0:
        count = poisson_many(state, lam)
    elif lam != 0.0:
        count = poisson_few(state, lam)
    return count


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
