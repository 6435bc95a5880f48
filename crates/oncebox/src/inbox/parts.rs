//! Large batches, in parts where the store writes several at the same time.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Shared;
use super::prepared::{Answer, Offers, short_answer};
use crate::error::Result;
use crate::store::Store;

/// The fewest messages of a part. Smaller ones cost more than is won.
const LEAST: usize = 128;

impl<S: Store> Shared<S> {
    /// Offers many messages. Each part is one transaction, and its error is that of each of its messages; an error of all parts is
    /// that of the batch.
    pub(super) async fn offer_in_parts(self: &Arc<Self>, offers: &[&Offers]) -> Result<Vec<Result<Answer>>> {
        let parts = parts(offers, self.store.capabilities().writers);
        let calls = parts.iter().map(|part| self.offer_all(part.iter().map(|place| offers[*place])));
        let mut stored = join_all(calls).await;
        if stored.iter().all(Result::is_err)
            && let Some(error) = stored.pop()
        {
            return error.map(|_| Vec::new());
        }
        let mut answers: Vec<Result<Answer>> = offers.iter().map(|_| Err(short_answer())).collect();
        for (part, stored) in parts.iter().zip(stored) {
            match stored {
                Ok(stored) => {
                    for (place, answer) in part.iter().zip(stored) {
                        answers[*place] = Ok(answer);
                    }
                }
                Err(error) => part.iter().for_each(|place| answers[*place] = Err(error.duplicate())),
            }
        }
        Ok(answers)
    }
}

/// The places of the messages of each part. Those with the same key stay together, and in their order. Nothing is parted where a
/// message goes by several keys, or asks for an order: the messages of one ordering key are numbered as they came.
fn parts(offers: &[&Offers], writers: usize) -> Vec<Vec<usize>> {
    let count = writers.min(offers.len() / LEAST);
    if count < 2 || offers.iter().any(|offers| offers.key_alone().is_none()) {
        return vec![(0..offers.len()).collect()];
    }
    let mut parts = vec![Vec::with_capacity(offers.len() / count + LEAST); count];
    for (place, offers) in offers.iter().enumerate() {
        let number = offers.key_alone().map_or(0, |key| usize::from(key.as_bytes()[0]));
        parts[number % count].push(place);
    }
    parts.retain(|part| !part.is_empty());
    parts
}
