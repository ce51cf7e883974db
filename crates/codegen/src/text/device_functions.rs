//! Device functions for op-table and algebra-table bodies, printed one line per value.

use std::fmt::Write;

use bornite_ir::{AlgebraOp, Components, Emit, EmitBits, LookupTable, Op, Scalar, Type, Value};

use super::syntax::{bitcast, c_type, call, cast_step};
use super::{DeviceFunction, Dialect, Printer, Term};

impl Printer<'_> {
    /// Prints an algebra operation.
    pub(super) fn algebra(&mut self, row: AlgebraOp, at: u32, ty: Type, args: &[Term]) -> String {
        let kernel = self.kernel;
        match (row, args) {
            (AlgebraOp::Construct, [one]) if one.ty.as_scalar().is_some() => {
                format!("{{{}}}", vec![one.text.as_str(); ty.component_count(&kernel.structs)].join(", "))
            }
            (AlgebraOp::Construct, args) => {
                format!("{{{}}}", args.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(", "))
            }
            (AlgebraOp::Extract, [whole]) => format!("{}{}", whole.text, self.names.member(whole.ty, at as usize)),
            _ => {
                let types: Vec<String> = args.iter().map(|arg| arg.ty.name(&kernel.structs).to_string()).collect();
                let name = format!("bn_{}_{}", row.row().name, types.join("_"));
                let params: Vec<Term> =
                    args.iter().zip(["a", "b"]).map(|(arg, name)| Term::new(name, arg.ty)).collect();
                self.define(&name, &params, ty, |body| {
                    let args: Vec<Components<Term>> = (params.iter())
                        .map(|whole| {
                            let count = whole.ty.component_count(&kernel.structs);
                            Components {
                                ty: whole.ty,
                                components: (0..count).map(|n| body.printer.component(whole, n)).collect(),
                            }
                        })
                        .collect();
                    row.body(body, at, ty, &args, &kernel.structs)
                });
                call(&name, args)
            }
        }
    }

    /// Defines the device function of an op.
    pub(super) fn define_op(&mut self, name: &str, op: Op, scalar: Scalar) {
        let params: Vec<Term> = op.row().args.iter().map(|name| Term::new(*name, scalar)).collect();
        let types = vec![scalar; params.len()];
        let result = op.row().rule.result(&types).unwrap_or(scalar);
        self.define(name, &params, result.into(), |body| {
            let args: Vec<&Term> = params.iter().collect();
            vec![body.expand(op, &args).unwrap_or_else(|| body.op(op, &args))]
        });
    }

    /// Defines the device function of a conversion.
    pub(super) fn define_cast(&mut self, name: &str, from: Scalar, to: Scalar) {
        let param = Term::new("a", from);
        self.define(name, std::slice::from_ref(&param), to.into(), |body| vec![body.cast(to, &param)]);
    }

    /// Defines a device function unless it exists already.
    fn define(&mut self, name: &str, params: &[Term], ty: Type, emit: impl FnOnce(&mut Body<'_, '_>) -> Vec<Term>) {
        if self.device_functions.iter().any(|f| f.name == name) {
            return;
        }
        let mut body = Body { printer: self, lines: vec![] };
        let components = emit(&mut body);
        let lines = body.lines;
        let params: Vec<String> =
            params.iter().map(|p| format!("{} {}", self.names.of_type(self.kernel, p.ty), p.text)).collect();
        let (device, result) = (self.device(), self.names.of_type(self.kernel, ty));
        let mut text = format!("{device} {result} {name}({}) {{\n", params.join(", "));
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
        let components: Vec<&str> = components.iter().map(|component| component.text.as_str()).collect();
        let value =
            if ty.as_scalar().is_some() { components.join("") } else { format!("{{{}}}", components.join(", ")) };
        let _ = writeln!(text, "    return {value};\n}}");
        self.device_functions.push(DeviceFunction { name: name.into(), text });
    }
}

/// Implements [`Emit`] by printing one line per value.
struct Body<'p, 'k> {
    printer: &'p mut Printer<'k>,
    lines: Vec<String>,
}

impl Body<'_, '_> {
    fn bind(&mut self, scalar: Scalar, text: String) -> Term {
        let name = format!("t{}", self.lines.len());
        self.lines.push(format!("const {} {name} = {text};", c_type(scalar)));
        Term::new(name, scalar)
    }
}

impl Emit for Body<'_, '_> {
    type V = Term;

    fn op(&mut self, op: Op, args: &[&Term]) -> Term {
        let args: Vec<Term> = args.iter().map(|&a| a.clone()).collect();
        let types: Vec<Scalar> = args.iter().map(|a| a.scalar()).collect();
        let scalar = op.row().rule.result(&types).unwrap_or(args[0].scalar());
        let text = self.printer.op_expr(op, &args);
        self.bind(scalar, text)
    }

    fn constant_like(&mut self, like: &Term, value: f64) -> Term {
        self.constant(Value::from_f64(like.scalar(), value))
    }
}

impl EmitBits for Body<'_, '_> {
    fn scalar(&self, v: &Term) -> Scalar {
        v.scalar()
    }

    fn constant(&mut self, value: Value) -> Term {
        Term::constant(value)
    }

    fn cast_step(&mut self, to: Scalar, v: &Term) -> Term {
        self.bind(to, cast_step(to, v))
    }

    fn bitcast(&mut self, to: Scalar, v: &Term) -> Term {
        self.bind(to, bitcast(to, v))
    }

    fn lookup(&mut self, table: &'static LookupTable, index: &Term) -> Term {
        let name = format!("bn_{}", table.name);
        if self.printer.device_functions.iter().all(|f| f.name != name) {
            let words: Vec<String> = table.words.iter().map(|word| format!("{word:#x}ull")).collect();
            let storage = if self.printer.dialect == Dialect::Cpp { "static" } else { "__device__" };
            let (ty, words) = (c_type(Scalar::U64), words.join(", "));
            let text = format!("{storage} const {ty} {name}[{}] = {{{words}}};\n", table.words.len());
            self.printer.device_functions.push(DeviceFunction { name: name.clone(), text });
        }
        self.bind(Scalar::U64, format!("{name}[{}]", index.text))
    }

    fn select_unlikely<const N: usize>(
        &mut self,
        condition: &Term,
        common: [Term; N],
        rare: impl FnOnce(&mut Self) -> [Term; N],
    ) -> [Term; N] {
        let chosen = common.map(|v| {
            let text = format!("t{}", self.lines.len());
            self.lines.push(format!("{} {text} = {};", c_type(v.scalar()), v.text));
            Term { text, range: None, ..v }
        });
        self.lines.push(format!("if ({}) {{", condition.text));
        let inside = self.lines.len();
        let rare = rare(self);
        self.lines.extend(chosen.iter().zip(rare).map(|(v, rare)| format!("{} = {};", v.text, rare.text)));
        self.lines[inside..].iter_mut().for_each(|line| line.insert_str(0, "    "));
        self.lines.push("}".into());
        chosen
    }
}
