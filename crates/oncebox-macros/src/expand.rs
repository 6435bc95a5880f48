//! The output of the attribute: the unchanged function, and a type of the same name.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Attribute, ItemFn, Type};

use crate::options::HandlerOptions;
use crate::signature::{store_of, type_parameters};

pub(crate) fn expand(options: TokenStream, item: &TokenStream) -> TokenStream {
    let Ok(function) = syn::parse2::<ItemFn>(item.clone()) else {
        let what = "`#[oncebox::handler]` stands above an `async fn` that is not a method";
        let error = syn::Error::new_spanned(item, what).to_compile_error();
        return quote!(#item #error);
    };
    match (store_of(&function), HandlerOptions::parse(options)) {
        (Ok(store), Ok(options)) => expand_with(&function, &store, &options),
        (store, options) => {
            let errors = store.err().into_iter().chain(options.err());
            let errors = errors.map(|error| error.to_compile_error());
            // The function and the type stay, so this causes no further errors.
            let (name, vis) = (&function.sig.ident, &function.vis);
            quote!(#function #(#errors)* #[allow(non_camel_case_types, dead_code)] #vis enum #name {})
        }
    }
}

fn expand_with(
    function: &ItemFn,
    store: &Type,
    HandlerOptions { key, calls }: &HandlerOptions,
) -> TokenStream {
    let (name, vis) = (&function.sig.ident, &function.vis);
    let conditions: Vec<&Attribute> =
        function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
    let generics = type_parameters(&function.sig.generics);
    let (parameters, arguments, condition) = generics.split_for_impl();
    let arguments = arguments.as_turbofish();
    let about = format!(" The settings of the handler [`{name}`](fn@{name}).");
    let about_key = format!(" The key of the handler: `{}`.", key.value());
    let registration = format_ident!("registration", span = name.span());
    let handler = quote_spanned!(name.span()=> ::oncebox::handler::<_, #store, _, _>(#key, #name #arguments));
    quote! {
        #function

        #(#conditions)*
        #[doc = #about]
        // Never a value. Types and functions have separate names, so both may have the same.
        #[allow(non_camel_case_types)]
        #vis enum #name {}

        #(#conditions)*
        impl #name {
            #[doc = #about_key]
            #[allow(dead_code, reason = "a program need not ask for the key of its handler")]
            #vis const KEY: &'static str = #key;

            /// The handler with the settings of its attribute; what is set on it beats them.
            #vis fn #registration #parameters () -> ::oncebox::Registration<#store> #condition {
                #handler #(#calls)*
            }
        }
    }
}
