//! Prints a kernel in the style of the CUDA C++ that NVIDIA Warp generates: one function with
//! Warp's name and parameters, a loop over `_idx`, a variable per value, and calls of Warp's native
//! functions.
//!
//! For reading, comparison and datasets; the source that Bornite compiles is printed by `cuda.rs`.

use std::fmt::Write;

use bornite_ir::{
    AlgebraOp, Args, Check, Code, Expr, ExprId, Extent, Kernel, Op, ParamRef, PrintPiece, Scalar, Stmt, Type, Value,
    View, print_format_pieces,
};

/// Kernel lowered from Python source, for [`warp_style`].
pub struct WarpSource<'a> {
    /// The kernel, specialized for the sizes of a launch.
    pub kernel: &'a Kernel,
    /// Parameters in source order, with their names.
    pub params: &'a [(String, ParamRef)],
    /// Source line of each line of the kernel's text form; 0 if there is none.
    pub lines: &'a [u32],
}

/// Prints the kernel in the style of Warp's generated code. `line` returns a line of the source,
/// for comments.
pub fn warp_style(lowered: &WarpSource<'_>, line: &dyn Fn(u32) -> String) -> String {
    let kernel = lowered.kernel;
    let mut out = String::new();
    for structure in &kernel.structs {
        let _ = writeln!(out, "struct {}\n{{", structure.name);
        for field in &structure.fields {
            let _ = writeln!(out, "    {} {};", type_name(kernel, field.ty), field.name);
        }
        out += "};\n\n";
    }
    for (n, function) in kernel.functions.iter().enumerate() {
        let params: Vec<String> =
            function.params.iter().map(|p| format!("{} var_{}", type_name(kernel, p.ty), p.name)).collect();
        let result = type_name(kernel, function.result);
        let _ =
            writeln!(out, "static CUDA_CALLABLE {result} {}_{n}(\n    {})\n{{", function.name, params.join(",\n    "));
        let args = function.params.iter().map(|p| format!("var_{}", p.name)).collect();
        Printer { kernel, code: &function.code, args, out: &mut out, depth: 1, lines: None, at: 0, last: 0 }.body();
        out += "}\n\n";
    }
    let params: Vec<String> = lowered.params.iter().map(|(name, param)| parameter(kernel, name, param)).collect();
    let params = params.iter().map(|p| format!(",\n    {p}")).collect::<String>();
    let _ = writeln!(
        out,
        "extern \"C\" __global__ void {}_cuda_kernel_forward(\n    wp::launch_bounds_t dim{params})\n{{",
        kernel.name
    );
    out += "    for (size_t _idx = static_cast<size_t>(blockDim.x) * static_cast<size_t>(blockIdx.x) + \
            static_cast<size_t>(threadIdx.x);\n         _idx < dim.size;\n         _idx += static_cast<size_t>(blockDim.x) * \
            static_cast<size_t>(gridDim.x))\n    {\n";
    let args = kernel.values.iter().enumerate().map(|(n, value)| argument(lowered, n as u32, &value.name)).collect();
    let mut printer = Printer {
        kernel,
        code: &kernel.code,
        args,
        out: &mut out,
        depth: 2,
        lines: Some((lowered.lines, line)),
        at: 0,
        last: 0,
    };
    printer.at = printer.first_line();
    printer.body();
    out += "    }\n}\n";
    out
}

fn parameter(kernel: &Kernel, name: &str, param: &ParamRef) -> String {
    let name = name.replace('.', "_");
    match param {
        ParamRef::View(n) => {
            let param = &kernel.params[*n as usize];
            format!("wp::array_t<{}> var_{name}", type_name(kernel, param.ty))
        }
        ParamRef::Value(n) => format!("{} var_{name}", type_name(kernel, kernel.values[*n as usize].ty)),
    }
}

