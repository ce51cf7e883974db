//! Meaning: one kernel of a file, for one launch, as kernel IR.
//!
//! Names are resolved, types and templates worked out, and statements written in one walk over the syntax. Functions of
//! values become functions of the IR; those that touch memory or other threads are written out where they are called.
//!
//! | to see | look in |
//! |---|---|
//! | what a name stands for | [`Binding`], `names.rs` |
//! | pointers, elements, fields, local arrays | `place.rs`, `index.rs`, `fill.rs` |
//! | operators and conversions | `expr.rs`, `convert.rs`, `choose.rs`, `assign.rs`, `make.rs`, `member.rs` |
//! | functions of CUDA and of our printer | `rows.rs`, `builtin.rs`, `math.rs`, `warp.rs`, `atomic.rs`, `printed.rs` |
//! | functions of the file, templates | `call.rs`, `overload.rs`, `write_out.rs`, `template.rs` |
//! | statements and loops | `stmt.rs`, `control.rs`, `declare.rs`, `shared.rs` |
//! | how structs lie in memory | `layout.rs` |
//! | what is looked up in syntax before it is lowered | `scan.rs` |

mod assign;
mod atomic;
mod builtin;
mod call;
mod choose;
mod control;
mod convert;
mod declare;
mod expr;
mod fill;
mod frame;
mod guess;
mod index;
mod layout;
mod make;
mod math;
mod member;
mod names;
mod overload;
mod parts;
mod place;
mod printed;
mod rows;
mod scan;
mod shared;
mod stmt;
mod template;
mod warp;
mod write_out;

use std::rc::Rc;

use bornite_ir::{Builder, ExprId, FunctionId, LocalId, Scalar, Stmt, Type, Value, View};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::Module;
use super::ast::{Expr, Function};
use super::lex::Symbol;
use super::types::CType;
use crate::diagnostic::Diagnostic;
use crate::lower::{Tree, Writer};
use crate::{Lowered, ParamRef, Request, Span};
use place::{Place, Pointer, Slots, Table};
pub(super) use scan::value_functions;

/// What is wrong is in the lowering already.
pub struct Failed;

pub type Done<T = ()> = Result<T, Failed>;

/// Mistakes after which the rest of a kernel is not looked at.
const MAX_ERRORS: usize = 20;

/// An argument that a template was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
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
    Array(Slots),
    /// Constants in an array.
    Table(Rc<Table>),
    /// A pointer that does not change, or an array in memory.
    Pointer(Pointer),
    /// A pointer whose place changes.
    Moving(Pointer, LocalId),
    /// Another name of a place.
    Place(Place),
    /// A pointer to one variable.
    Address(Place),
    Type(CType),
    /// Something that could not be declared; it was reported there.
    Poison,
}

/// What a `break`, `continue` or `return` may have to leave.
struct Context<'m> {
    kind: Leave,
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
enum Leave {
    Loop,
    Switch,
    /// A function that is written out: a loop that runs once.
    Call,
}

/// A function that is being written out.
struct Inline {
    function: usize,
    bound: Vec<Bound>,
    result: Option<(LocalId, Type)>,
    /// Contexts around it.
    contexts: usize,
    /// Set where a `return` leaves loops within it.
    left: Option<LocalId>,
}

/// Whose code is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Kernel,
    /// A function of the IR, and what it returns.
    Function(Type),
}

pub(super) struct Lower<'m> {
    m: &'m Module,
    request: &'m Request,
    w: Writer,
    index: Scalar,
    /// An index of 64 bits was met in a kernel of 32-bit indices.
    pub needs_wide: bool,
    pub errors: Vec<Diagnostic>,
    scope: Vec<(Symbol, Binding)>,
    /// Where the names of the function being lowered begin.
    base: usize,
    /// Names that the function being lowered assigns.
    assigned: Rc<HashSet<Symbol>>,
    contexts: Vec<Context<'m>>,
    inlines: Vec<Inline>,
    code: Code,
    /// Loops around, in the code being written.
    loops: usize,
    /// Structs in use: item of the file, template arguments, and type.
    structs: Vec<(usize, Vec<Bound>, Type)>,
    /// Functions in use: item of the file, template arguments, function.
    functions: Vec<(usize, Vec<Bound>, FunctionId)>,
    /// Functions whose instance is being made, and structs.
    making: Vec<(usize, Vec<Bound>)>,
    making_structs: Vec<usize>,
    /// A plain read that an update by compare-and-swap begins with, by its span.
    guess: Option<Span>,
    shared: Vec<shared::SharedArray<'m>>,
    /// Dynamic shared memory, if it is in use.
    dynamic: Option<Pointer>,
    shared_names: Vec<String>,
    /// Arrays of the file in use.
    globals: Vec<(Symbol, Binding)>,
    views: u32,
    /// Views whose components are read alone; those that turn out to be written so; those of which a part was read by way of the
    /// whole.
    parts: &'m [View],
    parted: Vec<View>,
    read_whole: Vec<View>,
    /// Arrays of const elements, by name.
    read_only: Vec<(View, String)>,
    /// Expressions looked at, and aliases within one another: neither goes on without end.
    steps: usize,
    alias_depth: usize,
    /// Variables of the code being written, counted.
    locals: u32,
    /// Numbers that the source gives expressions.
    wanted: HashMap<ExprId, u32>,
    function_wanted: Vec<HashMap<ExprId, u32>>,
    params: Vec<(String, ParamRef)>,
}

