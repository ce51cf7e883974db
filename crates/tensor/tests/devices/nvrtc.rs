//! Generated kernels compiled by NVRTC, without a GPU: machine code for every architecture, and
//! readable errors.

use bornite::ir::{Access, AlgebraOp, Builder, Emit, Op, Scalar};
use bornite::{DType, Device, Tensor};
use bornite_codegen::cuda::{self, MathMode};
use libtest_mimic::Trial;

use crate::Outcome;

/// The oldest supported architecture and common ones.
const ARCHITECTURES: [&str; 4] = ["sm_75", "sm_80", "sm_90a", "sm_100"];

pub fn trials() -> Vec<Trial> {
    let missing = bornite_cuda::nvrtc_version().err();
    if let Some(why) = &missing {
        println!("skipped: everything on nvrtc, since {}", crate::brief(&why.clone().into()));
    }
    [
        Trial::test("nvrtc::every_row_compiles", every_row_compiles),
        Trial::test("nvrtc::every_kind_of_kernel_compiles", every_kind_of_kernel_compiles),
        Trial::test("nvrtc::kernels_of_tensors_compile", kernels_of_tensors_compile),
        Trial::test("nvrtc::resources_of_kernels_are_read", resources_of_kernels_are_read),
        Trial::test("nvrtc::norm_gradients_leave_room_for_two_blocks", norm_gradients_leave_room_for_two_blocks),
        Trial::test("nvrtc::errors_show_the_source", errors_show_the_source),
    ]
    .map(|trial| trial.with_ignored_flag(missing.is_some()))
    .into()
}

fn every_row_compiles() -> Outcome {
    let mut program = String::new();
    let mut count = 0;
    for index in [Scalar::I32, Scalar::I64] {
        for &op in Op::ALL {
            for scalar in Scalar::ALL {
                // The index type does not depend on the op: one op is enough.
                if index == Scalar::I64 && op != Op::Add {
                    continue;
                }
                let mut types = vec![scalar; op.arity()];
                if op == Op::Select {
                    types[0] = Scalar::Bool;
                }
                let Ok(result) = op.row().rule.result(&types) else { continue };
                let mut b = Builder::new(format!("{}_{scalar}_{index}", op.row().name), 1000, index);
                let out = b.param("out", result, 1000, Access::Write);
                let i = b.index();
                let args: Vec<_> = (types.iter().enumerate())
                    .map(|(n, &scalar)| {
                        let view = b.param(format!("in{n}"), scalar, 1000, Access::Read);
                        b.load(view, i)
                    })
                    .collect();
                let value = b.op(op, &args.iter().collect::<Vec<_>>());
                b.store(out, i, value);
                // One program for all, with each kernel and its helpers in its own namespace.
                let kernel = b.finish()?;
                program += &format!("namespace n{count} {{\n{}}}\n", cuda::print(&kernel));
                if op.row().native.is_some() {
                    let native = cuda::print_with(&kernel, MathMode::Native);
                    let symbol = cuda::symbol(&kernel);
                    let native = native.replace(&format!("\n{symbol}("), &format!("\nnative_{symbol}("));
                    program += &format!("namespace m{count} {{\n{native}}}\n");
                }
                count += 1;
            }
        }
    }
    for &row in AlgebraOp::ALL {
        for scalar in Scalar::ALL {
            for case in crate::algebra::signatures(row, scalar) {
                let kernel = crate::algebra::kernel(row, &case, 1000)?;
                program += &format!("namespace n{count} {{\n{}}}\n", cuda::print(&kernel));
                count += 1;
            }
        }
    }
    assert!(count > 700, "only {count} kernels");
    for arch in ARCHITECTURES {
        let cubin = bornite_cuda::compile("rows", &program, arch)?;
        assert!(cubin.bytes().starts_with(b"\x7fELF"), "{arch} gave no machine code");
    }
    Ok(())
}

/// Kernels that cover all features: prints, structs, functions, shared memory, shuffles; with and
/// without index checks.
fn every_kind_of_kernel_compiles() -> Outcome {
    let kernels = crate::samples::kernels();
    let program: String = (kernels.iter().enumerate())
        .flat_map(|(n, kernel)| {
            let symbol = cuda::symbol(kernel);
            [("n", cuda::print(kernel)), ("c", cuda::print_checked(kernel))].map(|(kind, text)| {
                let text = text.replace(&format!("\n{symbol}("), &format!("\n{symbol}_{kind}{n}("));
                format!("namespace {kind}{n} {{\n{text}}}\n")
            })
        })
        .collect();
    for arch in ARCHITECTURES {
        assert!(bornite_cuda::compile("samples", &program, arch)?.bytes().starts_with(b"\x7fELF"), "{arch}");
    }
    Ok(())
}

/// Kernels with higher GPU requirements: rows in shared memory, sorted sums, large tiles. None of
/// them runs.
fn kernels_of_tensors_compile() -> Outcome {
    let device = Device::Interpreter;
    let matrix = |rows: usize, columns: usize, dtype: DType| {
        let [a, b] = [[rows, 1], [1, columns]].map(|shape| Tensor::ones(&shape, dtype, device));
        a.matmul(&b)
    };
    let logits = matrix(4096, 50_304, DType::BF16);
    let classes = Tensor::arange(4096, DType::I64, device);
    let [loss, padded] = [50_304, 50_257].map(|count| logits.cross_entropy_per_row(&classes, count).mean(..));
    let table = matrix(50_304, 768, DType::BF16);
    let found = (table.embedding(&classes) * matrix(4096, 768, DType::BF16)).sum(..);
    for (what, tensors) in [
        ("cross-entropy", vec![loss.clone(), loss.grad(&[&logits]).remove(0)]),
        ("cross-entropy with padding", vec![padded.clone(), padded.grad(&[&logits]).remove(0)]),
        ("gradient of an embedding", found.grad(&[&table])),
        ("transpose", vec![matrix(4096, 4096, DType::F32).t()]),
    ] {
        for kernel in bornite::plan::gpu_kernels(&tensors)? {
            let text = cuda::print_with(&kernel, MathMode::Native);
            let cubin = bornite_cuda::compile(&kernel.name, &text, "sm_90a")?;
            assert!(cubin.bytes().starts_with(b"\x7fELF"), "{what}: {}", kernel.name);
        }
    }
    Ok(())
}