/// Returns the expression for a value parameter: a parameter, or a size of an array or of the
/// launch.
fn argument(lowered: &WarpSource<'_>, n: u32, name: &str) -> String {
    if let Some((name, _)) = lowered.params.iter().find(|(_, param)| *param == ParamRef::Value(n)) {
        return format!("var_{}", name.replace('.', "_"));
    }
    for param in &lowered.kernel.params {
        for (axis, dim) in param.dims.iter().enumerate() {
            if dim.extent == Extent::Value(n) {
                return format!("var_{}.shape[{axis}]", param.name);
            }
            if dim.stride == Extent::Value(n) {
                return format!("var_{}.strides[{axis}]", param.name);
            }
        }
    }
    match name.strip_prefix("launch_dim") {
        Some(axis) => format!("dim.shape[{axis}]"),
        None => "dim.size".into(),
    }
}

fn scalar_name(s: Scalar) -> String {
    format!("wp::{}", s.numpy_name())
}

fn type_name(kernel: &Kernel, ty: Type) -> String {
    match ty {
        Type::Scalar(s) => scalar_name(s),
        Type::Vector(s, n) => format!("wp::vec_t<{n},{}>", scalar_name(s)),
        Type::Matrix(s, rows, columns) => format!("wp::mat_t<{rows},{columns},{}>", scalar_name(s)),
        Type::Struct(_) => ty.name(&kernel.structs).to_string(),
    }
}

/// Prints the code of the kernel or of a function.
struct Printer<'a> {
    kernel: &'a Kernel,
    code: &'a Code,
    /// Names of the arguments.
    args: Vec<String>,
    out: &'a mut String,
    depth: usize,
    /// Source line of each line of the text form, and the source.
    lines: Option<(&'a [u32], &'a dyn Fn(u32) -> String)>,
    /// Current line of the text form, and the source line last printed as a comment.
    at: usize,
    last: u32,
}

