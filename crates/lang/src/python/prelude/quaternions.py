"""Quaternions (x, y, z, w): products, rotations, and conversions between representations of a rotation."""

import warp as wp

Quat = wp.types.quaternion(dtype=wp.Float)
Vec3 = wp.types.vector(length=3, dtype=wp.Float)
Mat33 = wp.types.matrix(shape=(3, 3), dtype=wp.Float)
Mat44 = wp.types.matrix(shape=(4, 4), dtype=wp.Float)


@wp.func
def quat_identity():
    return wp.quat(0.0, 0.0, 0.0, 1.0)


@wp.func
def mul(a: Quat, b: Quat):
    return type(a)(
        a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1],
        a[3] * b[1] + a[1] * b[3] + a[2] * b[0] - a[0] * b[2],
        a[3] * b[2] + a[2] * b[3] + a[0] * b[1] - a[1] * b[0],
        a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2],
    )


@wp.func
def quat_inverse(quat: Quat):
    return type(quat)(-quat[0], -quat[1], -quat[2], quat[3])


@wp.func
def quat_from_axis_angle(axis: Vec3, angle: wp.Float):
    half = angle * type(angle)(0.5)
    s = wp.sin(half)
    return wp.quaternion(axis[0] * s, axis[1] * s, axis[2] * s, wp.cos(half))


@wp.func
def quat_between_vectors(a: wp.vec3, b: wp.vec3):
    x = wp.normalize(a)
    y = wp.normalize(b)
    axis = wp.cross(x, y)
    # The sum with the identity halves the angle of (axis, dot), which is twice the rotation.
    return wp.normalize(wp.quat(axis[0], axis[1], axis[2], 1.0 + wp.dot(x, y)))


@wp.func
def quat_to_axis_angle(quat: Quat):
    part = wp.vector(quat[0], quat[1], quat[2])
    axis = wp.normalize(part)
    if quat[3] < quat.dtype(0.0):
        axis = -axis
    return axis, quat.dtype(2.0) * wp.atan2(wp.length(part), wp.abs(quat[3]))


@wp.func
def quat_to_axis_angle(quat: Quat, axis: wp.ref[Vec3], angle: wp.ref[wp.Float]):
    found, turn = quat_to_axis_angle(quat)
    axis = found
    angle = turn


@wp.func
def quat_rotate(quat: Quat, vec: Vec3):
    u = wp.vector(quat[0], quat[1], quat[2])
    w = quat[3]
    two = quat.dtype(2.0)
    return vec * (two * w * w - quat.dtype(1.0)) + wp.cross(u, vec) * w * two + u * wp.dot(u, vec) * two


@wp.func
def quat_rotate_inv(quat: Quat, vec: Vec3):
    u = wp.vector(quat[0], quat[1], quat[2])
    w = quat[3]
    two = quat.dtype(2.0)
    return vec * (two * w * w - quat.dtype(1.0)) - wp.cross(u, vec) * w * two + u * wp.dot(u, vec) * two


@wp.func
def quat_rpy(roll: wp.Float, pitch: wp.Float, yaw: wp.Float):
    half = type(roll)(0.5)
    cr = wp.cos(roll * half)
    sr = wp.sin(roll * half)
    cp = wp.cos(pitch * half)
    sp = wp.sin(pitch * half)
    cy = wp.cos(yaw * half)
    sy = wp.sin(yaw * half)
    return wp.quaternion(
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    )


@wp.func
def quat_to_rpy(q: wp.quat):
    roll = wp.atan2(2.0 * (q[3] * q[0] + q[1] * q[2]), 1.0 - 2.0 * (q[0] * q[0] + q[1] * q[1]))
    pitch = wp.asin(wp.clamp(2.0 * (q[3] * q[1] - q[2] * q[0]), -1.0, 1.0))
    yaw = wp.atan2(2.0 * (q[3] * q[2] + q[0] * q[1]), 1.0 - 2.0 * (q[1] * q[1] + q[2] * q[2]))
    return wp.vec3(roll, pitch, yaw)


@wp.func
def quat_to_matrix(quat: Quat):
    one = quat.dtype(1.0)
    zero = quat.dtype(0.0)
    return wp.matrix_from_cols(
        wp.quat_rotate(quat, wp.vector(one, zero, zero)),
        wp.quat_rotate(quat, wp.vector(zero, one, zero)),
        wp.quat_rotate(quat, wp.vector(zero, zero, one)),
    )


