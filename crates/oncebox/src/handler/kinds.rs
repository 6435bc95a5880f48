//! Retries by kind of error. Tests: below, and `tests/kinds.rs`.

use std::error::Error as StdError;
use std::fmt;

use crate::state::Retry;

type Matches = Box<dyn Fn(&(dyn StdError + 'static)) -> bool + Send + Sync>;

/// A retry for errors of one kind.
pub(crate) struct RetryRule {
    /// The option as the user wrote it, for errors at start.
    pub(crate) option: String,
    pub(crate) retry: Retry,
    matches: Matches,
}

impl RetryRule {
    /// Matches errors of type `E`.
    pub(super) fn of<E: StdError + 'static>(retry: Retry) -> Self {
        let option = format!("retry_for::<{}>", std::any::type_name::<E>());
        Self { option, retry, matches: Box::new(<dyn StdError>::is::<E>) }
    }

    /// Matches errors for which `matches` returns true.
    pub(super) fn when(
        matches: impl Fn(&(dyn StdError + 'static)) -> bool + Send + Sync + 'static,
        retry: Retry,
    ) -> Self {
        Self { option: "retry_when".into(), retry, matches: Box::new(matches) }
    }
}

impl fmt::Debug for RetryRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(&self.option).field(&self.retry).finish()
    }
}

/// Returns the retry of the first rule that matches the error or one of its causes.
pub(crate) fn retry_of(kinds: &[RetryRule], error: &(dyn StdError + 'static)) -> Option<Retry> {
    let is = |kind: &&RetryRule| causes(error).any(|error| (kind.matches)(error));
    kinds.iter().find(is).map(|kind| kind.retry.clone())
}

/// Iterates over an error and its causes.
pub(super) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn StdError + 'static)| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Reject;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct OuterError(#[source] Reject);

    #[test]
    fn the_first_kind_that_was_named_wins_wherever_it_stands_in_the_chain() {
        let (never, quick) = (Retry::never(), Retry::quick());
        let inner_rule = || RetryRule::of::<Reject>(never.clone());
        let outer_rule = || RetryRule::of::<OuterError>(quick.clone());
        let (inner_first, outer_first) = ([inner_rule(), outer_rule()], [outer_rule(), inner_rule()]);
        let error = OuterError(Reject("x".into()));
        assert_eq!(retry_of(&inner_first, &error), Some(never.clone()));
        assert_eq!(retry_of(&outer_first, &error), Some(quick.clone()));
        assert_eq!(retry_of(&inner_first, &fmt::Error), None);
        let says_rejected = [RetryRule::when(|error| error.to_string().contains("rejected"), quick.clone())];
        assert_eq!(retry_of(&says_rejected, &error), Some(quick), "asked of causes too");
        assert_eq!(inner_first[0].option, "retry_for::<oncebox::handler::failure::Reject>");
    }
}
