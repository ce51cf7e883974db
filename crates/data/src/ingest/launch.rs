//! Launches of a handwritten kernel: draws its inputs, runs the source and the CUDA text on them,
//! and compares the results.

use bornite_codegen::cuda;
use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_printing};
use bornite_ir::{Arg, Extent, FaultKind, Kernel, LaunchMode, Scalar, Stmt, Value, load_scalar, store_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

use super::annotations::{Annotations, dims_text};
use super::{first_message, sums};
use crate::Random;

/// Threads per block in launches of the printed texts.
pub(super) const BLOCK: [u32; 3] = [cuda::THREADS_PER_BLOCK, 1, 1];
/// Statements of a launch after which a kernel is considered non-terminating.
const MAX_STATEMENTS: u64 = 20_000_000;

/// True for types whose scalar parameters are most often lengths.
pub(super) fn is_length(scalar: Scalar) -> bool {
    !scalar.is_float() && scalar != Scalar::Bool
}

/// Arguments of a launch, or their state after it: the components of each array, element by
/// element, and of each value.
#[derive(Clone)]
pub(super) struct LaunchData {
    pub arrays: Vec<Vec<Value>>,
    pub values: Vec<Vec<Value>>,
}

/// Draws the inputs of the `number`-th launch, for a kernel that was lowered for it.
fn draw_inputs(
    lowered: &Lowered,
    annotations: &Annotations,
    dims: &[u64],
    number: usize,
) -> Result<LaunchData, String> {
    let kernel = &lowered.kernel;
    let name = |param: ParamRef| {
        lowered.params.iter().find(|(_, other)| *other == param).map_or("", |(name, _)| name.as_str())
    };
    let stream = |part: usize| Random::from_keys(&[0x1e57, number as u64, part as u64]);
    let drawn = |random: &mut Random, scalar: Scalar, bound: u64| match scalar {
        scalar if scalar.is_float() => Value::from_f64(scalar, random.below(4096) as f64 / 1024.0 - 1.0),
        Scalar::Bool => Value::int(scalar, random.below(2) as i64),
        // An integer may be an index.
        scalar => Value::int(scalar, random.below(bound.max(1) as usize) as i64),
    };
    let mut arrays = vec![];
    for (n, param) in kernel.params.iter().enumerate() {
        let span = kernel.memory_span(&param.dims, &[]).ok_or("an array has a size that does not fit 64 bits")?;
        let scalars = param.ty.components(&kernel.structs);
        let (mut random, bound) = (stream(n), annotations.bound(name(ParamRef::View(n as u32)), dims)?);
        let cells = (0..span.elements).flat_map(|_| &scalars).map(|scalar| drawn(&mut random, *scalar, bound));
        arrays.push(cells.collect());
    }
    let mut random = stream(usize::MAX);
    let mut values = vec![];
    for (n, value) in kernel.values.iter().enumerate() {
        let scalars = value.ty.components(&kernel.structs);
        values.push(match (annotations.value(name(ParamRef::Value(n as u32)), &scalars, dims)?, &scalars[..]) {
            (Some(annotated), _) => annotated,
            (None, [scalar]) if is_length(*scalar) => vec![Value::int(*scalar, dims[0] as i64)],
            (None, scalars) => scalars.iter().map(|scalar| drawn(&mut random, *scalar, dims[0])).collect(),
        });
    }
    Ok(LaunchData { arrays, values })
}

/// Runs a launch; returns the arrays after it, or the interpreter's report.
pub(super) fn run_launch(
    lowered: &Lowered,
    inputs: &LaunchData,
    order: ExecutionOrder,
) -> Result<Vec<Vec<Value>>, String> {
    let kernel = &lowered.kernel;
    let layouts: Vec<_> = kernel.params.iter().map(|param| param.ty.layout(&kernel.structs)).collect();
    let mut memory: Vec<Vec<u64>> = (layouts.iter().zip(&inputs.arrays))
        .map(|(layout, cells)| {
            let count = layout.offsets.len();
            let mut words = vec![0u64; (cells.len() / count.max(1) * layout.bytes).div_ceil(8)];
            for (n, cell) in cells.iter().enumerate() {
                store_scalar(&mut words, n / count * layout.bytes + layout.offsets[n % count].0, *cell);
            }
            words
        })
        .collect();
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(inputs.values.iter().map(|parts| Arg::Value(parts)));
    let options = InterpreterOptions {
        order,
        max_statements: Some(MAX_STATEMENTS),
        check_instance_races: true,
        check_division: true,
    };
    run_printing(kernel, &mut args, options, &mut |_| {}).map_err(|fault| {
        let line = lowered.line_of(&fault).map_or(String::new(), |line| format!("line {line}: "));
        let hint = match &fault.kind {
            FaultKind::OutOfBounds { view, .. } => size_hint(lowered, view),
            _ => None,
        };
        format!("{line}{}{}", fault.kind, hint.unwrap_or_default())
    })?;
    let cells = |(words, (layout, before)): (&Vec<u64>, (&bornite_ir::Layout, &Vec<Value>))| {
        let count = layout.offsets.len();
        let cell = |n: usize| {
            let (offset, scalar) = layout.offsets[n % count];
            load_scalar(words, n / count * layout.bytes + offset, scalar)
        };
        (0..before.len()).map(cell).collect()
    };
    Ok(memory.iter().zip(layouts.iter().zip(&inputs.arrays)).map(cells).collect())
}

/// Hint for an index out of bounds: how to annotate the array's size.
fn size_hint(lowered: &Lowered, view: &str) -> Option<String> {
    let (array, what) = view.split_once(", ").unwrap_or((view, ""));
    if what == "components" {
        return None;
    }
    let is_view = |(_, param): &&(String, ParamRef)| match param {
        ParamRef::View(n) => lowered.kernel.params[*n as usize].name == array,
        ParamRef::Value(_) => false,
    };
    let (name, ParamRef::View(n)) = lowered.params.iter().find(is_view)? else { return None };
    let sizes = vec!["SIZE"; lowered.kernel.params[*n as usize].dims.len()].join(", ");
    Some(format!("; if the array has another size, annotate it in the kernel: # given: {name} = {sizes}"))
}

/// A CUDA text parsed like any user's text: launched in blocks, with its sizes as arguments.
pub(super) struct CudaText {
    module: CudaModule,
    symbol: String,
    /// Names of its pointer parameters, which come before its values.
    pointers: Vec<String>,
    /// Kernel that it was printed from.
    open: Kernel,
    /// Indices of the kernel's values that are parameters of the source, sorted; the others are
    /// sizes.
    source_values: Vec<u32>,
}

impl CudaText {
    pub fn read(open: &Lowered, text: &str) -> Result<CudaText, String> {
        let invalid = |why: String| format!("the CUDA front end rejects the printed text: {why}");
        let module = CudaModule::parse("kernel.cu", text).map_err(|errors| invalid(first_message(errors)))?;
        let symbol = cuda::symbol(&open.kernel);
        let mut request = LaunchRequest::new([1; 3], BLOCK);
        request.default_length = Some(1);
        let lowered = module.kernel(&symbol, &request).map_err(|errors| invalid(first_message(errors)))?;
        let types = |kernel: &Kernel| -> Vec<Vec<Scalar>> {
            let all = kernel.params.iter().map(|p| p.ty).chain(kernel.values.iter().map(|v| v.ty));
            all.map(|ty| ty.components(&kernel.structs)).collect()
        };
        if types(&lowered.kernel) != types(&open.kernel) {
            return Err(invalid("its parameters differ from those of the kernel".into()));
        }
        let pointers = (lowered.params.iter())
            .filter(|(_, param)| matches!(param, ParamRef::View(_)))
            .map(|(name, _)| name.clone())
            .collect();
        let mut source_values: Vec<u32> = open
            .params
            .iter()
            .filter_map(|(_, param)| if let ParamRef::Value(n) = param { Some(*n) } else { None })
            .collect();
        source_values.sort_unstable();
        Ok(CudaText { module, symbol, pointers, open: open.kernel.clone(), source_values })
    }

    /// Lowers the text for a launch of these extents, and adds the sizes to the source's arguments.
    fn prepare(
        &self,
        source: &Kernel,
        dims: &[u64],
        number: usize,
        inputs: &LaunchData,
    ) -> Result<(Lowered, LaunchData), String> {
        let count: u64 = dims.iter().product();
        let blocks = count.div_ceil(BLOCK[0] as u64).max(1) as u32;
        // Every other launch has fewer threads than instances, if threads loop in grid strides.
        let strides = !self.open.code.any(&|stmt| matches!(stmt, Stmt::Return(_)));
        let blocks = if strides && !number.is_multiple_of(2) { blocks.div_ceil(2) } else { blocks };
        let mut request = LaunchRequest::new([blocks, 1, 1], BLOCK);
        for ((name, param), cells) in self.pointers.iter().zip(&source.params).zip(&inputs.arrays) {
            let components = param.ty.component_count(&source.structs).max(1);
            request = request.length(name, (cells.len() / components) as u64);
        }
        let lowered = self.module.kernel(&self.symbol, &request).map_err(first_message)?;
        let mut sizes: Vec<Option<i64>> = vec![None; self.open.values.len()];
        let mut set = |extent: Extent, size: i64| {
            if let Extent::Value(n) = extent {
                sizes[n as usize] = Some(size);
            }
        };
        for (open, sized) in self.open.params.iter().zip(&source.params) {
            for (open, sized) in open.dims.iter().zip(&sized.dims) {
                set(open.extent, sized.extent.resolve(&[]));
                set(open.stride, sized.stride.resolve(&[]));
            }
        }
        if let LaunchMode::ParallelFor { count: open } = self.open.launch {
            set(open, count as i64);
        }
        // Values that are neither array sizes nor the source's are extents of the launch.
        let mut left = dims.iter();
        let mut source_values = inputs.values.iter();
        let mut values = vec![];
        for (n, size) in sizes.into_iter().enumerate() {
            let int = |size: i64| vec![Value::int(self.open.index, size)];
            let value = match size {
                Some(size) => Some(int(size)),
                None if self.source_values.contains(&(n as u32)) => source_values.next().cloned(),
                None => left.next().map(|size| int(*size as i64)),
            };
            values.push(value.ok_or("the sizes of the CUDA text do not match the launch")?);
        }
        Ok((lowered, LaunchData { arrays: inputs.arrays.clone(), values }))
    }
}

/// Effect of a kernel over all launches: per array, whether any element changed, and whether any
/// changed to a number other than NaN.
#[derive(Default)]
pub(super) struct ObservedEffects {
    arrays: Vec<(bool, bool)>,
}

impl ObservedEffects {
    fn add(&mut self, before: &[Vec<Value>], after: &[Vec<Value>]) {
        self.arrays.resize(before.len(), (false, false));
        for ((changed, not_nan), (before, after)) in self.arrays.iter_mut().zip(before.iter().zip(after)) {
            for (_, after) in before.iter().zip(after).filter(|(before, after)| before.bits() != after.bits()) {
                *changed = true;
                *not_nan |= !is_nan(*after);
            }
        }
    }

    /// Requires an observable effect that a wrong text would not have too.
    pub fn require_informative(&self, kernel: &Kernel) -> Result<(), String> {
        if !self.arrays.iter().any(|(changed, _)| *changed) {
            return Err("the kernel changes no array in any launch".into());
        }
        match self.arrays.iter().zip(&kernel.params).find(|((changed, not_nan), _)| *changed && !not_nan) {
            Some((_, param)) => Err(format!("every value that the kernel writes to '{}' is NaN", param.name)),
            None => Ok(()),
        }
    }
}

fn is_nan(value: Value) -> bool {
    value.scalar().is_float() && value.as_f64().is_nan()
}

/// Runs the source and its CUDA text for a launch, each with instances in forward and reverse
/// order, and compares the results.
pub(super) fn compare(
    source: &Lowered,
    text: &CudaText,
    annotations: &Annotations,
    number: usize,
    effects: &mut ObservedEffects,
) -> Result<(), String> {
    let (kernel, dims) = (&source.kernel, &annotations.launches[number][..]);
    let launch = format!("with {} instances", dims_text(dims));
    let inputs = draw_inputs(source, annotations, dims, number)?;
    let with_launch = |why: String| match why.split_once(": ") {
        Some((line, rest)) if line.starts_with("line ") => format!("{line}: {launch}: {rest}"),
        _ => format!("{launch}: {why}"),
    };
    let reference = run_launch(source, &inputs, ExecutionOrder::Forward).map_err(with_launch)?;
    let bounds = sums::bounds(source, &inputs);
    let differing = |found: &[Vec<Value>]| {
        let differs = |n: usize| {
            let cells = found[n].iter().zip(&reference[n]).enumerate();
            { cells }.any(|(at, (a, b))| !agree(*a, *b, bounds[n].get(at).copied().unwrap_or(0.0)))
        };
        (0..reference.len()).find(|n| differs(*n)).map(|n| kernel.params[n].name.as_str())
    };
    if differing(&run_launch(source, &inputs, ExecutionOrder::Reverse).map_err(with_launch)?).is_some() {
        return Err(format!("{launch}, the results depend on the order of execution"));
    }
    let (lowered, text_inputs) = text.prepare(kernel, dims, number, &inputs)?;
    for order in [ExecutionOrder::Forward, ExecutionOrder::Reverse] {
        let found = run_launch(&lowered, &text_inputs, order).map_err(|why| format!("CUDA text {launch}: {why}"))?;
        if let Some(array) = differing(&found) {
            return Err(format!("CUDA text {launch}: '{array}' differs from the result of the source"));
        }
    }
    effects.add(&inputs.arrays, &reference);
    Ok(())
}

/// True if two results are equal up to the inputs error bound.
fn agree(a: Value, b: Value, bound: f64) -> bool {
    if a.bits() == b.bits() || is_nan(a) && is_nan(b) {
        return true;
    }
    let (x, y) = (a.as_f64(), b.as_f64());
    a.scalar().is_float() && (x == y || (x - y).abs() <= bound)
}
