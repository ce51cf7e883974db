//! Items of a file: kernels, device functions, constants. Host code is skipped; what it declares and a kernel cannot use is
//! remembered with the reason.

use super::{NOT_IN_SUBSET, Parsed, Parser};
use crate::cuda::ast::{Base, Function, Refused, Storage, TemplateParam, TypeName};
use crate::cuda::lex::{Kind, Symbol, Token};

impl Parser<'_> {
    /// Reads all items.
    pub fn items(&mut self) {
        while self.kind() != Kind::End {
            if self.take(";") {
                continue;
            }
            if self.is("}") {
                self.closes();
                continue;
            }
            if self.is("#pragma pack") {
                self.pragma_pack();
                continue;
            }
            if self.opens() {
                self.open += 1;
                continue;
            }
            // Whatever it stands for is not read.
            if let Kind::Unusable(_) = self.kind() {
                self.advance();
                if self.is("(") {
                    self.skip_brackets();
                }
                continue;
            }
            // Recovery depends on the item's own end, whatever its inside did.
            let (end, nesting) = (self.item_end(), self.nesting);
            self.shadowed.clear();
            for name in self.local_types.drain(..) {
                self.types.remove(&name);
            }
            let skipped = self.is_host(end);
            self.names_function_type(end);
            if !skipped {
                let (before, name) = (self.errors.len(), self.declared_name(end));
                let (of_device, start) = (self.is_of_device(end), self.at);
                if self.item().is_err() {
                    self.nesting = nesting;
                }
                match of_device {
                    true => self.set_aside(before, name, start, end),
                    false => self.forgive(before, name),
                }
            }
            if skipped || self.at < end {
                self.at = end;
            }
        }
        if self.open > 0 && self.errors.is_empty() {
            let span = self.span();
            let _: Parsed<()> = self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
        }
    }

    /// The end of a namespace or of `extern "C"`.
    fn closes(&mut self) {
        let span = self.span();
        self.advance();
        match self.open {
            0 if self.errors.is_empty() => {
                let _: Parsed<()> = self.fail(span, "a '}' without its '{'", "nothing is open here", "leave it out");
            }
            0 => {}
            _ => self.open -= 1,
        }
    }

    /// `namespace x {` and `extern "C" {` are passed over; the names of namespaces are remembered.
    fn opens(&mut self) -> bool {
        let mut length = self.is("inline") as usize;
        if self.is("extern") && self.ahead(1) == Kind::Text && self.ahead(2) == Kind::Sign("{") {
            length = 2;
        } else if self.ahead(length) == Kind::Sign("namespace") {
            let mut names = vec![];
            loop {
                length += 1;
                match self.ahead(length) {
                    Kind::Name(name) => names.push(name),
                    Kind::Sign("::" | "inline") => {}
                    Kind::Sign("{") => break,
                    _ => return false,
                }
            }
            self.namespaces.extend(names);
        } else {
            return false;
        }
        (0..=length).for_each(|_| self.advance());
        true
    }

    /// What is wrong with a declaration of the host is told where a kernel uses it.
    fn forgive(&mut self, before: usize, name: Option<Symbol>) {
        let first = self.errors.drain(before.min(self.errors.len())..).next();
        if let (Some(name), Some(first)) = (name, first) {
            self.types.remove(&name);
            self.file.unusable.push((name, first));
        }
    }

    /// A function that only has what the subset leaves out does not keep others from being used.
    fn set_aside(&mut self, before: usize, name: Option<Symbol>, start: usize, end: usize) {
        let (item, before) = (&self.tokens[start..end], before.min(self.errors.len()));
        let head = || item.iter().take_while(|token| token.kind != Kind::Sign("{"));
        let has = |word: &'static str| head().any(|token| token.kind == Kind::Sign(word));
        // A specialisation is one of the function's cases, not one of its own.
        let special =
            matches!(item, [_, two @ ..] if two.iter().take(2).map(|t| t.kind).eq([Kind::Sign("<"), Kind::Sign(">")]));
        let named =
            |two: &[Token]| two[1].kind == Kind::Sign("(") && name.is_some_and(|name| two[0].kind == Kind::Name(name));
        let is_operator = has("operator");
        let is_function = is_operator || item.windows(2).any(named);
        let is_whole = !special && item.last().is_some_and(|last| last.kind == Kind::Sign("}"));
        let found = &self.errors[before..];
        if found.is_empty() || !is_function || !is_whole || found.iter().any(|error| error.label != NOT_IN_SUBSET) {
            return;
        }
        let (is_kernel, span) = (has("__global__"), self.tokens[start].span);
        let errors = self.errors.drain(before..).collect();
        self.file.refused.push(Refused { name: name.filter(|_| !is_operator), is_kernel, span, errors });
    }

    /// Notes an alias of a type of functions, which is told where a kernel uses it.
    fn names_function_type(&mut self, end: usize) {
        let all = &self.tokens[self.at..end];
        let pointer = all.iter().position(|token| token.kind == Kind::Sign("*"));
        let name = match (self.kind(), self.ahead(1), pointer.map(|at| self.ahead(at + 1))) {
            (Kind::Sign("typedef"), _, Some(Kind::Name(name))) => name,
            (Kind::Sign("using"), Kind::Name(name), Some(_)) => name,
            _ => return,
        };
        if all.windows(2).any(|two| two[0].kind == Kind::Sign("(") && two[1].kind == Kind::Sign("*")) {
            let (what, label) = ("a pointer to a function is not supported", NOT_IN_SUBSET);
            let why = self.source.diagnostic(self.span(), what.into(), label.into(), None);
            self.file.unusable.push((name, why));
        }
    }

    /// How many tokens `template <…>` takes here.
    fn header(&self) -> usize {
        if !self.is("template") || self.ahead(1) != Kind::Sign("<") {
            return 0;
        }
        let (mut depth, mut angles) = (0usize, 0usize);
        for (n, token) in self.tokens[self.at..].iter().enumerate().skip(1) {
            match token.kind {
                Kind::Sign("(" | "[" | "{") => depth += 1,
                Kind::Sign(")" | "]" | "}") => depth = depth.saturating_sub(1),
                Kind::Sign("<") if depth == 0 => angles += 1,
                Kind::Sign(">") if depth == 0 => angles = angles.saturating_sub(1),
                Kind::Sign(sign @ (">>" | ">>>")) if depth == 0 => angles = angles.saturating_sub(sign.len()),
                Kind::Sign(";") | Kind::End => return 0,
                _ => {}
            }
            if angles == 0 {
                return n + 1;
            }
        }
        0
    }

    /// The token after the item that begins here.
    fn item_end(&self) -> usize {
        let (mut depth, mut assigned) = (0usize, false);
        for n in self.at + self.header()..self.tokens.len() {
            match self.tokens[n].kind {
                Kind::Sign("(" | "[" | "{") => depth += 1,
                Kind::Sign(")" | "]") => depth = depth.saturating_sub(1),
                Kind::Sign("=") if depth == 0 => assigned = true,
                Kind::Sign("}") => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && !assigned {
                        return self.behind(n + 1);
                    }
                }
                Kind::Sign(";") if depth == 0 => return n + 1,
                Kind::End => return n,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    /// Behind the semicolon that follows a brace, if one does: `};`, `} name;`.
    fn behind(&self, at: usize) -> usize {
        let kind = |n: usize| self.tokens.get(n).map(|token| token.kind);
        let aggregate = matches!(self.kind(), Kind::Sign("typedef" | "struct" | "class" | "union" | "enum"));
        match (kind(at), kind(at + 1)) {
            (Some(Kind::Sign(";")), _) => at + 1,
            (Some(Kind::Name(_)), Some(Kind::Sign(";"))) if aggregate => at + 2,
            _ => at,
        }
    }

    /// The tokens of an item before its body or value, without what is said of alignment.
    fn head(&self, end: usize) -> Vec<Token> {
        let mut out: Vec<Token> = vec![];
        let mut at = (self.at + self.header()).min(end);
        while at < end {
            let token = self.tokens[at];
            at += 1;
            match token.kind {
                Kind::Sign("{" | ";" | "=") => break,
                Kind::Sign("__align__" | "alignas") => {
                    at = (at..end).find(|n| self.tokens[*n].kind == Kind::Sign(")")).map_or(end, |n| n + 1);
                }
                _ => out.push(token),
            }
        }
        out
    }

    /// True if the item says that it is for the device: then whatever is wrong with it is told.
    fn is_of_device(&self, end: usize) -> bool {
        let words = ["__global__", "__device__", "__constant__", "__shared__", "__managed__"];
        self.head(end).iter().any(|token| matches!(token.kind, Kind::Sign(word) if words.contains(&word)))
    }

    /// True if the item is none of ours: host code, or what our printer writes before a kernel.
    fn is_host(&self, end: usize) -> bool {
        let head = self.head(end);
        let ours = head.iter().filter_map(|t| if let Kind::Name(s) = t.kind { Some(s) } else { None });
        if ours.clone().any(|s| self.names.text(s).starts_with("bn_") && self.item_name(&head) == Some(s)) {
            return true;
        }
        let has = |word: &'static str| head.iter().any(|t| t.kind == Kind::Sign(word));
        if has("__global__") || has("__device__") || has("__constant__") || has("__shared__") || has("constexpr") {
            return false;
        }
        let parenthesis = has("(");
        let declares = has("struct") || has("typedef") || has("using") || has("enum") || has("union") || has("class");
        if declares && !parenthesis {
            // using namespace std; using std::min;
            return has("using") && (has("namespace") || has("::"));
        }
        if has("static_assert") {
            return true;
        }
        // Constants of the host are constants of kernels too.
        parenthesis || !has("const")
    }

    /// The name that an item declares: of a function, before its parenthesis; else the last.
    fn item_name(&self, head: &[Token]) -> Option<Symbol> {
        let name = |kind: Kind| if let Kind::Name(symbol) = kind { Some(symbol) } else { None };
        let aggregate = |token: &Token| matches!(token.kind, Kind::Sign("struct" | "class" | "union" | "enum"));
        if let Some(n) = head.iter().position(aggregate) {
            return head[n..].iter().find_map(|token| name(token.kind));
        }
        let pairs = head.windows(2).find(|pair| pair[1].kind == Kind::Sign("(") && name(pair[0].kind).is_some());
        match pairs {
            Some(pair) => name(pair[0].kind),
            None => head.iter().rev().find_map(|t| name(t.kind)),
        }
    }

    /// The name that the item here gives something.
    fn declared_name(&self, end: usize) -> Option<Symbol> {
        if self.is("typedef") {
            let all = self.tokens[self.at..end].iter().rev();
            return all.clone().find_map(|t| if let Kind::Name(symbol) = t.kind { Some(symbol) } else { None });
        }
        self.item_name(&self.head(end))
    }

    fn item(&mut self) -> Parsed<()> {
        let start = self.span();
        match self.kind() {
            Kind::Sign("struct") if self.defines_struct() => self.structure(vec![]),
            Kind::Sign("typedef") if self.ahead(1) == Kind::Sign("struct") => {
                self.advance();
                self.structure(vec![])
            }
            Kind::Sign("typedef") => {
                self.advance();
                let ty = self.type_name()?;
                let (name, _) = self.name("an alias")?;
                self.expect(";", "after an alias")?;
                self.types.insert(name);
                self.file.aliases.push((name, ty));
                Ok(())
            }
            Kind::Sign("using") => {
                self.advance();
                let (name, _) = self.name("an alias")?;
                self.expect("=", "after the name of an alias")?;
                let ty = self.type_name()?;
                self.expect(";", "after an alias")?;
                self.types.insert(name);
                self.file.aliases.push((name, ty));
                Ok(())
            }
            Kind::Sign("enum") => self.enumeration(),
            Kind::Sign(word @ ("union" | "class")) => {
                self.refuse(start, &format!("'{word}'"), "write a struct without functions")
            }
            Kind::Sign("template") => self.template(),
            _ => self.function_or_global(vec![], false),
        }
    }

    /// A function, or variables; `special` behind `template <>`.
    pub(super) fn function_or_global(&mut self, templates: Vec<TemplateParam>, special: bool) -> Parsed<()> {
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
                storage = storage.and(found);
                if self.at == before {
                    break;
                }
            }
        }
        let Some(base) = result else {
            let (span, found) = (self.span(), self.found());
            if let Kind::Name(symbol) = self.kind() {
                self.told(symbol, span)?;
            }
            return self.fail(span, format!("expected a type, found {found}"), "expected a type", "");
        };
        let ty = self.pointers(base.clone())?;
        if self.is("operator") {
            let span = self.span();
            return self.refuse(span, "an operator of one's own", "write a function with a name");
        }
        let follows = if special { "<" } else { "(" };
        if !matches!((self.kind(), self.ahead(1)), (Kind::Name(_), Kind::Sign(sign)) if sign == follows) {
            if special {
                return self.refuse(start, "this specialisation of a template", "write a function of another name");
            }
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
        if self.is_type_name(name) {
            self.own.insert(name);
        }
        if !templates.is_empty() {
            self.templates.insert(name);
        }
        let special = if special { Some(self.template_args()?) } else { None };
        if special.is_some() && is_kernel {
            return self.refuse(span, "a specialisation of a kernel", "write a kernel of another name");
        }
        let mut params = self.params()?;
        self.take("const");
        self.take("noexcept");
        let known = self.declared_only.iter().find(|(found, known)| *found == name && known.len() == params.len());
        if let Some((_, known)) = known {
            // Values by default are said where a function is declared first.
            params
                .iter_mut()
                .zip(known)
                .for_each(|(param, known)| param.init = param.init.take().or(known.init.clone()));
        }
        if self.take(";") {
            self.declared_only.push((name, params));
            return Ok(());
        }
        if is_kernel && ty.base != Base::Void {
            return self.fail(start.to(ty.span), "a kernel returns nothing", "expected 'void'", "write 'void'");
        }
        self.expect("{", "before the body of a function")?;
        let errors = self.errors.len();
        self.declared = vec![params.iter().map(|param| param.name).filter(|name| *name != self.unnamed).collect()];
        let body = self.nested(|p| p.statements())?;
        if self.errors.len() > errors {
            return Ok(());
        }
        let (in_namespace, constant) = (self.open > 0, storage.constant);
        let function = Function {
            name,
            span,
            templates,
            special,
            is_kernel,
            in_namespace,
            constant,
            bound,
            result: ty,
            params,
            body,
        };
        self.once(&function)?;
        self.file.functions.push(function);
        Ok(())
    }

    /// The parameters of a function, with their parentheses.
    fn params(&mut self) -> Parsed<Vec<crate::cuda::ast::Declarator>> {
        self.expect("(", "after the name of a function")?;
        let mut params = vec![];
        while !self.is(")") {
            if self.is("void") && self.ahead(1) == Kind::Sign(")") {
                self.advance();
                break;
            }
            if self.is("...") {
                let span = self.span();
                return self.refuse(span, "a function of any number of arguments", "name its parameters");
            }
            let base = self.base_type()?;
            params.push(self.declarator(&base, "a parameter")?);
            if !self.take(",") {
                break;
            }
        }
        self.expect(")", "after the parameters of a function")?;
        Ok(params)
    }

    /// Refuses a function that is there already. Kernels are called by their names alone.
    fn once(&mut self, new: &Function) -> Parsed<()> {
        let written = |ty: &TypeName| {
            let constant = ty.constant && (ty.pointers > 0 || ty.reference);
            (ty.base.clone(), ty.pointers, ty.reference, constant)
        };
        let alike = |old: &Function| {
            old.params.len() == new.params.len()
                && old.templates.len() == new.templates.len()
                && old.special.is_none()
                && new.special.is_none()
                && old
                    .params
                    .iter()
                    .zip(&new.params)
                    .all(|(a, b)| written(&a.ty) == written(&b.ty) && a.sizes.len() == b.sizes.len())
        };
        let found = self.file.functions.iter().find(|old| {
            old.name == new.name && (alike(old) || old.is_kernel && new.is_kernel && new.special.is_none())
        });
        let Some(old) = found else { return Ok(()) };
        let (line, name) = (self.source.line(old.span.start), self.names.text(new.name));
        let what = if old.is_kernel { "kernel" } else { "function" };
        let message = format!("a second {what} is called '{name}'");
        let hint = "give each a name of its own: namespaces are not told apart";
        self.fail(new.span, message, format!("the first is in line {line}"), hint)
    }
}
