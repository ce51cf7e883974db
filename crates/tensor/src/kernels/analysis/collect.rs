//! Adds up the events of a traced run.

use std::collections::{BTreeMap, HashMap};

use bornite_ir::interp::{AccessKind, TracedAccess, Tracer};
use bornite_ir::{Code, ExprId, Kernel, Stmt, View, WARP_SIZE};

use super::findings::{IdleTime, findings};
use super::flops::flops;
use super::parts::{Parts, part_bytes, partial_loads, statements};
use super::transactions::{SECTOR_BYTES, contention, sectors, wavefronts};
use super::{AccessStats, BranchStats, KernelAnalysis, MemorySpace, Stride};

/// Identity of a statement of the kernel.
type StmtKey = *const Stmt;

/// A statement with what is known before the run, and its counters.
struct Statement<'k> {
    stmt: &'k Stmt,
    code: *const Code,
    /// The statement that contains it.
    parent: Option<StmtKey>,
    /// Floating-point operations per thread.
    flops: u64,
    /// Executions by a warp, and active threads of all of them.
    warps: u64,
    threads: u64,
    /// Executions of a branch by a warp, and those that diverge.
    branches: u64,
    divergent: u64,
}

/// Sectors of one array that the launch read or wrote.
#[derive(Default)]
struct TouchedSectors(Vec<u64>);

