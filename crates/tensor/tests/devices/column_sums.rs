//! Column sums attached to a row kernel: bitwise equal to separate kernels, without launching
//! those.

use bornite::{
    DType, Device, Tensor,
    fused::with_fusion,
    plan::{PlanSummary, summarize, with_gpu_kernels},
    var::commit,
};

use crate::Outcome;
use crate::random::Random;
use crate::rows::bits;

/// Sums in addition to the gradient of a norm's input.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    dtype: DType,
    /// A bias before the norm, whose gradient is a column sum of the row kernel's output.
    bias: bool,
    /// A second path around the norm.
    residual: bool,
}

fn data(random: &mut Random, shape: &[usize], dtype: DType, device: Device) -> bornite::Result<Tensor> {
    let values: Vec<f32> = random.vec(shape.iter().product(), -1.0, 1.0).into_iter().map(|v| v as f32).collect();
    let tensor = Tensor::from_slice(&values, shape, device).cast(dtype);
    tensor.realize()?;
    Ok(tensor.detach())
}

/// The gradients of a norm and its surroundings. The output gradient and the input gradient have
/// separate kernels before and after: one may reuse the buffer of the other.
fn gradients(case: Case, [start, before, weight, bias, down]: [&Tensor; 5]) -> Vec<Tensor> {
    let x = start.cumsum(1);
    let x = if case.bias { x + before } else { x };
    let normed = x.layer_norm(weight, bias, 1e-5);
    let gradient = down.matmul(&weight.detach().reshape(&[1, case.columns]));
    let out = if case.residual { &normed * gradient + x.tanh() } else { &normed * gradient };
    let wide = out.cast(DType::F32).sum(..);
    let by: &[&Tensor] = if case.bias { &[start, before, weight, bias] } else { &[start, weight, bias] };
    wide.grad(by)
}

/// The GPU plan of the gradients.
fn check(case: Case, args: [&Tensor; 5]) -> bornite::Result<PlanSummary> {
    let (found, plan) = {
        let found = gradients(case, args);
        let plan = summarize(&found)?;
        commit(&found, vec![])?;
        (found, plan)
    };
    let expected = gradients(case, args);
    with_fusion(false, || commit(&expected, vec![]))?;
    for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(bits(found)?, bits(expected)?, "gradient {n} of {case:?}\n{plan}");
    }
    // All that the kernel with sums stores is read.
    if let Some(n) = plan.steps.iter().position(|step| step.description.contains("with_sums")) {
        for written in plan.steps[n].writes.iter().filter(|text| text.starts_with("scratch")) {
            let is_read = plan.steps[n + 1..].iter().any(|step| step.reads.contains(written));
            assert!(is_read, "nothing reads {written} of step {n} of {case:?}\n{plan}");
        }
    }
    Ok(plan)
}

/// An output that nothing reads but the attached sums and the copy of a requested view.
pub fn views_of_an_output(device: Device) -> Outcome {
    if let Device::Cpu(_) = device {
        return Ok(());
    }
    let mut random = Random::fresh();
    let (rows, columns) = if device.is_cuda() { (65536, 256) } else { (8192, 128) };
    let [x, g] = [(); 2].map(|()| data(&mut random, &[rows, columns], DType::F32, device));
    let (x, g) = (x?, g?);
    let requested = || {
        let s = (&x * &g).sum_keepdim(-1);
        let d = &g - &x * &s;
        vec![s, d.t(), d.sum(0)]
    };
    let run = || -> bornite::Result<()> {
        let found = requested();
        let plan = summarize(&found)?;
        assert!(plan.steps.iter().any(|step| step.description.contains("with_sums")), "{plan}");
        commit(&found, vec![])?;
        let expected = requested();
        with_fusion(false, || commit(&expected, vec![]))?;
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(bits(found)?, bits(expected)?, "{plan}");
        }
        Ok(())
    };
    if device == Device::Interpreter { with_gpu_kernels(run) } else { run() }?;
    Ok(())
}

pub fn attached_to_row_kernels(device: Device) -> Outcome {
    // On a CPU norms are routines that compute the sums.
    if let Device::Cpu(_) = device {
        return Ok(());
    }
    let mut random = Random::fresh();
    let case = |rows, columns, dtype, bias, residual| Case { rows, columns, dtype, bias, residual };
    // The last cases have too few rows, too long rows, or rows that cannot be split evenly:
    // separate kernels. On a GPU, "few" means that they fit in the cache.
    let small = device == Device::Interpreter;
    let mut cases =
        vec![(case(8192, 128, DType::BF16, true, true), small), (case(600, 128, DType::F32, true, false), false)];
    if let Device::Cuda(_) = device {
        cases.extend([
            (case(65536, 256, DType::F32, false, false), true),
            (case(32768, 768, DType::BF16, true, true), true),
            (case(65536, 640, DType::F16, true, false), true),
            (case(16384, 1600, DType::BF16, true, true), false),
            (case(65537, 256, DType::F32, true, true), false),
        ]);
    }
    for (case, rides) in cases {
        let Case { rows, columns, dtype, .. } = case;
        let x = data(&mut random, &[rows, columns], dtype, device);
        let down = data(&mut random, &[rows, 1], dtype, device);
        let [before, weight, bias] = [(); 3].map(|()| data(&mut random, &[columns], dtype, device));
        let (x, down, before, weight, bias) = (x?, down?, before?, weight?, bias?);
        let args = [&x, &before, &weight, &bias, &down];
        let plan =
            if device == Device::Interpreter { with_gpu_kernels(|| check(case, args)) } else { check(case, args) }?;
        let riding = plan.steps.iter().any(|step| step.description.contains("with_sums"));
        assert_eq!(riding, rides, "{case:?}\n{plan}");
    }
    Ok(())
}
