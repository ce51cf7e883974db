//! Names that people might give.

use std::collections::HashSet;

pub const INPUTS: &[&str] = &[
    "x", "y", "z", "a", "b", "u", "v", "src", "data", "values", "signal", "samples", "weights", "field", "left", "right",
    "first", "second", "input_a", "input_b", "points", "readings", "levels", "scores", "density", "temperature", "speed",
    "mass", "height_map", "gain_map", "bias", "phase", "energy", "series", "buffer", "measured", "reference", "prices",
];

pub const OUTPUTS: &[&str] = &[
    "out", "result", "dst", "output", "target", "res", "ret", "updated", "response", "y_out", "dest", "computed",
];

pub const LOCALS: &[&str] = &[
    "t", "s", "p", "q", "r", "w", "c", "d", "e", "g", "h", "k0", "k1", "tmp", "val", "acc0", "term", "part", "base",
    "delta", "ratio", "mixed", "scaled", "shifted", "folded", "blend", "left_part", "right_part", "inner", "outer",
    "upper", "lower", "first_term", "second_term", "diff", "total", "product", "factor", "offset_val", "curve", "decay",
    "growth", "gate", "slope", "bound", "limit", "width_val", "amp", "wave",
];

pub const SCALARS: &[&str] = &[
    "alpha", "beta", "gamma", "scale", "offset", "gain", "dt", "threshold", "decay_rate", "strength", "lam", "mu",
    "sigma", "omega", "rate", "eps", "cutoff", "momentum", "damping", "stiffness", "weight", "amount", "shift",
];

pub const VERBS: &[&str] = &[
    "blend", "combine", "apply", "compute", "transform", "mix", "update", "evaluate", "filter", "scale", "shape", "fold",
    "map", "modulate", "adjust", "accumulate", "derive", "estimate", "project", "refine", "convert", "process", "merge",
    "smooth", "compress", "expand", "normalise", "weigh", "rescale", "sharpen", "attenuate", "bend", "warp_field",
];

pub const NOUNS: &[&str] = &[
    "signal", "samples", "values", "series", "field", "terms", "profile", "response", "levels", "points", "waves",
    "scores", "curve", "energy", "weights", "track", "grid", "state", "features", "channels", "coefficients", "spectrum",
    "gradient", "residual", "density", "flux", "potential", "intensity", "amplitude", "surface", "cells", "rows",
    "entries", "lanes", "batch", "tensor", "stream", "window", "records", "tiles",
];

/// Words that a name must not be: of Python, of C++, of CUDA, of what our texts define.
const RESERVED: &[&str] = &[
    "abs", "add", "and", "angle", "as", "assert", "auto", "bool", "break", "case", "char", "class", "const", "continue",
    "cos", "cross", "cw_abs", "cw_div", "cw_max", "cw_min", "cw_mul", "def", "default", "degrees", "del", "delete",
    "determinant", "divide", "do", "dot", "double", "elif", "else", "enum", "except", "exp", "extern", "false", "finally",
    "float", "floor", "for", "frac", "from", "global", "goto", "if", "import", "in", "inline", "int", "is", "lambda",
    "length", "length_sq", "lerp", "log", "long", "max", "min", "multiply", "namespace", "neg", "new", "none",
    "nonlocal", "normalize", "not", "operator", "or", "outer", "pass", "pcg", "pow", "private", "protected", "public",
    "radians", "raise", "rand_init", "randf", "randi", "range", "register", "return", "round", "scale", "short", "sign",
    "signed", "sin", "sizeof", "smoothstep", "sqrt", "static", "struct", "sub", "switch", "tan", "template", "this",
    "trace", "transpose", "true", "try", "typedef", "union", "unsigned", "using", "virtual", "void", "volatile", "while",
    "with", "wp", "yield", "index", "div", "y0", "y1", "j0", "j1", "gamma",
];

/// Names that are taken.
#[derive(Default)]
pub struct Names(HashSet<String>);

impl Names {
    /// The name itself if it is free, else one like it.
    pub fn free(&mut self, name: &str) -> String {
        let mut made = if RESERVED.binary_search(&name).is_ok() || RESERVED.contains(&name) {
            format!("{name}_")
        } else {
            name.to_owned()
        };
        if made.ends_with('_') {
            made.push_str("val");
        }
        let mut count = 2;
        while !self.0.insert(made.clone()) {
            let stem = made.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
            made = format!("{stem}_{count}");
            count += 1;
        }
        made
    }
}
