//! Backward sweep: gradients of values, variables and elements, statement by statement.

use std::collections::BTreeMap;

use super::arrays::GradientArray;
use super::emit::{Emitter, Scope};
use super::needs::{Taped, algebra_uses, derivative_uses, has_gradient, store_has_work};
use super::scalar_code::{BlockId, Def, Element, GroupId, LoopId, ScalarStmt, ValueId, VarId, gradient_scalar};
use crate::{Args, Atomic, Components, Emit, EmitBits, ExprId, LocalId, Op, ParamId, Scalar, Stmt, Value, View};

impl Emitter<'_, '_> {
    pub fn backward_block(&mut self, id: BlockId, iteration: Option<(LoopId, ExprId)>) {
        let (code, needs) = (self.code, self.needs);
        self.scopes.push(Scope {
            block: id,
            values: BTreeMap::new(),
            iterations: iteration.into_iter().collect(),
            counts: BTreeMap::new(),
            sums: BTreeMap::new(),
        });
        self.pop_taped(id);
        for stmt in code.block(id).stmts.iter().rev() {
            if needs.has_work[id.0 as usize] {
                self.backward_stmt(stmt);
            }
        }
        self.scopes.pop();
    }

    fn backward_stmt(&mut self, stmt: &ScalarStmt<'_>) {
        let needs = self.needs;
        match stmt {
            ScalarStmt::Let(id) if self.activity.value(*id) => self.backward_value(*id),
            ScalarStmt::Let(_) => {}
            ScalarStmt::Algebra(group) => self.backward_group(*group),
            ScalarStmt::Assign(var, value) if self.activity.var(*var) => {
                let local = self.var_gradient(*var);
                let gradient = self.b.read(local);
                let zero = self.zero(gradient_scalar(self.code.var(*var).scalar));
                self.b.assign(local, zero);
                self.contribute(*value, gradient);
            }
            ScalarStmt::Assign(..) => {}
            ScalarStmt::Store { element, value, .. }
                if store_has_work(self.kernel, self.code, self.activity, self.arrays, element, *value) =>
            {
                self.backward_store(element, *value);
            }
            ScalarStmt::Store { .. } => {}
            ScalarStmt::AtomicAdd { element, value, negated, .. } if self.activity.value(*value) => {
                let Some((view, indices)) = self.gradient_element(element) else { return };
                let found = self.b.load(view, indices);
                let gradient = self.b.cast(gradient_scalar(self.code.value(*value).scalar), &found);
                let gradient = if *negated { self.b.neg(&gradient) } else { gradient };
                self.contribute(*value, gradient);
            }
            ScalarStmt::AtomicAdd { .. } => {}
            ScalarStmt::Declare(array) => self.clear_local_gradient(array.0 as usize),
            ScalarStmt::If { condition, then, otherwise } => {
                let work = [then, otherwise].map(|block| needs.has_work[block.0 as usize]);
                if !work.contains(&true) {
                    return;
                }
                let condition = self.value(*condition);
                let [then, otherwise] = [then, otherwise].map(|block| {
                    self.b.open_block();
                    self.backward_block(*block, None);
                    self.b.close_block()
                });
                self.b.push_stmt(Stmt::If { condition, then, otherwise });
            }
            ScalarStmt::Loop(id) => self.backward_loop(*id),
        }
    }

    fn backward_loop(&mut self, id: LoopId) {
        let code = self.code;
        let each = code.each_loop(id);
        if !self.needs.has_work[each.body.0 as usize] {
            return;
        }
        let count = match each.counted {
            Some((_, end)) if each.exit.is_none() => self.value(end),
            _ => {
                let taped = self.scopes.last().and_then(|scope| scope.counts.get(&id).copied());
                match (taped, self.iterations.get(&id).copied()) {
                    (Some(taped), _) => taped,
                    (None, Some(local)) => self.b.read(local),
                    (None, None) => self.inconsistent("a loop is not counted"),
                }
            }
        };
        let counter = self.b.open_loop("back");
        let back = self.b.read(counter);
        let one = self.b.index_constant(1);
        let last = self.b.sub(&count, &one);
        let iteration = self.b.sub(&last, &back);
        self.backward_block(each.body, Some((id, iteration)));
        self.b.close_loop(counter, count);
    }

