//! What files declare: kernels, functions, structs, constants and imports, by scope. Everything else is left alone.

mod assign;
mod imports;

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use foldhash::{HashMap, HashMapExt};
use ruff_python_ast::visitor::Visitor;
use ruff_python_ast::{ExceptHandler, Expr, ExprCall, Operator, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextRange};

use super::fixed::Closure;
use super::{File, module_path};

/// A handle on a function or kernel of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FuncId {
    /// Whether it is of the prelude, which is a program of its own.
    pub prelude: bool,
    pub n: u32,
    /// The call of a function around it that made it, by its number among those of the program; 0 is none.
    pub around: u32,
}

/// A function or kernel.
#[derive(Debug)]
pub(crate) struct Func<'a> {
    pub def: &'a StmtFunctionDef,
    /// The scope it stands in.
    pub scope: usize,
    pub file: usize,
    pub under: Under<'a>,
}

/// A struct.
#[derive(Debug)]
pub(crate) struct Structure<'a> {
    pub name: &'a str,
    /// Names and annotations, in order.
    pub fields: Vec<(&'a str, &'a Expr)>,
    pub scope: usize,
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// `@wp.func`, all overloads in order.
    Functions(Vec<u32>),
    /// `@wp.kernel`, all of the name in order: the last one counts, of those whose conditions hold.
    Kernels(Vec<u32>),
    Struct(u32),
    /// Assigned, perhaps several times.
    Values(Vec<Given<'a>>),
    /// `import warp as wp`.
    Warp,
    /// `from warp import NAME`, `import warp.NAME as …`.
    WarpName(&'a str),
    /// A module of Python's: math, numpy, typing.
    Python(&'a str),
    /// A name of such a module.
    PythonName(&'a str, &'a str),
    /// Another file.
    File(usize),
    /// A name of another file.
    FileName(usize, &'a str),
    /// A function without a decorator, by the scope of its body.
    Plain(usize),
    /// A class, by the scope of its body.
    Class(usize),
}

/// What a statement of a file gives a name.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub value: Giving<'a>,
    /// Where: what stands before it does not see it.
    pub at: TextRange,
    pub under: Under<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Giving<'a> {
    Whole(&'a Expr),
    /// A component of what is unpacked.
    Part(&'a Expr, usize),
    /// What it was, and something more: `+=`.
    More(Operator, &'a Expr),
    /// A parameter of a function around.
    Parameter(&'a StmtFunctionDef, usize),
    /// Only a run of the file tells, and why.
    Unknown(&'static str),
}

/// Conditions something stands under, and what they have to be.
pub(crate) type Under<'a> = Vec<(&'a Expr, bool)>;

#[derive(Debug, Default)]
pub(crate) struct Scope<'a> {
    pub parent: Option<usize>,
    pub file: usize,
    /// What the function or class is called, and the function.
    pub name: &'a str,
    pub def: Option<&'a StmtFunctionDef>,
    pub names: HashMap<&'a str, Item<'a>>,
    /// Whether the names of the dialect are names here, by `from warp import *`.
    pub all_of_warp: bool,
    /// Names of a class are not seen by what stands in it.
    pub is_class: bool,
    /// Whether members of the class that are not told are powers of two.
    pub is_flag: bool,
}

/// Files, and what they declare.
#[derive(Debug, Default)]
pub(crate) struct Program<'a> {
    pub files: &'a [File],
    pub scopes: Vec<Scope<'a>>,
    pub functions: Vec<Func<'a>>,
    pub structs: Vec<Structure<'a>>,
    /// Functions that are kernels, in order.
    pub kernels: Vec<u32>,
    /// Expressions that were evaluated beforehand: constants that are each defined by two others would never end.
    pub spent: AtomicU32,
    /// Whether its files see each other's names, as those of the prelude do.
    pub shared: bool,
    /// Calls of functions around kernels and functions, as they were met: they say what the parameters are.
    pub closures: Mutex<Vec<Closure>>,
    /// Calls in each file by the name of what is called, where functions are around kernels.
    pub calls: Vec<Calls<'a>>,
    /// The conditions around the statement that is read, and why what it does is only known in a run, if that is so.
    pub under: Under<'a>,
    pub unsure: Vec<&'static str>,
    /// What functions change of names around them: the name or attribute, where, and in which scope.
    pub later: Vec<(&'a Expr, TextRange, usize)>,
}

/// Methods that change what they are called of.
pub(crate) const CHANGING: [&str; 9] =
    ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "update"];

/// What a decorator makes of a function or class.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Kernel,
    Func,
    Struct,
    /// A gradient of another function, or code in another language: not part of what is lowered.
    Other,
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
        program.changed_later();
        let is_parameter = |item: &Item<'_>| matches!(item, Item::Values(all) if matches!(all.first(), Some(Given { value: Giving::Parameter(..), .. })));
        if program.scopes.iter().any(|scope| scope.names.values().any(is_parameter)) {
            program.calls = files.iter().map(|file| calls(&file.suite)).collect();
        }
        program
    }

    fn open(&mut self, parent: usize, name: &'a str, is_class: bool) -> usize {
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
                let marks: Vec<Mark> =
                    class.decorator_list.iter().map(|decorator| self.mark(&decorator.expression, scope)).collect();
                if marks.contains(&Mark::Struct) {
                    let fields = class.body.iter().filter_map(|stmt| match stmt {
                        Stmt::AnnAssign(field) => {
                            Some((field.target.as_name_expr()?.id.as_str(), field.annotation.as_ref()))
                        }
                        _ => None,
                    });
                    let fields = fields.collect();
                    self.structs.push(Structure { name: class.name.as_str(), fields, scope });
                    self.declare(scope, class.name.as_str(), Item::Struct(self.structs.len() as u32 - 1));
                } else {
                    let inner = self.open(scope, class.name.as_str(), true);
                    self.scopes[inner].is_flag = class.bases().iter().any(is_flag);
                    self.declare(scope, class.name.as_str(), Item::Class(inner));
                    self.block(&class.body, inner);
                }
            }
            Stmt::Assign(assign) => {
                self.named_in(&assign.value, stmt.range(), scope);
                for target in &assign.targets {
                    self.assign(target, Giving::Whole(&assign.value), stmt.range(), scope);
                }
            }
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.assign(&assign.target, Giving::Whole(value), stmt.range(), scope);
                }
            }
            Stmt::AugAssign(more) => {
                self.assign(&more.target, Giving::More(more.op, &more.value), stmt.range(), scope);
            }
            Stmt::Global(global) => {
                for name in &global.names {
                    let file = self.scopes[scope].file;
                    self.give(name.as_str(), Giving::Unknown("is assigned in a function"), stmt.range(), file);
                }
            }
            Stmt::Expr(alone) => {
                self.named_in(&alone.value, stmt.range(), scope);
                if let Expr::Call(call) = alone.value.as_ref()
                    && let Expr::Attribute(method) = call.func.as_ref()
                    && CHANGING.contains(&method.attr.as_str())
                {
                    self.changed(&method.value, stmt.range(), scope);
                }
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let path = alias.name.as_str();
                    let top = path.split('.').next().unwrap_or(path);
                    let name = alias.asname.as_ref().map_or(top, |name| name.as_str());
                    let item = match (top, path.split_once('.')) {
                        ("warp", Some((_, rest))) if alias.asname.is_some() => Item::WarpName(rest),
                        ("warp", _) => Item::Warp,
                        // `import package.module` gives the package its name.
                        _ => match self.file_named(path, scope).filter(|_| alias.asname.is_some() || top == path) {
                            Some(file) => Item::File(file),
                            None => Item::Python(top),
                        },
                    };
                    self.declare(scope, name, item);
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |name| name.as_str());
                let whole = self.file_named(&module_path(import, None), scope);
                for alias in &import.names {
                    let (from, name) = (alias.name.as_str(), alias.asname.as_ref().unwrap_or(&alias.name).as_str());
                    if from == "*" {
                        self.scopes[scope].all_of_warp |= import.level == 0 && module.split('.').next() == Some("warp");
                        if let Some(file) = whole {
                            self.import_all(file, scope, 0);
                        }
                        continue;
                    }
                    let item = match (self.file_named(&module_path(import, Some(from)), scope), whole) {
                        (Some(file), _) => Item::File(file),
                        (None, Some(file)) => Item::FileName(file, from),
                        _ if import.level == 0 && (module == "warp" || module.starts_with("warp.")) => {
                            Item::WarpName(from)
                        }
                        _ => Item::PythonName(module, from),
                    };
                    self.declare(scope, name, item);
                }
            }
            Stmt::If(branch) => {
                self.named_in(&branch.test, stmt.range(), scope);
                let before = self.under.len();
                self.under.push((&branch.test, true));
                self.block(&branch.body, scope);
                for clause in &branch.elif_else_clauses {
                    if let Some(last) = self.under.last_mut() {
                        last.1 = false;
                    }
                    self.under.extend(clause.test.as_ref().map(|test| (test, true)));
                    self.block(&clause.body, scope);
                }
                self.under.truncate(before);
            }
            Stmt::Try(attempt) => {
                let unsure = if attempt.handlers.is_empty() { None } else { Some("is assigned in a 'try'") };
                self.unsure.extend(unsure);
                self.block(&attempt.body, scope);
                self.block(&attempt.orelse, scope);
                for ExceptHandler::ExceptHandler(handler) in &attempt.handlers {
                    self.values_of(&handler.body, scope);
                }
                self.unsure.truncate(self.unsure.len() - usize::from(unsure.is_some()));
                self.block(&attempt.finalbody, scope);
            }
            Stmt::With(with) => {
                for target in with.items.iter().filter_map(|item| item.optional_vars.as_deref()) {
                    self.assign(target, Giving::Unknown("is assigned by 'with'"), stmt.range(), scope);
                }
                self.block(&with.body, scope);
            }
            Stmt::For(each) => {
                self.unsure.push("is assigned in a loop");
                self.assign(&each.target, Giving::Whole(&each.iter), stmt.range(), scope);
                self.block(&each.body, scope);
                self.block(&each.orelse, scope);
                self.unsure.pop();
            }
            Stmt::While(each) => {
                self.named_in(&each.test, stmt.range(), scope);
                self.unsure.push("is assigned in a loop");
                self.block(&each.body, scope);
                self.block(&each.orelse, scope);
                self.unsure.pop();
            }
            Stmt::Match(choice) => {
                self.unsure.push("is assigned in a 'match'");
                choice.cases.iter().for_each(|case| self.block(&case.body, scope));
                self.unsure.pop();
            }
            _ => {}
        }
    }

    fn function(&mut self, def: &'a StmtFunctionDef, scope: usize) {
        let marks: Vec<Mark> =
            def.decorator_list.iter().map(|decorator| self.mark(&decorator.expression, scope)).collect();
        let mark = marks.iter().copied().find(|mark| *mark != Mark::None).unwrap_or(Mark::None);
        let name = def.name.as_str();
        let file = self.scopes[scope].file;
        match mark {
            Mark::Kernel => {
                self.functions.push(Func { def, scope, file, under: self.under.clone() });
                let n = self.functions.len() as u32 - 1;
                self.kernels.push(n);
                match self.scopes[scope].names.get_mut(name) {
                    Some(Item::Kernels(all)) => all.push(n),
                    _ => self.declare(scope, name, Item::Kernels(vec![n])),
                }
            }
            Mark::Func => {
                self.functions.push(Func { def, scope, file, under: self.under.clone() });
                let n = self.functions.len() as u32 - 1;
                match self.scopes[scope].names.get_mut(name) {
                    Some(Item::Functions(all)) => all.push(n),
                    _ => self.declare(scope, name, Item::Functions(vec![n])),
                }
            }
            Mark::Other => {}
            Mark::Native => self.declare(scope, name, Item::PythonName("func_native", name)),
            Mark::Struct | Mark::None => {
                let inner = self.open(scope, name, false);
                self.scopes[inner].def = Some(def);
                self.declare(scope, name, Item::Plain(inner));
                for (n, parameter) in def.parameters.iter_non_variadic_params().enumerate() {
                    let (value, at) = (Giving::Parameter(def, n), parameter.range());
                    self.declare(
                        inner,
                        parameter.name().as_str(),
                        Item::Values(vec![Given { value, at, under: vec![] }]),
                    );
                }
                // Its body runs when it is called, not where it stands.
                let around = (std::mem::take(&mut self.under), std::mem::take(&mut self.unsure));
                self.block(&def.body, inner);
                (self.under, self.unsure) = around;
            }
        }
    }

    fn mark(&self, decorator: &Expr, scope: usize) -> Mark {
        let plain = match decorator {
            Expr::Call(call) => &call.func,
            other => other,
        };
        let name = match plain {
            Expr::Attribute(attribute) => match attribute.value.as_ref() {
                Expr::Name(name) if matches!(self.lookup(name.id.as_str(), scope), Some((Item::Warp, _))) => {
                    attribute.attr.as_str()
                }
                _ => return Mark::None,
            },
            Expr::Name(name) => match self.lookup(name.id.as_str(), scope) {
                Some((Item::WarpName(name), _)) => name,
                _ => return Mark::None,
            },
            _ => return Mark::None,
        };
        match name {
            "kernel" => Mark::Kernel,
            "func" => Mark::Func,
            "struct" => Mark::Struct,
            "func_grad" | "func_replay" | "overload" => Mark::Other,
            "func_native" => Mark::Native,
            _ => Mark::None,
        }
    }

    /// What a name stands for in a scope, and the scope that says so.
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
        let all = 0..if self.shared { self.files.len() } else { 0 };
        all.into_iter().find_map(|n| self.scopes[n].names.get(name).map(|item| (item, n)))
    }
}

/// Whether a class is derived from one of `enum` whose members are bits.
fn is_flag(base: &Expr) -> bool {
    let name = match base {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        _ => "",
    };
    matches!(name, "Flag" | "IntFlag")
}

/// Calls by the name of what is called.
pub(crate) type Calls<'a> = HashMap<&'a str, Vec<&'a ExprCall>>;

/// The calls in a file.
fn calls<'a>(suite: &'a [Stmt]) -> Calls<'a> {
    let mut found = Called(HashMap::new());
    ruff_python_ast::visitor::walk_body(&mut found, suite);
    found.0
}

/// Calls, but for those within functions, whose arguments may be anything.
struct Called<'a>(Calls<'a>);

impl<'a> Visitor<'a> for Called<'a> {
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
