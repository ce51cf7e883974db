//! Options of an interpreter run.

/// Execution order of threads and blocks where the kernel leaves it open. A kernel whose results
/// differ between the two depends on an order that a GPU does not guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExecutionOrder {
    /// First thread and block first.
    #[default]
    Forward,
    /// Last thread and block first.
    Reverse,
}

/// Options of an interpreter run.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterOptions {
    /// Execution order of threads and blocks.
    pub order: ExecutionOrder,
    /// Maximum number of statements, each counted once per block; `None` for no limit.
    pub max_statements: Option<u64>,
    /// If set, races between instances of a `ParallelFor` are reported too. Costs memory for every
    /// element that is written.
    pub check_instance_races: bool,
    /// If set, integer division by zero, and of the smallest integer by -1, are faults. Otherwise
    /// both have a defined result.
    pub check_division: bool,
}

impl Default for InterpreterOptions {
    fn default() -> InterpreterOptions {
        InterpreterOptions {
            order: ExecutionOrder::Forward,
            max_statements: None,
            check_instance_races: true,
            check_division: false,
        }
    }
}
