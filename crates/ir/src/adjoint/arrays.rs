//! Accesses to the array parameters: which are replayed, which have gradients, and which elements
//! belong to one instance each.

use super::activity::Activity;
use super::index::{Indices, Site};
use super::scalar_code::{BlockId, Def, ScalarCode, ScalarStmt};
use super::{Accumulation, AdjointError, AdjointRequest, Refusal};
use crate::{Extent, Kernel, LaunchMode, Param, ParamId, Stmt, View, contiguous};

/// Maximum number of ranges of instances that add to copies of a gradient of their own.
const MAX_COPIES: u64 = 256;

/// Maximum number of elements of all copies of a gradient.
const MAX_COPIED_ELEMENTS: u64 = 1 << 22;

/// Gradient array of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GradientArray {
    /// The parameter is only read, or is not an output.
    None,
    /// Of an output. `cleared` if stores set its elements to 0.
    Output { cleared: bool },
    /// Of an input that is only read. `shared` if several instances may add to an element.
    Input { shared: bool },
}

/// Accesses to a parameter.
pub(super) struct ArrayUse {
    /// Read, and written by plain stores: the replay writes a scratch copy.
    pub is_replaced: bool,
    pub gradient: GradientArray,
}

/// Accesses to all parameters.
pub(super) struct Arrays {
    pub uses: Vec<ArrayUse>,
    /// Number of ranges of instances, where several instances may add to an element.
    pub ranges: Option<u64>,
}

impl Arrays {
    /// True if a store to the view is part of the replay.
    pub fn is_replayed(&self, view: View) -> bool {
        match view {
            View::Param(ParamId(n)) => self.uses[n as usize].is_replaced,
            View::Local(_) | View::Shared(_) => true,
        }
    }

    /// True if elements of the view never change.
    pub fn is_constant(&self, view: View) -> bool {
        matches!(view, View::Param(_)) && !self.is_replayed(view)
    }
}

struct Accesses<'a, 'k> {
    loads: Vec<(Site<'a>, Option<&'k Stmt>, bool)>,
    stores: Vec<(Site<'a>, &'k Stmt)>,
    atomics: Vec<&'k Stmt>,
}

pub(super) fn classify<'k>(
    kernel: &'k Kernel,
    code: &ScalarCode<'k>,
    activity: &Activity,
    request: &AdjointRequest,
) -> Result<Arrays, AdjointError> {
    let accesses = collect(kernel, code, activity);
    let mut indices = Indices::new(kernel, code);
    let mut uses = vec![];
    for (n, (param, found)) in kernel.params.iter().zip(&accesses).enumerate() {
        let (name, wanted) = (&param.name, request.with_respect_to.contains(&ParamId(n as u32)));
        let is_float = param.ty.components(&kernel.structs).iter().any(|scalar| scalar.is_float());
        let refuse = |site: Option<&Stmt>, what: String, remedy: &str| {
            Err(AdjointError::at(kernel, site, Refusal { what, remedy: remedy.into() }))
        };
        let distinct = has_distinct_elements(param);
        let mut belong = |sites: &[Site]| distinct && indices.belong_to_one_instance(sites);
        let is_replaced = !found.loads.is_empty() && !found.stores.is_empty();
        if let Some(site) = found.atomics.first()
            && (!found.loads.is_empty() || is_float && !found.stores.is_empty())
        {
            let what = format!("'{name}' is updated atomically and also read or stored");
            return refuse(Some(site), what, "use different arrays");
        }
        let written = !found.stores.is_empty() || !found.atomics.is_empty();
        let sites: Vec<Site> =
            found.loads.iter().map(|load| load.0).chain(found.stores.iter().map(|store| store.0)).collect();
        if is_replaced && !belong(&sites) {
            let site = found.loads.first().and_then(|load| load.1);
            let what =
                format!("'{name}' is read and written, at indices that are not proven to belong to one instance");
            return refuse(site, what, "read from one array and write to another");
        }
        if is_float && !is_replaced && !found.stores.is_empty() && !belong(&sites) {
            let site = found.stores.first().map(|store| store.1);
            let what = format!("'{name}' is stored at an index that is not proven to belong to one instance");
            return refuse(site, what, "store at the instance's own index, or use atomic addition on zeros");
        }
        let gradient = if !is_float {
            GradientArray::None
        } else if written {
            let in_loop = found.stores.iter().any(|store| code.block(store.0.block).in_loop.is_some());
            let several = found.stores.len() > 1 || in_loop;
            let cleared = !found.stores.is_empty() && (wanted || is_replaced || several);
            GradientArray::Output { cleared }
        } else if wanted {
            let active: Vec<Site> = found.loads.iter().filter(|load| load.2).map(|load| load.0).collect();
            GradientArray::Input { shared: !belong(&active) }
        } else {
            GradientArray::None
        };
        uses.push(ArrayUse { is_replaced, gradient });
    }
    let ranges = ranges(kernel, &uses, request)?;
    Ok(Arrays { uses, ranges })
}

