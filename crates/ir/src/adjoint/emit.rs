//! Emission of the adjoint kernel: parameters, instances, and the values of both sweeps.

mod values;

use std::collections::BTreeMap;

use super::activity::Activity;
use super::arrays::{Arrays, GradientArray};
use super::needs::{Needs, Taped};
use super::scalar_code::{BlockId, Def, LoopId, ScalarCode, ValueId, VarId};
use super::{Adjoint, AdjointArray, AdjointError, AdjointRequest, AdjointRole, Refusal, clean};
use crate::{
    Access, Axis, Builder, Builtin, Dim, Emit, Expr, ExprId, Extent, Kernel, LaunchMode, LocalArrayId, LocalId, Op,
    ParamId, Scalar, Stmt, Type, Value,
};

/// Maximum size of a tape, in values.
const MAX_TAPE_VALUES: u64 = 1 << 15;

pub(super) fn emit(
    kernel: &Kernel,
    code: &ScalarCode<'_>,
    activity: &Activity,
    arrays: &Arrays,
    needs: &Needs,
    request: &AdjointRequest,
) -> Result<Adjoint, AdjointError> {
    let refuse =
        |what: String, remedy: &str| Err(AdjointError::at(kernel, None, Refusal { what, remedy: remedy.into() }));
    check_derivatives(kernel, code, activity)?;
    let bound = needs.tape_bound(code, BlockId(0));
    let tape_values = if needs.is_taped() { bound.unwrap_or(request.options.tape_values).max(1) } else { 0 };
    if tape_values > MAX_TAPE_VALUES {
        return refuse(
            format!(
                "loops that need {tape_values} values of each instance, of which at most {MAX_TAPE_VALUES} are kept"
            ),
            "use fewer iterations per instance, or a smaller tape",
        );
    }
    let mut emitter = Emitter::new(kernel, code, activity, arrays, needs, request);
    let tape_bound = bound.is_none().then_some(tape_values);
    let roles = emitter.parameters();
    emitter.arguments();
    emitter.local_memory(tape_values, tape_bound);
    emitter.instances();
    let finished = match emitter.b.finish() {
        Ok(kernel) => kernel,
        Err(error) => {
            return refuse(format!("its adjoint kernel is not valid: {}", error.message), "split the kernel");
        }
    };
    let (kernel, arrays) = clean::clean(finished, roles);
    Ok(Adjoint { kernel, arrays, tape_values })
}

/// Refuses active ops without a derivative.
fn check_derivatives(kernel: &Kernel, code: &ScalarCode<'_>, activity: &Activity) -> Result<(), AdjointError> {
    for (n, definition) in code.values.iter().enumerate() {
        if !activity.value(ValueId(n as u32)) {
            continue;
        }
        let name = match &definition.def {
            Def::Op(op, args) => {
                let active: Vec<bool> = args.iter().map(|arg| activity.value(*arg)).collect();
                if super::needs::derivative_uses(*op, &active).is_some() {
                    continue;
                }
                op.row().name
            }
            Def::Part(group, _) => {
                let group = code.group(*group);
                let all = |id| activity.value(id);
                if super::needs::algebra_uses(kernel, group.op, &group.args, &group.out, &all).is_some() {
                    continue;
                }
                group.op.row().name
            }
            _ => continue,
        };
        let what = format!("'{name}' has no derivative");
        let remedy = "use an operation that is differentiable".into();
        return Err(AdjointError::at(kernel, definition.site, Refusal { what, remedy }));
    }
    Ok(())
}

/// Values that are available in an open block of the backward sweep.
pub(super) struct Scope {
    /// The block of the kernel that this is the backward sweep of.
    pub block: BlockId,
    pub values: BTreeMap<ValueId, ExprId>,
    /// Number of the current iteration of the loop that this is the body of.
    pub iterations: BTreeMap<LoopId, ExprId>,
    /// Taped numbers of iterations of inner loops.
    pub counts: BTreeMap<LoopId, ExprId>,
    /// Sums of gradients of values defined in this block.
    pub sums: BTreeMap<ValueId, ExprId>,
}

