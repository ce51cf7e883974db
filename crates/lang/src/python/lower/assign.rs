//! Assignments: to names, to elements of arrays, to components and fields.

use bornite_ir::{Atomic, Stmt as Ir};
use ruff_python_ast::{Expr, Operator, StmtAssign, StmtAugAssign};
use ruff_text_size::Ranged;

use super::value::{Binding, Element, Run, Step, Val};
use super::{Lower, Lowers};
use crate::python::fixed::Fixed;
use crate::python::types::{Pattern, Ty, spelled};

impl<'p> Lower<'p> {
    pub(super) fn assign(&mut self, assign: &'p StmtAssign) -> Lowers {
        let [target] = &assign.targets[..] else {
            let hint = "assign each name in a line of its own".to_owned();
            return self.fail(assign, "one value is assigned to several names".into(), "", Some(hint));
        };
        let Expr::Tuple(targets) = target else {
            let val = self.eval(&assign.value)?;
            return self.store(target, val, &assign.value);
        };
        let names: Vec<&'p str> =
            targets.elts.iter().filter_map(|one| one.as_name_expr().map(|name| name.id.as_str())).collect();
        if names.len() != targets.elts.len() {
            let hint = "assign to names first, then store each".to_owned();
            return self.fail(target, "several values can only be assigned to names".into(), "", Some(hint));
        }
        let vals = match assign.value.as_ref() {
            Expr::Call(call) if self.is_tid(call) => {
                let ids = self.tid_call(names.len(), call)?;
                ids.into_iter().map(Val::Run).collect()
            }
            value => match self.eval(value)? {
                Val::Tuple(all) => all,
                Val::Shape(array) => {
                    array.extents().into_iter().map(|id| Val::Run(Run::new(id, crate::python::types::I32))).collect()
                }
                other => {
                    let what = match self.value(other, value) {
                        Ok(run) => format!("{} cannot be taken apart", self.type_name(run.ty)),
                        Err(noted) => return Err(noted),
                    };
                    let hint = "name its components: v[0], v[1]".to_owned();
                    return self.fail(value, what, "a tuple is expected", Some(hint));
                }
            },
        };
        if vals.len() != names.len() {
            let what = format!("{} values are assigned to {} names", vals.len(), names.len());
            return self.fail(assign, what, "", None);
        }
        // All are read before any is assigned: a, b = b, a.
        let mut read = vec![];
        for val in vals {
            read.push(self.settled(val, assign.value.as_ref())?);
        }
        for (name, val) in names.into_iter().zip(read) {
            self.assign_name(name, val, target)?;
        }
        Ok(())
    }

    /// A value that later stores do not change.
    fn settled(&mut self, val: Val, at: &impl Ranged) -> Lowers<Val> {
        Ok(match val {
            Val::Element(element) => Val::Run(self.load(&element, at)?),
            other => other,
        })
    }

    /// Assigns to what a target names.
    fn store(&mut self, target: &'p Expr, val: Val, at: &'p Expr) -> Lowers {
        match target {
            Expr::Name(name) => {
                // A name for a constant is one too; what another name stands for is copied.
                let mut val = self.settled(val, at)?;
                if let (Val::Run(run), Expr::Name(_)) = (&mut val, at) {
                    run.constant = None;
                }
                if matches!(val, Val::Fixed(crate::python::fixed::Fixed::None)) {
                    return self.fail(at, "this has no value".into(), "None", None);
                }
                self.assign_name(name.id.as_str(), val, target)
            }
            Expr::Subscript(_) | Expr::Attribute(_) => {
                let (root, path) = self.target(target)?;
                match root {
                    Root::Element(mut element) => {
                        element.path.extend(path);
                        let run = self.value(val, at)?;
                        self.store_element(&element, run, target, at)
                    }
                    Root::Array(array) => self.store_all(&array, target),
                    Root::Name(name, whole) => {
                        let run = self.value(val, at)?;
                        let wanted = path.last().map_or(whole.ty, |step| step.ty());
                        let run = self.as_part(run, wanted, target, at)?;
                        let id = self.with_part(&whole, &path, run.id, target)?;
                        self.assign_name(&name, Val::Run(Run::new(id, whole.ty)), target)
                    }
                    Root::Aggregate(name, fields) => {
                        let val = self.settled(val, at)?;
                        self.store_field(&name, &fields, &path, val, target, at)
                    }
                }
            }
            other => self.fail(other, "this cannot be assigned to".into(), "a name, an element or a field", None),
        }
    }

