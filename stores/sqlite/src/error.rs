//! Maps SQLite's errors to the kinds of `oncebox::Error`. Tests: `tests/files.rs`, `tests/damage.rs`.

use oncebox_core::{Error, ErrorKind};
use rusqlite::ffi;

/// Maps an error before COMMIT. Nothing of the transaction is stored.
pub(crate) fn store_error(error: rusqlite::Error) -> Error {
    let (kind, what) = match error.sqlite_error_code() {
        Some(ffi::ErrorCode::DatabaseBusy | ffi::ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "another process holds the SQLite file")
        }
        Some(ffi::ErrorCode::DiskFull) => (ErrorKind::Full, "the disk or the SQLite file is full"),
        Some(ffi::ErrorCode::ReadOnly | ffi::ErrorCode::PermissionDenied) => {
            (ErrorKind::ReadOnly, "the SQLite file cannot be written")
        }
        Some(ffi::ErrorCode::CannotOpen) => (ErrorKind::Unavailable, "the SQLite file cannot be opened"),
        Some(ffi::ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, "reading or writing the SQLite file failed")
        }
        Some(ffi::ErrorCode::NotADatabase | ffi::ErrorCode::DatabaseCorrupt) => {
            (ErrorKind::Corrupt, "the file is not a sound SQLite database")
        }
        Some(ffi::ErrorCode::ConstraintViolation) => {
            (ErrorKind::Corrupt, "the stored rows contradict one another")
        }
        Some(ffi::ErrorCode::TooBig) => (ErrorKind::TooLarge, "SQLite cannot store a value of this size"),
        None if is_unreadable(&error) => {
            (ErrorKind::Corrupt, "the SQLite file holds a value that cannot be read")
        }
        _ if error.to_string().contains("no such table: oncebox_") => {
            (ErrorKind::SchemaOutdated, "the SQLite file has no tables of an inbox")
        }
        _ => (ErrorKind::Unavailable, "SQLite refused a statement"),
    };
    Error::new(kind, what).caused_by(error)
}

/// Returns true if a value does not fit its column.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(
        error,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..)
    )
}

/// Maps an error of COMMIT. A refused lock and a full disk are known to have changed nothing: SQLite writes the frame
/// that marks the commit last, and a torn frame has a wrong checksum. After any other failure, the commit may be in the
/// log when the file is opened again.
pub(crate) fn commit_error(error: rusqlite::Error) -> Error {
    let known = matches!(
        error.sqlite_error_code(),
        Some(ffi::ErrorCode::DatabaseBusy | ffi::ErrorCode::DatabaseLocked | ffi::ErrorCode::DiskFull)
    );
    let cause = store_error(error);
    if known {
        return cause;
    }
    let what = format!("SQLite did not confirm a commit, because {}", cause.what());
    Error::new(ErrorKind::CommitUnknown, what).caused_by(cause)
}

/// Returns true if the disk failed. The connection's memory may be wrong from then on.
pub(crate) fn is_io_failure(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
    cause.and_then(rusqlite::Error::sqlite_error_code) == Some(ffi::ErrorCode::SystemIoFailure)
}

/// Returns true if a retry may succeed: a lock was taken, or the snapshot was too old to write.
pub(crate) fn is_transient(error: &(dyn std::error::Error + 'static)) -> bool {
    // Check the causes of a failure, too: some wrappers keep the causes of an error, but not the error.
    let code = match error.downcast_ref::<rusqlite::Error>() {
        Some(error) => error.sqlite_error_code(),
        None => error.downcast_ref::<ffi::Error>().map(|error| error.code),
    };
    matches!(code, Some(ffi::ErrorCode::DatabaseBusy | ffi::ErrorCode::DatabaseLocked))
}

/// Returns the error for a writer thread that has ended, or ended before it answered.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the SQLite writer has stopped")
}

pub(crate) fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}
