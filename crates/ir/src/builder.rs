//! Builds kernels. Types are inferred as expressions are added; the first mistake is kept and reported by `finish`.

use crate::{
    Access, Args, Atomic, Builtin, Emit, EmitBits, Expr, ExprId, Kernel, Launch, Local, LocalId, Op, Param, ParamId,
    Scalar, Shared, SharedId, Shuffle, Stmt, Value, VerifyError, View, Vote, verify,
};

/// A kernel under construction.
///
/// ```
/// use bornite_ir::{Access, Builder, Emit, Scalar};
/// let mut b = Builder::new("axpy", 1000, Scalar::I32);
/// let x = b.param("x", Scalar::F32, 1000, Access::Read);
/// let y = b.param("y", Scalar::F32, 1000, Access::Read);
/// let out = b.param("out", Scalar::F32, 1000, Access::Write);
/// let i = b.index();
/// let (xi, yi) = (b.load(x, i), b.load(y, i));
/// let a = b.constant_like(&xi, 2.0);
/// let value = b.fma(&a, &xi, &yi);
/// b.store(out, i, value);
/// let kernel = b.finish().unwrap();
/// assert!(kernel.to_string().contains("fma"));
/// ```
pub struct Builder {
    kernel: Kernel,
    /// Enclosing blocks not yet closed; the last is where statements go.
    open: Vec<Vec<Stmt>>,
    error: Option<VerifyError>,
}

impl Builder {
    /// Starts a kernel of `count` parallel instances with indices of type `index`.
    pub fn new(name: impl Into<String>, count: u64, index: Scalar) -> Builder {
        Builder::with_launch(name, Launch::ParallelFor { count }, index)
    }

    /// Starts a kernel of `grid` blocks of `block` threads with indices of type `index`.
    pub fn blocks(name: impl Into<String>, grid: [u32; 3], block: [u32; 3], index: Scalar) -> Builder {
        Builder::with_launch(name, Launch::Blocks { grid, block }, index)
    }

    fn with_launch(name: impl Into<String>, launch: Launch, index: Scalar) -> Builder {
        let kernel = Kernel {
            name: name.into(),
            launch,
            index,
            params: vec![],
            shared: vec![],
            locals: vec![],
            exprs: vec![],
            types: vec![],
            body: vec![],
        };
        Builder { kernel, open: vec![vec![]], error: None }
    }

    /// Adds a view parameter.
    pub fn param(&mut self, name: impl Into<String>, scalar: Scalar, len: u64, access: Access) -> ParamId {
        self.kernel.params.push(Param { name: name.into(), scalar, len, access });
        ParamId(self.kernel.params.len() as u32 - 1)
    }

    /// Adds an array that the threads of a block share.
    pub fn shared(&mut self, name: impl Into<String>, scalar: Scalar, len: u64) -> SharedId {
        self.kernel.shared.push(Shared { name: name.into(), scalar, len });
        SharedId(self.kernel.shared.len() as u32 - 1)
    }

    /// The place of this instance of a block kernel.
    pub fn builtin(&mut self, builtin: Builtin) -> ExprId {
        self.push(Expr::Builtin(builtin), self.kernel.index)
    }

    /// Adds a variable.
    pub fn local(&mut self, name: impl Into<String>, init: Value) -> LocalId {
        self.kernel.locals.push(Local { name: name.into(), init });
        LocalId(self.kernel.locals.len() as u32 - 1)
    }

    /// The instance's index.
    pub fn index(&mut self) -> ExprId {
        self.push(Expr::Index, self.kernel.index)
    }

    /// A constant of the kernel's index type.
    pub fn index_constant(&mut self, value: u64) -> ExprId {
        self.constant(Value::int(self.kernel.index, value as i64))
    }

    /// The value of an expression if it is a constant.
    pub fn known(&self, id: ExprId) -> Option<Value> {
        match self.kernel.exprs.get(id.0 as usize) {
            Some(Expr::Const(value)) => Some(*value),
            _ => None,
        }
    }

