//! Forward sweep: the instance's own computation, whose values are kept where they are needed.

use super::emit::{Emitter, Tape};
use super::needs::{Storage, Taped};
use super::scalar_code::{BlockId, Def, LoopId, ScalarStmt, ValueId};
use crate::{Check, Emit, EmitBits, ExprId, Scalar, Stmt, Value};

impl Emitter<'_, '_> {
    pub fn forward_block(&mut self, id: BlockId) {
        let code = self.code;
        for stmt in &code.block(id).stmts {
            self.forward_stmt(stmt);
        }
        self.push_taped(id);
    }

    fn forward_stmt(&mut self, stmt: &ScalarStmt<'_>) {
        let code = self.code;
        match stmt {
            ScalarStmt::Let(id) => {
                let definition = code.value(*id);
                let found = match &definition.def {
                    Def::Read(var) | Def::Induction { var, .. } => {
                        let local = self.var(*var);
                        self.b.read(local)
                    }
                    def => self.compute(def, definition.scalar, &mut |this, id| this.forward_value(id)),
                };
                self.computed(*id, found);
            }
            ScalarStmt::Algebra(group) => {
                let parts = self.compute_group(*group, &mut |this, id| this.forward_value(id));
                for (id, part) in code.group(*group).out.components.iter().zip(parts) {
                    self.computed(*id, part);
                }
            }
            ScalarStmt::Assign(var, value) => {
                let (local, value) = (self.var(*var), self.forward_value(*value));
                self.b.assign(local, value);
            }
            ScalarStmt::Store { element, value, .. } if self.arrays.is_replayed(element.view) => {
                let value = self.forward_value(*value);
                match self.selectors(element, &mut |this, id| this.forward_value(id)) {
                    Some(indices) => self.b.store(element.view, indices, value),
                    None => {
                        self.inconsistent("a store has too many indices");
                    }
                }
            }
            ScalarStmt::Store { .. } | ScalarStmt::AtomicAdd { .. } => {}
            ScalarStmt::Declare(array) => self.b.push_stmt(Stmt::Declare(*array)),
            ScalarStmt::If { condition, then, otherwise } => {
                let condition = self.forward_value(*condition);
                let [then, otherwise] = [then, otherwise].map(|block| {
                    self.b.open_block();
                    self.forward_block(*block);
                    self.b.close_block()
                });
                self.b.push_stmt(Stmt::If { condition, then, otherwise });
            }
            ScalarStmt::Loop(id) => self.forward_loop(*id),
        }
    }

    /// Registers the expression of a value and keeps it if it is needed later.
    fn computed(&mut self, id: ValueId, found: ExprId) {
        self.forward[id.0 as usize] = Some(found);
        if self.needs.storage[id.0 as usize] == Storage::Variable {
            let scalar = self.code.value(id).scalar;
            let local = self.b.local("kept", Value::from_bits(scalar, 0));
            self.b.assign(local, found);
            self.saved.insert(id, local);
        }
    }

    fn forward_loop(&mut self, id: LoopId) {
        let code = self.code;
        let each = code.each_loop(id);
        let counting = each.exit.is_some() && self.needs.has_work[each.body.0 as usize];
        let iterations = counting.then(|| {
            let local = self.b.local("iterations", Value::int(self.kernel.index, 0));
            let zero = self.b.index_constant(0);
            self.b.assign(local, zero);
            self.iterations.insert(id, local);
            local
        });
        let end = each.counted.map(|(var, end)| (var, self.forward_value(end)));
        let counter = match each.counted {
            Some((var, _)) => {
                let name = code.var(var).name.clone();
                let counter = self.b.open_loop(&name);
                self.set_var(var, counter);
                Some(counter)
            }
            None => {
                self.b.open_block();
                None
            }
        };
        if let Some(local) = iterations {
            let (count, one) = (self.b.read(local), self.b.index_constant(1));
            let next = self.b.add(&count, &one);
            self.b.assign(local, next);
        }
        self.forward_block(each.body);
        if let Some(exit) = each.exit {
            let local = self.var(exit);
            let condition = self.b.read(local);
            self.b.push_stmt(Stmt::If { condition, then: vec![Stmt::Break], otherwise: vec![] });
        }
        match (counter, end) {
            (Some(counter), Some((_, end))) => self.b.close_loop(counter, end),
            _ => {
                let body = self.b.close_block();
                self.b.push_stmt(Stmt::Loop { body });
            }
        }
    }

    fn push_taped(&mut self, block: BlockId) {
        let needs = self.needs;
        let items = &needs.taped[block.0 as usize];
        let (Some(tape), false) = (self.tape, items.is_empty()) else { return };
        let top = self.b.read(tape.top);
        let count = self.b.index_constant(items.len() as u64);
        let next = self.b.add(&top, &count);
        if let Some(capacity) = tape.checked {
            let capacity_value = self.b.index_constant(capacity);
            let condition = self.b.op(crate::Op::Le, &[&next, &capacity_value]);
            let message = format!("the gradient keeps at most {capacity} values of loops per instance");
            self.b.push_stmt(Stmt::Check(Check::Assert { condition, message }));
        }
        for (n, item) in items.iter().enumerate() {
            let value = match item {
                Taped::Value(id) => self.forward_value(*id),
                Taped::Iterations(id) => match self.iterations.get(id).copied() {
                    Some(local) => self.b.read(local),
                    None => self.inconsistent("a loop is not counted"),
                },
            };
            let word = self.word_of_value(tape, value);
            let offset = self.b.index_constant(n as u64);
            let at = self.b.add(&top, &offset);
            self.b.store(tape.array, at, word);
        }
        self.b.assign(tape.top, next);
    }

    fn word_of_value(&mut self, tape: Tape, value: ExprId) -> ExprId {
        let scalar = self.b.scalar(&value);
        let bits = if scalar.is_float() { self.b.bitcast(unsigned(scalar), &value) } else { value };
        self.b.cast(tape.word, &bits)
    }

    pub fn value_of_word(&mut self, scalar: Scalar, word: ExprId) -> ExprId {
        if !scalar.is_float() {
            return self.b.cast(scalar, &word);
        }
        let bits = self.b.cast(unsigned(scalar), &word);
        self.b.bitcast(scalar, &bits)
    }
}

/// The unsigned integer type of the same width.
fn unsigned(scalar: Scalar) -> Scalar {
    match scalar.bytes() {
        1 => Scalar::U8,
        2 => Scalar::U16,
        4 => Scalar::U32,
        _ => Scalar::U64,
    }
}
