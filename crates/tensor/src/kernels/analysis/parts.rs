//! Instructions that a load or store of one element needs.

use std::collections::HashMap;

use bornite_ir::{AlgebraOp, Code, Expr, ExprId, Kernel, Stmt, Type};

use super::transactions::MAX_ACCESS_BYTES;

/// Offset and size in bytes of the access of each instruction, within an element.
pub type Parts = Vec<(u64, u64)>;

/// Size of aligned parts of an element. CUDA aligns its vector types of two and four components to
/// their size; vectors of other languages are structs.
pub fn part_bytes(ty: Type, [bytes, align]: [usize; 2], cuda_vectors: bool) -> usize {
    let is_cuda_vector = cuda_vectors && matches!(ty, Type::Vector(_, 2 | 4));
    let align = if is_cuda_vector { bytes } else { align };
    align.clamp(1, MAX_ACCESS_BYTES)
}

/// Finds the loads of elements of which only some components are used, since a compiler loads no
/// others. Returns the parts of each, by its statement.
pub fn partial_loads(kernel: &Kernel, code: &Code, cuda_vectors: bool) -> HashMap<*const Stmt, Parts> {
    let mut used: HashMap<ExprId, Vec<u32>> = HashMap::new();
    let mut whole: Vec<bool> = vec![false; code.exprs.len()];
    for expr in &code.exprs {
        if let Expr::Algebra { op: AlgebraOp::Extract, component, args } = expr {
            args.iter().for_each(|&arg| used.entry(arg).or_default().push(*component));
        } else {
            operands(expr, &mut |id| whole[id.0 as usize] = true);
        }
    }
    statements(&code.body, &mut |stmt| match stmt {
        Stmt::Assign(_, value) | Stmt::Store { value, .. } | Stmt::Return(Some(value)) => {
            whole[value.0 as usize] = true
        }
        _ => {}
    });
    let mut found = HashMap::new();
    statements(&code.body, &mut |stmt| {
        let Stmt::Let(id) = stmt else { return };
        let Expr::Load { view, indices, width: 1 } = code.expr(*id) else { return };
        let info = kernel.view(*view);
        let Some(components) = used.get(id).filter(|_| !whole[id.0 as usize] && indices.len() == info.dims.len())
        else {
            return;
        };
        found.insert(std::ptr::from_ref(stmt), parts_of(kernel, info.ty, components, cuda_vectors));
    });
    found
}

/// Parts of an element that contain the used components or fields.
fn parts_of(kernel: &Kernel, ty: Type, used: &[u32], cuda_vectors: bool) -> Parts {
    let layout = ty.layout(&kernel.structs);
    // Components of each field; a vector or matrix has one per component.
    let counts: Vec<usize> = match ty {
        Type::Struct(id) => {
            let fields = kernel.structs.get(id.0 as usize).map_or(&[][..], |found| &found.fields);
            fields.iter().map(|field| field.ty.component_count(&kernel.structs)).collect()
        }
        _ => vec![1; layout.offsets.len()],
    };
    let mut ranges: Vec<(u64, u64)> = vec![];
    let mut first = 0;
    for (n, count) in counts.into_iter().enumerate() {
        if used.contains(&(n as u32)) {
            let components = &layout.offsets[first..first + count];
            ranges.extend(components.iter().map(|(offset, scalar)| (*offset as u64, scalar.bytes() as u64)));
        }
        first += count;
    }
    if ranges.len() == 1 {
        return ranges;
    }
    let part = part_bytes(ty, [layout.bytes, layout.align], cuda_vectors) as u64;
    let mut parts: Parts = ranges.into_iter().map(|(offset, _)| (offset / part * part, part)).collect();
    parts.dedup();
    parts
}

/// Calls `visit` with every operand of an expression.
fn operands(expr: &Expr, visit: &mut dyn FnMut(ExprId)) {
    match expr {
        Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) | Expr::Read(_) => {}
        Expr::Op(_, args) | Expr::Load { indices: args, .. } => args.iter().copied().for_each(visit),
        Expr::Algebra { args, .. } | Expr::Call(_, args) => args.iter().copied().for_each(visit),
        Expr::Cast(_, value) | Expr::Bitcast(_, value) => visit(*value),
        Expr::Atomic { indices, value, .. } => indices.iter().chain([value]).copied().for_each(visit),
        Expr::CompareExchange { indices, expected, value, .. } => {
            indices.iter().chain([expected, value]).copied().for_each(visit);
        }
        Expr::Shuffle { value, lane, mask, .. } => [value, lane].into_iter().chain(mask).copied().for_each(visit),
        Expr::Vote { value, mask, .. } => std::iter::once(value).chain(mask).copied().for_each(visit),
    }
}

/// Calls `visit` with every statement of a block and of those nested in it.
pub fn statements<'k>(block: &'k [Stmt], visit: &mut dyn FnMut(&'k Stmt)) {
    for stmt in block {
        visit(stmt);
        stmt.blocks().into_iter().for_each(|inner| statements(inner, visit));
    }
}
