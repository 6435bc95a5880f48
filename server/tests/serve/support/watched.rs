//! A shared list that tests can wait on.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::PATIENCE;

#[derive(Debug)]
pub(crate) struct WatchedList<T>(Arc<(Mutex<Vec<T>>, Condvar)>);

impl<T> Clone for WatchedList<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for WatchedList<T> {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(Vec::new()), Condvar::new())))
    }
}

impl<T: Clone + std::fmt::Debug> WatchedList<T> {
    pub(crate) fn push(&self, value: T) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
        self.0.1.notify_all();
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `done` returns a value for the list, and returns it.
    pub(crate) fn wait<R>(&self, what: &str, mut done: impl FnMut(&[T]) -> Option<R>) -> R {
        let mut found = None;
        let guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (list, _) = self
            .0
            .1
            .wait_timeout_while(guard, PATIENCE, |list| {
                found = done(list);
                found.is_none()
            })
            .unwrap_or_else(PoisonError::into_inner);
        found.unwrap_or_else(|| panic!("waited in vain for {what}; there is {list:#?}"))
    }
}
