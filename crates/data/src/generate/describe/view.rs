//! View of a finished program for pattern matching: variables are replaced by their definitions.

use crate::program::{Array, Expr, Kind, Program, Scalar, Stmt, Var};

/// A kernel with the definitions of its variables.
pub struct View<'p> {
    pub program: &'p Program,
    /// Per immutable variable: the expression that it is bound to.
    definitions: Vec<Option<&'p Expr>>,
}

/// Pattern variable that matches any expression, the same one at every occurrence.
pub fn any(n: u16) -> Expr {
    Expr::var(Var(ANY + n), Scalar::F32)
}

/// Pattern variable that matches any float constant.
pub fn constant(n: u16) -> Expr {
    Expr::var(Var(CONSTANT + n), Scalar::F32)
}

/// A float constant.
pub fn number(value: f64) -> Expr {
    Expr::float(Scalar::F32, value)
}

const ANY: u16 = 0xff00;
const CONSTANT: u16 = 0xff80;

/// Expressions and constants that match the variables of a pattern.
#[derive(Clone, Default)]
pub struct Bindings<'p>([Option<&'p Expr>; 4], [Option<f64>; 4]);

impl<'p> Bindings<'p> {
    /// Match of `any(n)`.
    pub fn any(&self, n: usize) -> Option<&'p Expr> {
        self.0[n]
    }

    /// Match of `constant(n)`.
    pub fn constant(&self, n: usize) -> Option<f64> {
        self.1[n]
    }
}

impl<'p> View<'p> {
    pub fn new(program: &'p Program) -> View<'p> {
        let mut definitions = vec![None; program.body.vars.len()];
        for stmt in &program.body.stmts {
            stmt.walk(&mut |stmt| {
                if let Stmt::Let(var, e) = stmt
                    && !program.body.var(*var).changes
                {
                    definitions[var.0 as usize] = Some(e);
                }
            });
        }
        View { program, definitions }
    }

    /// Definition of a variable; any other expression is returned unchanged.
    pub fn resolved(&self, mut e: &'p Expr) -> &'p Expr {
        while let Kind::Var(var) = e.kind {
            match self.definitions.get(var.0 as usize) {
                Some(Some(definition)) => e = definition,
                _ => break,
            }
        }
        e
    }

    /// Calls `visit` on an expression and all subexpressions, and once on the definition of each
    /// variable in it.
    pub fn walk(&self, e: &'p Expr, visit: &mut dyn FnMut(&'p Expr)) {
        let mut names: Vec<Var> = vec![];
        let mut next = Some(e);
        let mut seen = 0;
        while let Some(e) = next {
            e.walk(&mut |part| {
                visit(part);
                if let Kind::Var(var) = part.kind
                    && !names.contains(&var)
                {
                    names.push(var);
                }
            });
            let definition = |var: &Var| *self.definitions.get(var.0 as usize)?;
            next = names[seen..].iter().find_map(|var| {
                seen += 1;
                definition(var)
            });
        }
    }

    /// True if an expression, with variables resolved, has a node of some kind.
    pub fn has(&self, e: &'p Expr, matches: impl Fn(&Kind) -> bool) -> bool {
        let mut found = false;
        self.walk(e, &mut |part| found |= matches(&part.kind));
        found
    }

    /// True if an expression depends on a variable.
    pub fn depends(&self, e: &'p Expr, on: Var) -> bool {
        self.has(e, |kind| *kind == Kind::Var(on))
    }

    /// True if two expressions are equal after resolving variables.
    pub fn same(&self, a: &'p Expr, b: &'p Expr) -> bool {
        a == b || self.fits(a, b, &mut Bindings::default())
    }

    /// Bindings of a pattern's variables, if an expression matches it.
    pub fn matched(&self, pattern: &Expr, e: &'p Expr) -> Option<Bindings<'p>> {
        let mut bindings = Bindings::default();
        self.fits(pattern, e, &mut bindings).then_some(bindings)
    }

    /// True if an expression matches a pattern, some of whose variables may be bound already.
    pub fn fits(&self, pattern: &Expr, e: &'p Expr, bindings: &mut Bindings<'p>) -> bool {
        let e = match pattern.kind {
            // Bound before resolution, so that a variable stays one.
            Kind::Var(Var(n)) if (ANY..CONSTANT).contains(&n) => {
                let first = *bindings.0[(n - ANY) as usize].get_or_insert(e);
                return self.same(first, e);
            }
            Kind::Var(Var(n)) if n < ANY => {
                if let Some(Some(definition)) = self.definitions.get(n as usize) {
                    return self.fits(definition, e, bindings);
                }
                self.resolved(e)
            }
            _ => self.resolved(e),
        };
        let mut all = |patterns: &[Expr], found: &'p [Expr]| {
            patterns.len() == found.len() && patterns.iter().zip(found).all(|(pattern, e)| self.fits(pattern, e, bindings))
        };
        match (&pattern.kind, &e.kind) {
            (Kind::Var(Var(n)), Kind::Float(value)) if *n >= CONSTANT => {
                *bindings.1[(n - CONSTANT) as usize].get_or_insert(*value) == *value
            }
            (Kind::Float(a), Kind::Float(b)) => a == b,
            (Kind::Int(a), Kind::Int(b)) => a == b,
            (Kind::Var(a), Kind::Var(b)) => a == b,
            (Kind::Load(a, pattern), Kind::Load(b, found)) => a == b && all(pattern, found),
            (Kind::Call(a, pattern), Kind::Call(b, found)) => a == b && all(pattern, found),
            (Kind::Function(a, pattern), Kind::Function(b, found)) => a == b && all(pattern, found),
            (Kind::Make(pattern), Kind::Make(found)) => all(pattern, found),
            (Kind::Binary(a, pattern), Kind::Binary(b, found)) => a == b && all(&pattern[..], &found[..]),
            (Kind::Where(pattern), Kind::Where(found)) => all(&pattern[..], &found[..]),
            (Kind::Unary(a, pattern), Kind::Unary(b, found)) => {
                a == b && all(std::slice::from_ref(pattern), std::slice::from_ref(found))
            }
            (Kind::Cast(pattern), Kind::Cast(found)) => all(std::slice::from_ref(pattern), std::slice::from_ref(found)),
            (Kind::Part(pattern, a), Kind::Part(found, b)) => {
                a == b && all(std::slice::from_ref(pattern), std::slice::from_ref(found))
            }
            _ => false,
        }
    }

    /// Array and indices of an element, if the expression is one.
    pub fn element(&self, e: &'p Expr) -> Option<(Array, &'p [Expr])> {
        match &self.resolved(e).kind {
            Kind::Load(array, at) => Some((*array, at)),
            _ => None,
        }
    }

    /// True if the indices are those of the instance, in order.
    pub fn is_own(&self, at: &'p [Expr]) -> bool {
        let grid = &self.program.grid;
        at.len() == grid.len() && at.iter().zip(grid).all(|(e, (var, _))| self.resolved(e).kind == Kind::Var(*var))
    }
}
