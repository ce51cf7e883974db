//! Rows of the dataset as tasks: their CUDA text is right against their Python source, which another
//! front end reads and which computes in another order.

use bornite_data::evaluate::EvalValue;
use bornite_data::program::Program;
use bornite_data::{Category, generate_in, inputs, row};
use bornite_judge::{Comparison, Judge, JudgeOptions, JudgeOutcome};
use serde_json::{Value, json};

const ROWS: u64 = 1000;

fn number(value: &EvalValue) -> f64 {
    match value {
        EvalValue::Float(interval) => interval.mid,
        EvalValue::Int(value) => *value as f64,
        EvalValue::Bool(truth) => (*truth == Some(true)) as u8 as f64,
        EvalValue::Composite(_) => f64::NAN,
    }
}

/// Arguments of a program in JSON; `None` if JSON or flat lists do not represent them.
fn arguments(program: &Program, input: &inputs::KernelInput) -> Option<Value> {
    let mut args = json!({});
    for (array, contents) in program.arrays.iter().zip(&input.arrays) {
        let numbers: Vec<f64> = contents.cells.iter().map(number).collect();
        if array.shape.len() != 1 || numbers.iter().any(|x| !x.is_finite() || x.abs() > 2f64.powi(53)) {
            return None;
        }
        args[array.name.as_str()] = json!(numbers);
    }
    let name = |var| &program.body.var(var).name;
    for (param, value) in program.values.iter().zip(&input.values) {
        let value = number(value);
        if !value.is_finite() || value.abs() > 2f64.powi(53) {
            return None;
        }
        args[name(param.var)] = json!(value);
    }
    for (param, size) in program.sizes.iter().zip(&input.sizes) {
        args[name(param.var)] = json!(size);
    }
    Some(args)
}

#[test]
fn rows_of_the_dataset_are_right() {
    let mut judge = Judge::new(JudgeOptions::default());
    let (mut judged, mut bounded, mut errors) = (0, 0, vec![]);
    for index in 0..ROWS {
        let Ok(row) = generate_in(3, index, Category::ALL) else { continue };
        let input = inputs::input(&row.program, [row.seed, row.index], 3, 0);
        let Some(args) = arguments(&row.program, &input) else { continue };
        let request = row::request(&row.program, &input.sizes);
        let dims: Vec<u32> = row.program.grid.iter().map(|(_, size)| size.eval(&input.sizes)).collect();
        if request.grid.contains(&0) || dims.contains(&0) {
            continue;
        }
        let task = json!({
            "id": index, "args": args, "shapes": 1,
            "reference": {"source": row.source, "language": "python", "kernel": row.name, "launch": {"dim": dims}},
            "candidate": {
                "source": row.cuda, "kernel": row.name, "launch": {"grid": request.grid, "block": request.block},
            },
        });
        let verdict = judge.judge_json(&task.to_string());
        // Structs with float4 are aligned in CUDA C++, but not in Python syntax.
        if verdict.kind == "signature" && row.cuda.contains("struct ") {
            continue;
        }
        judged += 1;
        bounded += (verdict.comparison == Some(Comparison::Bounds)) as usize;
        if verdict.verdict != JudgeOutcome::Right {
            errors.push(format!("{verdict:?}\n{}\n{}", row.source, row.cuda));
        }
        errors.extend(verdict.notes.iter().filter(|note| note.contains("outside")).cloned());
    }
    println!("{judged} rows judged, {bounded} by bounds");
    assert!(errors.is_empty(), "{} of {judged}:\n{}", errors.len(), errors.join("\n"));
    assert!(judged > 80 && bounded * 10 > judged * 9, "{judged} rows judged, {bounded} by bounds");
}
