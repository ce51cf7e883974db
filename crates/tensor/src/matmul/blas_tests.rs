//! cuBLASLt configurations of products on a GPU; no GPU is needed.

use super::*;
use crate::SourceLocation;
use crate::graph::node::Op;

/// A placeholder.
#[track_caller]
fn input(shape: &[usize], dtype: DType) -> Tensor {
    Tensor(Arc::new(Node::new(Op::Input, dtype, shape.to_vec(), Device::Cuda(0), vec![], SourceLocation::here())))
}

fn f32s(shape: &[usize]) -> Tensor {
    input(shape, DType::F32)
}

/// The product node, below the reshape that splits a merged batch.
fn unmerged(product: &Tensor) -> &Tensor {
    if let Op::Reshape(_) = product.node().unwrap().op { &product.0.inputs[0] } else { product }
}

#[track_caller]
fn config(product: &Tensor) -> (MatmulConfig, [Tensor; 2]) {
    configure(&unmerged(product).0, MatmulMode::Library).unwrap()
}

#[track_caller]
fn text(product: &Tensor) -> String {
    config(product).0.to_string()
}

#[test]
fn plain_and_transposed_products_need_no_copy() {
    let (x, w) = (f32s(&[37, 19]), f32s(&[19, 53]));
    assert_eq!(text(&x.matmul(&w)), "37x19 by 19x53, strides 19, 53 and 53; no copies");
    let by_columns = x.transpose(0, 1).matmul(&f32s(&[53, 37]).transpose(0, 1));
    assert_eq!(text(&by_columns), "19x37 (transposed) by 37x53 (transposed), strides 19, 37 and 53; no copies");
    let (_, inputs) = config(&by_columns);
    assert_eq!(inputs[0].0.id, x.0.id, "the memory is the input's");
}

#[test]
fn batches_fold_where_the_weights_are_the_same() {
    let (x, w) = (f32s(&[4, 32, 24]), f32s(&[24, 10]));
    assert_eq!(text(&x.matmul(&w)), "128x24 by 24x10, strides 24, 10 and 10; no copies");
    assert_eq!(text(&f32s(&[4, 1, 24]).matmul(&w)), "4x24 by 24x10, strides 24, 10 and 10; no copies");
    let repeated = w.reshape(&[1, 24, 10]).expand(&[4, 24, 10]);
    assert_eq!(text(&x.matmul(&repeated)), "128x24 by 24x10, strides 24, 10 and 10; no copies");
    let transposed = x.transpose(-1, -2).matmul(&f32s(&[32, 10]));
    assert_eq!(
        text(&transposed),
        "batch of 4: 24x32 (transposed) by 32x10, strides 24, 10 and 10, batch strides 768, 0 and 240; no copies"
    );
    let batched = x.matmul(&f32s(&[4, 24, 10]));
    assert_eq!(
        text(&batched),
        "batch of 4: 32x24 by 24x10, strides 24, 10 and 10, batch strides 768, 240 and 320; no copies"
    );
    let left = f32s(&[32, 24]).matmul(&f32s(&[4, 24, 10]));
    assert_eq!(
        text(&left),
        "batch of 4: 32x24 by 24x10, strides 24, 10 and 10, batch strides 0, 240 and 320; no copies"
    );
}

#[test]
fn gradients_of_products_need_no_copy() {
    let (x, w) = (f32s(&[5, 7, 3]), f32s(&[3, 4]));
    let repeated = w.reshape(&[1, 3, 4]).expand(&[5, 3, 4]);
    let merged = x.matmul(&w).exp().sum(..).grad(&[&x, &w]);
    for gradient in merged.into_iter().chain(x.matmul(&repeated).exp().sum(..).grad(&[&x, &w])) {
        let mut stack = vec![gradient];
        let mut products = 0;
        while let Some(tensor) = stack.pop() {
            if let Op::Matmul = tensor.0.op {
                products += 1;
                assert!(text(&tensor).ends_with("no copies"), "{}", text(&tensor));
            }
            stack.extend(tensor.0.inputs.iter().cloned());
        }
        assert!(products >= 2);
    }
}