    /// Reads a variable.
    pub fn read(&mut self, local: LocalId) -> ExprId {
        let Some(scalar) = self.kernel.locals.get(local.0 as usize).map(|local| local.init.scalar()) else {
            self.mistake(format!("variable ${} does not exist", local.0));
            return self.index_constant(0);
        };
        self.push_let(Expr::Read(local), scalar)
    }

    /// Loads an element.
    pub fn load(&mut self, view: impl Into<View>, index: ExprId) -> ExprId {
        let view = view.into();
        let scalar = self.element(view);
        self.push_let(Expr::Load { view, index }, scalar)
    }

    /// Stores an element.
    pub fn store(&mut self, view: impl Into<View>, index: ExprId, value: ExprId) {
        self.stmt(Stmt::Store { view: view.into(), index, value });
    }

    /// Updates an element atomically; its value from before.
    pub fn atomic(&mut self, atomic: Atomic, view: impl Into<View>, index: ExprId, value: ExprId) -> ExprId {
        let view = view.into();
        let scalar = self.element(view);
        self.push_let(Expr::Atomic { atomic, view, index, value }, scalar)
    }

    /// Stores `value` if the element equals `expected`; its value from before.
    pub fn compare_exchange(
        &mut self,
        view: impl Into<View>,
        index: ExprId,
        expected: ExprId,
        value: ExprId,
    ) -> ExprId {
        let view = view.into();
        let scalar = self.element(view);
        self.push_let(Expr::CompareExchange { view, index, expected, value }, scalar)
    }

    /// A value of another thread of the warp.
    pub fn shuffle(&mut self, shuffle: Shuffle, value: ExprId, lane: ExprId) -> ExprId {
        let scalar = self.type_of(value);
        self.push_let(Expr::Shuffle { shuffle, value, lane }, scalar)
    }

    /// A vote of the warp.
    pub fn vote(&mut self, vote: Vote, value: ExprId) -> ExprId {
        let scalar = if vote == Vote::Ballot { Scalar::U32 } else { Scalar::Bool };
        self.push_let(Expr::Vote { vote, value }, scalar)
    }

    /// Adds a statement as it is: a barrier, a fence, `Break`, `Continue`, `Return`, or one with blocks of its own.
    pub fn simple(&mut self, stmt: Stmt) {
        self.stmt(stmt);
    }

    /// A loop without end of its own, whose body is written by `body`.
    pub fn endless(&mut self, body: impl FnOnce(&mut Builder)) {
        self.open.push(vec![]);
        body(self);
        let body = self.close();
        self.stmt(Stmt::Loop { body });
    }

    /// The element type of a view; a foreign handle is a mistake.
    fn element(&mut self, view: View) -> Scalar {
        let found = match view {
            View::Param(ParamId(n)) => self.kernel.params.get(n as usize).map(|p| p.scalar),
            View::Shared(SharedId(n)) => self.kernel.shared.get(n as usize).map(|s| s.scalar),
        };
        found.unwrap_or_else(|| {
            self.mistake(format!("{view:?} does not exist"));
            self.kernel.index
        })
    }

    /// Sets a variable.
    pub fn assign(&mut self, local: LocalId, value: ExprId) {
        self.stmt(Stmt::Assign(local, value));
    }

    /// Opens a loop; statements go into its body until [`Builder::close_loop`]. Returns its counter.
    pub fn open_loop(&mut self, name: &str) -> LocalId {
        let counter = self.local(name, Value::int(self.kernel.index, 0));
        self.open.push(vec![]);
        counter
    }

    /// Closes the innermost open loop, which runs below `end` (evaluated before it).
    pub fn close_loop(&mut self, counter: LocalId, end: ExprId) {
        let body = self.close();
        self.stmt(Stmt::For { counter, end, body });
    }

    /// Opens a block; statements go into it until [`Builder::close_block`].
    pub fn open_block(&mut self) {
        self.open.push(vec![]);
    }

    /// Closes the innermost open block and gives its statements, for a statement of the caller's own.
    pub fn close_block(&mut self) -> Vec<Stmt> {
        self.close()
    }

