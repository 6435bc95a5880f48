//! The error type of the library: a kind to match on, a sentence for operators, and the cause.

use std::error::Error as StdError;
use std::fmt;

/// Any error that can be a cause.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A result with the library's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error, by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The message has no usable dedupe key: its id is missing, empty or white space.
    MissingKey,
    /// The message was stored or handled before, and the inbox reports duplicates as errors.
    Duplicate,
    /// The message names no tenant though the inbox requires one, or names one though the inbox has none.
    Tenant,
    /// The message is invalid: a field is too long or has a forbidden value.
    InvalidMessage,
    /// The payload or a result exceeds the limit of the inbox.
    TooLarge,
    /// No handler is registered for the message's type, and the inbox refuses such messages.
    Unrouted,
    /// A setting is out of range, or two settings contradict each other.
    InvalidConfig,
    /// A handler registration is wrong: an empty, over-long or repeated handler key.
    InvalidHandler,
    /// The store does not support the request.
    Unsupported,
    /// The store did not respond, is locked by another process, or was stopped. A retry may succeed.
    Unavailable,
    /// The store or its disk is full. A retry succeeds once there is space.
    Full,
    /// The store refuses writes.
    ReadOnly,
    /// The store refused the login, the TLS connection or a privilege. A retry succeeds after an operator has restored access.
    Denied,
    /// The response to a commit was lost: the commit may have happened.
    CommitUnknown,
    /// The store's schema is newer than this build supports.
    SchemaTooNew,
    /// The store has no schema, or an older one that must be migrated first.
    SchemaOutdated,
    /// The store holds invalid data.
    Corrupt,
    /// The target does not exist.
    NotFound,
    /// The state of the target does not allow the action.
    Refused,
    /// The identity of an operation was used before for another action, target or reason.
    OperationReused,
    /// The store recorded other tenants settings for this inbox, under which the same message has another key.
    TenantsChanged,
    /// A handler failed; the cause is the handler's own error.
    Handler,
    /// A handler ended its transaction, which only the library may do.
    TransactionEnded,
    /// Another worker holds the claim by now.
    LeaseLost,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 24] = [
        Self::MissingKey,
        Self::Duplicate,
        Self::Tenant,
        Self::InvalidMessage,
        Self::TooLarge,
        Self::Unrouted,
        Self::InvalidConfig,
        Self::InvalidHandler,
        Self::Unsupported,
        Self::Unavailable,
        Self::Full,
        Self::ReadOnly,
        Self::Denied,
        Self::CommitUnknown,
        Self::SchemaTooNew,
        Self::SchemaOutdated,
        Self::Corrupt,
        Self::NotFound,
        Self::Refused,
        Self::OperationReused,
        Self::TenantsChanged,
        Self::Handler,
        Self::TransactionEnded,
        Self::LeaseLost,
    ];

    /// Returns the word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingKey => "missing_key",
            Self::Duplicate => "duplicate",
            Self::Tenant => "tenant",
            Self::InvalidMessage => "invalid_message",
            Self::TooLarge => "too_large",
            Self::Unrouted => "unrouted",
            Self::InvalidConfig => "invalid_config",
            Self::InvalidHandler => "invalid_handler",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Denied => "denied",
            Self::CommitUnknown => "commit_unknown",
            Self::SchemaTooNew => "schema_too_new",
            Self::SchemaOutdated => "schema_outdated",
            Self::Corrupt => "corrupt",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::OperationReused => "operation_reused",
            Self::TenantsChanged => "tenants_changed",
            Self::Handler => "handler",
            Self::TransactionEnded => "transaction_ended",
            Self::LeaseLost => "lease_lost",
        }
    }

    /// Returns true if the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Full
                | Self::Denied
                | Self::CommitUnknown
                | Self::LeaseLost
                | Self::Handler
        )
    }

    /// Returns true if the store failed, and not the request.
    pub const fn is_outage(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Full
                | Self::ReadOnly
                | Self::Denied
                | Self::CommitUnknown
                | Self::SchemaTooNew
                | Self::SchemaOutdated
                | Self::Corrupt
        )
    }

    /// Returns true if one message of a batch may have caused the error of the whole batch.
    pub const fn is_per_message(self) -> bool {
        matches!(
            self,
            Self::MissingKey
                | Self::InvalidMessage
                | Self::TooLarge
                | Self::Unrouted
                | Self::Tenant
                | Self::Corrupt
        )
    }

    /// Returns the state of the store after this error.
    pub const fn kept(self) -> &'static str {
        match self {
            Self::Duplicate => "it is kept as it came first",
            Self::CommitUnknown => "it is not known whether the change was stored",
            Self::Handler | Self::LeaseLost => "the handler's transaction was rolled back",
            Self::TransactionEnded => "what it wrote before may be committed, but the message is not done",
            _ => "nothing was stored by this call",
        }
    }

    /// Returns advice for the caller.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::MissingKey => {
                "give the message an id, choose another key strategy, or set `missing_key` to `Undeduplicated`"
            }
            Self::Duplicate => "acknowledge the delivery: its work was done before, or will be",
            Self::Tenant => "name the tenant at the source, or change `tenants`",
            Self::InvalidMessage => "correct the message at its producer",
            Self::TooLarge => "raise the limit, or send a reference to the data",
            Self::Unrouted => "register a handler for the type, or set `unrouted` to `Keep`",
            Self::InvalidConfig | Self::InvalidHandler => "correct the set-up and start again",
            Self::Unsupported => "use a store with this capability, or ask for less",
            Self::Unavailable => "try again; a delivery that waits for this must not be acknowledged",
            Self::Full => {
                "make room, then try again; a delivery that waits for this must not be acknowledged"
            }
            Self::ReadOnly => "check the file's permissions, or connect to the primary",
            Self::Denied => "restore the login, the certificate or the privilege, then try again",
            Self::CommitUnknown => {
                "repeat the call: the store recognises what it stored; do not acknowledge before it succeeds"
            }
            Self::SchemaTooNew => "use the newer build that made this schema",
            Self::SchemaOutdated => "run the migrations first",
            Self::Corrupt => "stop, keep a copy, and check the store",
            Self::NotFound => "check the key or number",
            Self::Refused => "look at the current state first",
            Self::OperationReused => "use a new operation id for each action, target and reason",
            Self::TenantsChanged => {
                "set `tenants` as before, name the tenant of the earlier messages in `adopted_tenant`, or set \
                 `on_tenants_change` to Accept if their redeliveries may run again"
            }
            Self::Handler => "fix the handler; the message is retried",
            Self::TransactionEnded => {
                "take the COMMIT or ROLLBACK out of the handler, then check what it has written"
            }
            Self::LeaseLost => "nothing: the new owner of the claim does the work",
        }
    }
}

