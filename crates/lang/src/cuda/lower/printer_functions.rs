//! Helper functions of the CUDA printer, `bn_…`: each is an op of the IR.

use bornite_ir::{AlgebraOp, Op, Scalar, Type};

use super::lvalue::{CudaOperand, Pointer};
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Expr, ExprKind, TemplateArg};
use crate::cuda::types::{CType, common_type, vector_or_matrix_type};
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// Lowers a call of a printer function; `name` is without `bn_`.
    pub(super) fn printer_function(
        &mut self,
        name: &str,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let unknown = |lower: &mut Self| {
            lower.fail(
                span,
                format!("unknown function 'bn_{name}'"),
                "not declared",
                "names that begin with 'bn_' are reserved",
            )
        };
        match name {
            "assert" => {
                self.check_arg_count("bn_assert", args, 2, span)?;
                let ExprKind::Str(_) = args[1].kind else { return unknown(self) };
                let claim = self.quoted(args[1].span);
                return self.lower_assert(&args[0], claim, span);
            }
            "load" | "load_private" => {
                self.check_arg_count("bn_load", args, 1, span)?;
                let Some(TemplateArg::Type(ty)) = templates.first() else { return unknown(self) };
                let (CType::Value(Type::Vector(scalar, width)), CudaOperand::Pointer(pointer)) =
                    (self.c_type(ty)?, self.operand(&args[0])?)
                else {
                    return unknown(self);
                };
                let vector = Type::Vector(scalar, width);
                let pointer = Pointer { ty: vector, width, ..pointer };
                let lvalue = self.pointee(CudaOperand::Pointer(pointer), span)?;
                return Ok(CudaOperand::Tree(self.read(&lvalue, span)?));
            }
            "store" | "store_private" => {
                self.check_arg_count("bn_store", args, 2, span)?;
                let CudaOperand::Pointer(pointer) = self.operand(&args[0])? else { return unknown(self) };
                let value = self.rvalue(&args[1])?;
                let width = value.ty.component_count(&[]) as u8;
                let pointer = Pointer { ty: value.ty, width, ..pointer };
                let lvalue = self.pointee(CudaOperand::Pointer(pointer), span)?;
                self.write(&lvalue, value, span)?;
                return Ok(CudaOperand::Void);
            }
            "exchange" | "compare_exchange" | "atomic_min" | "atomic_max" => {
                let name = match name {
                    "exchange" => "atomicExch",
                    "compare_exchange" => "atomicCAS",
                    "atomic_min" => "atomicMin",
                    _ => "atomicMax",
                };
                return match self.atomic(name, args, span)? {
                    Some(done) => Ok(done),
                    None => unknown(self),
                };
            }
            _ => {}
        }
        let mut trees = vec![];
        for arg in args {
            trees.push(self.rvalue(arg)?);
        }
        let scalar = |text: &str| Scalar::ALL.into_iter().find(|scalar| scalar.name() == text);
        let one = |trees: &[Tree]| trees.first().cloned().unwrap_or(Tree::int(Scalar::I32, 0));
        let tree = match name {
            "printable" => one(&trees),
            "f16_of" | "bf16_of" => {
                let to = if name == "f16_of" { Scalar::F16 } else { Scalar::BF16 };
                match one(&trees).as_const() {
                    Some(bits) => Tree::constant(bornite_ir::Value::from_bits(to, bits.bits() & 0xffff)),
                    None => self.convert(one(&trees), Scalar::U16.into(), span)?.bitcast(to),
                }
            }
            "f16_bits" | "bf16_bits" => {
                let from = if name == "f16_bits" { Scalar::F16 } else { Scalar::BF16 };
                self.convert(one(&trees), from.into(), span)?.bitcast(Scalar::U16)
            }
            "min" | "max" | "div" | "rem" if trees.len() == 2 => {
                let op = match name {
                    "min" => Op::Min,
                    "max" => Op::Max,
                    "div" => Op::Div,
                    _ => Op::Rem,
                };
                let (Some(a), Some(b)) = (trees[0].scalar(), trees[1].scalar()) else { return unknown(self) };
                let ty = common_type(a, b);
                Tree::op(op, trees.into_iter().map(|tree| self.convert_scalar(tree, ty)).collect())
            }
            "f16_to_f32" | "bf16_to_f32" => {
                let from = if name == "f16_to_f32" { Scalar::F16 } else { Scalar::BF16 };
                let tree = self.convert(one(&trees), from.into(), span)?;
                Tree::of(Node::Cast(Scalar::F32, Box::new(tree)), Scalar::F32)
            }
            "f32_to_f16" | "f32_to_bf16" => {
                let to = if name == "f32_to_f16" { Scalar::F16 } else { Scalar::BF16 };
                let tree = self.convert_scalar(one(&trees), Scalar::F32);
                Tree::of(Node::Cast(to, Box::new(tree)), to)
            }
            _ => {
                if let Some(to) = name.strip_prefix("to_").and_then(scalar) {
                    let tree = one(&trees);
                    return Ok(CudaOperand::Tree(Tree::of(Node::Cast(to, Box::new(tree)), to)));
                }
                if let Some((from, to)) = name.strip_prefix("cast_").and_then(|rest| rest.split_once('_')) {
                    let (Some(from), Some(to)) = (scalar(from), scalar(to)) else { return unknown(self) };
                    let tree = self.convert(one(&trees), from.into(), span)?;
                    return Ok(CudaOperand::Tree(Tree::of(Node::Cast(to, Box::new(tree)), to)));
                }
                let row = name.rsplit_once('_').and_then(|(op, of)| Some((Op::by_name(op)?, scalar(of)?)));
                if let Some((op, of)) = row.filter(|(op, _)| op.arity() == trees.len()) {
                    let mut same = vec![];
                    for (n, tree) in trees.into_iter().enumerate() {
                        let ty = if op == Op::Select && n == 0 { Scalar::Bool } else { of };
                        same.push(self.convert(tree, ty.into(), span)?);
                    }
                    let result = op.row().rule.result(&vec![of; op.arity()]).unwrap_or(of);
                    return Ok(CudaOperand::Tree(Tree::of(Node::Op(op, same), result)));
                }
                let algebra = AlgebraOp::ALL.iter().copied().find_map(|row| {
                    let types = name.strip_prefix(row.row().name)?.strip_prefix('_')?;
                    let types: Option<Vec<Type>> = types.split('_').map(vector_or_matrix_type).collect();
                    Some((row, types?))
                });
                let Some((row, types)) = algebra else { return unknown(self) };
                let found: Vec<Type> = trees.iter().map(|tree| tree.ty).collect();
                let Ok(ty) = row.result(0, Scalar::Bool.into(), &types, self.w.b.structs()) else {
                    return unknown(self);
                };
                if found != types {
                    return unknown(self);
                }
                Tree::of(Node::Algebra(row, 0, trees), ty)
            }
        };
        Ok(CudaOperand::Tree(tree))
    }
}
