//! Printer of CUDA C++ and of C++ for a CPU: one printer with two dialects.

mod cpp_prelude;
mod cuda_prelude;
mod device_functions;
pub(crate) mod entry;
pub(crate) mod names;
mod options;
mod syntax;

use bornite_ir::{
    AlgebraOp, Args, Axis, Check, Code, Expr, ExprId, Extent, FunctionId, IntRange, Kernel, LaunchMode, LocalId, Op,
    OpKind, Scalar, Scope, Shuffle, Stmt, Type, Value, View, Vote,
};

use crate::cuda::MathMode;
use cuda_prelude::PRELUDE;
use names::Names;
pub(crate) use options::{Dialect, PrintOptions};
use syntax::{
    atomic_call, bitcast, builtin_name, c_type, call, cast_step, compare_exchange, literal, op_range, primitive,
    print_call,
};

/// Prints a kernel as a self-contained translation unit.
pub(crate) fn print(kernel: &Kernel, options: PrintOptions) -> String {
    let names = Names::new(kernel);
    let PrintOptions { dialect, checked, restrict } = options;
    let mut p = Printer {
        kernel,
        names,
        dialect,
        checked,
        restrict,
        code: &kernel.code,
        terms: vec![],
        device_functions: vec![],
        lines: vec![],
        depth: 0,
        counters: vec![],
    };
    let functions: String = (0..kernel.functions.len()).map(|n| p.function(n)).collect();
    let kernel_text = p.kernel();
    let device_functions: String = p.device_functions.iter().map(|f| f.text.as_str()).collect();
    let declarations = names::declarations(kernel, &p.names);
    // A definition may call earlier ones, so search from the last.
    let mut needed: Vec<&str> = vec![];
    let table = if dialect == Dialect::Cpp { cpp_prelude::PRELUDE } else { PRELUDE };
    for (called, definition) in table.iter().rev() {
        if [&declarations[..], &device_functions, &functions, &kernel_text]
            .iter()
            .chain(&needed)
            .any(|text| text.contains(called))
        {
            needed.push(definition);
        }
    }
    let mut text = String::new();
    if dialect == Dialect::Cpp {
        text += cpp_prelude::INCLUDES;
    }
    text.extend(needed.into_iter().rev());
    text + &declarations + &device_functions + &functions + &kernel_text
}

/// Printed operand.
#[derive(Clone)]
struct Term {
    text: String,
    ty: Type,
    /// Range of an integer, if known: arithmetic that cannot overflow is printed without casts.
    range: Option<IntRange>,
}

impl Term {
    fn new(text: impl Into<String>, ty: impl Into<Type>) -> Term {
        Term { text: text.into(), ty: ty.into(), range: None }
    }

    fn within(self, range: Option<IntRange>) -> Term {
        Term { range, ..self }
    }

    fn constant(value: Value) -> Term {
        let range = value.scalar().is_int().then(|| IntRange::exactly(value));
        Term::new(literal(value), value.scalar()).within(range)
    }

    /// Returns the type of a scalar, or of the components of a vector or matrix.
    fn scalar(&self) -> Scalar {
        self.ty.element().unwrap_or(Scalar::Bool)
    }
}

/// Generated device function (an op-table body, an op on a narrow type, a multi-step conversion, an
/// algebra operation), or a lookup table.
struct DeviceFunction {
    name: String,
    text: String,
}

struct Printer<'k> {
    kernel: &'k Kernel,
    names: Names,
    dialect: Dialect,
    checked: bool,
    restrict: bool,
    /// Code being printed: the kernel's or a function's.
    code: &'k Code,
    terms: Vec<Option<Term>>,
    device_functions: Vec<DeviceFunction>,
    lines: Vec<String>,
    depth: usize,
    /// Counters of the enclosing loops, with their ranges.
    counters: Vec<(LocalId, Option<IntRange>)>,
}

