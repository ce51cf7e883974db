//! Column-major translation, validation and extents of matrix products.

use super::*;

/// Reference implementation of the library, element by element.
fn library(product: &Matmul, a: &[f64], b: &[f64], d: &mut [f64]) {
    let ColumnMajorMatmul { first, second, out } = product.column_major();
    let at = |matrix: &StoredMatrix, batch: u64, row: u64, column: u64| {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        assert!(row < matrix.rows && column < matrix.columns, "outside the stored matrix");
        (batch * matrix.batch_stride + column * matrix.ld + row) as usize
    };
    let depth = if first.transposed { first.rows } else { first.columns };
    for batch in 0..product.batch {
        for column in 0..out.columns {
            for row in 0..out.rows {
                let terms = (0..depth).map(|l| b[at(&first, batch, row, l)] * a[at(&second, batch, l, column)]);
                d[at(&out, batch, row, column)] = terms.sum();
            }
        }
    }
}

#[test]
fn column_major_translation_gives_the_row_major_product() {
    for (m, n, k) in [(1, 1, 1), (2, 3, 4), (5, 1, 3), (1, 7, 2), (4, 4, 4)] {
        for (ta, tb, gap, batch) in [(false, false, 0, 1), (true, false, 2, 3), (false, true, 1, 2), (true, true, 0, 2)]
        {
            let line = |transposed: bool, rows: u64, columns: u64| if transposed { rows } else { columns } + gap;
            let lines = |transposed: bool, rows: u64, columns: u64| if transposed { columns } else { rows };
            let operand = |transposed, rows, columns| MatrixLayout {
                transposed,
                stride: line(transposed, rows, columns),
                batch_stride: line(transposed, rows, columns) * lines(transposed, rows, columns),
                alignment: 256,
            };
            let mut product = Matmul::new(m, n, k, ElementType::F64);
            (product.batch, product.a, product.b) = (batch, operand(ta, m, k), operand(tb, k, n));
            product.d = operand(false, m, n);
            product.validate().unwrap();
            let [a_bytes, b_bytes, d_bytes] = product.byte_spans().map(|bytes| bytes.unwrap() / 8);
            let a: Vec<f64> = (0..a_bytes).map(|x| (x * x % 17) as f64 - 5.0).collect();
            let b: Vec<f64> = (0..b_bytes).map(|x| (x * 7 % 13) as f64 - 3.0).collect();
            let mut d = vec![f64::NAN; d_bytes];
            library(&product, &a, &b, &mut d);
            let element = |operand: &MatrixLayout, batch: u64, row: u64, column: u64| {
                let (line, column_in_line) = if operand.transposed { (column, row) } else { (row, column) };
                (batch * operand.batch_stride + line * operand.stride + column_in_line) as usize
            };
            for batch in 0..batch {
                for i in 0..m {
                    for j in 0..n {
                        let terms =
                            (0..k).map(|l| a[element(&product.a, batch, i, l)] * b[element(&product.b, batch, l, j)]);
                        let expected: f64 = terms.sum();
                        assert_eq!(d[element(&product.d, batch, i, j)], expected, "{product}, element {i}, {j}");
                    }
                }
            }
        }
    }
}

#[test]
fn byte_spans_reach_to_the_last_element() {
    let mut product = Matmul::new(3, 5, 7, ElementType::F32);
    assert_eq!(product.byte_spans(), [Some(3 * 7 * 4), Some(7 * 5 * 4), Some(3 * 5 * 4)]);
    (product.a, product.batch) = (MatrixLayout { batch_stride: 100, ..MatrixLayout::columns(10) }, 4);
    assert_eq!(product.byte_spans()[0], Some((300 + 6 * 10 + 3) * 4));
    product.a.batch_stride = u64::MAX;
    assert_eq!(product.byte_spans()[0], None);
}

#[test]
fn invalid_products_are_rejected_with_a_reason() {
    let good = Matmul::new(4, 8, 16, ElementType::F32);
    assert!(good.validate().is_ok());
    let mixed = Matmul { input: ElementType::Bf16, ..good };
    assert!(mixed.validate().is_ok(), "bf16 in, f32 out");
    let cases: [(Matmul, &str); 9] = [
        (Matmul { m: 0, ..good }, "all sizes must be at least 1"),
        (Matmul { batch: 1 << 40, ..good }, "products"),
        (
            Matmul { a: MatrixLayout::rows(15), ..good },
            "A has stride 15, but its rows (columns if transposed) have 16 elements",
        ),
        (
            Matmul { b: MatrixLayout::columns(15), ..good },
            "B has stride 15, but its rows (columns if transposed) have 16 elements",
        ),
        (Matmul { d: MatrixLayout::columns(8), ..good }, "D must be row-major"),
        (Matmul { batch: 2, ..good }, "the matrices of a batch must not overlap"),
        (Matmul { output: ElementType::F64, ..good }, "inputs f32 and output f64 in F32 is not supported"),
        (
            Matmul { compute: ComputeType::Tf32, input: ElementType::Bf16, ..good },
            "inputs bf16 and output f32 in Tf32 is not supported",
        ),
        (Matmul { a: MatrixLayout { alignment: 3, ..good.a }, ..good }, "A has alignment 3;"),
    ];
    for (product, message) in cases {
        let text = product.validate().unwrap_err().to_string();
        assert!(text.contains(message) && text.contains("CUBLAS_STATUS_INVALID_VALUE"), "{text}");
    }
    let odd = Matmul { epilogue: Epilogue::Dgelu, ..Matmul::new(4, 9, 16, ElementType::F32) };
    assert!(odd.validate().unwrap_err().to_string().contains("multiple of 8 columns, found 9"));
    let with_aux = [Epilogue::BiasGeluAux, Epilogue::Dgelu, Epilogue::DgeluBiasGradient];
    assert!(with_aux.iter().all(|epilogue| epilogue.has_aux()) && !Epilogue::BiasGradient.has_aux());
}

#[test]
fn an_algorithm_for_aligned_operands_is_rejected_for_others() {
    let aligned = Matmul::new(4, 8, 16, ElementType::F32);
    aligned.check_alignments([16, 4, 256]).unwrap();
    let odd = Matmul { b: MatrixLayout { alignment: 4, ..aligned.b }, ..aligned };
    odd.check_alignments([256, 4, 256]).unwrap();
    let text = odd.check_alignments(aligned.alignments()).unwrap_err().to_string();
    assert!(text.contains("aligned to [256, 256, 256] bytes, found [256, 4, 256]"), "{text}");
}

#[test]
fn products_are_described() {
    let mut product = Matmul::new(4, 8, 16, ElementType::F32);
    assert_eq!(product.to_string(), "4x16 by 16x8, strides 16, 8 and 8");
    (product.batch, product.b, product.compute) = (3, MatrixLayout::columns(16), ComputeType::Tf32);
    product.d.batch_stride = 32;
    let text = "batch of 3: 4x16 by 16x8 (transposed), strides 16, 16 and 8, batch strides 0, 0 and 32, in TF32";
    assert_eq!(product.to_string(), text);
}
