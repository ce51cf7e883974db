//! Random well-typed kernels, reproducible from a seed: expressions of all types, vectors, matrices
//! and structs, functions, loops, branches, gathers through views of all ranks and strides, vector
//! loads, atomics, local arrays and, in block kernels, shared memory with barriers and shuffles.

use bornite_ir::{
    Access, AlgebraOp, Atomic, Axis, Builder, Builtin, Dim, Emit, EmitBits, ExprId, Extent, Field, FunctionId, Kernel,
    LocalId, Op, ParamId, Scalar, SharedId, Shuffle, Stmt, Type, Value, contiguous,
};

#[path = "local_arrays.rs"]
mod local_arrays;
#[path = "uniform.rs"]
mod uniform;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn bits(&mut self) -> u64 {
        (self.below(1 << 32) as u64) << 32 | self.below(1 << 32) as u64
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Random value of a type: small, special, or any bits.
    pub fn value(&mut self, scalar: Scalar) -> Value {
        match self.below(4) {
            0 => Value::from_bits(scalar, self.bits()),
            1 => {
                let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NAN, 1e-40, 1e30, 127.0, -128.0];
                Value::from_f64(scalar, self.one(&special))
            }
            _ => Value::from_f64(scalar, self.below(4001) as f64 / 100.0 - 20.0),
        }
    }
}

/// Read-only view.
struct Input {
    view: ParamId,
    ty: Type,
    /// Extent of each dimension, and its value parameter if it is not constant.
    extents: Vec<(u64, Option<ExprId>)>,
    /// Elements along the last dimension that can be loaded at once.
    width: u8,
}

/// Kernel with its value arguments.
pub struct Case {
    pub kernel: Kernel,
    pub values: Vec<Vec<Value>>,
}

struct Generator {
    b: Builder,
    random: Random,
    index: Scalar,
    scalars: Vec<Scalar>,
    /// Vectors, matrices and structs, with the components of each.
    composites: Vec<(Type, Vec<Type>)>,
    functions: Vec<(FunctionId, Vec<Type>, Type)>,
    inputs: Vec<Input>,
    sums: Option<(ParamId, Atomic, Type)>,
    locals: Vec<(LocalId, Type)>,
    arrays: Vec<local_arrays::Array>,
    /// Values in scope.
    pool: Vec<(ExprId, Type)>,
    in_loop: bool,
    /// Block size, shared arrays and thread index; only in block kernels, outside branches and
    /// loops.
    block: Option<(u32, Vec<(SharedId, Scalar)>, ExprId)>,
    /// Return type of the function being built.
    result: Option<Type>,
    /// If set, all instances take the same path: no divergent branches or loops, no atomics.
    uniform: bool,
}

/// Generates a random kernel; `half` allows 16-bit floats.
pub fn case(seed: u64, half: bool) -> Case {
    make(seed, half, false)
}

/// Generates a random kernel that can be vectorized: all instances take the same path and access
/// adjacent elements.
#[allow(dead_code)] // not by all who share this file
pub fn vectorizable_case(seed: u64) -> Case {
    make(seed, true, true)
}

