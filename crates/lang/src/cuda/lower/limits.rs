//! Limits of a launch: threads per block by `__launch_bounds__`, and static shared memory.

use bornite_ir::Type;

use super::{LowerResult, Lowering};
use crate::cuda::ast::{Declarator, Function, TemplateArg};

/// Maximum static shared memory per block, on every architecture.
const MAX_STATIC_SHARED_BYTES: u64 = 48 << 10;

impl<'m> Lowering<'m> {
    /// Returns the threads per block that `__launch_bounds__` declares, with the template arguments
    /// of an instance; `None` without one, or if it depends on others.
    pub fn max_threads(mut self, function: &'m Function, args: &'m [TemplateArg]) -> Option<u32> {
        let bound = self.attempt(|lower| {
            let explicit = lower.template_args(&function.templates, args, function.name, function.span)?;
            lower.with_defaults(&function.templates, &explicit, function.span)
        });
        self.bind_templates(&function.templates, &bound.unwrap_or_default());
        self.launch_bound(function).and_then(|bound| bound.try_into().ok())
    }

    fn launch_bound(&mut self, function: &'m Function) -> Option<i64> {
        let bound = function.launch_bound.as_ref()?;
        self.attempt(|lower| lower.constant_int(bound, "a launch bound"))
    }

    /// Reports a block with more threads than `__launch_bounds__` declares.
    pub(super) fn check_launch_bound(&mut self, function: &'m Function) -> LowerResult {
        let threads = self.request.block.iter().fold(1u64, |product, size| product.saturating_mul(*size as u64));
        let (Some(bound), Some(expr)) = (self.launch_bound(function), &function.launch_bound) else { return Ok(()) };
        if threads <= bound.max(0) as u64 {
            return Ok(());
        }
        let what = format!("a block of {threads} threads exceeds '__launch_bounds__({bound})'");
        self.fail(expr.span, what, "maximum threads per block", "launch smaller blocks, or raise the bound")
    }

    /// Counts a static shared array; reports one that exceeds the limit.
    pub(super) fn count_static_shared(&mut self, d: &Declarator, ty: Type, elements: u64) -> LowerResult {
        let bytes = elements.saturating_mul(ty.bytes(self.w.b.structs()) as u64);
        let Some(before) = self.static_shared_bytes else { return Ok(()) };
        let total = before.saturating_add(bytes);
        self.static_shared_bytes = Some(total);
        if total <= MAX_STATIC_SHARED_BYTES {
            return Ok(());
        }
        let what = format!(
            "{total} bytes of static shared memory per block; the maximum is {MAX_STATIC_SHARED_BYTES} (48 KB)"
        );
        let (label, name) = (format!("{bytes} bytes"), self.text(d.name));
        let hint = format!(
            "use dynamic shared memory, 'extern __shared__ … {name}[]': up to 227 KB on sm_90 and sm_100, 163 KB on \
             sm_80, 99 KB on sm_86 and sm_89, 64 KB on sm_75"
        );
        self.fail(d.span, what, label, hint)
    }
}