impl<'k> Printer<'k> {
    fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.depth), text.as_ref()));
    }

    fn device(&self) -> &'static str {
        if self.dialect == Dialect::Cpp { "static inline" } else { "__device__ __forceinline__" }
    }

    /// Prints variables and statements.
    fn print_code(&mut self, code: &'k Code, depth: usize) -> String {
        (self.code, self.depth) = (code, depth);
        self.terms = vec![None; code.exprs.len()];
        for (n, local) in code.locals.iter().enumerate() {
            let init: Vec<String> = local.init.iter().map(|value| literal(*value)).collect();
            let init = if local.ty.as_scalar().is_some() { init.join("") } else { format!("{{{}}}", init.join(", ")) };
            let line =
                format!("{} {} = {init};", self.names.of_type(self.kernel, local.ty), self.local(LocalId(n as u32)));
            self.line(line);
        }
        self.block(&code.body);
        let mut text = self.lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        self.lines.clear();
        text
    }

    fn extent(&self, extent: Extent) -> String {
        match extent {
            Extent::Const(n) => n.to_string(),
            Extent::Value(n) => self.names.values[n as usize].clone(),
        }
    }

    fn local(&self, LocalId(n): LocalId) -> String {
        format!("{}_{n}", self.code.locals[n as usize].name)
    }

    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => self.bind(*id),
                Stmt::Assign(local, value) => {
                    let line = format!("{} = {};", self.local(*local), self.term(*value).text);
                    self.line(line);
                }
                Stmt::Store { view, indices, value } => {
                    let value = self.term(*value);
                    let viewed = self.kernel.view(*view).ty;
                    let structs = &self.kernel.structs;
                    let is_component = self.kernel.view(*view).component_index(indices).is_some();
                    let width = value.ty.component_count(structs) / viewed.component_count(structs).max(1);
                    let element = self.element(*view, indices, width.max(1));
                    self.line(match value.ty != viewed && !is_component {
                        true => format!("{}(&{element}, {});", wide_access("bn_store", *view), value.text),
                        false => format!("{element} = {};", value.text),
                    });
                }
                Stmt::Declare(array) => {
                    let line = format!("(void){};", self.names.view((*array).into()));
                    self.line(line);
                }
                Stmt::For { counter, end, body } => {
                    let (name, end) = (self.local(*counter), self.term(*end));
                    self.line(format!("for ({name} = 0; {name} < {}; ++{name}) {{", end.text));
                    self.counters.push((*counter, end.range.map(IntRange::below)));
                    self.nested(body);
                    self.counters.pop();
                    self.line("}");
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.term(*condition).text;
                    self.line(format!("if ({condition}) {{"));
                    self.nested(then);
                    if !otherwise.is_empty() {
                        self.line("} else {");
                        self.nested(otherwise);
                    }
                    self.line("}");
                }
                Stmt::Loop { body } => {
                    self.line("for (;;) {");
                    self.nested(body);
                    self.line("}");
                }
                Stmt::Break => self.line("break;"),
                Stmt::Continue => self.line("continue;"),
                Stmt::Return(None) => self.line("return;"),
                Stmt::Return(Some(value)) => {
                    let value = self.term(*value).text;
                    self.line(format!("return {value};"));
                }
                Stmt::Barrier => self.line("__syncthreads();"),
                Stmt::WarpBarrier => self.line("__syncwarp();"),
                Stmt::Fence(scope) => self.line(match scope {
                    Scope::Block => "__threadfence_block();",
                    Scope::Device => "__threadfence();",
                    Scope::System => "__threadfence_system();",
                }),
                Stmt::Check(Check::Assert { condition, message }) => {
                    let condition = self.term(*condition).text;
                    self.line(format!("bn_assert({condition}, \"{message}\");"));
                }
                Stmt::Check(Check::InBounds { .. }) => {}
                Stmt::Print { format, args } => {
                    let args: Vec<Term> = args.iter().map(|&arg| self.term(arg)).collect();
                    self.line(print_call(format, &args));
                }
            }
        }
    }

    fn nested(&mut self, block: &[Stmt]) {
        self.depth += 1;
        self.block(block);
        self.depth -= 1;
    }

    /// Prints a `Let`.
    fn bind(&mut self, id: ExprId) {
        let ty = self.code.ty(id);
        let (name, type_name) = (format!("v{}", id.0), self.names.of_type(self.kernel, ty));
        let range = self.range(id);
        if let Expr::Algebra { op: AlgebraOp::Insert, component, args } = self.code.expr(id) {
            let (whole, value) = (self.term(args[0]).text, self.term(args[1]).text);
            let member = self.names.member(ty, *component as usize);
            self.line(format!("{type_name} {name} = {whole};"));
            self.line(format!("{name}{member} = {value};"));
        } else {
            let value = self.let_value(id);
            self.line(format!("const {type_name} {name} = {value};"));
        }
        self.terms[id.0 as usize] = Some(Term::new(name, ty).within(range));
    }

    /// Prints an element access, or that of the first of `width` elements accessed at once.
    fn element(&self, view: View, indices: &Args, width: usize) -> String {
        let whole = self.element_expr(view, indices, width);
        let viewed = self.kernel.view(view);
        let Some(component) = viewed.component_index(indices) else { return whole };
        if let Expr::Const(known) = self.code.expr(component) {
            return whole + &self.names.component(self.kernel, viewed.ty, known.as_i64() as usize);
        }
        let (index, count) = (self.term(component).text, viewed.ty.component_count(&self.kernel.structs));
        let index = match self.checked {
            true => {
                let code = out_of_bounds_code(self.kernel, view, viewed.dims.len() - 1);
                format!("bn_at({index}, {count}, 1, bn_status, bn_code + {code})")
            }
            false => index,
        };
        let scalar = viewed.ty.element().unwrap_or(self.kernel.index);
        format!("(({}*)&{whole})[{index}]", c_type(scalar))
    }

    fn element_expr(&self, view: View, indices: &Args, width: usize) -> String {
        let viewed = self.kernel.view(view);
        let name = self.names.view(view).to_owned();
        let indices = indices.iter().zip(viewed.dims).enumerate().map(|(n, (&index, dim))| {
            let index = self.term(index).text;
            let last = n + 1 == viewed.dims.len();
            let (extent, code) = (self.extent(dim.extent), out_of_bounds_code(self.kernel, view, n));
            match self.checked {
                true => {
                    format!("bn_at({index}, {extent}, {}, bn_status, bn_code + {code})", if last { width } else { 1 })
                }
                false => index,
            }
        });
        if let View::Shared(_) | View::Local(_) = view {
            return name + &indices.map(|index| format!("[{index}]")).collect::<String>();
        }
        let terms = indices.zip(viewed.dims).filter_map(|(index, dim)| match dim.stride {
            // A checked index is printed even if its stride is 0.
            Extent::Const(0) if !self.checked => None,
            Extent::Const(1) => Some(index),
            stride => Some(format!("{index} * {}", self.extent(stride))),
        });
        let mut offset = terms.collect::<Vec<_>>().join(" + ");
        if self.checked && width > 1 {
            offset = format!("bn_aligned({offset}, {width}, bn_status, bn_code)");
        }
        format!("{name}[{}]", if offset.is_empty() { "0" } else { &offset })
    }

    fn term(&self, id: ExprId) -> Term {
        let ty = self.code.ty(id);
        match self.code.expr(id) {
            Expr::Const(value) => Term::constant(*value),
            Expr::Index => {
                let range = match self.kernel.launch {
                    LaunchMode::ParallelFor { count: Extent::Const(n) } => Some(IntRange::up_to(n - 1)),
                    _ => None,
                };
                Term::new("index", ty).within(range)
            }
            Expr::Builtin(builtin) => {
                let text = format!("({}){}", c_type(self.kernel.index), builtin_name(*builtin));
                Term::new(text, ty).within(IntRange::of_builtin(self.kernel.launch, *builtin))
            }
            Expr::Argument(n) => {
                let function = self.kernel.functions.iter().position(|f| std::ptr::eq(&f.code, self.code));
                let names = function.map_or(&self.names.values, |n| &self.names.arguments[n]);
                Term::new(names[*n as usize].clone(), ty)
            }
            _ => self.terms[id.0 as usize].clone().unwrap_or(Term::new(format!("v{}", id.0), ty)),
        }
    }

    /// Returns the range of an integer that a `Let` evaluates, if known.
    fn range(&self, id: ExprId) -> Option<IntRange> {
        match self.code.expr(id) {
            Expr::Read(local) => self.counters.iter().find(|(counter, _)| counter == local)?.1,
            Expr::Op(op, args) => {
                let args: Vec<Term> = args.iter().map(|&arg| self.term(arg)).collect();
                op_range(*op, &args)
            }
            Expr::Cast(to, from) => {
                let from = self.term(*from);
                let fits = from.ty.as_scalar().is_some_and(|scalar| scalar.is_int()) && to.is_int();
                from.range.filter(|range| fits && range.fits(*to))
            }
            _ => None,
        }
    }

    /// Returns a component of a term.
    fn component(&self, whole: &Term, at: usize) -> Term {
        match whole.ty.element() {
            Some(scalar) if whole.ty.as_scalar().is_none() => {
                Term::new(format!("{}{}", whole.text, self.names.member(whole.ty, at)), scalar)
            }
            _ => whole.clone(),
        }
    }

    /// Prints a vector or matrix component by component with `component`; a scalar has one
    /// component.
    fn componentwise(&mut self, ty: Type, component: impl Fn(&mut Self, usize) -> String) -> String {
        let Some(scalar) = ty.element().filter(|_| ty.as_scalar().is_none()) else { return component(self, 0) };
        // Braced initializers reject components that C++ has promoted to int.
        let narrow = scalar == Scalar::Bool || scalar != scalar.compute_type();
        let components: Vec<String> = (0..ty.component_count(&self.kernel.structs))
            .map(|n| {
                let text = component(self, n);
                if narrow { format!("({})({text})", c_type(scalar)) } else { text }
            })
            .collect();
        format!("{{{}}}", components.join(", "))
    }

    /// Prints the right-hand side of a `Let`.
    fn let_value(&mut self, id: ExprId) -> String {
        let ty = self.code.ty(id);
        let code = self.code;
        match code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => self.term(id).text,
            Expr::Read(local) => self.local(*local),
            Expr::Op(op, args) => {
                let args: Vec<Term> = args.iter().map(|&a| self.term(a)).collect();
                if *op == Op::Select && args[0].ty.as_scalar().is_some() {
                    return primitive(*op, &args);
                }
                self.componentwise(ty, |p, n| {
                    let components: Vec<Term> = args.iter().map(|arg| p.component(arg, n)).collect();
                    p.op_expr(*op, &components)
                })
            }
            Expr::Algebra { op, component, args } => {
                let args: Vec<Term> = args.iter().map(|&arg| self.term(arg)).collect();
                self.algebra(*op, *component, ty, &args)
            }
            Expr::Cast(to, from) => {
                let from = self.term(*from);
                self.componentwise(ty, |p, n| {
                    let component = p.component(&from, n);
                    p.convert(*to, &component)
                })
            }
            Expr::Bitcast(to, from) => {
                let from = self.term(*from);
                self.componentwise(ty, |p, n| bitcast(*to, &p.component(&from, n)))
            }
            Expr::Call(FunctionId(n), args) => {
                let args: Vec<Term> = args.iter().map(|&arg| self.term(arg)).collect();
                call(&self.names.functions[*n as usize], &args)
            }
            Expr::Load { view, indices, width: 1 } => self.element(*view, indices, 1),
            Expr::Load { view, indices, width } => {
                let element = self.element(*view, indices, *width as usize);
                let load = wide_access("bn_load", *view);
                format!("{load}<{}>(&{element})", self.names.of_type(self.kernel, ty))
            }
            Expr::Atomic { atomic, view, indices, value } => {
                let element = Term::new(self.element(*view, indices, 1), ty);
                let value = self.term(*value);
                self.componentwise(ty, |p, n| {
                    let (element, value) = (p.component(&element, n), p.component(&value, n));
                    atomic_call(*atomic, value.scalar(), &element.text, &value.text)
                })
            }
            Expr::CompareExchange { view, indices, expected, value } => {
                let (expected, value) = (self.term(*expected), self.term(*value));
                compare_exchange(value.scalar(), &self.element(*view, indices, 1), &expected.text, &value.text)
            }
            Expr::Shuffle { shuffle, value, lane, mask } => {
                let function = match shuffle {
                    Shuffle::Index => "__shfl_sync",
                    Shuffle::Up => "__shfl_up_sync",
                    Shuffle::Down => "__shfl_down_sync",
                    Shuffle::Xor => "__shfl_xor_sync",
                };
                let mask = self.warp_mask(*mask);
                format!("{function}({mask}, {}, (int){})", self.term(*value).text, self.term(*lane).text)
            }
            Expr::Vote { vote, value, mask } => {
                let function = match vote {
                    Vote::Any => "__any_sync",
                    Vote::All => "__all_sync",
                    Vote::Ballot => "__ballot_sync",
                };
                format!("{function}({}, {})", self.warp_mask(*mask), self.term(*value).text)
            }
        }
    }

    /// Prints the lanes that participate in a shuffle or vote.
    fn warp_mask(&mut self, mask: Option<ExprId>) -> String {
        mask.map_or("0xffffffffu".into(), |mask| self.term(mask).text)
    }

    /// Prints an op on scalars.
    fn op_expr(&mut self, op: Op, args: &[Term]) -> String {
        let row = op.row();
        let scalar = args[args.len() - 1].scalar();
        if let (Dialect::Cuda(MathMode::Native), Some(native)) = (self.dialect, row.native) {
            match scalar {
                Scalar::F32 => return call(native.f32, args),
                Scalar::F64 => return call(native.f64, args),
                _ => {}
            }
        }
        if op == Op::Select || row.kind == OpKind::Primitive && scalar == scalar.compute_type() {
            return primitive(op, args);
        }
        let name = format!("bn_{}_{scalar}", row.name);
        self.define_op(&name, op, scalar);
        call(&name, args)
    }

    /// Prints a conversion, as a function call if it takes several steps.
    fn convert(&mut self, to: Scalar, from: &Term) -> String {
        let wide = |scalar: Scalar| scalar == scalar.compute_type();
        let source = from.scalar();
        let narrowed = matches!(source, Scalar::I32 | Scalar::U32) && to.is_int() || source == to.compute_type();
        if source.compute_type() == to || wide(source) && (wide(to) || narrowed && source != Scalar::Bool) {
            return cast_step(to, from);
        }
        let name = format!("bn_cast_{source}_{to}");
        self.define_cast(&name, source, to);
        call(&name, std::slice::from_ref(from))
    }
}

