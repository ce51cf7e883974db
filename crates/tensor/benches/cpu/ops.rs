//! The CPU routines as graph ops: in a trace with preallocated memory, and eagerly. PyTorch writes
//! into preallocated memory in the first case (`trace_…`) and allocates its results in the second
//! (`eager_…`).

use std::sync::Arc;

use bornite::{
    DType, Device, Result, Tensor, Var,
    fused::{AdamWStep, adamw},
    trace,
};

use crate::peer::{Op, Rows, numbers};

type Function = Arc<dyn Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync>;

struct Case {
    name: &'static str,
    shapes: &'static [&'static [usize]],
    /// Bytes read and written.
    bytes: usize,
    run: Function,
}

/// A function with its gradients of all inputs except the last, which is the weight of the output.
fn both(f: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static) -> Function {
    Arc::new(move |x| {
        let (y, weight) = (f(x), &x[x.len() - 1]);
        let by: Vec<&Tensor> = x[..x.len() - 1].iter().collect();
        let gradients = (&y * weight).sum(..).grad(&by);
        [vec![y], gradients].concat()
    })
}

fn cases() -> Vec<Case> {
    let case = |name, shapes, bytes, run| Case { name, shapes, bytes, run };
    let one = |f: fn(&[Tensor]) -> Tensor| -> Function { Arc::new(move |x| vec![f(x)]) };
    const ROWS: &[usize] = &[4096, 1024];
    const NORM: &[usize] = &[4096, 768];
    const LONG: &[usize] = &[10_000_000];
    let (rows, norm, long) = (4 * 4096 * 1024, 4 * 4096 * 768, 4 * 10_000_000);
    let loss: Function = Arc::new(|x| {
        let classes: Vec<i64> = (0..1024).map(|row| row * 7919 % 32_000).collect();
        let loss = x[0].cross_entropy(&Tensor::from_slice(&classes, &[1024], Device::cpu()));
        let gradient = loss.grad(&[&x[0]]).remove(0);
        vec![loss, gradient]
    });
    vec![
        case("add_f32_100K", &[&[100_000], &[100_000]], 12 * 100_000, one(|x| &x[0] + &x[1])),
        case("add_f32_1M", &[&[1_000_000], &[1_000_000]], 12 * 1_000_000, one(|x| &x[0] + &x[1])),
        case("row_sums_f32_4096x1024", &[ROWS], rows, one(|x| x[0].sum(-1))),
        case("column_sums_f32_4096x1024", &[ROWS], rows, one(|x| x[0].sum(0))),
        case("softmax_f32_4096x1024", &[ROWS], 2 * rows, one(|x| x[0].softmax(-1))),
        case("softmax_both_f32_4096x1024", &[ROWS, ROWS], 5 * rows, both(|x| x[0].softmax(-1))),
        case(
            "layer_norm_f32_4096x768",
            &[NORM, &[768], &[768]],
            2 * norm,
            one(|x| x[0].layer_norm(&x[1], &x[2], 1e-5)),
        ),
        case(
            "layer_norm_both_f32_4096x768",
            &[NORM, &[768], &[768], NORM],
            5 * norm,
            both(|x| x[0].layer_norm(&x[1], &x[2], 1e-5)),
        ),
        case("cross_entropy_f32_1024x32000", &[&[1024, 32_000]], 8 * 1024 * 32_000, loss),
        case("gelu_tanh_f32_10M", &[LONG], 2 * long, one(|x| x[0].gelu())),
        case("gelu_tanh_both_f32_10M", &[LONG, LONG], 5 * long, both(|x| x[0].gelu())),
        case("gelu_erf_f32_10M", &[LONG], 2 * long, one(|x| x[0].gelu_erf())),
        case("gelu_erf_both_f32_10M", &[LONG, LONG], 5 * long, both(|x| x[0].gelu_erf())),
    ]
}

fn traced(x: Vec<Tensor>, run: Function) -> Op<'static> {
    let step = trace(move |_| Ok((run(&x), vec![])));
    Box::new(move || drop(step.call(&[]).expect("a step")))
}

fn eager(x: Vec<Tensor>, run: Function) -> Op<'static> {
    Box::new(move || bornite::var::commit(&run(&x), vec![]).expect("results"))
}

pub fn rows(all: &mut Rows<'_>) -> std::io::Result<()> {
    for Case { name, shapes, bytes, run } in cases() {
        for (how, make) in [("trace", traced as fn(_, _) -> _), ("eager", eager)] {
            all.run(&format!("{how}_{name}"), "GB/s", bytes as f64, &mut || {
                let tensor = |(n, shape): (usize, &&[usize])| {
                    Tensor::from_slice(&numbers(shape.iter().product(), n as u64 + 1), shape, Device::cpu())
                };
                make(shapes.iter().enumerate().map(tensor).collect(), run.clone())
            })?;
        }
    }
    all.run("trace_adamw_f32_10M", "GB/s", 28.0 * 1e7, &mut || optimizer_step().expect("a step"))
}

/// A step of AdamW on 10 M parameters; parameters, moments and step number are variables.
fn optimizer_step() -> Result<Op<'static>> {
    let tensor = |salt| Tensor::from_slice(&numbers(10_000_000, salt), &[10_000_000], Device::cpu());
    let (p, g, m, v) = (Var::new(&tensor(1))?, tensor(2), Var::new(&tensor(3))?, Var::new(&tensor(4).square())?);
    let t = Var::new(&Tensor::zeros(&[], DType::F32, Device::cpu()))?;
    let step = trace(move |_| {
        let next = t.get() + 1.0;
        let step = AdamWStep::new(1e-3, &next);
        let [new, first, second] = adamw(&step, &p.get(), &g, &m.get(), &v.get());
        Ok((vec![], vec![p.set(new), m.set(first), v.set(second), t.set(next)]))
    });
    Ok(Box::new(move || drop(step.call(&[]).expect("a step"))))
}
