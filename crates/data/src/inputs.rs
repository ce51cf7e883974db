//! Test inputs of a kernel: sizes at warp and block boundaries, and arrays filled from a seed.
//!
//! The values depend only on the row's seed and index, the input's number and the array's number
//! (SplitMix64, see [`Random`]), so they can be regenerated from the recipe in a row.

use std::fmt::Write;

use crate::Random;
use crate::evaluate::{ArrayContents, EvalValue, Interval, round_to};
use crate::program::python::size_text;
use crate::program::{ArrayFill, CudaForm, Program, ScalarType, SizeExpr};

/// Inputs per check.
pub const INPUT_COUNT: usize = 8;

/// Arguments of one launch.
#[derive(Clone, Debug)]
pub struct KernelInput {
    /// Values of the size parameters.
    pub sizes: Vec<u32>,
    /// Values of the scalar parameters, in program order.
    pub values: Vec<EvalValue>,
    /// Arrays before the launch.
    pub arrays: Vec<ArrayContents>,
}

/// Sizes of the n-th input.
pub fn sizes(program: &Program, random: &mut Random, number: usize) -> Vec<u32> {
    // Elements covered by one block: sizes just below and above it need one and two blocks.
    let covered: u32 = match &program.form {
        CudaForm::Direct(style) => style.block.iter().product(),
        CudaForm::Block(block) => block.grid[0].1,
    };
    const PRIMES: &[u32] = &[97, 101, 127, 131, 149, 163, 191, 211, 229, 251];
    const SMALL: &[[u32; 3]] =
        &[[1, 1, 1], [0, 3, 2], [7, 33, 5], [17, 15, 3], [5, 31, 9], [16, 16, 4], [3, 37, 1], [13, 8, 7]];
    // Lengths of rows that a block shares: around one and two warps and blocks.
    const LONG: &[u32] = &[1, 3, 33, 31, 65, 64, 127, 130];
    let clamped = |n: u32, param: &crate::program::SizeParam| n.clamp(param.min, param.max);
    match &program.sizes[..] {
        [one] => {
            let n = match number {
                0 => 1,
                1 => 0,
                2 => 31,
                3 => 33,
                4 => covered - 1,
                5 => covered + 1,
                6 => *random.pick(PRIMES),
                _ => random.in_range(2, 300) as u32,
            };
            vec![clamped(n, one)]
        }
        several => {
            let row = if number < SMALL.len() { SMALL[number] } else { SMALL[random.below(SMALL.len())] };
            let number = number % LONG.len();
            (several.iter().enumerate())
                .map(|(n, param)| clamped(if n > 0 && param.max >= 100 { LONG[number] } else { row[n % 3] }, param))
                .collect()
        }
    }
}

/// Attempts to draw an input before a program is rejected.
pub const ATTEMPTS: u64 = 6;

/// Inputs whose sizes are the same at every attempt; used to test the influence of single
/// parameters.
pub const FIXED_SIZE_INPUTS: [usize; 4] = [2, 3, 4, 5];

/// Redraws of each parameter per input in the influence test.
const REDRAWS: usize = 2;

/// (input number, attempt) pairs that replace single parameters in the influence test.
pub fn redraws() -> impl Iterator<Item = (usize, u64)> {
    let numbers = FIXED_SIZE_INPUTS.into_iter().flat_map(|number| [number; REDRAWS]);
    numbers.enumerate().map(|(n, number)| (number, ATTEMPTS + n as u64))
}

/// Draws the n-th input of a program; `attempt` draws other values at the same sizes.
pub fn input(program: &Program, key: [u64; 2], number: usize, attempt: u64) -> KernelInput {
    let stream = stream(key, number, attempt);
    let sizes = sizes(program, &mut stream(0), number);
    with_sizes(program, sizes, is_coarse(number, attempt), stream)
}

/// Like [`input`] but with few elements, for a first check of a program; scalar parameters have the
/// same values.
pub fn small_input(program: &Program, key: [u64; 2], number: usize, attempt: u64) -> KernelInput {
    // Most programs need no more than the first two launches; those with branches need more
    // elements.
    const LENGTHS: [[u32; 3]; 4] = [[2, 2, 2], [2, 3, 2], [3, 2, 2], [3, 3, 3]];
    const ALONG: [u32; 4] = [2, 3, 4, 10];
    let launch = (number + 2) % LENGTHS.len();
    let lengths = if program.sizes.len() == 1 { [ALONG[launch]; 3] } else { LENGTHS[launch] };
    let sizes = program.sizes.iter().zip(lengths).map(|(size, n)| n.clamp(size.min, size.max)).collect();
    with_sizes(program, sizes, is_coarse(number, attempt), stream(key, number, attempt))
}

