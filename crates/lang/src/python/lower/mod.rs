//! Lowering from Python syntax to kernel IR: one kernel of a program, for one launch.
//!
//! `parameters.rs` declares views and values; `stmt.rs`, `assign.rs` and `control.rs` lower
//! statements; `expr.rs`, `operator.rs` and `index.rs` lower expressions; `call.rs` resolves calls.
//! Compile-time values come from `const_eval/`.

mod assign;
mod builtin;
mod call;
mod components;
mod construct;
mod control;
mod expr;
mod function;
mod index;
mod names;
mod operator;
mod parameters;
mod scan;
mod slice;
mod stmt;
mod value;

use std::rc::Rc;

use bornite_ir::{Access, Builder, ExprId, Op, ParamId, Scalar, StructId, Type, Value, View};
use foldhash::{HashMap, HashMapExt};
use ruff_python_ast::Expr;
use ruff_text_size::{Ranged, TextRange};

use super::const_eval::{ConstValue, Evaluator};
use super::program::{FuncId, Program};
use super::types::{I32, Pattern, Ty};
use crate::diagnostic::Source;
use crate::lower::{Node, Tree, Writer};
use crate::{Diagnostic, LaunchRequest, Lowered, SourceSpan};
use call::{IrFunction, Signature};
pub(crate) use function::returns;
use names::Frame;
use scan::NameBlocks;
use value::{Binding, PyValue, Rvalue};

/// An error that is already in [`Lower::errors`].
#[derive(Debug)]
pub(crate) struct ErrorReported;
pub(crate) type LowerResult<T = ()> = Result<T, ErrorReported>;

/// Largest depth of nested calls.
const MAX_CALL_DEPTH: usize = 40;

pub(crate) struct Lower<'p> {
    program: &'p Program<'p>,
    prelude: &'static Program<'static>,
    request: &'p LaunchRequest,
    w: Writer,
    index: Scalar,
    errors: Vec<Diagnostic>,
    frames: Vec<Frame<'p>>,
    /// IR structs by index of the program's structs, once declared.
    structs: Vec<Option<StructId>>,
    /// Fields of structs, once evaluated.
    fields: HashMap<u32, Rc<Vec<(String, Pattern)>>>,
    name_blocks: HashMap<usize, Rc<NameBlocks<'p>>>,
    signatures: HashMap<FuncId, Rc<Signature<'p>>>,
    ir_functions: HashMap<(FuncId, Vec<Ty>), Rc<IrFunction>>,
    /// IR structs for functions that return several values, by the types of these.
    tuples: HashMap<Vec<Type>, Type>,
    /// Names of IR functions and structs in use.
    used_names: Vec<String>,
    /// Names of parameters in the IR.
    param_names: Vec<String>,
    /// Per view, true if it is written.
    written_views: Vec<bool>,
    /// Views from which components are loaded individually, since they are also stored
    /// individually.
    componentwise_views: &'p [View],
    /// Views with stores of individual components.
    componentwise_writes: Vec<View>,
    /// Views of which a component was read by loading the complete element.
    whole_element_reads: Vec<View>,
    /// Sizes of the launch: constants or kernel values.
    launch: Vec<ExprId>,
    /// Indices of the instance in the launch, once computed.
    tid: Option<Vec<ExprId>>,
    /// Number of views declared so far.
    views: usize,
    /// Number of values declared so far.
    values: u32,
}

