//! Runs the examples and checks their output.

#[path = "example/command.rs"]
mod command;

use command::command;

/// Output of an example with these arguments and environment variables.
fn run(example: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = command(example).args(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{example}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The numbers that follow `before` and a space, one per line that contains it.
fn numbers(text: &str, before: &str) -> Vec<f64> {
    let number = |line: &str| line.split(before).nth(1)?.split_whitespace().next()?.parse().ok();
    text.lines().filter_map(number).collect()
}

#[test]
fn hello_gpu_without_libraries() {
    for hidden in ["cuda", "nvrtc", "cuda,nvrtc"] {
        let text = run("hello_gpu", &[], &[("BORNITE_HIDE_LIBRARIES", hidden)]);
        assert!(text.contains("= [19.0, 22.0, 43.0, 50.0] on cpu"), "{text}");
        assert!(text.contains("no GPU, using the CPU: lib") && text.contains("BORNITE_LIBRARY_PATH"), "{text}");
        assert!(text.contains("1024² matmul: "), "{text}");
    }
}

#[test]
fn linear_regression_finds_the_line() {
    let text = run("linear_regression", &["150"], &[("BORNITE_DEVICE", "cpu")]);
    let losses = numbers(&text, "loss ");
    assert!(losses[0] > 0.5 && losses[losses.len() - 1] < 0.004, "{text}");
    for (before, expected) in [("y = ", 3.0), ("a + ", -2.0), ("b + ", 0.5)] {
        assert!((numbers(&text, before)[0] - expected).abs() < 0.1, "{text}");
    }
}

#[test]
fn xor_is_learned() {
    for device in ["cpu", "interpreter"] {
        let text = run("xor", &[], &[("BORNITE_DEVICE", device)]);
        let losses = numbers(&text, "loss ");
        assert!(losses[0] > 0.5 && losses[losses.len() - 1] < 0.01, "{text}");
        for line in ["0 xor 0 = 0", "0 xor 1 = 1", "1 xor 0 = 1", "1 xor 1 = 0"] {
            assert!(text.contains(line), "{text}");
        }
    }
}

#[test]
fn accumulated_gradients_equal_those_of_one_batch() {
    let text = run("accumulate", &["120"], &[("BORNITE_DEVICE", "cpu")]);
    let losses = numbers(&text, "loss ");
    assert!(losses[0] > 0.1 && losses[losses.len() - 1] < 0.5 * losses[0], "{text}");
    assert!(numbers(&text, "at most ")[0] < 1e-4, "{text}");
    assert_eq!(text.matches("traces compiled: 1 and 1").count(), 2, "the last batch is shorter: {text}");
}

#[test]
fn digits_are_classified() {
    let text = run("digits", &[], &[("BORNITE_DEVICE", "cpu")]);
    let (losses, right) = (numbers(&text, "loss "), numbers(&text, "test accuracy "));
    assert!(losses[losses.len() - 1] < losses[0] / 2.0, "{text}");
    assert!(right[right.len() - 1] >= 95.0, "{text}");
    // Prints a misclassified image, if there is one.
    let picture = text.lines().filter(|line| line.starts_with("  ")).count();
    assert!(text.contains(" was classified as ") && picture == 16 || right[right.len() - 1] == 100.0, "{text}");
    // Without training steps the accuracy is low.
    let text = run("digits", &["1"], &[("BORNITE_DEVICE", "cpu")]);
    assert!(numbers(&text, "test accuracy ")[0] < 50.0, "{text}");
}
