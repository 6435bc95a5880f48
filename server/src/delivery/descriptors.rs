//! Detects deliveries that fail because no file descriptor is left. Tests: below and `tests/serve/descriptors.rs`.

use std::error::Error;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum delay until such a delivery is retried.
pub(super) const DESCRIPTORS_AGAIN: Duration = Duration::from_secs(1);
/// Minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Returns true if a request failed because no file descriptor was left, for its connection or for name resolution.
pub(super) fn lacks_descriptors(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    // The resolver does not report the cause.
    causes.any(names_lack) || (error.is_connect() && none_is_left())
}

fn names_lack(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(is_lack)
}

/// EMFILE and ENFILE.
#[cfg(unix)]
fn is_lack(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|lack| number == Some(lack.raw_os_error()))
}

#[cfg(not(unix))]
fn is_lack(_: &std::io::Error) -> bool {
    false
}

/// Returns true if no descriptor is available now.
fn none_is_left() -> bool {
    std::net::UdpSocket::bind("127.0.0.1:0").is_err_and(|error| is_lack(&error))
}

/// Log throttle.
#[derive(Debug, Default)]
pub(super) struct DescriptorsLog(Mutex<Option<Instant>>);

impl DescriptorsLog {
    /// Returns true if a line may be logged now.
    pub(super) fn allow(&self) -> bool {
        let (mut last, now) = (self.0.lock(), Instant::now());
        let allowed = last.is_none_or(|last| now.saturating_duration_since(last) >= LOG_INTERVAL);
        if allowed {
            *last = Some(now);
        }
        allowed
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct WrappedIoError(#[source] std::io::Error);

    #[test]
    fn a_lack_is_known_by_its_number() {
        for (number, lacks) in [(24, true), (23, true), (111, false)] {
            let error = WrappedIoError(std::io::Error::from_raw_os_error(number));
            let mut causes = std::iter::successors(error.source(), |&error| error.source());
            assert_eq!(causes.any(names_lack), lacks, "{number}");
        }
        assert!(!none_is_left());
    }

    #[test]
    fn the_lack_is_logged_once_per_interval() {
        let log = DescriptorsLog::default();
        assert!(log.allow() && !log.allow());
    }
}
