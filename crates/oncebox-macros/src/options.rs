//! Options in the parentheses of the attribute.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, Lit, LitInt, LitStr, Meta, Token, Type};

use crate::duration::TimeLiteral;
use crate::suggest::advice;
use crate::{dedupe, gate, key, retry};

const NAMES: &[&str] = &[
    "key",
    "legacy",
    "types",
    "retry",
    "retry_for",
    "crashes",
    "crash_delay",
    "decode_grace",
    "decode_retry",
    "on_poisoned",
    "timeout",
    "concurrency",
    "rate",
    "breaker",
    "dedupe",
    "retention",
    "undoable",
    "needs",
    "unordered",
    "inline",
    "fire_and_forget",
    "share_commit",
];

/// Maximum runs in one transaction, as in the library.
const MAX_SHARE: usize = 64;

/// The valid options.
pub(crate) struct HandlerOptions {
    pub(crate) key: LitStr,
    /// Calls on the registration, in the order of the options.
    pub(crate) calls: Vec<TokenStream>,
}

impl HandlerOptions {
    /// Parses all options, and reports every mistake at once.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self, Error> {
        let metas = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut reading = OptionReader::default();
        let mut errors: Option<Error> = None;
        for meta in &metas {
            if let Err(error) = reading.read(meta) {
                combine(&mut errors, error);
            }
        }
        // An invalid key was reported already.
        if !reading.seen.iter().any(|name| name == "key") {
            let what = "a handler needs a key: write `key = \"ship-order\"`; entries are stored under it, so it stays when the function is renamed";
            combine(&mut errors, Error::new(Span::call_site(), what));
        }
        if let Err(error) = reading.check_together() {
            combine(&mut errors, error);
        }
        match (errors, reading.key.take()) {
            (None, Some(key)) => Ok(Self { calls: reading.calls(), key }),
            (Some(error), _) => Err(error),
            (None, None) => Err(Error::new(Span::call_site(), "a handler needs a key")),
        }
    }
}

fn combine(errors: &mut Option<Error>, error: Error) {
    match errors {
        Some(all) => all.combine(error),
        None => *errors = Some(error),
    }
}

