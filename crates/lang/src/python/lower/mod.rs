//! Python syntax to kernel IR: one kernel of a program, for one launch.

mod assign;
mod builtin;
mod call;
mod construct;
mod control;
mod expr;
mod function;
mod index;
mod names;
mod operator;
mod parameters;
mod parts;
mod scan;
mod slice;
mod stmt;
mod value;

use std::rc::Rc;

use bornite_ir::{Access, Builder, ExprId, Op, ParamId, Scalar, StructId, Type, Value, View};
use foldhash::{HashMap, HashMapExt};
use ruff_python_ast::Expr;
use ruff_text_size::{Ranged, TextRange};

use super::fixed::{Evaluator, Fixed};
use super::program::{FuncId, Program};
use super::types::{I32, Pattern, Ty};
use crate::diagnostic::Source;
use crate::lower::{Node, Tree, Writer};
use crate::{Diagnostic, LaunchRequest, Lowered, SourceSpan};
use call::{Compiled, Signature};
pub(crate) use function::returns;
use names::Frame;
use scan::Homes;
use value::{Binding, Run, Val};

/// What was wrong is noted already.
#[derive(Debug)]
pub(crate) struct Noted;
pub(crate) type Lowers<T = ()> = Result<T, Noted>;

/// Functions within functions.
const MAX_CALLS: usize = 40;