/// True if different indices are known to select different elements.
fn has_distinct_elements(param: &Param) -> bool {
    let extents: Vec<Extent> = param.dims.iter().map(|dim| dim.extent).collect();
    if contiguous(&extents) == param.dims {
        return true;
    }
    let sizes = param.dims.iter().map(|dim| Some((dim.stride.known()?.unsigned_abs(), dim.extent.known()?)));
    let Some(mut sizes) = sizes.collect::<Option<Vec<_>>>() else { return false };
    sizes.retain(|(_, extent)| *extent > 1);
    sizes.sort_unstable();
    let mut span = 0u64;
    sizes.into_iter().all(|(stride, extent)| {
        let is_above = stride > span;
        span = span.saturating_add(stride.saturating_mul(extent as u64 - 1));
        is_above
    })
}

/// Number of ranges of instances; `None` if all run in parallel.
fn ranges(kernel: &Kernel, uses: &[ArrayUse], request: &AdjointRequest) -> Result<Option<u64>, AdjointError> {
    let shared: Vec<&Param> = (kernel.params.iter().zip(uses))
        .filter(|(_, found)| found.gradient == GradientArray::Input { shared: true })
        .map(|(param, _)| param)
        .collect();
    if shared.is_empty() {
        return Ok(None);
    }
    if request.options.accumulation == Accumulation::Atomic {
        let narrow = |param: &&&Param| {
            param.ty.components(&kernel.structs).iter().any(|scalar| scalar.is_float() && scalar.bytes() < 4)
        };
        let Some(param) = shared.iter().find(narrow) else { return Ok(None) };
        let what = format!("atomic addition to the gradient of '{}', whose floats have 16 bits", param.name);
        return Err(AdjointError::at(kernel, None, Refusal { what, remedy: "use ordered addition".into() }));
    }
    let elements = |param: &Param| {
        let extents: Vec<Extent> = param.dims.iter().map(|dim| dim.extent).collect();
        let known = contiguous(&extents) == param.dims;
        let sizes = extents.iter().map(|extent| extent.known().filter(|_| known).map(|n| n.max(1) as u64));
        sizes.collect::<Option<Vec<u64>>>().map(|sizes| sizes.into_iter().fold(1, u64::saturating_mul))
    };
    let count = match kernel.launch {
        LaunchMode::ParallelFor { count } => count.known().map(|n| n.max(1) as u64),
        LaunchMode::Blocks { .. } => Some(kernel.launch.count(&[]).max(1)),
    };
    let total = shared.iter().map(|param| elements(param)).sum::<Option<u64>>();
    let copies = match (count, total) {
        (Some(count), Some(total)) if count < (1 << 30) => {
            count.min(MAX_COPIES).min(MAX_COPIED_ELEMENTS / total.max(1))
        }
        _ => 1,
    };
    Ok(Some(copies.max(1)))
}

fn collect<'a, 'k>(kernel: &Kernel, code: &'a ScalarCode<'k>, activity: &Activity) -> Vec<Accesses<'a, 'k>> {
    let empty = |_| Accesses { loads: vec![], stores: vec![], atomics: vec![] };
    let mut all: Vec<Accesses> = kernel.params.iter().map(empty).collect();
    for (n, block) in code.blocks.iter().enumerate() {
        let block_id = BlockId(n as u32);
        for stmt in &block.stmts {
            let element = match stmt {
                ScalarStmt::Let(id) => match &code.values[id.0 as usize].def {
                    Def::Load(element) => element,
                    _ => continue,
                },
                ScalarStmt::Store { element, .. } | ScalarStmt::AtomicAdd { element, .. } => element,
                _ => continue,
            };
            let View::Param(ParamId(param)) = element.view else { continue };
            let (found, site) = (&mut all[param as usize], Site { element, block: block_id });
            match stmt {
                ScalarStmt::Let(id) => {
                    found.loads.push((site, code.values[id.0 as usize].site, activity.value(*id)));
                }
                ScalarStmt::Store { site: stmt, .. } => found.stores.push((site, stmt)),
                ScalarStmt::AtomicAdd { site: stmt, .. } => found.atomics.push(stmt),
                _ => {}
            }
        }
    }
    all
}
