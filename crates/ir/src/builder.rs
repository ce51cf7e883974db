//! Kernel builder. Types are inferred as expressions are added; the first error is reported by
//! `finish`.

use crate::arg::counted;
use crate::verify::op_result;
use crate::{
    Access, AlgebraOp, Args, Atomic, Builtin, Code, Dim, Emit, EmitBits, Expr, ExprId, Extent, Field, Function,
    FunctionId, Kernel, LaunchMode, Local, LocalArray, LocalArrayId, LocalId, Op, Param, ParamId, Scalar, Shared,
    SharedId, Shuffle, Stmt, Struct, StructId, Type, Value, ValueParam, VerifyError, View, Vote, contiguous, verify,
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
    /// Code under construction: the kernel's, or that of a function.
    code: Code,
    /// Open blocks, innermost last; statements are appended to the last.
    open: Vec<Vec<Stmt>>,
    error: Option<VerifyError>,
    /// Source line of the statements being added; 0 if there is none.
    line: u32,
    lines: Lines,
}

/// Source lines of statements without nested blocks, in the order of the text form.
#[derive(Default)]
struct Lines {
    code: Vec<u32>,
    functions: Vec<Vec<u32>>,
}

/// Saved state of the code that encloses an open function.
pub struct EnclosingCode {
    code: Code,
    open: Vec<Vec<Stmt>>,
    lines: Vec<u32>,
}

/// Position in the code under construction, for [`Builder::rollback`].
pub struct Mark {
    exprs: usize,
    locals: usize,
    stmts: usize,
    lines: usize,
}

impl Builder {
    /// Creates a `ParallelFor` kernel of `count` instances with indices of type `index`.
    pub fn new(name: impl Into<String>, count: u64, index: Scalar) -> Builder {
        Builder::with_launch(name, LaunchMode::ParallelFor { count: count.into() }, index)
    }

    /// Creates a kernel launched with `grid` blocks of `block` threads and indices of type `index`.
    pub fn blocks(name: impl Into<String>, grid: [u32; 3], block: [u32; 3], index: Scalar) -> Builder {
        Builder::with_launch(name, LaunchMode::Blocks { grid, block }, index)
    }

    fn with_launch(name: impl Into<String>, launch: LaunchMode, index: Scalar) -> Builder {
        let kernel = Kernel {
            name: name.into(),
            launch,
            index,
            structs: vec![],
            functions: vec![],
            params: vec![],
            values: vec![],
            shared: vec![],
            local_arrays: vec![],
            code: Code::default(),
        };
        Builder { kernel, code: Code::default(), open: vec![vec![]], error: None, line: 0, lines: Lines::default() }
    }

    /// Sets the number of instances, which may be a value parameter.
    pub fn set_instance_count(&mut self, count: Extent) {
        self.kernel.launch = LaunchMode::ParallelFor { count };
    }

    /// Adds a struct type whose fields have their natural alignment.
    pub fn struct_type(&mut self, name: impl Into<String>, fields: &[(&str, Type)]) -> Type {
        let fields = fields.iter().map(|(name, ty)| Field { name: (*name).into(), ty: *ty, align: 1 }).collect();
        self.struct_from_fields(name, fields)
    }

    /// Adds a struct type.
    pub fn struct_from_fields(&mut self, name: impl Into<String>, fields: Vec<Field>) -> Type {
        self.kernel.structs.push(Struct { name: name.into(), fields });
        Type::Struct(StructId(self.kernel.structs.len() as u32 - 1))
    }

    /// Adds a contiguous one-dimensional view parameter.
    pub fn param(&mut self, name: impl Into<String>, ty: impl Into<Type>, len: u64, access: Access) -> ParamId {
        self.view(name, ty, &contiguous(&[len.into()]), access)
    }

    /// Adds a view parameter.
    pub fn view(&mut self, name: impl Into<String>, ty: impl Into<Type>, dims: &[Dim], access: Access) -> ParamId {
        self.kernel.params.push(Param { name: name.into(), ty: ty.into(), dims: dims.into(), access });
        ParamId(self.kernel.params.len() as u32 - 1)
    }

