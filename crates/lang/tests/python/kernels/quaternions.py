"""Quaternions: construction and rotations."""

import warp as wp


@wp.kernel
def rotations(axis: wp.array[wp.vec3], angle: wp.array[float], p: wp.array[wp.vec3], out: wp.array2d[wp.vec3],
              made: wp.array[wp.quat]):
    i = wp.tid()
    q = wp.quat_from_axis_angle(wp.normalize(axis[i]), angle[i])
    made[i] = q
    out[i, 0] = wp.quat_rotate(q, p[i])
    out[i, 1] = wp.quat_rotate_inv(q, p[i])
    out[i, 2] = wp.quat_rotate(wp.quat_inverse(q), p[i])


@wp.kernel
def products(a: wp.array[wp.quat], b: wp.array[wp.quat], out: wp.array2d[wp.quat], dots: wp.array[float]):
    i = wp.tid()
    p = wp.normalize(a[i])
    q = wp.normalize(b[i])
    out[i, 0] = p * q
    out[i, 1] = p + q
    out[i, 2] = p - q
    out[i, 3] = p * 2.0
    out[i, 4] = 0.5 * q
    out[i, 5] = q / 4.0
    out[i, 6] = wp.quat_inverse(p) * q
    out[i, 7] = wp.quat_identity()
    out[i, 8] = wp.quat(q[0], q[1], q[2], -q[3])
    out[i, 9] = wp.quaternion(wp.vec3(1.0, 2.0, 3.0), 4.0)
    dots[i] = wp.dot(p, q) + wp.length(a[i])


@wp.kernel
def matrices(a: wp.array[wp.quat], out: wp.array[wp.mat33], back: wp.array[wp.quat]):
    i = wp.tid()
    q = wp.normalize(a[i])
    m = wp.quat_to_matrix(q)
    out[i] = m
    back[i] = wp.quat_from_matrix(m)


@wp.kernel
def angles(r: wp.array[wp.vec3], out: wp.array[wp.quat], back: wp.array[wp.vec3], axes: wp.array[wp.vec3],
           turned: wp.array[float]):
    i = wp.tid()
    q = wp.quat_rpy(r[i][0], r[i][1], r[i][2])
    out[i] = q
    back[i] = wp.quat_to_rpy(q)
    axis = wp.vec3()
    angle = float(0.0)
    wp.quat_to_axis_angle(q, axis, angle)
    axes[i] = axis
    turned[i] = angle


@wp.kernel
def slerp(a: wp.array[wp.quat], b: wp.array[wp.quat], t: wp.array[float], out: wp.array[wp.quat]):
    i = wp.tid()
    out[i] = wp.quat_slerp(wp.normalize(a[i]), wp.normalize(b[i]), t[i])


@wp.kernel
def integrate(q: wp.array[wp.quat], w: wp.array[wp.vec3], dt: float):
    i = wp.tid()
    r = wp.normalize(q[i])
    for _k in range(8):
        spin = wp.quat(w[i][0], w[i][1], w[i][2], 0.0)
        r = wp.normalize(r + spin * r * 0.5 * dt)
    q[i] = r


@wp.kernel
def doubles(a: wp.array[wp.quatd], v: wp.array[wp.vec3d], out: wp.array[wp.vec3d]):
    i = wp.tid()
    out[i] = wp.quat_rotate(wp.normalize(a[i]), v[i])


A = [16, -1, 1]
LAUNCHES = {
    "rotations": {"dim": 16, "axis": A, "angle": [16, -3, 3], "p": A, "out": (16, 3), "made": 16, "check": "near 1e-6"},
    "products": {"dim": 16, "a": A, "b": A, "out": (16, 10), "dots": 16, "check": "near 1e-6"},
    "matrices": {"dim": 16, "a": A, "out": 16, "back": 16, "check": "near 1e-6"},
    "angles": {"dim": 16, "r": A, "out": 16, "back": 16, "axes": 16, "turned": 16, "check": "near 3e-6"},
    "slerp": {"dim": 16, "a": A, "b": A, "t": [16, 0, 1], "out": 16, "check": "near 1e-5"},
    "integrate": {"dim": 16, "q": A, "w": A, "dt": 0.05, "check": "near 2e-6"},
    "doubles": {"dim": 16, "a": A, "v": A, "out": 16, "check": "near 1e-14"},
}
