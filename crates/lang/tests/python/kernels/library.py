"""The rest of the library: decompositions (their unique results), Euler angles, norms, binary search, edges."""

import warp as wp
import warp.fem as fem


@wp.kernel
def decompositions(a: wp.array[wp.mat33], out: wp.array2d[wp.mat33], sigma: wp.array[wp.vec3]):
    i = wp.tid()
    m = a[i]
    u, s, v = wp.svd3(m)
    out[i, 0] = u * wp.diag(s) * wp.transpose(v)
    sigma[i] = s
    q, r = wp.qr3(m)
    out[i, 1] = q
    out[i, 2] = r
    w, d = wp.eig3(m + wp.transpose(m))
    out[i, 3] = w * wp.diag(d) * wp.transpose(w)


@wp.kernel
def into_variables(a: wp.array[wp.mat33], out: wp.array[wp.mat33]):
    i = wp.tid()
    u = wp.mat33()
    v = wp.mat33()
    s = wp.vec3()
    wp.svd3(a[i], u, s, v)
    made = u * wp.diag(s) * wp.transpose(v)
    wp.qr3(a[i], u, v)
    made += u * v
    wp.eig3(a[i] + wp.transpose(a[i]), u, s)
    out[i] = made + u * wp.diag(s) * wp.transpose(u)


@wp.kernel
def set_in_place(t: wp.array[wp.transform], out: wp.array[wp.transform]):
    i = wp.tid()
    x = t[i]
    wp.transform_set_translation(x, wp.vec3(1.0, 2.0, 3.0))
    y = x
    wp.transform_set_rotation(y, wp.quat(0.0, 0.0, 0.0, 1.0))
    out[i] = wp.transform(wp.transform_get_translation(y), wp.transform_get_rotation(x))


@wp.kernel
def small_decompositions(a: wp.array[wp.mat22d], out: wp.array[wp.mat22d], sigma: wp.array[wp.vec2d]):
    i = wp.tid()
    u, s, v = wp.svd2(a[i])
    out[i] = u * wp.diag(s) * wp.transpose(v)
    sigma[i] = s


@wp.kernel
def euler(q: wp.array[wp.quat], e: wp.array[wp.vec3], out: wp.array2d[wp.vec3], made: wp.array2d[wp.quat]):
    i = wp.tid()
    r = wp.normalize(q[i])
    out[i, 0] = wp.quat_to_euler(r, 0, 1, 2)
    out[i, 1] = wp.quat_to_euler(r, 2, 1, 0)
    out[i, 2] = wp.quat_to_euler(r, 0, 2, 0)
    made[i, 0] = wp.quat_from_euler(e[i], 0, 1, 2)
    made[i, 1] = wp.quat_from_euler(e[i], 1, 2, 0)


@wp.kernel
def twists(q: wp.array[wp.quat], axis: wp.array[wp.vec3], out: wp.array2d[float], part: wp.array[wp.quat]):
    i = wp.tid()
    r = wp.normalize(q[i])
    a = wp.normalize(axis[i])
    part[i] = wp.quat_twist(a, r)
    out[i, 0] = wp.quat_twist_angle(a, r)
    out[i, 1] = wp.quat_twist_angle_signed(a, r)


@wp.kernel
def norms(v: wp.array[wp.vec3], out: wp.array2d[float], smooth: wp.array[wp.vec3]):
    i = wp.tid()
    out[i, 0] = wp.norm_l1(v[i])
    out[i, 1] = wp.norm_l2(v[i])
    out[i, 2] = wp.norm_huber(v[i], 0.7)
    out[i, 3] = wp.norm_pseudo_huber(v[i], 0.7)
    out[i, 4] = wp.norm_huber(v[i])
    smooth[i] = wp.smooth_normalize(v[i], 0.5)


@wp.kernel
def searching(a: wp.array[float], x: wp.array[float], out: wp.array2d[int]):
    i = wp.tid()
    out[i, 0] = wp.lower_bound(a, x[i])
    out[i, 1] = wp.lower_bound(a, 1, 4, x[i])


@wp.kernel
def edges(a: wp.array[wp.vec3], b: wp.array[wp.vec3], c: wp.array[wp.vec3], d: wp.array[wp.vec3], out: wp.array[wp.vec3]):
    i = wp.tid()
    out[i] = wp.closest_point_edge_edge(a[i], b[i], c[i], d[i], 1.0e-6)


