//! Kernel verifier: the executable definition of a valid kernel. Backends rely on it and repeat
//! none of its checks. Statements and expressions are checked in `verify/code.rs`.

mod code;

use crate::{
    Dim, Expr, Extent, FunctionId, Kernel, LaunchMode, MAX_ALIGN, MAX_COMPONENTS, Scalar, Stmt, StructId, Type,
};
use code::check_code;
pub(crate) use code::op_result;

/// Reason why a kernel is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{kernel}' is not valid: {message}")]
pub struct VerifyError {
    /// The kernel's name.
    pub kernel: String,
    /// Description of the error, with the expression or statement.
    pub message: String,
}

impl VerifyError {
    pub(crate) fn new(kernel: &str, message: impl Into<String>) -> VerifyError {
        VerifyError { kernel: kernel.into(), message: message.into() }
    }
}

/// Checks types, scopes, access modes and sizes.
pub fn verify(kernel: &Kernel) -> Result<(), VerifyError> {
    if !is_name(&kernel.name) {
        return Err(VerifyError::new(
            &kernel.name,
            format!("the name {:?} is not an identifier (letters, digits and '_')", kernel.name),
        ));
    }
    check_signature(kernel).map_err(|message| VerifyError::new(&kernel.name, message))?;
    check_inlined_size(kernel).map_err(|message| VerifyError::new(&kernel.name, message))?;
    for n in 0..kernel.functions.len() {
        let name = &kernel.functions[n].name;
        check_code(kernel, Some(n))
            .map_err(|message| VerifyError::new(&kernel.name, format!("in '{name}': {message}")))?;
    }
    check_code(kernel, None).map_err(|message| VerifyError::new(&kernel.name, message))
}

/// Checks everything except code.
fn check_signature(kernel: &Kernel) -> Result<(), String> {
    if !matches!(kernel.index, Scalar::I32 | Scalar::I64) {
        return Err(format!("the index type is {}; expected i32 or i64", kernel.index));
    }
    check_structs(kernel)?;
    let mut names = vec![];
    let values = kernel.values.iter().map(|v| (&v.name, v.ty));
    let views = kernel.params.iter().map(|p| (&p.name, p.ty)).chain(kernel.shared.iter().map(|s| (&s.name, s.ty)));
    let views = views.chain(kernel.local_arrays.iter().map(|array| (&array.name, array.ty)));
    for (n, (name, ty)) in views.chain(values).enumerate() {
        check_name(name, &mut names, || format!("parameter {n}"))?;
        check_type(kernel, ty, name)?;
    }
    let mut names = vec![&kernel.name];
    for function in &kernel.functions {
        check_name(&function.name, &mut names, || "a function".into())?;
        check_type(kernel, function.result, &function.name)?;
        let mut names = vec![];
        for param in &function.params {
            check_name(&param.name, &mut names, || format!("a parameter of '{}'", function.name))?;
            check_type(kernel, param.ty, &param.name)?;
        }
    }
    check_launch(kernel)?;
    for param in &kernel.params {
        check_dims(kernel, &param.name, &param.dims)?;
    }
    let mut shared_bytes = 0u64;
    for shared in &kernel.shared {
        let extents = check_constant_dims(kernel, "shared", &shared.name, &shared.dims)?;
        // An extent of 0 is printed as 1: C++ has no empty arrays.
        let elements = extents.iter().try_fold(1u64, |n, extent| n.checked_mul(extent.resolve(&[]).max(1) as u64));
        let bytes = elements.and_then(|n| n.checked_mul(kernel.bytes_of(shared.ty) as u64)).unwrap_or(u64::MAX);
        shared_bytes = shared_bytes.saturating_add(bytes);
    }
    if shared_bytes > MAX_SHARED_BYTES {
        return Err(format!(
            "{shared_bytes} bytes of shared memory per block; the maximum is {MAX_SHARED_BYTES} (227 KB, on sm_90 and \
             sm_100; 163 KB on sm_80, 99 KB on sm_86 and sm_89)"
        ));
    }
    for array in &kernel.local_arrays {
        check_constant_dims(kernel, "local", &array.name, &array.dims)?;
    }
    let (_, local_bytes) = kernel.local_layout();
    if local_bytes > MAX_LOCAL_BYTES {
        return Err(format!("{local_bytes} bytes of local arrays per thread; the maximum is {MAX_LOCAL_BYTES}"));
    }
    if matches!(kernel.launch, LaunchMode::ParallelFor { .. }) && kernel.is_cooperative() {
        return Err("shared memory, barriers, shuffles and votes need blocks: launch a grid, not a parallel_for".into());
    }
    Ok(())
}