    fn pop_taped(&mut self, block: BlockId) {
        let needs = self.needs;
        let items = &needs.taped[block.0 as usize];
        let (Some(tape), false) = (self.tape, items.is_empty()) else { return };
        let top = self.b.read(tape.top);
        let count = self.b.index_constant(items.len() as u64);
        let first = self.b.sub(&top, &count);
        self.b.assign(tape.top, first);
        for (n, item) in items.iter().enumerate() {
            let offset = self.b.index_constant(n as u64);
            let at = self.b.add(&first, &offset);
            let word = self.b.load(tape.array, at);
            match item {
                Taped::Value(id) => {
                    let value = self.value_of_word(self.code.value(*id).scalar, word);
                    self.remember(*id, value);
                }
                Taped::Iterations(id) => {
                    let value = self.value_of_word(self.kernel.index, word);
                    if let Some(scope) = self.scopes.last_mut() {
                        scope.counts.insert(*id, value);
                    }
                }
            }
        }
    }

    // Gradients of values.

    /// Adds to the gradient of a value, if it carries one.
    fn contribute(&mut self, id: ValueId, gradient: ExprId) {
        if !self.activity.value(id) {
            return;
        }
        let block = self.code.value(id).block;
        let own = self.scopes.last().filter(|scope| scope.block == block).map(|scope| scope.sums.get(&id).copied());
        match own {
            Some(sum) => {
                let sum = sum.map_or(gradient, |sum| self.b.add(&sum, &gradient));
                if let Some(scope) = self.scopes.last_mut() {
                    scope.sums.insert(id, sum);
                }
            }
            None => {
                let local = self.value_gradient(id);
                self.add_to(local, gradient);
            }
        }
    }

    fn value_gradient(&mut self, id: ValueId) -> LocalId {
        if let Some(local) = self.value_gradients.get(&id) {
            return *local;
        }
        let local = self.gradient_local(self.code.value(id).scalar);
        self.value_gradients.insert(id, local);
        local
    }

    fn var_gradient(&mut self, id: VarId) -> LocalId {
        if let Some(local) = self.var_gradients.get(&id) {
            return *local;
        }
        let local = self.gradient_local(self.code.var(id).scalar);
        self.var_gradients.insert(id, local);
        local
    }

    fn add_to(&mut self, local: LocalId, gradient: ExprId) {
        let old = self.b.read(local);
        let sum = self.b.add(&old, &gradient);
        self.b.assign(local, sum);
    }

    /// Takes the gradient of a value at its definition; `None` if it is 0.
    fn take(&mut self, id: ValueId) -> Option<ExprId> {
        let sum = self.scopes.last_mut().and_then(|scope| scope.sums.remove(&id));
        let Some(local) = self.value_gradients.get(&id).copied() else { return sum };
        let found = self.b.read(local);
        let zero = self.zero(gradient_scalar(self.code.value(id).scalar));
        self.b.assign(local, zero);
        Some(sum.map_or(found, |sum| self.b.add(&sum, &found)))
    }

    fn backward_value(&mut self, id: ValueId) {
        let Some(gradient) = self.take(id) else { return };
        let code = self.code;
        match &code.value(id).def {
            Def::Read(var) if self.activity.var(*var) => {
                let local = self.var_gradient(*var);
                self.add_to(local, gradient);
            }
            Def::Op(op, args) => self.backward_op(id, *op, args, gradient),
            Def::Cast(from) => {
                let gradient = self.b.cast(gradient_scalar(code.value(*from).scalar), &gradient);
                self.contribute(*from, gradient);
            }
            // Between floats of one width, of which there is only one type besides 16 bits.
            Def::Bitcast(from) if code.value(*from).scalar == code.value(id).scalar => {
                self.contribute(*from, gradient);
            }
            Def::Bitcast(_) => {
                self.inconsistent("a bitcast carries a gradient");
            }
            Def::Load(element) if has_gradient(self.kernel, self.activity, self.arrays, element) => {
                self.add_to_element(element, gradient);
            }
            _ => {}
        }
    }

