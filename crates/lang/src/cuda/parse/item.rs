//! Items of a file: kernels, device functions, structs, constants. Host code is skipped.

use super::{Parsed, Parser};
use crate::cuda::ast::{
    Base, Binary, Declarator, Expr, ExprKind, Function, Storage, StructItem, TemplateParam, TypeName,
};
use crate::cuda::lex::Kind;
use bornite_ir::{Scalar, Value};

impl Parser<'_> {
    /// Reads all items.
    pub fn items(&mut self) {
        while self.kind() != Kind::End {
            if self.take(";") || self.take("}") {
                continue; // the end of a namespace or of extern "C"
            }
            if self.opens() {
                continue;
            }
            // Recovery depends on the item's own end, whatever its inside did.
            let (end, nesting) = (self.item_end(), self.nesting);
            self.shadowed.clear();
            let skipped = self.is_host(end);
            if !skipped && self.item().is_err() {
                self.nesting = nesting;
            }
            if skipped || self.at < end {
                self.at = end;
            }
        }
    }

    /// `namespace x {` and `extern "C" {` are passed over.
    fn opens(&mut self) -> bool {
        let named = self.is("namespace") && self.ahead(2) == Kind::Sign("{");
        let unnamed = self.is("namespace") && self.ahead(1) == Kind::Sign("{");
        let external = self.is("extern") && self.ahead(1) == Kind::Text && self.ahead(2) == Kind::Sign("{");
        let length = if named || external { 3 } else { 2 };
        if named || unnamed || external {
            (0..length).for_each(|_| self.advance());
        }
        named || unnamed || external
    }

    /// The token after the item that begins here.
    fn item_end(&self) -> usize {
        let (mut depth, mut assigned) = (0usize, false);
        for n in self.at..self.tokens.len() {
            match self.tokens[n].kind {
                Kind::Sign("(" | "[" | "{") => depth += 1,
                Kind::Sign(")" | "]") => depth = depth.saturating_sub(1),
                Kind::Sign("=") if depth == 0 => assigned = true,
                Kind::Sign("}") => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && !assigned {
                        let more = self.tokens.get(n + 1).is_some_and(|t| t.kind == Kind::Sign(";"));
                        return n + 1 + more as usize;
                    }
                }
                Kind::Sign(";") if depth == 0 => return n + 1,
                Kind::End => return n,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    /// True if the item is none of ours: host code, or what our printer writes before a kernel.
    fn is_host(&self, end: usize) -> bool {
        let head = &self.tokens[self.at..end];
        let until = head.iter().position(|t| matches!(t.kind, Kind::Sign("{" | ";" | "="))).unwrap_or(head.len());
        let head = &head[..until];
        let ours = head.iter().filter_map(|t| if let Kind::Name(s) = t.kind { Some(s) } else { None });
        if ours.clone().any(|s| self.names.text(s).starts_with("bn_") && self.item_name(head) == Some(s)) {
            return true;
        }
        let has = |word: &'static str| head.iter().any(|t| t.kind == Kind::Sign(word));
        if has("__global__") || has("__device__") || has("__constant__") || has("__shared__") || has("constexpr") {
            return false;
        }
        let parenthesis = has("(");
        let declares = has("struct") || has("typedef") || has("using") || has("enum") || has("union") || has("class");
        if declares && !parenthesis {
            // using namespace std;
            return has("using") && has("namespace") || has("template");
        }
        if has("static_assert") {
            return true;
        }
        // Constants of the host are constants of kernels too.
        parenthesis || !has("const")
    }

    /// The name that an item declares: of a function, before its parenthesis; else the last.
    fn item_name(&self, head: &[crate::cuda::lex::Token]) -> Option<crate::cuda::lex::Symbol> {
        let name = |kind: Kind| if let Kind::Name(symbol) = kind { Some(symbol) } else { None };
        if let Some(n) = head.iter().position(|t| t.kind == Kind::Sign("struct")) {
            return head.get(n + 1).and_then(|t| name(t.kind));
        }
        let pairs = head.windows(2).find(|pair| pair[1].kind == Kind::Sign("(") && name(pair[0].kind).is_some());
        match pairs {
            Some(pair) => name(pair[0].kind),
            None => head.iter().rev().find_map(|t| name(t.kind)),
        }
    }

    fn item(&mut self) -> Parsed<()> {
        let start = self.span();
        match self.kind() {
            Kind::Sign("struct") if matches!(self.ahead(2), Kind::Sign("{" | ";")) => self.structure(),
            Kind::Sign("typedef") if self.ahead(1) == Kind::Sign("struct") => {
                self.advance();
                self.structure()
            }
            Kind::Sign("typedef") => {
                self.advance();
                let ty = self.type_name()?;
                let (name, _) = self.name("an alias")?;
                self.types.insert(name);
                self.file.aliases.push((name, ty));
                Ok(())
            }
            Kind::Sign("using") => {
                self.advance();
                let (name, _) = self.name("an alias")?;
                self.expect("=", "after the name of an alias")?;
                let ty = self.type_name()?;
                self.types.insert(name);
                self.file.aliases.push((name, ty));
                Ok(())
            }
            Kind::Sign("enum") => self.enumeration(),
            Kind::Sign(word @ ("union" | "class")) => {
                self.refuse(start, &format!("'{word}'"), "write a struct without functions")
            }
            Kind::Sign("template") => {
                self.advance();
                let templates = if self.is("<") { self.template_params()? } else { vec![] };
                if templates.is_empty() {
                    return self.instance();
                }
                if self.is("struct") || self.is("class") {
                    return self.refuse(start, "a template of a struct", "write the struct for one type");
                }
                self.function_or_global(templates)
            }
            _ => self.function_or_global(vec![]),
        }
    }

    fn template_params(&mut self) -> Parsed<Vec<TemplateParam>> {
        self.expect("<", "after 'template'")?;
        let mut all = vec![];
        while !self.is(">") {
            let is_type = matches!(self.kind(), Kind::Sign("typename" | "class"));
            if is_type {
                self.advance();
            } else {
                let ty = self.base_type()?;
                if !matches!(ty.base, Base::Scalar(scalar) if !scalar.is_float()) && !matches!(ty.base, Base::Named(_))
                {
                    return self.refuse(ty.span, "a template parameter that is no type and no integer", "");
                }
            }
            if self.is("...") {
                let span = self.span();
                return self.refuse(span, "a template of any number of arguments", "");
            }
            let (name, _) = self.name("a template parameter")?;
            if is_type {
                self.types.insert(name);
            }
            let default = if self.take("=") { Some(self.template_arg()?) } else { None };
            all.push(TemplateParam { name, is_type, default });
            if !self.take(",") {
                break;
            }
        }
        self.expect(">", "after template parameters")?;
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

    fn structure(&mut self) -> Parsed<()> {
        self.advance();
        let mut name = match self.kind() {
            Kind::Name(_) => Some(self.name("a struct")?),
            _ => None,
        };
        if self.is(";") {
            return Ok(()); // declared here, defined later
        }
        if self.is(":") {
            let span = self.span();
            return self.refuse(span, "a struct that inherits", "name its fields");
        }
        if let Some((name, _)) = name {
            self.types.insert(name);
        }
        self.expect("{", "after the name of a struct")?;
        let mut fields = vec![];
        while !self.take("}") {
            if self.kind() == Kind::End {
                let span = self.span();
                return self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
            }
            if self.is("public") && self.ahead(1) == Kind::Sign(":") {
                self.advance();
                self.advance();
                continue;
            }
            let start = self.span();
            let storage = self.storage()?;
            let base = self.base_type()?;
            if storage.device || self.is("(") || self.ahead(1) == Kind::Sign("(") || self.is("operator") {
                return self.refuse(start, "a function in a struct", "write a '__device__' function outside");
            }
            loop {
                fields.push(self.declarator(&base, "a field")?);
                if !self.take(",") {
                    break;
                }
            }
            self.expect(";", "after a field")?;
        }
        if let Kind::Name(_) = self.kind() {
            let found = self.name("a struct")?;
            self.types.insert(found.0);
            name = name.or(Some(found)); // typedef struct { … } Name;
        }
        let Some((name, span)) = name else {
            let span = self.span();
            return self.refuse(span, "a struct without a name", "");
        };
        // Vectors that our printer declares are known by their names.
        if crate::cuda::types::builtin_type(self.names.text(name)).is_none() {
            self.file.structs.push(StructItem { name, span, fields });
        }
        Ok(())
    }

    /// The names of an enumeration are constants.
    fn enumeration(&mut self) -> Parsed<()> {
        self.advance();
        if self.is("class") || self.is("struct") {
            let span = self.span();
            return self.refuse(span, "'enum class'", "write 'enum'");
        }
        if let Kind::Name(name) = self.kind() {
            self.types.insert(name);
            let int = TypeName {
                base: Base::Scalar(Scalar::I32),
                pointers: 0,
                constant: false,
                reference: false,
                span: self.span(),
            };
            self.file.aliases.push((name, int));
            self.advance();
        }
        self.expect("{", "after 'enum'")?;
        let number = |value: i64, span| Expr {
            kind: ExprKind::Number { value: Value::int(Scalar::I32, value), hex: false },
            span,
            depth: 1,
        };
        let mut next: Option<Expr> = None;
        while !self.is("}") {
            let (name, span) = self.name("a constant")?;
            let value = match (self.take("="), next.take()) {
                (true, _) => self.assignment()?,
                (false, None) => number(0, span),
                (false, Some(before)) => {
                    let below = before.depth;
                    self.expr_of(
                        ExprKind::Binary(Binary::Add, Box::new(before), Box::new(number(1, span))),
                        span,
                        below,
                    )?
                }
            };
            next = Some(value.clone());
            let ty = TypeName { base: Base::Scalar(Scalar::I32), pointers: 0, constant: true, reference: false, span };
            let storage = Storage { constant: true, ..Storage::default() };
            self.file.globals.push((storage, Declarator { name, span, ty, sizes: vec![], init: Some(value) }));
            if !self.take(",") {
                break;
            }
        }
        self.expect("}", "after the constants of an enum")
    }

    fn function_or_global(&mut self, templates: Vec<TemplateParam>) -> Parsed<()> {
        let start = self.span();
        let (mut is_kernel, mut bound, mut storage) = (false, None, Storage::default());
        let mut result = None;
        // Words of CUDA may stand before and after the type.
        loop {
            if self.take("__global__") {
                is_kernel = true;
            } else if self.take("__launch_bounds__") {
                self.expect("(", "after '__launch_bounds__'")?;
                bound = self.list(")")?.into_iter().next();
            } else if result.is_none() && self.at_type() {
                let base = self.base_type()?;
                storage.constant |= base.constant;
                result = Some(base);
            } else {
                let before = self.at;
                let found = self.storage()?;
                storage = Storage {
                    shared: storage.shared || found.shared,
                    external: storage.external || found.external,
                    constant: storage.constant || found.constant,
                    device: storage.device || found.device,
                    memory_constant: storage.memory_constant || found.memory_constant,
                };
                if self.at == before {
                    break;
                }
            }
        }
        let Some(base) = result else {
            let (span, found) = (self.span(), self.found());
            return self.fail(span, format!("expected a type, found {found}"), "expected a type", "");
        };
        let ty = self.pointers(base.clone())?;
        if self.is("operator") {
            let span = self.span();
            return self.refuse(span, "an operator of one's own", "write a function with a name");
        }
        if !matches!((self.kind(), self.ahead(1)), (Kind::Name(_), Kind::Sign("("))) {
            let mut all = vec![];
            loop {
                all.push(self.declarator(&base, "a variable")?);
                if !self.take(",") {
                    break;
                }
            }
            self.expect(";", "after a declaration")?;
            self.file.globals.extend(all.into_iter().map(|found| (storage, found)));
            return Ok(());
        }
        let (name, span) = self.name("a function")?;
        if !templates.is_empty() {
            self.templates.insert(name);
        }
        self.expect("(", "after the name of a function")?;
        let mut params = vec![];
        while !self.is(")") {
            if self.is("void") && self.ahead(1) == Kind::Sign(")") {
                self.advance();
                break;
            }
            let base = self.base_type()?;
            // Declared only: names of parameters may be missing.
            params.push(self.declarator(&base, "a parameter")?);
            if !self.take(",") {
                break;
            }
        }
        self.expect(")", "after the parameters of a function")?;
        self.take("const");
        if self.take(";") {
            return Ok(());
        }
        if is_kernel && ty.base != Base::Void {
            return self.fail(start.to(ty.span), "a kernel returns nothing", "expected 'void'", "write 'void'");
        }
        self.expect("{", "before the body of a function")?;
        let errors = self.errors.len();
        let body = self.nested(|p| p.statements())?;
        if self.errors.len() > errors {
            return Ok(());
        }
        self.file.functions.push(Function { name, span, templates, is_kernel, bound, result: ty, params, body });
        Ok(())
    }
}
