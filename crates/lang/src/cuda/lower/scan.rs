//! Queries on syntax before it is lowered: assigned names, side effects, control flow.

use foldhash::{HashSet, HashSetExt};

use super::cuda_functions::is_math;
use super::lvalue::LvalueRoot;
use super::{Binding, Lowering};
use crate::cuda::CudaModule;
use crate::cuda::ast::{
    Base, Binary, Declarator, Expr, ExprKind, File, Function, Stmt, StmtKind, Storage, TypeName, Unary,
};
use crate::cuda::lex::{Interner, Symbol};

/// Calls `each` for an expression and all expressions within it.
pub fn walk_expr<'e>(expr: &'e Expr, each: &mut dyn FnMut(&'e Expr)) {
    each(expr);
    match &expr.kind {
        ExprKind::Number { .. } | ExprKind::Str(_) | ExprKind::Null | ExprKind::Name(_) | ExprKind::SizeOf(_) => {}
        ExprKind::Scoped(..) | ExprKind::This => {}
        ExprKind::Unary(_, a)
        | ExprKind::Member(a, _)
        | ExprKind::Arrow(a, _)
        | ExprKind::Cast(_, a)
        | ExprKind::SizeOfExpr(a)
        | ExprKind::Designated(_, a)
        | ExprKind::IncDec { lvalue: a, .. } => walk_expr(a, each),
        ExprKind::Binary(_, a, b) | ExprKind::Assign(_, a, b) | ExprKind::Index(a, b) => {
            walk_expr(a, each);
            walk_expr(b, each);
        }
        ExprKind::Conditional(a, b, c) => {
            walk_expr(a, each);
            walk_expr(b, each);
            walk_expr(c, each);
        }
        ExprKind::Call { args, .. }
        | ExprKind::ScopedCall { args, .. }
        | ExprKind::Construct(_, args)
        | ExprKind::Braces(args) => args.iter().for_each(|arg| walk_expr(arg, each)),
        ExprKind::MethodCall { object: a, args, .. } | ExprKind::Invoke(a, args) => {
            walk_expr(a, each);
            args.iter().for_each(|arg| walk_expr(arg, each));
        }
    }
}

/// Calls `each` for every expression in statements, nested ones included.
pub fn for_each_expr<'e>(stmts: &'e [Stmt], each: &mut dyn FnMut(&'e Expr)) {
    for_each_stmt(stmts, &mut |stmt| match &stmt.kind {
        StmtKind::Declare(_, all) => {
            for declared in all {
                declared.sizes.iter().flatten().chain(&declared.init).for_each(|expr| walk_expr(expr, each));
            }
        }
        StmtKind::Expr(a) | StmtKind::If(a, ..) | StmtKind::While(a, _) | StmtKind::Do(_, a) => walk_expr(a, each),
        StmtKind::Return(Some(a)) => walk_expr(a, each),
        StmtKind::For { condition, step, .. } => condition.iter().chain(step).for_each(|expr| walk_expr(expr, each)),
        StmtKind::Switch(value, cases) => {
            walk_expr(value, each);
            cases.iter().flat_map(|case| case.labels.iter().flatten()).for_each(|label| walk_expr(label, each));
        }
        _ => {}
    });
}

/// Calls `each` for every statement, nested ones included.
pub fn for_each_stmt<'e>(stmts: &'e [Stmt], each: &mut dyn FnMut(&'e Stmt)) {
    for stmt in stmts {
        each(stmt);
        match &stmt.kind {
            StmtKind::Block(inner) => for_each_stmt(inner, each),
            StmtKind::If(_, then, otherwise) => {
                for_each_stmt(std::slice::from_ref(then), each);
                otherwise.iter().for_each(|inner| for_each_stmt(std::slice::from_ref(inner), each));
            }
            StmtKind::For { init, body, .. } => {
                for_each_stmt(std::slice::from_ref(init), each);
                for_each_stmt(std::slice::from_ref(body), each);
            }
            StmtKind::While(_, body) | StmtKind::Do(body, _) => for_each_stmt(std::slice::from_ref(body), each),
            StmtKind::Switch(_, cases) => cases.iter().for_each(|case| for_each_stmt(&case.body, each)),
            _ => {}
        }
    }
}

