//! Statements without nested blocks, expressions and calls.

use super::{Exit, Flattener, Frame, FrameResult, MAX_DEPTH, MAX_VALUES, block_exit};
use crate::adjoint::AdjointError;
use crate::adjoint::scalar_code::{Def, Element, Group, GroupId, ScalarStmt, ValueId, VarId, has_components};
use crate::{AlgebraOp, Args, Atomic, Code, Components, Expr, ExprId, Op, Stmt, StructId, Type, Value, View};

impl<'k> Flattener<'k> {
    pub(super) fn plain(&mut self, frame: &mut Frame<'k>, stmt: &'k Stmt) -> Result<(), AdjointError> {
        match stmt {
            Stmt::Let(id) => {
                let components = self.evaluate(frame, *id)?;
                frame.values[id.0 as usize] = Some(components);
            }
            Stmt::Assign(local, value) => {
                let components = self.operand(frame, *value)?;
                for (var, component) in frame.vars[local.0 as usize].clone().into_iter().zip(components) {
                    self.assign(var, component);
                }
            }
            Stmt::Store { view, indices, value } => {
                let values = self.operand(frame, *value)?;
                let wide = self.kernel.view(*view).ty.as_scalar().is_some() && values.len() > 1;
                let count = values.len();
                for (n, value) in values.into_iter().enumerate() {
                    let element = self.element(frame, *view, indices, n, if wide { count } else { 1 })?;
                    self.push(ScalarStmt::Store { element, value, site: stmt });
                }
            }
            Stmt::Declare(array) => self.push(ScalarStmt::Declare(*array)),
            Stmt::Barrier => {
                return self.refuse("a barrier", "kernels whose threads cooperate need a gradient kernel");
            }
            Stmt::WarpBarrier => {
                return self.refuse("a warp barrier", "kernels whose threads cooperate need a gradient kernel");
            }
            Stmt::Fence(_) => {
                return self.refuse("a memory fence", "kernels whose threads communicate need a gradient kernel");
            }
            // The forward run has checked and printed.
            Stmt::Check(_) | Stmt::Print { .. } => {}
            Stmt::For { .. } | Stmt::Loop { .. } | Stmt::If { .. } | Stmt::Break | Stmt::Continue | Stmt::Return(_) => {
            }
        }
        Ok(())
    }

    /// The `n`-th scalar of an access: a component, or one of several adjacent elements.
    fn element(
        &mut self,
        frame: &mut Frame<'k>,
        view: View,
        indices: &Args,
        n: usize,
        width: usize,
    ) -> Result<Element, AdjointError> {
        let info = self.kernel.view(view);
        let explicit = info.component_index(indices);
        let mut at = vec![];
        for index in &indices[..info.dims.len()] {
            at.push(self.scalar(frame, *index)?);
        }
        if width > 1 && n > 0 {
            let offset = self.index_constant(n);
            if let Some(last) = at.last_mut() {
                let first = *last;
                *last = self.let_(Def::Op(Op::Add, vec![first, offset]), self.kernel.index);
            }
        }
        let component = match explicit {
            Some(component) => Some(self.scalar(frame, component)?),
            None => has_components(info.ty).then(|| self.index_constant(n)),
        };
        Ok(Element { view, indices: at, component })
    }

    /// Components of an operand.
    pub(super) fn operand(&mut self, frame: &mut Frame<'k>, id: ExprId) -> Result<Vec<ValueId>, AdjointError> {
        let ty = frame.code.ty(id);
        Ok(match frame.code.expr(id) {
            Expr::Const(value) => vec![self.constant(*value)],
            expr @ (Expr::Index | Expr::Builtin(_)) => {
                vec![self.define(Def::Instance(expr.clone()), self.kernel.index)]
            }
            Expr::Argument(n) => match &frame.args {
                Some(args) => args.get(*n as usize).cloned().unwrap_or_default(),
                None => (ty.components(&self.kernel.structs).into_iter().zip(0..))
                    .map(|(scalar, component)| self.define(Def::Argument { param: *n, component }, scalar))
                    .collect(),
            },
            _ => match frame.values.get(id.0 as usize).cloned().flatten() {
                Some(components) => components,
                // Not reachable in a verified kernel.
                None => return self.refuse("a value that is not evaluated", "verify the kernel"),
            },
        })
    }

