//! Program generator: the program of row *i* depends only on the seed and *i*.

mod apply;
mod bit_samples;
mod bits;
mod block;
mod builder;
mod calls;
mod describe;
mod distribution;
mod dynamics;
mod elementwise;
mod grids;
mod histogram;
mod image;
mod integer;
mod matmul;
mod memory;
mod ml;
mod names;
mod physics;
mod prune;
mod reduce;
mod sample;
mod shared;
mod shuffle;
mod sound;
mod term;
mod typical;
mod vector;

use crate::program::{CudaForm, Program};
use crate::{Category, Random};
use builder::ProgramBuilder;

/// Generator version: datasets of different versions have different rows.
pub const VERSION: u32 = 6;

/// Version of the random program stream. It stays the same if a generator version only selects
/// other rows or changes their descriptions.
const PROGRAMS: u64 = 5;

/// Draws the category of an index.
pub fn category(seed: u64, index: u64, categories: &[Category]) -> Category {
    // Random rather than round-robin, so that every shard has all categories.
    *Random::from_keys(&[seed, index, PROGRAMS, 0xca7]).pick(categories)
}

/// Draws before the last program is used anyway; the level `run` then checks it.
const MAX_DRAWS: u64 = 24;

/// Generates the program of an index: the first draw that is sound and typical of its category.
pub fn program(seed: u64, index: u64, category: Category) -> Program {
    let draw = |number: u64| draw_program(Random::from_keys(&[seed, index, PROGRAMS, number]), category);
    let mut program = draw(0);
    for number in 1..MAX_DRAWS {
        if typical::is_typical(&program, category) && sound::is_sound(&program, [seed, index]) {
            break;
        }
        program = draw(number);
    }
    describe::describe(&mut program);
    program
}

/// Draws a program of a category, without a description.
fn draw_program(random: Random, category: Category) -> Program {
    let mut builder = ProgramBuilder::new(random);
    let m = &mut builder;
    let mut block_writer = None;
    match category {
        Category::Arithmetic => elementwise::arithmetic(m),
        Category::Math => elementwise::math(m),
        Category::ExpressionTree => elementwise::expression_tree(m),
        Category::ScalarParam => elementwise::scalar_param(m),
        Category::ControlFlow => elementwise::control_flow(m),
        Category::Vector => vector::vector(m),
        Category::Matrix => vector::matrix(m),
        Category::Struct => vector::structs(m),
        Category::Physics => physics::physics(m),
        Category::Stencil => grids::stencil(m),
        Category::GridTwo => grids::grid_two(m),
        Category::GridThree => grids::grid_three(m),
        Category::Image => image::image(m),
        Category::Atomic => memory::atomic(m),
        Category::GatherScatter => memory::gather_scatter(m),
        Category::IntegerBits => bits::integer_bits(m),
        Category::HalfPrecision => bits::half_precision(m),
        Category::RandomNumbers => memory::random_numbers(m),
        Category::Functions => calls::functions(m),
        Category::Nested => calls::nested(m),
        Category::Reduction => block_writer = reduce::reduction(m, None),
        Category::Scan => block_writer = reduce::scan(m),
        Category::Histogram => block_writer = histogram::histogram(m),
        Category::SharedMemory => block_writer = shared::shared_memory(m),
        Category::WarpShuffle => block_writer = shuffle::warp_shuffle(m),
        Category::TiledMatmul => block_writer = matmul::tiled_matmul(m),
        Category::MlOps => block_writer = ml::ml_ops(m),
    }
    builder.direct();
    let mut program = describe::finish(builder, category);
    match block_writer {
        // The writer of the block text depends on the program as it is.
        Some(block_writer) => program.form = CudaForm::Block(block_writer(&program)),
        None => prune::prune(&mut program),
    }
    program
}
