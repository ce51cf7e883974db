//! Planted faults: CUDA kernels with a typical fault each, and corrected twins.
//!
//! Every file of `kernels/` is both: with the macro `FAULT` it has the fault, without it none.
//! Comments at its beginning say how it is launched and what is reported:
//!
//! | comment | meaning |
//! |---|---|
//! | `launch: grid=2 block=8x8 shared=0` | the launch; `clean:` that of the twin, if it differs |
//! | `args: x=range:64 n=64` | arguments: numbers, or `range`, `mod7`, `ones`, `zeros` and a length |
//! | `kernel: k<64>, k<256>` | names of the kernel and of its twin, if they differ |
//! | `fault: race` | the kind of fault of a run (`FaultKind::name`) |
//! | `error: …` | a part of the error of a launch that is not possible |
//! | `says: …` | a part of the message |
//!
//! The reported line ends in `// HERE`; both lines of a race end in `// FIRST` and `// SECOND`.

use std::path::{Path, PathBuf};

use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_printing};
use bornite_ir::{Arg, Fault, Kernel, Value, load_scalar, store_scalar};
use bornite_lang::cuda::{CudaModule, PreprocessorOptions};
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

/// A file with a planted fault.
struct Planted {
    name: String,
    text: String,
}

impl Planted {
    /// The comment of this key.
    fn comment(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(&format!("// {key}: ")))
    }

    /// The line with this marker in a comment at its end.
    fn marked(&self, marker: &str) -> Option<u32> {
        let ends =
            |line: &str| line.rsplit_once("  // ").is_some_and(|(_, words)| words.split(' ').any(|w| w == marker));
        self.text.lines().position(ends).map(|n| n as u32 + 1)
    }

    /// Lowers the kernel or its twin, or returns the first line and the text of the errors.
    fn lower(&self, faulty: bool) -> Result<Lowered, (u32, String)> {
        let defines = if faulty { vec!["FAULT".into()] } else { vec![] };
        let options = PreprocessorOptions { include_dirs: vec![], defines };
        let module = CudaModule::read(&self.name, &self.text, None, &options);
        let names: Vec<String> = match self.comment("kernel") {
            Some(names) => names.split(", ").map(str::to_owned).collect(),
            None => module.kernels().into_iter().map(|kernel| kernel.name).collect(),
        };
        let name = if faulty { names.first() } else { names.last() };
        let launch = if faulty { None } else { self.comment("clean") };
        let mut request = LaunchRequest::new([1; 3], [1; 3]);
        for setting in launch.or(self.comment("launch")).unwrap().split(' ') {
            let (key, value) = setting.split_once('=').unwrap();
            let sizes: Vec<u32> = value.split('x').map(|size| size.parse().unwrap()).collect();
            let axes = [0, 1, 2].map(|axis| sizes.get(axis).copied().unwrap_or(1));
            match key {
                "grid" => request.grid = axes,
                "block" => request.block = axes,
                _ => request.shared_bytes = sizes[0] as u64,
            }
        }
        for (name, _, length) in self.args().filter(|(_, _, length)| *length > 0) {
            request = request.length(name, length as u64);
        }
        module.kernel(name.unwrap(), &request).map_err(|errors| {
            let line = errors.diagnostics.first().map_or(0, |first| first.line);
            (line, errors.to_string())
        })
    }

    /// Name, contents and length of every argument; the length of a number is 0.
    fn args(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.comment("args").unwrap().split(' ').map(|arg| {
            let (name, value) = arg.split_once('=').unwrap();
            match value.split_once(':') {
                Some((fill, length)) => (name, fill, length.parse().unwrap()),
                None => (name, value, 0),
            }
        })
    }

    /// Runs a lowered kernel; returns its arrays.
    fn run(&self, lowered: &Lowered, order: ExecutionOrder) -> Result<Vec<Vec<u64>>, Fault> {
        let kernel = &lowered.kernel;
        let (mut memory, mut values) = (vec![vec![]; kernel.params.len()], vec![vec![]; kernel.values.len()]);
        for (name, fill, length) in self.args() {
            let (_, param) = lowered.params.iter().find(|(found, _)| found == name).unwrap();
            match param {
                ParamRef::Value(n) => {
                    let scalar = kernel.values[*n as usize].ty.as_scalar().unwrap();
                    values[*n as usize] = vec![Value::from_f64(scalar, fill.parse().unwrap())];
                }
                ParamRef::View(n) => memory[*n as usize] = filled(kernel, *n as usize, fill, length),
            }
        }
        let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
            .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
            .collect();
        args.extend(values.iter().map(|components| Arg::Value(components)));
        let (max_statements, check_division) = (Some(100_000), true);
        let options = InterpreterOptions { order, max_statements, check_division, ..InterpreterOptions::default() };
        run_printing(kernel, &mut args, options, &mut |_| {})?;
        Ok(memory)
    }

    /// Compares the report of the fault with the expected one.
    fn check_fault(&self) -> Result<(), String> {
        if let Some(expected) = self.comment("error") {
            return match self.lower(true) {
                Ok(_) => Err("no error".into()),
                Err((line, text)) if text.contains(expected) && Some(line) == self.marked("HERE") => Ok(()),
                Err((line, text)) => Err(format!("line {line}: {text}")),
            };
        }
        let lowered = self.lower(true).map_err(|(_, text)| text)?;
        let Err(fault) = self.run(&lowered, ExecutionOrder::Forward) else { return Err("no fault".into()) };
        let (kind, lines) = (lowered.kind_of(&fault), [lowered.earlier_line_of(&fault), lowered.line_of(&fault)]);
        let expected = match self.comment("fault") {
            Some("race") => [self.marked("FIRST"), self.marked("SECOND")],
            Some("statement_limit") => [None, lines[1]],
            _ => [None, self.marked("HERE")],
        };
        let right = Some(kind.name()) == self.comment("fault")
            && kind.to_string().contains(self.comment("says").unwrap())
            && lines == expected
            && lines[1].is_some();
        if right { Ok(()) } else { Err(format!("{kind}, lines {lines:?}, expected {expected:?}")) }
    }

    /// Checks that the twin has no fault, and the same results in both orders of threads.
    fn check_twin(&self) -> Result<(), String> {
        let lowered = self.lower(false).map_err(|(_, text)| text)?;
        let run = |order| self.run(&lowered, order).map_err(|fault| format!("{fault}\n{}", lowered.kernel));
        let [forward, reverse] = [run(ExecutionOrder::Forward)?, run(ExecutionOrder::Reverse)?];
        if forward != reverse {
            return Err("results depend on the order of threads".into());
        }
        let scalar = |n: usize| lowered.kernel.params[n].ty.components(&lowered.kernel.structs)[0];
        let writes = (0..forward.len()).filter(|n| lowered.kernel.params[*n].access.writes());
        let nonzero =
            |n: usize| (0..forward[n].len()).any(|at| load_scalar(&forward[n], 8 * at, scalar(n)).bits() != 0);
        if writes.into_iter().any(nonzero) { Ok(()) } else { Err("it writes nothing".into()) }
    }
}

