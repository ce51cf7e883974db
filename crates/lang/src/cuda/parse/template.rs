//! Parses templates: parameters, arguments, instantiations and specializations.

use super::{ParseResult, Parser};
use crate::cuda::ast::{Base, TemplateArg, TemplateParam};
use crate::cuda::lex::TokenKind;

impl Parser<'_> {
    /// Parses `template <…>` and the declaration after it.
    pub(super) fn template(&mut self) -> ParseResult<()> {
        let start = self.span();
        self.advance();
        if !self.is("<") {
            return self.explicit_instantiation();
        }
        let templates = self.template_params()?;
        match self.kind() {
            TokenKind::Reserved("struct" | "class") if templates.is_empty() => {
                self.unsupported(start, "a struct template specialization", "write a struct with another name")
            }
            TokenKind::Reserved("struct" | "class") if self.defines_struct() => self.struct_item(templates),
            TokenKind::Reserved(word @ ("union" | "using")) => {
                self.unsupported(start, &format!("a '{word}' template"), "write a struct")
            }
            TokenKind::Reserved("template") => self.unsupported(start, "a nested template", ""),
            _ if templates.is_empty() => self.function_or_global(templates, true),
            _ => self.function_or_global(templates, false),
        }
    }

    pub(super) fn template_params(&mut self) -> ParseResult<Vec<TemplateParam>> {
        self.expect("<", "after 'template'")?;
        let mut all = vec![];
        while !self.is(">") {
            let mut integer = None;
            if matches!(self.kind(), TokenKind::Reserved("typename" | "class")) {
                self.advance();
            } else {
                let ty = self.base_type()?;
                if !matches!(ty.base, Base::Scalar(scalar) if !scalar.is_float()) && !matches!(ty.base, Base::Named(_))
                {
                    return self.unsupported(ty.span, "a template parameter that is neither a type nor an integer", "");
                }
                integer = Some(ty);
            }
            if self.is("...") {
                let span = self.span();
                return self.unsupported(span, "a variadic template", "");
            }
            let (name, _) = self.name("a template parameter")?;
            match integer {
                None => self.local_type(name),
                Some(_) => {
                    self.shadowed.insert(name);
                }
            }
            let default = if self.take("=") { Some(self.template_arg()?) } else { None };
            all.push(TemplateParam { name, integer, default });
            if !self.take(",") {
                break;
            }
        }
        self.close_angle("after template parameters")?;
        Ok(all)
    }

    /// `template __global__ void k<float, 4>(const float*);`
    fn explicit_instantiation(&mut self) -> ParseResult<()> {
        loop {
            match (self.kind(), self.ahead(1)) {
                (TokenKind::Name(name), TokenKind::Reserved("<")) if self.templates.contains(&name) => {
                    self.advance();
                    let args = self.template_args()?;
                    self.file.instances.push((name, args));
                    return Ok(());
                }
                (TokenKind::End | TokenKind::Reserved(";"), _) => {
                    let span = self.span();
                    return self.unsupported(
                        span,
                        "this explicit instantiation",
                        "write its arguments: 'kernel<float>'",
                    );
                }
                _ => self.advance(),
            }
        }
    }

    /// `<float, 4>`.
    pub(super) fn template_args(&mut self) -> ParseResult<Vec<TemplateArg>> {
        self.expect("<", "before template arguments")?;
        let mut all = vec![];
        while !matches!(self.kind(), TokenKind::Reserved(">" | ">>" | ">>>")) {
            all.push(self.template_arg()?);
            if !self.take(",") {
                break;
            }
        }
        self.close_angle("after template arguments")?;
        Ok(all)
    }

    pub(super) fn template_arg(&mut self) -> ParseResult<TemplateArg> {
        self.nested(|p| {
            if p.at_type() {
                return Ok(TemplateArg::Type(p.type_name()?));
            }
            let outer = std::mem::replace(&mut p.in_angles, true);
            let value = p.conditional();
            p.in_angles = outer;
            Ok(TemplateArg::Value(value?))
        })
    }

    /// Consumes a `>`, which may be part of `>>` or `>>>`.
    fn close_angle(&mut self, after: &str) -> ParseResult<()> {
        let TokenKind::Reserved(token @ (">>" | ">>>")) = self.kind() else { return self.expect(">", after) };
        self.angles_read += 1;
        if self.angles_read == token.len() {
            self.advance();
        }
        Ok(())
    }
}
