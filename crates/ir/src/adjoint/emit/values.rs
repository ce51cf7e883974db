//! Values of both sweeps.

use std::collections::BTreeSet;

use super::Emitter;
use crate::adjoint::Accumulation;
use crate::adjoint::arrays::GradientArray;
use crate::adjoint::needs::Storage;
use crate::adjoint::scalar_code::{Def, Element, GroupId, LoopId, ValueId, VarId, gradient_scalar};
use crate::{Args, Components, Emit, EmitBits, ExprId, LocalId, ParamId, Scalar, Value, View};

impl Emitter<'_, '_> {
    /// Reports a fault of this module as an error of the kernel, instead of wrong code.
    pub fn inconsistent(&mut self, what: &str) -> ExprId {
        self.b.record_error(format!("internal error: {what}"));
        self.b.index_constant(0)
    }

    pub fn var(&mut self, id: VarId) -> LocalId {
        if let Some(local) = self.vars.get(&id) {
            return *local;
        }
        let var = self.code.var(id);
        let local = self.b.local(&var.name, var.init);
        self.vars.insert(id, local);
        local
    }

    pub fn set_var(&mut self, id: VarId, local: LocalId) {
        self.vars.insert(id, local);
    }

    /// The value in the forward sweep.
    pub fn forward_value(&mut self, id: ValueId) -> ExprId {
        if let Some(value) = self.code.constant(id) {
            return self.b.constant(value);
        }
        match self.forward[id.0 as usize] {
            Some(found) => found,
            None => self.inconsistent("a value is used before it is computed"),
        }
    }

    /// The value in the backward sweep, if it is available in an open block.
    fn visible(&self, id: ValueId) -> Option<ExprId> {
        self.scopes.iter().rev().find_map(|scope| scope.values.get(&id).copied())
    }

    /// The value in the backward sweep.
    pub fn value(&mut self, id: ValueId) -> ExprId {
        if self.code.value(id).is_leaf() {
            return self.forward_value(id);
        }
        if let Some(found) = self.visible(id) {
            return found;
        }
        // The values to compute again, of which operands have lower ids.
        let (mut pending, mut order) = (vec![id], BTreeSet::new());
        while let Some(next) = pending.pop() {
            let is_leaf = self.code.value(next).is_leaf();
            if is_leaf || self.visible(next).is_some() || !order.insert(next) {
                continue;
            }
            if self.needs.storage[next.0 as usize] == Storage::Recomputed {
                pending.extend(self.code.operands(next));
            }
        }
        for next in order {
            if self.visible(next).is_none() {
                let found = self.fetch(next);
                self.remember(next, found);
            }
        }
        match self.visible(id) {
            Some(found) => found,
            None => self.inconsistent("a value is not kept for the backward sweep"),
        }
    }

    pub fn remember(&mut self, id: ValueId, found: ExprId) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.values.insert(id, found);
        }
    }

    fn fetch(&mut self, id: ValueId) -> ExprId {
        match self.needs.storage[id.0 as usize] {
            Storage::Direct => self.forward_value(id),
            Storage::Variable => match self.saved.get(&id).copied() {
                Some(local) => self.b.read(local),
                None => self.inconsistent("a variable of a value is missing"),
            },
            Storage::Recomputed => self.recompute(id),
            Storage::Taped | Storage::Unused => self.inconsistent("a value is not on the tape"),
        }
    }

    fn recompute(&mut self, id: ValueId) -> ExprId {
        let scalar = self.code.value(id).scalar;
        match self.code.value(id).def.clone() {
            Def::Read(var) => {
                let found =
                    (0u32..).zip(&self.code.loops).find(|(_, each)| each.counted.is_some_and(|(v, _)| v == var));
                match found {
                    Some((n, _)) => self.iteration(LoopId(n)),
                    None => self.inconsistent("a variable is read in the backward sweep"),
                }
            }
            Def::Induction { of, init, step, op, .. } => {
                let iteration = self.iteration(of);
                let iteration = self.b.cast(scalar, &iteration);
                let [init, step] = [init, step].map(|operand| self.value(operand));
                let change = self.b.mul(&iteration, &step);
                self.b.op(op, &[&init, &change])
            }
            Def::Part(group, n) => {
                let parts = self.compute_group(group, &mut |this, id| this.value(id));
                let out = &self.code.group(group).out.components;
                for (part, found) in out.clone().into_iter().zip(&parts) {
                    self.remember(part, *found);
                }
                match parts.get(n as usize) {
                    Some(part) => *part,
                    None => self.inconsistent("an operation has no such component"),
                }
            }
            def => self.compute(&def, scalar, &mut |this, id| this.value(id)),
        }
    }

    fn iteration(&mut self, of: LoopId) -> ExprId {
        match self.scopes.iter().rev().find_map(|scope| scope.iterations.get(&of).copied()) {
            Some(found) => found,
            None => self.inconsistent("an iteration is used outside its loop"),
        }
    }

    /// Emits an op, conversion or load.
    pub fn compute(
        &mut self,
        def: &Def,
        scalar: Scalar,
        operand: &mut dyn FnMut(&mut Self, ValueId) -> ExprId,
    ) -> ExprId {
        match def {
            Def::Op(op, args) => {
                let args: Vec<ExprId> = args.iter().map(|arg| operand(self, *arg)).collect();
                self.b.op(*op, &args.iter().collect::<Vec<_>>())
            }
            Def::Cast(from) => {
                let from = operand(self, *from);
                self.b.cast(scalar, &from)
            }
            Def::Bitcast(from) => {
                let from = operand(self, *from);
                self.b.bitcast(scalar, &from)
            }
            Def::Load(element) => match self.selectors(element, operand) {
                Some(indices) => self.b.load(element.view, indices),
                None => self.inconsistent("an access has too many indices"),
            },
            _ => self.inconsistent("a value cannot be computed"),
        }
    }

    pub fn selectors(
        &mut self,
        element: &Element,
        operand: &mut dyn FnMut(&mut Self, ValueId) -> ExprId,
    ) -> Option<Args> {
        let ids: Vec<ExprId> = element.selectors().map(|id| operand(self, id)).collect();
        Args::new(&ids)
    }

    pub fn compute_group(&mut self, id: GroupId, operand: &mut dyn FnMut(&mut Self, ValueId) -> ExprId) -> Vec<ExprId> {
        let group = self.code.group(id);
        let mut args = vec![];
        for arg in &group.args {
            let components = arg.components.iter().map(|id| operand(self, *id)).collect();
            args.push(Components { ty: arg.ty, components });
        }
        group.op.body(&mut self.b, 0, group.out.ty, &args, &self.kernel.structs)
    }

    /// True if several instances may add to the element's gradient at once.
    pub fn adds_atomically(&self, view: View) -> bool {
        let View::Param(ParamId(n)) = view else { return false };
        self.request.options.accumulation == Accumulation::Atomic
            && self.arrays.uses[n as usize].gradient == GradientArray::Input { shared: true }
    }

    pub fn zero(&mut self, scalar: Scalar) -> ExprId {
        self.b.constant(Value::from_f64(scalar, 0.0))
    }

    /// Creates a variable that holds a gradient, initially 0.
    pub fn gradient_local(&mut self, scalar: Scalar) -> LocalId {
        self.b.local("gradient", Value::from_f64(gradient_scalar(scalar), 0.0))
    }
}
