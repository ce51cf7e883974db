//! Lowers one kernel of a file, for one launch, to kernel IR.
//!
//! One walk over the syntax resolves names, types and templates and emits statements. Pure
//! functions become IR functions; functions that access memory or synchronize threads are inlined.
//!
//! | to see | look in |
//! |---|---|
//! | names | [`Binding`], `names.rs`, `scope.rs`, `constants.rs` |
//! | pointers, elements, fields, local arrays | `lvalue.rs`, `index.rs`, `array_init.rs`, `component.rs`, `local_memory.rs`, `tagged.rs`, `stored_pointer.rs` |
//! | operators and conversions | `expr.rs`, `convert.rs`, `reinterpret.rs`, `conditional.rs`, `assign.rs`, `reference.rs`, `construct.rs`, `member.rs` |
//! | functions of CUDA | `cuda_functions.rs`, `builtin.rs`, `math.rs`, `warp.rs`, `group.rs`, `collective.rs`, `atomic.rs`, `memory_functions.rs` |
//! | text of the CUDA printer | `printer_functions.rs`, `parallel_for.rs` |
//! | functions of the file, templates | `call.rs`, `overload.rs`, `inline.rs`, `template.rs` |
//! | member functions, constructors, overloaded operators | `method.rs`, `operator.rs` |
//! | statements and loops | `stmt.rs`, `control.rs`, `declare.rs`, `shared.rs`, `cas_loop.rs`, `assertion.rs` |
//! | types and memory layout of structs | `struct_type.rs`, `layout.rs` |
//! | limits of enums; of a launch | `enums.rs`; `limits.rs` |
//! | variables that may be read before they are written | `uninitialized.rs` |
//! | queries on syntax | `scan.rs` |

mod array_init;
mod assertion;
mod assign;
mod atomic;
mod builtin;
mod call;
mod cas_loop;
mod collective;
mod component;
mod conditional;
mod constants;
mod construct;
mod control;
mod convert;
mod cuda_functions;
mod declare;
mod enums;
mod expr;
mod group;
mod index;
mod inline;
mod layout;
mod limits;
mod local_memory;
mod lvalue;
mod math;
mod member;
mod memory_functions;
mod method;
mod names;
mod operator;
mod overload;
mod pair;
mod parallel_for;
mod printer_functions;
mod reference;
mod reinterpret;
mod scan;
mod scope;
mod shared;
mod stmt;
mod stored_pointer;
mod struct_type;
mod tagged;
mod template;
mod uninitialized;
mod warp;

use std::rc::Rc;

use bornite_ir::{Builder, ExprId, FunctionId, LocalArrayId, LocalId, Scalar, Stmt, Type, Value, View};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::CudaModule;
use super::ast::{Expr, Function, TemplateArg};
use super::lex::Symbol;
use super::preprocess::undeclared_hint;
use super::types::{CType, Group};
use crate::diagnostic::Diagnostic;
use crate::lower::{Tree, Writer};
use crate::{LaunchRequest, Lowered, ParamRef, SourceSpan};
pub(super) use cuda_functions::is_math;
pub(super) use enums::EnumNames;
pub(super) use local_memory::MemoryNeeds;
use local_memory::RegisterVariables;
use lvalue::{ConstArray, Lvalue, Pointer, RegisterArray};
use method::ThisObject;
pub(super) use scan::pure_functions;
use tagged::TaggedPointer;

/// Marker of a failed lowering; its error is in [`Lowering::errors`].
pub struct LowerFailed;

pub type LowerResult<T = ()> = Result<T, LowerFailed>;

/// Maximum nesting of expressions and statements, counted through inlined calls and constants.
const MAX_DEPTH: usize = 500;
/// Errors after which the rest of a kernel is skipped.
const MAX_ERRORS: usize = 20;

/// A template argument after evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundArg {
    Type(CType),
    Value(Value),
}

/// Meaning of a name.
#[derive(Clone)]
enum Binding {
    /// A value that is never reassigned.
    Value(Tree),
    /// A mutable variable.
    Local(LocalId, Type),
    /// A local array in registers.
    RegisterArray(RegisterArray),
    /// A constant array.
    ConstArray(Rc<ConstArray>),
    /// A pointer that is never reassigned, or an array in memory.
    Pointer(Pointer),
    /// A pointer that is reassigned; its offset is a local.
    MovingPointer(Pointer, LocalId),
    /// A pointer that is reassigned and may point into different arrays, or be null.
    TaggedPointer(TaggedPointer),
    /// A reference to an lvalue.
    Lvalue(Lvalue),
    /// A pointer to a single variable.
    Address(Lvalue),
    Type(CType),
    Group(Group),
    /// A pointer that is null, with the type it points to if that is known.
    Null(Option<Type>),
    /// A pointer to values of this type before its first assignment, which determines its array;
    /// and its declaration.
    UnsetPointer(Type, SourceSpan),
    /// A failed declaration, already reported.
    Poison,
}

