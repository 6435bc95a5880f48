//! Retries store calls, with pauses between attempts. Tests: `tests/outages.rs`.

use std::error::Error as StdError;
use std::time::Duration;

use super::supervisor::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::inbox::Shared;
use crate::store::Store;

/// Longest pause between two tries while the store does not answer.
pub(in crate::runtime) const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Returns true if the store has trouble, and false if the call itself cannot work.
pub(in crate::runtime) const fn is_trouble(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable
            | ErrorKind::Full
            | ErrorKind::ReadOnly
            | ErrorKind::Denied
            | ErrorKind::CommitUnknown
            | ErrorKind::SchemaOutdated
            | ErrorKind::SchemaTooNew
    )
}

/// Returns true if the database ended a transaction that may succeed in another run. Never after a commit with an unknown
/// result, because it might happen twice.
pub(in crate::runtime) fn is_transient<S: Store>(store: &S, error: &(dyn StdError + 'static)) -> bool {
    let (mut link, mut transient) = (Some(error), false);
    while let Some(error) = link {
        if error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::CommitUnknown) {
            return false;
        }
        transient |= store.is_transient(error);
        link = error.source();
    }
    transient
}

/// Pauses that double.
#[derive(Default)]
pub(in crate::runtime) struct Pauses(Duration);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(50);

    pub(in crate::runtime) fn next(&mut self) -> Duration {
        self.0 = (self.0 * 2).clamp(Self::FIRST, MAX_PAUSE);
        self.0
    }
}

/// Makes a call under a claim id. After a lost answer, it repeats the call until the store answers: the id finds the claimed
/// entries. Without the id, they would wait for their leases and count a crash each.
pub(in crate::runtime) async fn answered<S, T, F>(
    inbox: &Shared<S>,
    give_up: &Stop,
    mut call: impl FnMut() -> F,
) -> Result<T>
where
    S: Store,
    F: Future<Output = Result<T>>,
{
    let mut pauses = Pauses::default();
    let mut unknown = false;
    loop {
        let error = tokio::select! {
            biased;
            answer = call() => match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            },
            () = give_up.wait() => return Err(gave_up()),
        };
        unknown |= error.kind() == ErrorKind::CommitUnknown;
        if !(unknown && is_trouble(error.kind())) {
            return Err(error);
        }
        inbox.store.watch().trouble(&inbox.name, "repeat", &error);
        tokio::select! {
            () = inbox.clock.sleep(pauses.next()) => {}
            () = give_up.wait() => return Err(error),
        }
    }
}

fn gave_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the inbox stopped before the store answered")
}
