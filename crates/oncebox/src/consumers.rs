//! Checks that every consumer of an application has an inbox. Tests: `tests/direct.rs`.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};

/// Action at start for a consumer that has no inbox and does not declare that it needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requirement {
    /// Nothing.
    Allow,
    /// Log a warning.
    #[default]
    Warn,
    /// Refuse to start.
    Fail,
}

/// The consumers of an application, each with its inbox. A consumer without an inbox handles a message on every delivery;
/// this check finds consumers whose inbox was forgotten.
///
/// ```
/// use oncebox::{Consumers, Requirement};
///
/// let consumers = Consumers::new(Requirement::Fail)
///     .consumer("orders", Some("orders"))
///     .consumer("invoices", None)
///     .without_inbox("metrics");
/// assert_eq!(consumers.uncovered(), ["invoices"]);
/// assert!(consumers.check().is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Consumers {
    requirement: Requirement,
    declared: BTreeMap<String, Vec<DeclaredInbox>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DeclaredInbox {
    Named(String),
    Forgotten,
    NotWanted,
}

impl Consumers {
    /// Makes an empty list.
    pub fn new(requirement: Requirement) -> Self {
        Self { requirement, ..Self::default() }
    }

    /// Adds a consumer and the name of its inbox, if it has one.
    pub fn consumer(self, name: impl Into<String>, inbox: Option<&str>) -> Self {
        let named = |inbox: &str| DeclaredInbox::Named(inbox.to_owned());
        self.declare(name.into(), inbox.map_or(DeclaredInbox::Forgotten, named))
    }

    /// Adds a consumer that needs no inbox, because its effects may happen again.
    pub fn without_inbox(self, name: impl Into<String>) -> Self {
        self.declare(name.into(), DeclaredInbox::NotWanted)
    }

    fn declare(mut self, name: String, inbox: DeclaredInbox) -> Self {
        self.declared.entry(name).or_default().push(inbox);
        self
    }

    /// Returns the names of the consumers that have no inbox and do not declare that they need none.
    pub fn uncovered(&self) -> Vec<&str> {
        let is_forgotten = |inboxes: &[DeclaredInbox]| inboxes.contains(&DeclaredInbox::Forgotten);
        self.declared.iter().filter(|(_, inboxes)| is_forgotten(inboxes)).map(|(name, _)| &**name).collect()
    }

    /// Logs a warning for every consumer without an inbox, or returns an error, as required. Call it once at start. A
    /// consumer that is declared in two ways is always an error.
    pub fn check(&self) -> Result<()> {
        for (name, inboxes) in &self.declared {
            if inboxes.iter().any(|inbox| *inbox != inboxes[0]) {
                let what = format!(
                    "the consumer {name:?} is declared in several ways ({inboxes:?}); keep one of them"
                );
                return Err(Error::new(ErrorKind::InvalidConfig, what));
            }
        }
        let uncovered = self.uncovered();
        if uncovered.is_empty() {
            return Ok(());
        }
        match self.requirement {
            Requirement::Allow => {}
            Requirement::Warn => {
                for consumer in uncovered {
                    tracing::warn!(consumer, "no inbox: every delivery runs");
                }
            }
            Requirement::Fail => {
                let what = format!(
                    "`requirement` is Fail: the consumers {uncovered:?} have no inbox; give each one, or declare it with `without_inbox`"
                );
                return Err(Error::new(ErrorKind::InvalidConfig, what));
            }
        }
        Ok(())
    }
}
