//! What the names of a function need, found before it is lowered: which block each belongs to, and what a block changes.

use foldhash::HashMap;
use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;

/// A block by the place of its first statement.
pub(crate) type Block = u32;

pub(crate) fn key(block: &[Stmt]) -> Block {
    block.first().map_or(0, |stmt| stmt.range().start().to_u32())
}

/// The innermost block that holds all uses of each name: outside of it the name's value does not matter.
#[derive(Debug, Default)]
pub(crate) struct Homes<'a> {
    homes: HashMap<&'a str, Block>,
    parents: HashMap<Block, (Block, u32)>,
}

impl<'a> Homes<'a> {
    pub fn new(body: &'a [Stmt]) -> Homes<'a> {
        let mut homes = Homes::default();
        homes.parents.insert(key(body), (key(body), 0));
        homes.block(body, key(body), 0);
        homes
    }

    pub fn home(&self, name: &str) -> Option<Block> {
        self.homes.get(name).copied()
    }

    fn block(&mut self, block: &'a [Stmt], at: Block, depth: u32) {
        for stmt in block {
            let mut uses = Uses { found: vec![] };
            match stmt {
                Stmt::If(branch) => {
                    uses.visit_expr(&branch.test);
                    self.inner(&branch.body, at, depth);
                    // A chain of elifs is ifs within elses.
                    let (mut outer, mut deep) = (at, depth);
                    for clause in &branch.elif_else_clauses {
                        match &clause.test {
                            Some(test) => {
                                let mut tested = Uses { found: vec![] };
                                tested.visit_expr(test);
                                // The test stands in a block of its own: that of the clause, by its own place.
                                let own = clause.range().start().to_u32();
                                self.parents.insert(own, (outer, deep + 1));
                                self.used(tested.found, own);
                                (outer, deep) = (own, deep + 1);
                                self.inner(&clause.body, outer, deep);
                            }
                            None => self.inner(&clause.body, outer, deep),
                        }
                    }
                }
                Stmt::For(each) => {
                    uses.visit_expr(&each.iter);
                    let mut target = Uses { found: vec![] };
                    target.visit_expr(&each.target);
                    self.inner(&each.body, at, depth);
                    self.used(target.found, key(&each.body));
                }
                Stmt::While(turn) => {
                    // The test is part of each turn.
                    let mut tested = Uses { found: vec![] };
                    tested.visit_expr(&turn.test);
                    self.inner(&turn.body, at, depth);
                    self.used(tested.found, key(&turn.body));
                }
                other => uses.visit_stmt(other),
            }
            self.used(uses.found, at);
        }
    }

    fn inner(&mut self, block: &'a [Stmt], outer: Block, depth: u32) {
        self.parents.insert(key(block), (outer, depth + 1));
        self.block(block, key(block), depth + 1);
    }

    fn used(&mut self, names: Vec<&'a str>, at: Block) {
        for name in names {
            let home = match self.homes.get(name) {
                Some(&other) => self.common(other, at),
                None => at,
            };
            self.homes.insert(name, home);
        }
    }

    fn common(&self, mut a: Block, mut b: Block) -> Block {
        let up = |block: Block| self.parents.get(&block).copied().unwrap_or((block, 0));
        while a != b {
            let ((above_a, depth_a), (above_b, depth_b)) = (up(a), up(b));
            if depth_a == 0 && depth_b == 0 {
                break;
            }
            if depth_a >= depth_b {
                a = above_a;
            }
            if depth_b >= depth_a {
                b = above_b;
            }
        }
        a
    }
}

struct Uses<'a> {
    found: Vec<&'a str>,
}

impl<'a> Visitor<'a> for Uses<'a> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Name(name) = expr {
            self.found.push(name.id.as_str());
        }
        walk_expr(self, expr);
    }
}

/// How a name may change.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// It names another value.
    Named,
    /// A part of its value changes, which is that.
    Part(&'a Expr),
    /// It is passed to that function.
    Passed(&'a Expr),
}

/// Names that a block may change.
pub(crate) fn changed<'a>(block: &'a [Stmt], out: &mut Vec<(&'a str, Change<'a>)>) {
    for stmt in block {
        match stmt {
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    targets(target, out);
                    arguments(target, out);
                }
                arguments(&assign.value, out);
            }
            Stmt::AugAssign(assign) => {
                targets(&assign.target, out);
                arguments(&assign.target, out);
                arguments(&assign.value, out);
            }
            Stmt::For(each) => {
                targets(&each.target, out);
                arguments(&each.iter, out);
                changed(&each.body, out);
            }
            Stmt::While(turn) => {
                arguments(&turn.test, out);
                changed(&turn.body, out);
            }
            Stmt::If(branch) => {
                arguments(&branch.test, out);
                changed(&branch.body, out);
                for clause in &branch.elif_else_clauses {
                    if let Some(test) = &clause.test {
                        arguments(test, out);
                    }
                    changed(&clause.body, out);
                }
            }
            Stmt::AnnAssign(assign) => targets(&assign.target, out),
            Stmt::FunctionDef(def) => out.push((def.name.as_str(), Change::Named)),
            Stmt::Expr(expr) => arguments(&expr.value, out),
            Stmt::Assert(assert) => arguments(&assert.test, out),
            Stmt::Return(back) => {
                if let Some(value) = &back.value {
                    arguments(value, out);
                }
            }
            _ => {}
        }
    }
}

fn targets<'a>(target: &'a Expr, out: &mut Vec<(&'a str, Change<'a>)>) {
    match target {
        Expr::Name(name) => out.push((name.id.as_str(), Change::Named)),
        Expr::Tuple(all) => all.elts.iter().for_each(|one| targets(one, out)),
        Expr::Subscript(_) | Expr::Attribute(_) => {
            if let Some(Expr::Name(name)) = way(target).first() {
                out.push((name.id.as_str(), Change::Part(target)));
            }
        }
        _ => {}
    }
}

/// What an expression is a part of, the parts on the way, and itself.
pub(crate) fn way(expr: &Expr) -> Vec<&Expr> {
    let mut all = vec![expr];
    while let Some(Expr::Subscript(_) | Expr::Attribute(_)) = all.last() {
        match all[all.len() - 1] {
            Expr::Subscript(inner) => all.push(&inner.value),
            Expr::Attribute(inner) => all.push(&inner.value),
            _ => break,
        }
    }
    all.reverse();
    all
}

/// Calls may change variables that they are given, such as the state of random numbers.
pub(crate) fn arguments<'a>(expr: &'a Expr, out: &mut Vec<(&'a str, Change<'a>)>) {
    struct Given<'a, 'o>(&'o mut Vec<(&'a str, Change<'a>)>);
    impl<'a> Visitor<'a> for Given<'a, '_> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr
                && may_change(&call.func)
            {
                for arg in call.arguments.args.iter().chain(call.arguments.keywords.iter().map(|k| &k.value)) {
                    if let Expr::Name(name) = arg {
                        self.0.push((name.id.as_str(), Change::Passed(&call.func)));
                    }
                }
            }
            walk_expr(self, expr);
        }
    }
    Given(out).visit_expr(expr);
}

/// Whether a function could change what it is given, by its name alone.
fn may_change(callee: &Expr) -> bool {
    const PLAIN: [&str; 10] = ["float", "int", "bool", "range", "min", "max", "abs", "len", "print", "round"];
    match callee {
        Expr::Name(name) => !PLAIN.contains(&name.id.as_str()),
        Expr::Attribute(_) => true,
        _ => false,
    }
}
