//! Normalized tokens of a source or CUDA text: names are numbered by first use, constants are
//! equal, comments and docstrings are skipped.

use std::sync::LazyLock;

use bornite_support::random::mix;
use foldhash::{HashMap, HashMapExt};

/// Keywords, types and builtin variables of Python and C, significant everywhere.
const KEYWORDS: &str = "and as assert break class continue def elif else for if import in not or pass return while wp True False \
    array array2d array3d dtype kernel func struct range float int bool float16 float32 float64 bfloat16 int8 int16 \
    int32 int64 uint8 uint16 uint32 uint64 vec2 vec3 vec4 vec2d vec3d vec4d mat22 mat33 mat44 mat22d mat33d mat44d \
    __global__ __device__ __shared__ __restrict__ inline const void signed unsigned char short long double \
    float2 float3 float4 double2 double3 double4 mat2 mat3 mat4 mat2d mat3d mat4d __half __nv_bfloat16 \
    blockIdx blockDim threadIdx gridDim pragma unroll include";

/// Functions and vector members, significant only where they are called or follow a dot. Elsewhere
/// they are user-chosen names.
const FUNCTIONS_AND_MEMBERS: &str = "tid x y z w \
    where atomic_add atomic_sub atomic_min atomic_max atomic_and atomic_or atomic_xor rand_init randf randi \
    abs sign min max clamp floor ceil round rint trunc frac sqrt cbrt pow exp log log2 log10 sin cos tan asin acos atan \
    atan2 sinh cosh tanh erf erfc copysign lerp smoothstep degrees radians bit_count dot length length_sq normalize \
    cross cw_mul cw_div cw_min cw_max cw_abs transpose determinant trace outer add sub scale divide multiply neg pcg \
    make_float2 make_float3 make_float4 make_double2 make_double3 make_double4 \
    __half2float __float2half __bfloat162float __float2bfloat16 __hadd __hsub __hmul __hdiv __hneg __hlt __hgt __hle __hge \
    fabsf fabs fminf fmin fmaxf fmax floorf ceilf roundf rintf truncf sqrtf cbrtf powf expf logf log2f log10f sinf cosf \
    tanf asinf acosf atanf atan2f sinhf coshf tanhf erff erfcf copysignf __popc __popcll llabs atomicAdd atomicSub \
    atomicMin atomicMax atomicAnd atomicOr atomicXor __syncthreads __shfl_sync __shfl_up_sync __shfl_down_sync \
    __shfl_xor_sync";

/// Each word, and whether it is significant everywhere.
static WORDS: LazyLock<HashMap<&str, bool>> = LazyLock::new(|| {
    let words = |text: &'static str, anywhere: bool| text.split_whitespace().map(move |word| (word, anywhere));
    words(KEYWORDS, true).chain(words(FUNCTIONS_AND_MEMBERS, false)).collect()
});

fn hash(word: &[u8]) -> u64 {
    mix(word.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ *byte as u64).wrapping_mul(0x100_0000_01b3)))
}

/// Calls `visit` with each token, and with the token after operators and functions are removed too.
pub fn tokens(text: &str, visit: &mut dyn FnMut(u64, u64)) {
    let bytes = text.as_bytes();
    let mut numbers: HashMap<&[u8], u64> = HashMap::new();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let start = at;
        if byte.is_ascii_alphabetic() || byte == b'_' {
            while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                at += 1;
            }
            let word = &bytes[start..at];
            let before = &bytes[..start];
            let defined = || before.ends_with(b"def ") || before.ends_with(b"void ");
            let called = || before.ends_with(b".") || bytes.get(at) == Some(&b'(') && !defined();
            if WORDS.get(&text[start..at]).is_some_and(|anywhere| *anywhere || called()) {
                visit(hash(word), 3);
            } else {
                let next = numbers.len() as u64;
                let number = *numbers.entry(word).or_insert(next);
                let token = mix(0x7a3e_0000 + number);
                visit(token, token);
            }
        } else if byte.is_ascii_digit() {
            while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'.' || exponent(bytes, at)) {
                at += 1;
            }
            visit(1, 1);
        } else if text[at..].starts_with("\"\"\"") {
            at = text[at + 3..].find("\"\"\"").map_or(bytes.len(), |end| at + 3 + end + 3);
        } else if byte == b'\n' {
            at += 1;
            // Indentation is structure in Python.
            let depth = bytes[at..].iter().take_while(|b| **b == b' ').count();
            let token = mix(0xd0 + depth as u64);
            visit(token, token);
        } else if byte.is_ascii_whitespace() {
            at += 1;
        } else {
            at += 1;
            let skeleton = if b"+-*/%&|^<>=!~?:".contains(&byte) { 2 } else { mix(byte as u64) };
            visit(mix(byte as u64), skeleton);
        }
    }
}

fn exponent(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at], b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<u64> {
        let mut out = vec![];
        tokens(text, &mut |token, _| out.push(token));
        out
    }

    #[test]
    fn tokens_ignore_names_and_constants_but_not_operators() {
        let first = all("\"\"\"Sums.\"\"\"\nout[i] = a[i] * 2.5 + wp.sin(b[i])");
        assert_eq!(first, all("\"\"\"Other.\"\"\"\nres[k] = p[k] * 1e-3 + wp.sin(q[k])"));
        // Names that are significant elsewhere.
        assert_eq!(first, all("\n\"\"\"Other.\"\"\"\nx[y] = w[y] * 1e-3 + wp.sin(scale[y])")[1..]);
        assert_ne!(all("a.x + b.x"), all("a.y + b.x"));
        for other in [
            "res[k] = p[k] * 1e-3 + wp.cos(q[k])",
            "res[k] = p[k] * 1e-3 - wp.sin(q[k])",
            "res[k] = p[k] * 1e-3 + wp.sin(p[k])",
        ] {
            assert_ne!(first, all(&format!("\n{other}")), "{other}");
        }
    }
}
