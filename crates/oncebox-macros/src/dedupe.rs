//! The option `dedupe`: the key by which the handler recognises duplicates. Tests: `tests/ui.rs`, as for all options.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Meta, Token};

use crate::options::{name_of, text, value_of};
use crate::suggest::advice;

/// Names of the server's configuration.
const NAMES: &[&str] = &["id", "cloudevents", "content", "off"];
const PLACES: &[&str] = &["header", "pointer"];

/// Returns an expression of type `Dedupe`.
pub(crate) fn parse(meta: &Meta) -> Result<TokenStream, Error> {
    let span = meta.span();
    let strategy = match meta {
        Meta::List(list) => {
            let places = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone())?;
            let [place] = places.iter().collect::<Vec<_>>()[..] else {
                let what = "`dedupe` is one place: write `dedupe(header = \"order-id\")` or `dedupe(pointer = \"/order/id\")`; several together are set in code, with `KeyStrategy::Composite`";
                return Err(Error::new(span, what));
            };
            in_place(place)?
        }
        Meta::NameValue(pair) => {
            let name = text(&pair.value, "dedupe", "\"content\"")?;
            let span = name.span();
            match name.value().as_str() {
                "id" => quote_spanned!(span=> ::oncebox::KeyStrategy::MessageId),
                "cloudevents" => quote_spanned!(span=> ::oncebox::KeyStrategy::CloudEvents),
                "content" => quote_spanned!(span=> ::oncebox::KeyStrategy::Content),
                "off" => return Ok(quote_spanned!(span=> ::oncebox::Dedupe::Off)),
                other => {
                    let what = format!(
                        "there is no key named {other:?} (others are `dedupe(header = ..)` and `dedupe(pointer = ..)`): {}",
                        advice(other, NAMES)
                    );
                    return Err(Error::new(span, what));
                }
            }
        }
        Meta::Path(_) => {
            let what = "`dedupe` needs a key: `dedupe = \"content\"`, `dedupe(header = \"order-id\")` or `dedupe(pointer = \"/order/id\")`";
            return Err(Error::new(span, what));
        }
    };
    Ok(quote_spanned!(span=> ::oncebox::Dedupe::By(#strategy)))
}

fn in_place(place: &Meta) -> Result<TokenStream, Error> {
    let (name, span) = (name_of(place), place.span());
    match name.as_str() {
        "header" => {
            let header = text(value_of(place, "header = \"order-id\"")?, "header", "\"order-id\"")?;
            if header.value().is_empty() {
                return Err(Error::new(header.span(), "no header has an empty name"));
            }
            Ok(quote_spanned!(span=> ::oncebox::KeyStrategy::header(#header)))
        }
        "pointer" => {
            let pointer = text(value_of(place, "pointer = \"/order/id\"")?, "pointer", "\"/order/id\"")?;
            if !pointer.value().starts_with('/') {
                let what = "a JSON pointer to a field starts with `/`: write it like \"/order/id\"";
                return Err(Error::new(pointer.span(), what));
            }
            Ok(quote_spanned!(span=> ::oncebox::KeyStrategy::json_pointer(#pointer)))
        }
        other => Err(Error::new(span, format!("`dedupe` has no part `{other}`: {}", advice(other, PLACES)))),
    }
}
