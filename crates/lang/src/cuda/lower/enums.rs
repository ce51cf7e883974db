//! Enums have the values and the memory of their integer type. Uses for which C++ distinguishes the
//! two types (overloads, overloaded operators, deduced template arguments, type traits) are errors.

use bornite_ir::{IntRange, Scalar};
use foldhash::{HashSet, HashSetExt};

use super::call::CallTarget;
use super::lvalue::CudaOperand;
use super::scan::for_each_stmt;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Binary, Declarator, Expr, ExprKind, File, StmtKind, TypeName, Unary};
use crate::cuda::lex::{Interner, Symbol};

/// Names that have an enum type somewhere in the file.
#[derive(Clone, Debug, Default)]
pub struct EnumNames {
    types: HashSet<Symbol>,
    values: HashSet<Symbol>,
    /// Operators that are overloaded for enums.
    operators: HashSet<String>,
}

impl EnumNames {
    pub fn of(file: &File, names: &Interner) -> EnumNames {
        let mut found = EnumNames::default();
        found.types.extend(file.enums.iter().copied());
        if found.types.is_empty() {
            return found;
        }
        for (name, ty) in &file.aliases {
            if found.is_enum(ty) {
                found.types.insert(*name);
            }
        }
        let mut values = HashSet::new();
        values.extend(file.enumerators.iter().map(|(_, value)| value.name));
        let variables = file.globals.iter().map(|(_, variable)| variable);
        let fields = file.structs.iter().flat_map(|item| item.fields.iter().chain(&item.statics));
        let params = file.functions.iter().flat_map(|function| &function.params);
        let declared = variables.chain(fields).chain(params).filter(|one| found.is_enum(&one.ty));
        values.extend(declared.map(|one| one.name));
        for function in &file.functions {
            if found.is_enum(&function.result) {
                values.insert(function.name);
            }
            for_each_stmt(&function.body, &mut |stmt| {
                if let StmtKind::Declare(_, all) = &stmt.kind {
                    values.extend(all.iter().filter(|one| found.is_enum(&one.ty)).map(|one| one.name));
                }
            });
            if let Some(token) = names.text(function.name).strip_prefix("operator")
                && function.params.iter().any(|param| found.is_enum(&param.ty))
            {
                found.operators.insert(token.to_owned());
            }
        }
        found.values = values;
        found
    }

    fn is_enum(&self, ty: &TypeName) -> bool {
        matches!(ty.base, Base::Named(name) if self.types.contains(&name))
    }

    /// Returns true if an expression may have an enum type.
    fn may_be_enum(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name) | ExprKind::Member(_, name) | ExprKind::Arrow(_, name) => self.values.contains(name),
            ExprKind::Call { callee: name, .. }
            | ExprKind::MethodCall { name, .. }
            | ExprKind::ScopedCall { name, .. } => self.values.contains(name),
            ExprKind::Scoped(ty, name) => self.is_enum(ty) || self.values.contains(name),
            ExprKind::Cast(ty, _) | ExprKind::Construct(ty, _) => self.is_enum(ty) && ty.pointers == 0,
            ExprKind::Conditional(_, a, b) => self.may_be_enum(a) || self.may_be_enum(b),
            ExprKind::Unary(Unary::Deref | Unary::Address, inner) => self.may_be_enum(inner),
            ExprKind::Assign(_, inner, _) | ExprKind::Index(inner, _) => self.may_be_enum(inner),
            ExprKind::IncDec { lvalue, .. } => self.may_be_enum(lvalue),
            ExprKind::Binary(Binary::Comma, _, last) => self.may_be_enum(last),
            _ => false,
        }
    }
}

impl<'m> Lowering<'m> {
    /// Rejects a use of an operator that is overloaded for enums.
    pub(super) fn check_enum_operator(&mut self, expr: &'m Expr) -> LowerResult {
        let enums = &self.module.enum_names;
        if enums.operators.is_empty() {
            return Ok(());
        }
        let (token, operands): (String, Vec<&Expr>) = match &expr.kind {
            ExprKind::Unary(op, a) => {
                let token = match op {
                    Unary::Minus => "-",
                    Unary::Plus => "+",
                    Unary::Not => "!",
                    Unary::Deref => "*",
                    Unary::Address => "&",
                    _ => "~",
                };
                (token.to_owned(), vec![a])
            }
            ExprKind::Binary(op, a, b) => (op.token().to_owned(), vec![a, b]),
            ExprKind::Assign(op, a, b) => (op.map_or("", |op| op.token()).to_owned() + "=", vec![a, b]),
            ExprKind::IncDec { delta, lvalue, .. } => (if *delta > 0 { "++" } else { "--" }.to_owned(), vec![lvalue]),
            _ => return Ok(()),
        };
        // The result of such an operator is an enum, too.
        let may_be_enum = |expr: &&Expr| {
            let mut found = false;
            super::scan::walk_expr(expr, &mut |part| found |= enums.may_be_enum(part));
            found
        };
        if enums.operators.contains(&token) && operands.iter().any(may_be_enum) {
            return self.unsupported(expr.span, format!("operator '{token}' overloaded for enums"), "call a function");
        }
        Ok(())
    }

