//! Parses enums. Their enumerators become constants of the underlying type, which the values of
//! the enumerators determine if the enum does not name it.

use bornite_ir::{IntRange, Scalar, Value};

use super::{ParseResult, Parser};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Binary, Declarator, Expr, ExprKind, Storage, TypeName, Unary};
use crate::cuda::lex::{Symbol, TokenKind};
use crate::cuda::types::{common_type, promoted};

/// An integer with its type.
type Typed = (Scalar, i128);

impl Parser<'_> {
    /// Parses an enum.
    pub(super) fn enum_item(&mut self) -> ParseResult<()> {
        self.advance();
        let is_scoped = self.take("class") || self.take("struct");
        let named = if let TokenKind::Name(_) = self.kind() { Some(self.name("an enum")?) } else { None };
        let mut fixed = is_scoped.then_some(Scalar::I32);
        if self.take(":") {
            let ty = self.base_type()?;
            fixed = match ty.base {
                Base::Scalar(scalar) if scalar.is_int() => Some(scalar),
                _ => {
                    return self.unsupported(
                        ty.span,
                        "an enum with a non-integer underlying type",
                        "use an integer type: 'enum Name : int'",
                    );
                }
            };
        }
        if let Some((name, _)) = named {
            self.types.insert(name);
        }
        let declared = match self.is(";") {
            true => vec![],
            false => self.enumerators()?,
        };
        let known = self.enumerator_values(&declared);
        let scalar = fixed.unwrap_or_else(|| underlying_type(&known));
        let typed = |span: SourceSpan, constant: bool| TypeName {
            base: Base::Scalar(scalar),
            pointers: 0,
            constant,
            is_const_pointer: false,
            reference: false,
            span,
        };
        if let Some((name, span)) = named {
            self.file.enums.push(name);
            self.file.aliases.push((name, typed(span, false)));
        }
        let range = IntRange::of_type(scalar);
        for ((name, span, init), value) in declared.into_iter().zip(known) {
            let init = match value {
                // The type of the enum holds every value that was evaluated.
                Some((_, value)) if range.low <= value && value <= range.high => {
                    Expr { kind: ExprKind::Number { value: Value::int(scalar, value as i64), hex: false }, ..init }
                }
                _ => init,
            };
            let declared = Declarator { name, span, ty: typed(span, true), sizes: vec![], init: Some(init) };
            if let Some((of, _)) = named {
                self.file.enumerators.push((of, declared.clone()));
            }
            if !is_scoped {
                let storage = Storage { constant: true, ..Storage::default() };
                self.push_global(storage, declared);
            }
        }
        Ok(())
    }

    /// Parses the enumerators of an enum with their values.
    fn enumerators(&mut self) -> ParseResult<Vec<(Symbol, SourceSpan, Expr)>> {
        self.expect("{", "after 'enum'")?;
        let number = |value: i64, span| Expr {
            kind: ExprKind::Number { value: Value::int(Scalar::I32, value), hex: false },
            span,
            depth: 1,
        };
        let mut declared = vec![];
        // The last explicit value, and the number of enumerators since.
        let (mut explicit, mut since): (Option<Expr>, i64) = (None, 0);
        while !self.is("}") {
            let (name, span) = self.name("a constant")?;
            if self.take("=") {
                (explicit, since) = (Some(self.assignment()?), 0);
            }
            let value = match explicit.clone() {
                None => number(since, span),
                Some(value) if since == 0 => value,
                Some(value) => {
                    let below = value.depth;
                    let sum = ExprKind::Binary(Binary::Add, Box::new(value), Box::new(number(since, span)));
                    self.make_expr(sum, span, below)?
                }
            };
            since += 1;
            declared.push((name, span, value));
            if !self.take(",") {
                break;
            }
        }
        self.expect("}", "after the constants of an enum")?;
        Ok(declared)
    }

    /// Values of enumerators, where they are known before names are resolved.
    fn enumerator_values(&self, declared: &[(Symbol, SourceSpan, Expr)]) -> Vec<Option<Typed>> {
        let mut known: Vec<Option<Typed>> = vec![];
        for (n, (_, span, init)) in declared.iter().enumerate() {
            // An enumerator without a value follows the one before, in a larger type if needed.
            let value = match n.checked_sub(1) {
                Some(before) if init.span == *span => known[before].map(|(scalar, value)| {
                    let value = value + 1;
                    let types = [scalar, Scalar::U32, Scalar::I64, Scalar::U64];
                    (types.into_iter().find(|scalar| holds(*scalar, value)).unwrap_or(scalar), value)
                }),
                _ => self.constant_value(init, &declared[..n], &known, 0),
            };
            known.push(value);
        }
        known
    }

    /// Value of an integer expression of literals, enumerators and constants.
    fn constant_value(
        &self,
        expr: &Expr,
        siblings: &[(Symbol, SourceSpan, Expr)],
        known: &[Option<Typed>],
        depth: usize,
    ) -> Option<Typed> {
        if depth > 32 {
            return None;
        }
        let value = |inner: &Expr| self.constant_value(inner, siblings, known, depth + 1);
        Some(match &expr.kind {
            ExprKind::Number { value, .. } if !value.scalar().is_float() => {
                (value.scalar(), IntRange::exactly(*value).low)
            }
            ExprKind::Name(name) => match siblings.iter().position(|(found, ..)| found == name) {
                Some(n) => known[n]?,
                None => {
                    let mut named = self.file.globals.iter().filter(|(_, global)| global.name == *name);
                    let ((storage, global), None) = (named.next()?, named.next()) else { return None };
                    let (true, Some(init), Base::Scalar(scalar)) = (storage.constant, &global.init, &global.ty.base)
                    else {
                        return None;
                    };
                    let is_plain = global.sizes.is_empty() && global.ty.pointers == 0 && !scalar.is_float();
                    let (_, value) = self.constant_value(init, &[], &[], depth + 1).filter(|_| is_plain)?;
                    wrapped(*scalar, value)
                }
            },
            ExprKind::Cast(ty, inner) => match ty.base {
                Base::Scalar(scalar) if ty.pointers == 0 && !scalar.is_float() => wrapped(scalar, value(inner)?.1),
                _ => return None,
            },
            ExprKind::Unary(op, inner) => {
                let (scalar, a) = value(inner)?;
                let scalar = promoted(scalar);
                match op {
                    Unary::Plus => (scalar, a),
                    Unary::Minus => wrapped(scalar, -a),
                    Unary::Complement => wrapped(scalar, !a),
                    _ => return None,
                }
            }
            ExprKind::Binary(op, a, b) => {
                let ((left, a), (right, b)) = (value(a)?, value(b)?);
                if let Binary::Shl | Binary::Shr = op {
                    let scalar = promoted(left);
                    let by = u32::try_from(b).ok().filter(|by| *by < 8 * scalar.bytes() as u32)?;
                    return Some(wrapped(scalar, if *op == Binary::Shl { a << by } else { a >> by }));
                }
                let scalar = common_type(left, right);
                let (a, b) = (wrapped(scalar, a).1, wrapped(scalar, b).1);
                let result = match op {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a.checked_mul(b)?,
                    Binary::Div => a.checked_div(b)?,
                    Binary::Rem => a.checked_rem(b)?,
                    Binary::And => a & b,
                    Binary::Or => a | b,
                    Binary::Xor => a ^ b,
                    _ => return None,
                };
                wrapped(scalar, result)
            }
            _ => return None,
        })
    }
}

fn holds(scalar: Scalar, value: i128) -> bool {
    let range = IntRange::of_type(scalar);
    range.low <= value && value <= range.high
}

fn wrapped(scalar: Scalar, value: i128) -> Typed {
    match scalar {
        Scalar::Bool => (scalar, (value != 0) as i128),
        _ => (scalar, IntRange::exactly(Value::int(scalar, value as i64)).low),
    }
}

/// The first type that holds all values. A value that is not known yet is taken for an `int`; it
/// is checked where it is evaluated.
fn underlying_type(known: &[Option<Typed>]) -> Scalar {
    let holds_all = |scalar: &Scalar| known.iter().flatten().all(|(_, value)| holds(*scalar, *value));
    [Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64].into_iter().find(holds_all).unwrap_or(Scalar::U64)
}
