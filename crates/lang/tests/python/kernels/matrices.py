"""Matrices of predefined and custom sizes."""

import warp as wp

mat23 = wp.types.matrix(shape=(2, 3), dtype=float)
mat32 = wp.types.matrix(shape=(3, 2), dtype=float)


@wp.kernel
def products(a: wp.array[wp.mat33], b: wp.array[wp.mat33], v: wp.array[wp.vec3], out: wp.array2d[wp.mat33],
             ends: wp.array2d[wp.vec3]):
    i = wp.tid()
    m = a[i]
    n = b[i]
    out[i, 0] = m * n
    out[i, 1] = m @ n
    out[i, 2] = m + n
    out[i, 3] = m - n
    out[i, 4] = m * 2.0
    out[i, 5] = 0.5 * m
    out[i, 6] = m / 4.0
    out[i, 7] = -m
    out[i, 8] = wp.transpose(m)
    out[i, 9] = wp.cw_mul(m, n)
    out[i, 10] = wp.outer(v[i], m[0])
    ends[i, 0] = m * v[i]
    ends[i, 1] = m @ v[i]
    ends[i, 2] = v[i] * m


@wp.kernel
def elements(a: wp.array[wp.mat33], out: wp.array[wp.mat33], rows: wp.array[wp.vec3]):
    i = wp.tid()
    m = a[i]
    m[0, 1] = m[1, 0] + 1.0
    m[2] = wp.vec3(1.0, 2.0, m[0, 0])
    m[1, 1] += 0.5
    rows[i] = m[1]
    out[i] = m


@wp.kernel
def constructors(x: wp.array[float], out: wp.array2d[wp.mat22]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.mat22()
    out[i, 1] = wp.mat22(a)
    out[i, 2] = wp.mat22(a, 1.0, 2.0, -a)
    out[i, 3] = wp.identity(n=2, dtype=float) * a
    out[i, 4] = wp.matrix_from_rows(wp.vec2(a, 1.0), wp.vec2(2.0, 3.0))
    out[i, 5] = wp.matrix_from_cols(wp.vec2(a, 1.0), wp.vec2(2.0, 3.0))
    out[i, 6] = wp.diag(wp.vec2(a, 2.0))


@wp.kernel
def scalars(a: wp.array[wp.mat33], b: wp.array[wp.mat33], out: wp.array2d[float], diagonal: wp.array[wp.vec3]):
    i = wp.tid()
    out[i, 0] = wp.determinant(a[i])
    out[i, 1] = wp.trace(a[i])
    out[i, 2] = wp.ddot(a[i], b[i])
    diagonal[i] = wp.get_diag(a[i])


@wp.kernel
def inverses(a: wp.array[wp.mat22], b: wp.array[wp.mat33], c: wp.array[wp.mat44], x: wp.array[wp.mat22],
             y: wp.array[wp.mat33], z: wp.array[wp.mat44], d: wp.array2d[float]):
    i = wp.tid()
    p = a[i] + wp.identity(n=2, dtype=float) * 4.0
    q = b[i] + wp.identity(n=3, dtype=float) * 4.0
    r = c[i] + wp.identity(n=4, dtype=float) * 4.0
    x[i] = wp.inverse(p)
    y[i] = wp.inverse(q)
    z[i] = wp.inverse(r)
    d[i, 0] = wp.determinant(p)
    d[i, 1] = wp.determinant(q)
    d[i, 2] = wp.determinant(r)


@wp.kernel
def rectangular(a: wp.array[mat23], b: wp.array[mat32], out: wp.array[wp.mat22], back: wp.array[wp.mat33],
                ends: wp.array[wp.vec2]):
    i = wp.tid()
    m = a[i]
    n = b[i]
    out[i] = m * n
    back[i] = n * m
    ends[i] = m * wp.vec3(1.0, 2.0, 3.0)


@wp.kernel
def skew(v: wp.array[wp.vec3], w: wp.array[wp.vec3], out: wp.array[wp.mat33], crossed: wp.array[wp.vec3]):
    i = wp.tid()
    out[i] = wp.skew(v[i])
    crossed[i] = wp.skew(v[i]) * w[i]


@wp.kernel
def power_iteration(a: wp.array[wp.mat33], out: wp.array[float]):
    i = wp.tid()
    m = a[i] * wp.transpose(a[i])
    v = wp.vec3(1.0, 0.5, 0.25)
    for _k in range(20):
        v = wp.normalize(m * v)
    out[i] = wp.dot(v, m * v)


@wp.kernel
def doubles(a: wp.array[wp.mat33d], out: wp.array[wp.mat33d], d: wp.array[wp.float64]):
    i = wp.tid()
    m = a[i] + wp.identity(n=3, dtype=wp.float64) * wp.float64(4.0)
    out[i] = wp.inverse(m) * m
    d[i] = wp.determinant(m)


@wp.kernel
def points(m: wp.mat44, p: wp.array[wp.vec3], out: wp.array[wp.vec3], dirs: wp.array[wp.vec3]):
    i = wp.tid()
    out[i] = wp.transform_point(m, p[i])
    dirs[i] = wp.transform_vector(m, p[i])


A = [16, -1, 1]
@wp.kernel
def blocks(a: wp.array[wp.mat33], out: wp.array[wp.mat33], small: wp.array[wp.mat22], y: wp.array2d[float]):
    i = wp.tid()
    m = a[i]
    small[i] = m[1:3, 0:2]
    rows = m[:2]
    y[i, 0] = rows[1, 2]
    turned = m[::-2, 0:3:2]
    y[i, 1] = turned[0, 0] * 10.0 + turned[1, 1]
    m[0:2, 1:3] = wp.mat22(1.0, 2.0, 3.0, 4.0)
    m[1:3, 0] += wp.vec2(1.0, 2.0)
    out[i] = m


LAUNCHES = {
    "blocks": {"dim": 4, "a": [4, -1, 1], "out": 4, "small": 4, "y": (4, 2), "check": "exact"},
    "products": {"dim": 16, "a": A, "b": A, "v": A, "out": (16, 11), "ends": (16, 3), "check": "near 1e-6"},
    "elements": {"dim": 16, "a": A, "out": 16, "rows": 16, "check": "exact"},
    "constructors": {"dim": 16, "x": A, "out": (16, 7), "check": "exact"},
    "scalars": {"dim": 16, "a": A, "b": A, "out": (16, 3), "diagonal": 16, "check": "near 1e-6"},
    "inverses": {"dim": 8, "a": [8, -1, 1], "b": [8, -1, 1], "c": [8, -1, 1], "x": 8, "y": 8, "z": 8, "d": (8, 3),
                 "check": "near 2e-6"},
    "rectangular": {"dim": 16, "a": A, "b": A, "out": 16, "back": 16, "ends": 16, "check": "near 1e-6"},
    "skew": {"dim": 16, "v": A, "w": A, "out": 16, "crossed": 16, "check": "near 1e-6"},
    "power_iteration": {"dim": 16, "a": A, "out": 16, "check": "near 1e-4"},
    "doubles": {"dim": 8, "a": [8, -1, 1], "out": 8, "d": 8, "check": "near 1e-12"},
    "points": {"dim": 16, "m": (1, 2, 3, 4, 0, 1, 0, 5, 0.5, 0, 1, 6, 0, 0, 0, 1), "p": A, "out": 16, "dirs": 16,
               "check": "near 1e-6"},
}
