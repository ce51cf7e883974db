//! Instances of kernel templates: those that host code names, as `scale<float, 4>` in a launch, and
//! those that it launches with deduced arguments. Host code is not parsed; only its template
//! arguments and the declarations of its variables are. Host templates are followed: `run<float>()`
//! instantiates what `template <class T> void run()` launches with `T`.

use std::ops::Range;

use super::Parser;
use super::host::HostVariables;
use crate::cuda::ast::{Base, Expr, ExprKind, TemplateArg, TemplateParam, TypeName, template_args_text};
use crate::cuda::lex::{Symbol, TokenKind};

/// Maximum instances of one template.
const MAX_INSTANCES: usize = 64;

/// Maximum number of nodes in the arguments of an instance.
const MAX_ARGUMENT_SIZE: usize = 100;

/// A template in host code: a function or class.
struct HostTemplate {
    name: Symbol,
    params: Vec<TemplateParam>,
    /// Types of the parameters of a function, where they are simple.
    args: Vec<Option<TypeName>>,
    range: Range<usize>,
    /// Arguments that it is instantiated with.
    instances: Vec<Vec<TemplateArg>>,
}

/// A use of a template in host code.
struct Use {
    name: Symbol,
    args: Vec<TemplateArg>,
    /// The host template that contains it.
    within: Option<usize>,
}

