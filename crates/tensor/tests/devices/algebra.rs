//! Every vector and matrix op on every type, and debug prints: bitwise equal to the interpreter.

use bornite::ir::{Access, AlgebraOp, Builder, Kernel, Scalar, Type, VerifyError};
use bornite::{Device, Tensor};

use crate::Outcome;
use crate::ir_kernels::run_kernel;
use crate::random::Random;
use crate::rows::{bits, samples, tensor};

/// Operand types of an op at several sizes, and its component or field.
pub fn signatures(row: AlgebraOp, s: Scalar) -> Vec<(u32, Type, Vec<Type>)> {
    use Type::{Matrix, Vector};
    let of = |types: Vec<Vec<Type>>| types.into_iter().map(|types| (0, types[0], types)).collect::<Vec<_>>();
    let all = match row {
        AlgebraOp::Construct => vec![
            (0, Vector(s, 3), vec![s.into(); 3]),
            (0, Vector(s, 16), vec![s.into()]),
            (0, Matrix(s, 2, 2), vec![s.into(); 4]),
        ],
        AlgebraOp::Extract => vec![(2, Vector(s, 3), vec![Vector(s, 3)]), (5, Vector(s, 3), vec![Matrix(s, 2, 3)])],
        AlgebraOp::Insert => vec![(1, Vector(s, 3), vec![Vector(s, 3), s.into()])],
        AlgebraOp::Dot => of([2, 3, 4, 16].map(|n| vec![Vector(s, n), Vector(s, n)]).into()),
        AlgebraOp::Cross => of(vec![vec![Vector(s, 3), Vector(s, 3)]]),
        AlgebraOp::Length | AlgebraOp::Normalize => of([2, 3, 4, 8].map(|n| vec![Vector(s, n)]).into()),
        AlgebraOp::Outer => of(vec![vec![Vector(s, 2), Vector(s, 3)]]),
        AlgebraOp::Transpose => of(vec![vec![Matrix(s, 2, 3)], vec![Matrix(s, 4, 4)]]),
        AlgebraOp::Determinant | AlgebraOp::Inverse => of((2..=4).map(|n| vec![Matrix(s, n, n)]).collect()),
        AlgebraOp::MatVec => of(vec![vec![Matrix(s, 3, 2), Vector(s, 2)], vec![Matrix(s, 4, 4), Vector(s, 4)]]),
        AlgebraOp::MatMul => of(vec![vec![Matrix(s, 2, 3), Matrix(s, 3, 2)], vec![Matrix(s, 4, 4), Matrix(s, 4, 4)]]),
        AlgebraOp::Philox => of(vec![vec![Vector(s, 4), Vector(s, 2)]]),
    };
    all.into_iter().filter(|(at, wanted, types)| row.result(*at, *wanted, types, &[]).is_ok()).collect()
}

/// `out[i] = row(in0[i], in1[i], …)`.
pub fn kernel(row: AlgebraOp, case: &(u32, Type, Vec<Type>), n: u64) -> Result<Kernel, VerifyError> {
    let (at, wanted, types) = case;
    let names: Vec<String> = types.iter().map(|ty| ty.name(&[]).to_string()).collect();
    let mut b = Builder::new(format!("{}_{}", row.row().name, names.join("_")), n, Scalar::I32);
    let result = row.result(*at, *wanted, types, &[]).unwrap_or(*wanted);
    let out = b.param("out", result, n, Access::Write);
    let i = b.index();
    let args: Vec<_> = (types.iter().enumerate())
        .map(|(n_arg, ty)| {
            let view = b.param(format!("in{n_arg}"), *ty, n, Access::Read);
            b.load(view, i)
        })
        .collect();
    let value = match row {
        AlgebraOp::Construct => b.construct(*wanted, &args),
        AlgebraOp::Extract => b.extract(args[0], *at),
        AlgebraOp::Insert => b.insert(args[0], *at, args[1]),
        row => b.algebra(row, &args),
    };
    b.store(out, i, value);
    b.finish()
}

pub fn equal_the_interpreter(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let n = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 100_000 } else { 500 };
    let mut cases = 0;
    for &row in AlgebraOp::ALL {
        for scalar in Scalar::ALL {
            for case in signatures(row, scalar) {
                let kernel = kernel(row, &case, n as u64)?;
                let data: Vec<Vec<_>> = (case.2.iter())
                    .map(|ty| {
                        samples(scalar, &mut random).into_iter().cycle().take(n * ty.component_count(&[])).collect()
                    })
                    .collect();
                let on = |device: Device| {
                    let tensors: Vec<Tensor> = data.iter().map(|values| tensor(values, device)).collect();
                    bits(&run_kernel(&kernel, &tensors.iter().collect::<Vec<_>>(), &[], device)?[0])
                };
                if on(device)? != on(Device::Interpreter)? {
                    return Err(format!("{} on {device} differs from the interpreter", kernel.name).into());
                }
                cases += 1;
            }
        }
    }
    assert!(cases > 150, "only {cases} cases");
    Ok(())
}
