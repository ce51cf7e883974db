//! Values that may be computed without being used: operands of selections, values used only under a
//! condition, and variables that are overwritten before they are read.

use std::collections::{BTreeMap, BTreeSet};

use super::scalar_code::{BlockId, Def, ScalarCode, ScalarStmt, ValueId, VarId};
use crate::Op;

pub(super) fn discardable(code: &ScalarCode<'_>) -> BTreeSet<ValueId> {
    let mut found = direct(code);
    // The operands of what may be discarded may be, too.
    loop {
        let before = found.len();
        code.walk(&mut |stmt, _| match stmt {
            ScalarStmt::Let(id) if found.contains(id) => found.extend(code.operands(*id)),
            ScalarStmt::Algebra(group) => {
                let group = code.group(*group);
                if group.out.components.iter().any(|part| found.contains(part)) {
                    found.extend(group.args.iter().flat_map(|arg| arg.components.iter().copied()));
                }
            }
            _ => {}
        });
        let reads: BTreeSet<VarId> = found.iter().filter_map(|id| read_var(code, *id)).collect();
        code.walk(&mut |stmt, _| {
            if let ScalarStmt::Assign(var, value) = stmt
                && reads.contains(var)
            {
                found.insert(*value);
            }
        });
        if found.len() == before {
            return found;
        }
    }
}

fn read_var(code: &ScalarCode<'_>, id: ValueId) -> Option<VarId> {
    if let Def::Read(var) = code.value(id).def { Some(var) } else { None }
}

/// Accesses to a variable.
#[derive(Default)]
struct VarUse {
    assigned: Vec<(ValueId, BlockId)>,
    read: Vec<BlockId>,
}

fn direct(code: &ScalarCode<'_>) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    let mut vars: BTreeMap<VarId, VarUse> = BTreeMap::new();
    code.walk(&mut |stmt, block| {
        let mut used = vec![];
        match stmt {
            ScalarStmt::Let(id) => {
                used = code.operands(*id);
                if let Def::Op(Op::Select | Op::Min | Op::Max | Op::Fmin | Op::Fmax | Op::Clamp, args) =
                    &code.value(*id).def
                {
                    found.extend(args);
                }
                if let Some(var) = read_var(code, *id) {
                    vars.entry(var).or_default().read.push(block);
                }
            }
            ScalarStmt::Algebra(group) => {
                used.extend(code.group(*group).args.iter().flat_map(|arg| arg.components.iter().copied()));
            }
            ScalarStmt::Assign(var, value) => {
                used.push(*value);
                vars.entry(*var).or_default().assigned.push((*value, block));
            }
            ScalarStmt::Store { value, .. } | ScalarStmt::AtomicAdd { value, .. } => used.push(*value),
            ScalarStmt::Declare(_) | ScalarStmt::If { .. } | ScalarStmt::Loop(_) => {}
        }
        // A nested block may not run.
        found.extend(used.into_iter().filter(|id| code.value(*id).block != block));
    });
    for (var, uses) in &vars {
        let overwritten = uses.assigned.iter().skip(1).any(|(value, _)| !depends_on(code, *value, *var));
        for (value, block) in &uses.assigned {
            let outer = ancestors(code, *block);
            if overwritten || uses.read.iter().any(|read| !ancestors(code, *read).is_subset(&outer)) {
                found.insert(*value);
            }
        }
    }
    found
}

/// A block and the blocks around it.
fn ancestors(code: &ScalarCode<'_>, block: BlockId) -> BTreeSet<BlockId> {
    std::iter::successors(Some(block), |block| code.block(*block).parent).collect()
}

/// True if a value is computed from a variable's earlier value.
fn depends_on(code: &ScalarCode<'_>, value: ValueId, var: VarId) -> bool {
    let (mut pending, mut seen) = (vec![value], BTreeSet::new());
    while let Some(next) = pending.pop() {
        if read_var(code, next) == Some(var) {
            return true;
        }
        if seen.insert(next) && seen.len() < 1000 {
            pending.extend(code.operands(next));
        }
    }
    false
}
