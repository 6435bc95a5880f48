//! Redacts error text before it is stored or logged. Tests: `tests/canaries.rs`.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::state::ErrorText;

type Rule = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The user's rule, if there is one. Credentials are masked in any case.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Option<Rule>);

impl Redactor {
    pub(crate) fn new(rule: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(rule)))
    }

    /// Makes any text storable. The rule gets the whole text, because half a secret may not look like one.
    pub(crate) fn text(&self, text: &str) -> ErrorText {
        let Some(rule) = &self.0 else { return ErrorText::new(text) };
        // Text that could not be redacted may hold anything.
        let redacted = catch_unwind(AssertUnwindSafe(|| rule(text)));
        ErrorText::new(redacted.unwrap_or_else(|_| "removed: the redaction rule panicked".into()))
    }

    /// Redacts an error and its causes.
    pub(crate) fn error(&self, error: &(dyn StdError + 'static)) -> ErrorText {
        self.text(&ErrorText::whole(error))
    }
}
