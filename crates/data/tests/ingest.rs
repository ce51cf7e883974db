//! Ingestion of handwritten kernels: which of them become rows, and that a row's CUDA text is
//! correct for every size.
#![allow(missing_docs)]

use bornite_data::files::duplicates;
use bornite_data::ingest::{IngestedKernel, KernelTexts, ingest};
use bornite_ir::interp::{InterpreterOptions, run_with};
use bornite_ir::{Arg, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, ParamRef};

const HEAD: &str = "import warp as wp\n\n";

fn seed() -> u64 {
    let configured = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = configured.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    seed
}

fn ingested(body: &str) -> Vec<IngestedKernel> {
    ingest("kernels.py", &format!("{HEAD}{body}")).unwrap_or_else(|errors| panic!("{errors}\n{body}"))
}

/// Texts of the only kernel.
fn texts(body: &str) -> KernelTexts {
    let mut all = ingested(body);
    assert_eq!(all.len(), 1, "{body}");
    all.remove(0).outcome.unwrap_or_else(|why| panic!("{why}\n{body}"))
}

/// Reason why the only kernel is rejected.
fn rejected(body: &str) -> String {
    ingested(body).remove(0).outcome.err().unwrap_or_else(|| panic!("the kernel is accepted:\n{body}"))
}

/// A kernel over arrays `x` and `out`.
fn kernel(body: &str) -> String {
    format!(
        "@wp.kernel\ndef k(x: wp.array(dtype=float), out: wp.array(dtype=float)):\n    {}\n",
        body.replace('\n', "\n    ")
    )
}

#[test]
fn launch_rank_is_the_number_of_values_of_tid() {
    let cases = [
        ("wp.atomic_add(out, 0, x[wp.tid()])", 1),
        ("# i, j, k, wp.tid() says which\nt = wp.tid()\nout[t] = wp.max(x[t], 2.0)", 1),
        ("t = wp.tid()  # i, j, k = wp.tid() would be for three\nout[t] = wp.min(x[t], 2.0)", 1),
        ("i, j = wp.tid(), 0\nout[i] = x[i] * 3.0 + float(j)", 1),
        ("out[wp.tid()] = wp.clamp(x[wp.tid()], 0.0, 1.0)", 1),
        ("i, j = wp.tid()\nwp.atomic_add(out, i, x[j])", 2),
        ("i, j, k = wp.tid()\nwp.atomic_add(out, i, x[j] * float(k))", 3),
    ];
    for (body, dims) in cases {
        let texts = texts(&kernel(body));
        let found = (0..4).filter(|n| texts.cuda.contains(&format!("launch_dim{n}"))).count().max(1);
        assert_eq!(found, dims, "{body}\n{}", texts.cuda);
    }
    let named =
        "from warp import tid\n\n@wp.kernel\ndef k(x: wp.array2d(dtype=float)):\n    i, j = tid()\n    x[i, j] = 1.0\n";
    assert!(texts(named).cuda.contains("launch_dim1"));
    let why = rejected(&kernel("i, j = wp.tid()\nwp.atomic_add(out, i, x[wp.tid()] * float(j))"));
    assert!(why.contains("wp.tid() is unpacked into both 1 and 2 values"), "{why}");
}

/// Runs a row's text like any user's, with float arrays and integers by name; returns the array
/// `out`.
fn launch(cuda: &str, arrays: &[(&str, &[f32])], sizes: &[(&str, i64)], threads: u32) -> Vec<f32> {
    let module = CudaModule::parse("row.cu", cuda).unwrap();
    let mut request = LaunchRequest::new([threads.div_ceil(64), 1, 1], [64, 1, 1]);
    for (name, cells) in arrays {
        request = request.length(name, cells.len() as u64);
    }
    let lowered = module.kernel(&module.kernels()[0].name, &request).unwrap();
    let kernel = &lowered.kernel;
    let (mut memory, mut values) = (vec![vec![]; kernel.params.len()], vec![vec![]; kernel.values.len()]);
    for (name, param) in &lowered.params {
        match param {
            ParamRef::View(n) => {
                let cells = arrays.iter().find(|(found, _)| found == name).unwrap().1;
                let mut words = vec![0u64; cells.len().div_ceil(2)];
                for (n, cell) in cells.iter().enumerate() {
                    store_scalar(&mut words, n * 4, Value::from_f64(Scalar::F32, *cell as f64));
                }
                memory[*n as usize] = words;
            }
            ParamRef::Value(n) => {
                let size = sizes.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("{name}\n{cuda}")).1;
                values[*n as usize] = vec![Value::int(kernel.values[*n as usize].ty.as_scalar().unwrap(), size)];
            }
        }
    }
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(values.iter().map(|parts| Arg::Value(parts)));
    run_with(kernel, &mut args, InterpreterOptions::default()).unwrap_or_else(|fault| panic!("{fault}\n{cuda}"));
    let out = kernel.params.iter().position(|p| p.name == "out").unwrap();
    let count = arrays.iter().find(|(name, _)| *name == "out").unwrap().1.len();
    (0..count).map(|n| load_scalar(&memory[out], n * 4, Scalar::F32).as_f64() as f32).collect()
}

