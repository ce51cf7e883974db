//! Variables of host code that template arguments of launches depend on: their declared types, the
//! values of constants, and aliases.

use std::ops::Range;

use bornite_ir::Scalar;

use super::Parser;
use super::instances::substituted;
use crate::cuda::ast::{Base, TemplateArg, TypeName};
use crate::cuda::lex::{Symbol, TokenKind};

/// Declarations of a host function.
#[derive(Default)]
pub struct HostVariables {
    types: Vec<(Symbol, TypeName)>,
    /// Aliases and constants.
    known: Vec<(Symbol, TemplateArg)>,
}

impl HostVariables {
    fn type_of(&self, name: Symbol) -> Option<TypeName> {
        self.types.iter().rev().find(|(found, _)| *found == name).map(|(_, ty)| ty.clone())
    }

    /// Replaces local aliases and constants by their definitions.
    pub fn resolve(&self, arg: TemplateArg) -> TemplateArg {
        let bound = |name: Symbol| self.known.iter().rev().find(|(found, _)| *found == name).map(|(_, arg)| arg);
        substituted(&arg, &bound)
    }
}

impl Parser<'_> {
    /// Collects the declarations of a host function.
    pub(super) fn host_variables(&mut self, range: Range<usize>) -> HostVariables {
        let mut variables = HostVariables::default();
        let mut at = range.start;
        // Declarations begin after one of these; parameters after a parenthesis or comma.
        let mut begins = true;
        let mut in_params = true;
        while at < range.end {
            let kind = self.tokens[at].kind;
            if begins {
                self.at = at;
                self.host_declaration(in_params, &mut variables);
            }
            in_params &= kind != TokenKind::Reserved("{");
            begins = match kind {
                TokenKind::Reserved(";" | "{" | "}" | "(") => true,
                TokenKind::Reserved(",") => in_params,
                _ => false,
            };
            at += 1;
        }
        variables
    }

    /// Records the declaration here, if there is one.
    fn host_declaration(&mut self, is_param: bool, variables: &mut HostVariables) {
        let (errors, nesting) = (self.errors.len(), self.nesting);
        let _ = self.host_declaration_parts(is_param, variables);
        self.errors.truncate(errors);
        self.nesting = nesting;
    }

    fn host_declaration_parts(&mut self, is_param: bool, variables: &mut HostVariables) -> super::ParseResult<()> {
        if self.is("using") && self.ahead(2) == TokenKind::Reserved("=") {
            self.advance();
            let (name, _) = self.name("an alias")?;
            self.advance();
            let ty = self.type_name()?;
            self.local_type(name);
            variables.known.push((name, variables.resolve(TemplateArg::Type(ty))));
            return Ok(());
        }
        if self.take("typedef") {
            let ty = self.type_name()?;
            let (name, _) = self.name("an alias")?;
            self.local_type(name);
            variables.known.push((name, variables.resolve(TemplateArg::Type(ty))));
            return Ok(());
        }
        while matches!(self.kind(), TokenKind::Reserved("static" | "register")) {
            self.advance();
        }
        if !self.at_type() {
            return Ok(());
        }
        let base = self.base_type()?;
        loop {
            let mut ty = self.pointers(base.clone())?;
            let (name, _) = self.name("a variable")?;
            if !matches!(self.kind(), TokenKind::Reserved("=" | ";" | "," | ")" | "[" | "(" | "{")) {
                return Ok(());
            }
            while self.is("[") {
                ty.pointers = ty.pointers.saturating_add(1);
                self.skip_brackets();
            }
            let is_number = ty.constant && ty.pointers == 0 && matches!(ty.base, Base::Scalar(_) | Base::Named(_));
            variables.types.push((name, ty));
            if is_param {
                return Ok(());
            }
            if is_number && self.is("=") {
                self.advance();
                let before = self.at;
                if let Ok(value) = self.assignment() {
                    variables.known.push((name, variables.resolve(TemplateArg::Value(value))));
                }
                self.at = before;
            }
            self.skip_argument_end();
            if !self.take(",") {
                return Ok(());
            }
        }
    }

    /// Skips to the comma, semicolon or closing bracket after an expression.
    fn skip_argument_end(&mut self) {
        loop {
            match self.kind() {
                TokenKind::Reserved("," | ";" | ")" | "]" | "}") | TokenKind::End => return,
                TokenKind::Reserved("(" | "[" | "{") => self.skip_brackets(),
                _ => self.advance(),
            }
        }
    }

    /// Skips an argument and the comma after it.
    pub(super) fn skip_argument(&mut self) {
        self.skip_argument_end();
        self.take(",");
    }

    /// Type of the function parameter here, if it is simple.
    pub(super) fn host_parameter_type(&mut self) -> Option<TypeName> {
        let (errors, nesting) = (self.errors.len(), self.nesting);
        let mut ty = if self.at_type() { self.type_name().ok() } else { None };
        self.errors.truncate(errors);
        self.nesting = nesting;
        if let TokenKind::Name(_) = self.kind() {
            self.advance();
        }
        if let Some(ty) = &mut ty {
            ty.pointers = ty.pointers.saturating_add(self.is("[") as u8);
        }
        ty.filter(|_| matches!(self.kind(), TokenKind::Reserved("," | ")" | "[" | "=")))
    }

    /// Type of the host expression here, if it is simple: a variable, an element or address of one,
    /// an offset from a pointer, a cast, a number.
    pub(super) fn host_expression_type(&mut self, variables: &HostVariables) -> Option<TypeName> {
        let span = self.span();
        let scalar = |scalar: Scalar| TypeName {
            base: Base::Scalar(scalar),
            pointers: 0,
            constant: false,
            is_const_pointer: false,
            reference: false,
            span,
        };
        match self.kind() {
            TokenKind::Int { scalar: of, .. } | TokenKind::Float { scalar: of, .. } => {
                self.advance();
                self.ends_argument().then(|| scalar(of))
            }
            TokenKind::Reserved("true" | "false") => Some(scalar(Scalar::Bool)),
            TokenKind::Reserved("(") => {
                self.advance();
                let (errors, is_type) = (self.errors.len(), self.at_type());
                let ty = if is_type { self.type_name().ok() } else { None };
                self.errors.truncate(errors);
                ty.filter(|_| self.is(")"))
            }
            TokenKind::Reserved("&") => {
                self.advance();
                let mut ty = self.host_expression_type(variables)?;
                ty.pointers = ty.pointers.saturating_add(1);
                Some(ty)
            }
            TokenKind::Reserved("-") => {
                self.advance();
                self.host_expression_type(variables).filter(|ty| ty.pointers == 0)
            }
            // `T(0)`, `Functor{1}`.
            _ if self.at_type() => {
                let errors = self.errors.len();
                let ty = self.base_type().ok();
                self.errors.truncate(errors);
                ty.filter(|_| matches!(self.kind(), TokenKind::Reserved("(" | "{")))
            }
            TokenKind::Name(name) => {
                let mut ty = variables.type_of(name)?;
                self.advance();
                while self.is("[") {
                    ty.pointers = ty.pointers.checked_sub(1)?;
                    self.skip_brackets();
                }
                // An offset from a pointer has the pointer's type.
                let offset = ty.pointers > 0 && matches!(self.kind(), TokenKind::Reserved("+" | "-"));
                (offset || self.ends_argument()).then_some(ty)
            }
            _ => None,
        }
    }

    fn ends_argument(&self) -> bool {
        matches!(self.kind(), TokenKind::Reserved("," | ")"))
    }
}