fn make(seed: u64, half: bool, uniform: bool) -> Case {
    let mut random = Random(seed);
    let index = if random.below(4) == 0 { Scalar::I64 } else { Scalar::I32 };
    let scalars: Vec<Scalar> =
        Scalar::ALL.into_iter().filter(|&s| half || !matches!(s, Scalar::F16 | Scalar::BF16)).collect();
    let threads = random.one(&[32, 64, 48, 96]);
    let cooperative = random.below(4) == 0 && !uniform;
    let blocks = 1 + random.below(3) as u32;
    let mut b = match cooperative {
        true => Builder::blocks("fuzzed", [blocks, 1, 1], [threads, 1, 1], index),
        false => Builder::new("fuzzed", 1 + random.below(300) as u64, index),
    };
    let composites = composites(&mut b, &mut random, &scalars);
    let mut values = vec![];
    let mut count = Extent::Const(1 + random.below(300) as i64);
    let mut pool = vec![];
    let mut sizes = vec![];
    if random.below(2) == 0 {
        let n = 1 + random.below(300) as i64;
        pool.push((b.value("n", index), index.into()));
        values.push(vec![Value::int(index, n)]);
        count = Extent::Value(0);
        let size = 1 + random.below(6) as i64;
        sizes.push((size, b.value("size", index)));
        values.push(vec![Value::int(index, size)]);
        let ty = random_type(&mut random, &scalars, &composites);
        pool.push((b.value("given", ty), ty));
        values.push(components(ty, &composites).iter().map(|&s| random.value(s)).collect());
    }
    if !cooperative {
        b.set_instance_count(count);
    }
    let elements = match (cooperative, count) {
        (true, _) => Extent::Const((blocks * threads) as i64),
        (false, count) => count,
    };
    let result = random_type(&mut random, &scalars, &composites);
    let out = b.view("out", result, &contiguous(&[elements]), Access::Write);
    let atomics = [Atomic::Add, Atomic::Sub, Atomic::Min, Atomic::Max, Atomic::And, Atomic::Or, Atomic::Xor];
    let (atomic, shape) = (random.one(&atomics), random.below(3));
    let scalar = random.one(&[Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64]);
    let summed = if shape == 0 { Type::Vector(scalar, 2) } else { scalar.into() };
    let sums = Some((b.param("sums", summed, 8, Access::ReadWrite), atomic, summed));
    let inputs = inputs(&mut b, &mut random, &scalars, &composites, &sizes);
    let mut shared = vec![];
    if cooperative {
        for n in 0..1 + random.below(2) {
            let scalar = random.one(&scalars);
            shared.push((b.shared(format!("tile{n}"), scalar, threads as u64), scalar));
        }
    }
    let mut g = Generator {
        b,
        random,
        index,
        scalars,
        composites,
        functions: vec![],
        inputs: vec![],
        sums: None,
        locals: vec![],
        arrays: vec![],
        pool: vec![],
        in_loop: false,
        block: None,
        result: None,
        uniform,
    };
    for n in 0..g.random.below(3) {
        g.function(n);
    }
    g.pool = pool;
    (g.inputs, g.sums) = (inputs, sums);
    let index_value = match cooperative {
        false => g.b.index(),
        true => {
            let [thread, block, size] =
                [Builtin::Thread, Builtin::Block, Builtin::BlockSize].map(|of| g.b.builtin(of(Axis::X)));
            g.block = Some((threads, shared, thread));
            g.pool.push((thread, index.into()));
            let first = g.b.mul(&block, &size);
            g.b.add(&first, &thread)
        }
    };
    g.pool.push((index_value, index.into()));
    g.variables();
    if !uniform {
        g.local_arrays();
    }
    if uniform {
        let count = elements.resolve(&values.iter().map(|parts| parts[0]).collect::<Vec<_>>()) as u64;
        for n in 0..1 + g.random.below(4) {
            g.neighbours(n, count, index_value);
        }
    }
    let length = 4 + g.random.below(12);
    g.statements(length, 2);
    let value = g.pick(result);
    match result.as_scalar().is_none() && g.random.below(3) == 0 {
        true => g.store_components(out, index_value, value, result),
        false => g.b.store(out, index_value, value),
    }
    let kernel = g.b.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    Case { kernel, values }
}

