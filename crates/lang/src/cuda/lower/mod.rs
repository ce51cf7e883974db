//! Meaning: one kernel of a file, for one launch, as kernel IR.
//!
//! Names are resolved, types and templates worked out, and statements written in one walk over the syntax. Functions of
//! values become functions of the IR; those that touch memory or other threads are written out where they are called.
//!
//! | to see | look in |
//! |---|---|
//! | what a name stands for | [`Binding`], `names.rs` |
//! | pointers, elements, fields, local arrays | `lvalue.rs`, `index.rs`, `fill.rs` |
//! | operators and conversions | `expr.rs`, `convert.rs`, `conditional.rs`, `assign.rs`, `make.rs`, `member.rs` |
//! | functions of CUDA and of our printer | `op_table.rs`, `builtin.rs`, `math.rs`, `warp.rs`, `atomic.rs`, `round_trip.rs` |
//! | functions of the file, templates | `call.rs`, `overload.rs`, `inline_call.rs`, `template.rs` |
//! | statements and loops | `stmt.rs`, `control.rs`, `declare.rs`, `shared.rs` |
//! | how structs lie in memory | `layout.rs` |
//! | what is looked up in syntax before it is lowered | `scan.rs` |

mod array_init;
mod assign;
mod atomic;
mod builtin;
mod call;
mod cas_loop;
mod component;
mod conditional;
mod construct;
mod control;
mod convert;
mod cuda_functions;
mod declare;
mod expr;
mod index;
mod inline;
mod layout;
mod lvalue;
mod math;
mod member;
mod names;
mod overload;
mod parallel_for;
mod printer_functions;
mod scan;
mod shared;
mod stmt;
mod template;
mod warp;

use std::rc::Rc;

use bornite_ir::{Builder, ExprId, FunctionId, LocalId, Scalar, Stmt, Type, Value, View};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::CudaModule;
use super::ast::{Expr, Function};
use super::lex::Symbol;
use super::types::CType;
use crate::diagnostic::Diagnostic;
use crate::lower::{Tree, Writer};
use crate::{LaunchRequest, Lowered, ParamRef, SourceSpan};
use lvalue::{ConstArray, LocalArray, Lvalue, Pointer};
pub(super) use scan::pure_functions;

/// What is wrong is in the lowering already.
pub struct Failed;

pub type LowerResult<T = ()> = Result<T, Failed>;

/// Mistakes after which the rest of a kernel is not looked at.
const MAX_ERRORS: usize = 20;

/// An argument that a template was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundArg {
    Type(CType),
    Value(Value),
}

/// What a name stands for.
#[derive(Clone)]
enum Binding {
    /// A value that does not change.
    Value(Tree),
    /// A variable.
    Local(LocalId, Type),
    /// An array of a thread's own.
    LocalArray(LocalArray),
    /// Constants in an array.
    ConstArray(Rc<ConstArray>),
    /// A pointer that does not change, or an array in memory.
    Pointer(Pointer),
    /// A pointer whose place changes.
    MovingPointer(Pointer, LocalId),
    /// Another name of a place.
    Lvalue(Lvalue),
    /// A pointer to one variable.
    Address(Lvalue),
    Type(CType),
    /// Something that could not be declared; it was reported there.
    Poison,
}

/// What a `break`, `continue` or `return` may have to leave.
struct ControlScope<'m> {
    kind: ScopeKind,
    /// What a `continue` does before the next turn.
    step: Option<&'m Expr>,
    /// What a `continue` of `do … while` asks.
    check: Option<&'m Expr>,
    /// Set where a `continue` of a loop around left this switch.
    continued: Option<LocalId>,
    /// Whether a `return` of the function being written out left it.
    returned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Loop,
    Switch,
    /// A function that is written out: a loop that runs once.
    InlinedCall,
}

/// A function that is being written out.
struct Inline {
    function: usize,
    bound: Vec<BoundArg>,
    result: Option<(LocalId, Type)>,
    /// Contexts around it.
    control_scopes: usize,
    /// Set where a `return` leaves loops within it.
    left: Option<LocalId>,
}

/// Whose code is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodeKind {
    Kernel,
    /// A function of the IR, and what it returns.
    Function(Type),
}

