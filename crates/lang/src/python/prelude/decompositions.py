"""Decompositions of small matrices by Jacobi rotations, with a fixed number of sweeps to avoid divergence."""

from typing import Any

import warp as wp

Mat22 = wp.types.matrix(shape=(2, 2), dtype=wp.Float)
Mat33 = wp.types.matrix(shape=(3, 3), dtype=wp.Float)
Vec2 = wp.types.vector(length=2, dtype=wp.Float)
Vec3 = wp.types.vector(length=3, dtype=wp.Float)

SWEEPS = 6  # five suffice for float64 matrices with entries of similar magnitude


@wp.func
def rotation_to_zero(low: wp.Float, off: wp.Float, high: wp.Float):
    """Cosine and sine of the smaller rotation that makes the symmetric ((low, off), (off, high)) diagonal."""
    c = type(off)(1.0)
    s = type(off)(0.0)
    if off != type(off)(0.0):
        slope = (high - low) / (type(off)(2.0) * off)
        t = type(off)(1.0) / (wp.abs(slope) + wp.sqrt(slope * slope + type(off)(1.0)))
        if slope < type(off)(0.0):
            t = -t
        c = type(off)(1.0) / wp.sqrt(t * t + type(off)(1.0))
        s = t * c
    return c, s


@wp.func
def perpendicular(v: Vec3):
    """A unit vector perpendicular to a unit vector: the cross product with the least aligned axis."""
    zero = v.dtype(0.0)
    one = v.dtype(1.0)
    x = wp.abs(v[0])
    y = wp.abs(v[1])
    z = wp.abs(v[2])
    axis = wp.vector(zero, zero, one)
    if x <= y and x <= z:
        axis = wp.vector(one, zero, zero)
    elif y <= z:
        axis = wp.vector(zero, one, zero)
    return wp.normalize(wp.cross(v, axis))


@wp.func
def first_axis(v: Vec3):
    """A unit vector along v, or an arbitrary one if v is zero."""
    size = wp.length(v)
    if size > v.dtype(0.0):
        return v / size
    return wp.vector(v.dtype(1.0), v.dtype(0.0), v.dtype(0.0))


@wp.func
def second_axis(v: Vec3, first: Vec3):
    """A unit vector perpendicular to `first` in the plane of `first` and v; orthogonalized twice against rounding errors."""
    rest = v - first * wp.dot(first, v)
    rest = rest - first * wp.dot(first, rest)
    size = wp.length(rest)
    if size > v.dtype(0.0):
        return rest / size
    return perpendicular(first)


@wp.func
def svd3(A: Mat33):
    # One-sided Jacobi: rotates pairs of columns of A V until they are orthogonal.
    zero = A.dtype(0.0)
    one = A.dtype(1.0)
    t = wp.transpose(A)
    b0 = t[0]
    b1 = t[1]
    b2 = t[2]
    v0 = wp.vector(one, zero, zero)
    v1 = wp.vector(zero, one, zero)
    v2 = wp.vector(zero, zero, one)
    sweeps = int(SWEEPS)
    for _sweep in range(sweeps):
        c, s = rotation_to_zero(wp.dot(b0, b0), wp.dot(b0, b1), wp.dot(b1, b1))
        turned = b0 * c - b1 * s
        b1 = b0 * s + b1 * c
        b0 = turned
        turned = v0 * c - v1 * s
        v1 = v0 * s + v1 * c
        v0 = turned
        c, s = rotation_to_zero(wp.dot(b0, b0), wp.dot(b0, b2), wp.dot(b2, b2))
        turned = b0 * c - b2 * s
        b2 = b0 * s + b2 * c
        b0 = turned
        turned = v0 * c - v2 * s
        v2 = v0 * s + v2 * c
        v0 = turned
        c, s = rotation_to_zero(wp.dot(b1, b1), wp.dot(b1, b2), wp.dot(b2, b2))
        turned = b1 * c - b2 * s
        b2 = b1 * s + b2 * c
        b1 = turned
        turned = v1 * c - v2 * s
        v2 = v1 * s + v2 * c
        v1 = turned
    # Sorts by length, longest first; one of two swapped columns is negated, so that V stays a rotation.
    if wp.dot(b0, b0) < wp.dot(b1, b1):
        b0, b1 = b1, -b0
        v0, v1 = v1, -v0
    if wp.dot(b1, b1) < wp.dot(b2, b2):
        b1, b2 = b2, -b1
        v1, v2 = v2, -v1
    if wp.dot(b0, b0) < wp.dot(b1, b1):
        b0, b1 = b1, -b0
        v0, v1 = v1, -v0
    u0 = first_axis(b0)
    u1 = second_axis(b1, u0)
    u2 = wp.cross(u0, u1)
    sigma = wp.vector(wp.dot(u0, b0), wp.dot(u1, b1), wp.dot(u2, b2))
    return wp.matrix_from_cols(u0, u1, u2), sigma, wp.matrix_from_cols(v0, v1, v2)


