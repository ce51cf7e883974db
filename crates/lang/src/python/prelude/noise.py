"""Perlin gradient noise on a lattice; the gradient of each corner is drawn from a hash of its coordinates.

The hash multiplies each coordinate by a large prime, as in Teschner and others, "Optimized Spatial Hashing" (2003).
"""

import warp as wp

PRIME_X = wp.constant(wp.uint32(73856093))
PRIME_Y = wp.constant(wp.uint32(19349663))
PRIME_Z = wp.constant(wp.uint32(53471161))
PRIME_T = wp.constant(wp.uint32(10000019))


@wp.func
def noise_fade(t: float):
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


@wp.func
def noise_drawn(state: wp.uint32):
    return 2.0 * rand_unit(state) - 1.0


@wp.func
def noise_corner(state: wp.uint32, i: int, x: float):
    return noise_drawn(rand_next(state + wp.uint32(i) * PRIME_X)) * x


@wp.func
def noise_gradient(state: wp.uint32, i: int, j: int):
    a = rand_next((wp.uint32(i) * PRIME_X) ^ (wp.uint32(j) * PRIME_Y + state))
    b = rand_next(a)
    return wp.normalize(wp.vec2(noise_drawn(a), noise_drawn(b)))


@wp.func
def noise_gradient(state: wp.uint32, i: int, j: int, k: int):
    a = rand_next((wp.uint32(i) * PRIME_X) ^ (wp.uint32(j) * PRIME_Y) ^ (wp.uint32(k) * PRIME_Z + state))
    b = rand_next(a)
    c = rand_next(b)
    return wp.normalize(wp.vec3(noise_drawn(a), noise_drawn(b), noise_drawn(c)))


@wp.func
def noise_gradient(state: wp.uint32, i: int, j: int, k: int, l: int):
    a = rand_next(
        (wp.uint32(i) * PRIME_X)
        ^ (wp.uint32(j) * PRIME_Y)
        ^ (wp.uint32(k) * PRIME_Z)
        ^ (wp.uint32(l) * PRIME_T + state)
    )
    b = rand_next(a)
    c = rand_next(b)
    e = rand_next(c)
    return wp.normalize(wp.vec4(noise_drawn(a), noise_drawn(b), noise_drawn(c), noise_drawn(e)))


@wp.func
def noise_corner(state: wp.uint32, i: int, j: int, d: wp.vec2):
    return wp.dot(noise_gradient(state, i, j), d)


@wp.func
def noise_corner(state: wp.uint32, i: int, j: int, k: int, d: wp.vec3):
    return wp.dot(noise_gradient(state, i, j, k), d)


@wp.func
def noise_corner(state: wp.uint32, i: int, j: int, k: int, l: int, d: wp.vec4):
    return wp.dot(noise_gradient(state, i, j, k, l), d)


@wp.func
def noise_mixed(a: float, b: float, t: float):
    return a + (b - a) * noise_fade(t)


@wp.func
def noise_between(state: wp.uint32, i: int, inext: int, x: float):
    return noise_mixed(noise_corner(state, i, x), noise_corner(state, inext, x - 1.0), x)


@wp.func
def noise_between(state: wp.uint32, i: int, inext: int, j: int, jnext: int, x: float, y: float):
    near = noise_mixed(noise_corner(state, i, j, wp.vec2(x, y)), noise_corner(state, inext, j, wp.vec2(x - 1.0, y)), x)
    far = noise_mixed(
        noise_corner(state, i, jnext, wp.vec2(x, y - 1.0)), noise_corner(state, inext, jnext, wp.vec2(x - 1.0, y - 1.0)), x
    )
    return noise_mixed(near, far, y)


# Noise in lattice plane k, at distance z above it.
@wp.func
def noise_in_plane(state: wp.uint32, i: int, inext: int, j: int, jnext: int, k: int, x: float, y: float, z: float):
    near = noise_mixed(
        noise_corner(state, i, j, k, wp.vec3(x, y, z)), noise_corner(state, inext, j, k, wp.vec3(x - 1.0, y, z)), x
    )
    far = noise_mixed(
        noise_corner(state, i, jnext, k, wp.vec3(x, y - 1.0, z)),
        noise_corner(state, inext, jnext, k, wp.vec3(x - 1.0, y - 1.0, z)),
        x,
    )
    return noise_mixed(near, far, y)


@wp.func
def noise_between(
    state: wp.uint32, i: int, inext: int, j: int, jnext: int, k: int, knext: int, x: float, y: float, z: float
):
    below = noise_in_plane(state, i, inext, j, jnext, k, x, y, z)
    above = noise_in_plane(state, i, inext, j, jnext, knext, x, y, z - 1.0)
    return noise_mixed(below, above, z)


