//! Named parameters: declaration, initialization, values, files.
//!
//! `params.rs` has [`Params`], which layers declare their parameters in; `context.rs` the values
//! that a forward pass reads instead of the current ones, such as 16-bit copies in a training step;
//! `weights.rs` these copies; `list.rs` and `init.rs` names, shapes and initial values; `files.rs`
//! saves and loads. The values are in a flat [`bornite::var::Arena`], so optimizers and checkpoints
//! need no knowledge of the model.

mod context;
mod files;
mod init;
mod list;
mod params;
mod weights;

pub(crate) use context::{Context, DRAWS_PER_BLOCK, checkpoint};
pub use context::{dropout, eval_mode, is_training};
pub(crate) use files::BATCH_COUNT;
pub use init::Init;
pub use list::ParameterInfo;
pub use params::{Buffer, Parameter, Params};
pub(crate) use params::{ParamsId, State};
pub(crate) use weights::Weights;
