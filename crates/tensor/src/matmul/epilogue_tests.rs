//! Epilogues of products on a GPU; no GPU is needed.

use super::*;
use crate::schedule::nodes_to_compute;
use crate::{DType, Device};

fn input(shape: &[usize], dtype: DType) -> Tensor {
    Tensor(Arc::new(Node::new(Op::Input, dtype, shape.to_vec(), Device::Cuda(0), vec![], SourceLocation::here())))
}

/// The largest epilogue of each product of a graph, in order, and its number of outputs.
fn found(roots: &[Tensor]) -> Vec<(Epilogue, usize)> {
    let nodes = nodes_to_compute(roots).unwrap();
    let wanted = roots.iter().map(|root| look_through(root).0.0.id).collect();
    let graph = GraphReaders::new(&nodes, &wanted);
    let products = nodes.values().filter(|t| matches!(t.0.op, Op::Matmul));
    products
        .map(|product| match graph.epilogues(product).first() {
            Some(fused) => (fused.epilogue, fused.outputs.len()),
            None => (Epilogue::None, 1),
        })
        .collect()
}

struct Mlp {
    x: Tensor,
    wide: [Tensor; 2],
    narrow: [Tensor; 2],
}

/// The rows of a hidden layer that is just large enough.
const ROWS: usize = MIN_GELU_ELEMENTS / 1024;

impl Mlp {
    fn new(dtype: DType, lead: &[usize]) -> Mlp {
        let matrix = |out: usize, into: usize| [input(&[out, into], dtype), input(&[out], dtype)];
        Mlp { x: input(&[lead, &[16]].concat(), dtype), wide: matrix(1024, 16), narrow: matrix(16, 1024) }
    }

    fn hidden(&self) -> Tensor {
        self.x.linear(&self.wide[0], Some(&self.wide[1]))
    }

    fn output(&self) -> Tensor {
        self.hidden().gelu().linear(&self.narrow[0], Some(&self.narrow[1]))
    }
}

#[test]
fn a_forward_pass_stores_no_auxiliary_matrix() {
    for lead in [&[ROWS][..], &[4, ROWS / 4], &[1, ROWS], &[2, 4, ROWS / 8]] {
        let mlp = Mlp::new(DType::BF16, lead);
        assert_eq!(found(&[mlp.output()]), [(Epilogue::BiasGelu, 1), (Epilogue::Bias, 1)], "{lead:?}");
        // GELU's input is requested as well.
        let hidden = mlp.hidden();
        assert_eq!(found(&[hidden.gelu(), hidden]), [(Epilogue::BiasGeluAux, 2)]);
    }
}

#[test]
fn a_training_step_stores_the_gelu_input_for_its_gradient() {
    use Epilogue::{Bias, BiasGeluAux, Dgelu};
    for lead in [&[ROWS][..], &[4, ROWS / 4], &[1, ROWS]] {
        let mlp = Mlp::new(DType::BF16, lead);
        let parameters: Vec<&Tensor> = mlp.wide.iter().chain(&mlp.narrow).collect();
        let gradients = mlp.output().square().mean(..).grad(&parameters);
        let mut epilogues = found(&gradients);
        epilogues.sort_by_key(|(epilogue, _)| *epilogue as u8);
        // Two forward products; the gradient of the hidden layer; those of both weights.
        let expected = [(Epilogue::None, 1), (Epilogue::None, 1), (Bias, 1), (BiasGeluAux, 2), (Dgelu, 1)];
        assert_eq!(epilogues, expected, "{lead:?}");
    }
}

#[test]
fn unsupported_epilogues_are_left_to_generated_kernels() {
    // GELU is not fused in f32, and the erf variant never is.
    let mlp = Mlp::new(DType::F32, &[6, 8]);
    assert_eq!(found(&[mlp.output()]), [(Epilogue::Bias, 1), (Epilogue::Bias, 1)]);
    let half = Mlp::new(DType::F16, &[4, ROWS / 4]);
    let small = Mlp::new(DType::F16, &[ROWS - 1]);
    assert_eq!(found(&[small.hidden().gelu()]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[half.hidden().gelu_erf()]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[half.hidden().gelu()]), [(Epilogue::BiasGelu, 1)]);
    // The product itself is a root, or is read twice.
    let product = half.x.linear(&half.wide[0], None);
    assert_eq!(found(&[&product + &half.wide[1], product.clone()]), [(Epilogue::None, 1)]);
    assert_eq!(found(&[(&product + &half.wide[1]) * &product]), [(Epilogue::None, 1)]);
    // A bias per row, one of another shape, a view that is not 16-byte aligned; and the sum with
    // swapped operands.
    assert_eq!(found(&[&product + input(&[4, ROWS / 4, 1], DType::F16)]), [(Epilogue::None, 1)]);
    assert_eq!(found(&[&product + input(&[ROWS / 4, 1024], DType::F16)]), [(Epilogue::None, 1)]);
    let long = input(&[4096], DType::F16);
    assert_eq!(found(&[&product + long.slice(0, 3..1027)]), [(Epilogue::None, 1)]);
    assert_eq!(found(&[&product + long.slice(0, 8..1032)]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[&half.wide[1] + &product]), [(Epilogue::Bias, 1)]);
    assert_eq!(found(&[&product - &half.wide[1]]), [(Epilogue::None, 1)]);
}
