//! The interpreter: executes a kernel statement by statement over all threads of a block, checking
//! every access.
//!
//! It is the reference for the other backends, so it is written for clarity: each expression is a
//! register with one lane per thread (several registers for several components), each statement
//! runs over all lanes under a mask, and only the op tables are shared with generated code. Block
//! kernels are checked for races, divergent barriers, partial warps and uninitialized reads; every
//! kernel is checked for out-of-bounds indices. The first fault ends the run.

mod compute;
mod divergence;
mod evaluate;
mod frame;
mod lanes;
mod local_arrays;
mod memory;
mod options;
mod races;
mod recorded;
mod trace;

use std::rc::Rc;

use crate::{
    Access, Arg, Check, Code, ExprId, Fault, FaultKind, FunctionId, Kernel, LaunchMode, LocalArrayId, LocalId, ParamId,
    SharedId, Stmt, Value, View, WARP_SIZE, check_args, verify,
};
pub use compute::{evaluate, evaluate_algebra};
use frame::{Component, Frame, LoopMasks, Slots};
use lanes::{Mask, Register};
use local_arrays::LocalMemory;
use memory::BoundView;
pub use options::{ExecutionOrder, InterpreterOptions};
use races::AccessHistory;
use recorded::RecordedAccess;
pub use trace::{AccessKind, TracedAccess, Tracer};

/// Instances of a `ParallelFor` that are executed together.
const CHUNK: u64 = 256;

/// Maximum size of a block's registers.
const MAX_REGISTER_BYTES: usize = 1 << 30;

