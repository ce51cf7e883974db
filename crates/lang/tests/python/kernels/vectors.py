"""Vectors of predefined and custom sizes."""

import warp as wp

vec5 = wp.types.vector(length=5, dtype=float)


@wp.kernel
def operators(a: wp.array[wp.vec3], b: wp.array[wp.vec3], out: wp.array2d[wp.vec3]):
    i = wp.tid()
    v = a[i]
    w = b[i]
    out[i, 0] = v + w
    out[i, 1] = v - w
    out[i, 2] = v * 2.0
    out[i, 3] = 0.5 * w
    out[i, 4] = v / 3.0
    out[i, 5] = -v
    out[i, 6] = wp.cw_mul(v, w)
    out[i, 7] = wp.cw_div(v, w)
    out[i, 8] = wp.cross(v, w)
    out[i, 9] = wp.normalize(v)
    out[i, 10] = wp.min(v, w)
    out[i, 11] = wp.max(v, w)
    out[i, 12] = wp.abs(v)
    out[i, 13] = wp.lerp(v, w, 0.75)


@wp.kernel
def lengths(a: wp.array[wp.vec3], b: wp.array[wp.vec3], out: wp.array2d[float]):
    i = wp.tid()
    v = a[i]
    w = b[i]
    out[i, 0] = wp.dot(v, w)
    out[i, 1] = wp.length(v)
    out[i, 2] = wp.length_sq(w)
    out[i, 3] = wp.min(v)
    out[i, 4] = wp.max(v)
    out[i, 5] = wp.norm_l1(v)
    out[i, 6] = wp.norm_l2(w)
    out[i, 7] = float(wp.argmin(v))
    out[i, 8] = float(wp.argmax(v))


@wp.kernel
def components(a: wp.array[wp.vec4], out: wp.array[wp.vec4]):
    i = wp.tid()
    v = a[i]
    w = wp.vec4(v[3], v.z, v[1], v.x)
    w[0] = w[1] + 1.0
    w.y = w.w * 2.0
    w[2] += 0.5
    w.w -= 1.0
    out[i] = w


@wp.kernel
def through_the_array(out: wp.array[wp.vec3]):
    i = wp.tid()
    out[i][0] = float(i)
    out[i].y = float(i) * 2.0
    out[i][2] = out[i][0] + out[i].y


@wp.kernel
def constructors(x: wp.array[float], out: wp.array2d[wp.vec3]):
    i = wp.tid()
    a = x[i]
    out[i, 0] = wp.vec3()
    out[i, 1] = wp.vec3(a)
    out[i, 2] = wp.vec3(a, 2.0, -a)
    p = wp.vec2(a, 1.0)
    out[i, 3] = wp.vec3(p[0], p[1], 0.0)
    out[i, 4] = wp.vec3(1, 2, 3)
    out[i, 5] = wp.vector(a, a + 1.0, a + 2.0)


@wp.kernel
def integer_vectors(a: wp.array[wp.vec3i], b: wp.array[wp.vec3i], out: wp.array2d[wp.vec3i], dots: wp.array[int]):
    i = wp.tid()
    v = a[i]
    w = b[i]
    out[i, 0] = v + w
    out[i, 1] = v * 3
    out[i, 2] = wp.cw_mul(v, w)
    out[i, 3] = wp.min(v, w)
    out[i, 4] = v % wp.vec3i(7, 5, 3)
    dots[i] = wp.dot(v, w)


@wp.kernel
def own_size(a: wp.array[vec5], out: wp.array[vec5], sums: wp.array[float]):
    i = wp.tid()
    v = a[i]
    s = float(0.0)
    for k in range(5):
        v[k] = v[k] * float(k + 1)
        s += v[k]
    out[i] = v + vec5(1.0, 2.0, 3.0, 4.0, 5.0)
    sums[i] = s


@wp.kernel
def doubles(a: wp.array[wp.vec3d], out: wp.array[wp.vec3d]):
    i = wp.tid()
    v = a[i]
    out[i] = wp.normalize(v) + wp.vec3d(wp.float64(1.0), wp.dot(v, v), wp.length(v))


@wp.kernel
def halves(a: wp.array[wp.vec2h], out: wp.array[wp.vec2h]):
    i = wp.tid()
    v = a[i]
    out[i] = v + v * wp.float16(0.5)


@wp.kernel
def slices(a: wp.array[wp.vec4], out: wp.array[wp.vec2], last: wp.array[float]):
    i = wp.tid()
    v = a[i]
    out[i] = v[1:3]
    v[0:2] = wp.vec2(7.0, 8.0)
    last[i] = v[-1] + v[0] * v[1]


@wp.kernel
def equality(a: wp.array[wp.vec2i], b: wp.array[wp.vec2i], out: wp.array[int]):
    i = wp.tid()
    n = int(0)
    if a[i] == b[i]:
        n += 1
    if not (a[i] == b[i]):
        n += 2
    out[i] = n


@wp.kernel
def reflect(d: wp.array[wp.vec3], n: wp.array[wp.vec3], out: wp.array[wp.vec3]):
    i = wp.tid()
    normal = wp.normalize(n[i])
    out[i] = d[i] - 2.0 * wp.dot(d[i], normal) * normal


A = [32, -2, 2]
LAUNCHES = {
    "operators": {"dim": 32, "a": A, "b": A, "out": (32, 14), "check": "ulp 4"},
    "lengths": {"dim": 32, "a": A, "b": A, "out": (32, 9), "check": "near 1e-6"},
    "components": {"dim": 32, "a": A, "out": 32, "check": "exact"},
    "through_the_array": {"dim": 16, "out": 16, "check": "exact"},
    "constructors": {"dim": 16, "x": [16, -2, 2], "out": (16, 6), "check": "exact"},
    "integer_vectors": {"dim": 32, "a": [32, -99, 99], "b": [32, -99, 99], "out": (32, 5), "dots": 32, "check": "exact"},
    "own_size": {"dim": 16, "a": [16, -2, 2], "out": 16, "sums": 16, "check": "exact"},
    "doubles": {"dim": 16, "a": [16, -2, 2], "out": 16, "check": "ulp 8"},
    "halves": {"dim": 16, "a": [16, -2, 2], "out": 16, "check": "exact"},
    "slices": {"dim": 16, "a": [16, -2, 2], "out": 16, "last": 16, "check": "exact"},
    "equality": {"dim": 32, "a": [32, 0, 2], "b": [32, 0, 2], "out": 32, "check": "exact"},
    "reflect": {"dim": 32, "d": A, "n": A, "out": 32, "check": "near 1e-6"},
}
