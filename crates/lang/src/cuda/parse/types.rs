//! Parses types and declarators.

use bornite_ir::Scalar;

use super::{ParseResult, Parser};
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Storage, TypeName};
use crate::cuda::lex::TokenKind;
use crate::cuda::preprocess::undeclared_hint;
use crate::cuda::types::is_collective;

impl Parser<'_> {
    /// Returns true if a type starts here.
    pub(super) fn at_type(&self) -> bool {
        match self.kind() {
            TokenKind::Reserved(
                "void" | "bool" | "char" | "short" | "int" | "long" | "signed" | "unsigned" | "float" | "double"
                | "auto" | "const" | "constexpr" | "volatile" | "struct" | "class" | "typename" | "enum",
            ) => true,
            _ => matches!(self.ahead(self.scope_prefix_len()), TokenKind::Name(symbol) if self.is_type_name(symbol)),
        }
    }

    /// Parses the specifiers before the type of a declaration.
    pub(super) fn storage(&mut self) -> ParseResult<Storage> {
        let mut storage = Storage::default();
        loop {
            let TokenKind::Reserved(token) = self.kind() else { return Ok(storage) };
            match token {
                "__shared__" => storage.shared = true,
                "extern" => {
                    storage.external = true;
                    if matches!(self.ahead(1), TokenKind::Str(_)) {
                        self.advance();
                    }
                }
                "constexpr" => storage.constant = true,
                "__constant__" => (storage.constant_memory, storage.constant) = (true, true),
                "__device__" => storage.device = true,
                "static" => storage.is_static = true,
                "__attribute__" => return self.layout_attribute(),
                "inline" | "__forceinline__" | "__noinline__" | "__inline__" | "register" | "__host__" => {}
                "__align__" | "alignas" => {
                    self.advance();
                    if self.is("(") {
                        self.skip_brackets();
                    }
                    continue;
                }
                // Managed memory is device memory that the host can access, too.
                "__managed__" => storage.device = true,
                _ => return Ok(storage),
            }
            self.advance();
        }
    }

    /// Parses a type without its `*`, `&` and sizes.
    pub(super) fn base_type(&mut self) -> ParseResult<TypeName> {
        let start = self.span();
        let mut constant = false;
        let (mut longs, mut short, mut unsigned, mut signed, mut word) = (0, false, false, false, None);
        let mut base = None;
        self.inner_storage = Storage::default();
        loop {
            match self.kind() {
                TokenKind::Reserved("const" | "constexpr") => constant = true,
                TokenKind::Reserved("__shared__") => self.inner_storage.shared = true,
                TokenKind::Reserved("__device__") => self.inner_storage.device = true,
                TokenKind::Reserved("extern") => self.inner_storage.external = true,
                TokenKind::Reserved("static") => self.inner_storage.is_static = true,
                TokenKind::Reserved("__constant__") => {
                    (self.inner_storage.constant_memory, self.inner_storage.constant) = (true, true);
                }
                TokenKind::Reserved("inline" | "register" | "__forceinline__" | "__host__") => {}
                TokenKind::Reserved("volatile" | "typename" | "struct" | "class" | "enum" | "__restrict__") => {}
                TokenKind::Reserved("long") => longs += 1,
                TokenKind::Reserved("short") => short = true,
                TokenKind::Reserved("unsigned") => unsigned = true,
                TokenKind::Reserved("signed") => signed = true,
                TokenKind::Reserved(found @ ("void" | "bool" | "char" | "int" | "float" | "double" | "auto"))
                    if base.is_none() =>
                {
                    word = Some(found);
                }
                TokenKind::Name(_) | TokenKind::Reserved("::")
                    if base.is_none() && word.is_none() && longs == 0 && !short && !unsigned && !signed =>
                {
                    self.qualifier(start);
                    let named = self.named_type()?;
                    let is_storage = matches!((self.kind(), self.ahead(1)), (TokenKind::Reserved("::"), TokenKind::Name(name)) if self.names.text(name) == "TempStorage");
                    if is_storage {
                        self.advance();
                        self.advance();
                    }
                    base = Some(if is_storage { Base::TempStorage(Box::new(named)) } else { named });
                    continue;
                }
                _ => break,
            }
            self.advance();
        }
        let span = start.to(self.last_span());
        let integer_names = &mut self.file.integer_names;
        integer_names.plain_char |= word == Some("char") && !signed && !unsigned;
        integer_names.signed_char |= word == Some("char") && signed;
        integer_names.long |= longs == 1;
        integer_names.long_long |= longs > 1;
        let base = match (base, word) {
            (Some(base), _) => base,
            (None, Some("void")) => Base::Void,
            (None, Some("auto")) => Base::Auto,
            (None, Some("bool")) => Base::Scalar(Scalar::Bool),
            (None, Some("float")) => Base::Scalar(Scalar::F32),
            (None, Some("double")) => Base::Scalar(Scalar::F64),
            (None, Some("char")) => Base::Scalar(if unsigned { Scalar::U8 } else { Scalar::I8 }),
            (None, word) if word.is_some() || longs > 0 || short || unsigned || signed => {
                Base::Scalar(match (short, longs > 0, unsigned) {
                    (true, _, false) => Scalar::I16,
                    (true, _, true) => Scalar::U16,
                    (_, true, false) => Scalar::I64,
                    (_, true, true) => Scalar::U64,
                    (_, _, false) => Scalar::I32,
                    (_, _, true) => Scalar::U32,
                })
            }
            // As in `const x = 3;`.
            _ => {
                let (span, found) = (self.span(), self.current_text());
                return self.fail(span, format!("expected a type, found {found}"), "expected a type", "");
            }
        };
        Ok(TypeName { base, pointers: 0, constant, is_const_pointer: false, reference: false, span })
    }

    /// Parses the name of a struct, alias or template parameter.
    fn named_type(&mut self) -> ParseResult<Base> {
        let (symbol, span) = self.name("a type")?;
        if !self.is_type_name(symbol) {
            self.check_supported(symbol, span)?;
            if matches!(self.names.text(symbol), "cudaTextureObject_t" | "cudaSurfaceObject_t") {
                return self.unsupported(span, "a texture or surface object", "pass an array");
            }
            let what = format!("unknown type '{}'", self.names.text(symbol));
            let hint = "declare the struct or alias before it is used";
            let hint = undeclared_hint(self.missing_headers, self.source, span, hint);
            return self.fail(span, what, "not declared", &hint);
        }
        let text = self.names.text(symbol);
        if (text == "thread_block_tile" || is_collective(text) && !self.struct_templates.contains(&symbol))
            && self.is("<")
        {
            return Ok(Base::Template(symbol, self.template_args()?));
        }
        if !self.struct_templates.contains(&symbol) {
            return Ok(Base::Named(symbol));
        }
        if !self.is("<") {
            if let Some(own) = self.injected_name(symbol) {
                return Ok(own);
            }
            let what = format!("struct template '{}' needs arguments", self.names.text(symbol));
            return self.fail(span, what, "missing template arguments", "write them: 'Pair<float>'");
        }
        Ok(Base::Template(symbol, self.template_args()?))
    }

    /// Parses `*`, `&` and the qualifiers among them.
    pub(super) fn pointers(&mut self, mut ty: TypeName) -> ParseResult<TypeName> {
        loop {
            match self.kind() {
                TokenKind::Reserved("*") => ty.pointers = ty.pointers.saturating_add(1),
                TokenKind::Reserved("&") => ty.reference = true,
                TokenKind::Reserved("const") => ty.is_const_pointer |= ty.pointers > 0,
                TokenKind::Reserved("volatile" | "__restrict__" | "__restrict" | "restrict" | "__grid_constant__") => {}
                TokenKind::Reserved("&&") => {
                    let span = self.span();
                    return self.unsupported(span, "an rvalue reference", "write '&'");
                }
                _ => break,
            }
            self.advance();
        }
        ty.span = ty.span.to(self.last_span());
        Ok(ty)
    }

    /// Parses a complete type, as in a cast.
    pub(super) fn type_name(&mut self) -> ParseResult<TypeName> {
        let base = self.base_type()?;
        self.pointers(base)
    }

    /// Parses a name with its `*`, sizes and initializer.
    pub(super) fn declarator(&mut self, base: &TypeName, what: &str) -> ParseResult<Declarator> {
        let ty = self.pointers(base.clone())?;
        if self.is("(") && self.ahead(1) == TokenKind::Reserved("&") {
            return self.placed_shared_array(ty);
        }
        if what == "a parameter" && self.is("(") && self.ahead(1) == TokenKind::Reserved("*") {
            return self.row_pointer(ty);
        }
        if self.is("(") && self.ahead(1) == TokenKind::Reserved("*") {
            let span = self.span();
            return self.unsupported(span, "a pointer to a function or array", "call the function by its name");
        }
        if what == "a parameter" && matches!(self.kind(), TokenKind::Reserved("," | ")" | "=")) {
            let init = if self.take("=") { Some(self.initializer()?) } else { None };
            return Ok(Declarator { name: self.unnamed, span: ty.span, ty, sizes: vec![], init });
        }
        let (name, span) = self.name(what)?;
        if self.is_type_name(name) {
            self.shadowed.insert(name);
        }
        let mut sizes = vec![];
        while self.take("[") {
            let size = if self.is("]") { None } else { Some(self.expr()?) };
            self.expect("]", "after the size of an array")?;
            sizes.push(size);
        }
        let mut init = None;
        if self.take("=") {
            init = Some(self.initializer()?);
        } else if self.is("{") {
            init = Some(self.braced_list()?);
        } else if self.is("(") {
            let start = self.span();
            self.advance();
            let args = self.list(")")?;
            let span = start.to(self.last_span());
            if args.is_empty() && what == "a variable" {
                return self.unsupported(span, "a function declaration in a function", "remove the parentheses");
            }
            let below = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
            init = Some(self.make_expr(ExprKind::Construct(ty.clone(), args), span, below)?);
        }
        Ok(Declarator { name, span, ty, sizes, init })
    }

    /// `float (*rows)[4]`: a parameter of the same type as `float rows[][4]`.
    fn row_pointer(&mut self, ty: TypeName) -> ParseResult<Declarator> {
        let start = self.span();
        self.advance();
        self.advance();
        while matches!(self.kind(), TokenKind::Reserved("const" | "__restrict__" | "__restrict" | "restrict")) {
            self.advance();
        }
        let (name, span) = self.name("a parameter")?;
        self.expect(")", "after the name of a parameter")?;
        let mut sizes = vec![None];
        while self.take("[") {
            sizes.push(Some(self.expr()?));
            self.expect("]", "after the size of an array")?;
        }
        if sizes.len() == 1 {
            return self.unsupported(start, "a pointer to a function", "call the function by its name");
        }
        Ok(Declarator { name, span, ty, sizes, init: None })
    }

    /// `float (&tile)[64] = *(float (*)[64])(bn_shared + 256)`: the CUDA printer's form of large
    /// shared arrays.
    fn placed_shared_array(&mut self, ty: TypeName) -> ParseResult<Declarator> {
        let start = self.span();
        self.advance();
        self.advance();
        let (name, span) = self.name("a shared array")?;
        self.expect(")", "after the name of an array")?;
        let mut sizes = vec![];
        while self.take("[") {
            sizes.push(Some(self.expr()?));
            self.expect("]", "after the size of an array")?;
        }
        let mut in_bn_shared = false;
        while !self.is(";") && self.kind() != TokenKind::End {
            in_bn_shared |= matches!(self.kind(), TokenKind::Name(symbol) if self.names.text(symbol) == "bn_shared");
            self.advance();
        }
        if !in_bn_shared {
            return self.unsupported(start, "a reference to an array", "use a pointer");
        }
        self.placed_shared = true;
        Ok(Declarator { name, span, ty, sizes, init: None })
    }

    /// Parses an initializer after `=`.
    pub(super) fn initializer(&mut self) -> ParseResult<Expr> {
        if self.is("{") { self.braced_list() } else { self.assignment() }
    }

    pub(super) fn braced_list(&mut self) -> ParseResult<Expr> {
        let start = self.span();
        self.expect("{", "before a list")?;
        self.nested(|p| {
            let mut all = vec![];
            while !p.is("}") {
                all.push(p.initializer()?);
                if !p.take(",") {
                    break;
                }
            }
            p.expect("}", "after a list")?;
            let below = all.iter().map(|arg| arg.depth).max().unwrap_or(0);
            let span = start.to(p.last_span());
            p.make_expr(ExprKind::Braces(all), span, below)
        })
    }
}