    /// A branch.
    pub fn if_else(
        &mut self,
        condition: ExprId,
        then: impl FnOnce(&mut Builder),
        otherwise: impl FnOnce(&mut Builder),
    ) {
        self.open.push(vec![]);
        then(self);
        let then = self.close();
        self.open.push(vec![]);
        otherwise(self);
        let otherwise = self.close();
        self.stmt(Stmt::If { condition, then, otherwise });
    }

    /// The finished kernel, verified.
    pub fn finish(mut self) -> Result<Kernel, VerifyError> {
        if self.open.len() != 1 {
            self.mistake("a loop was opened and not closed, or closed and not opened".into());
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        self.kernel.body = self.open.pop().unwrap_or_default();
        verify(&self.kernel)?;
        Ok(self.kernel)
    }

    fn close(&mut self) -> Vec<Stmt> {
        if self.open.len() == 1 {
            self.mistake("a loop was closed and not opened".into());
        }
        self.open.pop().unwrap_or_default()
    }

    fn mistake(&mut self, what: String) {
        let error = VerifyError::new(&self.kernel.name, what);
        self.error.get_or_insert(error);
    }

    /// The type of an expression; a foreign handle is a mistake.
    fn type_of(&mut self, id: ExprId) -> Scalar {
        match self.kernel.types.get(id.0 as usize) {
            Some(scalar) => *scalar,
            None => {
                self.mistake(format!("%{} does not exist", id.0));
                self.kernel.index
            }
        }
    }

    fn stmt(&mut self, stmt: Stmt) {
        if let Some(block) = self.open.last_mut() {
            block.push(stmt);
        }
    }

    fn push(&mut self, expr: Expr, scalar: Scalar) -> ExprId {
        self.kernel.exprs.push(expr);
        self.kernel.types.push(scalar);
        ExprId(self.kernel.exprs.len() as u32 - 1)
    }

    fn push_let(&mut self, expr: Expr, scalar: Scalar) -> ExprId {
        let id = self.push(expr, scalar);
        self.stmt(Stmt::Let(id));
        id
    }
}

impl Emit for Builder {
    type V = ExprId;

    fn op(&mut self, op: Op, args: &[&ExprId]) -> ExprId {
        let ids: Vec<ExprId> = args.iter().map(|&&id| id).collect();
        let types: Vec<Scalar> = ids.iter().map(|&id| self.type_of(id)).collect();
        let scalar = match op.row().rule.result(&types) {
            Ok(scalar) => scalar,
            Err(expected) => {
                self.mistake(format!("{} of {types:?} expects {expected}", op.row().name));
                types.first().copied().unwrap_or(self.kernel.index)
            }
        };
        match Args::new(&ids) {
            Some(args) => self.push_let(Expr::Op(op, args), scalar),
            None => {
                self.mistake(format!("{} given {} arguments", op.row().name, ids.len()));
                ids[0]
            }
        }
    }

    fn constant_like(&mut self, like: &ExprId, value: f64) -> ExprId {
        let scalar = self.type_of(*like);
        self.constant(Value::from_f64(scalar, value))
    }
}

impl EmitBits for Builder {
    fn scalar(&self, v: &ExprId) -> Scalar {
        self.kernel.types.get(v.0 as usize).copied().unwrap_or(self.kernel.index)
    }

    fn constant(&mut self, value: Value) -> ExprId {
        self.push(Expr::Const(value), value.scalar())
    }

    fn cast_step(&mut self, to: Scalar, v: &ExprId) -> ExprId {
        self.cast(to, v)
    }

    /// One expression: readers take conversions apart.
    fn cast(&mut self, to: Scalar, v: &ExprId) -> ExprId {
        if self.type_of(*v) == to { *v } else { self.push_let(Expr::Cast(to, *v), to) }
    }

    fn bitcast(&mut self, to: Scalar, v: &ExprId) -> ExprId {
        self.push_let(Expr::Bitcast(to, *v), to)
    }
}
