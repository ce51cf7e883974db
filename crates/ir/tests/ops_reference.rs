//! `docs/ops.md` is generated from the op tables. Regenerate it with `BLESS=1 cargo test -p
//! bornite-ir`.

use bornite_ir::{AlgebraOp, AlgebraOpRow, FORMULAS, Op, OpKind, TypeRule};

const RULES: &str = "\
# Scalar operations

Generated from the op table (`crates/ir/src/op.rs`) by a test of `bornite-ir`; do not edit.

Every backend (interpreter, CPU code, CUDA C++) follows these rules, so results are bit-identical:

- Floats follow IEEE 754 with round to nearest even; denormals are preserved; `a * b + c` is fused
  only if written as `fma`.
- NaN payloads and signs are not significant: all NaNs compare as equal between backends.
- `min` and `max` give NaN if either argument is NaN, and +0 is larger than -0; `fmin` and `fmax`
  ignore a single NaN.
- Integers wrap. `n / 0` and `n % 0` are 0; `MIN / -1` is `MIN` and `MIN % -1` is 0.
- Shift counts are masked to the width of the type; `shr` is arithmetic for signed types.
- Float to integer truncates and saturates, NaN becomes 0; anything to bool is `!= 0`; bool to
  number is 0 or 1.
- A *primitive* is implemented by each backend. A *body* is implemented once over primitives and
  shared by all backends.
- 16-bit floats are computed in f32 and rounded once; 8- and 16-bit integers are computed in 32 bits
  and truncated.
- *Error* is the maximum error in ULPs, f32 / f64, against the exact result. *Native* is the CUDA
  math function, used only on request, with the error that NVIDIA states.

| op | arguments | types | implementation | error | native | description | gradient |
|---|---|---|---|---|---|---|---|
";

const ALGEBRA: &str = "
# Vectors, matrices, structs

Generated from the table in `crates/ir/src/algebra/mod.rs`. Every scalar operation above also
applies to vectors and matrices of the same shape, component by component (the condition of a
`select` may be a single bool). Matrices are row-major.

- *Error* is in units of 2⁻²⁴ (f32) or 2⁻⁵³ (f64) of the stated scale, for up to four rows and
  columns. 16-bit floats are computed in f32 and rounded once; integers wrap.

| op | signature | error | description | gradient |
|---|---|---|---|---|
";

const FORMULA_RULES: &str = "
# Formulas

Short formulas over the ops, for expressions (`bornite kernel emit --expr`); their gradients follow
from the ops.

| formula | description |
|---|---|
";

/// Emits nothing; shows whether an op has a derivative.
struct NoEmit;

impl bornite_ir::Emit for NoEmit {
    type V = ();
    fn op(&mut self, _: Op, _: &[&()]) {}
    fn constant_like(&mut self, (): &(), _: f64) {}
}

#[test]
fn the_ops_page_matches_the_tables() {
    let mut manual = RULES.to_owned();
    for &op in Op::ALL {
        let row = op.row();
        let types = match row.rule {
            TypeRule::Float => "floats",
            TypeRule::Int => "integers",
            TypeRule::Bits => "integers, bool",
            TypeRule::Number => "floats, integers",
            TypeRule::Compare => "any; result is bool",
            TypeRule::Select => "bool, then any",
        };
        let computed = if row.kind == OpKind::Body { "body" } else { "primitive" };
        let bound = |ulp: bornite_ir::Ulp| {
            if ulp.f64 == 0.0 && ulp.f32 == 0.0 { "exact".into() } else { format!("{} / {}", ulp.f32, ulp.f64) }
        };
        let native = row.native.map_or("".into(), |n| format!("`{}`, `{}`: {}", n.f32, n.f64, bound(n.ulp)));
        let gradient = match op.derivative(&mut NoEmit, &vec![&(); op.arity()], &(), &()) {
            Some(parts) => {
                assert_eq!(parts.len(), op.arity(), "{op:?}: one gradient per argument");
                "yes"
            }
            None => "no",
        };
        let args = row.args.join(", ");
        let (name, doc, ulp) = (row.name, row.doc.trim(), bound(row.ulp));
        manual += &format!("| `{name}` | {args} | {types} | {computed} | {ulp} | {native} | {doc} | {gradient} |\n");
        assert_eq!(Op::by_name(row.name), Some(op), "names are unique");
    }
    manual += ALGEBRA;
    for &row in AlgebraOp::ALL {
        let AlgebraOpRow { name, signature, error, scale, doc } = row.row();
        let error = if *error == 0.0 { "exact".into() } else { format!("{error} of {}", scale.replace('|', "\\|")) };
        // `tests/algebra.rs` checks that all others have one.
        let gradient = if row == AlgebraOp::Philox { "no" } else { "yes" };
        manual += &format!("| `{name}` | {signature} | {error} | {} | {gradient} |\n", doc.trim());
        assert_eq!(AlgebraOp::by_name(name), Some(row), "names are unique");
        assert_eq!(Op::by_name(name), None, "names are unique");
    }
    manual += FORMULA_RULES;
    for formula in FORMULAS {
        manual += &format!("| `{}(x)` | {} |\n", formula.name, formula.doc);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &manual).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), manual, "run BLESS=1 cargo test -p bornite-ir");
}
