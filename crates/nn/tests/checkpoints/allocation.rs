//! Counts what is allocated: on this thread, to bound what a hostile file can ask for, and in the
//! whole process.
#![allow(unsafe_code)] // an allocator is unsafe by nature; this one only counts and passes on

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread holds, and held at most. Frees by other threads make the first
    /// inexact, not the bound.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}
static PROCESS: AtomicUsize = AtomicUsize::new(0);
static PROCESS_PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    // Threads that are ending have no such cell any more.
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        held.set((now + bytes, peak.max(now + bytes)));
    });
    let now = PROCESS.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PROCESS_PEAK.fetch_max(now, Ordering::Relaxed);
}

fn take(bytes: usize) {
    let _ = HELD.try_with(|held| held.set((held.get().0.saturating_sub(bytes), held.get().1)));
    PROCESS.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: all calls go to the system's allocator as they come.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        take(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The result of `work` and how many bytes it held at once on this thread, at most.
pub fn peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get().0;
    HELD.set((before, before));
    let result = work();
    (result, HELD.get().1 - before)
}

/// As [`peak`], of all threads.
pub fn peak_of_process<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = PROCESS.load(Ordering::Relaxed);
    PROCESS_PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PROCESS_PEAK.load(Ordering::Relaxed) - before)
}
