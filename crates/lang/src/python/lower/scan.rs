//! Analysis of a function before it is lowered: the block that each name belongs to, and the names
//! that a block may change.

use foldhash::HashMap;
use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;

/// Identifies a block by the source offset of its first statement.
pub(crate) type BlockId = u32;

pub(crate) fn block_id(block: &[Stmt]) -> BlockId {
    block.first().map_or(0, |stmt| stmt.range().start().to_u32())
}

/// The innermost block that contains all uses of each name. Outside of it the name is dead.
#[derive(Debug, Default)]
pub(crate) struct NameBlocks<'a> {
    blocks: HashMap<&'a str, BlockId>,
    /// Parent and depth of each block.
    parents: HashMap<BlockId, (BlockId, u32)>,
}

impl<'a> NameBlocks<'a> {
    pub fn new(body: &'a [Stmt]) -> NameBlocks<'a> {
        let mut names = NameBlocks::default();
        names.parents.insert(block_id(body), (block_id(body), 0));
        names.block(body, block_id(body), 0);
        names
    }

    pub fn block_of(&self, name: &str) -> Option<BlockId> {
        self.blocks.get(name).copied()
    }

    fn block(&mut self, block: &'a [Stmt], at: BlockId, depth: u32) {
        for stmt in block {
            let mut uses = Uses { found: vec![] };
            match stmt {
                Stmt::If(branch) => {
                    uses.visit_expr(&branch.test);
                    self.inner(&branch.body, at, depth);
                    // Each elif is an `if` in the else block of the one before it.
                    let (mut outer, mut deep) = (at, depth);
                    for clause in &branch.elif_else_clauses {
                        match &clause.test {
                            Some(test) => {
                                let mut tested = Uses { found: vec![] };
                                tested.visit_expr(test);
                                // That else block holds the test too; it is identified by the
                                // clause's offset.
                                let else_block = clause.range().start().to_u32();
                                self.parents.insert(else_block, (outer, deep + 1));
                                self.add_uses(tested.found, else_block);
                                (outer, deep) = (else_block, deep + 1);
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
                    self.add_uses(target.found, block_id(&each.body));
                }
                Stmt::While(while_stmt) => {
                    // The test is evaluated in every iteration.
                    let mut tested = Uses { found: vec![] };
                    tested.visit_expr(&while_stmt.test);
                    self.inner(&while_stmt.body, at, depth);
                    self.add_uses(tested.found, block_id(&while_stmt.body));
                }
                other => uses.visit_stmt(other),
            }
            self.add_uses(uses.found, at);
        }
    }

    fn inner(&mut self, block: &'a [Stmt], outer: BlockId, depth: u32) {
        self.parents.insert(block_id(block), (outer, depth + 1));
        self.block(block, block_id(block), depth + 1);
    }

    fn add_uses(&mut self, names: Vec<&'a str>, at: BlockId) {
        for name in names {
            let block = match self.blocks.get(name) {
                Some(&other) => self.common_ancestor(other, at),
                None => at,
            };
            self.blocks.insert(name, block);
        }
    }

    fn common_ancestor(&self, mut a: BlockId, mut b: BlockId) -> BlockId {
        let up = |block: BlockId| self.parents.get(&block).copied().unwrap_or((block, 0));
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

/// A possible change of a name.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// The name is rebound to another value.
    Rebound,
    /// The given part of its value is assigned to.
    Part(&'a Expr),
    /// The name is passed to the given callee, which may modify it.
    Passed(&'a Expr),
}

/// Collects names that a block may change.
pub(crate) fn collect_changes<'a>(block: &'a [Stmt], out: &mut Vec<(&'a str, Change<'a>)>) {
    for stmt in block {
        match stmt {
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    collect_targets(target, out);
                    collect_passed(target, out);
                }
                collect_passed(&assign.value, out);
            }
            Stmt::AugAssign(assign) => {
                collect_targets(&assign.target, out);
                collect_passed(&assign.target, out);
                collect_passed(&assign.value, out);
            }
            Stmt::For(each) => {
                collect_targets(&each.target, out);
                collect_passed(&each.iter, out);
                collect_changes(&each.body, out);
            }
            Stmt::While(while_stmt) => {
                collect_passed(&while_stmt.test, out);
                collect_changes(&while_stmt.body, out);
            }
            Stmt::If(branch) => {
                collect_passed(&branch.test, out);
                collect_changes(&branch.body, out);
                for clause in &branch.elif_else_clauses {
                    if let Some(test) = &clause.test {
                        collect_passed(test, out);
                    }
                    collect_changes(&clause.body, out);
                }
            }
            Stmt::AnnAssign(assign) => collect_targets(&assign.target, out),
            Stmt::FunctionDef(def) => out.push((def.name.as_str(), Change::Rebound)),
            Stmt::Expr(expr) => collect_passed(&expr.value, out),
            Stmt::Assert(assert) => collect_passed(&assert.test, out),
            Stmt::Return(return_stmt) => {
                if let Some(value) = &return_stmt.value {
                    collect_passed(value, out);
                }
            }
            _ => {}
        }
    }
}

fn collect_targets<'a>(target: &'a Expr, out: &mut Vec<(&'a str, Change<'a>)>) {
    match target {
        Expr::Name(name) => out.push((name.id.as_str(), Change::Rebound)),
        Expr::Tuple(all) => all.elts.iter().for_each(|one| collect_targets(one, out)),
        Expr::Subscript(_) | Expr::Attribute(_) => {
            if let Some(Expr::Name(name)) = access_chain(target).first() {
                out.push((name.id.as_str(), Change::Part(target)));
            }
        }
        _ => {}
    }
}

/// The base of an attribute or subscript expression, the parts along the way, and the expression
/// itself.
pub(crate) fn access_chain(expr: &Expr) -> Vec<&Expr> {
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

/// Collects names passed to calls, which may modify them, such as the state of a random generator.
pub(crate) fn collect_passed<'a>(expr: &'a Expr, out: &mut Vec<(&'a str, Change<'a>)>) {
    struct PassedNames<'a, 'o>(&'o mut Vec<(&'a str, Change<'a>)>);
    impl<'a> Visitor<'a> for PassedNames<'a, '_> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr
                && may_mutate_arguments(&call.func)
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
    PassedNames(out).visit_expr(expr);
}

/// Returns false if the callee is a builtin that never modifies its arguments, judged by its name.
fn may_mutate_arguments(callee: &Expr) -> bool {
    const PURE_BUILTINS: [&str; 10] = ["float", "int", "bool", "range", "min", "max", "abs", "len", "print", "round"];
    match callee {
        Expr::Name(name) => !PURE_BUILTINS.contains(&name.id.as_str()),
        Expr::Attribute(_) => true,
        _ => false,
    }
}