    /// Changes the access mode of a view parameter, for callers that only learn it while building.
    pub fn set_access(&mut self, param: ParamId, access: Access) {
        match self.kernel.params.get_mut(param.0 as usize) {
            Some(param) => param.access = access,
            None => self.record_error(format!("parameter {} does not exist", param.0)),
        }
    }

    /// Adds a value parameter. The n-th one, from 0, can be used as an extent with
    /// `Extent::Value(n)`.
    pub fn value(&mut self, name: impl Into<String>, ty: impl Into<Type>) -> ExprId {
        let ty = ty.into();
        self.kernel.values.push(ValueParam { name: name.into(), ty });
        self.push(Expr::Argument(self.kernel.values.len() as u32 - 1), ty)
    }

    /// Adds a one-dimensional array in shared memory.
    pub fn shared(&mut self, name: impl Into<String>, ty: impl Into<Type>, len: u64) -> SharedId {
        self.shared_array(name, ty, &[len])
    }

    /// Adds an array of several dimensions in shared memory.
    pub fn shared_array(&mut self, name: impl Into<String>, ty: impl Into<Type>, extents: &[u64]) -> SharedId {
        let extents: Vec<Extent> = extents.iter().map(|&n| n.into()).collect();
        self.kernel.shared.push(Shared { name: name.into(), ty: ty.into(), dims: contiguous(&extents) });
        SharedId(self.kernel.shared.len() as u32 - 1)
    }

    /// Adds an array in the local memory of each instance.
    pub fn local_array(&mut self, name: impl Into<String>, ty: impl Into<Type>, extents: &[u64]) -> LocalArrayId {
        let extents: Vec<Extent> = extents.iter().map(|&n| n.into()).collect();
        self.kernel.local_arrays.push(LocalArray { name: name.into(), ty: ty.into(), dims: contiguous(&extents) });
        LocalArrayId(self.kernel.local_arrays.len() as u32 - 1)
    }

    /// Adds a function. `body` receives the arguments and returns the return value.
    pub fn function(
        &mut self,
        name: impl Into<String>,
        params: &[(&str, Type)],
        result: impl Into<Type>,
        body: impl FnOnce(&mut Builder, &[ExprId]) -> ExprId,
    ) -> FunctionId {
        let outer = self.open_function(params);
        let arguments: Vec<ExprId> = (0..params.len() as u32).map(ExprId).collect();
        let value = body(self, &arguments);
        self.close_function(outer, name, params, result, value)
    }

    /// Opens a function: expressions and statements are added to it until
    /// [`Builder::close_function`]. Its first expressions are its arguments.
    pub fn open_function(&mut self, params: &[(&str, Type)]) -> EnclosingCode {
        let outer = EnclosingCode {
            code: std::mem::take(&mut self.code),
            open: std::mem::replace(&mut self.open, vec![vec![]]),
            lines: std::mem::take(&mut self.lines.code),
        };
        for (n, (_, ty)) in params.iter().enumerate() {
            self.push(Expr::Argument(n as u32), *ty);
        }
        outer
    }

    /// Closes the open function, which returns `value`.
    pub fn close_function(
        &mut self,
        outer: EnclosingCode,
        name: impl Into<String>,
        params: &[(&str, Type)],
        result: impl Into<Type>,
        value: ExprId,
    ) -> FunctionId {
        self.push_stmt(Stmt::Return(Some(value)));
        if self.open.len() != 1 {
            self.record_error("a loop was opened and not closed, or closed and not opened".into());
        }
        self.code.body = self.open.pop().unwrap_or_default();
        let code = std::mem::replace(&mut self.code, outer.code);
        self.open = outer.open;
        let lines = std::mem::replace(&mut self.lines.code, outer.lines);
        self.lines.functions.push(lines);
        let params = params.iter().map(|(name, ty)| ValueParam { name: (*name).into(), ty: *ty }).collect();
        self.kernel.functions.push(Function { name: name.into(), params, result: result.into(), code });
        FunctionId(self.kernel.functions.len() as u32 - 1)
    }

