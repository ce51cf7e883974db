//! A program under construction: declares parameters and variables with unused names, and collects
//! statements.

use super::names::{self, Names};
use super::sample::{PathCondition, Values};
use crate::Random;
use crate::program::{
    ArrayFill, ArrayId, ArrayParam, Body, CudaForm, DirectStyle, ExprKind, FuncId, FunctionDef, Guard, Program,
    ProgramExpr, ProgramStmt, ProgramValueParam, ScalarType, SizeExpr, SizeParam, Ty, VarId, Variable,
};

/// A program under construction.
pub struct ProgramBuilder {
    pub random: Random,
    pub program: Program,
    pub names: Names,
    /// Body being built: the kernel's, or a function's.
    pub body: Body,
    /// Blocks not yet closed; statements are appended to the last.
    open: Vec<Vec<ProgramStmt>>,
    /// True if expressions may bind subexpressions to variables; false where a single expression is
    /// required.
    pub can_bind: bool,
    /// State of the kernel while a function is built.
    outer: Option<(Body, Vec<Vec<ProgramStmt>>, Names)>,
    /// While a function is built: samples of its arguments in a call from the kernel.
    pub arguments: Vec<Option<Values>>,
    /// Loop counters and their number of iterations.
    pub counters: Vec<(VarId, usize)>,
    /// Conditions known to hold or not to hold at the current statement.
    pub path_conditions: Vec<PathCondition>,
}

