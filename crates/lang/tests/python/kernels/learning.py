"""Parts of networks and statistics."""

import warp as wp


@wp.kernel
def matmul(a: wp.array2d[float], b: wp.array2d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    s = float(0.0)
    for k in range(a.shape[1]):
        s += a[i, k] * b[k, j]
    out[i, j] = s


@wp.kernel
def softmax(a: wp.array2d[float], out: wp.array2d[float]):
    i = wp.tid()
    n = a.shape[1]
    top = a[i, 0]
    for k in range(1, n):
        top = wp.max(top, a[i, k])
    s = float(0.0)
    for k in range(n):
        e = wp.exp(a[i, k] - top)
        out[i, k] = e
        s += e
    for k in range(n):
        out[i, k] = out[i, k] / s


@wp.kernel
def layer_norm(a: wp.array2d[float], weight: wp.array[float], bias: wp.array[float], eps: float, out: wp.array2d[float]):
    i = wp.tid()
    n = a.shape[1]
    mean = float(0.0)
    for k in range(n):
        mean += a[i, k]
    mean /= float(n)
    var = float(0.0)
    for k in range(n):
        var += (a[i, k] - mean) * (a[i, k] - mean)
    scale = 1.0 / wp.sqrt(var / float(n) + eps)
    for k in range(n):
        out[i, k] = (a[i, k] - mean) * scale * weight[k] + bias[k]


@wp.func
def gelu(x: float):
    return 0.5 * x * (1.0 + wp.erf(x * 0.70710678))


@wp.func
def sigmoid(x: float):
    return 1.0 / (1.0 + wp.exp(-x))


@wp.kernel
def activations(a: wp.array[float], out: wp.array2d[float]):
    i = wp.tid()
    x = a[i]
    out[i, 0] = wp.max(x, 0.0)
    out[i, 1] = gelu(x)
    out[i, 2] = sigmoid(x)
    out[i, 3] = x * sigmoid(x)
    out[i, 4] = wp.tanh(x)
    out[i, 5] = wp.log(1.0 + wp.exp(x))
    out[i, 6] = x if x > 0.0 else 0.1 * x


@wp.kernel
def adam(p: wp.array[float], g: wp.array[float], m: wp.array[float], v: wp.array[float], lr: float, t: int):
    i = wp.tid()
    m[i] = 0.9 * m[i] + 0.1 * g[i]
    v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i]
    mh = m[i] / (1.0 - wp.pow(0.9, float(t)))
    vh = v[i] / (1.0 - wp.pow(0.999, float(t)))
    p[i] = p[i] - lr * mh / (wp.sqrt(vh) + 1.0e-8)


@wp.kernel
def convolution(a: wp.array3d[float], w: wp.array4d[float], out: wp.array3d[float]):
    o, y, x = wp.tid()
    s = float(0.0)
    for c in range(a.shape[0]):
        for i in range(3):
            for j in range(3):
                s += a[c, y + i, x + j] * w[o, c, i, j]
    out[o, y, x] = s


@wp.kernel
def max_pool(a: wp.array2d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    best = float(-wp.inf)
    for di in range(2):
        for dj in range(2):
            best = wp.max(best, a[2 * i + di, 2 * j + dj])
    out[i, j] = best


@wp.kernel
def embedding(table: wp.array2d[wp.float16], at: wp.array[int], out: wp.array2d[float]):
    i, j = wp.tid()
    out[i, j] = float(table[at[i], j])


@wp.kernel
def nearest(x: wp.array[wp.vec3], centers: wp.array[wp.vec3], out: wp.array[int], sums: wp.array[wp.vec3], counts: wp.array[int]):
    i = wp.tid()
    best = float(wp.inf)
    which = int(0)
    for k in range(centers.shape[0]):
        d = wp.length_sq(x[i] - centers[k])
        if d < best:
            best = d
            which = k
    out[i] = which
    wp.atomic_add(sums, which, x[i])
    wp.atomic_add(counts, which, 1)


@wp.kernel
def attention(q: wp.array2d[float], k: wp.array2d[float], v: wp.array2d[float], out: wp.array2d[float]):
    i = wp.tid()
    d = q.shape[1]
    top = float(-1.0e30)
    total = float(0.0)
    for j in range(i + 1):
        s = float(0.0)
        for c in range(d):
            s += q[i, c] * k[j, c]
        s = s / wp.sqrt(float(d))
        now = wp.max(top, s)
        fade = wp.exp(top - now)
        e = wp.exp(s - now)
        total = total * fade + e
        for c in range(d):
            out[i, c] = out[i, c] * fade + e * v[j, c]
        top = now
    for c in range(d):
        out[i, c] = out[i, c] / total


M = [(6, 8), -1, 1]
LAUNCHES = {
    "matmul": {"dim": (6, 5), "a": M, "b": [(8, 5), -1, 1], "out": (6, 5), "check": "near 1e-6"},
    "softmax": {"dim": 6, "a": [(6, 8), -3, 3], "out": (6, 8), "check": "near 1e-6"},
    "layer_norm": {"dim": 6, "a": M, "weight": [8, -1, 1], "bias": [8, -1, 1], "eps": 1e-5, "out": (6, 8), "check": "near 2e-6"},
    "activations": {"dim": 24, "a": [24, -4, 4], "out": (24, 7), "check": "near 1e-6"},
    "adam": {"dim": 24, "p": [24, -1, 1], "g": [24, -1, 1], "m": [24, -1, 1], "v": [24, 0, 1], "lr": 0.01, "t": 3,
             "check": "near 1e-5"},
    "convolution": {"dim": (2, 4, 5), "a": [(3, 6, 7), -1, 1], "w": [(2, 3, 3, 3), -1, 1], "out": (2, 4, 5), "check": "near 2e-6"},
    "max_pool": {"dim": (3, 4), "a": [(6, 8), -1, 1], "out": (3, 4), "check": "exact"},
    "embedding": {"dim": (6, 4), "table": [(9, 4), -1, 1], "at": [6, 0, 9], "out": (6, 4), "check": "exact"},
    "nearest": {"dim": 24, "x": [24, -1, 1], "centers": [4, -1, 1], "out": 24, "sums": 4, "counts": 4, "check": "near 1e-5"},
    "attention": {"dim": 6, "q": M, "k": M, "v": M, "out": (6, 8), "check": "near 2e-6"},
}