#[test]
fn cuda_text_is_correct_for_sizes_that_were_not_checked() {
    let texts = texts(
        "@wp.kernel\ndef inner(x: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):\n    i, j = wp.tid()\n    \
         if i > 0 and i < x.shape[0] - 1:\n        out[i, j] = x[i - 1, j] + x[i + 1, j]\n",
    );
    for literal in ["1000", "999"] {
        assert!(!texts.cuda.contains(literal) && !texts.cpp.contains(literal), "{}\n{}", texts.cuda, texts.cpp);
    }
    let mut state = seed();
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for _ in 0..8 {
        let (rows, columns) = (1 + below(70) as usize, 1 + below(30) as usize);
        let x: Vec<f32> = (0..rows * columns).map(|_| below(1000) as f32).collect();
        let out = vec![-1.0; x.len()];
        let size = |n: usize| n as i64;
        let sizes = [
            ("x_shape0", size(rows)),
            ("x_shape1", size(columns)),
            ("x_stride0", size(columns)),
            ("out_shape0", size(rows)),
            ("out_shape1", size(columns)),
            ("out_stride0", size(columns)),
            ("launch_count", size(x.len())),
            ("launch_dim0", size(rows)),
            ("launch_dim1", size(columns)),
        ];
        let found = launch(&texts.cuda, &[("x", &x), ("out", &out)], &sizes, x.len() as u32);
        let expected = |at: usize| {
            let inside = at >= columns && at / columns + 1 < rows;
            if inside { x[at - columns] + x[at + columns] } else { -1.0 }
        };
        assert_eq!(found, (0..x.len()).map(expected).collect::<Vec<_>>(), "{rows} x {columns}\n{}", texts.cuda);
    }
}

#[test]
fn kernels_with_matrices_long_vectors_and_halves_are_accepted() {
    let all = ingested(
        "@wp.kernel\ndef matrices(a: wp.array(dtype=wp.mat33), out: wp.array(dtype=wp.mat33)):\n    i = wp.tid()\n    \
         out[i] = a[i] * wp.transpose(a[i])\n\n\n\
         @wp.kernel\ndef spatial(a: wp.array(dtype=wp.spatial_vector), out: wp.array(dtype=wp.spatial_vector)):\n    \
         i = wp.tid()\n    b = a[i] * 2.0\n    b[4] = 0.5\n    out[i] = b\n\n\n\
         @wp.kernel\ndef halves(a: wp.array(dtype=wp.vec2h), out: wp.array(dtype=wp.vec2h)):\n    i = wp.tid()\n    \
         out[i] = a[i] + a[i] * wp.float16(0.5)\n\n\n\
         @wp.kernel\ndef early(x: wp.array(dtype=float), out: wp.array(dtype=float)):\n    i = wp.tid()\n    \
         if x[i] < 0.0:\n        return\n    out[i] = wp.sqrt(x[i])\n",
    );
    for kernel in all {
        assert!(kernel.outcome.is_ok(), "{}: {:?}", kernel.name, kernel.outcome);
    }
}