impl TouchedSectors {
    fn add(&mut self, sector: u64) {
        let word = (sector / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (sector % 64);
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Tracer that counts.
pub struct Collector<'k> {
    kernel: &'k Kernel,
    line_of: &'k dyn Fn(usize) -> Option<u32>,
    /// True if vectors are aligned as in CUDA.
    cuda_vectors: bool,
    statements: HashMap<StmtKey, Statement<'k>>,
    /// The statement that evaluates each expression.
    evaluated: HashMap<(*const Code, ExprId), &'k Stmt>,
    /// Parts of elements that are loaded in part.
    partial_loads: HashMap<StmtKey, Parts>,
    accesses: HashMap<(StmtKey, View, AccessKind), AccessStats>,
    /// Of each view parameter: sectors read, and sectors written.
    touched: HashMap<View, [TouchedSectors; 2]>,
    flops: u64,
}

impl<'k> Collector<'k> {
    pub fn new(kernel: &'k Kernel, line_of: &'k dyn Fn(usize) -> Option<u32>, cuda_vectors: bool) -> Collector<'k> {
        let (mut all, mut evaluated, mut partial) = (HashMap::new(), HashMap::new(), HashMap::new());
        for code in kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]) {
            list(kernel, code, &code.body, None, &mut all);
            statements(&code.body, &mut |stmt| {
                if let Stmt::Let(id) = stmt {
                    evaluated.insert((std::ptr::from_ref(code), *id), stmt);
                }
            });
            partial.extend(partial_loads(kernel, code, cuda_vectors));
        }
        Collector {
            kernel,
            line_of,
            cuda_vectors,
            statements: all,
            evaluated,
            partial_loads: partial,
            accesses: HashMap::new(),
            touched: HashMap::new(),
            flops: 0,
        }
    }

    /// The line of a statement; of a branch, which has none of its own in source files, that of its
    /// condition or of its body.
    fn line(&self, stmt: &Stmt) -> Option<u32> {
        let own = self.kernel.line_of(stmt).and_then(self.line_of);
        own.or_else(|| {
            let code = self.statements.get(&std::ptr::from_ref(stmt))?.code;
            let (value, body) = match stmt {
                Stmt::If { condition, then, .. } => (condition, then),
                Stmt::For { end, body, .. } => (end, body),
                _ => return None,
            };
            let evaluated = self.evaluated.get(&(code, *value)).copied();
            [evaluated, body.first()].into_iter().flatten().find_map(|stmt| self.line(stmt))
        })
    }

    pub fn finish(self) -> KernelAnalysis {
        let mut accesses: BTreeMap<_, AccessStats> = BTreeMap::new();
        for (&(stmt, view, kind), stats) in &self.accesses {
            let line = self.statements.get(&stmt).and_then(|statement| self.line(statement.stmt));
            let order = match view {
                View::Param(id) => (0, id.0),
                View::Shared(id) => (1, id.0),
                View::Local(id) => (2, id.0),
            };
            accesses
                .entry((line, order, kind))
                .and_modify(|all| add(all, stats))
                .or_insert_with(|| AccessStats { line, ..stats.clone() });
        }
        let mut branches: BTreeMap<Option<u32>, BranchStats> = BTreeMap::new();
        for statement in self.statements.values().filter(|statement| statement.branches > 0) {
            let line = self.line(statement.stmt);
            let stats = branches.entry(line).or_insert(BranchStats { line, executions: 0, divergent: 0 });
            stats.executions += statement.branches;
            stats.divergent += statement.divergent;
        }
        let accesses: Vec<AccessStats> = accesses.into_values().collect();
        let branches: Vec<BranchStats> = branches.into_values().collect();
        let global = || accesses.iter().filter(|access| access.space == MemorySpace::Global);
        let (warps, threads) = (self.statements.values())
            .fold((0, 0), |sum, statement| (sum.0 + statement.warps, sum.1 + statement.threads));
        KernelAnalysis {
            kernel: self.kernel.name.clone(),
            findings: findings(&accesses, &branches, &self.idle_time()),
            flops: self.flops,
            requested_bytes: global().map(|access| access.requested_bytes).sum(),
            sector_bytes: global().map(|access| access.transactions * SECTOR_BYTES).sum(),
            min_bytes: self.touched.values().flatten().map(|sectors| sectors.count() * SECTOR_BYTES).sum(),
            active_threads: threads as f64 / warps.max(1) as f64,
            accesses,
            branches,
        }
    }

    /// Instructions of a warp that idle threads waste, by the line of the branch that they wait
    /// for. Warps that are not full waste no time of a branch.
    fn idle_time(&self) -> IdleTime {
        let mut idle = IdleTime::new();
        for statement in self.statements.values() {
            let wasted = statement.warps as f64 - statement.threads as f64 / WARP_SIZE as f64;
            if wasted > 0.0
                && let Some(branch) = self.divergent_branch(statement)
            {
                *idle.entry(self.line(branch)).or_default() += wasted;
            }
        }
        idle
    }

    /// The innermost divergent branch that a statement is in. The exit of an endless loop is the
    /// branch with its `break`.
    fn divergent_branch(&self, statement: &Statement<'k>) -> Option<&'k Stmt> {
        let mut parent = statement.parent;
        while let Some(outer) = parent.and_then(|parent| self.statements.get(&parent)) {
            if outer.divergent > 0 {
                return Some(outer.stmt);
            }
            if let Stmt::Loop { body } = outer.stmt {
                let leaves = |stmt: &&Stmt| stmt.any(&|stmt| matches!(stmt, Stmt::Break));
                let diverges = |stmt: &&Stmt| {
                    self.statements.get(&std::ptr::from_ref::<Stmt>(stmt)).is_some_and(|exit| exit.divergent > 0)
                };
                if let Some(exit) = body.iter().filter(leaves).find(diverges) {
                    return Some(exit);
                }
            }
            parent = outer.parent;
        }
        None
    }
}

/// Lists the statements of a block and of those nested in it.
fn list<'k>(
    kernel: &Kernel,
    code: &Code,
    block: &'k [Stmt],
    parent: Option<StmtKey>,
    statements: &mut HashMap<StmtKey, Statement<'k>>,
) {
    for stmt in block {
        let flops = flops(code, &kernel.structs, stmt);
        let statement = Statement { stmt, code, parent, flops, warps: 0, threads: 0, branches: 0, divergent: 0 };
        statements.insert(stmt, statement);
        for inner in stmt.blocks() {
            list(kernel, code, inner, Some(stmt), statements);
        }
    }
}

/// Adds the figures of another statement of the same line.
fn add(all: &mut AccessStats, other: &AccessStats) {
    all.requests += other.requests;
    all.threads += other.threads;
    all.requested_bytes += other.requested_bytes;
    all.transactions += other.transactions;
    all.min_transactions += other.min_transactions;
    all.serial_updates += other.serial_updates;
    all.stride = merged(all.stride, other.stride);
}

fn merged(a: Stride, b: Stride) -> Stride {
    match (a, b) {
        (Stride::Unknown, other) | (other, Stride::Unknown) => other,
        (a, b) if a == b => a,
        _ => Stride::Irregular,
    }
}

