//! View of a finished program for pattern matching: variables are replaced by their definitions.

use crate::program::{ArrayId, ExprKind, Program, ProgramExpr, ProgramStmt, ScalarType, VarId};

/// A kernel with the definitions of its variables.
pub struct ProgramView<'p> {
    pub program: &'p Program,
    /// Per immutable variable: the expression that it is bound to.
    definitions: Vec<Option<&'p ProgramExpr>>,
}

/// Pattern variable that matches any expression, the same one at every occurrence.
pub fn any(n: u16) -> ProgramExpr {
    ProgramExpr::var(VarId(ANY + n), ScalarType::F32)
}

/// Pattern variable that matches any float constant.
pub fn constant(n: u16) -> ProgramExpr {
    ProgramExpr::var(VarId(CONSTANT + n), ScalarType::F32)
}

/// A float constant.
pub fn number(value: f64) -> ProgramExpr {
    ProgramExpr::float(ScalarType::F32, value)
}

const ANY: u16 = 0xff00;
const CONSTANT: u16 = 0xff80;

/// Expressions and constants that match the variables of a pattern.
#[derive(Clone, Default)]
pub struct Bindings<'p>([Option<&'p ProgramExpr>; 4], [Option<f64>; 4]);

impl<'p> Bindings<'p> {
    /// Match of `any(n)`.
    pub fn any(&self, n: usize) -> Option<&'p ProgramExpr> {
        self.0[n]
    }

    /// Match of `constant(n)`.
    pub fn constant(&self, n: usize) -> Option<f64> {
        self.1[n]
    }
}

impl<'p> ProgramView<'p> {
    pub fn new(program: &'p Program) -> ProgramView<'p> {
        let mut definitions = vec![None; program.body.vars.len()];
        for stmt in &program.body.stmts {
            stmt.walk(&mut |stmt| {
                if let ProgramStmt::Let(var, e) = stmt
                    && !program.body.var(*var).mutable
                {
                    definitions[var.0 as usize] = Some(e);
                }
            });
        }
        ProgramView { program, definitions }
    }

    /// Definition of a variable; any other expression is returned unchanged.
    pub fn resolved(&self, mut e: &'p ProgramExpr) -> &'p ProgramExpr {
        while let ExprKind::Var(var) = e.kind {
            match self.definitions.get(var.0 as usize) {
                Some(Some(definition)) => e = definition,
                _ => break,
            }
        }
        e
    }

    /// Calls `visit` on an expression and all subexpressions, and once on the definition of each
    /// variable in it.
    pub fn walk(&self, e: &'p ProgramExpr, visit: &mut dyn FnMut(&'p ProgramExpr)) {
        let mut names: Vec<VarId> = vec![];
        let mut next = Some(e);
        let mut seen = 0;
        while let Some(e) = next {
            e.walk(&mut |part| {
                visit(part);
                if let ExprKind::Var(var) = part.kind
                    && !names.contains(&var)
                {
                    names.push(var);
                }
            });
            let definition = |var: &VarId| *self.definitions.get(var.0 as usize)?;
            next = names[seen..].iter().find_map(|var| {
                seen += 1;
                definition(var)
            });
        }
    }

    /// True if an expression, with variables resolved, has a node of some kind.
    pub fn has(&self, e: &'p ProgramExpr, matches: impl Fn(&ExprKind) -> bool) -> bool {
        let mut found = false;
        self.walk(e, &mut |part| found |= matches(&part.kind));
        found
    }

    /// True if an expression depends on a variable.
    pub fn depends(&self, e: &'p ProgramExpr, on: VarId) -> bool {
        self.has(e, |kind| *kind == ExprKind::Var(on))
    }

    /// True if two expressions are equal after resolving variables.
    pub fn same(&self, a: &'p ProgramExpr, b: &'p ProgramExpr) -> bool {
        a == b || self.fits(a, b, &mut Bindings::default())
    }

    /// Bindings of a pattern's variables, if an expression matches it.
    pub fn matched(&self, pattern: &ProgramExpr, e: &'p ProgramExpr) -> Option<Bindings<'p>> {
        let mut bindings = Bindings::default();
        self.fits(pattern, e, &mut bindings).then_some(bindings)
    }

    /// True if an expression matches a pattern, some of whose variables may be bound already.
    pub fn fits(&self, pattern: &ProgramExpr, e: &'p ProgramExpr, bindings: &mut Bindings<'p>) -> bool {
        let e = match pattern.kind {
            // Bound before resolution, so that a variable stays one.
            ExprKind::Var(VarId(n)) if (ANY..CONSTANT).contains(&n) => {
                let first = *bindings.0[(n - ANY) as usize].get_or_insert(e);
                return self.same(first, e);
            }
            ExprKind::Var(VarId(n)) if n < ANY => {
                if let Some(Some(definition)) = self.definitions.get(n as usize) {
                    return self.fits(definition, e, bindings);
                }
                self.resolved(e)
            }
            _ => self.resolved(e),
        };
        let mut all = |patterns: &[ProgramExpr], found: &'p [ProgramExpr]| {
            patterns.len() == found.len()
                && patterns.iter().zip(found).all(|(pattern, e)| self.fits(pattern, e, bindings))
        };
        match (&pattern.kind, &e.kind) {
            (ExprKind::Var(VarId(n)), ExprKind::Float(value)) if *n >= CONSTANT => {
                *bindings.1[(n - CONSTANT) as usize].get_or_insert(*value) == *value
            }
            (ExprKind::Float(a), ExprKind::Float(b)) => a == b,
            (ExprKind::Int(a), ExprKind::Int(b)) => a == b,
            (ExprKind::Var(a), ExprKind::Var(b)) => a == b,
            (ExprKind::Load(a, pattern), ExprKind::Load(b, found)) => a == b && all(pattern, found),
            (ExprKind::Call(a, pattern), ExprKind::Call(b, found)) => a == b && all(pattern, found),
            (ExprKind::Function(a, pattern), ExprKind::Function(b, found)) => a == b && all(pattern, found),
            (ExprKind::Construct(pattern), ExprKind::Construct(found)) => all(pattern, found),
            (ExprKind::Binary(a, pattern), ExprKind::Binary(b, found)) => a == b && all(&pattern[..], &found[..]),
            (ExprKind::Where(pattern), ExprKind::Where(found)) => all(&pattern[..], &found[..]),
            (ExprKind::Unary(a, pattern), ExprKind::Unary(b, found)) => {
                a == b && all(std::slice::from_ref(pattern), std::slice::from_ref(found))
            }
            (ExprKind::Cast(pattern), ExprKind::Cast(found)) => {
                all(std::slice::from_ref(pattern), std::slice::from_ref(found))
            }
            (ExprKind::Component(pattern, a), ExprKind::Component(found, b)) => {
                a == b && all(std::slice::from_ref(pattern), std::slice::from_ref(found))
            }
            _ => false,
        }
    }

    /// Array and indices of an element, if the expression is one.
    pub fn element(&self, e: &'p ProgramExpr) -> Option<(ArrayId, &'p [ProgramExpr])> {
        match &self.resolved(e).kind {
            ExprKind::Load(array, at) => Some((*array, at)),
            _ => None,
        }
    }

    /// True if the indices are those of the instance, in order.
    pub fn is_own(&self, at: &'p [ProgramExpr]) -> bool {
        let grid = &self.program.grid;
        at.len() == grid.len() && at.iter().zip(grid).all(|(e, (var, _))| self.resolved(e).kind == ExprKind::Var(*var))
    }
}