/// Options parsed so far.
#[derive(Default)]
struct OptionReader {
    seen: Vec<String>,
    key: Option<LitStr>,
    legacy: Vec<LitStr>,
    calls: Vec<TokenStream>,
    /// Assignments to fields of the policy.
    policy: Vec<TokenStream>,
    inline: Option<Span>,
    fire_and_forget: Option<Span>,
    share_commit: Option<Span>,
    /// Options without a meaning for a handler that is not durable, as they were written.
    durable: Vec<(&'static str, Span)>,
}

impl OptionReader {
    fn read(&mut self, meta: &Meta) -> Result<(), Error> {
        let name = name_of(meta);
        let span = meta.path().span();
        if self.seen.contains(&name) {
            return Err(Error::new(span, format!("`{name}` is given twice")));
        }
        self.seen.push(name.clone());
        match name.as_str() {
            "key" => {
                let value = text(value_of(meta, "key = \"ship-order\"")?, "key", "\"ship-order\"")?;
                key::check(&value)?;
                self.key = Some(value);
            }
            "legacy" => {
                for value in texts(value_of(meta, "legacy = [\"old-key\"]")?, "legacy", "[\"old-key\"]")? {
                    key::check(&value)?;
                    self.calls.push(quote_spanned!(value.span()=> .legacy(#value)));
                    self.legacy.push(value);
                }
            }
            "types" => {
                let values =
                    texts(value_of(meta, "types = [\"order.placed\"]")?, "types", "[\"order.placed\"]")?;
                if let Some(empty) = values.iter().find(|value| value.value().is_empty()) {
                    return Err(Error::new(empty.span(), "a message type cannot be empty"));
                }
                self.calls.push(quote_spanned!(span=> .types([#(#values),*])));
            }
            "inline" => {
                no_value(meta)?;
                self.inline = Some(span);
                self.calls.push(quote_spanned!(span=> .inline()));
            }
            "fire_and_forget" => {
                no_value(meta)?;
                self.fire_and_forget = Some(span);
                self.calls.push(quote_spanned!(span=> .fire_and_forget()));
            }
            "undoable" => {
                no_value(meta)?;
                self.calls.push(quote_spanned!(span=> .undoable()));
            }
            "unordered" => {
                no_value(meta)?;
                self.calls.push(quote_spanned!(span=> .unordered()));
                self.durable.push(("unordered", span));
            }
            "needs" => {
                for needed in types_of(meta)? {
                    self.calls.push(quote_spanned!(needed.span()=> .needs::<#needed>()));
                }
            }
            "share_commit" => {
                let value =
                    number(value_of(meta, "share_commit = 64")?, "share_commit", "share_commit = 64")?;
                if !(1..=MAX_SHARE).contains(&value.base10_parse()?) {
                    let what = format!("{value} runs cannot share a commit: 1 to {MAX_SHARE} can");
                    return Err(Error::new(value.span(), what));
                }
                self.share_commit = Some(span);
                self.calls.push(quote_spanned!(span=> .share_commit(#value)));
            }
            _ => return self.read_rule(&name, meta),
        }
        Ok(())
    }

    /// Parses an option about running entries and their results.
    fn read_rule(&mut self, name: &str, meta: &Meta) -> Result<(), Error> {
        let span = meta.path().span();
        match name {
            "retry" => {
                let rule = retry::parse(meta)?;
                self.policy.push(quote_spanned!(span=> policy.retry = #rule;));
            }
            "retry_for" => {
                for (error, rule) in retry::parse_kinds(meta)? {
                    self.calls.push(quote_spanned!(error.span()=> .retry_for::<#error>(#rule)));
                }
                self.durable.push(("retry_for", span));
            }
            "on_poisoned" => {
                let choice = gate::parse_on_poisoned(value_of(meta, "on_poisoned = \"skip\"")?)?;
                self.calls.push(quote_spanned!(span=> .on_poisoned(#choice)));
            }
            "breaker" => {
                let breaker = gate::parse_breaker(meta)?;
                self.calls.push(quote_spanned!(span=> .breaker(#breaker)));
                self.durable.push(("breaker", span));
            }
            "rate" => {
                let rate = gate::parse_rate(meta)?;
                self.calls.push(quote_spanned!(span=> .rate(#rate)));
                self.durable.push(("rate", span));
            }
            "dedupe" => {
                let dedupe = dedupe::parse(meta)?;
                self.calls.push(quote_spanned!(span=> .dedupe(#dedupe)));
            }
            "retention" => {
                let value = text(value_of(meta, "retention = \"30d\"")?, "retention", "\"30d\"")?;
                let time = if value.value() == "forever" {
                    quote_spanned!(value.span()=> ::core::time::Duration::MAX)
                } else {
                    TimeLiteral::parse_positive(&value, "every repeat would run again")?.tokens()
                };
                self.calls.push(quote_spanned!(span=> .retention(#time)));
            }
            "crashes" => {
                let value = positive(
                    value_of(meta, "crashes = 3")?,
                    "crashes",
                    "an entry would be poisoned without a crash of its own",
                )?;
                self.policy.push(quote_spanned!(span=> policy.crashes = #value;));
            }
            "crash_delay" => {
                let value = text(value_of(meta, "crash_delay = \"10s\"")?, "crash_delay", "\"10s\"")?;
                let time = TimeLiteral::parse(&value)?.tokens();
                self.policy.push(quote_spanned!(span=> policy.crash_delay = #time;));
            }
            "decode_grace" => {
                let value = text(value_of(meta, "decode_grace = \"1h\"")?, "decode_grace", "\"1h\"")?;
                let time = TimeLiteral::parse(&value)?.tokens();
                self.policy.push(quote_spanned!(span=> policy.decode_grace = #time;));
            }
            "decode_retry" => {
                let value = text(value_of(meta, "decode_retry = \"1m\"")?, "decode_retry", "\"1m\"")?;
                let time = TimeLiteral::parse_positive(&value, "undecodable entries would spin")?.tokens();
                self.policy.push(quote_spanned!(span=> policy.decode_retry = #time;));
            }
            "timeout" => {
                let value = text(value_of(meta, "timeout = \"30s\"")?, "timeout", "\"30s\"")?;
                let time = TimeLiteral::parse_positive(&value, "the handler could never finish")?.tokens();
                self.calls.push(quote_spanned!(span=> .timeout(#time)));
            }
            "concurrency" => {
                let value = positive(
                    value_of(meta, "concurrency = 8")?,
                    "concurrency",
                    "the handler could never run",
                )?;
                self.calls.push(quote_spanned!(span=> .concurrency(#value)));
            }
            other => {
                let what = format!("there is no option `{other}`: {}", advice(other, NAMES));
                return Err(Error::new(span, what));
            }
        }
        Ok(())
    }

    /// Checks the rules between options.
    fn check_together(&self) -> Result<(), Error> {
        let mut known: Vec<String> = self.key.iter().map(LitStr::value).collect();
        for legacy in &self.legacy {
            let value = legacy.value();
            if self.key.as_ref().is_some_and(|key| key.value() == value) {
                let what =
                    format!("{value:?} is the key itself: `legacy` is for keys the handler had before");
                return Err(Error::new(legacy.span(), what));
            }
            if known.contains(&value) {
                return Err(Error::new(legacy.span(), format!("the legacy key {value:?} is given twice")));
            }
            known.push(value);
        }
        if let (Some(_), Some(span)) = (self.inline, self.share_commit) {
            let what = "an `inline` handler cannot share commits, because its delivery waits: leave out `inline` or `share_commit`";
            return Err(Error::new(span, what));
        }
        let (kind, why) = match (self.inline, self.fire_and_forget) {
            (Some(_), _) => ("inline", "its delivery waits, and the broker retries"),
            (None, Some(_)) => ("fire_and_forget", "nothing is stored for it and nothing is tried again"),
            (None, None) => return Ok(()),
        };
        match self.durable.first() {
            Some((name, span)) => {
                let what = format!("`{name}` means nothing beside `{kind}`: {why}; leave one of the two out");
                Err(Error::new(*span, what))
            }
            None => Ok(()),
        }
    }

    fn calls(mut self) -> Vec<TokenStream> {
        if !self.policy.is_empty() {
            let policy = &self.policy;
            let policy = quote! {
                .policy({
                    let mut policy = ::oncebox::Policy::default();
                    #(#policy)*
                    policy
                })
            };
            // First, because it would override other calls.
            self.calls.insert(0, policy);
        }
        self.calls
    }
}

/// Parses types in parentheses.
fn types_of(meta: &Meta) -> Result<Punctuated<Type, Token![,]>, Error> {
    let wrong = || {
        let what = "`needs` names the types that the handler reads with `cx.data()`: write `needs(Mailer)` or `needs(Mailer, Cards)`";
        Error::new(meta.span(), what)
    };
    let Meta::List(list) = meta else { return Err(wrong()) };
    let types = Punctuated::parse_terminated.parse2(list.tokens.clone()).map_err(|_| wrong())?;
    if types.is_empty() { Err(wrong()) } else { Ok(types) }
}

/// Refuses a value for an option without one.
fn no_value(meta: &Meta) -> Result<(), Error> {
    let name = name_of(meta);
    match meta {
        Meta::Path(_) => Ok(()),
        _ => Err(Error::new(meta.span(), format!("`{name}` takes no value: write `{name}`"))),
    }
}

/// Returns the name of an option.
pub(crate) fn name_of(meta: &Meta) -> String {
    meta.path().to_token_stream().to_string().replace(' ', "")
}

/// Returns the value after the `=`.
pub(crate) fn value_of<'a>(meta: &'a Meta, example: &str) -> Result<&'a Expr, Error> {
    match meta {
        Meta::NameValue(pair) => Ok(&pair.value),
        _ => Err(Error::new(meta.span(), format!("`{}` needs a value: write `{example}`", name_of(meta)))),
    }
}

/// Parses a string.
pub(crate) fn text(value: &Expr, name: &str, example: &str) -> Result<LitStr, Error> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(Error::new(other.span(), format!("`{name}` is a string: write `{name} = {example}`"))),
    }
}

/// Parses a string, or several in brackets.
fn texts(value: &Expr, name: &str, example: &str) -> Result<Vec<LitStr>, Error> {
    match value {
        Expr::Array(array) => array.elems.iter().map(|element| text(element, name, example)).collect(),
        one => Ok(vec![text(one, name, example)?]),
    }
}

/// Parses a whole number.
pub(crate) fn number(value: &Expr, name: &str, example: &str) -> Result<LitInt, Error> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => Ok(number.clone()),
        other => Err(Error::new(other.span(), format!("`{name}` is a whole number: write `{example}`"))),
    }
}

/// Parses a whole number that must not be 0.
pub(crate) fn positive(value: &Expr, name: &str, why: &str) -> Result<LitInt, Error> {
    let number = number(value, name, &format!("{name} = 8"))?;
    if number.base10_parse::<u32>()? == 0 {
        return Err(Error::new(number.span(), format!("`{name}` is 0: {why}; write at least 1")));
    }
    Ok(number)
}
