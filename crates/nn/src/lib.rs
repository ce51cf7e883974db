//! What is trained and how: layers and models by name, optimisers, tokenisers, data, checkpoints, the training loop.
//!
//! It stands on `bornite`'s tensors and must not know the command line: progress is reported to whoever asks.

