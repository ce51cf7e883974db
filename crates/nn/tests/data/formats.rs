//! Arrays and tables in files: `.npy`, `.npz`, IDX and CSV, and damaged ones.

use std::path::PathBuf;

use bornite::DType;
use bornite::ops::{Element, f16};
use bornite_nn::Result;
use bornite_nn::data::{Csv, Dataset, HostArray, TensorDataset, read_idx, read_npy, read_npz, write_npy};

use crate::{Folder, Random, golden, says};

const CUBE: [usize; 3] = [2, 3, 4];

fn sample(name: &str) -> PathBuf {
    golden("samples").join(name)
}

/// Element n of a golden array, as in `scripts/sample_goldens.py`.
fn value(n: usize, dtype: DType) -> f64 {
    let number = ((n * 5 + 3) % 17) as f64;
    match dtype {
        DType::Bool => number % 2.0,
        dtype if dtype.is_float() => number / 2.0 - 2.0,
        dtype if dtype.is_signed() => number - 8.0,
        _ => number,
    }
}

fn check<T: Element>(array: &HostArray, shape: &[usize], to_f64: fn(T) -> f64) {
    assert_eq!((array.dtype(), array.shape()), (T::DTYPE, shape));
    let expected: Vec<f64> = (0..shape.iter().product()).map(|n| value(n, T::DTYPE)).collect();
    assert_eq!(array.to_vec::<T>().unwrap().into_iter().map(to_f64).collect::<Vec<_>>(), expected, "{array:?}");
}

#[test]
fn npy_files_of_numpy() {
    let read = |name: &str| read_npy(sample(&format!("{name}.npy"))).unwrap();
    check::<bool>(&read("b1"), &CUBE, |x| x as u8 as f64);
    check::<u8>(&read("u1"), &CUBE, f64::from);
    check::<i8>(&read("i1"), &CUBE, f64::from);
    check::<i16>(&read("i2"), &CUBE, f64::from);
    check::<u16>(&read("u2"), &CUBE, f64::from);
    check::<u16>(&read("big_u2"), &CUBE, f64::from);
    check::<i32>(&read("i4"), &CUBE, f64::from);
    check::<u32>(&read("u4"), &CUBE, f64::from);
    check::<i64>(&read("i8"), &CUBE, |x| x as f64);
    check::<i64>(&read("big_i8"), &CUBE, |x| x as f64);
    check::<u64>(&read("u8"), &CUBE, |x| x as f64);
    check::<f16>(&read("f2"), &CUBE, f64::from);
    check::<f32>(&read("f4"), &CUBE, f64::from);
    check::<f32>(&read("big_f4"), &CUBE, f64::from);
    check::<f64>(&read("f8"), &CUBE, |x| x);
    check::<f32>(&read("fortran"), &CUBE, f64::from);
    check::<f32>(&read("scalar"), &[], f64::from);
    check::<f32>(&read("empty"), &[0, 3], f64::from);
    check::<f32>(&read("line"), &[5], f64::from);
    for version in ["version_2", "version_3"] {
        check::<i32>(&read(version), &CUBE, f64::from);
    }
    for name in ["stored.npz", "deflated.npz"] {
        let arrays = read_npz(sample(name)).unwrap();
        assert_eq!(arrays.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["a", "labels"]);
        check::<f32>(&arrays[0].1, &CUBE, f64::from);
        check::<i64>(&arrays[1].1, &[5], |x| x as f64);
    }
}

#[test]
fn npy_files_are_written_as_numpy_does() {
    let folder = Folder::new();
    for name in ["b1", "u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "scalar", "empty", "line"] {
        let original = sample(&format!("{name}.npy"));
        let path = folder.0.join(name);
        write_npy(&path, &read_npy(&original).unwrap()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&original).unwrap(), "{name}");
    }
    let bf16 = HostArray::from_bytes(vec![0; 2], &[1], DType::BF16).unwrap();
    says(write_npy(folder.0.join("bf16.npy"), &bf16), &["bf16[1]", "cast to f32", "bf16.npy"]);
}

