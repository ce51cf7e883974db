//! Array sizes and initializers: assigns the values of a braced list to elements by the rules of
//! C++.

use std::iter::Peekable;
use std::slice::Iter;

use bornite_ir::{Scalar, Value};

use super::{LowerResult, Lowering};
use crate::cuda::ast::{Declarator, Expr, ExprKind};
use crate::lower::Tree;

/// Maximum elements of an initialized array or an array in shared memory.
pub(super) const MAX_ELEMENTS: u64 = 1 << 20;
const MAX_DIMENSIONS: usize = 8;

impl<'m> Lowering<'m> {
    /// Returns the sizes of an array of at most `max_elements` elements; the first size may follow
    /// from its initializer.
    pub(super) fn sizes(&mut self, d: &'m Declarator, max_elements: u64) -> LowerResult<Vec<u64>> {
        if d.sizes.len() > MAX_DIMENSIONS {
            return self.unsupported(d.span, format!("an array of more than {MAX_DIMENSIONS} dimensions"), "");
        }
        let mut sizes = vec![];
        let mut elements = 1u64;
        for (at, size) in d.sizes.iter().enumerate().rev() {
            let n = match (size, &d.init) {
                (Some(size), _) => self.constant_int(size, "the size of an array")?,
                (None, Some(Expr { kind: ExprKind::Braces(all), .. })) if at == 0 => row_count(all, elements),
                _ => return self.fail(d.span, "the size of this array is missing", "expected '[n]'", "write its size"),
            };
            if n < 1 {
                return self.fail(d.span, format!("an array cannot have {n} elements"), "expected 1 or more", "");
            }
            elements = match elements.checked_mul(n as u64).filter(|elements| *elements <= max_elements) {
                Some(elements) => elements,
                None => {
                    return self.fail(
                        d.span,
                        format!("an array of more than {max_elements} elements"),
                        "too large",
                        "",
                    );
                }
            };
            sizes.push(n as u64);
        }
        sizes.reverse();
        Ok(sizes)
    }

    /// Returns the initializer of each element; `None` for elements without one, which are 0.
    pub(super) fn flatten_initializer(&mut self, init: &'m Expr, sizes: &[u64]) -> LowerResult<Vec<Option<&'m Expr>>> {
        let ExprKind::Braces(all) = &init.kind else {
            let hint = "write its values in braces";
            return self.fail(init.span, "an array needs a braced list of values", "expected '{…}'", hint);
        };
        self.flatten_list(all, sizes)
    }

    /// Same as [`Self::flatten_initializer`], for the contents of the braces.
    pub(super) fn flatten_list(&mut self, all: &'m [Expr], sizes: &[u64]) -> LowerResult<Vec<Option<&'m Expr>>> {
        let (mut out, mut rest) = (vec![], all.iter().peekable());
        let over = fill_array(&mut rest, sizes, &mut out).err().or(rest.next());
        match over {
            Some(over) => {
                let count: u64 = sizes.iter().product();
                let what = format!("too many values for an array of {count} elements");
                self.fail(over.span, what, "too many", "")
            }
            None => Ok(out),
        }
    }

    /// Returns the values of a constant array.
    pub(super) fn constant_array_values(
        &mut self,
        init: &'m Expr,
        scalar: Scalar,
        sizes: &[u64],
    ) -> LowerResult<Vec<Value>> {
        let mut values = vec![];
        for value in self.flatten_initializer(init, sizes)? {
            let Some(expr) = value else {
                values.push(Value::int(scalar, 0));
                continue;
            };
            let tree = self.list_element(expr, scalar.into())?;
            match self.w.fold(&tree) {
                Some(value) => values.push(value),
                None => {
                    return self.fail(expr.span, "this expression is not constant", "not known at compile time", "");
                }
            }
        }
        Ok(values)
    }

    /// Returns the values of a local array.
    pub(super) fn array_values(&mut self, init: &'m Expr, scalar: Scalar, sizes: &[u64]) -> LowerResult<Vec<Tree>> {
        let mut values = vec![];
        for value in self.flatten_initializer(init, sizes)? {
            values.push(match value {
                Some(expr) => {
                    let tree = self.list_element(expr, scalar.into())?;
                    self.materialize(tree)
                }
                None => Tree::int(scalar, 0),
            });
        }
        Ok(values)
    }
}

/// Number of rows of `row` elements that a list initializes.
fn row_count(all: &[Expr], row: u64) -> i64 {
    let (mut count, mut at) = (0, 0);
    while at < all.len() {
        at += if matches!(all[at].kind, ExprKind::Braces(_)) { 1 } else { row as usize };
        count += 1;
    }
    count
}

/// Takes the values of an array from a list. Braces start a row; without them values are taken in
/// order. Fails with the first excess value of a braced row.
fn fill_array<'m>(
    list: &mut Peekable<Iter<'m, Expr>>,
    sizes: &[u64],
    out: &mut Vec<Option<&'m Expr>>,
) -> Result<(), &'m Expr> {
    let Some((size, inner)) = sizes.split_first() else { return Ok(()) };
    for _ in 0..*size {
        match list.peek().copied() {
            None => out.extend(std::iter::repeat_n(None, inner.iter().product::<u64>() as usize)),
            Some(expr) if inner.is_empty() => {
                list.next();
                out.push(Some(expr));
            }
            Some(Expr { kind: ExprKind::Braces(row), .. }) => {
                list.next();
                let mut row = row.iter().peekable();
                fill_array(&mut row, inner, out)?;
                if let Some(over) = row.next() {
                    return Err(over);
                }
            }
            Some(_) => fill_array(list, inner, out)?,
        }
    }
    Ok(())
}
