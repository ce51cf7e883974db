//! Minimizes a failing kernel.

use bornite_ir::{Code, Expr, ExprId, Kernel, Stmt, Value, verify};

/// Returns the smallest kernel found for which `fails` is still true.
pub fn shrink(kernel: &Kernel, fails: &dyn Fn(&Kernel) -> bool) -> Kernel {
    let mut best = kernel.clone();
    loop {
        let count: usize = codes(&best).map(|code| statements(&code.body)).sum();
        // From the end, so that unused values are removed first.
        let smaller =
            (0..count).rev().flat_map(|n| [Step::Unwrap, Step::Remove].map(|step| (n, step))).find_map(|(n, step)| {
                let candidate = edited(&best, n, step)?;
                (verify(&candidate).is_ok() && fails(&candidate)).then_some(candidate)
            });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// Removes a statement; the expression it evaluated becomes a constant.
    Remove,
    /// Replaces a branch or loop by its blocks.
    Unwrap,
}

fn codes(kernel: &Kernel) -> impl Iterator<Item = &Code> {
    kernel.functions.iter().map(|function| &function.code).chain([&kernel.code])
}

pub fn statements(block: &[Stmt]) -> usize {
    block.iter().map(|stmt| 1 + stmt.blocks().iter().map(|inner| statements(inner)).sum::<usize>()).sum()
}

fn edited(kernel: &Kernel, mut n: usize, step: Step) -> Option<Kernel> {
    let mut kernel = kernel.clone();
    let Kernel { functions, code, .. } = &mut kernel;
    let mut codes: Vec<&mut Code> = functions.iter_mut().map(|function| &mut function.code).chain([code]).collect();
    for code in &mut codes {
        let Some(removed) = edit(&mut code.body, &mut n, step)? else { continue };
        if let Stmt::Let(ExprId(id)) = removed
            && let Some(scalar) = code.types[id as usize].as_scalar()
        {
            // Composite values have no constants: they are removed once unused.
            code.exprs[id as usize] = Expr::Const(Value::from_f64(scalar, 1.0));
        }
        return Some(kernel);
    }
    None
}

/// Edits the n-th statement. Returns the old statement, `Some(None)` if it is not in this block, or
/// `None` if it cannot be edited.
fn edit(block: &mut Vec<Stmt>, n: &mut usize, step: Step) -> Option<Option<Stmt>> {
    for at in 0..block.len() {
        if *n == 0 {
            let nested = !matches!(block[at].blocks(), [[], []]);
            return match step {
                Step::Unwrap if !nested => None,
                Step::Unwrap => {
                    let inner: Vec<Stmt> = block[at].blocks().into_iter().flatten().cloned().collect();
                    let old = block.splice(at..=at, inner).next();
                    Some(old)
                }
                Step::Remove => Some(Some(block.remove(at))),
            };
        }
        *n -= 1;
        let found = match &mut block[at] {
            Stmt::For { body, .. } | Stmt::Loop { body } => edit(body, n, step)?,
            Stmt::If { then, otherwise, .. } => match edit(then, n, step)? {
                Some(found) => Some(found),
                None => edit(otherwise, n, step)?,
            },
            _ => None,
        };
        if found.is_some() {
            return Some(found);
        }
    }
    Some(None)
}
