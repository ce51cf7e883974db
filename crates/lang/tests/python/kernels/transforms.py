"""Transforms: a position and a rotation; spatial vectors: angular and linear part."""

import warp as wp


@wp.kernel
def points(t: wp.array[wp.transform], p: wp.array[wp.vec3], out: wp.array2d[wp.vec3]):
    i = wp.tid()
    x = wp.transform(wp.transform_get_translation(t[i]), wp.normalize(wp.transform_get_rotation(t[i])))
    out[i, 0] = wp.transform_point(x, p[i])
    out[i, 1] = wp.transform_vector(x, p[i])
    out[i, 2] = wp.transform_point(wp.transform_inverse(x), p[i])
    out[i, 3] = wp.transform_get_translation(x)


@wp.kernel
def chains(a: wp.array[wp.transform], b: wp.array[wp.transform], out: wp.array2d[wp.transform]):
    i = wp.tid()
    x = wp.transform(wp.transform_get_translation(a[i]), wp.normalize(wp.transform_get_rotation(a[i])))
    y = wp.transform(wp.transform_get_translation(b[i]), wp.normalize(wp.transform_get_rotation(b[i])))
    out[i, 0] = wp.transform_multiply(x, y)
    out[i, 1] = x * y
    out[i, 2] = wp.transform_inverse(x)
    out[i, 3] = wp.transform_inverse(x) * y
    out[i, 4] = wp.transform_identity()


@wp.kernel
def parts(a: wp.array[wp.transform], out: wp.array[wp.transform], p: wp.array[wp.vec3], q: wp.array[wp.quat]):
    i = wp.tid()
    t = a[i]
    p[i] = t.p
    q[i] = t.q
    t.p = wp.vec3(1.0, 2.0, 3.0)
    t.q = wp.quat(0.5, 0.5, 0.5, 0.5)
    out[i] = t


@wp.kernel
def matrices(a: wp.array[wp.transform], out: wp.array[wp.mat44], back: wp.array[wp.transform]):
    i = wp.tid()
    x = wp.transform(wp.transform_get_translation(a[i]), wp.normalize(wp.transform_get_rotation(a[i])))
    m = wp.transform_to_matrix(x)
    out[i] = m
    back[i] = wp.transform_from_matrix(m)


@wp.kernel
def composed(p: wp.array[wp.vec3], q: wp.array[wp.quat], s: wp.array[wp.vec3], out: wp.array[wp.mat44],
             move: wp.array[wp.vec3], turn: wp.array[wp.quat], scale: wp.array[wp.vec3]):
    i = wp.tid()
    m = wp.transform_compose(p[i], wp.normalize(q[i]), s[i])
    out[i] = m
    a, b, c = wp.transform_decompose(m)
    move[i] = a
    turn[i] = b
    scale[i] = c


@wp.kernel
def spatial(a: wp.array[wp.spatial_vector], b: wp.array[wp.spatial_vector], out: wp.array2d[wp.spatial_vector],
            ends: wp.array2d[wp.vec3], dots: wp.array[float]):
    i = wp.tid()
    v = a[i]
    w = b[i]
    out[i, 0] = v + w
    out[i, 1] = v * 2.0
    out[i, 2] = wp.spatial_cross(v, w)
    out[i, 3] = wp.spatial_cross_dual(v, w)
    out[i, 4] = wp.spatial_vector(wp.spatial_bottom(v), wp.spatial_top(w))
    ends[i, 0] = wp.spatial_top(v)
    ends[i, 1] = wp.spatial_bottom(v)
    dots[i] = wp.spatial_dot(v, w)


@wp.kernel
def twists(t: wp.array[wp.transform], v: wp.array[wp.spatial_vector], r: wp.array[wp.vec3],
           out: wp.array2d[wp.spatial_vector], speed: wp.array[wp.vec3]):
    i = wp.tid()
    x = wp.transform(wp.transform_get_translation(t[i]), wp.normalize(wp.transform_get_rotation(t[i])))
    out[i, 0] = wp.transform_twist(x, v[i])
    out[i, 1] = wp.transform_wrench(x, v[i])
    speed[i] = wp.velocity_at_point(v[i], r[i])


@wp.kernel
def inertia(m: wp.array[wp.spatial_matrix], v: wp.array[wp.spatial_vector], out: wp.array[wp.spatial_vector]):
    i = wp.tid()
    out[i] = m[i] * v[i]


@wp.kernel
def arm(lengths: wp.array[float], angles: wp.array2d[float], out: wp.array2d[wp.vec3]):
    i = wp.tid()
    x = wp.transform_identity()
    for k in range(4):
        turn = wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), angles[i, k])
        x = wp.transform_multiply(x, wp.transform(wp.vec3(0.0, 0.0, 0.0), turn))
        x = wp.transform_multiply(x, wp.transform(wp.vec3(lengths[k], 0.0, 0.0), wp.quat_identity()))
        out[i, k] = wp.transform_get_translation(x)


A = [12, -1, 1]
LAUNCHES = {
    "points": {"dim": 12, "t": A, "p": A, "out": (12, 4), "check": "near 1e-6"},
    "chains": {"dim": 12, "a": A, "b": A, "out": (12, 5), "check": "near 1e-6"},
    "parts": {"dim": 12, "a": A, "out": 12, "p": 12, "q": 12, "check": "exact"},
    "matrices": {"dim": 12, "a": A, "out": 12, "back": 12, "check": "near 1e-6"},
    "composed": {"dim": 12, "p": A, "q": A, "s": [12, 0.5, 2], "out": 12, "move": 12, "turn": 12, "scale": 12,
                 "check": "near 3e-6"},
    "spatial": {"dim": 12, "a": A, "b": A, "out": (12, 5), "ends": (12, 2), "dots": 12, "check": "near 1e-6"},
    "twists": {"dim": 12, "t": A, "v": A, "r": A, "out": (12, 2), "speed": 12, "check": "near 2e-6"},
    "inertia": {"dim": 12, "m": A, "v": A, "out": 12, "check": "near 1e-6"},
    "arm": {"dim": 8, "lengths": [4, 0.5, 1], "angles": [(8, 4), -1, 1], "out": (8, 4), "check": "near 2e-6"},
}