/// An enclosing construct that `break`, `continue` or `return` may leave.
struct ControlScope<'m> {
    kind: ScopeKind,
    /// Step expression, which `continue` evaluates before the next iteration.
    step: Option<&'m Expr>,
    /// Condition of `do … while`, which `continue` evaluates.
    check: Option<&'m Expr>,
    /// Flag set where a `continue` of an enclosing loop left this switch.
    continued: Option<LocalId>,
    /// True if a `return` of the inlined function leaves it.
    returned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Loop,
    Switch,
    /// An inlined function: a loop that runs once.
    InlinedCall,
}

/// A function being inlined.
struct Inline {
    function: usize,
    bound: Vec<BoundArg>,
    result: Option<(LocalId, Type)>,
    /// Number of control scopes around the call.
    control_scopes: usize,
    /// Flag set where a `return` leaves loops inside the function.
    left: Option<LocalId>,
}

/// Code being emitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodeKind {
    Kernel,
    /// An IR function with this return type.
    Function(Type),
}

/// State of lowering one kernel.
pub(super) struct Lowering<'m> {
    module: &'m CudaModule,
    request: &'m LaunchRequest,
    /// Writer of the code being emitted; its builder is `w.b`.
    w: Writer,
    index_type: Scalar,
    /// True if a 64-bit index occurred in a kernel with 32-bit indices.
    pub needs_wide_index: bool,
    pub errors: Vec<Diagnostic>,
    scope: Vec<(Symbol, Binding)>,
    /// Start of the current function's names in `scope`.
    base: usize,
    /// Names that the current function assigns.
    assigned: Rc<HashSet<Symbol>>,
    /// Names of the current function that pointers or references may refer to.
    aliased: Rc<HashSet<Symbol>>,
    control_scopes: Vec<ControlScope<'m>>,
    inlines: Vec<Inline>,
    /// Object of the member function being inlined.
    this: Option<ThisObject>,
    /// Position in the file of the code being lowered: it sees the names declared before.
    order: u32,
    /// Names of the instantiated functions.
    function_names: Vec<String>,
    /// Lvalue of the last assignment or increment, for references to it.
    assigned_lvalue: Option<Lvalue>,
    /// True if the last call returned a copy of what its result refers to.
    copied_reference: bool,
    code: CodeKind,
    /// Number of enclosing loops in the code being emitted.
    loops: usize,
    /// Instantiated structs: item of the file, template arguments, IR type.
    structs: Vec<(usize, Vec<BoundArg>, Type)>,
    /// Instantiated functions: item of the file, template arguments, IR function.
    functions: Vec<(usize, Vec<BoundArg>, FunctionId)>,
    /// Functions and structs being instantiated, to detect recursion.
    instantiating: Vec<(usize, Vec<BoundArg>)>,
    instantiating_structs: Vec<usize>,
    /// Span of the initial read of a compare-and-swap loop (`cas_loop.rs`).
    cas_initial_read: Option<SourceSpan>,
    shared: Vec<shared::SharedArray<'m>>,
    /// Dynamic shared memory, if it is used.
    dynamic_shared: Option<Pointer>,
    /// Bytes of static shared memory so far; `None` in printed text that places its arrays in
    /// dynamic shared memory.
    static_shared_bytes: Option<u64>,
    /// Sizes of multidimensional arrays that are one-dimensional views, by name of the view.
    flat_arrays: Vec<(String, Vec<u64>)>,
    shared_names: Vec<String>,
    /// Global arrays and constants in use.
    globals: Vec<(usize, Binding)>,
    /// Number of view parameters so far.
    views: u32,
    /// Memory accesses that earlier lowerings of the kernel have shown to be needed, and those that
    /// this one finds.
    needs: &'m MemoryNeeds,
    found_needs: MemoryNeeds,
    /// Variables and arrays of the source that are in registers of the code being emitted, and
    /// those of each IR function, with its item of the file.
    registers: RegisterVariables,
    function_registers: Vec<(usize, RegisterVariables)>,
    /// Local arrays by the span of their declaration.
    local_arrays: Vec<(SourceSpan, LocalArrayId)>,
    /// Views whose components turn out to be written one by one; views of which a component was
    /// read by loading the whole element.
    component_writes: Vec<View>,
    whole_reads: Vec<View>,
    /// Declarations of pointers that are stored in structs and arrays.
    pointer_slots: Vec<stored_pointer::PointerSlot>,
    /// Views with the declaration of their array.
    declared_views: Vec<(View, SourceSpan)>,
    /// Views of const elements, with their names.
    read_only: Vec<(View, String)>,
    /// Expressions lowered so far and nesting of type aliases; both are limited.
    steps: usize,
    /// Nesting of the expression being lowered, through all calls and constants.
    depth: usize,
    /// Globals whose values are being evaluated, to detect those that refer to themselves.
    evaluating: Vec<usize>,
    alias_depth: usize,
    /// Number of locals in the code being emitted.
    locals: u32,
    /// Expression numbers that a printed text specifies: `v7` is expression 7.
    expr_numbers: HashMap<ExprId, u32>,
    function_expr_numbers: Vec<HashMap<ExprId, u32>>,
    params: Vec<(String, ParamRef)>,
}

