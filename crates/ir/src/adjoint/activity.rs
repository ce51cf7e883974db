//! Activity: the values that depend on differentiated arrays and that outputs depend on.

use std::collections::BTreeSet;

use super::scalar_code::{Def, ScalarCode, ScalarStmt, ValueId, VarId};
use super::{AdjointError, AdjointRequest, Refusal, discard};
use crate::{Kernel, ParamId, Stmt, View};

/// Values, variables and arrays that carry derivatives.
pub(super) struct Activity {
    values: Vec<bool>,
    vars: Vec<bool>,
    local_arrays: Vec<bool>,
    discardable: BTreeSet<ValueId>,
}

impl Activity {
    /// True if the value may be computed but not used, as in `r = sqrt(x); y = x > 0 ? r : 0`. Its
    /// derivative may then be infinite, so that its product with a gradient of 0 must be 0.
    pub fn is_discardable(&self, id: ValueId) -> bool {
        self.discardable.contains(&id)
    }

    pub fn value(&self, id: ValueId) -> bool {
        self.values[id.0 as usize]
    }

    pub fn var(&self, id: VarId) -> bool {
        self.vars[id.0 as usize]
    }

    pub fn local_array(&self, n: u32) -> bool {
        self.local_arrays[n as usize]
    }
}

/// Sets that grow until nothing changes.
#[derive(Default)]
struct Marks {
    values: BTreeSet<ValueId>,
    vars: BTreeSet<VarId>,
    views: BTreeSet<(u8, u32)>,
    changed: bool,
}

impl Marks {
    fn value(&mut self, id: ValueId) {
        self.changed |= self.values.insert(id);
    }

    fn var(&mut self, id: VarId) {
        self.changed |= self.vars.insert(id);
    }

    fn view(&mut self, view: View) {
        self.changed |= self.views.insert(key(view));
    }

    fn has(&self, id: ValueId) -> bool {
        self.values.contains(&id)
    }
}

fn key(view: View) -> (u8, u32) {
    match view {
        View::Param(id) => (0, id.0),
        View::Shared(id) => (1, id.0),
        View::Local(id) => (2, id.0),
    }
}

pub(super) fn analyze(
    kernel: &Kernel,
    code: &ScalarCode<'_>,
    request: &AdjointRequest,
) -> Result<Activity, AdjointError> {
    for &ParamId(n) in &request.with_respect_to {
        let Some(param) = kernel.params.get(n as usize) else {
            let what = format!("array parameter {n}, which does not exist");
            return Err(AdjointError::at(kernel, None, Refusal { what, remedy: String::new() }));
        };
        if !param.ty.components(&kernel.structs).iter().any(|scalar| scalar.is_float()) {
            let what = format!("'{}', which holds no floats", param.name);
            let remedy = "integers are constants of the derivative".into();
            return Err(AdjointError::at(kernel, None, Refusal { what, remedy }));
        }
    }
    let varied = varied(kernel, code, request)?;
    let useful = useful(code);
    let is_float = |id: ValueId| code.value(id).scalar.is_float();
    let active = |n: u32| varied.has(ValueId(n)) && useful.has(ValueId(n)) && is_float(ValueId(n));
    let both = |n: u32| varied.vars.contains(&VarId(n)) && useful.vars.contains(&VarId(n));
    let array = |n: u32| varied.views.contains(&(2, n)) && useful.views.contains(&(2, n));
    Ok(Activity {
        values: (0..code.values.len() as u32).map(active).collect(),
        vars: (0..code.vars.len() as u32).map(|n| both(n) && code.var(VarId(n)).scalar.is_float()).collect(),
        local_arrays: (0..kernel.local_arrays.len() as u32).map(array).collect(),
        discardable: discard::discardable(code),
    })
}

