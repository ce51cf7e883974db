//! Sample kernels that together use every feature of the IR.

use bornite_ir::{
    Access, AlgebraOp, Atomic, Axis, Builder, Builtin, Check, Dim, Emit, EmitBits, Extent, Kernel, Op, Scalar, Scope,
    Shuffle, Stmt, Type, Value, Vote, contiguous, templates,
};

/// All templates, and a kernel with every feature that templates lack.
pub fn kernels() -> Vec<Kernel> {
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
        templates::layer_norm(Scalar::F16, 3, 20, 16, 1e-5).unwrap(),
        templates::conv2d(Scalar::F32, 2, 5, 5, 2, 3).unwrap(),
        templates::particles().unwrap(),
        bornite_ir::elementwise("formula", "x < 0 ? -silu(x) : gelu(x) * y % 3", Scalar::F32, 10).unwrap(),
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
    let lanes = b.constant(Value::int(Scalar::U32, 0xffff));
    b.masked_shuffle(Shuffle::Index, old, tx, Some(lanes));
    b.masked_vote(Vote::Ballot, yes, Some(lanes));
    b.bitcast(Scalar::F64, &old);
    b.infinite_loop(|b| {
        b.if_else(yes, |b| b.push_stmt(Stmt::Break), |b| b.push_stmt(Stmt::Continue));
        b.push_stmt(Stmt::Return(None));
    });
    for stmt in [Stmt::Barrier, Stmt::WarpBarrier].into_iter().chain(Scope::ALL.map(Stmt::Fence)) {
        b.push_stmt(stmt);
    }
    b.push_stmt(Stmt::Check(Check::Assert { condition: yes, message: "x[i] < 5, always".into() }));
    let index = b.constant(Value::int(Scalar::I64, 2));
    b.push_stmt(Stmt::Check(Check::InBounds { index, len: 1 << 40, array: "table".into() }));
    kernels.push(b.finish().unwrap());
    kernels.push(composites());
    kernels
}

/// Vectors, matrices, structs, functions, values, views of every kind, wide accesses, prints.
pub fn composites() -> Kernel {
    let mut b = Builder::new("composites", 0, Scalar::I32);
    let (f32x4, u32x2) = (Type::Vector(Scalar::F32, 4), Type::Vector(Scalar::U32, 2));
    let inner = b.struct_type("Inner", &[("flag", Scalar::Bool.into()), ("matrix", Type::Matrix(Scalar::F64, 2, 2))]);
    let outer = b.struct_type("Outer", &[("inner", inner), ("small", Scalar::I8.into()), ("vector", f32x4)]);
    let n = b.value("n", Scalar::I32);
    let scale = b.value("scale", Scalar::F32);
    let inputs = b.value("given", outer);
    b.set_instance_count(Extent::Value(0));
    let dim = |extent: i64, stride: i64| Dim { extent: Extent::Const(extent), stride: Extent::Const(stride) };
    let x = b.view("x", Scalar::F32, &contiguous(&[Extent::Value(0), Extent::Const(8)]), Access::Read);
    let strided = b.view("strided", Scalar::F32, &[dim(2, -1), dim(3, 0), dim(2, 8), dim(2, 4)], Access::Read);
    let records = b.view("records", outer, &contiguous(&[Extent::Value(0)]), Access::ReadWrite);
    let sums = b.param("sums", u32x2, 4, Access::ReadWrite);
    let out = b.view("out", Scalar::F32, &contiguous(&[Extent::Value(0), Extent::Const(8)]), Access::Write);
    let square = b.function("square", &[("v", f32x4), ("most", Scalar::F32.into())], Scalar::F32, |b, args| {
        let total = b.typed_local("total", f32x4, &[Value::from_f64(Scalar::F32, 0.0)]);
        b.assign(total, args[0]);
        let total = b.read(total);
        let square = b.algebra(AlgebraOp::Dot, &[total, args[0]]);
        let large = b.op(Op::Gt, &[&square, &args[1]]);
        b.if_else(large, |b| b.push_stmt(Stmt::Return(Some(args[1]))), |_| {});
        square
    });
    let i = b.index();
    let [zero, one, two, four] = [0, 1, 2, 4].map(|n| b.index_constant(n));
    let wide = b.load_wide(x, [i, four], 4);
    let length = b.call(square, &[wide, scale]);
    let single = b.load(strided, [one, two, zero, one]);
    let doubled = b.scale(&wide, 2.0);
    let picked = b.constant_like(&doubled, 3.0);
    let larger = b.op(Op::Gt, &[&doubled, &picked]);
    let chosen = b.select(&larger, &doubled, &wide);
    b.store(out, [i, zero], chosen);
    b.store(out, [i, four], length);
    let record = b.load(records, i);
    let inside = b.extract(record, 0);
    let matrix = b.extract(inside, 1);
    let inverse = b.algebra(AlgebraOp::Inverse, &[matrix]);
    let transposed = b.algebra(AlgebraOp::Transpose, &[inverse]);
    let product = b.algebra(AlgebraOp::MatMul, &[transposed, matrix]);
    let determinant = b.algebra(AlgebraOp::Determinant, &[product]);
    let inside = b.insert(inside, 1, product);
    let record = b.insert(record, 0, inside);
    let small = b.extract(inputs, 1);
    let record = b.insert(record, 1, small);
    b.store(records, i, record);
    let bits = b.bitcast(Scalar::U32, &wide);
    let narrow = b.cast(Scalar::I16, &bits);
    let _ = b.cast(Scalar::F16, &narrow);
    let words = [1, 2].map(|word| b.constant(Value::int(Scalar::U32, word)));
    let key = b.construct(u32x2, &words);
    let random = b.algebra(AlgebraOp::Philox, &[bits, key]);
    let first = b.extract(random, 0);
    let pair = b.construct(u32x2, &[first]);
    b.atomic(Atomic::Xor, sums, one, pair);
    b.push_stmt(Stmt::Fence(Scope::System));
    b.print("instance {} of {%-5d}: {%.3f} {} 100% {%{}}", &[i, n, single, determinant]);
    b.print("done", &[]);
    b.finish().unwrap()
}
