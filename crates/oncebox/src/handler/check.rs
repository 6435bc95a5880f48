//! Refuses handler settings that cannot work. Each error names the handler, the setting, its value and the fix. Tests: `tests/bad_input.rs`.

use std::time::Duration;

use super::{Function, Registration, types};
use crate::error::{Error, ErrorKind, Result};
use crate::state::OnPoisoned;
use crate::store::{Route, Store};

/// Maximum runs in one transaction. PostgreSQL keeps this many subtransactions in memory; more slow down every reader.
const MAX_SHARE: usize = 64;
/// Maximum messages in one call: one statement completes them.
const MAX_BATCH: usize = 1_000;

pub(super) fn check<S: Store>(
    registration: &Registration<S>,
    kinds: &[Box<str>],
    route: &Route,
) -> Result<()> {
    let key = &route.key;
    let refuse =
        |what: String| Err(Error::new(ErrorKind::InvalidHandler, format!("the handler {key:?} {what}")));
    if kinds.is_empty() || kinds.iter().any(|kind| kind.is_empty()) {
        return refuse(format!(
            "is registered for no type, or for an empty one ({kinds:?}): it could never run; name its types with `InboxBuilder::on`, `Registration::types` or `types = [..]` in its attribute"
        ));
    }
    if let Some((kind, flaw)) = kinds.iter().find_map(|kind| Some((kind, types::flaw(kind)?))) {
        return refuse(format!("is registered for {kind:?}: {flaw}"));
    }
    if registration.concurrency == 0 {
        return refuse("has a `concurrency` of 0: it could never run; use at least 1".into());
    }
    if let Some(timeout) = registration.timeout.filter(Duration::is_zero) {
        return refuse(format!(
            "has a `timeout` of {timeout:?}: it could never finish; make it longer, or leave it out"
        ));
    }
    let is_batch = matches!(registration.function, Function::Batch(_));
    match registration.max_batch {
        Some(max) if !is_batch => {
            return refuse(format!(
                "has `max_batch({max})` and takes one message at a time; register it with `batch_handler`, or leave `max_batch` out"
            ));
        }
        Some(max) if !(1..=MAX_BATCH).contains(&max) => {
            return refuse(format!(
                "has `max_batch({max})`: it takes {max} messages in one call; use 1 to {MAX_BATCH}"
            ));
        }
        _ => {}
    }
    if let Some(share) = &registration.share {
        let max_runs = share.max_runs;
        if !(1..=MAX_SHARE).contains(&max_runs) {
            return refuse(format!(
                "has a `share_commit` of {max_runs}: too few or too many runs; use 1 to {MAX_SHARE}"
            ));
        }
        if is_batch {
            return refuse(format!(
                "has `share_commit({max_runs})` and is a batch handler, whose call has one commit anyway; leave it out"
            ));
        }
    }
    if let Some((what, why)) = contradiction(registration, is_batch) {
        return refuse(format!("has `{what}` {why}"));
    }
    let policy = registration.policy.validate();
    let retries = registration.kinds.iter().map(|kind| kind.retry.validate(&kind.option));
    let breaker = registration.breaker.as_ref().map_or(Ok(()), crate::state::Breaker::validate);
    let rate = registration.rate.as_ref().map_or(Ok(()), crate::state::Rate::validate);
    [policy, breaker, rate]
        .into_iter()
        .chain(retries)
        .collect::<Result<()>>()
        .or_else(|error| refuse(format!("has settings that cannot work: {}", error.what())))
}

/// Returns a setting that contradicts another one, and the reason.
fn contradiction<S: Store>(
    registration: &Registration<S>,
    is_batch: bool,
) -> Option<(&'static str, &'static str)> {
    let Registration {
        inline,
        forget,
        share,
        legacy,
        kinds,
        breaker,
        rate,
        policy,
        has_policy,
        unordered,
        ..
    } = registration;
    let first =
        |settings: &[(bool, &'static str)]| settings.iter().find(|(set, _)| *set).map(|(_, name)| *name);
    if *forget {
        let set = [
            (*inline, "inline"),
            (*unordered, "unordered"),
            (*has_policy, "retry"),
            (policy.on_poisoned != OnPoisoned::default(), "on_poisoned"),
            (!kinds.is_empty(), "retry_for"),
            (!legacy.is_empty(), "legacy"),
            (share.is_some(), "share_commit"),
            (breaker.is_some(), "breaker"),
            (rate.is_some(), "rate"),
            (is_batch, "max_batch"),
        ];
        let why = "beside `fire_and_forget`, for which nothing is stored and nothing is tried again; leave one of the two out";
        return first(&set).map(|what| (what, why));
    }
    if *inline {
        let set = [
            (*unordered, "unordered"),
            (share.is_some(), "share_commit"),
            (!kinds.is_empty(), "retry_for"),
            (breaker.is_some(), "breaker"),
            (rate.is_some(), "rate"),
            (is_batch, "max_batch"),
        ];
        if !legacy.is_empty() {
            return Some((
                "legacy",
                "and is inline: what was marked under the former key would run again; keep the key it has",
            ));
        }
        let why = "and is inline: its delivery waits, and the broker retries; leave one of the two out";
        return first(&set).map(|what| (what, why));
    }
    None
}
