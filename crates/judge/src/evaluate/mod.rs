//! Evaluation of a kernel's IR with error bounds: the results of every correct implementation.
//!
//! All threads of a block run in lockstep under a mask, as in the interpreter, which has checked the
//! same launch before: accesses are in bounds and no access races. A branch, index or loop bound that
//! rounding decides ends the evaluation as undecided.

mod compute;
mod expression;
mod memory;

use std::rc::Rc;

use bornite_ir::{
    Code, ExprId, FunctionId, Kernel, LaunchMode, LocalArrayId, LocalId, ParamId, SharedId, Stmt, Struct, Value, View,
};

pub use compute::Lane;
use compute::Register;
use memory::BoundArray;

/// Instances of a `ParallelFor` that are evaluated together.
const CHUNK: u64 = 256;

/// Reason why a kernel has no error bounds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoBounds {
    /// Control flow or an address depends on rounding.
    #[error("rounding decides {0}")]
    Undecided(&'static str),
    /// A construct without bounds.
    #[error("{0} has no error bounds")]
    Unsupported(String),
}

type Outcome<T> = Result<T, NoBounds>;
type Component = Rc<Register>;

/// Evaluates a launch on arrays of one [`Lane`] per component, which it updates.
pub fn evaluate(kernel: &Kernel, arrays: &mut [Vec<Lane>], values: &[Vec<Value>]) -> Outcome<()> {
    if kernel.code.any(&splits_at_warp_barriers) {
        return Err(NoBounds::Unsupported("a warp barrier in both branches of an if".into()));
    }
    let firsts: Vec<Value> = values.iter().filter_map(|components| components.first().copied()).collect();
    let (blocks, lanes) = match kernel.launch {
        LaunchMode::ParallelFor { .. } => {
            let count = kernel.launch.count(&firsts);
            (count.div_ceil(CHUNK), CHUNK.min(count) as usize)
        }
        LaunchMode::Blocks { grid, block } => {
            (grid.iter().map(|&n| n as u64).product(), block.iter().map(|&n| n as usize).product())
        }
    };
    let bind = |view: View| BoundArray::new(kernel, view, &firsts);
    let slots = |code: &Code| Rc::new(Slots::new(code, &kernel.structs));
    let mut machine = Machine {
        kernel,
        lanes,
        count: kernel.launch.count(&firsts),
        params: (0..kernel.params.len() as u32).map(|n| bind(View::Param(ParamId(n)))).collect(),
        shared_arrays: (0..kernel.shared.len() as u32).map(|n| bind(View::Shared(SharedId(n)))).collect(),
        local_arrays: (0..kernel.local_arrays.len() as u32).map(|n| bind(View::Local(LocalArrayId(n)))).collect(),
        slots: kernel.functions.iter().map(|function| slots(&function.code)).chain([slots(&kernel.code)]).collect(),
        arrays,
        shared: vec![],
        local: vec![],
        block: 0,
        frame: Frame::new(&kernel.code, slots(&kernel.code), vec![], 0),
    };
    let arguments: Vec<Vec<Component>> = (values.iter())
        .map(|components| components.iter().map(|&value| Rc::new(Register::splat(value, lanes))).collect())
        .collect();
    for block in 0..blocks {
        machine.block = block;
        machine.run_block(arguments.clone())?;
    }
    Ok(())
}

/// Returns true for an `if` with warp barriers in both branches, whose threads do not run in
/// lockstep.
fn splits_at_warp_barriers(stmt: &Stmt) -> bool {
    let waits = |block: &[Stmt]| block.iter().any(|stmt| stmt.any(&|stmt| matches!(stmt, Stmt::WarpBarrier)));
    matches!(stmt, Stmt::If { then, otherwise, .. } if waits(then) && waits(otherwise))
}

/// Active threads.
#[derive(Clone)]
struct Mask(Vec<bool>);

impl Mask {
    fn none(lanes: usize) -> Mask {
        Mask(vec![false; lanes])
    }

    fn and(&self, condition: impl Fn(usize) -> bool) -> Mask {
        Mask(self.0.iter().enumerate().map(|(lane, &on)| on && condition(lane)).collect())
    }

