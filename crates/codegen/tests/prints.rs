//! Debug prints: the interpreter and CPU code print the same lines. The test starts this program
//! again to capture the stdout of compiled code.

use std::process::Command;

use bornite_codegen::cpu;
use bornite_ir::interp::{InterpreterOptions, run_printing};
use bornite_ir::{Arg, Builder, EmitBits, Kernel, Scalar, Value};

/// A value of every type, and one that differs between instances.
fn kernel() -> Kernel {
    let mut b = Builder::new("prints", 3, Scalar::I32);
    let i = b.index();
    b.print("instance {}", &[i]);
    for scalar in Scalar::ALL {
        let values = [-2.5, 0.1, 1e20].map(|x| b.constant(Value::from_f64(scalar, x)));
        b.print(format!("{scalar}: {{}} {{}}, {{}} 100%"), &values);
    }
    let wide = b.cast(Scalar::F64, &i);
    b.print("{}", &[wide]);
    b.finish().unwrap()
}

#[test]
fn machine_code_prints_what_the_interpreter_does() {
    const CHILD: &str = "BORNITE_TEST_PRINTS";
    if std::env::var_os(CHILD).is_some() {
        cpu::compile(&kernel()).unwrap().run(&mut [] as &mut [Arg]).unwrap();
        return;
    }
    let mut by_statement = vec![];
    run_printing(&kernel(), &mut [], InterpreterOptions::default(), &mut |line| by_statement.push(line.to_owned()))
        .unwrap();
    assert!(by_statement.contains(&"f32: -2.5 0.100000001, 1.00000002e+20 100%".to_owned()), "{by_statement:?}");
    assert!(by_statement.contains(&"u8: 0 0, 255 100%".to_owned()), "{by_statement:?}");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "machine_code_prints_what_the_interpreter_does", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    // The interpreter runs instances together, CPU code one after the other.
    let mut found: Vec<&str> = text.lines().filter(|line| by_statement.iter().any(|known| known == line)).collect();
    let mut expected: Vec<&str> = by_statement.iter().map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{text}");
}