    /// Calls a function.
    pub fn call(&mut self, function: FunctionId, args: &[ExprId]) -> ExprId {
        let Some(ty) = self.kernel.functions.get(function.0 as usize).map(|f| f.result) else {
            self.record_error(format!("function {} does not exist", function.0));
            return self.index_constant(0);
        };
        self.push_let(Expr::Call(function, args.into()), ty)
    }

    /// Returns a thread or block index, or a block or grid size.
    pub fn builtin(&mut self, builtin: Builtin) -> ExprId {
        self.push(Expr::Builtin(builtin), self.kernel.index)
    }

    /// Adds a local variable.
    pub fn local(&mut self, name: impl Into<String>, init: Value) -> LocalId {
        self.typed_local(name, init.scalar(), &[init])
    }

    /// Adds a local variable of any type with the initial value of each component; a single value
    /// initializes all components.
    pub fn typed_local(&mut self, name: impl Into<String>, ty: impl Into<Type>, init: &[Value]) -> LocalId {
        let ty = ty.into();
        let mut init = match init {
            [one] => vec![*one; ty.component_count(&self.kernel.structs)],
            all => all.to_vec(),
        };
        init.iter_mut().for_each(|value| *value = value.canonicalize_nan());
        self.code.locals.push(Local { name: name.into(), ty, init });
        LocalId(self.code.locals.len() as u32 - 1)
    }

    /// Returns the index of this instance.
    pub fn index(&mut self) -> ExprId {
        self.push(Expr::Index, self.kernel.index)
    }

    /// Creates a constant of the kernel's index type.
    pub fn index_constant(&mut self, value: u64) -> ExprId {
        self.constant(Value::int(self.kernel.index, value as i64))
    }

    /// Returns the value of an expression if it is a constant.
    pub fn constant_value(&self, id: ExprId) -> Option<Value> {
        match self.code.exprs.get(id.0 as usize) {
            Some(Expr::Const(value)) => Some(*value),
            _ => None,
        }
    }

    /// Reads a variable.
    pub fn read(&mut self, local: LocalId) -> ExprId {
        let Some(ty) = self.code.locals.get(local.0 as usize).map(|local| local.ty) else {
            self.record_error(format!("variable ${} does not exist", local.0));
            return self.index_constant(0);
        };
        self.push_let(Expr::Read(local), ty)
    }

    /// Loads an element or one of its components.
    pub fn load(&mut self, view: impl Into<View>, indices: impl Into<Args>) -> ExprId {
        let (view, indices) = (view.into(), indices.into());
        let ty = self.accessed_type(view, &indices);
        self.push_let(Expr::Load { view, indices, width: 1 }, ty)
    }

    /// Loads `width` adjacent elements as a vector.
    pub fn load_wide(&mut self, view: impl Into<View>, indices: impl Into<Args>, width: u8) -> ExprId {
        let view = view.into();
        let scalar = self.element_type(view).element().unwrap_or(self.kernel.index);
        self.push_let(Expr::Load { view, indices: indices.into(), width }, Type::Vector(scalar, width))
    }

    /// Stores an element, or adjacent elements from a vector.
    pub fn store(&mut self, view: impl Into<View>, indices: impl Into<Args>, value: ExprId) {
        self.push_stmt(Stmt::Store { view: view.into(), indices: indices.into(), value });
    }

    /// Updates an element atomically; returns its old value.
    pub fn atomic(&mut self, atomic: Atomic, view: impl Into<View>, indices: impl Into<Args>, value: ExprId) -> ExprId {
        let (view, indices) = (view.into(), indices.into());
        let ty = self.accessed_type(view, &indices);
        self.push_let(Expr::Atomic { atomic, view, indices, value }, ty)
    }

    /// Stores `value` if the element equals `expected`; returns its old value.
    pub fn compare_exchange(
        &mut self,
        view: impl Into<View>,
        indices: impl Into<Args>,
        expected: ExprId,
        value: ExprId,
    ) -> ExprId {
        let (view, indices) = (view.into(), indices.into());
        let ty = self.accessed_type(view, &indices);
        self.push_let(Expr::CompareExchange { view, indices, expected, value }, ty)
    }

