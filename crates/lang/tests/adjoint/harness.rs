//! Kernels from source, drawn arguments, and the checks that every gradient must pass.

use std::collections::BTreeMap;

use bornite_codegen::cpu;
use bornite_ir::adjoint::{
    Accumulation, Adjoint, AdjointError, AdjointOptions, AdjointRequest, AdjointRole, CheckOptions, GradientCheck,
    adjoint, check_gradients,
};
use bornite_ir::interp::{self, ExecutionOrder, InterpreterOptions};
use bornite_ir::{Arg, Kernel, ParamId, ParamRef, Value, store_scalar};
use bornite_lang::{LaunchRequest, Lowered, cuda::CudaModule, python::PythonModule};

/// Contents of an array.
#[derive(Clone, Debug)]
pub enum Fill {
    /// Uniform floats from the first to the second number.
    Uniform(f64, f64),
    /// These numbers, repeated.
    Numbers(&'static [f64]),
}

/// Array argument: name, shape and contents.
pub type Array = (&'static str, &'static [u64], Fill);

/// A kernel and its arguments.
#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    /// CUDA C++, or Python syntax if it imports warp.
    pub source: String,
    /// Threads, along one to three dimensions; for CUDA C++ in blocks of 32, or 4 × 4.
    pub dims: &'static [u64],
    pub arrays: Vec<Array>,
    pub numbers: Vec<(&'static str, Vec<f64>)>,
    /// Names of the arrays to differentiate with respect to.
    pub wrt: &'static str,
}

impl Case {
    pub fn is_python(&self) -> bool {
        self.source.contains("import warp")
    }

    pub fn lowered(&self) -> Lowered {
        let threads = |n: usize| self.dims.get(n).copied().unwrap_or(1) as u32;
        let request = if self.is_python() {
            LaunchRequest::with_dims(self.dims)
        } else if self.dims.len() > 1 {
            LaunchRequest::new([threads(0).div_ceil(4), threads(1).div_ceil(4), threads(2)], [4, 4, 1])
        } else {
            LaunchRequest::new([threads(0).div_ceil(32), 1, 1], [32, 1, 1])
        };
        let request = self.arrays.iter().fold(request, |request, (name, shape, _)| request.shape(name, shape));
        let lowered = match self.is_python() {
            true => PythonModule::parse("case.py", &self.source).and_then(|module| {
                let name = module.kernels()[0].lookup_names[0].clone();
                module.kernel(&name, &request)
            }),
            false => CudaModule::parse("case.cu", &self.source).and_then(|module| {
                let name = module.kernels()[0].name.clone();
                module.kernel(&name, &request)
            }),
        };
        lowered.unwrap_or_else(|errors| panic!("{}: {errors}", self.name))
    }

    pub fn wrt(&self, kernel: &Kernel) -> Vec<ParamId> {
        let find = |name: &str| kernel.params.iter().position(|param| param.name == name);
        let id = |name: &str| ParamId(find(name).unwrap_or_else(|| panic!("{}: no array '{name}'", self.name)) as u32);
        self.wrt.split(' ').filter(|name| !name.is_empty()).map(id).collect()
    }

    /// Value parameters and arrays.
    pub fn arguments(&self, lowered: &Lowered) -> (Vec<Vec<Value>>, Vec<Vec<u64>>) {
        let kernel = &lowered.kernel;
        let mut values: Vec<Vec<Value>> = (kernel.values.iter())
            .map(|value| value.ty.components(&kernel.structs).iter().map(|s| Value::from_f64(*s, 0.0)).collect())
            .collect();
        for (name, numbers) in &self.numbers {
            let found = lowered.params.iter().find(|(param, _)| param == name);
            let Some((_, ParamRef::Value(n))) = found else { panic!("{}: no value '{name}'", self.name) };
            for (value, number) in values[*n as usize].iter_mut().zip(numbers) {
                *value = Value::from_f64(value.scalar(), *number);
            }
        }
        for (n, value) in kernel.values.iter().enumerate() {
            assert!(!value.name.contains("_shape") && !value.name.contains("_stride"), "{}: {n}", self.name);
        }
        let memory = kernel.params.iter().map(|param| self.memory(kernel, param)).collect();
        (values, memory)
    }

