//! A finished program as a reader sees it: names stand for what they were bound to, and expressions are matched with patterns.

use crate::program::{Array, Expr, Kind, Program, Scalar, Stmt, Var};

/// A kernel with the definitions of its names.
pub struct View<'p> {
    pub program: &'p Program,
    /// For each variable that never changes: the expression that it was bound to.
    definitions: Vec<Option<&'p Expr>>,
}

/// A variable of patterns that stands for any expression, the same one wherever it occurs.
pub fn any(n: u16) -> Expr {
    Expr::var(Var(ANY + n), Scalar::F32)
}

/// A variable of patterns that stands for any float constant.
pub fn constant(n: u16) -> Expr {
    Expr::var(Var(CONSTANT + n), Scalar::F32)
}

/// A float constant.
pub fn number(value: f64) -> Expr {
    Expr::float(Scalar::F32, value)
}

const ANY: u16 = 0xff00;
const CONSTANT: u16 = 0xff80;

/// The expressions that match the variables of a pattern.
#[derive(Clone, Default)]
pub struct Bindings<'p>([Option<&'p Expr>; 4], [Option<f64>; 4]);

impl<'p> Bindings<'p> {
    /// What `any(n)` stands for.
    pub fn any(&self, n: usize) -> Option<&'p Expr> {
        self.0[n]
    }

    /// What `constant(n)` stands for.
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

    /// The expression that a name stands for; any other expression is itself.
    pub fn resolved(&self, mut e: &'p Expr) -> &'p Expr {
        while let Kind::Var(var) = e.kind {
            match self.definitions.get(var.0 as usize) {
                Some(Some(definition)) => e = definition,
                _ => break,
            }
        }
        e
    }

    /// Calls `see` on an expression and all within, and once on what each name in it stands for.
    pub fn walk(&self, e: &'p Expr, see: &mut dyn FnMut(&'p Expr)) {
        let mut names: Vec<Var> = vec![];
        let mut next = Some(e);
        let mut seen = 0;
        while let Some(e) = next {
            e.walk(&mut |part| {
                see(part);
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

    /// Whether an expression, names resolved, has a part of some kind.
    pub fn has(&self, e: &'p Expr, wanted: impl Fn(&Kind) -> bool) -> bool {
        let mut found = false;
        self.walk(e, &mut |part| found |= wanted(&part.kind));
        found
    }

    /// Whether an expression depends on a variable.
    pub fn depends(&self, e: &'p Expr, on: Var) -> bool {
        self.has(e, |kind| *kind == Kind::Var(on))
    }

    /// Whether two expressions are the same once names are resolved.
    pub fn same(&self, a: &'p Expr, b: &'p Expr) -> bool {
        a == b || self.fits(a, b, &mut Bindings::default())
    }

    /// The expressions that match the variables of a pattern, if an expression has its form.
    pub fn matched(&self, pattern: &Expr, e: &'p Expr) -> Option<Bindings<'p>> {
        let mut bindings = Bindings::default();
        self.fits(pattern, e, &mut bindings).then_some(bindings)
    }

    /// Whether an expression has the form of a pattern, some of whose variables may be bound already.
    pub fn fits(&self, pattern: &Expr, e: &'p Expr, bindings: &mut Bindings<'p>) -> bool {
        let e = match pattern.kind {
            // Bound as it is written, so that a name stays one.
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
        let mut all = |wanted: &[Expr], found: &'p [Expr]| {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, e)| self.fits(wanted, e, bindings))
        };
        match (&pattern.kind, &e.kind) {
            (Kind::Var(Var(n)), Kind::Float(value)) if *n >= CONSTANT => {
                *bindings.1[(n - CONSTANT) as usize].get_or_insert(*value) == *value
            }
            (Kind::Float(a), Kind::Float(b)) => a == b,
            (Kind::Int(a), Kind::Int(b)) => a == b,
            (Kind::Var(a), Kind::Var(b)) => a == b,
            (Kind::Load(a, wanted), Kind::Load(b, found)) => a == b && all(wanted, found),
            (Kind::Call(a, wanted), Kind::Call(b, found)) => a == b && all(wanted, found),
            (Kind::Function(a, wanted), Kind::Function(b, found)) => a == b && all(wanted, found),
            (Kind::Make(wanted), Kind::Make(found)) => all(wanted, found),
            (Kind::Binary(a, wanted), Kind::Binary(b, found)) => a == b && all(&wanted[..], &found[..]),
            (Kind::Where(wanted), Kind::Where(found)) => all(&wanted[..], &found[..]),
            (Kind::Unary(a, wanted), Kind::Unary(b, found)) => {
                a == b && all(std::slice::from_ref(wanted), std::slice::from_ref(found))
            }
            (Kind::Cast(wanted), Kind::Cast(found)) => all(std::slice::from_ref(wanted), std::slice::from_ref(found)),
            (Kind::Part(wanted, a), Kind::Part(found, b)) => {
                a == b && all(std::slice::from_ref(wanted), std::slice::from_ref(found))
            }
            _ => false,
        }
    }

    /// The array and indices of an element, if an expression is one.
    pub fn element(&self, e: &'p Expr) -> Option<(Array, &'p [Expr])> {
        match &self.resolved(e).kind {
            Kind::Load(array, at) => Some((*array, at)),
            _ => None,
        }
    }

    /// Whether indices are those of the instance, in order.
    pub fn is_own(&self, at: &'p [Expr]) -> bool {
        let grid = &self.program.grid;
        at.len() == grid.len() && at.iter().zip(grid).all(|(e, (var, _))| self.resolved(e).kind == Kind::Var(*var))
    }
}