    fn add(&mut self, other: &Mask) {
        self.0.iter_mut().zip(&other.0).for_each(|(on, &other)| *on |= other);
    }

    fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|&lane| self.0[lane])
    }
}

/// First register of each expression and variable.
struct Slots {
    exprs: Vec<u32>,
    locals: Vec<u32>,
    count: usize,
}

impl Slots {
    fn new(code: &Code, structs: &[Struct]) -> Slots {
        let firsts = |counts: &mut dyn Iterator<Item = usize>| {
            let mut next = 0;
            let mut firsts = vec![];
            for count in counts {
                firsts.push(next as u32);
                next += count;
            }
            (firsts, next)
        };
        let (exprs, count) = firsts(&mut code.types.iter().map(|ty| ty.component_count(structs)));
        let (locals, _) = firsts(&mut code.locals.iter().map(|local| local.init.len()));
        Slots { exprs, locals, count }
    }
}

struct LoopMasks {
    broken: Mask,
    continued: Mask,
}

/// Stack frame of the kernel or of a function.
struct Frame<'k> {
    code: &'k Code,
    slots: Rc<Slots>,
    arguments: Vec<Vec<Component>>,
    registers: Vec<Option<Component>>,
    locals: Vec<Component>,
    returned: Mask,
    result: Vec<Component>,
    loops: Vec<LoopMasks>,
}

impl<'k> Frame<'k> {
    fn new(code: &'k Code, slots: Rc<Slots>, arguments: Vec<Vec<Component>>, lanes: usize) -> Frame<'k> {
        let init = code.locals.iter().flat_map(|local| &local.init);
        Frame {
            code,
            arguments,
            registers: vec![None; slots.count],
            slots,
            locals: init.map(|&value| Rc::new(Register::splat(value, lanes))).collect(),
            returned: Mask::none(lanes),
            result: vec![],
            loops: vec![],
        }
    }
}

struct Machine<'k, 'a> {
    kernel: &'k Kernel,
    /// Threads of a block, or instances of a chunk.
    lanes: usize,
    /// Total number of instances.
    count: u64,
    params: Vec<BoundArray>,
    shared_arrays: Vec<BoundArray>,
    local_arrays: Vec<BoundArray>,
    /// Register slots of each function, then of the kernel.
    slots: Vec<Rc<Slots>>,
    arrays: &'a mut [Vec<Lane>],
    shared: Vec<Vec<Lane>>,
    /// The copies of all threads, one after the other.
    local: Vec<Vec<Lane>>,
    block: u64,
    frame: Frame<'k>,
}

impl<'k> Machine<'k, '_> {
    fn run_block(&mut self, arguments: Vec<Vec<Component>>) -> Outcome<()> {
        let kernel = self.kernel;
        let slots = self.slots[kernel.functions.len()].clone();
        self.frame = Frame::new(&kernel.code, slots, arguments, self.lanes);
        self.shared = self.shared_arrays.iter().map(|array| vec![Lane::Undecided; array.len()]).collect();
        self.local = self.local_arrays.iter().map(|array| vec![Lane::Undecided; self.lanes * array.len()]).collect();
        let mut all = Mask(vec![true; self.lanes]);
        if let LaunchMode::ParallelFor { .. } = kernel.launch {
            all = all.and(|lane| self.block * CHUNK + (lane as u64) < self.count);
        }
        self.execute(&kernel.code.body, all).map(drop)
    }

    fn call(&mut self, FunctionId(n): FunctionId, args: &[ExprId], mask: &Mask) -> Outcome<Vec<Component>> {
        let function = &self.kernel.functions[n as usize];
        let arguments = args.iter().map(|&arg| self.components(arg)).collect();
        let mut frame = Frame::new(&function.code, self.slots[n as usize].clone(), arguments, self.lanes);
        let scalars = function.result.components(&self.kernel.structs);
        frame.result = scalars.iter().map(|&s| Rc::new(Register::splat(Value::int(s, 0), self.lanes))).collect();
        let outer = std::mem::replace(&mut self.frame, frame);
        let outcome = self.execute(&function.code.body, mask.clone());
        let inner = std::mem::replace(&mut self.frame, outer);
        outcome?;
        Ok(inner.result)
    }