@wp.func
def noise_in_plane(
    state: wp.uint32, i: int, inext: int, j: int, jnext: int, k: int, l: int, x: float, y: float, z: float, t: float
):
    near = noise_mixed(
        noise_corner(state, i, j, k, l, wp.vec4(x, y, z, t)), noise_corner(state, inext, j, k, l, wp.vec4(x - 1.0, y, z, t)), x
    )
    far = noise_mixed(
        noise_corner(state, i, jnext, k, l, wp.vec4(x, y - 1.0, z, t)),
        noise_corner(state, inext, jnext, k, l, wp.vec4(x - 1.0, y - 1.0, z, t)),
        x,
    )
    return noise_mixed(near, far, y)


@wp.func
def noise_between(
    state: wp.uint32,
    i: int,
    inext: int,
    j: int,
    jnext: int,
    k: int,
    knext: int,
    l: int,
    lnext: int,
    x: float,
    y: float,
    z: float,
    t: float,
):
    below = noise_in_plane(state, i, inext, j, jnext, k, l, x, y, z, t)
    above = noise_in_plane(state, i, inext, j, jnext, knext, l, x, y, z - 1.0, t)
    before = noise_mixed(below, above, z)
    below = noise_in_plane(state, i, inext, j, jnext, k, lnext, x, y, z, t - 1.0)
    above = noise_in_plane(state, i, inext, j, jnext, knext, lnext, x, y, z - 1.0, t - 1.0)
    after = noise_mixed(below, above, z)
    return noise_mixed(before, after, t)


@wp.func
def noise(state: wp.uint32, x: float):
    i = int(wp.floor(x))
    return noise_between(state, i, i + 1, x - float(i))


@wp.func
def noise(state: wp.uint32, xy: wp.vec2):
    i = int(wp.floor(xy[0]))
    j = int(wp.floor(xy[1]))
    return noise_between(state, i, i + 1, j, j + 1, xy[0] - float(i), xy[1] - float(j))


@wp.func
def noise(state: wp.uint32, xyz: wp.vec3):
    i = int(wp.floor(xyz[0]))
    j = int(wp.floor(xyz[1]))
    k = int(wp.floor(xyz[2]))
    return noise_between(
        state, i, i + 1, j, j + 1, k, k + 1, xyz[0] - float(i), xyz[1] - float(j), xyz[2] - float(k)
    )


@wp.func
def noise(state: wp.uint32, xyzt: wp.vec4):
    i = int(wp.floor(xyzt[0]))
    j = int(wp.floor(xyzt[1]))
    k = int(wp.floor(xyzt[2]))
    l = int(wp.floor(xyzt[3]))
    return noise_between(
        state,
        i,
        i + 1,
        j,
        j + 1,
        k,
        k + 1,
        l,
        l + 1,
        xyzt[0] - float(i),
        xyzt[1] - float(j),
        xyzt[2] - float(k),
        xyzt[3] - float(l),
    )


@wp.func
def pnoise(state: wp.uint32, x: float, px: int):
    i = int(wp.floor(x))
    return noise_between(state, i % px, (i % px + 1) % px, x - float(i))


@wp.func
def pnoise(state: wp.uint32, xy: wp.vec2, px: int, py: int):
    i = int(wp.floor(xy[0]))
    j = int(wp.floor(xy[1]))
    return noise_between(
        state, i % px, (i % px + 1) % px, j % py, (j % py + 1) % py, xy[0] - float(i), xy[1] - float(j)
    )


@wp.func
def pnoise(state: wp.uint32, xyz: wp.vec3, px: int, py: int, pz: int):
    i = int(wp.floor(xyz[0]))
    j = int(wp.floor(xyz[1]))
    k = int(wp.floor(xyz[2]))
    return noise_between(
        state,
        i % px,
        (i % px + 1) % px,
        j % py,
        (j % py + 1) % py,
        k % pz,
        (k % pz + 1) % pz,
        xyz[0] - float(i),
        xyz[1] - float(j),
        xyz[2] - float(k),
    )


@wp.func
def pnoise(state: wp.uint32, xyzt: wp.vec4, px: int, py: int, pz: int, pt: int):
    i = int(wp.floor(xyzt[0]))
    j = int(wp.floor(xyzt[1]))
    k = int(wp.floor(xyzt[2]))
    l = int(wp.floor(xyzt[3]))
    return noise_between(
        state,
        i % px,
        (i % px + 1) % px,
        j % py,
        (j % py + 1) % py,
        k % pz,
        (k % pz + 1) % pz,
        l % pt,
        (l % pt + 1) % pt,
        xyzt[0] - float(i),
        xyzt[1] - float(j),
        xyzt[2] - float(k),
        xyzt[3] - float(l),
    )
