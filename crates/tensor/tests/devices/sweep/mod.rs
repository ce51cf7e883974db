//! The conformance sweep: every graph-level op, by dtype, by shape and layout, against plain loops
//! over logical elements in f64 or exact integers. A combination is one op (with its axes or
//! widths) on one dtype and one case of `layouts.rs`.

pub mod array;
mod composites;
mod creation;
mod elementwise;
pub mod huge;
mod images;
mod indexing;
pub mod layouts;
mod losses;
mod networks;
mod products;
mod reductions;
mod reference;
mod sorting;
mod views;

use std::time::Instant;

use bornite::{DType, Device, Tensor};
use bornite_codegen::cpu;

use self::array::{Array, Bound, Num, compare};
use self::layouts::{CASES, Layout, input};
use crate::Outcome;
use crate::random::Random;
use crate::rows::part;

/// Distribution of the elements.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// Small numbers, some of them equal.
    Small,
    /// Near 1 or -1, so that products stay in range.
    Unit,
    /// All values: also NaN, infinities, zeros of both signs, extremes.
    Special,
    /// Integers from 0 to below this.
    Below(usize),
}

/// One run over all ops.
pub struct Sweep {
    pub device: Device,
    pub random: Random,
    /// If set, runs all cases of all ops instead of a rotating part.
    pub full: bool,
    /// Divisor of the number of cases per op, since compilation on a GPU is slow.
    thin: usize,
    count: usize,
    failures: Vec<String>,
}

const SPECIALS: [f64; 12] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-7, f64::MAX, -70000.0, 5e-324];

impl Sweep {
    /// A tensor and its elements.
    pub fn input(&mut self, shape: &[usize], layout: Layout, dtype: DType, fill: Fill) -> (Tensor, Array) {
        let Sweep { device, random, .. } = self;
        input(shape, layout, dtype, *device, &mut || draw(random, dtype, fill))
    }

    /// Returns true if a combination is to be run: every `part`-th; the others run with other
    /// dtypes or ops.
    pub fn takes(&self, number: usize, part: usize) -> bool {
        self.full || number.is_multiple_of(part * self.thin)
    }

    /// Compares a result with the expected array and counts one combination.
    pub fn check(&mut self, what: &str, case: usize, found: &Tensor, expected: &Array, bound: &Bound) {
        self.count += 1;
        let (first, step) = part();
        if self.count % step != first {
            return;
        }
        // Alternates between one, two and five threads, with chunks that split even short rows:
        // results must not depend on it.
        cpu::set_num_threads([1, 2, 5][self.count % 3]);
        cpu::set_chunk_size([0, 16, 24, 9][self.count / 3 % 4]);
        let difference = Array::read(found).map_err(|e| e.to_string()).and_then(|f| compare(&f, expected, bound));
        if let Err(difference) = difference {
            self.fail(format!("{what}, case {case} {:?}: {difference}", CASES.get(case)));
        }
    }

    pub fn fail(&mut self, what: String) {
        self.failures.push(what);
    }
}

fn draw(random: &mut Random, dtype: DType, fill: Fill) -> Num {
    let small = random.between(-4.0, 4.0);
    let choice = random.bits();
    match (fill, dtype) {
        (Fill::Below(n), _) => Num::of(dtype, (choice % n.max(1) as u64) as f64),
        (_, DType::Bool) => Num::Int((choice % 2) as i64),
        (Fill::Unit, dtype) if dtype.is_float() => {
            Num::of(dtype, (1.0 + small / 10.0).copysign(random.between(-1., 1.)))
        }
        (Fill::Unit, _) => Num::of(dtype, small),
        (Fill::Special, dtype) if dtype.is_float() => match choice % 6 {
            0 => Num::of(dtype, SPECIALS[(choice / 8 % 12) as usize]),
            1 => Num::of(dtype, small * 30.0),
            2 => Num::of(dtype, small.round()),
            _ => Num::of(dtype, small),
        },
        (Fill::Special, DType::U8) => Num::of(dtype, (choice % 256) as f64),
        (Fill::Special, _) => match choice % 5 {
            0 => Num::Int([i32::MIN as i64, i32::MAX as i64, 0, -1, 1, 33][(choice / 8 % 6) as usize]),
            1 if dtype == DType::I64 => Num::Int([i64::MIN, i64::MAX, 1 << 40, 65][(choice / 8 % 4) as usize]),
            2 => Num::Int(random.bits() as i32 as i64),
            _ => Num::Int(small as i64 * 5),
        },
        // Multiples of 1/8, so that some are equal.
        (_, dtype) if dtype.is_float() => Num::of(dtype, (small * 8.0).round() / 8.0),
        (_, DType::U8) => Num::of(dtype, (choice % 10) as f64),
        _ => Num::of(dtype, small * 3.0),
    }
}

pub fn every_op(device: Device) -> Outcome {
    let start = Instant::now();
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let thin = if matches!(device, Device::Cuda(_)) && !full { 4 } else { 1 };
    let mut sweep = Sweep { device, random: Random::fresh(), full, thin, count: 0, failures: vec![] };
    let families: [(&str, fn(&mut Sweep)); 12] = [
        ("elementwise", elementwise::run),
        ("casts", elementwise::casts),
        ("reductions", reductions::run),
        ("products", products::run),
        ("views", views::run),
        ("places", indexing::run),
        ("order", sorting::run),
        ("makers", creation::run),
        ("networks", networks::run),
        ("composites", composites::run),
        ("images", images::run),
        ("losses", losses::run),
    ];
    let mut parts = vec![];
    for (name, family) in families {
        let (count, since) = (sweep.count, Instant::now());
        family(&mut sweep);
        parts.push(format!("{name} {} in {:.1} s", sweep.count - count, since.elapsed().as_secs_f64()));
    }
    cpu::set_num_threads(0);
    cpu::set_chunk_size(0);
    let seconds = start.elapsed().as_secs_f64();
    let share = match part() {
        (_, 1) => String::new(),
        (first, step) => format!(", of which this process reads part {first} of {step},"),
    };
    println!("sweep on {device}: {} combinations{share} in {seconds:.1} s ({})", sweep.count, parts.join(", "));
    assert!(sweep.count * thin >= 10_000, "only {} combinations", sweep.count);
    if sweep.failures.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = sweep.failures.iter().take(40).map(|f| f.as_str()).collect();
    Err(format!("{} of {} combinations fail:\n{}", sweep.failures.len(), sweep.count, shown.join("\n")).into())
}