/// Reason why lowering failed or must be repeated.
pub(super) enum LowerError {
    Invalid(Vec<Diagnostic>),
    /// 64-bit indices are needed.
    NeedsWideIndex(Vec<Diagnostic>),
    /// More memory accesses are needed.
    NeedsMemory(MemoryNeeds),
}

impl<'m> Lowering<'m> {
    pub fn new(
        module: &'m CudaModule,
        request: &'m LaunchRequest,
        function: &'m Function,
        index_type: Scalar,
        needs: &'m MemoryNeeds,
    ) -> Lowering<'m> {
        let name = names::unmangled(module.names.text(function.name), request.round_trip, |_| false);
        Lowering {
            module,
            request,
            w: Writer::new(Builder::blocks(name, request.grid, request.block, index_type)),
            index_type,
            needs_wide_index: false,
            errors: vec![],
            scope: vec![],
            base: 0,
            assigned: Rc::new(HashSet::new()),
            aliased: Rc::new(HashSet::new()),
            control_scopes: vec![],
            inlines: vec![],
            this: None,
            order: function.order,
            function_names: vec![],
            assigned_lvalue: None,
            copied_reference: false,
            code: CodeKind::Kernel,
            loops: 0,
            structs: vec![],
            functions: vec![],
            instantiating: vec![],
            instantiating_structs: vec![],
            cas_initial_read: None,
            shared: vec![],
            dynamic_shared: None,
            static_shared_bytes: Some(0),
            flat_arrays: vec![],
            shared_names: vec![],
            globals: vec![],
            views: 0,
            needs,
            found_needs: MemoryNeeds::default(),
            registers: HashMap::new(),
            function_registers: vec![],
            local_arrays: vec![],
            component_writes: vec![],
            whole_reads: vec![],
            pointer_slots: vec![],
            declared_views: vec![],
            read_only: vec![],
            steps: 0,
            depth: 0,
            evaluating: vec![],
            alias_depth: 0,
            locals: 0,
            expr_numbers: HashMap::new(),
            function_expr_numbers: vec![],
            params: vec![],
        }
    }

    /// Lowers the kernel.
    pub fn kernel(
        mut self,
        function: &'m Function,
        instance: Option<&'m [TemplateArg]>,
        bound: &[Option<BoundArg>],
    ) -> Result<Lowered, LowerError> {
        let written =
            match instance.map(|args| self.template_args(&function.templates, args, function.name, function.span)) {
                Some(Ok(bound)) => self.write_kernel(function, &bound),
                Some(Err(failed)) => Err(failed),
                None => self.write_kernel(function, bound),
            };
        if self.needs_wide_index {
            return Err(LowerError::NeedsWideIndex(self.errors));
        }
        let mut needs = self.needs.clone();
        if needs.add(std::mem::take(&mut self.found_needs)) {
            return Err(LowerError::NeedsMemory(needs));
        }
        if written.is_err() {
            self.report_failure(function.span);
        }
        if !self.errors.is_empty() {
            return Err(LowerError::Invalid(self.errors));
        }
        if self.component_writes.iter().any(|view| self.whole_reads.contains(view)) {
            needs.component_views.extend(self.component_writes);
            return Err(LowerError::NeedsMemory(needs));
        }
        let (mut kernel, lines) = match self.w.b.finish_with_lines() {
            Ok(finished) => finished,
            Err(error) => {
                let what = format!("kernel '{}' is invalid: {}", error.kernel, error.message);
                let found = self.module.source.diagnostic(function.span, what, String::new(), None);
                return Err(LowerError::Invalid(vec![found]));
            }
        };
        if needs.add(local_memory::uninitialized_reads(&kernel, &self.registers, &self.function_registers)) {
            return Err(LowerError::NeedsMemory(needs));
        }
        if self.request.round_trip {
            for (function, numbers) in kernel.functions.iter_mut().zip(&self.function_expr_numbers) {
                crate::lower::renumber(&mut function.code, numbers);
            }
            crate::lower::renumber(&mut kernel.code, &self.expr_numbers);
        }
        Ok(Lowered { kernel, params: self.params, lines, flat_arrays: self.flat_arrays })
    }

    fn write_kernel(&mut self, function: &'m Function, explicit: &[Option<BoundArg>]) -> LowerResult {
        let bound = self.with_defaults(&function.templates, explicit, function.span)?;
        self.bind_templates(&function.templates, &bound);
        self.check_launch_bound(function)?;
        if self.request.round_trip {
            self.lower_all_items()?;
        }
        self.file_assertions()?;
        self.kernel_params(function)?;
        self.assigned = Rc::new(scan::assigned(self.module, function));
        self.aliased = Rc::new(scan::aliased(function));
        match self.request.round_trip.then(|| parallel_for::instances(self.module, &function.body)).flatten() {
            Some(instances) => {
                let count = self.instance_count(instances.count)?;
                self.w.b.set_instance_count(count);
                let index = self.w.b.index();
                self.bind(instances.index, Binding::Value(Tree::emitted(index, self.index_type)));
                self.block(&instances.body[1..])
            }
            None => self.block(&function.body),
        }
    }

    fn text(&self, symbol: Symbol) -> &'m str {
        self.module.names.text(symbol)
    }

    fn fail<T>(
        &mut self,
        span: SourceSpan,
        message: impl Into<String>,
        label: impl Into<String>,
        hint: impl Into<String>,
    ) -> LowerResult<T> {
        let message = message.into();
        let again = self.errors.iter().any(|other| other.span == span && other.message == message);
        if self.errors.len() < MAX_ERRORS && !again {
            let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
            self.errors.push(self.module.source.diagnostic(span, message, label.into(), hint));
        }
        Err(LowerFailed)
    }

    /// Reports a failure whose cause was not reported, so that nothing is left out silently.
    fn report_failure(&mut self, span: SourceSpan) {
        if self.errors.is_empty() && !self.needs_wide_index {
            let _: LowerResult = self.unsupported(span, "this construct", "write it in another way");
        }
    }

    /// Reports an unsupported construct.
    fn unsupported<T>(&mut self, span: SourceSpan, construct: impl std::fmt::Display, hint: &str) -> LowerResult<T> {
        self.fail(span, format!("{construct} is not supported"), "not in the subset", hint)
    }

    /// Reports a name that is not declared.
    fn undeclared<T>(&mut self, span: SourceSpan, what: String, hint: &str) -> LowerResult<T> {
        let hint = undeclared_hint(&self.module.missing_headers, &self.module.source, span, hint);
        self.fail(span, what, "not declared", hint)
    }

    /// Runs something that may fail, and discards its errors and what it left unfinished: the next
    /// use of the same names reports them again.
    fn attempt<T>(&mut self, make: impl FnOnce(&mut Self) -> LowerResult<T>) -> Option<T> {
        let (errors, globals, scope, base) = (self.errors.len(), self.globals.len(), self.scope.len(), self.base);
        let (control_scopes, inlines, this) = (self.control_scopes.len(), self.inlines.len(), self.this.clone());
        let order = self.order;
        let result = make(self).ok();
        self.errors.truncate(errors);
        if result.is_none() {
            let mut at = 0;
            self.globals.retain(|(_, binding)| {
                at += 1;
                at <= globals || !matches!(binding, Binding::Poison)
            });
            self.scope.truncate(scope);
            self.control_scopes.truncate(control_scopes);
            self.inlines.truncate(inlines);
            (self.base, self.this, self.order) = (base, this, order);
        }
        result
    }

    /// Lowers a nested expression or statement. Its depth is limited, because constants, default
    /// arguments and member initializers may refer to each other without end.
    fn deeper<T>(&mut self, span: SourceSpan, make: impl FnOnce(&mut Self) -> LowerResult<T>) -> LowerResult<T> {
        if self.depth >= MAX_DEPTH {
            let what = format!("recursion, or nesting deeper than {MAX_DEPTH} levels after inlining,");
            return self.unsupported(span, what, "define constants, default values and calls without recursion");
        }
        self.depth += 1;
        let result = make(self);
        self.depth -= 1;
        result
    }

    /// Attributes the statements that follow to the source line of `span`.
    fn set_source_line(&mut self, span: SourceSpan) {
        self.w.b.source_line(self.module.source.line(span.start));
    }

    fn bind(&mut self, name: Symbol, binding: Binding) {
        self.scope.push((name, binding));
    }

    fn new_local(&mut self, name: &str, ty: Type, init: &[Value]) -> LocalId {
        let number = self.locals;
        self.locals += 1;
        let name = match name.rsplit_once('_') {
            // The CUDA printer appends the local's number.
            Some((name, n)) if self.request.round_trip && n.parse() == Ok(number) => name,
            _ => name,
        };
        self.w.b.typed_local(name, ty, init)
    }

    /// Zeros for all components.
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
