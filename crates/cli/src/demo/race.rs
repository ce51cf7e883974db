//! First step of the demo: finds a race in a CUDA kernel without a GPU.

use bornite::ir::interp::{self, InterpreterOptions};
use bornite::ir::{Arg, Scalar, Value, store_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, ParamRef};
use serde_json::{Value as Json, json};

use crate::Failure;

/// The dot product of docs/kernels with a missing barrier; a test keeps the two files equal.
pub const KERNEL: &str = include_str!("racy_dot.cu");

const FILE: &str = "docs/kernels/racy_dot.cu";
/// Elements of its arrays.
const COUNT: u64 = 1024;

/// The reported race.
pub struct Race {
    pub message: String,
    pub line: Option<u32>,
}

impl Race {
    /// Message, location and source line, formatted like a compiler error.
    pub fn formatted(&self) -> String {
        let text = self.line.and_then(|line| KERNEL.lines().nth(line as usize - 1)).unwrap_or_default();
        let line = self.line.unwrap_or_default();
        let width = line.to_string().len();
        let margin = " ".repeat(width);
        format!("{}\n{margin}--> {FILE}:{line}\n{margin} |\n{line} | {text}\n{margin} |\n", self.message)
    }

    pub fn json(&self) -> Json {
        json!({"file": FILE, "line": self.line, "message": self.message})
    }
}

/// Runs the kernel in the checking interpreter.
pub fn find() -> Result<Race, Failure> {
    let module = CudaModule::parse(FILE, KERNEL)?;
    let request = ["x", "y"].iter().fold(LaunchRequest::new([2, 1, 1], [128, 1, 1]), |r, name| r.length(name, COUNT));
    let lowered = module.kernel("dot", &request.length("result", 1))?;
    let kernel = &lowered.kernel;
    let mut memory: Vec<Vec<u64>> = vec![vec![]; kernel.params.len()];
    let mut values: Vec<Vec<Value>> = vec![vec![]; kernel.values.len()];
    for (name, param) in &lowered.params {
        match param {
            ParamRef::View(n) => {
                let elements = if name == "result" { 1 } else { COUNT as usize };
                let mut words = vec![0; elements.div_ceil(2)];
                for at in 0..elements * usize::from(name != "result") {
                    store_scalar(&mut words, 4 * at, Value::from_f64(Scalar::F32, (at % 7) as f64));
                }
                memory[*n as usize] = words;
            }
            ParamRef::Value(n) => values[*n as usize] = vec![Value::int(Scalar::I32, COUNT as i64)],
        }
    }
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(values.iter().map(|parts| Arg::Value(parts)));
    match interp::run_with(kernel, &mut args, InterpreterOptions::default()) {
        Err(fault) => Ok(Race {
            message: format!("error: kernel '{}': {}", fault.kernel, fault.kind),
            line: lowered.line_of(&fault),
        }),
        Ok(()) => {
            Err("the checker missed the race in the demo kernel; this is a bug in Bornite, please report it".into())
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_race_is_found_at_its_line() {
        let race = super::find().unwrap();
        assert!(race.message.contains("race"), "{}", race.message);
        assert_eq!(race.line, Some(11));
        assert!(race.formatted().contains("partial[t + half]"), "{}", race.formatted());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels/racy_dot.cu");
        assert_eq!(std::fs::read_to_string(path).unwrap(), super::KERNEL, "the manual shows the same kernel");
    }
}