impl Printer<'_> {
    /// Returns the first line of the kernel's code in its text form.
    fn first_line(&self) -> usize {
        let text = self.kernel.to_string();
        text.lines().count() - statement_lines(&self.code.body) - 1
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(self.depth));
    }

    fn body(&mut self) {
        self.line("//---------");
        self.line("// primal vars");
        for local in &self.code.locals {
            let init: Vec<String> = local.init.iter().map(|value| number(*value)).collect();
            let zero = local.init.iter().all(|value| value.bits() == 0);
            let ty = type_name(self.kernel, local.ty);
            let init = if zero { "{}".into() } else { format!(" = {ty}({})", init.join(", ")) };
            let text = format!("{ty} {}{init};", local_name(local.name.as_str(), self.code, local));
            self.line(&text);
        }
        for array in &self.kernel.local_arrays {
            let sizes: String = array.dims.iter().map(|dim| format!("[{}]", dim.extent.resolve(&[]).max(1))).collect();
            self.line(&format!("{} var_{}{sizes};", type_name(self.kernel, array.ty), array.name));
        }
        let mut named = vec![];
        lets(&self.code.body, &mut named);
        for id in named {
            let ty = type_name(self.kernel, self.code.ty(id));
            self.line(&format!("{ty} var_{};", id.0));
        }
        self.line("//---------");
        self.line("// forward");
        let code = self.code;
        self.block(&code.body);
    }

    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            self.comment();
            self.at += 1;
            self.stmt(stmt);
        }
    }

    /// Prints the source line as a comment if it changed.
    fn comment(&mut self) {
        let Some((lines, source)) = self.lines else { return };
        let line = lines.get(self.at).copied().unwrap_or(0);
        if line > 0 && line != self.last {
            self.last = line;
            let text = format!("// {}{:>8}<L {line}>", source(line).trim(), "");
            self.line(&text);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(id) => {
                let (name, value) = (format!("var_{}", id.0), self.expr(*id));
                match value {
                    Ok(value) => self.line(&format!("{name} = {value};")),
                    Err(lines) => lines.iter().for_each(|line| self.line(line)),
                }
            }
            Stmt::Assign(local, value) => {
                let local = self.local(*local);
                let text = format!("wp::assign({local}, {});", self.name(*value));
                self.line(&text);
            }
            Stmt::Store { view, indices, value } => {
                let text = match self.slot(*view, indices) {
                    Some(slot) => {
                        format!(
                            "(*wp::address({})){slot} = {};",
                            self.array_and_indices(*view, indices),
                            self.name(*value)
                        )
                    }
                    None => {
                        format!("wp::array_store({}, {});", self.array_and_indices(*view, indices), self.name(*value))
                    }
                };
                self.line(&text);
            }
            Stmt::For { counter, end, body } => {
                let name = self.local(*counter);
                let text = format!("for ({name} = 0; {name} < {}; ++{name}) {{", self.name(*end));
                self.nested(&text, body);
                self.line("}");
                self.at += 1;
            }
            Stmt::Loop { body } => {
                self.nested("while (true) {", body);
                self.line("}");
                self.at += 1;
            }
            Stmt::If { condition, then, otherwise } => {
                let text = format!("if ({}) {{", self.name(*condition));
                self.nested(&text, then);
                if !otherwise.is_empty() {
                    self.at += 1;
                    self.nested("} else {", otherwise);
                }
                self.line("}");
                self.at += 1;
            }
            Stmt::Break => self.line("break;"),
            Stmt::Continue => self.line("continue;"),
            Stmt::Return(None) => self.line("continue; // the instance ends"),
            Stmt::Return(Some(value)) => {
                let text = format!("return {};", self.name(*value));
                self.line(&text);
            }
            Stmt::Barrier => self.line("__syncthreads();"),
            Stmt::WarpBarrier => self.line("__syncwarp();"),
            Stmt::Fence(_) => self.line("__threadfence();"),
            Stmt::Check(Check::Assert { condition, .. }) => {
                let text = format!("assert({});", self.name(*condition));
                self.line(&text);
            }
            Stmt::Check(Check::InBounds { .. }) | Stmt::Declare(_) => {}
            Stmt::Print { format, args } => {
                let pieces = print_format_pieces(format).into_iter().map(|piece| match piece {
                    PrintPiece::Text(text) => text.replace('%', "%%"),
                    PrintPiece::Value(_) => "%g".into(),
                });
                let format: String = pieces.collect();
                let args: String = args.iter().map(|&id| format!(", double({})", self.name(id))).collect();
                self.line(&format!("printf(\"{format}\\n\"{args});"));
            }
        }
    }

    fn nested(&mut self, head: &str, body: &[Stmt]) {
        self.line(head);
        self.depth += 1;
        self.block(body);
        self.depth -= 1;
    }

    fn local(&self, id: bornite_ir::LocalId) -> String {
        let local = self.code.local(id);
        format!("{}_{}", local.name, id.0)
    }

    /// Prints an operand; constants are printed in place.
    fn name(&self, id: ExprId) -> String {
        match self.code.expr(id) {
            Expr::Const(value) => number(*value),
            Expr::Index => "wp::int32(_idx)".into(),
            Expr::Argument(n) => self.args.get(*n as usize).cloned().unwrap_or_default(),
            _ => format!("var_{}", id.0),
        }
    }

    fn names(&self, ids: &[ExprId]) -> String {
        ids.iter().map(|&id| self.name(id)).collect::<Vec<_>>().join(", ")
    }

    fn array_and_indices(&self, view: View, indices: &Args) -> String {
        let viewed = self.kernel.view(view);
        format!("var_{}, {}", viewed.name, self.names(&indices[..viewed.dims.len().min(indices.len())]))
    }

    /// Returns the member access of a component, if the indices select one.
    fn slot(&self, view: View, indices: &Args) -> Option<String> {
        let viewed = self.kernel.view(view);
        let component_index = viewed.component_index(indices)?;
        let known = match self.code.expr(component_index) {
            Expr::Const(value) => Some(value.as_i64() as usize),
            _ => None,
        };
        Some(component(self.kernel, viewed.ty, known, &self.name(component_index)))
    }

    /// Prints an expression; returns complete lines (`Err`) if one expression is not enough.
    fn expr(&self, id: ExprId) -> Result<String, Vec<String>> {
        let ty = || type_name(self.kernel, self.code.ty(id));
        Ok(match self.code.expr(id) {
            Expr::Read(local) => format!("wp::copy({})", self.local(*local)),
            Expr::Op(op, args) => self.op(*op, args),
            Expr::Algebra { op, component, args } => return self.algebra(id, *op, *component, args),
            Expr::Cast(..) | Expr::Bitcast(..) => {
                let (of, word) = match self.code.expr(id) {
                    Expr::Cast(_, of) => (*of, String::new()),
                    Expr::Bitcast(_, of) => (*of, "wp::cast<".to_owned()),
                    _ => (id, String::new()),
                };
                if word.is_empty() {
                    format!("{}({})", ty(), self.name(of))
                } else {
                    format!("{word}{}>({})", ty(), self.name(of))
                }
            }
            Expr::Call(function, args) => {
                format!("{}_{}({})", self.kernel.functions[function.0 as usize].name, function.0, self.names(args))
            }
            Expr::Load { view, indices, .. } => {
                let slot = self.slot(*view, indices).unwrap_or_default();
                format!("wp::load(wp::address({})){slot}", self.array_and_indices(*view, indices))
            }
            Expr::Atomic { atomic, view, indices, value } => {
                let name = match atomic.name() {
                    "exchange" => "exch",
                    name => name,
                };
                if let Some(slot) = self.slot(*view, indices) {
                    let (array_and_indices, value) = (self.array_and_indices(*view, indices), self.name(*value));
                    let (array, indices) = array_and_indices.split_once(", ").unwrap_or((&array_and_indices, ""));
                    let access = format!("[&](auto& element) -> auto& {{ return element{slot}; }}");
                    return Ok(format!("wp::array_atomic_{name}_slot({array}, {value}, {access}, {indices})"));
                }
                format!("wp::atomic_{name}({}, {})", self.array_and_indices(*view, indices), self.name(*value))
            }
            Expr::CompareExchange { view, indices, expected, value } if self.slot(*view, indices).is_some() => {
                let slot = self.slot(*view, indices).unwrap_or_default();
                let element = format!("&(*wp::address({})){slot}", self.array_and_indices(*view, indices));
                format!("wp::atomic_cas({element}, {}, {})", self.name(*expected), self.name(*value))
            }
            Expr::CompareExchange { view, indices, expected, value } => {
                format!(
                    "wp::atomic_cas({}, {}, {})",
                    self.array_and_indices(*view, indices),
                    self.name(*expected),
                    self.name(*value)
                )
            }
            _ => self.name(id),
        })
    }

    fn op(&self, op: Op, args: &[ExprId]) -> String {
        let names: Vec<String> = args.iter().map(|&id| self.name(id)).collect();
        let is_bool = self.code.ty(args[0]).element() == Some(Scalar::Bool);
        let infix = |sign: &str| format!("({} {sign} {})", names[0], names[1]);
        let word = match op {
            Op::Eq => return infix("=="),
            Op::Ne => return infix("!="),
            Op::Lt => return infix("<"),
            Op::Le => return infix("<="),
            Op::Gt => return infix(">"),
            Op::Ge => return infix(">="),
            Op::And if is_bool => return infix("&&"),
            Op::Or if is_bool => return infix("||"),
            Op::Not if is_bool => "unot",
            Op::And => "bit_and",
            Op::Or => "bit_or",
            Op::Xor => "bit_xor",
            Op::Not => "invert",
            Op::Shl => "lshift",
            Op::Shr => "rshift",
            Op::Rem | Op::Fmod => "mod",
            Op::Fmin => "min",
            Op::Fmax => "max",
            Op::Select => "where",
            Op::Popcount => "bit_count",
            other => other.row().name,
        };
        format!("wp::{word}({})", names.join(", "))
    }

    fn algebra(&self, id: ExprId, row: AlgebraOp, at: u32, args: &[ExprId]) -> Result<String, Vec<String>> {
        let ty = self.code.ty(args[0]);
        let component_index = |n: u32| match ty {
            Type::Matrix(_, _, columns) => format!("{}, {}", n / columns as u32, n % columns as u32),
            _ => n.to_string(),
        };
        Ok(match row {
            AlgebraOp::Construct => format!("{}({})", type_name(self.kernel, self.code.ty(id)), self.names(args)),
            AlgebraOp::Extract => match ty {
                Type::Struct(n) => {
                    format!("{}.{}", self.name(args[0]), self.kernel.structs[n.0 as usize].fields[at as usize].name)
                }
                _ => format!("wp::extract({}, {})", self.name(args[0]), component_index(at)),
            },
            AlgebraOp::Insert => {
                let whole = format!("var_{} = wp::copy({});", id.0, self.name(args[0]));
                let assignment = match ty {
                    Type::Struct(n) => {
                        let field = &self.kernel.structs[n.0 as usize].fields[at as usize].name;
                        format!("var_{}.{field} = {};", id.0, self.name(args[1]))
                    }
                    _ => format!("wp::assign_inplace(var_{}, {}, {});", id.0, component_index(at), self.name(args[1])),
                };
                return Err(vec![whole, assignment]);
            }
            AlgebraOp::MatVec | AlgebraOp::MatMul => format!("wp::mul({})", self.names(args)),
            other => format!("wp::{}({})", other.row().name, self.names(args)),
        })
    }
}

