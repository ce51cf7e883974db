//! Parses structs.

use super::method::Members;
use super::{ParseResult, Parser};
use crate::cuda::ast::{Base, Expr, StructItem, TemplateParam, TypeName};
use crate::cuda::lex::TokenKind;

impl Parser<'_> {
    /// Returns true if the `struct` here is a definition or forward declaration, not the use of a
    /// type.
    pub(super) fn defines_struct(&self) -> bool {
        let mut at = 1;
        while matches!(self.ahead(at), TokenKind::Reserved("__align__" | "alignas" | "__attribute__")) {
            if self.ahead(at) == TokenKind::Reserved("__attribute__") {
                at += 1;
                continue;
            }
            at += 1;
            at = self.after_parentheses(self.at + at) - self.at;
        }
        at += matches!(self.ahead(at), TokenKind::Name(_)) as usize;
        matches!(self.ahead(at), TokenKind::Reserved("{" | ";" | ":"))
    }

    /// Index of the token after the group in parentheses that starts at a token.
    pub(super) fn after_parentheses(&self, start: usize) -> usize {
        let mut depth = 0;
        for (n, token) in self.tokens.iter().enumerate().skip(start) {
            match token.kind {
                TokenKind::Reserved("(") => depth += 1,
                TokenKind::Reserved(")") => depth -= 1,
                _ => {}
            }
            if depth <= 0 {
                return n + 1;
            }
        }
        self.tokens.len()
    }

    /// Index of the token after the template arguments that start at a token.
    pub(super) fn after_angles(&self, start: usize) -> usize {
        let (mut depth, mut nested) = (0, 0);
        for (n, token) in self.tokens.iter().enumerate().skip(start) {
            match token.kind {
                TokenKind::Reserved("(") => nested += 1,
                TokenKind::Reserved(")") if nested > 0 => nested -= 1,
                TokenKind::Reserved("<") if nested == 0 => depth += 1,
                TokenKind::Reserved(">") if nested == 0 => depth -= 1,
                TokenKind::Reserved(">>") if nested == 0 => depth -= 2,
                TokenKind::Reserved(")" | ";" | "{" | "}") => break,
                _ => {}
            }
            if depth <= 0 {
                return n + 1;
            }
        }
        self.tokens.len() - 1
    }

    /// `__align__(16)`, `alignas(16)`.
    pub(super) fn alignment(&mut self) -> ParseResult<Option<Expr>> {
        let mut found = None;
        while self.take("__align__") || self.take("alignas") {
            self.expect("(", "before an alignment")?;
            if self.at_type() {
                let span = self.span();
                return self.unsupported(
                    span,
                    "'alignas' with a type argument",
                    "write the number of bytes: 'alignas(16)'",
                );
            }
            found = self.list(")")?.into_iter().next();
        }
        Ok(found)
    }

    pub(super) fn struct_item(&mut self, templates: Vec<TemplateParam>) -> ParseResult<()> {
        let is_class = self.is("class");
        self.advance();
        let align = self.alignment()?;
        if self.is("__attribute__") {
            return self.layout_attribute();
        }
        let mut name = match self.kind() {
            TokenKind::Name(_) => Some(self.name("a struct")?),
            _ => None,
        };
        if self.is(";") {
            return Ok(()); // declared here, defined later
        }
        if self.is(":") {
            let span = self.span();
            return self.unsupported(span, "a struct with base classes", "declare its fields directly");
        }
        if let Some((name, _)) = name {
            self.types.insert(name);
            if !templates.is_empty() {
                self.struct_templates.insert(name);
            }
        }
        self.expect("{", "after the name of a struct")?;
        let outer = self.current_struct.replace((name.map_or(self.unnamed, |(name, _)| name), templates.clone()));
        let members = self.members(is_class);
        self.current_struct = outer;
        let Members { fields, field_aligns, statics, assertions, mut methods, has_constructor, private, copy_control } =
            members?;
        if self.is("__attribute__") {
            return self.layout_attribute();
        }
        if let TokenKind::Name(_) = self.kind() {
            let found = self.name("a struct")?;
            self.types.insert(found.0);
            // typedef struct Name { … } Alias;
            if let Some((name, span)) = name.filter(|(name, _)| *name != found.0) {
                let ty = TypeName {
                    base: Base::Named(name),
                    pointers: 0,
                    constant: false,
                    is_const_pointer: false,
                    reference: false,
                    span,
                };
                self.file.aliases.push((found.0, ty));
            }
            name = name.or(Some(found)); // typedef struct { … } Name;
        }
        let Some((name, span)) = name else {
            let span = self.span();
            return self.unsupported(span, "an unnamed struct", "");
        };
        // The CUDA printer's vector types are known by name.
        match crate::cuda::types::builtin_type(self.names.text(name)) {
            Some(vector) if align.is_none() => self.file.unaligned_vectors.push(vector),
            Some(_) => {}
            None => {
                let pack = self.pack;
                methods.iter_mut().filter_map(|method| method.method.as_mut()).for_each(|method| method.of = name);
                self.file.functions.extend(methods);
                self.file.structs.push(StructItem {
                    name,
                    span,
                    templates,
                    align,
                    pack,
                    fields,
                    field_aligns,
                    statics,
                    assertions,
                    has_constructor,
                    private_members: private,
                    copy_control,
                });
            }
        }
        Ok(())
    }

    /// Rejects an attribute that changes the memory layout of a type.
    pub(super) fn layout_attribute<T>(&mut self) -> ParseResult<T> {
        let span = self.span();
        let text = self.text(span).split_whitespace().collect::<String>();
        self.unsupported(span, &format!("'{text}'"), "write 'alignas(n)', or add fields")
    }

    /// `#pragma pack`: maximum alignment in bytes of fields of the structs after it.
    pub(super) fn pragma_pack(&mut self) {
        let start = self.span();
        let mut args = vec![];
        self.advance();
        while !self.is(";") && self.kind() != TokenKind::End {
            args.push(self.kind());
            self.advance();
        }
        self.take(";");
        let inner = match &args[..] {
            [TokenKind::Reserved("("), inner @ .., TokenKind::Reserved(")")] => inner,
            _ => &[TokenKind::End],
        };
        let mut is_first = true;
        for arg in inner.split(|kind| *kind == TokenKind::Reserved(",")) {
            let word = |name| self.names.text(name);
            match arg {
                [TokenKind::Name(name)] if is_first && word(*name) == "push" => self.packs.push(self.pack),
                [TokenKind::Name(name)] if is_first && word(*name) == "pop" => self.pack = self.packs.pop().flatten(),
                [] if is_first => self.pack = None,
                [TokenKind::Int { value: bytes @ (1 | 2 | 4 | 8 | 16), .. }] => self.pack = Some(*bytes),
                // An identifier of `push` or `pop`.
                [TokenKind::Name(_)] if !is_first => {}
                _ => {
                    let _: ParseResult<()> = self.unsupported(
                        start,
                        "this '#pragma pack'",
                        "write '#pragma pack(push, 4)' and '#pragma pack(pop)'",
                    );
                }
            }
            is_first = false;
        }
    }
}