pub(super) struct Lowering<'m> {
    m: &'m CudaModule,
    request: &'m LaunchRequest,
    w: Writer,
    index_type: Scalar,
    /// An index of 64 bits was met in a kernel of 32-bit indices.
    pub needs_wide_index: bool,
    pub errors: Vec<Diagnostic>,
    scope: Vec<(Symbol, Binding)>,
    /// Where the names of the function being lowered begin.
    base: usize,
    /// Names that the function being lowered assigns.
    assigned: Rc<HashSet<Symbol>>,
    control_scopes: Vec<ControlScope<'m>>,
    inlines: Vec<Inline>,
    code: CodeKind,
    /// Loops around, in the code being written.
    loops: usize,
    /// Structs in use: item of the file, template arguments, and type.
    structs: Vec<(usize, Vec<BoundArg>, Type)>,
    /// Functions in use: item of the file, template arguments, function.
    functions: Vec<(usize, Vec<BoundArg>, FunctionId)>,
    /// Functions whose instance is being made, and structs.
    instantiating: Vec<(usize, Vec<BoundArg>)>,
    instantiating_structs: Vec<usize>,
    /// A plain read that an update by compare-and-swap begins with, by its span.
    cas_initial_read: Option<SourceSpan>,
    shared: Vec<shared::SharedArray<'m>>,
    /// Dynamic shared memory, if it is in use.
    dynamic_shared: Option<Pointer>,
    shared_names: Vec<String>,
    /// Arrays of the file in use.
    globals: Vec<(Symbol, Binding)>,
    views: u32,
    /// Views whose components are read alone; those that turn out to be written so; those of which a part was read by way of the
    /// whole.
    component_views: &'m [View],
    component_writes: Vec<View>,
    whole_reads: Vec<View>,
    /// Arrays of const elements, by name.
    read_only: Vec<(View, String)>,
    /// Expressions looked at, and aliases within one another: neither goes on without end.
    steps: usize,
    alias_depth: usize,
    /// Variables of the code being written, counted.
    locals: u32,
    /// Numbers that the source gives expressions.
    expr_numbers: HashMap<ExprId, u32>,
    function_expr_numbers: Vec<HashMap<ExprId, u32>>,
    params: Vec<(String, ParamRef)>,
}

/// Why a kernel was not made.
pub(super) enum LowerError {
    Invalid(Vec<Diagnostic>),
    /// An index of 64 bits was met on the way.
    NeedsWideIndex(Vec<Diagnostic>),
    /// Components of these views are written alone, so they must be read alone too.
    NeedsComponentAccess(Vec<View>),
}