fn local_name(name: &str, code: &Code, local: &bornite_ir::Local) -> String {
    let n = code.locals.iter().position(|other| std::ptr::eq(other, local)).unwrap_or(0);
    format!("{name}_{n}")
}

fn number(value: Value) -> String {
    match value.scalar() {
        Scalar::Bool => if value.bits() != 0 { "true" } else { "false" }.into(),
        Scalar::I32 => value.as_i64().to_string(),
        Scalar::F32 => {
            let x = f32::from_bits(value.bits() as u32);
            if x.is_finite() { format!("{x:?}f") } else { special(x as f64) }
        }
        Scalar::U64 => format!("wp::uint64({}ull)", value.bits()),
        s if s.is_float() => {
            let x = value.as_f64();
            format!("{}({})", scalar_name(s), if x.is_finite() { format!("{x:?}") } else { special(x) })
        }
        s => format!("{}({})", scalar_name(s), value.as_i64()),
    }
}

fn special(x: f64) -> String {
    let word = if x.is_nan() { "NAN" } else { "INFINITY" };
    if x < 0.0 { format!("-{word}") } else { word.into() }
}

fn lets(block: &[Stmt], out: &mut Vec<ExprId>) {
    for stmt in block {
        if let Stmt::Let(id) = stmt {
            out.push(*id);
        }
        stmt.blocks().iter().for_each(|inner| lets(inner, out));
    }
}

