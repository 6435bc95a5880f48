//! The option `retry`: a preset, or its parts.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Meta, Path, Token};

use crate::duration::TimeLiteral;
use crate::options::{name_of, number, text, value_of};
use crate::suggest::advice;

const NAMES: &[&str] = &["quick", "patient", "never"];
/// Shortest wait in milliseconds, as in the library.
const MIN_WAIT: u64 = 2;
const PARTS: &[&str] = &["attempts", "first", "max"];

/// Returns an expression of type `Retry`.
pub(crate) fn parse(meta: &Meta) -> Result<TokenStream, Error> {
    match meta {
        Meta::List(list) => {
            let parts = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone())?;
            spelled_out(&parts)
        }
        Meta::NameValue(pair) => {
            let name = text(&pair.value, "retry", "\"quick\"")?;
            match name.value().as_str() {
                "quick" => Ok(quote_spanned!(name.span()=> ::oncebox::Retry::quick())),
                "patient" => Ok(quote_spanned!(name.span()=> ::oncebox::Retry::patient())),
                "never" => Ok(quote_spanned!(name.span()=> ::oncebox::Retry::never())),
                other => Err(Error::new(
                    name.span(),
                    format!(
                        "there is no retry rule named {other:?} (others are spelled out, as in `retry(attempts = 5, first = \"1s\", max = \"1m\")`): {}",
                        advice(other, NAMES)
                    ),
                )),
            }
        }
        Meta::Path(path) => Err(Error::new(
            path.span(),
            "`retry` needs a rule: `retry = \"quick\"` or `retry(attempts = 5, first = \"1s\", max = \"1m\")`",
        )),
    }
}

/// Returns types of errors, each with an expression of type `Retry`, in the order of the option.
pub(crate) fn parse_kinds(meta: &Meta) -> Result<Vec<(Path, TokenStream)>, Error> {
    let Meta::List(list) = meta else {
        let what = "`retry_for` names types of errors, each with its rule: write `retry_for(std::io::Error = \"never\", Busy(attempts = 3))`";
        return Err(Error::new(meta.span(), what));
    };
    let kinds = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone())?;
    if kinds.is_empty() {
        let what =
            "`retry_for` names no type: write `retry_for(std::io::Error = \"never\")`, or leave it out";
        return Err(Error::new(meta.span(), what));
    }
    let kind = |kind: &Meta| {
        if let Meta::Path(path) = kind {
            let name = name_of(kind);
            let what = format!(
                "`{name}` needs a rule: `{name} = \"never\"` or `{name}(attempts = 3, first = \"1m\")`"
            );
            return Err(Error::new(path.span(), what));
        }
        Ok((kind.path().clone(), parse(kind)?))
    };
    kinds.iter().map(kind).collect()
}

fn spelled_out(parts: &Punctuated<Meta, Token![,]>) -> Result<TokenStream, Error> {
    let (mut attempts, mut first, mut max) = (None, None, None);
    for part in parts {
        let name = name_of(part);
        let twice = match name.as_str() {
            "attempts" => {
                let value = number(value_of(part, "attempts = 5")?, "attempts", "attempts = 5")?;
                let tokens = quote_spanned!(part.span()=> retry.attempts = #value;);
                attempts.replace((value.base10_parse::<u32>()?, tokens)).is_some()
            }
            "first" => {
                let value = text(value_of(part, "first = \"1s\"")?, "first", "\"1s\"")?;
                first.replace(TimeLiteral::parse(&value)?).is_some()
            }
            "max" => {
                let value = text(value_of(part, "max = \"1m\"")?, "max", "\"1m\"")?;
                max.replace(TimeLiteral::parse(&value)?).is_some()
            }
            other => {
                let what = format!("`retry` has no part `{other}`: {}", advice(other, PARTS));
                return Err(Error::new(part.span(), what));
            }
        };
        if twice {
            return Err(Error::new(part.span(), format!("`{name}` is given twice")));
        }
    }
    if let (Some(first), Some(max)) = (&first, &max)
        && first.millis > max.millis
    {
        let (from, to) = (first.written(), max.written());
        return Err(first.error(format!("the first wait, {from:?}, is longer than the longest, {to:?}")));
    }
    let once = attempts.as_ref().is_some_and(|(attempts, _)| *attempts <= 1);
    if let Some(first) = first.as_ref().filter(|first| first.millis < MIN_WAIT && !once) {
        return Err(first.error("a first wait this short lets failing entries spin: write at least \"2ms\""));
    }
    let attempts = attempts.map(|(_, tokens)| tokens);
    let first = first.map(|time| time.tokens()).map(|time| quote!(retry.first = #time;));
    let max = max.map(|time| time.tokens()).map(|time| quote!(retry.max = #time;));
    Ok(quote!({
        let mut retry = ::oncebox::Retry::default();
        #attempts
        #first
        #max
        retry
    }))
}