    /// Warp shuffle: returns a value of another thread of the warp.
    pub fn shuffle(&mut self, shuffle: Shuffle, value: ExprId, lane: ExprId) -> ExprId {
        self.masked_shuffle(shuffle, value, lane, None)
    }

    /// Warp shuffle among the lanes of a mask.
    pub fn masked_shuffle(&mut self, shuffle: Shuffle, value: ExprId, lane: ExprId, mask: Option<ExprId>) -> ExprId {
        let ty = self.type_of(value);
        self.push_let(Expr::Shuffle { shuffle, value, lane, mask }, ty)
    }

    /// Warp vote.
    pub fn vote(&mut self, vote: Vote, value: ExprId) -> ExprId {
        self.masked_vote(vote, value, None)
    }

    /// Warp vote among the lanes of a mask.
    pub fn masked_vote(&mut self, vote: Vote, value: ExprId, mask: Option<ExprId>) -> ExprId {
        let scalar = if vote == Vote::Ballot { Scalar::U32 } else { Scalar::Bool };
        self.push_let(Expr::Vote { vote, value, mask }, scalar)
    }

    /// Applies an operation on whole vectors or matrices.
    pub fn algebra(&mut self, op: AlgebraOp, args: &[ExprId]) -> ExprId {
        self.algebra_expr(op, 0, Type::Scalar(Scalar::Bool), args)
    }

    /// Constructs a vector, matrix or struct from its components or fields; a single scalar fills
    /// all components.
    pub fn construct(&mut self, ty: Type, components: &[ExprId]) -> ExprId {
        self.algebra_expr(AlgebraOp::Construct, 0, ty, components)
    }

    /// Extracts a component or field.
    pub fn extract(&mut self, whole: ExprId, component: u32) -> ExprId {
        self.algebra_expr(AlgebraOp::Extract, component, Type::Scalar(Scalar::Bool), &[whole])
    }

    /// Returns `whole` with one component or field replaced.
    pub fn insert(&mut self, whole: ExprId, component: u32, value: ExprId) -> ExprId {
        self.algebra_expr(AlgebraOp::Insert, component, Type::Scalar(Scalar::Bool), &[whole, value])
    }

    fn algebra_expr(&mut self, op: AlgebraOp, component: u32, wanted: Type, args: &[ExprId]) -> ExprId {
        let types: Vec<Type> = args.iter().map(|&id| self.type_of(id)).collect();
        let ty = match op.result(component, wanted, &types, &self.kernel.structs) {
            Ok(ty) => ty,
            Err(expected) => {
                let types = self.type_names(&types);
                self.record_error(format!("{} of ({types}) expects {expected}", op.row().name));
                wanted
            }
        };
        self.push_let(Expr::Algebra { op, component, args: args.into() }, ty)
    }