@wp.kernel
def adjoint(a: wp.array[wp.mat33], b: wp.array[wp.mat33], v: wp.array[wp.spatial_vector], out: wp.array[wp.spatial_vector]):
    i = wp.tid()
    out[i] = wp.spatial_adjoint(a[i], b[i]) * v[i]


@wp.kernel
def wide_inverses(a: wp.array[wp.mat44d], out: wp.array[wp.mat44d], dets: wp.array[wp.float64]):
    i = wp.tid()
    m = a[i] + wp.identity(n=4, dtype=wp.float64) * wp.float64(3.0)
    out[i] = wp.inverse(m)
    dets[i] = wp.determinant(m)


@wp.kernel
def inverse_errors(x: wp.array[wp.float64], out: wp.array2d[wp.float64]):
    i = wp.tid()
    out[i, 0] = wp.erfinv(x[i])
    out[i, 1] = wp.erfcinv(x[i] + wp.float64(1.0))
    out[i, 2] = wp.degrees(x[i])
    out[i, 3] = wp.smoothstep(wp.float64(-0.5), wp.float64(0.5), x[i])


@wp.kernel
def wide_transforms(t: wp.array[wp.transformd], p: wp.array[wp.vec3d], out: wp.array2d[wp.vec3d]):
    i = wp.tid()
    x = wp.transformd(wp.transform_get_translation(t[i]), wp.normalize(wp.transform_get_rotation(t[i])))
    out[i, 0] = wp.transform_point(x, p[i])
    out[i, 1] = wp.transform_point(wp.transform_inverse(x), p[i])
    out[i, 2] = wp.transform_vector(x * x, p[i])


@wp.kernel
def deep_noise(seed: int, x: wp.array[wp.vec4], out: wp.array2d[float]):
    i = wp.tid()
    state = wp.rand_init(seed)
    out[i, 0] = wp.noise(state, x[i] * 3.0)
    out[i, 1] = wp.pnoise(state, x[i], 2, 3, 4, 5)


A = [12, -1, 1]
Mat55 = wp.types.matrix(shape=(5, 5), dtype=wp.float64)


@wp.kernel
def inverses_by_reflections(
    a: wp.array[wp.mat33], b: wp.array[Mat55], out: wp.array[wp.mat33], wide: wp.array[Mat55]
):
    i = wp.tid()
    out[i] = fem.linalg.inverse_qr(a[i] + wp.identity(n=3, dtype=float) * 3.0)
    wide[i] = fem.linalg.inverse_qr(b[i] + wp.identity(n=5, dtype=wp.float64) * wp.float64(4.0))


LAUNCHES = {
    "inverses_by_reflections": {"dim": 6, "a": [6, -1, 1], "b": [6, -1, 1], "out": 6, "wide": 6, "check": "near 2e-6"},
    "decompositions": {"dim": 12, "a": A, "out": (12, 4), "sigma": 12, "check": "near 1e-4"},
    "into_variables": {"dim": 12, "a": A, "out": 12, "check": "near 1e-4"},
    "set_in_place": {"dim": 12, "t": A, "out": 12, "check": "exact"},
    "small_decompositions": {"dim": 12, "a": A, "out": 12, "sigma": 12, "check": "near 1e-12"},
    "euler": {"dim": 12, "q": A, "e": A, "out": (12, 3), "made": (12, 2), "check": "near 1e-5"},
    "twists": {"dim": 12, "q": A, "axis": A, "out": (12, 2), "part": 12, "check": "near 1e-4"},
    "norms": {"dim": 12, "v": A, "out": (12, 5), "smooth": 12, "check": "near 1e-6"},
    "searching": {"dim": 12, "a": [[-0.8, -0.2, 0.1, 0.3, 0.7]], "x": A, "out": (12, 2), "check": "exact"},
    "edges": {"dim": 12, "a": A, "b": A, "c": A, "d": A, "out": 12, "check": "near 1e-5"},
    "adjoint": {"dim": 12, "a": A, "b": A, "v": A, "out": 12, "check": "near 1e-6"},
    "wide_inverses": {"dim": 8, "a": [8, -1, 1], "out": 8, "dets": 8, "check": "near 1e-12"},
    "inverse_errors": {"dim": 16, "x": [16, -0.99, 0.99], "out": (16, 4), "check": "near 1e-13"},
    "wide_transforms": {"dim": 12, "t": A, "p": A, "out": (12, 3), "check": "near 1e-13"},
    "deep_noise": {"dim": 12, "seed": 4, "x": [12, 0, 6], "out": (12, 2), "check": "near 1e-6"},
}