/// Error of an inbox. Its text says what failed, what was kept and what to do.
pub struct Error {
    kind: ErrorKind,
    what: Box<str>,
    source: Option<BoxError>,
}

impl Error {
    /// Returns an error. `what` is the failure, without a full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into().into_boxed_str(), source: None }
    }

    /// Sets the cause.
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the cause alone.
    pub fn into_cause(self) -> Option<BoxError> {
        self.source
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the failure, without what was kept and what to do.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns true if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.kind.kept(), self.kind.advice())
    }
}

/// Readable too, because `main` prints errors this way: the whole sentence, then the kind and the causes.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.kind)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            // An inner error of the library would repeat what was kept and what to do.
            match error.downcast_ref::<Self>() {
                Some(inner) => write!(f, "\n  caused by: {}", inner.what)?,
                None => write!(f, "\n  caused by: {error}")?,
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Errors that tell the same story to several callers, as when they shared one transaction.
impl Error {
    /// A copy for another caller; the cause becomes its text, because causes cannot be copied.
    pub fn to_shared(&self) -> Self {
        let copy = Self::new(self.kind, self.what.to_string());
        match &self.source {
            Some(source) => copy.caused_by(source.to_string()),
            None => copy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_tells_the_whole_story_once() {
        let inner = Error::new(ErrorKind::Full, "the disk is full").caused_by("no space left");
        let error = Error::new(ErrorKind::CommitUnknown, "a commit was not confirmed").caused_by(inner);
        let text = format!("{error:?}");
        assert!(text.starts_with(&error.to_string()), "{text}");
        assert!(
            text.ends_with("(CommitUnknown)\n  caused by: the disk is full\n  caused by: no space left"),
            "{text}"
        );
    }
}