/// Maximum shared memory per block of current GPUs. A launch with more than 48 KiB queries the
/// device, which may have less.
const MAX_SHARED_BYTES: u64 = 227 << 10;

/// Maximum size of all local arrays, in bytes: the local memory per thread of GPUs.
pub const MAX_LOCAL_BYTES: usize = 512 << 10;

/// Maximum number of statements after inlining all calls, and maximum call depth: some backends
/// inline.
const MAX_INLINED_STATEMENTS: usize = 1 << 16;
const MAX_CALL_DEPTH: usize = 64;
/// Maximum nesting of structs.
const MAX_STRUCT_DEPTH: usize = 16;

fn check_inlined_size(kernel: &Kernel) -> Result<(), String> {
    fn statements(block: &[Stmt]) -> usize {
        block.iter().map(|stmt| 1 + stmt.blocks().iter().map(|inner| statements(inner)).sum::<usize>()).sum()
    }
    let mut sizes: Vec<(usize, usize)> = vec![];
    let codes = kernel.functions.iter().map(|function| (&function.name, &function.code));
    for (name, code) in codes.chain([(&kernel.name, &kernel.code)]) {
        let (mut size, mut depth) = (statements(&code.body), 0);
        for expr in &code.exprs {
            if let Expr::Call(FunctionId(n), _) = expr
                && let Some((inner, deep)) = sizes.get(*n as usize)
            {
                size = size.saturating_add(*inner);
                depth = depth.max(deep + 1);
            }
        }
        if size > MAX_INLINED_STATEMENTS || depth > MAX_CALL_DEPTH {
            return Err(format!(
                "'{name}' has {size} statements after inlining and a call depth of {depth}; \
                 the maximum is {MAX_INLINED_STATEMENTS} statements and a depth of {MAX_CALL_DEPTH}"
            ));
        }
        sizes.push((size, depth));
    }
    Ok(())
}

/// Returns the largest value of the index type.
fn max_index(kernel: &Kernel) -> u64 {
    if kernel.index == Scalar::I32 { i32::MAX as u64 } else { i64::MAX as u64 }
}

fn check_launch(kernel: &Kernel) -> Result<(), String> {
    match kernel.launch {
        LaunchMode::ParallelFor { count } => {
            check_extent(kernel, count, "the number of instances")?;
            if count.known().is_some_and(|n| n < 0 || n as u64 > max_index(kernel)) {
                return Err(format!("{} instances do not fit the index type {}", count.resolve(&[]), kernel.index));
            }
        }
        LaunchMode::Blocks { grid, block } => {
            let threads = block.iter().try_fold(1u64, |n, &size| n.checked_mul(size as u64)).unwrap_or(u64::MAX);
            if threads == 0 || threads > 1024 || block[2] > 64 {
                return Err(format!("a block of {block:?} threads; a block has 1 to 1024 threads, at most 64 along z"));
            }
            if grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
                return Err(format!("a grid of {grid:?} blocks; the maximum is [2147483647, 65535, 65535]"));
            }
            if kernel.launch.count(&[]) > max_index(kernel) {
                let count = kernel.launch.count(&[]);
                return Err(format!("{count} instances do not fit the index type {}", kernel.index));
            }
        }
    }
    Ok(())
}

fn check_extent(kernel: &Kernel, extent: Extent, of: &str) -> Result<(), String> {
    match extent {
        Extent::Const(_) => Ok(()),
        Extent::Value(n) => match kernel.values.get(n as usize) {
            Some(value) if value.ty == kernel.index.into() => Ok(()),
            Some(value) => {
                Err(format!("{of}: value parameter '{}' must have the index type {}", value.name, kernel.index))
            }
            None => Err(format!("{of}: value parameter {n} does not exist")),
        },
    }
}