#[test]
fn only_the_rounding_of_sums_may_depend_on_the_order() {
    let sums = [
        "i = wp.tid()\nwp.atomic_add(out, 0, x[i] * x[i])",
        "i = wp.tid()\nwp.atomic_sub(out, 0, wp.sin(x[i]) * 1000.0)",
        "i = wp.tid()\nout[i % 3] += wp.exp(x[i])",
        "i = wp.tid()\nfor n in range(3):\n    if x[i] > 0.5:\n        wp.atomic_add(out, i // 2, x[i] / float(n + 3))",
    ];
    for body in sums {
        texts(&kernel(body));
    }
    texts(
        "@wp.kernel\ndef k(x: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3), total: wp.array(dtype=float)):\n    \
         i = wp.tid()\n    wp.atomic_add(out, 0, x[i] * 0.3)\n    wp.atomic_add(total, 0, wp.length(x[i]))\n",
    );
    let ordered = [
        // The result of an atomic update depends on the earlier ones.
        "i = wp.tid()\nout[i] = wp.atomic_add(out, 0, x[i])",
        "i = wp.tid()\nold = wp.atomic_add(x, 0, 1.0)\nout[i] = old * 0.5",
        "i = wp.tid()\nwp.atomic_exch(out, 0, x[i])",
    ];
    for body in ordered {
        let why = rejected(&kernel(body));
        assert!(why.contains("depend on the order") || why.contains("race on"), "{why}\n{body}");
    }
}

#[test]
fn row_source_contains_only_what_its_kernel_needs() {
    let file = "from __future__ import annotations\n\nimport numpy as np\nimport warp as wp\n\n\
        # Steps a second.\nRATE = 50.0\nSTEP = 1.0 / RATE  # seconds\nUNUSED = 7\nSIZES = [1, 2]\nSIZES.append(5)\n\n\
        @wp.struct\nclass Ball:\n    x: wp.vec3\n    v: wp.vec3\n\n@wp.struct\nclass Other:\n    a: float\n\n\
        @wp.func\ndef pull(x: wp.vec3):\n    return -x * 2.0\n\n@wp.func\ndef moved(x: wp.vec3, v: wp.vec3):\n    \
        return x + (v + pull(x) * STEP) * STEP\n\n@wp.func\ndef square(a: float):\n    return a * a\n\n\
        @wp.kernel\ndef fly(balls: wp.array(dtype=Ball), out: wp.array(dtype=wp.vec3)):\n    \
        '''Moves balls.\n\n    Each by one step.\n    '''\n    UNUSED = wp.tid()\n    b = balls[UNUSED]\n    \
        out[UNUSED] = moved(b.x, b.v)\n\n\
        @wp.kernel\ndef squares(x: wp.array(dtype=float)):\n    \"\"\"Squares all\n    elements.\"\"\"\n    i = wp.tid()\n    \
        if i > 0 and not x[i] == 2.0:\n        x[i] = wp.where(x[i] > 1.0, square(x[i]), -x[i]) + float(i)\n\n\
        if __name__ == '__main__':\n    STEPS = 3\n    wp.launch(squares, 3, [np.zeros(3)])\n";
    let all = ingest("balls.py", file).unwrap();
    let [fly, squares] = &all[..] else { panic!("{all:?}") };
    let (fly, squares) = (fly.outcome.as_ref().unwrap(), squares.outcome.as_ref().unwrap());
    for there in
        ["RATE = 50.0", "# Steps a second.", "STEP = 1.0 / RATE  # seconds", "class Ball", "def pull", "def moved"]
    {
        assert!(fly.source.contains(there), "no {there}\n{}", fly.source);
        assert!(!squares.source.contains(there), "{there}\n{}", squares.source);
    }
    for absent in ["UNUSED = 7", "SIZES", "Other", "def square", "numpy", "__main__"] {
        assert!(!fly.source.contains(absent), "{absent}\n{}", fly.source);
    }
    assert!(squares.source.contains("def square(") && fly.source.starts_with("from __future__"), "{}", squares.source);
    assert_eq!(
        (fly.description.as_str(), squares.description.as_str()),
        ("Moves balls.\n\nEach by one step.", "Squares all\nelements.")
    );
    assert_eq!(fly.ops.join(" "), "add call mul neg");
    assert_eq!(squares.ops.join(" "), "add call cast compare equal if logical mul neg not where");
    assert_eq!(fly.types.join(" "), "f32 i32 struct vector");
    assert_eq!(squares.block, [256, 1, 1]);
    // A row can be regenerated from its source.
    for (texts, name) in [(fly, "fly"), (squares, "squares")] {
        let regenerated = ingest("row.py", &texts.source).unwrap().remove(0);
        assert_eq!((regenerated.name.as_str(), regenerated.outcome.as_ref()), (name, Ok(texts)));
    }
}

