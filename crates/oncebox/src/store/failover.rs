//! What a store knows of a change of its database's history.

use std::fmt;
use std::time::Duration;

use super::{Finding, Severity};
use crate::time::Timestamp;

/// The database continued from another copy of its data: a promoted replica, or a restored backup. Tokens go on in a new epoch, so they
/// do not go back. An asynchronous replica may lack the latest commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failover {
    /// What tokens begin with from then on: greater than in any that was given before.
    pub epoch: i64,
    /// When the first process noticed it, on the clock of the store.
    pub noticed_at: Timestamp,
    /// How many acknowledged messages the processes remembered that the database does not have any more. A process that ended before it
    /// noticed adds nothing.
    pub lost_messages: u64,
    /// How many marks of inline handlers, with what they wrote. The marks of `once` are not counted: the caller commits them.
    pub lost_marks: u64,
    /// How many claims the database does not have any more, of those that the processes remembered.
    pub lost_claims: u64,
    /// Between which times the store acknowledged the lost messages.
    pub lost_between: Option<(Timestamp, Timestamp)>,
}

impl Failover {
    /// How long `doctor` reports a failover.
    const REPORTED: Duration = Duration::from_hours(30 * 24);

    /// One that nothing is known to be lost with.
    pub const fn new(epoch: i64, noticed_at: Timestamp) -> Self {
        Self { epoch, noticed_at, lost_messages: 0, lost_marks: 0, lost_claims: 0, lost_between: None }
    }

    /// Whether a part of the history is known to be lost.
    pub const fn lost_history(&self) -> bool {
        self.lost_messages > 0 || self.lost_marks > 0 || self.lost_claims > 0
    }

    /// What an operator has to know of it. Nothing once it is older than 30 days.
    pub fn finding(&self, now: Timestamp) -> Option<Finding> {
        if now.since(self.noticed_at) > Self::REPORTED {
            return None;
        }
        Some(if self.lost_history() {
            Finding::new(
                Severity::Danger,
                "failover_lost_history",
                self.to_string(),
                "have the senders send again what the store acknowledged shortly before the failover: known messages are recognized; make \
                 commits wait for a replica (`synchronous_standby_names`) if that must not happen again",
            )
        } else {
            Finding::new(
                Severity::Info,
                "failover",
                self.to_string(),
                "nothing, if commits wait for a replica; otherwise a process that ended at the same time may have seen commits that are \
                 lost",
            )
        })
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, noticed_at, lost_messages, lost_marks, lost_claims, .. } = self;
        write!(f, "the database failed over before {noticed_at} (epoch {epoch})")?;
        if !self.lost_history() {
            return f.write_str("; no process knows of a lost commit");
        }
        write!(
            f,
            " and lost history: at least {lost_messages} acknowledged messages, {lost_marks} marks and {lost_claims} claims"
        )?;
        if let Some((from, until)) = self.lost_between {
            write!(f, "; messages and marks were acknowledged between {from} and {until}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_is_reported_by_what_it_lost_and_for_a_month() {
        let at = Timestamp::from_millis(1_000);
        let mut failover = Failover::new(2, at);
        let finding = failover.finding(at).expect("it is new");
        assert_eq!((finding.severity, finding.code), (Severity::Info, "failover"));
        failover.lost_messages = 3;
        failover.lost_between = Some((at, at));
        let finding = failover.finding(at).expect("it is new");
        assert_eq!((finding.severity, finding.code), (Severity::Danger, "failover_lost_history"));
        assert!(finding.what.contains("3 acknowledged messages") && finding.what.contains("1970-01-01"));
        assert_eq!(failover.finding(at.after(Duration::from_hours(31 * 24))), None);
    }
}