    pub(super) fn scalar(&mut self, frame: &mut Frame<'k>, id: ExprId) -> Result<ValueId, AdjointError> {
        match self.operand(frame, id)?.first() {
            Some(first) => Ok(*first),
            None => self.refuse("a value without components", "verify the kernel"),
        }
    }

    fn evaluate(&mut self, frame: &mut Frame<'k>, id: ExprId) -> Result<Vec<ValueId>, AdjointError> {
        if self.code.values.len() > MAX_VALUES {
            return self.refuse("a kernel of this size", "split it");
        }
        let ty = frame.code.ty(id);
        let scalars = ty.components(&self.kernel.structs);
        let code = frame.code;
        match code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => self.operand(frame, id),
            Expr::Read(local) => {
                Ok(frame.vars[local.0 as usize].clone().into_iter().map(|var| self.read(var)).collect())
            }
            Expr::Op(op, args) => {
                let mut operands = vec![];
                for arg in args.iter() {
                    operands.push(self.operand(frame, *arg)?);
                }
                Ok((scalars.iter().enumerate())
                    .map(|(n, scalar)| {
                        let args = operands.iter().map(|parts| parts[if parts.len() == 1 { 0 } else { n }]).collect();
                        self.let_(Def::Op(*op, args), *scalar)
                    })
                    .collect())
            }
            Expr::Cast(to, from) => {
                let from = self.operand(frame, *from)?;
                Ok(from.into_iter().map(|from| self.let_(Def::Cast(from), *to)).collect())
            }
            Expr::Bitcast(to, from) => {
                let from = self.operand(frame, *from)?;
                Ok(from.into_iter().map(|from| self.let_(Def::Bitcast(from), *to)).collect())
            }
            Expr::Algebra { op, component, args } => {
                let mut operands = vec![];
                for arg in args.iter() {
                    operands.push(Components { ty: code.ty(*arg), components: self.operand(frame, *arg)? });
                }
                Ok(self.algebra(*op, *component, ty, operands))
            }
            Expr::Call(function, args) => {
                let mut operands = vec![];
                for arg in args.iter() {
                    operands.push(self.operand(frame, *arg)?);
                }
                self.call(function.0 as usize, operands)
            }
            Expr::Load { view, indices, width } => {
                let mut out = vec![];
                for (n, scalar) in scalars.into_iter().enumerate() {
                    let element = self.element(frame, *view, indices, n, *width as usize)?;
                    out.push(self.let_(Def::Load(element), scalar));
                }
                Ok(out)
            }
            Expr::Atomic { atomic, view, indices, value } => {
                let values = self.operand(frame, *value)?;
                let floats = scalars.iter().any(|scalar| scalar.is_float());
                match atomic {
                    Atomic::Add | Atomic::Sub => {}
                    // The result of an integer atomic is not used, and its element has no gradient.
                    _ if !floats => {}
                    _ => {
                        let what = format!("an atomic {} of floats", atomic.name());
                        return self.refuse(what, "use atomic addition, or a gradient kernel");
                    }
                }
                let Some(site) = self.site else { return Ok(vec![]) };
                for (n, value) in values.into_iter().enumerate() {
                    let element = self.element(frame, *view, indices, n, 1)?;
                    let negated = *atomic == Atomic::Sub;
                    self.push(ScalarStmt::AtomicAdd { element, value, negated, site });
                }
                Ok(vec![])
            }
            Expr::CompareExchange { .. } => {
                self.refuse("a compare-and-swap", "its result depends on the order of threads; use atomic addition")
            }
            Expr::Shuffle { .. } => {
                self.refuse("a warp shuffle", "kernels whose threads cooperate need a gradient kernel")
            }
            Expr::Vote { .. } => self.refuse("a warp vote", "kernels whose threads cooperate need a gradient kernel"),
        }
    }

    /// Operations that only move components are resolved; others become groups.
    fn algebra(&mut self, op: AlgebraOp, component: u32, ty: Type, args: Vec<Components<ValueId>>) -> Vec<ValueId> {
        let structs = &self.kernel.structs;
        let first = |whole: Type| match whole {
            Type::Struct(StructId(n)) => structs.get(n as usize).map_or(0, |found| {
                found.fields[..component as usize].iter().map(|field| field.ty.component_count(structs)).sum()
            }),
            _ => component as usize,
        };
        match (op, &args[..]) {
            (AlgebraOp::Construct, [one]) if one.components.len() == 1 => {
                vec![one.components[0]; ty.component_count(structs)]
            }
            (AlgebraOp::Construct, args) => args.iter().flat_map(|arg| arg.components.clone()).collect(),
            (AlgebraOp::Extract, [whole]) => {
                let start = first(whole.ty);
                whole.components[start..start + ty.component_count(structs)].to_vec()
            }
            (AlgebraOp::Insert, [whole, inserted]) => {
                let (start, mut components) = (first(whole.ty), whole.components.clone());
                components[start..start + inserted.components.len()].clone_from_slice(&inserted.components);
                components
            }
            (AlgebraOp::Transpose, [Components { ty: Type::Matrix(_, rows, columns), components }]) => {
                let (rows, columns) = (*rows as usize, *columns as usize);
                (0..rows * columns).map(|at| components[at % rows * columns + at / rows]).collect()
            }
            _ => {
                let group = GroupId(self.code.groups.len() as u32);
                let scalars = ty.components(structs);
                self.code.groups.push(Group { op, args, out: Components { ty, components: vec![] } });
                self.push(ScalarStmt::Algebra(group));
                let components: Vec<ValueId> =
                    scalars.iter().zip(0..).map(|(scalar, n)| self.define(Def::Part(group, n), *scalar)).collect();
                self.code.groups[group.0 as usize].out.components.clone_from(&components);
                components
            }
        }
    }

    pub(super) fn frame(&mut self, code: &'k Code, args: Option<Vec<Vec<ValueId>>>, returned: VarId) -> Frame<'k> {
        let vars = (code.locals.iter())
            .map(|local| {
                (local.init.iter())
                    .map(|init| {
                        let var = self.new_var(&local.name, *init);
                        let init = self.constant(*init);
                        self.assign(var, init);
                        var
                    })
                    .collect()
            })
            .collect();
        let values = vec![None; code.exprs.len()];
        Frame { code, args, values, vars, returned, result: FrameResult::Value(vec![]), loops: vec![] }
    }

    fn call(&mut self, function: usize, args: Vec<Vec<ValueId>>) -> Result<Vec<ValueId>, AdjointError> {
        let (site, kernel) = (self.site, self.kernel);
        let function = &kernel.functions[function];
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.refuse(format!("blocks and calls nested more than {MAX_DEPTH} deep"), "use fewer calls");
        }
        let (body, early) = match function.code.body.split_last() {
            Some((Stmt::Return(_), rest)) => (&function.code.body[..], block_exit(rest) != Exit::Never),
            _ => (&function.code.body[..], true),
        };
        let returned = self.flag("returned");
        let mut frame = self.frame(&function.code, Some(args), returned);
        if early {
            let scalars = function.result.components(&kernel.structs);
            let vars = scalars.into_iter().map(|scalar| self.new_var("result", Value::from_bits(scalar, 0))).collect();
            frame.result = FrameResult::Vars(vars);
        }
        self.sequence(&mut frame, body)?;
        self.depth -= 1;
        self.site = site;
        Ok(match frame.result {
            FrameResult::Value(components) => components,
            FrameResult::Vars(vars) => vars.into_iter().map(|var| self.read(var)).collect(),
        })
    }
}