    /// A field of a struct with arrays.
    fn store_field(
        &mut self,
        name: &str,
        fields: &[u32],
        path: &[Step],
        val: Val,
        target: &'p Expr,
        at: &'p Expr,
    ) -> Lowers {
        let Some(Binding::Val(mut whole)) = self.frame().names.get(name).cloned() else {
            return self.fail(target, format!("'{name}' has no value"), "", None);
        };
        let (mut place, mut pattern) = (&mut whole, Pattern::Any);
        for &n in fields {
            match place {
                Val::Aggregate(of, inner) if (n as usize) < inner.len() => {
                    pattern = self.fields_of(*of, target)?[n as usize].1.clone();
                    place = &mut inner[n as usize];
                }
                _ => return self.fail(target, "this cannot be assigned to".into(), "", None),
            }
        }
        let new = match (&*place, val) {
            (Val::Run(_) | Val::Held(..), val) => {
                let old = self.value(place.clone(), target)?;
                let run = self.value(val, at)?;
                let wanted = path.last().map_or(old.ty, |step| step.ty());
                let run = self.as_part(run, wanted, target, at)?;
                let id = self.with_part(&old, path, run.id, target)?;
                if let Val::Held(local, _) = place {
                    self.w.b.assign(*local, id);
                    return Ok(());
                }
                Val::Run(Run::new(id, old.ty))
            }
            (Val::Array(_) | Val::Fixed(Fixed::None), Val::Array(array)) => {
                let is_it = |(element, rank): (&Pattern, u8)| {
                    element.fit(array.element).is_some() && rank as usize == array.rank()
                };
                if !matches!(&pattern, Pattern::Array(element, rank) if is_it((element, *rank))) {
                    let (found, wanted) = (self.val_name(&Val::Array(array)), pattern.name(&self.struct_name()));
                    return self.fail(at, format!("the field is {wanted}, not {found}"), "of another type", None);
                }
                Val::Array(array)
            }
            _ => return self.fail(target, "this cannot be assigned to".into(), "", None),
        };
        *place = new;
        self.assign_name(name, whole, target)
    }

    /// Checks the type of what is stored in a component or field; constants of a vector may be of another.
    fn as_part(&mut self, run: Run, wanted: Ty, target: &'p Expr, at: &'p Expr) -> Lowers<Run> {
        if run.ty == wanted {
            return Ok(run);
        }
        if let (Some(fixed), Ty::Scalar(s)) = (&run.constant, wanted)
            && fixed.number().is_some()
            && !matches!(target, Expr::Attribute(_))
        {
            return self.constant_as(&run, s, at);
        }
        // A part of several components may be given one number for all.
        if let (Ty::Vector(s, _), Ty::Scalar(t)) = (wanted, run.ty)
            && s == t
        {
            let ty = self.ir_type(wanted, at)?;
            return Ok(Run::new(self.w.b.construct(ty, &[run.id]), wanted));
        }
        let numbers = run.ty.scalar().is_some() && wanted.scalar().is_some();
        let (found, wanted) = (self.type_name(run.ty), self.type_name(wanted));
        let hint = numbers.then(|| format!("convert it: {}", spelled(&wanted)));
        self.fail(at, format!("{found} is assigned to what is {wanted}"), &format!("{wanted} is expected"), hint)
    }

