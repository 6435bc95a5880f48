//! Batches of one caller: in parts where the store writes several at the same time, and each message by itself where one of them may be
//! what the store refuses.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Shared;
use super::routing::{Answer, Offers, short_answer};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// The fewest messages for which there is another part. Smaller ones cost more than is won.
const LEAST: usize = 128;

/// What became of the messages of a part: an answer for each, or an error of all.
type Stored = Result<Vec<Result<Answer>>>;

impl<S: Store> Shared<S> {
    /// Offers many messages. Each part is one transaction, and its error is that of each of its messages. The same error of all parts is
    /// that of the batch.
    pub(super) async fn offer_in_parts(self: &Arc<Self>, offers: &[&Offers]) -> Stored {
        let parts = parts(offers, self.store.capabilities().writers);
        let calls = parts.iter().map(|part| self.offer_part(offers, part));
        let stored = join_all(calls).await;
        if let Some(error) = same_error(&stored) {
            return Err(error.to_shared());
        }
        let mut answers: Vec<Result<Answer>> = offers.iter().map(|_| Err(short_answer())).collect();
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

    /// Offers the messages at some places, and each by itself if something may be wrong with one of them.
    async fn offer_part(self: &Arc<Self>, offers: &[&Offers], part: &[usize]) -> Stored {
        let chosen = part.iter().map(|place| offers[*place]);
        match self.offer_all(chosen.clone()).await {
            Ok(answers) => Ok(answers.into_iter().map(Ok).collect()),
            Err(error) if part.len() > 1 && error.kind().is_per_message() => {
                Ok(self.offer_each(chosen).await)
            }
            Err(error) => Err(error),
        }
    }

    /// One after the other: of two with the same key the first counts, and an ordering key keeps its order. What comes behind an error
    /// that says nothing of a message is not tried.
    async fn offer_each(self: &Arc<Self>, offers: impl Iterator<Item = &Offers>) -> Vec<Result<Answer>> {
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

/// What was not offered was not stored, even if that is not known of the one before it.
fn untried(error: &Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::CommitUnknown => ErrorKind::Unavailable,
        kind => kind,
    };
    Error::new(kind, "not tried: one before it in its batch could not be stored").caused_by(error.to_shared())
}

/// The error of all parts, if they have the same: what one of them says to be stored, or to be worth another try, need not be so of
/// another.
fn same_error(stored: &[Stored]) -> Option<&Error> {
    let mut errors = stored.iter().map(|stored| stored.as_ref().err());
    let first = errors.next()??;
    errors.all(|error| error.is_some_and(|error| error.kind() == first.kind())).then_some(first)
}

/// The places of the messages of each part. Those with the same key stay together, and in their order. Nothing is parted where a
/// message goes by several keys, or asks for an order: the messages of one ordering key are numbered as they came.
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