/// The variable that an lvalue belongs to. An element does not belong to the pointer to it, but an
/// element of an array in a struct belongs to the struct.
fn root_variable(expr: &Expr) -> Option<Symbol> {
    match &expr.kind {
        ExprKind::Name(name) => Some(*name),
        ExprKind::Member(inner, _) => root_variable(inner),
        ExprKind::Cast(ty, inner) if ty.reference => root_variable(inner),
        ExprKind::Assign(_, lvalue, _) | ExprKind::IncDec { lvalue, .. } => root_variable(lvalue),
        ExprKind::Binary(Binary::Comma, _, last) => root_variable(last),
        ExprKind::Index(inner, _) if matches!(inner.kind, ExprKind::Member(..) | ExprKind::Index(..)) => {
            root_variable(inner)
        }
        _ => None,
    }
}

/// Names that a function assigns, directly or by passing them by reference.
pub fn assigned(module: &CudaModule, function: &Function) -> HashSet<Symbol> {
    assigned_in(module, &function.body)
}

/// Names that a pointer or reference may refer to: writes through it change them, too.
pub fn aliased(function: &Function) -> HashSet<Symbol> {
    let mut all = HashSet::new();
    for_each_expr(&function.body, &mut |expr| {
        if let ExprKind::Unary(Unary::Address, lvalue) = &expr.kind {
            all.extend(root_variable(lvalue));
        }
    });
    for_each_stmt(&function.body, &mut |stmt| {
        if let StmtKind::Declare(_, declared) = &stmt.kind {
            let references = declared.iter().filter(|one| one.ty.reference);
            all.extend(references.filter_map(|one| root_variable(one.init.as_ref()?)));
        }
    });
    all
}

/// Names that statements assign.
pub fn assigned_in(module: &CudaModule, stmts: &[Stmt]) -> HashSet<Symbol> {
    let mut all = HashSet::new();
    let functions = |name: Symbol| module.file.functions.iter().filter(move |function| function.name == name);
    // Objects whose member functions may change them.
    let changes = |name: Option<Symbol>| {
        name.is_some_and(|name| {
            functions(name).any(|function| function.method.as_ref().is_some_and(|method| !method.is_const))
        })
    };
    let operator = |token: &str| module.names.find(&format!("operator{token}"));
    let (subscript, invoke) = (operator("[]"), operator("()"));
    let root = |expr: &Expr| match &expr.kind {
        ExprKind::Index(inner, _) if changes(subscript) => root_variable(inner),
        _ => root_variable(expr),
    };
    let by_reference = |name: Symbol, args: &mut dyn Iterator<Item = &Expr>, all: &mut HashSet<Symbol>| {
        let args: Vec<&Expr> = args.collect();
        for called in functions(name) {
            for (param, arg) in called.params.iter().zip(&args) {
                // In `const int*& p` the pointee is const, not the pointer.
                if param.ty.reference && (!param.ty.constant || param.ty.pointers > 0) {
                    all.extend(root(arg));
                }
            }
        }
    };
    for_each_expr(stmts, &mut |expr| match &expr.kind {
        ExprKind::Assign(_, lvalue, _) | ExprKind::IncDec { lvalue, .. } | ExprKind::Unary(Unary::Address, lvalue) => {
            all.extend(root(lvalue));
        }
        ExprKind::Call { callee, args, .. } => {
            by_reference(*callee, &mut args.iter(), &mut all);
            if changes(invoke) && functions(*callee).next().is_none() {
                all.insert(*callee);
            }
        }
        ExprKind::ScopedCall { name, args, .. } => by_reference(*name, &mut args.iter(), &mut all),
        ExprKind::MethodCall { object, name, args, .. } => {
            by_reference(*name, &mut args.iter(), &mut all);
            if changes(Some(*name)) {
                all.extend(root(object));
            }
        }
        ExprKind::Invoke(object, args) => {
            invoke.iter().for_each(|name| by_reference(*name, &mut args.iter(), &mut all));
            if changes(invoke) {
                all.extend(root(object));
            }
        }
        ExprKind::Construct(ty, args) => {
            if let Base::Named(name) | Base::Template(name, _) = ty.base {
                by_reference(name, &mut args.iter(), &mut all);
            }
        }
        ExprKind::Binary(op, a, b) => {
            if let Some(name) = operator(op.token()) {
                by_reference(name, &mut [&**a, &**b].into_iter(), &mut all);
                if changes(Some(name)) {
                    all.extend(root(a));
                }
            }
        }
        _ => {}
    });
    // A reference that is not const may be assigned.
    for_each_stmt(stmts, &mut |stmt| {
        if let StmtKind::Declare(_, declared) = &stmt.kind {
            let references = declared.iter().filter(|one| one.ty.reference && !one.ty.constant);
            all.extend(references.filter_map(|one| root_variable(one.init.as_ref()?)));
        }
    });
    all
}