impl<'p> Lower<'p> {
    pub fn new(
        program: &'p Program<'p>,
        prelude: &'static Program<'static>,
        request: &'p LaunchRequest,
        name: &str,
        index: Scalar,
    ) -> Lower<'p> {
        let w = Writer::new(Builder::new(ir_name(name), 1, index));
        Lower {
            program,
            prelude,
            request,
            w,
            index,
            errors: vec![],
            frames: vec![],
            structs: vec![None; program.structs.len()],
            fields: HashMap::new(),
            name_blocks: HashMap::new(),
            signatures: HashMap::new(),
            ir_functions: HashMap::new(),
            tuples: HashMap::new(),
            used_names: vec![ir_name(name)],
            param_names: vec![],
            written_views: vec![],
            componentwise_views: &[],
            componentwise_writes: vec![],
            whole_element_reads: vec![],
            launch: vec![],
            tid: None,
            views: 0,
            values: 0,
        }
    }

    /// Lowers a kernel, loading components of the given views individually. `Ok(Err(views))`: the
    /// kernel must be lowered again with these views, because it stores their components
    /// individually.
    pub fn kernel(
        mut self,
        id: FuncId,
        types: &[(String, Ty)],
        componentwise_views: &'p [View],
    ) -> Result<Result<Lowered, Vec<View>>, Vec<Diagnostic>> {
        self.componentwise_views = componentwise_views;
        let func = self.func(id);
        self.push_frame(func, id);
        let declared = self.parameters(func, types);
        let lowered = declared.and_then(|params| {
            self.declare_launch_sizes()?;
            self.body(&func.def.body)?;
            Ok(params)
        });
        if self.w.is_full() && self.errors.is_empty() {
            self.report(
                &func.def.name,
                "the kernel is too large".into(),
                "after unrolling loops and inlining calls",
                None,
            );
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let Ok(params) = lowered else { return Err(self.errors) };
        if self.componentwise_writes.iter().any(|view| self.whole_element_reads.contains(view)) {
            return Ok(Err([componentwise_views, &self.componentwise_writes].concat()));
        }
        let written = std::mem::take(&mut self.written_views);
        for (n, written) in written.iter().enumerate() {
            if *written {
                self.w.b.set_access(ParamId(n as u32), Access::ReadWrite);
            }
        }
        let file = func.file;
        let span = span(func.def.name.range());
        match self.w.b.finish_with_lines() {
            Ok((kernel, lines)) => Ok(Ok(Lowered { kernel, params, lines, flat_arrays: vec![] })),
            Err(error) => {
                let source = &self.program.files[file].source;
                let what = format!("cannot build the kernel: {}", error.message);
                let is_too_large = error.message.contains("written out");
                let hint = is_too_large.then(|| {
                    "constant loops of up to 16 iterations are unrolled: use a variable bound such as int(16), or split the kernel"
                        .into()
                });
                Err(vec![source.diagnostic(span, what, String::new(), hint)])
            }
        }
    }

    /// Emits a scalar op.
    fn op(&mut self, op: Op, args: &[ExprId]) -> ExprId {
        let trees = args.iter().map(|&id| Tree::emitted(id, self.w.b.type_of(id))).collect();
        let ty = self.w.b.type_of(args[args.len() - 1]);
        self.w.emit(&Tree::of(Node::Op(op, trees), ty))
    }

    fn cast_id(&mut self, to: Scalar, id: ExprId) -> ExprId {
        let ty = self.w.b.type_of(id);
        if ty.element() == Some(to) {
            return id;
        }
        self.w.emit(&Tree::of(Node::Cast(to, Box::new(Tree::emitted(id, ty))), ty.with_element(to)))
    }

    /// The IR type; a struct is declared on first use.
    fn ir_type(&mut self, ty: Ty, at: &impl Ranged) -> LowerResult<Type> {
        if let Ty::Struct(n) = ty
            && self.structs[n as usize].is_none()
        {
            let fields = self.fields_of(n, at)?;
            let mut inner = vec![];
            for (name, pattern) in fields.iter() {
                let Some(ty) = pattern.exact() else {
                    let what =
                        format!("field '{name}' of '{}' is not a plain value", self.program.structs[n as usize].name);
                    return self.fail(at, what, "structs with arrays can only be parameters", None);
                };
                inner.push((ir_name(name), self.ir_type(ty, at)?));
            }
            if inner.is_empty() {
                return self.fail(at, "the struct has no fields".into(), "", None);
            }
            let fields: Vec<(&str, Type)> = inner.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
            let name = self.program.structs[n as usize].name;
            let name = self.unique_name(name);
            if let Type::Struct(id) = self.w.b.struct_type(name, &fields) {
                self.structs[n as usize] = Some(id);
            }
        }
        let Some(found) = ty.ir(&self.structs) else { return self.fail(at, "unknown struct".into(), "", None) };
        let count = found.component_count(self.w.b.structs());
        if !(1..=bornite_ir::MAX_COMPONENTS).contains(&count) {
            let what = format!(
                "'{}' has {count} components; values have at most {}",
                self.type_name(ty),
                bornite_ir::MAX_COMPONENTS
            );
            return self.fail(at, what, "too large for registers", None);
        }
        Ok(found)
    }

    /// Names and types of the fields of a struct.
    fn fields_of(&mut self, n: u32, at: &impl Ranged) -> LowerResult<Rc<Vec<(String, Pattern)>>> {
        if let Some(found) = self.fields.get(&n) {
            return Ok(found.clone());
        }
        let structure = &self.program.structs[n as usize];
        let mut all = vec![];
        for (name, annotation) in &structure.fields {
            let closure = self.frames.last().map_or(0, |frame| frame.id.closure);
            let evaluator = Evaluator { closure, ..Evaluator::new(self.program, false, structure.scope) };
            match evaluator.annotation(annotation) {
                Ok(ConstValue::Type(Pattern::Struct(inner))) if inner >= n => {
                    return self.fail(
                        at,
                        format!("field '{name}' of '{}' makes the struct recursive", structure.name),
                        "",
                        None,
                    );
                }
                Ok(ConstValue::Type(pattern)) => all.push(((*name).to_owned(), pattern)),
                Ok(_) => {
                    let what = format!("the annotation of field '{name}' of '{}' is not a type", structure.name);
                    return self.fail(at, what, "", None);
                }
                Err((_, what)) => {
                    let what = format!("field '{name}' of '{}': {what}", structure.name);
                    return self.fail(at, what, "", None);
                }
            }
        }
        let all = Rc::new(all);
        self.fields.insert(n, all.clone());
        Ok(all)
    }

    fn has_arrays(&mut self, n: u32, at: &impl Ranged) -> LowerResult<bool> {
        let fields = self.fields_of(n, at)?;
        // A struct without fields has no IR type either.
        if fields.is_empty() {
            return Ok(true);
        }
        for (_, pattern) in fields.iter() {
            match pattern {
                Pattern::Array(..) | Pattern::Unsupported(_) => return Ok(true),
                Pattern::Struct(inner) if self.has_arrays(*inner, at)? => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    fn struct_name(&self) -> impl Fn(u32) -> String + use<'p> {
        let program = self.program;
        move |n| program.structs.get(n as usize).map_or("struct".into(), |s| s.name.to_owned())
    }

    fn type_name(&self, ty: Ty) -> String {
        ty.name(&self.struct_name())
    }

    /// A unique name for an IR function or struct.
    fn unique_name(&mut self, name: &str) -> String {
        let name = ir_name(name);
        let mut unique = name.clone();
        let mut n = 2;
        while self.used_names.contains(&unique) {
            unique = format!("{name}_{n}");
            n += 1;
        }
        self.used_names.push(unique.clone());
        unique
    }

    fn int(&mut self, n: i64) -> ExprId {
        self.w.constant(Value::int(Scalar::I32, n))
    }

    fn const_int(&mut self, n: i64) -> Rvalue {
        Rvalue { id: self.int(n), ty: I32, constant: Some(ConstValue::Int(n)) }
    }

    fn source(&self) -> &'p Source {
        let frame = &self.frames[self.frames.len() - 1];
        let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
        &program.files[frame.func.file].source
    }

    /// Reports an error. In another file, it is reported at the call that leads there.
    fn report(&mut self, at: &impl Ranged, what: String, label: &str, hint: Option<String>) {
        let Some(first) = self.frames.first() else { return };
        let root = &self.program.files[first.func.file].source;
        let here = self.frames.last().is_none_or(|last| !last.prelude && last.func.file == first.func.file);
        let found = if here {
            root.diagnostic(span(at.range()), what, label.into(), hint)
        } else {
            let source = self.source();
            let line = source.line(at.range().start().to_u32());
            let called = self.frames.iter().rev().find(|f| !f.prelude && f.func.file == first.func.file);
            let range = called.map_or(first.current_range, |frame| frame.current_range);
            root.diagnostic(span(range), format!("{what} ({}:{line})", source.file), label.into(), hint)
        };
        if self.errors.len() < 50 {
            self.errors.push(found);
        }
    }

    fn fail<T>(&mut self, at: &impl Ranged, what: String, label: &str, hint: Option<String>) -> LowerResult<T> {
        self.report(at, what, label, hint);
        Err(ErrorReported)
    }

    /// Evaluates an expression at compile time. With `locals`, names refer to constants of the
    /// function; otherwise names of run-time values stand for their types.
    fn eval_const(&self, expr: &Expr, locals: bool) -> Result<ConstValue, super::const_eval::Unknown> {
        let frame = &self.frames[self.frames.len() - 1];
        let known = |name: &str| -> Option<ConstValue> {
            match frame.names.get(name)? {
                Binding::Value(PyValue::Rvalue(Rvalue { constant: Some(constant), .. })) if locals => {
                    Some(constant.clone())
                }
                Binding::Value(PyValue::Const(constant)) => Some(constant.clone()),
                Binding::Value(PyValue::Rvalue(rvalue)) => {
                    Some(ConstValue::Type(Pattern::of(rvalue.ty))).filter(|_| !locals)
                }
                _ => None,
            }
        };
        let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
        let closure = frame.id.closure;
        Evaluator { locals: &known, closure, ..Evaluator::new(program, frame.prelude, frame.func.scope) }.eval(expr)
    }

    /// Evaluates an annotation in the current function.
    fn annotation(&self, expr: &Expr) -> Result<ConstValue, super::const_eval::Unknown> {
        match self.eval_const(expr, true) {
            Ok(ConstValue::Str(_)) => {
                let frame = &self.frames[self.frames.len() - 1];
                let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
                let closure = frame.id.closure;
                Evaluator { closure, ..Evaluator::new(program, frame.prelude, frame.func.scope) }.annotation(expr)
            }
            found => found,
        }
    }

    /// An attribute of a compile-time value.
    fn const_attribute(&self, of: ConstValue, name: &str, at: &Expr) -> Result<ConstValue, super::const_eval::Unknown> {
        let frame = &self.frames[self.frames.len() - 1];
        let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
        let (prelude, scope, closure) = (frame.prelude, frame.func.scope, frame.id.closure);
        Evaluator { closure, ..Evaluator::new(program, prelude, scope) }.attribute(of, name, at)
    }

    /// The type pattern of an annotation.
    fn pattern(&mut self, annotation: &Expr) -> LowerResult<Pattern> {
        match self.annotation(annotation) {
            Ok(ConstValue::Type(pattern)) => Ok(pattern),
            Ok(ConstValue::None) => Ok(Pattern::Tuple(vec![])),
            Ok(_) => self.fail(annotation, "this is not a type".into(), "expected a type", None),
            Err((at, what)) => {
                let hint = Some("such as wp.array(dtype=float), wp.array2d[float], wp.vec3, float, int".into());
                self.fail(&at, what, "expected a type", hint)
            }
        }
    }
}

pub(crate) fn span(range: TextRange) -> SourceSpan {
    SourceSpan { start: range.start().to_u32(), end: range.end().to_u32() }
}

/// A name with only ASCII letters, digits and underscores.
pub(crate) fn ir_name(name: &str) -> String {
    let ascii: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if ascii.starts_with(|c: char| c.is_ascii_digit()) || ascii.is_empty() { format!("_{ascii}") } else { ascii }
}
