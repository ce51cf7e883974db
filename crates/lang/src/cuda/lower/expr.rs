//! Expressions: names, members, operators, conversions, choices, assignments.

use bornite_ir::{Algebra, Axis, Builtin, LocalId, Op, Scalar, Stmt, Type, Value};

use super::place::{Operand, Place, Pointer, Root, Step};
use super::{Binding, Done, Failed, Lower};
use crate::Span;
use crate::cuda::ast::{Base, Binary, Expr, ExprKind, TypeName, Unary};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, common, promoted};
use crate::lower::{Node, Tree};

/// Expressions that are looked at for one kernel, those of each turn of a loop that is written out.
const MAX_STEPS: usize = 1 << 20;

impl<'m> Lower<'m> {
    /// The value of an expression.
    pub(super) fn rvalue(&mut self, expr: &'m Expr) -> Done<Tree> {
        let operand = self.operand(expr)?;
        self.value_of(operand, expr.span)
    }

    /// The tree with its value, by a statement if it needs one.
    pub(super) fn settle(&mut self, tree: Tree) -> Tree {
        match self.w.fold(&tree) {
            Some(value) => Tree::constant(value),
            None => Tree::done(self.w.emit(&tree), tree.ty),
        }
    }

    /// An expression as a bool.
    pub(super) fn condition(&mut self, expr: &'m Expr) -> Done<Tree> {
        let tree = self.rvalue(expr)?;
        self.convert(tree, Scalar::Bool.into(), expr.span)
    }

    pub(super) fn operand(&mut self, expr: &'m Expr) -> Done<Operand> {
        self.steps += 1;
        if self.w.is_full() || self.steps > MAX_STEPS {
            return self.fail(
                expr.span,
                "this kernel is too large once it is written out",
                "",
                "use loops, not macros",
            );
        }
        match &expr.kind {
            ExprKind::Number { value, hex } => Ok(Operand::Tree(Tree { hex: *hex, ..Tree::constant(*value) })),
            ExprKind::Text => self.refuse(expr.span, "text outside 'printf'", ""),
            ExprKind::Name(name) => self.name(*name, expr.span),
            ExprKind::Unary(op, inner) => self.unary(*op, inner, expr.span),
            ExprKind::Binary(op, a, b) => self.binary_expr(*op, a, b, expr.span),
            ExprKind::Assign(op, place, value) => self.assignment(*op, place, value, expr.span),
            ExprKind::Step { by, before, place } => self.step(*by, *before, place, expr.span),
            ExprKind::Choose(condition, a, b) => self.choose(condition, a, b, expr.span),
            ExprKind::Call { callee, templates, args } => self.call(*callee, templates, args, expr.span),
            ExprKind::Index(base, index) => {
                if let Some(part) = self.numbered_part(expr)? {
                    return Ok(part);
                }
                let base = self.operand(base)?;
                self.indexed(base, index, expr.span)
            }
            ExprKind::Member(whole, member) => self.member(whole, *member, expr.span),
            ExprKind::Arrow(pointer, member) => {
                let pointer = self.operand(pointer)?;
                let place = self.pointee(pointer, expr.span)?;
                self.part_of(place, *member, expr.span)
            }
            ExprKind::Cast(ty, inner) => self.cast(ty, inner, expr.span),
            ExprKind::Construct(ty, args) => self.constructed(ty, args, expr.span),
            ExprKind::Braces(_) => self.refuse(expr.span, "a list in braces here", "name the type: 'float4{…}'"),
            ExprKind::SizeOf(ty) => {
                let bytes = match self.c_type(ty)? {
                    CType::Value(ty) => ty.bytes(self.w.b.structs()),
                    CType::Pointer(_) => 8,
                    CType::Void => 1,
                };
                Ok(Operand::Tree(Tree::int(Scalar::U64, bytes as i64)))
            }
            ExprKind::SizeOfValue(value) => {
                let (mark, locals) = (self.w.b.mark(), self.locals);
                let operand = self.operand(value);
                self.w.rollback(&mark);
                self.locals = locals;
                let bytes = match operand? {
                    Operand::Place(place) => place.ty.bytes(self.w.b.structs()),
                    Operand::Tree(tree) => tree.ty.bytes(self.w.b.structs()),
                    Operand::Array(_, scalar, sizes, _) => sizes.iter().product::<u64>() as usize * scalar.bytes(),
                    _ => return self.refuse(expr.span, "'sizeof' of this", "name a type"),
                };
                Ok(Operand::Tree(Tree::int(Scalar::U64, bytes as i64)))
            }
        }
    }

