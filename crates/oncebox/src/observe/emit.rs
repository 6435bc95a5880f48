//! How metrics leave the library. A recorder is somebody else's code: if it panics, what it was told of goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use metrics::{Label, SharedString};

use super::names;
use crate::name::{HandlerKey, InboxName};
use crate::store::Claim;

/// A label and its value.
pub(crate) type Pair = (&'static str, SharedString);

pub(crate) fn inbox(inbox: &InboxName) -> Pair {
    ("inbox", inbox.shared().into())
}

pub(crate) fn handler(handler: &HandlerKey) -> Pair {
    ("handler", handler.shared().into())
}

pub(crate) fn word(label: &'static str, word: &'static str) -> Pair {
    (label, SharedString::const_str(word))
}

/// Adds to a counter.
pub(crate) fn count<const N: usize>(name: &'static str, by: u64, pairs: [Pair; N]) {
    guarded(|| metrics::counter!(name, labels(pairs)).increment(by));
}

/// Sets a gauge.
pub(crate) fn set<const N: usize>(name: &'static str, value: f64, pairs: [Pair; N]) {
    guarded(|| metrics::gauge!(name, labels(pairs)).set(value));
}

/// Sets a gauge to a number of things.
#[expect(clippy::cast_precision_loss, reason = "numbers of things in a process are far below 2^52")]
pub(crate) fn set_number<const N: usize>(name: &'static str, value: usize, pairs: [Pair; N]) {
    set(name, value as f64, pairs);
}

/// Records a time.
pub(crate) fn time<const N: usize>(name: &'static str, value: Duration, pairs: [Pair; N]) {
    guarded(|| metrics::histogram!(name, labels(pairs)).record(value.as_secs_f64()));
}

/// Records times of things that are alike.
pub(crate) fn times<const N: usize>(
    name: &'static str,
    values: impl Iterator<Item = Duration>,
    pairs: [Pair; N],
) {
    guarded(|| {
        let histogram = metrics::histogram!(name, labels(pairs));
        values.for_each(|value| histogram.record(value.as_secs_f64()));
    });
}

/// Records a number of things.
#[expect(clippy::cast_precision_loss, reason = "batches are far below 2^52")]
pub(crate) fn size<const N: usize>(name: &'static str, value: usize, pairs: [Pair; N]) {
    guarded(|| metrics::histogram!(name, labels(pairs)).record(value as f64));
}

/// Counts what became of claimed entries that are alike, whichever way it was written.
pub(crate) fn settled(claim: &Claim, event: &'static str, number: u64) {
    count(names::SETTLED, number, [inbox(&claim.inbox), handler(&claim.handler), word("event", event)]);
}

fn labels<const N: usize>(pairs: [Pair; N]) -> Vec<Label> {
    pairs.into_iter().map(|(name, value)| Label::new(name, value)).collect()
}

/// Whether it went well does not matter to anybody: the panic hook has told of it.
fn guarded(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