/// Marks everything that depends on the differentiated arrays. Integers are marked if they hold
/// the bits of such a float.
fn varied(kernel: &Kernel, code: &ScalarCode<'_>, request: &AdjointRequest) -> Result<Marks, AdjointError> {
    let mut marks = Marks::default();
    request.with_respect_to.iter().for_each(|param| marks.view(View::Param(*param)));
    let mut error: Option<AdjointError> = None;
    let bits = |site: Option<&Stmt>| {
        let what = "a float that is computed from the bits of another one, as an integer".into();
        AdjointError::at(kernel, site, Refusal { what, remedy: "compute it with floating-point operations".into() })
    };
    loop {
        marks.changed = false;
        code.walk(&mut |stmt, _| match stmt {
            ScalarStmt::Let(id) => {
                let definition = code.value(*id);
                let (scalar, site) = (definition.scalar, definition.site);
                let from_int = |from: &ValueId| !code.value(*from).scalar.is_float();
                let found = match &definition.def {
                    Def::Read(var) => marks.vars.contains(var),
                    Def::Op(_, args) => args.iter().any(|arg| marks.has(*arg)) && scalar != crate::Scalar::Bool,
                    Def::Cast(from) | Def::Bitcast(from) if scalar.is_float() && from_int(from) && marks.has(*from) => {
                        error.get_or_insert_with(|| bits(site));
                        false
                    }
                    Def::Cast(from) => marks.has(*from) && (scalar.is_float() || scalar.is_int() && from_int(from)),
                    Def::Bitcast(from) => marks.has(*from),
                    Def::Load(element) => scalar.is_float() && marks.views.contains(&key(element.view)),
                    Def::Const(_) | Def::Argument { .. } | Def::Instance(_) | Def::Induction { .. } | Def::Part(..) => {
                        false
                    }
                };
                if found {
                    marks.value(*id);
                }
            }
            ScalarStmt::Algebra(group) => {
                let group = code.group(*group);
                if group.args.iter().flat_map(|arg| &arg.components).any(|arg| marks.has(*arg)) {
                    group.out.components.iter().for_each(|part| marks.value(*part));
                }
            }
            ScalarStmt::Assign(var, value) if marks.has(*value) => marks.var(*var),
            ScalarStmt::Store { element, value, site } | ScalarStmt::AtomicAdd { element, value, site, .. }
                if marks.has(*value) =>
            {
                if !code.value(*value).scalar.is_float() {
                    error.get_or_insert_with(|| bits(Some(site)));
                }
                marks.view(element.view);
            }
            _ => {}
        });
        if let Some(error) = error {
            return Err(error);
        }
        if !marks.changed {
            return Ok(marks);
        }
    }
}

/// Marks everything that outputs depend on.
fn useful(code: &ScalarCode<'_>) -> Marks {
    let mut marks = Marks::default();
    loop {
        marks.changed = false;
        code.walk(&mut |stmt, _| match stmt {
            ScalarStmt::Let(id) if marks.has(*id) => match &code.value(*id).def {
                Def::Read(var) => marks.var(*var),
                Def::Load(element) => marks.view(element.view),
                Def::Op(_, args) => args.iter().for_each(|arg| marks.value(*arg)),
                Def::Cast(from) | Def::Bitcast(from) => marks.value(*from),
                _ => {}
            },
            ScalarStmt::Algebra(group) => {
                let group = code.group(*group);
                if group.out.components.iter().any(|part| marks.has(*part)) {
                    group.args.iter().flat_map(|arg| &arg.components).for_each(|arg| marks.value(*arg));
                }
            }
            ScalarStmt::Assign(var, value) if marks.vars.contains(var) => marks.value(*value),
            ScalarStmt::AtomicAdd { value, .. } => marks.value(*value),
            ScalarStmt::Store { element, value, .. }
                if matches!(element.view, View::Param(_)) || marks.views.contains(&key(element.view)) =>
            {
                marks.value(*value);
            }
            _ => {}
        });
        if !marks.changed {
            return marks;
        }
    }
}
