//! The options `rate`, `breaker` and `on_poisoned`, which limit the work of a handler.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, LitInt, LitStr, Meta, Token};

use crate::duration::TimeLiteral;
use crate::options::{name_of, positive, text, value_of};
use crate::suggest::advice;

const DAY: u64 = 24 * 60 * 60 * 1_000;
const CHOICES: &[&str] = &["block", "skip", "park"];

/// Returns an expression of type `OnPoisoned`.
pub(crate) fn parse_on_poisoned(value: &Expr) -> Result<TokenStream, Error> {
    let choice = text(value, "on_poisoned", "\"skip\"")?;
    let span = choice.span();
    match choice.value().as_str() {
        "block" => Ok(quote_spanned!(span=> ::oncebox::OnPoisoned::Block)),
        "skip" => Ok(quote_spanned!(span=> ::oncebox::OnPoisoned::Skip)),
        "park" => Ok(quote_spanned!(span=> ::oncebox::OnPoisoned::Park)),
        other => {
            let what = format!("`on_poisoned` cannot be {other:?}: {}", advice(other, CHOICES));
            Err(Error::new(span, what))
        }
    }
}

/// Returns an expression of type `Breaker`.
pub(crate) fn parse_breaker(meta: &Meta) -> Result<TokenStream, Error> {
    const EXAMPLE: &str = "breaker(failures = 5, pause = \"30s\")";
    let parts = OptionParts::read(meta, &["failures", "pause", "max_pause"], EXAMPLE)?;
    let failures = parts.needed("failures")?;
    let failures =
        positive(value_of(failures, "failures = 5")?, "failures", "the breaker would never close")?;
    let pause = parts.needed("pause")?;
    let pause = time_of(pause, "pause", "\"30s\"")?;
    let pause = TimeLiteral::parse_positive(&pause, "the breaker would never be open")?;
    let longest = parts.found("max_pause").map(|part| time_of(part, "max_pause", "\"10m\"")).transpose()?;
    let longest = longest.as_ref().map(TimeLiteral::parse).transpose()?;
    if let Some(longest) = longest.as_ref().filter(|longest| longest.millis < pause.millis) {
        let (from, to) = (pause.written(), longest.written());
        return Err(longest.error(format!("the longest pause, {to:?}, is shorter than the first, {from:?}")));
    }
    let longest =
        longest.map(|time| time.tokens()).map(|time| quote_spanned!(meta.span()=> .max_pause(#time)));
    let pause = pause.tokens();
    Ok(quote_spanned!(meta.span()=> ::oncebox::Breaker::new(#failures, #pause) #longest))
}

/// Returns an expression of type `Rate`.
pub(crate) fn parse_rate(meta: &Meta) -> Result<TokenStream, Error> {
    const EXAMPLE: &str = "rate(count = 20, per = \"1s\")";
    if let Meta::NameValue(pair) = meta {
        return short_rate(&text(&pair.value, "rate", "\"20/s\"")?);
    }
    let parts = OptionParts::read(meta, &["count", "per", "burst"], EXAMPLE)?;
    let count = positive(value_of(parts.needed("count")?, "count = 20")?, "count", "nothing could run")?;
    let per = time_of(parts.needed("per")?, "per", "\"1s\"")?;
    let per = TimeLiteral::parse_positive(&per, "that is no limit")?;
    if per.millis > DAY {
        return Err(per.error("a day is the longest time of a rate: nothing of it is kept over a restart"));
    }
    let burst = parts.found("burst").map(|part| value_of(part, "burst = 50")).transpose()?;
    let burst = burst.map(|burst| positive(burst, "burst", "nothing could run")).transpose()?;
    let burst = burst.map(|burst: LitInt| quote_spanned!(burst.span()=> .burst(#burst)));
    let per = per.tokens();
    Ok(quote_spanned!(meta.span()=> ::oncebox::Rate::new(#count, #per) #burst))
}

/// Parses the form `20/s`.
fn short_rate(rate: &LitStr) -> Result<TokenStream, Error> {
    let value = rate.value();
    let wrong = || {
        let what = format!(
            "{value:?} is not a rate: write it like \"20/s\", \"30/min\" or \"10/h\", with at least 1"
        );
        Error::new(rate.span(), what)
    };
    let (count, unit) = value.split_once('/').ok_or_else(wrong)?;
    let count: u32 = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        _ => return Err(wrong()),
    };
    Ok(
        quote_spanned!(rate.span()=> ::oncebox::Rate::new(#count, ::core::time::Duration::from_secs(#seconds))),
    )
}

fn time_of(part: &Meta, name: &str, example: &str) -> Result<LitStr, Error> {
    text(value_of(part, &format!("{name} = {example}"))?, name, example)
}

/// Parts of an option with parentheses.
struct OptionParts<'a> {
    option: &'a Meta,
    example: &'static str,
    read: Vec<(String, Meta)>,
}

impl<'a> OptionParts<'a> {
    fn read(option: &'a Meta, known: &[&str], example: &'static str) -> Result<Self, Error> {
        let Meta::List(list) = option else {
            let what = format!("`{}` is spelled out: write `{example}`", name_of(option));
            return Err(Error::new(option.span(), what));
        };
        let mut parts = Self { option, example, read: Vec::new() };
        for part in Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone())? {
            let (name, span) = (name_of(&part), part.span());
            if !known.contains(&name.as_str()) {
                let what = format!("`{}` has no part `{name}`: {}", name_of(option), advice(&name, known));
                return Err(Error::new(span, what));
            }
            if parts.found(&name).is_some() {
                return Err(Error::new(span, format!("`{name}` is given twice")));
            }
            parts.read.push((name, part));
        }
        Ok(parts)
    }

    fn found(&self, name: &str) -> Option<&Meta> {
        self.read.iter().find(|(known, _)| known == name).map(|(_, part)| part)
    }

    fn needed(&self, name: &str) -> Result<&Meta, Error> {
        self.found(name).ok_or_else(|| {
            let what = format!("`{}` needs `{name}`: write `{}`", name_of(self.option), self.example);
            Error::new(self.option.span(), what)
        })
    }
}
