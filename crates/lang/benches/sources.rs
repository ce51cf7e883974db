//! How fast sources become kernels and CUDA text, on one core.
fn main() {}
