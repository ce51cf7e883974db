//! The example runs anywhere and says what it ran on.

use std::process::Command;

#[test]
fn hello_gpu_without_libraries() {
    for hidden in ["cuda", "nvrtc", "cuda,nvrtc"] {
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--package", "bornite", "--example", "hello_gpu"]);
        let output = command.env("BORNITE_HIDE_LIBRARIES", hidden).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("= [19.0, 22.0, 43.0, 50.0] on cpu"), "{text}");
        assert!(text.contains("no GPU, so the CPU: lib") && text.contains("BORNITE_LIBRARY_PATH"), "{text}");
        assert!(text.contains("1024² matmul: "), "{text}");
    }
}
