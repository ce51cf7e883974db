//! A program under construction: declares parameters and variables with unused names, and collects
//! statements.

use super::names::{self, Names};
use super::sample::{Given, Values};
use crate::Random;
use crate::program::{
    Array, ArrayParam, Body, Expr, Fill, Form, Func, Function, Guard, Kind, Program, Scalar, Size, SizeParam, Stmt,
    Style, Ty, ValueParam, Var, Variable,
};

/// A program under construction.
pub struct Maker {
    pub random: Random,
    pub program: Program,
    pub names: Names,
    /// Body being built: the kernel's, or a function's.
    pub body: Body,
    /// Blocks not yet closed; statements are appended to the last.
    open: Vec<Vec<Stmt>>,
    /// True if expressions may bind subexpressions to variables; false where a single expression is
    /// required.
    pub binds: bool,
    /// State of the kernel while a function is built.
    outer: Option<(Body, Vec<Vec<Stmt>>, Names)>,
    /// While a function is built: samples of its arguments in a call from the kernel.
    pub arguments: Vec<Option<Values>>,
    /// Loop counters and their number of iterations.
    pub counters: Vec<(Var, usize)>,
    /// Conditions known to hold or not to hold at the current statement.
    pub given: Vec<Given>,
}

impl Maker {
    pub fn new(random: Random) -> Maker {
        let program = Program {
            name: String::new(),
            doc: String::new(),
            structs: vec![],
            functions: vec![],
            arrays: vec![],
            values: vec![],
            sizes: vec![],
            body: Body::default(),
            grid: vec![],
            form: Form::Direct(Style { block: [256, 1, 1], guard: Guard::Return, restrict: true }),
        };
        Maker {
            random,
            program,
            names: Names::default(),
            body: Body::default(),
            open: vec![vec![]],
            binds: true,
            outer: None,
            arguments: vec![],
            counters: vec![],
            given: vec![],
        }
    }

    /// Declares an array parameter.
    pub fn array(&mut self, name: &str, ty: impl Into<Ty>, shape: &[Size], fill: Fill, written: bool) -> Array {
        let name = self.names.free(name);
        self.program.arrays.push(ArrayParam { name, ty: ty.into(), shape: shape.into(), fill, written });
        Array(self.program.arrays.len() as u8 - 1)
    }

    /// Declares an input array with a random name.
    pub fn input(&mut self, ty: impl Into<Ty>, shape: &[Size], fill: Fill) -> Array {
        let name = *self.random.pick(names::INPUTS);
        self.array(name, ty, shape, fill, false)
    }

    /// Declares an output array.
    pub fn output(&mut self, ty: impl Into<Ty>, shape: &[Size]) -> Array {
        let name = *self.random.pick(names::OUTPUTS);
        self.array(name, ty, shape, Fill::Zero, true)
    }

    /// Declares a variable of the current body.
    pub fn variable(&mut self, name: &str, ty: impl Into<Ty>, changes: bool) -> Var {
        let name = self.names.free(name);
        self.body.vars.push(Variable { name, ty: ty.into(), changes });
        Var(self.body.vars.len() as u16 - 1)
    }

    /// Declares a scalar parameter.
    pub fn value(&mut self, name: &str, scalar: Scalar, low: f64, high: f64) -> Var {
        let var = self.variable(name, scalar, false);
        self.program.values.push(ValueParam { var, range: (low, high) });
        var
    }

    /// Declares a size parameter.
    pub fn size(&mut self, name: &str, in_source: bool, least: u32, most: u32) -> Size {
        let var = self.variable(name, Scalar::I32, false);
        self.program.sizes.push(SizeParam { var, in_source, most, least });
        Size::Param(self.program.sizes.len() as u8 - 1)
    }

    /// A size parameter as an expression; the source then takes it as a parameter.
    pub fn extent(&mut self, size: Size) -> Expr {
        match size {
            Size::Param(n) => {
                self.program.sizes[n as usize].in_source = true;
                Expr::var(self.program.sizes[n as usize].var, Scalar::I32)
            }
            Size::Known(n) => Expr::int(n as i64),
            _ => Expr::int(0),
        }
    }

    /// The instance's index along a dimension of the launch.
    pub fn index(&mut self, name: &str, size: Size) -> Expr {
        let var = self.variable(name, Scalar::I32, false);
        self.program.grid.push((var, size));
        Expr::var(var, Scalar::I32)
    }

    /// Appends a statement.
    pub fn push(&mut self, stmt: Stmt) {
        if let Some(block) = self.open.last_mut() {
            block.push(stmt);
        }
    }

    /// Binds a value to a variable with a random name.
    pub fn bind(&mut self, e: Expr) -> Expr {
        let name = *self.random.pick(names::LOCALS);
        self.bind_as(name, e)
    }

    /// Binds a value to a variable with this name.
    pub fn bind_as(&mut self, name: &str, e: Expr) -> Expr {
        let ty = e.ty;
        let var = self.variable(name, ty, false);
        self.push(Stmt::Let(var, e));
        Expr::var(var, ty)
    }

    /// Declares a mutable variable with its initial value.
    pub fn changing(&mut self, name: &str, first: Expr) -> Var {
        let var = self.variable(name, first.ty, true);
        self.push(Stmt::Let(var, first));
        var
    }

    /// Reads a variable.
    pub fn read(&self, var: Var) -> Expr {
        Expr::var(var, self.body.var(var).ty)
    }

