//! Findings about the health of a store and an inbox, for `doctor`.

use std::fmt;
use std::time::Duration;

use super::{Admin, Backlog, BacklogParams, OrphanParams, RegisteredWindow, RetentionWindows, SweepParams};
use crate::error::Result;
use crate::name::{HandlerKey, InboxName};
use crate::state::Status;
use crate::text::ShortDuration;
use crate::time::Timestamp;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// For information.
    Info,
    /// An operator should check it.
    Warning,
    /// A guarantee is broken, or may be.
    Danger,
}

impl Severity {
    /// Every severity, the worst last.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Danger];

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

/// A finding of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Stable code for programs.
    pub code: &'static str,
    /// Problem that was found.
    pub what: String,
    /// Advice for the operator.
    pub fix: String,
}

impl Finding {
    /// Returns a finding.
    pub fn new(
        severity: Severity,
        code: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity, code, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({}); {}", self.severity.as_str(), self.what, self.code, self.fix)
    }
}

/// Parameters of an examination.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExamineParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Time on the clock of the calling process.
    pub now: Timestamp,
    /// Handler keys that are known to run somewhere. `None`: do not search for orphans.
    pub known: Option<Vec<HandlerKey>>,
    /// Maximum time between two deliveries of a message, if the caller knows it. Keys must be remembered for longer.
    pub redelivery: Option<Duration>,
    /// Age from which an open transaction is a finding, because it keeps dead rows. Default: 10 minutes.
    pub long_transaction: Duration,
}

impl ExamineParams {
    /// Clock difference from which it is a finding.
    pub const SKEW: Duration = Duration::from_secs(2);
    /// Maximum number of redelivered messages, the latest first, that a store reads to measure how late duplicates come.
    pub const LOOKED: usize = 10_000;

    /// Returns parameters for an inbox at a time.
    pub fn new(inbox: InboxName, now: Timestamp) -> Self {
        Self { inbox, now, known: None, redelivery: None, long_transaction: Duration::from_mins(10) }
    }

    /// Returns the finding about handler keys whose registered window never ends. An empty key stands for the inbox.
    pub fn unending<'a>(&self, handlers: impl IntoIterator<Item = &'a str>) -> Option<Finding> {
        let named = |key: &'a str| {
            if key.is_empty() { "messages without a handler".into() } else { format!("{key:?}") }
        };
        let mut all: Vec<String> = handlers.into_iter().map(named).collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| {
            Finding::new(
                Severity::Info,
                "remembered_for_ever",
                format!("finished messages are never removed, because their window has no end, of {}", all.join(", ")),
                "set `retention` if that is not meant; a shorter window counts a day after the last process has said the longer one",
            )
        })
    }

    /// Returns the finding about entries whose message is gone.
    pub fn lost(count: u64) -> Option<Finding> {
        (count > 0).then(|| {
            Finding::new(
                Severity::Danger,
                "lost_message",
                format!(
                    "{count} entries have no message any more: something else than this store deleted it"
                ),
                "restore the messages from a backup, or list the poisoned entries and discard them",
            )
        })
    }

    /// Returns the finding about the clocks, if the store's clock shows `theirs`.
    pub fn skew(&self, theirs: Timestamp) -> Option<Finding> {
        let apart = self.now.since(theirs).max(theirs.since(self.now));
        (apart > Self::SKEW).then(|| {
            Finding::new(
                Severity::Warning,
                "clock_skew",
                format!("the clocks of this process and of the store are {apart:?} apart"),
                "leases are safe, since only the store's clock counts for them; mend the time service, or logs and message \
                 times will mislead",
            )
        })
    }

    /// Returns the findings about registered windows at `now` on the store's clock. `latest` is the longest time between
    /// two deliveries of one message that the store remembers.
    pub fn windows(
        &self,
        registered: &[RegisteredWindow],
        latest: Option<Duration>,
        now: Timestamp,
    ) -> Vec<Finding> {
        // A handler that no process registers any more does not limit the others.
        let mut said: Vec<_> = registered.iter().filter(|window| window.until >= now).cloned().collect();
        if said.is_empty() {
            said = registered.to_vec();
        }
        // The caller does not sweep: only registered windows count.
        let sweep = SweepParams::new(self.inbox.clone(), Duration::ZERO, 1);
        let windows = RetentionWindows::new(&sweep, &said, now);
        // Before a process has registered, there is nothing to compare.
        let Some(shortest) = windows.lengths().into_iter().find(|window| *window > Duration::ZERO) else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        let window = ShortDuration(shortest);
        if let Some(again) = self.redelivery.filter(|again| *again > shortest) {
            let what = format!(
                "a message may come again {} after its first delivery, and is forgotten {window} after it is done",
                ShortDuration(again)
            );
            let fix = match again {
                Duration::MAX => "remember keys for ever, or what comes later is handled again".to_owned(),
                _ => format!(
                    "set `retention` to {} or more, or what comes later is handled again",
                    ShortDuration::rounded_up(again)
                ),
            };
            findings.push(Finding::new(Severity::Danger, "short_window", what, fix));
        }
        if let Some(latest) =
            latest.filter(|latest| latest.saturating_mul(RetentionWindows::MARGIN) > shortest)
        {
            let better = ShortDuration::rounded_up(latest.saturating_mul(RetentionWindows::MARGIN));
            findings.push(Finding::new(
                Severity::Warning,
                "late_duplicates",
                format!("a duplicate came {} after the first delivery, and keys are remembered for {window}", ShortDuration(latest)),
                format!("set `retention` to {better} or more: the latest that was seen is not the latest there can be"),
            ));
        }
        findings
    }
}

