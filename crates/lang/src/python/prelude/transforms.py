"""Transforms (a position p and a rotation q), also as 4 x 4 matrices; spatial vectors (angular, then linear part)."""

import warp as wp

Quat = wp.types.quaternion(dtype=wp.Float)
Transform = wp.types.transformation(dtype=wp.Float)
Vec3 = wp.types.vector(length=3, dtype=wp.Float)
Vec6 = wp.types.vector(length=6, dtype=wp.Float)
Mat33 = wp.types.matrix(shape=(3, 3), dtype=wp.Float)
Mat44 = wp.types.matrix(shape=(4, 4), dtype=wp.Float)


@wp.func
def transform_identity():
    return wp.transform(wp.vec3(0.0, 0.0, 0.0), wp.quat(0.0, 0.0, 0.0, 1.0))


@wp.func
def transform_get_translation(xform: Transform):
    return xform.p


@wp.func
def transform_get_rotation(xform: Transform):
    return xform.q


@wp.func
def transform_multiply(a: Transform, b: Transform):
    return type(a)(wp.quat_rotate(a.q, b.p) + a.p, a.q * b.q)


@wp.func
def mul(a: Transform, b: Transform):
    return wp.transform_multiply(a, b)


@wp.func
def transform_inverse(xform: Transform):
    back = wp.quat_inverse(xform.q)
    return type(xform)(-wp.quat_rotate(back, xform.p), back)


@wp.func
def transform_point(xform: Transform, point: Vec3):
    return xform.p + wp.quat_rotate(xform.q, point)


@wp.func
def transform_point(mat: Mat44, point: Vec3):
    return wp.vector(
        mat[0, 0] * point[0] + mat[0, 1] * point[1] + mat[0, 2] * point[2] + mat[0, 3],
        mat[1, 0] * point[0] + mat[1, 1] * point[1] + mat[1, 2] * point[2] + mat[1, 3],
        mat[2, 0] * point[0] + mat[2, 1] * point[1] + mat[2, 2] * point[2] + mat[2, 3],
    )


@wp.func
def transform_vector(xform: Transform, vec: Vec3):
    return wp.quat_rotate(xform.q, vec)


@wp.func
def transform_vector(mat: Mat44, vec: Vec3):
    return wp.vector(
        mat[0, 0] * vec[0] + mat[0, 1] * vec[1] + mat[0, 2] * vec[2],
        mat[1, 0] * vec[0] + mat[1, 1] * vec[1] + mat[1, 2] * vec[2],
        mat[2, 0] * vec[0] + mat[2, 1] * vec[1] + mat[2, 2] * vec[2],
    )


@wp.func
def transform_compose(position: Vec3, rotation: Quat, scale: Vec3):
    r = wp.quat_to_matrix(rotation)
    zero = position.dtype(0.0)
    return wp.matrix_from_rows(
        wp.vector(r[0, 0] * scale[0], r[0, 1] * scale[1], r[0, 2] * scale[2], position[0]),
        wp.vector(r[1, 0] * scale[0], r[1, 1] * scale[1], r[1, 2] * scale[2], position[1]),
        wp.vector(r[2, 0] * scale[0], r[2, 1] * scale[1], r[2, 2] * scale[2], position[2]),
        wp.vector(zero, zero, zero, position.dtype(1.0)),
    )


@wp.func
def transform_decompose(m: Mat44):
    c0 = wp.vector(m[0, 0], m[1, 0], m[2, 0])
    c1 = wp.vector(m[0, 1], m[1, 1], m[2, 1])
    c2 = wp.vector(m[0, 2], m[1, 2], m[2, 2])
    scale = wp.vector(wp.length(c0), wp.length(c1), wp.length(c2))
    zero = m.dtype(0.0)
    if scale[0] != zero:
        c0 = c0 / scale[0]
    if scale[1] != zero:
        c1 = c1 / scale[1]
    if scale[2] != zero:
        c2 = c2 / scale[2]
    rotation = wp.quat_from_matrix(wp.matrix_from_cols(c0, c1, c2))
    return wp.vector(m[0, 3], m[1, 3], m[2, 3]), rotation, scale


@wp.func
def transform_to_matrix(xform: Transform):
    p = xform.p
    r = wp.quat_to_matrix(xform.q)
    zero = p.dtype(0.0)
    return wp.matrix_from_rows(
        wp.vector(r[0, 0], r[0, 1], r[0, 2], p[0]),
        wp.vector(r[1, 0], r[1, 1], r[1, 2], p[1]),
        wp.vector(r[2, 0], r[2, 1], r[2, 2], p[2]),
        wp.vector(zero, zero, zero, p.dtype(1.0)),
    )


@wp.func
def transform_from_matrix(mat: Mat44):
    return wp.transformation(wp.vector(mat[0, 3], mat[1, 3], mat[2, 3]), wp.quat_from_matrix(mat))


@wp.func
def spatial_top(svec: Vec6):
    return wp.vector(svec[0], svec[1], svec[2])


@wp.func
def spatial_bottom(svec: Vec6):
    return wp.vector(svec[3], svec[4], svec[5])


@wp.func
def spatial_joined(top: Vec3, bottom: Vec3):
    return wp.vector(top[0], top[1], top[2], bottom[0], bottom[1], bottom[2])


@wp.func
def spatial_dot(a: Vec6, b: Vec6):
    return wp.dot(a, b)


@wp.func
def spatial_cross(a: Vec6, b: Vec6):
    wa = wp.spatial_top(a)
    wb = wp.spatial_top(b)
    return spatial_joined(
        wp.cross(wa, wb), wp.cross(wp.spatial_bottom(a), wb) + wp.cross(wa, wp.spatial_bottom(b))
    )


@wp.func
def spatial_cross_dual(a: Vec6, b: Vec6):
    w = wp.spatial_top(a)
    f = wp.spatial_bottom(b)
    return spatial_joined(wp.cross(w, wp.spatial_top(b)) + wp.cross(wp.spatial_bottom(a), f), wp.cross(w, f))


@wp.func
def spatial_adjoint(r: Mat33, s: Mat33):
    z = r.dtype(0.0)
    return wp.matrix_from_rows(
        wp.vector(r[0, 0], r[0, 1], r[0, 2], z, z, z),
        wp.vector(r[1, 0], r[1, 1], r[1, 2], z, z, z),
        wp.vector(r[2, 0], r[2, 1], r[2, 2], z, z, z),
        wp.vector(s[0, 0], s[0, 1], s[0, 2], r[0, 0], r[0, 1], r[0, 2]),
        wp.vector(s[1, 0], s[1, 1], s[1, 2], r[1, 0], r[1, 1], r[1, 2]),
        wp.vector(s[2, 0], s[2, 1], s[2, 2], r[2, 0], r[2, 1], r[2, 2]),
    )


@wp.func
def velocity_at_point(qd: wp.spatial_vector, r: wp.vec3):
    return wp.spatial_bottom(qd) + wp.cross(wp.spatial_top(qd), r)


@wp.func
def transform_twist(t: wp.transform, x: wp.spatial_vector):
    w = wp.quat_rotate(t.q, wp.spatial_top(x))
    v = wp.quat_rotate(t.q, wp.spatial_bottom(x)) + wp.cross(t.p, w)
    return wp.spatial_vector(w, v)


@wp.func
def transform_wrench(t: wp.transform, x: wp.spatial_vector):
    f = wp.quat_rotate(t.q, wp.spatial_bottom(x))
    n = wp.quat_rotate(t.q, wp.spatial_top(x)) + wp.cross(t.p, f)
    return wp.spatial_vector(n, f)
