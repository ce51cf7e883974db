//! Declarations of the files: kernels, functions, structs, constants and imports, by scope. All
//! other statements are ignored. Nothing is evaluated here; names are evaluated in `const_eval/`.

mod assign;
mod imports;

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use foldhash::{HashMap, HashMapExt};
use ruff_python_ast::visitor::Visitor;
use ruff_python_ast::{ExceptHandler, Expr, ExprCall, Operator, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextRange};

use super::const_eval::Closure;
use super::{File, module_path};

/// Identifies a function or kernel of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FuncId {
    /// True if it belongs to the prelude, which is a separate program.
    pub prelude: bool,
    /// Index into `Program::functions`.
    pub n: u32,
    /// The call of the enclosing function that created it: one more than its index in
    /// `Program::closures`; 0 if there is none.
    pub closure: u32,
}

/// A function or kernel.
#[derive(Debug)]
pub(crate) struct Func<'a> {
    pub def: &'a StmtFunctionDef,
    /// The scope in which it is defined.
    pub scope: usize,
    pub file: usize,
    pub conditions: Conditions<'a>,
}

/// A struct.
#[derive(Debug)]
pub(crate) struct StructDef<'a> {
    pub name: &'a str,
    /// Field names and annotations, in order.
    pub fields: Vec<(&'a str, &'a Expr)>,
    pub scope: usize,
}

