//! A kernel with all floats replaced by f64, for finite differences.

use super::{AdjointError, Refusal};
use crate::{AlgebraOp, Args, Code, Expr, ExprId, Kernel, Local, Op, Scalar, Stmt, Type, Value};

fn wide(scalar: Scalar) -> Scalar {
    if scalar.is_float() { Scalar::F64 } else { scalar }
}

fn wide_type(ty: Type) -> Type {
    ty.element().map_or(ty, |scalar| ty.with_element(wide(scalar)))
}

fn wide_value(value: Value) -> Value {
    if value.scalar().is_float() { Value::from_f64(Scalar::F64, value.as_f64()) } else { value }
}

/// Returns the kernel with f64 in place of all floats. A kernel that uses the bits of floats is an
/// error.
pub fn in_f64(kernel: &Kernel) -> Result<Kernel, AdjointError> {
    let mut out = kernel.clone();
    for found in &mut out.structs {
        for field in &mut found.fields {
            field.ty = wide_type(field.ty);
            // The field's own alignment may be too small for f64.
            field.align = 1;
        }
    }
    out.params.iter_mut().for_each(|param| param.ty = wide_type(param.ty));
    out.values.iter_mut().for_each(|value| value.ty = wide_type(value.ty));
    out.shared.iter_mut().for_each(|shared| shared.ty = wide_type(shared.ty));
    out.local_arrays.iter_mut().for_each(|array| array.ty = wide_type(array.ty));
    for n in 0..out.functions.len() {
        let mut function = out.functions[n].clone();
        function.params.iter_mut().for_each(|param| param.ty = wide_type(param.ty));
        function.result = wide_type(function.result);
        function.code = widen_code(kernel, &function.code)?;
        out.functions[n] = function;
    }
    out.code = widen_code(kernel, &kernel.code)?;
    Ok(out)
}

fn widen_code(kernel: &Kernel, code: &Code) -> Result<Code, AdjointError> {
    let mut widener = Widener { kernel, out: Code::default() };
    widener.out.locals = (code.locals.iter())
        .map(|local| Local {
            name: local.name.clone(),
            ty: wide_type(local.ty),
            init: local.init.iter().map(|value| wide_value(*value)).collect(),
        })
        .collect();
    for (expr, ty) in code.exprs.iter().zip(&code.types) {
        widener.out.exprs.push(match expr {
            Expr::Const(value) => Expr::Const(wide_value(*value)),
            Expr::Cast(to, from) => Expr::Cast(wide(*to), *from),
            other => other.clone(),
        });
        widener.out.types.push(wide_type(*ty));
    }
    widener.out.body = widener.block(code, &code.body)?;
    Ok(widener.out)
}

struct Widener<'k> {
    kernel: &'k Kernel,
    out: Code,
}

impl Widener<'_> {
    fn push(&mut self, expr: Expr, ty: Type) -> ExprId {
        self.out.exprs.push(expr);
        self.out.types.push(ty);
        ExprId(self.out.exprs.len() as u32 - 1)
    }

    /// The indices of the `n`-th of several adjacent elements; adds their statements.
    fn adjacent(&mut self, indices: &Args, n: u8, block: &mut Vec<Stmt>) -> Args {
        let (mut ids, index) = (indices.to_vec(), self.kernel.index);
        if let Some(last) = ids.last_mut() {
            let offset = self.push(Expr::Const(Value::int(index, n.into())), index.into());
            *last = self.push(Expr::Op(Op::Add, Args::from([*last, offset])), index.into());
            block.push(Stmt::Let(*last));
        }
        Args::new(&ids).unwrap_or(*indices)
    }

    fn block(&mut self, code: &Code, block: &[Stmt]) -> Result<Vec<Stmt>, AdjointError> {
        let mut out = vec![];
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    self.evaluate(code, *id, stmt, &mut out)?;
                    out.push(stmt.clone());
                }
                Stmt::Store { view, indices, value } => {
                    let info = self.kernel.view(*view);
                    match code.ty(*value) {
                        // A vector that is stored to adjacent elements, which may be too wide now.
                        Type::Vector(scalar, width) if scalar.is_float() && info.ty.as_scalar().is_some() => {
                            for n in 0..width {
                                let indices = self.adjacent(indices, n, &mut out);
                                let extract = Expr::Algebra {
                                    op: AlgebraOp::Extract,
                                    component: n.into(),
                                    args: [*value].into(),
                                };
                                let value = self.push(extract, Scalar::F64.into());
                                out.push(Stmt::Let(value));
                                out.push(Stmt::Store { view: *view, indices, value });
                            }
                        }
                        _ => out.push(stmt.clone()),
                    }
                }
                Stmt::For { counter, end, body } => {
                    out.push(Stmt::For { counter: *counter, end: *end, body: self.block(code, body)? });
                }
                Stmt::Loop { body } => out.push(Stmt::Loop { body: self.block(code, body)? }),
                Stmt::If { condition, then, otherwise } => out.push(Stmt::If {
                    condition: *condition,
                    then: self.block(code, then)?,
                    otherwise: self.block(code, otherwise)?,
                }),
                other => out.push(other.clone()),
            }
        }
        Ok(out)
    }

    /// Rewrites an expression that has another form with f64, before it is evaluated.
    fn evaluate(&mut self, code: &Code, id: ExprId, stmt: &Stmt, out: &mut Vec<Stmt>) -> Result<(), AdjointError> {
        match code.expr(id) {
            Expr::Bitcast(to, from) => {
                let from_scalar = code.ty(*from).element().unwrap_or(*to);
                if *to == from_scalar {
                    self.out.exprs[id.0 as usize] = Expr::Bitcast(wide(*to), *from);
                } else if to.is_float() || from_scalar.is_float() {
                    let what = "the bits of a float, which differ in f64".into();
                    let remedy = "use floating-point operations".into();
                    return Err(AdjointError::at(self.kernel, Some(stmt), Refusal { what, remedy }));
                }
            }
            Expr::Load { view, indices, width }
                if *width > 1 && code.ty(id).element().is_some_and(Scalar::is_float) =>
            {
                let mut parts = vec![];
                for n in 0..*width {
                    let indices = self.adjacent(indices, n, out);
                    let load = self.push(Expr::Load { view: *view, indices, width: 1 }, Scalar::F64.into());
                    out.push(Stmt::Let(load));
                    parts.push(load);
                }
                self.out.exprs[id.0 as usize] =
                    Expr::Algebra { op: AlgebraOp::Construct, component: 0, args: parts.into() };
            }
            _ => {}
        }
        Ok(())
    }
}