/// Tape in local memory.
#[derive(Clone, Copy)]
pub(super) struct Tape {
    pub array: LocalArrayId,
    pub word: Scalar,
    /// Number of words in use.
    pub top: LocalId,
    /// Capacity, if an assertion must check it.
    pub checked: Option<u64>,
}

pub(super) struct Emitter<'a, 'k> {
    pub kernel: &'a Kernel,
    pub code: &'a ScalarCode<'k>,
    pub activity: &'a Activity,
    pub arrays: &'a Arrays,
    pub needs: &'a Needs,
    request: &'a AdjointRequest,
    pub b: Builder,
    /// Value parameters.
    arguments: Vec<ExprId>,
    /// Expressions of the forward sweep.
    pub forward: Vec<Option<ExprId>>,
    vars: BTreeMap<VarId, LocalId>,
    pub saved: BTreeMap<ValueId, LocalId>,
    pub iterations: BTreeMap<LoopId, LocalId>,
    pub scopes: Vec<Scope>,
    pub value_gradients: BTreeMap<ValueId, LocalId>,
    pub var_gradients: BTreeMap<VarId, LocalId>,
    /// Gradient array of each parameter.
    pub gradients: Vec<Option<ParamId>>,
    /// Gradient array of each local array, and its number of elements.
    pub local_gradients: Vec<Option<(LocalArrayId, Scalar, u64)>>,
    /// Offset along the first dimension of this range's copy of a gradient.
    pub copy_offsets: BTreeMap<u32, ExprId>,
    pub tape: Option<Tape>,
}

impl<'a, 'k> Emitter<'a, 'k> {
    fn new(
        kernel: &'a Kernel,
        code: &'a ScalarCode<'k>,
        activity: &'a Activity,
        arrays: &'a Arrays,
        needs: &'a Needs,
        request: &'a AdjointRequest,
    ) -> Emitter<'a, 'k> {
        let mut b = Builder::new(format!("{}_adjoint", kernel.name), 0, kernel.index);
        for found in &kernel.structs {
            b.struct_from_fields(&found.name, found.fields.clone());
        }
        Emitter {
            kernel,
            code,
            activity,
            arrays,
            needs,
            request,
            b,
            arguments: vec![],
            forward: vec![None; code.values.len()],
            vars: BTreeMap::new(),
            saved: BTreeMap::new(),
            iterations: BTreeMap::new(),
            scopes: vec![],
            value_gradients: BTreeMap::new(),
            var_gradients: BTreeMap::new(),
            gradients: vec![],
            local_gradients: vec![],
            copy_offsets: BTreeMap::new(),
            tape: None,
        }
    }

    /// Adds a prefix to a name, and underscores until it is unique.
    fn unique_name(&self, prefix: &str, name: &str) -> String {
        let views = self.kernel.params.iter().map(|param| &param.name);
        let values = self.kernel.values.iter().map(|value| &value.name);
        let locals = self.kernel.local_arrays.iter().map(|array| &array.name);
        let taken: Vec<&String> = views.chain(values).chain(locals).collect();
        let mut out = format!("{prefix}{name}");
        while taken.contains(&&out) {
            out.push('_');
        }
        out
    }

