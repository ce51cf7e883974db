//! Checks docs/fusion.md: the number of GPU kernels of well-known functions, and their text.
//! `BLESS=1 cargo test -p bornite --test fused_text` updates the texts and the table; review the
//! difference before committing it.

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use bornite::{
    DType, Device, Tensor,
    fused::{AdamWStep, adamw},
    plan::gpu_kernels,
};
use bornite_codegen::cuda::{MathMode, print_with};
use suite::Outcome;

suite! {
    kernels_are_as_documented,
    kernels_compile,
}

type Case = (&'static str, &'static str, Vec<Tensor>);

fn cases() -> Vec<Case> {
    // Large enough for the usual block sizes and vector loads.
    let device = Device::Interpreter;
    let data = |shape: &[usize]| Tensor::from_slice(&vec![0.5f32; shape.iter().product()], shape, device);
    let (x, w, b) = (data(&[1024, 768]), data(&[768]), data(&[768]));
    let gradient = data(&[1024, 768]);
    let norm = x.layer_norm(&w, &b, 1e-5);
    let back = |y: &Tensor, by: &[&Tensor]| (y * &gradient).sum(..).grad(by);
    let (logits, classes) = (data(&[256, 4096]), Tensor::from_slice(&[7i64; 256], &[256], device));
    let loss = logits.cross_entropy(&classes);
    let gradient = loss.grad(&[&logits]).remove(0);
    let arena = || data(&[1 << 20]);
    let step = AdamWStep { weight_decay: 0.1.into(), ..AdamWStep::new(1e-3, 10) };
    let new = adamw(&step, &arena(), &arena(), &arena(), &arena());
    let half = x.cast(DType::BF16);
    half.realize().unwrap();
    vec![
        ("softmax", "`x.softmax(-1)`", vec![x.softmax(-1)]),
        ("layer_norm", "`x.layer_norm(&w, &b, eps)`", vec![norm.clone()]),
        ("layer_norm_backward", "its gradients by `x`, `w` and `b`", back(&norm, &[&x, &w, &b])),
        ("gelu", "`(x + b).gelu() * w`, in bf16", vec![(&half + b.cast(DType::BF16)).gelu() * w.cast(DType::BF16)]),
        ("adamw", "AdamW over all parameters in one arena", new.to_vec()),
        ("cross_entropy", "`logits.cross_entropy(&classes)` and its gradient", vec![loss, gradient]),
    ]
}

fn kernels_are_as_documented() {
    let bless = std::env::var_os("BLESS").is_some();
    let root = env!("CARGO_MANIFEST_DIR");
    let mut rows = vec![];
    for (name, what, tensors) in cases() {
        let kernels = gpu_kernels(&tensors).unwrap();
        let names: Vec<String> = kernels.iter().map(|kernel| format!("`{}`", kernel.name)).collect();
        rows.push(format!("| {what} | {} | {} |\n", kernels.len(), names.join(", ")));
        let text: Vec<String> = kernels.iter().map(|kernel| print_with(kernel, MathMode::Native)).collect();
        let (path, text) = (format!("{root}/tests/goldens/{name}.cu"), text.join("\n"));
        if bless {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            golden == text,
            "{path} differs: BLESS=1 cargo test -p bornite --test fused_text, and read the difference"
        );
    }
    let path = format!("{root}/../../docs/fusion.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once("|---|---|---|\n").expect("a table");
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let table: String = rows.concat();
    if bless {
        std::fs::write(&path, format!("{head}|---|---|---|\n{table}{}", &rest[end..])).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains(&table), "{path} should say\n{table}");
}

/// NVRTC compiles all of them, and kernels that write directly into a concatenation.
fn kernels_compile() -> Outcome {
    bornite_cuda::nvrtc_version().map_err(|why| why.to_string())?;
    let x = Tensor::from_slice(&[0.5f32; 64 * 64], &[64, 64], Device::Interpreter);
    let gap = Tensor::zeros(&[3, 64], DType::F32, Device::Interpreter);
    let parts = vec![Tensor::concat(&[&x.matmul(&x), &gap, &x.matmul(&x.t())], 0)];
    for (name, _, tensors) in cases().into_iter().chain([("parts", "", parts)]) {
        let kernels = gpu_kernels(&tensors).unwrap();
        assert!(name != "parts" || kernels.iter().any(|kernel| kernel.name == "concat_f32"));
        for kernel in &kernels {
            let cubin = bornite_cuda::compile(&kernel.name, &print_with(kernel, MathMode::Native), "sm_90a").unwrap();
            assert!(cubin.bytes().starts_with(b"\x7fELF"), "{name}");
        }
    }
    Ok(())
}