/// Registers, shared memory and spills are read from machine code.
fn resources_of_kernels_are_read() -> Outcome {
    let source = r#"
        extern "C" __global__ void plain(float* x) { x[threadIdx.x] *= 2.0f; }
        extern "C" __global__ void shared(float* x) {
            __shared__ float tile[1000];
            tile[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = tile[threadIdx.x ^ 1];
        }
        extern "C" __global__ void local(float* x, const int* index) {
            float values[64];
            for (int n = 0; n < 64; n++) values[index[n] & 63] = x[n];
            x[threadIdx.x] = values[index[threadIdx.x] & 63];
        }"#;
    for arch in ARCHITECTURES {
        let found = bornite_cuda::compile("resources", source, arch)?.resources();
        assert_eq!(found.len(), 3, "{arch}: {found:?}");
        let of = |symbol: &str| found.iter().find(|(name, _)| name == symbol).map(|(_, resources)| *resources);
        let [plain, shared, local] = ["plain", "shared", "local"].map(|symbol| of(symbol).unwrap_or_default());
        assert!((4..40).contains(&plain.registers) && plain.max_threads_per_block == 1024, "{arch}: {found:?}");
        assert!(plain.static_shared_bytes <= 1024 && shared.static_shared_bytes >= 4000, "{arch}: {found:?}");
        assert!([plain, shared].iter().all(|kernel| kernel.spill_bytes == 0), "{arch}: {found:?}");
        assert!(local.spill_bytes >= 256, "{arch}: {found:?}");
    }
    Ok(())
}

/// The gradient of a norm is one kernel over the rows, of which two blocks of 256 threads fit a
/// multiprocessor of an H200: 65,536 registers and 227 KiB of shared memory, without spills.
fn norm_gradients_leave_room_for_two_blocks() -> Outcome {
    let matrix = |rows: usize, columns: usize, dtype: DType| {
        let [a, b] = [[rows, 1], [1, columns]].map(|shape| Tensor::ones(&shape, dtype, Device::Interpreter));
        a.matmul(&b)
    };
    // Alone, and as in a transformer block: with a bias before it and a residual around it. There,
    // rows of f32 take more registers.
    let cases =
        [(DType::BF16, true), (DType::BF16, false), (DType::F16, true), (DType::F16, false), (DType::F32, false)];
    for (dtype, in_block) in cases {
        let [x, dy, residual] = [(); 3].map(|()| matrix(65_536, 768, dtype));
        let [before, weight, bias] = [(); 3].map(|()| matrix(1, 768, dtype).reshape(&[768]));
        let gradients = if in_block {
            let h = &x + &before;
            let loss = (h.layer_norm(&weight, &bias, 1e-5) * &dy + &h * &residual).sum(..);
            loss.grad(&[&x, &before, &weight, &bias])
        } else {
            (x.layer_norm(&weight, &bias, 1e-5) * &dy).sum(..).grad(&[&x, &weight, &bias])
        };
        let kernels = bornite::plan::gpu_kernels(&gradients)?;
        let over_rows: Vec<_> = kernels.iter().filter(|kernel| kernel.name.contains("with_sums")).collect();
        let [kernel] = over_rows[..] else {
            return Err(format!("{dtype}, {in_block}: {} kernels", over_rows.len()).into());
        };
        let text = cuda::print_with(kernel, MathMode::Native);
        let found = bornite_cuda::compile(&kernel.name, &text, "sm_90a")?.resources();
        let [(_, resources)] = &found[..] else { return Err(format!("{found:?}").into()) };
        assert!(resources.registers <= 128 && resources.spill_bytes == 0, "{dtype}, {in_block}: {resources:?}");
        assert!(resources.static_shared_bytes <= 113 << 10, "{dtype}: {resources:?}");
    }
    Ok(())
}

fn errors_show_the_source() -> Outcome {
    let error = bornite_cuda::compile("broken", "__global__ void broken() {\n    int x = y;\n}\n", "sm_90");
    let text = error.expect_err("must not compile").to_string();
    for expected in ["failed to compile kernel 'broken' for sm_90", "broken.cu(2): error", "   2 |     int x = y;"] {
        assert!(text.contains(expected), "{text}");
    }
    let text = bornite_cuda::compile("k", "", "sm_1").expect_err("no such architecture").to_string();
    assert!(text.contains("sm_1"), "{text}");
    // Output of NVRTC without machine code must not reach the driver.
    let kernel = "extern \"C\" __global__ void k() {}";
    for (arch, options) in [("compute_90", &[][..]), ("sm_90", &["-dlto"])] {
        let text = bornite_cuda::compile_with("k", kernel, arch, options).expect_err("no machine code").to_string();
        assert!(text.contains("no valid machine code"), "{text}");
    }
    Ok(())
}
