//! Values of module-level names, from the order of assignments and the conditions around them. The
//! file is not executed, so values that depend on its execution are unknown.

use ruff_python_ast::{Expr, ExprCall};
use ruff_text_size::{Ranged, TextSize};

use super::{ConstValue, Evaluator, Unknown};
use crate::python::program::{AssignedValue, Assignment, Conditions, Item};

/// End of the message about a value that is not known at compile time.
pub(super) const NOT_KNOWN: &str = ", so its value is not known at compile time";

impl<'p> Evaluator<'p, '_> {
    /// The last value assigned to a name. A kernel is compiled at launch, so it sees the value at
    /// the end of the file; a constant sees the values at its own position.
    pub(super) fn last_value(
        &self,
        all: &[Assignment<'p>],
        scope: usize,
        name: &str,
        at: &Expr,
    ) -> Result<ConstValue, Unknown> {
        // Every assignment may be visited, from the last.
        self.charge(all.len() / 256);
        let is_visible =
            |one: &&Assignment<'p>| self.before.is_none_or(|(of, end)| of != scope || one.range.end() <= end);
        let not_known = |why: &str| self.unknown(at, format!("'{name}' {why}{NOT_KNOWN}"));
        for assignment in all.iter().rev().filter(is_visible) {
            let within = Evaluator { before: Some((scope, assignment.range.start())), ..self.within(scope) };
            match within.holds(&assignment.conditions) {
                Some(true) => {}
                Some(false) => continue,
                None => return not_known("is assigned under a condition"),
            }
            let found = match assignment.value {
                AssignedValue::Expr(Expr::Call(call)) if within.is_auto(call) => within.next_auto_value(scope, at),
                AssignedValue::Expr(value) => within.eval(value),
                AssignedValue::Element(value, n) => within.eval(value).and_then(|found| match found {
                    ConstValue::List(all) if n < all.len() => Ok(all[n].clone()),
                    _ => self.unknown(at, format!("the value of '{name}' is not known at compile time")),
                }),
                AssignedValue::Augmented(op, value) => {
                    let before = within.last_value(all, scope, name, at)?;
                    within.eval(value).and_then(|more| within.binary(op, &before, &more, value))
                }
                AssignedValue::Parameter(def, n) => return within.parameter(def, n, name, at),
                AssignedValue::Unknown(why) => return not_known(why),
            };
            return found.map_err(|(_, what)| (at.range(), what));
        }
        self.unknown(at, format!("'{name}' has no value"))
    }

    /// `enum.auto()`
    fn is_auto(&self, call: &ExprCall) -> bool {
        call.arguments.is_empty()
            && matches!(self.eval(&call.func), Ok(ConstValue::PythonBuiltin(name)) if name == "enum.auto")
    }

    /// The value of `auto()` for an enum member: the previous member plus one, or the next bit.
    fn next_auto_value(&self, scope: usize, at: &Expr) -> Result<ConstValue, Unknown> {
        let end = self.before.map_or(TextSize::new(u32::MAX), |(_, end)| end);
        let mut members: Vec<(TextSize, usize, &str, &[Assignment<'p>])> = vec![];
        for (name, item) in &self.program.scopes[scope].names {
            let Item::Values(all) = item else { continue };
            let Some(first) = all.first().filter(|one| one.range.end() <= end) else { continue };
            let element = if let AssignedValue::Element(_, n) = first.value { n } else { 0 };
            members.push((first.range.end(), element, name, all));
        }
        members.sort_by_key(|(end, element, ..)| (*end, *element));
        let is_auto = |all: &[Assignment<'p>]| matches!(all, [Assignment { value: AssignedValue::Expr(Expr::Call(call)), .. }] if self.is_auto(call));
        let autos = members.iter().rev().take_while(|(.., all)| is_auto(all)).count();
        let explicit = match members.iter().rev().nth(autos) {
            None => 0,
            Some((_, _, name, all)) => match self.last_value(all, scope, name, at)?.int() {
                Some(n) => n,
                None => return self.unknown(at, "auto() follows a member that is not an integer"),
            },
        };
        let next = if self.program.scopes[scope].is_flag {
            let bits = 64 - explicit.max(0).leading_zeros() + autos as u32;
            1i64.checked_shl(bits).filter(|n| *n > 0)
        } else {
            explicit.checked_add(autos as i64 + 1)
        };
        next.map_or_else(|| self.unknown(at, "the value of auto() does not fit in 64 bits"), |n| Ok(ConstValue::Int(n)))
    }

    /// Returns true if all conditions have the required truth values; `None` if that is not known.
    pub fn holds(&self, conditions: &Conditions<'p>) -> Option<bool> {
        let holds = |(condition, wanted): &(&Expr, bool)| {
            let found = if is_main_guard(condition) { Some(false) } else { self.eval(condition).ok()?.truth() };
            Some(found? == *wanted)
        };
        let all: Vec<Option<bool>> = conditions.iter().map(holds).collect();
        if all.contains(&Some(false)) { Some(false) } else { all.into_iter().collect::<Option<Vec<_>>>().map(|_| true) }
    }

    /// The value of a parameter of an enclosing function: the argument of a call, or its default.
    fn parameter(
        &self,
        def: &'p ruff_python_ast::StmtFunctionDef,
        n: usize,
        name: &str,
        at: &Expr,
    ) -> Result<ConstValue, Unknown> {
        if let Some(argument) = self.argument(def, n) {
            return argument.map_err(|what| (at.range(), what));
        }
        // No call is known to have created this function: take the argument of the first call in
        // the file.
        let file = self.program.scopes[self.scope].file;
        let outer = self.within(file);
        let calls = self.program.calls.get(file).and_then(|calls| calls.get(def.name.as_str()));
        let calls = calls.map_or(&[][..], Vec::as_slice);
        let argument = |call: &&'p ExprCall| {
            let named = call.arguments.find_keyword(name).map(|keyword| &keyword.value);
            let there = Evaluator { before: Some((file, call.range().start())), ..outer.within(file) };
            named.or(call.arguments.args.get(n)).map(|value| there.eval(value))
        };
        if let Some(found) = calls.iter().find_map(argument) {
            return found.map_err(|(_, what)| (at.range(), what));
        }
        let default = def.parameters.iter_non_variadic_params().nth(n).and_then(|p| p.default.as_deref());
        match default {
            Some(value) => outer.eval(value).map_err(|(_, what)| (at.range(), what)),
            None => self.unknown(
                at,
                format!("'{name}' is a parameter of the enclosing function '{}', and its value is not known at compile time", def.name.as_str()),
            ),
        }
    }
}

/// Returns true for `if __name__ == …`, which is false when the file is imported for its kernels.
fn is_main_guard(condition: &Expr) -> bool {
    let Expr::Compare(compare) = condition else { return false };
    matches!(compare.left.as_ref(), Expr::Name(name) if name.id.as_str() == "__name__")
}
