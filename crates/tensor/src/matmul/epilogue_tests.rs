//! Epilogues on made-up graphs of a GPU that need not be there.

use super::*;
use crate::schedule::nodes_to_compute;
use crate::{DType, Device};

fn input(shape: &[usize], dtype: DType) -> Tensor {
    Tensor(Arc::new(Node::new(Op::Input, dtype, shape.to_vec(), Device::Cuda(0), vec![], Place::here())))
}

/// The epilogue that does most for each product of a graph, in order, and how many results it has.
fn found(roots: &[Tensor]) -> Vec<(Epilogue, usize)> {
    let nodes = nodes_to_compute(roots).unwrap();
    let wanted = roots.iter().map(|root| look_through(root).0.0.id).collect();
    let mut graph = Graph::new(&nodes, &wanted);
    let products = nodes.values().filter(|t| matches!(t.0.op, Op::Matmul));
    let mut all = vec![];
    for product in products {
        let right = look_through(&product.0.inputs[1]).0;
        let whole = shows(&product.0.inputs[1], right);
        let form = graph.forms(product, whole.then_some(right)).into_iter().next();
        let results = form.as_ref().map_or(vec![], |form| form.results.clone());
        graph.taken.extend(results.iter().map(|t| t.0.id));
        all.push(form.map_or((Epilogue::None, 1), |form| (form.epilogue, results.len())));
    }
    all
}

struct Mlp {
    x: Tensor,
    wide: [Tensor; 2],
    narrow: [Tensor; 2],
}

impl Mlp {
    fn new(dtype: DType, lead: &[usize]) -> Mlp {
        let matrix = |out: usize, into: usize| [input(&[out, into], dtype), input(&[out], dtype)];
        Mlp { x: input(&[lead, &[16]].concat(), dtype), wide: matrix(64, 16), narrow: matrix(16, 64) }
    }

    fn hidden(&self) -> Tensor {
        self.x.linear(&self.wide[0], Some(&self.wide[1]))
    }

    fn output(&self) -> Tensor {
        self.hidden().gelu().linear(&self.narrow[0], Some(&self.narrow[1]))
    }
}

#[test]
fn a_forward_pass_keeps_nothing() {
    for lead in [&[48][..], &[6, 8], &[1, 8], &[2, 3, 4]] {
        let mlp = Mlp::new(DType::BF16, lead);
        assert_eq!(found(&[mlp.output()]), [(Epilogue::BiasGelu, 1), (Epilogue::Bias, 1)], "{lead:?}");
        // What GELU is given is wanted as well.
        let hidden = mlp.hidden();
        assert_eq!(found(&[hidden.gelu(), hidden]), [(Epilogue::BiasGeluAux, 2)]);
    }
}

#[test]
fn a_training_step_uses_every_epilogue() {
    use Epilogue::{Bias, BiasGeluAux, BiasGradient, DgeluBiasGradient};
    for lead in [&[48][..], &[6, 8], &[1, 8], &[4096]] {
        let mlp = Mlp::new(DType::BF16, lead);
        let parameters: Vec<&Tensor> = mlp.wide.iter().chain(&mlp.narrow).collect();
        let gradients = mlp.output().square().mean(..).grad(&parameters);
        let mut epilogues = found(&gradients);
        epilogues.sort_by_key(|(epilogue, _)| *epilogue as u8);
        // Forward twice; the gradient by the hidden layer with the sum for its bias; that by the first weight; that by the
        // second, with the sum for its bias.
        let expected = [(Epilogue::None, 1), (Bias, 1), (BiasGeluAux, 2), (DgeluBiasGradient, 2), (BiasGradient, 2)];
        assert_eq!(epilogues, expected, "{lead:?}");
    }
}

#[test]
fn what_does_not_fit_is_left_to_kernels() {
    // In f32 GELU is a kernel's; the other GELU is not the library's.
    let mlp = Mlp::new(DType::F32, &[6, 8]);
    assert_eq!(found(&[mlp.output()]), [(Epilogue::Bias, 1), (Epilogue::Bias, 1)]);
    let half = Mlp::new(DType::F16, &[6, 8]);
    assert_eq!(found(&[half.hidden().gelu_erf()]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[half.hidden().gelu()]), [(Epilogue::BiasGelu, 1)]);
    // The product itself is wanted, or read twice.
    let product = half.x.linear(&half.wide[0], None);
    assert_eq!(found(&[&product + &half.wide[1], product.clone()]), [(Epilogue::None, 1)]);
    assert_eq!(found(&[(&product + &half.wide[1]) * &product]), [(Epilogue::None, 1)]);
    // A bias a row, one of another shape, a view that is not 16-byte aligned; and the sum the other way round.
    assert_eq!(found(&[&product + input(&[6, 8, 1], DType::F16)]), [(Epilogue::None, 1)]);
    assert_eq!(found(&[&product + input(&[8, 64], DType::F16)]), [(Epilogue::None, 1)]);
    let long = input(&[256], DType::F16);
    assert_eq!(found(&[&product + long.slice(0, 3..67)]), [(Epilogue::None, 1)]);
    assert_eq!(found(&[&product + long.slice(0, 8..72)]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[&half.wide[1] + &product]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[&product - &half.wide[1]]), [(Epilogue::None, 1)]);
}