#[test]
fn views_that_are_not_matrices_are_copied_before_broadcasting() {
    use crate::graph::node::AxisSlice;
    let every_other = |x: &Tensor| {
        let cuts = x.0.shape.iter().map(|&len| AxisSlice { start: 0, step: 2, len: len / 2 }).collect();
        Tensor::build(Op::Slice(cuts), vec![x.clone()], SourceLocation::here())
    };
    let x = every_other(&f32s(&[16, 20]));
    let product = x.matmul(&f32s(&[10, 6]));
    assert_eq!(text(&product), "8x10 by 10x6, strides 10, 6 and 6; first operand is copied");
    let (_, inputs) = config(&product);
    assert_eq!(inputs[0].0.id, x.0.id, "the view is what is copied");
    // Broadcast over a batch: only the input of the broadcast is copied.
    let product = f32s(&[3, 4, 8]).matmul(&x);
    assert_eq!(text(&product), "12x8 by 8x10, strides 8, 10 and 10; second operand is copied");
    assert_eq!(config(&product).1[1].0.elements(), 80);
    // Batch axes of two strides, and a constant, which has no memory.
    let heads = f32s(&[2, 5, 24]).reshape(&[2, 5, 3, 8]).permute(&[0, 2, 1, 3]);
    let ones = Tensor::ones(&[], DType::F32, Device::Cuda(0)).expand(&[8, 4]);
    let (copies, inputs) = config(&heads.matmul(&ones));
    assert_eq!(copies.copied, [true, true]);
    assert_eq!(copies.matmul.batch, 1, "a copy has one stride, so the batch folds");
    assert_eq!(inputs[1].0.elements(), 32);
    let scores = heads.matmul(&heads.transpose(-1, -2));
    assert_eq!(config(&scores).1.map(|t| t.0.id), [heads.0.id; 2], "one copy serves both");
    let full = Tensor::full(2.0, &[24, 4], DType::F32, Device::Cuda(0));
    assert_eq!(config(&f32s(&[5, 24]).matmul(&full)).0.copied, [false, true]);
}

#[test]
fn slices_are_offsets_and_lower_the_alignment() {
    use crate::graph::node::AxisSlice;
    let qkv = input(&[64, 96], DType::BF16);
    let part = |start: usize| {
        let cuts = vec![AxisSlice::full(64), AxisSlice { start, step: 1, len: 32 }];
        Tensor::build(Op::Slice(cuts), vec![qkv.clone()], SourceLocation::here())
    };
    let (found, inputs) = config(&part(32).matmul(&part(3).transpose(0, 1)));
    assert_eq!((found.offsets, found.copied), ([64, 6], [false, false]));
    assert_eq!((found.matmul.a.alignment, found.matmul.b.alignment), (64, 2));
    assert!(found.matmul.b.transposed && found.matmul.b.stride == 96 && found.matmul.input == ElementType::Bf16);
    assert_eq!(inputs.each_ref().map(|t| t.0.id), [qkv.0.id; 2]);
    assert_eq!([0, 1, 6, 16, 256, 768, 4096].map(alignment), [128, 1, 2, 16, 128, 128, 128]);
}

#[test]
fn integers_and_empty_shapes_stay_with_generated_kernels() {
    let none = |product: &Tensor| configure(&unmerged(product).0, MatmulMode::Library).is_none();
    assert!(none(&input(&[2, 3], DType::I32).matmul(&input(&[3, 4], DType::I32))));
    for (m, k, n) in [(0, 3, 4), (2, 0, 4), (2, 3, 0)] {
        assert!(none(&f32s(&[m, k]).matmul(&f32s(&[k, n]))));
    }
    assert!(none(&f32s(&[0, 2, 3]).matmul(&f32s(&[3, 4]))));
    // Dimensions beyond 31 bits: no library call, and no folding of a batch that would exceed them.
    assert!(none(&f32s(&[1 << 31, 2]).matmul(&f32s(&[2, 2]))));
    let many = config(&f32s(&[4, 1 << 29, 2]).matmul(&f32s(&[2, 2]))).0.matmul;
    assert_eq!((many.batch, many.m), (4, 1 << 29));
    assert!(!none(&f32s(&[1, 1]).matmul(&f32s(&[1, 1]))));
}

#[test]
fn tf32_applies_to_f32_only_and_only_if_requested() {
    let compute = |dtype, mode| {
        let product = input(&[2, 3], dtype).matmul(&input(&[3, 4], dtype));
        configure(product.node().unwrap(), mode).unwrap().0.matmul.compute
    };
    assert_eq!(compute(DType::F32, MatmulMode::Library), ComputeType::F32);
    assert_eq!(compute(DType::F32, MatmulMode::Tf32), ComputeType::Tf32);
    assert_eq!(compute(DType::F16, MatmulMode::Tf32), ComputeType::F32);
    assert_eq!(compute(DType::F64, MatmulMode::Tf32), ComputeType::F64);
}

#[test]
fn long_chains_of_views_are_followed() {
    let mut x = f32s(&[8, 8]);
    for _ in 0..10_001 {
        x = x.transpose(0, 1);
    }
    assert_eq!(text(&x.matmul(&x)), "8x8 (transposed) by 8x8 (transposed), strides 8, 8 and 8; no copies");
}