# Divides by the largest of the four components, which is at least a half.
@wp.func
def quat_from_matrix(mat: Mat33):
    one = mat.dtype(1.0)
    half = mat.dtype(0.5)
    trace = mat[0, 0] + mat[1, 1] + mat[2, 2]
    x = mat.dtype(0.0)
    y = mat.dtype(0.0)
    z = mat.dtype(0.0)
    w = mat.dtype(0.0)
    if trace >= mat.dtype(0.0):
        h = wp.sqrt(trace + one)
        w = half * h
        h = half / h
        x = (mat[2, 1] - mat[1, 2]) * h
        y = (mat[0, 2] - mat[2, 0]) * h
        z = (mat[1, 0] - mat[0, 1]) * h
    elif mat[0, 0] >= mat[1, 1] and mat[0, 0] >= mat[2, 2]:
        h = wp.sqrt(mat[0, 0] - mat[1, 1] - mat[2, 2] + one)
        x = half * h
        h = half / h
        y = (mat[0, 1] + mat[1, 0]) * h
        z = (mat[2, 0] + mat[0, 2]) * h
        w = (mat[2, 1] - mat[1, 2]) * h
    elif mat[1, 1] >= mat[2, 2]:
        h = wp.sqrt(mat[1, 1] - mat[2, 2] - mat[0, 0] + one)
        y = half * h
        h = half / h
        z = (mat[1, 2] + mat[2, 1]) * h
        x = (mat[0, 1] + mat[1, 0]) * h
        w = (mat[0, 2] - mat[2, 0]) * h
    else:
        h = wp.sqrt(mat[2, 2] - mat[0, 0] - mat[1, 1] + one)
        z = half * h
        h = half / h
        x = (mat[2, 0] + mat[0, 2]) * h
        y = (mat[1, 2] + mat[2, 1]) * h
        w = (mat[1, 0] - mat[0, 1]) * h
    return wp.normalize(wp.quaternion(x, y, z, w))


@wp.func
def quat_from_matrix(mat: Mat44):
    return wp.quat_from_matrix(
        wp.matrix_from_rows(
            wp.vector(mat[0, 0], mat[0, 1], mat[0, 2]),
            wp.vector(mat[1, 0], mat[1, 1], mat[1, 2]),
            wp.vector(mat[2, 0], mat[2, 1], mat[2, 2]),
        )
    )


# Interpolates along the shortest rotation from a to b.
@wp.func
def quat_slerp(a: Quat, b: Quat, t: wp.Float):
    axis, angle = wp.quat_to_axis_angle(wp.quat_inverse(a) * b)
    return a * wp.quat_from_axis_angle(axis, t * angle)


@wp.func
def quat_twist(axis: wp.vec3, q: wp.quat):
    along = wp.dot(wp.vec3(q[0], q[1], q[2]), axis)
    return wp.normalize(wp.quat(along * axis[0], along * axis[1], along * axis[2], q[3]))


@wp.func
def quat_twist_angle(axis: wp.vec3, q: wp.quat):
    return 2.0 * wp.acos(wp.quat_twist(axis, q)[3])


@wp.func
def quat_twist_angle_signed(axis: wp.vec3, q: wp.quat):
    return 2.0 * wp.atan2(wp.dot(wp.vec3(q[0], q[1], q[2]), axis), q[3])


@wp.func
def quat_about(axis: int, angle: float):
    s = wp.sin(0.5 * angle)
    q = wp.quat(0.0, 0.0, 0.0, wp.cos(0.5 * angle))
    q[axis] = s
    return q


@wp.func
def quat_from_euler(e: wp.vec3, i: int, j: int, k: int):
    return quat_about(k, e[k]) * quat_about(j, e[j]) * quat_about(i, e[i])


# Half the sum and half the difference of the outer angles are the angles of two pairs of components (Bernardes and Viollet,
# "Quaternion to Euler angles conversion", 2022).
@wp.func
def quat_to_euler(q: wp.quat, i: int, j: int, k: int):
    proper = i == k
    last = k
    if proper:
        last = 3 - i - j
    sign = 1.0
    if (i - j) * (j - last) * (last - i) < 0:
        sign = -1.0
    a = q[3]
    b = q[i]
    c = q[j]
    d = q[last] * sign
    if not proper:
        a = q[3] - q[j]
        b = q[i] + q[last] * sign
        c = q[j] + q[3]
        d = q[last] * sign - q[i]
    middle = 2.0 * wp.atan2(wp.sqrt(c * c + d * d), wp.sqrt(a * a + b * b))
    plus = wp.atan2(b, a)
    minus = wp.atan2(d, c)
    first = plus - minus
    third = plus + minus
    if wp.abs(middle) < 1.0e-6:
        first = 2.0 * plus
        third = 0.0
    elif wp.abs(middle - wp.pi) < 1.0e-6:
        first = -2.0 * minus
        third = 0.0
    if not proper:
        middle = middle - wp.half_pi
        third = third * sign
    e = wp.vec3()
    e[i] = first
    e[j] = middle
    e[last] = third
    return e