impl ProgramBuilder {
    pub fn new(random: Random) -> ProgramBuilder {
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
            form: CudaForm::Direct(DirectStyle { block: [256, 1, 1], guard: Guard::Return, restrict: true }),
        };
        ProgramBuilder {
            random,
            program,
            names: Names::default(),
            body: Body::default(),
            open: vec![vec![]],
            can_bind: true,
            outer: None,
            arguments: vec![],
            counters: vec![],
            path_conditions: vec![],
        }
    }

    /// Declares an array parameter.
    pub fn array(
        &mut self,
        name: &str,
        ty: impl Into<Ty>,
        shape: &[SizeExpr],
        fill: ArrayFill,
        written: bool,
    ) -> ArrayId {
        let name = self.names.unique(name);
        self.program.arrays.push(ArrayParam { name, ty: ty.into(), shape: shape.into(), fill, written });
        ArrayId(self.program.arrays.len() as u8 - 1)
    }

    /// Declares an input array with a random name.
    pub fn input(&mut self, ty: impl Into<Ty>, shape: &[SizeExpr], fill: ArrayFill) -> ArrayId {
        let name = *self.random.pick(names::INPUTS);
        self.array(name, ty, shape, fill, false)
    }

    /// Declares an output array.
    pub fn output(&mut self, ty: impl Into<Ty>, shape: &[SizeExpr]) -> ArrayId {
        let name = *self.random.pick(names::OUTPUTS);
        self.array(name, ty, shape, ArrayFill::Zero, true)
    }

    /// Declares a variable of the current body.
    pub fn variable(&mut self, name: &str, ty: impl Into<Ty>, mutable: bool) -> VarId {
        let name = self.names.unique(name);
        self.body.vars.push(Variable { name, ty: ty.into(), mutable });
        VarId(self.body.vars.len() as u16 - 1)
    }

    /// Declares a scalar parameter.
    pub fn value(&mut self, name: &str, scalar: ScalarType, low: f64, high: f64) -> VarId {
        let var = self.variable(name, scalar, false);
        self.program.values.push(ProgramValueParam { var, range: (low, high) });
        var
    }

    /// Declares a size parameter.
    pub fn size(&mut self, name: &str, in_source: bool, min: u32, max: u32) -> SizeExpr {
        let var = self.variable(name, ScalarType::I32, false);
        self.program.sizes.push(SizeParam { var, in_source, min, max });
        SizeExpr::Param(self.program.sizes.len() as u8 - 1)
    }

    /// A size parameter as an expression; the source then takes it as a parameter.
    pub fn extent(&mut self, size: SizeExpr) -> ProgramExpr {
        match size {
            SizeExpr::Param(n) => {
                self.program.sizes[n as usize].in_source = true;
                ProgramExpr::var(self.program.sizes[n as usize].var, ScalarType::I32)
            }
            SizeExpr::Constant(n) => ProgramExpr::int(n as i64),
            _ => ProgramExpr::int(0),
        }
    }

    /// The instance's index along a dimension of the launch.
    pub fn index(&mut self, name: &str, size: SizeExpr) -> ProgramExpr {
        let var = self.variable(name, ScalarType::I32, false);
        self.program.grid.push((var, size));
        ProgramExpr::var(var, ScalarType::I32)
    }

    /// Appends a statement.
    pub fn push(&mut self, stmt: ProgramStmt) {
        if let Some(block) = self.open.last_mut() {
            block.push(stmt);
        }
    }

    /// Binds a value to a variable with a random name.
    pub fn bind(&mut self, e: ProgramExpr) -> ProgramExpr {
        let name = *self.random.pick(names::LOCALS);
        self.bind_as(name, e)
    }

    /// Binds a value to a variable with this name.
    pub fn bind_as(&mut self, name: &str, e: ProgramExpr) -> ProgramExpr {
        let ty = e.ty;
        let var = self.variable(name, ty, false);
        self.push(ProgramStmt::Let(var, e));
        ProgramExpr::var(var, ty)
    }

    /// Declares a mutable variable with its initial value.
    pub fn mutable(&mut self, name: &str, first: ProgramExpr) -> VarId {
        let var = self.variable(name, first.ty, true);
        self.push(ProgramStmt::Let(var, first));
        var
    }

    /// Reads a variable.
    pub fn read(&self, var: VarId) -> ProgramExpr {
        ProgramExpr::var(var, self.body.var(var).ty)
    }

    /// Collects statements into a block.
    pub fn block(&mut self, write: impl FnOnce(&mut ProgramBuilder)) -> Vec<ProgramStmt> {
        self.open.push(vec![]);
        write(self);
        self.open.pop().unwrap_or_default()
    }

    /// Collects statements into a block that is executed if a condition has this outcome.
    pub fn block_where(
        &mut self,
        condition: &ProgramExpr,
        holds: bool,
        write: impl FnOnce(&mut ProgramBuilder),
    ) -> Vec<ProgramStmt> {
        self.path_conditions.push(PathCondition { condition: condition.clone(), holds });
        let stmts = self.block(write);
        self.path_conditions.pop();
        stmts
    }

    /// Appends a loop over a range of integers; `body` receives the counter.
    pub fn for_range(
        &mut self,
        name: &str,
        low: ProgramExpr,
        high: ProgramExpr,
        step: i64,
        body: impl FnOnce(&mut ProgramBuilder, ProgramExpr),
    ) {
        let var = self.variable(name, ScalarType::I32, false);
        let iterations = if let ExprKind::Int(iterations) = high.kind { iterations.max(1) as usize } else { 8 };
        self.counters.push((var, iterations));
        let stmts = self.block(|m| body(m, ProgramExpr::var(var, ScalarType::I32)));
        self.push(ProgramStmt::For(var, low, high, step, stmts));
    }

    /// Begins a function, and returns its parameters: statements are appended to it until
    /// [`ProgramBuilder::close_function`].
    pub fn open_function(&mut self, params: &[(&str, Ty)]) -> Vec<ProgramExpr> {
        let names = std::mem::take(&mut self.names);
        let body = std::mem::take(&mut self.body);
        let open = std::mem::replace(&mut self.open, vec![vec![]]);
        self.outer = Some((body, open, names));
        let params: Vec<ProgramExpr> = (params.iter())
            .map(|(name, ty)| {
                let var = self.variable(name, *ty, false);
                ProgramExpr::var(var, *ty)
            })
            .collect();
        self.body.params = params.len();
        params
    }

    /// Ends a function.
    pub fn close_function(&mut self, name: &str, result: impl Into<Ty>) -> FuncId {
        let stmts = self.open.pop().unwrap_or_default();
        let mut body = std::mem::take(&mut self.body);
        body.stmts = stmts;
        if let Some((outer, open, names)) = self.outer.take() {
            (self.body, self.open, self.names) = (outer, open, names);
        }
        self.arguments.clear();
        self.path_conditions.clear();
        let name = self.names.unique(name);
        self.program.functions.push(FunctionDef { name, result: result.into(), body });
        FuncId(self.program.functions.len() as u8 - 1)
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
        self.program.name = self.names.unique(&name);
        self.program
    }

    /// Draws a style of direct text for a launch with this many dimensions.
    pub fn style(&mut self, dimensions: usize) -> DirectStyle {
        let random = &mut self.random;
        let block = match dimensions {
            1 => [*random.pick_weighted(&[(3, 64), (5, 128), (6, 256), (1, 192)]), 1, 1],
            2 => *random.pick_weighted(&[(5, [16, 16, 1]), (3, [32, 8, 1]), (2, [8, 8, 1]), (2, [32, 4, 1])]),
            _ => *random.pick_weighted(&[(4, [8, 4, 4]), (3, [4, 4, 4]), (3, [8, 8, 2])]),
        };
        let guard = match dimensions {
            1 => *random.pick_weighted(&[(5, Guard::Return), (4, Guard::Around), (3, Guard::Stride)]),
            _ => *random.pick_weighted(&[(1, Guard::Return), (1, Guard::Around)]),
        };
        DirectStyle { block, guard, restrict: random.chance(65) }
    }

    /// Gives the program the direct CUDA form, in a random style.
    pub fn direct(&mut self) {
        let dimensions = self.program.grid.len();
        self.program.form = CudaForm::Direct(self.style(dimensions));
    }
}

impl ProgramBuilder {
    /// True while a function is built.
    pub fn in_function(&self) -> bool {
        self.outer.is_some()
    }

    /// Statements of the current block.
    pub fn current_block(&self) -> &[ProgramStmt] {
        self.open.last().map_or(&[], Vec::as_slice)
    }

    /// Initial value of a variable declared in an open block.
    pub fn initial_value(&self, target: VarId) -> Option<&ProgramExpr> {
        self.open.iter().rev().flatten().find_map(|stmt| match stmt {
            ProgramStmt::Let(var, e) if *var == target => Some(e),
            _ => None,
        })
    }

    /// True for a random number between 0 and 1 drawn in an open block.
    pub fn is_random(&self, target: VarId) -> bool {
        self.open.iter().flatten().any(|stmt| matches!(stmt, ProgramStmt::Draw(var, _, None) if *var == target))
    }

    /// True if a statement so far reads a variable.
    pub fn is_read(&self, target: &ProgramExpr) -> bool {
        let mut found = false;
        for stmt in self.open.iter().flatten() {
            stmt.walk(&mut |stmt| {
                stmt.children().0.into_iter().for_each(|e| e.walk(&mut |part| found |= part == target));
            });
        }
        found
    }
}
