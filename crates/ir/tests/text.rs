//! The text form: what is printed parses back, what is wrong is shown with line, column and caret, and nothing panics.

use bornite_ir::interp::{Options, run_with};
use bornite_ir::{
    Access, Arg, Atomic, Axis, Builder, Builtin, Emit, EmitBits, Kernel, Launch, Op, Scalar, Shuffle, Stmt, Value,
    Vote, templates,
};

/// Every template, and a kernel with everything that templates lack.
fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![
        templates::fill(Scalar::BF16, 10, 0.1).unwrap(),
        templates::axpy(Scalar::F64, 33, -0.5).unwrap(),
        templates::block_sum(Scalar::I64, 100, 32).unwrap(),
        templates::warp_sum(Scalar::F32, 64).unwrap(),
        templates::transpose(Scalar::U8, 10, 12).unwrap(),
        templates::matmul(Scalar::F32, 5, 6, 7, 4).unwrap(),
        templates::histogram(50, 10, 32).unwrap(),
        templates::block_scan(Scalar::F32, 40, 16).unwrap(),
        templates::stencil(Scalar::F32, 5, 6).unwrap(),
        templates::softmax(Scalar::F32, 3, 20, 16).unwrap(),
        templates::conv2d(Scalar::F32, 2, 5, 5, 2, 3).unwrap(),
    ];
    let mut b = Builder::blocks("all", [2, 1, 1], [32, 2, 1], Scalar::I64);
    let x = b.param("x", Scalar::U64, 200, Access::ReadWrite);
    let [tx, ty] = [Axis::X, Axis::Y].map(|a| b.builtin(Builtin::Thread(a)));
    let gx = b.builtin(Builtin::GridSize(Axis::Z));
    let at = b.add(&tx, &ty);
    let at = b.add(&at, &gx);
    let values = [0.1, -1e-7, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 5e-324];
    for scalar in Scalar::ALL {
        for value in values {
            let constant = b.constant(Value::from_f64(scalar, value));
            b.local("v", Value::from_f64(scalar, value));
            let cast = b.cast(Scalar::U64, &constant);
            b.op(Op::Max, &[&cast, &cast]);
        }
    }
    let one = b.constant(Value::int(Scalar::U64, -1));
    for atomic in Atomic::ALL {
        b.atomic(atomic, x, at, one);
    }
    let old = b.compare_exchange(x, at, one, one);
    for shuffle in [Shuffle::Index, Shuffle::Up, Shuffle::Down, Shuffle::Xor] {
        b.shuffle(shuffle, old, tx);
    }
    let yes = b.lt(&tx, &ty);
    for vote in [Vote::Any, Vote::All, Vote::Ballot] {
        b.vote(vote, yes);
    }
    b.bitcast(Scalar::F64, &old);
    b.endless(|b| {
        b.if_else(yes, |b| b.simple(Stmt::Break), |b| b.simple(Stmt::Continue));
        b.simple(Stmt::Return(None));
    });
    for stmt in [Stmt::Barrier, Stmt::WarpBarrier, Stmt::Fence] {
        b.simple(stmt);
    }
    kernels.push(b.finish().unwrap());
    kernels
}

#[test]
fn what_is_printed_parses_back() {
    for kernel in kernels() {
        let text = kernel.to_string();
        let parsed: Kernel = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(parsed.to_string(), text);
        assert_eq!(parsed.to_string().parse::<Kernel>().unwrap(), parsed);
        // Spaces and empty lines do not matter.
        let loose = text.replace('\n', " \n\n").replace("  ", "\t");
        assert_eq!(loose.parse::<Kernel>().unwrap(), parsed);
    }
}