#[test]
fn idx_files() {
    let read = |name: &str| read_idx(sample(name)).unwrap();
    check::<u8>(&read("u1.idx"), &CUBE, f64::from);
    check::<u8>(&read("u1.idx.gz"), &CUBE, f64::from);
    check::<i8>(&read("i1.idx"), &CUBE, f64::from);
    check::<i16>(&read("i2.idx"), &CUBE, f64::from);
    check::<i32>(&read("i4.idx"), &CUBE, f64::from);
    check::<f32>(&read("f4.idx"), &CUBE, f64::from);
    check::<f64>(&read("f8.idx"), &CUBE, |x| x);
}

/// Every truncation is an error that names the file; random changes give an error or an array of the
/// announced shape, and no panic.
#[test]
fn damaged_files_are_errors() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    type Read = fn(&PathBuf) -> Result<()>;
    let readers: [(&str, Read); 7] = [
        ("f4.npy", |path| read_npy(path).map(drop)),
        ("fortran.npy", |path| read_npy(path).map(drop)),
        ("version_2.npy", |path| read_npy(path).map(drop)),
        ("stored.npz", |path| read_npz(path).map(drop)),
        ("deflated.npz", |path| read_npz(path).map(drop)),
        ("u1.idx", |path| read_idx(path).map(drop)),
        ("u1.idx.gz", |path| read_idx(path).map(drop)),
    ];
    for (name, read) in readers {
        let bytes = std::fs::read(sample(name)).unwrap();
        for length in 0..bytes.len() {
            let truncated = read(&folder.write(name, &bytes[..length]));
            assert!(truncated.is_err(), "{name} of {length} bytes");
            says(truncated, &[name]);
        }
        if !name.ends_with("npz") && !name.ends_with("gz") {
            says(read(&folder.write(name, [&bytes[..], &[0]].concat())), &[name]);
        }
        for _ in 0..500 {
            let mut changed = bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                changed[at] = random.below(256) as u8;
            }
            if let Err(error) = read(&folder.write(name, &changed)) {
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }
    // The checksum of an archive covers its elements.
    let mut archive = std::fs::read(sample("stored.npz")).unwrap();
    let element = archive.windows(8).position(|bytes| bytes == [0, 0, 0, 0xbf, 0, 0, 0, 0x40]).unwrap();
    archive[element + 2] = 1;
    says(read_npz(folder.write("a.npz", archive)), &["a.npz: array 'a' does not match its checksum"]);
}

#[test]
fn unsupported_and_absurd_files_are_errors() {
    let folder = Folder::new();
    for (name, dtype) in [("complex", "<c8"), ("objects", "|O")] {
        says(read_npy(sample(&format!("{name}.npy"))), &[name, dtype, "supported are bools, integers and floats"]);
    }
    says(read_npy(sample("fields.npy")), &["fields.npy: has the header", "not supported"]);
    let npy = |header: &str| {
        let length = (header.len() as u16).to_le_bytes();
        folder.write("a.npy", [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 4]].concat())
    };
    let huge = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }");
    says(read_npy(huge), &["a.npy: announces f32 of shape [4294967296, 4294967296], but has 4 bytes"]);
    says(read_npy(npy("{'descr': '<f4', 'shape': (1,), }")), &["which is not supported"]);
    says(read_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }")), &["which is not supported"]);
    let bools = [b"\x93NUMPY\x01\x00\x39\x00", &b"{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }"[..], &[2]];
    says(read_npy(folder.write("b.npy", bools.concat())), &["b.npy: ", "a boolean must be 0 or 1, found 2"]);
    let long_header = folder.write("c.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff");
    says(read_npy(long_header), &["announces a header of 4294967295 bytes"]);
    let idx = |lengths: &[u32]| {
        let lengths = lengths.iter().flat_map(|length| length.to_be_bytes());
        folder.write("a.idx", [0, 0, 8, 3].into_iter().chain(lengths).collect::<Vec<u8>>())
    };
    says(read_idx(idx(&[u32::MAX; 3])), &["a.idx: announces u8 of shape", "more than the file can contain"]);
    says(read_idx(folder.write("b.idx", b"\x89PNG....")), &["b.idx: is not an IDX file"]);
    for path in [PathBuf::from("/dev/zero"), folder.0.clone(), folder.0.join("absent")] {
        says(read_npy(&path), &[&path.to_string_lossy()]);
        says(read_npz(&path), &[&path.to_string_lossy()]);
        says(read_idx(&path), &[&path.to_string_lossy()]);
        says(Csv::read(&path), &[&path.to_string_lossy()]);
    }
}