#[test]
fn kernels_without_observable_effect_are_rejected() {
    let cases = [
        ("i = wp.tid()", "writes to no array"),
        ("i = wp.tid()\nif i < 0:\n    out[i] = x[i]", "changes no array"),
        ("i = wp.tid()\nout[i] = wp.log(-1.0 - x[i] * x[i])", "every value that the kernel writes to 'out' is NaN"),
        ("i = wp.tid()\nout[i] = x[i + 1]", "outside 'x'"),
        ("i = wp.tid()\nout[0] = x[i]", "race on"),
        ("i = wp.tid()\nwhile x[i] == x[i]:\n    out[i] += 1.0", "still running"),
    ];
    for (body, expected) in cases {
        let why = rejected(&kernel(body));
        assert!(why.contains(expected), "{why}\n{body}");
    }
    texts(&kernel("out[wp.tid()] = 1.0"));
}

#[test]
fn duplicates_are_found() {
    let double = |name: &str, by: &str| {
        format!("@wp.kernel\ndef {name}(a: wp.array(dtype=float)):\n    i = wp.tid()\n    a[i] = a[i] {by}\n\n")
    };
    let all = ingested(&[double("k", "* 2.0"), double("k2", "* 3.0"), double("k", "+ 2.0")].concat());
    assert_eq!(duplicates(&all), [None, Some(0), None]);
}

