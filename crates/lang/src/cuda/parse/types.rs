//! Types and declarators.

use bornite_ir::Scalar;

use super::{Parsed, Parser};
use crate::cuda::ast::{Base, Declarator, Expr, ExprKind, Storage, TypeName};
use crate::cuda::lex::Kind;

impl Parser<'_> {
    /// True if a type begins here.
    pub(super) fn at_type(&self) -> bool {
        match self.kind() {
            Kind::Sign(
                "void" | "bool" | "char" | "short" | "int" | "long" | "signed" | "unsigned" | "float" | "double"
                | "auto" | "const" | "constexpr" | "volatile" | "struct" | "typename" | "enum",
            ) => true,
            _ => matches!(self.ahead(self.scopes()), Kind::Name(symbol) if self.is_type_name(symbol)),
        }
    }

    /// Words before a declaration. The type follows.
    pub(super) fn storage(&mut self) -> Parsed<Storage> {
        let mut storage = Storage::default();
        loop {
            let Kind::Sign(sign) = self.kind() else { return Ok(storage) };
            match sign {
                "__shared__" => storage.shared = true,
                "extern" => {
                    storage.external = true;
                    if self.ahead(1) == Kind::Text {
                        self.advance();
                    }
                }
                "constexpr" => storage.constant = true,
                "__constant__" => (storage.memory_constant, storage.constant) = (true, true),
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
                "__managed__" => {
                    let span = self.span();
                    return self.refuse(span, "'__managed__' memory", "pass a pointer to the kernel");
                }
                _ => return Ok(storage),
            }
            self.advance();
        }
    }

    /// A type without its `*`, `&` and sizes.
    pub(super) fn base_type(&mut self) -> Parsed<TypeName> {
        let start = self.span();
        let mut constant = false;
        let (mut longs, mut short, mut unsigned, mut signed, mut word) = (0, false, false, false, None);
        let mut base = None;
        loop {
            match self.kind() {
                Kind::Sign("const" | "constexpr") => constant = true,
                Kind::Sign("volatile" | "typename" | "struct" | "__restrict__") => {}
                Kind::Sign("long") => longs += 1,
                Kind::Sign("short") => short = true,
                Kind::Sign("unsigned") => unsigned = true,
                Kind::Sign("signed") => signed = true,
                Kind::Sign(found @ ("void" | "bool" | "char" | "int" | "float" | "double" | "auto"))
                    if base.is_none() =>
                {
                    word = Some(found);
                }
                Kind::Name(_) | Kind::Sign("::")
                    if base.is_none() && word.is_none() && longs == 0 && !short && !unsigned && !signed =>
                {
                    (0..self.scopes()).for_each(|_| self.advance());
                    base = Some(self.named_type()?);
                    continue;
                }
                _ => break,
            }
            self.advance();
        }
        let span = start.to(self.last_span());
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
            // `const x = 3;` and the like.
            _ => {
                let (span, found) = (self.span(), self.found());
                return self.fail(span, format!("expected a type, found {found}"), "expected a type", "");
            }
        };
        Ok(TypeName { base, pointers: 0, constant, fixed: false, reference: false, span })
    }

    /// A struct, alias or template parameter.
    fn named_type(&mut self) -> Parsed<Base> {
        let (symbol, span) = self.name("a type")?;
        if !self.is_type_name(symbol) {
            self.told(symbol, span)?;
            if matches!(self.names.text(symbol), "cudaTextureObject_t" | "cudaSurfaceObject_t") {
                return self.refuse(span, "a texture or surface", "pass an array");
            }
            let what = format!("'{}' is not a type that is known here", self.names.text(symbol));
            return self.fail(span, what, "unknown type", "declare the struct or alias before it is used");
        }
        if !self.struct_templates.contains(&symbol) {
            return Ok(Base::Named(symbol));
        }
        if !self.is("<") {
            let what = format!("struct '{}' is a template", self.names.text(symbol));
            return self.fail(span, what, "without its arguments", "name them: 'Pair<float>'");
        }
        Ok(Base::Template(symbol, self.template_args()?))
    }

    /// `*`, `&` and the words among them.
    pub(super) fn pointers(&mut self, mut ty: TypeName) -> Parsed<TypeName> {
        loop {
            match self.kind() {
                Kind::Sign("*") => ty.pointers = ty.pointers.saturating_add(1),
                Kind::Sign("&") => ty.reference = true,
                Kind::Sign("const") => ty.fixed |= ty.pointers > 0,
                Kind::Sign("volatile" | "__restrict__" | "__restrict" | "restrict" | "__grid_constant__") => {}
                Kind::Sign("&&") => {
                    let span = self.span();
                    return self.refuse(span, "a reference '&&'", "write '&'");
                }
                _ => break,
            }
            self.advance();
        }
        ty.span = ty.span.to(self.last_span());
        Ok(ty)
    }

    /// A whole type, as in a cast.
    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let base = self.base_type()?;
        self.pointers(base)
    }

    /// A name with its `*`, sizes and initial value.
    pub(super) fn declarator(&mut self, base: &TypeName, what: &str) -> Parsed<Declarator> {
        let ty = self.pointers(base.clone())?;
        if self.is("(") && self.ahead(1) == Kind::Sign("&") {
            return self.placed(ty);
        }
        if self.is("(") && self.ahead(1) == Kind::Sign("*") {
            let span = self.span();
            return self.refuse(span, "a pointer to a function or array", "call the function by its name");
        }
        if what == "a parameter" && matches!(self.kind(), Kind::Sign("," | ")")) {
            return Ok(Declarator { name: self.unnamed, span: ty.span, ty, sizes: vec![], init: None });
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
            init = Some(self.initial()?);
        } else if self.is("{") {
            init = Some(self.braces()?);
        } else if self.is("(") {
            let start = self.span();
            self.advance();
            let args = self.list(")")?;
            let span = start.to(self.last_span());
            let below = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
            init = Some(self.expr_of(ExprKind::Construct(ty.clone(), args), span, below)?);
        }
        Ok(Declarator { name, span, ty, sizes, init })
    }

    /// `float (&tile)[64] = *(float (*)[64])(bn_shared + 256)`, as our printer places large shared arrays.
    fn placed(&mut self, ty: TypeName) -> Parsed<Declarator> {
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
        let mut ours = false;
        while !self.is(";") && self.kind() != Kind::End {
            ours |= matches!(self.kind(), Kind::Name(symbol) if self.names.text(symbol) == "bn_shared");
            self.advance();
        }
        if !ours {
            return self.refuse(start, "a reference to an array", "use a pointer");
        }
        self.placed_shared = true;
        Ok(Declarator { name, span, ty, sizes, init: None })
    }

    /// What follows an `=` of a declaration.
    pub(super) fn initial(&mut self) -> Parsed<Expr> {
        if self.is("{") { self.braces() } else { self.assignment() }
    }

    pub(super) fn braces(&mut self) -> Parsed<Expr> {
        let start = self.span();
        self.expect("{", "before a list")?;
        self.nested(|p| {
            let mut all = vec![];
            while !p.is("}") {
                all.push(p.initial()?);
                if !p.take(",") {
                    break;
                }
            }
            p.expect("}", "after a list")?;
            let below = all.iter().map(|arg| arg.depth).max().unwrap_or(0);
            let span = start.to(p.last_span());
            p.expr_of(ExprKind::Braces(all), span, below)
        })
    }
}