    fn memory(&self, kernel: &Kernel, param: &bornite_ir::Param) -> Vec<u64> {
        let found = self.arrays.iter().find(|(name, ..)| *name == param.name);
        let (name, shape, fill) = found.unwrap_or_else(|| panic!("{}: no array '{}'", self.name, param.name));
        let layout = param.ty.layout(&kernel.structs);
        let elements = shape.iter().product::<u64>() as usize;
        let mut words = vec![0; (elements * layout.bytes).div_ceil(8)];
        let mut state = name.bytes().fold(17u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mut n = 0;
        for element in 0..elements {
            for (offset, scalar) in &layout.offsets {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
                let number = match fill {
                    Fill::Uniform(low, high) => low + (high - low) * unit,
                    Fill::Numbers(numbers) => numbers[n % numbers.len()],
                };
                store_scalar(&mut words, element * layout.bytes + offset, Value::from_f64(*scalar, number));
                n += 1;
            }
        }
        words
    }
}

/// Runs a kernel in the interpreter over copies of its arrays.
pub fn interpret(
    kernel: &Kernel,
    values: &[Vec<Value>],
    memory: &[Vec<u64>],
    order: ExecutionOrder,
) -> Result<Vec<Vec<u64>>, String> {
    let mut memory = memory.to_vec();
    let options = InterpreterOptions { order, check_division: true, ..InterpreterOptions::default() };
    interp::run_with(kernel, &mut lend(kernel, values, &mut memory), options).map_err(|fault| fault.to_string())?;
    Ok(memory)
}

pub fn lend<'a>(kernel: &Kernel, values: &'a [Vec<Value>], memory: &'a mut [Vec<u64>]) -> Vec<Arg<'a>> {
    let views = kernel.params.iter().zip(memory);
    views
        .map(|(param, words)| if param.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .chain(values.iter().map(|parts| Arg::Value(parts)))
        .collect()
}

/// The arrays of an adjoint kernel, with drawn gradients of outputs.
pub fn adjoint_memory(found: &Adjoint, kernel: &Kernel, memory: &[Vec<u64>]) -> Vec<Vec<u64>> {
    (found.arrays.iter())
        .map(|array| {
            let n = array.param.0 as usize;
            match array.role {
                AdjointRole::Original => memory[n].clone(),
                AdjointRole::OutputGradient => {
                    let layout = kernel.params[n].ty.layout(&kernel.structs);
                    let mut words = vec![0; memory[n].len()];
                    for element in 0..words.len() * 8 / layout.bytes {
                        for (offset, scalar) in &layout.offsets {
                            let number = if scalar.is_float() { 1.0 + (element % 7) as f64 / 8.0 } else { 0.0 };
                            let at = element * layout.bytes + offset;
                            store_scalar(&mut words, at, Value::from_f64(*scalar, number));
                        }
                    }
                    words
                }
                AdjointRole::Gradient { copies } => vec![0; memory[n].len() * copies as usize],
            }
        })
        .collect()
}

/// Checks the gradients of a case.
pub fn check(case: &Case, accumulation: Accumulation) -> Result<Vec<GradientCheck>, String> {
    let lowered = case.lowered();
    let (values, memory) = case.arguments(&lowered);
    check_kernel(&lowered.kernel, &values, &memory, &case.wrt(&lowered.kernel), accumulation)
}

fn request(wrt: &[ParamId], accumulation: Accumulation) -> AdjointRequest {
    AdjointRequest {
        with_respect_to: wrt.into(),
        options: AdjointOptions { accumulation, ..AdjointOptions::default() },
    }
}

/// Compares with finite differences in f64.
pub fn check_differences(
    kernel: &Kernel,
    values: &[Vec<Value>],
    memory: &[Vec<u64>],
    wrt: &[ParamId],
    accumulation: Accumulation,
) -> Result<Vec<GradientCheck>, String> {
    let request = request(wrt, accumulation);
    let options = CheckOptions { max_components: 40, ..CheckOptions::default() };
    let checks = check_gradients(kernel, values, memory, &request, &options);
    let checks = checks.map_err(|error| format!("{error}\n{kernel}"))?;
    match checks.iter().find(|check| check.error() > 1e-6 || check.checked == 0) {
        None => Ok(checks),
        Some(wrong) => {
            let text = adjoint(kernel, &request).map(|found| found.kernel.to_string()).unwrap_or_default();
            Err(format!("'{}': {wrong:?}\n{kernel}\n{text}", kernel.param(wrong.param).name))
        }
    }
}

/// Compares with finite differences in f64; then checks that the kernel's own precision has the same
/// bits in the interpreter, in both orders, and in machine code, and that the text parses back.
pub fn check_kernel(
    kernel: &Kernel,
    values: &[Vec<Value>],
    memory: &[Vec<u64>],
    wrt: &[ParamId],
    accumulation: Accumulation,
) -> Result<Vec<GradientCheck>, String> {
    let checks = check_differences(kernel, values, memory, wrt, accumulation)?;
    let request = request(wrt, accumulation);
    let found = adjoint(kernel, &request).map_err(|error| format!("{error}\n{kernel}"))?;
    let text = found.kernel.to_string();
    let fail = |message: String| Err(format!("{message}\n{kernel}\n{text}"));
    match text.parse::<Kernel>() {
        Ok(parsed) if parsed.to_string() == text => {}
        Ok(parsed) => return fail(format!("the text form changes: {parsed}")),
        Err(error) => return fail(error.to_string()),
    }
    if accumulation == Accumulation::Atomic {
        return Ok(checks);
    }
    let memory = adjoint_memory(&found, kernel, memory);
    let run = |order| interpret(&found.kernel, values, &memory, order);
    let forward = run(ExecutionOrder::Forward)?;
    if forward != run(ExecutionOrder::Reverse)? {
        return fail("the order of instances changes the gradient".into());
    }
    let mut compiled = memory.clone();
    let code = cpu::compile(&found.kernel).map_err(|error| error.to_string())?;
    code.run(&mut lend(&found.kernel, values, &mut compiled)).map_err(|fault| fault.to_string())?;
    if compiled != forward {
        return fail("machine code has other bits than the interpreter".into());
    }
    Ok(checks)
}

/// The error of a kernel that cannot be differentiated, with the line of its source.
pub fn refusal(case: &Case) -> Result<(AdjointError, Option<u32>), String> {
    let lowered = case.lowered();
    match adjoint(&lowered.kernel, &AdjointRequest::new(&case.wrt(&lowered.kernel))) {
        Ok(found) => Err(format!("{} is differentiated:\n{}", case.name, found.kernel)),
        Err(error) => {
            let line = error.line.and_then(|line| lowered.source_line_of(line));
            Ok((error, line))
        }
    }
}

/// Names of cases, each once.
pub fn check_names(cases: &[Case]) {
    let mut seen = BTreeMap::new();
    cases.iter().for_each(|case| assert!(seen.insert(case.name, ()).is_none(), "two cases '{}'", case.name));
}
