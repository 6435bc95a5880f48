//! Maps PostgreSQL's errors to the kinds of `oncebox::Error`. Tests: `tests/errors.rs`.

use std::fmt;

use oncebox_core::{Error, ErrorKind};

/// Phase of a change in which a statement failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxPhase {
    /// Inside an open transaction. After any error, nothing is stored.
    Before,
    /// The statement commits by itself, or is a COMMIT. If the answer is lost, the outcome is unknown.
    Commit,
    /// The COMMIT of a handler's writes. The handler must fix errors of deferred constraints.
    HandlersCommit,
}

/// Advice for a role that lacks a privilege on existing tables.
pub(crate) const GRANTS: &str =
    "; `oncebox migrate grants --role NAME` prints all that the owner of the tables has to grant";

/// Maps an error of the driver. The result never contains the URL, and so no password.
pub(crate) fn store_error(error: sqlx::Error, phase: TxPhase) -> Error {
    let (kind, what) = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default().into_owned();
            let mapped = by_code(&code, phase);
            // PostgreSQL's message names the table, role or value.
            let mut what = format!("{} ({})", mapped.what(), database.message());
            if code == "42501" && phase != TxPhase::HandlersCommit {
                what.push_str(GRANTS);
            }
            return Error::new(mapped.kind(), what).caused_by(ServerError { error, code });
        }
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            return lost(phase).caused_by(innermost(error));
        }
        sqlx::Error::Tls(_) => (ErrorKind::Unavailable, "the TLS connection to PostgreSQL failed"),
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => {
            (ErrorKind::InvalidConfig, "the connection settings for PostgreSQL are wrong")
        }
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::Decode(_) => {
            (ErrorKind::Corrupt, "PostgreSQL answered with a value that cannot be read")
        }
        sqlx::Error::Encode(_) => (ErrorKind::InvalidMessage, "a value cannot be sent to PostgreSQL"),
        _ => (ErrorKind::Unavailable, "PostgreSQL could not be used"),
    };
    Error::new(kind, what).caused_by(innermost(error))
}

/// Returns the error inside the driver's error, whose text would repeat it.
pub(crate) fn innermost(error: sqlx::Error) -> oncebox_core::BoxError {
    match error {
        sqlx::Error::Io(error) => error.into(),
        sqlx::Error::Tls(error) => error,
        error => error.into(),
    }
}

/// An error of the server, as the cause of an error that already contains its message. The driver's text would repeat
/// the message twice, with a line of the server's source.
#[derive(Debug)]
struct ServerError {
    error: sqlx::Error,
    code: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLSTATE {}", self.code)
    }
}

impl std::error::Error for ServerError {}

/// Returns the error for a connection that is gone, or did not answer in time.
pub(crate) fn lost(phase: TxPhase) -> Error {
    match phase {
        TxPhase::Before => Error::new(ErrorKind::Unavailable, "the connection to PostgreSQL was lost"),
        TxPhase::Commit | TxPhase::HandlersCommit => Error::new(
            ErrorKind::CommitUnknown,
            "the connection to PostgreSQL was lost before a commit was confirmed",
        ),
    }
}

