//! Kernels that must not be differentiated: each names the construct, in the line marked `// here`.

use crate::harness::{Case, Fill, refusal};

const HEAD: &str = "int i = blockIdx.x * blockDim.x + threadIdx.x;";

/// Name, parameters, body and part of the message. Arrays: floats x, y, z, integers at, counts.
const CUDA: &[(&str, &str, &str)] = &[
    ("shared memory", "__shared__ float t[32]; t[threadIdx.x] = x[i]; y[i] = t[threadIdx.x];", "shared memory"),
    ("barrier", "y[i] = x[i];\n__syncthreads(); // here\n", "a barrier"),
    ("warp barrier", "y[i] = x[i];\n__syncwarp(); // here\n", "a warp barrier"),
    ("fence", "y[i] = x[i];\n__threadfence(); // here\n", "a memory fence"),
    ("fence of a block", "y[i] = x[i];\n__threadfence_block(); // here\n", "a memory fence"),
    ("shuffle", "y[i] = __shfl_down_sync(0xffffffffu, x[i], 1); // here\n", "a warp shuffle"),
    ("butterfly", "y[i] = __shfl_xor_sync(0xffffffffu, x[i], 1); // here\n", "a warp shuffle"),
    ("vote", "if (__any_sync(0xffffffffu, x[i] > 0.0f)) // here\n y[i] = x[i];", "a warp vote"),
    ("ballot", "y[i] = x[i] * __popc(__ballot_sync(0xffffffffu, x[i] > 0.0f)); // here\n", "a warp vote"),
    ("neighbour in place", "if (i > 0) y[i] = y[i - 1] * x[i]; // here\n", "'y' is read and written"),
    ("neighbour above", "y[i] = y[i + 1] + x[i]; // here\n", "'y' is read and written"),
    ("other instance's element", "y[i] = x[i];\nz[i] = y[31 - i]; // here\n", "'y' is read and written"),
    ("gather in place", "y[i] = y[at[i]] * 2.0f; // here\n", "'y' is read and written"),
    ("scatter in place", "float v = y[i]; // here\n y[at[i]] = v * x[i];", "'y' is read and written"),
    ("shared element", "y[0] = y[0] + x[i]; // here\n", "'y' is read and written"),
    ("reduction in place", "y[i / 2] += x[i]; // here\n", "'y' is read and written"),
    ("modulo in place", "y[i % 4] += x[i]; // here\n", "'y' is read and written"),
    (
        "overlapping rows in place",
        "for (int j = 0; j < 4; j++) y[i * 3 + j] += x[i]; // here\n",
        "'y' is read and written",
    ),
    (
        "rows of unknown length",
        "for (int j = 0; j < n; j++) y[i * 3 + j] += x[i]; // here\n",
        "'y' is read and written",
    ),
    (
        "rows with another stride",
        "for (int j = 0; j < m; j++) y[i * n + j] += x[i]; // here\n",
        "'y' is read and written",
    ),
    ("transposed in place", "y[(i % 4) * 4 + i / 4] = y[i] + x[i]; // here\n", "'y' is read and written"),
    (
        "integers of other instances",
        "counts[i] = i;\nz[i] = x[i] * counts[31 - i]; // here\n",
        "'counts' is read and written",
    ),
    ("scatter", "y[at[i]] = x[i]; // here\n", "'y' is stored at an index"),
    ("one element", "y[0] = x[i]; // here\n", "'y' is stored at an index"),
    ("last writer", "y[i / 4] = x[i]; // here\n", "'y' is stored at an index"),
    ("masked index", "y[i & 7] = x[i]; // here\n", "'y' is stored at an index"),
    ("product of indices", "y[i * i] = x[i]; // here\n", "'y' is stored at an index"),
    ("thread of the block only", "y[threadIdx.x] = x[i]; // here\n", "'y' is stored at an index"),
    ("block only", "y[blockIdx.x] = x[i]; // here\n", "'y' is stored at an index"),
    ("runtime stride", "y[i * n] = x[i]; // here\n", "'y' is stored at an index"),
    ("runtime stride with an offset", "y[i * n + m] = x[i]; // here\n", "'y' is stored at an index"),
    ("narrowed index", "y[(unsigned char)(i * 16)] = x[i]; // here\n", "'y' is stored at an index"),
    ("two windows", "y[i] = x[i]; // here\n y[i + 1] = x[i];", "'y' is stored at an index"),
    ("nested windows", "for (int j = 0; j < 3; j++) y[i * 2 + j] = x[i]; // here\n", "'y' is stored at an index"),
    ("counter from an atomic", "int k = atomicAdd(&counts[0], 1); // here\n y[k] = x[i];", "whose result is used"),
    ("old value of a sum", "z[i] = atomicAdd(&y[0], x[i]); // here\n", "whose result is used"),
    ("compare and swap", "atomicCAS(&counts[0], 0, i); // here\n y[i] = x[i];", "a compare-and-swap"),
    ("exchange", "atomicExch(&y[0], x[i]); // here\n", "an atomic exchange of floats"),
    ("sum and read", "atomicAdd(&y[at[i]], x[i]); // here\n z[i] = y[i];", "updated atomically and also read"),
    ("sum and store", "y[i] = 0.0f;\natomicAdd(&y[at[i]], x[i]); // here\n", "updated atomically and also read"),
    (
        "counts and read",
        "atomicAdd(&counts[at[i]], 1); // here\n y[i] = x[i] * counts[i];",
        "updated atomically and also read",
    ),
    (
        "fast inverse root",
        "float v = x[i];\nint b = 0x5f3759df - (__float_as_int(v) >> 1);\ny[i] = __int_as_float(b); // here\n",
        "from the bits",
    ),
    ("sign bit", "y[i] = __int_as_float(__float_as_int(x[i]) & 0x7fffffff); // here\n", "from the bits"),
    ("exponent as a number", "y[i] = (float)(__float_as_int(x[i]) >> 23); // here\n", "from the bits"),
    ("bits in memory", "counts[i] = __float_as_int(x[i]); // here\n y[i] = x[i];", "from the bits"),
];