/// Distance between the offsets of a warp's active threads.
fn stride(threads: &[(usize, u64)]) -> Stride {
    let mut distances = threads.windows(2).map(|pair| {
        let lanes = (pair[1].0 - pair[0].0) as i64;
        let bytes = pair[1].1 as i64 - pair[0].1 as i64;
        (bytes % lanes == 0).then_some(bytes / lanes)
    });
    match distances.next() {
        None => Stride::Unknown,
        Some(Some(first)) if distances.all(|distance| distance == Some(first)) => Stride::Constant(first),
        Some(_) => Stride::Irregular,
    }
}

impl Tracer for Collector<'_> {
    fn statement(&mut self, _: &Code, stmt: &Stmt, active: &[bool]) {
        let Some(statement) = self.statements.get_mut(&std::ptr::from_ref(stmt)) else { return };
        let mut all = 0;
        for warp in active.chunks(WARP_SIZE) {
            let threads = warp.iter().filter(|&&on| on).count() as u64;
            statement.warps += u64::from(threads > 0);
            all += threads;
        }
        statement.threads += all;
        self.flops += all * statement.flops;
    }

    fn branch(&mut self, stmt: &Stmt, taken: &[bool], not_taken: &[bool]) {
        let Some(statement) = self.statements.get_mut(&std::ptr::from_ref(stmt)) else { return };
        for (yes, no) in taken.chunks(WARP_SIZE).zip(not_taken.chunks(WARP_SIZE)) {
            let (yes, no) = (yes.contains(&true), no.contains(&true));
            statement.branches += u64::from(yes || no);
            statement.divergent += u64::from(yes && no);
        }
    }

    fn access(&mut self, access: &TracedAccess<'_>) {
        let (view, kind) = (access.view, access.kind);
        let space = if matches!(view, View::Shared(_)) { MemorySpace::Shared } else { MemorySpace::Global };
        let array = self.kernel.view(view).name;
        let key = (std::ptr::from_ref(access.stmt), view, kind);
        let stats = self.accesses.entry(key).or_insert_with(|| AccessStats {
            line: None,
            array: array.into(),
            space,
            kind,
            requests: 0,
            threads: 0,
            requested_bytes: 0,
            transactions: 0,
            min_transactions: 0,
            serial_updates: 0,
            stride: Stride::Unknown,
        });
        let part = part_bytes(self.kernel.view(view).ty, [access.bytes, access.align], self.cuda_vectors) as u64;
        let whole = || (0..access.bytes as u64 / part).map(|n| (n * part, part)).collect();
        let parts = self.partial_loads.get(&key.0).cloned().unwrap_or_else(whole);
        for (warp, active) in access.active.chunks(WARP_SIZE).enumerate() {
            let offset = |lane: usize| access.offsets[warp * WARP_SIZE + lane];
            let first: Vec<(usize, u64)> =
                (0..active.len()).filter(|&lane| active[lane]).map(|lane| (lane, offset(lane))).collect();
            if first.is_empty() {
                continue;
            }
            stats.stride = merged(stats.stride, stride(&first));
            for &(start, part) in &parts {
                let threads: Vec<(usize, u64)> = first.iter().map(|(lane, offset)| (*lane, offset + start)).collect();
                let offsets: Vec<u64> = threads.iter().map(|(_, offset)| *offset).collect();
                let is_atomic = kind == AccessKind::Atomic;
                let transactions = match space {
                    MemorySpace::Shared => wavefronts(&threads, part, is_atomic),
                    MemorySpace::Global => {
                        let [read, written] = self.touched.entry(view).or_default();
                        sectors(&offsets, part, |sector| {
                            if kind != AccessKind::Store {
                                read.add(sector);
                            }
                            if kind != AccessKind::Load {
                                written.add(sector);
                            }
                        })
                    }
                };
                stats.requests += 1;
                stats.threads += threads.len() as u64;
                stats.requested_bytes += threads.len() as u64 * part;
                stats.transactions += transactions.actual;
                stats.min_transactions += transactions.min;
                stats.serial_updates += if is_atomic { contention(&offsets) } else { 0 };
            }
        }
    }
}