    /// Rejects a call whose overload resolution depends on an enum, or that deduces a template
    /// argument from one.
    pub(super) fn check_enum_call(
        &mut self,
        target: &CallTarget<'m>,
        operands: &[CudaOperand],
        args: &[Option<&'m Expr>],
        span: SourceSpan,
    ) -> LowerResult {
        let (enums, functions) = (&self.module.enum_names, &self.module.file.functions);
        if enums.types.is_empty() {
            return Ok(());
        }
        let viable: Vec<usize> = (target.candidates.iter().copied())
            .filter(|n| self.conversion_ranks(*n, &target.outer, target.templates, operands, span).is_some())
            .collect();
        for (at, arg) in args.iter().enumerate() {
            let ty = |n: &usize| functions[*n].params.get(at).map(|param| &param.ty);
            let takes_enum = |n: &usize| ty(n).is_some_and(|ty| enums.is_enum(ty));
            let is_enum = arg.is_some_and(|arg| enums.may_be_enum(arg));
            let is_same = viable.windows(2).all(|two| ty(&two[0]).map(|ty| &ty.base) == ty(&two[1]).map(|ty| &ty.base));
            if (is_enum || viable.iter().any(takes_enum)) && !is_same {
                let what = format!("overloading '{}' for an enum and another type", self.text(target.name));
                return self.unsupported(span, what, "use different names");
            }
            let is_generic = |n: &usize| {
                let templates = &functions[*n].templates;
                ty(n).is_some_and(|ty| templates.iter().any(|param| ty.base == Base::Named(param.name)))
            };
            if is_enum && viable.iter().any(is_generic) {
                let what = "a template argument that is deduced from an enum";
                return self.unsupported(span, what, "cast the argument to an integer");
            }
        }
        Ok(())
    }

    /// Rejects an enumerator whose value its type does not hold. Only enumerators have a type
    /// without a span of its own.
    pub(super) fn check_enumerator(&mut self, d: &Declarator, init: &'m Expr, scalar: Scalar) -> LowerResult {
        if d.ty.span != d.span || matches!(init.kind, ExprKind::Number { .. }) {
            return Ok(());
        }
        let tree = self.rvalue(init)?;
        let range = IntRange::of_type(scalar);
        match self.w.fold(&tree).map(|value| IntRange::exactly(value).low) {
            Some(value) if range.low <= value && value <= range.high => Ok(()),
            Some(value) => {
                let what = format!("{value}, the value of enumerator '{}',", self.text(d.name));
                self.unsupported(init.span, what, "name the type of the enum: 'enum Name : long long'")
            }
            None => self.fail(init.span, "this expression is not constant", "not known at compile time", ""),
        }
    }

    /// Rejects a number as the initial value of an enum.
    pub(super) fn check_enum_initializer(&mut self, d: &Declarator, init: &'m Expr) -> LowerResult {
        let is_number = match &init.kind {
            ExprKind::Number { .. } => true,
            ExprKind::Unary(Unary::Minus | Unary::Plus | Unary::Complement, _) => {
                self.module.enum_names.operators.is_empty()
            }
            ExprKind::Binary(op, ..) => *op != Binary::Comma && self.module.enum_names.operators.is_empty(),
            _ => false,
        };
        if !is_number || d.ty.pointers > 0 || !self.module.enum_names.is_enum(&d.ty) {
            return Ok(());
        }
        let what = format!("cannot initialize enum '{}' with a number", self.text(d.name));
        self.fail(init.span, what, "not an enumerator", "cast it: 'static_cast<E>(n)'")
    }

    /// Rejects an enum as a template argument or operand of a type trait.
    pub(super) fn check_not_enum(&mut self, ty: &TypeName) -> LowerResult {
        if !self.module.enum_names.is_enum(ty) {
            return Ok(());
        }
        self.unsupported(ty.span, "an enum as a template argument", "use its integer type")
    }
}
