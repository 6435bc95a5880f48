//! Choice of the dedupe key by type and handler.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::key::KeyStrategy;

/// Dedupe key of a handler or type, or none.
///
/// The most specific setting wins: the handler's ([`Registration::dedupe`](crate::Registration::dedupe)), then the type's, then
/// that of the longest matching pattern ([`InboxBuilder::key_for`](crate::InboxBuilder::key_for)), then the inbox's
/// ([`Config::key`](crate::Config::key)).
#[derive(Clone, Debug, Default)]
pub enum Dedupe {
    /// By the key of the inbox.
    #[default]
    On,
    /// By another key.
    By(KeyStrategy),
    /// None: every delivery runs.
    Off,
}

impl Dedupe {
    /// Returns true if both always select the same key.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::On, Self::On) | (Self::Off, Self::Off) => true,
            (Self::By(a), Self::By(b)) => a.is_same(b),
            _ => false,
        }
    }
}

/// Settings of types and patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyRules {
    exact: HashMap<Box<str>, Dedupe>,
    /// Prefixes of types, the longest first.
    prefixes: Vec<(Box<str>, Dedupe)>,
}

impl KeyRules {
    /// Validates all settings together.
    pub(crate) fn new(rules: Vec<(Box<str>, Dedupe)>) -> Result<Self> {
        let mut all = Self::default();
        for (pattern, dedupe) in rules {
            let refuse = |why: &str| Err(refused(&pattern, &dedupe, why));
            if pattern.is_empty() {
                return refuse("no message has an empty type; name a type, or use `*` for all of them");
            }
            match pattern.split_once('*') {
                None => {
                    if all.exact.contains_key(&pattern) {
                        return refuse(TWICE);
                    }
                    all.exact.insert(pattern, dedupe);
                }
                Some((prefix, "")) => {
                    if all.prefixes.iter().any(|(known, _)| **known == *prefix) {
                        return refuse(TWICE);
                    }
                    all.prefixes.push((prefix.into(), dedupe));
                }
                Some(_) => {
                    return refuse("a pattern has one `*`, at its end; write it like `order.*`");
                }
            }
        }
        all.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(all)
    }

    /// Returns the setting of a type, if there is one.
    pub(crate) fn of(&self, message_type: &str) -> Option<&Dedupe> {
        let pattern = || self.prefixes.iter().find(|(prefix, _)| message_type.starts_with(&**prefix));
        self.exact.get(message_type).or_else(|| pattern().map(|(_, dedupe)| dedupe))
    }

    /// Returns the setting of all types that start with `prefix` and have no more specific one.
    pub(crate) fn of_prefix(&self, prefix: &str) -> Option<&Dedupe> {
        let fits = self.prefixes.iter().find(|(known, _)| prefix.starts_with(&**known));
        fits.map(|(_, dedupe)| dedupe)
    }

    /// Returns every setting with its pattern.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, &Dedupe)> {
        let exact = self.exact.iter().map(|(message_type, dedupe)| (message_type.to_string(), dedupe));
        exact.chain(self.prefixes.iter().map(|(prefix, dedupe)| (format!("{prefix}*"), dedupe)))
    }
}

const TWICE: &str = "the same pattern was given before, and only one of them can count; leave one out";

fn refused(pattern: &str, dedupe: &Dedupe, why: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("`key_for({pattern:?})` is {dedupe:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(header: &str) -> Dedupe {
        Dedupe::By(KeyStrategy::header(header))
    }

    #[test]
    fn the_type_beats_the_pattern_and_the_longer_pattern_the_shorter() {
        let rules = ["*", "order.placed", "order.*", "order.p*", "ord*"];
        let rules = rules.map(|pattern| (pattern.into(), by(pattern))).into();
        let rules = KeyRules::new(rules).unwrap();
        for (message_type, expected) in [
            ("order.placed", "order.placed"),
            ("order.placed.v2", "order.p*"),
            ("order.shipped", "order.*"),
            ("order.", "order.*"),
            ("order", "ord*"),
            ("mail", "*"),
        ] {
            assert!(rules.of(message_type).unwrap().is_same(&by(expected)), "{message_type}");
        }
        assert!(KeyRules::default().of("mail").is_none());
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused() {
        let twice = |a: &str| vec![(a.into(), Dedupe::On), (a.into(), Dedupe::Off)];
        for (rules, why) in [
            (twice("order.placed"), "`key_for(\"order.placed\")` is Off: the same pattern was given before"),
            (twice("order.*"), "leave one out"),
            (twice("*"), "leave one out"),
            (vec![("".into(), Dedupe::On)], "name a type"),
            (vec![("a*b".into(), Dedupe::On)], "write it like"),
            (vec![("a**".into(), Dedupe::On)], "write it like"),
        ] {
            let error = KeyRules::new(rules).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.what().contains(why), "{error}");
        }
    }
}