fn filled(kernel: &Kernel, view: usize, fill: &str, length: usize) -> Vec<u64> {
    let scalar = kernel.params[view].ty.as_scalar().unwrap();
    let mut words = vec![0; (length * scalar.bytes()).div_ceil(8)];
    for n in 0..length {
        let value = match fill {
            "range" => n,
            "mod7" => n % 7,
            "ones" => 1,
            _ => 0,
        };
        store_scalar(&mut words, n * scalar.bytes(), Value::from_f64(scalar, value as f64));
    }
    words
}

fn planted() -> Vec<Planted> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/kernels");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| Planted {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        text: std::fs::read_to_string(path).unwrap(),
    };
    paths.iter().map(read).collect()
}

fn failures(check: fn(&Planted) -> Result<(), String>) -> String {
    planted().iter().filter_map(|one| Some(format!("{}: {}\n", one.name, check(one).err()?))).collect()
}

#[test]
fn planted_faults_are_reported_with_their_lines() {
    assert_eq!(failures(Planted::check_fault), "");
    let all = planted();
    let count = |kind: &str| all.iter().filter(|one| one.comment("fault") == Some(kind)).count();
    assert!(all.len() >= 50 && count("race") >= 25, "{} faults, {} races", all.len(), count("race"));
}

#[test]
fn corrected_twins_have_no_fault() {
    assert_eq!(failures(Planted::check_twin), "");
}
