//! Verifies the code of a kernel or function: scopes and types.

use super::is_name;
use crate::arg::counted;
use crate::{
    Args, Atomic, Check, Code, Expr, ExprId, Function, FunctionId, Kernel, LaunchMode, LocalId, Op, ParamId, Scalar,
    Stmt, Type, View, Vote,
};

/// Maximum nesting of blocks; backends recurse over them.
pub(crate) const MAX_DEPTH: usize = 64;

/// Returns the nesting depth of blocks, counted up to just above the maximum.
fn nesting(block: &[Stmt], depth: usize) -> usize {
    if depth > MAX_DEPTH {
        return depth;
    }
    let inner = block.iter().flat_map(|stmt| stmt.blocks()).filter(|inner| !inner.is_empty());
    inner.map(|inner| nesting(inner, depth + 1)).max().unwrap_or(depth)
}

type Checked<T = ()> = Result<T, String>;

/// Checks the code of the kernel (`None`) or of one of its functions.
pub(super) fn check_code(kernel: &Kernel, function: Option<usize>) -> Checked {
    let code = function.map_or(&kernel.code, |n| &kernel.functions[n].code);
    if code.exprs.len() != code.types.len() {
        return Err(format!("{} expressions but {} types", code.exprs.len(), code.types.len()));
    }
    for ty in &code.types {
        super::check_type(kernel, *ty, "an expression")?;
    }
    for (n, local) in code.locals.iter().enumerate() {
        if !is_name(&local.name) {
            return Err(format!("variable ${n} has the name {:?}, which is not an identifier", local.name));
        }
        super::check_type(kernel, local.ty, &local.name)?;
        let init: Vec<Scalar> = local.init.iter().map(|value| value.scalar()).collect();
        if init != local.ty.components(&kernel.structs) {
            return Err(format!("variable ${n}: the types of its initial values do not match its type"));
        }
    }
    let mut checker = CodeChecker {
        kernel,
        code,
        function,
        visible: code.exprs.iter().map(Expr::is_leaf).collect(),
        evaluated: vec![false; code.exprs.len()],
        is_counter: vec![false; code.locals.len()],
        counters: vec![],
        loops: 0,
    };
    if nesting(&code.body, 0) > MAX_DEPTH {
        return Err(format!("blocks are nested more than {MAX_DEPTH} deep"));
    }
    checker.find_counters(&code.body)?;
    for (n, expr) in code.exprs.iter().enumerate() {
        if expr.is_leaf() {
            checker.check_expr(ExprId(n as u32))?;
        }
    }
    if function.is_some() && !matches!(code.body.last(), Some(Stmt::Return(Some(_)))) {
        return Err("a function must end in a return".into());
    }
    checker.block(&code.body)
}

struct CodeChecker<'a> {
    kernel: &'a Kernel,
    code: &'a Code,
    /// Index of the function being checked; `None` for the kernel.
    function: Option<usize>,
    /// Per expression: evaluated before the current statement, in this block or an enclosing one.
    visible: Vec<bool>,
    /// Per expression: evaluated by a `Let` so far.
    evaluated: Vec<bool>,
    /// Per variable: true if it is a loop counter. Only its loop assigns it, and only the loop's
    /// body reads it.
    is_counter: Vec<bool>,
    /// Counters of the enclosing loops.
    counters: Vec<LocalId>,
    /// Number of enclosing loops.
    loops: usize,
}

