//! Whether every consumer of an application has an inbox.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};

/// What happens at start to a consumer that has no inbox and was not told to do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requirement {
    /// Nothing.
    Allow,
    /// It is warned of.
    #[default]
    Warn,
    /// The application does not start.
    Fail,
}

/// The consumers of an application, each with the inbox it receives into. A consumer without one handles messages as often
/// as they are delivered; this finds those where nobody meant that.
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
    declared: BTreeMap<String, Vec<Inbox>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inbox {
    Named(String),
    Forgotten,
    NotWanted,
}

impl Consumers {
    /// No consumers yet.
    pub fn new(requirement: Requirement) -> Self {
        Self { requirement, ..Self::default() }
    }

    /// A consumer, and the name of the inbox it receives into, if it has one.
    pub fn consumer(self, name: impl Into<String>, inbox: Option<&str>) -> Self {
        self.declare(name.into(), inbox.map_or(Inbox::Forgotten, |inbox| Inbox::Named(inbox.to_owned())))
    }

    /// A consumer that needs no inbox: whatever it does may happen again.
    pub fn without_inbox(self, name: impl Into<String>) -> Self {
        self.declare(name.into(), Inbox::NotWanted)
    }

    fn declare(mut self, name: String, inbox: Inbox) -> Self {
        self.declared.entry(name).or_default().push(inbox);
        self
    }

    /// The consumers that have no inbox and were not told to do without, by name.
    pub fn uncovered(&self) -> Vec<&str> {
        let forgotten = self.declared.iter().filter(|(_, inboxes)| inboxes.contains(&Inbox::Forgotten));
        forgotten.map(|(name, _)| name.as_str()).collect()
    }

    /// To be called once at start: warns of every consumer that has no inbox, or fails, as required. What is declared in
    /// two ways is refused always.
    pub fn check(&self) -> Result<()> {
        for (name, inboxes) in &self.declared {
            if inboxes.iter().any(|inbox| *inbox != inboxes[0]) {
                let what = format!(
                    "the consumer {name:?} is declared in several ways ({inboxes:?}): only one can be meant; leave the others out"
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
                    tracing::warn!(
                        consumer,
                        "has no inbox: it handles a message as often as it is delivered"
                    );
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
