//! `docs/ops.md` is the op table in words. `BLESS=1 cargo test -p bornite-ir` writes it anew.

use bornite_ir::{AlgebraOp, AlgebraOpRow, FORMULAS, Op, OpKind, TypeRule};

const RULES: &str = "\
# Scalar operations

Written from the op table (`crates/ir/src/op.rs`) by a test of `bornite-ir`; do not edit.

Every reader of kernels (interpreter, CPU code, CUDA text) obeys these rules, so results agree to the bit:

- Floats follow IEEE 754 with round to nearest even; denormals are kept; `a * b + c` is fused only where `fma` is written.
- All NaNs count as one where readers are compared.
- `min` and `max` give NaN if either argument is NaN, and +0 is larger than -0; `fmin` and `fmax` prefer the number.
- Integers wrap. `n / 0` and `n % 0` are 0; `MIN / -1` is `MIN` and `MIN % -1` is 0.
- Shift counts are masked to the width of the type; `shr` keeps the sign.
- Float to integer truncates and saturates, NaN becomes 0; anything to bool is `!= 0`; bool to number is 0 or 1.
- A *body* is written over primitives and is the same code on every reader; its bound is against the true value.

- 16-bit floats are computed in f32 and rounded once more; integers of 8 and 16 bits are computed in 32 and cut off.
- *Error* is in units of the last place, f32 / f64, against the true value. *Native* is CUDA's own function, used only where
  asked for, with the error that NVIDIA states.

| op | arguments | types | computed as | error | native | meaning | gradient |
|---|---|---|---|---|---|---|---|
";

const ALGEBRA: &str = "
# Vectors, matrices, structs

Written from the table of `crates/ir/src/algebra/mod.rs`. Every scalar operation above also takes vectors and matrices of one
shape, component by component (the condition of a `select` may be one bool for all). Components of matrices are row by row.

- *Error* is in units of 2⁻²⁴ (f32) or 2⁻⁵³ (f64) of the scale named, for up to four rows and columns. 16-bit floats are
  widened, computed in f32 and rounded once; integers wrap.

| row | takes and gives | error | meaning | gradient |
|---|---|---|---|---|
";

const FORMULA_RULES: &str = "
# Formulas

Short formulas over the rows, for expressions (`bornite kernel emit --expr`); their gradients are those of the rows.

| formula | meaning |
|---|---|
";

/// Counts what a derivative emits.
struct Probe;

impl bornite_ir::Emit for Probe {
    type V = ();
    fn op(&mut self, _: Op, _: &[&()]) {}
    fn constant_like(&mut self, (): &(), _: f64) {}
}

#[test]
fn the_manual_is_the_table() {
    let mut manual = RULES.to_owned();
    for &op in Op::ALL {
        let row = op.row();
        let types = match row.rule {
            TypeRule::Float => "floats",
            TypeRule::Int => "integers",
            TypeRule::Bits => "integers, bool",
            TypeRule::Number => "floats, integers",
            TypeRule::Compare => "any, gives bool",
            TypeRule::Select => "bool, then any",
        };
        let computed = if row.kind == OpKind::Body { "body" } else { "primitive" };
        let bound = |ulp: bornite_ir::Ulp| {
            if ulp.f64 == 0.0 && ulp.f32 == 0.0 { "exact".into() } else { format!("{} / {}", ulp.f32, ulp.f64) }
        };
        let native = row.native.map_or("".into(), |n| format!("`{}`, `{}`: {}", n.f32, n.f64, bound(n.ulp)));
        let gradient = match op.derivative(&mut Probe, &vec![&(); op.arity()], &(), &()) {
            Some(parts) => {
                assert_eq!(parts.len(), op.arity(), "{op:?}: one part an argument");
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
        // `tests/algebra.rs` sees to it that the others have one.
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
