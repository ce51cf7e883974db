//! Parses `static_assert`.

use super::{ParseResult, Parser};
use crate::cuda::ast::{Assertion, ExprKind};

impl Parser<'_> {
    /// `static_assert(condition, "message");`
    pub(super) fn static_assertion(&mut self) -> ParseResult<Assertion> {
        let (start, errors, nesting) = (self.span(), self.errors.len(), self.nesting);
        match self.assertion_parts() {
            Ok(assertion) => Ok(assertion),
            Err(_) => {
                self.errors.truncate(errors);
                self.nesting = nesting;
                self.unsupported(start, "this condition of 'static_assert'", "remove it, or write it with constants")
            }
        }
    }

    fn assertion_parts(&mut self) -> ParseResult<Assertion> {
        self.advance();
        self.expect("(", "after 'static_assert'")?;
        let condition = self.assignment()?;
        let mut message = None;
        if self.take(",")
            && let ExprKind::Str(text) = self.assignment()?.kind
        {
            message = Some(text);
        }
        self.expect(")", "after a condition")?;
        self.expect(";", "after 'static_assert'")?;
        Ok(Assertion { condition, message })
    }

    /// An assertion outside of functions. One that cannot be parsed concerns the host.
    pub(super) fn file_assertion(&mut self) {
        let errors = self.errors.len();
        match self.static_assertion() {
            Ok(assertion) => self.file.assertions.push(assertion),
            Err(_) => self.errors.truncate(errors),
        }
    }
}
