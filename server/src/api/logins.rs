//! Requests that the API refuses because of who asks: counted and logged, a few lines a minute.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use metrics::counter;
use oncebox::observe::names;
use parking_lot::Mutex;

use super::problem::ProblemKind;

/// How often a refusal is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Remembers when a refusal was logged last.
#[derive(Debug, Default)]
pub(super) struct RefusedLogins(Mutex<RefusalLog>);

#[derive(Debug, Default)]
struct RefusalLog {
    last: Option<Instant>,
    suppressed: u64,
}

impl RefusedLogins {
    /// Counts a refusal, and logs it unless another one was logged a moment ago. The server slows down those that go on.
    pub(super) fn note(&self, cause: ProblemKind, why: &str, head: &Parts, peer: Option<SocketAddr>) {
        let reason = match cause {
            ProblemKind::Unauthenticated => "token",
            _ => "access",
        };
        counter!(names::API_REFUSED, "reason" => reason).increment(1);
        let Some(suppressed) = self.may_log(Instant::now()) else { return };
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.ip().to_string());
        tracing::warn!(peer, path = head.uri.path(), why, suppressed, "API request refused");
    }

    /// Returns how many lines were left out since the last one, if there may be one now.
    fn may_log(&self, now: Instant) -> Option<u64> {
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

    // FAULTS S2, J6: a guesser fills no log, and is not overlooked.
    #[test]
    fn a_line_says_how_many_were_left_out() {
        let (refused, start) = (RefusedLogins::default(), Instant::now());
        assert_eq!(refused.may_log(start), Some(0));
        assert!((0..500).all(|_| refused.may_log(start).is_none()));
        assert_eq!(refused.may_log(start + LOG_INTERVAL), Some(500));
        assert_eq!(refused.may_log(start + 2 * LOG_INTERVAL), Some(0));
    }
}