/// Maps an SQLSTATE to an error.
pub(crate) fn by_code(code: &str, phase: TxPhase) -> Error {
    let (kind, what) = match code {
        // The server ended the session. Its statement may or may not have been committed.
        "57P01" | "57P02" | "57P05" | "25P03" | "25P04" => return lost(phase),
        _ if code.starts_with("08") => return lost(phase),
        // A deferred constraint or a trigger of the handler: the store has none of its own.
        _ if phase == TxPhase::HandlersCommit
            && (["22", "23", "P0"].contains(&code.get(..2).unwrap_or_default()) || code == "42501") =>
        {
            (ErrorKind::Handler, "what the handler wrote was refused when it was to be committed")
        }
        "57P03" => (ErrorKind::Unavailable, "PostgreSQL is starting up, shutting down or recovering"),
        "40001" => (ErrorKind::Unavailable, "PostgreSQL could not serialize the transaction"),
        "40P01" => (ErrorKind::Unavailable, "PostgreSQL ended a deadlock"),
        // The outcome of the statement is not known.
        "40003" => return lost(phase),
        "55P03" => (ErrorKind::Unavailable, "a lock in PostgreSQL was not free in time"),
        "57014" => (ErrorKind::Unavailable, "a statement took PostgreSQL too long, or was cancelled"),
        "53100" => (ErrorKind::Full, "PostgreSQL's disk is full"),
        "53300" | "53200" | "53400" => {
            (ErrorKind::Unavailable, "PostgreSQL has no connection or memory to spare")
        }
        "25006" => (ErrorKind::ReadOnly, "PostgreSQL takes no writes: it is a standby, or set to read only"),
        "25P02" => (ErrorKind::Handler, "the transaction was aborted by an error that was ignored"),
        // No transaction, or another one without the store's savepoint.
        "25P01" | "3B001" => {
            (ErrorKind::TransactionEnded, "the handler has ended the transaction that it was given")
        }
        "42501" => (ErrorKind::Denied, "the PostgreSQL role lacks a privilege"),
        "42P01" | "3F000" | "42883" | "42703" => {
            (ErrorKind::SchemaOutdated, "PostgreSQL lacks a table of the inbox")
        }
        "54000" | "54001" | "22021" | "22P05" | "22001" => {
            (ErrorKind::InvalidMessage, "PostgreSQL cannot store a value")
        }
        "28P01" | "28000" | "3D000" => (ErrorKind::Denied, "PostgreSQL refused the login"),
        // The same statement would fail again.
        _ if code.starts_with("42") || code == "0A000" => {
            (ErrorKind::InvalidConfig, "PostgreSQL refused a statement")
        }
        _ if code.starts_with("23") => (ErrorKind::Corrupt, "the stored rows contradict one another"),
        _ if code.starts_with("XX") => (ErrorKind::Corrupt, "PostgreSQL found its data damaged"),
        _ if code.starts_with("53") || code.starts_with("57") || code.starts_with("58") => {
            (ErrorKind::Unavailable, "PostgreSQL is in trouble")
        }
        _ => (ErrorKind::Unavailable, "PostgreSQL refused a statement"),
    };
    Error::new(kind, what)
}

/// Returns true if a retry of the transaction may succeed: PostgreSQL ended it because of a deadlock or a serialization
/// failure.
pub(crate) fn is_transient(error: &(dyn std::error::Error + 'static)) -> bool {
    let again = |code: &str| matches!(code, "40001" | "40P01");
    // Check the causes of a driver error, too: some wrappers keep the causes of an error, but not the error.
    let driver =
        error.downcast_ref::<sqlx::Error>().or_else(|| Some(&error.downcast_ref::<ServerError>()?.error));
    let database = match driver {
        Some(error) => error.as_database_error(),
        None => error.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>().map(|error| &**error),
    };
    if let Some(code) = database.and_then(sqlx::error::DatabaseError::code) {
        return again(&code);
    }
    #[cfg(feature = "tokio-postgres")]
    {
        let code = match error.downcast_ref::<tokio_postgres::Error>() {
            Some(error) => error.code(),
            None => error
                .downcast_ref::<tokio_postgres::error::DbError>()
                .map(tokio_postgres::error::DbError::code),
        };
        code.is_some_and(|code| again(code.code()))
    }
    #[cfg(not(feature = "tokio-postgres"))]
    false
}

/// While a store is opened, a refused login or privilege is an error of the configuration: waiting does not help.
pub(crate) fn at_start(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Denied => {
            let refused = Error::new(ErrorKind::InvalidConfig, error.what());
            match error.into_cause() {
                Some(cause) => refused.caused_by(cause),
                None => refused,
            }
        }
        _ => error,
    }
}

/// Error after the change itself was committed: the same call again finds out the result. A caller that read \"nothing
/// was stored\" would drop the claim, and its entries would wait for their lease.
pub(crate) fn unread(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::ReadOnly | ErrorKind::Denied => {
            Error::new(ErrorKind::CommitUnknown, "the change was made, but what it did could not be read")
                .caused_by(error)
        }
        _ => error,
    }
}

/// Returns the column that `session/finish.sql` left empty because it refused to complete a claim.
pub(crate) fn refused(error: &sqlx::Error) -> Option<&str> {
    let error = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    error.column().filter(|_| error.code() == "23502")
}

/// Returns true if the connection is unusable.
pub(crate) fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => database.code().is_some_and(|code| {
            // 26000: a handler deallocated the prepared statements.
            matches!(&*code, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "26000")
                || code.starts_with("08")
        }),
        sqlx::Error::RowNotFound => false,
        _ => true,
    }
}

/// Returns the error for an unreadable value of a received row.
pub(crate) fn unreadable(error: sqlx::Error) -> Error {
    store_error(error, TxPhase::Before)
}

pub(crate) fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}