fn check_dims(kernel: &Kernel, name: &str, dims: &[Dim]) -> Result<(), String> {
    if !(1..=4).contains(&dims.len()) {
        return Err(format!("view '{name}' has {} dimensions; expected 1 to 4", dims.len()));
    }
    for dim in dims {
        check_extent(kernel, dim.extent, name)?;
        check_extent(kernel, dim.stride, name)?;
        if dim.extent.known().is_some_and(|n| n < 0) {
            return Err(format!("view '{name}' has a negative extent"));
        }
    }
    let known = dims.iter().all(|dim| dim.extent.known().and(dim.stride.known()).is_some());
    let fits = |n: u64| n <= max_index(kernel);
    match kernel.memory_span(dims, &[]) {
        _ if !known => Ok(()),
        Some(span) if fits(span.elements) => Ok(()),
        Some(span) => Err(format!(
            "view '{name}' has {} elements, more than the index type {} can address",
            span.elements, kernel.index
        )),
        None => Err(format!("view '{name}' has more elements than the index type {} can address", kernel.index)),
    }
}

/// Checks the dimensions of a shared or local array and returns its extents.
fn check_constant_dims(kernel: &Kernel, kind: &str, name: &str, dims: &[Dim]) -> Result<Vec<Extent>, String> {
    check_dims(kernel, name, dims)?;
    let extents: Vec<Extent> = dims.iter().map(|dim| dim.extent).collect();
    if extents.iter().any(|extent| extent.known().is_none()) || dims != crate::contiguous(&extents) {
        return Err(format!("{kind} array '{name}' must have constant, contiguous dimensions"));
    }
    Ok(extents)
}

fn check_structs(kernel: &Kernel) -> Result<(), String> {
    let mut names = vec![];
    let mut depths: Vec<usize> = vec![];
    for (n, found) in kernel.structs.iter().enumerate() {
        let depth_of = |ty: Type| match ty {
            Type::Struct(StructId(inner)) => depths.get(inner as usize).map_or(0, |depth| depth + 1),
            _ => 0,
        };
        let depth = found.fields.iter().map(|field| depth_of(field.ty)).max().unwrap_or(0);
        if depth > MAX_STRUCT_DEPTH {
            return Err(format!(
                "struct '{}' is nested {depth} structs deep; the maximum is {MAX_STRUCT_DEPTH}",
                found.name
            ));
        }
        depths.push(depth);
        check_name(&found.name, &mut names, || format!("struct {n}"))?;
        if crate::ty::parse_plain(&found.name).is_some() {
            return Err(format!("struct {n}: '{}' is the name of a built-in type", found.name));
        }
        if found.fields.is_empty() {
            return Err(format!("struct '{}' has no fields", found.name));
        }
        let mut fields = vec![];
        for field in &found.fields {
            check_name(&field.name, &mut fields, || format!("a field of '{}'", found.name))?;
            if matches!(field.ty, Type::Struct(StructId(inner)) if inner as usize >= n) {
                return Err(format!(
                    "field '{}' of '{}' has a struct type that is declared later",
                    field.name, found.name
                ));
            }
            check_type(kernel, field.ty, &field.name)?;
            let (align, natural) = (field.align, field.ty.layout(&kernel.structs).align as u32);
            if !align.is_power_of_two() || align > MAX_ALIGN || align > 1 && align < natural {
                let expected = format!("1 or a power of 2 from {natural} to {MAX_ALIGN}");
                return Err(format!("'{}' has alignment {align}; expected {expected}", field.name));
            }
        }
        check_type(kernel, Type::Struct(StructId(n as u32)), &found.name)?;
    }
    Ok(())
}

/// Checks that a type exists and is not too large.
fn check_type(kernel: &Kernel, ty: Type, of: &str) -> Result<(), String> {
    if let Type::Struct(StructId(n)) = ty
        && n as usize >= kernel.structs.len()
    {
        return Err(format!("'{of}': struct {n} does not exist"));
    }
    match ty.component_count(&kernel.structs) {
        1..=MAX_COMPONENTS => Ok(()),
        n => Err(format!("'{of}' has {n} components; expected 1 to {MAX_COMPONENTS}")),
    }
}

fn check_name<'a>(name: &'a String, taken: &mut Vec<&'a String>, subject: impl Fn() -> String) -> Result<(), String> {
    if !is_name(name) || taken.contains(&name) {
        return Err(format!("{} needs a unique identifier as its name, found {name:?}", subject()));
    }
    taken.push(name);
    Ok(())
}

/// Returns true for identifiers: letters, digits and `_`, not starting with a digit.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
