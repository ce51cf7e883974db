"""Pictures, and rays that make them."""

import warp as wp


@wp.kernel
def grayscale(a: wp.array2d[wp.vec3ub], out: wp.array2d[wp.uint8]):
    i, j = wp.tid()
    p = a[i, j]
    out[i, j] = wp.uint8(0.299 * float(p[0]) + 0.587 * float(p[1]) + 0.114 * float(p[2]))


@wp.kernel
def blur(a: wp.array2d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    s = float(0.0)
    n = int(0)
    for di in range(-1, 2):
        for dj in range(-1, 2):
            y = i + di
            x = j + dj
            if y >= 0 and y < a.shape[0] and x >= 0 and x < a.shape[1]:
                s += a[y, x]
                n += 1
    out[i, j] = s / float(n)


@wp.kernel
def sobel(a: wp.array2d[float], out: wp.array2d[float]):
    i, j = wp.tid()
    if i < 1 or j < 1 or i > a.shape[0] - 2 or j > a.shape[1] - 2:
        return
    gx = a[i - 1, j + 1] + 2.0 * a[i, j + 1] + a[i + 1, j + 1] - a[i - 1, j - 1] - 2.0 * a[i, j - 1] - a[i + 1, j - 1]
    gy = a[i + 1, j - 1] + 2.0 * a[i + 1, j] + a[i + 1, j + 1] - a[i - 1, j - 1] - 2.0 * a[i - 1, j] - a[i - 1, j + 1]
    out[i, j] = wp.sqrt(gx * gx + gy * gy)


@wp.kernel
def mandelbrot(out: wp.array2d[int]):
    i, j = wp.tid()
    c = wp.vec2(float(j) * 0.2 - 2.0, float(i) * 0.25 - 1.0)
    z = wp.vec2(0.0, 0.0)
    n = int(0)
    while wp.dot(z, z) < 4.0 and n < 60:
        z = wp.vec2(z[0] * z[0] - z[1] * z[1], 2.0 * z[0] * z[1]) + c
        n += 1
    out[i, j] = n


@wp.kernel
def life(a: wp.array2d[int], out: wp.array2d[int]):
    i, j = wp.tid()
    h = a.shape[0]
    w = a.shape[1]
    n = int(0)
    for di in range(3):
        for dj in range(3):
            if di != 1 or dj != 1:
                n += a[(i + di + h - 1) % h, (j + dj + w - 1) % w]
    out[i, j] = 1 if n == 3 or (n == 2 and a[i, j] == 1) else 0


@wp.func
def distance(p: wp.vec3):
    ball = wp.length(p - wp.vec3(0.0, 0.0, 3.0)) - 1.0
    floor = p[1] + 1.0
    return wp.min(ball, floor)


@wp.kernel
def march(width: int, height: int, out: wp.array[float]):
    tid = wp.tid()
    x = tid % width
    y = tid // width
    d = wp.normalize(wp.vec3(2.0 * float(x) / float(width) - 1.0, 1.0 - 2.0 * float(y) / float(height), 1.0))
    p = wp.vec3()
    travelled = float(0.0)
    for _k in range(24):
        step = distance(p)
        if step < 0.001:
            break
        travelled += step
        p = d * travelled
    out[tid] = wp.min(travelled, 20.0)


@wp.func
def hit_sphere(o: wp.vec3, d: wp.vec3, c: wp.vec3, r: float):
    oc = o - c
    b = wp.dot(oc, d)
    disc = b * b - wp.dot(oc, oc) + r * r
    t = float(-1.0)
    if disc > 0.0:
        t = -b - wp.sqrt(disc)
    return t


@wp.kernel
def spheres(dirs: wp.array[wp.vec3], centers: wp.array[wp.vec3], out: wp.array[float], which: wp.array[int]):
    i = wp.tid()
    d = wp.normalize(dirs[i])
    best = float(1.0e6)
    found = int(-1)
    for k in range(centers.shape[0]):
        t = hit_sphere(wp.vec3(0.0, 0.0, 0.0), d, centers[k] * 4.0, 1.0)
        if t > 0.0 and t < best:
            best = t
            found = k
    out[i] = best
    which[i] = found


@wp.kernel
def barycentric(a: wp.array[wp.vec2], b: wp.array[wp.vec2], c: wp.array[wp.vec2], p: wp.array[wp.vec2],
                out: wp.array[wp.vec3], inside: wp.array[wp.bool]):
    i = wp.tid()
    u = b[i] - a[i]
    v = c[i] - a[i]
    w = p[i] - a[i]
    den = u[0] * v[1] - v[0] * u[1]
    s = (w[0] * v[1] - v[0] * w[1]) / den
    t = (u[0] * w[1] - w[0] * u[1]) / den
    out[i] = wp.vec3(1.0 - s - t, s, t)
    inside[i] = s >= 0.0 and t >= 0.0 and s + t <= 1.0


LAUNCHES = {
    "grayscale": {"dim": (6, 7), "a": [(6, 7), 0, 256], "out": (6, 7), "check": "exact"},
    "blur": {"dim": (6, 7), "a": [(6, 7), 0, 1], "out": (6, 7), "check": "exact"},
    "sobel": {"dim": (6, 7), "a": [(6, 7), 0, 1], "out": (6, 7), "check": "near 1e-6"},
    "mandelbrot": {"dim": (9, 12), "out": (9, 12), "check": "exact"},
    "life": {"dim": (8, 9), "a": [(8, 9), 0, 2], "out": (8, 9), "check": "exact"},
    "march": {"dim": 48, "width": 8, "height": 6, "out": 48, "check": "near 1e-4"},
    "spheres": {"dim": 32, "dirs": [32, -1, 1], "centers": [8, -1, 1], "out": 32, "which": 32, "check": "near 1e-4"},
    "barycentric": {"dim": 16, "a": [16, -1, 1], "b": [16, -1, 1], "c": [16, -1, 1], "p": [16, -1, 1], "out": 16,
                    "inside": 16, "check": "near 1e-5"},
}