/// Returns the relative status code of an out-of-bounds index; see
/// [`crate::cuda::out_of_bounds_code`].
pub(crate) fn out_of_bounds_code(kernel: &Kernel, view: View, dimension: usize) -> usize {
    let dims = |views: &[&[bornite_ir::Dim]]| views.iter().map(|dims| dims.len()).sum::<usize>();
    let params: Vec<&[bornite_ir::Dim]> = kernel.params.iter().map(|p| &p.dims[..]).collect();
    let shared: Vec<&[bornite_ir::Dim]> = kernel.shared.iter().map(|s| &s.dims[..]).collect();
    let local: Vec<&[bornite_ir::Dim]> = kernel.local_arrays.iter().map(|array| &array.dims[..]).collect();
    1 + dimension
        + match view {
            View::Param(n) => dims(&params[..n.0 as usize]),
            View::Shared(n) => dims(&params) + dims(&shared[..n.0 as usize]),
            View::Local(n) => dims(&params) + dims(&shared) + dims(&local[..n.0 as usize]),
        }
}

/// Returns CUDA's name of an axis.
fn axis(axis: Axis) -> &'static str {
    match axis {
        Axis::X => "x",
        Axis::Y => "y",
        Axis::Z => "z",
    }
}

/// Name of the function that accesses several elements of a view at once. Local arrays are not
/// accessed as words, since a compiler may assume that variables are accessed as their type only.
fn wide_access(function: &str, view: View) -> String {
    if matches!(view, View::Local(_)) { format!("{function}_private") } else { function.into() }
}