@wp.func
def svd2(A: Mat22):
    zero = A.dtype(0.0)
    one = A.dtype(1.0)
    t = wp.transpose(A)
    b0 = t[0]
    b1 = t[1]
    c, s = rotation_to_zero(wp.dot(b0, b0), wp.dot(b0, b1), wp.dot(b1, b1))
    turned = b0 * c - b1 * s
    b1 = b0 * s + b1 * c
    b0 = turned
    v0 = wp.vector(c, -s)
    v1 = wp.vector(s, c)
    if wp.dot(b0, b0) < wp.dot(b1, b1):
        b0, b1 = b1, -b0
        v0, v1 = v1, -v0
    large = wp.length(b0)
    small = wp.length(b1)
    u0 = wp.vector(one, zero)
    if large > zero:
        u0 = b0 / large
    u1 = wp.vector(-u0[1], u0[0])
    if wp.dot(u1, b1) < zero:
        u1 = -u1
    return wp.matrix_from_cols(u0, u1), wp.vector(large, small), wp.matrix_from_cols(v0, v1)


@wp.func
def qr3(A: Mat33):
    zero = A.dtype(0.0)
    t = wp.transpose(A)
    q0 = first_axis(t[0])
    q1 = second_axis(t[1], q0)
    q2 = wp.cross(q0, q1)
    R = wp.matrix_from_rows(
        wp.vector(wp.dot(q0, t[0]), wp.dot(q0, t[1]), wp.dot(q0, t[2])),
        wp.vector(zero, wp.dot(q1, t[1]), wp.dot(q1, t[2])),
        wp.vector(zero, zero, wp.dot(q2, t[2])),
    )
    return wp.matrix_from_cols(q0, q1, q2), R


@wp.func
def eig3(A: Mat33):
    zero = A.dtype(0.0)
    one = A.dtype(1.0)
    d0 = A[0, 0]
    d1 = A[1, 1]
    d2 = A[2, 2]
    x = A[0, 1]
    y = A[0, 2]
    z = A[1, 2]
    v0 = wp.vector(one, zero, zero)
    v1 = wp.vector(zero, one, zero)
    v2 = wp.vector(zero, zero, one)
    sweeps = int(SWEEPS)
    for _sweep in range(sweeps):
        c, s = rotation_to_zero(d0, x, d1)
        # The diagonal changes by tan = s / c times the eliminated entry.
        move = s / c * x
        d0 = d0 - move
        d1 = d1 + move
        x = zero * x
        other = c * y - s * z
        z = s * y + c * z
        y = other
        turned = v0 * c - v1 * s
        v1 = v0 * s + v1 * c
        v0 = turned
        c, s = rotation_to_zero(d0, y, d2)
        move = s / c * y
        d0 = d0 - move
        d2 = d2 + move
        y = zero * y
        other = c * x - s * z
        z = s * x + c * z
        x = other
        turned = v0 * c - v2 * s
        v2 = v0 * s + v2 * c
        v0 = turned
        c, s = rotation_to_zero(d1, z, d2)
        move = s / c * z
        d1 = d1 - move
        d2 = d2 + move
        z = zero * z
        other = c * x - s * y
        y = s * x + c * y
        x = other
        turned = v1 * c - v2 * s
        v2 = v1 * s + v2 * c
        v1 = turned
    return wp.matrix_from_cols(v0, v1, v2), wp.vector(d0, d1, d2)


# The same, with results in variables of the caller.
@wp.func
def svd3(A: Mat33, U: wp.ref[Mat33], sigma: wp.ref[Vec3], V: wp.ref[Mat33]):
    u, s, v = wp.svd3(A)
    U = u
    sigma = s
    V = v


@wp.func
def svd2(A: Mat22, U: wp.ref[Mat22], sigma: wp.ref[Vec2], V: wp.ref[Mat22]):
    u, s, v = wp.svd2(A)
    U = u
    sigma = s
    V = v


@wp.func
def qr3(A: Mat33, Q: wp.ref[Mat33], R: wp.ref[Mat33]):
    q, r = wp.qr3(A)
    Q = q
    R = r


@wp.func
def eig3(A: Mat33, Q: wp.ref[Mat33], d: wp.ref[Vec3]):
    q, e = wp.eig3(A)
    Q = q
    d = e


@wp.func
def inverse_qr(A: Any):
    """Of a square matrix of any size. Reflections (Householder) make it upper triangular and the identity Qᵀ, which is then
    solved row by row from below; where the diagonal is 0 the row is 0."""
    zero = A.dtype(0.0)
    r = A
    q = wp.identity(n=len(A), dtype=A.dtype)
    for i in range(len(A)):
        v = type(A[0])()
        square = A.dtype(0.0)
        for k in range(i, len(A)):
            v[k] = r[k, i]
            square += r[k, i] * r[k, i]
        v[i] += wp.where(r[i, i] < zero, -wp.sqrt(square), wp.sqrt(square))
        size = wp.dot(v, v)
        scale = wp.where(size > zero, A.dtype(2.0) / size, zero)
        r -= wp.outer(scale * v, v * r)
        q -= wp.outer(scale * v, v * q)
    x = type(A)()
    for turn in range(len(A)):
        i = len(A) - 1 - turn
        row = q[i]
        for k in range(i + 1, len(A)):
            row -= r[i, k] * x[k]
        x[i] = wp.where(r[i, i] == zero, zero, A.dtype(1.0) / r[i, i]) * row
    return x