/// Determines which functions are pure: they take and return values and access neither memory nor
/// other threads.
pub fn pure_functions(names: &Interner, file: &File) -> Vec<bool> {
    let is_locally_pure = |function: &Function| {
        let plain = |ty: &TypeName| ty.pointers == 0 && ty.base != Base::Void && ty.base != Base::Auto;
        let mut pure = plain(&function.result)
            && !function.result.reference
            && function.params.iter().all(|p| plain(&p.ty) && (!p.ty.reference || p.ty.constant) && p.sizes.is_empty());
        for_each_stmt(&function.body, &mut |stmt| {
            if let StmtKind::Declare(storage, all) = &stmt.kind {
                pure &= !storage.shared && !storage.external;
                pure &= all.iter().all(|d| d.ty.pointers == 0 && !d.ty.reference);
            }
        });
        for_each_expr(&function.body, &mut |expr| match &expr.kind {
            ExprKind::Name(name) => {
                let memory = |(storage, found): &(Storage, Declarator)| {
                    let fixed = storage.constant && found.init.is_some();
                    found.name == *name && !fixed && (storage.device || storage.constant_memory || storage.shared)
                };
                let is_index_builtin = matches!(names.text(*name), "threadIdx" | "blockIdx" | "blockDim" | "gridDim");
                pure &= !is_index_builtin && !file.globals.iter().any(memory);
            }
            // A function that calls its own name calls the CUDA function that it overloads.
            ExprKind::Call { callee, .. }
                if *callee == function.name || file.functions.iter().all(|f| f.name != *callee) =>
            {
                pure &= is_math(names.text(*callee)) || names.text(*callee) == "assert";
            }
            ExprKind::Unary(Unary::Address | Unary::Deref, _) | ExprKind::Arrow(..) => pure = false,
            ExprKind::MethodCall { .. } | ExprKind::ScopedCall { .. } | ExprKind::Invoke(..) => pure = false,
            _ => {}
        });
        pure && function.method.is_none()
    };
    let mut pure: Vec<bool> =
        file.functions.iter().map(|function| !function.is_kernel && is_locally_pure(function)).collect();
    let called: Vec<Vec<usize>> = (file.functions.iter())
        .map(|function| {
            let mut all = vec![];
            for_each_expr(&function.body, &mut |expr| {
                if let ExprKind::Call { callee, .. } = &expr.kind {
                    all.extend((0..file.functions.len()).filter(|n| file.functions[*n].name == *callee));
                }
            });
            all
        })
        .collect();
    // A function that calls an impure one is impure.
    loop {
        let changed: Vec<usize> =
            (0..pure.len()).filter(|n| pure[*n] && called[*n].iter().any(|callee| !pure[*callee])).collect();
        if changed.is_empty() {
            return pure;
        }
        changed.into_iter().for_each(|n| pure[n] = false);
    }
}

/// Returns true if an expression mentions a name.
pub fn mentions(expr: &Expr, name: Symbol) -> bool {
    let mut found = false;
    walk_expr(expr, &mut |expr| found |= matches!(expr.kind, ExprKind::Name(other) if other == name));
    found
}