/// Adds a few vector and matrix types, and sometimes a struct of them.
fn composites(b: &mut Builder, random: &mut Random, scalars: &[Scalar]) -> Vec<(Type, Vec<Type>)> {
    let mut all: Vec<(Type, Vec<Type>)> = vec![];
    for _ in 0..random.below(4) {
        let scalar = random.one(scalars);
        let ty = match random.below(5) {
            0 | 1 => Type::Vector(scalar, random.one(&[2, 3, 4, 3, 8, 16])),
            2 => Type::Vector(Scalar::F32, 3),
            3 => Type::Matrix(random.one(&[Scalar::F32, Scalar::F64, scalar]), 3, 3),
            _ => Type::Matrix(scalar, 2 + random.below(3) as u8, 2 + random.below(3) as u8),
        };
        if all.iter().all(|(other, _)| *other != ty) {
            let each = Type::Scalar(ty.element().unwrap_or(scalar));
            all.push((ty, vec![each; ty.component_count(&[])]));
        }
    }
    if random.below(3) == 0 {
        let names = ["first", "second", "third"];
        let fields: Vec<Field> = (names[..1 + random.below(3)].iter())
            .map(|name| {
                let inner = if all.is_empty() { None } else { Some(all[random.below(all.len())].0) };
                let ty = inner.filter(|_| random.below(2) == 0).unwrap_or(random.one(scalars).into());
                // C++ rejects an alignment below that of the type.
                let align = if random.below(3) == 0 { 8 << random.below(3) } else { 1 };
                Field { name: (*name).into(), ty, align }
            })
            .collect();
        let types = fields.iter().map(|field| field.ty).collect();
        all.push((b.struct_from_fields("Record", fields), types));
    }
    all
}

/// Returns the scalar components of a type.
fn components(ty: Type, composites: &[(Type, Vec<Type>)]) -> Vec<Scalar> {
    match composites.iter().find(|(other, _)| *other == ty) {
        Some((_, parts)) => parts.iter().flat_map(|&part| components(part, composites)).collect(),
        None => ty.components(&[]),
    }
}

fn random_type(random: &mut Random, scalars: &[Scalar], composites: &[(Type, Vec<Type>)]) -> Type {
    if !composites.is_empty() && random.below(3) == 0 {
        return composites[random.below(composites.len())].0;
    }
    random.one(scalars).into()
}

/// Adds views of one to four dimensions: contiguous, transposed, reversed or broadcast; some with
/// dynamic extents.
fn inputs(
    b: &mut Builder,
    random: &mut Random,
    scalars: &[Scalar],
    composites: &[(Type, Vec<Type>)],
    sizes: &[(i64, ExprId)],
) -> Vec<Input> {
    (0..1 + random.below(3))
        .map(|n| {
            let ty = random_type(random, scalars, composites);
            let mut extents: Vec<(u64, Option<ExprId>)> =
                (0..1 + random.below(4)).map(|_| (1 + random.below(6) as u64, None)).collect();
            if let (Some(&(size, value)), 0) = (sizes.first(), random.below(2)) {
                extents[0] = (size as u64, Some(value));
            }
            let mut width = 1;
            if let (Type::Scalar(scalar), 0, true) = (ty, random.below(2), extents.len() > 1) {
                let fitting: Vec<u8> =
                    [2u8, 4, 8, 16].into_iter().filter(|&w| w as usize * scalar.bytes() <= 16).collect();
                if scalar != Scalar::Bool {
                    width = random.one(&fitting);
                    if let Some(last) = extents.last_mut() {
                        *last = (width as u64 * (1 + random.below(3) as u64), None);
                    }
                }
            }
            let known: Vec<Extent> = extents.iter().map(|&(n, _)| n.into()).collect();
            let mut dims = contiguous(&known);
            if width == 1 {
                match random.below(4) {
                    0 => {
                        let strides: Vec<Extent> = dims.iter().rev().map(|dim| dim.stride).collect();
                        dims.iter_mut().zip(strides).for_each(|(dim, stride)| dim.stride = stride);
                    }
                    1 => {
                        let at = random.below(dims.len());
                        dims[at].stride = Extent::Const(-dims[at].stride.resolve(&[]));
                    }
                    2 => {
                        let at = random.below(dims.len());
                        dims[at].stride = Extent::Const(0);
                    }
                    _ => {}
                }
            }
            for (dim, (_, value)) in dims.iter_mut().zip(&extents) {
                if value.is_some() {
                    *dim = Dim { extent: Extent::Value(1), ..*dim };
                }
            }
            let view = b.view(format!("in{n}"), ty, &dims, Access::Read);
            Input { view, ty, extents, width }
        })
        .collect()
}

