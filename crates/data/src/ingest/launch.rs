//! Launches of a kernel: what it is given, the source and the CUDA text run on it, and what they leave.

use bornite_codegen::cuda;
use bornite_ir::interp::{Options, Order, run_printing};
use bornite_ir::{Arg, Extent, FaultKind, Kernel, Launch, Scalar, Stmt, Value, peek, poke};
use bornite_lang::cuda::Module;
use bornite_lang::{Lowered, ParamRef, Request};

use super::given::{Terms, by};
use super::{sums, words};
use crate::Random;

/// Threads of a block, as printed texts are launched.
pub(super) const BLOCK: [u32; 3] = [cuda::BLOCK, 1, 1];
/// Statements of a launch before a kernel is taken for one that does not end.
const MOST_STATEMENTS: u64 = 20_000_000;

/// Whether a value of that type is most often a length.
pub(super) fn is_length(scalar: Scalar) -> bool {
    !scalar.is_float() && scalar != Scalar::Bool
}

/// What a kernel is given or leaves: the components of each array, element by element, and of each value.
#[derive(Clone)]
pub(super) struct Contents {
    pub arrays: Vec<Vec<Value>>,
    pub values: Vec<Vec<Value>>,
}

/// What the `number`-th launch gives a kernel that was made for it.
fn given(lowered: &Lowered, terms: &Terms, dims: &[u64], number: usize) -> Result<Contents, String> {
    let kernel = &lowered.kernel;
    let name = |wanted: ParamRef| {
        lowered.params.iter().find(|(_, given)| *given == wanted).map_or("", |(name, _)| name.as_str())
    };
    let of = |part: usize| Random::of(&[0x1e57, number as u64, part as u64]);
    let drawn = |random: &mut Random, scalar: Scalar, bound: u64| match scalar {
        scalar if scalar.is_float() => Value::from_f64(scalar, random.below(4096) as f64 / 1024.0 - 1.0),
        Scalar::Bool => Value::int(scalar, random.below(2) as i64),
        // An integer may be an index.
        scalar => Value::int(scalar, random.below(bound.max(1) as usize) as i64),
    };
    let mut arrays = vec![];
    for (n, param) in kernel.params.iter().enumerate() {
        let span = kernel.span(&param.dims, &[]).ok_or("an array has a size that does not fit 64 bits")?;
        let scalars = param.ty.components(&kernel.structs);
        let (mut random, bound) = (of(n), terms.bound(name(ParamRef::View(n as u32)), dims)?);
        let cells = (0..span.elements).flat_map(|_| &scalars).map(|scalar| drawn(&mut random, *scalar, bound));
        arrays.push(cells.collect());
    }
    let mut random = of(usize::MAX);
    let mut values = vec![];
    for (n, value) in kernel.values.iter().enumerate() {
        let scalars = value.ty.components(&kernel.structs);
        values.push(match (terms.value(name(ParamRef::Value(n as u32)), &scalars, dims)?, &scalars[..]) {
            (Some(said), _) => said,
            (None, [scalar]) if is_length(*scalar) => vec![Value::int(*scalar, dims[0] as i64)],
            (None, scalars) => scalars.iter().map(|scalar| drawn(&mut random, *scalar, dims[0])).collect(),
        });
    }
    Ok(Contents { arrays, values })
}

/// The arrays after a launch; or what was reported.
pub(super) fn ran(lowered: &Lowered, given: &Contents, order: Order) -> Result<Vec<Vec<Value>>, String> {
    let kernel = &lowered.kernel;
    let layouts: Vec<_> = kernel.params.iter().map(|param| param.ty.layout(&kernel.structs)).collect();
    let mut memory: Vec<Vec<u64>> = (layouts.iter().zip(&given.arrays))
        .map(|(layout, cells)| {
            let count = layout.offsets.len();
            let mut words = vec![0u64; (cells.len() / count.max(1) * layout.bytes).div_ceil(8)];
            for (n, cell) in cells.iter().enumerate() {
                poke(&mut words, n / count * layout.bytes + layout.offsets[n % count].0, *cell);
            }
            words
        })
        .collect();
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(given.values.iter().map(|parts| Arg::Value(parts)));
    let options = Options { order, max_statements: Some(MOST_STATEMENTS), instances: true, divisions: true };
    run_printing(kernel, &mut args, options, &mut |_| {}).map_err(|fault| {
        let line = lowered.line_of(&fault).map_or(String::new(), |line| format!("line {line}: "));
        let hint = match &fault.kind {
            FaultKind::OutOfBounds { view, .. } => longer(lowered, view),
            _ => None,
        };
        format!("{line}{}{}", fault.kind, hint.unwrap_or_default())
    })?;
    let cells = |(words, (layout, before)): (&Vec<u64>, (&bornite_ir::Layout, &Vec<Value>))| {
        let count = layout.offsets.len();
        let cell = |n: usize| {
            let (offset, scalar) = layout.offsets[n % count];
            peek(words, n / count * layout.bytes + offset, scalar)
        };
        (0..before.len()).map(cell).collect()
    };
    Ok(memory.iter().zip(layouts.iter().zip(&given.arrays)).map(cells).collect())
}