#[test]
fn csv_files() {
    let folder = Folder::new();
    let read = |text: &str| Csv::read(folder.write("a.csv", text));
    let table = read("\u{feff}x, y,kind\r\n1,2.5e1,\"a, \"\"b\"\"\nc\"\r\n\r\n-0.5,inf,z\n").unwrap();
    assert_eq!(table.columns(), ["x", "y", "kind"]);
    let numbers = table.numbers(&["y", "x"]).unwrap();
    assert_eq!(
        (numbers.shape(), numbers.to_vec::<f32>().unwrap()),
        (&[2, 2][..], vec![25.0, 1.0, f32::INFINITY, -0.5])
    );
    let (classes, names) = table.classes("kind").unwrap();
    assert_eq!((classes.to_vec::<i64>().unwrap(), &names[..]), (vec![0, 1], &["a, \"b\"\nc".into(), "z".into()][..]));
    assert_eq!(table.classes_of("kind", &["z".into(), names[0].clone()]).unwrap().to_vec::<i64>().unwrap(), [1, 0]);
    says(table.classes_of("kind", &["z".into()]), &["a.csv: line 2, column 'kind' is", "expected a class"]);
    says(table.numbers(&["z"]), &["has no column 'z'; its columns are [\"x\", \"y\", \"kind\"]"]);
    says(table.numbers(&["kind"]), &["line 2, column 'kind' is \"a,", "expected a number"]);
    assert_eq!(Csv::read_with(folder.write("b.csv", "a;b\n1;2"), ';').unwrap().len(), 1);

    says(
        read("a,b\n1,2\n3,\n").unwrap().numbers(&["a", "b"]),
        &["a.csv: line 3, column 'b' is missing; expected a number"],
    );
    says(read("a,b\n1,2\n,x\n").unwrap().classes("a"), &["line 3, column 'a' is missing; expected a class"]);
    says(read("a,b\n1,2\n\"1\n2\",2,3\n"), &["a.csv: line 3 has 3 fields, but the header 2"]);
    says(read("a,b\n1\n"), &["line 2 has 1 fields, but the header 2"]);
    says(read(""), &["a.csv: is empty"]);
    says(read("a,a\n1,2\n"), &["two columns 'a'"]);
    says(read("a\n\"1"), &["line 2 begins a quoted field that does not end"]);
    says(read("a\n\"1\"2\n"), &["line 2 has text after a quoted field"]);
    says(Csv::read(folder.write("c.csv", [0xff, 0xfe, 0])), &["c.csv: is not UTF-8"]);
}

#[test]
fn classes_out_of_range_are_errors() {
    let labels = |values: &[i8]| HostArray::from_slice(values, &[values.len()]).unwrap();
    let images = HostArray::from_slice(&[0.0f32; 6], &[3, 2]).unwrap();
    let dataset = |values: &[i8]| TensorDataset::new(vec![images.clone(), labels(values)]);
    assert_eq!(dataset(&[0, 9, 3]).unwrap().with_classes(1, 10).unwrap().len(), 3);
    says(dataset(&[0, 10, 3]).unwrap().with_classes(1, 10), &["sample 1 has class 10, which is outside 0 to 9"]);
    says(dataset(&[0, 1, -1]).unwrap().with_classes(1, 10), &["sample 2 has class -1"]);
    says(dataset(&[0, 1, 2]).unwrap().with_classes(0, 10), &["array 0 are f32; expected integers"]);
    says(dataset(&[0, 1, 2]).unwrap().with_classes(2, 10), &["there is no array 2"]);
    says(dataset(&[0, 1]), &["shapes [[3, 2], [2]] are not a dataset"]);
    says(TensorDataset::new(vec![]), &["not a dataset"]);
    says(dataset(&[0, 1, 2]).unwrap().get(3), &["there is no sample 3; the dataset has 3"]);
}