    /// Declares all arrays: the kernel's, then gradients of outputs, then gradients of inputs.
    fn parameters(&mut self) -> Vec<AdjointArray> {
        let mut roles = vec![];
        for (n, (param, found)) in (0u32..).zip(self.kernel.params.iter().zip(&self.arrays.uses)) {
            let access = if found.is_replaced { Access::ReadWrite } else { Access::Read };
            self.b.view(&param.name, param.ty, &param.dims, access);
            roles.push(AdjointArray { param: ParamId(n), role: AdjointRole::Original });
        }
        self.gradients = vec![None; self.kernel.params.len()];
        for outputs in [true, false] {
            for (n, (param, found)) in (0u32..).zip(self.kernel.params.iter().zip(&self.arrays.uses)) {
                let (role, access, mut dims) = match found.gradient {
                    GradientArray::Output { cleared } if outputs => {
                        let access = if cleared { Access::ReadWrite } else { Access::Read };
                        (AdjointRole::OutputGradient, access, param.dims.clone())
                    }
                    GradientArray::Input { shared } if !outputs => {
                        let copies = if shared { self.arrays.ranges.unwrap_or(1) } else { 1 };
                        (AdjointRole::Gradient { copies }, Access::ReadWrite, param.dims.clone())
                    }
                    _ => continue,
                };
                if let (AdjointRole::Gradient { copies: copies @ 2.. }, [Dim { extent: Extent::Const(n), .. }, ..]) =
                    (role, &mut dims[..])
                {
                    *n *= copies as i64;
                }
                let name = self.unique_name("grad_", &param.name);
                self.gradients[n as usize] = Some(self.b.view(name, param.ty, &dims, access));
                roles.push(AdjointArray { param: ParamId(n), role });
            }
        }
        roles
    }

    /// Declares the value parameters and extracts their components.
    fn arguments(&mut self) {
        self.arguments = self.kernel.values.iter().map(|value| self.b.value(&value.name, value.ty)).collect();
        for (n, definition) in self.code.values.iter().enumerate() {
            if let Def::Argument { param, component } = definition.def {
                let ty = self.kernel.values[param as usize].ty;
                let found = self.component(self.arguments[param as usize], ty, component);
                self.forward[n] = Some(found);
            }
        }
    }

    fn component(&mut self, whole: ExprId, ty: Type, component: u32) -> ExprId {
        match ty {
            Type::Scalar(_) => whole,
            Type::Vector(..) | Type::Matrix(..) => self.b.extract(whole, component),
            Type::Struct(id) => {
                let mut rest = component as usize;
                for (field, n) in self.kernel.structs[id.0 as usize].fields.iter().zip(0..) {
                    let count = field.ty.component_count(&self.kernel.structs);
                    if rest < count {
                        let inner = self.b.extract(whole, n);
                        return self.component(inner, field.ty, rest as u32);
                    }
                    rest -= count;
                }
                whole
            }
        }
    }

    fn local_memory(&mut self, tape_values: u64, checked: Option<u64>) {
        for array in &self.kernel.local_arrays {
            let extents: Vec<u64> = array.dims.iter().map(|dim| dim.extent.resolve(&[]).max(0) as u64).collect();
            self.b.local_array(&array.name, array.ty, &extents);
        }
        for (n, array) in (0u32..).zip(&self.kernel.local_arrays) {
            let scalars = array.ty.components(&self.kernel.structs);
            let wide = scalars.contains(&Scalar::F64);
            let scalar = if wide { Scalar::F64 } else { Scalar::F32 };
            let elements: u64 = array.dims.iter().map(|dim| dim.extent.resolve(&[]).max(0) as u64).product();
            let count = elements * scalars.len() as u64;
            let gradient = self.activity.local_array(n).then(|| {
                let name = self.unique_name("grad_", &array.name);
                (self.b.local_array(name, scalar, &[count]), scalar, count)
            });
            self.local_gradients.push(gradient);
        }
        if tape_values == 0 {
            return;
        }
        let index = self.kernel.index;
        let narrow = self.needs.taped.iter().flatten().all(|item| match item {
            Taped::Value(id) => self.code.value(*id).scalar.bytes() <= 4,
            Taped::Iterations(_) => index == Scalar::I32,
        });
        let word = if narrow { Scalar::U32 } else { Scalar::U64 };
        let name = self.unique_name("", "tape");
        let array = self.b.local_array(name, word, &[tape_values]);
        let top = self.b.local("tape_top", Value::int(index, 0));
        self.tape = Some(Tape { array, word, top, checked });
    }