/// What to do where an array is not as long as the launch.
fn longer(lowered: &Lowered, view: &str) -> Option<String> {
    let (array, what) = view.split_once(", ").unwrap_or((view, ""));
    if what == "components" {
        return None;
    }
    let own = |(_, given): &&(String, ParamRef)| match given {
        ParamRef::View(n) => lowered.kernel.params[*n as usize].name == array,
        ParamRef::Value(_) => false,
    };
    let (name, ParamRef::View(n)) = lowered.params.iter().find(own)? else { return None };
    let sizes = vec!["SIZE"; lowered.kernel.params[*n as usize].dims.len()].join(", ");
    Some(format!("; if it has another size, the kernel says so: # given: {name} = {sizes}"))
}

/// A CUDA text that was read as anybody's: to be launched in blocks, with its sizes as arguments.
pub(super) struct Text {
    module: Module,
    symbol: String,
    /// Its pointers, by name, then its values.
    pointers: Vec<String>,
    /// The kernel it was printed from.
    open: Kernel,
    /// Which of the kernel's values are the source's own, in order; the others are sizes.
    own: Vec<u32>,
}

impl Text {
    pub fn read(open: &Lowered, text: &str) -> Result<Text, String> {
        let wrong = |why: String| format!("its CUDA text is not read: {why}");
        let module = Module::parse("kernel.cu", text).map_err(|errors| wrong(words(errors)))?;
        let symbol = cuda::symbol(&open.kernel);
        let mut request = Request::new([1; 3], BLOCK);
        request.default_length = Some(1);
        let lowered = module.kernel(&symbol, &request).map_err(|errors| wrong(words(errors)))?;
        let types = |kernel: &Kernel| -> Vec<Vec<Scalar>> {
            let all = kernel.params.iter().map(|p| p.ty).chain(kernel.values.iter().map(|v| v.ty));
            all.map(|ty| ty.components(&kernel.structs)).collect()
        };
        if types(&lowered.kernel) != types(&open.kernel) {
            return Err(wrong("it has other parameters than the kernel it was printed from".into()));
        }
        let pointers = (lowered.params.iter())
            .filter(|(_, given)| matches!(given, ParamRef::View(_)))
            .map(|(name, _)| name.clone())
            .collect();
        let mut own: Vec<u32> = open
            .params
            .iter()
            .filter_map(|(_, given)| if let ParamRef::Value(n) = given { Some(*n) } else { None })
            .collect();
        own.sort_unstable();
        Ok(Text { module, symbol, pointers, open: open.kernel.clone(), own })
    }

    /// The text for a launch of that many instances, with what it is given: as the source is, and the sizes.
    fn launched(
        &self,
        source: &Kernel,
        dims: &[u64],
        number: usize,
        given: &Contents,
    ) -> Result<(Lowered, Contents), String> {
        let count: u64 = dims.iter().product();
        let blocks = count.div_ceil(BLOCK[0] as u64).max(1) as u32;
        // Every other launch has fewer threads than instances, where threads go on in strides.
        let strides = !self.open.code.any(&|stmt| matches!(stmt, Stmt::Return(_)));
        let blocks = if strides && !number.is_multiple_of(2) { blocks.div_ceil(2) } else { blocks };
        let mut request = Request::new([blocks, 1, 1], BLOCK);
        for ((name, param), cells) in self.pointers.iter().zip(&source.params).zip(&given.arrays) {
            let components = param.ty.count(&source.structs).max(1);
            request = request.length(name, (cells.len() / components) as u64);
        }
        let lowered = self.module.kernel(&self.symbol, &request).map_err(words)?;
        let mut sizes: Vec<Option<i64>> = vec![None; self.open.values.len()];
        let mut set = |extent: Extent, size: i64| {
            if let Extent::Value(n) = extent {
                sizes[n as usize] = Some(size);
            }
        };
        for (open, made) in self.open.params.iter().zip(&source.params) {
            for (open, made) in open.dims.iter().zip(&made.dims) {
                set(open.extent, made.extent.of(&[]));
                set(open.stride, made.stride.of(&[]));
            }
        }
        if let Launch::ParallelFor { count: open } = self.open.launch {
            set(open, count as i64);
        }
        // What is neither an array's nor the source's own is a size of the launch.
        let mut left = dims.iter();
        let mut own = given.values.iter();
        let mut values = vec![];
        for (n, size) in sizes.into_iter().enumerate() {
            let int = |size: i64| vec![Value::int(self.open.index, size)];
            let value = match size {
                Some(size) => Some(int(size)),
                None if self.own.contains(&(n as u32)) => own.next().cloned(),
                None => left.next().map(|size| int(*size as i64)),
            };
            values.push(value.ok_or("its sizes are not those of the launch")?);
        }
        Ok((lowered, Contents { arrays: given.arrays.clone(), values }))
    }
}

