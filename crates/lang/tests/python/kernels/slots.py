"""Components and fields of elements, each written and updated by a separate thread."""

import warp as wp


@wp.struct
class Bin:
    count: int
    sum: float
    center: wp.vec3
    wide: wp.int64


@wp.struct
class Pair:
    first: Bin
    frame: wp.transform


@wp.kernel
def components(x: wp.array2d(dtype=float), v: wp.array(dtype=wp.vec3)):
    i, j = wp.tid()
    v[i][j] = x[i, j] * 2.0


@wp.kernel
def own(v: wp.array2d(dtype=wp.vec4)):
    i, j, k = wp.tid()
    v[i, j][k] = v[i, j][k] * 3.0 + float(k)


@wp.kernel
def entries(m: wp.array(dtype=wp.mat33), x: wp.array(dtype=float)):
    e, i, j = wp.tid()
    m[e][i, j] = x[i] * 10.0 + x[j] + float(e)


@wp.kernel
def rows(m: wp.array(dtype=wp.mat22), v: wp.array(dtype=wp.vec2)):
    e, i = wp.tid()
    m[e][i] = v[e] * float(i + 1)


@wp.kernel
def counted(o: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    o[0][i % 3] += 1.0
    o[1].y += 2.0
    o[1].z -= 0.5


@wp.kernel
def binned(x: wp.array(dtype=int), bins: wp.array(dtype=Bin)):
    i = wp.tid()
    b = x[i] % 4
    bins[b].count += 1
    bins[b].sum += 0.5
    bins[b].center[i % 3] = 7.0
    bins[b].wide += wp.int64(x[i])


@wp.kernel
def fields(p: wp.array(dtype=Pair), q: wp.array(dtype=Pair)):
    i, j = wp.tid()
    if j == 0:
        p[i].first.count = q[i].first.count + 1
    elif j == 1:
        p[i].first.center = q[i].first.center * 2.0
    elif j == 2:
        p[i].frame.p = wp.vec3(1.0, 2.0, float(i))
    else:
        p[i].first.center.y = p[i].first.sum


@wp.kernel
def bits(o: wp.array(dtype=wp.vec2i)):
    i = wp.tid()
    o[i % 2].x |= 1 << i
    o[i % 2].y ^= i


@wp.kernel
def chosen(p: wp.array(dtype=Bin), o: wp.array(dtype=float)):
    i = wp.tid()
    p[i].count = 4
    o[i] = p[i].center[i % 3]
    p[i].center[(i + 1) % 3] *= 2.0
    n = p[i].count
    for j in range(n - 1):
        o[i] += p[i].center[j]


@wp.kernel
def picked(m: wp.array(dtype=wp.mat33), o: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    m[i][i % 3, (i + 1) % 3] = 5.0
    o[i] = m[i][i % 2] + wp.vec3(m[i][i % 3, 1])


LAUNCHES = {
    "components": {"dim": (40, 3), "check": "exact", "x": [(40, 3), -2.0, 2.0], "v": (40,)},
    "own": {"dim": (5, 7, 4), "check": "exact", "v": [(5, 7), -2.0, 2.0]},
    "entries": {"dim": (9, 3, 3), "check": "exact", "m": (9,), "x": [(3,), -2.0, 2.0]},
    "rows": {"dim": (9, 2), "check": "exact", "m": (9,), "v": [(9,), -2.0, 2.0]},
    "counted": {"dim": 99, "check": "exact", "o": (2,)},
    "binned": {"dim": 100, "check": "exact", "x": [(100,), 0, 50], "bins": (4,)},
    "fields": {"dim": (11, 3), "check": "exact", "p": (11,), "q": [(11,), -2.0, 2.0]},
    "chosen": {"dim": 12, "check": "exact", "p": [(12,), -2.0, 2.0], "o": (12,)},
    "picked": {"dim": 12, "check": "exact", "m": [(12,), -2.0, 2.0], "o": (12,)},
    "bits": {"dim": 20, "check": "exact", "o": (2,)},
}
