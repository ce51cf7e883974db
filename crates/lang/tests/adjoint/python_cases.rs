//! Handwritten kernels in Python syntax with correct gradients.

use crate::harness::{Case, Fill};
use Fill::{Numbers, Uniform};

const U: Fill = Uniform(-1.0, 1.0);

fn case(
    name: &'static str,
    source: &str,
    dims: &'static [u64],
    arrays: &[(&'static str, &'static [u64], Fill)],
    numbers: &[(&'static str, &[f64])],
    wrt: &'static str,
) -> Case {
    let numbers = numbers.iter().map(|(name, numbers)| (*name, numbers.to_vec())).collect();
    Case { name, source: format!("import warp as wp\n{source}"), dims, arrays: arrays.to_vec(), numbers, wrt }
}

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "springs in 3-D",
            "@wp.kernel
def k(x: wp.array(dtype=wp.vec3), a: wp.array(dtype=int), b: wp.array(dtype=int), f: wp.array(dtype=wp.vec3)):
    s = wp.tid()
    d = x[b[s]] - x[a[s]]
    pull = d * (wp.length(d) - 0.5)
    wp.atomic_add(f, a[s], pull)
    wp.atomic_sub(f, b[s], pull)
",
            &[6],
            &[
                ("x", &[4], U),
                ("a", &[6], Numbers(&[0.0, 1.0, 2.0])),
                ("b", &[6], Numbers(&[1.0, 2.0, 3.0, 3.0, 0.0, 0.0])),
                ("f", &[4], U),
            ],
            &[],
            "x f",
        ),
        case(
            "n-body",
            "@wp.struct
class Body:
    position: wp.vec3
    mass: float

@wp.func
def force(a: wp.vec3, b: wp.vec3):
    d = b - a
    return d / (wp.dot(d, d) + 0.1)

@wp.kernel
def k(p: wp.array(dtype=Body), f: wp.array(dtype=wp.vec3), n: int):
    i = wp.tid()
    acc = wp.vec3(0.0, 0.0, 0.0)
    for j in range(n):
        if j != i:
            acc += force(p[i].position, p[j].position) * p[j].mass
    f[i] = acc
",
            &[5],
            &[("p", &[5], U), ("f", &[5], U)],
            &[("n", &[5.0])],
            "p",
        ),
        case(
            "matrix inverse",
            "@wp.kernel
def k(m: wp.array(dtype=wp.mat33), y: wp.array(dtype=wp.mat33), d: wp.array(dtype=float)):
    i = wp.tid()
    a = m[i] * wp.transpose(m[i]) + wp.identity(n=3, dtype=float)
    y[i] = wp.inverse(a)
    d[i] = wp.determinant(m[i])
",
            &[4],
            &[("m", &[4], U), ("y", &[4], U), ("d", &[4], U)],
            &[],
            "m",
        ),
        case(
            "quaternion integration",
            "@wp.kernel
def k(q: wp.array(dtype=wp.quat), w: wp.array(dtype=wp.vec3), steps: int, out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    r = wp.normalize(q[i])
    for s in range(steps):
        dq = wp.quat(w[i][0], w[i][1], w[i][2], 0.0) * r
        r = wp.normalize(r + dq * 0.05)
    out[i] = wp.quat_rotate(r, wp.vec3(1.0, 2.0, 3.0))
",
            &[4],
            &[("q", &[4], Uniform(0.2, 1.0)), ("w", &[4], U), ("out", &[4], U)],
            &[("steps", &[5.0])],
            "q w",
        ),
        case(
            "2-D stencil",
            "@wp.kernel
def k(u: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
    i, j = wp.tid()
    if i > 0 and j > 0 and i < 5 and j < 6:
        out[i, j] = u[i - 1, j] * u[i, j - 1] - 4.0 * u[i, j] * u[i + 1, j + 1]
",
            &[6, 7],
            &[("u", &[6, 7], U), ("out", &[6, 7], U)],
            &[],
            "u out",
        ),
        case(
            "softmax of a row",
            "@wp.kernel
def k(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float), n: int):
    r = wp.tid()
    m = float(-1.0e30)
    for j in range(n):
        m = wp.max(m, x[r, j])
    total = float(0.0)
    for j in range(n):
        total += wp.exp(x[r, j] - m)
    for j in range(n):
        y[r, j] = wp.exp(x[r, j] - m) / total
",
            &[3],
            &[("x", &[3, 5], U), ("y", &[3, 5], U)],
            &[("n", &[5.0])],
            "x",
        ),
        case(
            "in place",
            "@wp.kernel
def k(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = a * x[i] * y[i]
    y[i] = y[i] + wp.sin(y[i])
",
            &[7],
            &[("x", &[7], U), ("y", &[7], U)],
            &[("a", &[1.5])],
            "x y",
        ),
        case(
            "while",
            "@wp.kernel
def k(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    v = x[i]
    n = int(0)
    while n < 10:
        v = v * v + 0.2
        n += 1
        if v > 0.9:
            break
        if n % 2 == 0:
            continue
        v = v - 0.3 * x[i]
    y[i] = v
",
            &[8],
            &[("x", &[8], U), ("y", &[8], U)],
            &[],
            "x",
        ),
        case(
            "double precision and matrices",
            "@wp.kernel
def k(m: wp.array(dtype=wp.mat22d), v: wp.array(dtype=wp.vec2d), y: wp.array(dtype=wp.vec2d)):
    i = wp.tid()
    a = m[i]
    y[i] = a * v[i] + wp.outer(v[i], v[0]) * v[i] * wp.length(v[i])
",
            &[5],
            &[("m", &[5], U), ("v", &[5], U), ("y", &[5], U)],
            &[],
            "m v",
        ),
        case(
            "cross products and components",
            "@wp.kernel
def k(a: wp.array(dtype=wp.vec3), b: wp.array(dtype=wp.vec3), y: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    c = wp.cross(a[i], b[i])
    c[1] = c[0] * a[i][2]
    for j in range(3):
        c[j] += b[i][j] * c[(j + 1) % 3]
    y[i] = wp.normalize(c) * wp.dot(a[i], c)
",
            &[5],
            &[("a", &[5], U), ("b", &[5], U), ("y", &[5], U)],
            &[],
            "a b",
        ),
        case(
            "gather in 3-D grids",
            "@wp.kernel
def k(x: wp.array3d(dtype=float), at: wp.array(dtype=int), y: wp.array3d(dtype=float)):
    i, j, l = wp.tid()
    y[i, j, l] = x[at[i], at[j], l] * x[i, at[l], at[j]]
",
            &[3, 2, 3],
            &[("x", &[3, 3, 3], U), ("at", &[3], Numbers(&[2.0, 0.0, 2.0])), ("y", &[3, 2, 3], U)],
            &[],
            "x",
        ),
        case(
            "ternary, clamp and powers",
            "@wp.kernel
def k(x: wp.array(dtype=float), p: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    a = x[i] if x[i] > 0.0 else -0.3 * x[i]
    y[i] = wp.pow(a + 0.5, p[i]) + wp.clamp(x[i], -0.4, 0.4) * wp.tanh(p[i]) + wp.atan2(p[i], a + 1.0)
",
            &[12],
            &[("x", &[12], U), ("p", &[12], Uniform(0.5, 2.0)), ("y", &[12], U)],
            &[],
            "x p",
        ),
    ]
}
