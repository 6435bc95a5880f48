//! Which retry an error has: by its kind, if the handler's registration names it.

use std::error::Error as StdError;
use std::fmt;

use crate::state::Retry;

type Matches = Box<dyn Fn(&(dyn StdError + 'static)) -> bool + Send + Sync>;

/// Errors of one kind, and how they are retried.
pub(crate) struct Kind {
    /// What the user called it, for errors at start.
    pub(crate) option: String,
    pub(crate) retry: Retry,
    matches: Matches,
}

impl Kind {
    /// Errors of type `E`.
    pub(super) fn of<E: StdError + 'static>(retry: Retry) -> Self {
        let option = format!("retry_for::<{}>", std::any::type_name::<E>());
        Self { option, retry, matches: Box::new(<dyn StdError>::is::<E>) }
    }

    /// Errors for which `matches` says so.
    pub(super) fn when(
        matches: impl Fn(&(dyn StdError + 'static)) -> bool + Send + Sync + 'static,
        retry: Retry,
    ) -> Self {
        Self { option: "retry_when".into(), retry, matches: Box::new(matches) }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(&self.option).field(&self.retry).finish()
    }
}

/// The retry of the first kind that the error, or one of its causes, is of.
pub(crate) fn retry_of(kinds: &[Kind], error: &(dyn StdError + 'static)) -> Option<Retry> {
    let is = |kind: &&Kind| causes(error).any(|error| (kind.matches)(error));
    kinds.iter().find(is).map(|kind| kind.retry.clone())
}

/// An error and its causes.
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
    struct Outer(#[source] Reject);

    #[test]
    fn the_first_kind_that_was_named_wins_wherever_it_stands_in_the_chain() {
        let (never, quick) = (Retry::never(), Retry::quick());
        let inner_first = [Kind::of::<Reject>(never.clone()), Kind::of::<Outer>(quick.clone())];
        let outer_first = [Kind::of::<Outer>(quick.clone()), Kind::of::<Reject>(never.clone())];
        let error = Outer(Reject("x".into()));
        assert_eq!(retry_of(&inner_first, &error), Some(never.clone()));
        assert_eq!(retry_of(&outer_first, &error), Some(quick.clone()));
        assert_eq!(retry_of(&inner_first, &fmt::Error), None);
        let says_rejected = [Kind::when(|error| error.to_string().contains("rejected"), quick.clone())];
        assert_eq!(retry_of(&says_rejected, &error), Some(quick), "asked of causes too");
        assert_eq!(inner_first[0].option, "retry_for::<oncebox::handler::failure::Reject>");
    }
}