    /// Collects statements into a block.
    pub fn block(&mut self, write: impl FnOnce(&mut Maker)) -> Vec<Stmt> {
        self.open.push(vec![]);
        write(self);
        self.open.pop().unwrap_or_default()
    }

    /// Collects statements into a block that is executed if a condition has this outcome.
    pub fn block_where(&mut self, condition: &Expr, holds: bool, write: impl FnOnce(&mut Maker)) -> Vec<Stmt> {
        self.given.push(Given { condition: condition.clone(), holds });
        let stmts = self.block(write);
        self.given.pop();
        stmts
    }

    /// Appends a loop over a range of integers; `body` receives the counter.
    pub fn count(&mut self, name: &str, low: Expr, high: Expr, step: i64, body: impl FnOnce(&mut Maker, Expr)) {
        let var = self.variable(name, Scalar::I32, false);
        let iterations = if let Kind::Int(iterations) = high.kind { iterations.max(1) as usize } else { 8 };
        self.counters.push((var, iterations));
        let stmts = self.block(|m| body(m, Expr::var(var, Scalar::I32)));
        self.push(Stmt::For(var, low, high, step, stmts));
    }

    /// Begins a function, and returns its parameters: statements are appended to it until
    /// [`Maker::close_function`].
    pub fn open_function(&mut self, params: &[(&str, Ty)]) -> Vec<Expr> {
        let names = std::mem::take(&mut self.names);
        let body = std::mem::take(&mut self.body);
        let open = std::mem::replace(&mut self.open, vec![vec![]]);
        self.outer = Some((body, open, names));
        let params: Vec<Expr> = (params.iter())
            .map(|(name, ty)| {
                let var = self.variable(name, *ty, false);
                Expr::var(var, *ty)
            })
            .collect();
        self.body.params = params.len();
        params
    }

    /// Ends a function.
    pub fn close_function(&mut self, name: &str, result: impl Into<Ty>) -> Func {
        let stmts = self.open.pop().unwrap_or_default();
        let mut body = std::mem::take(&mut self.body);
        body.stmts = stmts;
        if let Some((outer, open, names)) = self.outer.take() {
            (self.body, self.open, self.names) = (outer, open, names);
        }
        self.arguments.clear();
        self.given.clear();
        let name = self.names.free(name);
        self.program.functions.push(Function { name, result: result.into(), body });
        Func(self.program.functions.len() as u8 - 1)
    }

    /// Finishes the program.
    pub fn finish(mut self, name: String) -> Program {
        // Unused scalar parameters are dropped.
        let values = std::mem::take(&mut self.program.values);
        let read: Vec<bool> = values.iter().map(|value| self.is_read(&self.read(value.var))).collect();
        self.program.values = values.into_iter().zip(read).filter(|(_, read)| *read).map(|(value, _)| value).collect();
        self.body.stmts = self.open.pop().unwrap_or_default();
        self.body.params = self.program.values.len() + self.program.sizes.len();
        self.program.body = self.body;
        self.program.name = self.names.free(&name);
        self.program
    }

    /// Draws a style of direct text for a launch with this many dimensions.
    pub fn style(&mut self, dimensions: usize) -> Style {
        let random = &mut self.random;
        let block = match dimensions {
            1 => [*random.weighted(&[(3, 64), (5, 128), (6, 256), (1, 192)]), 1, 1],
            2 => *random.weighted(&[(5, [16, 16, 1]), (3, [32, 8, 1]), (2, [8, 8, 1]), (2, [32, 4, 1])]),
            _ => *random.weighted(&[(4, [8, 4, 4]), (3, [4, 4, 4]), (3, [8, 8, 2])]),
        };
        let guard = match dimensions {
            1 => *random.weighted(&[(5, Guard::Return), (4, Guard::Around), (3, Guard::Stride)]),
            _ => *random.weighted(&[(1, Guard::Return), (1, Guard::Around)]),
        };
        Style { block, guard, restrict: random.chance(65) }
    }

    /// Draws a direct form in a random style.
    pub fn direct(&mut self) {
        let dimensions = self.program.grid.len();
        self.program.form = Form::Direct(self.style(dimensions));
    }
}

impl Maker {
    /// True while a function is built.
    pub fn in_function(&self) -> bool {
        self.outer.is_some()
    }

    /// Statements of the current block.
    pub fn writing(&self) -> &[Stmt] {
        self.open.last().map_or(&[], Vec::as_slice)
    }

    /// Initial value of a variable declared in an open block.
    pub fn bound_to(&self, target: Var) -> Option<&Expr> {
        self.open.iter().rev().flatten().find_map(|stmt| match stmt {
            Stmt::Let(var, e) if *var == target => Some(e),
            _ => None,
        })
    }

    /// True for a random number between 0 and 1 drawn in an open block.
    pub fn is_random(&self, target: Var) -> bool {
        self.open.iter().flatten().any(|stmt| matches!(stmt, Stmt::Draw(var, _, None) if *var == target))
    }

    /// True if a statement so far reads a variable.
    pub fn is_read(&self, target: &Expr) -> bool {
        let mut found = false;
        for stmt in self.open.iter().flatten() {
            stmt.walk(&mut |stmt| {
                stmt.contents().0.into_iter().for_each(|e| e.walk(&mut |part| found |= part == target));
            });
        }
        found
    }
}
