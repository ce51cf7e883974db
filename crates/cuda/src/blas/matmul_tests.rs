//! The mapping of rows to columns, executed; what is refused; how far operands reach.

use super::*;

/// What the library computes, element by element, over plain numbers.
fn library(product: &Matmul, a: &[f64], b: &[f64], d: &mut [f64]) {
    let ColumnMajorMatmul { first, second, out } = product.column_major();
    let at = |matrix: &StoredMatrix, batch: u64, row: u64, column: u64| {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        assert!(row < matrix.rows && column < matrix.columns, "outside what is stored");
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
fn column_major_words_mean_the_row_major_product() {
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
fn spans_reach_to_the_last_element() {
    let mut product = Matmul::new(3, 5, 7, ElementType::F32);
    assert_eq!(product.byte_spans(), [Some(3 * 7 * 4), Some(7 * 5 * 4), Some(3 * 5 * 4)]);
    (product.a, product.batch) = (MatrixLayout { batch_stride: 100, ..MatrixLayout::columns(10) }, 4);
    assert_eq!(product.byte_spans()[0], Some((300 + 6 * 10 + 3) * 4));
    product.a.batch_stride = u64::MAX;
    assert_eq!(product.byte_spans()[0], None);
}

#[test]
fn wrong_products_are_refused_in_words() {
    let good = Matmul::new(4, 8, 16, ElementType::F32);
    assert!(good.validate().is_ok());
    let mixed = Matmul { input: ElementType::Bf16, ..good };
    assert!(mixed.validate().is_ok(), "bf16 in, f32 out");
    let cases: [(Matmul, &str); 9] = [
        (Matmul { m: 0, ..good }, "none of these may be 0"),
        (Matmul { batch: 1 << 40, ..good }, "products"),
        (Matmul { a: MatrixLayout::rows(15), ..good }, "A has lines of 16 elements, which do not fit a stride of 15"),
        (Matmul { b: MatrixLayout::columns(15), ..good }, "B has lines of 16"),
        (Matmul { d: MatrixLayout::columns(8), ..good }, "D must be written row after row"),
        (Matmul { batch: 2, ..good }, "each of a batch in a place of its own"),
        (Matmul { output: ElementType::F64, ..good }, "no product from f32 to f64 in F32"),
        (
            Matmul { compute: ComputeType::Tf32, input: ElementType::Bf16, ..good },
            "no product from bf16 to f32 in Tf32",
        ),
        (Matmul { a: MatrixLayout { alignment: 3, ..good.a }, ..good }, "A cannot be aligned to 3 bytes"),
    ];
    for (product, words) in cases {
        let text = product.validate().unwrap_err().to_string();
        assert!(text.contains(words) && text.contains("CUBLAS_STATUS_INVALID_VALUE"), "{text}");
    }
    let odd = Matmul { epilogue: Epilogue::Dgelu, ..Matmul::new(4, 9, 16, ElementType::F32) };
    assert!(odd.validate().unwrap_err().to_string().contains("multiples of 8"));
    let with_aux = [Epilogue::BiasGeluAux, Epilogue::Dgelu, Epilogue::DgeluBiasGradient];
    assert!(with_aux.iter().all(|epilogue| epilogue.has_aux()) && !Epilogue::BiasGradient.has_aux());
}

#[test]
fn an_algorithm_for_aligned_operands_is_refused_for_others() {
    let aligned = Matmul::new(4, 8, 16, ElementType::F32);
    aligned.check_alignments([16, 4, 256]).unwrap();
    let odd = Matmul { b: MatrixLayout { alignment: 4, ..aligned.b }, ..aligned };
    odd.check_alignments([256, 4, 256]).unwrap();
    let text = odd.check_alignments(aligned.alignments()).unwrap_err().to_string();
    assert!(text.contains("aligned to [256, 256, 256] bytes, here [256, 4, 256]"), "{text}");
}

#[test]
fn products_are_described() {
    let mut product = Matmul::new(4, 8, 16, ElementType::F32);
    assert_eq!(product.to_string(), "4x16 by 16x8, strides 16, 8 and 8");
    (product.batch, product.b, product.compute) = (3, MatrixLayout::columns(16), ComputeType::Tf32);
    product.d.batch_stride = 32;
    let text = "3 of 4x16 by 16x8 (by columns), strides 16, 16 and 8, of batches 0, 0 and 32, in TF32";
    assert_eq!(product.to_string(), text);
}