/// Returns the findings about an inbox on any store: entries that wait for an operator, and entries that no process
/// handles.
pub(super) async fn of_inbox<S: Admin + ?Sized>(store: &S, params: &ExamineParams) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let counts = store.count(&params.inbox).await?;
    let poisoned = counts.with_status(Status::Poisoned);
    if poisoned > 0 {
        let what = format!("{poisoned} entries failed for good");
        findings.push(Finding::new(
            Severity::Warning,
            "poisoned",
            what,
            "list them, fix the cause, then retry or discard them",
        ));
    }
    if counts.stale > 0 {
        let what = format!("{} messages came after their keys may have been forgotten", counts.stale);
        findings.push(Finding::new(
            Severity::Warning,
            "stale",
            what,
            "set `retention` to longer than their producers or brokers may take to deliver again",
        ));
    }
    if counts.quarantined > 0 {
        let what = format!(
            "{} messages are quarantined: {} in conflict, {} stale",
            counts.quarantined, counts.conflicts, counts.stale
        );
        findings.push(Finding::new(
            Severity::Warning,
            "quarantined",
            what,
            "list them, ask their producers, then purge the resolved ones",
        ));
    }
    for handler in &counts.paused {
        findings.push(Finding::new(
            Severity::Warning,
            "paused",
            format!("the handler {handler:?} is paused"),
            "resume it when the reason is gone; the audit says who paused it and why",
        ));
    }
    for key in &counts.paused_keys {
        let (handler, ordering_key) = (&key.handler, String::from_utf8_lossy(&key.line.ordering_key));
        findings.push(Finding::new(
            Severity::Warning,
            "key_paused",
            format!("the ordering key {ordering_key:?} is paused for {handler:?}"),
            "resume it when the reason is gone; the audit says who paused it and why",
        ));
    }
    findings.extend(blocked(store, params).await?);
    if let Some(known) = &params.known {
        let orphans = OrphanParams::new(params.inbox.clone(), known.clone(), Duration::ZERO);
        for orphan in store.orphans(&orphans).await? {
            let what = format!(
                "{} entries or more wait for {:?}, which no process runs",
                orphan.count, orphan.handler
            );
            findings.push(Finding::new(
                Severity::Danger,
                "orphaned",
                what,
                "start a process with that handler, name it as a legacy key, or discard the entries",
            ));
        }
    }
    Ok(findings)
}

/// Returns the findings about ordering keys that poisoned entries hold back, by handler.
async fn blocked<S: Admin + ?Sized>(store: &S, params: &ExamineParams) -> Result<Vec<Finding>> {
    let backlog = store.backlog(&BacklogParams::new(params.inbox.clone())).await?;
    let mut findings = Vec::new();
    for Backlog { handler, blocked, .. } in backlog.iter().filter(|backlog| backlog.blocked.keys > 0) {
        let waits = match blocked.oldest {
            None => "nothing is behind them yet".to_owned(),
            Some(oldest) => {
                let oldest = ShortDuration(Duration::from_secs(oldest.as_secs()));
                format!("{} entries wait behind them, the oldest for {oldest}", up_to(blocked.waiting))
            }
        };
        let keys = up_to(blocked.keys);
        findings.push(Finding::new(
            Severity::Warning,
            "blocked",
            format!("poisoned entries hold back {keys} ordering keys of {handler:?}; {waits}"),
            "list them with `oncebox blocked`, then retry, discard or unblock the entry in front of each",
        ));
    }
    Ok(findings)
}

/// Returns a number that was counted up to a limit, as text.
fn up_to(count: u64) -> String {
    if count < BacklogParams::COUNTED { count.to_string() } else { format!("{count} or more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn codes(
        params: &ExamineParams,
        windows: &[RegisteredWindow],
        latest: Option<Duration>,
    ) -> Vec<&'static str> {
        params.windows(windows, latest, Timestamp::ZERO).into_iter().map(|finding| finding.code).collect()
    }

    // FAULTS H1
    #[test]
    fn a_window_is_compared_with_what_comes_again() {
        let mut params = ExamineParams::new(InboxName::new("i").unwrap(), Timestamp::ZERO);
        let of = |handler: Option<&str>, days: u32| {
            let handler = handler.map(|name| HandlerKey::new(name).unwrap());
            RegisteredWindow::new(handler, DAY * days, Timestamp::MAX)
        };
        assert!(codes(&params, &[], Some(DAY * 100)).is_empty(), "no window is registered");
        assert!(codes(&params, &[of(None, 7)], Some(DAY * 3)).is_empty());
        assert_eq!(codes(&params, &[of(None, 7)], Some(DAY * 4)), ["late_duplicates"]);
        params.redelivery = Some(DAY * 3);
        assert!(codes(&params, &[of(None, 7)], None).is_empty());
        assert_eq!(
            codes(&params, &[of(None, 7), of(Some("h"), 2)], None),
            ["short_window"],
            "the shortest counts"
        );
        let ever = RegisteredWindow::new(None, Duration::MAX, Timestamp::MAX);
        params.redelivery = Some(Duration::MAX);
        assert!(
            codes(&params, &[ever], Some(DAY * 100)).is_empty(),
            "what is never forgotten is long enough"
        );
        let [finding] = &params.windows(&[of(None, 7)], None, Timestamp::ZERO)[..] else {
            panic!("one finding")
        };
        assert!(finding.to_string().contains("forgotten 7 days after"), "{finding}");
    }
}