    fn store_element(&mut self, element: &Element, run: Run, target: &'p Expr, at: &'p Expr) -> Lowers {
        let wanted = element.ty();
        let run = if element.path.is_empty() {
            if run.ty != wanted {
                let numbers = run.ty.scalar().is_some() && wanted.scalar().is_some();
                let (found, wanted) = (self.type_name(run.ty), self.type_name(wanted));
                let hint = numbers.then(|| format!("convert it: {}", spelled(&wanted)));
                let what = format!("{found} is stored in an array of {wanted}");
                return self.fail(at, what, &format!("{wanted} is expected"), hint);
            }
            run
        } else {
            self.as_part(run, wanted, target, at)?
        };
        self.put(element, run, target)
    }

    /// Writes an element, or a part of it.
    pub(super) fn put(&mut self, element: &Element, run: Run, at: &impl Ranged) -> Lowers {
        if let Some(part) = self.part_of(element, at)? {
            return self.store_part(element, &part, run.id, at);
        }
        if !element.path.is_empty() {
            return self.for_each_choice(element, &mut |lower, chosen| match lower.part_of(chosen, at)? {
                Some(part) => lower.store_part(chosen, &part, run.id, at),
                None => Ok(()),
            });
        }
        let value = run.id;
        let args = self.places(&element.array, &element.at);
        self.wrote(&element.array);
        match bornite_ir::Args::new(&args) {
            Some(args) => self.w.stmt(Ir::Store { view: element.array.view, at: args, value }),
            None => return self.fail(at, "too many indices".into(), "", None),
        }
        Ok(())
    }

    pub(super) fn wrote(&mut self, array: &super::value::Array) {
        if let bornite_ir::View::Param(bornite_ir::ParamId(n)) = array.view {
            self.written[n as usize] = true;
        }
    }

    /// `a[i] = x` of an array with more dimensions, `a[1:3] = x`.
    fn store_all(&mut self, array: &super::value::Array, target: &'p Expr) -> Lowers {
        let rank = array.axes.len();
        let left = array.rank();
        let (what, hint) = if left < rank && left > 0 {
            let what = format!("an array of {rank} dimensions is given {} indices", rank - left);
            (what, "give an index for each dimension".to_owned())
        } else {
            ("a part of an array is assigned at once".to_owned(), "write a loop over its elements".to_owned())
        };
        self.fail(target, what, "an array, not an element", Some(hint))
    }

    pub(super) fn augment(&mut self, assign: &'p StmtAugAssign) -> Lowers {
        let target = assign.target.as_ref();
        if let Expr::Name(name) = target {
            let old = self.eval(target)?;
            let new = self.eval(&assign.value)?;
            let run = self.binary(assign.op, old, new, assign, (target, &assign.value))?;
            return self.assign_name(name.id.as_str(), Val::Run(run), assign);
        }
        let (root, path) = self.target(target)?;
        match root {
            Root::Element(mut element) => {
                element.path.extend(path);
                let atomic = match assign.op {
                    Operator::Add => Some(Atomic::Add),
                    Operator::Sub => Some(Atomic::Sub),
                    Operator::BitAnd => Some(Atomic::And),
                    Operator::BitOr => Some(Atomic::Or),
                    Operator::BitXor => Some(Atomic::Xor),
                    _ => None,
                };
                let scalar = element.ty().element();
                let new = self.eval(&assign.value)?;
                let mut new = self.value(new, assign.value.as_ref())?;
                if let (Some(fixed), Ty::Scalar(s), false) = (&new.constant, element.ty(), element.path.is_empty())
                    && fixed.number().is_some()
                    && new.ty != element.ty()
                {
                    new = self.constant_as(&new, s, assign.value.as_ref())?;
                }
                if let (Some(atomic), Some(scalar)) = (atomic, scalar)
                    && atomic.takes(scalar)
                    && new.ty == element.ty()
                {
                    return match element.path.is_empty() || self.part_of(&element, assign)?.is_some() {
                        true => self.atomic(atomic, &element, new, assign).map(|_| ()),
                        false => self.for_each_choice(&element, &mut |lower, chosen| {
                            lower.atomic(atomic, chosen, new.clone(), assign).map(|_| ())
                        }),
                    };
                }
                let old = self.load(&element, target)?;
                let run = self.binary(assign.op, Val::Run(old), Val::Run(new), assign, (target, &assign.value))?;
                self.store_element(&element, run, target, &assign.value)
            }
            Root::Name(name, whole) => {
                let old = self.part(&whole, &path, target)?;
                let new = self.eval(&assign.value)?;
                let new = self.value(new, assign.value.as_ref())?;
                let new = match (&new.constant, old.ty) {
                    (Some(fixed), Ty::Scalar(s)) if fixed.number().is_some() && new.ty != old.ty => {
                        let _ = fixed;
                        self.constant_as(&new, s, assign.value.as_ref())?
                    }
                    _ => new,
                };
                let run = self.binary(assign.op, Val::Run(old), Val::Run(new), assign, (target, &assign.value))?;
                let wanted = path.last().map_or(whole.ty, |step| step.ty());
                let run = self.as_part(run, wanted, target, &assign.value)?;
                let id = self.with_part(&whole, &path, run.id, target)?;
                self.assign_name(&name, Val::Run(Run::new(id, whole.ty)), target)
            }
            Root::Array(_) | Root::Aggregate(..) => {
                let old = self.eval(target)?;
                let new = self.eval(&assign.value)?;
                let run = self.binary(assign.op, old, new, assign, (target, &assign.value))?;
                self.store(target, Val::Run(run), &assign.value)
            }
        }
    }