/// Like [`input`] but with three elements along the first of several dimensions.
pub fn medium_input(program: &Program, key: [u64; 2], number: usize, attempt: u64) -> KernelInput {
    let stream = stream(key, number, attempt);
    let mut sizes = sizes(program, &mut stream(0), number);
    if sizes.len() > 1 {
        sizes[0] = 3.clamp(program.sizes[0].min, program.sizes[0].max);
    }
    with_sizes(program, sizes, is_coarse(number, attempt), stream)
}

/// Random number stream of each part of an input.
fn stream(key: [u64; 2], number: usize, attempt: u64) -> impl Fn(u64) -> Random {
    move |part| Random::from_keys(&[key[0], key[1], 0x1a9, number as u64, attempt, part])
}

/// True for every other input: values are multiples of 1/8, so that they coincide with each other
/// and with the constants they are compared with.
fn is_coarse(number: usize, attempt: u64) -> bool {
    number % 2 == 1 && attempt == 0
}

/// Draws an input with these sizes; `stream` returns the random numbers of each part.
fn with_sizes(program: &Program, sizes: Vec<u32>, coarse: bool, stream: impl Fn(u64) -> Random) -> KernelInput {
    let mut random = stream(1);
    let values = (program.values.iter())
        .map(|param| {
            let scalar = program.body.var(param.var).ty.element().unwrap_or(ScalarType::F32);
            draw_scalar(&mut random, scalar, param.range, coarse)
        })
        .collect();
    let arrays = (program.arrays.iter().enumerate())
        .map(|(n, array)| {
            let shape: Vec<u32> = array.shape.iter().map(|size| size.eval(&sizes)).collect();
            let scalars = array.ty.scalars(&program.structs);
            let elements: usize = shape.iter().map(|n| *n as usize).product();
            let mut random = stream(2 + n as u64);
            let cells = fill_cells(&mut random, &array.fill, &scalars, elements, &sizes, coarse);
            ArrayContents::new(shape, scalars, cells)
        })
        .collect();
    KernelInput { sizes, values, arrays }
}

fn draw_scalar(random: &mut Random, scalar: ScalarType, (low, high): (f64, f64), coarse: bool) -> EvalValue {
    if scalar == ScalarType::Bool {
        return EvalValue::Bool(Some(random.chance(50)));
    }
    if !scalar.is_float() {
        return EvalValue::Int(random.in_range(low as i64, high as i64));
    }
    let value = if coarse {
        let steps = ((high - low) * 8.0).floor().max(1.0);
        (low * 8.0).ceil() / 8.0 + random.below(steps as usize) as f64 / 8.0
    } else {
        low + (high - low) * random.unit_f64()
    };
    EvalValue::Float(Interval::exact(round_to(scalar, value)))
}

