//! Exact race oracle: vector clocks of all threads, and every pair of accesses compared.
//!
//! It shares no code with the interpreter: it walks the program, not its kernel, one thread at a
//! time.

use std::collections::HashMap;
use std::rc::Rc;

use super::program::{AccessKind, Program, Step, Thread};

/// Next action of a thread that affects other threads.
#[derive(Clone, Copy)]
enum Event {
    Access { kind: AccessKind, shared: bool, index: i64 },
    Barrier,
    WarpBarrier,
}

/// Access with its thread's clock at that time.
struct Access {
    thread: usize,
    kind: AccessKind,
    clock: Rc<Vec<u32>>,
}

/// Returns true if two accesses of the program race.
pub fn has_race(program: &Program) -> bool {
    let (blocks, threads) = (program.blocks.max(1), program.threads);
    let mut accesses: HashMap<(Option<i64>, i64), Vec<Access>> = HashMap::new();
    for block in 0..blocks {
        let traces: Vec<Vec<Event>> = (0..threads)
            .map(|thread| {
                let mut trace = vec![];
                walk(&program.steps, Thread { block, thread }, program.blocks == 0, &mut trace);
                trace
            })
            .collect();
        run_block(&traces, (block * threads) as usize, (blocks * threads) as usize, |thread, clock, event| {
            if let Event::Access { kind, shared, index } = event {
                let cell = (shared.then_some(block), index);
                let accessed = Access { thread, kind, clock: clock.clone() };
                accesses.entry(cell).or_default().push(accessed);
            }
        });
    }
    accesses.values().any(|all| {
        all.iter().enumerate().any(|(n, a)| all[..n].iter().any(|b| conflict(a, b) && !ordered(a, b) && !ordered(b, a)))
    })
}

fn conflict(a: &Access, b: &Access) -> bool {
    a.thread != b.thread
        && (a.kind, b.kind) != (AccessKind::Read, AccessKind::Read)
        && (a.kind, b.kind) != (AccessKind::Atomic, AccessKind::Atomic)
}

/// Returns true if `a` happens before `b`: the clock of `b`'s thread includes `a`.
fn ordered(a: &Access, b: &Access) -> bool {
    b.clock[a.thread] >= a.clock[a.thread]
}

/// Appends the events of one thread; returns false if it returns.
fn walk(steps: &[Step], at: Thread, parallel_for: bool, trace: &mut Vec<Event>) -> bool {
    steps.iter().all(|step| match step {
        Step::Access { kind, shared, index, width } => {
            let shared = *shared && !parallel_for;
            let first = index.of(at);
            trace.extend((first..first + width).map(|index| Event::Access { kind: *kind, shared, index }));
            true
        }
        Step::Barrier => {
            trace.push(Event::Barrier);
            true
        }
        Step::WarpBarrier => {
            trace.push(Event::WarpBarrier);
            true
        }
        Step::If { condition, then, otherwise } => {
            walk(if condition.holds(at) { then } else { otherwise }, at, parallel_for, trace)
        }
        Step::Repeat { times, body } => (0..*times).all(|_| walk(body, at, parallel_for, trace)),
        Step::Return => false,
    })
}

/// Runs the threads of a block from barrier to barrier, each with a vector clock over all threads
/// of the program.
fn run_block(traces: &[Vec<Event>], first: usize, all: usize, mut seen: impl FnMut(usize, &Rc<Vec<u32>>, Event)) {
    let mut clocks: Vec<Rc<Vec<u32>>> = (0..traces.len())
        .map(|n| {
            let mut clock = vec![0; all];
            clock[first + n] = 1;
            Rc::new(clock)
        })
        .collect();
    let mut next = vec![0; traces.len()];
    loop {
        for (n, trace) in traces.iter().enumerate() {
            while let Some(&event @ Event::Access { .. }) = trace.get(next[n]) {
                seen(first + n, &clocks[n], event);
                next[n] += 1;
            }
        }
        let waiting = |n: usize| traces[n].get(next[n]).copied();
        let all_threads: Vec<usize> = (0..traces.len()).collect();
        if all_threads.iter().all(|&n| waiting(n).is_none()) {
            return;
        }
        // Threads that have returned count as arrived.
        let at_barrier = |n: &usize| matches!(waiting(*n), Some(Event::Barrier) | None);
        let at_warp_barrier = |n: &usize| matches!(waiting(*n), Some(Event::WarpBarrier) | None);
        let complete: Vec<&[usize]> = if all_threads.iter().all(at_barrier) {
            vec![&all_threads]
        } else {
            let arrived =
                |warp: &&[usize]| warp.iter().all(at_warp_barrier) && warp.iter().any(|&n| waiting(n).is_some());
            all_threads.chunks(32).filter(arrived).collect()
        };
        assert!(!complete.is_empty(), "the generator wrote a program that cannot end");
        for group in complete {
            let joined: Vec<u32> = (0..all).map(|t| group.iter().map(|&n| clocks[n][t]).max().unwrap_or(0)).collect();
            for &n in group {
                let mut clock = joined.clone();
                clock[first + n] += 1;
                clocks[n] = Rc::new(clock);
                next[n] += 1;
            }
        }
    }
}