    fn backward_op(&mut self, id: ValueId, op: Op, args: &[ValueId], gradient: ExprId) {
        let active: Vec<bool> = args.iter().map(|arg| self.activity.value(*arg)).collect();
        let Some(uses) = derivative_uses(op, &active) else {
            self.inconsistent("an op has no derivative");
            return;
        };
        let operands: Vec<ExprId> =
            args.iter().zip(uses.args).map(|(arg, used)| self.derivative_operand(*arg, used)).collect();
        let out = self.derivative_operand(id, uses.out);
        let found = op.derivative(&mut self.b, &operands.iter().collect::<Vec<_>>(), &out, &gradient);
        // These copy or negate the gradient.
        let is_linear = matches!(op, Op::Add | Op::Sub | Op::Neg | Op::Select | Op::Min | Op::Max);
        let guard = (self.activity.is_discardable(id) && !is_linear).then(|| self.is_zero(gradient));
        for (arg, part) in args.iter().zip(found.unwrap_or_default()) {
            if let Some(part) = part
                && self.activity.value(*arg)
            {
                let part = guard.map_or(part, |guard| self.zero_where(guard, part));
                self.contribute(*arg, part);
            }
        }
    }

    fn is_zero(&mut self, gradient: ExprId) -> ExprId {
        let zero = self.b.constant_like(&gradient, 0.0);
        self.b.op(Op::Eq, &[&gradient, &zero])
    }

    fn zero_where(&mut self, condition: ExprId, value: ExprId) -> ExprId {
        let zero = self.b.constant_like(&value, 0.0);
        self.b.select(&condition, &zero, &value)
    }

    /// The value in its compute type; a placeholder if the derivative does not use it.
    fn derivative_operand(&mut self, id: ValueId, used: bool) -> ExprId {
        let scalar = self.code.value(id).scalar.compute_type();
        if !used {
            return self.b.constant(Value::from_bits(scalar, 0));
        }
        let value = self.value(id);
        self.b.cast(scalar, &value)
    }

    fn backward_group(&mut self, id: GroupId) {
        let code = self.code;
        let group = code.group(id);
        let mut gradients = vec![];
        for part in &group.out.components {
            gradients.push(if self.activity.value(*part) { self.take(*part) } else { None });
        }
        if gradients.iter().all(Option::is_none) {
            return;
        }
        let scalar = group.out.components.first().map_or(Scalar::F32, |part| gradient_scalar(code.value(*part).scalar));
        let zero = self.zero(scalar);
        let gradients: Vec<ExprId> = gradients.into_iter().map(|gradient| gradient.unwrap_or(zero)).collect();
        let active = |id| self.activity.value(id);
        let uses = algebra_uses(self.kernel, group.op, &group.args, &group.out, &active).unwrap_or_default();
        let mut uses = uses.into_iter();
        let mut components = |this: &mut Self, part: &Components<ValueId>| Components {
            ty: part.ty,
            components: (part.components.iter())
                .map(|id| this.derivative_operand(*id, uses.next().unwrap_or(true)))
                .collect(),
        };
        let args: Vec<Components<ExprId>> = group.args.iter().map(|arg| components(self, arg)).collect();
        let out = components(self, &group.out);
        let found = group.op.derivative(&mut self.b, 0, &args, &out, &gradients, &self.kernel.structs);
        let Some(found) = found else {
            self.inconsistent("an operation has no derivative");
            return;
        };
        let mut guard = None;
        if group.out.components.iter().any(|part| self.activity.is_discardable(*part)) {
            for gradient in gradients {
                let is_zero = self.is_zero(gradient);
                guard = Some(guard.map_or(is_zero, |all| self.b.op(Op::And, &[&all, &is_zero])));
            }
        }
        for (arg, parts) in group.args.iter().zip(found) {
            for (id, part) in arg.components.iter().zip(parts) {
                let part = guard.map_or(part, |guard| self.zero_where(guard, part));
                self.contribute(*id, part);
            }
        }
    }