impl<'m> Lowering<'m> {
    pub fn new(
        m: &'m CudaModule,
        request: &'m LaunchRequest,
        function: &'m Function,
        index_type: Scalar,
    ) -> Lowering<'m> {
        let name = names::unmangled(m.names.text(function.name), request.round_trip, |_| false);
        Lowering {
            m,
            request,
            w: Writer::new(Builder::blocks(name, request.grid, request.block, index_type)),
            index_type,
            needs_wide_index: false,
            errors: vec![],
            scope: vec![],
            base: 0,
            assigned: Rc::new(HashSet::new()),
            control_scopes: vec![],
            inlines: vec![],
            code: CodeKind::Kernel,
            loops: 0,
            structs: vec![],
            functions: vec![],
            instantiating: vec![],
            instantiating_structs: vec![],
            cas_initial_read: None,
            shared: vec![],
            dynamic_shared: None,
            shared_names: vec![],
            globals: vec![],
            views: 0,
            component_views: &[],
            component_writes: vec![],
            whole_reads: vec![],
            read_only: vec![],
            steps: 0,
            alias_depth: 0,
            locals: 0,
            expr_numbers: HashMap::new(),
            function_expr_numbers: vec![],
            params: vec![],
        }
    }

    /// The kernel; or why there is none.
    pub fn kernel(
        mut self,
        function: &'m Function,
        bound: &[Option<BoundArg>],
        parts: &'m [View],
    ) -> Result<Lowered, LowerError> {
        self.component_views = parts;
        let _ = self.write_kernel(function, bound);
        if self.needs_wide_index {
            return Err(LowerError::NeedsWideIndex(self.errors));
        }
        if !self.errors.is_empty() {
            return Err(LowerError::Invalid(self.errors));
        }
        if self.component_writes.iter().any(|view| self.whole_reads.contains(view)) {
            return Err(LowerError::NeedsComponentAccess([parts, &self.component_writes].concat()));
        }
        let (mut kernel, lines) = match self.w.b.finish_with_lines() {
            Ok(finished) => finished,
            Err(error) => {
                let what = format!("kernel '{}' is invalid: {}", error.kernel, error.what);
                let found = self.m.source.diagnostic(function.span, what, String::new(), None);
                return Err(LowerError::Invalid(vec![found]));
            }
        };
        if self.request.round_trip {
            for (function, wanted) in kernel.functions.iter_mut().zip(&self.function_expr_numbers) {
                crate::lower::renumber(&mut function.code, wanted);
            }
            crate::lower::renumber(&mut kernel.code, &self.expr_numbers);
        }
        Ok(Lowered { kernel, params: self.params, lines })
    }

    fn write_kernel(&mut self, function: &'m Function, given: &[Option<BoundArg>]) -> LowerResult {
        let bound = self.with_defaults(&function.templates, given, function.span)?;
        self.bind_templates(&function.templates, &bound);
        if self.request.round_trip {
            self.lower_all_items()?;
        }
        self.kernel_params(function)?;
        self.assigned = Rc::new(scan::assigned(self.m, function));
        match self.request.round_trip.then(|| parallel_for::instances(self.m, &function.body)).flatten() {
            Some(instances) => {
                let count = self.instance_count(instances.count)?;
                self.w.b.count(count);
                let index = self.w.b.index();
                self.bind(instances.index, Binding::Value(Tree::emitted(index, self.index_type)));
                self.block(&instances.body[1..])
            }
            None => self.block(&function.body),
        }
    }

    fn text(&self, symbol: Symbol) -> &'m str {
        self.m.names.text(symbol)
    }

    fn fail<T>(
        &mut self,
        span: SourceSpan,
        message: impl Into<String>,
        label: impl Into<String>,
        hint: impl Into<String>,
    ) -> LowerResult<T> {
        if self.errors.len() < MAX_ERRORS {
            let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
            self.errors.push(self.m.source.diagnostic(span, message.into(), label.into(), hint));
        }
        Err(Failed)
    }

    /// A construct that the subset leaves out.
    fn unsupported<T>(&mut self, span: SourceSpan, construct: impl std::fmt::Display, hint: &str) -> LowerResult<T> {
        self.fail(span, format!("{construct} is not supported"), "not in the subset", hint)
    }

    /// What may fail without being a mistake.
    fn attempt<T>(&mut self, make: impl FnOnce(&mut Self) -> LowerResult<T>) -> Option<T> {
        let errors = self.errors.len();
        let made = make(self).ok();
        self.errors.truncate(errors);
        made
    }

    /// What follows is written for that part of the source.
    fn set_source_line(&mut self, span: SourceSpan) {
        self.w.b.source_line(self.m.source.line(span.start));
    }

    fn bind(&mut self, name: Symbol, binding: Binding) {
        self.scope.push((name, binding));
    }

    fn new_local(&mut self, name: &str, ty: Type, init: &[Value]) -> LocalId {
        let number = self.locals;
        self.locals += 1;
        let name = match name.rsplit_once('_') {
            // Our printer adds the variable's number.
            Some((name, n)) if self.request.round_trip && n.parse() == Ok(number) => name,
            _ => name,
        };
        self.w.b.local_of(name, ty, init)
    }

    /// Zeros for every component.
    fn zeros(&self, ty: Type) -> Vec<Value> {
        ty.components(self.w.b.structs()).into_iter().map(|scalar| Value::int(scalar, 0)).collect()
    }

    fn assign(&mut self, local: LocalId, tree: &Tree) {
        let value = self.w.emit(tree);
        self.w.stmt(Stmt::Assign(local, value));
    }

    fn unique_shared_name(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        while self.shared_names.contains(&unique) {
            unique.push('_');
        }
        self.shared_names.push(unique.clone());
        unique
    }

    fn type_name(&self, ty: Type) -> String {
        match ty {
            Type::Scalar(scalar) => super::types::scalar_name(scalar).into(),
            Type::Vector(scalar, n @ 2..=4) if !self.request.round_trip => super::types::vector_name(scalar, n),
            _ => ty.name(self.w.b.structs()).to_string(),
        }
    }
}
