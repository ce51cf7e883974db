//! Stack frames: registers of expressions, variables, and the lanes that left loops or the
//! function.

use std::rc::Rc;

use super::lanes::{Mask, Register};
use crate::{Code, Struct};

/// Lanes that left a running loop, or its current iteration.
pub(super) struct LoopMasks {
    pub broken: Mask,
    pub continued: Mask,
}

impl LoopMasks {
    pub fn new(lanes: usize) -> LoopMasks {
        LoopMasks { broken: Mask::none(lanes), continued: Mask::none(lanes) }
    }
}

/// First register of each expression and variable.
pub(super) struct Slots {
    pub exprs: Vec<u32>,
    pub locals: Vec<u32>,
    /// Total number of registers that expressions need.
    pub count: usize,
}

impl Slots {
    pub fn new(code: &Code, structs: &[Struct]) -> Slots {
        let allocate = |counts: &mut dyn Iterator<Item = usize>| {
            let mut next = 0;
            let mut firsts = vec![];
            for count in counts {
                firsts.push(next as u32);
                next += count;
            }
            (firsts, next)
        };
        let (exprs, count) = allocate(&mut code.types.iter().map(|ty| ty.component_count(structs)));
        let (locals, _) = allocate(&mut code.locals.iter().map(|local| local.init.len()));
        Slots { exprs, locals, count }
    }
}

/// Register of one component of a value.
pub(super) type Component = Rc<Register>;

/// Stack frame of the kernel or of a function.
pub(super) struct Frame<'k> {
    pub code: &'k Code,
    pub slots: Rc<Slots>,
    pub arguments: Vec<Vec<Component>>,
    pub registers: Vec<Option<Component>>,
    pub locals: Vec<Register>,
    pub returned: Mask,
    /// Return values of the lanes that have returned.
    pub result: Vec<Register>,
    pub loops: Vec<LoopMasks>,
}

impl<'k> Frame<'k> {
    pub fn new(code: &'k Code, slots: Rc<Slots>, arguments: Vec<Vec<Component>>, lanes: usize) -> Frame<'k> {
        let init = code.locals.iter().flat_map(|local| &local.init);
        Frame {
            code,
            arguments,
            registers: vec![None; slots.count],
            slots,
            locals: init.map(|&value| Register::splat(value, lanes)).collect(),
            returned: Mask::none(lanes),
            result: vec![],
            loops: vec![],
        }
    }
}