/// The declaration of a name.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// `@wp.func`: all overloads, in order.
    Functions(Vec<u32>),
    /// `@wp.kernel`: all definitions with this name, in order. The last one whose conditions hold
    /// wins.
    Kernels(Vec<u32>),
    Struct(u32),
    /// All assignments to a variable, in order.
    Values(Vec<Assignment<'a>>),
    /// `import warp as wp`.
    WarpModule,
    /// `from warp import NAME`, `import warp.NAME as …`.
    WarpName(&'a str),
    /// A module that is not among the files: math, numpy, typing.
    ExternalModule(&'a str),
    /// Module and name of `from module import name`, where the module is not among the files.
    ExternalName(&'a str, &'a str),
    /// Another file of the program.
    ImportedFile(usize),
    /// A name imported from another file of the program.
    ImportedName(usize, &'a str),
    /// A function without a decorator: the scope of its body.
    PlainFunction(usize),
    /// A class: the scope of its body.
    Class(usize),
}

/// An assignment to a name.
#[derive(Debug)]
pub(crate) struct Assignment<'a> {
    pub value: AssignedValue<'a>,
    /// The assigning statement; code before it does not see the value.
    pub range: TextRange,
    pub conditions: Conditions<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum AssignedValue<'a> {
    Expr(&'a Expr),
    /// One element of an unpacked value.
    Element(&'a Expr, usize),
    /// An augmented assignment, such as `+=`.
    Augmented(Operator, &'a Expr),
    /// A parameter of an enclosing function.
    Parameter(&'a StmtFunctionDef, usize),
    /// Not known at compile time: the reason, such as "is assigned in a loop".
    Unknown(&'static str),
}

/// Enclosing `if` conditions, and the truth value that each must have.
pub(crate) type Conditions<'a> = Vec<(&'a Expr, bool)>;

#[derive(Debug, Default)]
pub(crate) struct Scope<'a> {
    pub parent: Option<usize>,
    pub file: usize,
    /// Name of the function or class.
    pub name: &'a str,
    pub def: Option<&'a StmtFunctionDef>,
    pub names: HashMap<&'a str, Item<'a>>,
    /// True after `from warp import *`.
    pub star_imports_warp: bool,
    /// True for a class, whose names are not visible in the functions inside it.
    pub is_class: bool,
    /// True for an enum class whose `auto()` values are powers of two.
    pub is_flag: bool,
}

/// The files and their declarations.
#[derive(Debug, Default)]
pub(crate) struct Program<'a> {
    pub files: &'a [File],
    pub scopes: Vec<Scope<'a>>,
    pub functions: Vec<Func<'a>>,
    pub structs: Vec<StructDef<'a>>,
    /// The kernels, in order: indices into `functions`.
    pub kernels: Vec<u32>,
    /// Compile-time evaluation steps so far. Limited, since constants that are each defined by two
    /// others take exponential time.
    pub eval_steps: AtomicU32,
    /// True if every file sees the names of all files, as in the prelude.
    pub files_share_names: bool,
    /// Evaluated calls of enclosing functions, which determine the values of their parameters.
    pub closures: Mutex<Vec<Closure>>,
    /// Calls in each file by callee name; empty if there are no enclosing functions.
    pub calls: Vec<Calls<'a>>,
    /// Conditions around the current statement.
    pub conditions: Conditions<'a>,
    /// Reasons why values assigned by the current statement are not known at compile time;
    /// innermost last.
    pub unknown_reasons: Vec<&'static str>,
    /// Changes to names of enclosing scopes: the name or attribute, the statement, and its scope.
    pub deferred_mutations: Vec<(&'a Expr, TextRange, usize)>,
}

/// Methods that modify the object they are called on.
pub(crate) const MUTATING_METHODS: [&str; 9] =
    ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "update"];

/// The meaning of a decorator of a function or class.
#[derive(Clone, Copy, PartialEq)]
enum Decorator {
    Kernel,
    Func,
    Struct,
    /// The gradient or replay of another function: not lowered.
    Ignored,
    /// C++ code.
    Native,
    None,
}

impl<'a> Program<'a> {
    pub fn new(files: &'a [File]) -> Program<'a> {
        let mut program = Program { files, ..Program::default() };
        for n in 0..files.len() {
            program.scopes.push(Scope { file: n, ..Scope::default() });
        }
        for (n, file) in files.iter().enumerate() {
            program.block(&file.suite, n);
        }
        program.apply_deferred_mutations();
        let is_parameter = |item: &Item<'_>| matches!(item, Item::Values(all) if matches!(all.first(), Some(Assignment { value: AssignedValue::Parameter(..), .. })));
        if program.scopes.iter().any(|scope| scope.names.values().any(is_parameter)) {
            program.calls = files.iter().map(|file| calls(&file.suite)).collect();
        }
        program
    }

    fn open_scope(&mut self, parent: usize, name: &'a str, is_class: bool) -> usize {
        let file = self.scopes[parent].file;
        self.scopes.push(Scope { parent: Some(parent), file, name, is_class, ..Scope::default() });
        self.scopes.len() - 1
    }

    fn declare(&mut self, scope: usize, name: &'a str, item: Item<'a>) {
        self.scopes[scope].names.insert(name, item);
    }

    fn block(&mut self, block: &'a [Stmt], scope: usize) {
        for stmt in block {
            self.stmt(stmt, scope);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt, scope: usize) {
        match stmt {
            Stmt::FunctionDef(def) => self.function(def, scope),
            Stmt::ClassDef(class) => {
                let marks: Vec<Decorator> =
                    class.decorator_list.iter().map(|decorator| self.mark(&decorator.expression, scope)).collect();
                if marks.contains(&Decorator::Struct) {
                    let fields = class.body.iter().filter_map(|stmt| match stmt {
                        Stmt::AnnAssign(field) => {
                            Some((field.target.as_name_expr()?.id.as_str(), field.annotation.as_ref()))
                        }
                        _ => None,
                    });
                    let fields = fields.collect();
                    self.structs.push(StructDef { name: class.name.as_str(), fields, scope });
                    self.declare(scope, class.name.as_str(), Item::Struct(self.structs.len() as u32 - 1));
                } else {
                    let inner = self.open_scope(scope, class.name.as_str(), true);
                    self.scopes[inner].is_flag = class.bases().iter().any(is_flag);
                    self.declare(scope, class.name.as_str(), Item::Class(inner));
                    self.block(&class.body, inner);
                }
            }
            Stmt::Assign(assign) => {
                self.assign_walrus_targets(&assign.value, stmt.range(), scope);
                for target in &assign.targets {
                    self.assign(target, AssignedValue::Expr(&assign.value), stmt.range(), scope);
                }
            }
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.assign(&assign.target, AssignedValue::Expr(value), stmt.range(), scope);
                }
            }
            Stmt::AugAssign(more) => {
                self.assign(&more.target, AssignedValue::Augmented(more.op, &more.value), stmt.range(), scope);
            }
            Stmt::Global(global) => {
                for name in &global.names {
                    let file = self.scopes[scope].file;
                    self.assign_name(
                        name.as_str(),
                        AssignedValue::Unknown("is assigned in a function"),
                        stmt.range(),
                        file,
                    );
                }
            }
            Stmt::Expr(alone) => {
                self.assign_walrus_targets(&alone.value, stmt.range(), scope);
                if let Expr::Call(call) = alone.value.as_ref()
                    && let Expr::Attribute(method) = call.func.as_ref()
                    && MUTATING_METHODS.contains(&method.attr.as_str())
                {
                    self.mark_mutated(&method.value, stmt.range(), scope);
                }
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let path = alias.name.as_str();
                    let top = path.split('.').next().unwrap_or(path);
                    let name = alias.asname.as_ref().map_or(top, |name| name.as_str());
                    let item = match (top, path.split_once('.')) {
                        ("warp", Some((_, rest))) if alias.asname.is_some() => Item::WarpName(rest),
                        ("warp", _) => Item::WarpModule,
                        // `import package.module` binds the name of the package.
                        _ => match self.file_named(path, scope).filter(|_| alias.asname.is_some() || top == path) {
                            Some(file) => Item::ImportedFile(file),
                            None => Item::ExternalModule(top),
                        },
                    };
                    self.declare(scope, name, item);
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |name| name.as_str());
                let module_file = self.file_named(&module_path(import, None), scope);
                for alias in &import.names {
                    let (from, name) = (alias.name.as_str(), alias.asname.as_ref().unwrap_or(&alias.name).as_str());
                    if from == "*" {
                        self.scopes[scope].star_imports_warp |=
                            import.level == 0 && module.split('.').next() == Some("warp");
                        if let Some(file) = module_file {
                            self.import_all(file, scope, 0);
                        }
                        continue;
                    }
                    let item = match (self.file_named(&module_path(import, Some(from)), scope), module_file) {
                        (Some(file), _) => Item::ImportedFile(file),
                        (None, Some(file)) => Item::ImportedName(file, from),
                        _ if import.level == 0 && (module == "warp" || module.starts_with("warp.")) => {
                            Item::WarpName(from)
                        }
                        _ => Item::ExternalName(module, from),
                    };
                    self.declare(scope, name, item);
                }
            }
            Stmt::If(branch) => {
                self.assign_walrus_targets(&branch.test, stmt.range(), scope);
                let before = self.conditions.len();
                self.conditions.push((&branch.test, true));
                self.block(&branch.body, scope);
                for clause in &branch.elif_else_clauses {
                    if let Some(last) = self.conditions.last_mut() {
                        last.1 = false;
                    }
                    self.conditions.extend(clause.test.as_ref().map(|test| (test, true)));
                    self.block(&clause.body, scope);
                }
                self.conditions.truncate(before);
            }
            Stmt::Try(attempt) => {
                let unknown_reasons = if attempt.handlers.is_empty() { None } else { Some("is assigned in a 'try'") };
                self.unknown_reasons.extend(unknown_reasons);
                self.block(&attempt.body, scope);
                self.block(&attempt.orelse, scope);
                for ExceptHandler::ExceptHandler(handler) in &attempt.handlers {
                    self.conditional_assignments(&handler.body, scope);
                }
                self.unknown_reasons.truncate(self.unknown_reasons.len() - usize::from(unknown_reasons.is_some()));
                self.block(&attempt.finalbody, scope);
            }
            Stmt::With(with) => {
                for target in with.items.iter().filter_map(|item| item.optional_vars.as_deref()) {
                    self.assign(target, AssignedValue::Unknown("is assigned by 'with'"), stmt.range(), scope);
                }
                self.block(&with.body, scope);
            }
            Stmt::For(each) => {
                self.unknown_reasons.push("is assigned in a loop");
                self.assign(&each.target, AssignedValue::Expr(&each.iter), stmt.range(), scope);
                self.block(&each.body, scope);
                self.block(&each.orelse, scope);
                self.unknown_reasons.pop();
            }
            Stmt::While(each) => {
                self.assign_walrus_targets(&each.test, stmt.range(), scope);
                self.unknown_reasons.push("is assigned in a loop");
                self.block(&each.body, scope);
                self.block(&each.orelse, scope);
                self.unknown_reasons.pop();
            }
            Stmt::Match(choice) => {
                self.unknown_reasons.push("is assigned in a 'match'");
                choice.cases.iter().for_each(|case| self.block(&case.body, scope));
                self.unknown_reasons.pop();
            }
            _ => {}
        }
    }

    fn function(&mut self, def: &'a StmtFunctionDef, scope: usize) {
        let marks: Vec<Decorator> =
            def.decorator_list.iter().map(|decorator| self.mark(&decorator.expression, scope)).collect();
        let mark = marks.iter().copied().find(|mark| *mark != Decorator::None).unwrap_or(Decorator::None);
        let name = def.name.as_str();
        let file = self.scopes[scope].file;
        match mark {
            Decorator::Kernel => {
                self.functions.push(Func { def, scope, file, conditions: self.conditions.clone() });
                let n = self.functions.len() as u32 - 1;
                self.kernels.push(n);
                match self.scopes[scope].names.get_mut(name) {
                    Some(Item::Kernels(all)) => all.push(n),
                    _ => self.declare(scope, name, Item::Kernels(vec![n])),
                }
            }
            Decorator::Func => {
                self.functions.push(Func { def, scope, file, conditions: self.conditions.clone() });
                let n = self.functions.len() as u32 - 1;
                match self.scopes[scope].names.get_mut(name) {
                    Some(Item::Functions(all)) => all.push(n),
                    _ => self.declare(scope, name, Item::Functions(vec![n])),
                }
            }
            Decorator::Ignored => {}
            Decorator::Native => self.declare(scope, name, Item::ExternalName("func_native", name)),
            Decorator::Struct | Decorator::None => {
                let inner = self.open_scope(scope, name, false);
                self.scopes[inner].def = Some(def);
                self.declare(scope, name, Item::PlainFunction(inner));
                for (n, parameter) in def.parameters.iter_non_variadic_params().enumerate() {
                    let (value, at) = (AssignedValue::Parameter(def, n), parameter.range());
                    self.declare(
                        inner,
                        parameter.name().as_str(),
                        Item::Values(vec![Assignment { value, range: at, conditions: vec![] }]),
                    );
                }
                // The body runs when the function is called, so conditions around it do not apply.
                let outer = (std::mem::take(&mut self.conditions), std::mem::take(&mut self.unknown_reasons));
                self.block(&def.body, inner);
                (self.conditions, self.unknown_reasons) = outer;
            }
        }
    }

    fn mark(&self, decorator: &Expr, scope: usize) -> Decorator {
        let plain = match decorator {
            Expr::Call(call) => &call.func,
            other => other,
        };
        let name = match plain {
            Expr::Attribute(attribute) => match attribute.value.as_ref() {
                Expr::Name(name) if matches!(self.lookup(name.id.as_str(), scope), Some((Item::WarpModule, _))) => {
                    attribute.attr.as_str()
                }
                _ => return Decorator::None,
            },
            Expr::Name(name) => match self.lookup(name.id.as_str(), scope) {
                Some((Item::WarpName(name), _)) => name,
                _ => return Decorator::None,
            },
            _ => return Decorator::None,
        };
        match name {
            "kernel" => Decorator::Kernel,
            "func" => Decorator::Func,
            "struct" => Decorator::Struct,
            "func_grad" | "func_replay" | "overload" => Decorator::Ignored,
            "func_native" => Decorator::Native,
            _ => Decorator::None,
        }
    }

    /// Looks up a name as seen from a scope; also returns the scope that declares it.
    pub fn lookup(&self, name: &str, scope: usize) -> Option<(&Item<'a>, usize)> {
        let mut at = Some(scope);
        while let Some(n) = at {
            let found = &self.scopes[n];
            if (n == scope || !found.is_class)
                && let Some(item) = found.names.get(name)
            {
                return Some((item, n));
            }
            at = found.parent;
        }
        let all = 0..if self.files_share_names { self.files.len() } else { 0 };
        all.into_iter().find_map(|n| self.scopes[n].names.get(name).map(|item| (item, n)))
    }
}

/// Returns true if a base class is `Flag` or `IntFlag` of `enum`, whose members are bits.
fn is_flag(base: &Expr) -> bool {
    let name = match base {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        _ => "",
    };
    matches!(name, "Flag" | "IntFlag")
}

/// Calls by callee name.
pub(crate) type Calls<'a> = HashMap<&'a str, Vec<&'a ExprCall>>;

/// The calls in a file.
fn calls<'a>(suite: &'a [Stmt]) -> Calls<'a> {
    let mut found = CallCollector(HashMap::new());
    ruff_python_ast::visitor::walk_body(&mut found, suite);
    found.0
}

/// Collects calls outside functions; arguments of calls inside functions may be anything.
struct CallCollector<'a>(Calls<'a>);

impl<'a> Visitor<'a> for CallCollector<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if !stmt.is_function_def_stmt() {
            ruff_python_ast::visitor::walk_stmt(self, stmt);
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr {
            match call.func.as_ref() {
                Expr::Name(name) => self.0.entry(name.id.as_str()).or_default().push(call),
                Expr::Attribute(attribute) => self.0.entry(attribute.attr.as_str()).or_default().push(call),
                _ => {}
            }
        }
        ruff_python_ast::visitor::walk_expr(self, expr);
    }
}
