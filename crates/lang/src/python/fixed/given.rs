//! What names of a file stand for, by the order of its statements and the conditions around them. Nothing is executed: what only a
//! run of the file tells is not known.

use ruff_python_ast::{Expr, ExprCall};
use ruff_text_size::{Ranged, TextSize};

use super::{Evaluator, Fixed, Unknown};
use crate::python::program::{Given, Giving, Item, Under};

/// What is said of what cannot be known.
pub(super) const OF_A_RUN: &str = ": only a run of the file tells its value";

impl<'p> Evaluator<'p, '_> {
    /// What a name was given last. Kernels are made when they are launched: they see what it is at the end, and a constant
    /// sees what others are where it stands.
    pub(super) fn given(&self, all: &[Given<'p>], scope: usize, name: &str, at: &Expr) -> Result<Fixed, Unknown> {
        // All are looked at, from the last.
        self.spent(all.len() / 256);
        let seen = |given: &&Given<'p>| self.before.is_none_or(|(of, end)| of != scope || given.at.end() <= end);
        let of_a_run = |why: &str| self.unknown(at, format!("'{name}' {why}{OF_A_RUN}"));
        for given in all.iter().rev().filter(seen) {
            let within = Evaluator { before: Some((scope, given.at.start())), ..self.within(scope) };
            match within.holds(&given.under) {
                Some(true) => {}
                Some(false) => continue,
                None => return of_a_run("is assigned under a condition"),
            }
            let found = match given.value {
                Giving::Whole(Expr::Call(call)) if within.is_auto(call) => within.next_member(scope, at),
                Giving::Whole(value) => within.eval(value),
                Giving::Part(value, n) => within.eval(value).and_then(|found| match found {
                    Fixed::List(all) if n < all.len() => Ok(all[n].clone()),
                    _ => self.unknown(at, format!("the value of '{name}' is not known beforehand")),
                }),
                Giving::More(op, value) => {
                    let before = within.given(all, scope, name, at)?;
                    within.eval(value).and_then(|more| within.binary(op, &before, &more, value))
                }
                Giving::Parameter(def, n) => return within.parameter(def, n, name, at),
                Giving::Unknown(why) => return of_a_run(why),
            };
            return found.map_err(|(_, what)| (at.range(), what));
        }
        self.unknown(at, format!("'{name}' has no value"))
    }

    /// `enum.auto()`
    fn is_auto(&self, call: &ExprCall) -> bool {
        call.arguments.is_empty() && matches!(self.eval(&call.func), Ok(Fixed::Python(name)) if name == "enum.auto")
    }

    /// What a member of an enum is that is not told: one more than the one before it, or the next bit.
    fn next_member(&self, scope: usize, at: &Expr) -> Result<Fixed, Unknown> {
        let end = self.before.map_or(TextSize::new(u32::MAX), |(_, end)| end);
        let mut members: Vec<(TextSize, usize, &str, &[Given<'p>])> = vec![];
        for (name, item) in &self.program.scopes[scope].names {
            let Item::Values(all) = item else { continue };
            let Some(first) = all.first().filter(|given| given.at.end() <= end) else { continue };
            let part = if let Giving::Part(_, n) = first.value { n } else { 0 };
            members.push((first.at.end(), part, name, all));
        }
        members.sort_by_key(|(end, part, ..)| (*end, *part));
        let is_auto = |all: &[Given<'p>]| matches!(all, [Given { value: Giving::Whole(Expr::Call(call)), .. }] if self.is_auto(call));
        let autos = members.iter().rev().take_while(|(.., all)| is_auto(all)).count();
        let told = match members.iter().rev().nth(autos) {
            None => 0,
            Some((_, _, name, all)) => match self.given(all, scope, name, at)?.int() {
                Some(n) => n,
                None => return self.unknown(at, "auto() follows a member that is no integer"),
            },
        };
        let next = if self.program.scopes[scope].is_flag {
            let bits = 64 - told.max(0).leading_zeros() + autos as u32;
            1i64.checked_shl(bits).filter(|n| *n > 0)
        } else {
            told.checked_add(autos as i64 + 1)
        };
        next.map_or_else(|| self.unknown(at, "auto() beyond 64 bits"), |n| Ok(Fixed::Int(n)))
    }

    /// Whether all conditions are as they have to be; `None` if that is not known.
    pub fn holds(&self, under: &Under<'p>) -> Option<bool> {
        let holds = |(condition, wanted): &(&Expr, bool)| {
            let found = if is_main(condition) { Some(false) } else { self.eval(condition).ok()?.truth() };
            Some(found? == *wanted)
        };
        let all: Vec<Option<bool>> = under.iter().map(holds).collect();
        if all.contains(&Some(false)) { Some(false) } else { all.into_iter().collect::<Option<Vec<_>>>().map(|_| true) }
    }

    /// A parameter of a function around a kernel: what it is by default, or what a call in the file gives it.
    fn parameter(
        &self,
        def: &'p ruff_python_ast::StmtFunctionDef,
        n: usize,
        name: &str,
        at: &Expr,
    ) -> Result<Fixed, Unknown> {
        if let Some(given) = self.argument(def, n) {
            return given.map_err(|what| (at.range(), what));
        }
        // No call is known to have made what is asked for: any tells what the parameter may be.
        let file = self.program.scopes[self.scope].file;
        let outer = self.within(file);
        let calls = self.program.calls.get(file).and_then(|calls| calls.get(def.name.as_str()));
        let calls = calls.map_or(&[][..], Vec::as_slice);
        let given = |call: &&'p ExprCall| {
            let named = call.arguments.find_keyword(name).map(|keyword| &keyword.value);
            let there = Evaluator { before: Some((file, call.range().start())), ..outer.within(file) };
            named.or(call.arguments.args.get(n)).map(|value| there.eval(value))
        };
        if let Some(found) = calls.iter().find_map(given) {
            return found.map_err(|(_, what)| (at.range(), what));
        }
        let default = def.parameters.iter_non_variadic_params().nth(n).and_then(|p| p.default.as_deref());
        match default {
            Some(value) => outer.eval(value).map_err(|(_, what)| (at.range(), what)),
            None => self.unknown(
                at,
                format!("'{name}' is a parameter of '{}' around it, whose value is not known", def.name.as_str()),
            ),
        }
    }
}

/// Whether a condition is that the file is run by itself, which kernels of it need not be.
fn is_main(condition: &Expr) -> bool {
    let Expr::Compare(compare) = condition else { return false };
    matches!(compare.left.as_ref(), Expr::Name(name) if name.id.as_str() == "__name__")
}