    fn name(&mut self, name: Symbol, span: Span) -> Done<Operand> {
        let binding = match self.lookup(name) {
            Some(binding) => Some(binding),
            None => self.global(name, span)?,
        };
        Ok(match binding {
            Some(Binding::Value(tree)) => Operand::Tree(tree),
            Some(Binding::Local(local, ty)) => Operand::Place(Place { root: Root::Local(local, ty), path: vec![], ty }),
            Some(Binding::Array(local, scalar, sizes)) => Operand::Array(local, scalar, sizes, vec![]),
            Some(Binding::Table(values, sizes)) => Operand::Table(values, sizes, vec![]),
            Some(Binding::Pointer(pointer)) if pointer.single => return self.element(pointer),
            Some(Binding::Pointer(pointer)) => Operand::Pointer(pointer),
            Some(Binding::Moving(pointer, local)) => {
                let at = self.w.b.read(local);
                Operand::Pointer(Pointer { offset: Some(Tree::done(at, self.index)), ..pointer })
            }
            Some(Binding::Place(place)) => Operand::Place(place),
            Some(Binding::Address(place)) => Operand::Address(place),
            Some(Binding::Poison) => return Err(Failed),
            Some(Binding::Type(_)) => return self.fail(span, "a type where a value is expected", "", ""),
            None => return self.constant_name(name, span),
        })
    }

    /// Names that CUDA and the library give values.
    fn constant_name(&mut self, name: Symbol, span: Span) -> Done<Operand> {
        let float = |value: f64| Ok(Operand::Tree(Tree::constant(Value::from_f64(Scalar::F32, value))));
        let double = |value: f64| Ok(Operand::Tree(Tree::constant(Value::from_f64(Scalar::F64, value))));
        let int = |scalar, value| Ok(Operand::Tree(Tree::int(scalar, value)));
        match self.text(name) {
            "warpSize" => int(Scalar::I32, 32),
            "INFINITY" | "HUGE_VALF" | "CUDART_INF_F" => float(f64::INFINITY),
            "NAN" | "CUDART_NAN_F" => float(f64::NAN),
            "FLT_MAX" => float(f32::MAX as f64),
            "FLT_MIN" => float(f32::MIN_POSITIVE as f64),
            "FLT_EPSILON" => float(f32::EPSILON as f64),
            "DBL_MAX" => double(f64::MAX),
            "DBL_MIN" => double(f64::MIN_POSITIVE),
            "DBL_EPSILON" => double(f64::EPSILON),
            "M_PI" => double(std::f64::consts::PI),
            "M_E" => double(std::f64::consts::E),
            "M_SQRT2" => double(std::f64::consts::SQRT_2),
            "M_SQRT1_2" => double(std::f64::consts::FRAC_1_SQRT_2),
            "M_LN2" => double(std::f64::consts::LN_2),
            "CUDART_PI_F" => float(std::f32::consts::PI as f64),
            "INT_MAX" => int(Scalar::I32, i32::MAX as i64),
            "INT_MIN" => int(Scalar::I32, i32::MIN as i64),
            "UINT_MAX" => int(Scalar::U32, u32::MAX as i64),
            "LLONG_MAX" => int(Scalar::I64, i64::MAX),
            "LLONG_MIN" => int(Scalar::I64, i64::MIN),
            "ULLONG_MAX" => int(Scalar::U64, -1),
            "CHAR_BIT" => int(Scalar::I32, 8),
            text @ ("threadIdx" | "blockIdx" | "blockDim" | "gridDim") => {
                self.fail(span, format!("'{text}' without an axis"), "expected '.x', '.y' or '.z'", "")
            }
            text => {
                let what = format!("'{text}' is not declared");
                let hint = self.similar(text).map_or_else(String::new, |other| format!("there is '{other}'"));
                self.fail(span, what, "unknown name", hint)
            }
        }
    }

