"""Small simulations of one or a few steps."""

import warp as wp


@wp.kernel
def nbody(x: wp.array[wp.vec3], m: wp.array[float], eps: float, out: wp.array[wp.vec3]):
    i = wp.tid()
    a = wp.vec3(0.0, 0.0, 0.0)
    for j in range(x.shape[0]):
        d = x[j] - x[i]
        r2 = wp.dot(d, d) + eps
        a += d * (m[j] / (r2 * wp.sqrt(r2)))
    out[i] = a


@wp.kernel
def springs(x: wp.array[wp.vec3], v: wp.array[wp.vec3], pairs: wp.array[wp.vec2i], rest: float, stiffness: float,
            damping: float, f: wp.array[wp.vec3]):
    k = wp.tid()
    i = pairs[k][0]
    j = pairs[k][1]
    if i != j:
        d = x[i] - x[j]
        length = wp.length(d)
        dir = d / length
        force = dir * (stiffness * (length - rest) + damping * wp.dot(dir, v[i] - v[j]))
        wp.atomic_sub(f, i, force)
        wp.atomic_add(f, j, force)


@wp.kernel
def bouncing(x: wp.array[wp.vec3], v: wp.array[wp.vec3], dt: float, steps: int):
    i = wp.tid()
    p = x[i]
    u = v[i]
    for _s in range(steps):
        u += wp.vec3(0.0, -9.8, 0.0) * dt
        p += u * dt
        if p[1] < 0.0:
            p[1] = -p[1]
            u = wp.vec3(u[0] * 0.9, -u[1] * 0.8, u[2] * 0.9)
    x[i] = p
    v[i] = u


@wp.func
def rate(s: wp.vec3):
    return wp.vec3(10.0 * (s[1] - s[0]), s[0] * (28.0 - s[2]) - s[1], s[0] * s[1] - 2.6666667 * s[2])


@wp.kernel
def lorenz(x: wp.array[wp.vec3], h: float):
    i = wp.tid()
    s = x[i]
    for _k in range(10):
        a = rate(s)
        b = rate(s + a * (h * 0.5))
        c = rate(s + b * (h * 0.5))
        d = rate(s + c * h)
        s = s + (a + b * 2.0 + c * 2.0 + d) * (h / 6.0)
    x[i] = s


@wp.kernel
def heat(u: wp.array2d[float], rate: float, out: wp.array2d[float]):
    i, j = wp.tid()
    n = u.shape[0]
    m = u.shape[1]
    if i == 0 or j == 0 or i == n - 1 or j == m - 1:
        out[i, j] = u[i, j]
        return
    lap = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j]
    out[i, j] = u[i, j] + rate * lap


@wp.kernel
def wave(now: wp.array2d[float], before: wp.array2d[float], c: float, out: wp.array2d[float]):
    i, j = wp.tid()
    w = now.shape[1]
    h = now.shape[0]
    up = now[(i + h - 1) % h, j]
    down = now[(i + 1) % h, j]
    left = now[i, (j + w - 1) % w]
    right = now[i, (j + 1) % w]
    out[i, j] = 2.0 * now[i, j] - before[i, j] + c * (up + down + left + right - 4.0 * now[i, j])


@wp.func
def sample(f: wp.array2d[float], x: float, y: float):
    w = f.shape[1]
    h = f.shape[0]
    cx = wp.clamp(x, 0.0, float(w - 1))
    cy = wp.clamp(y, 0.0, float(h - 1))
    i = wp.min(int(cy), h - 2)
    j = wp.min(int(cx), w - 2)
    ty = cy - float(i)
    tx = cx - float(j)
    top = wp.lerp(f[i, j], f[i, j + 1], tx)
    bottom = wp.lerp(f[i + 1, j], f[i + 1, j + 1], tx)
    return wp.lerp(top, bottom, ty)


@wp.kernel
def advection(f: wp.array2d[float], u: wp.array2d[wp.vec2], dt: float, out: wp.array2d[float]):
    i, j = wp.tid()
    vel = u[i, j]
    out[i, j] = sample(f, float(j) - vel[0] * dt, float(i) - vel[1] * dt)


@wp.kernel
def neo_hookean(f: wp.array[wp.mat33], mu: float, k: float, out: wp.array[wp.mat33], energy: wp.array[float]):
    i = wp.tid()
    F = f[i] * 0.2 + wp.identity(n=3, dtype=float)
    J = wp.determinant(F)
    C = wp.transpose(F) * F
    P = F * mu + wp.transpose(wp.inverse(F)) * (k * wp.log(J) - mu)
    out[i] = P
    energy[i] = 0.5 * mu * (wp.trace(C) - 3.0) - mu * wp.log(J) + 0.5 * k * wp.log(J) * wp.log(J)


A = [12, -1, 1]
LAUNCHES = {
    "nbody": {"dim": 12, "x": A, "m": [12, 0.1, 1], "eps": 0.05, "out": 12, "check": "near 1e-5"},
    "springs": {"dim": 20, "x": A, "v": A, "pairs": [20, 0, 12], "rest": 0.5, "stiffness": 10.0, "damping": 0.5, "f": 12,
                "check": "near 1e-5"},
    "bouncing": {"dim": 12, "x": [12, 0, 1], "v": A, "dt": 0.02, "steps": 40, "check": "near 1e-5"},
    "lorenz": {"dim": 12, "x": [12, -5, 5], "h": 0.01, "check": "near 1e-5"},
    "heat": {"dim": (9, 10), "u": [(9, 10), 0, 1], "rate": 0.2, "out": (9, 10), "check": "ulp 1"},
    "wave": {"dim": (9, 10), "now": [(9, 10), 0, 1], "before": [(9, 10), 0, 1], "c": 0.2, "out": (9, 10), "check": "near 1e-6"},
    "advection": {"dim": (9, 10), "f": [(9, 10), 0, 1], "u": [(9, 10), -3, 3], "dt": 0.5, "out": (9, 10),
                  "check": "near 2e-6"},
    "neo_hookean": {"dim": 12, "f": A, "mu": 2.0, "k": 5.0, "out": 12, "energy": 12, "check": "near 1e-5"},
}
