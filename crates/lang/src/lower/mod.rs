//! Typed expressions shared by all front ends: [`Tree`]s, which front ends build by the conversion
//! rules of their language, and a [`Writer`] that emits them as IR statements. Must not know any
//! source syntax.

mod range;
mod renumber;
mod tree;
mod write;

pub(crate) use renumber::renumber;
pub(crate) use tree::{Node, Tree, fold_cast};
pub(crate) use write::Writer;
