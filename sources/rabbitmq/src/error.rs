//! Errors, in the words of the library.

use oncebox_core::{Error, ErrorKind, Result};

/// An error about a setting: which one it is, why it cannot work, and what to do.
pub(crate) fn refuse<T>(option: &str, why: &str, fix: &str) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidConfig, format!("`{option}`: {why}; {fix}")))
}

/// An error of the broker, or on the way to it.
pub(crate) fn broken(what: impl Into<String>, cause: lapin::Error) -> Error {
    let what = what.into();
    Error::new(ErrorKind::Unavailable, format!("{what}: {cause}")).caused_by(cause)
}
