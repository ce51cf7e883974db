//! Text forms with random changes of characters, lines and words: parsed, verified, printed and run
//! without a panic or a hang.

#[path = "../../ir/tests/samples/mod.rs"]
mod samples;

use bornite_codegen::{cpp, cuda};
use bornite_ir::interp::{InterpreterOptions, run_printing};
use bornite_ir::{Access, Arg, Kernel, LaunchMode, Value};

#[test]
fn mutated_texts_do_not_panic_or_hang() {
    let texts: Vec<String> = samples::kernels().iter().map(Kernel::to_string).collect();
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
        drop(cuda::print(&kernel));
        drop(cpp::print(&kernel));
        let values: Vec<Vec<Value>> = (kernel.values.iter())
            .map(|v| v.ty.components(&kernel.structs).into_iter().map(|s| Value::from_f64(s, 3.0)).collect())
            .collect();
        let firsts: Vec<Value> = values.iter().map(|parts| parts[0]).collect();
        let small = match kernel.launch {
            LaunchMode::ParallelFor { count } => count.resolve(&firsts) <= 2000,
            LaunchMode::Blocks { grid, .. } => grid.iter().map(|&n| n as u64).product::<u64>() <= 20,
        };
        let bytes: Option<Vec<usize>> = kernel.params.iter().map(|p| kernel.view_bytes(p, &firsts)).collect();
        let Some(bytes) = bytes.filter(|bytes| small && bytes.iter().all(|&n| n < 1 << 18)) else { continue };
        let mut memory: Vec<Vec<u64>> = bytes.iter().map(|bytes| vec![1; bytes.div_ceil(8)]).collect();
        let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
            .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
            .collect();
        args.extend(values.iter().map(|parts| Arg::Value(parts)));
        let options = InterpreterOptions { max_statements: Some(2000), ..InterpreterOptions::default() };
        let _ = run_printing(&kernel, &mut args, options, &mut |_| {});
    }
    assert!(valid > rounds / 100, "only {valid} of {rounds} mutated texts were kernels");
}
