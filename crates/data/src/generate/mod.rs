//! Makes programs: row *i* of a seed is a function of the two, whatever else is made.

mod describe;
mod elementwise;
mod integer;
mod maker;
mod names;
mod term;

use crate::program::Program;
use crate::{Category, Random};
use maker::Maker;

/// The generator's version: rows of another are other rows.
pub const VERSION: u32 = 1;

/// The category of an index: all take turns.
pub fn category(seed: u64, index: u64, among: &[Category]) -> Category {
    // Random rather than in turn, so that every shard has all of them.
    *Random::of(&[seed, index, VERSION as u64, 0xca7]).pick(among)
}

/// The program of an index.
pub fn program(seed: u64, index: u64, category: Category) -> Program {
    let mut maker = Maker::new(Random::of(&[seed, index, VERSION as u64]));
    let m = &mut maker;
    match category {
        Category::Arithmetic => elementwise::arithmetic(m),
        Category::Math => elementwise::math(m),
        Category::ExpressionTree => elementwise::expression_tree(m),
        Category::ScalarParam => elementwise::scalar_param(m),
        Category::ControlFlow => elementwise::control_flow(m),
        _ => elementwise::arithmetic(m),
    }
    maker.direct();
    describe::finish(maker, category)
}