/// Why a kernel was not made.
pub(super) enum Unmade {
    Wrong(Vec<Diagnostic>),
    /// An index of 64 bits was met on the way.
    Wide(Vec<Diagnostic>),
    /// Components of these views are written alone, so they must be read alone too.
    Parts(Vec<View>),
}

impl<'m> Lower<'m> {
    pub fn new(m: &'m Module, request: &'m Request, function: &'m Function, index: Scalar) -> Lower<'m> {
        let name = names::given(m.names.text(function.name), request.printed, |_| false);
        Lower {
            m,
            request,
            w: Writer::new(Builder::blocks(name, request.grid, request.block, index)),
            index,
            needs_wide: false,
            errors: vec![],
            scope: vec![],
            base: 0,
            assigned: Rc::new(HashSet::new()),
            contexts: vec![],
            inlines: vec![],
            code: Code::Kernel,
            loops: 0,
            structs: vec![],
            functions: vec![],
            making: vec![],
            making_structs: vec![],
            guess: None,
            shared: vec![],
            dynamic: None,
            shared_names: vec![],
            globals: vec![],
            views: 0,
            parts: &[],
            parted: vec![],
            read_whole: vec![],
            read_only: vec![],
            steps: 0,
            alias_depth: 0,
            locals: 0,
            wanted: HashMap::new(),
            function_wanted: vec![],
            params: vec![],
        }
    }

    /// The kernel; or why there is none.
    pub fn kernel(
        mut self,
        function: &'m Function,
        bound: &[Option<Bound>],
        parts: &'m [View],
    ) -> Result<Lowered, Unmade> {
        self.parts = parts;
        let _ = self.write_kernel(function, bound);
        if self.needs_wide {
            return Err(Unmade::Wide(self.errors));
        }
        if !self.errors.is_empty() {
            return Err(Unmade::Wrong(self.errors));
        }
        if self.parted.iter().any(|view| self.read_whole.contains(view)) {
            return Err(Unmade::Parts([parts, &self.parted].concat()));
        }
        let (mut kernel, lines) = match self.w.b.finish_with_lines() {
            Ok(done) => done,
            Err(error) => {
                let what = format!("kernel '{}' cannot be made: {}", error.kernel, error.what);
                let found = self.m.source.diagnostic(function.span, what, String::new(), None);
                return Err(Unmade::Wrong(vec![found]));
            }
        };
        if self.request.printed {
            for (function, wanted) in kernel.functions.iter_mut().zip(&self.function_wanted) {
                crate::lower::renumber(&mut function.code, wanted);
            }
            crate::lower::renumber(&mut kernel.code, &self.wanted);
        }
        Ok(Lowered { kernel, params: self.params, lines })
    }

    fn write_kernel(&mut self, function: &'m Function, given: &[Option<Bound>]) -> Done {
        let bound = self.with_defaults(&function.templates, given, function.span)?;
        self.bind_templates(&function.templates, &bound);
        if self.request.printed {
            self.keep_all()?;
        }
        self.kernel_params(function)?;
        self.assigned = Rc::new(scan::assigned(self.m, function));
        match self.request.printed.then(|| frame::instances(self.m, &function.body)).flatten() {
            Some(instances) => {
                let count = self.instance_count(instances.count)?;
                self.w.b.count(count);
                let index = self.w.b.index();
                self.bind(instances.index, Binding::Value(Tree::done(index, self.index)));
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
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
        hint: impl Into<String>,
    ) -> Done<T> {
        if self.errors.len() < MAX_ERRORS {
            let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
            self.errors.push(self.m.source.diagnostic(span, message.into(), label.into(), hint));
        }
        Err(Failed)
    }

    /// A construct that the subset leaves out.
    fn refuse<T>(&mut self, span: Span, construct: impl std::fmt::Display, hint: &str) -> Done<T> {
        self.fail(span, format!("{construct} is not supported"), "not in the subset", hint)
    }

    /// What may fail without being a mistake.
    fn quietly<T>(&mut self, make: impl FnOnce(&mut Self) -> Done<T>) -> Option<T> {
        let errors = self.errors.len();
        let made = make(self).ok();
        self.errors.truncate(errors);
        made
    }

    /// What follows is written for that part of the source.
    fn at(&mut self, span: Span) {
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
            Some((name, n)) if self.request.printed && n.parse() == Ok(number) => name,
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

    fn shared_name(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        while self.shared_names.contains(&unique) {
            unique.push('_');
        }
        self.shared_names.push(unique.clone());
        unique
    }

    fn type_name(&self, ty: Type) -> String {
        match ty {
            Type::Scalar(scalar) => super::types::spelled(scalar).into(),
            Type::Vector(scalar, n @ 2..=4) if !self.request.printed => super::types::vector(scalar, n),
            _ => ty.name(self.w.b.structs()).to_string(),
        }
    }
}