/// Returns the number of lines of a block in the text form.
fn statement_lines(block: &[Stmt]) -> usize {
    let lines = |stmt: &Stmt| match stmt {
        Stmt::If { then, otherwise, .. } => {
            let more = if otherwise.is_empty() { 0 } else { 1 + statement_lines(otherwise) };
            2 + statement_lines(then) + more
        }
        Stmt::For { body, .. } | Stmt::Loop { body } => 2 + statement_lines(body),
        _ => 1,
    };
    block.iter().map(lines).sum()
}

/// Returns the member access of a flattened component; `name` is the index expression if the
/// component is not constant.
fn component(kernel: &Kernel, ty: Type, known: Option<usize>, name: &str) -> String {
    match (ty, known) {
        (Type::Scalar(_), _) => String::new(),
        (Type::Vector(..), Some(at)) => format!("[{at}]"),
        (Type::Vector(..), None) => format!("[{name}]"),
        (Type::Matrix(_, _, columns), Some(at)) => {
            format!(".data[{}][{}]", at / columns as usize, at % columns as usize)
        }
        (Type::Matrix(_, _, columns), None) => format!(".data[{name} / {columns}][{name} % {columns}]"),
        (Type::Struct(id), at) => {
            let mut rest = at.unwrap_or(0);
            for field in &kernel.structs[id.0 as usize].fields {
                let count = field.ty.component_count(&kernel.structs);
                if rest < count {
                    return format!(".{}{}", field.name, component(kernel, field.ty, Some(rest), name));
                }
                rest -= count;
            }
            String::new()
        }
    }
}
