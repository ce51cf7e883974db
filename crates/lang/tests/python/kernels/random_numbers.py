"""Random numbers, samples and noise: the same as Warp's, since both are functions of the seed."""

import warp as wp


@wp.kernel
def seeds(seed: int, out: wp.array2d[wp.uint32]):
    i = wp.tid()
    out[i, 0] = wp.rand_init(seed)
    out[i, 1] = wp.rand_init(seed, i)
    out[i, 2] = wp.rand_init(seed + i, 3)


@wp.kernel
def uniform(seed: int, out: wp.array2d[float]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    out[i, 0] = wp.randf(state)
    out[i, 1] = wp.randf(state)
    out[i, 2] = wp.randf(state, -2.0, 3.0)


@wp.kernel
def integers(seed: int, out: wp.array2d[int], wide: wp.array2d[wp.uint32]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    out[i, 0] = wp.randi(state)
    out[i, 1] = wp.randi(state, -10, 20)
    out[i, 2] = wp.randi(state, 0, 6)
    wide[i, 0] = wp.randu(state)
    wide[i, 1] = wp.randu(state, wp.uint32(5), wp.uint32(50))


@wp.kernel
def normal(seed: int, out: wp.array2d[float]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    out[i, 0] = wp.randn(state)
    out[i, 1] = wp.randn(state)


@wp.kernel
def samples(seed: int, two: wp.array2d[wp.vec2], three: wp.array2d[wp.vec3]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    two[i, 0] = wp.sample_unit_square(state)
    two[i, 1] = wp.sample_unit_ring(state)
    two[i, 2] = wp.sample_unit_disk(state)
    two[i, 3] = wp.sample_triangle(state)
    three[i, 0] = wp.sample_unit_cube(state)
    three[i, 1] = wp.sample_unit_sphere_surface(state)
    three[i, 2] = wp.sample_unit_sphere(state)
    three[i, 3] = wp.sample_unit_hemisphere_surface(state)
    three[i, 4] = wp.sample_unit_hemisphere(state)


@wp.kernel
def distribution(seed: int, cdf: wp.array[float], out: wp.array[int]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    out[i] = wp.sample_cdf(state, cdf)


@wp.kernel
def monte_carlo(seed: int, out: wp.array[float]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    inside = int(0)
    for _k in range(200):
        x = wp.randf(state)
        y = wp.randf(state)
        if x * x + y * y < 1.0:
            inside += 1
    out[i] = 4.0 * float(inside) / 200.0


@wp.kernel
def noise(seed: int, x: wp.array[wp.vec4], out: wp.array2d[float]):
    i = wp.tid()
    state = wp.rand_init(seed)
    v = x[i]
    out[i, 0] = wp.noise(state, v[0])
    out[i, 1] = wp.noise(state, wp.vec2(v[0], v[1]))
    out[i, 2] = wp.noise(state, wp.vec3(v[0], v[1], v[2]))
    out[i, 3] = wp.noise(state, v)


@wp.kernel
def periodic_noise(seed: int, x: wp.array[wp.vec4], out: wp.array2d[float]):
    i = wp.tid()
    state = wp.rand_init(seed)
    v = x[i]
    out[i, 0] = wp.pnoise(state, v[0], 2)
    out[i, 1] = wp.pnoise(state, wp.vec2(v[0], v[1]), 2, 3)
    out[i, 2] = wp.pnoise(state, wp.vec3(v[0], v[1], v[2]), 2, 3, 4)


@wp.kernel
def curl_noise(seed: int, x: wp.array[wp.vec4], two: wp.array2d[wp.vec2], three: wp.array2d[wp.vec3]):
    i = wp.tid()
    state = wp.rand_init(seed)
    p = x[i]
    two[i, 0] = wp.curlnoise(state, wp.vec2(p[0], p[1]))
    two[i, 1] = wp.curlnoise(state, wp.vec2(p[0], p[1]), wp.uint32(3), 1.8, 0.4)
    two[i, 2] = wp.curlnoise(state, wp.vec2(p[0], p[1]), octaves=wp.uint32(0))
    three[i, 0] = wp.curlnoise(state, wp.vec3(p[0], p[1], p[2]))
    three[i, 1] = wp.curlnoise(state, wp.vec3(p[0], p[1], p[2]), octaves=wp.uint32(3), lacunarity=2.5)
    three[i, 2] = wp.curlnoise(state, p)
    three[i, 3] = wp.curlnoise(state, p, wp.uint32(2), 1.5, 0.7)


@wp.kernel
def poisson_counts(seed: int, rate: wp.array[float], out: wp.array2d[wp.uint32]):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    out[i, 0] = wp.poisson(state, rate[i])
    out[i, 1] = wp.poisson(state, rate[i] * 10.0)
    out[i, 2] = wp.poisson(state, rate[i] * 100.0)
    out[i, 3] = wp.poisson(state, 0.0)
    # The state that is left.
    out[i, 4] = wp.randu(state)


LAUNCHES = {
    "seeds": {"dim": 16, "seed": 42, "out": (16, 3), "check": "exact"},
    "uniform": {"dim": 32, "seed": 7, "out": (32, 3), "check": "exact"},
    "integers": {"dim": 32, "seed": 7, "out": (32, 3), "wide": (32, 2), "check": "exact"},
    "normal": {"dim": 32, "seed": 11, "out": (32, 2), "check": "near 2e-6"},
    "samples": {"dim": 16, "seed": 5, "two": (16, 4), "three": (16, 5), "check": "near 2e-6"},
    "distribution": {"dim": 16, "seed": 5, "cdf": [[0.1, 0.15, 0.4, 0.6, 0.9, 1.0]], "out": 16, "check": "exact"},
    "monte_carlo": {"dim": 16, "seed": 3, "out": 16, "check": "exact"},
    "noise": {"dim": 16, "seed": 9, "x": [16, -4, 4], "out": (16, 4), "check": "near 1e-6"},
    "curl_noise": {"dim": 16, "seed": 21, "x": [16, -4, 4], "two": (16, 3), "three": (16, 4), "check": "near 1e-5"},
    "poisson_counts": {"dim": 64, "seed": 13, "rate": [64, 0, 12], "out": (64, 5), "check": "exact"},
    "periodic_noise": {"dim": 16, "seed": 9, "x": [16, 0, 8], "out": (16, 3), "check": "near 1e-6"},
}
