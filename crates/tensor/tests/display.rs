//! Tensors print like NumPy arrays: compares with `goldens/numpy.txt`, written by
//! `scripts/numpy_goldens.py`.

use bornite::{DType, Device, Tensor};

/// The array described by a line of the file: see the script.
fn array(dtype: &str, shape: &[usize], numerator: f64, divisor: f64) -> Tensor {
    let number = |n: i64| ((7919 * n) % 1013 - 506) as f64 * numerator / divisor;
    let mut numbers: Vec<f64> = (0..shape.iter().product::<usize>() as i64).map(number).collect();
    let dtype = match dtype {
        "float16" => DType::F16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "uint8" => {
            numbers.iter_mut().for_each(|x| *x = x.abs() % 256.0);
            DType::U8
        }
        "bool" => DType::Bool,
        other => panic!("{other}"),
    };
    Tensor::from_slice(&numbers, shape, Device::cpu()).cast(dtype)
}

#[test]
fn display_matches_numpy() {
    let file = include_str!("goldens/numpy.txt");
    let mut count = 0;
    for case in file.split("== ").skip(1) {
        let (head, text) = case.split_once('\n').unwrap();
        let [dtype, shape, numerator, divisor] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        let lengths = shape.trim_matches(['[', ']']).split(',').filter(|len| !len.is_empty());
        let shape: Vec<usize> = lengths.map(|len| len.parse().unwrap()).collect();
        let x = array(dtype, &shape, numerator.parse().unwrap(), divisor.parse().unwrap());
        assert_eq!(x.to_string(), text.trim_end_matches('\n'), "{head}");
        count += 1;
    }
    assert!(count >= 150, "{count} arrays");
}

/// Like `repr`, followed by dtype, shape and device.
#[test]
fn debug_is_aligned_and_has_dtype_shape_and_device() {
    let x = array("float32", &[2, 3], 1.0, 64.0);
    let expected =
        "Tensor([[-7.90625 ,  5.03125 ,  2.140625],\n        [-0.75    , -3.640625, -6.53125 ]], f32[2, 3] on cpu)";
    assert_eq!(format!("{x:?}"), expected);
    assert_eq!(format!("{:?}", array("int32", &[], 1.0, 1.0)), "Tensor(-506, i32[] on cpu)");
    assert_eq!(format!("{:?}", array("float64", &[2, 0], 1.0, 1.0)), "Tensor([], f64[2, 0] on cpu)");
    assert_eq!(Tensor::full(f64::NAN, &[], DType::F32, Device::cpu()).to_string(), "nan");
}