fn lines_of(source: &str) -> Option<u32> {
    source.lines().position(|line| line.contains("// here")).map(|line| line as u32 + 1)
}

fn cuda_case(name: &'static str, body: &str) -> Case {
    let source = format!(
        "__global__ void k(const float* x, float* y, float* z, const int* at, int* counts, int n, int m) {{\n{HEAD}\n{body}\n}}"
    );
    let (float, int) = (Fill::Uniform(-1.0, 1.0), Fill::Numbers(&[0.0, 3.0, 1.0]));
    Case {
        name,
        source,
        dims: &[64],
        arrays: vec![
            ("x", &[64], float.clone()),
            ("y", &[8192], float.clone()),
            ("z", &[64], float),
            ("at", &[64], int.clone()),
            ("counts", &[64], int),
        ],
        numbers: vec![],
        wrt: "x",
    }
}

pub fn cuda_kernels_are_refused() {
    let mut failed = vec![];
    for (name, body, expected) in CUDA {
        let case = cuda_case(name, body);
        match refusal(&case) {
            Ok((error, line)) => {
                if !error.message.contains(expected) || line != lines_of(&case.source) || error.remedy.is_empty() {
                    failed.push(format!("{name}: {error:?}, source line {line:?}"));
                }
            }
            Err(message) => failed.push(message),
        }
    }
    assert!(CUDA.len() >= 40);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

pub fn python_kernels_are_refused() {
    let table: [(&str, &str); 8] = [
        ("    y[0] = x[i]  // here\n", "'y' is stored at an index"),
        ("    y[i] = y[i + 1] + x[i]  // here\n", "'y' is read and written"),
        ("    y[i] = wp.atomic_add(z, 0, x[i])  // here\n", "whose result is used"),
        ("    wp.atomic_max(y, 0, x[i])  // here\n", "an atomic max of floats"),
        ("    wp.atomic_min(y, 0, x[i])  // here\n", "an atomic min of floats"),
        ("    y[at[i]] = x[i]  // here\n", "'y' is stored at an index"),
        ("    wp.atomic_add(y, at[i], x[i])  // here\n    y[i] = x[i]\n", "updated atomically and also read"),
        ("    y[i // 2] += x[i] * y[i]  // here\n", "'y' is "),
    ];
    for (body, expected) in table {
        let source = format!(
            "import warp as wp\n@wp.kernel\ndef k(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float), at: \
             wp.array(dtype=int)):\n    i = wp.tid()\n{body}"
        );
        let expected_line = lines_of(&source);
        let float = Fill::Uniform(-1.0, 1.0);
        let case = Case {
            name: "python",
            source: source.replace("// here", ""),
            dims: &[8],
            arrays: vec![
                ("x", &[8], float.clone()),
                ("y", &[9], float.clone()),
                ("z", &[8], float),
                ("at", &[8], Fill::Numbers(&[0.0])),
            ],
            numbers: vec![],
            wrt: "x",
        };
        let (error, line) = refusal(&case).unwrap_or_else(|message| panic!("{message}"));
        assert!(error.message.contains(expected) && line == expected_line, "{body}: {error:?}, line {line:?}");
    }
}