    // Gradients in memory.

    /// The view and indices of an element's gradient.
    fn gradient_element(&mut self, element: &Element) -> Option<(View, Args)> {
        match element.view {
            View::Param(ParamId(n)) => {
                let view = self.gradients[n as usize]?;
                let mut ids: Vec<ExprId> = element.selectors().map(|id| self.value(id)).collect();
                if let (Some(offset), Some(first)) = (self.copy_offsets.get(&n).copied(), ids.first_mut()) {
                    *first = self.b.add(first, &offset);
                }
                Some((view.into(), Args::new(&ids)?))
            }
            View::Local(id) => {
                let (array, ..) = self.local_gradients[id.0 as usize]?;
                let local = &self.kernel.local_arrays[id.0 as usize];
                let count = local.ty.component_count(&self.kernel.structs) as u64;
                let mut at: Option<ExprId> = None;
                for (index, dim) in element.indices.iter().zip(&local.dims) {
                    let index = self.value(*index);
                    let extent = self.b.index_constant(dim.extent.resolve(&[]).max(0) as u64);
                    at = Some(match at {
                        Some(at) => {
                            let row = self.b.mul(&at, &extent);
                            self.b.add(&row, &index)
                        }
                        None => index,
                    });
                }
                let mut at = at?;
                if let Some(component) = element.component {
                    let (component, count) = (self.value(component), self.b.index_constant(count));
                    let start = self.b.mul(&at, &count);
                    at = self.b.add(&start, &component);
                }
                Some((array.into(), at.into()))
            }
            View::Shared(_) => None,
        }
    }

    fn element_scalar(&self, view: View, value: Scalar) -> Scalar {
        match view {
            View::Local(id) => self.local_gradients[id.0 as usize].map_or(value, |(_, scalar, _)| scalar),
            _ => value,
        }
    }

    fn add_to_element(&mut self, element: &Element, gradient: ExprId) {
        let Some((view, indices)) = self.gradient_element(element) else {
            self.inconsistent("a gradient array is missing");
            return;
        };
        let wide = self.b.scalar(&gradient);
        if self.adds_atomically(element.view) {
            self.b.atomic(Atomic::Add, view, indices, gradient);
            return;
        }
        let old = self.b.load(view, indices);
        let scalar = self.b.scalar(&old);
        // Narrow elements are added to in their compute type.
        let sum_type = if scalar.compute_type() == Scalar::F64 { Scalar::F64 } else { wide };
        let [old, gradient] = [old, gradient].map(|part| self.b.cast(sum_type, &part));
        let sum = self.b.add(&old, &gradient);
        let sum = self.b.cast(scalar, &sum);
        self.b.store(view, indices, sum);
    }

    fn backward_store(&mut self, element: &Element, value: ValueId) {
        let Some((view, indices)) = self.gradient_element(element) else {
            self.inconsistent("a gradient array is missing");
            return;
        };
        let scalar = self.code.value(value).scalar;
        let found = self.activity.value(value).then(|| self.b.load(view, indices));
        let cleared = match element.view {
            View::Param(ParamId(n)) => self.arrays.uses[n as usize].gradient == GradientArray::Output { cleared: true },
            _ => true,
        };
        if cleared {
            let zero = self.zero(self.element_scalar(element.view, scalar));
            self.b.store(view, indices, zero);
        }
        if let Some(found) = found {
            let gradient = self.b.cast(gradient_scalar(scalar), &found);
            self.contribute(value, gradient);
        }
    }

    pub fn clear_local_gradient(&mut self, n: usize) {
        let Some((array, scalar, count)) = self.local_gradients[n] else { return };
        let counter = self.b.open_loop("element");
        let at = self.b.read(counter);
        let zero = self.zero(scalar);
        self.b.store(array, at, zero);
        let end = self.b.index_constant(count);
        self.b.close_loop(counter, end);
    }
}