    /// An atomic update of an element; its value from before.
    pub(super) fn atomic(&mut self, atomic: Atomic, element: &Element, value: Run, at: &impl Ranged) -> Lowers<Run> {
        let ty = element.ty();
        if !ty.element().is_some_and(|scalar| atomic.takes(scalar)) {
            let what = format!("an atomic '{}' of {}", atomic.name(), self.type_name(ty));
            let bits = matches!(atomic, Atomic::And | Atomic::Or | Atomic::Xor);
            let kind =
                if bits { "32- and 64-bit integers are possible" } else { "32- and 64-bit numbers are possible" };
            return self.fail(at, what, kind, None);
        }
        if let Some(part) = self.part_of(element, at)? {
            return self.update_part(atomic, element, &part, value.id, at);
        }
        let args = self.places(&element.array, &element.at);
        self.wrote(&element.array);
        let Some(args) = bornite_ir::Args::new(&args) else {
            return self.fail(at, "too many indices".into(), "", None);
        };
        let id = self.w.b.atomic(atomic, element.array.view, args, value.id);
        Ok(Run::new(id, ty))
    }

    /// What an assignment's target is a part of, and the way to that part.
    fn target(&mut self, target: &'p Expr) -> Lowers<(Root, Vec<Step>)> {
        let (inner, step): (&'p Expr, &'p Expr) = match target {
            Expr::Subscript(subscript) => (&subscript.value, &subscript.slice),
            Expr::Attribute(attribute) => (&attribute.value, target),
            Expr::Name(name) => {
                if let Some(Binding::Val(Val::Aggregate(..))) = self.frame().names.get(name.id.as_str()) {
                    return Ok((Root::Aggregate(name.id.as_str().to_owned(), vec![]), vec![]));
                }
                return match self.eval(target)? {
                    Val::Run(run) => Ok((Root::Name(name.id.as_str().to_owned(), run), vec![])),
                    Val::Array(array) => Ok((Root::Array(array), vec![])),
                    Val::Element(element) => Ok((Root::Element(element), vec![])),
                    Val::Shape(_) => self.fail(target, "a shape cannot be changed".into(), "", None),
                    _ => self.fail(target, format!("'{}' cannot be changed", name.id.as_str()), "a constant", None),
                };
            }
            other => {
                return match self.eval(other)? {
                    Val::Array(array) => Ok((Root::Array(array), vec![])),
                    Val::Element(element) => Ok((Root::Element(element), vec![])),
                    _ => self.fail(other, "this cannot be assigned to".into(), "not a variable", None),
                };
            }
        };
        let (root, mut path) = self.target(inner)?;
        match (&root, path.is_empty()) {
            (Root::Array(array), _) => {
                let array = array.clone();
                return match target {
                    Expr::Subscript(_) => match self.index_array(array, step)? {
                        Val::Element(element) => Ok((Root::Element(element), vec![])),
                        Val::Array(array) => Ok((Root::Array(array), vec![])),
                        _ => self.fail(target, "this cannot be assigned to".into(), "", None),
                    },
                    _ => self.fail(target, "an array has no fields to assign".into(), "", None),
                };
            }
            (Root::Aggregate(name, fields), true) => {
                let val = self.aggregate_at(name, fields, target)?;
                let Val::Aggregate(n, vals) = val else {
                    return self.deeper(name.clone(), fields.clone(), val, target, step);
                };
                let Expr::Attribute(attribute) = target else {
                    return self.fail(target, "a struct has fields, not elements".into(), "", None);
                };
                let at = self.field_number(n, attribute.attr.as_str(), target)?;
                let mut fields = fields.clone();
                fields.push(at);
                return match &vals[at as usize] {
                    Val::Array(array) if !matches!(array.view, bornite_ir::View::Shared(_)) => {
                        // Stores go through the array; the field itself is replaced by `store_field`.
                        Ok((Root::Array(array.clone()), vec![]))
                    }
                    _ => Ok((Root::Aggregate(name.clone(), fields), vec![])),
                };
            }
            _ => {}
        }
        let of = match &root {
            Root::Element(element) => path.last().map_or(element.ty(), |step| step.ty()),
            Root::Name(_, run) => path.last().map_or(run.ty, |step| step.ty()),
            Root::Aggregate(name, fields) => match path.last() {
                Some(step) => step.ty(),
                None => match self.aggregate_at(name, fields, target)? {
                    Val::Run(run) => run.ty,
                    _ => return self.fail(target, "this cannot be assigned to".into(), "", None),
                },
            },
            Root::Array(_) => return self.fail(target, "this cannot be assigned to".into(), "", None),
        };
        let step = match target {
            Expr::Attribute(attribute) => self.attribute_step(of, attribute.attr.as_str(), target)?,
            _ => self.subscript_step(of, step)?,
        };
        path.push(step);
        Ok((root, path))
    }