    /// Emits the sweeps of all instances.
    fn instances(&mut self) {
        let count = match self.kernel.launch {
            LaunchMode::ParallelFor { count } => count,
            LaunchMode::Blocks { .. } => Extent::Const(self.kernel.launch.count(&[]) as i64),
        };
        let Some(ranges) = self.arrays.ranges else {
            self.b.set_instance_count(count);
            let instance = self.b.index();
            return self.instance(instance);
        };
        self.b.set_instance_count(Extent::Const(ranges as i64));
        let range = self.b.index();
        for n in 0..self.kernel.params.len() as u32 {
            let param = self.kernel.param(ParamId(n));
            if ranges > 1
                && self.arrays.uses[n as usize].gradient == (GradientArray::Input { shared: true })
                && let Some(extent) = param.dims.first().and_then(|dim| dim.extent.known())
            {
                let extent = self.b.index_constant(extent as u64);
                let offset = self.b.mul(&range, &extent);
                self.copy_offsets.insert(n, offset);
            }
        }
        let total = match count {
            Extent::Const(n) => self.b.index_constant(n.max(0) as u64),
            Extent::Value(n) => match self.arguments.get(n as usize) {
                Some(argument) => *argument,
                None => self.inconsistent("the number of instances is unknown"),
            },
        };
        let each = match count {
            Extent::Const(n) => self.b.index_constant((n.max(0) as u64).div_ceil(ranges)),
            Extent::Value(_) => total,
        };
        let counter = self.b.open_loop("member");
        let member = self.b.read(counter);
        let first = self.b.mul(&range, &each);
        let instance = self.b.add(&first, &member);
        let exists = self.b.lt(&instance, &total);
        self.b.open_block();
        self.instance(instance);
        let body = self.b.close_block();
        self.b.push_stmt(Stmt::If { condition: exists, then: body, otherwise: vec![] });
        self.b.close_loop(counter, each);
    }

    fn instance(&mut self, instance: ExprId) {
        self.instance_indices(instance);
        for n in 0..self.local_gradients.len() {
            self.clear_local_gradient(n);
        }
        self.forward_block(BlockId(0));
        self.backward_block(BlockId(0), None);
    }

    /// Thread and block indices from the number of the instance.
    fn instance_indices(&mut self, instance: ExprId) {
        for n in 0..self.code.values.len() {
            let Def::Instance(expr) = &self.code.values[n].def else { continue };
            let found = match (expr, self.kernel.launch) {
                (Expr::Builtin(builtin), LaunchMode::Blocks { grid, block }) => {
                    self.builtin(*builtin, instance, grid, block)
                }
                _ => instance,
            };
            self.forward[n] = Some(found);
        }
    }

    fn builtin(&mut self, builtin: Builtin, instance: ExprId, grid: [u32; 3], block: [u32; 3]) -> ExprId {
        let n = |axis: Axis| match axis {
            Axis::X => 0,
            Axis::Y => 1,
            Axis::Z => 2,
        };
        let at = match builtin {
            Builtin::BlockSize(axis) => return self.b.index_constant(block[n(axis)].into()),
            Builtin::GridSize(axis) => return self.b.index_constant(grid[n(axis)].into()),
            Builtin::Thread(axis) => n(axis),
            Builtin::Block(axis) => 3 + n(axis),
        };
        let sizes: Vec<u64> = block.iter().chain(&grid).map(|n| u64::from(*n)).collect();
        let [before, after] = [&sizes[..at], &sizes[at + 1..]].map(|sizes| sizes.iter().product::<u64>());
        let [stride, size, zero] = [before, sizes[at], 0].map(|n| self.b.index_constant(n));
        if sizes[at] == 1 {
            return zero;
        }
        let quotient = if before == 1 { instance } else { self.b.div(&instance, &stride) };
        if after == 1 { quotient } else { self.b.op(Op::Rem, &[&quotient, &size]) }
    }
}