    fn type_names(&self, types: &[Type]) -> String {
        types.iter().map(|ty| ty.name(&self.kernel.structs).to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Prints a line for debugging; each `{}` is replaced by the next scalar.
    pub fn print(&mut self, format: impl Into<String>, args: &[ExprId]) {
        self.push_stmt(Stmt::Print { format: format.into(), args: args.into() });
    }

    /// Adds an infinite loop; `body` adds its statements.
    pub fn infinite_loop(&mut self, body: impl FnOnce(&mut Builder)) {
        self.open.push(vec![]);
        body(self);
        let body = self.close();
        self.push_stmt(Stmt::Loop { body });
    }

    /// Returns the element type of a view; records an error for an unknown view.
    fn element_type(&mut self, view: View) -> Type {
        match self.kernel.has_view(view) {
            true => self.kernel.view(view).ty,
            false => {
                self.record_error(format!("{view:?} does not exist"));
                self.kernel.index.into()
            }
        }
    }

    /// Returns the type that an access loads: the element's, or a component's if there is one more
    /// index.
    fn accessed_type(&mut self, view: View, indices: &Args) -> Type {
        let ty = self.element_type(view);
        let rank = self.kernel.has_view(view).then(|| self.kernel.view(view).dims.len());
        match indices.last() {
            Some(&component) if rank.is_some_and(|rank| indices.len() == rank + 1) => {
                let known = self.constant_value(component).map(Value::as_i64).and_then(|n| usize::try_from(n).ok());
                let scalar = ty.element().or(known.and_then(|n| ty.components(&self.kernel.structs).get(n).copied()));
                scalar.map_or(ty, Type::Scalar)
            }
            _ => ty,
        }
    }

    /// Assigns to a variable.
    pub fn assign(&mut self, local: LocalId, value: ExprId) {
        self.push_stmt(Stmt::Assign(local, value));
    }

    /// Opens a counted loop: statements are added to its body until [`Builder::close_loop`].
    /// Returns its counter.
    pub fn open_loop(&mut self, name: &str) -> LocalId {
        let counter = self.local(name, Value::int(self.kernel.index, 0));
        self.open.push(vec![]);
        counter
    }

    /// Closes the innermost open loop; `end` is the exclusive bound, evaluated before the loop.
    pub fn close_loop(&mut self, counter: LocalId, end: ExprId) {
        let body = self.close();
        self.push_stmt(Stmt::For { counter, end, body });
    }

    /// Opens a block: statements are added to it until [`Builder::close_block`].
    pub fn open_block(&mut self) {
        self.open.push(vec![]);
    }

    /// Closes the innermost open block and returns its statements, to be used in a [`Stmt`].
    pub fn close_block(&mut self) -> Vec<Stmt> {
        self.close()
    }

    /// Adds a conditional.
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
        self.push_stmt(Stmt::If { condition, then, otherwise });
    }

    /// Sets the source line of the statements that follow. See [`Builder::finish_with_lines`].
    pub fn source_line(&mut self, line: u32) {
        self.line = line;
    }

    /// Returns the current position in the code, for [`Builder::rollback`].
    pub fn mark(&self) -> Mark {
        Mark {
            exprs: self.code.exprs.len(),
            locals: self.code.locals.len(),
            stmts: self.open.last().map_or(0, Vec::len),
            lines: self.lines.code.len(),
        }
    }

    /// Removes everything added since `mark`, which must be in the same block.
    pub fn rollback(&mut self, mark: &Mark) {
        self.code.exprs.truncate(mark.exprs);
        self.code.types.truncate(mark.exprs);
        self.code.locals.truncate(mark.locals);
        self.lines.code.truncate(mark.lines);
        if let Some(block) = self.open.last_mut() {
            block.truncate(mark.stmts);
        }
    }

    /// Returns the number of expressions so far, which is the index of the next one.
    pub fn next_expr(&self) -> u32 {
        self.code.exprs.len() as u32
    }

    /// Returns the struct types added so far.
    pub fn structs(&self) -> &[Struct] {
        &self.kernel.structs
    }

    /// Returns the kernel so far, without its code.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Returns the name of a view.
    pub fn view_name(&self, view: View) -> &str {
        self.kernel.view(view).name
    }

    /// Verifies and returns the kernel, with the source line of each line of its text form (0 if
    /// there is none).
    pub fn finish_with_lines(mut self) -> Result<(Kernel, Vec<u32>), VerifyError> {
        let lines = std::mem::take(&mut self.lines);
        let kernel = self.finish()?;
        let lines = kernel.source_lines(&lines.functions, &lines.code);
        Ok((kernel, lines))
    }

    /// Verifies and returns the kernel.
    pub fn finish(mut self) -> Result<Kernel, VerifyError> {
        if self.open.len() != 1 {
            self.record_error("a loop was opened and not closed, or closed and not opened".into());
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        self.code.body = self.open.pop().unwrap_or_default();
        self.kernel.code = self.code;
        verify(&self.kernel)?;
        Ok(self.kernel)
    }

    fn close(&mut self) -> Vec<Stmt> {
        if self.open.len() == 1 {
            self.record_error("a loop was closed and not opened".into());
        }
        self.open.pop().unwrap_or_default()
    }

    /// Records an error; [`Builder::finish`] returns the first one.
    pub fn record_error(&mut self, message: String) {
        let error = VerifyError::new(&self.kernel.name, message);
        self.error.get_or_insert(error);
    }

    /// Returns the type of an expression; records an error for an unknown expression.
    pub fn type_of(&mut self, id: ExprId) -> Type {
        match self.code.types.get(id.0 as usize) {
            Some(ty) => *ty,
            None => {
                self.record_error(format!("%{} does not exist", id.0));
                self.kernel.index.into()
            }
        }
    }

    /// Appends a statement to the innermost open block: a barrier, a fence, `Break`, `Continue`,
    /// `Return`, or one whose nested blocks are already built.
    pub fn push_stmt(&mut self, stmt: Stmt) {
        if !matches!(stmt, Stmt::If { .. } | Stmt::For { .. } | Stmt::Loop { .. }) {
            self.lines.code.push(self.line);
        }
        if let Some(block) = self.open.last_mut() {
            block.push(stmt);
        }
    }

    fn push(&mut self, expr: Expr, ty: impl Into<Type>) -> ExprId {
        self.code.exprs.push(expr);
        self.code.types.push(ty.into());
        ExprId(self.code.exprs.len() as u32 - 1)
    }

    fn push_let(&mut self, expr: Expr, ty: impl Into<Type>) -> ExprId {
        let id = self.push(expr, ty);
        self.push_stmt(Stmt::Let(id));
        id
    }
}

impl Emit for Builder {
    type V = ExprId;

    fn op(&mut self, op: Op, args: &[&ExprId]) -> ExprId {
        let ids: Vec<ExprId> = args.iter().map(|&&id| id).collect();
        let types: Vec<Type> = ids.iter().map(|&id| self.type_of(id)).collect();
        let ty = op_result(op, &types).unwrap_or_else(|expected| {
            let names = self.type_names(&types);
            self.record_error(format!("{} of ({names}) expects {expected}", op.row().name));
            types.first().copied().unwrap_or(self.kernel.index.into())
        });
        match Args::new(&ids) {
            Some(args) => self.push_let(Expr::Op(op, args), ty),
            None => {
                self.record_error(format!(
                    "{} takes {}, found {}",
                    op.row().name,
                    counted(op.arity(), "argument"),
                    ids.len()
                ));
                ids[0]
            }
        }
    }

    fn constant_like(&mut self, like: &ExprId, value: f64) -> ExprId {
        let ty = self.type_of(*like);
        let Some(scalar) = ty.element() else {
            self.record_error(format!("%{} is a struct, not a number", like.0));
            return *like;
        };
        let one = self.constant(Value::from_f64(scalar, value));
        if ty.as_scalar().is_some() { one } else { self.construct(ty, &[one]) }
    }
}

impl EmitBits for Builder {
    fn scalar(&self, v: &ExprId) -> Scalar {
        self.code.types.get(v.0 as usize).and_then(|ty| ty.element()).unwrap_or(self.kernel.index)
    }

    /// NaNs are canonicalized, so that constants survive a round trip through text.
    fn constant(&mut self, value: Value) -> ExprId {
        let value = value.canonicalize_nan();
        self.push(Expr::Const(value), value.scalar())
    }

    fn cast_step(&mut self, to: Scalar, v: &ExprId) -> ExprId {
        self.cast(to, v)
    }

    /// A single expression; backends expand conversions.
    fn cast(&mut self, to: Scalar, v: &ExprId) -> ExprId {
        let ty = self.type_of(*v);
        if ty.element() == Some(to) { *v } else { self.push_let(Expr::Cast(to, *v), ty.with_element(to)) }
    }

    fn bitcast(&mut self, to: Scalar, v: &ExprId) -> ExprId {
        let ty = self.type_of(*v);
        self.push_let(Expr::Bitcast(to, *v), ty.with_element(to))
    }
}
