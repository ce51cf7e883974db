//! What of a program its inputs reach. Code that none of them executes is code that no check has seen, and a condition
//! that goes one way whatever the inputs are is no condition.

use crate::program::{Body, Expr, Kind, Program, Stmt, python};

/// How far the blocks of a program were executed, and which ways its conditions went.
#[derive(Clone, Default)]
pub struct Reached<'p> {
    /// A block by its first statement, and how many of its statements were begun. Programs have so few that looking from the
    /// first on is faster than any table.
    blocks: Vec<(&'p Stmt, usize)>,
    /// A condition; whether it ever failed, and whether it ever held.
    conditions: Vec<(&'p Expr, [bool; 2])>,
}

impl<'p> Reached<'p> {
    /// Where the statements of a block are counted.
    pub(super) fn block(&mut self, stmts: &'p [Stmt]) -> usize {
        let Some(first) = stmts.first() else { return 0 };
        self.blocks.iter().position(|(other, _)| std::ptr::eq(*other, first)).unwrap_or_else(|| {
            self.blocks.push((first, 0));
            self.blocks.len() - 1
        })
    }

    /// Statement `n` of a block is begun.
    pub(super) fn statement(&mut self, block: usize, n: usize) {
        self.blocks[block].1 = self.blocks[block].1.max(n + 1);
    }

    /// A condition was decided.
    pub(super) fn condition(&mut self, e: &'p Expr, holds: bool) {
        let known = self.conditions.iter().position(|(other, _)| std::ptr::eq(*other, e));
        let at = known.unwrap_or_else(|| {
            self.conditions.push((e, [false; 2]));
            self.conditions.len() - 1
        });
        self.conditions[at].1[holds as usize] = true;
    }

    /// What was never reached, in words: the first of it.
    pub fn missed(&self, program: &'p Program) -> Option<String> {
        let bodies = program.functions.iter().map(|function| &function.body).chain([&program.body]);
        bodies.filter_map(|body| self.missed_in(program, body, &body.stmts)).next()
    }

    fn missed_in(&self, program: &'p Program, body: &'p Body, stmts: &'p [Stmt]) -> Option<String> {
        let first = stmts.first()?;
        let begun = self.blocks.iter().find(|(other, _)| std::ptr::eq(*other, first)).map_or(0, |(_, begun)| *begun);
        if let Some(stmt) = stmts.get(begun) {
            return Some(format!("no input reaches '{}'", python::line(program, body, stmt)));
        }
        stmts.iter().find_map(|stmt| {
            let (exprs, blocks) = stmt.contents();
            let mut one_way = None;
            if let Stmt::If(condition, ..) = stmt {
                one_way = self.one_way(condition);
            }
            for e in exprs {
                e.walk(&mut |e| {
                    if let Kind::Where(three) = &e.kind {
                        one_way = one_way.or(self.one_way(&three[0]));
                    }
                });
            }
            let told = |(condition, holds): (&Expr, bool)| {
                let how = if holds { "holds" } else { "fails" };
                format!("'{}' {how} whatever the input is", python::expression(program, body, condition))
            };
            one_way.map(told).or_else(|| blocks.into_iter().find_map(|block| self.missed_in(program, body, block)))
        })
    }

    /// A condition that always went the same way, and which.
    fn one_way(&self, condition: &'p Expr) -> Option<(&'p Expr, bool)> {
        let (_, ways) = self.conditions.iter().find(|(other, _)| std::ptr::eq(*other, condition))?;
        (ways[0] != ways[1]).then_some((condition, ways[1]))
    }
}