/// Runs a kernel on `args`. Debug prints go to stdout.
pub fn run(kernel: &Kernel, args: &mut [Arg<'_>]) -> Result<(), Fault> {
    run_with(kernel, args, InterpreterOptions::default())
}

/// Runs a kernel on `args` with the given options. Debug prints go to stdout.
pub fn run_with(kernel: &Kernel, args: &mut [Arg<'_>], options: InterpreterOptions) -> Result<(), Fault> {
    run_printing(kernel, args, options, &mut crate::print::write_print_line)
}

/// Runs a kernel on `args` with the given options; passes each line of debug output to `print`.
pub fn run_printing(
    kernel: &Kernel,
    args: &mut [Arg<'_>],
    options: InterpreterOptions,
    print: &mut dyn FnMut(&str),
) -> Result<(), Fault> {
    checked_run(kernel, args, options, print, None)
}

/// Runs a kernel on `args` with the given options and reports every statement, branch and memory
/// access to `tracer`. Debug prints are dropped.
pub fn run_traced(
    kernel: &Kernel,
    args: &mut [Arg<'_>],
    options: InterpreterOptions,
    tracer: &mut dyn Tracer,
) -> Result<(), Fault> {
    checked_run(kernel, args, options, &mut |_| {}, Some(tracer))
}

/// Verifies the kernel and its arguments, and runs it.
fn checked_run(
    kernel: &Kernel,
    args: &mut [Arg<'_>],
    options: InterpreterOptions,
    print: &mut dyn FnMut(&str),
    tracer: Option<&mut dyn Tracer>,
) -> Result<(), Fault> {
    if let Err(error) = verify(kernel) {
        return Err(Fault::invalid_call(kernel, error.message));
    }
    let values = check_args(kernel, args)?;
    recorded::run_recorded(kernel, args, &values, options, print, tracer)
}

/// Runs a kernel on checked arguments, of which `values` are the first components of the values.
/// Records an access if one is specified; of a race, returns the earlier access with the fault.
fn launch<'k>(
    kernel: &'k Kernel,
    args: &mut [Arg<'_>],
    values: &[Value],
    options: InterpreterOptions,
    print: &mut dyn FnMut(&str),
    recording: Option<RecordedAccess<'k>>,
    tracer: Option<&mut dyn Tracer>,
) -> Result<(), Box<(Fault, Option<RecordedAccess<'k>>)>> {
    let (blocks, lanes) = match kernel.launch {
        LaunchMode::ParallelFor { .. } => {
            let count = kernel.launch.count(values);
            (count.div_ceil(CHUNK), CHUNK.min(count) as usize)
        }
        LaunchMode::Blocks { grid, block } => {
            (grid.iter().map(|&n| n as u64).product(), block.iter().map(|&n| n as usize).product())
        }
    };
    let bind = |view: View| BoundView::new(kernel, view, values);
    let params: Vec<BoundView> = (0..kernel.params.len() as u32).map(|n| bind(View::Param(ParamId(n)))).collect();
    let shared: Vec<BoundView> = (0..kernel.shared.len() as u32).map(|n| bind(View::Shared(SharedId(n)))).collect();
    let local = (0..kernel.local_arrays.len() as u32).map(|n| bind(View::Local(LocalArrayId(n)))).collect();
    let checked = matches!(kernel.launch, LaunchMode::Blocks { .. }) || options.check_instance_races;
    let history =
        |access: Access, view: &BoundView| (checked && access.writes()).then(|| AccessHistory::new(view.cell_count()));
    let param_histories = kernel.params.iter().zip(&params).map(|(p, view)| history(p.access, view)).collect();
    let slots = |code: &Code| Slots::new(code, &kernel.structs);
    let codes = kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]);
    let registers: usize = codes.map(|code| slots(code).count).sum();
    if registers.saturating_mul(lanes * 8) > MAX_REGISTER_BYTES {
        let message = format!(
            "{registers} values for each of {lanes} threads exceed the interpreter's limit of {MAX_REGISTER_BYTES} bytes"
        );
        return Err(Box::new((Fault::invalid_call(kernel, message), None)));
    }
    let mut machine = Machine {
        kernel,
        args,
        options,
        print,
        lanes,
        count: kernel.launch.count(values),
        params,
        shared_views: shared,
        local_views: local,
        slots: kernel.functions.iter().map(|f| Rc::new(slots(&f.code))).chain([Rc::new(slots(&kernel.code))]).collect(),
        statements: 0,
        warp_barriers: kernel.code.body.iter().any(divergence::has_warp_barrier),
        param_histories,
        block: 0,
        frame: Frame::new(&kernel.code, Rc::new(slots(&kernel.code)), vec![], 0),
        shared: vec![],
        local_arrays: vec![],
        epoch: 0,
        warp_epochs: vec![],
        stmt: None,
        recording,
        race: None,
        tracer: tracer.map(|tracer| tracer as &mut dyn Tracer), // shortens the lifetime
    };
    for n in 0..blocks {
        machine.block = if options.order == ExecutionOrder::Forward { n } else { blocks - 1 - n };
        machine.run_block().map_err(|fault| Box::new((fault, machine.race.take())))?;
    }
    Ok(())
}

/// Shared memory of a block: one array.
struct SharedMemory {
    words: Vec<u64>,
    written: Vec<bool>,
    history: AccessHistory,
}

struct Machine<'k, 'a, 'b> {
    kernel: &'k Kernel,
    args: &'a mut [Arg<'b>],
    options: InterpreterOptions,
    print: &'a mut dyn FnMut(&str),
    /// Threads of a block, or instances of a chunk.
    lanes: usize,
    /// Total number of instances.
    count: u64,
    params: Vec<BoundView>,
    shared_views: Vec<BoundView>,
    local_views: Vec<BoundView>,
    /// Register slots of each function, then of the kernel.
    slots: Vec<Rc<Slots>>,
    statements: u64,
    /// True if the kernel has warp barriers.
    warp_barriers: bool,
    param_histories: Vec<Option<AccessHistory>>,
    /// The block (or chunk) being executed, and its state.
    block: u64,
    frame: Frame<'k>,
    shared: Vec<SharedMemory>,
    local_arrays: Vec<LocalMemory>,
    epoch: u32,
    warp_epochs: Vec<u32>,
    /// The statement being executed.
    stmt: Option<&'k Stmt>,
    /// The access to record, in a second run.
    recording: Option<RecordedAccess<'k>>,
    /// The earlier access of the race that ended the run.
    race: Option<RecordedAccess<'k>>,
    tracer: Option<&'a mut dyn Tracer>,
}

impl<'k> Machine<'k, '_, '_> {
    fn run_block(&mut self) -> Result<(), Fault> {
        self.count_statement(None)?;
        let kernel = self.kernel;
        let arguments = (self.args[kernel.params.len()..].iter())
            .map(|arg| match arg {
                Arg::Value(components) => components.iter().map(|&v| Rc::new(Register::splat(v, self.lanes))).collect(),
                _ => vec![],
            })
            .collect();
        let slots = self.slots[kernel.functions.len()].clone();
        self.frame = Frame::new(&kernel.code, slots, arguments, self.lanes);
        self.shared = (self.shared_views.iter())
            .map(|view| SharedMemory {
                words: vec![0; (view.elements as usize * view.layout.bytes).div_ceil(8)],
                written: vec![false; view.cell_count() as usize],
                history: AccessHistory::new(view.cell_count()),
            })
            .collect();
        self.local_arrays = self.local_views.iter().map(|view| LocalMemory::new(view, self.lanes)).collect();
        self.warp_epochs = vec![0; self.lanes.div_ceil(WARP_SIZE)];
        self.epoch = 0;
        let mut all = Mask(vec![true; self.lanes]);
        if let LaunchMode::ParallelFor { .. } = kernel.launch {
            all = all.and(|lane| self.block * CHUNK + (lane as u64) < self.count);
        }
        self.execute(&kernel.code.body, all).map(drop)
    }

    /// Calls a function for the lanes of a mask; returns the components of its value.
    fn call(&mut self, FunctionId(n): FunctionId, args: &[ExprId], mask: &Mask) -> Result<Vec<Component>, Fault> {
        let function = &self.kernel.functions[n as usize];
        let arguments = args.iter().map(|&arg| self.components(arg)).collect();
        let mut frame = Frame::new(&function.code, self.slots[n as usize].clone(), arguments, self.lanes);
        let scalars = function.result.components(&self.kernel.structs);
        frame.result = scalars.iter().map(|&s| Register::splat(Value::int(s, 0), self.lanes)).collect();
        let outer = std::mem::replace(&mut self.frame, frame);
        let outcome = self.execute(&function.code.body, mask.clone());
        let inner = std::mem::replace(&mut self.frame, outer);
        outcome?;
        Ok(inner.result.into_iter().map(Rc::new).collect())
    }

    fn fault(&self, kind: FaultKind) -> Fault {
        Fault { kernel: self.kernel.name.clone(), kind, line: None }
    }

    /// Returns the name of a lane of the current block, for messages.
    fn lane_name(&self, lane: usize) -> String {
        self.thread_name(self.block, lane)
    }

    /// Returns the name of a thread or instance, for messages.
    fn thread_name(&self, block_index: u64, lane: usize) -> String {
        match self.kernel.launch {
            LaunchMode::ParallelFor { .. } => format!("instance {}", block_index * CHUNK + lane as u64),
            LaunchMode::Blocks { grid, block } => {
                format!("thread {:?} of block {:?}", coordinates(lane as u64, block), coordinates(block_index, grid))
            }
        }
    }

    /// Executes a block of statements; returns the lanes that reach its end.
    fn execute(&mut self, block: &'k [Stmt], mut mask: Mask) -> Result<Mask, Fault> {
        for stmt in block {
            if mask.is_empty() {
                break;
            }
            self.count_statement(Some(stmt))?;
            self.stmt = Some(stmt);
            if self.tracer.is_some() {
                self.trace_statement(stmt, &mask);
            }
            match stmt {
                Stmt::Let(id) => self.evaluate(*id, &mask).map_err(|fault| self.locate(fault, stmt))?,
                Stmt::Assign(local, value) => {
                    let components = self.components(*value);
                    self.assign(*local, &components, &mask);
                }
                Stmt::Store { view, indices, value } => {
                    let (at, components) = (self.scalars(indices), self.components(*value));
                    self.store(*view, &at, &components, &mask).map_err(|fault| self.locate(fault, stmt))?;
                }
                Stmt::Declare(array) => self.declare(*array, &mask),
                Stmt::For { counter, end, body } => {
                    let end = self.component(*end, 0);
                    self.run_loop(body, &mask, |machine, active, iteration| {
                        let next = active.and(|lane| iteration < end.int(lane));
                        if machine.tracer.is_some() {
                            machine.trace_branch(stmt, &next, &active.without(&next));
                        }
                        machine.set_counter(*counter, iteration, &next);
                        next
                    })?;
                    mask = mask.without(&self.frame.returned);
                }
                Stmt::Loop { body } => {
                    self.run_loop(body, &mask, |_, active, _| active.clone())?;
                    mask = mask.without(&self.frame.returned);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.component(*condition, 0);
                    let (yes, no) = (mask.and(|l| condition.bits[l] != 0), mask.and(|l| condition.bits[l] == 0));
                    if self.warp_barriers && self.diverges_at_warp_barriers(&yes, then, &no, otherwise) {
                        mask = self.execute_divergent(stmt, mask)?;
                        continue;
                    }
                    if self.tracer.is_some() {
                        self.trace_branch(stmt, &yes, &no);
                    }
                    mask = self.execute(then, yes)?;
                    mask.add(&self.execute(otherwise, no)?);
                }
                Stmt::Break | Stmt::Continue | Stmt::Return(_) => {
                    if let Stmt::Return(Some(value)) = stmt {
                        let components = self.components(*value);
                        for (result, component) in self.frame.result.iter_mut().zip(&components) {
                            result.assign(component, &mask);
                        }
                    }
                    let left = match (stmt, self.frame.loops.last_mut()) {
                        (Stmt::Break, Some(masks)) => &mut masks.broken,
                        (Stmt::Continue, Some(masks)) => &mut masks.continued,
                        _ => &mut self.frame.returned,
                    };
                    left.add(&mask);
                    return Ok(Mask::none(self.lanes));
                }
                Stmt::Barrier => {
                    let expected = self.lanes - self.frame.returned.count();
                    if mask.count() != expected {
                        let scope = match self.kernel.launch {
                            LaunchMode::Blocks { grid, .. } => format!(" of block {:?}", coordinates(self.block, grid)),
                            LaunchMode::ParallelFor { .. } => String::new(),
                        };
                        let kind = FaultKind::DivergentBarrier { reached: mask.count(), expected, scope };
                        return Err(self.locate(self.fault(kind), stmt));
                    }
                    self.epoch += 1;
                }
                Stmt::WarpBarrier => {
                    for (warp, reached, expected) in self.partial_warps(&mask) {
                        if reached != expected {
                            let scope = format!(" of warp {warp}");
                            let kind = FaultKind::DivergentBarrier { reached, expected, scope };
                            return Err(self.locate(self.fault(kind), stmt));
                        }
                        self.warp_epochs[warp] += 1;
                    }
                }
                Stmt::Fence(_) => {}
                Stmt::Check(check) => self.check(check, &mask).map_err(|fault| self.locate(fault, stmt))?,
                Stmt::Print { format, args } => {
                    let args = self.scalars(args);
                    for lane in memory::in_order(self.options.order, &mask) {
                        let values: Vec<Value> = args.iter().map(|component| component.value(lane)).collect();
                        (self.print)(&crate::print::format_print_line(format, &values));
                    }
                }
            }
        }
        Ok(mask)
    }

    /// Reports the first active lane for which a check fails.
    fn check(&self, check: &Check, mask: &Mask) -> Result<(), Fault> {
        let value = match check {
            Check::Assert { condition, .. } => self.component(*condition, 0),
            Check::InBounds { index, .. } => self.component(*index, 0),
        };
        let fails = |lane: usize| match check {
            Check::Assert { .. } => value.bits[lane] == 0,
            Check::InBounds { len, .. } => !(0..*len as i64).contains(&value.int(lane)),
        };
        let Some(lane) = memory::in_order(self.options.order, mask).find(|&lane| fails(lane)) else { return Ok(()) };
        let thread = self.lane_name(lane);
        Err(self.fault(match check {
            Check::Assert { message, .. } => FaultKind::AssertionFailed { message: message.clone(), thread },
            Check::InBounds { len, array, .. } => FaultKind::OutOfBounds {
                view: array.clone(),
                index: value.int(lane),
                len: *len,
                indices: Box::default(),
                thread,
            },
        }))
    }

    /// Counts a statement and reports a fault if the limit is exceeded. Loop iterations and blocks
    /// count as statements too.
    fn count_statement(&mut self, stmt: Option<&Stmt>) -> Result<(), Fault> {
        self.statements += 1;
        match self.options.max_statements {
            Some(limit) if self.statements > limit => {
                let mut fault = self.fault(FaultKind::StatementLimit(limit));
                fault.line = stmt.and_then(|stmt| self.kernel.line_of(stmt));
                Err(fault)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if both branches of an `if` have warp barriers and some warp has lanes in both.
    fn diverges_at_warp_barriers(&self, yes: &Mask, then: &[Stmt], no: &Mask, otherwise: &[Stmt]) -> bool {
        let splits =
            yes.0.chunks(WARP_SIZE).zip(no.0.chunks(WARP_SIZE)).any(|(a, b)| a.contains(&true) && b.contains(&true));
        splits && [then, otherwise].iter().all(|block| block.iter().any(divergence::has_warp_barrier))
    }

    /// Sets a loop's counter.
    fn set_counter(&mut self, counter: LocalId, iteration: i64, mask: &Mask) {
        let value = Rc::new(Register::splat(Value::int(self.kernel.index, iteration), self.lanes));
        self.assign(counter, &[value], mask);
    }

    fn assign(&mut self, LocalId(n): LocalId, components: &[Component], mask: &Mask) {
        let first = self.frame.slots.locals[n as usize] as usize;
        for (register, component) in self.frame.locals[first..].iter_mut().zip(components) {
            register.assign(component, mask);
        }
    }

    /// Runs a loop's body until no lane is left; `begin` returns the lanes that execute the next
    /// iteration.
    fn run_loop(
        &mut self,
        body: &'k [Stmt],
        mask: &Mask,
        begin: impl Fn(&mut Self, &Mask, i64) -> Mask,
    ) -> Result<(), Fault> {
        let none = Mask::none(self.lanes);
        self.frame.loops.push(LoopMasks::new(self.lanes));
        let mut active = mask.clone();
        let mut iteration = 0;
        loop {
            self.count_statement(None)?;
            active = begin(self, &active, iteration);
            if active.is_empty() {
                break;
            }
            active = self.execute(body, active)?;
            if let Some(masks) = self.frame.loops.last_mut() {
                active.add(&masks.continued);
                masks.continued = none.clone();
            }
            iteration += 1;
        }
        self.frame.loops.pop();
        Ok(())
    }

    fn locate(&self, mut fault: Fault, stmt: &Stmt) -> Fault {
        // A fault in a called function already has its line.
        fault.line = fault.line.or_else(|| self.kernel.line_of(stmt));
        fault
    }

    /// Returns the warps with an active lane: index, number of active lanes, number of lanes that
    /// have not returned.
    fn partial_warps(&self, mask: &Mask) -> Vec<(usize, usize, usize)> {
        (0..self.lanes.div_ceil(WARP_SIZE))
            .filter_map(|warp| {
                let range = warp * WARP_SIZE..self.lanes.min((warp + 1) * WARP_SIZE);
                let reached = range.clone().filter(|&lane| mask.0[lane]).count();
                let expected = range.filter(|&lane| !self.frame.returned.0[lane]).count();
                (reached > 0).then_some((warp, reached, expected))
            })
            .collect()
    }
}

/// Returns the coordinates of linear index `n` in a grid of extents `of`, x fastest.
fn coordinates(n: u64, of: [u32; 3]) -> [u64; 3] {
    let [x, y, _] = of.map(|n| n.max(1) as u64);
    [n % x, n / x % y, n / (x * y)]
}