/// Returns true if statements leave the enclosing loop by `break` or `continue`.
pub fn exits_loop(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break | StmtKind::Continue => true,
        StmtKind::Block(inner) => exits_loop(inner),
        StmtKind::If(_, then, otherwise) => {
            exits_loop(std::slice::from_ref(then))
                || otherwise.as_ref().is_some_and(|s| exits_loop(std::slice::from_ref(s)))
        }
        StmtKind::Switch(..) => continues(std::slice::from_ref(stmt)),
        _ => false,
    })
}

/// Returns true if statements have a `continue` of the enclosing loop.
pub fn continues(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Continue => true,
        StmtKind::Block(inner) => continues(inner),
        StmtKind::If(_, then, otherwise) => {
            continues(std::slice::from_ref(then))
                || otherwise.as_ref().is_some_and(|s| continues(std::slice::from_ref(s)))
        }
        StmtKind::Switch(_, cases) => cases.iter().any(|case| continues(&case.body)),
        _ => false,
    })
}

/// Returns true if statements have a `break` of the enclosing switch or loop.
pub fn breaks(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break => true,
        StmtKind::Block(inner) => breaks(inner),
        StmtKind::If(_, then, otherwise) => {
            breaks(std::slice::from_ref(then)) || otherwise.as_ref().is_some_and(|s| breaks(std::slice::from_ref(s)))
        }
        _ => false,
    })
}

/// Returns true if statements contain a `return`.
pub fn returns(stmts: &[Stmt]) -> bool {
    let mut found = false;
    for_each_stmt(stmts, &mut |stmt| found |= matches!(stmt.kind, StmtKind::Return(_)));
    found
}

/// Returns true if statements return from within a loop or switch.
pub fn returns_from_loops(stmts: &[Stmt]) -> bool {
    let mut found = false;
    for_each_stmt(stmts, &mut |stmt| match &stmt.kind {
        StmtKind::For { body, .. } | StmtKind::While(_, body) | StmtKind::Do(body, _) => {
            found |= returns(std::slice::from_ref(body));
        }
        StmtKind::Switch(_, cases) => found |= cases.iter().any(|case| returns(&case.body)),
        _ => {}
    });
    found
}

impl Lowering<'_> {
    /// Returns true if an expression can be evaluated speculatively: it accesses no memory and
    /// cannot fail.
    pub(super) fn is_speculatable(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Number { .. } | ExprKind::SizeOf(_) => true,
            ExprKind::Name(name) => match self.lookup(*name) {
                Some(Binding::Pointer(pointer)) => !pointer.single,
                Some(Binding::Lvalue(lvalue)) => matches!(lvalue.root, LvalueRoot::Value(_)),
                Some(_) => true,
                None => {
                    let memory = |storage: &Storage| storage.device || storage.shared;
                    !self.module.file.globals.iter().any(|(storage, found)| found.name == *name && memory(storage))
                }
            },
            ExprKind::Unary(Unary::Minus | Unary::Plus | Unary::Not | Unary::Complement, a) => self.is_speculatable(a),
            ExprKind::Binary(Binary::Div | Binary::Rem, a, b) => {
                matches!(b.kind, ExprKind::Number { value, .. } if value.as_f64() != 0.0) && self.is_speculatable(a)
            }
            ExprKind::Binary(op, a, b) => *op != Binary::Comma && self.is_speculatable(a) && self.is_speculatable(b),
            ExprKind::Conditional(a, b, c) => {
                self.is_speculatable(a) && self.is_speculatable(b) && self.is_speculatable(c)
            }
            ExprKind::Cast(ty, a) => ty.pointers == 0 && self.is_speculatable(a),
            ExprKind::Member(a, _) => self.is_speculatable(a),
            ExprKind::Call { callee, args, .. } => {
                is_math(self.text(*callee)) && args.iter().all(|arg| self.is_speculatable(arg))
            }
            ExprKind::Construct(_, args) | ExprKind::Braces(args) => args.iter().all(|arg| self.is_speculatable(arg)),
            _ => false,
        }
    }
}
