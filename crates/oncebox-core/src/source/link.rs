//! The connection of a source to its broker, as health reports it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connection state of a source, shared by the source and the health checks of its inbox. Connected unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct BrokerLink {
    trouble: Arc<Mutex<Option<Arc<str>>>>,
}

impl BrokerLink {
    /// Reports that the source receives.
    pub fn up(&self) {
        *self.lock() = None;
    }

    /// Reports that the source cannot receive, and why. Health is public: write the reason in your own words, and leave out
    /// the text of the broker's error.
    pub fn down(&self, reason: impl Into<Arc<str>>) {
        *self.lock() = Some(reason.into());
    }

    /// Returns why the source cannot receive; `None` while it can.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.lock().clone()
    }

    /// No code panics while it holds the lock, so its content is whole.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
