//! Dedupe in the memory of the process, without a store: for effects that may happen again after a restart.

mod keys;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{Digest, Purpose, is_blank};
use crate::time::{SharedClock, SystemClock};
use keys::{Found, Keys};

/// The identity of a key within its scope.
type Id = [u8; 32];

/// Keys that were handled a short while ago, in the memory of this process. Cheap to clone; clones share their keys.
///
/// It is bounded and never forgets early: when it is full of keys that it promised to remember, it refuses with
/// [`ErrorKind::Full`]. A restart forgets everything; what must not happen twice needs an [`Inbox`](crate::Inbox).
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
///         Admission::Busy => println!("somebody is at it: hold the delivery back"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Recent {
    shared: Arc<Shared>,
    /// What keeps the keys of one handler from those of another.
    scope: Arc<str>,
}

struct Shared {
    clock: SharedClock,
    retention: Duration,
    keys: Mutex<Keys>,
}

impl Recent {
    /// How long a key is remembered once its work is done, unless told otherwise.
    pub const RETENTION: Duration = Duration::from_mins(10);
    /// How many keys are remembered at most, unless told otherwise.
    pub const CAPACITY: usize = 100_000;

    /// Begins one with other settings.
    pub fn builder() -> RecentBuilder {
        RecentBuilder { retention: Self::RETENTION, capacity: Self::CAPACITY, clock: None }
    }

    /// The same memory for another handler: the keys of one are never those of another. They share the capacity.
    pub fn of(&self, handler: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), scope: handler.into() }
    }

    /// Whether the work of a key is to be done. An error of kind [`ErrorKind::Full`] says that there is no room to
    /// remember it: hold the delivery back, it is no duplicate. One of kind [`ErrorKind::MissingKey`] says that the key is
    /// empty or only white space: messages without an id are not one message.
    pub fn admit(&self, key: impl AsRef<[u8]>) -> Result<Admission> {
        if is_blank(key.as_ref()) {
            let what =
                "the key is empty or only white space, and would be the same for all messages without one";
            return Err(Error::new(ErrorKind::MissingKey, what));
        }
        let mut digest = Digest::new(Purpose::Recent);
        digest.part(self.scope.as_bytes());
        digest.part(key.as_ref());
        let id = digest.finish();
        // Under the lock: who comes later is never dated earlier.
        let mut keys = self.shared.keys.lock();
        match keys.admit(id, self.shared.clock.monotonic()) {
            Found::Free => {}
            Found::Done => return Ok(Admission::Duplicate),
            Found::Open => return Ok(Admission::Busy),
            Found::Full => {
                let what =
                    format!("{} keys are remembered, the most there may be (`capacity`)", keys.capacity());
                return Err(Error::new(ErrorKind::Full, what));
            }
        }
        drop(keys);
        Ok(Admission::First(Permit { shared: Arc::clone(&self.shared), id: Some(id) }))
    }

    /// How many keys take up room now.
    pub fn len(&self) -> usize {
        self.shared.keys.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Recent {
    /// [`RETENTION`](Self::RETENTION) and [`CAPACITY`](Self::CAPACITY), on the clock of the operating system.
    fn default() -> Self {
        let (clock, keys) = (SystemClock::shared(), Mutex::new(Keys::new(Self::CAPACITY)));
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

/// A [`Recent`] in the making.
pub struct RecentBuilder {
    retention: Duration,
    capacity: usize,
    clock: Option<SharedClock>,
}

impl RecentBuilder {
    /// How long a key is remembered once its work is done. Default 10 minutes.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// How many keys are remembered at most, those that are being worked on included. Default 100,000, which take up
    /// about 15 MB.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }

    /// Takes time from another clock than the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks the settings.
    pub fn build(self) -> Result<Recent> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidConfig, what));
        if self.capacity == 0 {
            return refuse("`capacity` is 0: no key could be remembered; 1 is the least");
        }
        if self.retention.is_zero() {
            return refuse("`retention` is 0: every key would be forgotten at once; choose a time above 0");
        }
        let (clock, keys) =
            (self.clock.unwrap_or_else(SystemClock::shared), Mutex::new(Keys::new(self.capacity)));
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

/// What [`Recent::admit`] found.
#[derive(Debug)]
#[must_use = "a duplicate's work must not be done again"]
pub enum Admission {
    /// The key is new: do the work, then say so with [`Permit::done`].
    First(Permit),
    /// The work was done a short while ago.
    Duplicate,
    /// Somebody else has the permit for this key: neither done nor free.
    Busy,
}

/// The right to work on a key, which nobody else has meanwhile. Dropping it without [`done`](Self::done), as an error or a
/// panic does, sets the key free.
#[must_use = "the key is free again when this is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    /// `None` once the work is done.
    id: Option<Id>,
}

impl Permit {
    /// The work is done: the key is remembered from now on.
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