/// The padded form of a product, if it is chosen.
fn padded(product: &Tensor) -> Option<PaddedMatmul> {
    PaddedMatmul::new(unmerged(product), &config(product).0.matmul)
}

#[test]
fn odd_sizes_are_padded_where_it_is_faster() {
    let bf16 = |shape: &[usize]| input(shape, DType::BF16);
    let text = |product: &Tensor| {
        let padded = padded(product)?;
        let (config, _) = configure(&padded.product.0, MatmulMode::Library)?;
        Some((config.to_string(), padded.copies.len(), padded.result.is_some()))
    };
    let plain = |text: &str, copies: usize, is_cut: bool| Some((format!("{text}; no copies"), copies, is_cut));
    let cube = bf16(&[4097, 4097]).matmul(&bf16(&[4097, 4097]));
    assert_eq!(text(&cube), plain("4097x4104 by 4104x4104, strides 4104, 4104 and 4104", 2, true));
    // Only lengths of contiguous axes matter: not the rows of an activation.
    let rows = bf16(&[4097, 4096]).matmul(&bf16(&[4096, 4096]));
    assert_eq!(text(&rows), None);
    let inner = bf16(&[4096, 4097]).matmul(&bf16(&[4097, 4096]));
    assert_eq!(text(&inner), plain("4096x4104 by 4104x4096, strides 4104, 4096 and 4096", 2, false));
    // The three products of a linear layer with odd outputs.
    let (x, w, dy) = (bf16(&[8192, 768]), bf16(&[4097, 768]), bf16(&[8192, 4097]));
    let forward = x.matmul(&w.t());
    assert_eq!(text(&forward), plain("8192x768 by 768x4104 (transposed), strides 768, 768 and 4104", 1, true));
    assert_eq!(text(&dy.matmul(&w)), plain("8192x4104 by 4104x768, strides 4104, 768 and 768", 2, false));
    let weight_gradient = dy.t().matmul(&x);
    assert_eq!(text(&weight_gradient), plain("4104x8192 (transposed) by 8192x768, strides 4104, 768 and 768", 1, true));
    let batch = bf16(&[12, 1023, 1023]).matmul(&bf16(&[12, 1023, 1023]));
    assert!(text(&batch).is_some_and(|(text, ..)| text.starts_with("batch of 12: 1023x1024 by 1024x1024")));
    // Small products, other dtypes.
    assert_eq!(text(&bf16(&[257, 257]).matmul(&bf16(&[257, 257]))), None);
    assert_eq!(text(&bf16(&[1, 4097]).matmul(&bf16(&[4097, 4097]))), None);
    assert_eq!(text(&f32s(&[4097, 4097]).matmul(&f32s(&[4097, 4097]))), None);
}

#[test]
fn a_padded_product_is_the_product() {
    let mut random = crate::test_random::Random::fresh();
    let mut matrix = |shape: &[usize], transposed: bool| {
        let values: Vec<f32> = random.vec(shape.iter().product(), -1.0, 1.0).into_iter().map(|x| x as f32).collect();
        let x = Tensor::from_slice(&values, shape, Device::cpu()).cast(DType::BF16);
        if transposed { x.t() } else { x }
    };
    for (m, n, k, batch) in [(65, 67, 2049, 1), (7, 4099, 1000, 1), (33, 31, 1023, 5), (64, 1001, 1001, 1)] {
        for [ta, tb] in [[false, false], [true, false], [false, true], [true, true]] {
            let shape = |rows: usize, columns: usize, t: bool| {
                let matrix = if t { [columns, rows] } else { [rows, columns] };
                if batch == 1 { matrix.to_vec() } else { [&[batch][..], &matrix].concat() }
            };
            let (a, b) = (matrix(&shape(m, k, ta), ta), matrix(&shape(k, n, tb), tb));
            let product = a.matmul(&b);
            let layout = configure(&product.0, MatmulMode::Library).unwrap().0.matmul;
            // Padded whether it is faster or not.
            let padded = PaddedMatmul::padded(&product, &layout).unwrap();
            let shape = &padded.product.0.shape;
            assert!(shape[shape.len() - 1].is_multiple_of(8));
            let found = padded.result.unwrap_or(padded.product);
            let bits = |x: &Tensor| MatmulMode::Exact.within(|| x.cast(DType::F32).to_vec::<f32>()).unwrap();
            assert_eq!(bits(&found), bits(&product), "{batch} of {m}x{k} by {k}x{n}, transposed {ta}, {tb}");
        }
    }
}