    fn aggregate_at(&mut self, name: &str, fields: &[u32], at: &impl Ranged) -> Lowers<Val> {
        let Some(Binding::Val(mut val)) = self.frame().names.get(name).cloned() else {
            return self.fail(at, format!("'{name}' has no value"), "", None);
        };
        for &n in fields {
            val = match val {
                Val::Aggregate(_, mut inner) if (n as usize) < inner.len() => inner.swap_remove(n as usize),
                _ => return self.fail(at, "there is no such field".into(), "", None),
            };
        }
        Ok(if let Val::Held(..) = val { self.seen(val) } else { val })
    }

    /// A part of a value in a struct with arrays.
    fn deeper(
        &mut self,
        name: String,
        fields: Vec<u32>,
        val: Val,
        target: &'p Expr,
        step: &'p Expr,
    ) -> Lowers<(Root, Vec<Step>)> {
        let Val::Run(run) = val else {
            return self.fail(target, "this cannot be assigned to".into(), "", None);
        };
        let step = match target {
            Expr::Attribute(attribute) => self.attribute_step(run.ty, attribute.attr.as_str(), target)?,
            _ => self.subscript_step(run.ty, step)?,
        };
        Ok((Root::Aggregate(name, fields), vec![step]))
    }
}

/// What an assignment changes a part of.
enum Root {
    /// An element in memory.
    Element(Element),
    Array(super::value::Array),
    /// A variable with its value.
    Name(String, Run),
    /// A struct with arrays: the name and the way of fields.
    Aggregate(String, Vec<u32>),
}
