//! Errors of settings and of the broker, as errors of the library. Tests: builder.rs and tests/deliveries.rs.

use oncebox_core::{Error, ErrorKind, Result};

/// Returns an error about a setting: its name, the reason, and what to do.
pub(crate) fn refuse<T>(option: &str, why: &str, fix: &str) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidConfig, format!("`{option}`: {why}; {fix}")))
}

/// Returns an error of the broker or of the connection.
pub(crate) fn broken(what: impl Into<String>, cause: lapin::Error) -> Error {
    let what = what.into();
    Error::new(ErrorKind::Unavailable, format!("{what}: {cause}")).caused_by(cause)
}
