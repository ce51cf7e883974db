//! Typed expressions on their way to the IR, for all front ends: trees that languages build with their own rules of
//! conversion, and a writer that turns them into statements of a kernel.

mod range;
mod renumber;
mod tree;
mod write;

pub(crate) use renumber::renumber;
pub(crate) use tree::{Node, Tree, fold_cast};
pub(crate) use write::Writer;
