//! Floating-point operations of a statement.

use bornite_ir::{Code, Components, Emit, EmitBits, Expr, Op, Scalar, Stmt, Struct, Value};

/// Returns the floating-point operations that a thread executes for a statement, without those of
/// called functions, whose statements count by themselves.
pub fn flops(code: &Code, structs: &[Struct], stmt: &Stmt) -> u64 {
    let Stmt::Let(id) = stmt else { return 0 };
    let ty = code.ty(*id);
    let components = || ty.component_count(structs) as u64;
    match code.expr(*id) {
        Expr::Op(op, args) => args.last().map_or(0, |arg| weight(*op, code.ty(*arg).element()) * components()),
        Expr::Atomic { atomic, value, .. } => {
            atomic.op().map_or(0, |op| weight(op, code.ty(*value).element()) * components())
        }
        Expr::Algebra { op, component, args } => {
            let mut counter = Counter(0);
            let args: Vec<Components<Scalar>> = (args.iter())
                .map(|&arg| Components { ty: code.ty(arg), components: code.ty(arg).components(structs) })
                .collect();
            op.body(&mut counter, *component, ty, &args, structs);
            counter.0
        }
        _ => 0,
    }
}

/// Operations of one application: two for an fma, one for arithmetic and math functions, none for
/// comparisons, selections, signs and rounding.
fn weight(op: Op, scalar: Option<Scalar>) -> u64 {
    use Op::*;
    match op {
        _ if !scalar.is_some_and(Scalar::is_float) => 0,
        Fma => 2,
        Neg | Abs | Sign | Min | Max | Fmin | Fmax | Clamp | Copysign | Eq | Ne | Lt | Le | Gt | Ge | Select
        | Floor | Ceil | Trunc | Rint | Round => 0,
        _ => 1,
    }
}

/// Counts the operations of the body of an algebra operation; values are types.
struct Counter(u64);

impl Emit for Counter {
    type V = Scalar;

    fn op(&mut self, op: Op, args: &[&Scalar]) -> Scalar {
        let args: Vec<Scalar> = args.iter().map(|scalar| **scalar).collect();
        self.0 += weight(op, args.last().copied());
        op.row().rule.result(&args).unwrap_or(Scalar::F32)
    }

    fn constant_like(&mut self, like: &Scalar, _: f64) -> Scalar {
        *like
    }
}

impl EmitBits for Counter {
    fn scalar(&self, scalar: &Scalar) -> Scalar {
        *scalar
    }

    fn constant(&mut self, value: Value) -> Scalar {
        value.scalar()
    }

    fn bitcast(&mut self, to: Scalar, _: &Scalar) -> Scalar {
        to
    }

    fn cast_step(&mut self, to: Scalar, _: &Scalar) -> Scalar {
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bornite_ir::{AlgebraOp, Builder, Type};

    #[test]
    fn operations_are_counted_per_component() {
        for (op, expected) in [(Op::Add, 1), (Op::Fma, 2), (Op::Exp, 1), (Op::Max, 0), (Op::Lt, 0)] {
            assert_eq!(weight(op, Some(Scalar::F32)), expected, "{op:?}");
            assert_eq!(weight(op, Some(Scalar::I32)), 0, "{op:?}");
        }
        let vector = Type::Vector(Scalar::F32, 3);
        let matrix = Type::Matrix(Scalar::F32, 3, 3);
        let operand = |ty: Type| Components { ty, components: ty.components(&[]) };
        // Sums of products: the first is a product, the others fma.
        for (op, args, ty, expected) in [
            (AlgebraOp::Dot, [vector, vector], Type::Scalar(Scalar::F32), 5),
            (AlgebraOp::Cross, [vector, vector], vector, 9),
            (AlgebraOp::MatVec, [matrix, vector], vector, 15),
            (AlgebraOp::MatMul, [matrix, matrix], matrix, 45),
        ] {
            let mut counter = Counter(0);
            op.body(&mut counter, 0, ty, &args.map(operand), &[]);
            assert_eq!(counter.0, expected, "{op:?}");
        }
        // Integer indices do not count.
        let mut b = Builder::new("k", 4, Scalar::I32);
        let i = b.index();
        b.add(&i, &i);
        let kernel = b.finish().unwrap();
        assert_eq!(kernel.code.body.iter().map(|stmt| flops(&kernel.code, &[], stmt)).sum::<u64>(), 0);
    }
}
