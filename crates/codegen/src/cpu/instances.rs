//! Lowers one kernel to one Cranelift function: a loop over instances, vectorized if possible,
//! around the kernel's statements.

use std::sync::Arc;

use bornite_ir::{Kernel, Scalar};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::lower::{Frame, Lowering, TypedValue, flags, statements, ty};
use super::print::PrintRecord;
use super::range_analysis::RangeAnalysis;
use super::simd::{self, ConstantPool};
use super::{CompileOptions, FaultRecord};

/// Results of lowering besides the code itself.
pub(super) struct Lowered {
    /// Print records that the code refers to.
    pub prints: Vec<Arc<PrintRecord>>,
    /// Constants that the code loads.
    pub constants: ConstantPool,
    /// True if the loop is vectorized.
    pub vectors: bool,
    /// Number of bounds-checked indices.
    pub bounds_checks: usize,
}

/// Builds `function` as `(views, values, first, end, fault) -> faulted`.
pub(super) fn lower(
    kernel: &Kernel,
    options: CompileOptions,
    function: &mut ir::Function,
    target: TargetFrontendConfig,
) -> Lowered {
    function.signature.call_conv = target.default_call_conv;
    let pointer = target.pointer_type();
    for ty in [pointer, pointer, types::I64, types::I64, pointer] {
        function.signature.params.push(AbiParam::new(ty));
    }
    function.signature.returns.push(AbiParam::new(types::I8));
    let ranges = if options.check_all_indices { RangeAnalysis::unknown(kernel) } else { RangeAnalysis::of(kernel) };
    let vectorization = if options.simd { simd::vectorize(kernel, &ranges) } else { None };
    let mut lowered = Lowered {
        prints: vec![],
        constants: ConstantPool::new(0),
        vectors: vectorization.is_some(),
        bounds_checks: ranges.bounds_checks(),
    };

    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(function, &mut context);
    let [entry, header, body, left, done, fault] = std::array::from_fn(|_| b.create_block());
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let &[views, values, first, end, record] = b.block_params(entry) else { return lowered };
    let mut bases: Vec<ir::Value> =
        (0..kernel.params.len() as i32).map(|n| b.ins().load(pointer, flags(), views, n * 8)).collect();
    // Every component of a value parameter is passed as a 64-bit word; the origins of all views
    // follow.
    let mut arguments: Vec<Vec<TypedValue>> = vec![];
    let mut word = 0;
    for value in &kernel.values {
        let scalars = value.ty.components(&kernel.structs);
        let components = (scalars.iter().enumerate())
            .map(|(n, &scalar)| {
                let value = b.ins().load(ty(scalar), flags(), values, (word + n as i32) * 8);
                TypedValue { value, scalar, known: None }
            })
            .collect();
        arguments.push(components);
        word += scalars.len() as i32;
    }
    let mut origins: Vec<ir::Value> =
        (0..kernel.params.len() as i32).map(|n| b.ins().load(types::I64, flags(), values, (word + n) * 8)).collect();
    if !kernel.local_arrays.is_empty() {
        let memory = b.ins().load(pointer, flags(), record, FaultRecord::LOCAL_MEMORY);
        for start in kernel.local_layout().0 {
            bases.push(b.ins().iadd_imm_s(memory, start as i64));
            origins.push(b.ins().iconst(types::I64, 0));
        }
    }
    // The last word is the address of the constant pool; as an immediate it would be materialized
    // at every use.
    let constants_base = b.ins().load(pointer, flags(), values, (word + kernel.params.len() as i32) * 8);
    let instance = b.declare_var(types::I64);
    b.def_var(instance, first);
    // Current end of the scalar loop.
    let stop = b.declare_var(types::I64);
    b.def_var(stop, end);
    let next = b.create_block();
    let mut l = Lowering {
        kernel,
        options,
        ranges: &ranges,
        b,
        pointer,
        call_conv: target.default_call_conv,
        index: first,
        instance: first,
        lane: 0,
        record,
        bases,
        origins,
        fault,
        headers: vec![],
        frame: Frame::new(&kernel.code, arguments.clone(), next),
        prints: vec![],
        constants: ConstantPool::new(if vectorization.is_some() { 128 } else { 0 }),
        constants_base,
    };

    let again = match &vectorization {
        None => {
            l.b.ins().jump(header, &[]);
            done
        }
        Some(vectorization) => {
            let [several, vectors, tail, scalar_fallback] = std::array::from_fn(|_| l.b.create_block());
            let before = l.b.ins().jump(several, &[]);
            l.b.switch_to_block(several);
            let at = l.b.use_var(instance);
            let rest = l.b.ins().isub(end, at);
            let enough = l.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, rest, vectorization.count as i64);
            l.b.ins().brif(enough, vectors, &[], tail, &[]);

            l.b.switch_to_block(vectors);
            l.set_instance(at);
            simd::lower(&mut l, vectorization, scalar_fallback, before);
            let further = l.b.ins().iadd_imm_s(at, vectorization.count as i64);
            l.b.def_var(instance, further);
            l.b.ins().jump(several, &[]);

            l.b.switch_to_block(scalar_fallback);
            l.b.set_cold_block(scalar_fallback);
            let further = l.b.ins().iadd_imm_s(at, vectorization.count as i64);
            l.b.def_var(stop, further);
            l.b.ins().jump(header, &[]);

            l.b.switch_to_block(tail);
            l.b.def_var(stop, end);
            l.b.ins().jump(header, &[]);

            l.b.switch_to_block(left);
            let stopped = l.b.use_var(stop);
            let more = l.b.ins().icmp(IntCC::UnsignedLessThan, stopped, end);
            l.b.ins().brif(more, several, &[], done, &[]);
            left
        }
    };

    l.b.switch_to_block(header);
    let at = l.b.use_var(instance);
    let stopped = l.b.use_var(stop);
    let more = l.b.ins().icmp(IntCC::UnsignedLessThan, at, stopped);
    l.b.ins().brif(more, body, &[], again, &[]);

    l.b.switch_to_block(body);
    l.set_instance(at);
    l.restart_count();
    l.enter_frame(&kernel.code, arguments, next);
    l.block(&kernel.code.body);
    l.b.ins().jump(next, &[]);
    l.b.switch_to_block(next);
    l.count_statements(statements(&kernel.code.body));
    let further = l.b.ins().iadd_imm_s(at, 1);
    l.b.def_var(instance, further);
    l.b.ins().jump(header, &[]);

    let Lowering { mut b, prints, constants, .. } = l;
    (lowered.prints, lowered.constants) = (prints, constants);
    if vectorization.is_none() {
        // Unreachable, but every block needs a terminator.
        b.switch_to_block(left);
        b.ins().jump(done, &[]);
    }
    b.switch_to_block(done);
    let zero = b.ins().iconst(types::I8, 0);
    b.ins().return_(&[zero]);

    let fields = [0; FaultRecord::WORDS].map(|_| b.append_block_param(fault, types::I64));
    b.switch_to_block(fault);
    b.set_cold_block(fault);
    for (n, value) in fields.into_iter().enumerate() {
        b.ins().store(flags(), value, record, n as i32 * 8);
    }
    let one = b.ins().iconst(types::I8, 1);
    b.ins().return_(&[one]);
    b.seal_all_blocks();
    b.finalize(target);
    lowered
}

impl Lowering<'_, '_> {
    /// Makes `instance` the current instance.
    fn set_instance(&mut self, instance: ir::Value) {
        self.instance = instance;
        let narrow = self.kernel.index == Scalar::I32;
        self.index = if narrow { self.b.ins().ireduce(types::I32, instance) } else { instance };
    }
}