#[test]
fn annotations_describe_the_inputs_of_a_kernel() {
    let histogram = "@wp.kernel\ndef count(x: wp.array(dtype=int), bins: wp.array(dtype=int)):\n    # given: x = n below 10\n    \
                     # given: bins = 10\n    wp.atomic_add(bins, x[wp.tid()], 1)\n";
    let rows = [
        (histogram, "x: i32[x_shape0] = indices below 10\nbins: i32[bins_shape0] = indices below launch_count\n"),
        (histogram, "x_shape0: i32 = launch_count\nbins_shape0: i32 = 10\n"),
        (
            "@wp.kernel\ndef springs(ends: wp.array(dtype=int), x: wp.array(dtype=float), out: wp.array(dtype=float)):\n    \
             \"\"\"Lengths.\"\"\"\n    # given: ends = 2*n\n    i = wp.tid()\n    out[i] = x[ends[2 * i]] - x[ends[2 * i + 1]]\n",
            "ends_shape0: i32 = 2 * launch_count\n",
        ),
        (
            "@wp.kernel\ndef rows(x: wp.array2d(dtype=float), out: wp.array(dtype=float), from_: int, scale: wp.vec2):\n    \
             # given: x = n+1, 4\n    # given: from_ = 3\n    # given: scale = 0.5, -2\n    i = wp.tid()\n    \
             out[i] = x[i + 1, from_] * scale[0] + scale[1]\n",
            "from_: i32 = 3\nscale: f32x2 = 0.5, -2\nx_shape0: i32 = launch_count + 1\nx_stride0: i32 = x_shape1\nx_shape1: i32 = 4\n",
        ),
        (
            "@wp.kernel\ndef flat(x: wp.array(dtype=float), out: wp.array(dtype=float), width: int):\n    # given: x = n*n1 - 1 + 1\n    \
             # given: out = n * n1\n    # given: width = n1\n    # given: launch = 5x7, 16x16\n    i, j = wp.tid()\n    \
             out[i * width + j] = x[i * width + j] * 2.0\n",
            "width: i32 = launch_dim1\nx_shape0: i32 = launch_dim0 * launch_dim1 - 1 + 1\nout_shape0: i32 = launch_dim0 * launch_dim1\n\
             launch_count: i32 = launch_dim0 * launch_dim1\nlaunch_dim0: i32 = 5, 16\nlaunch_dim1: i32 = 7, 16\n",
        ),
        (
            "@wp.kernel\ndef long(x: wp.array(dtype=int), by: wp.int64, launch: int):\n    # given: by = 9007199254740993\n    \
             # given: launch = 3\n    if by == wp.int64(9007199254740993) and launch == 3:\n        x[wp.tid()] = -1\n",
            "by: i64 = 9007199254740993\nlaunch: i32 = 3\n",
        ),
        (
            "@wp.kernel\ndef step(x: wp.array(dtype=int)):\n    # given: launch = 1\n    x[0] = x[0] + 1\n",
            "launch_count: i32 = 1\n",
        ),
    ];
    for (body, recipe) in rows {
        let texts = texts(body);
        assert!(texts.inputs.contains(recipe), "{}\n{body}", texts.inputs);
        let regenerated = ingest("row.py", &texts.source).unwrap().remove(0);
        assert_eq!(regenerated.outcome.as_ref(), Ok(&texts), "a row can be regenerated from its source");
    }
    let manual = include_str!("../../../docs/dataset.md");
    let example =
        manual.split("```python\n").find(|text| text.contains("# given:")).unwrap().split("```").next().unwrap();
    assert!(texts(example).inputs.contains("launch_count: i32 = 64, 100\n"));
    let k = |annotation: &str| kernel(&format!("{annotation}\ni = wp.tid()\nout[i] = x[i + 1]"));
    let invalid = [
        (
            "",
            "outside 'x' of 1 elements, in instance 0; if the array has another size, annotate it in the kernel: # given: x = SIZE",
        ),
        ("# given: x = n", "outside 'x'"),
        ("# given: x = 2", "outside 'x'"),
        ("# given: x = n+1\n# given: out = n-2", "'out' has a negative extent"),
        ("# given: x = 2*n*n*n*n", "more than 1048576 elements in a launch of 31 instances"),
        ("# given: x = 99999999999999999999", "'99999999999999999999' is not a valid size"),
        ("# given: x = 9000000000000000000 * 9", "a negative extent or more than 1048576 elements"),
        ("# given: y = n", "line 5: '# given: y = n': the kernel has no parameter 'y'"),
        ("# given: x = n, 2", "the array has rank 1, but the number of sizes is 2"),
        ("# given: x = m", "'m' is not a valid size: use integers and n with +, - and *"),
        ("# given: x = n1", "'n1' is not a valid size"),
        ("# given: x = ", "'' is not a valid size"),
        ("# given:", "no parameter ''"),
        ("# given: x = n below", "'n below' is not a valid size"),
        ("# given: x = n\n# given: x = n", "line 6: '# given: x = n': 'x' is annotated twice"),
        ("# given: launch = 3x3", "'3x3' is not a valid launch: write one extent per value of wp.tid(), such as 64"),
        ("# given: launch = 2000000", "2000000 instances exceed the maximum"),
        ("# given: launch = 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "more than 16 launches"),
    ];
    for (annotation, expected) in invalid {
        let why = rejected(&k(annotation));
        assert!(why.contains(expected), "{annotation}\n{why}");
    }
    let why = rejected(
        "@wp.kernel\ndef k(v: wp.array(dtype=wp.vec3), x: wp.array(dtype=int)):\n    i = wp.tid()\n    v[i][x[i]] = 2.0\n",
    );
    assert!(why.ends_with("is outside 'v, components' of 3 elements, in instance 1"), "{why}");
    let why = rejected(
        "@wp.kernel\ndef k(x: wp.array(dtype=int)):\n    # given: x = n below n - 40\n    x[wp.tid()] = x[0] + 1\n",
    );
    assert!(why.contains("the bound of 'x' is negative"), "{why}");
    let number = |annotation: &str| {
        rejected(&format!(
            "@wp.kernel\ndef k(x: wp.array(dtype=float), by: wp.uint8):\n    # given: by = {annotation}\n    x[wp.tid()] = float(by)\n"
        ))
    };
    for (annotation, expected) in [
        ("300", "'by' does not fit u8"),
        ("-1", "'by' has type u8, which cannot represent -1"),
        ("0.5", "cannot represent 0.5"),
        ("n", "'by' does not fit u8 in a launch of 256 instances"),
        ("1, 2", "the number of components is 1, but the number of values is 2"),
        ("one", "'one' is not a number"),
    ] {
        let why = number(annotation);
        assert!(why.contains(expected), "{annotation}\n{why}");
    }
    // Annotations outside the kernel.
    for stray in [format!("# given: x = n+1\n{}", k("")), format!("{}    # given: x = n+1\n", k(""))] {
        let why = rejected(&stray);
        assert!(why.contains("must be inside a kernel, before its last statement"), "{why}");
    }
}
