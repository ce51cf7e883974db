//! Constructors of expressions, and visitors of programs.

use super::{
    ArrayId, BinaryOp, BuiltinFn, ExprKind, FuncId, Program, ProgramExpr, ProgramStmt, ScalarType, Ty, UnaryOp, VarId,
};

impl ProgramExpr {
    /// An expression of a kind and type.
    pub fn new(kind: ExprKind, ty: impl Into<Ty>) -> ProgramExpr {
        ProgramExpr { kind, ty: ty.into() }
    }

    /// An `int` literal.
    pub fn int(value: i64) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Int(value), ScalarType::I32)
    }

    /// An integer literal of a type.
    pub fn typed_int(scalar: ScalarType, value: i64) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Int(value), scalar)
    }

    /// A float literal of a type.
    pub fn float(scalar: ScalarType, value: f64) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Float(value), scalar)
    }

    /// A variable.
    pub fn var(var: VarId, ty: impl Into<Ty>) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Var(var), ty)
    }

    /// An array element.
    pub fn load(array: ArrayId, at: Vec<ProgramExpr>, ty: impl Into<Ty>) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Load(array, at), ty)
    }

    /// A binary operation on operands of one type.
    pub fn binary(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
        use BinaryOp::*;
        let ty = match op {
            Lt | Le | Gt | Ge | Eq | Ne | And | Or => Ty::BOOL,
            _ => a.ty,
        };
        ProgramExpr::new(ExprKind::Binary(op, Box::new([a, b])), ty)
    }

    /// A unary operation.
    pub fn unary(op: UnaryOp, a: ProgramExpr) -> ProgramExpr {
        let ty = a.ty;
        ProgramExpr::new(ExprKind::Unary(op, Box::new(a)), ty)
    }

    /// A call of a builtin function that returns the type of its first argument.
    pub fn call(builtin: BuiltinFn, args: Vec<ProgramExpr>) -> ProgramExpr {
        let ty = args[0].ty;
        ProgramExpr::new(ExprKind::Call(builtin, args), ty)
    }

    /// A call of a builtin function with another return type.
    pub fn typed_call(builtin: BuiltinFn, args: Vec<ProgramExpr>, ty: impl Into<Ty>) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Call(builtin, args), ty)
    }

    /// A call of a function of the program.
    pub fn function(func: FuncId, args: Vec<ProgramExpr>, ty: impl Into<Ty>) -> ProgramExpr {
        ProgramExpr::new(ExprKind::Function(func, args), ty)
    }

    /// A `where` expression: `a` if the condition holds, otherwise `b`.
    pub fn choose(condition: ProgramExpr, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
        let ty = a.ty;
        ProgramExpr::new(ExprKind::Where(Box::new([condition, a, b])), ty)
    }

    /// A conversion, unless the type already matches.
    pub fn cast(self, ty: impl Into<Ty>) -> ProgramExpr {
        let ty = ty.into();
        if self.ty == ty { self } else { ProgramExpr::new(ExprKind::Cast(Box::new(self)), ty) }
    }

    /// A component of a vector or matrix.
    pub fn component(self, at: u8) -> ProgramExpr {
        let ty = self.ty.component(at, &[]);
        ProgramExpr::new(ExprKind::Component(Box::new(self), at), ty)
    }

    /// Direct subexpressions.
    pub fn operands(&self) -> &[ProgramExpr] {
        match &self.kind {
            ExprKind::Float(_) | ExprKind::Int(_) | ExprKind::Var(_) => &[],
            ExprKind::Load(_, args)
            | ExprKind::Call(_, args)
            | ExprKind::Function(_, args)
            | ExprKind::Construct(args) => args,
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Component(a, _) => std::slice::from_ref(a),
            ExprKind::Binary(_, both) => &both[..],
            ExprKind::Where(three) => &three[..],
        }
    }

    /// Calls `visit` on this expression and all subexpressions.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a ProgramExpr)) {
        visit(self);
        self.operands().iter().for_each(|operand| operand.walk(visit));
    }

    /// Number of operations in this expression.
    pub fn operations(&self) -> usize {
        let mut count = 0;
        self.walk(&mut |e| {
            count += !matches!(e.kind, ExprKind::Float(_) | ExprKind::Int(_) | ExprKind::Var(_) | ExprKind::Cast(_))
                as usize;
        });
        count
    }
}

impl ProgramStmt {
    /// Direct subexpressions and nested blocks of this statement.
    pub fn children(&self) -> (Vec<&ProgramExpr>, Vec<&[ProgramStmt]>) {
        match self {
            ProgramStmt::Let(_, e)
            | ProgramStmt::Assign(_, e)
            | ProgramStmt::Update(_, _, e)
            | ProgramStmt::SetComponent(_, _, e) => (vec![e], vec![]),
            ProgramStmt::Store(_, at, e) | ProgramStmt::Atomic(_, _, at, e) => (at.iter().chain([e]).collect(), vec![]),
            ProgramStmt::If(e, then, otherwise) => (vec![e], vec![then, otherwise]),
            ProgramStmt::For(_, low, high, _, body) => (vec![low, high], vec![body]),
            ProgramStmt::While(e, body) => (vec![e], vec![body]),
            ProgramStmt::Return(Some(e)) => (vec![e], vec![]),
            ProgramStmt::Seed(_, a, b) => (vec![a, b], vec![]),
            ProgramStmt::Break | ProgramStmt::Continue | ProgramStmt::Return(None) | ProgramStmt::Draw(..) => {
                (vec![], vec![])
            }
        }
    }

    /// Calls `visit` on this statement and all nested ones.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a ProgramStmt)) {
        visit(self);
        for block in self.children().1 {
            block.iter().for_each(|stmt| stmt.walk(visit));
        }
    }
}

impl Program {
    /// Calls `visit` on every statement, including those of functions.
    pub fn each_stmt<'a>(&'a self, visit: &mut dyn FnMut(&'a ProgramStmt)) {
        for body in self.functions.iter().map(|f| &f.body).chain([&self.body]) {
            body.stmts.iter().for_each(|stmt| stmt.walk(visit));
        }
    }

    /// Calls `visit` on every expression, including those of functions.
    pub fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a ProgramExpr)) {
        self.each_stmt(&mut |stmt| stmt.children().0.into_iter().for_each(|e| e.walk(visit)));
    }
}
