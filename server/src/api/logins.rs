//! Counts and logs requests that the API refuses for their token or origin. Tests: below.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use metrics::counter;
use oncebox::observe::names;
use parking_lot::Mutex;

use super::problem::ProblemKind;

/// Minimum time between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Log throttle for refusals.
#[derive(Debug, Default)]
pub(super) struct RefusedLogins(Mutex<RefusalLog>);

#[derive(Debug, Default)]
struct RefusalLog {
    last: Option<Instant>,
    suppressed: u64,
}

impl RefusedLogins {
    /// Counts a refusal, and logs it at most once per [`LOG_INTERVAL`]. The server slows down clients that repeat it.
    pub(super) fn note(&self, kind: ProblemKind, detail: &str, head: &Parts, peer: Option<SocketAddr>) {
        let reason = match kind {
            ProblemKind::Unauthenticated => "token",
            _ => "access",
        };
        counter!(names::API_REFUSED, "reason" => reason).increment(1);
        let Some(suppressed) = self.allow(Instant::now()) else { return };
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.ip().to_string());
        tracing::warn!(peer, path = head.uri.path(), detail, suppressed, "API request refused");
    }

    /// Returns the number of suppressed lines if a line is due now.
    fn allow(&self, now: Instant) -> Option<u64> {
        let mut log = self.0.lock();
        if log.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_INTERVAL) {
            log.suppressed += 1;
            return None;
        }
        log.last = Some(now);
        Some(std::mem::take(&mut log.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS S2, J6: a client that guesses tokens cannot fill the log, and is still reported.
    #[test]
    fn a_line_reports_the_suppressed_ones() {
        let (refused, start) = (RefusedLogins::default(), Instant::now());
        assert_eq!(refused.allow(start), Some(0));
        assert!((0..500).all(|_| refused.allow(start).is_none()));
        assert_eq!(refused.allow(start + LOG_INTERVAL), Some(500));
        assert_eq!(refused.allow(start + 2 * LOG_INTERVAL), Some(0));
    }
}
