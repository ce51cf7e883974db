"""Curl noise: the curl of a potential of gradient noise, which is divergence-free (Bridson and others, "Curl-Noise for
Procedural Fluid Flow", 2007).

A sample is the gradient of the noise followed by its value, so that both are interpolated between corners at once.
"""

from typing import Any

import warp as wp

vec5 = wp.types.vector(length=5, dtype=float)


@wp.func
def sample_mixed(a: Any, b: Any, t: float, axis: Any):
    """Interpolates between two samples one unit apart along `axis`, a unit vector of the sample."""
    fade_slope = 30.0 * t * t * (t * (t - 2.0) + 1.0)
    return a + (b - a) * noise_fade(t) + axis * ((b[-1] - a[-1]) * fade_slope)


@wp.func
def sample_corner(state: wp.uint32, i: int, j: int, x: float, y: float):
    g = noise_gradient(state, i, j)
    return wp.vec3(g[0], g[1], wp.dot(g, wp.vec2(x, y)))


@wp.func
def sample_edge(state: wp.uint32, i: int, j: int, x: float, y: float):
    left = sample_corner(state, i, j, x, y)
    right = sample_corner(state, i + 1, j, x - 1.0, y)
    return sample_mixed(left, right, x, wp.vec3(1.0, 0.0, 0.0))


@wp.func
def noise_sample(state: wp.uint32, xy: wp.vec2):
    i = int(wp.floor(xy[0]))
    j = int(wp.floor(xy[1]))
    x = xy[0] - float(i)
    y = xy[1] - float(j)
    near = sample_edge(state, i, j, x, y)
    far = sample_edge(state, i, j + 1, x, y - 1.0)
    return sample_mixed(near, far, y, wp.vec3(0.0, 1.0, 0.0))


@wp.func
def sample_corner(state: wp.uint32, i: int, j: int, k: int, x: float, y: float, z: float):
    g = noise_gradient(state, i, j, k)
    return wp.vec4(g[0], g[1], g[2], wp.dot(g, wp.vec3(x, y, z)))


@wp.func
def sample_edge(state: wp.uint32, i: int, j: int, k: int, x: float, y: float, z: float):
    left = sample_corner(state, i, j, k, x, y, z)
    right = sample_corner(state, i + 1, j, k, x - 1.0, y, z)
    return sample_mixed(left, right, x, wp.vec4(1.0, 0.0, 0.0, 0.0))


@wp.func
def sample_face(state: wp.uint32, i: int, j: int, k: int, x: float, y: float, z: float):
    near = sample_edge(state, i, j, k, x, y, z)
    far = sample_edge(state, i, j + 1, k, x, y - 1.0, z)
    return sample_mixed(near, far, y, wp.vec4(0.0, 1.0, 0.0, 0.0))


@wp.func
def noise_sample(state: wp.uint32, xyz: wp.vec3):
    i = int(wp.floor(xyz[0]))
    j = int(wp.floor(xyz[1]))
    k = int(wp.floor(xyz[2]))
    x = xyz[0] - float(i)
    y = xyz[1] - float(j)
    z = xyz[2] - float(k)
    below = sample_face(state, i, j, k, x, y, z)
    above = sample_face(state, i, j, k + 1, x, y, z - 1.0)
    return sample_mixed(below, above, z, wp.vec4(0.0, 0.0, 1.0, 0.0))


@wp.func
def sample_corner(state: wp.uint32, i: int, j: int, k: int, l: int, x: float, y: float, z: float, t: float):
    g = noise_gradient(state, i, j, k, l)
    return vec5(g[0], g[1], g[2], g[3], wp.dot(g, wp.vec4(x, y, z, t)))


@wp.func
def sample_edge(state: wp.uint32, i: int, j: int, k: int, l: int, x: float, y: float, z: float, t: float):
    left = sample_corner(state, i, j, k, l, x, y, z, t)
    right = sample_corner(state, i + 1, j, k, l, x - 1.0, y, z, t)
    return sample_mixed(left, right, x, vec5(1.0, 0.0, 0.0, 0.0, 0.0))


@wp.func
def sample_face(state: wp.uint32, i: int, j: int, k: int, l: int, x: float, y: float, z: float, t: float):
    near = sample_edge(state, i, j, k, l, x, y, z, t)
    far = sample_edge(state, i, j + 1, k, l, x, y - 1.0, z, t)
    return sample_mixed(near, far, y, vec5(0.0, 1.0, 0.0, 0.0, 0.0))


@wp.func
def sample_cell(state: wp.uint32, i: int, j: int, k: int, l: int, x: float, y: float, z: float, t: float):
    below = sample_face(state, i, j, k, l, x, y, z, t)
    above = sample_face(state, i, j, k + 1, l, x, y, z - 1.0, t)
    return sample_mixed(below, above, z, vec5(0.0, 0.0, 1.0, 0.0, 0.0))


@wp.func
def noise_sample(state: wp.uint32, xyzt: wp.vec4):
    i = int(wp.floor(xyzt[0]))
    j = int(wp.floor(xyzt[1]))
    k = int(wp.floor(xyzt[2]))
    l = int(wp.floor(xyzt[3]))
    x = xyzt[0] - float(i)
    y = xyzt[1] - float(j)
    z = xyzt[2] - float(k)
    t = xyzt[3] - float(l)
    before = sample_cell(state, i, j, k, l, x, y, z, t)
    after = sample_cell(state, i, j, k, l + 1, x, y, z, t - 1.0)
    return sample_mixed(before, after, t, vec5(0.0, 0.0, 0.0, 1.0, 0.0))


@wp.func
def curlnoise(
    state: wp.uint32, xy: wp.vec2, octaves: wp.uint32 = wp.uint32(1), lacunarity: float = 2.0, gain: float = 0.5
):
    frequency = float(1.0)
    weight = float(1.0)
    slope = wp.vec3()
    for n in range(int(octaves)):
        slope += weight * noise_sample(state, frequency * xy)
        weight *= gain
        frequency *= lacunarity
    return wp.vec2(-slope[1], slope[0])


@wp.func
def curl_field(state: wp.uint32, at: Any, octaves: wp.uint32, lacunarity: float, gain: float):
    """The curl of three noise fields; each continues the seeds of the one before."""
    frequency = float(1.0)
    weight = float(1.0)
    seed = wp.uint32(state)
    curl = wp.vec3()
    for n in range(int(octaves)):
        a = noise_sample(seed, frequency * at)
        seed = rand_next(seed + rand_next(wp.uint32(10019689)))
        b = noise_sample(seed, frequency * at)
        seed = rand_next(seed + rand_next(wp.uint32(13112221)))
        c = noise_sample(seed, frequency * at)
        curl += weight * wp.vec3(c[1] - b[2], a[2] - c[0], b[0] - a[1])
        weight *= gain
        frequency *= lacunarity
    return curl


@wp.func
def curlnoise(
    state: wp.uint32, xyz: wp.vec3, octaves: wp.uint32 = wp.uint32(1), lacunarity: float = 2.0, gain: float = 0.5
):
    return curl_field(state, xyz, octaves, lacunarity, gain)


@wp.func
def curlnoise(
    state: wp.uint32, xyzt: wp.vec4, octaves: wp.uint32 = wp.uint32(1), lacunarity: float = 2.0, gain: float = 0.5
):
    return curl_field(state, xyzt, octaves, lacunarity, gain)
