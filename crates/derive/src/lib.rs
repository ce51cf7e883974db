//! The derive macro of `bornite_nn::Module`, which re-exports it.
//!
//! Generates one `visitor.child("name", &self.name)` per field. Knows nothing about layers: a field
//! of a type that is no module is an error of the compiler, at the field.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Index, Result, parse_macro_input, parse_quote};

/// Implements `Module` for a struct: its fields are visited in order, by name. Fields with
/// `#[module(skip)]` are not. Type parameters must be modules.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implementation(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn implementation(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "Module can be derived for structs; implement it for other types"));
    };
    let mut visits = vec![];
    for (n, field) in data.fields.iter().enumerate() {
        if is_skipped(field)? {
            continue;
        }
        let (name, member) = match &field.ident {
            Some(ident) => (ident.to_string().trim_start_matches("r#").to_owned(), quote!(#ident)),
            None => {
                let index = Index::from(n);
                (n.to_string(), quote!(#index))
            }
        };
        visits.push(quote_spanned!(field.ty.span()=> visitor.child(#name, &self.#member);));
    }
    let unused = matches!(data.fields, Fields::Unit).then(|| quote!(let _ = visitor;));
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::bornite_nn::Module));
    }
    let (name, (generics, arguments, bounds)) = (&input.ident, generics.split_for_impl());
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::bornite_nn::Module for #name #arguments #bounds {
            fn visit(&self, visitor: &mut ::bornite_nn::Visitor<'_>) {
                #unused
                #(#visits)*
            }
        }
    })
}

/// Returns true for a field with `#[module(skip)]`.
fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            skipped |= meta.path.is_ident("skip");
            if skipped { Ok(()) } else { Err(meta.error("expected `skip`")) }
        })?;
    }
    Ok(skipped)
}
