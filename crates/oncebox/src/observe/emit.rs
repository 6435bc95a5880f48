//! Emits metrics. A recorder is code of the program: its panic does not affect the delivery. Tests: `tests/observers.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use metrics::{Label, SharedString};

use super::names;
use crate::name::{HandlerKey, InboxName};
use crate::store::Claim;

/// A label and its value.
pub(crate) type LabelPair = (&'static str, SharedString);

pub(crate) fn inbox(inbox: &InboxName) -> LabelPair {
    ("inbox", inbox.shared().into())
}

pub(crate) fn handler(handler: &HandlerKey) -> LabelPair {
    ("handler", handler.shared().into())
}

pub(crate) fn word(label: &'static str, word: &'static str) -> LabelPair {
    (label, SharedString::const_str(word))
}

/// Adds to a counter.
pub(crate) fn count<const N: usize>(name: &'static str, by: u64, pairs: [LabelPair; N]) {
    guarded(|| metrics::counter!(name, labels(pairs)).increment(by));
}

/// Sets a gauge.
pub(crate) fn set<const N: usize>(name: &'static str, value: f64, pairs: [LabelPair; N]) {
    guarded(|| metrics::gauge!(name, labels(pairs)).set(value));
}

/// Sets a gauge to a count.
#[expect(clippy::cast_precision_loss, reason = "numbers of things in a process are far below 2^52")]
pub(crate) fn set_number<const N: usize>(name: &'static str, value: usize, pairs: [LabelPair; N]) {
    set(name, value as f64, pairs);
}

/// Records a time.
pub(crate) fn time<const N: usize>(name: &'static str, value: Duration, pairs: [LabelPair; N]) {
    guarded(|| metrics::histogram!(name, labels(pairs)).record(value.as_secs_f64()));
}

/// Records several times with the same labels.
pub(crate) fn times<const N: usize>(
    name: &'static str,
    values: impl Iterator<Item = Duration>,
    pairs: [LabelPair; N],
) {
    guarded(|| {
        let histogram = metrics::histogram!(name, labels(pairs));
        values.for_each(|value| histogram.record(value.as_secs_f64()));
    });
}

/// Records a count.
#[expect(clippy::cast_precision_loss, reason = "batches are far below 2^52")]
pub(crate) fn size<const N: usize>(name: &'static str, value: usize, pairs: [LabelPair; N]) {
    guarded(|| metrics::histogram!(name, labels(pairs)).record(value as f64));
}

/// Counts settled entries with the same labels.
pub(crate) fn settled(claim: &Claim, event: &'static str, number: u64) {
    count(names::SETTLED, number, [inbox(&claim.inbox), handler(&claim.handler), word("event", event)]);
}

fn labels<const N: usize>(pairs: [LabelPair; N]) -> Vec<Label> {
    pairs.into_iter().map(|(name, value)| Label::new(name, value)).collect()
}

/// Runs a call of a recorder and ignores its panic, which the panic hook has reported.
fn guarded(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
