//! Texts other than the program's: rejected for the right reason, without a panic.

use std::collections::BTreeMap;

use bornite_data::program::{ScalarType, Ty};
use bornite_data::verify::{check_cuda, test_cases};
use bornite_data::{Category, Rejection, Row, generate_in};

use crate::{full, seed};

/// A row's CUDA text, split into the text before the kernel's parameters, the parameters, and the
/// rest.
fn parts(row: &Row) -> (String, Vec<String>, String) {
    let head = format!("__global__ void {}(", row.name);
    let begin = row.cuda.find(&head).expect("the kernel's head") + head.len();
    let end = begin + row.cuda[begin..].find(')').expect("the end of its parameters");
    let params = row.cuda[begin..end].split(',').map(|param| param.trim().to_owned()).collect();
    (row.cuda[..begin].to_owned(), params, row.cuda[end..].to_owned())
}

/// Texts with other parameters, each with what is wrong.
fn other_parameters(row: &Row) -> Vec<(&'static str, String)> {
    let (before, params, after) = parts(row);
    let text = |params: &[String], after: &str| format!("{before}{}{after}", params.join(", "));
    let mut all = vec![
        ("none", format!("__global__ void {}() {{}}\n", row.name)),
        ("one more", text(&[params.clone(), vec!["float added".into()]].concat(), &after)),
    ];
    if params.len() > 1 {
        let reversed: Vec<String> = params.iter().rev().cloned().collect();
        all.push(("another order", text(&reversed, &after)));
    }
    for (n, param) in params.iter().enumerate() {
        let mut fewer = params.clone();
        fewer.remove(n);
        all.push(("one fewer", text(&fewer, ") {}\n")));
        let mut replace = |what, from: &str, to: &str| {
            let mut others = params.clone();
            others[n] = param.replacen(from, to, 1);
            if others[n] != *param {
                all.extend([(what, text(&others, ") {}\n")), (what, text(&others, &after))]);
            }
        };
        replace("a wider element", "float*", "double*");
        replace("a narrower element", "double*", "float*");
        replace("other integers", "int*", "long long*");
        replace("a number for a vector", "float4*", "float*");
        replace("a number for a vector", "float3*", "float*");
        replace("a number for a vector", "float2*", "float*");
        replace("a vector for a number", "float*", "float4*");
        replace("an integer for a size", "int ", "long long ");
        replace("a value for a pointer", "float* ", "float ");
    }
    all
}

/// Texts that compute the right result but modify an array that the program only reads.
fn overwriting(row: &Row) -> Vec<String> {
    let (before, params, after) = parts(row);
    let number = |ty| matches!(ty, Ty::Scalar(ScalarType::F32 | ScalarType::I32));
    let read = row.program.arrays.iter().enumerate().filter(|(_, array)| !array.written && number(array.ty));
    let first = "blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0 && threadIdx.y == 0";
    read.filter_map(|(n, array)| {
        let mut params = params.clone();
        params[n] = params[n].trim_start_matches("const ").to_owned();
        let end = after.rfind('}')?;
        let body = format!("{}    if ({first} && threadIdx.z == 0) {}[0] += 1;\n}}\n", &after[..end], array.name);
        Some(format!("{before}{}{body}", params.join(", ")))
    })
    .collect()
}

pub fn texts_with_other_parameters_are_rejected() {
    let seed = seed();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for category in Category::ALL {
        for index in 0..if full() { 40 } else { 3 } {
            let Ok(row) = generate_in(seed, index, &[*category]) else { continue };
            let Ok(cases) = test_cases(&row.program, [row.seed, row.index]) else { continue };
            for (what, cuda) in other_parameters(&row) {
                let found = check_cuda(&row.program, &cuda, &cases[..2]);
                assert!(matches!(found, Err(Rejection::Cuda(_))), "{what}: {found:?}\n{cuda}");
                *counts.entry(what).or_default() += 1;
            }
        }
    }
    println!("{counts:?}");
    for what in ["none", "another order", "one fewer", "a wider element", "a number for a vector"] {
        assert!(counts.contains_key(what), "no text with {what}: {counts:?}");
    }
}

pub fn texts_that_modify_read_only_arrays_are_rejected() {
    let seed = seed();
    let (mut named, mut all) = (0, 0);
    for index in 0..if full() { 400 } else { 40 } {
        let Ok(row) = generate_in(seed, index, &[Category::Arithmetic, Category::Atomic, Category::Reduction]) else {
            continue;
        };
        let Ok(cases) = test_cases(&row.program, [row.seed, row.index]) else { continue };
        for cuda in overwriting(&row) {
            let read = |name: &str| row.program.arrays.iter().any(|array| array.name == name && !array.written);
            match check_cuda(&row.program, &cuda, &cases) {
                Ok(_) => panic!("a read-only array is modified:\n{cuda}"),
                Err(Rejection::Mismatch { array, .. }) if read(&array) => named += 1,
                // Another thread reads the element, which is a race.
                Err(Rejection::Fault { .. } | Rejection::Mismatch { .. }) => {}
                Err(why) => panic!("{why}\n{cuda}"),
            }
            all += 1;
        }
    }
    println!("{named} of {all} name the array");
    assert!(named > 0 && all > 10, "{named} of {all}");
}