impl Generator {
    fn random_type(&mut self) -> Type {
        random_type(&mut self.random, &self.scalars, &self.composites)
    }

    fn variables(&mut self) {
        self.locals = (0..self.random.below(4))
            .map(|n| {
                let ty = self.random_type();
                let init: Vec<Value> = components(ty, &self.composites).iter().map(|&s| self.random.value(s)).collect();
                (self.b.typed_local(format!("local{n}"), ty, &init), ty)
            })
            .collect();
    }

    /// Adds a function of a few values.
    fn function(&mut self, n: usize) {
        let names = ["a", "b", "c"];
        let params: Vec<(&str, Type)> =
            names[..1 + self.random.below(3)].iter().map(|name| (*name, self.random_type())).collect();
        let result = self.random_type();
        let outer = self.b.open_function(&params);
        self.pool = params.iter().enumerate().map(|(n, (_, ty))| (ExprId(n as u32), *ty)).collect();
        self.result = Some(result);
        self.variables();
        let length = 1 + self.random.below(5);
        self.statements(length, 1);
        let value = self.pick(result);
        self.result = None;
        let id = self.b.close_function(outer, format!("function{n}"), &params, result, value);
        self.functions.push((id, params.into_iter().map(|(_, ty)| ty).collect(), result));
    }

    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            match self.random.below(20) {
                0 | 1 if depth > 0 && !self.uniform => self.branch(depth),
                0 if depth > 0 => self.uniform_branch(depth),
                2 if depth > 0 => self.counted_loop(depth),
                3 if depth > 0 && !self.uniform => self.infinite_loop(depth),
                4 | 5 if !self.locals.is_empty() => {
                    let (local, ty) = self.locals[self.random.below(self.locals.len())];
                    let value = self.pick(ty);
                    self.b.assign(local, value);
                }
                6 if !self.locals.is_empty() => {
                    let (local, ty) = self.locals[self.random.below(self.locals.len())];
                    let value = self.b.read(local);
                    self.pool.push((value, ty));
                }
                7 | 8 if !self.inputs.is_empty() => self.gather(),
                9 if !self.in_loop && !self.uniform => self.atomic(),
                10 if !self.functions.is_empty() => {
                    let at = self.random.below(self.functions.len());
                    let (id, params, result) = self.functions[at].clone();
                    let args: Vec<ExprId> = params.iter().map(|&ty| self.pick(ty)).collect();
                    let value = self.b.call(id, &args);
                    self.pool.push((value, result));
                }
                11 | 12 if !self.composites.is_empty() => self.algebra(),
                13 => self.exchange(),
                15 | 16 if !self.arrays.is_empty() => self.local_access(),
                14 if self.result.is_some() && !self.in_loop && !self.uniform => {
                    let (condition, value) = (self.pick(Scalar::Bool.into()), self.result.map(|ty| self.pick(ty)));
                    self.b.if_else(condition, |b| b.push_stmt(Stmt::Return(value)), |_| {});
                }
                _ => self.operation(),
            }
        }
    }

    /// Applies an op to values of the pool, scalar or component by component.
    fn operation(&mut self) {
        let op = Op::ALL[self.random.below(Op::ALL.len())];
        let mut whole = Type::Scalar(self.random.one(&self.scalars));
        if let (0, Some(&(ty, _))) = (self.random.below(4), self.composites.first())
            && ty.element().is_some()
        {
            whole = ty;
        }
        let Some(scalar) = whole.element() else { return };
        let mut types = vec![scalar; op.arity()];
        if op == Op::Select {
            types[0] = Scalar::Bool;
        }
        let Ok(result) = op.row().rule.result(&types) else { return };
        let one_condition = op == Op::Select && self.random.below(2) == 0;
        let args: Vec<ExprId> = (types.iter().enumerate())
            .map(|(n, &s)| self.pick(if n == 0 && one_condition { s.into() } else { whole.with_element(s) }))
            .collect();
        let value = self.b.op(op, &args.iter().collect::<Vec<_>>());
        self.pool.push((value, whole.with_element(result)));
    }

    /// Applies an algebra op, if the available types match one.
    fn algebra(&mut self) {
        let (ty, parts) = self.composites[self.random.below(self.composites.len())].clone();
        let row = AlgebraOp::ALL[self.random.below(AlgebraOp::ALL.len())];
        let other = self.composites[self.random.below(self.composites.len())].0;
        let at = self.random.below(parts.len());
        let (types, at) = match row {
            AlgebraOp::Construct => {
                let value = self.pick(ty);
                self.pool.push((value, ty));
                return;
            }
            AlgebraOp::Extract => (vec![ty], at as u32),
            AlgebraOp::Insert => (vec![ty, parts[at]], at as u32),
            AlgebraOp::Philox => (vec![Type::Vector(Scalar::U32, 4), Type::Vector(Scalar::U32, 2)], 0),
            AlgebraOp::Dot | AlgebraOp::Cross => (vec![ty, ty], 0),
            AlgebraOp::Outer => (vec![ty, other], 0),
            AlgebraOp::MatVec | AlgebraOp::MatMul => {
                let Type::Matrix(scalar, _, inner) = ty else { return };
                let right = match row {
                    AlgebraOp::MatVec => Type::Vector(scalar, inner),
                    _ => Type::Matrix(scalar, inner, 2 + self.random.below(3) as u8),
                };
                (vec![ty, right], 0)
            }
            _ => (vec![ty], 0),
        };
        let structs: Vec<bornite_ir::Struct> = vec![];
        let result = match row {
            AlgebraOp::Extract => Ok(parts[at as usize]),
            AlgebraOp::Insert => Ok(ty),
            _ => row.result(at, ty, &types, &structs),
        };
        let Ok(result) = result else { return };
        if components(result, &self.composites).len() > 64 {
            return;
        }
        let args: Vec<ExprId> = types.iter().map(|&ty| self.pick(ty)).collect();
        let value = match row {
            AlgebraOp::Extract => self.b.extract(args[0], at),
            AlgebraOp::Insert => self.b.insert(args[0], at, args[1]),
            row => self.b.algebra(row, &args),
        };
        self.pool.push((value, result));
    }

    /// Returns some value reduced to the range from 0 to the extent.
    fn within(&mut self, extent: u64, value: Option<ExprId>) -> ExprId {
        let picked = self.pick(Scalar::I64.into());
        let extent = match value {
            Some(value) => self.b.cast(Scalar::I64, &value),
            None => self.b.constant(Value::int(Scalar::I64, extent as i64)),
        };
        let rest = self.b.op(Op::Rem, &[&picked, &extent]);
        let raised = self.b.add(&rest, &extent);
        let within = self.b.op(Op::Rem, &[&raised, &extent]);
        self.b.cast(self.index, &within)
    }

    /// Loads an element of an input, or several adjacent ones.
    fn gather(&mut self) {
        let at = self.random.below(self.inputs.len());
        let Input { view, ty, ref extents, width } = self.inputs[at];
        let extents = extents.clone();
        let wide = width > 1 && self.random.below(2) == 0;
        let mut indices = vec![];
        for (n, &(extent, value)) in extents.iter().enumerate() {
            let index = match wide && n + 1 == extents.len() {
                false => self.within(extent, value),
                true => {
                    let group = self.within(extent / width as u64, None);
                    let width = self.b.index_constant(width as u64);
                    self.b.mul(&group, &width)
                }
            };
            indices.push(index);
        }
        let part = (ty.as_scalar().is_none() && self.random.below(3) == 0).then(|| self.component(ty));
        indices.extend(part.map(|(index, _)| index));
        let Some(indices) = bornite_ir::Args::new(&indices) else { return };
        if wide {
            let value = self.b.load_wide(view, indices, width);
            let at = self.random.below(width as usize) as u32;
            let part = self.b.extract(value, at);
            self.pool.push((part, ty));
        } else {
            let value = self.b.load(view, indices);
            self.pool.push((value, part.map_or(ty, |(_, scalar)| scalar.into())));
        }
    }

    /// Returns the index of a component, constant or dynamic, and its type.
    fn component(&mut self, ty: Type) -> (ExprId, Scalar) {
        let scalars = components(ty, &self.composites);
        if ty.element().is_some() && !self.uniform && self.random.below(2) == 0 {
            return (self.within(scalars.len() as u64, None), scalars[0]);
        }
        let at = self.random.below(scalars.len());
        (self.b.index_constant(at as u64), scalars[at])
    }

    /// Stores an element component by component.
    fn store_components(&mut self, view: ParamId, index_value: ExprId, value: ExprId, ty: Type) {
        let mut parts = vec![];
        self.leaves(value, ty, &mut parts);
        for (n, part) in parts.into_iter().enumerate() {
            let number = self.b.index_constant(n as u64);
            self.b.store(view, [index_value, number], part);
        }
    }

    /// Collects the flattened components of a value.
    fn leaves(&mut self, value: ExprId, ty: Type, all: &mut Vec<ExprId>) {
        let fields = match (ty, ty.element()) {
            (Type::Scalar(_), _) => return all.push(value),
            (_, Some(scalar)) => vec![scalar.into(); components(ty, &self.composites).len()],
            (_, None) => self.composites.iter().find(|(found, _)| *found == ty).map_or(vec![], |(_, f)| f.clone()),
        };
        for (n, field) in fields.into_iter().enumerate() {
            let part = self.b.extract(value, n as u32);
            self.leaves(part, field, all);
        }
    }

    /// One kind of atomic update per kernel, so that the result does not depend on the order of
    /// instances; the old value would.
    fn atomic(&mut self) {
        let Some((view, atomic, ty)) = self.sums else { return };
        let at = self.b.index_constant(self.random.below(8) as u64);
        if ty.as_scalar().is_none() && self.random.below(2) == 0 {
            let (part, scalar) = self.component(ty);
            let value = self.pick(scalar.into());
            self.b.atomic(atomic, view, [at, part], value);
            return;
        }
        let value = self.pick(ty);
        self.b.atomic(atomic, view, at, value);
    }

    /// Exchanges values between threads: through shared memory between barriers, or by a shuffle.
    fn exchange(&mut self) {
        if self.in_loop {
            return;
        }
        let Some((threads, tiles, thread)) = self.block.clone() else { return };
        if self.random.below(3) == 0 && threads % 32 == 0 {
            let scalar = self.random.one(&[Scalar::I32, Scalar::U32, Scalar::F32, Scalar::F64, Scalar::I64]);
            let value = self.pick(scalar.into());
            let shuffle = self.random.one(&[Shuffle::Xor, Shuffle::Index, Shuffle::Up, Shuffle::Down]);
            let lane = self.b.index_constant(self.random.below(32) as u64);
            let value = self.b.shuffle(shuffle, value, lane);
            self.pool.push((value, scalar.into()));
            return;
        }
        let (tile, scalar) = tiles[self.random.below(tiles.len())];
        let value = self.pick(scalar.into());
        self.b.store(tile, thread, value);
        self.b.push_stmt(Stmt::Barrier);
        let from = self.within(threads as u64, None);
        let value = self.b.load(tile, from);
        self.b.push_stmt(Stmt::Barrier);
        self.pool.push((value, scalar.into()));
    }

    fn branch(&mut self, depth: usize) {
        let condition = self.pick(Scalar::Bool.into());
        let (then, otherwise) = (1 + self.random.below(4), self.random.below(3));
        // The builder's closures cannot borrow the generator, so the branch is built from blocks.
        let then = self.inner(|g| g.statements(then, depth - 1));
        let otherwise = self.inner(|g| g.statements(otherwise, depth - 1));
        self.b.push_stmt(Stmt::If { condition, then, otherwise });
    }

    /// Builds a block that only some threads may execute, so it contains no barriers.
    fn inner(&mut self, write: impl FnOnce(&mut Self)) -> Vec<Stmt> {
        let (visible, block) = (self.pool.len(), self.block.take());
        self.b.open_block();
        write(self);
        self.pool.truncate(visible);
        self.block = block;
        self.b.close_block()
    }

    fn counted_loop(&mut self, depth: usize) {
        let end = self.b.index_constant(self.random.below(5) as u64);
        let outer = std::mem::replace(&mut self.in_loop, true);
        let (visible, block) = (self.pool.len(), self.block.take());
        let counter = self.b.open_loop("n");
        let n = self.b.read(counter);
        self.pool.push((n, self.index.into()));
        let length = 1 + self.random.below(4);
        self.statements(length, depth - 1);
        self.leave();
        self.pool.truncate(visible);
        (self.in_loop, self.block) = (outer, block);
        self.b.close_loop(counter, end);
    }

    /// Adds a loop that ends by `break`; a variable counts its iterations.
    fn infinite_loop(&mut self, depth: usize) {
        let iterations = self.b.local("turns", Value::int(Scalar::I32, 0));
        let outer = std::mem::replace(&mut self.in_loop, true);
        let body = self.inner(|g| {
            let (before, one) = (g.b.read(iterations), g.b.constant(Value::int(Scalar::I32, 1)));
            let after = g.b.add(&before, &one);
            g.b.assign(iterations, after);
            let max = g.b.constant(Value::int(Scalar::I32, g.random.below(4) as i64));
            let done = g.b.op(Op::Gt, &[&after, &max]);
            g.b.if_else(done, |b| b.push_stmt(Stmt::Break), |_| {});
            let length = 1 + g.random.below(3);
            g.statements(length, depth - 1);
            g.leave();
        });
        self.in_loop = outer;
        self.b.push_stmt(Stmt::Loop { body });
    }

    /// Sometimes adds a conditional `break` or `continue`.
    fn leave(&mut self) {
        if self.uniform {
            return;
        }
        let stmt = match self.random.below(4) {
            0 => Stmt::Break,
            1 => Stmt::Continue,
            _ => return,
        };
        let condition = self.pick(Scalar::Bool.into());
        self.b.if_else(condition, |b| b.push_stmt(stmt), |_| {});
    }

    /// Returns a value of a type: from the pool, converted, constructed, or a constant.
    fn pick(&mut self, ty: Type) -> ExprId {
        let fitting: Vec<ExprId> = self.pool.iter().filter(|(_, t)| *t == ty).map(|(id, _)| *id).collect();
        match self.random.below(6) {
            1 | 2 if !fitting.is_empty() => return fitting[self.random.below(fitting.len())],
            3 if !fitting.is_empty() => return fitting[fitting.len() - 1],
            _ => {}
        }
        let Type::Scalar(scalar) = ty else {
            let parts = self.composites.iter().find(|(other, _)| *other == ty).map(|(_, parts)| parts.clone());
            let each = Type::Scalar(ty.element().unwrap_or(Scalar::F32));
            let parts = parts.unwrap_or_else(|| vec![each; ty.component_count(&[])]);
            let splat = ty.element().is_some() && self.random.below(3) == 0;
            let parts: Vec<ExprId> =
                parts[..if splat { 1 } else { parts.len() }].iter().map(|&p| self.pick(p)).collect();
            return self.b.construct(ty, &parts);
        };
        let convertible: Vec<ExprId> =
            self.pool.iter().filter(|(_, t)| t.as_scalar().is_some()).map(|(id, _)| *id).collect();
        if convertible.is_empty() || self.random.below(4) == 0 {
            let value = self.random.value(scalar);
            return self.b.constant(value);
        }
        let value = convertible[self.random.below(convertible.len())];
        self.b.cast(scalar, &value)
    }
}
