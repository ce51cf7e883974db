//! Makes programs: row *i* of a seed is a function of the two, whatever else is made.

mod describe;
mod elementwise;
mod grids;
mod integer;
mod maker;
mod memory;
mod names;
mod term;
mod vector;

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
        Category::Vector => vector::vector(m),
        Category::Matrix => vector::matrix(m),
        Category::Struct => vector::structs(m),
        Category::Physics => vector::physics(m),
        Category::Stencil => grids::stencil(m),
        Category::GridTwo => grids::grid_two(m),
        Category::GridThree => grids::grid_three(m),
        Category::Image => grids::image(m),
        Category::Atomic => memory::atomic(m),
        Category::GatherScatter => memory::gather_scatter(m),
        Category::IntegerBits => memory::integer_bits(m),
        Category::HalfPrecision => memory::half_precision(m),
        Category::RandomNumbers => memory::random_numbers(m),
        Category::Functions => memory::functions(m),
        Category::Nested => memory::nested(m),
        _ => elementwise::arithmetic(m),
    }
    maker.direct();
    describe::finish(maker, category)
}
