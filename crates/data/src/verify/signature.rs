//! Signature check: a text must have its program's parameters, in order, by name and type. A GPU
//! launch passes them by position and trusts the types, so a text that computes the right values
//! with other parameters is incorrect.

use bornite_ir::{Scalar as IrScalar, Struct as IrStruct, StructId, Type};
use bornite_lang::{Lowered, ParamRef};

use crate::program::{Program, ScalarType, StructDef, Ty, VarId};

/// Scalar type and component count of a part of a value, as far as its memory layout depends on it:
/// vectors are aligned differently from scalars.
type LayoutPart = (IrScalar, u8);

struct ExpectedParam<'p> {
    name: &'p str,
    ty: Ty,
    array: bool,
}

/// Checks the parameters of a CUDA text against the program's.
pub fn check_cuda(program: &Program, lowered: &Lowered) -> Result<(), String> {
    check(program, expected_params(program, |_| true), lowered)
}

/// Checks the parameters of a Python source against the program's. It may omit sizes, which shapes
/// provide.
pub fn check_python(program: &Program, lowered: &Lowered) -> Result<(), String> {
    check(program, expected_params(program, |in_source| in_source), lowered)
}

fn expected_params(program: &Program, includes: impl Fn(bool) -> bool) -> Vec<ExpectedParam<'_>> {
    let arrays = program.arrays.iter().map(|array| ExpectedParam { name: &array.name, ty: array.ty, array: true });
    let values = program.values.iter().map(|value| value.var);
    let sizes = program.sizes.iter().filter(|size| includes(size.in_source)).map(|size| size.var);
    let by_value = |var: VarId| {
        let var = program.body.var(var);
        ExpectedParam { name: &var.name, ty: var.ty, array: false }
    };
    arrays.chain(values.chain(sizes).map(by_value)).collect()
}

fn check(program: &Program, params: Vec<ExpectedParam<'_>>, lowered: &Lowered) -> Result<(), String> {
    let kernel = &lowered.kernel;
    let names = |all: &mut dyn Iterator<Item = &str>| all.collect::<Vec<_>>().join(", ");
    let expected = names(&mut params.iter().map(|param| param.name));
    let found = names(&mut lowered.params.iter().map(|(name, _)| name.as_str()));
    if expected != found || params.len() != lowered.params.len() {
        return Err(format!(
            "the parameters of '{}' must be ({expected}) in this order, found ({found})",
            program.name
        ));
    }
    for (param, (_, param_ref)) in params.iter().zip(&lowered.params) {
        let (ty, array) = match param_ref {
            ParamRef::View(n) => (kernel.params[*n as usize].ty, true),
            ParamRef::Value(n) => (kernel.values[*n as usize].ty, false),
        };
        let (mut expected, mut found) = (vec![], vec![]);
        layout_parts(param.ty, &program.structs, &mut expected);
        ir_layout_parts(ty, &kernel.structs, &mut found);
        if array != param.array || expected != found {
            let star = if param.array { "*" } else { "" };
            return Err(format!(
                "parameter '{}' of '{}' must be '{}{star}', found {} of {}",
                param.name,
                program.name,
                param.ty.c(&program.structs),
                if array { "a pointer to an element" } else { "a value" },
                describe(&found),
            ));
        }
    }
    Ok(())
}

/// Formats layout parts for an error message.
fn describe(parts: &[LayoutPart]) -> String {
    let each = parts.iter().map(|(scalar, n)| match n {
        1 => format!("{scalar:?}").to_lowercase(),
        n => format!("{scalar:?}x{n}").to_lowercase(),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn layout_parts(ty: Ty, structs: &[StructDef], out: &mut Vec<LayoutPart>) {
    match ty {
        Ty::Scalar(scalar) => out.push((to_ir(scalar), 1)),
        Ty::Vector(scalar, n) => out.push((to_ir(scalar), n)),
        // CUDA texts declare matrices as structs of scalars.
        Ty::Matrix(scalar, _) => out.extend(std::iter::repeat_n((to_ir(scalar), 1), ty.components())),
        Ty::Struct(n) => structs[n as usize].fields.iter().for_each(|(_, ty)| layout_parts(*ty, structs, out)),
    }
}

fn ir_layout_parts(ty: Type, structs: &[IrStruct], out: &mut Vec<LayoutPart>) {
    match ty {
        Type::Scalar(scalar) => out.push((scalar, 1)),
        Type::Vector(scalar, n) => out.push((scalar, n)),
        Type::Matrix(scalar, rows, columns) => {
            out.extend(std::iter::repeat_n((scalar, 1), rows as usize * columns as usize));
        }
        Type::Struct(StructId(n)) => {
            structs[n as usize].fields.iter().for_each(|field| ir_layout_parts(field.ty, structs, out));
        }
    }
}

fn to_ir(scalar: ScalarType) -> IrScalar {
    match scalar {
        ScalarType::Bool => IrScalar::Bool,
        ScalarType::I8 => IrScalar::I8,
        ScalarType::I16 => IrScalar::I16,
        ScalarType::I32 => IrScalar::I32,
        ScalarType::I64 => IrScalar::I64,
        ScalarType::U8 => IrScalar::U8,
        ScalarType::U16 => IrScalar::U16,
        ScalarType::U32 => IrScalar::U32,
        ScalarType::U64 => IrScalar::U64,
        ScalarType::F16 => IrScalar::F16,
        ScalarType::BF16 => IrScalar::BF16,
        ScalarType::F32 => IrScalar::F32,
        ScalarType::F64 => IrScalar::F64,
    }
}
