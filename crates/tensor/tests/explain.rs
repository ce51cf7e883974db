//! `explain` reports the bytes, operations, roofline times and peak memory that follow from the
//! graph.

use bornite::{
    DType, Device, Tensor,
    plan::{PlanSummary, summarize},
};

fn ones(shape: &[usize], device: Device) -> Tensor {
    Tensor::from_slice(&vec![1.0f32; shape.iter().product()], shape, device)
}

/// Bytes and operations of each step.
fn costs(plan: &PlanSummary) -> Vec<(u64, u64)> {
    plan.steps.iter().map(|step| (step.bytes, step.flops)).collect()
}

#[test]
fn costs_follow_from_shapes() -> bornite::Result<()> {
    let device = Device::Interpreter;
    let (x, w) = (ones(&[64, 48], device), ones(&[48, 80], device));
    let product = (4 * (64 * 48 + 48 * 80 + 64 * 80), 2 * 64 * 48 * 80);
    let long = Tensor::arange(1000, DType::F32, device);
    for (what, tensor, expected) in [
        ("a chain", (&x * 2.0 + 1.0).exp(), vec![(2 * 4 * 64 * 48, 3 * 64 * 48)]),
        ("a row sum", x.square().sum(-1), vec![(4 * (64 * 48 + 64), 2 * 64 * 48)]),
        ("a view", x.t(), vec![(2 * 4 * 64 * 48, 0)]),
        ("a product", x.matmul(&w), vec![product]),
        (
            "a product and more, in its place",
            x.matmul(&w).exp().matmul(&w.t()),
            vec![product, (2 * 4 * 64 * 80, 64 * 80), product],
        ),
        ("made of nothing", long, vec![(4000, 0)]),
    ] {
        assert_eq!(costs(&summarize(&[tensor])?), expected, "{what}");
    }
    assert_eq!(summarize(&[])?.steps.len(), 0);
    Ok(())
}

#[test]
fn minimum_time_is_that_of_the_slower_roof() -> bornite::Result<()> {
    let x = ones(&[256, 256], Device::cpu());
    let plan = summarize(&[x.matmul(&x), &x + 1.0])?;
    let roof = plan.roof.expect("a CPU has one");
    for step in &plan.steps {
        let (move_us, count_us) =
            (1e6 * step.bytes as f64 / roof.bytes_per_second, 1e6 * step.flops as f64 / roof.flops_per_second);
        assert_eq!(step.min_us, Some(move_us.max(count_us)));
        assert_eq!(count_us > move_us, step.description.starts_with("matmul"), "{step}");
    }
    let sum: f64 = plan.steps.iter().filter_map(|step| step.min_us).sum();
    assert!((plan.min_us().unwrap_or(0.0) - sum).abs() < 1e-9);
    assert_eq!(summarize(&[&ones(&[2], Device::Interpreter) + 1.0])?.min_us(), None);
    Ok(())
}

#[test]
fn peak_memory_lists_live_values_and_their_lines() -> bornite::Result<()> {
    let device = Device::Interpreter;
    let x = ones(&[64, 64], device);
    let (kept, line) = (x.matmul(&x), line!());
    let (other, next) = (kept.matmul(&x), line!());
    let y = other.matmul(&kept).slice(0, 0..8).sum(..);
    let plan = summarize(&[y])?;
    let peak = &plan.peak;
    // The first two products, and the third one, which is being computed.
    assert_eq!((peak.bytes, peak.values.len()), (3 * 64 * 64 * 4, 3), "{plan}");
    assert!(peak.values.iter().all(|value| value.op == "matmul" && value.bytes == 64 * 64 * 4));
    let text = plan.to_string();
    for line in [line, next] {
        let location = format!("explain.rs:{line}");
        assert!(text.lines().any(|l| l.starts_with("  16.4 kB matmul") && l.contains(&location)), "{text}");
    }
    assert!(text.starts_with("4 steps on interpreter, 3 kernels, 49152 bytes of scratch memory\n"), "{text}");
    assert!(text.contains("peak scratch memory at step 2: 49.2 kB\n"), "{text}");
    assert!(text.contains("scratch 0 = matmul_f32 (input 0)  32.8 kB, 524.3 kflop  at "), "{text}");
    Ok(())
}

#[test]
fn state_after_every_pass_can_be_printed() {
    let x = Tensor::from_slice(&[1.0f32; 64], &[8, 8], Device::cpu());
    let y = x.matmul(&x).exp().softmax(-1);
    let passes = [
        ("collect", "= matmul ("),
        ("select", "  by matmul"),
        ("direct_writes", "= exp ("),
        ("fuse", "; stores %"),
        ("tune", "; stores %"),
        ("steps", "step 0: matmul"),
        ("in_place", "step 1: "),
        ("lower", "step 1: "),
        ("memory", " is in result 0"),
    ];
    for (pass, text) in passes {
        let found = bornite::plan::explain_pass(std::slice::from_ref(&y), pass).unwrap();
        assert!(found.contains(text), "after {pass}:\n{found}");
    }
    let groups = |pass: &str| bornite::plan::explain_pass(std::slice::from_ref(&y), pass).unwrap().contains("a group");
    assert!(groups("in_place") && !groups("lower"));
    let error = bornite::plan::explain_pass(&[y], "colour").unwrap_err().to_string();
    assert!(error.contains("'colour' is not a pass; the passes are collect, select"), "{error}");
}
