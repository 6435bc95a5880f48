//! Failover of the database to another copy of its data.

use std::fmt;
use std::time::Duration;

use super::{Finding, Severity};
use crate::time::Timestamp;

/// The database continued from another copy of its data: a promoted replica or a restored backup. Tokens continue in a
/// new epoch, so they never decrease. An asynchronous replica may lack the latest commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failover {
    /// Epoch of later tokens. It is greater than every epoch before.
    pub epoch: i64,
    /// Time when the first process noticed the failover, on the store's clock.
    pub noticed_at: Timestamp,
    /// Number of acknowledged messages that processes remembered and the database lost. A process that ended before it
    /// noticed adds nothing.
    pub lost_messages: u64,
    /// Number of lost marks of inline handlers, with their writes. Marks of `once` are not counted: the caller commits
    /// them.
    pub lost_marks: u64,
    /// Number of lost claims that processes remembered.
    pub lost_claims: u64,
    /// First and last time at which the store acknowledged a lost message.
    pub lost_between: Option<(Timestamp, Timestamp)>,
    /// Number of older commits that processes acknowledged but no longer knew by name. They may be lost, too.
    pub unnamed: u64,
    /// Time at which the store acknowledged the first of them.
    pub unnamed_since: Option<Timestamp>,
}

impl Failover {
    /// Time for which `doctor` reports a failover.
    const REPORTED: Duration = Duration::from_hours(30 * 24);

    /// Returns a failover without known losses.
    pub const fn new(epoch: i64, noticed_at: Timestamp) -> Self {
        let (lost_messages, lost_marks, lost_claims, lost_between) = (0, 0, 0, None);
        let (unnamed, unnamed_since) = (0, None);
        Self {
            epoch,
            noticed_at,
            lost_messages,
            lost_marks,
            lost_claims,
            lost_between,
            unnamed,
            unnamed_since,
        }
    }

    /// Returns true if commits are known to be lost.
    pub const fn lost_history(&self) -> bool {
        self.lost_messages > 0 || self.lost_marks > 0 || self.lost_claims > 0
    }

    /// Returns the finding for an operator, or `None` after 30 days.
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
        if let (1.., Some(since)) = (self.unnamed, self.unnamed_since) {
            write!(f, "; {} more acknowledged since {since} may be lost", self.unnamed)?;
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
        assert!(!finding.what.contains("may be lost"));
        (failover.unnamed, failover.unnamed_since) = (7, Some(at));
        assert!(
            failover
                .to_string()
                .ends_with("; 7 more acknowledged since 1970-01-01T00:00:01.000Z may be lost"),
            "{failover}"
        );
        assert_eq!(failover.finding(at.after(Duration::from_hours(31 * 24))), None);
    }
}
