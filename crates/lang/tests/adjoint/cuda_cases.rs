//! Handwritten kernels in CUDA C++ with correct gradients.

use crate::harness::{Case, Fill};
use Fill::{Numbers, Uniform};

const U: Fill = Uniform(-1.0, 1.0);
const POSITIVE: Fill = Uniform(0.5, 2.0);

fn case(
    name: &'static str,
    source: &str,
    dims: &'static [u64],
    arrays: &[(&'static str, &'static [u64], Fill)],
    numbers: &[(&'static str, &[f64])],
    wrt: &'static str,
) -> Case {
    let numbers = numbers.iter().map(|(name, numbers)| (*name, numbers.to_vec())).collect();
    Case { name, source: source.into(), dims, arrays: arrays.to_vec(), numbers, wrt }
}

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "square",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = x[i] * x[i];
            }",
            &[40],
            &[("x", &[37], U), ("y", &[37], U)],
            &[("n", &[37.0])],
            "x y",
        ),
        case(
            "saxpy in place",
            "__global__ void k(float a, const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                y[i] = a * x[i] * y[i] + y[i];
            }",
            &[40],
            &[("x", &[37], U), ("y", &[37], U)],
            &[("n", &[37.0]), ("a", &[1.7])],
            "x y",
        ),
        case(
            "add in place",
            "__global__ void k(float* a, const float* x, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) a[i] += sinf(x[i]);
            }",
            &[40],
            &[("x", &[37], U), ("a", &[37], U)],
            &[("n", &[37.0])],
            "a x",
        ),
        case(
            "grid-stride loop",
            "__global__ void k(const float* x, float* y, int n) {
                for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
                    y[i] = expf(x[i]) * x[i];
            }",
            &[64],
            &[("x", &[200], U), ("y", &[200], U)],
            &[("n", &[200.0])],
            "x",
        ),
        case(
            "stencil",
            "__global__ void k(const float* u, float* v, int w, int h) {
                int x = blockIdx.x * blockDim.x + threadIdx.x;
                int y = blockIdx.y * blockDim.y + threadIdx.y;
                if (x >= w || y >= h) return;
                float c = u[y * w + x];
                float l = x > 0 ? u[y * w + x - 1] : 0.0f;
                float r = x < w - 1 ? u[y * w + x + 1] : 0.0f;
                float t = y > 0 ? u[(y - 1) * w + x] : 0.0f;
                float b = y < h - 1 ? u[(y + 1) * w + x] : 0.0f;
                v[y * w + x] = c * c + 0.25f * (l + r + t + b) * c;
            }",
            &[10, 7],
            &[("u", &[63], U), ("v", &[63], U)],
            &[("w", &[9.0]), ("h", &[7.0])],
            "u",
        ),
        case(
            "3-D stencil",
            "__global__ void k(const float* u, float* v, int nx, int ny, int nz) {
                int x = blockIdx.x * blockDim.x + threadIdx.x;
                int y = blockIdx.y * blockDim.y + threadIdx.y;
                int z = blockIdx.z;
                if (x < 1 || x >= nx - 1 || y < 1 || y >= ny - 1 || z < 1 || z >= nz - 1) return;
                int i = (z * ny + y) * nx + x;
                v[i] = u[i] * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] + u[i - nx * ny] + u[i + nx * ny]);
            }",
            &[5, 6, 4],
            &[("u", &[100], U), ("v", &[100], U)],
            &[("nx", &[5.0]), ("ny", &[5.0]), ("nz", &[4.0])],
            "u v",
        ),
        case(
            "softmax row",
            "__global__ void k(const float* x, float* y, int rows, int n) {
                int r = blockIdx.x * blockDim.x + threadIdx.x;
                if (r >= rows) return;
                float m = -1e30f;
                for (int j = 0; j < n; j++) m = fmaxf(m, x[r * n + j]);
                float s = 0.0f;
                for (int j = 0; j < n; j++) s += expf(x[r * n + j] - m);
                for (int j = 0; j < n; j++) y[r * n + j] = expf(x[r * n + j] - m) / s;
            }",
            &[5],
            &[("x", &[35], U), ("y", &[35], U)],
            &[("rows", &[5.0]), ("n", &[7.0])],
            "x",
        ),
        case(
            "layer norm row",
            "__global__ void k(const float* x, const float* gain, const float* bias, float* y, int rows, int n) {
                int r = blockIdx.x * blockDim.x + threadIdx.x;
                if (r >= rows) return;
                const float* row = x + r * n;
                float mean = 0.0f;
                for (int j = 0; j < n; j++) mean += row[j];
                mean /= n;
                float variance = 0.0f;
                for (int j = 0; j < n; j++) { float d = row[j] - mean; variance += d * d; }
                float scale = rsqrtf(variance / n + 1e-5f);
                for (int j = 0; j < n; j++) y[r * n + j] = (row[j] - mean) * scale * gain[j] + bias[j];
            }",
            &[6],
            &[("x", &[48], U), ("gain", &[8], POSITIVE), ("bias", &[8], U), ("y", &[48], U)],
            &[("rows", &[6.0]), ("n", &[8.0])],
            "x gain bias",
        ),
        case(
            "attention row",
            "__global__ void k(const float* q, const float* keys, const float* v, float* out, int n, int d) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float total = 0.0f;
                for (int c = 0; c < d; c++) out[i * d + c] = 0.0f;
                for (int j = 0; j <= i; j++) {
                    float score = 0.0f;
                    for (int c = 0; c < d; c++) score += q[i * d + c] * keys[j * d + c];
                    float p = expf(score);
                    total += p;
                    for (int c = 0; c < d; c++) out[i * d + c] += p * v[j * d + c];
                }
                for (int c = 0; c < d; c++) out[i * d + c] /= total;
            }",
            &[5],
            &[("q", &[15], U), ("keys", &[15], U), ("v", &[15], U), ("out", &[15], U)],
            &[("n", &[5.0]), ("d", &[3.0])],
            "q keys v",
        ),
        case(
            "gather",
            "__global__ void k(const float* x, const int* at, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = x[at[i]] * x[at[i]] * 0.5f;
            }",
            &[20],
            &[("x", &[5], U), ("at", &[17], Numbers(&[0.0, 3.0, 1.0, 3.0, 4.0, 3.0, 2.0])), ("y", &[17], U)],
            &[("n", &[17.0])],
            "x",
        ),
        case(
            "scatter",
            "__global__ void k(const float* x, const int* at, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) atomicAdd(&y[at[i]], x[i] * x[i]);
            }",
            &[20],
            &[("x", &[17], U), ("at", &[17], Numbers(&[0.0, 3.0, 1.0, 3.0, 4.0, 3.0, 2.0])), ("y", &[5], U)],
            &[("n", &[17.0])],
            "x y",
        ),
        case(
            "ray marching",
            "__device__ float scene(float x, float y, float z, float r) { return sqrtf(x * x + y * y + z * z) - r; }
            __global__ void k(const float* radius, const float* angle, float* depth, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float dx = sinf(angle[i]), dz = cosf(angle[i]);
                float t = 0.0f;
                for (int step = 0; step < 12; step++) {
                    float d = scene(t * dx, 0.1f, t * dz - 3.0f, radius[0]);
                    if (d < 0.001f) break;
                    t += 0.7f * d;
                    if (t > 20.0f) return;
                }
                depth[i] = t;
            }",
            &[9],
            &[("radius", &[1], POSITIVE), ("angle", &[9], Uniform(-0.2, 0.2)), ("depth", &[9], U)],
            &[("n", &[9.0])],
            "radius angle",
        ),
        case(
            "n-body with float4",
            "__global__ void k(const float4* body, float3* force, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float4 me = body[i];
                float3 f = make_float3(0.0f, 0.0f, 0.0f);
                for (int j = 0; j < n; j++) {
                    float4 other = body[j];
                    float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
                    float inv = rsqrtf(dx * dx + dy * dy + dz * dz + 0.1f);
                    float s = other.w * inv * inv * inv;
                    f.x += dx * s; f.y += dy * s; f.z += dz * s;
                }
                force[i] = f;
            }",
            &[6],
            &[("body", &[6], U), ("force", &[6], U)],
            &[("n", &[6.0])],
            "body",
        ),
        case(
            "springs",
            "__global__ void k(const float* x, const int* a, const int* b, float* f, float stiffness, int n) {
                int s = blockIdx.x * blockDim.x + threadIdx.x;
                if (s >= n) return;
                float d = x[b[s]] - x[a[s]];
                float length = sqrtf(d * d + 0.01f);
                float pull = stiffness * (length - 0.5f) * d / length;
                atomicAdd(f + a[s], pull);
                atomicAdd(f + b[s], -pull);
            }",
            &[8],
            &[
                ("x", &[5], U),
                ("a", &[8], Numbers(&[0.0, 1.0, 2.0, 3.0, 0.0])),
                ("b", &[8], Numbers(&[1.0, 2.0, 3.0, 4.0, 4.0])),
                ("f", &[5], U),
            ],
            &[("n", &[8.0]), ("stiffness", &[3.0])],
            "x",
        ),
        case(
            "loop-carried overwrite",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float a = x[i];
                for (int s = 0; s < 6; s++) a = a * a + x[i] * 0.3f;
                y[i] = a;
            }",
            &[10],
            &[("x", &[9], Uniform(-0.7, 0.7)), ("y", &[9], U)],
            &[("n", &[9.0])],
            "x",
        ),
        case(
            "loop-carried overwrite of unknown length",
            "__global__ void k(const float* x, float* y, int n, int steps) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float a = x[i];
                for (int s = 0; s < steps; s++) a = sinf(a) * x[i] + a * 0.5f;
                y[i] = a;
            }",
            &[10],
            &[("x", &[9], U), ("y", &[9], U)],
            &[("n", &[9.0]), ("steps", &[11.0])],
            "x",
        ),
        case(
            "element written twice",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                y[i] = x[i] * 3.0f;
                y[i] = x[i] * x[i];
            }",
            &[10],
            &[("x", &[9], U), ("y", &[9], U)],
            &[("n", &[9.0])],
            "x y",
        ),
        case(
            "update in place read later",
            "__global__ void k(float* y, float* z, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                y[i] = y[i] * y[i];
                z[i] = y[i] * 2.0f;
                y[i] += z[i] * y[i];
                y[i] = cosf(y[i]);
            }",
            &[10],
            &[("y", &[9], U), ("z", &[9], U)],
            &[("n", &[9.0])],
            "y z",
        ),
        case(
            "while with a condition on data",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float a = x[i];
                int steps = 0;
                while (a < 4.0f && steps < 20) { a = a * 1.3f + x[i] * x[i]; steps++; }
                y[i] = a * steps;
            }",
            &[10],
            &[("x", &[9], POSITIVE), ("y", &[9], U)],
            &[("n", &[9.0])],
            "x",
        ),
        case(
            "nested loops with continue and break",
            "__global__ void k(const float* x, float* y, int n, int m) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float a = 1.0f;
                for (int p = 0; p < m; p++) {
                    if (p % 3 == 1) continue;
                    float b = a;
                    for (int q = p; q < m; q++) {
                        b = b * x[(i + q) % n] + 0.5f;
                        if (b > 1.2f) { a += b * b; break; }
                        if (q == p + 2) continue;
                        a = a * 0.9f + b;
                    }
                    a *= b;
                }
                y[i] = a;
            }",
            &[10],
            &[("x", &[9], Uniform(0.1, 0.9)), ("y", &[9], U)],
            &[("n", &[9.0]), ("m", &[7.0])],
            "x",
        ),
        case(
            "early returns in a function",
            "__device__ float f(float v) {
                if (v < -0.5f) return -v * v;
                for (int j = 0; j < 4; j++) { v *= 1.5f; if (v > 1.0f) return v * v * v; }
                return sinf(v);
            }
            __global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = f(x[i]) * f(x[i] * 0.5f);
            }",
            &[40],
            &[("x", &[37], Uniform(-1.0, 1.0)), ("y", &[37], U)],
            &[("n", &[37.0])],
            "x",
        ),
        case(
            "local array",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float ring[8];
                for (int j = 0; j < 8; j++) ring[j] = x[i] * (j + 1);
                for (int s = 0; s < 20; s++) { int at = (s * 3) % 8; ring[at] = sinf(ring[at]) + ring[(at + 1) % 8] * 0.5f; }
                float sum = 0.0f;
                for (int j = 0; j < 8; j++) sum += ring[j] * ring[j];
                y[i] = sum;
            }",
            &[10],
            &[("x", &[9], U), ("y", &[9], U)],
            &[("n", &[9.0])],
            "x",
        ),
        case(
            "insertion sort in a local array",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float a[5];
                for (int j = 0; j < 5; j++) a[j] = x[i * 5 + j];
                for (int j = 1; j < 5; j++) {
                    float key = a[j];
                    int p = j - 1;
                    while (p >= 0 && a[p] > key) { a[p + 1] = a[p]; p--; }
                    a[p + 1] = key;
                }
                y[i] = a[2] * a[2] + a[4];
            }",
            &[6],
            &[("x", &[30], U), ("y", &[6], U)],
            &[("n", &[6.0])],
            "x",
        ),
        case(
            "soft histogram",
            "__global__ void k(const float* x, float* bins, int n, int count) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                for (int b = 0; b < count; b++) {
                    float d = x[i] - (b + 0.5f) / count;
                    atomicAdd(&bins[b], expf(-d * d * 20.0f));
                }
            }",
            &[12],
            &[("x", &[11], Uniform(0.0, 1.0)), ("bins", &[4], U)],
            &[("n", &[11.0]), ("count", &[4.0])],
            "x bins",
        ),
        case(
            "matrix product",
            "__global__ void k(const float* a, const float* b, float* c, int m, int k, int n) {
                int col = blockIdx.x * blockDim.x + threadIdx.x;
                int row = blockIdx.y * blockDim.y + threadIdx.y;
                if (row < m && col < n) {
                    float sum = 0.0f;
                    for (int p = 0; p < k; ++p) sum += a[row * k + p] * b[p * n + col];
                    c[row * n + col] = sum;
                }
            }",
            &[6, 5],
            &[("a", &[20], U), ("b", &[24], U), ("c", &[30], U)],
            &[("m", &[5.0]), ("k", &[4.0]), ("n", &[6.0])],
            "a b",
        ),
        case(
            "convolution",
            "__global__ void k(const float* x, const float* w, float* y, int n, int taps) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float sum = 0.0f;
                for (int t = 0; t < taps; t++) {
                    int at = i + t - taps / 2;
                    if (at < 0 || at >= n) continue;
                    sum += x[at] * w[t];
                }
                y[i] = tanhf(sum);
            }",
            &[20],
            &[("x", &[19], U), ("w", &[5], U), ("y", &[19], U)],
            &[("n", &[19.0]), ("taps", &[5.0])],
            "x w",
        ),
        case(
            "GELU with vectors",
            "__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
            __global__ void k(const float4* x, float4* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float4 v = x[i];
                y[i] = make_float4(gelu(v.x), gelu(v.y), gelu(v.z) * v.x, gelu(v.w));
            }",
            &[10],
            &[("x", &[9], U), ("y", &[9], U)],
            &[("n", &[9.0])],
            "x",
        ),
        case(
            "structs",
            "struct Particle { float3 position; float mass; int kind; float speed; };
            __global__ void k(const Particle* p, Particle* out, float dt, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                Particle q = p[i];
                if (q.kind == 1) q.speed *= q.mass;
                q.position.x += dt * q.speed;
                q.position.y += dt * q.speed * q.speed;
                q.mass = q.mass * q.position.z;
                out[i] = q;
            }",
            &[6],
            &[("p", &[6], Numbers(&[0.3, 0.7, -0.4, 1.5, 1.0, 0.8, -0.3, 0.2, 0.9, 1.1, 0.0, 0.6])), ("out", &[6], U)],
            &[("n", &[6.0]), ("dt", &[0.1])],
            "p",
        ),
        case(
            "structs in place",
            "struct State { double x, v; };
            __global__ void k(State* s, const double* force, int n, int steps) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                for (int t = 0; t < steps; t++) {
                    s[i].v += 0.1 * (force[i] - s[i].x * s[i].x);
                    s[i].x += 0.1 * s[i].v;
                }
            }",
            &[6],
            &[("s", &[6], U), ("force", &[6], U)],
            &[("n", &[6.0]), ("steps", &[5.0])],
            "s force",
        ),
        case(
            "switch",
            "__global__ void k(const float* x, const int* kind, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float v = x[i];
                switch (kind[i]) {
                    case 0: v = v * v; break;
                    case 1: v = sinf(v);
                    case 2: v = v * 3.0f; break;
                    default: v = -v;
                }
                y[i] = v;
            }",
            &[12],
            &[("x", &[11], U), ("kind", &[11], Numbers(&[0.0, 1.0, 2.0, 3.0])), ("y", &[11], U)],
            &[("n", &[11.0])],
            "x",
        ),
        case(
            "do while",
            "__global__ void k(const double* x, double* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                double g = x[i];
                int s = 0;
                do { g = 0.5 * (g + x[i] / g); s++; } while (s < 5);
                y[i] = g;
            }",
            &[12],
            &[("x", &[11], POSITIVE), ("y", &[11], U)],
            &[("n", &[11.0])],
            "x",
        ),
        case(
            "in place over a row",
            "__global__ void k(float* x, int rows, int n) {
                int r = blockIdx.x * blockDim.x + threadIdx.x;
                if (r >= rows) return;
                for (int j = 1; j < n; j++) x[r * n + j] = x[r * n + j] * x[r * n + j - 1] + 0.1f;
            }",
            &[4],
            &[("x", &[24], U)],
            &[("rows", &[4.0]), ("n", &[6.0])],
            "x",
        ),
        case(
            "recurrence through a template",
            "template <typename T, int N> __device__ T horner(const T* c, T x) {
                T r = c[N - 1];
                for (int j = N - 2; j >= 0; j--) r = r * x + c[j];
                return r;
            }
            __global__ void k(const double* c, const double* x, double* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = horner<double, 5>(c, x[i]);
            }",
            &[8],
            &[("c", &[5], U), ("x", &[7], U), ("y", &[7], U)],
            &[("n", &[7.0])],
            "c x",
        ),
        case(
            "two outputs",
            "__global__ void k(const float* a, float* s, float* c, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                sincosf(a[i], &s[i], &c[i]);
            }",
            &[8],
            &[("a", &[7], U), ("s", &[7], U), ("c", &[7], U)],
            &[("n", &[7.0])],
            "a",
        ),
        case(
            "row and column of a flat index",
            "__global__ void k(const float* x, const float* scale, float* y, int width, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                int row = i / width, col = i % width;
                y[row * width + col] = x[col * (n / width) + row] * scale[col] * scale[row];
            }",
            &[12],
            &[("x", &[12], U), ("scale", &[4], U), ("y", &[12], U)],
            &[("width", &[4.0]), ("n", &[12.0])],
            "x scale",
        ),
        case(
            "half precision",
            "#include <cuda_fp16.h>
            __global__ void k(const __half* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = __half2float(x[i]) * __half2float(x[i]);
            }",
            &[8],
            &[("x", &[7], U), ("y", &[7], U)],
            &[("n", &[7.0])],
            "x",
        ),
        case(
            "lerp of a table",
            "__global__ void k(const float* table, const float* at, float* y, int size, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float p = at[i] * (size - 1);
                int j = (int)floorf(p);
                j = min(max(j, 0), size - 2);
                float w = p - j;
                y[i] = table[j] * (1.0f - w) + table[j + 1] * w;
            }",
            &[8],
            &[("table", &[5], U), ("at", &[7], Uniform(0.05, 0.95)), ("y", &[7], U)],
            &[("size", &[5.0]), ("n", &[7.0])],
            "table at",
        ),
        case(
            "values that are not selected",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i >= n) return;
                float root = sqrtf(x[i]), ratio = 1.0f / (x[i] - x[i]);
                float part = x[i] > 0.0f ? root * logf(x[i]) : 0.5f * x[i];
                float never = x[i] > 9.0f ? ratio * x[i] : x[i];
                y[i] = part * never + fmaxf(x[i], logf(x[i])) + (x[i] > 2.0f ? 1.0f / x[i] : x[i]);
            }",
            &[8],
            &[("x", &[7], Numbers(&[-1.0, 0.5, 1.3, -0.4, 2.5, 0.1])), ("y", &[7], U)],
            &[("n", &[7.0])],
            "x",
        ),
        case(
            "empty launch",
            "__global__ void k(const float* x, float* y, int n) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = x[i] * x[i] + x[0];
            }",
            &[8],
            &[("x", &[3], U), ("y", &[3], U)],
            &[("n", &[0.0])],
            "x y",
        ),
    ]
}
