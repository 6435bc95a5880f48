//! What a store knows of its own health, for a doctor to tell.

use std::fmt;
use std::time::Duration;

use super::{Admin, Backlog, BacklogParams, OrphanParams, RegisteredWindow, RetentionWindows, SweepParams};
use crate::error::Result;
use crate::name::{HandlerKey, InboxName};
use crate::retention::{MARGIN, ShortDuration, whole};
use crate::state::Status;
use crate::time::Timestamp;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    Info,
    /// Somebody should look at it.
    Warning,
    /// What was promised is not kept, or may not be.
    Danger,
}

impl Severity {
    /// All of them, the worst last.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Danger];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for it, for machines.
    pub code: &'static str,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

impl Finding {
    /// A finding.
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

/// What a doctor is told before it looks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExamineParams {
    /// The inbox.
    pub inbox: InboxName,
    /// The time by the clock of the process that asks.
    pub now: Timestamp,
    /// The handler keys that are known to run somewhere. Orphans are looked for only if this is given.
    pub known: Option<Vec<HandlerKey>>,
    /// How long after its first delivery a message may come again, if somebody knows: keys have to be remembered for longer.
    pub redelivery: Option<Duration>,
    /// A transaction that is open for longer than this keeps dead rows from being removed. Default 10 minutes.
    pub long_transaction: Duration,
}

impl ExamineParams {
    /// Clocks that differ by more than this are a finding.
    pub const SKEW: Duration = Duration::from_secs(2);
    /// To see how late duplicates come, a store looks at so many of the latest messages that were delivered again, at most.
    pub const LOOKED: usize = 10_000;

    /// To look at an inbox at a time.
    pub fn new(inbox: InboxName, now: Timestamp) -> Self {
        Self { inbox, now, known: None, redelivery: None, long_transaction: Duration::from_mins(10) }
    }

    /// What a store finds of the handler keys that registered a window without an end; an empty one stands for the inbox.
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

    /// What a store finds of entries whose message is gone.
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

    /// What a store whose clock says `theirs` finds of the clocks.
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

    /// What a store finds of the windows that processes registered, the time on its clock being `now`. `latest` is how long after
    /// its first delivery a message was seen to come again, as far as the store remembers.
    pub fn windows(
        &self,
        registered: &[RegisteredWindow],
        latest: Option<Duration>,
        now: Timestamp,
    ) -> Vec<Finding> {
        // A handler that nobody registers any more says nothing of those that are.
        let mut said: Vec<_> = registered.iter().filter(|window| window.until >= now).cloned().collect();
        if said.is_empty() {
            said = registered.to_vec();
        }
        // Nobody sweeps here: only what others said counts.
        let nobody = SweepParams::new(self.inbox.clone(), Duration::ZERO, 1);
        let windows = RetentionWindows::new(&nobody, &said, now);
        // Before anybody has registered there is nothing to compare with.
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
                    ShortDuration(whole(again))
                ),
            };
            findings.push(Finding::new(Severity::Danger, "short_window", what, fix));
        }
        if let Some(latest) = latest.filter(|latest| latest.saturating_mul(MARGIN) > shortest) {
            let better = ShortDuration(whole(latest.saturating_mul(MARGIN)));
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

/// What an operator should know of an inbox, whatever the store: what waits for a person, and what nobody waits for.
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
            "list them, mend the cause, then retry or discard them",
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
            "look at them, ask their producers, then purge what is settled",
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
            let what =
                format!("{} entries or more wait for {:?}, which nobody runs", orphan.count, orphan.handler);
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

/// Ordering keys that poisoned entries hold back, by handler.
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

/// A number that was counted up to a limit.
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
        assert!(codes(&params, &[], Some(DAY * 100)).is_empty(), "nobody has said anything");
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
