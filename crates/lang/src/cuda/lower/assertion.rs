//! Evaluates `static_assert`.

use super::{LowerResult, Lowering};
use crate::cuda::ast::Assertion;

impl<'m> Lowering<'m> {
    /// An assertion in device code: its condition must be constant and true.
    pub(super) fn static_assertion(&mut self, assertion: &'m Assertion) -> LowerResult {
        let (mark, locals) = (self.w.b.mark(), self.locals);
        let holds = self.condition(&assertion.condition).map(|tree| self.w.fold(&tree));
        self.w.rollback(&mark);
        self.locals = locals;
        match holds? {
            Some(value) if value.as_i64() != 0 => Ok(()),
            Some(_) => self.report_false(assertion),
            None => self.unsupported(
                assertion.condition.span,
                "a 'static_assert' whose condition is not constant",
                "use literals, 'constexpr' constants and template parameters",
            ),
        }
    }

    /// Assertions outside of functions. One that cannot be evaluated concerns the host: it has no
    /// effect on the code of a kernel.
    pub(super) fn file_assertions(&mut self) -> LowerResult {
        for assertion in &self.module.file.assertions {
            let condition = &assertion.condition;
            let holds = self
                .in_file_scope(&[], &[], |lower| lower.attempt(|lower| lower.constant_int(condition, "the condition")));
            if holds == Some(0) {
                return self.report_false(assertion);
            }
        }
        Ok(())
    }

    fn report_false(&mut self, assertion: &Assertion) -> LowerResult {
        let text = assertion.message.as_ref().map_or(String::new(), |message| format!(": {message}"));
        self.fail(assertion.condition.span, format!("static assertion failed{text}"), "this condition is false", "")
    }
}
