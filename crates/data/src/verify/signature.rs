//! The parameters that a text must have: those of its program, in order, by name and type. A launch on a GPU passes them by
//! position and trusts the types, so a text that merely computes the right numbers under other parameters is wrong.

use bornite_ir::{Scalar as IrScalar, Struct as IrStruct, StructId, Type};
use bornite_lang::{Lowered, ParamRef};

use crate::program::{Program, Scalar, Struct, Ty, Var};

/// What a value is made of, as far as its place in memory depends on it: numbers, and vectors, which C aligns.
type Piece = (IrScalar, u8);

struct Wanted<'p> {
    name: &'p str,
    ty: Ty,
    array: bool,
}

/// Holds the parameters of a CUDA text against those of its program.
pub fn of_text(program: &Program, lowered: &Lowered) -> Result<(), String> {
    held(program, wanted(program, |_| true), lowered)
}

/// Holds the parameters of a Python source against those of its program. It may leave out sizes, which shapes tell it.
pub fn of_source(program: &Program, lowered: &Lowered) -> Result<(), String> {
    held(program, wanted(program, |in_source| in_source), lowered)
}

fn wanted(program: &Program, takes: impl Fn(bool) -> bool) -> Vec<Wanted<'_>> {
    let arrays = program.arrays.iter().map(|array| Wanted { name: &array.name, ty: array.ty, array: true });
    let values = program.values.iter().map(|value| value.var);
    let sizes = program.sizes.iter().filter(|size| takes(size.in_source)).map(|size| size.var);
    let by_value = |var: Var| {
        let var = program.body.var(var);
        Wanted { name: &var.name, ty: var.ty, array: false }
    };
    arrays.chain(values.chain(sizes).map(by_value)).collect()
}

fn held(program: &Program, wanted: Vec<Wanted<'_>>, lowered: &Lowered) -> Result<(), String> {
    let kernel = &lowered.kernel;
    let names = |all: &mut dyn Iterator<Item = &str>| all.collect::<Vec<_>>().join(", ");
    let asked = names(&mut wanted.iter().map(|param| param.name));
    let found = names(&mut lowered.params.iter().map(|(name, _)| name.as_str()));
    if asked != found || wanted.len() != lowered.params.len() {
        return Err(format!(
            "the parameters of '{}' must be ({asked}) in this order and nothing else, found ({found})",
            program.name
        ));
    }
    for (param, (_, given)) in wanted.iter().zip(&lowered.params) {
        let (ty, array) = match given {
            ParamRef::View(n) => (kernel.params[*n as usize].ty, true),
            ParamRef::Value(n) => (kernel.values[*n as usize].ty, false),
        };
        let (mut asked, mut found) = (vec![], vec![]);
        pieces(param.ty, &program.structs, &mut asked);
        ir_pieces(ty, &kernel.structs, &mut found);
        if array != param.array || asked != found {
            let star = if param.array { "*" } else { "" };
            return Err(format!(
                "the parameter '{}' of '{}' must be '{}{star}', found {} of {}",
                param.name,
                program.name,
                param.ty.c(&program.structs),
                if array { "a pointer to an element" } else { "a value" },
                told(&found),
            ));
        }
    }
    Ok(())
}

/// Pieces as an error names them.
fn told(pieces: &[Piece]) -> String {
    let each = pieces.iter().map(|(scalar, n)| match n {
        1 => format!("{scalar:?}").to_lowercase(),
        n => format!("{scalar:?}x{n}").to_lowercase(),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn pieces(ty: Ty, structs: &[Struct], out: &mut Vec<Piece>) {
    match ty {
        Ty::Scalar(scalar) => out.push((in_ir(scalar), 1)),
        Ty::Vector(scalar, n) => out.push((in_ir(scalar), n)),
        // The CUDA texts have structs of numbers for them.
        Ty::Matrix(scalar, _) => out.extend(std::iter::repeat_n((in_ir(scalar), 1), ty.parts())),
        Ty::Struct(n) => structs[n as usize].fields.iter().for_each(|(_, ty)| pieces(*ty, structs, out)),
    }
}

fn ir_pieces(ty: Type, structs: &[IrStruct], out: &mut Vec<Piece>) {
    match ty {
        Type::Scalar(scalar) => out.push((scalar, 1)),
        Type::Vector(scalar, n) => out.push((scalar, n)),
        Type::Matrix(scalar, rows, columns) => {
            out.extend(std::iter::repeat_n((scalar, 1), rows as usize * columns as usize));
        }
        Type::Struct(StructId(n)) => {
            structs[n as usize].fields.iter().for_each(|field| ir_pieces(field.ty, structs, out));
        }
    }
}

fn in_ir(scalar: Scalar) -> IrScalar {
    match scalar {
        Scalar::Bool => IrScalar::Bool,
        Scalar::I8 => IrScalar::I8,
        Scalar::I16 => IrScalar::I16,
        Scalar::I32 => IrScalar::I32,
        Scalar::I64 => IrScalar::I64,
        Scalar::U8 => IrScalar::U8,
        Scalar::U16 => IrScalar::U16,
        Scalar::U32 => IrScalar::U32,
        Scalar::U64 => IrScalar::U64,
        Scalar::F16 => IrScalar::F16,
        Scalar::BF16 => IrScalar::BF16,
        Scalar::F32 => IrScalar::F32,
        Scalar::F64 => IrScalar::F64,
    }
}