impl Parser<'_> {
    /// Adds the instances of kernel templates that host code uses.
    pub fn collect_instances(&mut self) {
        let kernels: Vec<usize> = (0..self.file.functions.len())
            .filter(|n| self.file.functions[*n].is_kernel && !self.file.functions[*n].templates.is_empty())
            .collect();
        if kernels.is_empty() {
            return;
        }
        let (errors, nesting) = (std::mem::take(&mut self.errors), self.nesting);
        let items = std::mem::take(&mut self.host_items);
        let mut templates: Vec<HostTemplate> = items.iter().filter_map(|item| self.host_template(item)).collect();
        let mut uses = vec![];
        for item in &items {
            self.uses_in(item, &kernels, &templates, &mut uses);
        }
        self.at = self.tokens.len() - 1;
        (self.errors, self.nesting) = (errors, nesting);
        // Instances of host templates may instantiate others.
        let mut done = 0;
        loop {
            let mut changed = false;
            for used in &uses {
                for args in used_instances(used, &templates) {
                    let text = self.args_text(&args);
                    if let Some(template) = templates.iter_mut().find(|template| template.name == used.name)
                        && template.instances.len() < MAX_INSTANCES
                        && template.instances.iter().all(|known| self.args_text(known) != text)
                    {
                        template.instances.push(args);
                        changed = true;
                    }
                }
            }
            done += 1;
            if !changed || done > MAX_INSTANCES {
                break;
            }
        }
        for used in uses.iter().filter(|used| templates.iter().all(|template| template.name != used.name)) {
            for args in used_instances(used, &templates) {
                let text = self.args_text(&args);
                let same = || self.file.instances.iter().filter(|(name, _)| *name == used.name);
                if same().count() < MAX_INSTANCES && same().all(|(_, known)| self.args_text(known) != text) {
                    self.file.instances.push((used.name, args));
                }
            }
        }
    }

    fn args_text(&self, args: &[TemplateArg]) -> String {
        template_args_text(args, self.names, self.source)
    }

    fn enter_item(&mut self, at: usize) {
        self.at = at;
        self.shadowed.clear();
        for name in self.local_types.drain(..) {
            self.types.remove(&name);
        }
    }

    fn host_template(&mut self, item: &Range<usize>) -> Option<HostTemplate> {
        if self.template_header_len(item.start) == 0 {
            return None;
        }
        let name = self.declared_name(item.start, item.end)?;
        self.enter_item(item.start + 1);
        let params = self.template_params().ok()?;
        while self.at < item.end
            && !matches!((self.kind(), self.ahead(1)), (TokenKind::Name(found), TokenKind::Reserved("(")) if found == name)
        {
            self.advance();
        }
        let mut args = vec![];
        if self.at < item.end {
            self.advance();
            self.advance();
            while !matches!(self.kind(), TokenKind::Reserved(")" | "{") | TokenKind::End) {
                let before = self.at;
                args.push(self.host_parameter_type());
                self.skip_argument();
                if self.at == before {
                    break;
                }
            }
        }
        Some(HostTemplate { name, params, args, range: item.clone(), instances: vec![] })
    }

    /// Collects the uses of templates in a host item.
    fn uses_in(&mut self, item: &Range<usize>, kernels: &[usize], templates: &[HostTemplate], uses: &mut Vec<Use>) {
        let is_template = |parser: &Self, name: Symbol| {
            templates.iter().any(|template| template.name == name)
                || kernels.iter().any(|n| parser.file.functions[*n].name == name)
        };
        let names = |parser: &Self, at: usize| matches!(parser.tokens[at].kind, TokenKind::Name(name) if is_template(parser, name));
        let own_name = self.declared_name(item.start, item.end);
        let sites: Vec<usize> = item.clone().filter(|at| names(self, *at)).collect();
        if sites.is_empty() {
            return;
        }
        let within = templates.iter().position(|template| template.range == *item);
        self.enter_item(item.start + 1);
        if within.is_some() {
            let _ = self.template_params();
        }
        let header = item.start + self.template_header_len(item.start);
        let variables = self.host_variables(header..item.end);
        for at in sites {
            let TokenKind::Name(name) = self.tokens[at].kind else { continue };
            self.at = at + 1;
            let mut args = vec![];
            if self.is("<") {
                match self.template_args() {
                    Ok(found) => args = found.into_iter().map(|arg| variables.resolve(arg)).collect(),
                    Err(_) => continue,
                }
            } else if Some(name) == own_name {
                continue;
            }
            let params = match kernels.iter().find(|n| self.file.functions[**n].name == name) {
                Some(n) => {
                    let function = &self.file.functions[*n];
                    let args = function.params.iter().map(|param| {
                        let pointers = param.ty.pointers + param.sizes.len().min(8) as u8;
                        Some(TypeName { pointers, ..param.ty.clone() })
                    });
                    (function.templates.clone(), args.collect())
                }
                None => match templates.iter().find(|template| template.name == name) {
                    Some(template) => (template.params.clone(), template.args.clone()),
                    None => continue,
                },
            };
            if self.is("<<<") {
                self.skip_launch_configuration();
            }
            let (templates, declared) = params;
            let wanted = templates.len();
            while args.len() < wanted {
                let deduced = match self.is("(") {
                    true => self.deduce_argument(&templates[args.len()], &declared, &variables),
                    false => None,
                };
                match deduced {
                    Some(arg) => args.push(variables.resolve(arg)),
                    None => break,
                }
            }
            if templates[args.len().min(wanted)..].iter().all(|param| param.default.is_some()) {
                uses.push(Use { name, args, within });
            }
        }
    }

    /// Skips `<<<grid, block>>>`.
    fn skip_launch_configuration(&mut self) {
        self.advance();
        while !self.is(">>>") && !matches!(self.kind(), TokenKind::Reserved(";" | "}") | TokenKind::End) {
            if matches!(self.kind(), TokenKind::Reserved("(" | "[" | "{")) {
                self.skip_brackets();
            } else {
                self.advance();
            }
        }
        self.take(">>>");
    }

    /// Deduces a template argument from the arguments of the call here.
    fn deduce_argument(
        &mut self,
        param: &TemplateParam,
        declared: &[Option<TypeName>],
        variables: &HostVariables,
    ) -> Option<TemplateArg> {
        let start = self.at;
        let mut found = None;
        for (n, of) in declared.iter().enumerate() {
            let Some(of) = of.as_ref().filter(|of| of.base == Base::Named(param.name) && param.is_type()) else {
                continue;
            };
            self.at = start + 1;
            for _ in 0..n {
                self.skip_argument();
            }
            let Some(ty) = self.host_expression_type(variables) else { continue };
            if let Some(rest) = ty.pointers.checked_sub(of.pointers) {
                let arg = TypeName { pointers: rest, constant: false, reference: false, is_const_pointer: false, ..ty };
                found = Some(TemplateArg::Type(arg));
                break;
            }
        }
        self.at = start;
        found
    }
}

