"""Functions of square matrices: determinants and inverses by cofactors, diagonals, cross products as matrices."""

from typing import Any

import warp as wp

Vec3 = wp.types.vector(length=3, dtype=wp.Float)
Vec4 = wp.types.vector(length=4, dtype=wp.Float)
Mat22 = wp.types.matrix(shape=(2, 2), dtype=wp.Float)
Mat33 = wp.types.matrix(shape=(3, 3), dtype=wp.Float)
Mat44 = wp.types.matrix(shape=(4, 4), dtype=wp.Float)


@wp.func
def skew(vec: Vec3):
    zero = vec.dtype(0.0)
    return wp.matrix_from_rows(
        wp.vector(zero, -vec[2], vec[1]), wp.vector(vec[2], zero, -vec[0]), wp.vector(-vec[1], vec[0], zero)
    )


@wp.func
def ddot(a: Any, b: Any):
    s = wp.dot(a[0], b[0])
    for k in range(1, len(a)):
        s = s + wp.dot(a[k], b[k])
    return s


@wp.func
def determinant(a: Mat22):
    return a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]


@wp.func
def determinant(a: Mat33):
    return wp.dot(a[0], wp.cross(a[1], a[2]))


# All 2 x 2 minors of the upper and of the lower two rows of a 4 x 4 matrix.
@wp.func
def minors(p: Vec4, q: Vec4):
    return (
        p[0] * q[1] - p[1] * q[0],
        p[0] * q[2] - p[2] * q[0],
        p[0] * q[3] - p[3] * q[0],
        p[1] * q[2] - p[2] * q[1],
        p[1] * q[3] - p[3] * q[1],
        p[2] * q[3] - p[3] * q[2],
    )


@wp.func
def determinant(a: Mat44):
    s0, s1, s2, s3, s4, s5 = minors(a[0], a[1])
    c0, c1, c2, c3, c4, c5 = minors(a[2], a[3])
    return s0 * c5 - s1 * c4 + s2 * c3 + s3 * c2 - s4 * c1 + s5 * c0


@wp.func
def inverse(a: Mat22):
    det = wp.determinant(a)
    if det == a.dtype(0.0):
        return type(a)()
    return type(a)(a[1, 1], -a[0, 1], -a[1, 0], a[0, 0]) / det


@wp.func
def inverse(a: Mat33):
    det = wp.determinant(a)
    if det == a.dtype(0.0):
        return type(a)()
    return wp.matrix_from_cols(wp.cross(a[1], a[2]), wp.cross(a[2], a[0]), wp.cross(a[0], a[1])) / det


@wp.func
def inverse(a: Mat44):
    s0, s1, s2, s3, s4, s5 = minors(a[0], a[1])
    c0, c1, c2, c3, c4, c5 = minors(a[2], a[3])
    det = s0 * c5 - s1 * c4 + s2 * c3 + s3 * c2 - s4 * c1 + s5 * c0
    if det == a.dtype(0.0):
        return type(a)()
    adjugate = type(a)(
        a[1, 1] * c5 - a[1, 2] * c4 + a[1, 3] * c3,
        -a[0, 1] * c5 + a[0, 2] * c4 - a[0, 3] * c3,
        a[3, 1] * s5 - a[3, 2] * s4 + a[3, 3] * s3,
        -a[2, 1] * s5 + a[2, 2] * s4 - a[2, 3] * s3,
        -a[1, 0] * c5 + a[1, 2] * c2 - a[1, 3] * c1,
        a[0, 0] * c5 - a[0, 2] * c2 + a[0, 3] * c1,
        -a[3, 0] * s5 + a[3, 2] * s2 - a[3, 3] * s1,
        a[2, 0] * s5 - a[2, 2] * s2 + a[2, 3] * s1,
        a[1, 0] * c4 - a[1, 1] * c2 + a[1, 3] * c0,
        -a[0, 0] * c4 + a[0, 1] * c2 - a[0, 3] * c0,
        a[3, 0] * s4 - a[3, 1] * s2 + a[3, 3] * s0,
        -a[2, 0] * s4 + a[2, 1] * s2 - a[2, 3] * s0,
        -a[1, 0] * c3 + a[1, 1] * c1 - a[1, 2] * c0,
        a[0, 0] * c3 - a[0, 1] * c1 + a[0, 2] * c0,
        -a[3, 0] * s3 + a[3, 1] * s1 - a[3, 2] * s0,
        a[2, 0] * s3 - a[2, 1] * s1 + a[2, 2] * s0,
    )
    return adjugate / det


@wp.func
def inverse_approx(a: Any):
    return wp.inverse(a)