#[test]
fn mistakes_are_shown() {
    let text = templates::axpy(Scalar::F32, 10, 2.0).unwrap().to_string();
    let cases = [
        ("bornite-ir 1", "bornite-ir 2", 1, 13, "this program reads up to 1: update it"),
        ("bornite-ir 1", "hello", 1, 1, "expected 'bornite-ir'"),
        ("parallel_for 10", "parallel_for many", 2, 26, "expected a number"),
        ("index i32", "index int", 2, 35, "expected a type: bool, i8"),
        ("read f32[10]", "eat f32[10]", 3, 15, "expected read, write or update"),
        ("fma(", "fmo(", 9, 13, "there is no operation 'fmo'"),
        ("2.0f32", "2.0", 9, 17, "expected a value with its type"),
        ("2.0f32", "two", 9, 17, "expected a value with its type"),
        ("%1: f32 = x[index]", "%1: f32 = z[index]", 7, 13, "there is no view 'z'"),
        ("%1: f32 = x[index]", "%1: f32 = x[index", 7, 20, "expected ']'"),
        ("%1: f32 = x[index]", "%1: f32 = x[index] now", 7, 22, "expected the end of the line"),
        ("%1: f32 = x[index]", "%1: f64 = x[index]", 1, 1, "%1 is f32 but recorded as f64"),
        ("out[index] = %4", "out[index] = %77", 10, 19, "%77 is never evaluated"),
        ("out[index] = %4", "x[index] = %4", 1, 1, "'x' is for Read only"),
        ("}\n", "", 11, 1, "expected '}'"),
        ("}\n", "}\nmore\n", 11, 2, "expected nothing after the kernel"),
    ];
    for (from, to, line, column, what) in cases {
        assert!(text.contains(from), "{from} is not in\n{text}");
        let error = text.replacen(from, to, 1).parse::<Kernel>().expect_err(what);
        assert!(error.what.contains(what), "{error}, expected {what}");
        assert_eq!((error.line, error.column), (line, column), "{error}");
    }
    let error = text.replace("fma(", "fmo(").parse::<Kernel>().unwrap_err().to_string();
    let shown =
        "line 9, column 13: there is no operation 'fmo'\n   9 |   %4: f32 = fmo(2.0f32, %1, %2)\n     |             ^";
    assert_eq!(error, shown);
    let deep = "bornite-ir 1\nkernel k parallel_for 1 index i32\n{\n".to_owned() + &"loop {\n".repeat(10_000);
    assert!(deep.parse::<Kernel>().unwrap_err().what.contains("nested more than 64 deep"));
    assert!("".parse::<Kernel>().is_err());
}

/// Texts with random characters, lines and words changed: parsed, verified, printed and run without a panic or a hang.
#[test]
fn mutated_texts_do_no_harm() {
    let texts: Vec<String> = kernels().iter().map(Kernel::to_string).collect();
    let words: Vec<&str> = texts.iter().flat_map(|t| t.split_whitespace()).collect();
    let mut state = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64) | 1;
    println!("from seed {state}");
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n.max(1) as u64) as usize
    };
    let rounds = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 1_000_000 } else { 20_000 };
    let mut valid = 0;
    for _ in 0..rounds {
        let mut lines: Vec<String> = texts[random(texts.len())].lines().map(str::to_owned).collect();
        for _ in 0..1 + random(3) {
            let at = random(lines.len());
            match random(5) {
                0 => drop(lines.remove(at)),
                1 => {
                    let copy = lines[random(lines.len())].clone();
                    lines.insert(at, copy);
                }
                2 => {
                    let mut parts: Vec<&str> = lines[at].split(' ').collect();
                    let part = random(parts.len());
                    parts[part] = words[random(words.len())];
                    lines[at] = parts.join(" ");
                }
                3 => {
                    let mut chars: Vec<char> = lines[at].chars().collect();
                    if !chars.is_empty() {
                        let n = random(chars.len());
                        chars[n] = ['0', '9', '%', '$', '{', '}', '-', 'x', ' ', 'é'][random(10)];
                    }
                    lines[at] = chars.into_iter().collect();
                }
                _ => {
                    let other = random(lines.len());
                    lines.swap(at, other);
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        let Ok(kernel) = lines.join("\n").parse::<Kernel>() else { continue };
        valid += 1;
        assert_eq!(kernel.to_string().parse::<Kernel>().map(|k| k.to_string()), Ok(kernel.to_string()));
        let small = match kernel.launch {
            Launch::ParallelFor { count } => count <= 2000,
            Launch::Blocks { grid, .. } => grid.iter().map(|&n| n as u64).product::<u64>() <= 20,
        };
        let bytes: u128 = kernel.params.iter().map(|p| p.len as u128 * 8).sum();
        if !small || bytes > 1 << 20 {
            continue;
        }
        let mut memory: Vec<Vec<u64>> =
            kernel.params.iter().map(|p| vec![1; kernel.view_bytes(p, &[]).unwrap_or(0).div_ceil(8)]).collect();
        let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
            .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
            .collect();
        let _ = run_with(&kernel, &mut args, Options { max_statements: Some(2000), ..Options::default() });
    }
    assert!(valid > rounds / 100, "only {valid} of {rounds} mutated texts were kernels");
}