/// What all launches together show of a kernel: of each array, whether something in it changed, and to a number.
#[derive(Default)]
pub(super) struct Seen {
    arrays: Vec<(bool, bool)>,
}

impl Seen {
    fn add(&mut self, before: &[Vec<Value>], after: &[Vec<Value>]) {
        self.arrays.resize(before.len(), (false, false));
        for ((changed, told), (before, after)) in self.arrays.iter_mut().zip(before.iter().zip(after)) {
            for (_, after) in before.iter().zip(after).filter(|(before, after)| before.bits() != after.bits()) {
                *changed = true;
                *told |= !is_nan(*after);
            }
        }
    }

    /// Whether there is anything that a wrong text would not do too; or what is the matter.
    pub fn tells(&self, kernel: &Kernel) -> Result<(), String> {
        if !self.arrays.iter().any(|(changed, _)| *changed) {
            return Err("it changes nothing in any launch".into());
        }
        match self.arrays.iter().zip(&kernel.params).find(|((changed, told), _)| *changed && !told) {
            Some((_, param)) => Err(format!("all that it writes to '{}' is NaN", param.name)),
            None => Ok(()),
        }
    }
}

fn is_nan(value: Value) -> bool {
    value.scalar().is_float() && value.as_f64().is_nan()
}

/// Runs the source and its text for a launch, in both orders, and compares what they leave.
pub(super) fn compared(
    source: &Lowered,
    text: &Text,
    terms: &Terms,
    number: usize,
    seen: &mut Seen,
) -> Result<(), String> {
    let (kernel, dims) = (&source.kernel, &terms.launches[number][..]);
    let launch = format!("with {} instances", by(dims));
    let given = given(source, terms, dims, number)?;
    let reported = |why: String| match why.split_once(": ") {
        Some((line, rest)) if line.starts_with("line ") => format!("{line}: {launch}: {rest}"),
        _ => format!("{launch}: {why}"),
    };
    let reference = ran(source, &given, Order::Forward).map_err(reported)?;
    let bounds = sums::bounds(source, &given);
    let differing = |found: &[Vec<Value>]| {
        let differs = |n: usize| {
            let cells = found[n].iter().zip(&reference[n]).enumerate();
            { cells }.any(|(at, (a, b))| !agree(*a, *b, bounds[n].get(at).copied().unwrap_or(0.0)))
        };
        (0..reference.len()).find(|n| differs(*n)).map(|n| kernel.params[n].name.as_str())
    };
    if differing(&ran(source, &given, Order::Reverse).map_err(reported)?).is_some() {
        return Err(format!("{launch} the results depend on the order in which they run"));
    }
    let (lowered, given_sizes) = text.launched(kernel, dims, number, &given)?;
    for order in [Order::Forward, Order::Reverse] {
        let found = ran(&lowered, &given_sizes, order).map_err(|why| format!("its CUDA text {launch}: {why}"))?;
        if let Some(array) = differing(&found) {
            return Err(format!("its CUDA text {launch} leaves other numbers in '{array}' than the source"));
        }
    }
    seen.add(&given.arrays, &reference);
    Ok(())
}

/// Whether two results are the same, but for the rounding of sums.
fn agree(a: Value, b: Value, bound: f64) -> bool {
    if a.bits() == b.bits() || is_nan(a) && is_nan(b) {
        return true;
    }
    let (x, y) = (a.as_f64(), b.as_f64());
    a.scalar().is_float() && (x == y || (x - y).abs() <= bound)
}
