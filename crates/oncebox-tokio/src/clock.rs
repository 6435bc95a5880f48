//! The clock of the operating system.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use oncebox_core::time::{Clock, SharedClock, Sleep, Timestamp};

/// Clock of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl SystemClock {
    /// Returns a shared system clock.
    pub fn shared() -> SharedClock {
        Arc::new(Self::default())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock everything else waits on")]
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}
