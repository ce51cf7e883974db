//! Construction of structs, vectors and matrices, from braces or by type name.

use bornite_ir::{AlgebraOp, IntRange, Scalar, Type, Value};

use super::lvalue::CudaOperand;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Expr, ExprKind, TypeName};
use crate::cuda::types::CType;
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// `T(a, b)`: a conversion of one value, or a struct or vector of several.
    pub(super) fn construct_expr(
        &mut self,
        ty: &'m TypeName,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let to = match self.c_type(ty)? {
            CType::Value(to) => to,
            CType::Collective(collective) => {
                let storage = match args {
                    [storage] => match self.operand(storage)? {
                        CudaOperand::Pointer(pointer) => Some(pointer),
                        CudaOperand::Lvalue(_) => None,
                        _ => return self.unsupported(span, "this storage of a collective", ""),
                    },
                    _ => None,
                };
                return Ok(CudaOperand::Collective(collective, storage));
            }
            _ => return self.unsupported(span, "constructing a pointer like this", ""),
        };
        if let [list @ Expr { kind: ExprKind::Braces(_), .. }] = args {
            return Ok(CudaOperand::Tree(self.initializer(list, to)?));
        }
        if let [one] = args {
            let (mark, locals) = (self.w.b.mark(), self.locals);
            let first_field = self.declared_fields(to).first().map(|field| field.ty.pointers);
            if self.struct_of(to).is_some_and(|(item, _)| !item.has_constructor) && first_field == Some(1) {
                return Ok(CudaOperand::Tree(self.construct(args, to, span)?));
            }
            let tree = self.initial_value(one, to)?;
            if tree.scalar().is_some() && to.as_scalar().is_some() {
                return Ok(CudaOperand::Tree(self.explicit(tree, to, span)?));
            }
            if tree.ty == to {
                return Ok(CudaOperand::Tree(tree));
            }
            let operands = vec![CudaOperand::Tree(tree)];
            return match self.call_constructor(to, Some(operands), &[], span)? {
                Some(constructed) => Ok(CudaOperand::Tree(constructed)),
                None => {
                    // It is evaluated again, as a component.
                    self.w.rollback(&mark);
                    self.locals = locals;
                    Ok(CudaOperand::Tree(self.construct(args, to, span)?))
                }
            };
        }
        if args.is_empty() && to.as_scalar().is_some() {
            return Ok(CudaOperand::Tree(Tree::int(to.as_scalar().unwrap_or(Scalar::I32), 0)));
        }
        Ok(CudaOperand::Tree(self.construct_value(args, to, span)?))
    }

    /// Constructs a value by a constructor of its type, or else from its components.
    pub(super) fn construct_value(&mut self, args: &'m [Expr], ty: Type, span: SourceSpan) -> LowerResult<Tree> {
        match self.call_constructor(ty, None, args, span)? {
            Some(constructed) => Ok(constructed),
            None if args.is_empty() => {
                let value = self.default_value(ty, span)?;
                Ok(value.unwrap_or_else(|| self.zero(ty)))
            }
            None => self.construct(args, ty, span),
        }
    }

    /// Constructs a struct, vector or matrix from its components.
    pub(super) fn construct(&mut self, args: &'m [Expr], ty: Type, span: SourceSpan) -> LowerResult<Tree> {
        let parts: Vec<Type> = match ty {
            Type::Struct(id) => self.w.b.structs()[id.0 as usize].fields.iter().map(|field| field.ty).collect(),
            _ => ty.components(&[]).into_iter().map(Type::Scalar).collect(),
        };
        if args.iter().any(|arg| matches!(arg.kind, ExprKind::Designated(..))) {
            return self.construct_designated(args, ty, span);
        }
        // Rows of an array in a struct.
        if let Type::Matrix(scalar, rows, columns) = ty
            && args.iter().any(|arg| matches!(arg.kind, ExprKind::Braces(_)))
        {
            let mut trees = vec![];
            for value in self.flatten_list(args, &[rows as u64, columns as u64])? {
                trees.push(match value {
                    Some(arg) => self.list_element(arg, scalar.into())?,
                    None => Tree::int(scalar, 0),
                });
            }
            return Ok(Tree::of(Node::Algebra(AlgebraOp::Construct, 0, trees), ty));
        }
        // Inner braces may be omitted.
        if args.len() > parts.len() {
            let scalars = ty.components(self.w.b.structs());
            if args.len() > scalars.len() {
                let what = format!(
                    "too many values for '{}': found {}, expected {}",
                    self.type_name(ty),
                    args.len(),
                    parts.len()
                );
                return self.fail(span, what, "too many", "");
            }
            let mut rest = args.iter();
            return self.construct_flat(&mut rest, ty);
        }
        let mut trees: Vec<Tree> = vec![];
        for (n, part) in parts.iter().enumerate() {
            let default = self.declared_fields(ty).get(n).and_then(|field| field.init.as_ref());
            let value = match (args.get(n), default) {
                (Some(arg), _) => self.list_element(arg, *part)?,
                (None, Some(default)) => self.member_default(ty, default, *part, &mut trees)?,
                (None, None) => self.zero(*part),
            };
            trees.push(value);
        }
        if ty.element().is_some()
            && args.len() == parts.len()
            && let Some(whole) = Tree::vectorized(&trees, ty)
        {
            return Ok(whole);
        }
        Ok(Tree::of(Node::Algebra(AlgebraOp::Construct, 0, trees), ty))
    }

    /// `{.x = 1, .y = 2}`: fields that are not named have their default values.
    fn construct_designated(&mut self, args: &'m [Expr], ty: Type, span: SourceSpan) -> LowerResult<Tree> {
        let fields = self.declared_fields(ty);
        let mut values: Vec<Option<&'m Expr>> = vec![None; fields.len()];
        let mut next = 0;
        for arg in args {
            let ExprKind::Designated(field, value) = &arg.kind else {
                return self.fail(arg.span, "designated and other initializers are mixed", "expected '.field ='", "");
            };
            let at = fields.iter().position(|declared| declared.name == *field);
            match at.filter(|at| *at >= next) {
                Some(at) => (values[at], next) = (Some(&**value), at + 1),
                None => {
                    let what = format!("'{}' is not a later field of this struct", self.text(*field));
                    return self.fail(arg.span, what, "expected fields in order", "");
                }
            }
        }
        if fields.is_empty() {
            return self.unsupported(span, "a designated initializer of this type", "");
        }
        let mut trees: Vec<Tree> = vec![];
        for (n, (value, field)) in values.into_iter().zip(fields).enumerate() {
            let part = self.field_type(ty, n as u32);
            let value = match (value, &field.init) {
                (Some(value), _) => self.list_element(value, part)?,
                (None, Some(default)) => self.member_default(ty, default, part, &mut trees)?,
                (None, None) => self.zero(part),
            };
            trees.push(value);
        }
        Ok(Tree::of(Node::Algebra(AlgebraOp::Construct, 0, trees), ty))
    }

    pub(super) fn construct_flat(&mut self, args: &mut std::slice::Iter<'m, Expr>, ty: Type) -> LowerResult<Tree> {
        if ty.as_scalar().is_some() || self.pointer_slot(ty).is_some() {
            return match args.next() {
                Some(arg) => self.list_element(arg, ty),
                None => Ok(self.zero(ty)),
            };
        }
        let parts: Vec<Type> = match ty {
            Type::Struct(id) => self.w.b.structs()[id.0 as usize].fields.iter().map(|field| field.ty).collect(),
            _ => ty.components(&[]).into_iter().map(Type::Scalar).collect(),
        };
        let mut trees = vec![];
        for part in parts {
            trees.push(self.construct_flat(args, part)?);
        }
        Ok(Tree::of(Node::Algebra(AlgebraOp::Construct, 0, trees), ty))
    }

    pub(super) fn zero(&self, ty: Type) -> Tree {
        match ty {
            Type::Scalar(scalar) => Tree::int(scalar, 0),
            _ if self.pointer_slot(ty).is_some() => self.null_pointer(ty),
            Type::Struct(id) => {
                let fields = self.w.b.structs()[id.0 as usize].fields.iter().map(|field| self.zero(field.ty));
                Tree::of(Node::Algebra(AlgebraOp::Construct, 0, fields.collect()), ty)
            }
            _ => {
                let one = Tree::int(ty.element().unwrap_or(Scalar::I32), 0);
                Tree::of(Node::Algebra(AlgebraOp::Construct, 0, vec![one]), ty)
            }
        }
    }

    /// Lowers an initializer of a variable or field of type `ty`.
    pub(super) fn initializer(&mut self, expr: &'m Expr, ty: Type) -> LowerResult<Tree> {
        self.initializer_as(expr, ty, false)
    }

    /// Lowers an initializer in parentheses, which may call an explicit constructor.
    pub(super) fn direct_initializer(&mut self, expr: &'m Expr, ty: Type) -> LowerResult<Tree> {
        if matches!(expr.kind, ExprKind::Braces(_)) {
            return self.initializer(expr, ty);
        }
        if let Some(slot) = self.pointer_slot(ty) {
            return self.pointer_initializer(expr, slot);
        }
        let tree = self.initial_value(expr, ty)?;
        self.convert_or_construct(tree, ty, expr.span)
    }

    /// Value of an initializer; an object, if a constructor takes the pointer that it is.
    fn initial_value(&mut self, expr: &'m Expr, ty: Type) -> LowerResult<Tree> {
        let operand = self.operand(expr)?;
        let is_value = matches!(operand, CudaOperand::Tree(_) | CudaOperand::Lvalue(_));
        match ty {
            Type::Struct(_) if !is_value => match self.call_constructor(ty, Some(vec![operand]), &[], expr.span)? {
                Some(constructed) => Ok(constructed),
                None => self.fail(expr.span, "expected an object, found a pointer", "a pointer", ""),
            },
            _ => self.value_of(operand, expr.span),
        }
    }

    /// Lowers an element of a braced list, where C++ forbids narrowing.
    pub(super) fn list_element(&mut self, expr: &'m Expr, ty: Type) -> LowerResult<Tree> {
        self.initializer_as(expr, ty, true)
    }

    fn initializer_as(&mut self, expr: &'m Expr, ty: Type, listed: bool) -> LowerResult<Tree> {
        if let Some(slot) = self.pointer_slot(ty) {
            return self.pointer_initializer(expr, slot);
        }
        if let ExprKind::Braces(all) = &expr.kind {
            return match (ty.as_scalar(), &all[..]) {
                (Some(_), [one]) => self.list_element(one, ty),
                (Some(_), []) => Ok(self.zero(ty)),
                (Some(_), _) => self.fail(expr.span, "too many values for a scalar", "too many", ""),
                _ => self.construct_value(all, ty, expr.span),
            };
        }
        if let ExprKind::Construct(_, args) = &expr.kind
            && args.len() > 1
            && ty.as_scalar().is_none()
        {
            return self.construct_value(args, ty, expr.span);
        }
        let tree = match ty {
            Type::Struct(_) if self.has_explicit_constructor(ty) => self.rvalue(expr)?,
            _ => self.initial_value(expr, ty)?,
        };
        if listed && !self.request.round_trip && self.narrows(&tree, ty) {
            let (from, to) = (self.type_name(tree.ty), self.type_name(ty));
            let what = match self.w.fold(&tree) {
                Some(value) => format!("{} of type '{from}' cannot be narrowed to '{to}' in braces", shown(value)),
                None => format!("'{from}' cannot be narrowed to '{to}' in braces"),
            };
            return self.fail(expr.span, what, "narrowing conversion", format!("cast it: '({to})x'"));
        }
        self.convert(tree, ty, expr.span)
    }

    /// Returns true if a conversion may change the value, which C++ forbids in braces. For a
    /// constant its value decides.
    fn narrows(&self, tree: &Tree, ty: Type) -> bool {
        let (Some(from), Some(to)) = (tree.scalar(), ty.as_scalar()) else { return false };
        // In CUDA, 16-bit floats are classes with constructors.
        let class = |scalar| matches!(scalar, Scalar::F16 | Scalar::BF16);
        if from == to || class(from) || class(to) {
            return false;
        }
        let known = self.w.fold(tree);
        let range = |scalar| if scalar == Scalar::Bool { IntRange::up_to(1) } else { IntRange::of_type(scalar) };
        let fits = |of: IntRange| range(to).low <= of.low && of.high <= range(to).high;
        match (from.is_float(), to.is_float()) {
            (true, false) => true,
            (true, true) => {
                to.bytes() < from.bytes() && known.is_none_or(|value| (value.as_f64() as f32).is_infinite())
            }
            (false, true) => known.is_none_or(|value| {
                let exact = IntRange::exactly(value).low;
                Value::from_f64(to, exact as f64).as_f64() as i128 != exact
            }),
            (false, false) => !fits(range(from)) && known.is_none_or(|value| !fits(IntRange::exactly(value))),
        }
    }
}

/// A constant as shown in a message.
fn shown(value: Value) -> String {
    if value.scalar().is_float() { value.as_f64().to_string() } else { IntRange::exactly(value).low.to_string() }
}