    /// A name in sight that differs in a letter or two.
    fn similar(&self, text: &str) -> Option<&'m str> {
        let names = self.scope[self.base..].iter().map(|(name, _)| self.text(*name));
        names
            .filter(|name| *name != text && text.len() > 2 && distance(name, text) <= 1 + text.len() / 4)
            .min_by_key(|name| distance(name, text))
    }

    /// What a pointer points to.
    pub(super) fn pointee(&mut self, pointer: Operand, span: Span) -> Done<Place> {
        match pointer {
            Operand::Pointer(pointer) => match self.element(pointer)? {
                Operand::Place(place) => Ok(place),
                _ => Err(Failed),
            },
            Operand::Address(place) => Ok(place),
            _ => self.fail(span, "this is not a pointer", "expected a pointer", ""),
        }
    }

    fn member(&mut self, whole: &'m Expr, member: Symbol, span: Span) -> Done<Operand> {
        if let ExprKind::Name(name) = whole.kind
            && self.lookup(name).is_none()
            && let text @ ("threadIdx" | "blockIdx" | "blockDim" | "gridDim") = self.text(name)
        {
            let axis = match self.text(member) {
                "x" => Axis::X,
                "y" => Axis::Y,
                "z" => Axis::Z,
                _ => return self.fail(span, format!("'{text}' has x, y and z"), "no such axis", ""),
            };
            let builtin = match text {
                "threadIdx" => Builtin::Thread(axis),
                "blockIdx" => Builtin::Block(axis),
                "blockDim" => Builtin::BlockSize(axis),
                _ => Builtin::GridSize(axis),
            };
            if self.code != super::Code::Kernel {
                return self.refuse(span, format!("'{text}' in this function"), "");
            }
            let place = Tree::of(Node::Builtin(builtin), self.index);
            // The size of a launch is known.
            let size = match builtin {
                Builtin::BlockSize(axis) => Some(self.request.block[axis as usize]),
                Builtin::GridSize(axis) => Some(self.request.grid[axis as usize]),
                _ => None,
            };
            let known = size.filter(|_| !self.request.printed).map(|n| Tree::int(self.index, n as i64));
            return Ok(Operand::Tree(match known {
                Some(size) => self.convert(size, Scalar::U32.into(), span)?,
                None => place.cast(Scalar::U32),
            }));
        }
        match self.operand(whole)? {
            Operand::Place(place) => self.part_of(place, member, span),
            Operand::Tree(tree) => {
                self.part_of(Place { ty: tree.ty, root: Root::Value(tree), path: vec![] }, member, span)
            }
            Operand::Pointer(_) | Operand::Address(_) => {
                self.fail(span, "a pointer has no members", "a pointer", "write '->'")
            }
            _ => self.fail(span, "this has no members", "", ""),
        }
    }

    /// A field or component of a place.
    fn part_of(&mut self, place: Place, member: Symbol, span: Span) -> Done<Operand> {
        let text = self.text(member);
        let found = match place.ty {
            Type::Struct(_) => self.field(place.ty, member),
            Type::Vector(scalar, n) if n <= 4 => {
                let at = ["x", "y", "z", "w"].iter().position(|name| *name == text);
                at.filter(|at| *at < n as usize).map(|at| (at as u32, scalar.into()))
            }
            _ => None,
        };
        let Some((at, ty)) = found else {
            let what = format!("'{}' has no member '{text}'", self.type_name(place.ty));
            return self.fail(span, what, "no such member", "");
        };
        let mut path = place.path;
        path.push(Step::Part(at));
        Ok(Operand::Place(Place { root: place.root, path, ty }))
    }

    /// `a.v[3]` and `a.m[1][0]`, as our printer writes components of large vectors and of matrices.
    fn numbered_part(&mut self, expr: &'m Expr) -> Done<Option<Operand>> {
        let number = |expr: &Expr| match expr.kind {
            ExprKind::Number { value, .. } => Some(value.as_i64() as usize),
            _ => None,
        };
        let ExprKind::Index(inner, last) = &expr.kind else { return Ok(None) };
        let (whole, row, column) = match &inner.kind {
            ExprKind::Member(whole, member) if self.text(*member) == "v" => (whole, None, number(last)),
            ExprKind::Index(deeper, row) => match &deeper.kind {
                ExprKind::Member(whole, member) if self.text(*member) == "m" => (whole, number(row), number(last)),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Some(column) = column else { return Ok(None) };
        if !self.request.printed {
            return Ok(None);
        }
        let place = match self.operand(whole)? {
            Operand::Place(place) => place,
            Operand::Tree(tree) => Place { ty: tree.ty, root: Root::Value(tree), path: vec![] },
            _ => return Ok(None),
        };
        let (at, scalar) = match (place.ty, row) {
            (Type::Vector(scalar, n), None) if n > 4 => (column, scalar),
            (Type::Matrix(scalar, _, columns), Some(row)) => (row * columns as usize + column, scalar),
            _ => return self.fail(expr.span, "this has no such component", "", ""),
        };
        if at >= place.ty.count(&[]) {
            return self.fail(expr.span, "this has no such component", "", "");
        }
        let mut path = place.path;
        path.push(Step::Part(at as u32));
        Ok(Some(Operand::Place(Place { root: place.root, path, ty: scalar.into() })))
    }

    fn unary(&mut self, op: Unary, inner: &'m Expr, span: Span) -> Done<Operand> {
        match op {
            Unary::Address => {
                return match self.operand(inner)? {
                    Operand::Place(Place { root: Root::Element { view, mut at, width, element }, path, .. })
                        if path.is_empty() =>
                    {
                        let rank = at.len();
                        let last = at.pop().map(|id| Tree::done(id, self.index));
                        let pointer = Pointer::whole(view, element, rank, false, &[]);
                        Ok(Operand::Pointer(Pointer { prefix: at, offset: last, rank, width, ..pointer }))
                    }
                    Operand::Place(place) => Ok(Operand::Address(place)),
                    pointer @ Operand::Pointer(_) => Ok(pointer),
                    _ => self.fail(span, "this has no address", "not a variable or element", ""),
                };
            }
            Unary::Deref => {
                let pointer = self.operand(inner)?;
                return Ok(Operand::Place(self.pointee(pointer, span)?));
            }
            _ => {}
        }
        let tree = self.rvalue(inner)?;
        let Some(scalar) = tree.scalar() else {
            let what = format!("no such operator on '{}'", self.type_name(tree.ty));
            return self.fail(span, what, "expected a number", "write it by components");
        };
        Ok(Operand::Tree(match op {
            Unary::Not => {
                let condition = self.convert(tree, Scalar::Bool.into(), span)?;
                Tree::op(Op::Not, vec![condition])
            }
            Unary::Plus => tree.cast(promoted(scalar)),
            Unary::Minus => {
                let tree = self.widened(tree, promoted(scalar));
                Tree::op(Op::Neg, vec![tree])
            }
            _ if scalar.is_float() => return self.fail(span, "'~' is for integers", "a float", ""),
            _ => Tree::op(Op::Not, vec![self.widened(tree, promoted(scalar))]),
        }))
    }

    /// An implicit conversion of a number: of a literal, another literal.
    pub(super) fn widened(&mut self, tree: Tree, to: Scalar) -> Tree {
        match tree.known().and_then(|value| crate::lower::converted(to, value)) {
            Some(value) if tree.scalar() != Some(to) => Tree::constant(value),
            _ => tree.cast(to),
        }
    }

    fn binary_expr(&mut self, op: Binary, a: &'m Expr, b: &'m Expr, span: Span) -> Done<Operand> {
        match op {
            Binary::Comma => {
                self.effect(a)?;
                return self.operand(b);
            }
            Binary::Both | Binary::Either => return self.both(op, a, b),
            _ => {}
        }
        let left = self.operand(a)?;
        if let Operand::Pointer(pointer) = left {
            return self.pointer_sum(op, pointer, b, span);
        }
        let left = self.value_of(left, a.span)?;
        let right = self.operand(b)?;
        if let (Operand::Pointer(pointer), Binary::Add) = (&right, op) {
            let by = self.index(left, a.span)?;
            return Ok(Operand::Pointer(self.moved(pointer.clone(), by)));
        }
        let right = self.value_of(right, b.span)?;
        // `0 - x` is how our printer negates what wraps; `x != 0` how it makes a bool.
        if let ExprKind::Number { value, .. } = a.kind
            && (op, value) == (Binary::Sub, Value::int(Scalar::I32, 0))
            && right.scalar().is_some_and(|scalar| scalar.is_int() && scalar.bytes() >= 4)
        {
            return Ok(Operand::Tree(Tree::op(Op::Neg, vec![right])));
        }
        if let ExprKind::Number { value, hex: false } = b.kind
            && (op, value) == (Binary::Ne, Value::int(Scalar::I32, 0))
            && left.scalar().is_some_and(|scalar| scalar != Scalar::Bool)
        {
            return Ok(Operand::Tree(left.cast(Scalar::Bool)));
        }
        Ok(Operand::Tree(self.binary(op, left, right, span)?))
    }

    /// `&&` and `||`: the second operand is evaluated only where it counts, unless that makes no difference.
    fn both(&mut self, op: Binary, a: &'m Expr, b: &'m Expr) -> Done<Operand> {
        let first = self.condition(a)?;
        let row = if op == Binary::Both { Op::And } else { Op::Or };
        if let Some(known) = self.w.fold(&first) {
            let decided = (known.bits() != 0) == (op == Binary::Either);
            return Ok(Operand::Tree(if decided { first } else { self.condition(b)? }));
        }
        if self.is_plain(b) {
            let second = self.condition(b)?;
            return Ok(Operand::Tree(Tree::op(row, vec![first, second])));
        }
        let first = self.settle(first);
        let local = self.new_local("both", Scalar::Bool.into(), &[Value::int(Scalar::Bool, 0)]);
        self.assign(local, &first);
        let asked = if op == Binary::Both { first } else { Tree::op(Op::Not, vec![first]) };
        let condition = self.w.emit(&asked);
        self.w.b.open_block();
        let second = self.condition(b);
        if let Ok(second) = &second {
            self.assign(local, second);
        }
        let then = self.w.b.close_block();
        self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
        second?;
        Ok(Operand::Tree(Tree::done(self.w.b.read(local), Scalar::Bool)))
    }

    fn pointer_sum(&mut self, op: Binary, pointer: Pointer, b: &'m Expr, span: Span) -> Done<Operand> {
        let right = self.operand(b)?;
        if let Operand::Pointer(other) = right {
            if other.view != pointer.view || other.prefix != pointer.prefix {
                return self.refuse(span, "an operation on pointers into two arrays", "");
            }
            let zero = || Tree::int(self.index, 0);
            let (a, b) = (pointer.offset.unwrap_or_else(zero), other.offset.unwrap_or_else(zero));
            return Ok(Operand::Tree(match op {
                Binary::Sub => Tree::op(Op::Sub, vec![a, b]).cast(Scalar::I64),
                _ => self.binary(op, a, b, span)?,
            }));
        }
        let by = self.value_of(right, b.span)?;
        if !matches!(op, Binary::Add | Binary::Sub) {
            let hint = "add an integer to it, or write what it points to: '*p', 'p[i]'";
            return self.fail(span, "no such operator on a pointer", "a pointer", hint);
        }
        let by = self.index(by, b.span)?;
        match op {
            Binary::Add => Ok(Operand::Pointer(self.moved(pointer, by))),
            _ => {
                let back = Tree::op(Op::Neg, vec![by]);
                Ok(Operand::Pointer(self.moved(pointer, back)))
            }
        }
    }

    /// An operator on two numbers, with the conversions of C++.
    pub(super) fn binary(&mut self, op: Binary, a: Tree, b: Tree, span: Span) -> Done<Tree> {
        let (Some(left), Some(right)) = (a.scalar(), b.scalar()) else {
            let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
            let what = format!("no such operator on '{a}' and '{b}'");
            return self.fail(
                span,
                what,
                "expected numbers",
                "CUDA has no operators on vectors: write it by components",
            );
        };
        let row = match op {
            Binary::Add => Op::Add,
            Binary::Sub => Op::Sub,
            Binary::Mul => Op::Mul,
            Binary::Div => Op::Div,
            Binary::Rem => Op::Rem,
            Binary::And => Op::And,
            Binary::Or => Op::Or,
            Binary::Xor => Op::Xor,
            Binary::Shl => Op::Shl,
            Binary::Shr => Op::Shr,
            Binary::Eq => Op::Eq,
            Binary::Ne => Op::Ne,
            Binary::Lt => Op::Lt,
            Binary::Le => Op::Le,
            Binary::Gt => Op::Gt,
            Binary::Ge => Op::Ge,
            Binary::Both | Binary::Either | Binary::Comma => return Err(Failed),
        };
        let integral = matches!(row, Op::Rem | Op::And | Op::Or | Op::Xor | Op::Shl | Op::Shr);
        if integral && (left.is_float() || right.is_float()) {
            let hint = if row == Op::Rem { "use fmodf or fmod" } else { "cast to an integer, or see __float_as_int" };
            return self.fail(span, "this operator is for integers", "a float", hint);
        }
        if matches!(row, Op::Shl | Op::Shr) {
            let ty = promoted(left);
            let (a, b) = (self.widened(a, ty), self.widened(b, ty));
            return Ok(Tree::op(row, vec![a, b]));
        }
        if self.request.printed
            && left == Scalar::Bool
            && right == Scalar::Bool
            && matches!(row, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge)
        {
            return Ok(Tree::of(Node::Op(row, vec![a, b]), Scalar::Bool));
        }
        let ty = common(left, right);
        let (a, b) = (self.half_or(a, ty), self.half_or(b, ty));
        Ok(Tree::op(row, vec![a, b]))
    }

    /// A number as another type; bits of a 16-bit float stay what they are.
    fn half_or(&mut self, tree: Tree, to: Scalar) -> Tree {
        if let (true, Some(value), Scalar::F16 | Scalar::BF16) = (tree.hex && self.request.printed, tree.known(), to) {
            return Tree::constant(Value::from_bits(to, value.bits()));
        }
        self.widened(tree, to)
    }

    /// An implicit conversion.
    pub(super) fn convert(&mut self, tree: Tree, to: Type, span: Span) -> Done<Tree> {
        if tree.ty == to {
            return Ok(tree);
        }
        let (Some(_), Some(target)) = (tree.scalar(), to.as_scalar()) else {
            let (found, wanted) = (self.type_name(tree.ty), self.type_name(to));
            let what = format!("'{found}' is not '{wanted}'");
            return self.fail(span, what, format!("expected '{wanted}'"), "");
        };
        if matches!(target, Scalar::F16 | Scalar::BF16)
            && let Node::Op(Op::Select, args) = &tree.node
            && args[1].hex
            && args[2].hex
        {
            let (a, b) = (self.half_or(args[1].clone(), target), self.half_or(args[2].clone(), target));
            return Ok(Tree::select(args[0].clone(), a, b));
        }
        Ok(self.half_or(tree, target))
    }

    fn cast(&mut self, ty: &'m TypeName, inner: &'m Expr, span: Span) -> Done<Operand> {
        if ty.base == Base::Void && ty.pointers == 0 {
            self.effect(inner)?;
            return Ok(Operand::Void);
        }
        let to = self.c_type(ty)?;
        let operand = self.operand(inner)?;
        match (to, operand) {
            (CType::Pointer(to), Operand::Pointer(pointer)) => self.seen_as(pointer, to, span),
            (CType::Pointer(Type::Scalar(to)), Operand::Address(place))
                if place.ty.as_scalar().is_some_and(|from| same_width(from, to)) =>
            {
                Ok(Operand::Address(place))
            }
            (CType::Value(to), operand) => {
                let tree = self.value_of(operand, inner.span)?;
                Ok(Operand::Tree(self.explicit(tree, to, span)?))
            }
            _ => self.refuse(span, "a cast to or from a pointer", ""),
        }
    }

    /// An explicit conversion: of a literal, the conversion itself.
    fn explicit(&mut self, tree: Tree, to: Type, span: Span) -> Done<Tree> {
        let half = |scalar: Scalar| matches!(scalar, Scalar::F16 | Scalar::BF16);
        match (tree.scalar(), to.as_scalar()) {
            (Some(from), Some(to))
                if self.request.printed
                    && from != to
                    && from.bytes() == 2
                    && to.bytes() == 2
                    && (half(from) || half(to)) =>
            {
                Ok(tree.bitcast(to))
            }
            (Some(_), Some(to)) if tree.hex && half(to) => Ok(self.half_or(tree, to)),
            (Some(_), Some(to)) => Ok(tree.cast(to)),
            _ => self.convert(tree, to, span),
        }
    }

    /// A pointer to scalars seen as one to vectors of them, or back.
    fn seen_as(&mut self, pointer: Pointer, to: Type, span: Span) -> Done<Operand> {
        let scalar = pointer.ty.element();
        match (pointer.ty, to) {
            (from, to) if from == to => Ok(Operand::Pointer(pointer)),
            (Type::Scalar(from), Type::Vector(scalar, n))
                if from == scalar && matches!(n, 2 | 4) && pointer.dims.is_none() =>
            {
                Ok(Operand::Pointer(Pointer { ty: to, width: n, ..pointer }))
            }
            (Type::Vector(..), Type::Scalar(to)) if pointer.width > 1 && scalar == Some(to) => {
                Ok(Operand::Pointer(Pointer { ty: to.into(), width: 1, ..pointer }))
            }
            // Atomics of CUDA take unsigned words; the update is that of the element's own type.
            (Type::Scalar(from), Type::Scalar(to)) if same_width(from, to) => Ok(Operand::Pointer(pointer)),
            _ => {
                let (from, to) = (self.type_name(pointer.ty), self.type_name(to));
                let what = format!("a pointer to '{from}' seen as one to '{to}'");
                self.refuse(span, what, "scalars can be seen as vectors of 2 or 4 of them")
            }
        }
    }

    fn choose(&mut self, condition: &'m Expr, a: &'m Expr, b: &'m Expr, span: Span) -> Done<Operand> {
        let condition = self.condition(condition)?;
        if let Some(known) = self.w.fold(&condition).filter(|_| !self.request.printed) {
            let (taken, other) = if known.bits() != 0 { (a, b) } else { (b, a) };
            let ty = self.type_of(other)?;
            let tree = self.rvalue(taken)?;
            return Ok(Operand::Tree(match (tree.scalar(), ty.as_scalar()) {
                (Some(left), Some(right)) if left != right => self.widened(tree, common(left, right)),
                _ => tree,
            }));
        }
        if self.request.printed || self.is_plain(a) && self.is_plain(b) {
            let (a, b) = (self.rvalue(a)?, self.rvalue(b)?);
            if a.ty.element().is_some() && b.ty.element().is_some() {
                let (a, b) = self.met(a, b, span)?;
                return Ok(Operand::Tree(Tree::select(condition, a, b)));
            }
            let chosen = self.branched(condition, |_| Ok(a), |_| Ok(b), span)?;
            return Ok(Operand::Tree(chosen));
        }
        let chosen = self.branched(condition, |l| l.rvalue(a), |l| l.rvalue(b), span)?;
        Ok(Operand::Tree(chosen))
    }

    /// The type of an expression that is not evaluated.
    fn type_of(&mut self, expr: &'m Expr) -> Done<Type> {
        let (mark, locals) = (self.w.b.mark(), self.locals);
        let ty = self.rvalue(expr).map(|tree| tree.ty);
        self.w.rollback(&mark);
        self.locals = locals;
        ty
    }

    /// Two values in the type in which C++ chooses between them.
    fn met(&mut self, a: Tree, b: Tree, span: Span) -> Done<(Tree, Tree)> {
        match (a.scalar(), b.scalar()) {
            (Some(left), Some(right)) if left != right => {
                let ty = common(left, right);
                Ok((self.half_or(a, ty), self.half_or(b, ty)))
            }
            (Some(_), Some(_)) => Ok((a, b)),
            _ if a.ty == b.ty => Ok((a, b)),
            _ => {
                let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
                self.fail(span, format!("a choice between '{a}' and '{b}'"), "expected one type", "")
            }
        }
    }

    /// A choice of which only one side is evaluated.
    fn branched(
        &mut self,
        condition: Tree,
        a: impl FnOnce(&mut Self) -> Done<Tree>,
        b: impl FnOnce(&mut Self) -> Done<Tree>,
        span: Span,
    ) -> Done<Tree> {
        let condition = self.settle(condition);
        let asked = self.w.emit(&condition);
        self.w.b.open_block();
        let first = a(self).map(|tree| self.kept(tree, None));
        let then = self.w.b.close_block();
        self.w.b.open_block();
        let same = first.as_ref().ok().copied();
        let second = b(self).map(|tree| self.kept(tree, same));
        let otherwise = self.w.b.close_block();
        let ((a, left), (b, right)) = (first?, second?);
        self.w.stmt(Stmt::If { condition: asked, then, otherwise });
        let value = Tree::done(self.w.b.read(a), left);
        if a == b {
            return Ok(value);
        }
        let other = Tree::done(self.w.b.read(b), right);
        let (a, b) = self.met(value, other, span)?;
        Ok(Tree::select(condition, a, b))
    }

    /// A value kept in a variable: the given one, if it is of its type.
    fn kept(&mut self, tree: Tree, given: Option<(LocalId, Type)>) -> (LocalId, Type) {
        let tree = self.settle(tree);
        let (local, ty) = match given.filter(|(_, ty)| *ty == tree.ty) {
            Some(given) => given,
            None => {
                let zeros = self.zeros(tree.ty);
                (self.new_local("chosen", tree.ty, &zeros), tree.ty)
            }
        };
        self.assign(local, &tree);
        (local, ty)
    }

    /// An expression for what it does.
    pub(super) fn effect(&mut self, expr: &'m Expr) -> Done {
        match self.operand(expr)? {
            // An update whose old value nobody asks for is still one.
            Operand::Tree(tree) if !matches!(tree.node, Node::Const(_) | Node::Done(_) | Node::Builtin(_)) => {
                self.written(&tree, expr.span)?;
                self.w.emit(&tree);
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses what the IR cannot say: an atomic on one component.
    pub(super) fn written(&mut self, tree: &Tree, span: Span) -> Done {
        match &tree.node {
            Node::Atomic { part: Some(_), .. } => {
                self.refuse(span, "an atomic on a field or component", "keep the number in an array of its own")
            }
            Node::Cast(_, inner) | Node::Bitcast(_, inner) => self.written(inner, span),
            Node::Op(_, args) => args.iter().try_for_each(|arg| self.written(arg, span)),
            _ => Ok(()),
        }
    }

    /// A place that can be assigned.
    pub(super) fn place(&mut self, expr: &'m Expr) -> Done<Place> {
        match self.operand(expr)? {
            Operand::Place(place) => Ok(place),
            Operand::Tree(_) => {
                let what = "this cannot be assigned";
                self.fail(expr.span, what, "a constant, or a value that is nowhere", "")
            }
            Operand::Array(..) | Operand::Table(..) => {
                self.fail(expr.span, "an array cannot be assigned", "an array", "assign its elements")
            }
            _ => self.fail(expr.span, "this cannot be assigned", "", ""),
        }
    }

    fn assignment(&mut self, op: Option<Binary>, target: &'m Expr, value: &'m Expr, span: Span) -> Done<Operand> {
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::Moving(pointer, local)) = self.lookup(name)
        {
            return self.move_pointer(op, pointer, local, target, value, span);
        }
        let Some(op) = op else {
            // The value first, as C++17 has it.
            if let ExprKind::Braces(_) = value.kind {
                let place = self.place(target)?;
                let tree = self.initial(value, place.ty)?;
                let tree = self.settle(tree);
                self.write(&place, tree.clone(), target.span)?;
                return Ok(Operand::Tree(tree));
            }
            let tree = self.rvalue(value)?;
            self.written(&tree, value.span)?;
            let tree = self.settle_effects(tree);
            let place = self.place(target)?;
            let tree = self.convert(tree, place.ty, value.span)?;
            let tree = self.settle(tree);
            self.write(&place, tree.clone(), target.span)?;
            return Ok(Operand::Tree(tree));
        };
        let right = self.rvalue(value)?;
        let right = self.settle_effects(right);
        let place = self.place(target)?;
        let left = self.read(&place, target.span)?;
        let sum = self.binary(op, left, right, span)?;
        let sum = self.convert(sum, place.ty, span)?;
        let sum = self.settle(sum);
        self.write(&place, sum.clone(), target.span)?;
        Ok(Operand::Tree(sum))
    }

    /// A tree with an update in it is written before anything that follows.
    fn settle_effects(&mut self, tree: Tree) -> Tree {
        fn updates(tree: &Tree) -> bool {
            match &tree.node {
                Node::Atomic { .. } => true,
                Node::Cast(_, inner) | Node::Bitcast(_, inner) => updates(inner),
                Node::Op(_, args) | Node::Algebra(_, _, args) | Node::Call(_, args) => args.iter().any(updates),
                _ => false,
            }
        }
        if updates(&tree) { self.settle(tree) } else { tree }
    }

    fn move_pointer(
        &mut self,
        op: Option<Binary>,
        pointer: Pointer,
        local: bornite_ir::LocalId,
        target: &'m Expr,
        value: &'m Expr,
        span: Span,
    ) -> Done<Operand> {
        let moved = match op {
            None => self.operand(value)?,
            Some(op) => match self.operand(target)? {
                Operand::Pointer(here) => self.pointer_sum(op, here, value, span)?,
                _ => return Err(Failed),
            },
        };
        match moved {
            Operand::Pointer(to) if to.view == pointer.view && to.prefix == pointer.prefix => {
                let offset = to.offset.unwrap_or(Tree::int(self.index, 0));
                self.assign(local, &offset);
                self.operand(target)
            }
            Operand::Pointer(_) => self.refuse(span, "a pointer that points into two arrays", "use two pointers"),
            _ => self.fail(span, "a pointer is assigned a number", "expected a pointer", ""),
        }
    }

    fn step(&mut self, by: i8, before: bool, target: &'m Expr, span: Span) -> Done<Operand> {
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::Moving(pointer, local)) = self.lookup(name)
        {
            let old = Tree::done(self.w.b.read(local), self.index);
            let width = pointer.width as i64 * by as i64;
            let new = Tree::op(Op::Add, vec![old.clone(), Tree::int(self.index, width)]);
            let new = self.settle(new);
            self.assign(local, &new);
            return Ok(Operand::Pointer(Pointer { offset: Some(if before { old } else { new }), ..pointer }));
        }
        let place = self.place(target)?;
        let old = self.read(&place, target.span)?;
        let old = self.settle(old);
        let op = if by > 0 { Binary::Add } else { Binary::Sub };
        let new = self.binary(op, old.clone(), Tree::int(Scalar::I32, 1), span)?;
        let new = self.convert(new, place.ty, span)?;
        let new = self.settle(new);
        self.write(&place, new.clone(), target.span)?;
        Ok(Operand::Tree(if before { old } else { new }))
    }

    /// `T(a, b)`: a conversion of one value, or a struct or vector of several.
    fn constructed(&mut self, ty: &'m TypeName, args: &'m [Expr], span: Span) -> Done<Operand> {
        let CType::Value(to) = self.c_type(ty)? else {
            return self.refuse(span, "a pointer made like this", "");
        };
        if let [one] = args {
            let tree = self.rvalue(one)?;
            if tree.scalar().is_some() && to.as_scalar().is_some() {
                return Ok(Operand::Tree(self.explicit(tree, to, span)?));
            }
            if tree.ty == to {
                return Ok(Operand::Tree(tree));
            }
        }
        if args.is_empty() && to.as_scalar().is_some() {
            return Ok(Operand::Tree(Tree::int(to.as_scalar().unwrap_or(Scalar::I32), 0)));
        }
        Ok(Operand::Tree(self.made(args, to, span)?))
    }

    /// A struct, vector or matrix of its parts.
    pub(super) fn made(&mut self, args: &'m [Expr], ty: Type, span: Span) -> Done<Tree> {
        let parts: Vec<Type> = match ty {
            Type::Struct(id) => self.w.b.structs()[id.0 as usize].fields.iter().map(|field| field.ty).collect(),
            _ => ty.components(&[]).into_iter().map(Type::Scalar).collect(),
        };
        // Braces inside may be left out.
        if args.len() > parts.len() {
            let scalars = ty.components(self.w.b.structs());
            if args.len() > scalars.len() {
                let what = format!("{} values for '{}' of {}", args.len(), self.type_name(ty), parts.len());
                return self.fail(span, what, "too many", "");
            }
            let mut rest = args.iter();
            return self.made_flat(&mut rest, ty);
        }
        let mut trees = vec![];
        for (n, part) in parts.iter().enumerate() {
            trees.push(match args.get(n) {
                Some(arg) => self.initial(arg, *part)?,
                None => self.zero(*part),
            });
        }
        if ty.element().is_some()
            && args.len() == parts.len()
            && let Some(whole) = Tree::lifted(&trees, ty)
        {
            return Ok(whole);
        }
        for (tree, arg) in trees.iter().zip(args) {
            self.written(tree, arg.span)?;
        }
        Ok(Tree::of(Node::Algebra(Algebra::Construct, 0, trees), ty))
    }

    fn made_flat(&mut self, args: &mut std::slice::Iter<'m, Expr>, ty: Type) -> Done<Tree> {
        if ty.as_scalar().is_some() {
            return match args.next() {
                Some(arg) => self.initial(arg, ty),
                None => Ok(self.zero(ty)),
            };
        }
        let parts: Vec<Type> = match ty {
            Type::Struct(id) => self.w.b.structs()[id.0 as usize].fields.iter().map(|field| field.ty).collect(),
            _ => ty.components(&[]).into_iter().map(Type::Scalar).collect(),
        };
        let mut trees = vec![];
        for part in parts {
            trees.push(self.made_flat(args, part)?);
        }
        Ok(Tree::of(Node::Algebra(Algebra::Construct, 0, trees), ty))
    }

    pub(super) fn zero(&self, ty: Type) -> Tree {
        match ty {
            Type::Scalar(scalar) => Tree::int(scalar, 0),
            Type::Struct(id) => {
                let fields = self.w.b.structs()[id.0 as usize].fields.iter().map(|field| self.zero(field.ty));
                Tree::of(Node::Algebra(Algebra::Construct, 0, fields.collect()), ty)
            }
            _ => {
                let one = Tree::int(ty.element().unwrap_or(Scalar::I32), 0);
                Tree::of(Node::Algebra(Algebra::Construct, 0, vec![one]), ty)
            }
        }
    }

    /// What a variable or part of a type is given at first.
    pub(super) fn initial(&mut self, expr: &'m Expr, ty: Type) -> Done<Tree> {
        if let ExprKind::Braces(all) = &expr.kind {
            return match (ty.as_scalar(), &all[..]) {
                (Some(_), [one]) => self.initial(one, ty),
                (Some(_), []) => Ok(self.zero(ty)),
                (Some(_), _) => self.fail(expr.span, "several values for one number", "too many", ""),
                _ => self.made(all, ty, expr.span),
            };
        }
        if let ExprKind::Construct(_, args) = &expr.kind
            && args.len() > 1
            && ty.as_scalar().is_none()
        {
            return self.made(args, ty, expr.span);
        }
        let tree = self.rvalue(expr)?;
        self.convert(tree, ty, expr.span)
    }
}

/// Integers of one width.
fn same_width(a: Scalar, b: Scalar) -> bool {
    a.is_int() && b.is_int() && a.bytes() == b.bytes()
}

/// Letters by which two names differ.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
