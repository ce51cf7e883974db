//! Constructors of expressions, and visitors of programs.

use super::{Array, Binary, Builtin, Expr, Func, Kind, Program, Scalar, Stmt, Ty, Unary, Var};

impl Expr {
    /// An expression of a kind and type.
    pub fn new(kind: Kind, ty: impl Into<Ty>) -> Expr {
        Expr { kind, ty: ty.into() }
    }

    /// An `int`.
    pub fn int(value: i64) -> Expr {
        Expr::new(Kind::Int(value), Scalar::I32)
    }

    /// An integer literal of a type.
    pub fn int_of(scalar: Scalar, value: i64) -> Expr {
        Expr::new(Kind::Int(value), scalar)
    }

    /// A float literal of a type.
    pub fn float(scalar: Scalar, value: f64) -> Expr {
        Expr::new(Kind::Float(value), scalar)
    }

    /// A variable.
    pub fn var(var: Var, ty: impl Into<Ty>) -> Expr {
        Expr::new(Kind::Var(var), ty)
    }

    /// An array element.
    pub fn load(array: Array, at: Vec<Expr>, ty: impl Into<Ty>) -> Expr {
        Expr::new(Kind::Load(array, at), ty)
    }

    /// A binary operation on operands of one type.
    pub fn binary(op: Binary, a: Expr, b: Expr) -> Expr {
        use Binary::*;
        let ty = match op {
            Lt | Le | Gt | Ge | Eq | Ne | And | Or => Ty::BOOL,
            _ => a.ty,
        };
        Expr::new(Kind::Binary(op, Box::new([a, b])), ty)
    }

    /// A unary operation.
    pub fn unary(op: Unary, a: Expr) -> Expr {
        let ty = a.ty;
        Expr::new(Kind::Unary(op, Box::new(a)), ty)
    }

    /// A call of a builtin function that returns the type of its first argument.
    pub fn call(builtin: Builtin, args: Vec<Expr>) -> Expr {
        let ty = args[0].ty;
        Expr::new(Kind::Call(builtin, args), ty)
    }

    /// A call of a builtin function with another return type.
    pub fn call_of(builtin: Builtin, args: Vec<Expr>, ty: impl Into<Ty>) -> Expr {
        Expr::new(Kind::Call(builtin, args), ty)
    }

    /// A call of a function of the program.
    pub fn function(func: Func, args: Vec<Expr>, ty: impl Into<Ty>) -> Expr {
        Expr::new(Kind::Function(func, args), ty)
    }

    /// A `where` expression.
    pub fn choose(condition: Expr, a: Expr, b: Expr) -> Expr {
        let ty = a.ty;
        Expr::new(Kind::Where(Box::new([condition, a, b])), ty)
    }

    /// A conversion, unless the type already matches.
    pub fn cast(self, ty: impl Into<Ty>) -> Expr {
        let ty = ty.into();
        if self.ty == ty { self } else { Expr::new(Kind::Cast(Box::new(self)), ty) }
    }

    /// A component of a vector or matrix.
    pub fn component(self, at: u8) -> Expr {
        let ty = self.ty.part(at, &[]);
        Expr::new(Kind::Part(Box::new(self), at), ty)
    }

    /// Direct subexpressions.
    pub fn operands(&self) -> &[Expr] {
        match &self.kind {
            Kind::Float(_) | Kind::Int(_) | Kind::Var(_) => &[],
            Kind::Load(_, args) | Kind::Call(_, args) | Kind::Function(_, args) | Kind::Make(args) => args,
            Kind::Unary(_, a) | Kind::Cast(a) | Kind::Part(a, _) => std::slice::from_ref(a),
            Kind::Binary(_, both) => &both[..],
            Kind::Where(three) => &three[..],
        }
    }

    /// Calls `visit` on this expression and all subexpressions.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.operands().iter().for_each(|operand| operand.walk(visit));
    }

    /// Number of operations in this expression.
    pub fn operations(&self) -> usize {
        let mut count = 0;
        self.walk(&mut |e| {
            count += !matches!(e.kind, Kind::Float(_) | Kind::Int(_) | Kind::Var(_) | Kind::Cast(_)) as usize;
        });
        count
    }
}

impl Stmt {
    /// Direct subexpressions and nested blocks of this statement.
    pub fn contents(&self) -> (Vec<&Expr>, Vec<&[Stmt]>) {
        match self {
            Stmt::Let(_, e) | Stmt::Assign(_, e) | Stmt::Update(_, _, e) | Stmt::SetPart(_, _, e) => (vec![e], vec![]),
            Stmt::Store(_, at, e) | Stmt::Atomic(_, _, at, e) => (at.iter().chain([e]).collect(), vec![]),
            Stmt::If(e, then, otherwise) => (vec![e], vec![then, otherwise]),
            Stmt::For(_, low, high, _, body) => (vec![low, high], vec![body]),
            Stmt::While(e, body) => (vec![e], vec![body]),
            Stmt::Return(Some(e)) => (vec![e], vec![]),
            Stmt::Seed(_, a, b) => (vec![a, b], vec![]),
            Stmt::Break | Stmt::Continue | Stmt::Return(None) | Stmt::Draw(..) => (vec![], vec![]),
        }
    }

    /// Calls `visit` on this statement and all nested ones.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Stmt)) {
        visit(self);
        for block in self.contents().1 {
            block.iter().for_each(|stmt| stmt.walk(visit));
        }
    }
}

impl Program {
    /// Calls `visit` on every statement, including those of functions.
    pub fn each_stmt<'a>(&'a self, visit: &mut dyn FnMut(&'a Stmt)) {
        for body in self.functions.iter().map(|f| &f.body).chain([&self.body]) {
            body.stmts.iter().for_each(|stmt| stmt.walk(visit));
        }
    }

    /// Calls `visit` on every expression, including those of functions.
    pub fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        self.each_stmt(&mut |stmt| stmt.contents().0.into_iter().for_each(|e| e.walk(visit)));
    }
}
