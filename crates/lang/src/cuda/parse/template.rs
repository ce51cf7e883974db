//! Templates: their parameters, arguments, instances and specialisations.

use super::{Parsed, Parser};
use crate::cuda::ast::{Base, TemplateArg, TemplateParam};
use crate::cuda::lex::Kind;

impl Parser<'_> {
    /// `template <…>` and what follows it.
    pub(super) fn template(&mut self) -> Parsed<()> {
        let start = self.span();
        self.advance();
        if !self.is("<") {
            return self.instance();
        }
        let templates = self.template_params()?;
        match self.kind() {
            Kind::Sign("struct" | "class") if templates.is_empty() => {
                self.refuse(start, "a specialisation of a struct", "write a struct of another name")
            }
            Kind::Sign("struct") if self.defines_struct() => self.structure(templates),
            Kind::Sign(word @ ("class" | "union" | "using")) => {
                self.refuse(start, &format!("a template of '{word}'"), "write a struct without functions")
            }
            Kind::Sign("template") => self.refuse(start, "a template of a template", ""),
            _ if templates.is_empty() => self.function_or_global(templates, true),
            _ => self.function_or_global(templates, false),
        }
    }

    fn template_params(&mut self) -> Parsed<Vec<TemplateParam>> {
        self.expect("<", "after 'template'")?;
        let mut all = vec![];
        while !self.is(">") {
            let mut integer = None;
            if matches!(self.kind(), Kind::Sign("typename" | "class")) {
                self.advance();
            } else {
                let ty = self.base_type()?;
                if !matches!(ty.base, Base::Scalar(scalar) if !scalar.is_float()) && !matches!(ty.base, Base::Named(_))
                {
                    return self.refuse(ty.span, "a template parameter that is no type and no integer", "");
                }
                integer = Some(ty);
            }
            if self.is("...") {
                let span = self.span();
                return self.refuse(span, "a template of any number of arguments", "");
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
    fn instance(&mut self) -> Parsed<()> {
        loop {
            match (self.kind(), self.ahead(1)) {
                (Kind::Name(name), Kind::Sign("<")) if self.templates.contains(&name) => {
                    self.advance();
                    let args = self.template_args()?;
                    self.file.instances.push((name, args));
                    return Ok(());
                }
                (Kind::End | Kind::Sign(";"), _) => {
                    let span = self.span();
                    return self.refuse(span, "this instance of a template", "name its arguments: 'kernel<float>'");
                }
                _ => self.advance(),
            }
        }
    }

    /// `<float, 4>`.
    pub(super) fn template_args(&mut self) -> Parsed<Vec<TemplateArg>> {
        self.expect("<", "before template arguments")?;
        let mut all = vec![];
        while !matches!(self.kind(), Kind::Sign(">" | ">>" | ">>>")) {
            all.push(self.template_arg()?);
            if !self.take(",") {
                break;
            }
        }
        self.close_angle("after template arguments")?;
        Ok(all)
    }

    pub(super) fn template_arg(&mut self) -> Parsed<TemplateArg> {
        self.nested(|p| {
            if p.at_type() {
                return Ok(TemplateArg::Type(p.type_name()?));
            }
            let outer = std::mem::replace(&mut p.in_angles, true);
            let value = p.choice();
            p.in_angles = outer;
            Ok(TemplateArg::Value(value?))
        })
    }

    /// `>`, or one of those in `>>` and `>>>`.
    fn close_angle(&mut self, after: &str) -> Parsed<()> {
        let Kind::Sign(sign @ (">>" | ">>>")) = self.kind() else { return self.expect(">", after) };
        self.angles_read += 1;
        if self.angles_read == sign.len() {
            self.advance();
        }
        Ok(())
    }
}