fn fill_cells(
    random: &mut Random,
    fill: &ArrayFill,
    scalars: &[ScalarType],
    elements: usize,
    sizes: &[u32],
    coarse: bool,
) -> Vec<EvalValue> {
    let constant = |scalar: ScalarType, value: f64| match scalar {
        scalar if scalar.is_float() => EvalValue::Float(Interval::exact(round_to(scalar, value))),
        ScalarType::Bool => EvalValue::Bool(Some(value != 0.0)),
        _ => EvalValue::Int(value as i64),
    };
    match fill {
        ArrayFill::Zero | ArrayFill::Constant(_) => {
            let value = if let ArrayFill::Constant(value) = fill { *value } else { 0.0 };
            (0..elements).flat_map(|_| scalars.iter().map(|s| constant(*s, value))).collect()
        }
        ArrayFill::Uniform(low, high) => {
            let mut cells = Vec::with_capacity(elements * scalars.len());
            for _ in 0..elements {
                cells.extend(scalars.iter().map(|s| draw_scalar(random, *s, (*low, *high), coarse)));
            }
            cells
        }
        ArrayFill::Fields(fields) => {
            let mut cells = Vec::with_capacity(elements * scalars.len());
            for _ in 0..elements {
                for (scalar, field) in scalars.iter().zip(fields) {
                    cells.push(match field {
                        ArrayFill::Uniform(low, high) => draw_scalar(random, *scalar, (*low, *high), coarse),
                        _ => constant(*scalar, 0.0),
                    });
                }
            }
            cells
        }
        ArrayFill::Below(size) => {
            let end = size.eval(sizes).max(1);
            (0..elements).map(|_| EvalValue::Int(random.below(end as usize) as i64)).collect()
        }
        ArrayFill::Permutation(_) => {
            let mut all: Vec<i64> = (0..elements as i64).collect();
            for n in (1..elements).rev() {
                all.swap(n, random.below(n + 1));
            }
            all.into_iter().map(EvalValue::Int).collect()
        }
        ArrayFill::Offsets(size) => {
            let end = size.eval(sizes) as usize;
            let mut all: Vec<i64> = (0..elements).map(|_| random.below(end + 1) as i64).collect();
            all.sort_unstable();
            if let Some(first) = all.first_mut() {
                *first = 0;
            }
            if let Some(last) = all.last_mut() {
                *last = end as i64;
            }
            all.into_iter().map(EvalValue::Int).collect()
        }
    }
}

/// Recipe of a row's inputs: one line per parameter, then the CUDA launch (`block`, `grid`) and the
/// launch of the source (`dim`, in Warp's terms, where one instance may do a block's work).
pub fn recipe(program: &Program) -> String {
    let mut text = String::new();
    let fill_text = |fill: &ArrayFill| match fill {
        ArrayFill::Zero => "zeros".to_owned(),
        ArrayFill::Constant(value) => format!("all {value}"),
        ArrayFill::Uniform(low, high) => format!("uniform {low} to {high}"),
        ArrayFill::Below(of) => format!("indices below {}", size_text(program, *of)),
        ArrayFill::Permutation(of) => format!("permutation of {}", size_text(program, *of)),
        ArrayFill::Offsets(of) => format!("rising offsets from 0 to {}", size_text(program, *of)),
        ArrayFill::Fields(_) => String::new(),
    };
    for array in &program.arrays {
        let shape: Vec<String> = array.shape.iter().map(|s| size_text(program, *s)).collect();
        let fill = match &array.fill {
            ArrayFill::Fields(fields) => fields.iter().map(fill_text).collect::<Vec<_>>().join("; "),
            fill => fill_text(fill),
        };
        let names: Vec<&str> = array.ty.scalars(&program.structs).iter().map(|s| s.name()).collect();
        let ty = match names[..] {
            [one] => one.to_owned(),
            [first, ..] if names.iter().all(|n| *n == first) => format!("{first}x{}", names.len()),
            _ => format!("{{{}}}", names.join(", ")),
        };
        let _ = writeln!(text, "{}: {ty}[{}] = {fill}", array.name, shape.join(", "));
    }
    for value in &program.values {
        let var = program.body.var(value.var);
        let ty = var.ty.element().unwrap_or(ScalarType::F32).name();
        let _ = writeln!(text, "{}: {ty} = uniform {} to {}", var.name, value.range.0, value.range.1);
    }
    for param in &program.sizes {
        let name = &program.body.var(param.var).name;
        let _ = writeln!(text, "{name}: i32 = length of {} to {}", param.min, param.max);
    }
    let [x, y, z] = program.block();
    let _ = writeln!(text, "block: {x}x{y}x{z}");
    let covers: Vec<String> = match &program.form {
        CudaForm::Direct(_) => program.grid.iter().rev().map(|(_, s)| size_text(program, *s)).collect(),
        CudaForm::Block(block) => {
            let used = block.grid.iter().filter(|(s, each)| (*s, *each) != (SizeExpr::Constant(1), 1));
            used.map(|(s, each)| format!("blocks of {each} of {}", size_text(program, *s))).collect()
        }
    };
    let _ = writeln!(text, "grid: covers {}", covers.join(" x "));
    let dim: Vec<String> = program.grid.iter().map(|(_, s)| size_text(program, *s).replace(" / ", " // ")).collect();
    let _ = writeln!(text, "dim: {}", dim.join(", "));
    text
}