pub(crate) struct Lower<'p> {
    program: &'p Program<'p>,
    prelude: &'static Program<'static>,
    request: &'p LaunchRequest,
    w: Writer,
    index: Scalar,
    errors: Vec<Diagnostic>,
    frames: Vec<Frame<'p>>,
    /// Where structs went in the IR.
    structs: Vec<Option<StructId>>,
    /// Fields of structs, once they are known.
    fields: HashMap<u32, Rc<Vec<(String, Pattern)>>>,
    homes: HashMap<usize, Rc<Homes<'p>>>,
    signatures: HashMap<FuncId, Rc<Signature<'p>>>,
    compiled: HashMap<(FuncId, Vec<Ty>), Rc<Compiled>>,
    /// Structs that hold several values that a function returns, by their types.
    tuples: HashMap<Vec<Type>, Type>,
    /// Names of functions of the IR, so that each has its own.
    taken: Vec<String>,
    /// Names of parameters in the IR.
    given: Vec<String>,
    /// Which views are written.
    written: Vec<bool>,
    /// Views whose components are read alone; those that turn out to be written so; those of which a part was read by way of the
    /// whole.
    parts: &'p [View],
    parted: Vec<View>,
    read_whole: Vec<View>,
    /// Sizes of the launch: known ones, or values.
    launch: Vec<ExprId>,
    tid: Option<Vec<ExprId>>,
    views: usize,
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
            homes: HashMap::new(),
            signatures: HashMap::new(),
            compiled: HashMap::new(),
            tuples: HashMap::new(),
            taken: vec![ir_name(name)],
            given: vec![],
            written: vec![],
            parts: &[],
            parted: vec![],
            read_whole: vec![],
            launch: vec![],
            tid: None,
            views: 0,
            values: 0,
        }
    }

    /// Makes a kernel that reads components of some views alone. `Ok(Err(_))`: of these it must, since it writes them so.
    pub fn kernel(
        mut self,
        id: FuncId,
        types: &[(String, Ty)],
        parts: &'p [View],
    ) -> Result<Result<Lowered, Vec<View>>, Vec<Diagnostic>> {
        self.parts = parts;
        let func = self.func(id);
        self.enter(func, id);
        let given = self.parameters(func, types);
        let made = given.and_then(|given| {
            self.launch_sizes()?;
            self.body(&func.def.body)?;
            Ok(given)
        });
        if self.w.is_full() && self.errors.is_empty() {
            self.note(&func.def.name, "the kernel is too large".into(), "with its loops and calls written out", None);
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let Ok(params) = made else { return Err(self.errors) };
        if self.parted.iter().any(|view| self.read_whole.contains(view)) {
            return Ok(Err([parts, &self.parted].concat()));
        }
        let written = std::mem::take(&mut self.written);
        for (n, written) in written.iter().enumerate() {
            if *written {
                self.w.b.set_access(ParamId(n as u32), Access::ReadWrite);
            }
        }
        let file = func.file;
        let span = span(func.def.name.range());
        match self.w.b.finish_with_lines() {
            Ok((kernel, lines)) => Ok(Ok(Lowered { kernel, params, lines })),
            Err(error) => {
                let source = &self.program.files[file].source;
                let what = format!("the kernel cannot be made: {}", error.what);
                let large = error.what.contains("written out");
                let hint = large.then(|| {
                    "loops of up to 16 turns that are known are written out: bound one by a variable, int(16), or split the kernel"
                        .into()
                });
                Err(vec![source.diagnostic(span, what, String::new(), hint)])
            }
        }
    }

    /// Applies a row of the op table.
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

    /// The type in the IR; a struct is declared there when it is first met.
    fn ir_type(&mut self, ty: Ty, at: &impl Ranged) -> Lowers<Type> {
        if let Ty::Struct(n) = ty
            && self.structs[n as usize].is_none()
        {
            let fields = self.fields_of(n, at)?;
            let mut inner = vec![];
            for (name, pattern) in fields.iter() {
                let Some(ty) = pattern.exact() else {
                    let what = format!("field '{name}' of '{}' is not a value", self.program.structs[n as usize].name);
                    return self.fail(at, what, "an array in a struct is for parameters only", None);
                };
                inner.push((ir_name(name), self.ir_type(ty, at)?));
            }
            if inner.is_empty() {
                return self.fail(at, "a struct without fields".into(), "", None);
            }
            let fields: Vec<(&str, Type)> = inner.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
            let name = self.program.structs[n as usize].name;
            let name = self.own_name(name);
            if let Type::Struct(id) = self.w.b.structure(name, &fields) {
                self.structs[n as usize] = Some(id);
            }
        }
        let Some(found) = ty.ir(&self.structs) else { return self.fail(at, "a struct is not known".into(), "", None) };
        let count = found.count(self.w.b.structs());
        if !(1..=bornite_ir::MAX_COMPONENTS).contains(&count) {
            let what = format!(
                "'{}' has {count} components; values have at most {}",
                self.type_name(ty),
                bornite_ir::MAX_COMPONENTS
            );
            return self.fail(at, what, "too large to live in registers", None);
        }
        Ok(found)
    }

    /// Fields of a struct with their types.
    fn fields_of(&mut self, n: u32, at: &impl Ranged) -> Lowers<Rc<Vec<(String, Pattern)>>> {
        if let Some(found) = self.fields.get(&n) {
            return Ok(found.clone());
        }
        let structure = &self.program.structs[n as usize];
        let mut all = vec![];
        for (name, annotation) in &structure.fields {
            let around = self.frames.last().map_or(0, |frame| frame.id.around);
            let evaluator = Evaluator { around, ..Evaluator::new(self.program, false, structure.scope) };
            match evaluator.annotation(annotation) {
                Ok(Fixed::Type(Pattern::Struct(inner))) if inner >= n => {
                    return self.fail(at, format!("field '{name}' of '{}' holds itself", structure.name), "", None);
                }
                Ok(Fixed::Type(pattern)) => all.push(((*name).to_owned(), pattern)),
                Ok(_) => {
                    let what = format!("field '{name}' of '{}' is no type", structure.name);
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

    fn has_arrays(&mut self, n: u32, at: &impl Ranged) -> Lowers<bool> {
        let fields = self.fields_of(n, at)?;
        // One without fields is no value of the IR either.
        if fields.is_empty() {
            return Ok(true);
        }
        for (_, pattern) in fields.iter() {
            match pattern {
                Pattern::Array(..) | Pattern::Foreign(_) => return Ok(true),
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

    /// A name for the IR that nothing else has.
    fn own_name(&mut self, name: &str) -> String {
        let name = ir_name(name);
        let mut own = name.clone();
        let mut n = 2;
        while self.taken.contains(&own) {
            own = format!("{name}_{n}");
            n += 1;
        }
        self.taken.push(own.clone());
        own
    }

    fn int(&mut self, n: i64) -> ExprId {
        self.w.constant(Value::int(Scalar::I32, n))
    }

    fn run_int(&mut self, n: i64) -> Run {
        Run { id: self.int(n), ty: I32, constant: Some(Fixed::Int(n)) }
    }

    fn source(&self) -> &'p Source {
        let frame = &self.frames[self.frames.len() - 1];
        let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
        &program.files[frame.func.file].source
    }

    /// Notes what is wrong, at its place or, in another file, at the call that leads there.
    fn note(&mut self, at: &impl Ranged, what: String, label: &str, hint: Option<String>) {
        let Some(first) = self.frames.first() else { return };
        let root = &self.program.files[first.func.file].source;
        let here = self.frames.last().is_none_or(|last| !last.prelude && last.func.file == first.func.file);
        let found = if here {
            root.diagnostic(span(at.range()), what, label.into(), hint)
        } else {
            let source = self.source();
            let line = source.line(at.range().start().to_u32());
            let called = self.frames.iter().rev().find(|f| !f.prelude && f.func.file == first.func.file);
            let place = called.map_or(first.at, |frame| frame.at);
            root.diagnostic(span(place), format!("{what} ({}:{line})", source.file), label.into(), hint)
        };
        if self.errors.len() < 50 {
            self.errors.push(found);
        }
    }

    fn fail<T>(&mut self, at: &impl Ranged, what: String, label: &str, hint: Option<String>) -> Lowers<T> {
        self.note(at, what, label, hint);
        Err(Noted)
    }

    /// Evaluates what is known beforehand.
    fn fixed(&self, expr: &Expr, locals: bool) -> Result<Fixed, super::fixed::Unknown> {
        let frame = &self.frames[self.frames.len() - 1];
        let known = |name: &str| -> Option<Fixed> {
            match frame.names.get(name)? {
                Binding::Val(Val::Run(Run { constant: Some(fixed), .. })) if locals => Some(fixed.clone()),
                Binding::Val(Val::Fixed(fixed)) => Some(fixed.clone()),
                Binding::Val(Val::Run(run)) => Some(Fixed::Type(Pattern::of(run.ty))).filter(|_| !locals),
                _ => None,
            }
        };
        let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
        let around = frame.id.around;
        Evaluator { locals: &known, around, ..Evaluator::new(program, frame.prelude, frame.func.scope) }.eval(expr)
    }

    /// What an annotation of the function says.
    fn annotation(&self, expr: &Expr) -> Result<Fixed, super::fixed::Unknown> {
        match self.fixed(expr, true) {
            Ok(Fixed::Text(_)) => {
                let frame = &self.frames[self.frames.len() - 1];
                let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
                let around = frame.id.around;
                Evaluator { around, ..Evaluator::new(program, frame.prelude, frame.func.scope) }.annotation(expr)
            }
            found => found,
        }
    }

    /// A part of something that is known beforehand.
    fn fixed_attribute(&self, of: Fixed, name: &str, at: &Expr) -> Result<Fixed, super::fixed::Unknown> {
        let frame = &self.frames[self.frames.len() - 1];
        let program: &'p Program<'p> = if frame.prelude { self.prelude } else { self.program };
        let (prelude, scope, around) = (frame.prelude, frame.func.scope, frame.id.around);
        Evaluator { around, ..Evaluator::new(program, prelude, scope) }.attribute(of, name, at)
    }

    /// The pattern of an annotation.
    fn pattern(&mut self, annotation: &Expr) -> Lowers<Pattern> {
        match self.annotation(annotation) {
            Ok(Fixed::Type(pattern)) => Ok(pattern),
            Ok(Fixed::None) => Ok(Pattern::Tuple(vec![])),
            Ok(_) => self.fail(annotation, "this is not a type".into(), "a type is expected", None),
            Err((at, what)) => {
                let hint = Some("such as wp.array(dtype=float), wp.array2d[float], wp.vec3, float, int".into());
                self.fail(&at, what, "a type is expected", hint)
            }
        }
    }
}

pub(crate) fn span(range: TextRange) -> SourceSpan {
    SourceSpan { start: range.start().to_u32(), end: range.end().to_u32() }
}

/// A name with letters, digits and underscores only.
pub(crate) fn ir_name(name: &str) -> String {
    let kept: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if kept.starts_with(|c: char| c.is_ascii_digit()) || kept.is_empty() { format!("_{kept}") } else { kept }
}