/// Arguments of a use, for each instance of the host template that contains it.
fn used_instances(used: &Use, templates: &[HostTemplate]) -> Vec<Vec<TemplateArg>> {
    let Some(within) = used.within.map(|n| &templates[n]) else { return vec![used.args.clone()] };
    let instances = within.instances.iter().map(|instance| {
        let bound = |name: Symbol| within.params.iter().zip(instance).find(|(p, _)| p.name == name).map(|(_, arg)| arg);
        used.args.iter().map(|arg| substituted(arg, &bound)).collect()
    });
    // A template that instantiates itself with `N + N` would double its argument every time.
    instances.filter(|args: &Vec<TemplateArg>| args.iter().map(size).sum::<usize>() <= MAX_ARGUMENT_SIZE).collect()
}

/// Number of nodes of an argument.
fn size(arg: &TemplateArg) -> usize {
    fn value_size(value: &Expr) -> usize {
        let inner = match &value.kind {
            ExprKind::Unary(_, a) | ExprKind::Cast(_, a) => value_size(a),
            ExprKind::Binary(_, a, b) => value_size(a) + value_size(b),
            ExprKind::Conditional(a, b, c) => value_size(a) + value_size(b) + value_size(c),
            ExprKind::SizeOf(ty) => size(&TemplateArg::Type(ty.clone())),
            _ => 0,
        };
        1 + inner
    }
    match arg {
        TemplateArg::Type(TypeName { base: Base::Template(_, args), .. }) => 1 + args.iter().map(size).sum::<usize>(),
        TemplateArg::Type(_) => 1,
        TemplateArg::Value(value) => value_size(value),
    }
}

/// Replaces template parameters and constants by their values.
pub(super) fn substituted<'t>(arg: &TemplateArg, bound: &dyn Fn(Symbol) -> Option<&'t TemplateArg>) -> TemplateArg {
    match arg {
        TemplateArg::Type(ty) => {
            let base = match &ty.base {
                Base::Named(name) => match bound(*name) {
                    Some(TemplateArg::Type(of)) => {
                        let pointers = of.pointers.saturating_add(ty.pointers);
                        return TemplateArg::Type(TypeName { pointers, ..of.clone() });
                    }
                    _ => return arg.clone(),
                },
                Base::Template(name, args) => {
                    Base::Template(*name, args.iter().map(|arg| substituted(arg, bound)).collect())
                }
                _ => return arg.clone(),
            };
            TemplateArg::Type(TypeName { base, ..ty.clone() })
        }
        // A parameter that is parsed as a value may be a type.
        TemplateArg::Value(Expr { kind: ExprKind::Name(name), .. }) => match bound(*name) {
            Some(of) => of.clone(),
            None => arg.clone(),
        },
        TemplateArg::Value(value) => TemplateArg::Value(substituted_value(value, bound)),
    }
}

fn substituted_value<'t>(value: &Expr, bound: &dyn Fn(Symbol) -> Option<&'t TemplateArg>) -> Expr {
    let again = |inner: &Expr| Box::new(substituted_value(inner, bound));
    let kind = match &value.kind {
        ExprKind::Name(name) => match bound(*name) {
            Some(TemplateArg::Value(of)) => return of.clone(),
            _ => return value.clone(),
        },
        ExprKind::Unary(op, a) => ExprKind::Unary(*op, again(a)),
        ExprKind::Binary(op, a, b) => ExprKind::Binary(*op, again(a), again(b)),
        ExprKind::Conditional(a, b, c) => ExprKind::Conditional(again(a), again(b), again(c)),
        ExprKind::Cast(ty, a) => ExprKind::Cast(ty.clone(), again(a)),
        ExprKind::SizeOf(ty) => match substituted(&TemplateArg::Type(ty.clone()), bound) {
            TemplateArg::Type(ty) => ExprKind::SizeOf(ty),
            TemplateArg::Value(_) => return value.clone(),
        },
        _ => return value.clone(),
    };
    Expr { kind, ..value.clone() }
}
