//! Dedupe in the memory of the process, for effects that may happen again after a restart. Tests: `tests/recent.rs`.

mod keys;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{is_blank, recent_digest};
use crate::time::{SharedClock, SystemClock};
use keys::{KeyAdmission, RecentKeys};

/// The identity of a key within its scope.
type KeyDigest = [u8; 32];

/// Recently handled keys, in the memory of this process. Cheap to clone; clones share their keys.
///
/// It is bounded and never forgets early: when it is full, it returns [`ErrorKind::Full`]. A restart forgets everything.
/// Effects that must not happen twice need an [`Inbox`](crate::Inbox).
///
/// ```
/// use oncebox::{Admission, Recent};
///
/// # fn main() -> oncebox::Result<()> {
/// let recent = Recent::default();
/// for _delivery in 0..3 {
///     match recent.admit("evt_1")? {
///         Admission::First(permit) => {
///             println!("handled once");
///             permit.done(); // dropped without it, as by `?`, the key is free again
///         }
///         Admission::Duplicate => {}
///         Admission::Busy => println!("another task has the key: hold the delivery back"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Recent {
    shared: Arc<Shared>,
    /// Separates the keys of one handler from those of another.
    scope: Arc<str>,
}

struct Shared {
    clock: SharedClock,
    retention: Duration,
    keys: Mutex<RecentKeys>,
}

impl Recent {
    /// Default retention of a key after its work is done.
    pub const RETENTION: Duration = Duration::from_mins(10);
    /// Default maximum of remembered keys.
    pub const CAPACITY: usize = 100_000;

    /// Begins a `Recent` with other settings.
    pub fn builder() -> RecentBuilder {
        RecentBuilder { retention: Self::RETENTION, capacity: Self::CAPACITY, clock: None }
    }

    /// Returns the same memory for another handler, with separate keys and a shared capacity.
    pub fn of(&self, handler: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), scope: handler.into() }
    }

    /// Decides if the work of a key must be done. [`ErrorKind::Full`] means that there is no room for the key: hold the
    /// delivery back, it is no duplicate. [`ErrorKind::MissingKey`] means that the key is empty or only white space.
    pub fn admit(&self, key: impl AsRef<[u8]>) -> Result<Admission> {
        if is_blank(key.as_ref()) {
            let what =
                "the key is empty or only white space, and would be the same for all messages without one";
            return Err(Error::new(ErrorKind::MissingKey, what));
        }
        let id = recent_digest(&self.scope, key.as_ref());
        // Read the clock under the lock, so that times grow with the calls.
        let mut keys = self.shared.keys.lock();
        match keys.admit(id, self.shared.clock.monotonic()) {
            KeyAdmission::Free => {}
            KeyAdmission::Done => return Ok(Admission::Duplicate),
            KeyAdmission::Open => return Ok(Admission::Busy),
            KeyAdmission::Full => {
                let what =
                    format!("{} keys are remembered, the most there may be (`capacity`)", keys.capacity());
                return Err(Error::new(ErrorKind::Full, what));
            }
        }
        drop(keys);
        Ok(Admission::First(Permit { shared: Arc::clone(&self.shared), id: Some(id) }))
    }

    /// Returns the number of keys in memory.
    pub fn len(&self) -> usize {
        self.shared.keys.lock().len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Recent {
    /// [`RETENTION`](Self::RETENTION) and [`CAPACITY`](Self::CAPACITY), on the clock of the operating system.
    fn default() -> Self {
        let (clock, keys) = (SystemClock::shared(), Mutex::new(RecentKeys::new(Self::CAPACITY)));
        Self { shared: Arc::new(Shared { clock, retention: Self::RETENTION, keys }), scope: "".into() }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent")
            .field("keys", &self.len())
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Builder of a [`Recent`].
pub struct RecentBuilder {
    retention: Duration,
    capacity: usize,
    clock: Option<SharedClock>,
}

impl RecentBuilder {
    /// Retention of a key after its work is done. Default: 10 minutes.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Maximum keys in memory, including keys in work. Default: 100,000, about 15 MB.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }

    /// Sets the clock. Default: the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks the settings and makes the memory.
    pub fn build(self) -> Result<Recent> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidConfig, what));
        if self.capacity == 0 {
            return refuse("`capacity` is 0: no key could be remembered; 1 is the least");
        }
        if self.retention.is_zero() {
            return refuse("`retention` is 0: every key would be forgotten at once; choose a time above 0");
        }
        let (clock, keys) =
            (self.clock.unwrap_or_else(SystemClock::shared), Mutex::new(RecentKeys::new(self.capacity)));
        Ok(Recent { shared: Arc::new(Shared { clock, retention: self.retention, keys }), scope: "".into() })
    }
}

impl fmt::Debug for RecentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentBuilder")
            .field("retention", &self.retention)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Result of [`Recent::admit`].
#[derive(Debug)]
#[must_use = "a duplicate's work must not be done again"]
pub enum Admission {
    /// The key is new: do the work, then call [`Permit::done`].
    First(Permit),
    /// The work was done recently.
    Duplicate,
    /// Another task has the permit for this key.
    Busy,
}

/// Exclusive right to work on a key. A drop without [`done`](Self::done), after an error or a panic, frees the key.
#[must_use = "the key is free again when this is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    /// `None` once the work is done.
    id: Option<KeyDigest>,
}

impl Permit {
    /// Records that the work is done, and remembers the key.
    pub fn done(mut self) {
        if let Some(id) = self.id.take() {
            let mut keys = self.shared.keys.lock();
            keys.done(id, self.shared.clock.monotonic().saturating_add(self.shared.retention));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.shared.keys.lock().free(&id);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
