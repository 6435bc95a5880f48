//! Splits a batch of one caller: in parts for stores with several writers, and into single messages after an error that
//! one message may cause. Tests: `tests/durable.rs`, `tests/outages.rs`.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Shared;
use super::routing::{OfferResult, Offers, short_answer};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// Minimum messages per part. Smaller parts cost more than they save.
const LEAST: usize = 128;

/// Results of a part: one per message, or an error of all.
type PartResults = Result<Vec<Result<OfferResult>>>;

impl<S: Store> Shared<S> {
    /// Offers many messages, each part in one transaction. The error of a part is returned for each of its messages. If all
    /// parts have the same error, it is the error of the batch.
    pub(super) async fn offer_in_parts(self: &Arc<Self>, offers: &[&Offers]) -> PartResults {
        let parts = parts(offers, self.store.capabilities().writers);
        let calls = parts.iter().map(|part| self.offer_part(offers, part));
        let stored = join_all(calls).await;
        if let Some(error) = same_error(&stored) {
            return Err(error.to_shared());
        }
        let mut answers: Vec<Result<OfferResult>> = offers.iter().map(|_| Err(short_answer())).collect();
        for (part, stored) in parts.iter().zip(stored) {
            match stored {
                Ok(stored) => {
                    for (place, answer) in part.iter().zip(stored) {
                        answers[*place] = answer;
                    }
                }
                Err(error) => part.iter().for_each(|place| answers[*place] = Err(error.to_shared())),
            }
        }
        Ok(answers)
    }

    /// Offers the messages of a part, and each alone after an error that one message may cause.
    async fn offer_part(self: &Arc<Self>, offers: &[&Offers], part: &[usize]) -> PartResults {
        let chosen = part.iter().map(|place| offers[*place]);
        match self.offer_all(chosen.clone()).await {
            Ok(answers) => Ok(answers.into_iter().map(Ok).collect()),
            Err(error) if part.len() > 1 && error.kind().is_per_message() => {
                Ok(self.offer_each(chosen).await)
            }
            Err(error) => Err(error),
        }
    }

    /// Offers messages one after the other, so the first of a key wins and ordering keys keep their order. After an error of
    /// the store itself, the remaining messages are not tried.
    async fn offer_each(self: &Arc<Self>, offers: impl Iterator<Item = &Offers>) -> Vec<Result<OfferResult>> {
        let (mut answers, mut trouble) = (Vec::new(), None::<Error>);
        for offers in offers {
            let answer = match &trouble {
                Some(error) => Err(untried(error)),
                None => self.offer(offers).await,
            };
            if trouble.is_none() {
                trouble = answer
                    .as_ref()
                    .err()
                    .filter(|error| !error.kind().is_per_message())
                    .map(Error::to_shared);
            }
            answers.push(answer);
        }
        answers
    }
}

/// Returns the error for a message that was not tried, and so was not stored.
fn untried(error: &Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::CommitUnknown => ErrorKind::Unavailable,
        kind => kind,
    };
    Error::new(kind, "not tried: the store failed earlier in the batch").caused_by(error.to_shared())
}

/// Returns the error of all parts, if all have the same kind. Errors of different kinds mean different things for a retry.
fn same_error(stored: &[PartResults]) -> Option<&Error> {
    let mut errors = stored.iter().map(|stored| stored.as_ref().err());
    let first = errors.next()??;
    errors.all(|error| error.is_some_and(|error| error.kind() == first.kind())).then_some(first)
}

/// Returns the indexes of the messages of each part. Messages with the same key stay together, in their order. A batch with
/// ordering keys, or with a message under several keys, is not split: an ordering key is numbered by arrival.
fn parts(offers: &[&Offers], writers: usize) -> Vec<Vec<usize>> {
    let count = writers.min(offers.len() / LEAST);
    if count < 2 || offers.iter().any(|offers| offers.key_alone().is_none()) {
        return vec![(0..offers.len()).collect()];
    }
    let mut parts: Vec<Vec<usize>> = (0..count).map(|_| Vec::with_capacity(offers.len())).collect();
    for (place, offers) in offers.iter().enumerate() {
        let number = offers.key_alone().map_or(0, |key| usize::from(key.as_bytes()[0]));
        parts[number % count].push(place);
    }
    parts.retain(|part| !part.is_empty());
    parts
}