    /// Executes a block of statements; returns the threads that reach its end.
    fn execute(&mut self, block: &'k [Stmt], mut mask: Mask) -> Outcome<Mask> {
        for stmt in block {
            if mask.is_empty() {
                break;
            }
            match stmt {
                Stmt::Let(id) => self.evaluate(*id, &mask)?,
                Stmt::Declare(array) => self.declare(*array, &mask),
                Stmt::Assign(local, value) => {
                    let components = self.components(*value);
                    self.assign(*local, &components, &mask);
                }
                Stmt::Store { view, indices, value } => {
                    let (at, components) = (self.scalars(indices), self.components(*value));
                    self.store(*view, &at, &components, &mask)?;
                }
                Stmt::For { counter, end, body } => {
                    let end = self.component(*end, 0);
                    if mask.lanes().any(|lane| end.int(lane).is_none()) {
                        return Err(NoBounds::Undecided("the bound of a loop"));
                    }
                    self.run_loop(body, &mask, |machine, active, iteration| {
                        let active = active.and(|lane| end.int(lane).is_some_and(|end| iteration < end));
                        let value = Register::splat(Value::int(machine.kernel.index, iteration), machine.lanes);
                        machine.assign(*counter, &[Rc::new(value)], &active);
                        active
                    })?;
                    mask = mask.and(|lane| !self.frame.returned.0[lane]);
                }
                Stmt::Loop { body } => {
                    self.run_loop(body, &mask, |_, active, _| active.clone())?;
                    mask = mask.and(|lane| !self.frame.returned.0[lane]);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.component(*condition, 0);
                    if mask.lanes().any(|lane| condition.lanes[lane] == Lane::Undecided) {
                        return Err(NoBounds::Undecided("a branch"));
                    }
                    let holds = |lane: usize| condition.lanes[lane] != Lane::Bits(0);
                    let (yes, no) = (mask.and(holds), mask.and(|lane| !holds(lane)));
                    mask = self.execute(then, yes)?;
                    mask.add(&self.execute(otherwise, no)?);
                }
                Stmt::Break | Stmt::Continue | Stmt::Return(_) => {
                    if let Stmt::Return(Some(value)) = stmt {
                        let components = self.components(*value);
                        for (result, component) in self.frame.result.iter_mut().zip(&components) {
                            assign(result, component, &mask);
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
                Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence(_) | Stmt::Print { .. } | Stmt::Check(_) => {}
            }
        }
        Ok(mask)
    }

    fn assign(&mut self, LocalId(n): LocalId, components: &[Component], mask: &Mask) {
        let first = self.frame.slots.locals[n as usize] as usize;
        for (register, component) in self.frame.locals[first..].iter_mut().zip(components) {
            assign(register, component, mask);
        }
    }

    /// Runs a loop's body until no thread is left; `begin` returns the threads that execute the next
    /// iteration.
    fn run_loop(
        &mut self,
        body: &'k [Stmt],
        mask: &Mask,
        begin: impl Fn(&mut Self, &Mask, i64) -> Mask,
    ) -> Outcome<()> {
        let none = || Mask::none(self.lanes);
        let masks = LoopMasks { broken: none(), continued: none() };
        self.frame.loops.push(masks);
        let mut active = mask.clone();
        for iteration in 0.. {
            active = begin(self, &active, iteration);
            if active.is_empty() {
                break;
            }
            active = self.execute(body, active)?;
            if let Some(masks) = self.frame.loops.last_mut() {
                let lanes = active.0.len();
                active.add(&std::mem::replace(&mut masks.continued, Mask::none(lanes)));
            }
        }
        self.frame.loops.pop();
        Ok(())
    }
}

fn assign(register: &mut Component, value: &Component, mask: &Mask) {
    if mask.0.iter().all(|&on| on) {
        *register = value.clone();
        return;
    }
    let register = Rc::make_mut(register);
    for lane in mask.lanes() {
        register.lanes[lane] = value.lanes[lane];
    }
}