impl<'a> CodeChecker<'a> {
    fn current_function(&self) -> Option<&'a Function> {
        self.function.map(|n| &self.kernel.functions[n])
    }

    fn find_counters(&mut self, block: &[Stmt]) -> Checked {
        for stmt in block {
            if let Stmt::For { counter, .. } = stmt {
                self.local(*counter)?;
                if std::mem::replace(&mut self.is_counter[counter.0 as usize], true) {
                    return Err(format!("${} is the counter of two loops", counter.0));
                }
            }
            for inner in stmt.blocks() {
                self.find_counters(inner)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &[Stmt]) -> Checked {
        let mut named = vec![];
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    self.exists(*id)?;
                    if self.code.expr(*id).is_leaf() {
                        return Err(format!("%{} is a constant, index or argument and needs no Let", id.0));
                    }
                    if self.evaluated[id.0 as usize] {
                        return Err(format!("%{} is evaluated twice", id.0));
                    }
                    self.check_expr(*id)?;
                    self.evaluated[id.0 as usize] = true;
                    self.visible[id.0 as usize] = true;
                    named.push(*id);
                }
                Stmt::Assign(local, value) => {
                    let ty = self.local(*local)?;
                    if self.is_counter[local.0 as usize] {
                        return Err(format!("loop counter ${} is assigned", local.0));
                    }
                    self.expect(*value, ty, "an assignment")?;
                }
                Stmt::Store { view, indices, value } => {
                    let element = self.check_access(*view, indices, false, true)?;
                    let is_component = self.kernel.view(*view).component_index(indices).is_some();
                    match (element, self.value(*value)?) {
                        (Type::Scalar(scalar), Type::Vector(found, width)) if scalar == found && !is_component => {
                            self.check_wide_access(*view, scalar, width)
                                .map_err(|message| format!("a store of {message}"))?;
                        }
                        _ => self.expect(*value, element, "a store")?,
                    }
                }
                Stmt::For { counter, end, body } => {
                    if self.local(*counter)? != self.kernel.index.into() {
                        return Err(format!(
                            "loop counter ${} must have the index type {}",
                            counter.0, self.kernel.index
                        ));
                    }
                    self.expect(*end, self.kernel.index.into(), "a loop's end")?;
                    self.counters.push(*counter);
                    self.loops += 1;
                    self.block(body)?;
                    self.loops -= 1;
                    self.counters.pop();
                }
                Stmt::Declare(array) => {
                    self.kernel_only("memory")?;
                    if !self.kernel.has_view((*array).into()) {
                        return Err(format!("{array:?} does not exist"));
                    }
                }
                Stmt::Loop { body } => {
                    self.loops += 1;
                    self.block(body)?;
                    self.loops -= 1;
                }
                Stmt::Break | Stmt::Continue if self.loops == 0 => return Err(format!("{stmt:?} outside a loop")),
                Stmt::Break | Stmt::Continue => {}
                Stmt::Return(value) => match (self.current_function(), value) {
                    (None, None) => {}
                    (Some(function), Some(value)) => self.expect(*value, function.result, "a return")?,
                    (None, Some(_)) => return Err("a kernel cannot return a value".into()),
                    (Some(_), None) => return Err("a function must return a value".into()),
                },
                Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence(_) => self.kernel_only("a barrier or fence")?,
                Stmt::If { condition, then, otherwise } => {
                    self.expect(*condition, Scalar::Bool.into(), "a condition")?;
                    self.block(then)?;
                    self.block(otherwise)?;
                }
                Stmt::Check(check) => {
                    let text = match check {
                        Check::Assert { condition, message } => {
                            self.expect(*condition, Scalar::Bool.into(), "an assertion")?;
                            message
                        }
                        Check::InBounds { index, len, array } => {
                            self.expect(*index, self.kernel.index.into(), "an index")?;
                            if *len > i64::MAX as u64 {
                                return Err(format!("an array of {len} elements is too large"));
                            }
                            array
                        }
                    };
                    check_quotable(text).map_err(|message| format!("the text of a check {message}"))?;
                }
                Stmt::Print { format, args } => {
                    let types: Result<Vec<Scalar>, String> =
                        args.iter().map(|arg| self.scalar(*arg, "a print")).collect();
                    if let Some(why) = crate::print::check_print_format(format, &types?) {
                        return Err(why);
                    }
                }
            }
        }
        for id in named {
            self.visible[id.0 as usize] = false;
        }
        Ok(())
    }

    /// Checks that an expression's operands are visible and its recorded type is correct.
    fn check_expr(&self, id: ExprId) -> Checked {
        let structs = &self.kernel.structs;
        let name = |ty: Type| ty.name(structs).to_string();
        let found = self.code.ty(id);
        let expected = self.result_type(id, found).map_err(|message| format!("%{}: {message}", id.0))?;
        if found == expected {
            return Ok(());
        }
        Err(format!("%{} is {} but recorded as {}", id.0, name(expected), name(found)))
    }

    fn result_type(&self, id: ExprId, recorded: Type) -> Checked<Type> {
        let structs = &self.kernel.structs;
        let index = Type::Scalar(self.kernel.index);
        Ok(match self.code.expr(id) {
            Expr::Const(value) => value.scalar().into(),
            Expr::Index => {
                self.kernel_only("the index")?;
                match self.kernel.launch {
                    LaunchMode::ParallelFor { .. } => index,
                    LaunchMode::Blocks { .. } => {
                        return Err("a block kernel has no instance index; use thread and block indices".into());
                    }
                }
            }
            Expr::Builtin(builtin) => {
                self.kernel_only("a thread or block index")?;
                match self.kernel.launch {
                    LaunchMode::Blocks { .. } => index,
                    LaunchMode::ParallelFor { .. } => return Err(format!("{builtin:?} needs blocks")),
                }
            }
            Expr::Argument(n) => {
                let params = self.current_function().map_or(&self.kernel.values, |function| &function.params);
                params.get(*n as usize).map(|param| param.ty).ok_or(format!("argument {n} does not exist"))?
            }
            Expr::Read(local) => {
                if self.is_counter.get(local.0 as usize) == Some(&true) && !self.counters.contains(local) {
                    return Err(format!("loop counter ${} is read outside its loop", local.0));
                }
                self.local(*local)?
            }
            Expr::Op(op, args) => {
                let types = args.iter().map(|&a| self.value(a)).collect::<Checked<Vec<_>>>()?;
                op_result(*op, &types).map_err(|expected| {
                    let types: Vec<String> = types.iter().map(|&ty| ty.name(structs).to_string()).collect();
                    format!("{} of ({}) expects {expected}", op.row().name, types.join(", "))
                })?
            }
            Expr::Algebra { op, component, args } => {
                let types = args.iter().map(|&a| self.value(a)).collect::<Checked<Vec<_>>>()?;
                if op.row().name == "construct" {
                    super::check_type(self.kernel, recorded, "construct")?;
                }
                op.result(*component, recorded, &types, structs).map_err(|expected| {
                    let types: Vec<String> = types.iter().map(|&ty| ty.name(structs).to_string()).collect();
                    format!("{} of ({}) expects {expected}", op.row().name, types.join(", "))
                })?
            }
            Expr::Cast(to, from) => {
                let from = self.value(*from)?;
                from.element().ok_or("a struct cannot be converted")?;
                from.with_element(*to)
            }
            Expr::Bitcast(to, from) => {
                let whole = self.value(*from)?;
                let from = whole.element().ok_or("a struct cannot be converted")?;
                if from.bytes() != to.bytes() || (from == Scalar::Bool) != (*to == Scalar::Bool) {
                    return Err(format!("a bitcast from {from} to {to}: the widths differ"));
                }
                whole.with_element(*to)
            }
            Expr::Call(FunctionId(n), args) => {
                let callable = self.function.unwrap_or(self.kernel.functions.len());
                let Some(function) = self.kernel.functions[..callable].get(*n as usize) else {
                    return Err(format!("function {n} does not exist or is declared later"));
                };
                if args.len() != function.params.len() {
                    let expected = counted(function.params.len(), "argument");
                    return Err(format!("'{}' takes {expected}, found {}", function.name, args.len()));
                }
                for (arg, param) in args.iter().zip(&function.params) {
                    self.expect(*arg, param.ty, &format!("'{}' of '{}'", param.name, function.name))?;
                }
                function.result
            }
            Expr::Load { view, indices, width } => match (self.check_access(*view, indices, true, false)?, *width) {
                (element, 1) => element,
                (Type::Scalar(scalar), width) if self.kernel.view(*view).component_index(indices).is_none() => {
                    self.check_wide_access(*view, scalar, width).map_err(|message| format!("a load of {message}"))?;
                    Type::Vector(scalar, width)
                }
                _ => return Err("a load of several elements that are not scalars".into()),
            },
            Expr::Atomic { atomic, view, indices, value } => {
                let element = self.check_access(*view, indices, true, true)?;
                if !element.element().is_some_and(|scalar| atomic.supports(scalar)) {
                    return Err(format!("atomic {} is not supported for {}", atomic.name(), element.name(structs)));
                }
                self.expect(*value, element, "an atomic")?;
                element
            }
            Expr::CompareExchange { view, indices, expected, value } => {
                let element = self.check_access(*view, indices, true, true)?;
                if !element.as_scalar().is_some_and(|scalar| Atomic::Exchange.supports(scalar)) {
                    return Err(format!("compare-exchange is not supported for {}", element.name(structs)));
                }
                self.expect(*expected, element, "a compare-exchange")?;
                self.expect(*value, element, "a compare-exchange")?;
                element
            }
            Expr::Shuffle { value, lane, mask, .. } => {
                self.kernel_only("a shuffle")?;
                mask.map_or(Ok(()), |mask| self.expect(mask, Scalar::U32.into(), "a shuffle's mask"))?;
                self.expect(*lane, index, "a shuffle's lane")?;
                let scalar = self.scalar(*value, "a shuffle")?;
                if scalar.bytes() < 4 {
                    return Err(format!("a shuffle moves 32 or 64 bits, not {scalar}"));
                }
                scalar.into()
            }
            Expr::Vote { vote, value, mask } => {
                self.kernel_only("a vote")?;
                mask.map_or(Ok(()), |mask| self.expect(mask, Scalar::U32.into(), "a vote's mask"))?;
                self.expect(*value, Scalar::Bool.into(), "a vote")?;
                if *vote == Vote::Ballot { Scalar::U32.into() } else { Scalar::Bool.into() }
            }
        })
    }

    fn kernel_only(&self, subject: &str) -> Checked {
        if self.function.is_none() {
            Ok(())
        } else {
            Err(format!("{subject} is allowed in kernels only, not in functions"))
        }
    }

    fn exists(&self, id: ExprId) -> Checked {
        if (id.0 as usize) < self.code.exprs.len() { Ok(()) } else { Err(format!("%{} does not exist", id.0)) }
    }

    /// Returns the type of an operand, which must be visible here.
    fn value(&self, id: ExprId) -> Checked<Type> {
        self.exists(id)?;
        if !self.visible[id.0 as usize] {
            return Err(format!("%{} is used where it has not been evaluated", id.0));
        }
        Ok(self.code.ty(id))
    }

    fn expect(&self, id: ExprId, ty: Type, role: &str) -> Checked {
        let found = self.value(id)?;
        if found == ty {
            return Ok(());
        }
        let structs = &self.kernel.structs;
        Err(format!("{role} needs {}, %{} is {}", ty.name(structs), id.0, found.name(structs)))
    }

    fn scalar(&self, id: ExprId, role: &str) -> Checked<Scalar> {
        let found = self.value(id)?;
        let name = found.name(&self.kernel.structs);
        found.as_scalar().ok_or_else(|| format!("{role} needs a scalar, %{} is {name}", id.0))
    }

    fn local(&self, id: LocalId) -> Checked<Type> {
        match self.code.locals.get(id.0 as usize) {
            Some(local) => Ok(local.ty),
            None => Err(format!("variable ${} does not exist", id.0)),
        }
    }

    /// Checks access mode and indices of an access; returns the type of the element or component.
    fn check_access(&self, view: View, indices: &Args, read: bool, write: bool) -> Checked<Type> {
        self.kernel_only("memory")?;
        if !self.kernel.has_view(view) {
            return Err(format!("{view:?} does not exist"));
        }
        let crate::ViewInfo { name, ty, dims } = self.kernel.view(view);
        let rank = dims.len();
        if let View::Param(ParamId(n)) = view {
            let access = self.kernel.params[n as usize].access;
            if read && !access.reads() || write && !access.writes() {
                return Err(format!("'{name}' is {}", if access.reads() { "read-only" } else { "write-only" }));
            }
        }
        if read && write && matches!(view, View::Local(_)) {
            return Err(format!("'{name}' is a local array, which has no atomic operations"));
        }
        if indices.len() != rank && (indices.len() != rank + 1 || ty.as_scalar().is_some()) {
            let found = if indices.len() == 1 { "1 index".into() } else { format!("{} indices", indices.len()) };
            return Err(format!("'{name}' has {}, found {found}", counted(rank, "dimension")));
        }
        for index in indices.iter() {
            self.expect(*index, self.kernel.index.into(), "an index")?;
        }
        let Some(component) = self.kernel.view(view).component_index(indices) else { return Ok(ty) };
        let scalars = ty.components(&self.kernel.structs);
        match (self.code.expr(component), ty.element()) {
            (Expr::Const(known), _) => match usize::try_from(known.as_i64()).ok().and_then(|n| scalars.get(n)) {
                Some(scalar) => Ok((*scalar).into()),
                None => Err(format!(
                    "component {known} of '{name}' does not exist: it has {}",
                    counted(scalars.len(), "component")
                )),
            },
            (_, Some(scalar)) => Ok(scalar.into()),
            (_, None) => {
                Err(format!("the component index of '{name}' must be a constant: its components differ in type"))
            }
        }
    }

    /// Checks an access to several adjacent elements.
    fn check_wide_access(&self, view: View, scalar: Scalar, width: u8) -> Checked {
        let adjacent = self.kernel.view(view).dims.last().is_some_and(|dim| dim.stride == crate::Extent::Const(1));
        if !matches!(width, 2 | 4 | 8 | 16) || width as usize * scalar.bytes() > 16 || scalar == Scalar::Bool {
            return Err(format!(
                "{width} × {scalar} is not supported: expected 2, 4, 8 or 16 numbers of at most 16 bytes in total"
            ));
        }
        if !adjacent {
            return Err("several elements needs a last dimension of stride 1".into());
        }
        Ok(())
    }
}

/// Returns the result type of an op on scalars, or on vectors or matrices of one shape; otherwise a
/// description of the expected operands.
pub(crate) fn op_result(op: Op, types: &[Type]) -> Result<Type, &'static str> {
    let Some(&whole) = types.last().filter(|_| types.len() == op.arity()) else {
        return Err("as many arguments as the op takes");
    };
    let scalars = types.iter().map(|ty| ty.element()).collect::<Option<Vec<_>>>().ok_or("no structs")?;
    let result = op.row().rule.result(&scalars)?;
    // The condition of a select may be one bool for all components.
    let shaped = if op == Op::Select && types[0].as_scalar().is_some() { &types[1..] } else { types };
    if shaped.iter().any(|ty| ty.with_element(result) != whole.with_element(result)) {
        return Err("operands of one shape");
    }
    Ok(whole.with_element(result))
}

/// Checks that a string can be printed between quotes without escaping.
fn check_quotable(text: &str) -> Checked {
    if text.chars().any(|c| c.is_control() || c == '"' || c == '\\') || text.len() > 200 {
        return Err("contains quotes, backslashes or control characters, or is longer than 200 bytes".into());
    }
    Ok(())
}
