//! The command among hostile files and signals: small files that decompress to any size, pipes and links in its folders, and
//! processes that are killed or stopped at any moment.

mod bombs;
mod files;
mod kills;
mod parquet;
mod process;
mod stops;
